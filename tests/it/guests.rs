//! Guests: S96, and what their devices, timers and calls do.

mod devices;
mod searched;
mod waiters;

use std::{
    cell::{Cell, RefCell},
    future::{pending, poll_fn},
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use trapline::{Elapsed, Event, Exit, Foreign, Kernel, Ledger, Os, Sleep, TaskState, Tracer};

use crate::support::unscripted;

pub(super) fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Runs a program alone, to a good end.
pub(super) fn alone(program: impl AsyncFnOnce(&mut Os) + 'static) {
    let mut kernel = Kernel::simulated(1);
    let main = kernel.spawn("main", program).unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done);
    kernel.audit_all();
}

/// A number that is set once, in the manner of other libraries: it wakes the future that waits for it.
#[derive(Clone, Default)]
pub(super) struct Slot(Rc<RefCell<(Option<u32>, Option<Waker>)>>);

impl Slot {
    pub(super) fn set(&self, value: u32) {
        let waker = {
            let mut slot = self.0.borrow_mut();
            slot.0 = Some(value);
            slot.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) async fn wait(&self) -> u32 {
        poll_fn(|cx| {
            let mut slot = self.0.borrow_mut();
            slot.1 = Some(cx.waker().clone());
            slot.0.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Is pending so many times, and wakes itself.
pub(super) async fn yields(mut times: u32) {
    poll_fn(|cx| {
        if times == 0 {
            return Poll::Ready(());
        }
        times -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls two futures until both are over.
pub(super) async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut left, mut right) = (None, None);
    poll_fn(|cx| {
        if left.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            left = Some(value);
        }
        if right.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            right = Some(value);
        }
        match left.is_some() && right.is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    (left.unwrap(), right.unwrap())
}

/// Polls two futures until the first is over.
pub(super) async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) -> bool {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    poll_fn(|cx| match (a.as_mut().poll(cx), b.as_mut().poll(cx)) {
        (Poll::Ready(()), _) => Poll::Ready(true),
        (_, Poll::Ready(())) => Poll::Ready(false),
        _ => Poll::Pending,
    })
    .await
}

#[test]
fn s96_wakes_of_other_threads_are_heard() {
    let mut kernel = Kernel::real().unwrap();
    let rounds = 300u32;
    kernel
        .spawn("main", async move |os: &mut Os| {
            let shared = Arc::new(Mutex::new((0u32, None::<Waker>)));
            let theirs = Arc::clone(&shared);
            let adder = thread::spawn(move || {
                for round in 1..=rounds {
                    loop {
                        let mut slot = theirs.lock().unwrap();
                        if slot.0 + 1 == round {
                            slot.0 = round;
                            slot.1.take().into_iter().for_each(Waker::wake);
                            break;
                        }
                    }
                }
            });
            let seen = os.run_future_with_threads(async |_: &Foreign| {
                let mut polls = 0;
                poll_fn(|cx| {
                    let mut slot = shared.lock().unwrap();
                    polls += 1;
                    slot.1 = Some(cx.waker().clone());
                    if slot.0 == rounds {
                        Poll::Ready(polls)
                    } else {
                        Poll::Pending
                    }
                })
                .await
            });
            assert!(seen.await <= rounds + 1);
            adder.join().unwrap();
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s96_wakes_before_a_poll_count_as_one() {
    alone(async |os: &mut Os| {
        let (slot, polls) = (Slot::default(), Rc::new(Cell::new(0)));
        let (theirs, counted) = (slot.clone(), Rc::clone(&polls));
        let guest = os.spawn("guest", async move |os: &mut Os| {
            os.run_future(async |_: &Foreign| {
                let mut waits = Box::pin(theirs.wait());
                poll_fn(|cx| {
                    counted.set(counted.get() + 1);
                    waits.as_mut().poll(cx)
                })
                .await
            })
            .await;
        });
        let guest = guest.await.unwrap();
        os.sleep(second(1)).await;
        assert_eq!(polls.get(), 1);
        let waker = slot.0.borrow().1.clone().unwrap();
        for _ in 0..5 {
            waker.wake_by_ref();
        }
        os.sleep(second(1)).await;
        assert_eq!(polls.get(), 2);
        slot.set(1);
        assert_eq!(os.wait(guest).await, Ok(Exit::Done));
        assert_eq!(polls.get(), 3);
        // A guest that is gone hears nothing.
        waker.wake();
    });
}

/// Notes its drop.
struct Bell(Rc<Cell<bool>>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// A guest that holds a bell, a timer and a call, and never ends; or panics after a second.
async fn holder(os: &mut Os, rung: Rc<Cell<bool>>, called: Rc<Cell<bool>>, panics: bool) {
    os.run_future(async move |foreign: &Foreign| {
        let _bell = Bell(rung);
        let call = foreign.call(async move |os: &mut Os| {
            let _bell = Bell(called);
            os.sleep(second(1000)).await;
        });
        let sleep = async {
            foreign.sleep(second(1)).await;
            assert!(!panics, "in the library");
            pending::<()>().await;
        };
        either(call, sleep).await;
    })
    .await;
}

#[test]
fn s96_what_a_guest_holds_is_released_before_its_end_is_told() {
    for how in ["kill", "timeout", "panic"] {
        alone(async move |os: &mut Os| {
            let (rung, called) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let (theirs, inner) = (Rc::clone(&rung), Rc::clone(&called));
            let tasks = os.tasks().await.len();
            match how {
                "timeout" => {
                    let cut = os.timeout(second(2), async |os: &mut Os| {
                        holder(os, theirs, inner, false).await;
                    });
                    assert_eq!(cut.await, Err(Elapsed));
                    assert!(rung.get());
                }
                _ => {
                    let guest =
                        async move |os: &mut Os| holder(os, theirs, inner, how == "panic").await;
                    let guest = os.spawn("guest", guest).await.unwrap();
                    os.sleep(Duration::from_millis(500)).await;
                    if how == "kill" {
                        assert!(os.kill(guest).await);
                        assert!(rung.get());
                    }
                    let exit = os.wait(guest).await.unwrap();
                    assert!(rung.get());
                    assert_eq!(matches!(exit, Exit::Faulted(_)), how == "panic", "{exit}");
                }
            }
            os.yield_now().await;
            assert!(called.get(), "{how}: the call's task goes with the guest");
            assert_eq!(os.tasks().await.len(), tasks, "{how}");
            assert!(os.now().await <= second(2));
        });
    }
}

#[test]
fn a_guest_that_wakes_itself_for_ever_lets_others_run() {
    alone(async |os: &mut Os| {
        let guest = async |os: &mut Os| {
            os.run_future(async |_: &Foreign| yields(u32::MAX).await)
                .await;
        };
        let guest = os.spawn("busy", guest).await.unwrap();
        for _ in 0..100 {
            os.yield_now().await;
        }
        assert!(os.kill(guest).await);
    });
    let mut kernel = unscripted().max_ticks(1000).build().unwrap();
    let busy = async |os: &mut Os| {
        os.run_future(async |_: &Foreign| yields(u32::MAX).await)
            .await;
    };
    kernel.spawn("busy", busy).unwrap();
    assert!(kernel.run().is_err());
}

#[test]
fn a_guest_that_wakes_itself_hears_its_timers() {
    let mut kernel = Kernel::real().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let foreign = *foreign;
                let first = either(yields(u32::MAX), foreign.sleep(Duration::from_millis(2)));
                assert!(!first.await);
                // Without a timer, the clock goes on all the same.
                let until = foreign.now() + Duration::from_millis(2);
                while foreign.now() < until {
                    yields(1).await;
                }
            })
            .await;
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn timers_ring_in_order_and_may_be_moved_and_reset() {
    alone(async |os: &mut Os| {
        let order = Rc::new(RefCell::new(Vec::new()));
        os.run_future(async |foreign: &Foreign| {
            let sleeps = |n: u64| {
                let (order, foreign) = (Rc::clone(&order), *foreign);
                async move {
                    foreign.sleep(second(n)).await;
                    order.borrow_mut().push((n, foreign.now()));
                }
            };
            both(both(sleeps(3), sleeps(1)), both(sleeps(2), sleeps(0))).await;
        })
        .await;
        let expected = [0, 1, 2, 3].map(|n| (n, second(n)));
        assert_eq!(*order.borrow(), expected);
        os.run_future(async |foreign: &Foreign| {
            let mut sleep = foreign.sleep(second(100));
            let first = poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut sleep).poll(cx)));
            assert!(first.await.is_pending());
            sleep.reset(second(5));
            // Another task polls it from now on, and this one has no timer.
            let moved = foreign.spawn("mover", sleep);
            assert_eq!((moved.await, foreign.now()), (Some(()), second(5)));
            foreign.sleep_until(second(1)).await;
            assert_eq!(foreign.now(), second(5));
        })
        .await;
    });
}

#[test]
fn calls_and_spawned_guests_are_tasks() {
    alone(async |os: &mut Os| {
        let me = os.get_tid().await;
        os.run_future(async |foreign: &Foreign| {
            let own = foreign.call(async |os: &mut Os| os.get_tid().await);
            assert_ne!(own.await, me);
            let names = foreign.call(async |os: &mut Os| {
                let tasks = os.tasks().await;
                tasks
                    .iter()
                    .map(|task| task.name.to_string())
                    .collect::<Vec<_>>()
            });
            let inner = *foreign;
            let child = foreign.spawn("child", async move {
                inner.sleep(second(2)).await;
                7
            });
            let names = names.await;
            assert!(
                names.contains(&"child".into()) && names.contains(&"call".into()),
                "{names:?}"
            );
            assert_eq!(child.await, Some(7));
            // One whose handle is gone goes on.
            let slot = Slot::default();
            let theirs = slot.clone();
            drop(foreign.spawn("left", async move { theirs.set(1) }));
            assert_eq!(slot.wait().await, 1);
        })
        .await;
    });
}

#[test]
fn the_end_of_a_task_without_a_value_is_told() {
    alone(async |os: &mut Os| {
        let lost = os.run_future(async |foreign: &Foreign| {
            foreign
                .spawn("lost", async { panic!("in the library") })
                .await
        });
        assert_eq!(lost.await, None::<()>);
    });
}

#[test]
fn handles_are_send_and_work_nowhere_else() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    fn is_sync<T: Send + Sync>() {}
    is_sync::<Foreign>();
    is_sync::<Sleep>();
    alone(async |os: &mut Os| {
        let foreign = os.run_future(async |foreign: &Foreign| {
            is_send(foreign.call(async |os: &mut Os| os.now().await)).await;
            *foreign
        });
        let foreign = foreign.await;
        let child = os.spawn("outside", async move |_: &mut Os| {
            let _ = foreign.now();
        });
        let child = child.await.unwrap();
        let exit = os.wait(child).await;
        let Ok(Exit::Faulted(why)) = exit else {
            panic!("{exit:?}");
        };
        assert!(
            why.contains("Foreign::now is used outside of Os::run_future"),
            "{why}"
        );
    });
}

#[test]
fn waits_and_deadlocks_name_the_wake_and_its_last_waker() {
    let ledger = Rc::new(RefCell::new(Ledger::new()));
    let tracer = Rc::clone(&ledger);
    let mut kernel = unscripted()
        .tracer(move |event: &Event<'_>| tracer.borrow_mut().event(event))
        .build()
        .unwrap();
    let slot = Slot::default();
    let theirs = slot.clone();
    kernel
        .spawn("guest", async move |os: &mut Os| {
            os.run_future(async |_: &Foreign| {
                theirs.wait().await;
                pending::<()>().await;
            })
            .await;
        })
        .unwrap();
    kernel
        .spawn("waker", async move |os: &mut Os| {
            os.sleep(second(1)).await;
            slot.set(1);
        })
        .unwrap();
    let report = kernel.run().unwrap_err().to_string();
    assert!(
        report.contains("a wake 1, last woken by task 2"),
        "{report}"
    );
    let live = kernel.tasks().next().unwrap();
    assert!(matches!(live.state, TaskState::Blocked { .. }));
    assert_eq!(ledger.borrow().info(1.into()).unwrap().wait, live.wait);
}
