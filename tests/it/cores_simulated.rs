//! Simulated kernels side by side, and the search over them.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use trapline::{
    Closed, Error, Event, Kernel, KernelId, Kernels, Mailbox, Os, Report, Sender, SimWorld,
    check_kernels,
    tape::{Header, Taping},
};

use crate::support::Scratch;

fn milli(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn well(results: Vec<Result<Report, Error>>) -> Result<(), Error> {
    results.into_iter().try_for_each(|result| result?.check())
}

/// Three kernels send to the first, which notes in which order their mail arrives. Returns that, and the
/// event logs of all.
fn order(seed: u64) -> (Vec<u64>, String) {
    let (taken, log) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(String::new())),
    );
    let (all, text) = (Arc::clone(&taken), Arc::clone(&log));
    let here = thread::current().id();
    let (sender, mailbox) = Mailbox::<u64>::bounded(2);
    let results = Kernels::simulated(4, seed).run(move |id| {
        assert_eq!(thread::current().id(), here);
        let lines = Arc::clone(&log);
        let tracer = move |event: &Event<'_>| *lines.lock().unwrap() += &format!("{id}: {event}\n");
        let mut kernel = Kernel::builder()
            .world(SimWorld::new(0))
            .tracer(tracer)
            .build()?;
        let (sender, mailbox) = (sender.clone(), mailbox.clone());
        if id.index() > 0 {
            kernel.spawn("sends", async move |os: &mut Os| {
                assert_eq!(os.kernel(), id);
                for n in 0..3 {
                    sender.put(os, u64::from(id) * 10 + n).await?;
                }
                // Its random numbers are its own.
                let number = os.random().await;
                writeln!(os, "{number}");
                Ok::<(), Closed<u64>>(())
            })?;
            return Ok(kernel);
        }
        drop(sender);
        let taken = Arc::clone(&taken);
        kernel.spawn("takes", async move |os: &mut Os| {
            while let Ok(message) = mailbox.get(os).await {
                taken.lock().unwrap().push(message);
            }
            assert_eq!(os.now().await, Duration::ZERO);
        })?;
        Ok(kernel)
    });
    well(results).unwrap();
    let (all, text) = (all.lock().unwrap().clone(), text.lock().unwrap().clone());
    (all, text)
}

#[test]
fn s95_the_seed_decides_in_which_order_mail_arrives_and_repeats_it() {
    let mut orders = BTreeSet::new();
    for seed in 0..40 {
        let (taken, log) = order(seed);
        assert_eq!(taken.len(), 9, "seed {seed}");
        for sender in 2..=4 {
            let own = taken.iter().filter(|message| *message / 10 == sender);
            assert!(
                own.map(|message| message % 10).eq(0..3),
                "seed {seed}: {taken:?}"
            );
        }
        assert_eq!((taken.clone(), log), order(seed), "seed {seed}");
        orders.insert(taken);
    }
    assert!(orders.len() > 20, "{} orders of 40", orders.len());
}

#[test]
fn there_is_one_clock_and_it_advances_when_all_wait() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let results = Kernels::simulated(3, 1).run(move |id| {
        let lines = Arc::clone(&lines);
        let mut kernel = Kernel::simulated(0);
        kernel.spawn("sleeps", async move |os: &mut Os| {
            for n in 1..=3 {
                os.sleep(milli(10 * u64::from(id) + n)).await;
                let now = os.now().await;
                lines.lock().unwrap().push((now, id));
            }
        })?;
        Ok(kernel)
    });
    for (index, result) in results.into_iter().enumerate() {
        let report = result.unwrap();
        report.check().unwrap();
        // Each ends at the time of its last task.
        assert_eq!(report.elapsed, milli(30 * (index as u64 + 1) + 6));
    }
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 9);
    assert!(log.is_sorted_by_key(|(now, _)| *now), "{log:?}");
}

#[test]
fn mail_arrives_at_the_time_at_which_it_is_put() {
    // The taker sleeps through its own timers, and has a network whose clock must follow.
    let (sender, mailbox) = Mailbox::<Duration>::unbounded();
    let results = Kernels::simulated(2, 3).run(move |id| {
        let (sender, mailbox) = (sender.clone(), mailbox.clone());
        let mut kernel = Kernel::simulated(0);
        if id.index() == 0 {
            kernel.spawn("sends", async move |os: &mut Os| {
                for n in [1, 5, 5, 70, 1000] {
                    os.sleep(milli(n)).await;
                    let now = os.now().await;
                    sender.put(os, now).await?;
                }
                Ok::<(), Closed<Duration>>(())
            })?;
            return Ok(kernel);
        }
        drop(sender);
        kernel.spawn("takes", async move |os: &mut Os| {
            while let Ok(sent) = mailbox.get(os).await {
                assert_eq!(os.now().await, sent);
            }
            assert_eq!(os.now().await, milli(1081));
        })?;
        kernel.spawn("ticks", async |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
            let client = async |os: &mut Os| {
                for n in 1..=20 {
                    let before = os.now().await;
                    let stream = os
                        .connect(std::net::SocketAddr::from(([127, 0, 0, 1], 80)))
                        .await?;
                    os.sleep(milli(3 * n)).await;
                    stream.send_all(os, b"x").await?;
                    assert!(os.now().await >= before + milli(3 * n));
                }
                std::io::Result::Ok(())
            };
            os.spawn_detached("client", client).await?;
            for _ in 0..20 {
                let (stream, _) = listener.accept(os).await?;
                assert_eq!(stream.recv(os, &mut [0]).await?, 1);
            }
            std::io::Result::Ok(())
        })?;
        Ok(kernel)
    });
    well(results).unwrap();
}

#[test]
fn kernels_that_wait_for_each_other_are_a_deadlock_of_all() {
    let (a, b) = (Mailbox::<u32>::named("a", 1), Mailbox::<u32>::named("b", 1));
    let results = Kernels::simulated(2, 1).run(move |id| {
        let mut kernel = Kernel::simulated(0);
        let (sender, mailbox) = match id.index() {
            0 => (a.0.clone(), b.1.clone()),
            _ => (b.0.clone(), a.1.clone()),
        };
        kernel.spawn("waits", async move |os: &mut Os| {
            let first = mailbox.get(os).await.unwrap();
            sender.put(os, first).await.unwrap();
        })?;
        Ok(kernel)
    });
    for (result, name) in results.iter().zip(["b", "a"]) {
        let Err(Error::Deadlock(deadlock)) = result else {
            panic!("{result:?}");
        };
        let text = deadlock.to_string();
        assert!(text.contains(&format!("mailbox 1 {name:?}")), "{text}");
        assert!(text.ends_with("\n  cycle: 1:1 -> 2:1 -> 1:1"), "{text}");
    }
}

#[test]
fn a_simulated_kernel_that_fails_ends_the_others() {
    // By a limit, by a deadlock of its own, and before its boot.
    for how in 0..3 {
        let results = Kernels::simulated(3, 5).run(move |id| {
            if id.index() != 1 {
                let mut kernel = Kernel::simulated(0);
                kernel.spawn("sleeps", async |os: &mut Os| {
                    os.sleep(Duration::from_secs(3600)).await;
                })?;
                return Ok(kernel);
            }
            if how == 2 {
                return Err(std::io::Error::other("no luck").into());
            }
            let mut kernel = Kernel::builder()
                .world(SimWorld::new(0))
                .max_ticks(9)
                .build()?;
            kernel.spawn("fails", async move |os: &mut Os| {
                if how == 0 {
                    loop {
                        os.yield_now().await;
                    }
                }
                let _ = trapline::Queue::<()>::bounded(os, 1).await.get(os).await;
            })?;
            Ok(kernel)
        });
        match (&results[1], how) {
            (Err(Error::Limit(..)), 0) | (Err(Error::Deadlock(_)), 1) | (Err(Error::Io(_)), 2) => {}
            other => panic!("{other:?}"),
        }
        for other in [0, 2] {
            let is_ended = matches!(&results[other], Err(Error::Peer { kernel, .. }) if *kernel == KernelId::at(1));
            assert!(is_ended, "{results:?}");
        }
    }
}

#[test]
fn a_kernel_of_the_real_world_is_refused() {
    let results = Kernels::simulated(2, 1).run(|id| match id.index() {
        0 => Ok(Kernel::simulated(0)),
        _ => Kernel::real(),
    });
    let Err(error) = &results[1] else {
        panic!("{results:?}")
    };
    assert!(
        error.to_string().contains("kernels of the simulated world"),
        "{error}"
    );
}

#[test]
fn a_kernel_on_a_tape_is_refused() {
    let tape = Scratch::new("simulated-tape");
    let results = Kernels::simulated(1, 1).run(|_| {
        let world = Taping::create(SimWorld::new(0), &tape.0, &Header::default(), None)?;
        Kernel::builder().world(world).build()
    });
    let error = results[0].as_ref().unwrap_err();
    assert!(error.to_string().contains("its seed repeats"), "{error}");
}

/// Two kernels add to a sum that a third keeps. `is_atomic` says whether it is asked for and set in one
/// message.
fn sum(kernels: &mut Kernels, is_atomic: bool) -> Result<(), Error> {
    enum Ask {
        Read(Sender<u64>),
        Set(u64),
        Add(u64),
    }
    let (sender, mailbox) = Mailbox::<Ask>::unbounded();
    let end = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&end);
    well(kernels.run(move |id| {
        let mut kernel = Kernel::simulated(0);
        let (sender, mailbox, end) = (sender.clone(), mailbox.clone(), Arc::clone(&end));
        if id.index() == 0 {
            drop(sender);
            kernel.spawn("keeps", async move |os: &mut Os| {
                let mut sum = 0;
                while let Ok(ask) = mailbox.get(os).await {
                    match ask {
                        Ask::Read(back) => back.put(os, sum).await.unwrap(),
                        Ask::Set(value) => sum = value,
                        Ask::Add(value) => sum += value,
                    }
                }
                end.store(sum, Ordering::Relaxed);
            })?;
            return Ok(kernel);
        }
        kernel.spawn("adds", async move |os: &mut Os| {
            let put = |what| async { what };
            if is_atomic {
                let ask = put(Ask::Add(1)).await;
                return drop(sender.put(os, ask).await);
            }
            let (back, answer) = Mailbox::bounded(1);
            let _ = sender.put(os, Ask::Read(back)).await;
            let sum = answer.get(os).await.unwrap();
            let _ = sender.put(os, Ask::Set(sum + 1)).await;
        })?;
        Ok(kernel)
    }))?;
    assert_eq!(sum.load(Ordering::Relaxed), 2, "an addition is lost");
    Ok(())
}

#[test]
fn a_search_finds_the_order_of_mail_that_loses_an_addition_and_none_where_there_is_none() {
    let explored = check_kernels(3, |kernels| sum(kernels, false))
        .schedules(200)
        .explore();
    let failure = explored.failure.expect("it is found");
    assert!(failure.why.contains("an addition is lost"), "{failure}");
    // The same schedule again, alone.
    let again = check_kernels(3, |kernels| sum(kernels, false))
        .replay(&failure.replay)
        .unwrap()
        .explore();
    assert_eq!(again.changed, None);
    let again = again.failure.expect("it fails again");
    assert_eq!((again.why, again.replay), (failure.why, failure.replay));
    let explored = check_kernels(3, |kernels| sum(kernels, true))
        .schedules(200)
        .explore();
    assert_eq!((explored.schedules, explored.failure), (200, None));
    assert!(!explored.proved && !explored.complete);
}

#[test]
fn a_search_has_the_tasks_of_a_kernel_in_other_orders_too() {
    let test = |kernels: &mut Kernels| {
        well(kernels.run(|_| {
            let log = Rc::new(RefCell::new(String::new()));
            let mut kernel = Kernel::simulated(0);
            for name in ["a", "b"] {
                let log = Rc::clone(&log);
                kernel.spawn(name, async move |_: &mut Os| {
                    *log.borrow_mut() += name;
                    assert_ne!(*log.borrow(), "ba");
                })?;
            }
            Ok(kernel)
        }))
    };
    let explored = check_kernels(1, test).schedules(50).explore();
    assert!(
        explored
            .failure
            .is_some_and(|failure| failure.why.contains("\"a\" faulted"))
    );
}

#[test]
#[should_panic(expected = "an addition is lost")]
fn a_search_that_runs_panics_with_its_report() {
    check_kernels(3, |kernels| sum(kernels, false))
        .schedules(200)
        .run();
}

#[test]
#[should_panic(expected = "no schedule ran")]
fn a_search_without_schedules_is_no_pass() {
    check_kernels(1, |_| Ok(())).schedules(0).run();
}
