//! Promises: rule S45.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use trapline::{
    Abandoned, AlreadySet, Builder, Cause, Elapsed, Error, Exit, Kernel, Os, Policy, Promise,
    Runnable, SimWorld,
};

use crate::{
    stepping::{Notes, Place, boot, finish, noting, settle},
    support::{Youngest, logged, run_main, sim, tenth_in_a_mode},
};

const S: Duration = Duration::from_secs(1);

#[test]
fn s45_a_promise_is_set_once_and_a_second_set_hands_the_value_back() {
    boot(async |os| {
        let (setter, promise) = Promise::new(os).await;
        assert_eq!(promise.get(), None);
        assert_eq!(setter.set(os, "one").await, Ok(()));
        assert_eq!(promise.get(), Some("one"));
        assert_eq!(setter.set(os, "two").await, Err(AlreadySet("two")));
        assert_eq!(
            setter.clone().set(os, "three").await,
            Err(AlreadySet("three"))
        );
        assert_eq!(setter.remote().set("four"), Err(AlreadySet("four")));
        assert_eq!(promise.wait(os).await, Ok("one"));
        drop(setter);
        assert_eq!(promise.wait(os).await, Ok("one"));
    });
}

#[test]
fn s45_any_number_of_tasks_wait_before_and_after_it_is_set() {
    let seen = noting(async move |os, notes| {
        let (setter, promise) = Promise::new(os).await;
        let wait = |n: u32| {
            let (promise, notes) = (promise.clone(), notes.clone());
            async move |os: &mut Os| {
                let value = promise.wait(os).await;
                notes.note(format!("{n}: {value:?}"));
            }
        };
        for n in 0..3 {
            os.spawn("early", wait(n)).await.unwrap();
        }
        settle(os).await;
        notes.note("set");
        setter.set(os, 'v').await.unwrap();
        for n in 3..6 {
            os.spawn("late", wait(n)).await.unwrap();
        }
        settle(os).await;
    });
    let expected = [
        "set",
        "0: Ok('v')",
        "1: Ok('v')",
        "2: Ok('v')",
        "3: Ok('v')",
    ];
    assert_eq!(seen.take()[..5], expected);
}

#[test]
fn s45_abandoned_when_the_last_setter_is_dropped() {
    boot(async |os| {
        let (setter, promise) = Promise::<u32>::new(os).await;
        let other = setter.clone();
        drop(setter);
        let waits = os.timeout(S, async |os| promise.wait(os).await).await;
        assert_eq!(waits, Err(Elapsed));
        let last = async move |os: &mut Os| {
            os.sleep(S).await;
            drop(other);
        };
        os.spawn("last", last).await.unwrap();
        assert_eq!(promise.wait(os).await, Err(Abandoned));
        assert_eq!((promise.get(), os.now().await), (None, S * 2));
        assert_eq!(promise.wait(os).await, Err(Abandoned));
    });
}

#[test]
fn s45_abandoned_when_the_task_with_the_setter_dies() {
    for how in 0..4 {
        boot(async move |os| {
            let (setter, promise) = Promise::<u32>::new(os).await;
            let holder = async move |os: &mut Os| {
                let _setter = setter;
                os.sleep(S).await;
                match how {
                    0 => os.sleep(S * 9).await,
                    1 => panic!("boom"),
                    2 => std::future::pending().await,
                    _ => {}
                }
            };
            let holder = os.spawn("holder", holder).await.unwrap();
            let kill = async move |os: &mut Os| {
                os.sleep(S * 2).await;
                os.kill(holder).await;
            };
            os.spawn("killer", kill).await.unwrap();
            assert_eq!(promise.wait(os).await, Err(Abandoned));
            assert_eq!(os.now().await, if how == 0 { S * 2 } else { S });
        });
    }
    // Killed before its first turn.
    boot(async |os| {
        let (setter, promise) = Promise::<u32>::new(os).await;
        let holder = async move |_: &mut Os| drop(setter);
        let holder = os.spawn("holder", holder).await.unwrap();
        os.kill(holder).await;
        assert_eq!(promise.wait(os).await, Err(Abandoned));
    });
}

#[test]
fn s45_abandoned_when_the_remote_setter_is_dropped_on_a_thread() {
    for world in ["real", "simulated"] {
        let mut kernel = match world {
            "real" => Kernel::real().unwrap(),
            _ => Kernel::simulated(0),
        };
        let main = async |os: &mut Os| {
            let (setter, promise) = Promise::<u32>::new(os).await;
            let remote = setter.remote();
            drop(setter);
            let thread = thread::spawn(move || drop(remote));
            assert_eq!(promise.wait(os).await, Err(Abandoned));
            thread.join().unwrap();
        };
        let main = kernel.spawn("main", main).unwrap();
        assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done, "{world}");
    }
}

#[test]
fn s45_callbacks_run_in_the_order_in_which_they_were_added() {
    for quantum in [1, 2, 3, 7, 100] {
        for added_before in 0..5 {
            let notes = Notes::default();
            let theirs = notes.clone();
            let builder = Kernel::builder().world(SimWorld::new(0)).quantum(quantum);
            let mut kernel = builder.build().unwrap();
            let main = async move |os: &mut Os| {
                let (setter, promise) = Promise::new(os).await;
                let set = async move |os: &mut Os| {
                    os.yield_now().await;
                    os.yield_now().await;
                    setter.set(os, 5).await.unwrap();
                };
                for n in 0..6 {
                    if n == added_before {
                        os.spawn("setter", set.clone()).await.unwrap();
                    }
                    let notes = theirs.clone();
                    let callback = async move |_: &mut Os, value: Result<i32, Abandoned>| {
                        notes.note(format!("{n}: {value:?}"));
                    };
                    promise.on_done(os, callback).await.unwrap();
                    if n % 2 == 0 {
                        os.yield_now().await;
                    }
                }
            };
            kernel.spawn("main", main).unwrap();
            finish(&mut kernel);
            let expected: Vec<_> = (0..6).map(|n| format!("{n}: Ok(5)")).collect();
            assert_eq!(
                notes.take(),
                expected,
                "quantum {quantum}, {added_before} before"
            );
        }
    }
}

/// A policy that takes any ready task, as the numbers of a seed say.
struct Any {
    ready: Vec<Runnable>,
    seed: u64,
}

impl Policy for Any {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.push(task);
    }
    fn pop(&mut self) -> Option<Runnable> {
        let last = self.ready.len().checked_sub(1)?;
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005) + 1;
        Some(self.ready.remove((self.seed >> 33) as usize % (last + 1)))
    }
    fn remove(&mut self, task: Runnable) {
        self.ready.retain(|other| *other != task);
    }
    fn len(&self) -> usize {
        self.ready.len()
    }
}

/// Adds six callbacks around the setting of a promise, and kills one of them if that is wanted.
/// Answers the order in which they began.
fn order_of_callbacks(builder: Builder, set_after: u32, killed: Option<usize>) -> String {
    let notes = Notes::default();
    let theirs = notes.clone();
    let mut kernel = builder.world(SimWorld::new(0)).build().unwrap();
    let main = async move |os: &mut Os| {
        let (setter, promise) = Promise::new(os).await;
        let mut setter = Some(setter);
        let mut tids = Vec::new();
        for n in 0..6 {
            if n == set_after
                && let Some(setter) = setter.take()
            {
                setter.set(os, ()).await.unwrap();
            }
            let notes = theirs.clone();
            let callback = async move |os: &mut Os, _: Result<(), Abandoned>| {
                notes.note(n);
                os.sleep(S).await;
            };
            tids.push(promise.on_done(os, callback).await.unwrap());
        }
        if let Some(victim) = killed {
            os.kill(tids[victim]).await;
        }
        if let Some(setter) = setter {
            setter.set(os, ()).await.unwrap();
        }
    };
    kernel.spawn("main", main).unwrap();
    finish(&mut kernel);
    notes.take().concat()
}

#[test]
fn s45_callbacks_begin_in_order_under_every_policy() {
    for set_after in 0..=6 {
        for seed in 0..200 {
            let policy = Any {
                ready: Vec::new(),
                seed,
            };
            let builder = Kernel::builder().policy(policy);
            let order = order_of_callbacks(builder, set_after, None);
            assert_eq!(order, "012345", "seed {seed}, set after {set_after}");
        }
        let builder = Kernel::builder().policy(Youngest::default());
        assert_eq!(order_of_callbacks(builder, set_after, None), "012345");
    }
}

#[test]
fn s45_a_callback_that_is_killed_holds_up_none_behind_it() {
    for victim in 0..6 {
        let builder = Kernel::builder().policy(Youngest::default());
        let order = order_of_callbacks(builder, 9, Some(victim));
        let rest = "012345".replace(&victim.to_string(), "");
        assert_eq!(order, rest);
    }
    // Also when it had its turn and waits for those before it.
    for seed in 0..tenth_in_a_mode(100) as u64 {
        for victim in 0..6 {
            let policy = Any {
                ready: Vec::new(),
                seed,
            };
            let order = order_of_callbacks(Kernel::builder().policy(policy), 3, Some(victim));
            let rest = "012345".replace(&victim.to_string(), "");
            assert_eq!(order.replace(&victim.to_string(), ""), rest, "seed {seed}");
        }
    }
}

#[test]
fn s45_callbacks_hear_of_an_abandoned_promise_and_can_be_cancelled() {
    let seen = noting(async move |os, notes| {
        let (setter, promise) = Promise::<u32>::new(os).await;
        let mut tids = Vec::new();
        for n in 0..3 {
            let notes = notes.clone();
            let callback = async move |_: &mut Os, value| notes.note(format!("{n}: {value:?}"));
            tids.push(promise.on_done(os, callback).await.unwrap());
        }
        assert!(os.kill(tids[1]).await);
        drop(setter);
        os.sleep(S).await;
        // Callbacks leave no zombies.
        assert_eq!(os.tasks().await.len(), 1);
    });
    assert_eq!(seen.take(), ["0: Err(Abandoned)", "2: Err(Abandoned)"]);
}

#[test]
fn s45_a_thread_that_sets_it_wakes_a_sleeping_kernel() {
    for world in ["real", "simulated"] {
        let mut kernel = match world {
            "real" => Kernel::real().unwrap(),
            _ => Kernel::simulated(0),
        };
        let main = async |os: &mut Os| {
            let (setter, promise) = Promise::new(os).await;
            let remote = setter.remote();
            let thread = thread::spawn(move || {
                assert_eq!(remote.set(1), Ok(()));
                assert_eq!(remote.set(2), Err(AlreadySet(2)));
            });
            assert_eq!(promise.wait(os).await, Ok(1));
            thread.join().unwrap();
            assert_eq!(setter.set(os, 3).await, Err(AlreadySet(3)));
        };
        let main = kernel.spawn("main", main).unwrap();
        assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done, "{world}");
    }
}

#[test]
fn s45_many_threads_set_many_promises() {
    const THREADS: usize = 8;
    let mut kernel = Kernel::real().unwrap();
    let main = async |os: &mut Os| {
        for _ in 0..50 {
            let (setter, promise) = Promise::new(os).await;
            let start = Arc::new(Barrier::new(THREADS));
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    let (remote, start) = (setter.remote(), Arc::clone(&start));
                    thread::spawn(move || {
                        start.wait();
                        remote.set(n).is_ok()
                    })
                })
                .collect();
            // A set of our own, in the middle of theirs: refused or not, there is a value then.
            let won = setter.set(os, usize::MAX).await.is_ok();
            let value = promise.wait(os).await.expect("somebody has set it");
            let winners: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            let winner = winners.iter().position(|won| *won);
            assert_eq!(won, value == usize::MAX);
            assert_eq!(winner, (!won).then_some(value));
            assert_eq!(
                winners.iter().filter(|won| **won).count(),
                usize::from(!won)
            );
        }
    };
    let main = kernel.spawn("main", main).unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done);
}

#[test]
fn s45_no_deadlock_while_a_remote_setter_lives() {
    let (place, spoken) = (Place::default(), Arc::new(AtomicBool::new(false)));
    let theirs = place.clone();
    let mut kernel = Kernel::simulated(0);
    let main = async move |os: &mut Os| {
        let (setter, promise) = Promise::new(os).await;
        theirs.put(setter);
        assert_eq!(promise.wait(os).await, Ok("late"));
    };
    let main = kernel.spawn("main", main).unwrap();
    // An ordinary setter in the hands of the host is no reason to wait.
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
    let setter = place.take().unwrap();
    // With one for threads the kernel waits for it.
    let remote = setter.remote();
    let done = Arc::clone(&spoken);
    let thread = thread::spawn(move || {
        let second = remote.clone();
        drop(remote);
        done.store(true, Ordering::Release);
        second.set("late").unwrap();
    });
    let report = kernel.run().unwrap();
    assert!(spoken.load(Ordering::Acquire));
    assert_eq!(report.exits()[&main], Exit::Done);
    thread.join().unwrap();
}

#[test]
fn s45_a_deadlock_is_found_when_the_last_remote_setter_goes_without_a_word() {
    let mut kernel = Kernel::simulated(0);
    let main = async |os: &mut Os| {
        let (setter, promise) = Promise::<u32>::new(os).await;
        let remote = setter.remote();
        let thread = thread::spawn(move || drop(remote));
        // The setter is still there, in the hands of the one who waits.
        let value = promise.wait(os).await;
        drop((setter, thread, value));
    };
    kernel.spawn("main", main).unwrap();
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
}

#[test]
fn a_wait_that_times_out_changes_nothing() {
    boot(async |os| {
        let (setter, promise) = Promise::new(os).await;
        for _ in 0..3 {
            let cut = os.timeout(S, async |os| promise.wait(os).await).await;
            assert_eq!(cut, Err(Elapsed));
        }
        setter.set(os, 1).await.unwrap();
        let wait = os.timeout(S, async |os| promise.wait(os).await).await;
        assert_eq!(wait, Ok(Ok(1)));
    });
}

#[test]
fn a_promise_that_nobody_keeps_can_be_set() {
    boot(async |os| {
        let (setter, promise) = Promise::new(os).await;
        drop(promise);
        os.yield_now().await;
        assert_eq!(setter.set(os, 1).await, Ok(()));
        assert_eq!(setter.set(os, 2).await, Err(AlreadySet(2)));
    });
}

#[test]
fn a_promise_is_set_from_another_kernel() {
    let place = Place::default();
    let theirs = place.clone();
    let mut one = Kernel::simulated(0);
    let main = async move |os: &mut Os| {
        let (setter, promise) = Promise::new(os).await;
        theirs.put(setter);
        assert_eq!(promise.wait(os).await, Ok(9));
    };
    let main = one.spawn("main", main).unwrap();
    assert!(matches!(one.run(), Err(Error::Deadlock(_))));
    let setter = place.take().unwrap();
    boot(async move |os| {
        assert_eq!(setter.set(os, 9).await, Ok(()));
        assert_eq!(setter.set(os, 8).await, Err(AlreadySet(8)));
    });
    assert_eq!(one.run().unwrap().exits()[&main], Exit::Done);
}

#[test]
fn s57_a_cut_set_leaves_the_value_and_wakes_its_waiters() {
    let notes = Notes::default();
    let seen = notes.clone();
    boot(async move |os| {
        let (setter, promise) = Promise::new(os).await;
        let theirs = promise.clone();
        let waiter = async move |os: &mut Os| notes.note(format!("{:?}", theirs.wait(os).await));
        os.spawn("waiter", waiter).await.unwrap();
        settle(os).await;
        let cut = os.timeout(Duration::ZERO, async |os| {
            os.set_nice(0).await;
            setter.set(os, 1).await
        });
        assert_eq!(cut.await, Err(Elapsed));
        settle(os).await;
        assert_eq!(seen.take(), ["Ok(1)"]);
        assert_eq!(setter.set(os, 2).await, Err(AlreadySet(2)));
    });
}

#[test]
fn a_promise_that_is_set_is_closed_once() {
    // By `set`, by a `set` that is cut, or by the drop of the last setter. Nothing follows.
    for how in 0..3 {
        let (mut kernel, log) = logged(sim());
        run_main(&mut kernel, async move |os: &mut Os| {
            let (setter, promise) = Promise::<u32>::new(os).await;
            let other = setter.clone();
            match how {
                0 => assert!(setter.set(os, 1).await.is_ok()),
                1 => {
                    let cut = os.timeout(Duration::ZERO, async |os| {
                        os.set_nice(0).await;
                        setter.set(os, 1).await.is_ok()
                    });
                    assert_eq!(cut.await, Err(Elapsed));
                }
                _ => {}
            }
            drop(setter);
            os.yield_now().await;
            drop(other);
            os.yield_now().await;
            assert_eq!(promise.wait(os).await.is_ok(), how < 2);
        });
        let closes = log.lines();
        let closes: Vec<_> = closes
            .iter()
            .filter_map(|line| {
                Some(
                    line[..line.find("close_queue")?]
                        .rsplit(' ')
                        .nth(1)?
                        .to_string(),
                )
            })
            .collect();
        let expected: &[&str] = match how {
            0 => &["trapped"],
            // The call is cut, and is made up for when its future is dropped.
            1 => &["trapped", "deferred"],
            _ => &["deferred"],
        };
        assert_eq!(closes, expected, "{how}: {}", log.text());
    }
}
