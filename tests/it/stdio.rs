//! Standard streams of tasks: text that goes to a queue, and input of a device.

use std::{
    io,
    sync::{Arc, Mutex as StdMutex},
    time::Duration,
};

use trapline::{
    Closed, Elapsed, Error, Exit, Kernel, Os, Queue, Stdio, TryGetError, check,
    sync::{Condition, Mutex},
};

/// Runs a program of the simulated world, and returns what it has printed to the console.
fn told(program: impl AsyncFnOnce(&mut Os) + 'static) -> String {
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
    kernel.take_console()
}

/// Takes all texts up to the end.
async fn all(os: &mut Os, text: &Queue<String>) -> String {
    let mut all = String::new();
    while let Ok(text) = text.get(os).await {
        all += &text;
    }
    all
}

#[test]
fn text_goes_to_the_queue_and_that_of_children_too() {
    let console = told(async |os| {
        let text = Queue::bounded(os, 8).await;
        let stdio = Stdio::new().output(&text);
        os.spawn_piped(stdio, "parent", async |os: &mut Os| {
            writeln!(os, "one");
            let child = os
                .spawn("child", async |os: &mut Os| writeln!(os, "two"))
                .await
                .unwrap();
            os.wait(child).await.unwrap();
            writeln!(os, "three");
        })
        .await
        .unwrap();
        writeln!(os, "to the console");
        assert_eq!(all(os, &text).await, "one\ntwo\nthree\n");
    });
    assert_eq!(console, "to the console\n");
}

#[test]
fn the_end_comes_with_the_last_task_that_prints_there() {
    told(async |os| {
        let text = Queue::bounded(os, 8).await;
        let stdio = Stdio::new().output(&text);
        os.spawn_piped(stdio, "parent", async |os: &mut Os| {
            os.spawn_detached("orphan", async |os: &mut Os| {
                os.sleep(Duration::from_secs(1)).await;
                write!(os, "late");
            })
            .await
            .unwrap();
            write!(os, "early, ");
        })
        .await
        .unwrap();
        assert_eq!(all(os, &text).await, "early, late");
        assert_eq!(os.now().await.as_secs(), 1);
    });
}

#[test]
fn a_task_that_prints_for_ever_waits_for_its_reader() {
    told(async |os| {
        let text = Queue::bounded(os, 3).await;
        let stdio = Stdio::new().output(&text);
        let yes = os
            .spawn_piped(stdio, "yes", async |os: &mut Os| {
                for n in 0.. {
                    writeln!(os, "{n}");
                    os.yield_now().await;
                }
            })
            .await
            .unwrap();
        os.sleep(Duration::from_secs(1)).await;
        assert_eq!(text.len(), 3);
        for n in 0..100 {
            assert_eq!(text.get(os).await, Ok(format!("{n}\n")));
            os.sleep(Duration::from_millis(1)).await;
            assert_eq!(text.len(), 3);
        }
        // The last handle: nothing reads any more.
        drop(text);
        assert_eq!(os.wait(yes).await, Ok(Exit::Killed));
    });
}

#[test]
fn a_task_without_a_reader_is_killed_at_its_next_trap_and_not_at_its_end() {
    told(async |os| {
        for closes in [true, false] {
            let text = Queue::bounded(os, 8).await;
            let stdio = Stdio::new().output(&text);
            if closes {
                text.close(os).await;
            } else {
                drop(text);
            }
            let trapped = os
                .spawn_piped(stdio.clone(), "trapped", async |os: &mut Os| {
                    writeln!(os, "lost");
                    os.yield_now().await;
                    unreachable!("it was killed");
                })
                .await
                .unwrap();
            let ended = os
                .spawn_piped(stdio, "ended", async |os: &mut Os| writeln!(os, "lost"))
                .await
                .unwrap();
            assert_eq!(os.wait(trapped).await, Ok(Exit::Killed));
            assert_eq!(os.wait(ended).await, Ok(Exit::Done));
        }
    });
}

#[test]
fn the_end_of_a_task_waits_for_room_as_well() {
    told(async |os| {
        let text = Queue::bounded(os, 0).await;
        let stdio = Stdio::new().output(&text);
        let child = os
            .spawn_piped(stdio, "child", async |os: &mut Os| {
                write!(os, "last");
                Err::<(), _>("it fails")
            })
            .await
            .unwrap();
        os.sleep(Duration::from_secs(1)).await;
        let tasks = os.tasks().await;
        let blocked = tasks.iter().find(|task| task.tid == child).unwrap();
        assert!(
            blocked.blocked_on().unwrap().contains("room"),
            "{blocked:?}"
        );
        assert_eq!(text.get(os).await, Ok("last".into()));
        assert_eq!(os.wait(child).await, Ok(Exit::Failed("it fails".into())));
        assert_eq!(text.get(os).await, Err(Closed(())));
    });
}

/// One that waits to print is killed, or its time is up: its text arrives, once and in order.
#[test]
fn no_text_is_lost_with_a_task_that_is_cut_or_killed() {
    told(async |os| {
        let text = Queue::bounded(os, 1).await;
        let stdio = Stdio::new().output(&text);
        let cut = os
            .spawn_piped(stdio.clone(), "cut", async |os: &mut Os| {
                write!(os, "a");
                os.yield_now().await;
                let second = Duration::from_secs(1);
                let cut = os
                    .timeout(second, async |os| {
                        write!(os, "b");
                        os.sleep(Duration::ZERO).await;
                        write!(os, "never");
                    })
                    .await;
                assert_eq!(cut, Err(Elapsed));
                write!(os, "c");
            })
            .await
            .unwrap();
        os.sleep(Duration::from_secs(2)).await;
        assert_eq!(text.len(), 2);
        let killed = os
            .spawn_piped(stdio, "killed", async |os: &mut Os| {
                write!(os, "d");
                os.sleep(Duration::from_secs(9)).await;
            })
            .await
            .unwrap();
        os.sleep(Duration::from_secs(1)).await;
        assert!(os.kill(killed).await);
        assert_eq!(all(os, &text).await, "abdc");
        assert_eq!(os.wait(cut).await, Ok(Exit::Done));
    });
}

#[test]
fn what_destructors_print_is_stored_and_the_call_that_was_held_back_is_made_once() {
    struct Tells<'a>(&'a mut Os);

    impl Drop for Tells<'_> {
        fn drop(&mut self) {
            write!(self.0, "dropped ");
        }
    }

    told(async |os| {
        let text = Queue::bounded(os, 1).await;
        let sums = Queue::unbounded(os).await;
        let (stdio, sum) = (Stdio::new().output(&text), sums.clone());
        let child = os
            .spawn_piped(stdio, "child", async move |os: &mut Os| {
                for n in 0..3 {
                    write!(os, "{n} ");
                    // Held back with its message.
                    sum.put(os, n).await.unwrap();
                }
                let tells = Tells(os);
                tells.0.sleep(Duration::from_secs(99)).await;
            })
            .await
            .unwrap();
        for n in 0..3 {
            assert_eq!(text.get(os).await, Ok(format!("{n} ")));
        }
        os.sleep(Duration::from_secs(1)).await;
        assert!(os.kill(child).await);
        assert_eq!(all(os, &text).await, "dropped ");
        for n in 0..3 {
            assert_eq!(sums.try_get(os).await, Ok(n));
        }
        assert_eq!(sums.try_get(os).await, Err(TryGetError::Empty));
    });
}

#[test]
fn each_task_reads_its_own_input() {
    let mut kernel = Kernel::simulated(1);
    kernel.input("of the process\nrest").unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let mut readers = Vec::new();
            for name in ["left", "right"] {
                let (ours, theirs) = os.socketpair().await?;
                let reader = async move |os: &mut Os| {
                    // The first line has more read ahead, which is for the child.
                    let line = os.read_line().await?;
                    assert_eq!(line, Some(format!("{name} 1")));
                    let child = os.spawn("child", async move |os: &mut Os| {
                        let line = os.read_line().await?;
                        assert_eq!(line, Some(format!("{name} 2")));
                        let mut rest = [0; 99];
                        let n = os.input().await?.recv(os, &mut rest).await?;
                        assert_eq!(&rest[..n], b"rest");
                        assert_eq!(os.read_line().await?, None);
                        io::Result::Ok(())
                    });
                    let child = child.await?;
                    assert_eq!(os.wait(child).await?, Exit::Done);
                    io::Result::Ok(())
                };
                let stdio = Stdio::new().input(&theirs);
                readers.push(os.spawn_piped(stdio, name, reader).await?);
                drop(theirs);
                let text = format!("{name} 1\n{name} 2\nrest");
                ours.send_all(os, text.as_bytes()).await?;
                ours.shutdown_write(os).await?;
                if name == "left" {
                    assert_eq!(os.read_line().await?.as_deref(), Some("of the process"));
                }
            }
            for reader in readers {
                assert_eq!(os.wait(reader).await?, Exit::Done);
            }
            assert_eq!(os.read_line().await?.as_deref(), Some("rest"));
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn an_input_closes_with_the_last_task_that_has_it() {
    told(async |os| {
        let (ours, theirs) = os.socketpair().await.unwrap();
        let stdio = Stdio::new().input(&theirs);
        os.spawn_piped(stdio, "reader", async |os: &mut Os| {
            os.spawn_detached("child", async |os: &mut Os| {
                os.sleep(Duration::from_secs(1)).await;
            })
            .await
            .unwrap();
        })
        .await
        .unwrap();
        drop(theirs);
        ours.send_all(os, b"unread").await.unwrap();
        os.sleep(Duration::from_millis(500)).await;
        ours.send_all(os, b"unread").await.unwrap();
        os.sleep(Duration::from_secs(1)).await;
        assert!(ours.send_all(os, b"too late").await.is_err());
    });
}

/// Every schedule: the texts arrive in order, and the end comes after them.
#[test]
fn all_schedules_deliver_every_text() {
    let seen = Arc::new(StdMutex::new(Vec::new()));
    let outcomes = Arc::clone(&seen);
    let explored = check(move |kernel: &mut Kernel| -> Result<(), Error> {
        let outcomes = Arc::clone(&outcomes);
        kernel.spawn("main", async move |os: &mut Os| {
            let text = Queue::bounded(os, 1).await;
            for name in ["a", "b"] {
                let stdio = Stdio::new().output(&text);
                os.spawn_piped(stdio, name, async move |os: &mut Os| {
                    write!(os, "{name}1");
                    os.yield_now().await;
                    write!(os, "{name}2");
                })
                .await
                .unwrap();
            }
            let all = all(os, &text).await;
            outcomes.lock().unwrap().push(all);
        })?;
        kernel.run()?.check()
    })
    .exhaustive()
    .audit()
    .explore();
    assert!(explored.complete, "{explored:?}");
    let mut outcomes = seen.lock().unwrap().clone();
    outcomes.sort_unstable();
    outcomes.dedup();
    let orders = [
        "a1a2b1b2", "a1b1a2b2", "a1b1b2a2", "b1a1a2b2", "b1a1b2a2", "b1b2a1a2",
    ];
    assert_eq!(outcomes, orders);
}

/// The lock is released at the trap that waits, though a text comes before it that finds no room.
#[test]
fn a_condition_loses_no_signal_though_its_waiter_prints_to_a_full_queue() {
    told(async |os| {
        let text = Queue::bounded(os, 1).await;
        let ready = Mutex::new(os, false).await;
        let changed = Condition::new(os).await;
        let (stdio, lock, signals) = (Stdio::new().output(&text), ready.clone(), changed.clone());
        os.spawn_piped(stdio, "waiter", async move |os: &mut Os| {
            let mut guard = lock.lock(os).await.unwrap();
            while !*guard {
                write!(os, "one");
                os.yield_now().await;
                write!(os, "two");
                guard = signals.wait(os, guard).await.unwrap();
            }
        })
        .await
        .unwrap();
        os.spawn("setter", async move |os: &mut Os| {
            os.sleep(Duration::from_secs(1)).await;
            *ready.lock(os).await.unwrap() = true;
            changed.notify_one(os).await;
        })
        .await
        .unwrap();
        os.sleep(Duration::from_secs(2)).await;
        assert_eq!(all(os, &text).await, "onetwo");
    });
}

#[test]
fn a_deadlock_says_what_the_text_waits_for() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let text = Queue::bounded(os, 1).await;
            let stdio = Stdio::new().output(&text);
            let child = os.spawn_piped(stdio, "child", async |os: &mut Os| {
                for _ in 0..3 {
                    write!(os, "text");
                    os.yield_now().await;
                }
            });
            let child = child.await.unwrap();
            os.wait(child).await.unwrap();
        })
        .unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("the child waits for its reader, which waits for it");
    };
    let said = deadlock.to_string();
    assert!(
        said.contains("2 \"child\" waits for room for its text in queue 1"),
        "{said}"
    );
    kernel.audit_all();
    // Nothing is left of it.
    kernel.reset(1).unwrap();
    kernel
        .spawn("plain", async |os: &mut Os| writeln!(os, "plain"))
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(kernel.take_console(), "plain\n");
}
