//! A call that does nothing: which tests notice it.

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{
    Check, Errno, Error, Kernel, Mode, Mutants, Os, Promise, check,
    sync::{Condition, Flag, Mutex, RwLock, Semaphore, Watch},
};

const MS: Duration = Duration::from_millis(1);

/// Runs a program as one task, to its end.
fn run<R: trapline::IntoExit>(
    kernel: &mut Kernel,
    main: impl AsyncFnOnce(&mut Os) -> R + 'static,
) -> Result<(), Error> {
    kernel.spawn("main", main)?;
    kernel.run()?.check()
}

fn mutants<F>(check: Check<F>) -> Mutants
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    let explored = check.mutate().explore();
    assert_eq!(explored.failure, None);
    explored.mutants.expect("the program itself passes")
}

/// The lines of this file at which a call survives, with what the report says of it.
fn survivors(mutants: &Mutants) -> Vec<String> {
    let text = mutants.to_string();
    let file = "tests/it/worth/mutations.rs";
    let lines = text.lines().skip(1);
    lines
        .map(|line| line.trim().replace(file, "here"))
        .collect()
}

/// Two tasks that add to a sum, with an await amid.
async fn add(os: &mut Os, sum: &Rc<Cell<u32>>) {
    let read = sum.get();
    os.yield_now().await;
    sum.set(read + 1);
}

/// Cargill's bounded buffer.
async fn buffer(os: &mut Os, wakes_all: bool, checks_again: bool) -> Result<(), Errno> {
    let (full, changed) = (Mutex::new(os, false).await, Condition::new(os).await);
    for (name, when) in [("reader", true), ("reader", true), ("writer", false)] {
        let (full, changed) = (full.clone(), changed.clone());
        let times = if when { 1 } else { 2 };
        let turns = async move |os: &mut Os| {
            for _ in 0..times {
                let mut is_full = full.lock(os).await.expect("no task dies");
                while *is_full != when {
                    is_full = changed.wait(os, is_full).await.expect("no task dies");
                    if !checks_again {
                        break;
                    }
                }
                assert_eq!(*is_full, when, "{name} has not checked again");
                *is_full = !when;
                if wakes_all {
                    changed.notify_all(os).await;
                } else {
                    changed.notify_one(os).await;
                }
            }
        };
        os.spawn(name, turns).await?;
    }
    Ok(())
}

#[test]
fn cargills_notify_is_killed_and_its_lock_too() {
    let all = |kernel: &mut Kernel| run(kernel, async |os| buffer(os, true, true).await);
    let mutants = mutants(check(all).exhaustive());
    // The lock, and the notification that is made.
    assert_eq!((mutants.killed, survivors(&mutants)), (2, vec![]));
}

#[test]
fn a_wait_that_does_not_check_again_is_named() {
    let once = |kernel: &mut Kernel| {
        run(kernel, async |os| {
            let (ready, changed) = (Mutex::new(os, false).await, Condition::new(os).await);
            let (theirs, told) = (ready.clone(), changed.clone());
            os.spawn("teller", async move |os: &mut Os| {
                *theirs.lock(os).await.expect("no task dies") = true;
                told.notify_one(os).await;
            })
            .await?;
            let mut is_ready = ready.lock(os).await.expect("no task dies");
            if !*is_ready {
                is_ready = changed.wait(os, is_ready).await.expect("no task dies");
            }
            assert!(*is_ready);
            Ok::<(), Errno>(())
        })
    };
    let mutants = mutants(check(once).exhaustive());
    let [only] = &mutants.unchecked[..] else {
        panic!("{mutants}");
    };
    assert!(
        only.starts_with("wait at tests/it/worth/mutations.rs:"),
        "{only}"
    );
    assert!(mutants.to_string().contains(&format!(
        "{only} does not check its condition again: a wake without a signal breaks the test"
    )));
}

#[test]
fn a_superfluous_lock_survives_and_is_proved_redundant() {
    let twice = |kernel: &mut Kernel| {
        let sum = Rc::new(Cell::new(0));
        let theirs = Rc::clone(&sum);
        run(kernel, async move |os| {
            let (outer, inner) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
            for name in ["left", "right"] {
                let (sum, outer, inner) = (Rc::clone(&theirs), outer.clone(), inner.clone());
                os.spawn(name, async move |os: &mut Os| {
                    let _outer = outer.lock(os).await;
                    let _inner = inner.lock(os).await;
                    add(os, &sum).await;
                })
                .await?;
            }
            Ok::<(), Errno>(())
        })?;
        assert_eq!(sum.get(), 2);
        Ok(())
    };
    // Either of the two is enough, so neither is needed alone.
    let proved = mutants(check(twice).exhaustive());
    assert_eq!((proved.killed, proved.survivors.len()), (0, 2));
    for survivor in &proved.survivors {
        assert!(survivor.proved && survivor.schedules > 0, "{survivor}");
        let text = survivor.to_string();
        assert!(
            text.starts_with("lock at tests/it/worth/mutations.rs:"),
            "{text}"
        );
        assert!(
            text.ends_with(" survives: proved redundant in this test"),
            "{text}"
        );
    }
    // A search by seeds proves nothing.
    let drawn = mutants(check(twice).schedules(50));
    let drawn = survivors(&drawn);
    assert!(
        drawn
            .iter()
            .all(|line| line.ends_with("not killed in 50 schedules"))
    );
    assert_eq!(drawn.len(), 2);
}

#[test]
fn a_lock_that_is_needed_is_killed_by_every_strategy() {
    let one = |kernel: &mut Kernel| {
        let sum = Rc::new(Cell::new(0));
        let theirs = Rc::clone(&sum);
        run(kernel, async move |os| {
            let lock = Mutex::new(os, ()).await;
            for name in ["left", "right"] {
                let (sum, lock) = (Rc::clone(&theirs), lock.clone());
                os.spawn(name, async move |os: &mut Os| {
                    let _lock = lock.lock(os).await;
                    add(os, &sum).await;
                })
                .await?;
            }
            Ok::<(), Errno>(())
        })?;
        assert_eq!(sum.get(), 2);
        Ok(())
    };
    for found in [
        mutants(check(one).schedules(100)),
        mutants(check(one).pct(2).schedules(200)),
        mutants(check(one).exhaustive()),
        mutants(check(one).preemptions(1)),
        mutants(check(one).schedules(100).threads(2)),
    ] {
        assert_eq!((found.killed, survivors(&found)), (1, vec![]));
    }
}

/// Two tasks that use a value under a lock of which one is left out: the kernel goes on, and the search of
/// the tree sees what they share.
#[test]
fn a_lock_that_is_left_out_breaks_only_its_test() {
    let tree = |kernel: &mut Kernel| {
        run(kernel, async |os| {
            let (sum, list) = (Mutex::new(os, 0).await, RwLock::new(os, vec![]).await);
            for at in 0..2 {
                let (sum, list) = (sum.clone(), list.clone());
                os.spawn("adds", async move |os: &mut Os| {
                    let mut sum = sum.lock(os).await.expect("no task dies");
                    os.yield_now().await;
                    *sum += 1;
                    drop(sum);
                    list.write(os).await.expect("no task dies").push(at);
                    let read = list.read(os).await.expect("no task dies");
                    os.yield_now().await;
                    assert!(read.contains(&at));
                })
                .await?;
            }
            Ok::<(), Errno>(())
        })
    };
    let found = mutants(check(tree).exhaustive());
    // A writer finds out that a reader has a value without a share.
    assert_eq!((found.killed, survivors(&found)), (3, vec![]));
}

#[test]
fn permits_and_what_is_set_are_killed() {
    let all = |kernel: &mut Kernel| {
        run(kernel, async |os| {
            let room = Semaphore::new(os, 1).await;
            let within = Rc::new(Cell::new(0));
            let (flag, watch) = (Flag::new(os).await, Watch::new(os, 0).await);
            let (setter, promise) = Promise::new(os).await;
            for name in ["one", "two"] {
                let (room, within) = (room.clone(), Rc::clone(&within));
                os.spawn(name, async move |os: &mut Os| {
                    let _room = room.acquire(os).await;
                    within.set(within.get() + 1);
                    os.yield_now().await;
                    assert_eq!(within.replace(within.get() - 1), 1);
                })
                .await?;
            }
            let (theirs, told) = (flag.clone(), watch.clone());
            os.spawn("sets", async move |os: &mut Os| {
                theirs.set(os).await;
                told.set(os, 7).await;
                setter.set(os, 9).await
            })
            .await?;
            flag.wait(os).await;
            watch.changed(os).await;
            assert_eq!(promise.wait(os).await, Ok(9));
            Ok::<(), Errno>(())
        })
    };
    let found = mutants(check(all).schedules(60));
    assert_eq!((found.killed, survivors(&found)), (4, vec![]));
    // A permit is acquired, and no lock.
    let idle = |kernel: &mut Kernel| {
        run(kernel, async |os| {
            let room = Semaphore::new(os, 1).await;
            let _room = room.acquire(os).await;
        })
    };
    let found = mutants(check(idle).schedules(1)).to_string();
    assert!(found.contains("\n  acquire at "), "{found}");
}

#[test]
fn a_timeout_that_never_ends_is_killed_by_a_deadlock() {
    let waits = |kernel: &mut Kernel| {
        run(kernel, async |os| {
            let flag = Flag::new(os).await;
            let waited = os.timeout(MS, async |os| flag.wait(os).await).await;
            assert!(waited.is_err());
            // This one is of no use: the sleep ends first.
            let slept = os.timeout(9 * MS, async |os| os.sleep(MS).await).await;
            assert!(slept.is_ok());
            let (lock, changed) = (Mutex::new(os, ()).await, Condition::new(os).await);
            let held = lock.lock(os).await.expect("no task dies");
            let (_, signal) = changed.wait_for(os, held, MS).await.expect("no task dies");
            assert!(signal.is_err());
        })
    };
    let found = mutants(check(waits).exhaustive());
    assert_eq!(found.killed, 2, "{found}");
    // And the lock that no other task takes.
    let lines = survivors(&found);
    assert!(lines[0].starts_with("timeout at here:"), "{lines:?}");
    assert!(lines[1].starts_with("lock at here:"), "{lines:?}");
    assert_eq!(lines.len(), 2);
}

/// A writer loses its power between two lives. It syncs twice, and once would do.
#[test]
fn a_sync_is_killed_by_a_crash_and_a_second_one_is_not() {
    let crash = |kernel: &mut Kernel| {
        let disk = kernel.net().disk("server")?;
        let writer = kernel.spawn_on("server", "writer", async |os: &mut Os| {
            let file = os.disk().open(os, "log", Mode::Append).await?;
            os.disk().sync_dir(os, ".").await?;
            file.append(os, b"told").await?;
            file.sync(os).await?;
            file.sync(os).await?;
            Ok::<(), std::io::Error>(())
        })?;
        kernel.run_until(&[writer])?.check()?;
        for image in disk.images() {
            let files = image.files();
            assert_eq!(files.get("log").map(Vec::as_slice), Some(&b"told"[..]));
        }
        Ok(())
    };
    let found = mutants(check(crash).fifo().schedules(3));
    let lines = survivors(&found);
    // Either of the two is enough; the one of the directory is needed.
    assert_eq!((found.killed, lines.len()), (1, 2), "{found}");
    assert!(lines.iter().all(|line| line.starts_with("sync at here:")));
}

/// What the test does not assert, but the search sees.
#[test]
fn a_new_outcome_that_the_test_does_not_notice_is_told() {
    let silent = |kernel: &mut Kernel| {
        let sum = Rc::new(Cell::new(0));
        let theirs = Rc::clone(&sum);
        run(kernel, async move |os| {
            let lock = Mutex::new(os, ()).await;
            for name in ["left", "right"] {
                let (sum, lock) = (Rc::clone(&theirs), lock.clone());
                os.spawn(name, async move |os: &mut Os| {
                    let _lock = lock.lock(os).await;
                    add(os, &sum).await;
                })
                .await?;
            }
            Ok::<(), Errno>(())
        })?;
        kernel.outcome(sum.get().to_string());
        Ok(())
    };
    let found = mutants(check(silent).exhaustive());
    let lines = survivors(&found);
    assert!(
        lines[0].ends_with("survives: the test does not notice a new outcome, such as \"1\""),
        "{lines:?}"
    );
}

#[test]
fn a_program_that_fails_has_no_mutants_and_a_shard_is_refused() {
    let fails = |kernel: &mut Kernel| run(kernel, async |_: &mut Os| Err::<(), _>("no"));
    let explored = check(fails).mutate().explore();
    assert!(explored.failure.is_some() && explored.mutants.is_none());
    let shard = std::panic::catch_unwind(|| check(fails).mutate().shard(1, 2).explore());
    let panic = shard.unwrap_err();
    let text = panic.downcast_ref::<&str>().expect("it has a text");
    assert!(text.contains("`mutate` does not go with a shard"), "{text}");
}

#[test]
fn a_search_that_is_stopped_says_which_calls_it_has_not_tried() {
    let flag = |kernel: &mut Kernel| {
        run(kernel, async |os| {
            let flag = Flag::new(os).await;
            flag.set(os).await;
            flag.wait(os).await;
        })
    };
    static STOPPED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let stops = |kernel: &mut Kernel| {
        STOPPED.store(true, std::sync::atomic::Ordering::Relaxed);
        flag(kernel)
    };
    let stop = || STOPPED.load(std::sync::atomic::Ordering::Relaxed);
    let explored = check(stops).fifo().mutate().stop_when(stop).explore();
    let mutants = explored.mutants.expect("no schedule has failed");
    assert_eq!((mutants.killed, mutants.left.len()), (0, 1), "{mutants}");
    let text = mutants.to_string();
    assert!(
        text.starts_with("mutations: no call was left out\n"),
        "{text}"
    );
}
