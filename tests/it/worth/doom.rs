//! The turn from which a schedule fails, however it goes on.

use std::{cell::Cell, rc::Rc, time::Duration};

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

fn line(details: &str) -> &str {
    let mut lines = details.lines();
    let line = lines.find(|line| line.starts_with("doomed from "));
    line.unwrap_or_else(|| panic!("{details}"))
}

/// Of the six orders of their four turns two pass: LLRR and RRLL.
#[test]
fn the_turn_and_the_counts_of_a_lost_update_are_exact() {
    for strategy in ["fifo", "random", "pct:2", "exhaustive"] {
        let search = check(lost_update).strategy(strategy.parse().unwrap());
        let failure = search.explore().failure.expect("it is found");
        let line = line(&failure.details);
        let (turn, rest) = line
            .split_once(" at tests/it/worth/doom.rs:17: ")
            .expect(line);
        assert_eq!(turn, "doomed from turn 2, right 2: yield()", "{strategy}");
        assert_eq!(
            rest,
            "0 of all 2 continuations pass; before it 1 of all 3 continuations did, \
             with left 1: its last turn in its place"
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
            line.contains(": lock(mutex ") && line.contains("doom.rs:53: 0 of "),
            "{line}"
        );
        assert!(line.contains(" in its place"), "{line}");
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
        line.contains(": 0 of ") && line.contains("; before it "),
        "{line}"
    );
}

#[test]
fn what_fails_in_every_order_is_doomed_from_the_begin() {
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
    assert_eq!(line, "doomed from the begin: 0 of all 3 continuations pass");
}

/// A search whose time is over asks no more.
#[test]
fn a_search_without_time_has_no_such_line() {
    let body = |kernel: &mut Kernel| {
        std::thread::sleep(Duration::from_millis(3));
        lost_update(kernel)
    };
    let search = check(body).fifo().time(Duration::from_millis(1));
    if let Some(failure) = search.explore().failure {
        assert!(!failure.details.contains("doomed from"), "{failure}");
    }
}
