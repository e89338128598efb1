//! Kernels side by side.

use std::{
    cell::Cell,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use trapline::{
    Error, Event, Kernel, KernelId, Kernels, ListenOptions, Os, RealWorld, Remote, Report,
    SharedPorts, World,
    record::Header,
    tape::{Playing, Taping},
};

use crate::support::Scratch;

/// Longer than any test takes.
const FOREVER: Duration = Duration::from_secs(3600);

fn with(program: impl AsyncFnOnce(&mut Os) + 'static) -> Result<Kernel, Error> {
    let mut kernel = Kernel::real()?;
    kernel.spawn("main", program)?;
    Ok(kernel)
}

fn well(results: Vec<Result<Report, Error>>) {
    for result in results {
        result.unwrap().check().unwrap();
    }
}

#[test]
fn each_kernel_has_a_thread_and_a_number_and_they_run_at_once() {
    // No kernel alone passes the barrier.
    let (all, seen) = (Arc::new(Barrier::new(3)), Arc::new(AtomicUsize::new(0)));
    let main = thread::current().id();
    let kernels = Kernels::new(3);
    assert_eq!(kernels.count(), 3);
    well(kernels.run(move |id| {
        let (all, seen) = (Arc::clone(&all), Arc::clone(&seen));
        let here = thread::current().id();
        assert_ne!(here, main);
        with(async move |os: &mut Os| {
            assert_eq!(os.kernel(), id);
            let number = u64::from(id);
            assert_eq!(number, id.index() as u64 + 1);
            all.wait();
            seen.fetch_add(1 << (8 * id.index()), Ordering::Relaxed);
            all.wait();
            assert_eq!(seen.load(Ordering::Relaxed), 0x01_01_01);
            assert_eq!(thread::current().id(), here);
        })
    }));
}

#[test]
fn no_kernel_counts_as_one_and_a_kernel_alone_is_the_first() {
    well(Kernels::new(0).run(|id| {
        assert_eq!(id, KernelId::at(0));
        with(async move |os: &mut Os| assert_eq!(os.kernel(), id))
    }));
    assert!(Kernels::available() >= 1);
    let mut kernel = Kernel::simulated(1);
    kernel.reset(2).unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            assert_eq!(os.kernel(), KernelId::default());
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn a_kernel_that_fails_ends_the_others_with_its_error() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let results = Kernels::new(3).run(move |id| {
        let count = Arc::clone(&count);
        if id.index() == 1 {
            // Nothing can wake it.
            let mut kernel = Kernel::simulated(1);
            kernel.spawn("stuck", async |os: &mut Os| {
                os.wait(os.running()).await.map(drop)
            })?;
            kernel.spawn("stuck, too", async |os: &mut Os| {
                let _ = trapline::Queue::<()>::bounded(os, 1).await.get(os).await;
            })?;
            return Ok(kernel);
        }
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let counts = Counts(count);
        with(async move |os: &mut Os| {
            let _counts = counts;
            os.sleep(FOREVER).await;
        })
    });
    assert!(matches!(results[1], Err(Error::Deadlock(_))), "{results:?}");
    for other in [&results[0], &results[2]] {
        let Err(error @ Error::Peer { kernel, .. }) = other else {
            panic!("{other:?}");
        };
        assert_eq!(*kernel, KernelId::at(1));
        let text = error.to_string();
        assert!(text.starts_with("kernel 2 has failed: deadlock"), "{text}");
    }
    // The destructors of the tasks have run.
    assert_eq!(ended.load(Ordering::Relaxed), 2);
}

#[test]
fn one_that_cannot_boot_ends_the_others_and_one_that_has_ended_keeps_its_report() {
    let first_is_done = Arc::new(Barrier::new(2));
    let results = Kernels::new(3).run(move |id| match id.index() {
        0 => {
            struct Tells(Arc<Barrier>);
            impl Drop for Tells {
                fn drop(&mut self) {
                    self.0.wait();
                }
            }
            // Dropped with the kernel, which is after its end.
            let tells = Tells(Arc::clone(&first_is_done));
            let tracer = move |_: &Event<'_>| _ = &tells;
            let mut kernel = Kernel::builder().tracer(tracer).build()?;
            kernel.spawn("short", async |_: &mut Os| ())?;
            Ok(kernel)
        }
        1 => {
            first_is_done.wait();
            Err(io::Error::other("no luck").into())
        }
        _ => with(async |os: &mut Os| os.sleep(FOREVER).await),
    });
    assert!(results[0].is_ok(), "{results:?}");
    assert!(matches!(&results[1], Err(Error::Io(why)) if why.to_string() == "no luck"));
    assert!(matches!(results[2], Err(Error::Peer { .. })), "{results:?}");
}

#[test]
fn a_panic_of_the_boot_goes_on_when_the_others_have_ended() {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        Kernels::new(2).run(|id| match id.index() {
            0 => panic!("broken boot"),
            _ => with(async |os: &mut Os| os.sleep(FOREVER).await),
        })
    }));
    let panic = ran.unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"broken boot"));
}

#[test]
fn the_boot_is_dropped_when_all_have_booted() {
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    well(Kernels::new(2).run(move |_| {
        let (_held, weak) = (&held, weak.clone());
        with(async move |os: &mut Os| {
            while weak.upgrade().is_some() {
                os.sleep(Duration::from_millis(1)).await;
            }
        })
    }));
}

#[test]
#[cfg(target_os = "linux")]
fn each_thread_is_pinned_to_a_core_of_its_own_and_blocking_work_is_not() {
    fn cores() -> usize {
        thread::available_parallelism().unwrap().get()
    }
    let all = cores();
    if all < 2 {
        return;
    }
    let pinned = |kernels: Kernels, expected| {
        well(kernels.run(move |_| {
            with(async move |os: &mut Os| {
                assert_eq!(cores(), expected);
                assert_eq!(os.run_blocking(cores).await, Ok(all));
            })
        }));
    };
    pinned(Kernels::new(2), 1);
    pinned(Kernels::new(2).unpinned(), all);
    // Alone, or more than there are cores: the system decides.
    pinned(Kernels::new(1), all);
    pinned(Kernels::new(all + 1), all);
    assert_eq!(cores(), all);
}

#[test]
fn kernels_with_shared_ports_serve_one_address_and_each_gets_connections() {
    const CLIENTS: usize = 64;
    let (tell, told) = mpsc::channel();
    let clients = thread::spawn(move || {
        let of_each: [(Vec<SocketAddr>, Remote); 2] = [told.recv().unwrap(), told.recv().unwrap()];
        let [(addrs, _), (others, _)] = &of_each;
        assert_eq!(addrs, others);
        // Two addresses for the two times that each has asked for a free port.
        assert_ne!(addrs[0], addrs[1]);
        let mut served = [0; 2];
        for addr in addrs {
            for _ in 0..CLIENTS {
                let mut client = TcpStream::connect(addr).unwrap();
                client.write_all(b"x").unwrap();
                let mut id = [0];
                client.read_exact(&mut id).unwrap();
                served[usize::from(id[0]) - 1] += 1;
            }
        }
        of_each.iter().for_each(|(_, remote)| remote.shutdown());
        served
    });
    let ports = SharedPorts::new();
    well(Kernels::new(2).run(move |_| {
        let world = RealWorld::new()?.share_ports(&ports);
        let mut kernel = Kernel::builder().world(world).build()?;
        let (tell, remote) = (tell.clone(), kernel.remote());
        kernel.spawn("server", async move |os: &mut Os| {
            let mut addrs = Vec::new();
            for _ in 0..2 {
                let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
                addrs.push(listener.local_addr()?);
                os.spawn("accepts", async move |os: &mut Os| {
                    loop {
                        let (stream, _) = listener.accept(os).await?;
                        stream.recv(os, &mut [0]).await?;
                        let id = u64::from(os.kernel()) as u8;
                        stream.send_all(os, &[id]).await?;
                    }
                    #[expect(unreachable_code)]
                    io::Result::Ok(())
                })
                .await?;
            }
            let _ = tell.send((addrs, remote));
            io::Result::Ok(())
        })?;
        Ok(kernel)
    }));
    let served = clients.join().unwrap();
    assert_eq!(served.iter().sum::<usize>(), 2 * CLIENTS);
    assert!(served.iter().all(|served| *served > 0), "{served:?}");
}

#[test]
fn a_port_of_another_socket_is_in_use_although_that_socket_shares_it() {
    let options = ListenOptions::new().reuse_port(true);
    let mut other = Kernel::real().unwrap();
    let addr = Rc::new(Cell::new(None));
    let found = Rc::clone(&addr);
    other
        .spawn("listens", async move |os: &mut Os| {
            let listener = os.listen_with(([127, 0, 0, 1], 0).into(), options).await?;
            found.set(Some(listener.local_addr()?));
            os.sleep(FOREVER).await;
            io::Result::Ok(())
        })
        .unwrap();
    while addr.get().is_none() {
        other.step().unwrap();
    }
    let addr = addr.get().unwrap();
    let ports = SharedPorts::new();
    well(Kernels::new(2).run(move |_| {
        let world = RealWorld::new()?.share_ports(&ports);
        let mut kernel = Kernel::builder().world(world).build()?;
        kernel.spawn("too late", async move |os: &mut Os| {
            let refused = os.listen(addr).await.map(drop).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        })?;
        Ok(kernel)
    }));
}

#[test]
fn a_port_that_was_free_for_all_kernels_is_known_by_its_number() {
    let ports = SharedPorts::new();
    let kernel = || {
        let world = RealWorld::new().unwrap().share_ports(&ports);
        Kernel::builder().world(world).build().unwrap()
    };
    let any = ([127, 0, 0, 1], 0).into();
    let mut other = kernel();
    let bound = Rc::new(Cell::new(None));
    let found = Rc::clone(&bound);
    other
        .spawn("listens", async move |os: &mut Os| {
            let listener = os.listen(any).await?;
            found.set(Some(listener.local_addr()?));
            os.sleep(FOREVER).await;
            io::Result::Ok(())
        })
        .unwrap();
    while bound.get().is_none() {
        other.step().unwrap();
    }
    let mut again = kernel();
    again
        .spawn("again", async move |os: &mut Os| {
            let addr = os.listen(any).await?.local_addr()?;
            assert_eq!(Some(addr), bound.get());
            os.yield_now().await;
            os.listen(addr).await.map(drop)
        })
        .unwrap();
    again.run().unwrap().check().unwrap();
}

/// Listens twice on one port. Returns what the kernel says of that.
async fn twice(os: &mut Os) -> io::Result<[String; 2]> {
    let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
    let addr = listener.local_addr()?;
    let any = SocketAddr::from(([0, 0, 0, 0], addr.port()));
    let mut said = [addr, any].map(|_| String::new());
    for (said, addr) in said.iter_mut().zip([addr, any]) {
        let refused = os.listen(addr).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        *said = refused
            .to_string()
            .replace(&addr.port().to_string(), "PORT");
    }
    // Both have to share the port, not the second one alone.
    let shared = ListenOptions::new().reuse_port(true);
    let refused = os.listen_with(addr, shared).await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    // The port is free when the listener is gone.
    drop(listener);
    os.yield_now().await;
    let one = os.listen_with(addr, shared).await?;
    drop(os.listen_with(addr, shared).await?);
    os.yield_now().await;
    // The first of two is still there.
    let refused = os.listen(addr).await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    drop(one);
    os.yield_now().await;
    os.listen(addr).await.map(drop)?;
    Ok(said)
}

#[test]
fn a_kernel_listens_once_on_a_port_that_it_shares_with_others() {
    type Said = std::sync::Mutex<std::collections::BTreeSet<[String; 2]>>;
    let said = Arc::new(Said::default());
    let says = |kernel: &mut Kernel, said: &Arc<Said>| {
        let said = Arc::clone(said);
        let program = async move |os: &mut Os| {
            let twice = twice(os).await?;
            said.lock().unwrap().insert(twice);
            io::Result::Ok(())
        };
        kernel.spawn("listens", program).map(drop)
    };
    let mut alone = Kernel::real().unwrap();
    says(&mut alone, &said).unwrap();
    alone.run().unwrap().check().unwrap();
    let (ports, all) = (SharedPorts::new(), Arc::clone(&said));
    well(Kernels::new(2).run(move |_| {
        let world = RealWorld::new()?.share_ports(&ports);
        let mut kernel = Kernel::builder().world(world).build()?;
        says(&mut kernel, &all)?;
        Ok(kernel)
    }));
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
}

/// The first kernel reaches its limit, and the other one ticks without end. Threads of a replay take other times.
fn limited(
    id: KernelId,
    world: impl World + 'static,
    tells: Option<mpsc::Sender<()>>,
) -> Result<Kernel, Error> {
    // Dropped with the kernel, which is after its end.
    let tracer = move |_: &Event<'_>| _ = &tells;
    let builder = Kernel::builder().world(world).tracer(tracer);
    let mut kernel = match id.index() {
        0 => builder.max_ticks(40).build()?,
        _ => builder.build()?,
    };
    kernel.spawn("ticks", async |os: &mut Os| {
        loop {
            os.sleep(Duration::from_millis(1)).await;
        }
    })?;
    Ok(kernel)
}

#[test]
fn a_replay_of_kernels_plays_each_tape_to_its_own_end_in_any_order() {
    let files: [Scratch; 2] = ["one", "two"].map(|name| Scratch::new(&format!("limited-{name}")));
    let results = Kernels::new(2).run(|id| {
        let file = &files[id.index()].0;
        let world = Taping::create(RealWorld::new()?, file, &Header::default(), None)?;
        limited(id, world, None)
    });
    assert!(matches!(results[0], Err(Error::Limit(..))), "{results:?}");
    assert!(matches!(results[1], Err(Error::Peer { .. })), "{results:?}");
    let tapes = files.map(|file| file.bytes());
    let mut seen = Vec::new();
    for turn in 0..20 {
        // One of them begins when the other one is over, or both at once.
        let (over, is_over) = mpsc::channel::<()>();
        let (over, is_over) = (
            std::sync::Mutex::new(Some(over)),
            std::sync::Mutex::new(is_over),
        );
        let results = Kernels::new(2).run(|id| {
            let world = Playing::from_reader(io::Cursor::new(tapes[id.index()].clone()));
            let is_first = id.index() == turn % 3;
            let tells = is_first.then(|| over.lock().unwrap().take()).flatten();
            if !is_first && turn % 3 < 2 {
                let _ = is_over.lock().unwrap().recv();
            }
            limited(id, world.map_err(io::Error::other)?, tells)
        });
        let told = results.iter().map(|result| match result {
            Ok(report) => format!("ended: {} ticks, {:?}", report.ticks, report.elapsed),
            Err(error) => error.to_string(),
        });
        seen.push(told.collect::<Vec<String>>());
    }
    starts(
        &seen[0][0],
        "the limit of 40 ticks is reached\n  tid 1:1 \"ticks\" waits for",
    );
    starts(&seen[0][1], "ended: ");
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:#?}");
}

fn starts(text: &str, start: &str) {
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn the_error_of_a_kernel_names_its_tasks_with_its_number_and_that_of_one_alone_does_not() {
    for (kernels, expected) in [(2, "tid 1:1 \"main\" waits"), (1, "tid 1 \"main\" waits")] {
        let results = Kernels::new(kernels).run(|id| match id.index() {
            0 => with(async |os: &mut Os| {
                let _ = trapline::Queue::<()>::bounded(os, 1).await.get(os).await;
            }),
            _ => with(async |os: &mut Os| os.sleep(FOREVER).await),
        });
        let text = results[0].as_ref().unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}
