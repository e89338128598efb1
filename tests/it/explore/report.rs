//! The report of a failure: its schedule with the fewest preemptions, and the recordings beside it.

use std::{cell::RefCell, env, io, rc::Rc};

use trapline::{
    Error, Kernel, Os, check,
    record::{OwnedEvent, Recording},
};

/// Tasks that append their names; fails if that makes `forbidden`.
fn forbids(forbidden: &'static str) -> impl Fn(&mut Kernel) -> Result<(), Error> + Sync {
    move |kernel| {
        let order = Rc::new(RefCell::new(String::new()));
        let mut names: Vec<char> = forbidden.chars().collect();
        names.sort_unstable();
        for name in names {
            let order = Rc::clone(&order);
            kernel.spawn(name.to_string(), async move |os: &mut Os| {
                order.borrow_mut().push(name);
                os.yield_now().await;
            })?;
        }
        kernel.run()?;
        assert_ne!(*order.borrow(), forbidden, "the forbidden order");
        Ok(())
    }
}

#[test]
fn a_failure_has_the_fewest_preemptions() {
    for (forbidden, preemptions) in [("abcd", 0), ("bacd", 2), ("cdab", 1), ("dcba", 3)] {
        for seed in [0, 1000] {
            let failure = check(forbids(forbidden)).seed(seed).explore().failure;
            let failure = failure.expect("some schedule is forbidden");
            assert_eq!(failure.preemptions, preemptions, "{forbidden}: {failure}");
            let least = failure
                .details
                .contains("no schedule of this seed fails with fewer");
            assert_eq!(least, preemptions > 0, "{failure}");
        }
    }
}

/// Its call waits behind the close of the connection before, so the task has two turns in a row.
#[test]
fn a_turn_has_a_row_although_its_task_had_the_one_before() {
    let asks = |kernel: &mut Kernel| {
        kernel.spawn_on("server", "server", async |os: &mut Os| -> io::Result<()> {
            let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
            loop {
                let (stream, _) = listener.accept(os).await?;
                stream.recv(os, &mut [0; 1]).await?;
                stream.send_all(os, b"k").await?;
            }
        })?;
        let client = kernel.spawn_on("client", "client", async |os: &mut Os| {
            let stream = os.connect(("server", 80)).await.unwrap();
            stream.send_all(os, b"q").await.unwrap();
            stream.recv(os, &mut [0; 1]).await.unwrap();
            os.yield_now().await;
            panic!("the end");
        })?;
        kernel.run_until(&[client])?.check()
    };
    let failure = check(asks).schedules(1).explore().failure;
    let failure = failure.expect("its client panics").to_string();
    let number = |line: &str| line.split_whitespace().next()?.parse().ok();
    let turns: Vec<u32> = failure.lines().filter_map(number).collect();
    let all: Vec<u32> = (1..=turns.len() as u32).collect();
    assert_eq!(turns, all, "{failure}");
    assert!(turns.len() > 10, "{failure}");
}

#[test]
fn the_report_shows_the_turns_around_a_preemption() {
    let failure = check(forbids("bca"))
        .explore()
        .failure
        .expect("some schedule is forbidden");
    let details: Vec<&str> = failure.details.lines().collect();
    // Each call is shown with its line in `forbids`.
    let place = details[2].split_whitespace().last().expect("it has one");
    let line = place.strip_prefix("it/explore/report.rs:");
    assert!(
        line.is_some_and(|line| line.parse::<u32>().is_ok()),
        "{failure}"
    );
    let details: Vec<String> = details
        .iter()
        .map(|line| line.replace(place, "HERE"))
        .collect();
    assert_eq!(
        details[1..],
        [
            "    !  a 1 is preempted where it begins",
            "      1  b 2            yield() = ok                              HERE",
            "      2  c 3            yield() = ok                              HERE",
            "      3  a 1            yield() = ok                              HERE",
            "      4  b 2            exits: done",
            "      5  c 3            exits: done",
            "      6  a 1            exits: done",
            "doomed from turn 2, c 3: yield() at HERE",
            "  before it, 15 of all 30 schedules pass; after it, none of all 12",
            "  in its place, one that passes has b 2: its last turn",
            &format!(
                "to see it again:  TRAPLINE_REPLAY={} cargo test \
                 explore::report::the_report_shows_the_turns_around_a_preemption -- --exact",
                failure.replay
            ),
        ]
        .map(|line| if line.starts_with("    !") {
            format!("  {line}")
        } else {
            line.into()
        })
    );
    assert!(details[0].ends_with(
        "; one fails with 1 of its 6 turns preempted; no schedule of this seed fails with fewer"
    ));
}

#[test]
fn a_preemption_names_the_call_before_it() {
    let late = |kernel: &mut Kernel| {
        let order = Rc::new(RefCell::new(String::new()));
        for (name, again) in [("a", "A"), ("b", "B")] {
            let order = Rc::clone(&order);
            kernel.spawn(name, async move |os: &mut Os| {
                order.borrow_mut().push_str(name);
                os.yield_now().await;
                order.borrow_mut().push_str(again);
            })?;
        }
        kernel.run()?;
        assert_ne!(*order.borrow(), "abBA");
        Ok(())
    };
    let failure = check(late).preemptions(1).explore().failure;
    let failure = failure.expect("one preemption suffices");
    let line = failure
        .details
        .lines()
        .find(|line| line.contains("preempted after"));
    let line = line.expect("the first task has had a turn");
    assert!(
        line.contains("!  a 1 is preempted after yield() at it/explore/report.rs:"),
        "{failure}"
    );
}

#[test]
fn many_preemptions_are_reduced_in_a_second() {
    // Four times in a row, the second of two tasks must go first: too many to try all schedules.
    let alternating = |kernel: &mut Kernel| {
        let order = Rc::new(RefCell::new(String::new()));
        for name in ["a", "b"] {
            let order = Rc::clone(&order);
            kernel.spawn(name, async move |os: &mut Os| {
                for _ in 0..4 {
                    order.borrow_mut().push_str(name);
                    os.yield_now().await;
                }
                for _ in 0..200 {
                    os.yield_now().await;
                }
            })?;
        }
        kernel.run()?;
        assert_ne!(*order.borrow(), "aaaabbbb");
        Ok(())
    };
    let failure = check(alternating).schedules(100_000).explore().failure;
    let failure = failure.expect("one in 70 does");
    assert!(failure.preemptions <= 4, "{failure}");
}

#[test]
fn a_failing_schedule_is_recorded_beside_one_that_passes() {
    let folder = env::temp_dir().join(format!("trapline-explore-{}", std::process::id()));
    let search = check(forbids("bca")).record(&folder);
    let failure = search
        .explore()
        .failure
        .expect("some schedule is forbidden");
    let read = |name: &str| -> Vec<String> {
        let name = format!(
            "explore-report-a_failing_schedule_is_recorded_beside_one_that_passes-{name}.trap"
        );
        assert!(failure.details.contains(&name), "{failure}");
        let events = Recording::open(folder.join(name)).expect("it is a recording");
        let line = |event: Result<OwnedEvent, _>| event.expect("it is whole").borrow().to_string();
        events.map(line).collect()
    };
    let (fails, passes) = (read("fails"), read("passes"));
    assert_ne!(fails, passes);
    assert_eq!(fails.len(), passes.len());
    std::fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn words_of_the_command_may_look_like_the_replay() {
    let search = check(forbids("bca")).command("again {replay} --text '{replay}'");
    let failure = search
        .explore()
        .failure
        .expect("some schedule is forbidden");
    let again = format!("again {} --text '{{replay}}'", failure.replay);
    assert!(failure.details.contains(&again), "{failure}");
}

#[test]
fn a_folder_that_cannot_be_made_is_no_reason_to_fail() {
    let search = check(forbids("bca")).record("/dev/null/runs");
    let failure = search
        .explore()
        .failure
        .expect("some schedule is forbidden");
    assert!(
        failure
            .details
            .contains("cannot record it in /dev/null/runs: /dev/null is no folder"),
        "{failure}"
    );
}
