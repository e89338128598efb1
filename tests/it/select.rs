//! Select: S70, S71 and S72.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Closed, Either2, Either3, Elapsed, Errno, Error, Event, Exit, Kernel, Ledger, OnDeadlock, Os,
    Promise, Queue, Scope, Shared, SimNet, SimWorld, Source, Tracer, TryGetError, after, check,
    sched::Random,
    sync::{Flag, Group, Mutex, Once, Semaphore},
};

use crate::support::{Youngest, logged, sim};

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Runs a program alone, to a good end.
fn alone(program: impl AsyncFnOnce(&mut Os) + 'static) {
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn s70_the_first_in_order_is_answered_and_nothing_is_taken() {
    alone(async |os: &mut Os| {
        let (a, b) = (
            Queue::<u8>::bounded(os, 1).await,
            Queue::<u8>::bounded(os, 1).await,
        );
        let both = [Source::message(&a), Source::message(&b)];
        b.put(os, 2).await.unwrap();
        assert_eq!(os.select(&both).await, 1);
        a.put(os, 1).await.unwrap();
        assert_eq!(os.select(&both).await, 0);
        assert_eq!(os.select_from(1, &both).await, 1);
        assert_eq!(os.select_from(2, &both).await, 0);
        assert_eq!((a.len(), b.len()), (1, 1));
        let full = [Source::room(&a), Source::after(second(1))];
        assert_eq!((os.select(&full).await, os.now().await), (1, second(1)));
        a.get(os).await.unwrap();
        assert_eq!(os.select(&full).await, 0);
        let past = Source::at(second(1));
        assert_eq!(os.select(&[Source::message(&a), past]).await, 1);
    });
}

#[test]
fn s70_each_kind_of_source_wakes_the_task_and_is_there_for_its_call() {
    alone(async |os: &mut Os| {
        let messages = Queue::<u8>::bounded(os, 1).await;
        let full = Queue::<u8>::bounded(os, 1).await;
        full.put(os, 0).await.unwrap();
        let (flag, lock) = (Flag::new(os).await, Mutex::new(os, ()).await);
        let permits = Semaphore::new(os, 1).await;
        let (setter, promise) = Promise::<u8>::new(os).await;
        let mut child = os
            .spawn_child("child", async |os: &mut Os| os.sleep(second(6)).await)
            .await
            .unwrap();
        let mut group = Group::new(os).await;
        group
            .spawn(os, "member", async |os: &mut Os| os.sleep(second(7)).await)
            .await
            .unwrap();
        let (held, permit) = (lock.lock(os).await, permits.acquire(os).await);
        let theirs = (messages.clone(), full.clone(), flag.clone());
        os.spawn("driver", async move |os: &mut Os| {
            os.sleep(second(1)).await;
            theirs.0.put(os, 1).await.unwrap();
            os.sleep(second(1)).await;
            theirs.1.get(os).await.unwrap();
            os.sleep(second(1)).await;
            theirs.2.set(os).await;
            setter.set(os, 9).await.unwrap();
            os.sleep(second(1)).await;
            drop(held);
            os.sleep(second(1)).await;
            drop(permit);
        })
        .await
        .unwrap();
        let mut all = vec![
            (0, Source::message(&messages)),
            (1, Source::room(&full)),
            (2, Source::flag(&flag)),
            (3, Source::promise(&promise)),
            (4, Source::lock(&lock)),
            (5, Source::permit(&permits)),
            (6, Source::child(&child)),
            (7, Source::member(&group)),
            (8, Source::after(second(100))),
        ];
        let mut seen = Vec::new();
        while all.len() > 1 {
            let sources: Vec<Source> = all.iter().map(|(_, source)| *source).collect();
            let (which, _) = all.remove(os.select(&sources).await);
            seen.push((which, os.now().await.as_secs()));
        }
        let expected = [
            (0, 1),
            (1, 2),
            (2, 3),
            (3, 3),
            (4, 4),
            (5, 5),
            (6, 6),
            (7, 7),
        ];
        assert_eq!(seen, expected);
        // None of these calls blocks.
        let calls = async |os: &mut Os| {
            assert_eq!(messages.get(os).await, Ok(1));
            full.put(os, 3).await.unwrap();
            flag.wait(os).await;
            assert_eq!(promise.wait(os).await, Ok(9));
            drop(lock.lock(os).await.unwrap());
            drop(permits.acquire(os).await.unwrap());
            assert_eq!(child.wait(os).await, Ok(()));
            assert!(group.next(os).await.is_some());
        };
        os.timeout(Duration::from_nanos(1), calls).await.unwrap();
    });
}

#[test]
fn s70_a_source_whose_call_would_fail_is_ready() {
    alone(async |os: &mut Os| {
        let queue = Queue::<u8>::bounded(os, 1).await;
        queue.close(os).await;
        let ends = [Source::message(&queue), Source::room(&queue)];
        for (source, call) in ends.iter().zip([true, false]) {
            assert_eq!(os.select(&[*source]).await, 0);
            let closed = match call {
                true => queue.get(os).await.is_err(),
                false => queue.put(os, 1).await.is_err(),
            };
            assert!(closed);
        }
        let (setter, promise) = Promise::<u8>::new(os).await;
        drop(setter);
        assert_eq!(os.select(&[Source::promise(&promise)]).await, 0);
        let me = os.get_tid().await;
        assert_eq!(os.select(&[Source::exit(77.into())]).await, 0);
        assert_eq!(os.select(&[Source::exit(me)]).await, 0);
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await.unwrap();
        let theirs = listener.clone();
        os.spawn("other", async move |os: &mut Os| {
            drop(theirs.accept(os).await);
        })
        .await
        .unwrap();
        os.yield_now().await;
        // Another task waits there: the call would be refused as busy.
        assert_eq!(os.select(&[Source::readable(&listener)]).await, 0);
        assert_eq!(os.read_wait(&listener).await, Err(Errno::Busy));
        listener.close(os).await.unwrap();
        assert_eq!(os.select(&[Source::readable(&listener)]).await, 0);
    });
}

#[test]
fn s70_a_flag_that_was_set_and_cleared_before_the_turn_is_not_ready() {
    // The other task sets and clears it before the older one has its turn.
    let mut kernel = sim().policy(Youngest::default()).build().unwrap();
    let program = async |os: &mut Os| {
        let flag = Flag::new(os).await;
        let theirs = flag.clone();
        let blink = async move |os: &mut Os| {
            for _ in 0..2 {
                os.sleep(second(1)).await;
                theirs.set(os).await;
                if os.now().await == second(1) {
                    theirs.clear(os).await;
                }
            }
        };
        os.spawn("blink", blink).await.unwrap();
        os.select(&[Source::flag(&flag)]).await;
        assert_eq!(os.now().await, second(2));
    };
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s70_at_a_queue_without_room_two_selects_never_meet() {
    alone(async |os: &mut Os| {
        let queue = Queue::<u8>::bounded(os, 0).await;
        let theirs = queue.clone();
        let getter = async move |os: &mut Os| {
            let first = [Source::message(&theirs), Source::after(second(5))];
            assert_eq!(os.select(&first).await, 1);
            assert_eq!(theirs.get(os).await, Ok(7));
        };
        os.spawn("getter", getter).await.unwrap();
        let first = [Source::room(&queue), Source::after(second(4))];
        assert_eq!(os.select(&first).await, 1);
        assert_eq!(os.select(&[Source::room(&queue)]).await, 0);
        assert_eq!(os.now().await, second(5));
        assert!(queue.try_put(os, 7).await.is_ok());
    });
}

#[test]
fn s46_an_empty_select_waits_for_nothing() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            os.select(&[]).await;
        })
        .unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("nothing can end it");
    };
    let report = deadlock.to_string();
    assert!(
        report.contains("waits for nothing: it selects among no sources"),
        "{report}"
    );
}

#[test]
fn s46_a_report_names_the_sources_and_a_select_is_on_a_cycle_only_if_none_leads_out() {
    let run = |has_way_out: bool| {
        let mut kernel = sim().on_deadlock(OnDeadlock::Stop).build().unwrap();
        let program = async move |os: &mut Os| {
            let (a, b) = (
                Mutex::named(os, "a", ()).await,
                Mutex::named(os, "b", ()).await,
            );
            let other = Queue::<u8>::bounded(os, 1).await;
            let (mine, theirs) = (a.clone(), b.clone());
            let first = async move |os: &mut Os| {
                let _held = mine.lock(os).await;
                os.sleep(second(1)).await;
                drop(theirs.lock(os).await);
            };
            let first = os.spawn("first", first).await.unwrap();
            let second_one = async move |os: &mut Os| {
                let _held = b.lock(os).await;
                os.sleep(second(2)).await;
                let mut sources = vec![Source::lock(&a), Source::exit(first)];
                sources.extend(has_way_out.then(|| Source::message(&other)));
                os.select(&sources).await;
            };
            os.spawn("second", second_one).await.unwrap();
            os.sleep(second(9)).await;
        };
        kernel.spawn("main", program).unwrap();
        match kernel.run() {
            Err(Error::Deadlock(deadlock)) => deadlock,
            other => panic!("{other:?}"),
        }
    };
    let closed = run(false);
    assert_eq!(closed.cycles, [[2, 3].map(From::from)]);
    let report = closed.to_string();
    let words = "waits for the first of: lock 1 \"a\", held by task 2; exit 2";
    assert!(closed.is_partial && report.contains(words), "{report}");
    let open = run(true);
    assert!(!open.is_partial && open.cycles.is_empty(), "{open}");
}

#[test]
fn s71_a_task_that_is_killed_or_cut_leaves_every_source() {
    alone(async |os: &mut Os| {
        let queue = Queue::<u8>::bounded(os, 1).await;
        let target = os
            .spawn("target", async |os: &mut Os| os.sleep(second(50)).await)
            .await
            .unwrap();
        let theirs = queue.clone();
        let victim = async move |os: &mut Os| {
            let message = Source::message(&theirs);
            let late = Source::after(second(20));
            os.select(&[message, message, Source::exit(target), late])
                .await;
        };
        let victim = os.spawn("victim", victim).await.unwrap();
        os.sleep(second(1)).await;
        assert!(os.kill(victim).await);
        let sources = [Source::message(&queue), Source::exit(target)];
        let cut = os.timeout(second(2), async |os| os.select(&sources).await);
        assert_eq!((cut.await, os.now().await), (Err(Elapsed), second(3)));
        queue.put(os, 3).await.unwrap();
        assert_eq!(queue.try_get(os).await, Ok(3));
        assert_eq!(queue.try_get(os).await, Err(TryGetError::Empty));
        os.kill(target).await;
    });
}

#[test]
fn s57_a_due_timeout_lets_a_select_through_and_then_its_call() {
    alone(async |os: &mut Os| {
        let queue = Queue::<u8>::bounded(os, 1).await;
        let get = async |os: &mut Os| {
            os.select(&[Source::message(&queue)]).await;
            queue.get(os).await
        };
        assert_eq!(os.timeout(Duration::ZERO, get).await, Err(Elapsed));
        queue.put(os, 4).await.unwrap();
        assert_eq!(os.timeout(Duration::ZERO, get).await, Ok(Ok(4)));
    });
}

#[test]
fn s71_what_was_promised_is_there_whatever_order_the_tasks_run_in() {
    for seed in 0..50 {
        let mut kernel = sim().policy(Random::new(seed)).build().unwrap();
        let got = Rc::new(Cell::new(0));
        let total = Rc::clone(&got);
        let program = async move |os: &mut Os| {
            let (queue, stop) = (Queue::<u8>::bounded(os, 2).await, Flag::new(os).await);
            for _ in 0..10 {
                let (queue, stop, got) = (queue.clone(), stop.clone(), Rc::clone(&got));
                let consumer = async move |os: &mut Os| {
                    let sources = [Source::message(&queue), Source::flag(&stop)];
                    while os.select(&sources).await == 0 {
                        match queue.try_get(os).await {
                            Ok(_) => got.set(got.get() + 1),
                            Err(TryGetError::Closed) => return,
                            Err(TryGetError::Empty) => panic!("another task was faster"),
                        }
                    }
                };
                os.spawn_detached("consumer", consumer).await.unwrap();
            }
            let (theirs, got) = (queue.clone(), Rc::clone(&got));
            let thief = async move |os: &mut Os| {
                while theirs.get(os).await.is_ok() {
                    got.set(got.get() + 1);
                }
            };
            os.spawn_detached("thief", thief).await.unwrap();
            for n in 0..100 {
                queue.put(os, n).await.unwrap();
            }
            queue.close(os).await;
        };
        kernel.spawn("main", program).unwrap();
        kernel.run().unwrap().check().unwrap();
        kernel.audit_all();
        assert_eq!(total.get(), 100, "seed {seed}");
    }
}

#[test]
fn s71_a_getter_comes_first_and_all_selects_wake_in_order_of_arrival() {
    let (mut kernel, log) = logged(sim());
    let program = async |os: &mut Os| {
        let queue = Queue::<u8>::bounded(os, 1).await;
        for name in ["one", "two"] {
            let queue = queue.clone();
            let select = async move |os: &mut Os| {
                os.select(&[Source::message(&queue)]).await;
                queue.get(os).await.map(drop)
            };
            os.spawn(name, select).await?;
        }
        let theirs = queue.clone();
        let getter = async move |os: &mut Os| theirs.get(os).await.map(drop);
        os.spawn("getter", getter).await?;
        os.sleep(second(1)).await;
        // The getter has waited for less time, and gets it.
        queue.put(os, 1).await.map_err(|_| Errno::Closed)?;
        os.sleep(second(1)).await;
        // Both wake, and the second goes on waiting.
        queue.put(os, 2).await.map_err(|_| Errno::Closed)?;
        os.sleep(second(1)).await;
        queue.put(os, 3).await.map_err(|_| Errno::Closed)
    };
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    let woken = log.lines();
    let woken: Vec<&str> = woken
        .iter()
        .filter(|line| line.contains("woken by queue"))
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    assert_eq!(woken, ["4", "2", "3", "3"], "{}", log.text());
}

#[test]
fn s72_a_select_on_an_exit_leaves_the_zombie() {
    alone(async |os: &mut Os| {
        let child = os
            .spawn("child", async |os: &mut Os| os.sleep(second(1)).await)
            .await
            .unwrap();
        assert_eq!(os.select(&[Source::exit(child)]).await, 0);
        assert_eq!(os.select(&[Source::exit(child)]).await, 0);
        assert_eq!(os.wait(child).await, Ok(Exit::Done));
        assert_eq!(os.select(&[Source::exit(child)]).await, 0);
        assert_eq!(os.wait(child).await, Err(Errno::NoSuchTask));
    });
}

#[test]
fn s70_devices_are_sources_in_the_simulated_world() {
    alone(async |os: &mut Os| {
        let talk = async |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
            let client = async |os: &mut Os| {
                let stream = os.connect(("127.0.0.1", 80)).await?;
                os.sleep(second(1)).await;
                stream.send_all(os, b"hi").await
            };
            os.spawn("client", client).await?;
            let late = Source::after(second(9));
            assert_eq!(os.select(&[Source::readable(&listener), late]).await, 0);
            let (stream, _) = listener.accept(os).await?;
            let both = [Source::readable(&stream), Source::writable(&stream)];
            assert_eq!(os.select(&both).await, 1);
            assert_eq!(os.select(&both[..1]).await, 0);
            let mut buf = [0; 8];
            assert_eq!(stream.recv(os, &mut buf).await?, 2);
            let theirs = stream.clone();
            let other = async move |os: &mut Os| {
                os.select(&[Source::readable(&theirs)]).await;
            };
            let other = os.spawn("other", other).await?;
            os.yield_now().await;
            stream.close(os).await?;
            assert_eq!(os.wait(other).await, Ok(Exit::Done));
            io::Result::Ok(())
        };
        talk(os).await.unwrap();
    });
}

#[test]
fn first_makes_the_call_of_the_arm_that_came_first() {
    alone(async |os: &mut Os| {
        let (orders, stop) = (Queue::<u32>::unbounded(os).await, Flag::new(os).await);
        let idle = || after(second(5));
        let arms = (stop.wait_arm(), orders.get_arm(), idle());
        assert_eq!(
            (os.first(arms).await, os.now().await),
            (Either3::Third(()), second(5))
        );
        orders.put(os, 7).await.unwrap();
        let first = os.first((stop.wait_arm(), orders.get_arm())).await;
        assert_eq!(first, Either2::Second(Ok(7)));
        stop.set(os).await;
        orders.close(os).await;
        let first = os.first((stop.wait_arm(), orders.get_arm())).await;
        assert_eq!(first, Either2::First(()));
        let first = os.first((orders.get_arm(), stop.wait_arm())).await;
        assert_eq!(first, Either2::First(Err(Closed(()))));
    });
}

#[test]
fn s71_no_message_is_lost_at_any_step() {
    let program = |kernel: &mut Kernel| -> Result<(), Error> {
        let got = Shared::new(0);
        let taken = got.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let queue = Queue::<u32>::bounded(os, 4).await;
            let (theirs, got) = (queue.clone(), got.clone());
            let victim = async move |os: &mut Os| {
                let sources = [Source::message(&theirs), Source::after(second(1))];
                if os.select(&sources).await == 0
                    && let Ok(n) = theirs.try_get(os).await
                {
                    got.update(|got| *got += n);
                }
            };
            let victim = os.spawn("victim", victim).await?;
            let theirs = queue.clone();
            let putter =
                async move |os: &mut Os| theirs.put(os, 1).await.and(theirs.put(os, 2).await);
            let putter = os.spawn("putter", putter).await?;
            os.kill(victim).await;
            os.wait(putter).await?;
            let mut left = taken.get();
            while let Ok(n) = queue.try_get(os).await {
                left += n;
            }
            assert_eq!(left, 3);
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()
    };
    let all = check(program).exhaustive().explore();
    assert!(all.failure.is_none() && all.complete, "{all:?}");
}

#[test]
fn a_trace_names_the_sources() {
    let (mut kernel, log) = logged(sim());
    let program = async |os: &mut Os| {
        let orders = Queue::<u8>::named(os, "orders", 1).await;
        let target = os.spawn("target", async |_: &mut Os| ()).await?;
        let idle = Source::after(second(5));
        os.select(&[
            Source::message(&orders),
            Source::room(&orders),
            Source::exit(target),
            idle,
        ])
        .await;
        Ok::<(), Errno>(())
    };
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    let line = "trapped select(message 1, room 1, exit 2, after 5s)";
    assert!(
        log.lines().iter().any(|other| other.ends_with(line)),
        "{}",
        log.text()
    );
    assert!(
        log.lines().iter().any(|line| line.ends_with("replied 1")),
        "{}",
        log.text()
    );
}

#[test]
fn servers_that_select_on_their_listeners_are_at_rest() {
    let ledger = Rc::new(RefCell::new(Ledger::new()));
    let tracer = Rc::clone(&ledger);
    let net = SimNet::new();
    net.host("server").unwrap();
    let builder = Kernel::builder().world(SimWorld::new(0).net(&net));
    let builder = builder.tracer(move |event: &Event<'_>| tracer.borrow_mut().event(event));
    let mut kernel = builder.build().unwrap();
    let at = "0.0.0.0:80".parse().unwrap();
    let server = async move |os: &mut Os| {
        let (listener, stop) = (os.listen(at).await?, Flag::new(os).await);
        while let Either2::Second(accepted) =
            os.first((stop.wait_arm(), listener.accept_arm())).await
        {
            accepted?;
        }
        Ok::<(), io::Error>(())
    };
    kernel.spawn_on("server", "server", server).unwrap();
    let Err(Error::Deadlock(stuck)) = kernel.run() else {
        panic!("nothing can come any more");
    };
    assert!(stuck.is_at_rest(), "{stuck}");
    let words = "waits for the first of: flag 1; readable device 1";
    assert!(stuck.to_string().contains(words), "{stuck}");
    assert!(
        ledger
            .borrow()
            .tasks()
            .iter()
            .all(|task| task.wait.is_accept)
    );
}

/// A task selects a lock and the end of a task, others lock and wait meanwhile, and `enemy` cuts one.
fn locks_beside_a_select(kernel: &mut Kernel, enemy: u32) -> Result<(), Error> {
    let order = Shared::new(String::new());
    let note = order.clone();
    kernel.spawn("main", async move |os: &mut Os| {
        let (lock, other) = (Mutex::new(os, 0).await, Mutex::new(os, 0).await);
        let within = Scope::new();
        let held = other.lock(os).await.unwrap();
        let mut tasks = Vec::new();
        for name in ['x', 'y'] {
            let (lock, note) = (lock.clone(), note.clone());
            let program = async move |os: &mut Os| {
                let _guard = lock.lock(os).await;
                note.update(|order| order.push(name));
            };
            tasks.push(os.spawn("locks", program).await?);
        }
        let (first, inner) = (tasks[0], within.clone());
        let selects = async move |os: &mut Os| {
            let sources = [Source::lock(&other), Source::exit(first)];
            let body = async |os: &mut Os| os.select(&sources).await;
            let _ = inner.run(os, body).await;
            note.update(|order| order.push('z'));
        };
        tasks.push(os.spawn("selects", selects).await?);
        drop(held);
        match enemy {
            0 => os.yield_now().await,
            1 => within.cancel(os).await,
            2 => drop(os.kill(tasks[2]).await),
            _ => drop(os.kill(tasks[0]).await),
        }
        for task in tasks {
            os.wait(task).await?;
        }
        Ok::<(), Errno>(())
    })?;
    kernel.run()?.check()?;
    kernel.outcome(order.get());
    Ok(())
}

#[test]
fn a_search_sees_what_a_select_changes_for_waits_on_locks_and_tasks() {
    for enemy in 0..4 {
        let all = check(move |kernel| locks_beside_a_select(kernel, enemy));
        let all = all.exhaustive().explore();
        let is_proved = all.failure.is_none() && all.proved;
        assert!(is_proved, "{enemy}: {all}");
    }
}

#[test]
fn a_search_sees_a_select_on_a_value_whose_making_is_cut() {
    let program = |kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (once, scope) = (Once::<u32>::new(os).await, Scope::new());
            let mut tasks = Vec::new();
            for n in 0..3 {
                let (once, scope) = (once.clone(), scope.clone());
                let init = async move |os: &mut Os| {
                    os.yield_now().await;
                    n
                };
                let makes = async move |os: &mut Os| {
                    if n == 1 {
                        os.select(&[Source::once(&once)]).await;
                    }
                    let body = async |os: &mut Os| *once.get_or_init(os, init).await;
                    match n {
                        0 => drop(scope.run(os, body).await),
                        _ => drop(body(os).await),
                    }
                };
                tasks.push(os.spawn("makes", makes).await?);
            }
            scope.cancel(os).await;
            for task in tasks {
                os.wait(task).await?;
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()
    };
    let all = check(program).exhaustive().schedules(300).explore();
    assert_eq!(all.failure, None);
}

#[test]
fn a_search_sees_that_a_put_and_a_get_wake_a_select() {
    // A put commutes with a get, but which of them comes first decides whether the select is woken.
    let program = |kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (queue, flag) = (Queue::<u8>::bounded(os, 1).await, Flag::new(os).await);
            let (source, sink) = (queue.clone(), queue.clone());
            let gets = async move |os: &mut Os| {
                source.get(os).await?;
                source.get(os).await.map(drop)
            };
            os.spawn("gets", gets).await?;
            os.spawn("puts", async move |os: &mut Os| sink.put(os, 1).await)
                .await?;
            os.select(&[Source::flag(&flag), Source::message(&queue)])
                .await;
            Ok::<(), Errno>(())
        })?;
        match kernel.run() {
            Err(Error::Deadlock(_)) => Ok(()),
            other => other?.check(),
        }
    };
    let all = check(program).exhaustive().explore();
    assert!(all.failure.is_none() && all.proved, "{all}");
    assert_eq!(all.schedules, all.classes);
}

#[test]
fn an_arm_accepts_at_a_unix_socket_and_another_takes_a_datagram() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let listener = os.listen_unix("/run/server").await?;
            let socket = os.bind_udp(([127, 0, 0, 1], 53).into()).await?;
            let mut buf = [0; 8];
            let _client = os.connect_unix("/run/server").await?;
            let arms = (socket.recv_from_arm(&mut buf), listener.accept_arm());
            let Either2::Second(accepted) = os.first(arms).await else {
                panic!("no datagram was sent");
            };
            accepted?;
            socket.send_to(os, b"name?", socket.local_addr()?).await?;
            let arms = (socket.recv_from_arm(&mut buf), listener.accept_arm());
            let Either2::First(received) = os.first(arms).await else {
                panic!("no second client connects");
            };
            let (n, from) = received?;
            assert_eq!((&buf[..n], from), (&b"name?"[..], socket.local_addr()?));
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}
