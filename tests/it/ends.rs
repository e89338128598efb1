//! S46 to S50: how a run ends, and how it goes on after that.

use std::{any::Any, cell::RefCell, io, rc::Rc, thread, time::Duration};

use trapline::{
    Closed, Deadlock, Errno, Error, Event, Exit, Kernel, Limit, Os, Queue, Report, SimWorld, Step,
    Tid, Tracer, sync::Semaphore,
};

use crate::{support::*, worlds::NoConsole};

const SECOND: Duration = Duration::from_secs(1);

fn deadlock(kernel: &mut Kernel) -> Deadlock {
    match kernel.run() {
        Err(Error::Deadlock(deadlock)) => deadlock,
        other => panic!("not a deadlock: {other:?}"),
    }
}

/// A task that waits, after `delay` seconds, for the task of that number.
fn spawn_waiter(kernel: &mut Kernel, name: &str, delay: u32, target: u64) {
    let program = async move |os: &mut Os| {
        os.sleep(delay * SECOND).await;
        os.wait(tid(target)).await.map(drop)
    };
    kernel.spawn(name, program).unwrap();
}

fn tids(numbers: &[u64]) -> Vec<Tid> {
    numbers.iter().copied().map(tid).collect()
}

// ---- S46

#[test]
fn s46_a_deadlock_names_each_blocked_task_and_every_cycle_and_tail() {
    let mut kernel = Kernel::simulated(0);
    for (name, delay, target) in [
        ("ring", 0, 2),      // 1 -> 2 -> 3 -> 1
        ("ring", 0, 3),      // 2
        ("ring", 2, 1),      // 3
        ("tail", 1, 2),      // 4
        ("long tail", 0, 4), // 5 -> 4 -> 2
        ("pair", 0, 7),      // 6 -> 7 -> 6
        ("pair", 4, 6),      // 7
        ("no cycle", 0, 9),  // 8 -> 9, which sleeps for ever
    ] {
        spawn_waiter(&mut kernel, name, delay, target);
    }
    kernel
        .spawn("sleeper", async |os| os.sleep(Duration::MAX).await)
        .unwrap();
    spawn_waiter(&mut kernel, "side tail", 0, 4); // 10 -> 4
    let deadlock = deadlock(&mut kernel);
    assert_eq!(deadlock.cycles, [tids(&[1, 2, 3]), tids(&[6, 7])]);
    assert_eq!(deadlock.tails, [tids(&[5, 4, 2]), tids(&[10, 4])]);
    assert_eq!(deadlock.blocked.len(), 10);
    let expected = r#"deadlock: no task is ready, and nothing can make one ready
  tid 1 "ring" waits for the end of task 2, since 00:00.000
  tid 2 "ring" waits for the end of task 3, since 00:00.000
  tid 3 "ring" waits for the end of task 1, since 00:02.000
  tid 4 "tail" waits for the end of task 2, since 00:01.000
  tid 5 "long tail" waits for the end of task 4, since 00:00.000
  tid 6 "pair" waits for the end of task 7, since 00:00.000
  tid 7 "pair" waits for the end of task 6, since 00:04.000
  tid 8 "no cycle" waits for the end of task 9, since 00:00.000
  tid 9 "sleeper" waits for nothing: it sleeps for ever, since 00:00.000
  tid 10 "side tail" waits for the end of task 4, since 00:00.000
  cycle: 1 -> 2 -> 3 -> 1
  cycle: 6 -> 7 -> 6
  waits on a cycle: 5 -> 4 -> 2
  waits on a cycle: 10 -> 4 (see above)"#;
    assert_eq!(unplaced(&deadlock.to_string()), expected);
    assert_eq!(unplaced(&Error::Deadlock(deadlock).to_string()), expected);
}

#[test]
fn s46_the_report_grows_no_faster_than_the_tasks() {
    const TASKS: u64 = 2_000;
    // A ring of two at the low end; all others wait for the one before, or for the one after.
    for rising in [true, false] {
        let mut kernel = Kernel::simulated(0);
        for task in 1..=TASKS {
            let target = match task {
                1 => 2,
                2 => 1,
                TASKS if rising => 1,
                _ if rising => task + 1,
                _ => task - 1,
            };
            spawn_waiter(&mut kernel, "t", 0, target);
        }
        let deadlock = deadlock(&mut kernel);
        assert_eq!(deadlock.cycles, [tids(&[1, 2])]);
        let (mut way, end): (Vec<_>, _) = ((3..=TASKS).collect(), if rising { 1 } else { 2 });
        if !rising {
            way.reverse();
        }
        way.push(end);
        assert_eq!(deadlock.tails, [tids(&way)]);
    }
}

#[test]
fn s46_many_that_wait_for_one_name_the_way_once() {
    const LONG: u64 = 1_000;
    let mut kernel = Kernel::simulated(0);
    // 1 and 2 are a ring, 3 to 1000 wait for the one before, and the others for the last of them.
    for task in 1..=2 * LONG {
        let target = if task == 1 { 2 } else { (task - 1).min(LONG) };
        spawn_waiter(&mut kernel, "t", 0, target);
    }
    let deadlock = deadlock(&mut kernel);
    let (first, rest) = deadlock.tails.split_first().expect("they wait on a cycle");
    assert_eq!((first[0], first.len() as u64), (tid(LONG + 1), LONG));
    let ways = (LONG + 2..=2 * LONG).map(|task| tids(&[task, LONG]));
    assert!(rest.iter().cloned().eq(ways));
}

#[test]
fn s46_zombies_are_not_in_the_report() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("parent", async |os| {
            os.spawn("zombie", async |_| {}).await?;
            os.sleep(Duration::MAX).await;
            Ok::<(), Errno>(())
        })
        .unwrap();
    let deadlock = deadlock(&mut kernel);
    assert_eq!(deadlock.blocked.len(), 1);
    assert_eq!(deadlock.blocked[0].tid, tid(1));
    assert!(deadlock.cycles.is_empty() && deadlock.tails.is_empty());
}

#[test]
fn s46_a_timer_or_a_device_is_hope() {
    let mut kernel = Kernel::simulated(0);
    spawn_waiter(&mut kernel, "ring", 0, 2);
    spawn_waiter(&mut kernel, "ring", 0, 1);
    kernel
        .spawn("saviour", async |os| {
            os.sleep(SECOND).await;
            os.kill(tid(1)).await;
        })
        .unwrap();
    let report = kernel.run().unwrap();
    let exits: Vec<_> = report.exits().values().cloned().collect();
    assert_eq!(exits, [Exit::Killed, Exit::Done, Exit::Done]);
}

/// A tracer that owns something.
struct Owner(#[expect(dead_code, reason = "for its destructor")] Box<dyn Any>);

impl Tracer for Owner {
    fn event(&mut self, _: &Event<'_>) {}
}

#[test]
fn s46_what_is_freed_behind_nested_owners_is_hope() {
    for depth in 1..4 {
        run_main(&mut Kernel::simulated(0), async move |os: &mut Os| {
            let semaphore = Semaphore::new(os, 1).await;
            let mut held: Box<dyn Any> = Box::new(semaphore.acquire(os).await?);
            for _ in 0..depth {
                held = Box::new(os.observe(Owner(held)));
            }
            os.yield_now().await;
            drop(held);
            semaphore.acquire(os).await.map(drop)
        });
    }
}

#[test]
fn s46_what_the_host_frees_between_runs_is_hope() {
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    let mut kernel = Kernel::simulated(0);
    run_main(&mut kernel, async move |os: &mut Os| {
        let semaphore = Semaphore::new(os, 1).await;
        let permit = Box::new(semaphore.acquire(os).await?);
        let inner = os.observe(Owner(permit));
        *keep.borrow_mut() = Some((semaphore, os.observe(Owner(Box::new(inner)))));
        Ok::<(), Closed>(())
    });
    let (semaphore, owner) = kept.take().unwrap();
    let waiter = async move |os: &mut Os| semaphore.acquire(os).await.map(drop);
    kernel.spawn("waiter", waiter).unwrap();
    deadlock(&mut kernel);
    drop(owner);
    assert!(kernel.run().is_ok());
}

#[test]
fn s46_the_real_world_does_not_hang_either() {
    let mut kernel = Kernel::real().unwrap();
    spawn_waiter(&mut kernel, "ring", 0, 2);
    spawn_waiter(&mut kernel, "ring", 0, 1);
    assert_eq!(deadlock(&mut kernel).cycles, [tids(&[1, 2])]);
}

#[test]
fn s46_step_reports_a_deadlock_too() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("sleeper", async |os| os.sleep(Duration::MAX).await)
        .unwrap();
    assert_eq!(kernel.step().unwrap(), Step::Ran(tid(1)));
    for _ in 0..2 {
        assert!(matches!(kernel.step(), Err(Error::Deadlock(_))));
    }
}

// ---- S47

#[test]
fn s47_a_kernel_without_tasks_ends_at_once() {
    for mut kernel in [Kernel::simulated(0), Kernel::real().unwrap()] {
        let report = kernel.run().unwrap();
        assert_eq!((report.ticks, report.traps, report.peak_tasks), (0, 0, 0));
        assert!(report.exits().is_empty());
        assert_eq!(kernel.step().unwrap(), Step::Finished);
    }
}

#[test]
fn s47_nothing_but_live_tasks_keeps_a_run_going() {
    let mut kernel = Kernel::real().unwrap();
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    let remote = kernel.remote();
    run_main(&mut kernel, async move |os: &mut Os| {
        // A device that is open and ready, a timer that was disarmed, a zombie, a line from outside.
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let device = os.attach(theirs).await?;
        let sleeper = os
            .spawn("sleeper", async |os| os.sleep(3600 * SECOND).await)
            .await?;
        os.yield_now().await;
        os.kill(sleeper).await;
        *keep.borrow_mut() = Some((device, ours));
        Ok::<(), io::Error>(())
    });
    assert!(kernel.now() < 60 * SECOND);
    drop((kept, remote));
}

// ---- S48

#[test]
fn s48_run_after_run() {
    let mut kernel = Kernel::simulated(0);
    for round in 1..4 {
        kernel
            .spawn("sleeper", async |os| os.sleep(SECOND).await)
            .unwrap();
        let report = kernel.run().unwrap();
        kernel.audit();
        assert_eq!(report.elapsed, round * SECOND);
        assert_eq!(report.exits().len(), round as usize);
        assert_eq!(report.ticks, 2 * u64::from(round));
        assert_eq!(report.traps, u64::from(round));
    }
}

#[test]
fn s48_run_after_run_copies_no_exits_of_before() {
    let mut kernel = Kernel::simulated(0);
    let place = |report: &Report| std::ptr::from_ref(report.exits());
    let mut spawn_and_run = || {
        kernel.spawn("brief", async |_| ()).unwrap();
        kernel.run().unwrap()
    };
    // A single exit is no table yet.
    let single = spawn_and_run();
    let first = place(&spawn_and_run());
    let kept = spawn_and_run();
    assert_eq!(place(&kept), first);
    // What the host keeps does not change.
    let next = spawn_and_run();
    assert_ne!(place(&next), first);
    let lengths = [&single, &kept, &next].map(|report| report.exits().len());
    assert_eq!(lengths, [1, 3, 4]);
}

#[test]
fn s48_run_goes_on_after_a_deadlock() {
    let mut kernel = Kernel::simulated(0);
    spawn_waiter(&mut kernel, "ring", 0, 2);
    spawn_waiter(&mut kernel, "ring", 0, 1);
    for _ in 0..2 {
        deadlock(&mut kernel);
        kernel.audit();
    }
    kernel
        .spawn("saviour", async |os| {
            os.kill(tid(2)).await;
        })
        .unwrap();
    let report = kernel.run().unwrap();
    let exits: Vec<_> = report.exits().values().cloned().collect();
    assert_eq!(exits, [Exit::Done, Exit::Killed, Exit::Done]);
}

#[test]
fn s48_step_is_exactly_one_resume_or_one_wait() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("a", async |os| {
            os.get_tid().await;
            os.sleep(SECOND).await;
        })
        .unwrap();
    kernel.spawn("b", async |os| passes(os, 1).await).unwrap();
    let mut steps = Vec::new();
    for tick in 1.. {
        let step = kernel.step().unwrap();
        kernel.audit();
        steps.push(step);
        if step == Step::Finished {
            break;
        }
        assert!(tick < 100);
    }
    let (a, b) = (Step::Ran(tid(1)), Step::Ran(tid(2)));
    // The last wait finds nobody else to wait for.
    assert_eq!(steps, [a, b, a, b, Step::Idle, a, Step::Finished]);
    assert_eq!(kernel.now(), SECOND);
    assert_eq!(kernel.run().unwrap().ticks, 5);
}

#[test]
fn s48_steps_and_runs_mix() {
    let mut kernel = sim().max_ticks(10).build().unwrap();
    kernel
        .spawn("spinner", async |os| passes(os, 50).await)
        .unwrap();
    for _ in 0..4 {
        assert!(matches!(kernel.run(), Err(Error::Limit(..))));
        assert_eq!(kernel.step().unwrap(), Step::Ran(tid(1)));
    }
    assert_eq!(kernel.run().unwrap().ticks, 51);
}

#[test]
fn s48_a_host_that_spawns_between_steps_is_served() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("first", async |os| os.sleep(SECOND).await)
        .unwrap();
    assert_eq!(kernel.step().unwrap(), Step::Ran(tid(1)));
    kernel.spawn("second", async |_| {}).unwrap();
    assert_eq!(kernel.step().unwrap(), Step::Ran(tid(2)));
    assert_eq!(kernel.step().unwrap(), Step::Idle);
    assert_eq!(kernel.step().unwrap(), Step::Ran(tid(1)));
    assert_eq!(kernel.step().unwrap(), Step::Finished);
}

#[test]
fn s48_a_console_that_is_gone_is_an_error_of_the_run_and_no_end() {
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(1).print_to(NoConsole))
        .build()
        .unwrap();
    kernel
        .spawn("printer", async |os| {
            writeln!(os, "lost");
            passes(os, 3).await;
            writeln!(os, "lost too");
        })
        .unwrap();
    for _ in 0..2 {
        let error = kernel.run().unwrap_err();
        assert!(matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::BrokenPipe));
        assert_eq!(error.to_string(), "the world failed: broken pipe");
    }
    assert_eq!(kernel.run().unwrap().exits()[&tid(1)], Exit::Done);
}

// ---- S49

#[test]
fn s49_the_limit_on_resumes_ends_a_run_which_can_be_continued() {
    let mut kernel = sim().max_ticks(1000).build().unwrap();
    kernel
        .spawn("spinner", async |os| passes(os, 2500).await)
        .unwrap();
    for round in 1..3 {
        let error = kernel.run().unwrap_err();
        assert!(matches!(error, Error::Limit(Limit::Ticks(1000), _)));
        assert_eq!(error.to_string(), "the limit of 1000 ticks is reached");
        kernel.audit();
        let traps = kernel.tasks().next().map(|task| task.traps);
        assert_eq!(traps, Some(1000 * round));
    }
    assert_eq!(kernel.run().unwrap().ticks, 2501);
}

#[test]
fn s49_a_run_that_needs_exactly_the_limit_is_within_it() {
    let mut kernel = sim().max_ticks(3).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| passes(os, 2).await);
}

#[test]
fn s49_the_limit_on_virtual_time_ends_a_run_which_can_be_continued() {
    let mut kernel = sim().max_time(10 * SECOND).build().unwrap();
    kernel
        .spawn("sleeper", async |os| os.sleep(25 * SECOND).await)
        .unwrap();
    for round in 1..3 {
        let error = kernel.run().unwrap_err();
        assert!(matches!(error, Error::Limit(Limit::Time(limit), _) if limit == 10 * SECOND));
        let blocked = "tid 1 \"sleeper\" waits for the timer at 00:25.000, since 00:00.000";
        assert_eq!(
            unplaced(&error.to_string()),
            format!("the limit of 10s is reached\n  {blocked}")
        );
        assert_eq!(kernel.now(), round * 10 * SECOND);
        kernel.audit();
    }
    assert_eq!(kernel.run().unwrap().elapsed, 25 * SECOND);
}

#[test]
fn s49_what_is_due_at_the_limit_is_within_it() {
    let mut kernel = sim().max_time(10 * SECOND).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| os.sleep(10 * SECOND).await);
}

#[test]
fn s49_the_limit_on_real_time_ends_sleepers_and_spinners() {
    let span = Duration::from_millis(10);
    let mut kernel = Kernel::builder().max_time(span).build().unwrap();
    kernel
        .spawn("sleeper", async |os| os.sleep(3600 * SECOND).await)
        .unwrap();
    for round in 1..3 {
        assert!(matches!(kernel.run(), Err(Error::Limit(Limit::Time(_), _))));
        assert!(kernel.now() >= round * span);
        kernel.spawn("spinner", spin).unwrap();
    }
    assert!(kernel.now() < 60 * SECOND);
}

#[test]
fn s49_steps_end_at_the_limits_of_a_run() {
    let boot = |ticks, time| {
        let builder = sim().max_ticks(ticks).max_time(time);
        let mut kernel = builder.build().unwrap();
        kernel
            .spawn("spinner", async |os| passes(os, 299).await)
            .unwrap();
        let sleeper = async |os: &mut Os| {
            for _ in 0..3 {
                os.sleep(SECOND).await;
                write!(os, "woken ");
            }
        };
        kernel.spawn("sleeper", sleeper).unwrap();
        kernel
    };
    let account = |mut kernel: Kernel, ended: Result<(), Error>| {
        let ended = ended.map_err(|error| error.to_string());
        let ticks = kernel.report().ticks;
        (ended, ticks, kernel.now(), kernel.take_console())
    };
    let step_on = |kernel: &mut Kernel| {
        while kernel.step()? != Step::Finished {}
        Ok(())
    };
    for ticks in [0, 1, 2, 255, 256, 257, 303, 304, u64::MAX] {
        for time in [0.0, 0.5, 1.0, 2.5, 3.0, 4.0].map(Duration::from_secs_f64) {
            let (mut runs, mut steps) = (boot(ticks, time), boot(ticks, time));
            let ran = runs.run().map(drop);
            let stepped = step_on(&mut steps);
            assert_eq!(
                account(steps, stepped),
                account(runs, ran),
                "{ticks} ticks, {time:?}"
            );
        }
    }
}

#[test]
fn s49_steps_go_on_behind_a_limit_which_counts_anew() {
    let mut kernel = sim().max_ticks(2).build().unwrap();
    kernel
        .spawn("spinner", async |os| passes(os, 4).await)
        .unwrap();
    for _ in 0..2 {
        for _ in 0..2 {
            assert_eq!(kernel.step().unwrap(), Step::Ran(tid(1)));
        }
        let error = kernel.step().unwrap_err();
        assert!(matches!(error, Error::Limit(Limit::Ticks(2), _)), "{error}");
        kernel.audit();
    }
    assert_eq!(kernel.step().unwrap(), Step::Ran(tid(1)));
    assert_eq!(kernel.step().unwrap(), Step::Finished);
}

// ---- S50

/// Spawns tasks that are ready, asleep, waiting and not yet begun, each with a destructor.
fn spawn_family(kernel: &mut Kernel, diary: &Diary) {
    let notes = diary.clone();
    kernel
        .spawn("parent", async move |os| {
            let _guard = notes.on_drop("1");
            let (four, five) = (notes.clone(), notes.clone());
            let asleep = os
                .spawn("asleep", async move |os| {
                    let _guard = four.on_drop("4");
                    os.sleep(Duration::MAX).await;
                })
                .await?;
            os.spawn("waiting", async move |os| {
                let _guard = five.on_drop("5");
                os.wait(asleep).await.map(drop)
            })
            .await?;
            spin(os).await;
            Ok::<(), Errno>(())
        })
        .unwrap();
    let two = diary.on_drop("2");
    kernel
        .spawn("ready", async move |os| {
            let _guard = two;
            spin(os).await;
        })
        .unwrap();
}

#[test]
fn s50_shutdown_ends_every_task_the_youngest_first_and_run_answers_ok() {
    let (mut kernel, log) = logged(sim());
    let diary = Diary::default();
    spawn_family(&mut kernel, &diary);
    kernel
        .spawn("third", async |os| passes(os, 9).await)
        .unwrap();
    for _ in 0..20 {
        kernel.step().unwrap();
    }
    let (owned, me) = (diary.on_drop("7"), diary.on_drop("6"));
    kernel
        .spawn("shutter", async move |os| {
            let _me = me;
            os.shutdown().await
        })
        .unwrap();
    kernel
        .spawn("unborn", async move |os| {
            let _owned = owned;
            spin(os).await;
        })
        .unwrap();
    let report = kernel.run().unwrap();
    kernel.audit();
    assert_eq!(diary.text(), "7, 6, 5, 4, 2, 1");
    let exited: Vec<_> = log
        .lines()
        .iter()
        .filter_map(|line| {
            Some(
                line.split_once(' ')?
                    .1
                    .strip_suffix(" exited killed")?
                    .to_string(),
            )
        })
        .collect();
    assert_eq!(exited, ["7", "6", "5", "4", "3", "2", "1"]);
    let exits: Vec<_> = report.exits().keys().copied().collect();
    assert_eq!(exits, tids(&[1, 2, 3, 6, 7]));
    assert_eq!(kernel.tasks().count(), 0);
}

#[test]
fn s50_a_kernel_that_was_shut_down_runs_new_tasks() {
    let mut kernel = Kernel::simulated(0);
    let diary = Diary::default();
    for round in 0..3 {
        spawn_family(&mut kernel, &diary);
        kernel
            .spawn("shutter", async |os| {
                os.sleep(SECOND).await;
                os.shutdown().await
            })
            .unwrap();
        // Endless spinners: the clock stands still, so the line from outside is needed.
        kernel.remote().shutdown();
        kernel.run().unwrap();
        assert_eq!(kernel.tasks().count(), 0, "round {round}");
    }
    run_main(&mut kernel, async |os: &mut Os| os.sleep(SECOND).await);
}

#[test]
fn s50_a_shutdown_as_a_run_ends_is_not_for_the_next() {
    for steps in [false, true] {
        let mut kernel = Kernel::simulated(0);
        let diary = Diary::default();
        let notes = diary.clone();
        kernel.spawn_daemon("daemon", async move |os: &mut Os| {
            let _guard = notes.on_drop("daemon");
            spin(os).await;
        });
        let remote = kernel.remote();
        let last = async move |_: &mut Os| remote.shutdown();
        kernel.spawn("last", last).unwrap();
        if steps {
            while kernel.step().unwrap() != Step::Finished {}
        } else {
            kernel.run().unwrap();
        }
        // The daemons of the run that was shut down are gone.
        assert_eq!(diary.text(), "daemon");
        run_main(&mut kernel, async |os: &mut Os| os.sleep(SECOND).await);
        // Between runs, it is for the next.
        kernel.remote().shutdown();
        let spared = kernel.spawn("not spared", spin).unwrap();
        assert_eq!(kernel.run().unwrap().exits()[&spared], Exit::Killed);
    }
}

#[test]
fn s50_a_thread_shuts_down_a_kernel_that_sleeps() {
    let mut kernel = Kernel::real().unwrap();
    let diary = Diary::default();
    let notes = diary.clone();
    let remote = kernel.remote();
    let (tell, told) = std::sync::mpsc::channel();
    kernel
        .spawn("sleeper", async move |os| {
            let _guard = notes.on_drop("sleeper");
            tell.send(()).expect("the thread listens");
            os.sleep(3600 * SECOND).await;
        })
        .unwrap();
    let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let notes = diary.clone();
    kernel
        .spawn("reader", async move |os| {
            let _guard = notes.on_drop("reader");
            let device = os.attach(theirs).await?;
            os.read_wait(&device).await?;
            Ok::<(), io::Error>(())
        })
        .unwrap();
    let thread = thread::spawn(move || {
        told.recv().expect("the sleeper says when it runs");
        remote.shutdown();
    });
    let report = kernel.run().unwrap();
    thread.join().unwrap();
    assert!(report.elapsed < 60 * SECOND);
    assert_eq!(diary.text(), "reader, sleeper");
    assert_eq!(report.exits()[&tid(1)], Exit::Killed);
}

#[test]
fn s50_destructors_that_print_are_heard_at_shutdown_and_when_the_kernel_is_dropped() {
    struct Farewell<'a>(&'a mut Os);
    impl Drop for Farewell<'_> {
        fn drop(&mut self) {
            writeln!(self.0, "farewell");
        }
    }
    let program = async |os: &mut Os| {
        let last = Farewell(os);
        last.0.sleep(Duration::MAX).await;
    };
    let (mut kernel, log) = logged(sim());
    kernel.spawn("first", program).unwrap();
    deadlock(&mut kernel);
    kernel.remote().shutdown();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "farewell\n");
    kernel.spawn("second", program).unwrap();
    deadlock(&mut kernel);
    drop(kernel);
    assert_eq!(
        about(&log, 2)[4..],
        ["console \"farewell\\n\"", "exited killed", "reaped"]
    );
}

#[test]
fn dropping_a_kernel_ends_its_tasks_the_youngest_first() {
    let diary = Diary::default();
    let mut kernel = sim().max_ticks(20).build().unwrap();
    spawn_family(&mut kernel, &diary);
    assert!(matches!(kernel.run(), Err(Error::Limit(..))));
    drop(kernel);
    assert_eq!(diary.text(), "5, 4, 2, 1");
}

#[test]
fn a_task_may_run_a_kernel_of_its_own() {
    let transcript = console(async |os| {
        let mut inner = Kernel::simulated(2);
        run_main(&mut inner, async |os: &mut Os| {
            os.sleep(SECOND).await;
            let me = os.get_tid().await;
            writeln!(os, "inner {me}");
        });
        let text = inner.take_console();
        let (me, now) = (os.get_tid().await, os.now().await);
        write!(os, "{text}outer {me} at {now:?}");
    });
    assert_eq!(transcript, "inner 1\nouter 1 at 0ns");
}

// ---- what a report says

#[test]
fn a_report_is_checked_for_children_that_failed_or_faulted() {
    let mut kernel = Kernel::simulated(1);
    let report = run_main(&mut kernel, async |os: &mut Os| {
        let killed = os.spawn("killed", spin).await?;
        os.kill(killed).await;
        Ok::<(), Errno>(())
    });
    assert!(report.check().is_ok());
    let line = line!() + 3;
    let report = run_main(&mut kernel, async |os: &mut Os| {
        os.spawn_detached("failing", async |_| Err("why")).await?;
        let faulty = async |_: &mut Os| panic!("ouch");
        let child = os.spawn("faulty", faulty).await?;
        os.wait(child).await.map(drop)
    });
    let place = format!("{}:{line}", file!());
    let expected =
        format!("task 4 \"failing\" failed: why\ntask 5 \"faulty\" faulted: ouch, at {place}");
    assert_eq!(report.check().unwrap_err().to_string(), expected);
    let report = run_main(&mut kernel, async |os: &mut Os| {
        for _ in 0..20 {
            os.spawn_detached("failing", async |_| Err("why")).await?;
        }
        Ok::<(), Errno>(())
    });
    let text = report.check().unwrap_err().to_string();
    assert!(text.ends_with("failed: why\nand 6 more"), "{text}");
    assert_eq!(text.lines().count(), 17);
}

#[test]
fn a_console_is_captured_in_every_world() {
    for builder in [Kernel::builder(), sim()] {
        let mut kernel = builder.capture_console().build().unwrap();
        run_main(&mut kernel, async |os: &mut Os| writeln!(os, "hello"));
        assert_eq!(kernel.take_console(), "hello\n");
        assert_eq!(kernel.take_console(), "");
    }
}

#[test]
fn an_error_of_a_run_and_its_sources_show_a_report_once() {
    let source = |error: &Error| Some(std::error::Error::source(error)?.to_string());
    let mut kernel = sim().max_ticks(5).build().unwrap();
    kernel.spawn("spins", spin).unwrap();
    let limit = kernel.run().unwrap_err();
    assert_eq!(
        source(&limit),
        Some("the limit of 5 ticks is reached".into())
    );
    let mut kernel = Kernel::simulated(1);
    let main = async |os: &mut Os| {
        let queue = Queue::<()>::unbounded(os).await;
        queue.get(os).await
    };
    kernel
        .spawn("main", async move |os: &mut Os| main(os).await.map(drop))
        .unwrap();
    let deadlock = kernel.run().unwrap_err();
    assert!(deadlock.to_string().starts_with("deadlock: "));
    assert_eq!(source(&deadlock), None);
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("fails", async |_| Err("no")).unwrap();
    let failed = kernel.run().unwrap().check().unwrap_err();
    assert_eq!(source(&failed), None);
    let refused = Error::from(Errno::HostDown);
    assert_eq!(source(&refused), Some(Errno::HostDown.to_string()));
    let failed = Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
    assert!(
        std::error::Error::source(&failed)
            .unwrap()
            .is::<io::Error>()
    );
}
