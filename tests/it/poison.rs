//! S89: which ends poison a lock.

use std::{cell::Cell, future::pending, rc::Rc, time::Duration};

use trapline::{
    Elapsed, Exit, Inject, Kernel, Os, Queue, SystemCall, Tid,
    sync::{Condition, Group, Guard, Mutex},
};

use crate::{
    stepping::{boot, settle},
    support::{run_main, sim},
};

const S: Duration = Duration::from_secs(1);

/// Runs a program that takes the lock, until it has ended, and returns whether the lock is poisoned.
async fn is_poisoned_by(
    os: &mut Os,
    program: impl AsyncFnOnce(&mut Os, Guard<i32>) -> Result<(), String> + 'static,
) -> bool {
    let mutex = Mutex::new(os, 0).await;
    let mine = mutex.clone();
    let victim = async move |os: &mut Os| {
        let guard = mine.lock(os).await.expect("the lock is new");
        program(os, guard).await
    };
    let victim = os.spawn("victim", victim).await.unwrap();
    settle(os).await;
    os.kill(victim).await;
    os.wait(victim).await.unwrap();
    let lock = os.timeout(S, async |os| mutex.lock(os).await.is_err());
    lock.await.expect("the lock is free")
}

#[test]
fn s89_a_kill_and_a_fault_poison() {
    boot(async |os| {
        let is_killed = async |os: &mut Os, _guard| {
            os.sleep(S).await;
            Ok(())
        };
        assert!(is_poisoned_by(os, is_killed).await);
        let kills_itself = async |os: &mut Os, _guard| {
            let tid = os.get_tid().await;
            os.kill(tid).await;
            Ok(())
        };
        assert!(is_poisoned_by(os, kills_itself).await);
        assert!(is_poisoned_by(os, async |_, _guard| panic!("boom")).await);
        assert!(is_poisoned_by(os, async |_, _guard| pending().await).await);
        // The kill of a group's member, by the drop of the group.
        let member = async |os: &mut Os, guard| {
            let mut group = Group::new(os).await;
            let hold = async move |os: &mut Os| {
                let _guard = guard;
                os.sleep(S).await;
            };
            group.spawn(os, "member", hold).await.unwrap();
            settle(os).await;
            drop(group);
            Ok(())
        };
        assert!(is_poisoned_by(os, member).await);
    });
}

#[test]
fn s89_a_return_and_an_exit_poison_nothing_whatever_the_exit() {
    boot(async |os| {
        assert!(!is_poisoned_by(os, async |_, _guard| Ok(())).await);
        assert!(!is_poisoned_by(os, async |_, _guard| Err("no".to_string())).await);
        let exits = [
            Exit::Done,
            Exit::Failed("no".into()),
            Exit::Faulted("as if".into()),
            Exit::Killed,
        ];
        for exit in exits {
            let exits = async move |os: &mut Os, _guard| os.exit(exit).await;
            assert!(!is_poisoned_by(os, exits).await);
        }
    });
}

#[test]
fn s89_an_injected_kill_poisons_and_so_does_an_injection_that_panics() {
    for panics in [false, true] {
        let inject = move |_: Tid, call: SystemCall, _: u64| match call {
            SystemCall::SetShare(_) if panics => panic!("bad injection"),
            SystemCall::SetShare(_) => Some(Inject::Kill),
            _ => None,
        };
        let mut kernel = sim().inject(inject).build().unwrap();
        run_main(&mut kernel, async |os: &mut Os| {
            let holds = async |os: &mut Os, _guard| {
                os.set_nice(1).await;
                Ok(())
            };
            assert!(is_poisoned_by(os, holds).await);
        });
    }
}

#[test]
fn s89_a_cut_poisons_what_its_body_holds_and_nothing_outside() {
    boot(async |os| {
        let mutex = Mutex::new(os, 0).await;
        let guard = mutex.lock(os).await.unwrap();
        let cut = os.timeout(S / 2, async |os: &mut Os| {
            let _guard = guard;
            os.sleep(S).await;
        });
        assert_eq!(cut.await, Err(Elapsed));
        assert!(mutex.lock(os).await.is_err());
        // The guard is outside; the body only uses it.
        let outside = Mutex::new(os, 0).await;
        let mut guard = outside.lock(os).await.unwrap();
        let cut = os.timeout(S, async |os: &mut Os| {
            *guard += 1;
            os.sleep(2 * S).await;
        });
        assert_eq!(cut.await, Err(Elapsed));
        drop(guard);
        assert_eq!(outside.lock(os).await.map(|guard| *guard).ok(), Some(1));
        // It ends by itself.
        let done = os.timeout(S, async |os: &mut Os| {
            let _guard = outside.lock(os).await.unwrap();
            os.sleep(S / 2).await;
        });
        assert_eq!(done.await, Ok(()));
        assert!(outside.lock(os).await.is_ok());
    });
}

#[test]
fn s89_a_guard_in_a_message_that_a_cut_or_a_kill_drops_is_poisoned() {
    boot(async |os| {
        let mutex = Mutex::new(os, 0).await;
        let full = Queue::bounded(os, 0).await;
        // The put waits for room.
        let guard = mutex.lock(os).await.unwrap();
        let put = os.timeout(S, async |os| full.put(os, guard).await.is_ok());
        assert_eq!(put.await, Err(Elapsed));
        let poisoned = mutex.lock(os).await;
        let guard = poisoned.expect_err("the cut has dropped the guard").0;
        guard.mutex().clear_poison();
        // The timeout is due, and an answer was let through before.
        let empty = Queue::unbounded(os).await;
        let put = os.timeout(Duration::ZERO, async |os| {
            os.set_nice(0).await;
            empty.put(os, guard).await.is_ok()
        });
        assert_eq!(put.await, Err(Elapsed));
        let poisoned = mutex.lock(os).await;
        let guard = poisoned.expect_err("the cut has dropped the guard").0;
        guard.mutex().clear_poison();
        drop(guard);
        // The task that puts is killed.
        let (theirs, queue) = (mutex.clone(), full.clone());
        let putter = async move |os: &mut Os| {
            let guard = theirs.lock(os).await.unwrap();
            drop(queue.put(os, guard).await);
        };
        let putter = os.spawn("putter", putter).await.unwrap();
        settle(os).await;
        assert!(os.kill(putter).await);
        assert!(mutex.lock(os).await.is_err());
    });
}

#[test]
fn s89_a_wait_for_the_lock_poisons_nothing() {
    for killed in [true, false] {
        boot(async move |os| {
            let mutex = Mutex::new(os, 0).await;
            let guard = mutex.lock(os).await.unwrap();
            let theirs = mutex.clone();
            let waiter = async move |os: &mut Os| {
                let wait = async |os: &mut Os| drop(theirs.lock(os).await);
                let _ = os.timeout(S, wait).await;
            };
            let waiter = os.spawn("waiter", waiter).await.unwrap();
            settle(os).await;
            if killed {
                // The lock is on its way.
                drop(guard);
                assert!(os.kill(waiter).await);
            } else {
                os.sleep(2 * S).await;
                drop(guard);
            }
            assert!(mutex.lock(os).await.is_ok());
        });
    }
}

#[test]
fn s89_a_wait_for_a_condition_poisons_nothing_from_its_begin() {
    // A signal is left of a task that was killed, so the wait begins with a call that drops it. A
    // timeout or the kill comes at that call, while the task still has the lock.
    for killed in [true, false] {
        let mut kernel = match killed {
            false => Kernel::simulated(1),
            true => {
                let inject = |_: Tid, call: SystemCall, _: u64| match call {
                    SystemCall::TryGet(_) => Some(Inject::Kill),
                    _ => None,
                };
                sim().inject(inject).build().unwrap()
            }
        };
        run_main(&mut kernel, async move |os: &mut Os| {
            let mutex = Mutex::new(os, 0).await;
            let condition = Condition::new(os).await;
            let (theirs, signals) = (mutex.clone(), condition.clone());
            let waiter = async move |os: &mut Os| {
                let guard = theirs.lock(os).await.unwrap();
                drop(signals.wait(os, guard).await);
            };
            let first = os.spawn("first", waiter).await.unwrap();
            // The signal and the kill in one instant, with no turn of the task between them.
            let signals = condition.clone();
            let signal = async move |os: &mut Os| {
                os.sleep_until(S).await;
                assert!(signals.notify_one(os).await);
            };
            os.spawn("signal", signal).await.unwrap();
            os.sleep_until(S).await;
            os.kill(first).await;
            let tried = Rc::new(Cell::new(false));
            let (theirs, signals, sees) = (mutex.clone(), condition.clone(), Rc::clone(&tried));
            let second = async move |os: &mut Os| {
                let guard = theirs.lock(os).await.unwrap();
                let wait = os.timeout(Duration::ZERO, async |os| {
                    os.set_nice(0).await;
                    sees.set(true);
                    drop(signals.wait(os, guard).await);
                });
                assert_eq!(wait.await, Err(Elapsed));
            };
            let second = os.spawn("second", second).await.unwrap();
            let _ = os.wait(second).await;
            assert!(tried.get());
            assert!(mutex.lock(os).await.is_ok(), "killed: {killed}");
        });
    }
}
