//! S01 to S19: tasks, from birth to reaping.

use std::{cell::Cell, panic::panic_any, rc::Rc, time::Duration};

use trapline::{DeviceId, Errno, Error, Exit, Kernel, Os, Reply, SystemCall, TaskState, Tid};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);

/// Each task as `tid name parent state`.
async fn ps(os: &mut Os) -> String {
    let line = |task: &trapline::TaskInfo| {
        let state = match &task.state {
            TaskState::Ready => "ready",
            TaskState::Running => "running",
            TaskState::Blocked { .. } => "blocked",
            TaskState::Zombie(_) => "zombie",
        };
        format!("{} {} {} {state}", task.tid, task.name, task.parent)
    };
    let lines: Vec<_> = os.tasks().await.iter().map(line).collect();
    lines.join(", ")
}

// ---- S01

#[test]
fn s01_tids_are_given_in_order_of_creation_from_one() {
    let transcript = console(async |os| {
        let me = os.get_tid().await;
        let children = [
            os.spawn("a", spin).await?,
            os.spawn_detached("b", spin).await?,
            os.spawn("c", spin).await?,
        ];
        write!(os, "{me}");
        for child in children {
            write!(os, " {child}");
            os.kill(child).await;
        }
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "1 2 3 4");
}

#[test]
fn s01_tids_are_never_used_again() {
    let transcript = console(async |os| {
        for _ in 0..3 {
            let child = os.spawn("child", async |_| {}).await?;
            os.wait(child).await?;
            write!(os, "{child} ");
        }
        let killed = os.spawn("killed", spin).await?;
        os.kill(killed).await;
        let last = os.spawn_detached("last", async |_| {}).await?;
        writeln!(os, "{killed} {last}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "2 3 4 5 6\n");
}

#[test]
fn s01_tids_go_on_from_run_to_run_and_begin_anew_in_another_kernel() {
    let mut kernel = Kernel::simulated(0);
    for number in 1..4 {
        assert_eq!(kernel.spawn("task", async |_| {}), Ok(tid(number)));
        kernel.run().unwrap();
    }
    assert_eq!(Kernel::simulated(0).spawn("task", async |_| {}), Ok(tid(1)));
}

#[test]
fn s01_a_refused_task_takes_no_tid() {
    let mut kernel = sim().max_tasks(1).build().unwrap();
    kernel.spawn("first", async |_| {}).unwrap();
    kernel.spawn("refused", async |_| {}).unwrap_err();
    kernel.run().unwrap();
    assert_eq!(kernel.spawn("second", async |_| {}), Ok(tid(2)));
}

// ---- S02

#[test]
fn s02_the_child_runs_before_its_parent_which_gets_its_tid() {
    let transcript = console(async |os| {
        let child = os
            .spawn("child", async |os| {
                let tid = os.get_tid().await;
                writeln!(os, "child is {tid}");
            })
            .await?;
        writeln!(os, "parent has {child}");
        os.wait(child).await?;
        Ok::<(), Errno>(())
    });
    // The child's first turn ends with its own trap.
    assert_eq!(transcript, "parent has 2\nchild is 2\n");
}

#[test]
fn s02_the_child_is_on_the_queue_before_its_parent_is_put_back() {
    let transcript = console(async |os| {
        os.spawn_detached("child", async |os| writeln!(os, "child"))
            .await?;
        writeln!(os, "parent");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "child\nparent\n");
}

#[test]
fn s02_the_child_comes_after_those_who_were_ready_already() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("parent", async |os| {
            os.spawn_detached("child", async |os| writeln!(os, "child"))
                .await?;
            writeln!(os, "parent");
            Ok::<(), Errno>(())
        })
        .unwrap();
    kernel
        .spawn("sibling", async |os| writeln!(os, "sibling"))
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "sibling\nchild\nparent\n");
}

// ---- S03

#[test]
fn s03_a_bare_yield_answers_nothing_left_over() {
    let transcript = console(async |os| {
        let child = os.spawn("child", async |_| Err("a reason")).await?;
        for call in [
            SystemCall::GetTid,
            SystemCall::WaitTask(child),
            SystemCall::Random,
            SystemCall::Tasks,
            SystemCall::KillTask(tid(77)),
            SystemCall::WaitTask(tid(77)),
        ] {
            os.trap(call).await;
            assert_eq!(os.trap(SystemCall::Yield).await, Reply::Done);
            os.yield_now().await;
        }
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "");
}

#[test]
fn s03_an_answer_that_nobody_took_is_not_given_to_the_next_call() {
    let transcript = console(async |os| {
        let child = os.spawn("child", async |_| Err("one")).await?;
        let other = os.spawn("other", async |_| Err("two")).await?;
        os.yield_now().await;
        ignore_answer(os.wait(child)).await;
        assert_eq!(os.trap(SystemCall::Yield).await, Reply::Done);
        let exit = os.wait(other).await?;
        writeln!(os, "{exit}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "failed: two\n");
}

// ---- S04

#[test]
fn s04_calls_that_do_not_block_alternate() {
    let mut kernel = Kernel::simulated(0);
    for _ in 0..2 {
        kernel
            .spawn("asker", async |os| {
                for _ in 0..3 {
                    let tid = os.get_tid().await;
                    write!(os, "{tid} ");
                }
            })
            .unwrap();
    }
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "1 2 1 2 1 2 ");
}

#[test]
fn s04_every_call_that_does_not_block_gives_the_others_a_turn() {
    let transcript = console(async |os| {
        let turns = Rc::new(Cell::new(0));
        let counter = Rc::clone(&turns);
        let other = os
            .spawn("other", async move |os| {
                loop {
                    counter.set(counter.get() + 1);
                    os.yield_now().await;
                }
            })
            .await?;
        let zombie = os.spawn("zombie", async |_| {}).await?;
        os.yield_now().await;
        let calls = [
            SystemCall::GetTid,
            SystemCall::Yield,
            SystemCall::NewTask,
            SystemCall::KillTask(tid(99)),
            SystemCall::WaitTask(zombie),
            SystemCall::WaitTask(tid(99)),
            SystemCall::Exit,
            SystemCall::Sleep(Duration::ZERO.into()),
            SystemCall::SleepUntil(Duration::ZERO.into()),
            SystemCall::Now,
            SystemCall::Random,
            SystemCall::Tasks,
            SystemCall::ReadWait(DeviceId::from_raw(1)),
            SystemCall::Close(DeviceId::from_raw(1)),
        ];
        for call in calls {
            let before = turns.get();
            os.trap(call).await;
            assert_eq!(turns.get(), before + 1, "{call:?}");
        }
        os.kill(other).await;
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "");
}

// ---- S05

#[test]
fn s05_to_kill_nobody_answers_false_and_changes_nothing() {
    let transcript = console(async |os| {
        let zombie = os.spawn("zombie", async |_| Err("kept")).await?;
        let reaped = os.spawn("reaped", async |_| {}).await?;
        os.wait(reaped).await?;
        let before = ps(os).await;
        for tid in [zombie, reaped, tid(99), Tid::KERNEL, tid(u64::MAX)] {
            assert!(!os.kill(tid).await, "task {tid}");
        }
        assert_eq!(ps(os).await, before);
        let exit = os.wait(zombie).await?;
        writeln!(os, "{before}; {exit}");
        Ok::<(), Errno>(())
    });
    assert_eq!(
        transcript,
        "1 main 0 running, 2 zombie 1 zombie; failed: kept\n"
    );
}

// ---- S06

#[test]
fn s06_kill_answers_true_once_and_the_victim_has_left_every_queue() {
    let transcript = console(async |os| {
        let target = os.spawn("target", spin).await?;
        let victims = [
            os.spawn("ready", spin).await?,
            os.spawn("timer", async |os| os.sleep(SECOND).await).await?,
            os.spawn("for ever", async |os| os.sleep(Duration::MAX).await)
                .await?,
            os.spawn("waiter", async move |os| os.wait(target).await.map(drop))
                .await?,
        ];
        passes(os, 2).await;
        for victim in victims {
            assert!(os.kill(victim).await);
            assert!(!os.kill(victim).await);
            assert_eq!(os.wait(victim).await?, Exit::Killed);
        }
        os.kill(target).await;
        os.wait(target).await?;
        let (left, now) = (ps(os).await, os.now().await);
        writeln!(os, "{left} at {now:?}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "1 main 0 running at 0ns\n");
}

#[test]
fn s06_a_killed_sleeper_does_not_keep_the_clock_going() {
    let mut kernel = Kernel::simulated(0);
    let report = run_main(&mut kernel, async |os: &mut Os| {
        let sleeper = os
            .spawn("sleeper", async |os| os.sleep(SECOND).await)
            .await?;
        os.yield_now().await;
        os.kill(sleeper).await;
        Ok::<(), Errno>(())
    });
    assert_eq!(report.elapsed, Duration::ZERO);
}

#[test]
fn s06_destructors_have_run_innermost_call_first_when_the_killer_goes_on() {
    async fn innermost(os: &mut Os, diary: &Diary) {
        let _first = diary.on_drop("innermost, first variable");
        let _second = diary.on_drop("innermost, second variable");
        spin(os).await;
    }
    async fn middle(os: &mut Os, diary: &Diary) {
        let _guard = diary.on_drop("middle");
        innermost(os, diary).await;
    }
    let diary = Diary::default();
    let notes = diary.clone();
    console(async move |os| {
        let theirs = notes.clone();
        let owned = notes.on_drop("owned by the closure");
        let victim = os
            .spawn("victim", async move |os| {
                let _owned = &owned;
                let _guard = theirs.on_drop("outermost");
                middle(os, &theirs).await;
            })
            .await?;
        os.yield_now().await;
        os.kill(victim).await;
        notes.note("the killer goes on");
        Ok::<(), Errno>(())
    });
    let expected = [
        "innermost, second variable",
        "innermost, first variable",
        "middle",
        "outermost",
        "owned by the closure",
        "the killer goes on",
    ];
    assert_eq!(diary.lines(), expected);
}

#[test]
fn s06_what_a_destructor_prints_goes_out_before_the_killer_goes_on() {
    struct Farewell<'a>(&'a mut Os);
    impl Drop for Farewell<'_> {
        fn drop(&mut self) {
            writeln!(self.0, "farewell");
        }
    }
    let transcript = console(async |os| {
        let victim = os
            .spawn("victim", async |os| {
                let last = Farewell(os);
                spin(&mut *last.0).await;
            })
            .await?;
        os.yield_now().await;
        os.kill(victim).await;
        writeln!(os, "killed");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "farewell\nkilled\n");
}

#[test]
fn s06_a_victim_that_was_woken_in_the_same_pass_does_not_run() {
    let transcript = console(async |os| {
        // Both timers fire at once; the killer's was armed first.
        let me = os.get_tid().await;
        os.spawn("victim", async move |os| {
            os.yield_now().await;
            os.sleep_until(SECOND).await;
            writeln!(os, "the victim of {me} runs");
        })
        .await?;
        os.sleep_until(SECOND).await;
        let killed = os.kill(tid(2)).await;
        writeln!(os, "{killed}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "true\n");
}

// ---- S07

#[test]
fn s07_a_task_that_kills_itself_sees_no_answer_and_runs_destructors_only() {
    let diary = Diary::default();
    let notes = diary.clone();
    let transcript = console(async move |os| {
        let child = os
            .spawn("child", async move |os| {
                let _guard = notes.on_drop("destructor");
                let me = os.get_tid().await;
                let answer = os.kill(me).await;
                writeln!(os, "answered {answer}");
            })
            .await?;
        let exit = os.wait(child).await?;
        writeln!(os, "{exit}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "killed\n");
    assert_eq!(diary.lines(), ["destructor"]);
}

#[test]
fn s07_a_task_of_the_hosts_that_kills_itself_is_killed_in_the_report() {
    let mut kernel = Kernel::simulated(0);
    let me = kernel
        .spawn("me", async |os| {
            os.kill(tid(1)).await;
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&me], Exit::Killed);
}

// ---- S08

#[test]
fn s08_a_task_killed_before_its_first_turn_never_starts_and_drops_what_it_owned() {
    let (mut kernel, log) = logged(sim());
    let diary = Diary::default();
    let notes = diary.clone();
    kernel
        .spawn("killer", async |os| {
            assert!(os.kill(tid(2)).await);
        })
        .unwrap();
    let owned = diary.on_drop("dropped");
    let victim = kernel
        .spawn("victim", async move |_| {
            notes.note("started");
            drop(owned);
        })
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&victim], Exit::Killed);
    assert_eq!(diary.lines(), ["dropped"]);
    assert_eq!(
        about(&log, 2),
        ["spawned \"victim\" by 0", "exited killed", "reaped"]
    );
}

// ---- S09

#[test]
fn s09_wait_blocks_until_the_end_and_answers_the_exit() {
    let transcript = console(async |os| {
        let child = os
            .spawn("child", async |os| {
                os.sleep(SECOND).await;
                Err("its reason")
            })
            .await?;
        let exit = os.wait(child).await?;
        let now = os.now().await;
        writeln!(os, "{exit} at {now:?}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "failed: its reason at 1s\n");
}

#[test]
fn s09_all_waiters_wake_in_the_order_in_which_they_began_to_wait() {
    let transcript = console(async |os| {
        let target = os
            .spawn("target", async |os| {
                os.sleep(10 * SECOND).await;
                Err("over")
            })
            .await?;
        for (name, delay) in [("third", 3), ("first", 1), ("second", 2)] {
            os.spawn_detached(name, async move |os| {
                os.sleep(delay * SECOND).await;
                let exit = os.wait(target).await?;
                writeln!(os, "{name}: {exit}");
                Ok::<(), Errno>(())
            })
            .await?;
        }
        let exit = os.wait(target).await?;
        writeln!(os, "main: {exit}");
        Ok::<(), Errno>(())
    });
    assert_eq!(
        transcript,
        "main: failed: over\nfirst: failed: over\nsecond: failed: over\nthird: failed: over\n"
    );
}

#[test]
fn s09_whoever_waits_needs_not_be_the_parent() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("elder", async |os| os.sleep(SECOND).await)
        .unwrap();
    let main = kernel
        .spawn("waiter", async |os| {
            assert_eq!(os.wait(tid(1)).await, Ok(Exit::Done));
        })
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&main], Exit::Done);
    assert_eq!(report.exits()[&tid(1)], Exit::Done);
}

// ---- S10

#[test]
fn s10_wait_on_a_zombie_answers_at_once_and_reaps_it() {
    let transcript = console(async |os| {
        let child = os.spawn("child", async |_| Err("early")).await?;
        os.sleep(SECOND).await;
        let before = ps(os).await;
        let (first, second) = (os.wait(child).await, os.wait(child).await);
        let (after, now) = (ps(os).await, os.now().await);
        writeln!(os, "{before}\n{first:?} {second:?}\n{after} at {now:?}");
        Ok::<(), Errno>(())
    });
    assert_eq!(
        transcript,
        "1 main 0 running, 2 child 1 zombie\n\
         Ok(Failed(\"early\")) Err(NoSuchTask)\n\
         1 main 0 running at 1s\n"
    );
}

#[test]
fn s10_wait_on_a_task_that_never_existed_answers_at_once() {
    console(async |os| {
        for tid in [Tid::KERNEL, tid(2), tid(u64::MAX)] {
            assert_eq!(os.wait(tid).await, Err(Errno::NoSuchTask));
        }
    });
}

// ---- S11

#[test]
fn s11_wait_on_oneself_would_deadlock() {
    console(async |os| {
        let me = os.get_tid().await;
        assert_eq!(os.wait(me).await, Err(Errno::WouldDeadlock));
        assert_eq!(os.get_tid().await, me);
    });
}

// ---- S12

#[test]
fn s12_a_waiter_killed_before_its_target_ends_is_forgotten() {
    let (mut kernel, log) = logged(sim());
    run_main(&mut kernel, async |os: &mut Os| {
        let target = os
            .spawn("target", async |os| os.sleep(SECOND).await)
            .await?;
        for _ in 0..3 {
            os.spawn("waiter", async move |os| {
                assert_eq!(os.wait(target).await, Ok(Exit::Done));
            })
            .await?;
        }
        os.yield_now().await;
        assert!(os.kill(tid(4)).await);
        os.sleep(2 * SECOND).await;
        for (waiter, exit) in [(3, Exit::Done), (4, Exit::Killed), (5, Exit::Done)] {
            assert_eq!(os.wait(tid(waiter)).await, Ok(exit));
        }
        Ok::<(), Errno>(())
    });
    let woken = |tid| {
        about(&log, tid)
            .iter()
            .any(|fact| fact.starts_with("woken"))
    };
    assert_eq!([woken(3), woken(4), woken(5)], [true, false, true]);
}

#[test]
fn s12_a_forgotten_waiter_takes_no_exit_with_it() {
    console(async |os| {
        let target = os
            .spawn("target", async |os| {
                os.sleep(SECOND).await;
                Err("kept")
            })
            .await?;
        let waiter = os
            .spawn("waiter", async move |os| os.wait(target).await.map(drop))
            .await?;
        os.yield_now().await;
        os.kill(waiter).await;
        os.sleep(2 * SECOND).await;
        // Nobody was answered: so it is a zombie, as if nobody had ever waited.
        assert_eq!(os.wait(target).await, Ok(Exit::Failed("kept".into())));
        Ok::<(), Errno>(())
    });
}

// ---- S13

#[test]
fn s13_a_zombie_keeps_its_exit_and_its_program_is_dropped() {
    let diary = Diary::default();
    let notes = diary.clone();
    console(async move |os| {
        let owned = notes.on_drop("dropped");
        let child = os
            .spawn("child", async move |_| {
                let _owned = &owned;
            })
            .await?;
        os.yield_now().await;
        assert_eq!(notes.lines(), ["dropped"]);
        let zombie = os.tasks().await.pop().expect("a zombie is listed");
        assert_eq!(zombie.tid, child);
        assert_eq!(zombie.state, TaskState::Zombie(Exit::Done));
        Ok::<(), Errno>(())
    });
}

#[test]
fn s13_zombies_last_until_their_parent_ends() {
    let transcript = console(async |os| {
        let parent = os
            .spawn("parent", async |os| {
                os.spawn("child", async |_| {}).await?;
                os.spawn("child", async |_| Err("unheard")).await?;
                os.sleep(SECOND).await;
                Ok::<(), Errno>(())
            })
            .await?;
        passes(os, 4).await;
        let before = ps(os).await;
        os.wait(parent).await?;
        let after = ps(os).await;
        writeln!(os, "{before}\n{after}");
        assert_eq!(os.wait(tid(3)).await, Err(Errno::NoSuchTask));
        Ok::<(), Errno>(())
    });
    assert_eq!(
        transcript,
        "1 main 0 running, 2 parent 1 blocked, 3 child 2 zombie, 4 child 2 zombie\n\
         1 main 0 running\n"
    );
}

#[test]
fn s13_detached_tasks_orphans_and_those_waited_for_leave_no_zombie() {
    let transcript = console(async |os| {
        os.spawn_detached("detached", async |os| os.sleep(SECOND).await)
            .await?;
        os.spawn_detached("parent", async |os| {
            os.spawn("orphan", async |os| os.sleep(SECOND).await)
                .await?;
            Ok::<(), Errno>(())
        })
        .await?;
        let waited = os
            .spawn("waited", async |os| os.sleep(SECOND).await)
            .await?;
        let waiter = async move |os: &mut Os| os.wait(waited).await.map(drop);
        os.spawn_detached("waiter", waiter).await?;
        os.sleep(2 * SECOND).await;
        let left = ps(os).await;
        writeln!(os, "{left}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "1 main 0 running\n");
}

#[test]
fn s13_a_killed_child_is_a_zombie_too() {
    console(async |os| {
        let child = os.spawn("child", spin).await?;
        os.kill(child).await;
        assert_eq!(ps(os).await, "1 main 0 running, 2 child 1 zombie");
        assert_eq!(os.wait(child).await, Ok(Exit::Killed));
        Ok::<(), Errno>(())
    });
}

#[test]
fn s13_tasks_of_the_hosts_leave_no_zombie_their_exits_are_in_the_report() {
    let mut kernel = Kernel::simulated(0);
    kernel.spawn("done", async |_| {}).unwrap();
    kernel.spawn("failed", async |_| Err("why")).unwrap();
    kernel
        .spawn("last", async |os| {
            os.spawn("not the host's", async |_| {}).await?;
            os.sleep(SECOND).await;
            assert_eq!(os.wait(tid(1)).await, Err(Errno::NoSuchTask));
            Ok::<(), Errno>(())
        })
        .unwrap();
    let report = kernel.run().unwrap();
    let exits: Vec<_> = report.exits().values().cloned().collect();
    assert_eq!(exits, [Exit::Done, Exit::Failed("why".into()), Exit::Done]);
    assert_eq!((report.failures, kernel.tasks().count()), (1, 0));
}

// ---- S14

#[test]
fn s14_live_children_run_on_as_orphans() {
    let transcript = console(async |os| {
        let parent = os
            .spawn("parent", async |os| {
                os.spawn("child", async |os| {
                    os.sleep(SECOND).await;
                    writeln!(os, "still here");
                })
                .await?;
                os.sleep(Duration::MAX).await;
                Ok::<(), Errno>(())
            })
            .await?;
        passes(os, 3).await;
        let before = ps(os).await;
        os.kill(parent).await;
        let after = ps(os).await;
        os.wait(parent).await?;
        os.sleep(2 * SECOND).await;
        writeln!(os, "{before}\n{after}");
        Ok::<(), Errno>(())
    });
    assert_eq!(
        transcript,
        "still here\n\
         1 main 0 running, 2 parent 1 blocked, 3 child 2 blocked\n\
         1 main 0 running, 2 parent 1 zombie, 3 child 0 blocked\n"
    );
}

#[test]
fn s14_an_orphan_can_be_waited_for_while_it_lives() {
    console(async |os| {
        os.spawn_detached("parent", async |os| {
            os.spawn("child", async |os| os.sleep(SECOND).await)
                .await
                .map(drop)
        })
        .await?;
        passes(os, 3).await;
        assert_eq!(ps(os).await, "1 main 0 running, 3 child 0 blocked");
        assert_eq!(os.wait(tid(3)).await, Ok(Exit::Done));
        Ok::<(), Errno>(())
    });
}

// ---- S15

#[test]
fn s15_a_panic_ends_its_own_task_only() {
    let diary = Diary::default();
    let notes = diary.clone();
    let transcript = console(async move |os| {
        let sibling = os
            .spawn("sibling", async |os| {
                os.sleep(SECOND).await;
                writeln!(os, "the sibling goes on");
            })
            .await?;
        let faulty = os
            .spawn("faulty", async move |os| {
                let _guard = notes.on_drop("destructor");
                os.yield_now().await;
                let answer = 6 * 7;
                panic!("not {answer}");
            })
            .await?;
        let exit = os.wait(faulty).await?;
        writeln!(os, "{exit}");
        os.wait(sibling).await?;
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "faulted: not 42\nthe sibling goes on\n");
    assert_eq!(diary.lines(), ["destructor"]);
}

#[test]
fn s15_a_panic_before_the_first_trap_is_contained_too() {
    let mut kernel = Kernel::simulated(0);
    kernel.spawn("faulty", async |_| panic!("at once")).unwrap();
    kernel
        .spawn("fine", async |os| os.sleep(SECOND).await)
        .unwrap();
    let report = kernel.run().unwrap();
    let exits: Vec<_> = report.exits().values().cloned().collect();
    assert_eq!(exits, [Exit::Faulted("at once".into()), Exit::Done]);
    assert_eq!(report.failures, 1);
}

#[test]
fn s15_a_panic_may_carry_anything() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic_any(PanicOnDrop);
        }
    }
    console(async |os| {
        let programs: [(fn(), &str); 4] = [
            (|| panic_any("text"), "text"),
            (|| panic_any(String::from("a string")), "a string"),
            (|| panic_any(5), "panicked with a value that is not text"),
            (
                || panic_any(Grenade),
                "panicked with a value that is not text",
            ),
        ];
        for (program, message) in programs {
            let child = os.spawn("child", async move |_| program()).await?;
            let exit = os.wait(child).await?;
            assert_eq!(exit, Exit::Faulted(message.into()));
        }
        Ok::<(), Errno>(())
    });
}

#[test]
fn s15_what_was_printed_before_a_panic_is_not_lost() {
    let transcript = console(async |os| {
        os.spawn_detached("faulty", async |os| {
            writeln!(os, "before");
            panic!("after");
        })
        .await
        .map(drop)
    });
    assert_eq!(transcript, "before\n");
}

/// A program may be a closure with code before its future. That is part of its first turn.
#[test]
fn s15_a_closure_that_panics_before_its_future_faults_its_task() {
    use std::future::{pending, ready};

    let mut kernel = Kernel::simulated(0);
    let owned = Rc::new(());
    let held = || Rc::clone(&owned);
    let unbegun = Tid::from(2);
    let kill = async move |os: &mut Os| assert!(os.kill(unbegun).await);
    kernel.spawn("kills", kill).unwrap();
    let own = held();
    let never = move |_: &mut Os| {
        drop(own);
        ready(())
    };
    assert_eq!(kernel.spawn("unbegun", never), Ok(unbegun));
    let own = held();
    let returns = kernel.spawn("returns", move |os: &mut Os| {
        writeln!(os, "first turn");
        drop(own);
        ready(())
    });
    let own = held();
    let early = kernel.spawn("early", move |_: &mut Os| {
        assert_eq!(Rc::strong_count(&own), 0, "too early");
        ready(())
    });
    let own = held();
    let late = kernel.spawn("late", move |_: &mut Os| async move {
        drop(own);
        panic!("too late")
    });
    let own = held();
    let stuck = kernel.spawn("stuck", move |_: &mut Os| {
        drop(own);
        pending::<()>()
    });
    assert_eq!(kernel.take_console(), "", "no program has begun");

    let report = kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "first turn\n");
    let exit = |tid: Result<Tid, Errno>| report.exits()[&tid.unwrap()].to_string();
    assert_eq!(exit(Ok(unbegun)), "killed");
    assert_eq!(exit(returns), "done");
    assert!(exit(early).contains("too early"));
    assert!(exit(late).contains("too late"));
    assert!(exit(stuck).contains("not a trap"));
    assert_eq!(Rc::strong_count(&owned), 1, "what each has is dropped once");
}

#[test]
fn s15_text_whose_display_panics_ends_its_own_task_only() {
    struct Unprintable;
    impl std::fmt::Display for Unprintable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("unprintable")
        }
    }
    let (mut kernel, log) = logged(sim());
    run_main(&mut kernel, async |os: &mut Os| {
        let printer = os
            .spawn("printer", async |os| writeln!(os, "half {Unprintable}"))
            .await?;
        let failing = os.spawn("failing", async |_| Err(Unprintable)).await?;
        for child in [printer, failing] {
            let exit = os.wait(child).await?;
            assert_eq!(exit, Exit::Faulted("unprintable".into()));
        }
        writeln!(os, "whole");
        Ok::<(), Errno>(())
    });
    assert_eq!(kernel.take_console(), "half whole\n");
    assert!(about(&log, 2).contains(&"console \"half \"".into()));
}

// ---- S16

fn foreign_fault(exit: &Exit) -> bool {
    let Exit::Faulted(message) = exit else {
        return false;
    };
    message.starts_with("awaited a future that is pending and is not a trap")
}

#[test]
fn s16_a_foreign_pending_future_faults_in_plain_words_before_and_after_the_first_trap() {
    let diary = Diary::default();
    let notes = diary.clone();
    console(async move |os| {
        for traps in 0..3 {
            let theirs = notes.clone();
            let child = os
                .spawn("child", async move |os| {
                    let _guard = theirs.on_drop("destructor");
                    passes(os, traps).await;
                    foreign().await;
                })
                .await?;
            let exit = os.wait(child).await?;
            assert!(foreign_fault(&exit), "after {traps} traps: {exit}");
        }
        Ok::<(), Errno>(())
    });
    assert_eq!(diary.lines(), ["destructor"; 3]);
}

#[test]
fn s16_a_foreign_future_that_is_ready_is_no_fault() {
    let transcript = console(async |os| {
        let value = std::future::ready(7).await;
        os.yield_now().await;
        let more = async { value + 1 }.await;
        writeln!(os, "{more}");
    });
    assert_eq!(transcript, "8\n");
}

#[test]
fn s16_a_foreign_future_beside_a_trap_faults_when_the_trap_is_over() {
    use std::{future::poll_fn, pin::pin, task::Poll};
    let transcript = console(async |os| {
        let child = os
            .spawn("child", async |os| {
                let mut sleep = pin!(os.sleep(SECOND));
                let mut over = false;
                poll_fn(|context| {
                    over = over || sleep.as_mut().poll(context).is_ready();
                    Poll::<()>::Pending
                })
                .await;
            })
            .await?;
        let exit = os.wait(child).await?;
        let now = os.now().await;
        assert!(foreign_fault(&exit), "{exit}");
        writeln!(os, "{now:?}");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "1s\n");
}

#[test]
fn s16_an_answer_that_is_left_does_not_answer_the_next_call() {
    use std::{future::poll_fn, task::Poll};
    let transcript = console(async |os| {
        let mut first = Box::pin(os.get_tid());
        let mut is_made = false;
        poll_fn(|context| match std::mem::replace(&mut is_made, true) {
            false => first.as_mut().poll(context).map(drop),
            true => Poll::Ready(()),
        })
        .await;
        // Neither taken nor dropped.
        std::mem::forget(first);
        let mut second = Box::pin(os.now());
        let now = poll_fn(|context| match second.as_mut().poll(context) {
            Poll::Pending => second.as_mut().poll(context),
            now @ Poll::Ready(_) => now,
        })
        .await;
        drop(second);
        writeln!(os, "{now:?}");
    });
    assert_eq!(transcript, "0ns\n");
}

#[test]
fn s16_the_words_are_plain_after_a_neighbour_left_a_trap_half_made() {
    for panics in [false, true] {
        let mut kernel = Kernel::simulated(0);
        kernel
            .spawn("half", async move |os| {
                abandon(os.get_tid());
                assert!(!panics, "half way");
            })
            .unwrap();
        let next = kernel.spawn("next", async |_| foreign().await).unwrap();
        let report = kernel.run().unwrap();
        let exit = &report.exits()[&next];
        assert!(foreign_fault(exit), "{exit}");
    }
}

#[test]
fn s16_the_words_are_plain_after_a_destructor_has_panicked() {
    let mut kernel = Kernel::simulated(0);
    let main = async |os: &mut Os| {
        let victim = async |os: &mut Os| {
            let _bad = PanicOnDrop;
            spin(os).await;
        };
        let victim = os.spawn("victim", victim).await?;
        os.yield_now().await;
        assert!(os.kill(victim).await);
        foreign().await;
        Ok::<(), Errno>(())
    };
    let main = kernel.spawn("main", main).unwrap();
    let report = kernel.run().unwrap();
    assert!(foreign_fault(&report.exits()[&main]), "{report:?}");
}

#[test]
fn s15_a_panic_keeps_its_message_after_a_trap_half_made() {
    let mut kernel = Kernel::simulated(0);
    let half = kernel.spawn("half", async |os| {
        abandon(os.spawn("unborn", async |_| {}));
        panic!("half way");
    });
    let report = kernel.run().unwrap();
    let expected = Exit::Faulted("half way".into());
    assert_eq!(report.exits()[&half.unwrap()], expected);
}

#[test]
fn s16_a_second_trap_after_one_half_made_faults_in_plain_words() {
    let mut kernel = Kernel::simulated(0);
    let task = kernel.spawn("half", async |os: &mut Os| {
        abandon(os.yield_now());
        os.get_tid().await;
    });
    let report = kernel.run().unwrap();
    let expected = "made two traps in one resume: a call that has been polled must be awaited \
                    to its end before the next call";
    assert_eq!(
        report.exits()[&task.unwrap()],
        Exit::Faulted(expected.into())
    );
}

#[test]
fn s16_a_trap_half_made_leaves_nothing_for_the_next_task() {
    let diary = Diary::default();
    let mut kernel = Kernel::simulated(0);
    let notes = diary.clone();
    kernel
        .spawn("half", async move |os| {
            let owned = notes.on_drop("dropped");
            abandon(os.spawn("unborn", async move |_| drop(owned)));
            panic!("half way");
        })
        .unwrap();
    let next = kernel
        .spawn("next", async |os| {
            let reply = raw(os, SystemCall::NewTask).await;
            assert_eq!(reply, "Err(Invalid)");
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&next], Exit::Done);
    assert_eq!(diary.lines(), ["dropped"]);
}

#[test]
fn s09_an_answer_that_nobody_took_does_not_get_between_a_waiter_and_its_exit() {
    for turns in 1..8 {
        let transcript = console(async move |os| {
            let child = os.spawn("child", async move |os| passes(os, turns).await);
            let child = child.await?;
            os.spawn("careless", async |os| {
                for _ in 0..8 {
                    ignore_answer(os.tasks()).await;
                    os.get_tid().await;
                }
            })
            .await?;
            let exit = os.wait(child).await?;
            writeln!(os, "{exit}");
            Ok::<(), Errno>(())
        });
        assert_eq!(transcript, "done\n");
    }
}

// ---- S17

#[test]
fn s17_a_panic_in_a_destructor_while_being_killed_is_contained() {
    let diary = Diary::default();
    let notes = diary.clone();
    console(async move |os| {
        let theirs = notes.clone();
        let victim = os
            .spawn("victim", async move |os| {
                let _outer = theirs.on_drop("outer");
                let _bad = PanicOnDrop;
                let _inner = theirs.on_drop("inner");
                spin(os).await;
            })
            .await?;
        let unborn = PanicOnDrop;
        os.yield_now().await;
        assert!(os.kill(victim).await);
        assert_eq!(notes.lines(), ["inner", "outer"]);
        assert!(!os.kill(victim).await);
        assert_eq!(os.wait(victim).await, Ok(Exit::Killed));
        let before_its_turn = os
            .spawn_detached("bad", async move |_| drop(unborn))
            .await?;
        let killer = async move |os: &mut Os| assert!(!os.kill(before_its_turn).await);
        let killer = os.spawn("killer", killer).await?;
        assert_eq!(os.wait(killer).await, Ok(Exit::Done));
        Ok::<(), Errno>(())
    });
    assert_eq!(diary.lines(), ["inner", "outer"]);
}

#[test]
fn s17_a_panic_in_what_an_unborn_task_owned_is_contained() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("killer", async |os| assert!(os.kill(tid(2)).await))
        .unwrap();
    let owned = PanicOnDrop;
    let victim = async move |_: &mut Os| drop(owned);
    kernel.spawn("victim", victim).unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&tid(1)], Exit::Done);
    assert_eq!(report.exits()[&tid(2)], Exit::Killed);
}

#[test]
fn s17_a_panic_in_a_destructor_at_shutdown_or_when_the_kernel_is_dropped_is_contained() {
    let diary = Diary::default();
    for shutdown in [true, false] {
        let mut kernel = sim().max_ticks(1000).build().unwrap();
        for _ in 0..2 {
            let guard = diary.on_drop("dropped");
            kernel
                .spawn("bad", async move |os| {
                    let _guard = guard;
                    let _bad = PanicOnDrop;
                    spin(os).await;
                })
                .unwrap();
        }
        assert!(matches!(kernel.run(), Err(Error::Limit(..))));
        if shutdown {
            kernel.remote().shutdown();
            kernel.run().unwrap();
        }
    }
    assert_eq!(diary.lines(), ["dropped"; 4]);
}

// ---- S18

#[test]
fn s18_what_a_program_returns_is_how_its_task_ends() {
    let mut kernel = Kernel::simulated(0);
    kernel.spawn("unit", async |_| {}).unwrap();
    kernel.spawn("ok", async |_| Ok::<(), String>(())).unwrap();
    kernel.spawn("error", async |_| Err(Errno::Busy)).unwrap();
    kernel
        .spawn("boxed", async |_| {
            Err::<(), _>(Box::<dyn std::error::Error>::from("a boxed reason"))
        })
        .unwrap();
    kernel
        .spawn("never", async |os| {
            loop {
                let me = os.get_tid().await;
                os.kill(me).await;
            }
        })
        .unwrap();
    for exit in [
        Exit::Done,
        Exit::Killed,
        Exit::Failed("failed".into()),
        Exit::Faulted("faulted".into()),
    ] {
        kernel
            .spawn("exits", async |os| os.exit(exit).await)
            .unwrap();
    }
    let exits: Vec<_> = kernel.run().unwrap().exits().values().cloned().collect();
    let expected = [
        Exit::Done,
        Exit::Done,
        Exit::Failed("another task waits for this direction of the device".into()),
        Exit::Failed("a boxed reason".into()),
        Exit::Killed,
        Exit::Done,
        Exit::Killed,
        Exit::Failed("failed".into()),
        Exit::Faulted("faulted".into()),
    ];
    assert_eq!(exits, expected);
}

#[test]
fn s18_exit_runs_destructors_and_nothing_after_the_call() {
    async fn deep(os: &mut Os, diary: &Diary) {
        let _guard = diary.on_drop("inner");
        os.exit(Exit::Failed("enough".into())).await;
    }
    let diary = Diary::default();
    let notes = diary.clone();
    console(async move |os| {
        let theirs = notes.clone();
        let child = os
            .spawn("child", async move |os| {
                let _guard = theirs.on_drop("outer");
                deep(os, &theirs).await;
                theirs.note("after");
            })
            .await?;
        assert_eq!(os.wait(child).await, Ok(Exit::Failed("enough".into())));
        Ok::<(), Errno>(())
    });
    assert_eq!(diary.lines(), ["inner", "outer"]);
}

// ---- S19

#[test]
fn s19_at_the_limit_a_new_task_is_refused_and_what_it_owned_is_dropped() {
    let diary = Diary::default();
    let notes = diary.clone();
    let (mut kernel, log) = logged(sim().max_tasks(3));
    run_main(&mut kernel, async move |os: &mut Os| {
        let child = os.spawn("child", spin).await?;
        let other = os.spawn("child", spin).await?;
        let owned = notes.on_drop("dropped");
        let refused = os.spawn("refused", async move |_| drop(owned)).await;
        assert_eq!(refused, Err(Errno::TooManyTasks));
        assert_eq!(notes.lines(), ["dropped"]);
        let refused = os.spawn_detached("refused", async |_| {}).await;
        assert_eq!(refused, Err(Errno::TooManyTasks));
        // Only live tasks count: a zombie makes room.
        os.kill(child).await;
        let last = os.spawn("last", async |_| {}).await?;
        assert_eq!(last, tid(4));
        os.kill(other).await;
        Ok::<(), Errno>(())
    });
    assert!(!log.text().contains("spawned \"refused\""));
}

#[test]
fn s19_a_panic_in_what_a_refused_task_owned_is_contained() {
    let mut kernel = sim().max_tasks(1).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let owned = PanicOnDrop;
        let refused = os.spawn("refused", async move |_| drop(owned)).await;
        assert_eq!(refused, Err(Errno::TooManyTasks));
    });
}

#[test]
fn s19_the_host_is_refused_too() {
    let diary = Diary::default();
    let mut kernel = sim().max_tasks(2).build().unwrap();
    kernel.spawn("one", async |_| {}).unwrap();
    kernel.spawn("two", async |_| {}).unwrap();
    let owned = diary.on_drop("dropped");
    let refused = kernel.spawn("three", async move |_| drop(owned));
    assert_eq!(refused, Err(Errno::TooManyTasks));
    assert_eq!(diary.lines(), ["dropped"]);
    let report = kernel.run().unwrap();
    assert_eq!((report.exits().len(), report.peak_tasks), (2, 2));
    kernel.spawn("four", async |_| {}).unwrap();
}
