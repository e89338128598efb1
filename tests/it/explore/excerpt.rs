//! What the report shows of the schedule: all of a short one; of a longer one what the failure is
//! about.

use std::{process::Command, time::Duration};

use trapline::{Check, Error, Kernel, Os, Queue, Shared, check, sync::Mutex};

/// The rows of the report, without their places.
fn rows(search: Check<impl Fn(&mut Kernel) -> Result<(), Error>>) -> Vec<String> {
    let failure = search.explore().failure.expect("some schedule fails");
    let details = failure.details.lines().skip(1);
    // The place of a panic is relative to the workspace, that of an await to this package.
    let row = |line: &str| {
        let line = line.split(" tests/it/").next().unwrap_or(line);
        line.split(" it/").next().unwrap_or(line).to_string()
    };
    let rows: Vec<String> = details
        .map(|line| row(line).trim_end().to_string())
        .collect();
    rows
}

/// Each task reads and writes in two turns, and has many more turns after.
fn lost_early(kernel: &mut Kernel) -> Result<(), Error> {
    let sum = Shared::new(0);
    for name in ["left", "right"] {
        let sum = sum.clone();
        kernel.spawn(name, async move |os: &mut Os| {
            let read = sum.get();
            os.yield_now().await;
            sum.set(read + 1);
            for _ in 0..50 {
                os.yield_now().await;
            }
        })?;
    }
    kernel.run()?;
    assert_eq!(sum.get(), 2, "an increment is lost");
    Ok(())
}

#[test]
fn accesses_to_shared_values_are_shown_however_long_ago() {
    let rows = rows(check(lost_early));
    let expected = [
        "      1  left 1         reads shared 1, yield() = ok",
        "      2  right 2        reads shared 1, yield() = ok",
        "      3  left 1         writes shared 1, yield() = ok",
        "      4  right 2        writes shared 1, yield() = ok",
        "    ...  96 more turns",
        "    101  left 1         yield() = ok",
        "    102  right 2        yield() = ok",
        "    103  left 1         exits: done",
        "    104  right 2        exits: done",
        "         the test reads shared 1",
    ];
    assert_eq!(rows[..expected.len()], expected);
    let [doomed, .., again] = &rows[expected.len()..] else {
        panic!("{rows:#?}");
    };
    assert!(
        doomed.starts_with("doomed from turn 2, right 2: yield() at"),
        "{doomed}"
    );
    assert!(
        again.starts_with("to see it again, with all its turns:  "),
        "{again}"
    );
}

#[test]
fn a_replay_shows_all_turns() {
    let failure = check(lost_early).explore().failure.expect("it fails");
    let replay = check(lost_early)
        .replay(&failure.replay)
        .expect("it is one");
    let rows = rows(replay);
    assert_eq!(rows.len(), 104 + 2, "{rows:#?}");
    assert!(rows[105].starts_with("to see it again:  "), "{rows:#?}");
}

/// Two tasks take two locks in two orders, with many turns between.
fn locked_out(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("main", async |os: &mut Os| {
        let savings = Mutex::named(os, "savings", ()).await;
        let checking = Mutex::new(os, ()).await;
        let orders = [(savings.clone(), checking.clone()), (checking, savings)];
        for (name, (first, second)) in ["save", "spend"].into_iter().zip(orders) {
            let task = async move |os: &mut Os| {
                let _first = first.lock(os).await;
                for _ in 0..20 {
                    os.yield_now().await;
                }
                let _second = second.lock(os).await;
            };
            os.spawn(name, task).await.expect("there is room");
        }
    })?;
    kernel.run().map(drop)
}

#[test]
fn a_deadlock_shows_where_the_locks_were_taken_and_names_them_as_its_report_does() {
    let rows = rows(check(locked_out));
    for row in [
        "save 2         lock(mutex 1 \"savings\") = message 0",
        "spend 3        lock(mutex 2) = message 0",
        "save 2         lock(mutex 2) ...",
        "spend 3        lock(mutex 1 \"savings\") ...",
    ] {
        let is_shown = rows.iter().any(|shown| shown.ends_with(row));
        assert!(is_shown, "{row}: {rows:#?}");
    }
    assert!(rows.len() < 15, "{rows:#?}");
}

/// A check whose result is stale when the task acts on it, and a failure long after.
fn stale(kernel: &mut Kernel) -> Result<(), Error> {
    let (is_open, late) = (Shared::new(true), Shared::new(0));
    let (open, written) = (is_open.clone(), late.clone());
    kernel.spawn("writer", async move |os: &mut Os| {
        if open.get() {
            os.yield_now().await;
            let is_late = !open.get();
            written.set(u32::from(is_late));
        }
    })?;
    kernel.spawn("closer", async move |os: &mut Os| {
        os.yield_now().await;
        is_open.set(false);
        for _ in 0..50 {
            os.yield_now().await;
        }
        assert_eq!(late.get(), 0, "written after the close");
    })?;
    kernel.run().map(drop)
}

#[test]
fn a_failed_task_shows_what_led_to_what_it_has_read() {
    let rows = rows(check(stale));
    for row in [
        "closer 2       writes shared 1, yield() = ok",
        "writer 1       reads shared 1, writes shared 2, exits: done",
    ] {
        let is_shown = rows.iter().any(|shown| shown.ends_with(row));
        assert!(is_shown, "{row}: {rows:#?}");
    }
    let fails = "reads shared 2, exits: faulted: assertion `left == right` failed: written after";
    assert!(rows.iter().any(|row| row.contains(fails)), "{rows:#?}");
}

/// Fails if the first of two tasks begins after three turns of the other.
fn held_back(kernel: &mut Kernel) -> Result<(), Error> {
    let turns = Shared::new(0);
    let seen = turns.clone();
    kernel.spawn("late", async move |_: &mut Os| {
        assert!(seen.get() < 3, "too late");
    })?;
    kernel.spawn("long", async move |os: &mut Os| {
        for _ in 0..3 {
            turns.update(|turns| *turns += 1);
            os.yield_now().await;
        }
    })?;
    kernel.run().map(drop)
}

#[test]
fn a_task_that_is_held_back_for_several_turns_is_named_once() {
    let rows = rows(check(held_back));
    let preempted: Vec<&String> = rows
        .iter()
        .filter(|row| row.contains("preempted"))
        .collect();
    assert_eq!(
        preempted,
        ["      !  late 1 is preempted where it begins (3 times)"]
    );
}

#[test]
fn the_panic_of_a_task_has_its_place() {
    let failure = check(held_back).explore().failure.expect("it fails");
    let place = failure
        .why
        .split_once("too late, at tests/it/explore/excerpt.rs:");
    let place = place.map(|(_, line)| line);
    assert!(
        place.is_some_and(|line| line.parse::<u32>().is_ok()),
        "{failure}"
    );
}

/// A task that reads and writes in a loop within one turn.
fn looping(kernel: &mut Kernel) -> Result<(), Error> {
    let (from, to) = (Shared::new(0), Shared::new(0));
    let sum = to.clone();
    kernel.spawn("loop", async move |_: &mut Os| {
        for _ in 0..1000 {
            sum.set(sum.get() + from.get());
        }
    })?;
    kernel.run()?;
    assert_eq!(to.get(), 1, "nothing is added");
    Ok(())
}

#[test]
fn a_loop_of_accesses_shows_each_of_them_once() {
    assert_eq!(
        rows(check(looping))[..2],
        [
            "      1  loop 1         reads shared 1, reads shared 2, writes shared 1, exits: done",
            "         the test reads shared 1",
        ]
    );
}

/// Run by the test below in a process of its own.
#[test]
fn process_replayed() {
    check(|_| Ok(())).run();
}

#[test]
fn a_replay_that_passes_says_so_past_the_test_harness() {
    let test = std::env::current_exe().expect("it has a path");
    let mut command = Command::new(test);
    command.args(["--exact", "explore::excerpt::process_replayed"]);
    let output = command.env("TRAPLINE_REPLAY", "3..00000000").output();
    let output = output.expect("it runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stderr).expect("it is text");
    assert!(text.contains("the schedule 3..00000000 passes\n"), "{text}");
}

/// The second of two tasks that wait for one message never gets it, and a third has a long tail.
fn unserved(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("main", async |os: &mut Os| {
        let jobs: Queue<()> = Queue::named(os, "jobs", 1).await;
        for name in ["one", "two"] {
            let jobs = jobs.clone();
            let task = async move |os: &mut Os| jobs.get(os).await.map(drop);
            os.spawn(name, task).await.expect("there is room");
        }
        for _ in 0..9 {
            os.yield_now().await;
        }
        jobs.put(os, ()).await.expect("it is open");
        for _ in 0..20 {
            os.yield_now().await;
        }
        os.sleep(Duration::from_secs(1)).await;
        drop(jobs);
    })?;
    kernel.run().map(drop)
}

#[test]
fn a_blocked_task_shows_which_task_took_what_it_waits_for() {
    let rows = rows(check(unserved).fifo());
    for row in [
        "two 3          get(queue 1 \"jobs\") ...",
        "main 1         put(queue 1 \"jobs\") [one 2: queue 1 \"jobs\"] = ok",
    ] {
        let is_shown = rows.iter().any(|shown| shown.ends_with(row));
        assert!(is_shown, "{row}: {rows:#?}");
    }
}

/// The turn in which the kernel tries a call that yielded before, and blocks its task, resumes no task.
#[test]
fn every_turn_has_a_row_or_is_counted_among_those_that_are_left_out() {
    let body = |kernel: &mut Kernel| {
        kernel.spawn("server", async |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
            for _ in 0..3 {
                let (client, _) = listener.accept(os).await?;
                let echo = async move |os: &mut Os| client.recv(os, &mut [0; 8]).await.map(drop);
                os.spawn_detached("echo", echo).await?;
            }
            Err::<(), _>(std::io::Error::other("it ends"))
        })?;
        kernel.spawn("clients", async |os: &mut Os| {
            for _ in 0..3 {
                let server = os.connect(([127, 0, 0, 1], 80)).await?;
                server.send_all(os, b"hello").await?;
                os.sleep(Duration::from_millis(1)).await;
            }
            std::io::Result::Ok(())
        })?;
        kernel.run()?.check()
    };
    let failure = check(body).fifo().explore().failure.expect("it fails");
    let whole = check(body).replay(&failure.replay).unwrap().explore();
    let whole = whole.failure.expect("it fails again");
    for details in [failure.details, whole.details] {
        let mut last = 0;
        for line in details.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (words.first().map(|word| word.parse::<u32>()), &words[..]) {
                (Some(Ok(turn)), _) => {
                    assert_eq!(turn, last + 1, "{details}");
                    last = turn;
                }
                (_, ["...", more, "more", ..]) => last += more.parse::<u32>().unwrap(),
                _ => {}
            }
        }
        assert!(last > 20, "{details}");
    }
}
