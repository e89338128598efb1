//! The boundary of the world: what comes out of a wait, requests and answers, and wrappers.

use std::{
    cell::Cell,
    fs::File,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use trapline::{
    Answer, DeviceId, Direction, Elapsed, Error, Happening, HostId, Interrupt, Kernel,
    ListenOptions, Os, Promise, RealWorld, Request, SimWorld, StreamOptions, TaskState, World,
    forward_world,
};

use crate::{
    support::{Diary, run_main, unplaced},
    worlds::Bells,
};

const SECOND: Duration = Duration::from_secs(1);

const LOCALHOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

// ---- wrappers

/// The simulated world, except that a function answers the requests.
struct Answering<F> {
    sim: SimWorld,
    is_idle: bool,
    answer: F,
}

impl<F: FnMut(DeviceId, Request<'_>) -> io::Result<Answer>> World for Answering<F> {
    forward_world!(sim: now, random, reseed, seed, print, take_console, remote, wait);

    fn is_idle(&self) -> bool {
        self.is_idle
    }
    fn io(&mut self, device: DeviceId, request: Request<'_>) -> io::Result<Answer> {
        (self.answer)(device, request)
    }
}

/// A kernel in the simulated world, with devices that a function answers for.
fn answering(
    is_idle: bool,
    answer: impl FnMut(DeviceId, Request<'_>) -> io::Result<Answer> + 'static,
) -> Kernel {
    let sim = SimWorld::new(1);
    let world = Answering {
        sim,
        is_idle,
        answer,
    };
    Kernel::builder().world(world).build().unwrap()
}

// ---- what comes out of a wait

#[test]
fn an_interrupt_comes_out_of_the_wait_and_happens_before_its_deadline() {
    let shutdown = [Happening::Interrupt(Interrupt::Shutdown)];
    let mut sim = SimWorld::new(1);
    let mut real = RealWorld::new().unwrap();
    let worlds: [&mut dyn World; 2] = [&mut sim, &mut real];
    for world in worlds {
        let far = Some(Duration::from_secs(3600));
        let mut happened = Vec::new();
        world.remote().shutdown();
        world.wait(far, &mut happened).unwrap();
        assert_eq!(happened, shutdown);
        assert!(world.now() < SECOND);
        // It happens once.
        let soon = world.now() + Duration::from_millis(1);
        while world.now() < soon {
            world.wait(Some(soon), &mut happened).unwrap();
        }
        assert_eq!(happened, shutdown);

        let remote = world.remote();
        let thread = std::thread::spawn(move || remote.shutdown());
        while happened.len() < 2 {
            world.wait(None, &mut happened).unwrap();
        }
        thread.join().unwrap();
        assert_eq!(happened, [shutdown, shutdown].concat());
    }
}

#[test]
fn the_interrupts_of_a_thread_keep_their_order() {
    let mut kernel = Kernel::simulated(1);
    run_main(&mut kernel, async |os: &mut Os| {
        // Each thread is over when it has set its promise: neither is a deadlock.
        for n in 0..50 {
            let (setter, promise) = Promise::<u32>::new(os).await;
            let setter = setter.remote();
            let thread = std::thread::spawn(move || setter.set(n));
            assert_eq!(promise.wait(os).await, Ok(n));
            thread.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_shutdown_that_is_raised_before_a_deadlock_is_found_comes_first() {
    let mut kernel = Kernel::simulated(1);
    let remote = kernel.remote();
    kernel
        .spawn("main", async move |os: &mut Os| {
            remote.shutdown();
            os.wait(2.into()).await.map(drop)
        })
        .unwrap();
    let stuck = async |os: &mut Os| os.wait(1.into()).await.map(drop);
    kernel.spawn("stuck", stuck).unwrap();
    kernel.run().unwrap();
}

/// What a poll without a wait reports.
fn poll(world: &mut RealWorld) -> Vec<Happening> {
    let mut happened = Vec::new();
    world.wait(Some(Duration::ZERO), &mut happened).unwrap();
    happened
}

#[test]
fn the_real_world_polls_only_for_what_it_has_promised() {
    let mut world = RealWorld::new().unwrap();
    let [listener, ours, theirs] = [1, 2, 3].map(DeviceId::from_raw);
    let (host, addr) = (HostId::LOCAL, LOCALHOST);
    let options = &ListenOptions::new();
    let listen = Request::Listen {
        host,
        addr,
        options,
    };
    let addr = world.io(listener, listen).and_then(Answer::addr).unwrap();
    let options = &StreamOptions::new();
    let connect = Request::Connect {
        host,
        addr,
        options,
    };
    assert_eq!(world.io(ours, connect).unwrap(), Answer::Done);
    let mut happened = Vec::new();
    let mut accept = || {
        let connection = theirs;
        world.io(listener, Request::Accept { host, connection })
    };
    if accept().is_err() {
        world.wait(None, &mut happened).unwrap();
        let request = Request::Accept {
            host,
            connection: theirs,
        };
        world.io(listener, request).unwrap();
    }
    let mut buf = [0; 64];

    world.io(theirs, Request::Send(b"one")).unwrap();
    while world.io(ours, Request::Recv(&mut buf)).is_err() {
        world.wait(None, &mut happened).unwrap();
    }
    // The read was short, so the stream is known to be empty; but no report was promised.
    world.io(theirs, Request::Send(b"two")).unwrap();
    assert_eq!(poll(&mut world), []);
    let drained = world.io(ours, Request::Drained).unwrap();
    assert_eq!(drained, Answer::Ready(true));
    // Now it was: the event has waited in the poller.
    world.wait(Some(10 * SECOND), &mut happened).unwrap();
    let ready = Happening::Ready(ours, Direction::Read);
    assert_eq!(happened.last(), Some(&ready));
    assert_eq!(poll(&mut world), []);
    let read = world.io(ours, Request::Recv(&mut buf)).unwrap();
    assert_eq!((read, &buf[..3]), (Answer::Bytes(3), &b"two"[..]));

    // A device that is closed is owed nothing.
    let empty = world.io(ours, Request::Recv(&mut buf)).unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::WouldBlock);
    world.io(ours, Request::Close).unwrap();
    world.io(theirs, Request::Close).unwrap();
    assert_eq!(poll(&mut world), []);
    let gone = world.io(ours, Request::Drained).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

// ---- requests and answers

#[test]
fn a_request_that_opens_a_device_names_the_host_of_its_task() {
    let seen = Diary::default();
    let (notes, is_second) = (seen.clone(), Cell::new(false));
    let mut kernel = answering(false, move |device, request| {
        notes.note(match request {
            Request::Listen { host, .. } => format!("{host:?} listens as {device}"),
            Request::Connect { host, .. } => format!("{host:?} connects as {device}"),
            Request::Attach { host, .. } => format!("{host:?} attaches {device}"),
            _ => return Ok(Answer::Done),
        });
        match request {
            Request::Listen { addr, .. } if is_second.replace(true) => Ok(Answer::Addr(addr)),
            _ => Err(ErrorKind::PermissionDenied.into()),
        }
    });
    for _ in 0..2 {
        let program = async |os: &mut Os| {
            let listens = os.listen(LOCALHOST).await.is_ok();
            let refused = os.connect(LOCALHOST).await.unwrap_err().kind();
            let file = os.attach(File::open("/dev/null").unwrap()).await;
            let file = file.unwrap_err().kind();
            writeln!(os, "{listens} {refused:?} {file:?}");
        };
        kernel.spawn("asks", program).unwrap();
    }
    kernel.run().unwrap();
    let mut console: Vec<_> = kernel.take_console().lines().map(String::from).collect();
    console.sort_unstable();
    let refused = "PermissionDenied PermissionDenied";
    let expected = [format!("false {refused}"), format!("true {refused}")];
    assert_eq!(console, expected);
    let lines = seen.lines();
    for what in ["listens as 1", "connects as 2", "attaches 2"] {
        let line = format!("{:?} {what}", HostId::LOCAL);
        assert!(lines.contains(&line), "{lines:?}");
    }
}

#[test]
fn a_world_that_answers_another_question_fails_the_call_and_no_more() {
    let mut kernel = answering(false, |_, request| match request {
        Request::Recv(_) => Ok(Answer::Done),
        Request::Ready(_) | Request::Send(_) => Ok(Answer::Bytes(1)),
        _ => Ok(Answer::Ready(false)),
    });
    run_main(&mut kernel, async |os: &mut Os| {
        let error = os.connect(LOCALHOST).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let text = "the world answered Ready(false) to a request that Done belongs to";
        let text = format!("cannot connect to {LOCALHOST}: {text}");
        assert_eq!(error.to_string(), text);
        let error = os.listen(LOCALHOST).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn a_wrapper_that_fails_a_request_is_heard_by_its_task() {
    let reads = Rc::new(Cell::new(0));
    let counter = Rc::clone(&reads);
    let mut kernel = answering(false, move |_, request| match request {
        Request::Recv(buf) => {
            counter.set(counter.get() + 1);
            if counter.get() == 3 {
                return Err(ErrorKind::ConnectionReset.into());
            }
            buf[0] = b'x';
            Ok(Answer::Bytes(1))
        }
        // A world that cannot tell is asked to read.
        Request::Drained => Err(ErrorKind::Unsupported.into()),
        _ => Ok(Answer::Done),
    });
    run_main(&mut kernel, async |os: &mut Os| {
        let device = os.attach(File::open("/dev/null").unwrap()).await.unwrap();
        let mut buf = [0; 8];
        for _ in 0..2 {
            assert_eq!(device.recv(os, &mut buf).await.unwrap(), 1);
            assert_eq!(buf[0], b'x');
        }
        let error = device.recv(os, &mut buf).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
    assert_eq!(reads.get(), 3);
}

// ---- nothing will ever come

/// Devices that never deliver anything.
#[expect(clippy::needless_pass_by_value, reason = "a request is handed over")]
fn silent(_: DeviceId, request: Request<'_>) -> io::Result<Answer> {
    match request {
        Request::Recv(_) => Err(ErrorKind::WouldBlock.into()),
        Request::Ready(_) => Ok(Answer::Ready(false)),
        _ => Ok(Answer::Done),
    }
}

#[test]
fn s46_tasks_that_wait_for_devices_of_an_idle_world_are_a_deadlock() {
    let mut kernel = answering(true, silent);
    kernel
        .spawn("reader", async |os: &mut Os| {
            let device = os.attach(File::open("/dev/null")?).await?;
            os.sleep(SECOND).await;
            device.recv(os, &mut [0; 8]).await.map(drop)
        })
        .unwrap();
    kernel
        .spawn("waiter", async |os: &mut Os| {
            os.wait(1.into()).await.map(drop)
        })
        .unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("nothing can come");
    };
    assert_eq!(
        unplaced(&deadlock.to_string()),
        "deadlock: no task is ready, and nothing can make one ready\n  \
         tid 1 \"reader\" waits for device 1 (read), since 00:01.000\n  \
         tid 2 \"waiter\" waits for the end of task 1, since 00:00.000"
    );
    // The run can go on after it.
    let helper = async |os: &mut Os| assert!(os.kill(1.into()).await);
    kernel.spawn("helper", helper).unwrap();
    kernel.run().unwrap();
}

#[test]
fn s46_an_idle_world_still_has_timers_and_threads() {
    let mut kernel = answering(true, silent);
    run_main(&mut kernel, async |os: &mut Os| {
        let device = os.attach(File::open("/dev/null").unwrap()).await.unwrap();
        let cut = os.timeout(SECOND, async |os| {
            device.recv(os, &mut [0; 8]).await.map(drop)
        });
        assert!(matches!(cut.await, Err(Elapsed)));
        let reader = os.spawn("reader", async move |os| {
            device.recv(os, &mut [0; 8]).await.map(drop)
        });
        let reader = reader.await.unwrap();
        // Only a thread can wake this task.
        let (setter, promise) = Promise::<u32>::new(os).await;
        let setter = setter.remote();
        let thread = std::thread::spawn(move || setter.set(1));
        assert_eq!(promise.wait(os).await, Ok(1));
        thread.join().unwrap().unwrap();
        assert!(os.kill(reader).await);
    });
}

#[test]
fn a_world_that_cannot_tell_is_waited_for() {
    // Its device rings while the kernel waits.
    let (bells, ringing) = Bells::new();
    assert!(!bells.is_idle());
    let mut kernel = Kernel::builder().world(bells).build().unwrap();
    kernel
        .spawn("reader", async |os: &mut Os| {
            let device = os.attach(File::open("/dev/null")?).await?;
            os.read_wait(&device).await.map_err(io::Error::from)
        })
        .unwrap();
    while kernel.tasks().any(|task| task.state == TaskState::Ready) {
        kernel.step().unwrap();
    }
    let bell = (DeviceId::from_raw(1), Direction::Read);
    ringing.borrow_mut().push(bell);
    kernel.run().unwrap();
}
