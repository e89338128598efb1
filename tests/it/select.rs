use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use trapline::{
    Elapsed, Errno, Error, Exit, Kernel, Os, Promise, Queue, Shared, Source, TryGetError,
    sync::Flag,
};

const S: fn(u64) -> Duration = Duration::from_secs;

fn done(kernel: &mut Kernel) {
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn s71_answers_the_lowest_index_and_consumes_nothing() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let (a, b) = (
                Queue::<u8>::bounded(os, 1).await,
                Queue::<u8>::bounded(os, 1).await,
            );
            b.put(os, 2).await.unwrap();
            assert_eq!(
                os.select(&[Source::message(&a), Source::message(&b)]).await,
                1
            );
            assert_eq!(
                os.select(&[Source::message(&b), Source::message(&a)]).await,
                0
            );
            a.put(os, 1).await.unwrap();
            assert_eq!(
                os.select(&[Source::message(&a), Source::message(&b)]).await,
                0
            );
            assert_eq!(
                os.select_from(1, &[Source::message(&a), Source::message(&b)])
                    .await,
                1
            );
            assert_eq!((a.len(), b.len()), (1, 1));
            assert_eq!(os.select(&[Source::room(&a), Source::after(S(1))]).await, 1);
            assert_eq!(os.now().await, S(1));
            a.get(os).await.unwrap();
            assert_eq!(os.select(&[Source::room(&a)]).await, 0);
            a.close(os).await;
            assert_eq!(os.select(&[Source::message(&a)]).await, 0);
            assert_eq!(os.select(&[Source::exit(77.into())]).await, 0);
        })
        .unwrap();
    done(&mut kernel);
}

#[test]
fn s71_wakes_for_each_kind_of_source() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let q = Queue::<u8>::bounded(os, 1).await;
            let full = Queue::<u8>::bounded(os, 1).await;
            full.put(os, 0).await.unwrap();
            let flag = Flag::new(os).await;
            let (setter, promise) = Promise::<u8>::new(os).await;
            let child = os
                .spawn("child", async |os: &mut Os| {
                    os.sleep(S(5)).await;
                })
                .await
                .unwrap();
            let (q2, full2, flag2) = (q.clone(), full.clone(), flag.clone());
            os.spawn("driver", async move |os: &mut Os| {
                os.sleep(S(1)).await;
                q2.put(os, 1).await.unwrap();
                os.sleep(S(1)).await;
                full2.get(os).await.unwrap();
                os.sleep(S(1)).await;
                flag2.set(os).await;
                os.sleep(S(1)).await;
                setter.set(os, 9).await.unwrap();
            })
            .await
            .unwrap();
            macro_rules! all {
                () => {
                    [
                        Source::message(&q),
                        Source::room(&full),
                        Source::flag(&flag),
                        Source::promise(&promise),
                        Source::exit(child),
                        Source::after(S(100)),
                    ]
                };
            }
            let mut seen = Vec::new();
            let mut off = [false; 6];
            for _ in 0..5 {
                let sources: Vec<(usize, Source)> = all!()
                    .into_iter()
                    .enumerate()
                    .filter(|(i, _)| !off[*i])
                    .collect();
                let only: Vec<Source> = sources.iter().map(|(_, s)| *s).collect();
                let index = sources[os.select(&only).await].0;
                off[index] = true;
                seen.push((index, os.now().await.as_secs()));
            }
            assert_eq!(seen, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
            assert_eq!(os.wait(child).await, Ok(Exit::Done)); // a select leaves the zombie
        })
        .unwrap();
    done(&mut kernel);
}

#[test]
fn s71_kill_and_timeout_leave_every_list() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let q = Queue::<u8>::bounded(os, 1).await;
            let target = os
                .spawn("target", async |os: &mut Os| {
                    os.sleep(S(50)).await;
                })
                .await
                .unwrap();
            let (q2, q3) = (q.clone(), q.clone());
            let victim = os
                .spawn("victim", async move |os: &mut Os| {
                    os.select(&[
                        Source::message(&q2),
                        Source::message(&q2),
                        Source::exit(target),
                        Source::after(S(9)),
                        Source::after(S(20)),
                    ])
                    .await;
                })
                .await
                .unwrap();
            os.sleep(S(1)).await;
            assert!(os.kill(victim).await);
            let cut = os
                .timeout(S(2), async |os| {
                    os.select(&[
                        Source::message(&q3),
                        Source::exit(target),
                        Source::after(S(9)),
                    ])
                    .await
                })
                .await;
            assert_eq!(cut, Err(Elapsed));
            assert_eq!(os.now().await, S(3));
            q.put(os, 3).await.unwrap();
            assert_eq!(q.try_get(os).await, Ok(3));
            assert_eq!(q.try_get(os).await, Err(TryGetError::Empty));
            // a due timeout lets the answer through if the source is ready (S57)
            q.put(os, 4).await.unwrap();
            assert_eq!(
                os.timeout(Duration::ZERO, async |os| os
                    .select(&[Source::message(&q)])
                    .await)
                    .await,
                Ok(0)
            );
            q.get(os).await.unwrap();
            assert_eq!(
                os.timeout(Duration::ZERO, async |os| os
                    .select(&[Source::message(&q)])
                    .await)
                    .await,
                Err(Elapsed)
            );
            os.kill(target).await;
        })
        .unwrap();
    done(&mut kernel);
}

#[test]
fn s71_the_next_call_finds_what_select_promised() {
    // ten consumers select and get; one thief gets. Nobody who was promised a message blocks.
    for seed in 0..50 {
        let mut kernel = Kernel::builder()
            .world(trapline::SimWorld::new(seed))
            .policy(trapline::sched::Random::new(seed))
            .build()
            .unwrap();
        let got = Rc::new(Cell::new(0));
        let total = Rc::clone(&got);
        kernel
            .spawn("main", async move |os: &mut Os| {
                let q = Queue::<u8>::bounded(os, 2).await;
                let stop = Flag::new(os).await;
                let mut tids = Vec::new();
                for _ in 0..10 {
                    let (q, stop, got) = (q.clone(), stop.clone(), Rc::clone(&got));
                    tids.push(
                        os.spawn("consumer", async move |os: &mut Os| {
                            loop {
                                match os.select(&[Source::message(&q), Source::flag(&stop)]).await {
                                    0 => match q.try_get(os).await {
                                        Ok(_) => got.set(got.get() + 1),
                                        Err(TryGetError::Closed) => return,
                                        Err(TryGetError::Empty) => panic!("the promise was broken"),
                                    },
                                    _ => return,
                                }
                            }
                        })
                        .await
                        .unwrap(),
                    );
                }
                let (q4, got4) = (q.clone(), Rc::clone(&got));
                os.spawn_detached("thief", async move |os: &mut Os| {
                    while q4.get(os).await.is_ok() {
                        got4.set(got4.get() + 1);
                    }
                })
                .await
                .unwrap();
                for n in 0..100 {
                    q.put(os, n).await.unwrap();
                }
                q.close(os).await;
                for tid in tids {
                    assert_eq!(os.wait(tid).await, Ok(Exit::Done));
                }
            })
            .unwrap();
        done(&mut kernel);
        assert_eq!(total.get(), 100);
    }
}

#[test]
fn s71_a_rendezvous_with_selects_and_devices() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let r = Queue::<u8>::bounded(os, 0).await;
            let r2 = r.clone();
            os.spawn("putter", async move |os: &mut Os| {
                os.sleep(S(1)).await;
                r2.put(os, 1).await.unwrap();
            })
            .await
            .unwrap();
            assert_eq!(
                os.select(&[Source::message(&r), Source::after(S(9))]).await,
                0
            );
            assert_eq!(r.get(os).await, Ok(1));
            let listener = os.listen("127.0.0.1:80".parse().unwrap()).await?;
            os.spawn("client", async |os: &mut Os| {
                let c = os.connect(("127.0.0.1", 80)).await?;
                os.sleep(S(1)).await;
                c.send_all(os, b"hi").await?;
                std::io::Result::Ok(())
            })
            .await
            .unwrap();
            assert_eq!(
                os.select(&[
                    Source::message(&r),
                    Source::readable(&listener),
                    Source::after(S(9))
                ])
                .await,
                1
            );
            let (c, _) = listener.accept(os).await?;
            assert_eq!(
                os.select(&[Source::readable(&c), Source::writable(&c)])
                    .await,
                1
            );
            assert_eq!(
                os.select(&[Source::readable(&c), Source::after(S(9))])
                    .await,
                0
            );
            let mut buf = [0; 8];
            assert_eq!(c.recv(os, &mut buf).await?, 2);
            // a second task on the same direction: ready, and the call says why
            let c2 = c.clone();
            let other = os
                .spawn("other", async move |os: &mut Os| {
                    os.select(&[Source::readable(&c2), Source::after(S(3))])
                        .await;
                })
                .await
                .unwrap();
            let _ = other;
            std::io::Result::Ok(())
        })
        .unwrap();
    done(&mut kernel);
}

#[test]
fn s71_a_deadlock_names_the_sources() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let q = Queue::<u8>::named(os, "orders", 1).await;
            let p = Queue::<u8>::bounded(os, 1).await;
            os.select(&[Source::message(&q), Source::message(&p)]).await;
        })
        .unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!()
    };
    let text = deadlock.to_string();
    println!("{text}");
    assert!(
        text.contains("the first of: message 1 \"orders\"; message 2"),
        "{text}"
    );
}

#[test]
fn s71_search_finds_the_order_of_two_sources() {
    let program = |kernel: &mut Kernel| -> Result<(), Error> {
        let first = Shared::new(9);
        let seen = first.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let (a, b) = (
                Queue::<u8>::bounded(os, 1).await,
                Queue::<u8>::bounded(os, 1).await,
            );
            let (a2, b2) = (a.clone(), b.clone());
            os.spawn("a", async move |os: &mut Os| {
                a2.put(os, 1).await.unwrap();
            })
            .await
            .unwrap();
            os.spawn("b", async move |os: &mut Os| {
                b2.put(os, 1).await.unwrap();
            })
            .await
            .unwrap();
            let i = os.select(&[Source::message(&a), Source::message(&b)]).await;
            seen.set(i);
            let (x, y) = if i == 0 { (&a, &b) } else { (&b, &a) };
            x.get(os).await.unwrap();
            y.get(os).await.unwrap();
        })?;
        kernel.run()?.check()?;
        kernel.outcome(format!("{}", first.get()));
        Ok(())
    };
    let all = trapline::check(program).exhaustive().explore();
    println!("{all:?}");
    assert!(all.complete);
    assert_eq!(all.outcomes.into_iter().collect::<Vec<_>>(), ["0", "1"]);
    // brute force says the same
    let random = trapline::check(program).random().schedules(300).explore();
    assert_eq!(random.outcomes.into_iter().collect::<Vec<_>>(), ["0", "1"]);
}

#[test]
fn s71_search_select_and_kill_lose_nothing() {
    let all = trapline::check(|kernel: &mut Kernel| -> Result<(), Error> {
        let got = Shared::new(0u32);
        let sum = got.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let q = Queue::<u32>::bounded(os, 4).await;
            let (q1, g1) = (q.clone(), got.clone());
            let victim = os
                .spawn("victim", async move |os: &mut Os| {
                    if os
                        .select(&[Source::message(&q1), Source::after(S(1))])
                        .await
                        == 0
                    {
                        if let Ok(n) = q1.try_get(os).await {
                            g1.update(|g| *g += n);
                        }
                    }
                })
                .await?;
            let q2 = q.clone();
            os.spawn("putter", async move |os: &mut Os| {
                q2.put(os, 1).await.unwrap();
                q2.put(os, 2).await.unwrap();
            })
            .await?;
            os.kill(victim).await;
            let mut left = 0;
            let l = os.select(&[Source::message(&q)]).await;
            assert_eq!(l, 0);
            while left + got.get() < 3 {
                left += q.get(os).await.unwrap();
            }
            os.outcome_like();
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()?;
        kernel.outcome(format!("victim got {}", sum.get()));
        Ok(())
    })
    .exhaustive()
    .explore();
    println!("{all:?}");
    assert!(all.failure.is_none());
    assert!(all.complete);
}

trait Nothing {
    fn outcome_like(&self) {}
}
impl Nothing for Os {}

#[test]
fn s71_determinism_of_traces() {
    let run = || {
        let mut kernel = Kernel::builder()
            .world(trapline::SimWorld::new(4))
            .policy(trapline::sched::Random::new(4))
            .build()
            .unwrap();
        let log = Rc::new(RefCell::new(String::new()));
        struct T(Rc<RefCell<String>>);
        impl trapline::Tracer for T {
            fn event(&mut self, e: &trapline::Event<'_>) {
                use std::fmt::Write;
                let _ = writeln!(self.0.borrow_mut(), "{e}");
            }
        }
        kernel
            .spawn("main", {
                let log = Rc::clone(&log);
                async move |os: &mut Os| {
                    let observer = os.observe(T(log));
                    let q = Queue::<u8>::named(os, "orders", 1).await;
                    let q2 = q.clone();
                    os.spawn("p", async move |os: &mut Os| {
                        os.sleep(S(1)).await;
                        q2.put(os, 1).await.unwrap();
                    })
                    .await
                    .unwrap();
                    os.select(&[Source::message(&q), Source::after(S(5))]).await;
                    q.get(os).await.unwrap();
                    drop(observer);
                }
            })
            .unwrap();
        done(&mut kernel);
        log.take()
    };
    let one = run();
    println!("{one}");
    assert_eq!(one, run());
    assert!(one.contains("select(message 1, after 5s) = 0"), "{one}");
}

#[test]
fn s46_a_select_is_on_a_cycle_only_if_no_source_leads_out() {
    use trapline::{OnDeadlock, SimWorld, sync::Mutex};
    let run = |has_way_out: bool| {
        let builder = Kernel::builder().world(SimWorld::new(1));
        let mut kernel = builder.on_deadlock(OnDeadlock::Stop).build().unwrap();
        kernel
            .spawn("main", async move |os: &mut Os| {
                let (a, b) = (
                    Mutex::named(os, "a", ()).await,
                    Mutex::named(os, "b", ()).await,
                );
                let other = Queue::<u8>::bounded(os, 1).await;
                let (a2, b2) = (a.clone(), b.clone());
                let first = os
                    .spawn("first", async move |os: &mut Os| {
                        let _held = a2.lock(os).await;
                        os.sleep(S(1)).await;
                        let _ = b2.lock(os).await;
                    })
                    .await
                    .unwrap();
                os.spawn("second", async move |os: &mut Os| {
                    let _held = b.lock(os).await;
                    os.sleep(S(2)).await;
                    let mut sources = vec![Source::lock(&a), Source::exit(first)];
                    if has_way_out {
                        sources.push(Source::message(&other));
                    }
                    os.select(&sources).await;
                })
                .await
                .unwrap();
                os.sleep(S(9)).await;
            })
            .unwrap();
        kernel.run()
    };
    let Err(Error::Deadlock(deadlock)) = run(false) else {
        panic!()
    };
    assert_eq!(deadlock.cycles, [[2, 3].map(From::from)]);
    let text = deadlock.to_string();
    assert!(
        text.contains("waits for the first of: lock 1 \"a\", held by task 2; exit 2"),
        "{text}"
    );
    let Err(Error::Deadlock(deadlock)) = run(true) else {
        panic!()
    };
    assert!(
        !deadlock.is_partial && deadlock.cycles.is_empty(),
        "{deadlock}"
    );
}
