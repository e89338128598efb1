//! Limits of tasks: S77.

use std::{cell::RefCell, io::ErrorKind, rc::Rc, time::Duration};

use proptest::prelude::*;
use trapline::{
    Argument, Calls, Elapsed, Errno, Error, Event, Exit, Fact, Kernel, Ledger, Limits, Os, Queue,
    Reply, Scope, Source, SystemCall, Tid, Tracer, check,
    sync::{Group, Mutex, Semaphore},
};

use crate::support::{Diary, about, logged, run_main, sim, spin};

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn calls() -> impl Iterator<Item = SystemCall> {
    (0..=u8::MAX).filter_map(SystemCall::from_number)
}

/// Runs a program with these limits, and returns its exit.
fn limited(limits: Limits, program: impl AsyncFnOnce(&mut Os) + 'static) -> Exit {
    let mut kernel = Kernel::simulated(1);
    let task = kernel.spawn_with(limits, "limited", program).unwrap();
    let report = kernel.run().unwrap();
    kernel.audit_all();
    report.exits()[&task].clone()
}

fn faulted(exit: &Exit, text: &str) {
    assert!(
        matches!(exit, Exit::Faulted(why) if why.contains(text)),
        "{exit:?}"
    );
}

#[test]
fn s77_every_call_belongs_to_exactly_one_class_or_is_always_allowed() {
    for call in calls() {
        let of = Calls::CLASSES
            .iter()
            .filter(|(_, class)| class.contains(call));
        let free = ["get_tid", "yield", "exit", "select"].contains(&call.name());
        let expected = if free { Calls::CLASSES.len() } else { 1 };
        assert_eq!(of.count(), expected, "{}", call.name());
        assert_eq!(Calls::NONE.contains(call), free);
        assert!(Calls::ALL.contains(call));
        assert_eq!(Calls::named(call.name()).is_some(), !free);
    }
    let all = Calls::CLASSES
        .iter()
        .fold(Calls::NONE, |all, (_, class)| all | *class);
    assert_eq!(all.to_string(), "all calls");
}

/// Of a victim, a queue and a listener that a denied call must leave as they are.
async fn makes_the_call(os: &mut Os, call: SystemCall, diary: Diary) {
    let queue = Queue::bounded(os, 2).await;
    queue.put(os, 7).await.unwrap();
    let listener = os.listen(([127, 0, 0, 1], 80).into()).await.unwrap();
    let victim = os.spawn("victim", spin).await.unwrap();
    let argument = match call.argument() {
        Argument::Task(_) => Argument::Task(victim),
        Argument::Queue(_) => Argument::Queue(queue.id()),
        Argument::Device(_) => Argument::Device(listener.id()),
        other => other,
    };
    let call = call.with_argument(argument).unwrap();
    let rude = async move |os: &mut Os| {
        let reply = os.trap(call).await;
        diary.note(format!("{reply:?}"));
    };
    let limits = Limits::new().deny(Calls::named(call.name()));
    let rude = os.spawn_with(limits, "rude", rude).await.unwrap();
    let exit = os.wait(rude).await.unwrap();
    if call.can_be_denied() {
        assert_eq!(exit, Exit::Done, "{call:?}");
    } else {
        faulted(&exit, &format!("{} is denied", call.name()));
    }
    assert!(os.kill(victim).await, "{call:?}");
    os.wait(victim).await.unwrap();
    assert_eq!(queue.try_put(os, 8).await, Ok(()), "{call:?}");
    assert_eq!(queue.try_get(os).await, Ok(7), "{call:?}");
    assert!(os.listen(([127, 0, 0, 1], 80).into()).await.is_err());
    drop(listener);
}

#[test]
fn s77_every_call_is_denied_before_it_has_an_effect() {
    for call in calls().filter(|call| Calls::named(call.name()).is_some()) {
        let diary = Diary::default();
        let replies = diary.clone();
        let (mut kernel, log) = logged(sim());
        let main = async move |os: &mut Os| makes_the_call(os, call, replies).await;
        run_main(&mut kernel, main);
        kernel.audit_all();
        let replied = if call.can_be_denied() {
            vec!["Err(Denied)"]
        } else {
            vec![]
        };
        assert_eq!(diary.lines(), replied, "{call:?}");
        let rude = about(&log, 3);
        assert!(rude[1].starts_with("limited: all but "), "{rude:?}");
        assert!(rude[3].starts_with("trapped "), "{rude:?}");
        let answer = if call.can_be_denied() {
            "replied"
        } else {
            "exited faulted"
        };
        assert!(rude[4].starts_with(answer), "{rude:?}");
        assert!(rude[4].contains(if answer == "replied" {
            "not allow"
        } else {
            "denied"
        }));
    }
}

#[test]
fn s77_what_is_always_allowed() {
    let exit = limited(Limits::new().allow([]), async |os: &mut Os| {
        assert_eq!(os.get_tid().await, Tid::from(1));
        os.yield_now().await;
        os.exit(Exit::Failed("as I like".into())).await;
    });
    assert_eq!(exit, Exit::Failed("as I like".into()));
    let all = limited(Limits::new(), async |os: &mut Os| {
        let queue = Queue::bounded(os, 1).await;
        let drawn = os.random().await;
        queue.put(os, drawn).await.unwrap();
        os.sleep(millis(1)).await;
        os.spawn("child", spin).await.unwrap();
        os.shutdown().await;
    });
    assert_eq!(all, Exit::Killed);
}

#[test]
fn s77_a_denied_call_fails_as_it_can() {
    let exit = limited(Limits::new().allow([Calls::TIME]), async |os: &mut Os| {
        let diary = Diary::default();
        let dropped = diary.on_drop("dropped");
        let child = async move |_: &mut Os| drop(dropped);
        assert_eq!(os.spawn("child", child).await, Err(Errno::Denied));
        assert_eq!(diary.lines(), ["dropped"]);
        assert_eq!(os.spawn_daemon("child", spin).await, Err(Errno::Denied));
        assert_eq!(os.wait(Tid::from(9)).await, Err(Errno::Denied));
        let denied = ErrorKind::PermissionDenied;
        let addr = ([127, 0, 0, 1], 80).into();
        assert_eq!(os.listen(addr).await.unwrap_err().kind(), denied);
        assert_eq!(
            os.connect(("localhost", 80)).await.unwrap_err().kind(),
            denied
        );
        os.random().await;
        unreachable!("it cannot fail");
    });
    faulted(
        &exit,
        "random is denied: the limits of the task lack random, of Calls::WORLD",
    );
}

#[test]
fn s77_a_select_needs_the_calls_of_its_sources() {
    let selects = |allowed: Calls, source: fn() -> Source| {
        limited(Limits::new().allow([allowed]), async move |os: &mut Os| {
            assert_eq!(os.select(&[source()]).await, 0);
        })
    };
    let after = || Source::after(millis(1));
    let exit = || Source::exit(Tid::from(9));
    assert_eq!(selects(Calls::TIME, after), Exit::Done);
    assert_eq!(selects(Calls::TASKS, exit), Exit::Done);
    let text = "select is denied: the limits of the task lack sleep, of Calls::TIME";
    faulted(&selects(Calls::TASKS, after), text);
    let text = "select is denied: the limits of the task lack wait_task, of Calls::TASKS";
    faulted(&selects(Calls::TIME, exit), text);
}

fn traps(n: u64) -> Limits {
    Limits::new().max_traps(n)
}

#[test]
fn s77_a_trap_beyond_the_limit_faults_and_descendants_share_it() {
    let done = limited(traps(3), async |os: &mut Os| {
        for _ in 0..3 {
            os.get_tid().await;
        }
    });
    assert_eq!(done, Exit::Done);
    faulted(&limited(traps(3), spin), "the limit of 3 traps is used up");
    let shared = limited(traps(10), async |os: &mut Os| {
        let child = os.spawn_with(traps(100), "child", spin).await.unwrap();
        let exit = os.wait(child).await.unwrap();
        faulted(&exit, "the limit of 10 traps");
        unreachable!("its own wait was within the limit");
    });
    assert!(matches!(shared, Exit::Faulted(why) if why.contains("unreachable")));
    let narrower = limited(traps(10), async |os: &mut Os| {
        let child = os.spawn_with(traps(2), "child", spin).await.unwrap();
        faulted(&os.wait(child).await.unwrap(), "the limit of 2 traps");
    });
    assert_eq!(narrower, Exit::Done);
}

#[test]
fn s77_tasks_alive_at_once_are_limited_and_a_place_comes_back() {
    let exit = limited(Limits::new().max_tasks(3), async |os: &mut Os| {
        let nap = async |os: &mut Os| os.sleep(millis(1)).await;
        let one = os.spawn("one", nap).await.unwrap();
        let two = os
            .spawn_with(Limits::new().max_tasks(9), "two", nap)
            .await
            .unwrap();
        assert_eq!(os.spawn("three", nap).await, Err(Errno::TooManyTasks));
        assert_eq!(
            os.spawn_daemon("three", nap).await,
            Err(Errno::TooManyTasks)
        );
        os.kill(one).await;
        os.wait(two).await.unwrap();
        for _ in 0..2 {
            os.spawn("later", nap).await.unwrap();
        }
        assert_eq!(os.spawn("three", nap).await, Err(Errno::TooManyTasks));
    });
    assert_eq!(exit, Exit::Done);
    let mut kernel = Kernel::simulated(1);
    let none = kernel.spawn_with(Limits::new().max_tasks(0), "none", spin);
    assert_eq!(none, Err(Errno::TooManyTasks));
    kernel.run().unwrap();
}

#[test]
fn s77_messages_are_charged_until_they_are_taken_or_dropped() {
    let limits = Limits::new().max_memory_of_queues(24);
    let exit = limited(limits, async |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        for round in 0..5_u64 {
            for n in 0..3 {
                queue.put(os, n + round).await.unwrap();
            }
            for n in 0..3 {
                assert_eq!(queue.get(os).await, Ok(n + round));
            }
        }
        let other = Queue::unbounded(os).await;
        for n in 0..3_u64 {
            other.put(os, n).await.unwrap();
        }
        drop(other);
        os.yield_now().await;
        for n in 0..3 {
            queue.put(os, n).await.unwrap();
        }
        queue.close(os).await;
        // It is charged when it is put, and comes back with the refused message.
        assert_eq!(queue.get(os).await, Ok(0));
        assert!(queue.put(os, 9).await.is_err());
        let units = Queue::unbounded(os).await;
        for _ in 0..1000 {
            units.put(os, ()).await.unwrap();
        }
        units.close(os).await;
        let last = Queue::unbounded(os).await;
        last.put(os, 1_u8).await.unwrap();
        last.put(os, 2).await.unwrap();
        let whole = Queue::unbounded(os).await;
        whole.try_put(os, [0_u8; 7]).await.unwrap();
    });
    faulted(&exit, "a put exceeds the limit of 24 bytes in queues");
}

#[test]
fn s77_a_message_of_a_task_with_limits_keeps_its_place() {
    run_main(&mut sim().build().unwrap(), async |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        queue.put(os, 1).await.unwrap();
        let theirs = queue.clone();
        let limited = async move |os: &mut Os| theirs.put(os, 2).await.unwrap();
        let limits = Limits::new().max_memory_of_queues(4);
        let limited = os.spawn_with(limits, "limited", limited).await.unwrap();
        os.wait(limited).await.unwrap();
        queue.put(os, 3).await.unwrap();
        for n in [1, 2, 3] {
            assert_eq!(queue.get(os).await, Ok(n));
        }
    });
}

#[test]
fn s77_what_destructors_do_is_never_denied() {
    run_main(&mut sim().build().unwrap(), async |os: &mut Os| {
        let permits = Semaphore::new(os, 1).await;
        let (lock, queue) = (Mutex::new(os, 0).await, Queue::<u64>::bounded(os, 1).await);
        let permit = permits.acquire(os).await;
        let guard = lock.lock(os).await.unwrap();
        let mut group = Group::new(os).await;
        group.spawn(os, "member", spin).await.unwrap();
        let setter = trapline::Promise::<u8>::new(os).await;
        let theirs = queue.clone();
        let holder = async move |os: &mut Os| {
            let (setter, promise) = setter;
            let _all = (permit, guard, group, setter, theirs);
            os.yield_now().await;
            drop(_all);
            let _promise = promise;
            os.yield_now().await;
        };
        let limits = Limits::new().allow([]).max_traps(2).max_memory_of_queues(0);
        let holder = os.spawn_with(limits, "holder", holder).await.unwrap();
        assert_eq!(os.wait(holder).await, Ok(Exit::Done));
        drop(permits.acquire(os).await);
        drop(lock.lock(os).await);
        assert_eq!(os.tasks().await.len(), 1);
    });
}

#[test]
fn s77_calls_without_a_trap_that_no_destructor_makes_are_denied() {
    let seen = Diary::default();
    let theirs = seen.clone();
    let exit = limited(
        Limits::new().allow([Calls::TIME]),
        async move |os: &mut Os| {
            let _observer = os.observe(move |event: &Event<'_>| theirs.note(event.to_string()));
            os.now().await;
            unreachable!("it is denied at its next trap");
        },
    );
    faulted(&exit, "observe is denied");
    assert!(seen.lines().is_empty());
}

#[test]
fn s77_a_denied_fault_of_the_network_has_no_effect() {
    let deny = || Limits::new().deny([Calls::ADMIN]);
    let mut kernel = Kernel::simulated(1);
    let net = kernel.net();
    net.host("a").unwrap();
    net.host("b").unwrap();
    struct AtItsEnd(trapline::SimNet);
    impl Drop for AtItsEnd {
        fn drop(&mut self) {
            self.0.crash("a").unwrap();
        }
    }
    let own = net.clone();
    let crashes = async move |os: &mut Os| {
        own.crash("a").unwrap();
        own.clock_back(millis(1000));
        own.chaos(3);
        own.crash("a").expect("it did not crash");
        os.now().await;
        unreachable!("it is denied at its next trap");
    };
    let crashes = kernel.spawn_with(deny(), "crashes", crashes).unwrap();
    // A task that returns makes no further trap; one that is killed has its destructors.
    let own = net.clone();
    let returns = async move |_: &mut Os| own.crash("b").unwrap();
    let returns = kernel.spawn_with(deny(), "returns", returns).unwrap();
    let last = AtItsEnd(net.clone());
    let killed = async move |os: &mut Os| {
        let _last = last;
        os.sleep(millis(1_000_000)).await;
    };
    let killed = kernel.spawn_with(deny(), "killed", killed).unwrap();
    let free = async move |os: &mut Os| {
        os.sleep(millis(1)).await;
        os.kill(killed).await;
        let time = os.wall_clock().await;
        os.sleep(millis(100_000)).await;
        net.crash("a").expect("it was up all the time");
        net.crash("b").expect("it was up all the time");
        assert_eq!(os.wall_clock().await, time + millis(100_000));
    };
    let free = kernel.spawn("free", free).unwrap();
    let report = kernel.run().unwrap();
    faulted(&report.exits()[&crashes], "fault is denied");
    faulted(&report.exits()[&returns], "fault is denied");
    assert_eq!(report.exits()[&killed], Exit::Killed);
    assert_eq!(report.exits()[&free], Exit::Done);
}

#[test]
fn s77_a_denied_call_says_which_and_of_what_class() {
    let exit = limited(Limits::new().allow([]), async |os: &mut Os| {
        let error = os.listen(([127, 0, 0, 1], 80).into()).await.unwrap_err();
        let why = "listen is denied: the limits of the task lack listen, of Calls::NETWORK";
        let text = error.to_string();
        assert_eq!(text, format!("cannot listen on 127.0.0.1:80: {why}"));
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
    assert_eq!(exit, Exit::Done);
}

#[test]
fn s77_a_run_with_limits_runs_again_from_its_tape() {
    use trapline::{
        RealWorld,
        tape::{Header, Playing, Taping},
    };
    let populate = |kernel: &mut Kernel| {
        let limits = Limits::new().deny([Calls::NETWORK]).max_traps(20);
        let program = async |os: &mut Os| {
            let addr = ([127, 0, 0, 1], 0).into();
            let kind = os.listen(addr).await.unwrap_err().kind();
            writeln!(os, "{kind}");
            loop {
                let (now, drawn) = (os.now().await, os.random().await);
                writeln!(os, "{now:?} {drawn}");
            }
        };
        kernel.spawn_with(limits, "limited", program).unwrap()
    };
    let file = crate::support::Scratch::new("tape-limits");
    let world = RealWorld::new().unwrap();
    let world = Taping::create(world, &file.0, &Header::default(), None).unwrap();
    let run = |mut kernel: Kernel| {
        let task = populate(&mut kernel);
        let exit = kernel.run().unwrap().exits()[&task].clone();
        (exit, kernel.take_console())
    };
    let told = run(Kernel::builder()
        .world(world)
        .capture_console()
        .build()
        .unwrap());
    faulted(&told.0, "the limit of 20 traps is used up");
    let world = Playing::open(&file.0).unwrap();
    let progress = world.progress();
    let again = run(Kernel::builder()
        .world(world)
        .capture_console()
        .build()
        .unwrap());
    assert_eq!(again, told);
    progress.finish().unwrap();
}

#[test]
fn s77_the_log_and_lists_show_limits() {
    let (told, ledger) = (Rc::default(), Rc::new(RefCell::new(Ledger::new())));
    let (lines, books): (Rc<RefCell<Vec<_>>>, _) = (Rc::clone(&told), Rc::clone(&ledger));
    let tracer = move |event: &Event<'_>| {
        books.borrow_mut().event(event);
        if let Fact::Limited { limits } = &event.fact {
            lines.borrow_mut().push((event.tid, limits.to_string()));
        }
    };
    let mut kernel = sim().tracer(tracer).build().unwrap();
    run_main(&mut kernel, async move |os: &mut Os| {
        let limits = Limits::new()
            .allow([Calls::TIME, Calls::TASKS])
            .max_tasks(2);
        let outer = async |os: &mut Os| {
            os.spawn_daemon("inner", async |os: &mut Os| os.sleep(millis(2)).await)
                .await
                .unwrap();
            os.sleep(millis(2)).await;
        };
        os.spawn_with(limits, "outer", outer).await.unwrap();
        os.sleep(millis(1)).await;
        let tasks = os.tasks().await;
        // What a log says of them is the same.
        for (task, noted) in tasks.iter().zip(ledger.borrow().tasks()) {
            assert_eq!(
                (&task.limits, task.is_daemon),
                (&noted.limits, noted.is_daemon)
            );
        }
        let limits = tasks.into_iter().map(|task| task.limits);
        let words = "tasks, time; at most 2 tasks".to_string();
        assert_eq!(
            Vec::from_iter(limits),
            [None, Some(words.clone()), Some(words)]
        );
    });
    assert_eq!(
        *told.borrow(),
        [(Tid::from(2), "tasks, time; at most 2 tasks".to_string())]
    );
}

/// Two tasks share a budget of each kind; something ends one of them at any step.
#[test]
fn s77_no_byte_and_no_place_of_a_task_leaks_whatever_ends_it() {
    for enemy in ["kill", "timeout", "cancel", "none"] {
        let explored = check(move |kernel: &mut Kernel| {
            kernel.spawn("main", async move |os: &mut Os| {
                let queue = Queue::<u64>::bounded(os, 1).await;
                let (theirs, scope) = (queue.clone(), Scope::new());
                let cut = scope.clone();
                let limits = Limits::new().max_tasks(2).max_memory_of_queues(16);
                let outer = async move |os: &mut Os| {
                    let (mine, other) = (theirs.clone(), theirs);
                    let putter = async move |os: &mut Os| {
                        let body = async |os: &mut Os| {
                            let _ = mine.put(os, 1).await;
                            let _ = mine.put(os, 2).await;
                        };
                        if enemy == "timeout" {
                            let _: Result<(), Elapsed> = os.timeout(millis(1), body).await;
                        } else {
                            let _ = cut.run(os, body).await;
                        }
                    };
                    let putter = os.spawn("putter", putter).await.unwrap();
                    match enemy {
                        "kill" => drop(os.kill(putter).await),
                        "cancel" => scope.cancel(os).await,
                        "timeout" => os.sleep(millis(2)).await,
                        _ => {}
                    }
                    other.try_get(os).await.unwrap_or_default();
                    other.try_get(os).await.unwrap_or_default();
                    os.kill(putter).await;
                    drop(os.wait(putter).await);
                    while other.try_get(os).await.is_ok() {}
                    // All of it is there again.
                    let whole = Queue::unbounded(os).await;
                    whole.put(os, [1_u64, 2]).await.unwrap();
                    let again = os.spawn("again", async |_: &mut Os| ()).await;
                    again.expect("its place came back");
                };
                let outer = os.spawn_with(limits, "outer", outer).await.unwrap();
                assert_eq!(os.wait(outer).await, Ok(Exit::Done));
            })?;
            let report = kernel.run()?;
            kernel.audit_all();
            report.check()
        });
        let explored = explored.exhaustive().explore();
        assert_eq!(explored.failure, None, "{enemy}");
        assert!(explored.complete);
    }
}

#[test]
fn s77_a_search_knows_that_tasks_compete_for_a_budget() {
    let body = |kernel: &mut Kernel| {
        let diary = Diary::default();
        let theirs = diary.clone();
        let main = async move |os: &mut Os| {
            for name in ["a", "b"] {
                let notes = theirs.clone();
                let spawns = async move |os: &mut Os| {
                    let child = os.spawn_detached("child", async |_: &mut Os| ()).await;
                    notes.note(format!("{name}: {}", child.is_ok()));
                };
                let spawned = os.spawn_detached(name, spawns).await;
                theirs.note(format!("{name} is there: {}", spawned.is_ok()));
            }
        };
        kernel.spawn_with(Limits::new().max_tasks(3), "main", main)?;
        kernel.run()?;
        kernel.outcome(diary.text());
        Ok::<(), Error>(())
    };
    let explored = check(body).exhaustive().explore();
    let all = check(body).preemptions(usize::MAX).explore();
    assert_eq!((&explored.failure, &all.failure), (&None, &None));
    assert!(explored.complete && all.complete);
    assert_eq!(explored.outcomes, all.outcomes);
    assert!(explored.outcomes.len() > 2, "{:?}", explored.outcomes);
}

#[test]
fn s77_a_trap_that_is_delayed_or_held_back_counts_once() {
    let delays = |_, call, _| match call {
        SystemCall::GetTid | SystemCall::TryPut(_) => Some(trapline::Inject::Delay(millis(1))),
        _ => None,
    };
    let mut kernel = sim().inject(delays).build().unwrap();
    let limits = Limits::new().max_traps(4).max_memory_of_queues(8);
    let task = kernel.spawn_with(limits, "limited", async |os: &mut Os| {
        os.get_tid().await;
        let queue = Queue::unbounded(os).await;
        queue.try_put(os, 1_u64).await.unwrap();
        writeln!(os, "{}", "x".repeat(200_000));
        os.yield_now().await;
    });
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&task.unwrap()], Exit::Done);
}

#[test]
fn s77_a_kernel_that_is_as_new_has_no_limits_left() {
    let mut kernel = Kernel::simulated(1);
    let limits = Limits::new().allow([]);
    for seed in 0..3 {
        kernel.reset(seed).unwrap();
        let now = async |os: &mut Os| {
            os.now().await;
        };
        let free = kernel.spawn("free", now).unwrap();
        let bound = kernel.spawn_with(limits, "bound", now).unwrap();
        let report = kernel.run().unwrap();
        assert_eq!(report.exits()[&free], Exit::Done);
        faulted(&report.exits()[&bound], "now is denied");
    }
}

/// Tasks within each other's limits, each of which makes some calls.
async fn nested(os: &mut Os, mut levels: Vec<(u8, u64)>, allowed: u8, diary: Diary) {
    let probes: [(u8, SystemCall); 3] = [
        (1, SystemCall::Connected(trapline::DeviceId::NONE)),
        (2, SystemCall::Close(trapline::DeviceId::NONE)),
        (4, SystemCall::Attach),
    ];
    for (bit, call) in probes {
        let is_denied = os.trap(call).await == Reply::Err(Errno::Denied);
        diary.note(format!("{bit}:{}", is_denied == (allowed & bit == 0)));
    }
    let Some((mask, traps)) = levels.pop() else {
        return;
    };
    let mut limits = Limits::new().max_traps(traps).allow([Calls::TASKS]);
    for (bit, call) in probes {
        if mask & bit != 0 {
            limits = limits.allow(Calls::named(call.name()));
        }
    }
    let inner = async move |os: &mut Os| {
        Box::pin(nested(os, levels, allowed & mask, diary)).await;
    };
    os.spawn_with(limits, "inner", inner).await.unwrap();
}

proptest! {
    #[test]
    fn s77_limits_within_limits_only_narrow(levels in prop::collection::vec((0..8_u8, 0..40_u64), 0..6)) {
        // The model: the innermost task that makes a trap pays for all around it.
        let depth = levels.len();
        let mut left: Vec<u64> = levels.iter().rev().map(|(_, traps)| *traps).collect();
        let (mut probes, mut ended) = (0, None);
        'tasks: for level in 0..=depth {
            for trap in 0..if level == depth { 3 } else { 4 } {
                if left[..level].contains(&0) {
                    ended = Some(level);
                    break 'tasks;
                }
                left[..level].iter_mut().for_each(|left| *left -= 1);
                probes += usize::from(trap < 3);
            }
        }
        let diary = Diary::default();
        let theirs = diary.clone();
        let mut kernel = Kernel::simulated(1);
        let main = async move |os: &mut Os| nested(os, levels, 7, theirs).await;
        kernel.spawn("main", main).unwrap();
        let report = kernel.run().unwrap();
        kernel.audit_all();
        prop_assert!(diary.lines().iter().all(|line| line.ends_with("true")));
        prop_assert_eq!(diary.lines().len(), probes);
        prop_assert_eq!(report.failures > 0, ended.is_some());
    }
}
