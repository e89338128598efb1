//! Scopes and shields: S74 and S75.

use std::time::Duration;

use trapline::{
    Cancelled, Elapsed, Errno, Error, Exit, Kernel, Os, Queue, Scope, Shared, Source, check,
    sync::{Group, Permit, Semaphore},
};

use crate::support::{Diary, logged, sim};

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Runs a program alone, to a good end.
fn alone(program: impl AsyncFnOnce(&mut Os) + 'static) {
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn s74_a_cancel_drops_the_body_and_the_task_goes_on() {
    alone(async |os: &mut Os| {
        let (scope, diary) = (Scope::new(), Diary::default());
        let (theirs, dropped) = (scope.clone(), diary.on_drop("dropped"));
        let worker = async move |os: &mut Os| {
            let body = async |os: &mut Os| {
                let _dropped = dropped;
                os.sleep(second(100)).await;
            };
            let result = theirs.run(os, body).await;
            os.sleep(second(1)).await;
            (result, os.now().await)
        };
        let mut worker = os.spawn_child("worker", worker).await.unwrap();
        os.sleep(second(1)).await;
        assert!(!scope.is_cancelled());
        scope.cancel(os).await;
        assert_eq!(worker.wait(os).await, Ok((Err(Cancelled), second(2))));
        assert_eq!(diary.lines(), ["dropped"]);
        assert!(scope.is_cancelled());
    });
}

#[test]
fn s74_a_scope_that_is_cancelled_stays_so_and_lets_one_answer_through() {
    alone(async |os: &mut Os| {
        let (scope, queue) = (Scope::new(), Queue::<u8>::bounded(os, 1).await);
        scope.cancel(os).await;
        let get = async |os: &mut Os| queue.get(os).await;
        assert_eq!(scope.run(os, get).await, Err(Cancelled));
        queue.put(os, 1).await.unwrap();
        assert_eq!(scope.run(os, get).await, Ok(Ok(1)));
        assert_eq!(
            scope.run(os, async |os| os.yield_now().await).await,
            Err(Cancelled)
        );
        assert_eq!(os.now().await, Duration::ZERO);
    });
}

#[test]
fn s74_a_task_may_cancel_its_own_scope() {
    alone(async |os: &mut Os| {
        let scope = Scope::new();
        let mine = scope.clone();
        let body = async move |os: &mut Os| {
            mine.cancel(os).await;
            os.sleep(second(9)).await;
        };
        assert_eq!(scope.run(os, body).await, Err(Cancelled));
        assert_eq!(os.now().await, Duration::ZERO);
    });
}

#[test]
fn s74_the_outermost_that_is_due_answers() {
    alone(async |os: &mut Os| {
        let worker = async |os: &mut Os| {
            let (outer, inner) = (Scope::new(), Scope::new());
            let slow = async |os: &mut Os| os.sleep(second(50)).await;
            let body = async |os: &mut Os| inner.run(os, slow).await;
            outer.run(os, body).await
        };
        let mut worker = os.spawn_child("worker", worker).await.unwrap();
        os.sleep(second(1)).await;
        assert!(os.cancel(worker.tid()).await);
        // The scope that is left is cancelled already.
        assert!(!os.cancel(worker.tid()).await);
        assert_eq!(worker.wait(os).await, Ok(Err(Cancelled)));
        let none = os
            .spawn("none", async |os: &mut Os| os.sleep(second(1)).await)
            .await
            .unwrap();
        os.yield_now().await;
        assert!(!os.cancel(none).await);
        assert!(!os.cancel(99.into()).await);
        // A timeout within a scope, and around one.
        let scope = Scope::new();
        let timed = async |os: &mut Os| {
            let slow = async |os: &mut Os| os.sleep(second(50)).await;
            os.timeout(second(1), slow).await
        };
        assert_eq!(scope.run(os, timed).await, Ok(Err(Elapsed)));
        let scoped = async |os: &mut Os| {
            let slow = async |os: &mut Os| os.sleep(second(50)).await;
            scope.run(os, slow).await
        };
        assert_eq!(os.timeout(second(1), scoped).await, Err(Elapsed));
        assert!(!scope.is_cancelled());
    });
}

#[test]
fn s74_a_deadline_may_move_and_cancels_the_scope() {
    alone(async |os: &mut Os| {
        let scope = Scope::new();
        let theirs = scope.clone();
        scope.deadline(os, second(1)).await;
        let mover = async move |os: &mut Os| {
            theirs.deadline(os, second(5)).await;
            os.sleep(second(2)).await;
            theirs.deadline(os, second(3)).await;
        };
        os.spawn("mover", mover).await.unwrap();
        let slow = async |os: &mut Os| os.sleep(second(50)).await;
        assert_eq!(scope.run(os, slow).await, Err(Cancelled));
        assert_eq!((os.now().await, scope.is_cancelled()), (second(3), true));
        let late = Scope::new();
        late.deadline(os, second(1)).await;
        assert_eq!(late.run(os, slow).await, Err(Cancelled));
        assert_eq!(os.now().await, second(3));
    });
}

#[test]
fn s74_many_deadlines_may_move_at_once() {
    alone(async |os: &mut Os| {
        let mut ends = Vec::new();
        for n in 0..200u64 {
            let scope = Scope::new();
            let theirs = scope.clone();
            let body = async move |os: &mut Os| {
                let slow = async |os: &mut Os| os.sleep(second(10_000)).await;
                let result = theirs.run(os, slow).await;
                (result, os.now().await)
            };
            let child = os.spawn_child("body", body).await.unwrap();
            ends.push((n, scope, child));
        }
        os.yield_now().await;
        for far in [5000, 3000, 4000] {
            for (n, scope, _) in &ends {
                scope.deadline(os, second(far + (n * 7919) % 1000)).await;
            }
        }
        for (n, _, child) in &mut ends {
            let at = second(4000 + (*n * 7919) % 1000);
            assert_eq!(child.wait(os).await, Ok((Err(Cancelled), at)));
        }
    });
}

#[test]
fn s74_a_scope_that_is_run_twice_at_once_faults_the_second_task() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let scope = Scope::new();
            for name in ["first", "second"] {
                let scope = scope.clone();
                let run = async move |os: &mut Os| {
                    let slow = async |os: &mut Os| os.sleep(second(1)).await;
                    let _ = scope.run(os, slow).await;
                    // One after the other is allowed.
                    let _ = scope.run(os, slow).await;
                };
                os.spawn(name, run).await?;
            }
            assert_eq!(os.wait(2.into()).await, Ok(Exit::Done));
            let Ok(Exit::Faulted(why)) = os.wait(3.into()).await else {
                panic!("it ran twice");
            };
            assert!(
                why.starts_with("a scope is run while a run of it is under way"),
                "{why}"
            );
            // A task that was killed in it has left it.
            let theirs = scope.clone();
            let victim = async move |os: &mut Os| {
                let slow = async |os: &mut Os| os.sleep(second(1)).await;
                let _ = theirs.run(os, slow).await;
            };
            let victim = os.spawn("victim", victim).await?;
            os.yield_now().await;
            os.kill(victim).await;
            assert_eq!(scope.run(os, async |_| 1).await, Ok(1));
            Ok::<(), Errno>(())
        })
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&1.into()], Exit::Done);
}

#[test]
fn s74_to_be_asked_is_a_flag_to_select_on() {
    alone(async |os: &mut Os| {
        let scope = Scope::new();
        let theirs = scope.clone();
        let worker = async move |os: &mut Os| {
            let asked = theirs.asked(os).await;
            let body = async |os: &mut Os| {
                let sources = [Source::flag(&asked), Source::after(second(9))];
                os.select(&sources).await
            };
            theirs.run(os, body).await
        };
        let mut worker = os.spawn_child("worker", worker).await.unwrap();
        os.sleep(second(1)).await;
        scope.ask(os).await;
        assert_eq!(worker.wait(os).await, Ok(Ok(0)));
        assert_eq!(os.now().await, second(1));
    });
}

#[test]
fn s75_what_is_around_a_shield_waits_until_it_is_left() {
    alone(async |os: &mut Os| {
        let slow = async |os: &mut Os| os.sleep(second(5)).await;
        let shielded = async |os: &mut Os| {
            os.shield(slow).await;
            os.sleep(second(100)).await;
        };
        assert_eq!(os.timeout(second(1), shielded).await, Err(Elapsed));
        assert_eq!(os.now().await, second(5));
        // A body that ends with its shield answers.
        let whole = async |os: &mut Os| os.shield(slow).await;
        assert_eq!(os.timeout(second(1), whole).await, Ok(()));
        // One that is due before the shield is entered.
        assert_eq!(os.timeout(Duration::ZERO, shielded).await, Err(Elapsed));
        assert_eq!(os.now().await, second(15));
        // One answer comes through after the shield, as after a timeout that is due.
        let queue = Queue::<u8>::bounded(os, 1).await;
        queue.put(os, 1).await.unwrap();
        let gets = async |os: &mut Os| {
            os.shield(slow).await;
            assert_eq!(queue.get(os).await, Ok(1));
            os.yield_now().await;
        };
        assert_eq!(os.timeout(second(1), gets).await, Err(Elapsed));
        let scope = Scope::new();
        let theirs = scope.clone();
        let cancel = async move |os: &mut Os| theirs.cancel(os).await;
        os.spawn("cancel", cancel).await.unwrap();
        assert_eq!(scope.run(os, shielded).await, Err(Cancelled));
        assert_eq!(os.now().await, second(25));
    });
}

#[test]
fn s75_timeouts_and_shields_nest() {
    alone(async |os: &mut Os| {
        let slow = async |os: &mut Os| os.sleep(second(5)).await;
        // Within a shield a timeout works.
        let within = async |os: &mut Os| {
            let timed = async |os: &mut Os| os.timeout(second(2), slow).await;
            os.shield(timed).await
        };
        assert_eq!(os.timeout(second(1), within).await, Ok(Err(Elapsed)));
        assert_eq!(os.now().await, second(2));
        // Of two around it the outermost that is due answers; only the inner one is here.
        let after_shield = async |os: &mut Os| {
            os.shield(slow).await;
            os.sleep(second(50)).await;
        };
        let inner = async |os: &mut Os| os.timeout(second(1), after_shield).await;
        assert_eq!(os.timeout(second(2), inner).await, Err(Elapsed));
        assert_eq!(os.timeout(second(20), inner).await, Ok(Err(Elapsed)));
        assert_eq!(os.now().await, second(12));
        // A timeout between two shields is due when the inner one is left.
        let between = async |os: &mut Os| {
            let inner = async |os: &mut Os| os.timeout(second(1), after_shield).await;
            let cut = os.shield(inner).await;
            assert_eq!((cut, os.now().await), (Err(Elapsed), second(17)));
            os.sleep(second(50)).await;
        };
        assert_eq!(os.timeout(second(2), between).await, Err(Elapsed));
        assert_eq!(os.now().await, second(17));
    });
}

#[test]
fn s75_kill_and_shutdown_ignore_a_shield() {
    alone(async |os: &mut Os| {
        let shielded = async |os: &mut Os| {
            os.shield(async |os| os.sleep(second(100)).await).await;
        };
        let victim = os.spawn("victim", shielded).await.unwrap();
        os.sleep(second(1)).await;
        assert!(os.kill(victim).await);
        os.spawn("other", shielded).await.unwrap();
        os.yield_now().await;
        os.shutdown().await;
    });
}

#[test]
fn s75_a_timeout_around_a_shield_ends_no_wait_within_it() {
    let mut kernel = Kernel::simulated(1);
    let program = async |os: &mut Os| {
        let shielded = async |os: &mut Os| {
            let wait = async |os: &mut Os| os.wait(2.into()).await.map(drop);
            os.shield(wait).await
        };
        os.spawn("other", async |os: &mut Os| {
            os.wait(1.into()).await.map(drop)
        })
        .await?;
        let _ = os.timeout(second(1), shielded).await;
        Ok::<(), Errno>(())
    };
    kernel.spawn("main", program).unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("each waits for the other");
    };
    assert_eq!(deadlock.cycles, [[1, 2].map(From::from)]);
}

#[test]
fn s74_no_message_is_lost_at_any_step() {
    let program = |kernel: &mut Kernel| -> Result<(), Error> {
        let (got, left) = (Shared::new(0), Shared::new(0));
        let (taken, rest) = (got.clone(), left.clone());
        kernel.spawn("main", async move |os: &mut Os| {
            let queue = Queue::<u32>::bounded(os, 4).await;
            let scope = Scope::new();
            let (theirs, source) = (scope.clone(), queue.clone());
            let worker = async move |os: &mut Os| {
                let body = async |os: &mut Os| {
                    if let Ok(n) = source.get(os).await {
                        taken.set(n);
                    }
                };
                let _ = theirs.run(os, body).await;
            };
            let worker = os.spawn("worker", worker).await?;
            let sink = queue.clone();
            let putter = async move |os: &mut Os| sink.put(os, 1).await;
            let putter = os.spawn("putter", putter).await?;
            scope.cancel(os).await;
            os.wait(worker).await?;
            os.wait(putter).await?;
            while let Ok(n) = queue.try_get(os).await {
                rest.update(|rest| *rest += n);
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()?;
        assert_eq!(got.get() + left.get(), 1);
        kernel.outcome(format!("got {}", got.get()));
        Ok(())
    };
    let all = check(program).exhaustive().explore();
    assert!(all.failure.is_none() && all.complete, "{all:?}");
    assert_eq!(all.outcomes.len(), 2);
}

#[test]
fn a_trace_shows_scopes_and_shields() {
    let (mut kernel, log) = logged(sim());
    let program = async |os: &mut Os| {
        let scope = Scope::new();
        scope.deadline(os, second(1)).await;
        let _ = scope
            .run(os, async |os| os.shield(async |_| ()).await)
            .await;
        let me = os.get_tid().await;
        os.cancel(me).await;
    };
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    for line in [
        "trapped set_deadline(00:01.000)",
        "trapped scope(00:01.000)",
        "trapped shield()",
        "deferred unshield(2)",
        "trapped cancel(1)",
    ] {
        let is_shown = log.lines().iter().any(|other| other.ends_with(line));
        assert!(is_shown, "{line}: {}", log.text());
    }
}

#[test]
fn s74_a_scope_of_another_kernel_cuts_nothing_here() {
    let scope = Scope::new();
    let (theirs, ours) = (scope.clone(), scope.clone());
    let mut other = Kernel::simulated(0);
    let program = async move |os: &mut Os| {
        let body = async |os: &mut Os| os.sleep(second(10)).await;
        assert_eq!(theirs.run(os, body).await, Ok(()));
    };
    other.spawn("other", program).unwrap();
    for _ in 0..3 {
        other.step().unwrap();
    }
    // The timeout has the number of that scope, and the task that of its task.
    alone(async move |os: &mut Os| {
        let cancel = async move |os: &mut Os| {
            os.yield_now().await;
            ours.cancel(os).await;
            ours.deadline(os, Duration::ZERO).await;
        };
        os.spawn("cancel", cancel).await.unwrap();
        let body = async |os: &mut Os| os.sleep(second(10)).await;
        assert_eq!(os.timeout(second(100), body).await, Ok(()));
    });
    assert!(scope.is_cancelled());
    other.run().unwrap().check().unwrap();
}

#[test]
fn s74_what_a_dropped_message_holds_comes_back_with_the_cancel() {
    // In a search, since otherwise the next turn of any task would give it back.
    for act in 0..3 {
        let program = move |kernel: &mut Kernel| -> Result<(), Error> {
            kernel.spawn("main", async move |os: &mut Os| {
                let permits = Semaphore::new(os, 1).await;
                let queue = Queue::<Permit>::bounded(os, 0).await;
                let (scope, theirs, held) = (Scope::new(), Scope::new(), permits.clone());
                let (within, sink) = (scope.clone(), queue.clone());
                let putter = async move |os: &mut Os| {
                    let permit = held.acquire(os).await.unwrap();
                    let put = async |os: &mut Os| sink.put(os, permit).await.is_ok();
                    let _ = match act {
                        0 => os.timeout(Duration::ZERO, put).await.map_err(|_| Cancelled),
                        _ => within.run(os, put).await,
                    };
                };
                let wants = async move |os: &mut Os| drop(permits.acquire(os).await.unwrap());
                let tasks = [
                    os.spawn("putter", putter).await?,
                    os.spawn("wants", wants).await?,
                    os.spawn("idle", async |os: &mut Os| os.yield_now().await)
                        .await?,
                ];
                match act {
                    0 => theirs.cancel(os).await,
                    1 => scope.cancel(os).await,
                    _ => scope.deadline(os, Duration::ZERO).await,
                }
                for task in tasks {
                    os.wait(task).await?;
                }
                Ok::<(), Errno>(())
            })?;
            kernel.run()?.check()?;
            kernel.audit_all();
            Ok(())
        };
        let all = check(program).exhaustive().explore();
        assert!(all.failure.is_none() && all.proved, "{act}: {all}");
    }
}

#[test]
fn s74_a_cancel_may_kill_the_task_that_makes_it() {
    alone(async |os: &mut Os| {
        let mut group = Group::new(os).await;
        let queue = Queue::<Group>::bounded(os, 0).await;
        let (scope, sink) = (Scope::new(), queue.clone());
        let theirs = scope.clone();
        let member = async move |os: &mut Os| {
            os.sleep(second(1)).await;
            theirs.cancel(os).await;
            unreachable!("the message of the body was its group");
        };
        let member = group.spawn(os, "member", member).await.unwrap();
        let put = async |os: &mut Os| sink.put(os, group).await.is_ok();
        assert_eq!(scope.run(os, put).await, Err(Cancelled));
        assert_eq!(os.wait(member).await, Err(Errno::NoSuchTask));
    });
}
