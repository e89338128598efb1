//! What stands on queues: semaphore, mutex, flag, barrier, condition, group.

mod cycles;
mod group;
mod shared;
mod stuck;

use std::{pin::Pin, time::Duration};

use trapline::{
    Abandoned, Closed, Elapsed, Errno, Error, Exit, Kernel, Os, Promise, Queue, SimWorld,
    sync::{Barrier, Condition, Flag, Group, Guard, Mutex, Poisoned, Semaphore},
};

use crate::{
    stepping::{Notes, Place, boot, finish, noting, settle, spin},
    support::{PanicOnDrop, about, leave_answer, leave_answer_before, logged, run_main, sim},
};

const S: Duration = Duration::from_secs(1);

// ---- semaphore

#[test]
fn a_semaphore_lets_so_many_through_in_order() {
    let seen = noting(async move |os, notes| {
        let semaphore = Semaphore::new(os, 2).await;
        assert_eq!(semaphore.available(), 2);
        for n in 0..5 {
            let (semaphore, notes) = (semaphore.clone(), notes.clone());
            let program = async move |os: &mut Os| {
                let _permit = semaphore.acquire(os).await.unwrap();
                notes.note(format!("{n} at {:?}", os.now().await));
                os.sleep(S).await;
            };
            os.spawn("worker", program).await.unwrap();
        }
        settle(os).await;
        assert_eq!(semaphore.available(), 0);
        assert!(semaphore.try_acquire(os).await.is_none());
        os.sleep(S * 9).await;
        assert_eq!(semaphore.available(), 2);
        let permit = semaphore.try_acquire(os).await.unwrap();
        assert_eq!(semaphore.available(), 1);
        drop(permit);
        assert_eq!(semaphore.available(), 2);
    });
    let expected = ["0 at 0ns", "1 at 0ns", "2 at 1s", "3 at 1s", "4 at 2s"];
    assert_eq!(seen.take(), expected);
}

#[test]
fn a_permit_comes_back_from_the_dead() {
    boot(async |os| {
        let semaphore = Semaphore::new(os, 1).await;
        for fate in 0..4 {
            let mine = semaphore.clone();
            let holder = async move |os: &mut Os| {
                let _permit = mine.acquire(os).await.unwrap();
                match fate {
                    0 => os.sleep(Duration::MAX).await,
                    1 => panic!("boom"),
                    2 => std::future::pending().await,
                    _ => os.exit(Exit::Done).await,
                }
            };
            let holder = os.spawn("holder", holder).await.unwrap();
            settle(os).await;
            // One that is killed while it waits takes none with it.
            let mine = semaphore.clone();
            let waiter = async move |os: &mut Os| drop(mine.acquire(os).await);
            let waiter = os.spawn("waiter", waiter).await.unwrap();
            os.kill(waiter).await;
            os.kill(holder).await;
            let permit = os.timeout(S, async |os| semaphore.acquire(os).await);
            drop(permit.await.expect("it was given back").unwrap());
            assert_eq!(semaphore.available(), 1);
        }
    });
}

#[test]
fn a_permit_that_belongs_to_a_waiter_is_not_available() {
    boot(async |os| {
        let semaphore = Semaphore::new(os, 2).await;
        let first = semaphore.acquire(os).await.unwrap();
        let second = semaphore.acquire(os).await.unwrap();
        let mine = semaphore.clone();
        let waiter = async move |os: &mut Os| {
            let _permit = mine.acquire(os).await;
            os.sleep(S).await;
        };
        let waiter = os.spawn("waiter", waiter).await.unwrap();
        settle(os).await;
        drop(first);
        assert_eq!(semaphore.available(), 0);
        drop(second);
        assert_eq!(semaphore.available(), 1);
        os.yield_now().await;
        assert_eq!(semaphore.available(), 1);
        os.wait(waiter).await.unwrap();
        assert_eq!(semaphore.available(), 2);
    });
}

#[test]
fn a_semaphore_may_have_any_number_of_permits() {
    const ALL: usize = usize::MAX;
    boot(async |os| {
        let semaphore = Semaphore::new(os, ALL).await;
        assert_eq!(semaphore.available(), ALL);
        let first = semaphore.acquire(os).await.unwrap();
        let second = semaphore.try_acquire(os).await.unwrap();
        assert_eq!(semaphore.available(), ALL - 2);
        drop(first);
        assert_eq!(semaphore.available(), ALL - 1);
        drop((second, semaphore.acquire(os).await.unwrap()));
        os.yield_now().await;
        assert_eq!(semaphore.available(), ALL);
    });
}

#[test]
fn no_permit_is_lost_or_made_by_deaths_and_timeouts() {
    // Of three tasks that want one of two permits each, one is killed after so many passes, or
    // times out after so many nanoseconds: before it asks, while it waits, when it has just been
    // matched with one, while it has it.
    let cases = (0..8).flat_map(|after| (0..3).map(move |victim| (after, victim)));
    for (after, victim, killed) in cases.flat_map(|(n, m)| [(n, m, true), (n, m, false)]) {
        boot(async move |os| {
            let semaphore = Semaphore::new(os, 2).await;
            let mut workers = Vec::new();
            for n in 0..3 {
                let semaphore = semaphore.clone();
                let limit = (n == victim && !killed).then_some(Duration::from_nanos(after));
                let program = async move |os: &mut Os| {
                    let work = async |os: &mut Os| {
                        let _permit = semaphore.acquire(os).await.unwrap();
                        os.sleep(Duration::from_nanos(3)).await;
                    };
                    let _ = os.timeout(limit.unwrap_or(S), work).await;
                };
                workers.push(os.spawn("worker", program).await.unwrap());
            }
            if killed {
                os.sleep(Duration::from_nanos(after / 2)).await;
                spin(os, after as usize % 2).await;
                os.kill(workers[victim]).await;
            }
            for worker in workers {
                os.wait(worker).await.unwrap();
            }
            assert_eq!(semaphore.available(), 2, "{after} {victim} {killed}");
            let first = semaphore.try_acquire(os).await;
            let second = semaphore.try_acquire(os).await;
            assert!(first.is_some() && second.is_some());
            assert!(semaphore.try_acquire(os).await.is_none());
        });
    }
}

#[test]
fn a_permit_that_the_host_drops_is_given_back() {
    let place = Place::default();
    let (theirs, mut kernel) = (place.clone(), Kernel::simulated(0));
    let main = async move |os: &mut Os| {
        let semaphore = Semaphore::new(os, 1).await;
        theirs.put(semaphore.acquire(os).await.unwrap());
        semaphore.acquire(os).await.map(drop)
    };
    let main = kernel.spawn("main", main).unwrap();
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
    drop(place.take());
    assert_eq!(finish(&mut kernel).exits()[&main], Exit::Done);
}

// ---- mutex

#[test]
fn a_mutex_is_held_by_one_at_a_time_in_order() {
    let seen = noting(async move |os, notes| {
        let total = Mutex::new(os, 0).await;
        let mut group = Group::new(os).await;
        for n in 0..4 {
            let (total, notes) = (total.clone(), notes.clone());
            let add = async move |os: &mut Os| {
                for _ in 0..3 {
                    let mut guard = total.lock(os).await.unwrap();
                    let before = *guard;
                    spin(os, 5).await;
                    *guard = before + 1;
                    notes.note(n);
                }
            };
            group.spawn(os, "adder", add).await.unwrap();
        }
        group.join(os).await.unwrap();
        assert_eq!(*total.lock(os).await.unwrap(), 12);
    });
    assert_eq!(seen.take().concat(), "012301230123");
}

/// Ends a task in one of several ways while it has the lock.
async fn die(os: &mut Os, mutex: &Mutex<i32>, how: u32) -> Exit {
    let mine = mutex.clone();
    let victim = async move |os: &mut Os| {
        let mut guard = match mine.lock(os).await {
            Ok(guard) | Err(Poisoned(guard)) => guard,
        };
        *guard += 1;
        match how {
            0 => os.sleep(Duration::MAX).await,
            1 => panic!("boom"),
            2 => std::future::pending().await,
            3 => {
                os.yield_now().await;
                std::future::pending::<()>().await;
            }
            4 => {
                let tid = os.get_tid().await;
                os.kill(tid).await;
            }
            5 => os.exit(Exit::Faulted("as if".into())).await,
            6 => os.exit(Exit::Done).await,
            7 => os.exit(Exit::Failed("no".into())).await,
            _ => drop(guard),
        }
    };
    let victim = os.spawn("victim", victim).await.unwrap();
    settle(os).await;
    os.kill(victim).await;
    os.wait(victim).await.unwrap()
}

#[test]
fn a_mutex_is_broken_by_a_death_and_mended() {
    for how in 0..5 {
        boot(async move |os| {
            let mutex = Mutex::new(os, 0).await;
            assert_ne!(die(os, &mutex, how).await, Exit::Done);
            // Everybody is told, with the lock in hand, until somebody mends it.
            for _ in 0..2 {
                let Err(Poisoned(guard)) = mutex.lock(os).await else {
                    panic!("{how} went unnoticed");
                };
                assert_eq!(*guard, 1);
            }
            let Err(Poisoned(mut guard)) = mutex.lock(os).await else {
                panic!("{how} went unnoticed");
            };
            *guard = 7;
            guard.mutex().clear_poison();
            drop(guard);
            assert_eq!(*mutex.lock(os).await.unwrap(), 7);
        });
    }
}

#[test]
fn a_mutex_is_not_broken_by_those_who_live_or_do_not_have_it() {
    boot(async |os| {
        let mutex = Mutex::new(os, 0).await;
        // Whatever the exit is that a task has chosen.
        for how in 5..9 {
            let exit = die(os, &mutex, how).await;
            assert_ne!(exit, Exit::Killed);
            assert!(mutex.lock(os).await.is_ok(), "case {how}");
        }
        // Who waits for it and dies has not had it, even if the lock was on its way.
        let guard = mutex.lock(os).await.unwrap();
        let mine = mutex.clone();
        let waiter = async move |os: &mut Os| drop(mine.lock(os).await);
        let waiter = os.spawn("waiter", waiter).await.unwrap();
        settle(os).await;
        drop(guard);
        assert!(os.kill(waiter).await);
        assert!(mutex.lock(os).await.is_ok());
    });
}

#[test]
fn a_mutex_is_broken_by_a_timeout_that_cuts_who_holds_it() {
    boot(async |os| {
        let (held, other) = (Mutex::new(os, 0).await, Mutex::new(os, 0).await);
        let outside = other.lock(os).await.unwrap();
        let cut = os.timeout(S, async |os| {
            let inner = os.timeout(S * 5, async |os| {
                let mut guard = held.lock(os).await.unwrap();
                *guard = 1;
                os.sleep(S * 9).await;
            });
            inner.await.unwrap();
        });
        assert_eq!(cut.await, Err(Elapsed));
        let Err(Poisoned(guard)) = held.lock(os).await else {
            panic!("the cut went unnoticed");
        };
        assert_eq!(*guard, 1);
        guard.mutex().clear_poison();
        drop(guard);
        // What the body did not hold is whole, and so is what is released after the cut.
        drop(outside);
        assert!(other.lock(os).await.is_ok());
        // A body that ends by itself has chosen the moment.
        let done = os.timeout(S, async |os| drop(held.lock(os).await.unwrap()));
        assert_eq!(done.await, Ok(()));
        assert!(held.lock(os).await.is_ok());
    });
}

#[test]
fn a_cut_body_whose_destructor_panics_breaks_no_later_lock() {
    boot(async |os| {
        let mutex = Mutex::new(os, 0).await;
        let victim = async move |os: &mut Os| {
            let cut = os.timeout(S, async |os: &mut Os| {
                let _bad = PanicOnDrop;
                os.sleep(S * 9).await;
            });
            let _ = cut.await;
        };
        let victim = os.spawn("victim", victim).await.unwrap();
        assert!(matches!(os.wait(victim).await, Ok(Exit::Faulted(_))));
        drop(mutex.lock(os).await.unwrap());
        assert!(mutex.lock(os).await.is_ok());
    });
}

#[test]
fn a_destructor_that_panics_beside_a_lock_breaks_only_that_lock() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("bad");
            }
        }
    }
    boot(async |os| {
        let other = Mutex::new(os, 0).await;
        for how in 0..3 {
            let victim = async move |os: &mut Os| {
                let _bad = Bad;
                os.yield_now().await;
                match how {
                    0 => std::future::pending().await,
                    1 => os.sleep(Duration::MAX).await,
                    _ => panic!("boom"),
                }
            };
            let victim = os.spawn("victim", victim).await.unwrap();
            settle(os).await;
            os.kill(victim).await;
            // A guard that is dropped in peace afterwards breaks nothing.
            drop(other.lock(os).await.unwrap());
            assert!(other.lock(os).await.is_ok(), "case {how}");
        }
    });
}

// ---- flag

#[test]
fn a_flag_lets_everybody_through_while_it_is_set() {
    let seen = noting(async move |os, notes| {
        let flag = Flag::new(os).await;
        assert!(!flag.is_set());
        let wait = |n: u32| {
            let (flag, notes) = (flag.clone(), notes.clone());
            async move |os: &mut Os| {
                flag.wait(os).await;
                notes.note(n);
            }
        };
        for n in 0..3 {
            os.spawn("waiter", wait(n)).await.unwrap();
        }
        settle(os).await;
        notes.note("set");
        flag.set(os).await;
        flag.set(os).await;
        settle(os).await;
        flag.wait(os).await;
        assert!(flag.is_set());
        flag.clear(os).await;
        flag.clear(os).await;
        assert!(!flag.is_set());
        notes.note("cleared");
        let late = os.spawn("late", wait(3)).await.unwrap();
        let cut = os.timeout(S, async |os| os.wait(late).await).await;
        assert_eq!(cut, Err(Elapsed));
        flag.set(os).await;
        assert_eq!(os.wait(late).await, Ok(Exit::Done));
    });
    assert_eq!(seen.take(), ["set", "0", "1", "2", "cleared", "3"]);
}

#[test]
fn a_flag_that_is_cleared_at_once_still_wakes_who_waited() {
    boot(async |os| {
        let flag = Flag::new(os).await;
        let mine = flag.clone();
        let waiter = async move |os: &mut Os| mine.wait(os).await;
        let waiter = os.spawn("waiter", waiter).await.unwrap();
        settle(os).await;
        flag.set(os).await;
        flag.clear(os).await;
        assert_eq!(os.wait(waiter).await, Ok(Exit::Done));
        assert!(!flag.is_set());
    });
}

// ---- barrier

#[test]
fn a_barrier_serves_several_rounds() {
    let seen = noting(async move |os, notes| {
        let barrier = Barrier::new(os, 3).await;
        let mut group = Group::new(os).await;
        for n in 1..=3u32 {
            let (barrier, notes) = (barrier.clone(), notes.clone());
            let runner = async move |os: &mut Os| {
                for round in 0..4 {
                    os.sleep(S * n).await;
                    if barrier.wait(os).await {
                        notes.note(format!("round {round} by {n} at {:?}", os.now().await));
                    }
                }
            };
            group.spawn(os, "runner", runner).await.unwrap();
        }
        group.join(os).await.unwrap();
    });
    let expected: Vec<_> = (0..4)
        .map(|round| format!("round {round} by 3 at {}s", 3 * (round + 1)))
        .collect();
    assert_eq!(seen.take(), expected);
}

#[test]
fn a_barrier_does_not_count_the_dead_and_those_who_gave_up() {
    boot(async |os| {
        let barrier = Barrier::new(os, 2).await;
        let mine = barrier.clone();
        let dead = async move |os: &mut Os| assert!(!mine.wait(os).await);
        let dead = os.spawn("dead", dead).await.unwrap();
        settle(os).await;
        assert!(os.kill(dead).await);
        let gave_up = os.timeout(S, async |os| barrier.wait(os).await).await;
        assert_eq!(gave_up, Err(Elapsed));

        let mine = barrier.clone();
        let first = async move |os: &mut Os| assert!(!mine.wait(os).await);
        let first = os.spawn("first", first).await.unwrap();
        settle(os).await;
        assert!(barrier.wait(os).await);
        assert_eq!(os.wait(first).await, Ok(Exit::Done));
        // Killed after the round was complete, and before it ran: that round stands.
        let mine = barrier.clone();
        let woken = async move |os: &mut Os| assert!(!mine.wait(os).await);
        let woken = os.spawn("woken", woken).await.unwrap();
        settle(os).await;
        assert!(barrier.wait(os).await);
        os.kill(woken).await;
        let cut = os.timeout(S, async |os| barrier.wait(os).await).await;
        assert_eq!(cut, Err(Elapsed));
    });
    boot(async |os| {
        for tasks in [0, 1] {
            let alone = Barrier::new(os, tasks).await;
            assert!(alone.wait(os).await && alone.wait(os).await);
        }
    });
}

// ---- condition

#[test]
fn a_condition_wakes_one_or_all() {
    let seen = noting(async move |os, notes| {
        let mutex = Mutex::new(os, 0).await;
        let condition = Condition::new(os).await;
        assert!(!condition.notify_one(os).await);
        condition.notify_all(os).await;
        for n in 1..=3 {
            let (mutex, condition) = (mutex.clone(), condition.clone());
            let notes = notes.clone();
            let waiter = async move |os: &mut Os| {
                let mut guard = mutex.lock(os).await.unwrap();
                while *guard < n {
                    guard = condition.wait(os, guard).await.unwrap();
                }
                notes.note(format!("{n} saw {}", *guard));
            };
            os.spawn("waiter", waiter).await.unwrap();
        }
        settle(os).await;
        *mutex.lock(os).await.unwrap() = 1;
        assert!(condition.notify_one(os).await);
        spin(os, 20).await;
        notes.note("all");
        *mutex.lock(os).await.unwrap() = 3;
        condition.notify_all(os).await;
        spin(os, 20).await;
    });
    assert_eq!(seen.take(), ["1 saw 1", "all", "2 saw 3", "3 saw 3"]);
}

/// A trap each, and the condition keeps its number.
#[test]
fn to_notify_all_is_one_trap() {
    let (mut kernel, log) = logged(sim());
    run_main(&mut kernel, async |os: &mut Os| {
        let changed = Condition::named(os, "changed").await;
        for _ in 0..2 {
            changed.notify_all(os).await;
        }
    });
    let lines = about(&log, 1);
    let traps = lines.iter().filter(|line| line.starts_with("trapped"));
    assert_eq!(
        traps.collect::<Vec<_>>(),
        [
            "trapped new_queue(0, condition \"changed\")",
            "trapped close_queue(1)",
            "trapped close_queue(1)",
        ]
    );
}

#[test]
fn a_condition_releases_the_lock_and_takes_it_again() {
    boot(async |os| {
        let mutex = Mutex::new(os, 0).await;
        let condition = Condition::new(os).await;
        let (theirs, signals) = (mutex.clone(), condition.clone());
        let waiter = async move |os: &mut Os| {
            let guard: Guard<i32> = theirs.lock(os).await.unwrap();
            let mut guard = signals.wait(os, guard).await.unwrap();
            *guard += 1;
            os.sleep(S).await;
        };
        let waiter = os.spawn("waiter", waiter).await.unwrap();
        settle(os).await;
        // It is free while the other waits, and held when it goes on.
        let guard = os.timeout(S, async |os| mutex.lock(os).await).await;
        let guard = guard.expect("it is free").unwrap();
        assert!(condition.notify_one(os).await);
        settle(os).await;
        assert_eq!(*guard, 0);
        drop(guard);
        settle(os).await;
        let held = os.timeout(S / 2, async |os| mutex.lock(os).await.is_ok());
        assert_eq!(held.await, Err(Elapsed));
        assert_eq!(os.wait(waiter).await, Ok(Exit::Done));
        assert_eq!(*mutex.lock(os).await.unwrap(), 1);
    });
}

#[test]
fn a_signal_for_a_task_that_dies_goes_to_the_next() {
    boot(async |os| {
        let mutex = Mutex::new(os, ()).await;
        let condition = Condition::new(os).await;
        let mut waiters = Vec::new();
        for _ in 0..2 {
            let (mutex, condition) = (mutex.clone(), condition.clone());
            let waiter = async move |os: &mut Os| {
                let guard = mutex.lock(os).await.unwrap();
                drop(condition.wait(os, guard).await);
            };
            waiters.push(os.spawn("waiter", waiter).await.unwrap());
        }
        settle(os).await;
        // The signal and the kill in one instant, with nobody's turn in between.
        let signal = async move |os: &mut Os| {
            os.sleep_until(S).await;
            assert!(condition.notify_one(os).await);
        };
        os.spawn("signal", signal).await.unwrap();
        settle(os).await;
        os.sleep_until(S).await;
        assert!(os.kill(waiters[0]).await);
        assert_eq!(os.wait(waiters[1]).await, Ok(Exit::Done));
    });
}

#[test]
fn a_signal_for_a_task_that_does_not_get_the_lock_goes_to_the_next() {
    for killed in [true, false] {
        boot(async move |os| {
            let mutex = Mutex::new(os, ()).await;
            let condition = Condition::new(os).await;
            let mut waiters = Vec::new();
            for patience in [if killed { 9 * S } else { 2 * S }, 9 * S, 9 * S] {
                let (mutex, condition) = (mutex.clone(), condition.clone());
                let waiter = async move |os: &mut Os| {
                    let guard = mutex.lock(os).await.unwrap();
                    let wait = os.timeout(patience, async |os| condition.wait(os, guard).await);
                    wait.await.map(|guard| drop(guard.unwrap()))
                };
                waiters.push(os.spawn("waiter", waiter).await.unwrap());
            }
            os.sleep(S).await;
            let guard = mutex.lock(os).await.unwrap();
            assert!(condition.notify_one(os).await);
            os.sleep(2 * S).await;
            if killed {
                assert!(os.kill(waiters[0]).await);
            }
            drop(guard);
            assert_ne!(os.wait(waiters[0]).await, Ok(Exit::Done));
            assert_eq!(os.wait(waiters[1]).await, Ok(Exit::Done));
            assert_eq!(os.now().await, 3 * S);
            // It was one signal, for one of them.
            assert_ne!(os.wait(waiters[2]).await, Ok(Exit::Done));
        });
    }
}

#[test]
fn a_signal_that_nobody_else_waits_for_goes_with_the_task_it_was_for() {
    boot(async |os| {
        let mutex = Mutex::new(os, ()).await;
        let condition = Condition::new(os).await;
        let (theirs, signals) = (mutex.clone(), condition.clone());
        let waiter = async move |os: &mut Os| {
            let guard = theirs.lock(os).await.unwrap();
            drop(signals.wait(os, guard).await);
        };
        let waiter = os.spawn("waiter", waiter).await.unwrap();
        settle(os).await;
        let guard = mutex.lock(os).await.unwrap();
        assert!(condition.notify_one(os).await);
        settle(os).await;
        assert!(os.kill(waiter).await);
        let late = os.timeout(S, async |os| condition.wait(os, guard).await.is_ok());
        assert_eq!(late.await, Err(Elapsed));
    });
}

#[test]
fn a_signal_whose_waiter_is_killed_before_its_turn_is_for_no_later_one() {
    // Also with `wait_for`, and also where the waiter is cut and not killed.
    for (killed, timed) in [(true, false), (true, true), (false, false), (false, true)] {
        boot(async move |os| {
            let mutex = Mutex::new(os, ()).await;
            let condition = Condition::new(os).await;
            let (theirs, signals) = (mutex.clone(), condition.clone());
            let waiter = async move |os: &mut Os| {
                let wait = async |os: &mut Os| {
                    let guard = theirs.lock(os).await.unwrap();
                    if timed {
                        drop(signals.wait_for(os, guard, S * 9).await);
                    } else {
                        drop(signals.wait(os, guard).await);
                    }
                };
                os.timeout(if killed { S * 9 } else { S }, wait).await
            };
            let waiter = os.spawn("waiter", waiter).await.unwrap();
            let signals = condition.clone();
            // The signal and the end of the wait in one instant, with no turn in between.
            let signal = async move |os: &mut Os| {
                os.sleep_until(S).await;
                signals.notify_one(os).await;
            };
            os.spawn("signal", signal).await.unwrap();
            os.sleep_until(S).await;
            os.kill(waiter).await;
            let _ = os.wait(waiter).await;
            settle(os).await;
            let guard = mutex.lock(os).await.unwrap();
            let (guard, late) = condition.wait_for(os, guard, S).await.unwrap();
            assert_eq!(late, Err(Elapsed), "{killed} {timed}");
            let late = os.timeout(S, async |os| condition.wait(os, guard).await.is_ok());
            assert_eq!(late.await, Err(Elapsed), "{killed} {timed}");
        });
    }
}

#[test]
fn a_wait_for_a_condition_times_out_with_the_lock_in_hand() {
    boot(async |os| {
        let mutex = Mutex::new(os, 0).await;
        let condition = Condition::new(os).await;
        let (theirs, signals) = (mutex.clone(), condition.clone());
        // It has the lock when the time is over: the waiter gets it later.
        let holder = async move |os: &mut Os| {
            os.sleep(S / 2).await;
            let mut guard = theirs.lock(os).await.unwrap();
            *guard = 1;
            os.sleep(S).await;
            drop(guard);
            os.sleep(S).await;
            *theirs.lock(os).await.unwrap() = 2;
            assert!(signals.notify_one(os).await);
        };
        let holder = os.spawn("holder", holder).await.unwrap();
        let guard = mutex.lock(os).await.unwrap();
        let (guard, heard) = condition.wait_for(os, guard, S).await.unwrap();
        assert_eq!((*guard, heard), (1, Err(Elapsed)));
        assert_eq!(os.now().await, S * 3 / 2);
        let held = os.timeout(S / 2, async |os| mutex.lock(os).await.is_ok());
        assert_eq!(held.await, Err(Elapsed));
        // And it hears a signal.
        let (guard, heard) = condition.wait_for(os, guard, S * 9).await.unwrap();
        assert_eq!((*guard, heard), (2, Ok(())));
        assert_eq!(os.wait(holder).await, Ok(Exit::Done));
    });
}

#[test]
fn a_wait_for_misses_no_signal_that_follows_the_release_of_the_lock() {
    boot(async |os| {
        let mutex = Mutex::new(os, ()).await;
        let condition = Condition::new(os).await;
        let guard = mutex.lock(os).await.unwrap();
        let (theirs, signals) = (mutex.clone(), condition.clone());
        let signal = async move |os: &mut Os| {
            // Waits for the lock: it has it as soon as it is released.
            drop(theirs.lock(os).await.unwrap());
            assert!(signals.notify_one(os).await);
        };
        os.spawn("signal", signal).await.unwrap();
        let (_guard, heard) = condition.wait_for(os, guard, S).await.unwrap();
        assert_eq!(heard, Ok(()));
    });
}

#[test]
fn a_wait_that_is_cut_holds_nothing_and_breaks_nothing() {
    // Whatever the alignment of turns and looks, and however the wait ends.
    for (before, killed, timed) in (240..262)
        .flat_map(|n| [(n, true), (n, false)])
        .flat_map(|(n, killed)| [(n, killed, true), (n, killed, false)])
    {
        boot(async move |os| {
            let mutex = Mutex::new(os, ()).await;
            let condition = Condition::new(os).await;
            let mine = mutex.clone();
            let waiter = async move |os: &mut Os| {
                let guard = mine.lock(os).await.unwrap();
                spin(os, before).await;
                let wait = async |os: &mut Os| match timed {
                    true => drop(condition.wait_for(os, guard, S).await),
                    false => drop(condition.wait(os, guard).await),
                };
                let span = if killed { S * 9 } else { Duration::ZERO };
                assert_eq!(os.timeout(span, wait).await, Err(Elapsed));
            };
            let waiter = os.spawn("waiter", waiter).await.unwrap();
            spin(os, before + 3).await;
            if killed {
                os.kill(waiter).await;
            }
            let lock = os.timeout(S, async |os| mutex.lock(os).await.is_ok());
            assert_eq!(lock.await, Ok(true), "{before} {killed} {timed}");
        });
    }
}

// ---- beyond their kernel

/// Makes something in one kernel and uses it in another, which must fault the caller.
fn faults_elsewhere<T: 'static>(
    make: impl AsyncFnOnce(&mut Os) -> T + 'static,
    using: impl AsyncFnOnce(&mut Os, T) + 'static,
) {
    let (place, mut one) = (Place::default(), Kernel::simulated(0));
    let theirs = place.clone();
    let make = async move |os: &mut Os| theirs.put(make(os).await);
    one.spawn("maker", make).unwrap();
    one.run().unwrap();
    let made = place.take().unwrap();
    let mut other = Kernel::simulated(0);
    let stray = async move |os: &mut Os| {
        using(os, made).await;
        os.exit(Exit::Failed("it went on".into())).await;
    };
    let stray = other.spawn("stray", stray).unwrap();
    let exit = other.run().unwrap().exits()[&stray].clone();
    let is_said = matches!(&exit, Exit::Faulted(why) if why.contains("belongs to another kernel"));
    assert!(is_said, "{exit}");
}

#[test]
fn what_belongs_to_another_kernel_faults_its_caller() {
    faults_elsewhere(Flag::new, async |os, flag| flag.wait(os).await);
    faults_elsewhere(Flag::new, async |os, flag| flag.set(os).await);
    faults_elsewhere(Flag::new, async |os, flag| flag.clear(os).await);
    let barrier = async |os: &mut Os| Barrier::new(os, 2).await;
    faults_elsewhere(barrier, async |os, it| _ = it.wait(os).await);
    let mutex = async |os: &mut Os| Mutex::new(os, ()).await;
    faults_elsewhere(mutex, async |os, it| drop(it.lock(os).await));
    let semaphore = async |os: &mut Os| Semaphore::new(os, 1).await;
    faults_elsewhere(semaphore, async |os, it| drop(it.try_acquire(os).await));
    let notify = async |os: &mut Os, it: Condition| _ = it.notify_one(os).await;
    faults_elsewhere(Condition::new, notify);
    faults_elsewhere(Condition::new, async |os, it| it.notify_all(os).await);
    faults_elsewhere(Condition::new, async |os: &mut Os, it: Condition| {
        let own = Mutex::new(os, ()).await;
        let guard = own.lock(os).await.unwrap();
        drop(it.wait(os, guard).await);
    });
    let promise = async |os: &mut Os| Promise::<u32>::new(os).await;
    faults_elsewhere(promise, async |os, it| _ = it.1.wait(os).await);
    let promise = async |os: &mut Os| Promise::<u32>::new(os).await;
    faults_elsewhere(promise, async |os: &mut Os, it| {
        let callback = async |_: &mut Os, _: Result<u32, Abandoned>| {};
        let _ = it.1.on_done(os, callback).await;
    });
    // This one has an error for it.
    let place = Place::default();
    let theirs = place.clone();
    boot(async move |os| theirs.put(Semaphore::new(os, 1).await));
    boot(async move |os| {
        let semaphore = place.take().unwrap();
        assert!(matches!(semaphore.acquire(os).await, Err(Closed(()))));
        assert_eq!(semaphore.available(), 1);
    });
}

#[test]
fn a_group_of_another_kernel_faults_who_waits_for_it() {
    async fn group(os: &mut Os) -> Group {
        let mut group = Group::new(os).await;
        let member = async |os: &mut Os| os.sleep(S).await;
        group.spawn(os, "member", member).await.unwrap();
        group
    }
    faults_elsewhere(group, async |os: &mut Os, mut it: Group| {
        let member = async |_: &mut Os| {};
        let refused = it.spawn(os, "stray", member).await;
        assert_eq!(refused, Err(Errno::Invalid));
        it.next(os).await;
    });
    faults_elsewhere(group, async |os, it: Group| drop(it.join(os).await));
    faults_elsewhere(group, async |os, it: Group| drop(it.first(os).await));
}

#[test]
fn past_the_limit_of_queues_nothing_is_made_that_could_lie() {
    type Make = fn(&mut Os) -> Pin<Box<dyn Future<Output = ()> + '_>>;
    let makes: [Make; 8] = [
        |os| Box::pin(async { drop(Semaphore::new(os, 1).await) }),
        |os| Box::pin(async { drop(Mutex::new(os, ()).await) }),
        |os| Box::pin(async { drop(Flag::new(os).await) }),
        |os| Box::pin(async { drop(Barrier::new(os, 1).await) }),
        |os| Box::pin(async { drop(Condition::new(os).await) }),
        |os| Box::pin(async { drop(Group::new(os).await) }),
        |os| Box::pin(async { drop(Promise::<u32>::new(os).await) }),
        |os| Box::pin(async { drop(os.run_blocking(|| ()).await) }),
    ];
    let builder = Kernel::builder().world(SimWorld::new(0)).max_queues(2);
    let mut kernel = builder.build().unwrap();
    let main = async move |os: &mut Os| {
        let full = (Queue::<u32>::unbounded(os).await, Flag::new(os).await);
        for make in makes {
            let greedy = async move |os: &mut Os| make(os).await;
            let greedy = os.spawn("greedy", greedy).await.unwrap();
            let exit = os.wait(greedy).await.unwrap();
            let is_said = matches!(&exit, Exit::Faulted(why) if why.contains("max_queues"));
            assert!(is_said, "{exit}");
        }
        // A queue itself says so with every call.
        let refused = Queue::unbounded(os).await;
        assert_eq!(refused.put(os, 1).await, Err(Closed(1)));
        // A place that is free again can be used.
        drop(full.0);
        let flag = Flag::new(os).await;
        flag.set(os).await;
        flag.wait(os).await;
    };
    let main = kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).exits()[&main], Exit::Done);
}

#[test]
fn a_condition_that_is_never_met_does_not_hold_up_who_signals_it() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("main", async |os: &mut Os| {
            let mutex = Mutex::new(os, ()).await;
            let condition = Condition::new(os).await;
            for _ in 0..3 {
                let (mutex, condition) = (mutex.clone(), condition.clone());
                let waiter = os.spawn_detached("waiter", async move |os: &mut Os| {
                    let mut guard = mutex.lock(os).await.unwrap();
                    loop {
                        guard = condition.wait(os, guard).await.unwrap();
                    }
                });
                waiter.await.unwrap();
            }
            for _ in 0..10 {
                os.yield_now().await;
            }
            condition.notify_all(os).await;
            os.shutdown().await
        })
        .unwrap();
    assert!(kernel.run().unwrap().ticks < 100);
}

#[test]
fn s57_a_barrier_whose_last_arrival_is_cut_lets_the_others_pass() {
    let notes = Notes::default();
    let seen = notes.clone();
    boot(async move |os| {
        let barrier = Barrier::new(os, 2).await;
        let theirs = barrier.clone();
        let first = async move |os: &mut Os| notes.note(format!("{}", theirs.wait(os).await));
        os.spawn("first", first).await.unwrap();
        settle(os).await;
        let cut = os.timeout(Duration::ZERO, async |os| barrier.wait(os).await);
        assert_eq!(cut.await, Err(Elapsed));
        settle(os).await;
        assert_eq!(seen.take(), ["false"]);
        let next = os.timeout(S, async |os| barrier.wait(os).await).await;
        assert_eq!(next, Err(Elapsed), "the next round waits for another");
    });
}

#[test]
fn s57_a_cut_notify_all_wakes_all() {
    boot(async move |os| {
        let (condition, mutex) = (Condition::new(os).await, Mutex::new(os, 0).await);
        for _ in 0..2 {
            let (condition, mutex) = (condition.clone(), mutex.clone());
            let waiter = async move |os: &mut Os| {
                let guard = mutex.lock(os).await.unwrap();
                *condition.wait(os, guard).await.unwrap() += 1;
            };
            os.spawn("waiter", waiter).await.unwrap();
        }
        settle(os).await;
        let flag = Flag::new(os).await;
        let cut = os.timeout(Duration::ZERO, async |os| {
            // Its answer is the one that a timeout that is due lets through.
            flag.set(os).await;
            condition.notify_all(os).await;
        });
        assert_eq!(cut.await, Err(Elapsed));
        settle(os).await;
        assert_eq!(*mutex.lock(os).await.unwrap(), 2);
    });
}

#[test]
fn what_finds_no_room_and_is_dropped_harms_nothing() {
    let world = SimWorld::new(1);
    let mut kernel = Kernel::builder()
        .world(world)
        .max_queues(0)
        .build()
        .unwrap();
    let program = async |os: &mut Os| {
        leave_answer(Mutex::new(os, 0)).await;
        os.yield_now().await;
    };
    let main = kernel.spawn("main", program).unwrap();
    let panics = async |os: &mut Os| {
        leave_answer_before(Mutex::new(os, 0), || panic!("its own")).await;
    };
    let other = kernel.spawn("other", panics).unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&main], Exit::Done);
    let Exit::Faulted(panic) = &report.exits()[&other] else {
        panic!("{report:?}");
    };
    assert!(panic.starts_with("its own"), "{panic}");
}
