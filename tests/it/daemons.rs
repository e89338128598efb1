//! Daemons, whom the others do not notice, and what they look through: observers, and the word
//! which task runs.

use std::{
    cell::{Cell, RefCell},
    io::{Read, Write},
    os::unix::net::UnixStream,
    rc::Rc,
    sync::mpsc,
    thread,
    time::Duration,
};

use trapline::{
    Closed, Errno, Error, Event, Exit, Fact, Kernel, Limit, Os, Promise, Queue, SimWorld, Step,
    TaskState, Tid, Tracer,
};

use crate::{stepping::Moving, support::*};

const SECOND: Duration = Duration::from_secs(1);

/// A daemon that does a bit of everything, for ever.
async fn busy(os: &mut Os) {
    loop {
        let child = os.spawn("child of a daemon", async |os: &mut Os| {
            os.yield_now().await;
        });
        let child = child.await.expect("daemons are under no limit");
        assert_eq!(os.wait(child).await, Ok(Exit::Done));
        os.sleep(SECOND / 7).await;
    }
}

/// Two sleepers and a child.
fn spawn_programs(kernel: &mut Kernel) {
    for span in [1, 2] {
        let program = async move |os: &mut Os| {
            let child = os.spawn("child", async |os: &mut Os| os.sleep(SECOND).await);
            let child = child.await.expect("there is room");
            os.sleep(span * SECOND).await;
            let (tids, exit) = (os.tasks().await.len(), os.wait(child).await);
            writeln!(os, "{tids} tasks, {exit:?}");
        };
        kernel.spawn("parent", program).unwrap();
    }
}

#[test]
fn daemons_are_not_noticed_by_the_others() {
    let run = |daemons: u32| {
        let (mut kernel, log) = logged(Kernel::builder().world(SimWorld::new(1)).max_tasks(4));
        for _ in 0..daemons {
            assert!(kernel.spawn_daemon("daemon", busy).is_daemon());
        }
        spawn_programs(&mut kernel);
        let report = kernel.run().unwrap();
        kernel.audit();
        assert_eq!(kernel.tasks().count(), 0);
        let facts = log.lines();
        // The clock stands still more often for daemons, but goes on for nobody else.
        let facts = facts.into_iter().filter(|line| !line.contains("clock"));
        (
            facts.collect::<Vec<_>>(),
            kernel.take_console(),
            report.exits().clone(),
            report.peak_tasks,
        )
    };
    let alone = run(0);
    assert_eq!(alone.1, "4 tasks, Ok(Done)\n2 tasks, Ok(Done)\n");
    assert_eq!(alone, run(3));
}

#[test]
fn daemons_keep_no_run_alive_and_outlive_it() {
    let mut kernel = Kernel::simulated(0);
    let diary = Diary::default();
    let end = diary.on_drop("dropped");
    let beats = Rc::new(Cell::new(0));
    let count = Rc::clone(&beats);
    kernel.spawn_daemon("daemon", async move |os: &mut Os| {
        let _end = end;
        loop {
            os.sleep(SECOND / 7).await;
            count.set(count.get() + 1);
        }
    });
    assert!(kernel.run().is_ok());
    for seconds in 1..3 {
        let nap = async |os: &mut Os| os.sleep(SECOND).await;
        kernel.spawn("nap", nap).unwrap();
        let ticks = kernel.run().unwrap().ticks;
        assert_eq!(
            ticks,
            2 * u64::from(seconds),
            "a daemon's turns count nowhere"
        );
        assert!(beats.get() >= 6 * seconds, "the daemon goes on");
        assert_eq!(kernel.now(), seconds * SECOND);
    }
    assert_eq!(diary.text(), "");
    drop(kernel);
    assert_eq!(diary.text(), "dropped");
}

#[test]
fn daemons_hide_no_deadlock() {
    let (_ours, theirs) = UnixStream::pair().unwrap();
    for mut kernel in [Kernel::simulated(0), Kernel::real().unwrap()] {
        let waiter = async |os: &mut Os| os.wait(tid(1)).await.map(drop);
        let spin = async |os: &mut Os| os.sleep(Duration::MAX).await;
        kernel.spawn("sleeper", spin).unwrap();
        kernel.spawn("waiter", waiter).unwrap();
        kernel.spawn_daemon("timer", async |os: &mut Os| {
            loop {
                os.sleep(SECOND).await;
            }
        });
        let socket = theirs.try_clone().unwrap();
        kernel.spawn_daemon("device", async move |os: &mut Os| {
            let device = os.attach(socket).await?;
            device.recv(os, &mut [0]).await.map(drop)
        });
        match kernel.run() {
            Err(Error::Deadlock(deadlock)) => assert_eq!(deadlock.blocked.len(), 2),
            other => panic!("not a deadlock: {other:?}"),
        }
        kernel.audit();
    }
}

#[test]
fn daemons_that_wait_for_a_thread_hide_no_deadlock() {
    let mut kernel = Kernel::builder().max_time(SECOND).build().unwrap();
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    kernel.spawn_daemon("promised", async move |os: &mut Os| {
        let (setter, promise) = Promise::<()>::new(os).await;
        let remote = setter.remote();
        *keep.borrow_mut() = Some((remote.clone(), remote));
        promise.wait(os).await.map_err(|_| "abandoned")
    });
    let (end, wait) = mpsc::channel::<()>();
    kernel.spawn_daemon("worker", async move |os: &mut Os| {
        let _ = os.run_blocking(move || wait.recv()).await;
    });
    let sleep = async |os: &mut Os| os.sleep(Duration::MAX).await;
    kernel.spawn("sleeper", sleep).unwrap();
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
    drop((kept, end));
}

#[test]
fn daemons_that_are_always_ready_hide_no_deadlock() {
    for policy in [false, true] {
        let builder = if policy { sim().quantum(3) } else { sim() };
        let mut kernel = builder.build().unwrap();
        for _ in 0..3 {
            kernel.spawn_daemon("spin", spin);
        }
        let sleep = async |os: &mut Os| {
            passes(os, 1000).await;
            os.sleep(Duration::MAX).await;
        };
        kernel.spawn("sleeper", sleep).unwrap();
        assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
    }
}

#[test]
fn what_the_host_lets_out_is_hope_though_a_daemon_ran_last() {
    let mut kernel = Kernel::simulated(1);
    kernel.spawn_daemon("spin", spin);
    let ends = Rc::new(RefCell::new(None));
    let theirs = Rc::clone(&ends);
    run_main(&mut kernel, async move |os: &mut Os| {
        *theirs.borrow_mut() = Some(Promise::new(os).await);
    });
    let (setter, promise) = ends.take().unwrap();
    let remote = setter.remote();
    let (go, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        wait.recv().unwrap();
        remote.set(()).is_ok()
    });
    run_main(&mut kernel, async move |os: &mut Os| {
        let waiter = async move |os: &mut Os| promise.wait(os).await.map_err(|_| "abandoned");
        let waiter = os.spawn("waiter", waiter).await?;
        passes(os, 1000).await;
        go.send(()).expect("the thread is there");
        assert_eq!(os.wait(waiter).await?, Exit::Done);
        Ok::<(), Errno>(())
    });
    assert!(thread.join().unwrap());
}

#[test]
fn a_daemon_that_is_about_to_answer_is_no_deadlock() {
    let mut kernel = sim().build().unwrap();
    let queues = Rc::new(RefCell::new(None));
    let theirs = Rc::clone(&queues);
    kernel.spawn_daemon("server", async move |os: &mut Os| {
        let (ask, answer) = (Queue::unbounded(os).await, Queue::unbounded(os).await);
        *theirs.borrow_mut() = Some((ask.clone(), answer.clone()));
        while let Ok(n) = ask.get(os).await {
            passes(os, n % 7).await;
            answer.put(os, n).await?;
        }
        Ok::<(), Closed<usize>>(())
    });
    run_main(&mut kernel, async move |os: &mut Os| {
        os.sleep(SECOND).await;
        let (ask, answer) = queues.take().expect("the server is there");
        for n in 0..1000 {
            ask.put(os, n).await?;
            assert_eq!(answer.get(os).await, Ok(n));
        }
        Ok::<(), Closed<usize>>(())
    });
}

#[test]
fn daemons_that_fault_fail_no_run() {
    let mut kernel = Kernel::simulated(0);
    kernel.spawn_daemon("daemon", async |_: &mut Os| panic!("a bug"));
    kernel
        .spawn("program", async |os| passes(os, 3).await)
        .unwrap();
    assert_eq!(kernel.run().unwrap().failures, 0);
}

#[test]
fn daemons_end_at_a_shutdown_after_the_others() {
    let mut kernel = Kernel::simulated(0);
    let diary = Diary::default();
    for daemon in [true, false] {
        let end = diary.on_drop(if daemon { "daemon" } else { "program" });
        let program = async move |os: &mut Os| {
            let _end = end;
            spin(os).await;
        };
        if daemon {
            kernel.spawn_daemon("daemon", program);
        } else {
            kernel.spawn("program", program).unwrap();
        }
    }
    let last = async |os: &mut Os| {
        passes(os, 2).await;
        os.shutdown().await
    };
    kernel.spawn("last", last).unwrap();
    kernel.run().unwrap();
    kernel.audit();
    assert_eq!(diary.text(), "program, daemon");
}

#[test]
fn daemons_hear_of_devices_while_others_spin() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut kernel = Kernel::builder().max_time(30 * SECOND).build().unwrap();
    let over = Rc::new(Cell::new(false));
    let heard = Rc::clone(&over);
    kernel.spawn_daemon("echo", async move |os: &mut Os| {
        let device = os.attach(theirs).await.unwrap();
        let mut buf = [0; 8];
        let n = device.recv(os, &mut buf).await.unwrap();
        device.send_all(os, &buf[..n]).await.unwrap();
        heard.set(true);
    });
    let client = thread::spawn(move || {
        ours.write_all(b"hello").unwrap();
        let mut buf = [0; 5];
        ours.read_exact(&mut buf).unwrap();
        buf
    });
    let spin = async move |os: &mut Os| {
        while !over.get() {
            os.yield_now().await;
        }
    };
    kernel.spawn("spin", spin).unwrap();
    kernel.run().unwrap();
    assert_eq!(&client.join().unwrap(), b"hello");
}

#[test]
fn s58_a_daemon_that_spins_neither_uses_the_ticks_nor_stops_the_clock() {
    let mut kernel = sim().max_ticks(100).build().unwrap();
    kernel.spawn_daemon("spin", spin);
    let sleep = async |os: &mut Os| os.sleep(SECOND).await;
    kernel.spawn("sleeper", sleep).unwrap();
    let report = kernel.run().unwrap();
    assert_eq!((report.ticks, report.elapsed), (2, SECOND));
}

#[test]
fn a_daemon_sees_the_tasks_and_may_kill_them() {
    let mut kernel = Kernel::simulated(0);
    let victim = async |os: &mut Os| os.sleep(60 * SECOND).await;
    let victim = kernel.spawn("victim", victim).unwrap();
    kernel.spawn_daemon("killer", async |os: &mut Os| {
        os.sleep(SECOND).await;
        let tasks = os.tasks().await;
        assert_eq!(tasks.len(), 1);
        assert!(matches!(tasks[0].state, TaskState::Blocked { .. }));
        assert!(os.kill(tasks[0].tid).await);
    });
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&victim], Exit::Killed);
    assert_eq!(kernel.now(), SECOND);
}

// ---- observers

#[test]
fn an_observer_hears_everything_from_the_next_trap_on_until_it_is_dropped() {
    // Nobody else observes: these are the plain turns, which are given without a word otherwise.
    let mut kernel = Kernel::simulated(0);
    let diary = Diary::default();
    let lines = diary.clone();
    kernel
        .spawn("other", async |os| passes(os, 6).await)
        .unwrap();
    let main = async move |os: &mut Os| {
        let observer = os.observe(move |event: &Event<'_>| lines.note(event.fact.to_string()));
        os.get_tid().await;
        drop(observer);
        passes(os, 2).await;
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap();
    let heard = [
        "trapped get_tid()",
        "replied 2",
        "resumed",
        "trapped yield()",
        "replied ok",
        "resumed",
        "deferred unobserve(1)",
    ];
    assert_eq!(diary.lines(), heard);
}

#[test]
fn an_observer_that_panics_is_switched_off_and_one_that_ends_with_its_task_too() {
    let mut kernel = Kernel::simulated(0);
    let diary = Diary::default();
    let lines = diary.clone();
    let main = async move |os: &mut Os| {
        let _bad = os.observe(|_: &Event<'_>| panic!("a bug"));
        let _good = os.observe(move |event: &Event<'_>| lines.note(event.fact.to_string()));
        os.get_tid().await;
    };
    let main = kernel.spawn("main", main).unwrap();
    kernel
        .spawn("other", async |os| passes(os, 6).await)
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&main], Exit::Done);
    // Deferred calls are handled before the end of their task is told.
    let lines = diary.lines();
    let last = Some("deferred unobserve(2)");
    assert_eq!(lines.last().map(String::as_str), last, "{lines:?}");
}

/// Keeps the times that it is told.
struct Times(Rc<RefCell<Vec<Duration>>>, bool);

impl Tracer for Times {
    fn event(&mut self, event: &Event<'_>) {
        if let Fact::Trapped { .. } = event.fact {
            self.0.borrow_mut().push(event.at);
        }
    }

    fn is_exact(&self) -> bool {
        self.1
    }
}

#[test]
fn a_tracer_that_is_not_exact_costs_no_clock_unless_another_is() {
    let times = |exact: bool| {
        let times = Rc::new(RefCell::new(Vec::new()));
        let coarse = Times(Rc::clone(&times), false);
        let mut kernel = Kernel::builder().tracer(coarse).build().unwrap();
        let main = async move |os: &mut Os| {
            let other = Times(Rc::default(), true);
            let _observer = exact.then(|| os.observe(other));
            passes(os, 200).await;
        };
        kernel.spawn("main", main).unwrap();
        kernel.run().unwrap();
        times.take()
    };
    let mut coarse = times(false);
    coarse.dedup();
    assert_eq!(coarse.len(), 1, "within the first 256 resumes: {coarse:?}");
    let exact = times(true);
    assert!(exact[1] < exact[2] && exact.is_sorted(), "{exact:?}");
}

// ---- who runs

#[test]
fn another_thread_sees_who_runs() {
    let mut kernel = Kernel::real().unwrap();
    let remote = kernel.remote();
    let of_host = remote.clone();
    assert_eq!(remote.running(), Tid::KERNEL);
    let main = async move |os: &mut Os| {
        assert_eq!(remote.running(), tid(1));
        // The thread ends when it has seen the kernel wait for it.
        let seen = os.run_blocking(move || {
            while remote.running() != Tid::KERNEL {
                thread::yield_now();
            }
        });
        assert_eq!(seen.await, Ok(()));
        assert_eq!(os.get_tid().await, tid(1));
    };
    run_main(&mut kernel, main);
    assert_eq!(of_host.running(), Tid::KERNEL, "the run is over");
    kernel.spawn("one", async |os| passes(os, 1).await).unwrap();
    while kernel.step().unwrap() != Step::Finished {
        assert_eq!(of_host.running(), Tid::KERNEL, "between two steps");
    }
}

// ---- observing changes nothing

#[test]
fn s58_daemons_leave_the_numbers_of_others_as_they_are() {
    let run = |daemons: bool| {
        let (mut kernel, log) = logged(unscripted());
        if daemons {
            spawn_daemons(&mut kernel);
        }
        run_main(&mut kernel, async |os: &mut Os| {
            for _ in 0..5 {
                let queue = Queue::<()>::unbounded(os).await;
                let _observer = os.observe(|_: &Event<'_>| ());
                let get = os.timeout(SECOND, async |os| queue.get(os).await).await;
                let (id, random) = (queue.id(), os.random().await);
                writeln!(os, "queue {id}, {random}, {get:?}");
            }
        });
        (kernel.take_console(), log.lines())
    };
    let (alone, beside) = (run(false), run(true));
    assert_eq!(alone.0, beside.0);
    assert_eq!(alone.1, beside.1);
}

/// Tasks with timeouts, in a world whose clock passes while they run: each notes how many calls it
/// made before it was cut.
fn spawn_hurried(kernel: &mut Kernel, passed: &Rc<Cell<Duration>>) -> Diary {
    let diary = Diary::default();
    for n in 1..=20 {
        let (notes, passed) = (diary.clone(), Rc::clone(passed));
        let program = async move |os: &mut Os| {
            for _ in 0..4 {
                let calls = Cell::new(0);
                let span = Duration::from_micros(100 * n);
                let cut: Result<(), _> = os
                    .timeout(span, async |os| {
                        loop {
                            passed.set(passed.get() + Duration::from_micros(1));
                            os.get_tid().await;
                            calls.set(calls.get() + 1);
                        }
                    })
                    .await;
                notes.note(format!("{n}: {cut:?} after {}", calls.get()));
                os.sleep(span).await;
            }
        };
        kernel.spawn("hurried", program).expect("there is room");
    }
    diary
}

#[test]
fn s58_a_timeout_cuts_the_same_call_in_every_mode() {
    let clock = RefCell::new(Rc::default());
    let builder = || {
        let (world, passed) = Moving::new();
        clock.replace(passed);
        Kernel::builder().world(world)
    };
    let populate = |kernel: &mut Kernel| {
        let diary = spawn_hurried(kernel, &clock.borrow());
        move || diary.lines()
    };
    in_every_mode(builder, populate).unwrap_or_else(|different| panic!("{different}"));
}

#[test]
fn s58_a_run_may_be_cut_into_slices_of_any_size() {
    let run = |ticks: u64| {
        let (world, passed) = Moving::new();
        let (mut kernel, log) = logged(Kernel::builder().world(world).max_ticks(ticks));
        let diary = spawn_hurried(&mut kernel, &passed);
        let report = loop {
            match kernel.run() {
                Err(Error::Limit(Limit::Ticks(_), _)) => {}
                ended => break ended.expect("nothing goes wrong"),
            }
        };
        (log.lines(), diary.lines(), report.ticks)
    };
    let whole = run(u64::MAX);
    for slice in [1, 2, 3, 20, 21, 100, 255, 256, 257, 1000] {
        assert!(run(slice) == whole, "slices of {slice}");
    }
}
