//! What a search finds of guests, and what it may leave out.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    future::poll_fn,
    rc::Rc,
    task::Poll,
    thread,
    time::Duration,
};

use trapline::{Exit, Foreign, Kernel, Os, Queue, check};

use super::{Slot, second};

#[test]
fn s96_no_order_loses_a_wake() {
    let all = check(|kernel: &mut Kernel| {
        let (one, other) = (Slot::default(), Slot::default());
        let (first, second) = (one.clone(), other.clone());
        let sum = Rc::new(Cell::new(0));
        let result = Rc::clone(&sum);
        kernel.spawn("guest", async move |os: &mut Os| {
            let both =
                os.run_future(async |_: &Foreign| super::both(first.wait(), second.wait()).await);
            let (a, b) = both.await;
            sum.set(a + b);
        })?;
        for (slot, value) in [(one, 1), (other, 2)] {
            kernel.spawn("waker", async move |os: &mut Os| {
                os.run_future(async |_: &Foreign| slot.set(value)).await;
            })?;
        }
        kernel.run()?.check()?;
        assert_eq!(result.get(), 3);
        Ok(())
    });
    let all = all.exhaustive().explore();
    assert!(all.complete && all.schedules > 1, "{all:?}");
}

/// Two guests that read a number and write it back, over a yield; with how many schedules all were seen.
fn counters(share: bool, unshared: bool) -> (Vec<String>, u64) {
    let all = check(move |kernel: &mut Kernel| {
        let common = Rc::new(Cell::new(0));
        let cells = [0, 1].map(|_| match share {
            true => Rc::clone(&common),
            false => Rc::new(Cell::new(0)),
        });
        for cell in cells.clone() {
            kernel.spawn("adder", async move |os: &mut Os| {
                os.run_future(async |foreign: &Foreign| {
                    if unshared {
                        foreign.unshared();
                    }
                    let seen = cell.get();
                    super::yields(1).await;
                    cell.set(seen + 1);
                })
                .await;
            })?;
        }
        kernel.run()?.check()?;
        kernel.outcome(cells[0].get().to_string());
        Ok(())
    });
    let all = all.exhaustive().explore();
    assert!(all.complete, "{all:?}");
    (all.outcomes.into_iter().collect(), all.schedules as u64)
}

#[test]
fn a_search_sees_what_guests_share_without_a_trap() {
    let (outcomes, shared) = counters(true, false);
    assert_eq!(outcomes, ["1", "2"]);
    let (outcomes, unshared) = counters(false, true);
    assert_eq!(outcomes, ["1"]);
    assert!(unshared < shared, "{unshared} of {shared}");
    assert_eq!(unshared, 1);
}

#[test]
fn a_guest_that_is_declared_unshared_and_is_woken_faults() {
    let mut kernel = Kernel::simulated(1);
    let slot = Slot::default();
    let theirs = slot.clone();
    let guest = kernel.spawn("guest", async move |os: &mut Os| {
        os.run_future(async |foreign: &Foreign| {
            foreign.unshared();
            // Its own timers, calls and yields are no other task's wakes.
            foreign.sleep(Duration::from_millis(1)).await;
            super::yields(2).await;
            foreign
                .call(async |os: &mut Os| os.sleep(Duration::from_millis(1)).await)
                .await;
            theirs.wait().await
        })
        .await;
    });
    let guest = guest.unwrap();
    kernel
        .spawn("waker", async move |os: &mut Os| {
            os.sleep(second(1)).await;
            slot.set(1);
        })
        .unwrap();
    let report = kernel.run().unwrap();
    let Exit::Faulted(why) = &report.exits()[&guest] else {
        panic!("{report:?}");
    };
    assert!(
        why.contains("declared unshared, and task 2 has woken it"),
        "{why}"
    );
}

#[test]
fn a_search_faults_a_guest_that_a_thread_wakes() {
    let found = || {
        check(|kernel: &mut Kernel| {
            kernel.spawn("guest", async |os: &mut Os| {
                let mut polls = 0;
                let polled = os.run_future_with_threads(async |_: &Foreign| {
                    poll_fn(|cx| {
                        polls += 1;
                        if polls == 2 {
                            return Poll::Ready(());
                        }
                        let waker = cx.waker().clone();
                        thread::spawn(move || waker.wake());
                        Poll::Pending
                    })
                    .await;
                });
                polled.await;
            })?;
            kernel.run()?.check()?;
            Ok(())
        })
    };
    // Where the thread is faster than the end of the poll, there is nothing to tell.
    for _ in 0..100 {
        if let Some(failure) = found().exhaustive().explore().failure {
            let text = format!("{failure:?}");
            // Which of the two depends on the thread, too.
            let reasons = [
                "another thread has woken this guest",
                "the program counts on threads",
            ];
            assert!(reasons.iter().any(|why| text.contains(why)), "{text}");
            return;
        }
    }
    panic!("the thread was faster each time");
}

#[test]
fn a_search_tells_a_guest_that_hashes_by_random_state_apart() {
    let found = check(|kernel: &mut Kernel| {
        for _ in 0..2 {
            kernel.spawn("guest", async |os: &mut Os| {
                os.run_future(async |foreign: &Foreign| {
                    // Another order in each run.
                    let spans: HashSet<u64> = (0..20).collect();
                    for span in spans {
                        foreign.sleep(Duration::from_millis(span % 2)).await;
                        super::yields((span % 3) as u32).await;
                    }
                })
                .await;
            })?;
        }
        kernel.run()?.check()?;
        Ok(())
    });
    let failure = found.exhaustive().schedules(1000).explore().failure;
    let text = format!("{:?}", failure.expect("no seed repeats it"));
    assert!(text.contains("hidden nondeterminism"), "{text}");
}

#[test]
fn a_search_sees_a_guest_that_is_woken_between_two_of_its_polls() {
    let all = check(|kernel: &mut Kernel| {
        let log = Rc::new(RefCell::new(Vec::new()));
        let noted = Rc::clone(&log);
        kernel.spawn("main", async move |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let mut tasks = Vec::new();
                for number in 0..3 {
                    let noted = Rc::clone(&noted);
                    let adds = async move { noted.borrow_mut().push(number) };
                    tasks.push(foreign.spawn("adds", adds));
                }
                for task in tasks {
                    task.await;
                }
            })
            .await;
        })?;
        kernel.run()?.check()?;
        kernel.outcome(format!("{:?}", log.borrow()));
        Ok(())
    });
    let all = all.exhaustive().explore();
    assert!(all.complete && all.failure.is_none(), "{all:?}");
    assert_eq!(all.outcomes.len(), 6, "{all:?}");
}

#[test]
fn a_search_sees_the_ends_of_a_guests_calls() {
    for unshared in [false, true] {
        let all = check(move |kernel: &mut Kernel| {
            let main = async move |os: &mut Os| {
                let queue = Queue::bounded(os, 1).await;
                os.run_future(async |foreign: &Foreign| {
                    if unshared {
                        foreign.unshared();
                    }
                    let (puts, gets) = (queue.clone(), queue.clone());
                    let put = async move |os: &mut Os| puts.put(os, 1).await.is_ok();
                    let get = async move |os: &mut Os| gets.get(os).await;
                    let ends = super::both(foreign.call(put), foreign.call(get));
                    assert_eq!(ends.await, (true, Ok(1)));
                })
                .await;
            };
            kernel.spawn("main", main)?;
            kernel.run()?.check()
        });
        let all = all.exhaustive().explore();
        assert!(all.complete && all.failure.is_none(), "{all:?}");
    }
}
