//! Accesses to shared values in the event log, in recordings and in the report of a search.

use std::{io::Cursor, rc::Rc};

use trapline::{
    Event, Kernel, Os, Shared, check,
    record::{Header, Recorder, Recording},
};

use crate::support::*;

/// The accesses of a log, as its lines without their times.
fn accesses(log: &Diary) -> Vec<String> {
    let lines = log.lines().into_iter();
    let short = lines.map(|line| line.split_once(' ').unwrap().1.to_string());
    short.filter(|line| line.contains("shared")).collect()
}

fn race(kernel: &mut Kernel) -> Shared<u32> {
    let (sum, other) = (Shared::named("sum", 0), Shared::new(0));
    for name in ["left", "right"] {
        let (sum, other) = (sum.clone(), other.clone());
        let task = async move |os: &mut Os| {
            let read = sum.get();
            os.yield_now().await;
            sum.set(read + 1);
            other.with(|_| {});
        };
        kernel.spawn(name, task).unwrap();
    }
    sum
}

#[test]
fn each_access_is_a_fact_and_values_have_their_names() {
    let (mut kernel, log) = logged(sim());
    let sum = race(&mut kernel);
    kernel.run().unwrap();
    assert_eq!(sum.get(), 1);
    let expected = [
        r#"1 reads shared 1 "sum""#,
        r#"2 reads shared 1 "sum""#,
        r#"1 writes shared 1 "sum""#,
        "1 reads shared 2",
        r#"2 writes shared 1 "sum""#,
        "2 reads shared 2",
    ];
    assert_eq!(accesses(&log), expected);
}

#[test]
fn an_access_within_another_names_its_value() {
    let uses: [fn(&Shared<u32>); 3] = [
        |sum| sum.update(|_| sum.set(1)),
        |sum| sum.update(|_| _ = sum.get()),
        |sum| sum.with(|_| sum.update(|_| {})),
    ];
    for (sum, name) in [(Shared::named("sum", 0), " \"sum\""), (Shared::new(0), "")] {
        for each in uses {
            let mut kernel = Kernel::simulated(0);
            let sum = sum.clone();
            let task = async move |_: &mut Os| each(&sum);
            let tid = kernel.spawn("task", task).unwrap();
            let exit = kernel.run().unwrap().exits()[&tid].to_string();
            let why = format!("a closure uses the shared value{name} within another closure");
            assert!(exit.contains(&why), "{exit}");
        }
    }
}

#[test]
fn an_access_is_before_the_call_after_it_and_has_its_place() {
    let places = Diary::default();
    let notes = places.clone();
    let tracer = move |event: &Event<'_>| {
        let place = event.place.as_ref().map(|place| place.path().into_owned());
        let is_access = event.fact.accessed().is_some();
        if is_access || event.fact.call().is_some() {
            notes.note(format!("{} {:?}", event.fact, place.filter(|_| is_access)));
        }
    };
    let mut kernel = sim().tracer(tracer).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let value = Shared::new(1);
        value.set(2);
        os.get_tid().await;
    });
    let lines = places.lines();
    assert_eq!(lines[0], r#"writes shared 1 Some("tests/it/accesses.rs")"#);
    assert_eq!(lines[1], "trapped get_tid() None");
}

#[test]
fn of_the_accesses_of_a_turn_the_first_read_and_the_first_write_count() {
    let (mut kernel, log) = logged(sim());
    run_main(&mut kernel, async |os: &mut Os| {
        let (one, two) = (Shared::new(0), Shared::new(0));
        for _ in 0..1000 {
            one.set(one.get() + two.get());
            two.update(|two| *two += 1);
        }
        os.yield_now().await;
        one.set(0);
    });
    let turn = [
        "reads shared 1",
        "reads shared 2",
        "writes shared 1",
        "writes shared 2",
    ];
    let expected = turn.iter().chain(&turn[2..3]);
    let expected: Vec<String> = expected.map(|line| format!("1 {line}")).collect();
    assert_eq!(accesses(&log), expected);
}

/// The destructors of a killed task run in the turn of its killer.
#[test]
fn a_destructor_is_noted_in_the_turn_that_runs_it() {
    struct Last(Shared<u32>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.set(7);
        }
    }
    let (mut kernel, log) = logged(sim());
    let value = Shared::new(0);
    let last = Last(value.clone());
    run_main(&mut kernel, async move |os: &mut Os| {
        let victim = async move |os: &mut Os| {
            let _last = last;
            os.sleep(std::time::Duration::MAX).await;
        };
        let victim = os.spawn_detached("victim", victim).await.unwrap();
        os.yield_now().await;
        os.kill(victim).await;
    });
    assert_eq!(value.get(), 7);
    assert_eq!(accesses(&log), ["1 writes shared 1"]);
}

#[test]
fn neither_the_host_nor_a_kernel_without_tracers_is_noted() {
    let (mut kernel, log) = logged(sim());
    let shared = Shared::new(0);
    let mine = shared.clone();
    run_main(&mut kernel, async move |_: &mut Os| mine.set(1));
    shared.set(shared.get() + 1);
    let mine = shared.clone();
    run_main(&mut Kernel::simulated(1), async move |_: &mut Os| {
        mine.set(2);
    });
    run_main(&mut kernel, async |os: &mut Os| os.yield_now().await);
    assert_eq!(accesses(&log), ["1 writes shared 1"]);
}

/// The numbers count from one in each run, whatever the thread has done before.
#[test]
fn s51_a_kernel_that_is_made_as_new_writes_the_same_log() {
    let (mut kernel, log) = logged(sim());
    let kept = Shared::named("kept", 0);
    let mut logs = Vec::new();
    for _ in 0..3 {
        kernel.reset(5).unwrap();
        let before = log.lines().len();
        race(&mut kernel);
        let kept = kept.clone();
        kernel
            .spawn("kept", async move |_: &mut Os| kept.set(1))
            .unwrap();
        kernel.run().unwrap();
        logs.push(log.lines().split_off(before));
    }
    assert!(
        logs[0]
            .iter()
            .any(|line| line.ends_with(r#"writes shared 2 "kept""#)),
        "{logs:?}"
    );
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0], logs[2]);
}

#[test]
fn a_recording_has_the_accesses() {
    let file = Scratch::new("accesses");
    let (mut kernel, log) = {
        let recorder = Recorder::create(&file.0, &Header::default()).unwrap();
        logged(sim().tracer(recorder))
    };
    race(&mut kernel);
    kernel.run().unwrap();
    drop(kernel);
    let events = Recording::from_reader(Cursor::new(file.bytes())).unwrap();
    let events: Vec<_> = events.map(Result::unwrap).collect();
    let lines = events.iter().map(ToString::to_string);
    assert!(lines.eq(log.lines()));
    let accesses = events
        .iter()
        .filter(|event| event.fact.accessed().is_some());
    let places = accesses.map(|event| event.place.as_ref().unwrap().path().into_owned());
    assert!(places.eq(["tests/it/accesses.rs"; 6]));
}

#[test]
fn a_report_has_the_names_of_shared_values() {
    let failure = check(|kernel| {
        let sum = race(kernel);
        kernel.run()?;
        assert_eq!(sum.get(), 2, "an increment is lost");
        Ok(())
    });
    let details = failure.explore().failure.expect("it is lost").details;
    for part in [
        r#"left 1         reads shared 1 "sum", yield() = ok"#,
        r#"writes shared 1 "sum", reads shared 2, exits: done"#,
        r#"the test reads shared 1 "sum""#,
    ] {
        assert!(details.contains(part), "{part} is in {details}");
    }
}

/// `with` is a read: two of them commute, and an order of a read and a write is searched.
#[test]
fn a_look_is_a_read_to_a_search() {
    let searched = |writes: bool| {
        let explored = check(move |kernel| {
            let value = Rc::new(Shared::new(0));
            for name in ["left", "right"] {
                let value = Rc::clone(&value);
                let writes = writes && name == "left";
                kernel.spawn(name, async move |_: &mut Os| match writes {
                    true => value.set(1),
                    false => value.with(|_| {}),
                })?;
            }
            kernel.run().map(drop)
        });
        explored.exhaustive().explore().classes
    };
    assert_eq!((searched(false), searched(true)), (1, 2));
}
