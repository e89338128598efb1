//! Work that costs time: processors, computations, slices, preemption.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use trapline::{
    Builder, Cause, Elapsed, Errno, Error, Event, Exit, Fact, Facts, Inject, Kernel, Limit, Nanos,
    Os, Policy, Runnable, SimWorld, Step, SystemCall, Tid,
    sched::{Priority, RoundRobin, Sjf, Stcf},
};

use crate::support::*;

const S: Duration = Duration::from_secs(1);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Not `sim()`: a mode of the tests replaces its policy.
fn plain() -> Builder {
    unscripted()
}

/// Spawns a task that computes and then says when it is over.
fn computes(kernel: &mut Kernel, name: &'static str, span: Duration) -> Tid {
    let program = async move |os: &mut Os| {
        os.compute(span).await;
        let now = os.now().await;
        write!(os, "{name} {now:?}, ");
    };
    kernel.spawn(name, program).unwrap()
}

/// Who computed on which processor, and when: `a on 0 at 2s`, `a off at 3s`.
fn logged_processors(builder: Builder) -> (Kernel, Diary) {
    let diary = Diary::default();
    let lines = diary.clone();
    let names = RefCell::new(std::collections::BTreeMap::new());
    let tracer = move |event: &Event<'_>| {
        let at = event.at;
        match &event.fact {
            Fact::Spawned { name, .. } => {
                drop(names.borrow_mut().insert(event.tid, name.to_string()));
            }
            Fact::Computing { processor } => {
                lines.note(format!(
                    "{} on {processor} at {at:?}",
                    names.borrow()[&event.tid]
                ));
            }
            Fact::Preempted { left } => {
                lines.note(format!(
                    "{} off at {at:?}, {left:?} left",
                    names.borrow()[&event.tid]
                ));
            }
            _ => {}
        }
    };
    (builder.tracer(tracer).build().unwrap(), diary)
}

#[test]
fn s60_ready_tasks_wait_while_every_processor_computes() {
    let mut kernel = plain().build().unwrap();
    kernel
        .spawn("first", async |os: &mut Os| {
            os.compute(2 * S).await;
        })
        .unwrap();
    kernel
        .spawn("second", async |os: &mut Os| {
            let now = os.now().await;
            write!(os, "a turn at {now:?}");
        })
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "a turn at 2s");
}

#[test]
fn s23_a_computation_for_ever_ends_at_the_limit_of_time() {
    let builders = [
        plain(),
        plain().policy(RoundRobin::new(S)),
        plain().policy(Sjf::default()),
        plain().policy(Stcf::default()),
    ];
    for builder in builders {
        let mut kernel = builder.max_time(seconds(5)).build().unwrap();
        computes(&mut kernel, "long", Duration::MAX);
        let error = kernel.run().expect_err("it has a limit");
        assert!(matches!(error, Error::Limit(Limit::Time(_), _)), "{error}");
    }
}

#[test]
fn s60_several_processors_compute_at_once() {
    let (mut kernel, log) = logged_processors(plain().processors(2));
    for (name, span) in [("a", 3), ("b", 1), ("c", 1), ("d", 2)] {
        computes(&mut kernel, name, seconds(span));
    }
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "b 1s, c 2s, a 3s, d 4s, ");
    assert_eq!(
        log.text(),
        "a on 0 at 0ns, b on 1 at 0ns, c on 1 at 1s, d on 1 at 2s"
    );
}

#[test]
fn s60_a_policy_may_prefer_another_once_it_knows_the_length() {
    let mut kernel = plain().policy(Stcf::default()).build().unwrap();
    for (name, span) in [("long", 3), ("short", 1), ("middle", 2)] {
        computes(&mut kernel, name, seconds(span));
    }
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "short 1s, middle 3s, long 6s, ");
}

#[test]
fn s61_a_computation_of_zero_is_a_yield() {
    let yields = |zero: bool| {
        let (mut kernel, log) = logged(plain());
        for name in ["a", "b"] {
            kernel
                .spawn(name, async move |os: &mut Os| {
                    for _ in 0..3 {
                        write!(os, "{name}");
                        if zero {
                            os.compute(Duration::ZERO).await;
                        } else {
                            os.yield_now().await;
                        }
                    }
                })
                .unwrap();
        }
        kernel.run().unwrap();
        let log: Vec<_> = log
            .lines()
            .iter()
            .map(|line| line.replace("compute(0ns)", "yield()"))
            .collect();
        (kernel.take_console(), log)
    };
    assert_eq!(yields(true), yields(false));
    assert_eq!(yields(true).0, "ababab");
}

#[test]
fn s61_a_computation_ends_when_its_task_has_had_its_span() {
    let quantum = Duration::from_millis(300);
    let mut kernel = plain().policy(RoundRobin::new(quantum)).build().unwrap();
    computes(&mut kernel, "a", S);
    computes(&mut kernel, "b", 2 * S);
    kernel.run().unwrap();
    // a: 0.3, 0.6-0.9, 1.2-1.5, 1.8-1.9.
    assert_eq!(kernel.take_console(), "a 1.9s, b 3s, ");
}

#[test]
fn s61_the_task_goes_on_to_its_next_call_without_the_policy() {
    let pushes = Rc::new(RefCell::new(Vec::new()));
    let policy = Noting {
        pushes: Rc::clone(&pushes),
        ..Noting::default()
    };
    let mut kernel = plain().policy(policy).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        os.compute(S).await;
        // Its destructor prints before the next call.
        write!(os, "still on");
        os.sleep(S).await;
    });
    let pushes = pushes.borrow();
    let at: Vec<_> = pushes
        .iter()
        .map(|(cause, facts)| (*cause, facts.1, facts.2))
        .collect();
    let none = Nanos::ZERO;
    assert_eq!(
        at,
        [
            (Cause::Spawned, none, false),
            (Cause::Preempted, Nanos::from(S), true),
            (Cause::Woken, none, false)
        ]
    );
}

#[test]
fn s62_a_slice_that_ends_returns_the_task_to_the_policy() {
    let (mut kernel, log) = logged_processors(plain().policy(RoundRobin::new(S)));
    computes(&mut kernel, "a", 2 * S);
    computes(&mut kernel, "b", 2 * S);
    kernel.run().unwrap();
    assert_eq!(
        log.text(),
        "a on 0 at 0ns, a off at 1s, 1s left, b on 0 at 1s, b off at 2s, 1s left, \
         a on 0 at 2s, b on 0 at 3s"
    );
}

#[test]
fn s62_a_task_alone_goes_on_without_a_switch() {
    let (mut kernel, log) = logged_processors(plain().policy(RoundRobin::new(S)));
    computes(&mut kernel, "alone", 5 * S);
    kernel.run().unwrap();
    assert_eq!(log.text(), "alone on 0 at 0ns");
    assert_eq!(kernel.take_console(), "alone 5s, ");
}

#[test]
fn s62_at_one_instant_slices_end_before_wakes() {
    let mut kernel = plain().policy(RoundRobin::new(S)).build().unwrap();
    kernel
        .spawn("waker", async |os: &mut Os| {
            os.spawn_later("c", S, async |os: &mut Os| {
                os.compute(S).await;
                let now = os.now().await;
                write!(os, "c {now:?}, ");
            })
            .await
            .map(drop)
        })
        .unwrap();
    computes(&mut kernel, "a", 2 * S);
    computes(&mut kernel, "b", 2 * S);
    kernel.run().unwrap();
    // At 1 s a goes behind b, and c behind a.
    assert_eq!(kernel.take_console(), "a 3s, c 4s, b 5s, ");
}

#[test]
fn s62_a_preempted_task_keeps_its_place_and_the_rest_of_its_slice() {
    let builder = plain().policy(Priority::new(4 * S));
    let (mut kernel, log) = logged_processors(builder);
    kernel
        .spawn("main", async |os: &mut Os| {
            os.set_priority(1).await;
            os.spawn_later("urgent", S, async |os: &mut Os| os.compute(2 * S).await)
                .await
                .map(drop)
        })
        .unwrap();
    computes(&mut kernel, "a", 6 * S);
    computes(&mut kernel, "b", 6 * S);
    kernel.run().unwrap();
    assert_eq!(
        log.text(),
        "a on 0 at 0ns, a off at 1s, 5s left, urgent on 0 at 1s, a on 0 at 3s, \
         a off at 6s, 2s left, b on 0 at 6s, b off at 10s, 2s left, a on 0 at 10s, b on 0 at 12s"
    );
}

#[test]
fn s63_a_policy_is_asked_at_once_whether_a_ready_task_preempts() {
    let (mut kernel, log) = logged_processors(plain().policy(Stcf::default()));
    computes(&mut kernel, "long", 10 * S);
    kernel
        .spawn("main", async |os: &mut Os| {
            os.spawn_later("short", S, async |os: &mut Os| os.compute(S).await)
                .await?;
            // It has more to do than is left.
            os.spawn_later("longer", 3 * S, async |os: &mut Os| os.compute(9 * S).await)
                .await
                .map(drop)
        })
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(
        log.text(),
        "long on 0 at 0ns, long off at 1s, 9s left, short on 0 at 1s, long on 0 at 2s, \
         longer on 0 at 11s"
    );
    assert_eq!(kernel.take_console(), "long 11s, ");
}

#[test]
fn s63_the_least_urgent_computation_gives_way() {
    let (mut kernel, log) = logged_processors(plain().processors(3).policy(Priority::new(100 * S)));
    kernel
        .spawn("main", async |os: &mut Os| {
            for (name, priority, arrival) in
                [("p3", 3, 0), ("p1", 1, 0), ("p2", 2, 0), ("p4", 4, 1)]
            {
                os.set_priority(priority).await;
                let arrival = seconds(arrival);
                os.spawn_later(name, arrival, async |os: &mut Os| os.compute(5 * S).await)
                    .await?;
            }
            Ok::<(), Errno>(())
        })
        .unwrap();
    kernel.run().unwrap();
    let lines = log.lines();
    let p1: Vec<_> = lines.iter().filter(|line| line.starts_with("p1")).collect();
    assert_eq!(
        p1,
        ["p1 on 2 at 0ns", "p1 off at 1s, 4s left", "p1 on 0 at 5s"]
    );
    assert_eq!(lines.iter().filter(|line| line.contains("off")).count(), 1);
}

#[test]
fn s64_a_kill_cuts_a_computation() {
    let mut kernel = plain().processors(2).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let victim = os
            .spawn("victim", async |os: &mut Os| os.compute(10 * S).await)
            .await?;
        os.compute(S).await;
        assert!(os.kill(victim).await);
        assert_eq!(os.wait(victim).await?, Exit::Killed);
        assert_eq!(os.now().await, S);
        Ok::<(), Errno>(())
    });
    assert_eq!(kernel.now(), S);
}

#[test]
fn s64_a_timeout_cuts_a_computation_at_its_instant() {
    let mut kernel = plain().build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        os.spawn_later("other", S, async |os: &mut Os| os.compute(4 * S).await)
            .await?;
        let cut = os.timeout(2 * S, async |os| os.compute(10 * S).await).await;
        assert_eq!(cut, Err(Elapsed));
        // The answer of a call at that instant, before the other task computes.
        assert_eq!(os.now().await, 2 * S);
        assert_eq!(os.now().await, 6 * S);
        Ok::<(), Errno>(())
    });
    assert_eq!(kernel.now(), 6 * S);
}

#[test]
fn s64_a_timeout_cuts_a_computation_that_waits_for_a_processor() {
    let mut kernel = plain().policy(Sjf::default()).build().unwrap();
    computes(&mut kernel, "short", 5 * S);
    let hasty = async |os: &mut Os| {
        let cut = os.timeout(2 * S, async |os| os.compute(10 * S).await).await;
        write!(os, "{cut:?}");
    };
    kernel.spawn("hasty", hasty).unwrap();
    assert_eq!(kernel.run().unwrap().elapsed, 5 * S);
    assert_eq!(kernel.take_console(), "short 5s, Err(Elapsed)");
}

#[test]
fn s64_a_shutdown_cuts_all_computations() {
    let mut kernel = plain().processors(3).build().unwrap();
    for name in ["a", "b"] {
        computes(&mut kernel, name, 10 * S);
    }
    kernel
        .spawn("end", async |os: &mut Os| {
            os.compute(S).await;
            os.shutdown().await
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().elapsed, S);
    assert_eq!(kernel.take_console(), "");
}

#[test]
fn s65_timers_fire_while_processors_are_busy() {
    let mut kernel = plain().build().unwrap();
    let (waker, log) = (Diary::default(), Diary::default());
    let noted = waker.clone();
    kernel.spawn_daemon("watch", async move |os: &mut Os| {
        for _ in 0..3 {
            os.sleep(S).await;
            noted.note(format!("{:?}", os.now().await));
        }
    });
    let ready = log.clone();
    kernel
        .spawn("sleeper", async move |os: &mut Os| {
            os.sleep(2 * S).await;
            ready.note(format!("a turn at {:?}", os.now().await));
        })
        .unwrap();
    computes(&mut kernel, "busy", 5 * S);
    kernel.run().unwrap();
    assert_eq!(waker.text(), "1s, 2s, 3s");
    assert_eq!(log.text(), "a turn at 5s");
}

#[test]
fn s65_a_daemon_computes_without_a_processor() {
    let mut kernel = plain().build().unwrap();
    kernel.spawn_daemon("daemon", async |os: &mut Os| {
        os.compute(S).await;
        let now = os.now().await;
        write!(os, "daemon {now:?}, ");
    });
    computes(&mut kernel, "task", 3 * S);
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "daemon 1s, task 3s, ");
}

#[test]
fn s66_a_task_arrives_when_it_is_first_ready() {
    let (mut kernel, log) = logged(plain());
    kernel
        .spawn("main", async |os: &mut Os| {
            os.spawn_later("late", 2 * S, async |os: &mut Os| os.compute(S).await)
                .await?;
            os.compute(3 * S).await;
            Ok::<(), Errno>(())
        })
        .unwrap();
    kernel.run().unwrap();
    let lines: Vec<_> = log
        .lines()
        .into_iter()
        .filter(|line| line.contains(" 2 "))
        .collect();
    assert_eq!(
        lines,
        [
            "00:00.000000000 2 spawned \"late\" by 1",
            "00:00.000000000 2 blocked on the timer at 00:02.000",
            "00:02.000000000 2 woken by its timer",
            "00:02.000000000 2 replied ok",
            "00:03.000000000 2 resumed",
            "00:03.000000000 2 trapped compute(1s)",
            "00:03.000000000 2 computing on processor 0",
            "00:04.000000000 2 replied ok",
            "00:04.000000000 2 resumed",
            "00:04.000000000 2 exited done",
            "00:04.000000000 2 reaped",
        ]
    );
}

#[test]
fn s23_a_computation_for_ever_is_reported_and_does_not_hang() {
    let mut kernel = plain().build().unwrap();
    computes(&mut kernel, "for ever", Duration::MAX);
    computes(&mut kernel, "behind it", S);
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
    let mut kernel = plain()
        .policy(RoundRobin::new(S))
        .max_time(10 * S)
        .build()
        .unwrap();
    computes(&mut kernel, "for ever", Duration::MAX);
    computes(&mut kernel, "beside it", S);
    assert!(matches!(kernel.run(), Err(Error::Limit(Limit::Time(_), _))));
    assert_eq!(kernel.take_console(), "beside it 2s, ");
}

#[test]
fn s48_a_run_continues_in_the_midst_of_a_computation() {
    let mut kernel = plain().max_time(S).build().unwrap();
    computes(&mut kernel, "long", 3 * S);
    computes(&mut kernel, "next", S);
    let mut limits = 0;
    while let Err(error) = kernel.run() {
        assert!(matches!(error, Error::Limit(Limit::Time(_), _)), "{error}");
        limits += 1;
    }
    assert_eq!(
        (limits, kernel.take_console().as_str()),
        (3, "long 3s, next 4s, ")
    );
}

#[test]
fn s48_steps_and_a_run_agree() {
    let run = |steps: bool| {
        let builder = plain().processors(2).policy(RoundRobin::new(S));
        let (mut kernel, log) = logged(builder);
        for (name, span) in [("a", 3), ("b", 2), ("c", 4)] {
            computes(&mut kernel, name, seconds(span));
        }
        if steps {
            let mut ticks = 0;
            loop {
                match kernel.step().unwrap() {
                    Step::Ran(_) => {
                        ticks += 1;
                        assert_eq!(kernel.report().ticks, ticks);
                    }
                    Step::Idle => {}
                    Step::Finished => break,
                }
            }
        } else {
            kernel.run().unwrap();
        }
        log.lines()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn s57_a_due_timeout_cuts_a_computation_before_it_starts() {
    for zero in [true, false] {
        let mut kernel = plain().build().unwrap();
        run_main(&mut kernel, async move |os: &mut Os| {
            let span = if zero { Duration::ZERO } else { S };
            let cut = os.timeout(Duration::ZERO, async |os| os.compute(span).await);
            assert_eq!(cut.await, Err(Elapsed));
        });
        assert_eq!(kernel.now(), Duration::ZERO);
    }
}

#[test]
fn a_search_knows_that_computations_take_the_processor() {
    let search = trapline::check(|kernel: &mut Kernel| -> Result<(), Error> {
        for name in ["a", "b", "c"] {
            kernel.spawn(name, async |os: &mut Os| {
                os.compute(S).await;
                os.yield_now().await;
            })?;
        }
        kernel.run()?.check()
    });
    let explored = search.without_environment().exhaustive().explore();
    assert!(
        explored.failure.is_none() && explored.complete,
        "{explored}"
    );
}

#[test]
fn a_computation_can_be_delayed_and_killed_by_an_injection() {
    let inject = |_, call, nth| match call {
        SystemCall::Compute(_) if nth == 1 => Some(Inject::Delay(S)),
        SystemCall::Compute(_) if nth == 2 => Some(Inject::Kill),
        _ => None,
    };
    let mut kernel = plain().inject(inject).build().unwrap();
    computes(&mut kernel, "delayed", 2 * S);
    let killed = computes(&mut kernel, "killed", 2 * S);
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&killed], Exit::Killed);
    assert_eq!(kernel.take_console(), "delayed 3s, ");
}

#[test]
fn the_real_world_spins_and_polls_in_between() {
    let span = Duration::from_millis(10);
    let mut kernel = Kernel::builder().processors(8).build().unwrap();
    let naps = Rc::new(Cell::new(0));
    let taken = Rc::clone(&naps);
    kernel.spawn_daemon("watch", async move |os: &mut Os| {
        loop {
            os.sleep(span / 5).await;
            taken.set(taken.get() + 1);
        }
    });
    kernel
        .spawn("busy", async move |os: &mut Os| {
            // A busy machine may take the processor away for as long as a computation.
            let mut polled = false;
            for _ in 0..50 {
                let begin = os.now().await;
                let before = naps.get();
                os.compute(span).await;
                // One nap may end with the computation.
                polled |= naps.get() > before + 1;
                assert!(os.now().await - begin >= span);
                if polled {
                    break;
                }
            }
            assert!(polled, "the daemon has slept through all computations");
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

/// What a policy is told at a push: the name, the length, and whether the task keeps its place.
type Told = (String, Nanos, bool);

/// First in, first out, with a note of what it is told.
#[derive(Default)]
struct Noting {
    ready: Vec<Runnable>,
    pushes: Rc<RefCell<Vec<(Cause, Told)>>>,
    panics: bool,
    slice: Option<Duration>,
}

impl Policy for Noting {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.push(task);
    }

    fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        let told = (facts.name.to_string(), facts.length, facts.keeps_place);
        self.pushes.borrow_mut().push((cause, told));
        self.push(facts.task, cause);
    }

    fn pop(&mut self) -> Option<Runnable> {
        (!self.ready.is_empty()).then(|| self.ready.remove(0))
    }

    fn remove(&mut self, task: Runnable) {
        self.ready.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.ready.len()
    }

    fn slice(&mut self, _: &Facts<'_>) -> Nanos {
        assert!(!self.panics, "no slice today");
        self.slice.map_or(Nanos::FOREVER, Nanos::from)
    }
}

#[test]
fn a_policy_that_fails_in_the_midst_of_computations_loses_no_task() {
    let policy = Noting {
        panics: true,
        ..Noting::default()
    };
    let mut kernel = plain().processors(2).policy(policy).build().unwrap();
    for name in ["a", "b", "c"] {
        computes(&mut kernel, name, S);
    }
    let error = kernel.run().unwrap_err().to_string();
    assert!(
        error.contains("panicked in `slice`: no slice today"),
        "{error}"
    );
    kernel.run().unwrap();
    kernel.audit_all();
    assert_eq!(kernel.take_console(), "a 1s, b 1s, c 2s, ");
}

#[test]
fn a_slice_of_zero_makes_progress() {
    let policy = Noting {
        slice: Some(Duration::ZERO),
        ..Noting::default()
    };
    let mut kernel = plain().policy(policy).build().unwrap();
    computes(&mut kernel, "a", Duration::from_nanos(100));
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "a 100ns, ");
}

#[test]
fn a_task_is_known_by_its_share_and_its_children_inherit_it() {
    /// Notes the tickets, the nice value and the priority at each push.
    struct Shares(Noting, Diary);

    impl Policy for Shares {
        fn push(&mut self, task: Runnable, cause: Cause) {
            self.0.push(task, cause);
        }

        fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
            let Facts {
                name,
                parent,
                tickets,
                nice,
                priority,
                ..
            } = facts;
            self.1
                .note(format!("{name}/{parent} {tickets} {nice} {priority}"));
            self.push(facts.task, cause);
        }

        fn pop(&mut self) -> Option<Runnable> {
            self.0.pop()
        }

        fn remove(&mut self, task: Runnable) {
            self.0.remove(task);
        }

        fn len(&self) -> usize {
            self.0.len()
        }
    }

    let diary = Diary::default();
    let policy = Shares(Noting::default(), diary.clone());
    let named = trapline::Share::priority(9);
    let mut kernel = plain()
        .policy(policy)
        .share("child", named)
        .build()
        .unwrap();
    let main = kernel
        .spawn("main", async |os: &mut Os| {
            os.set_nice(-99).await;
            os.set_tickets(0).await;
            os.spawn_detached("child", async |_| {}).await.map(drop)
        })
        .unwrap();
    kernel
        .set_share(main, trapline::Share::priority(7))
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(
        diary.text(),
        "main/0 100 0 0, main/0 100 -20 7, main/0 1 -20 7, main/0 1 -20 7, child/1 1 -20 9"
            .replace(
                "main/0 1 -20 7, child/1 1 -20 9",
                "child/1 1 -20 9, main/0 1 -20 7"
            )
    );
}

#[test]
fn a_kernel_that_begins_anew_has_free_processors_and_usual_shares() {
    let mut kernel = plain().policy(RoundRobin::new(S)).build().unwrap();
    let tid = computes(&mut kernel, "old", 10 * S);
    kernel.set_share(tid, trapline::Share::tickets(5)).unwrap();
    kernel.step().unwrap();
    kernel.reset(1).unwrap();
    computes(&mut kernel, "new", S);
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "new 1s, ");
}

#[test]
fn a_share_is_set_between_a_computation_and_the_turn_after_it() {
    for quantum in [1, 9] {
        let builder = plain().policy(Sjf::default()).quantum(quantum);
        let mut kernel = builder.build().unwrap();
        let tid = computes(&mut kernel, "a", S);
        computes(&mut kernel, "b", S);
        for _ in 0..12 {
            // An ended task has no share.
            let _ = kernel.set_share(tid, trapline::Share::priority(1));
            kernel.step().unwrap();
            kernel.audit_all();
        }
        kernel.run().unwrap();
        assert_eq!(kernel.take_console(), "a 1s, b 2s, ");
    }
}

#[test]
fn a_world_around_another_computes_too() {
    let mut kernel = Kernel::builder().world(SimWorld::new(3)).build().unwrap();
    computes(&mut kernel, "a", S);
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "a 1s, ");
}
