//! Injection: faults at the trap.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Errno, Exit, Inject, Kernel, Os, Queue, SystemCall, TaskState, Tid,
    sync::{Condition, Mutex},
};

use crate::support::{Diary, about, logged, passes, run_main, sim, tid};

const SECOND: Duration = Duration::from_secs(1);

/// How many calls of each name there were.
type Counts = Rc<RefCell<BTreeMap<&'static str, u64>>>;

/// An injection that counts and changes nothing: the last `nth` of each call.
fn counting() -> (Counts, impl FnMut(Tid, SystemCall, u64) -> Option<Inject>) {
    let counts = Counts::default();
    let inner = Rc::clone(&counts);
    let injector = move |_: Tid, call: SystemCall, nth: u64| {
        inner.borrow_mut().insert(call.name(), nth);
        None
    };
    (counts, injector)
}

/// Does this to each call of that name.
fn each(name: &'static str, inject: Inject) -> impl FnMut(Tid, SystemCall, u64) -> Option<Inject> {
    move |_, call, _| (call.name() == name).then_some(inject)
}

// ---- failures

#[test]
fn a_call_that_is_failed_has_no_effect() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"question").unwrap();
    let mut kernel = Kernel::builder()
        .inject(|_, call, nth| match (call, nth) {
            (SystemCall::Recv(_) | SystemCall::Send(_), 1) => {
                Some(Inject::Fail(ErrorKind::ConnectionReset))
            }
            (SystemCall::Attach, 2) => Some(Inject::Fail(ErrorKind::OutOfMemory)),
            _ => None,
        })
        .build()
        .unwrap();
    run_main(&mut kernel, async move |os: &mut Os| {
        let device = os.attach(ours).await?;
        let mut buf = [0; 64];
        let failed = device.recv(os, &mut buf).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::ConnectionReset);
        let n = device.recv(os, &mut buf).await?;
        assert_eq!(&buf[..n], b"question");
        let failed = device.send(os, b"lost").await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::ConnectionReset);
        device.send_all(os, b"answer").await?;
        let (other, its_peer) = UnixStream::pair()?;
        let failed = os.attach(other).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::OutOfMemory);
        let mut rest = Vec::new();
        (&its_peer).read_to_end(&mut rest)?; // The descriptor that was refused is closed.
        std::io::Result::Ok(())
    });
    drop(kernel);
    let mut told = String::new();
    theirs.read_to_string(&mut told).unwrap();
    assert_eq!(told, "answer");
}

#[test]
fn only_calls_with_an_io_result_can_be_failed() {
    let injection = each("put", Inject::Fail(ErrorKind::BrokenPipe));
    let mut kernel = sim().inject(injection).build().unwrap();
    let diary = Diary::default();
    let message = diary.on_drop("dropped");
    let putter = kernel
        .spawn("putter", async move |os: &mut Os| {
            let queue = Queue::unbounded(os).await;
            queue.put(os, message).await.map_err(|_| "closed")
        })
        .unwrap();
    let report = kernel.run().unwrap();
    let why = "an injection cannot fail put (broken pipe): it does not return an io::Result";
    assert_eq!(report.exits()[&putter], Exit::Faulted(why.into()));
    assert_eq!(diary.text(), "dropped");
}

#[test]
fn an_injection_that_panics_faults_the_caller() {
    let injection = |_: Tid, call: SystemCall, nth: u64| match call {
        SystemCall::Yield if nth == 2 => panic!("a defect"),
        _ => None,
    };
    let mut kernel = sim().inject(injection).build().unwrap();
    for name in ["one", "two", "three"] {
        kernel
            .spawn(name, async |os: &mut Os| os.yield_now().await)
            .unwrap();
    }
    let report = kernel.run().unwrap();
    let exits: Vec<String> = report.exits().values().map(ToString::to_string).collect();
    assert_eq!(
        exits,
        ["done", "faulted: the injection panicked: a defect", "done"]
    );
}

// ---- kills

#[test]
fn a_call_that_kills_its_task_has_no_effect() {
    let injection = |_: Tid, call: SystemCall, nth: u64| match call {
        SystemCall::Put(_) if nth == 2 => Some(Inject::Kill),
        SystemCall::NewTask => Some(Inject::Kill),
        _ => None,
    };
    let mut kernel = sim().inject(injection).build().unwrap();
    let diary = Diary::default();
    let (first, second, unborn) = (
        diary.on_drop("first"),
        diary.on_drop("second"),
        diary.on_drop("unborn"),
    );
    let kept = diary.on_drop("its own");
    let putter = kernel
        .spawn("putter", async move |os: &mut Os| {
            let _kept = kept;
            let queue = Queue::unbounded(os).await;
            let _ = queue.put(os, first).await;
            let _ = queue.put(os, second).await;
            unreachable!("it was killed")
        })
        .unwrap();
    let parent = kernel
        .spawn("parent", async move |os: &mut Os| {
            let child = os.spawn("child", async move |_: &mut Os| drop(unborn));
            child.await.map(drop)
        })
        .unwrap();
    let report = kernel.run().unwrap();
    kernel.audit();
    assert_eq!(report.exits()[&putter], Exit::Killed);
    assert_eq!(report.exits()[&parent], Exit::Killed);
    assert_eq!(report.peak_tasks, 2);
    assert_eq!(diary.text(), "unborn, second, first, its own");
}

#[test]
fn a_kill_poisons_the_locks_that_the_task_holds() {
    let injection = each("sleep", Inject::Kill);
    let mut kernel = sim().inject(injection).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let lock = Mutex::new(os, 0).await;
        let theirs = lock.clone();
        let holder = async move |os: &mut Os| {
            let _guard = theirs.lock(os).await;
            os.sleep(SECOND).await;
        };
        let holder = os.spawn("holder", holder).await?;
        assert_eq!(os.wait(holder).await?, Exit::Killed);
        assert!(lock.lock(os).await.is_err());
        Ok::<_, Errno>(())
    });
}

// ---- delays

#[test]
fn a_delayed_call_is_handled_later_with_what_travels_beside_it() {
    let injection = |_: Tid, call: SystemCall, nth: u64| match call {
        SystemCall::Put(_) => Some(Inject::Delay(SECOND)),
        SystemCall::NewTask if nth == 1 => Some(Inject::Delay(2 * SECOND)),
        SystemCall::Yield => Some(Inject::Delay(Duration::ZERO)),
        _ => None,
    };
    let (mut kernel, log) = logged(sim().inject(injection));
    run_main(&mut kernel, async |os: &mut Os| {
        let queue = Queue::bounded(os, 1).await;
        let sender = queue.clone();
        let child = async move |os: &mut Os| {
            assert_eq!(os.now().await, 2 * SECOND);
            sender.put(os, "one").await.unwrap();
            sender.put(os, "two").await.unwrap();
        };
        os.spawn("child", child).await?;
        assert_eq!(os.now().await, 2 * SECOND);
        assert_eq!(queue.get(os).await, Ok("one"));
        assert_eq!(os.now().await, 3 * SECOND);
        os.yield_now().await;
        os.sleep(SECOND / 2).await;
        assert_eq!(queue.len(), 0);
        assert_eq!(queue.get(os).await, Ok("two"));
        assert_eq!(os.now().await, 4 * SECOND);
        Ok::<_, Errno>(())
    });
    let child = about(&log, 2);
    let put = child
        .iter()
        .position(|line| line.starts_with("trapped put"));
    let put = put.expect("the child puts");
    assert_eq!(
        child[put + 1..put + 5],
        [
            "injected a delay of 1s",
            "blocked on the timer at 00:03.000",
            "woken by its timer",
            "replied ok"
        ]
    );
}

#[test]
fn a_delayed_send_keeps_its_bytes() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let injection = each("send", Inject::Delay(Duration::from_millis(1)));
    let mut kernel = Kernel::builder().inject(injection).build().unwrap();
    let device = Rc::new(RefCell::new(None));
    let theirs_too = Rc::clone(&device);
    kernel
        .spawn("slow", async move |os: &mut Os| {
            let stream = os.attach(ours).await?;
            *theirs_too.borrow_mut() = Some(stream.clone());
            stream.send_all(os, b"first").await
        })
        .unwrap();
    kernel
        .spawn("fast", async move |os: &mut Os| {
            os.yield_now().await;
            let stream = device.borrow().clone().expect("it is attached");
            stream.send_all(os, b"second").await
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().failures, 0);
    drop(kernel);
    let mut told = String::new();
    theirs.read_to_string(&mut told).unwrap();
    assert_eq!(told, "firstsecond");
}

#[test]
fn a_kill_and_a_timeout_end_a_delay() {
    let injection = each("put", Inject::Delay(10 * SECOND));
    let mut kernel = sim().inject(injection).build().unwrap();
    let diary = Diary::default();
    let (one, two) = (diary.on_drop("one"), diary.on_drop("two"));
    run_main(&mut kernel, async move |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        let theirs = queue.clone();
        let putter = async move |os: &mut Os| theirs.put(os, one).await.is_ok();
        let child = os
            .spawn_child("putter", async move |os| putter(os).await)
            .await?;
        os.sleep(SECOND).await;
        assert!(child.kill(os).await);
        assert_eq!(diary.text(), "one");
        let cut = os.timeout(SECOND, async |os| queue.put(os, two).await.is_ok());
        assert!(cut.await.is_err());
        assert_eq!(diary.text(), "one, two");
        assert_eq!(os.now().await, 2 * SECOND);
        assert!(queue.is_empty());
        Ok::<_, Errno>(())
    });
    assert_eq!(kernel.now(), 2 * SECOND);
}

/// No signal is lost that comes between the release of the lock and the wait.
#[test]
fn the_wait_of_a_condition_ends_with_its_delay() {
    for wakes_all in [true, false] {
        // The first get is that of the lock.
        let injection = |task: Tid, call: SystemCall, nth: u64| match call {
            SystemCall::Get(_) if nth == 2 => {
                assert_eq!(task, tid(2));
                Some(Inject::Delay(10 * SECOND))
            }
            _ => None,
        };
        let mut kernel = sim().inject(injection).build().unwrap();
        run_main(&mut kernel, async move |os: &mut Os| {
            let (ready, changed) = (Mutex::new(os, false).await, Condition::new(os).await);
            let (theirs, signals) = (ready.clone(), changed.clone());
            let waiter = async move |os: &mut Os| {
                let mut guard = theirs.lock(os).await.unwrap();
                while !*guard {
                    guard = signals.wait(os, guard).await.unwrap();
                }
            };
            let waiter = os.spawn("waiter", waiter).await?;
            os.sleep(SECOND).await;
            *ready.lock(os).await.unwrap() = true;
            match wakes_all {
                true => changed.notify_all(os).await,
                false => assert!(!changed.notify_one(os).await, "no task waits yet"),
            }
            assert_eq!(os.wait(waiter).await, Ok(Exit::Done));
            Ok::<_, Errno>(())
        });
        assert_eq!(kernel.now(), 10 * SECOND);
    }
}

#[test]
fn a_delay_that_never_ends_is_a_deadlock() {
    let injection = each("yield", Inject::Delay(Duration::MAX));
    let mut kernel = sim().inject(injection).build().unwrap();
    kernel
        .spawn("late", async |os: &mut Os| os.yield_now().await)
        .unwrap();
    let error = kernel.run().unwrap_err().to_string();
    assert!(error.contains("\"late\" waits for nothing"), "{error}");
}

// ---- what counts

#[test]
fn every_trap_of_a_task_counts_and_nothing_else() {
    let (counts, injection) = counting();
    let mut kernel = sim().inject(injection).build().unwrap();
    kernel.spawn_daemon("daemon", async |os: &mut Os| {
        loop {
            os.get_tid().await;
            os.sleep(SECOND / 3).await;
        }
    });
    let report = run_main(&mut kernel, async |os: &mut Os| {
        // In the fast lane without an injection.
        os.get_tid().await;
        passes(os, 2).await;
        let queue = Queue::bounded(os, 1).await;
        queue.put(os, ()).await.unwrap();
        queue.get(os).await.unwrap();
        // Its disarming and the closing of the queue are deferred.
        let _ = os
            .timeout(SECOND, async |os| os.sleep(2 * SECOND).await)
            .await;
        drop(queue);
        os.now().await;
    });
    let expected = [
        ("get", 1),
        ("get_tid", 1),
        ("new_queue", 1),
        ("now", 1),
        ("put", 1),
        ("sleep", 1),
        ("timeout", 1),
        ("yield", 2),
    ];
    assert_eq!(*counts.borrow(), BTreeMap::from(expected));
    assert_eq!(report.traps, expected.iter().map(|(_, n)| n).sum::<u64>());
}

#[test]
fn a_send_that_waits_for_room_counts_once() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (counts, injection) = counting();
    let sends = move || counts.borrow()["send"];
    let (mut kernel, log) = logged(Kernel::builder().inject(injection));
    run_main(&mut kernel, async move |os: &mut Os| {
        let device = os.attach(ours).await?;
        let mut calls = 1;
        // Until there is no room. The last one is cut, and is not made again.
        while let Ok(sent) = {
            let send = async |os: &mut Os| device.send(os, &[1; 65536]).await;
            os.timeout(Duration::ZERO, send).await
        } {
            sent?;
            calls += 1;
        }
        assert_eq!(sends(), calls);
        let reader = async move |os: &mut Os| {
            let theirs = os.attach(theirs).await?;
            let mut room = vec![0; 65536];
            while theirs.recv(os, &mut room).await? > 0 {}
            std::io::Result::Ok(())
        };
        os.spawn_detached("reader", reader).await?;
        device.send(os, b"end").await?;
        assert_eq!(sends(), calls + 1);
        device.send(os, b"end").await?;
        assert_eq!(sends(), calls + 2);
        std::io::Result::Ok(())
    });
    let is_again = |line: &&String| line.as_str() == "replied try again";
    assert_eq!(about(&log, 1).iter().filter(is_again).count(), 1);
}

#[test]
fn a_task_that_is_killed_before_it_sends_again_leaves_nothing() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let (_, injection) = counting();
    // A turn is long enough to see that the sender is ready, and to kill it before its turn.
    let builder = Kernel::builder().quantum(100).inject(injection);
    let (mut kernel, log) = logged(builder);
    run_main(&mut kernel, async move |os: &mut Os| {
        let sender = async move |os: &mut Os| {
            let device = os.attach(ours).await?;
            device.send_all(os, &[1; 1 << 20]).await
        };
        let sender = os.spawn("sender", sender).await?;
        let is_ready = async |os: &mut Os| {
            let tasks = os.tasks().await;
            let sender = tasks.iter().find(|task| task.tid == sender).unwrap();
            sender.state == TaskState::Ready
        };
        while is_ready(os).await {
            os.yield_now().await;
        }
        let error = theirs.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::WouldBlock,
            "all that was sent is read"
        );
        while !is_ready(os).await {
            os.yield_now().await;
        }
        os.kill(sender).await;
        assert_eq!(os.wait(sender).await, Ok(Exit::Killed));
        Ok::<_, Errno>(())
    });
    let sender = about(&log, 2);
    let woken = sender.iter().position(|line| line.starts_with("woken"));
    assert!(!sender[woken.unwrap()..].contains(&"resumed".into()));
    kernel.audit();
}

#[test]
fn an_injection_that_does_nothing_changes_nothing() {
    let run = |builder| {
        let (mut kernel, log) = logged(builder);
        run_main(&mut kernel, async |os: &mut Os| {
            let queue = Queue::bounded(os, 1).await;
            let theirs = queue.clone();
            let putter = async move |os: &mut Os| {
                for n in 0..3 {
                    theirs.put(os, n).await.unwrap();
                    let cut = os.timeout(SECOND, async |os| os.sleep(9 * SECOND).await);
                    assert!(cut.await.is_err());
                }
            };
            os.spawn_detached("putter", putter).await.unwrap();
            for _ in 0..3 {
                let n = queue.get(os).await.unwrap();
                writeln!(os, "{n}");
                os.sleep(SECOND * n).await;
            }
        });
        log.lines()
    };
    assert_eq!(run(sim()), run(sim().inject(counting().1)));
}

// ---- the log

#[test]
fn the_log_shows_what_is_injected() {
    let injection = |task: Tid, call: SystemCall, _: u64| match call {
        SystemCall::Listen if task == tid(1) => Some(Inject::Fail(ErrorKind::AddrInUse)),
        SystemCall::Listen => Some(Inject::Kill),
        _ => None,
    };
    let (mut kernel, log) = logged(sim().inject(injection));
    for name in ["fails", "is killed"] {
        kernel
            .spawn(name, async |os: &mut Os| {
                os.listen(([127, 0, 0, 1], 80).into()).await.map(drop)
            })
            .unwrap();
    }
    kernel.run().unwrap();
    assert_eq!(
        about(&log, 1)[2..],
        [
            "trapped listen(127.0.0.1:80)",
            "injected address in use",
            "replied address in use",
            "resumed",
            "exited failed: cannot listen on 127.0.0.1:80: address in use; choose another port, or 0 \
             for a free one",
            "reaped"
        ]
    );
    assert_eq!(
        about(&log, 2)[2..],
        [
            "trapped listen(127.0.0.1:80)",
            "injected a kill",
            "exited killed",
            "reaped"
        ]
    );
}
