//! The turn from which a schedule fails, however it goes on.

use std::{
    cell::Cell,
    io,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use trapline::{
    Errno, Error, Kernel, Os, check,
    sync::{Condition, Mutex},
};

/// Each reads, lets others run, and writes.
fn lost_update(kernel: &mut Kernel) -> Result<(), Error> {
    let sum = Rc::new(Cell::new(0));
    for name in ["left", "right"] {
        let sum = Rc::clone(&sum);
        kernel.spawn(name, async move |os: &mut Os| {
            let read = sum.get();
            os.yield_now().await;
            sum.set(read + 1);
        })?;
    }
    kernel.run()?;
    assert_eq!(sum.get(), 2, "an increment is lost");
    Ok(())
}

/// The lines that say where the schedule is doomed, joined.
fn line(details: &str) -> String {
    let mut lines = details.lines();
    let line = lines.find(|line| line.starts_with("doomed from "));
    let mut line = line.unwrap_or_else(|| panic!("{details}")).to_string();
    for more in lines.take_while(|line| line.starts_with("  ")) {
        assert!(more.chars().count() <= 80, "{more}");
        line += &format!("|{}", more.trim_start());
    }
    line
}

/// Of the six orders of their four turns two pass: LLRR and RRLL.
#[test]
fn the_turn_and_the_counts_of_a_lost_update_are_exact() {
    for strategy in ["fifo", "random", "pct:2", "exhaustive"] {
        let search = check(lost_update).strategy(strategy.parse().unwrap());
        let failure = search.explore().failure.expect("it is found");
        let line = line(&failure.details);
        let (turn, rest) = line.split_once(" at it/worth/doom.rs:23|").expect(&line);
        assert_eq!(turn, "doomed from turn 2, right 2: yield()", "{strategy}");
        assert_eq!(
            rest,
            "before it, 1 of all 3 schedules passes; after it, none of all 2|\
             in its place, one that passes has left 1: its last turn"
        );
    }
}

/// Takes two locks, one after the other.
async fn both(os: &mut Os, one: Mutex<()>, other: Mutex<()>) {
    let _one = one.lock(os).await;
    let _other = other.lock(os).await;
}

#[test]
fn a_deadlock_is_doomed_from_the_second_first_lock() {
    let body = |kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (one, other) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
            let (first, second) = (one.clone(), other.clone());
            os.spawn("there", async move |os: &mut Os| {
                both(os, first, second).await;
            })
            .await?;
            os.spawn("back", async move |os: &mut Os| both(os, other, one).await)
                .await?;
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()
    };
    for search in [check(body).pct(2), check(body).exhaustive()] {
        let failure = search.explore().failure.expect("it is found");
        let line = line(&failure.details);
        // Whichever comes second: its first lock.
        assert!(
            line.contains(": lock(mutex ") && line.contains("doom.rs:63|before it, "),
            "{line}"
        );
        assert!(
            line.contains("|in its place, one that passes has "),
            "{line}"
        );
    }
}

#[test]
fn cargills_buffer_is_doomed_by_a_wake_of_the_wrong_reader() {
    let body = |kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (full, changed) = (Mutex::new(os, false).await, Condition::new(os).await);
            for (name, when) in [("reader", true), ("reader", true), ("writer", false)] {
                let (full, changed) = (full.clone(), changed.clone());
                let turns = async move |os: &mut Os| {
                    for _ in 0..2 - u32::from(when) {
                        let mut is_full = full.lock(os).await.expect("no task dies");
                        while *is_full != when {
                            is_full = changed.wait(os, is_full).await.expect("no task dies");
                        }
                        *is_full = !when;
                        changed.notify_one(os).await;
                    }
                };
                os.spawn(name, turns).await?;
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()
    };
    let failure = check(body).pct(3).explore().failure.expect("it is found");
    let line = line(&failure.details);
    assert!(line.starts_with("doomed from turn "), "{line}");
    assert!(
        line.contains("|before it, ") && line.contains("; after it, "),
        "{line}"
    );
}

#[test]
fn what_fails_in_every_order_is_doomed_from_the_start() {
    let body = |kernel: &mut Kernel| {
        kernel.spawn("fails", async |os: &mut Os| {
            os.sleep(Duration::from_millis(1)).await;
            Err::<(), _>("always")
        })?;
        kernel.spawn("other", async |os: &mut Os| os.yield_now().await)?;
        kernel.run()?.check()
    };
    let failure = check(body).explore().failure.expect("it fails");
    let line = line(&failure.details);
    assert_eq!(
        line,
        "doomed from the start: none of its 3 schedules passes"
    );
    let alone = |kernel: &mut Kernel| {
        kernel.spawn("fails", async |_: &mut Os| Err::<(), _>("always"))?;
        kernel.run()?.check()
    };
    let failure = check(alone).explore().failure.expect("it fails");
    let line = self::line(&failure.details);
    assert_eq!(line, "doomed from the start: its only schedule fails");
}

/// No drawn schedule passes; those that ran before do.
#[test]
fn what_fails_but_for_a_few_rare_answers_is_not_called_doomed() {
    let body = |kernel: &mut Kernel| {
        kernel.spawn("rare", async |os: &mut Os| match os.choose(100_000).await {
            0..3 => Ok(()),
            _ => Err("usual"),
        })?;
        kernel.run()?.check()
    };
    let explored = check(body).exhaustive().explore();
    assert_eq!(explored.schedules, 4);
    let failure = explored.failure.expect("the fourth answer fails");
    assert!(
        !failure.details.contains("doomed from"),
        "{}",
        failure.details
    );
}

/// The time of a search is over as soon as it is interrupted: here at the end of its first schedule.
#[test]
fn a_search_that_is_interrupted_has_no_such_line() {
    static HAS_RUN: AtomicBool = AtomicBool::new(false);
    let body = |kernel: &mut Kernel| {
        kernel.spawn("fails", async |_: &mut Os| Err::<(), _>("always"))?;
        let ended = kernel.run()?.check();
        HAS_RUN.store(true, Ordering::Relaxed);
        ended
    };
    let whole = check(body).fifo().explore().failure.expect("it fails");
    assert!(whole.details.contains("doomed from"), "{whole}");
    HAS_RUN.store(false, Ordering::Relaxed);
    let search = check(body).fifo();
    let search = search.stop_when(|| HAS_RUN.load(Ordering::Relaxed));
    if let Some(failure) = search.explore().failure {
        assert!(!failure.details.contains("doomed from"), "{failure}");
    }
}

/// The second answer dooms: of its three, two pass. The first one and the other task do not matter.
#[test]
fn an_answer_dooms_a_schedule() {
    let body = |kernel: &mut Kernel| {
        kernel.spawn("chooses", async |os: &mut Os| {
            os.choose(2).await;
            let second = os.choose_named("second", 3).await;
            os.yield_now().await;
            match second {
                2 => Err("the second answer is 2"),
                _ => Ok(()),
            }
        })?;
        kernel.spawn("other", async |os: &mut Os| os.yield_now().await)?;
        kernel.run()?.check()
    };
    for strategy in ["random", "exhaustive"] {
        let search = check(body).strategy(strategy.parse().unwrap());
        let failure = search.explore().failure.expect("it is found");
        let line = line(&failure.details);
        let call = "chooses 1: choose(3, \"second\") at ";
        assert!(
            line.starts_with("doomed from turn ")
                && line.contains(call)
                && line.contains("; after it, "),
            "{strategy}: {line}"
        );
        let (_, before) = line.split_once("|before it, ").expect(&line);
        assert!(!before.starts_with("0 of"), "{strategy}: {line}");
    }
}

/// A call that fails dooms the schedule, and not the calls before it.
#[test]
fn a_fault_dooms_a_schedule() {
    let body = |kernel: &mut Kernel| {
        kernel.spawn("client", async |os: &mut Os| {
            os.yield_now().await;
            let socket = os.bind_udp("127.0.0.1:0".parse().unwrap()).await?;
            os.yield_now().await;
            let to = socket.local_addr()?;
            socket.send_to(os, b"x", to).await?;
            os.yield_now().await;
            io::Result::Ok(())
        })?;
        kernel.spawn("other", async |os: &mut Os| os.yield_now().await)?;
        kernel.run()?.check()
    };
    let fault = "send_to:error=NetworkUnreachable";
    for strategy in ["random", "exhaustive"] {
        let search = check(body).strategy(strategy.parse().unwrap());
        let failure = search
            .faults(1, [fault])
            .explore()
            .failure
            .expect("it is found");
        let line = line(&failure.details);
        assert!(
            line.contains("client 1: send_to(") && line.contains("; after it, "),
            "{strategy}: {line}"
        );
        assert!(line.contains("|before it, "), "{strategy}: {line}");
        assert!(failure.faults[0].starts_with(fault), "{:?}", failure.faults);
    }
}
