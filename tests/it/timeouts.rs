//! Timeouts: rules S24 to S27, S56 and S57.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use trapline::{
    Closed, Elapsed, Errno, Exit, Kernel, Os, Queue, SystemCall,
    sync::{Mutex, Semaphore},
};

use crate::{
    stepping::{A_LOOK, Dropped, Moving, boot, finish, noting, printed, spin},
    support::{about, console, cpu, logged, sim, tenth_in_a_mode},
};

const S: Duration = Duration::from_secs(1);

#[test]
fn s24_a_timeout_that_fires_drops_the_body_and_answers_elapsed() {
    let seen = noting(async move |os, notes| {
        let inner = notes.clone();
        let answer = os.timeout(S, async |os| {
            let _outer = Dropped(inner.clone(), "outer");
            let call = async |os: &mut Os| {
                let _inner = Dropped(inner.clone(), "inner");
                os.sleep(S * 5).await;
                inner.note("slept on");
            };
            call(os).await;
        });
        assert_eq!(answer.await, Err(Elapsed));
        notes.note(format!("elapsed at {:?}", os.now().await));
        // The sleep that was cut has left its queue.
        os.sleep(S * 10).await;
        notes.note(format!("slept until {:?}", os.now().await));
    });
    assert_eq!(
        seen.take(),
        ["inner", "outer", "elapsed at 1s", "slept until 11s"]
    );
}

#[test]
fn s24_a_body_that_ends_first_answers_ok_and_disarms_the_timer() {
    boot(async |os| {
        let answer = os.timeout(S * 5, async |os| {
            os.sleep(S).await;
            "done"
        });
        assert_eq!(answer.await, Ok("done"));
        // Were it still armed, it would cut this sleep, or the clock would stop at it.
        os.sleep(S * 20).await;
        assert_eq!(os.now().await, S * 21);
    });
    let mut kernel = Kernel::simulated(0);
    let main = async |os: &mut Os| os.timeout(S, async |os| os.yield_now().await).await;
    kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).elapsed, Duration::ZERO);
}

#[test]
fn s24_a_body_that_panics_or_is_killed_disarms_the_timer() {
    let mut kernel = Kernel::simulated(0);
    let body = async |os: &mut Os| {
        let panics = async |os: &mut Os| {
            os.yield_now().await;
            panic!("boom");
        };
        let _: Result<(), Elapsed> = os.timeout(S, panics).await;
    };
    let bad = kernel.spawn("bad", body).unwrap();
    kernel
        .spawn("killer", async |os| {
            let victim = os
                .spawn("victim", async |os| {
                    os.timeout(S, async |os| os.sleep(S * 9).await).await
                })
                .await
                .unwrap();
            os.yield_now().await;
            assert!(os.kill(victim).await);
        })
        .unwrap();
    let report = finish(&mut kernel);
    assert_eq!(report.exits()[&bad], Exit::Faulted("boom".into()));
    assert_eq!(report.elapsed, Duration::ZERO);
}

#[test]
fn s24_a_timeout_leaves_every_queue() {
    boot(async |os| {
        let queue = Queue::bounded(os, 1).await;
        let sleeper = os.spawn("sleeper", async |os| os.sleep(S * 100).await);
        let sleeper = sleeper.await.unwrap();

        let wait = os.timeout(S, async |os| os.wait(sleeper).await).await;
        assert_eq!(wait, Err(Elapsed));
        let get = os.timeout(S, async |os| queue.get(os).await).await;
        assert_eq!(get, Err(Elapsed));
        queue.put(os, 1).await.unwrap();
        let put = os.timeout(S, async |os| queue.put(os, 2).await).await;
        assert_eq!(put, Err(Elapsed));
        let within = os.timeout(S, async |os| {
            os.timeout(S * 2, async |os| os.sleep(S * 3).await).await
        });
        assert_eq!(within.await, Err(Elapsed));
        assert_eq!(os.now().await, S * 4);

        // The put that was cut put nothing, the get that was cut takes nothing.
        assert_eq!(queue.get(os).await, Ok(1));
        queue.put(os, 3).await.unwrap();
        assert_eq!(queue.get(os).await, Ok(3));
        assert!(queue.is_empty());
        // The wait that was cut has not reaped.
        assert_eq!(os.wait(sleeper).await, Ok(Exit::Done));
        assert_eq!(os.wait(sleeper).await, Err(Errno::NoSuchTask));
        assert_eq!(os.now().await, S * 100);
    });
}

#[test]
fn s24_a_message_whose_put_timed_out_is_dropped() {
    let seen = noting(async move |os, notes| {
        let queue = Queue::bounded(os, 0).await;
        let message = Dropped(notes.clone(), "message");
        let put = os.timeout(S, async |os| queue.put(os, message).await).await;
        assert!(matches!(put, Err(Elapsed)));
        notes.note("elapsed");
    });
    assert_eq!(seen.take(), ["message", "elapsed"]);
}

#[cfg(unix)]
#[test]
fn s24_a_timeout_around_a_device() {
    use std::{io::Write, os::unix::net::UnixStream};
    let mut kernel = Kernel::real().unwrap();
    let main = kernel.spawn("main", async |os| {
        let (ours, mut theirs) = UnixStream::pair()?;
        let device = os.attach(ours).await?;
        let mut buf = [0; 8];
        let span = Duration::from_millis(5);
        let cut = os.timeout(span, async |os| device.recv(os, &mut buf).await);
        assert!(matches!(cut.await, Err(Elapsed)));
        // The direction is free again, and nothing that comes later was swallowed.
        theirs.write_all(b"late")?;
        let n = os.timeout(S * 60, async |os| device.recv(os, &mut buf).await);
        let n = n.await.expect("it is there already")?;
        assert_eq!(&buf[..n], b"late");
        Ok::<(), io::Error>(())
    });
    let main = main.unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done);
}

#[test]
fn s25_timeouts_nest_and_the_inner_one_may_fire_alone() {
    boot(async |os| {
        let outer = os.timeout(S * 5, async |os| {
            let inner = os.timeout(S, async |os| os.sleep(S * 9).await).await;
            assert_eq!(inner, Err(Elapsed));
            os.sleep(S).await;
            "on"
        });
        assert_eq!(outer.await, Ok("on"));
        assert_eq!(os.now().await, S * 2);
    });
}

#[test]
fn s25_when_the_outer_one_fires_only_it_answers() {
    let seen = noting(async move |os, notes| {
        let inside = notes.clone();
        let outer = os.timeout(S, async |os| {
            let _outer = Dropped(inside.clone(), "outer body");
            let inner = os.timeout(S * 2, async |os| {
                let _inner = Dropped(inside.clone(), "inner body");
                os.timeout(S * 3, async |os| os.sleep(S * 9).await).await
            });
            let inner = inner.await;
            inside.note(format!("inner answered {inner:?}"));
        });
        notes.note(format!("outer answered {:?}", outer.await));
        // The timers of those inside are gone.
        os.sleep(S * 60).await;
        assert_eq!(os.now().await, S * 61);
    });
    assert_eq!(
        seen.take(),
        ["inner body", "outer body", "outer answered Err(Elapsed)"]
    );
}

#[test]
fn s25_at_the_same_instant_the_outer_one_wins() {
    for (outer, inner) in [(S, S), (S * 2, S * 2)] {
        boot(async move |os| {
            let cut = os.timeout(outer, async |os| {
                let inner = os.timeout(inner, async |os| os.sleep(S * 9).await);
                let inner = inner.await;
                panic!("the inner one answered {inner:?}");
            });
            assert_eq!(cut.await, Err(Elapsed));
            assert_eq!(os.now().await, outer);
        });
    }
}

#[test]
fn s25_an_outer_one_that_fires_before_the_inner_answer_is_heard_wins() {
    // The inner one is due at every look, the outer one a look later.
    let mut kernel = Kernel::simulated(0);
    let late = Rc::new(Cell::new(0));
    let count = Rc::clone(&late);
    kernel
        .spawn("main", async move |os: &mut Os| {
            let outer = os.timeout(Duration::ZERO, async |os| {
                loop {
                    let inner = os.timeout(Duration::ZERO, async |os| {
                        spin(os, A_LOOK).await;
                    });
                    assert_eq!(inner.await, Err(Elapsed));
                    count.set(count.get() + 1);
                }
            });
            let outer: Result<(), Elapsed> = outer.await;
            assert_eq!(outer, Err(Elapsed));
        })
        .unwrap();
    let report = finish(&mut kernel);
    assert_eq!(report.exits()[&1.into()], Exit::Done);
    assert_eq!(late.get(), 0);
}

#[test]
fn s25_a_hundred_deep() {
    async fn nest(os: &mut Os, depth: u32) -> Result<(), Elapsed> {
        if depth == 0 {
            os.sleep(Duration::MAX).await;
            return Ok(());
        }
        // The inner ones are due earlier, but for those around the fortieth, which is the first.
        let span = if depth == 40 { S } else { S * (depth + 1) };
        let inner = os.timeout(span, async |os| Box::pin(nest(os, depth - 1)).await);
        match inner.await {
            Err(Elapsed) => {
                writeln!(os, "{depth} elapsed");
                Ok(())
            }
            Ok(inner) => inner,
        }
    }
    let printed = printed(async |os| nest(os, 100).await);
    assert_eq!(printed, "40 elapsed\n");
}

#[test]
fn s26_a_body_that_runs_past_its_deadline_without_trapping_is_not_cut() {
    let (world, passed) = Moving::new();
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    kernel
        .spawn("main", async move |os: &mut Os| {
            let compute = || passed.set(passed.get() + S * 10);
            // Without a trap, and with the last trap before the deadline.
            let answer = os.timeout(S, async |_: &mut Os| compute()).await;
            assert_eq!(answer, Ok(()));
            let answer = os.timeout(S, async |os| {
                os.yield_now().await;
                compute();
                "late"
            });
            assert_eq!(answer.await, Ok("late"));
            // The timer is disarmed: this is not cut.
            spin(os, A_LOOK).await;
            // One that traps again is cut there.
            let answer = os.timeout(S, async |os| {
                compute();
                os.sleep(S).await;
                panic!("it went on");
            });
            assert_eq!(answer.await, Err(Elapsed));
        })
        .unwrap();
    assert_eq!(finish(&mut kernel).exits()[&1.into()], Exit::Done);
}

#[test]
fn s26_a_body_that_does_not_trap_is_not_cut_before_it_begins() {
    // A look at the world comes between the arming and the body, some time.
    boot(async |os| {
        for n in 0..A_LOOK * 2 {
            let answer = os.timeout(Duration::ZERO, async move |_: &mut Os| n).await;
            assert_eq!(answer, Ok(n));
            if n % 3 == 0 {
                os.yield_now().await;
            }
        }
    });
}

#[test]
fn s26_a_body_whose_deadline_passed_before_it_began_is_cut_at_its_first_trap() {
    for before in 250..260 {
        boot(async move |os| {
            spin(os, before).await;
            let answer = os.timeout(Duration::ZERO, async |os| spin(os, A_LOOK).await);
            assert_eq!(answer.await, Err(Elapsed));
            let answer = os.timeout(Duration::ZERO, async |os| os.sleep(S).await);
            assert_eq!(answer.await, Err(Elapsed));
            assert_eq!(os.now().await, Duration::ZERO);
        });
    }
}

#[test]
fn s27_a_call_and_its_timeout_that_are_due_at_the_same_instant() {
    boot(async |os| {
        let sleep = os.timeout(S, async |os| os.sleep(S).await).await;
        assert_eq!(sleep, Err(Elapsed));
        // The guarded call that was armed first wins.
        let wins = os.spawn("wins", async |os| os.sleep_until(S * 3).await);
        let wins = wins.await.unwrap();
        os.yield_now().await;
        os.sleep(S).await;
        let wait = os.timeout(S, async |os| os.wait(wins).await).await;
        assert_eq!(wait, Err(Elapsed));
        assert_eq!(os.wait(wins).await, Ok(Exit::Done));
        assert_eq!(os.now().await, S * 3);
    });
}

#[test]
fn s27_exactly_one_of_them_happens() {
    // A message arrives at the instant of the timeout, before it or after it: it is got or left.
    for producer_first in [true, false] {
        boot(async move |os| {
            let queue = Queue::unbounded(os).await;
            let source = queue.clone();
            let put = async move |os: &mut Os| {
                os.sleep_until(S).await;
                source.put(os, "message").await
            };
            if producer_first {
                os.spawn("producer", put).await.unwrap();
                let get = os.timeout(S, async |os| queue.get(os).await).await;
                assert_eq!(get, Err(Elapsed));
            } else {
                let getter = queue.clone();
                let consumer = async move |os: &mut Os| {
                    let get = os.timeout(S, async |os| getter.get(os).await).await;
                    assert_eq!(get, Err(Elapsed));
                };
                os.spawn("consumer", consumer).await.unwrap();
                os.spawn("producer", put).await.unwrap();
            }
            assert_eq!(queue.get(os).await, Ok("message"));
            assert_eq!(queue.try_get(os).await.ok(), None);
        });
    }
}

#[test]
fn s27_a_call_that_was_answered_and_not_heard_when_the_timeout_comes() {
    // The exit of a task, a message and a spawned task: whatever the alignment of turns and looks,
    // either the body goes on with its answer, or it is cut and the message is still there.
    for before in 240..270 {
        boot(async move |os| {
            let queue = Queue::unbounded(os).await;
            for n in 0..20 {
                queue.put(os, n).await.unwrap();
            }
            spin(os, before).await;
            let mut got = 0;
            let cut = os.timeout(Duration::ZERO, async |os| {
                while let Ok(n) = queue.get(os).await {
                    assert_eq!(n, got);
                    got += 1;
                }
            });
            assert_eq!(cut.await, Err(Elapsed));
            assert_eq!(queue.len(), 20 - got);
            for n in got..20 {
                assert_eq!(queue.get(os).await?, n);
            }
            Ok::<(), Closed>(())
        });
    }
}

#[test]
fn a_timeout_that_never_comes() {
    let printed = printed(async |os| {
        let answer = os
            .timeout(Duration::MAX, async |os| os.sleep(S).await)
            .await;
        assert_eq!(answer, Ok(()));
        let now = os.now().await;
        writeln!(os, "{now:?}");
    });
    assert_eq!(printed, "1s\n");
}

#[test]
fn a_crowd_with_equal_timeouts_leaves_a_queue_in_order_and_at_no_great_price() {
    const CROWD: u32 = 20_000;
    // At either end of a queue, and at the end of a task.
    let wait = async |os: &mut Os, place: u32, queue: &Queue<u32>, full: &Queue<u32>, target| {
        let wait = async |os: &mut Os| match place {
            0 => drop(queue.get(os).await),
            1 => drop(full.put(os, 0).await),
            _ => drop(os.wait(target).await),
        };
        assert_eq!(os.timeout(S, wait).await, Err(Elapsed));
    };
    for place in 0..3 {
        let mut kernel = Kernel::simulated(0);
        let main = async move |os: &mut Os| {
            let (queue, full) = (Queue::unbounded(os).await, Queue::bounded(os, 0).await);
            let target = os.spawn("target", async |os: &mut Os| os.sleep(3 * S).await);
            let target = target.await.unwrap();
            for _ in 0..CROWD {
                let (queue, full) = (queue.clone(), full.clone());
                let waiter = async move |os: &mut Os| wait(os, place, &queue, &full, target).await;
                os.spawn_detached("waiter", waiter).await.unwrap();
            }
            os.sleep(2 * S).await;
        };
        kernel.spawn("main", main).unwrap();
        let cpu = cpu(|| assert_eq!(kernel.run().unwrap().failures, 0));
        assert!(cpu < Duration::from_secs(1), "{cpu:?} at place {place}");
    }
}

// ---- what a timeout cuts

/// A crowd that is always ready, until this is dropped: an answer waits many turns until its task
/// hears it.
struct Crowd {
    _alive: Rc<()>,
}

impl Crowd {
    async fn spawn(os: &mut Os, tasks: usize) -> Self {
        let alive = Rc::new(());
        for _ in 0..tasks {
            let crowd = Rc::downgrade(&alive);
            let member = async move |os: &mut Os| {
                while crowd.strong_count() > 0 {
                    os.yield_now().await;
                }
            };
            os.spawn_detached("member", member).await.unwrap();
        }
        Self { _alive: alive }
    }
}

/// A call that another task completes, or that completes at once.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Completed {
    Wait,
    Put,
    Get,
    Spawn,
}

/// Makes a call in a timeout of a second, has the clock pass its deadline just before the call is
/// completed, and tries another call. Answers whether that one was cut.
async fn complete_late(os: &mut Os, call: Completed, passed: Rc<Cell<Duration>>) -> bool {
    let (queue, effect) = (Queue::bounded(os, 0).await, Queue::unbounded(os).await);
    let (theirs, pass) = (queue.clone(), Rc::clone(&passed));
    let partner = async move |os: &mut Os| {
        spin(os, 3).await;
        pass.set(pass.get() + S * 2);
        match call {
            Completed::Put => assert_eq!(theirs.try_get(os).await, Ok("message")),
            Completed::Get => assert_eq!(theirs.try_put(os, "message").await, Ok(())),
            Completed::Wait | Completed::Spawn => {}
        }
    };
    let partner = os.spawn("partner", partner).await.unwrap();
    let heard = Cell::new(false);
    let cut = os.timeout(S, async |os| {
        match call {
            Completed::Wait => assert_eq!(os.wait(partner).await, Ok(Exit::Done)),
            Completed::Put => assert_eq!(queue.put(os, "message").await, Ok(())),
            Completed::Get => assert_eq!(queue.get(os).await, Ok("message")),
            Completed::Spawn => {
                passed.set(passed.get() + S * 2);
                assert!(os.spawn_detached("child", async |_| ()).await.is_ok());
            }
        }
        heard.set(true);
        effect.put(os, ()).await.unwrap();
    });
    let cut = cut.await.is_err();
    assert!(heard.get(), "{call:?} was completed, and its answer lost");
    assert_eq!(effect.is_empty(), cut, "a call that is cut has no effect");
    cut
}

#[test]
fn s56_a_call_that_was_completed_keeps_its_answer_and_the_next_one_is_cut() {
    let calls = [
        Completed::Wait,
        Completed::Put,
        Completed::Get,
        Completed::Spawn,
    ];
    for call in calls {
        let cuts = Rc::new(Cell::new(0));
        for before in 0..8 {
            let (world, passed) = Moving::new();
            let mut kernel = Kernel::builder().world(world).build().unwrap();
            let count = Rc::clone(&cuts);
            let main = async move |os: &mut Os| {
                let _crowd = Crowd::spawn(os, 200).await;
                spin(os, before).await;
                let cut = complete_late(os, call, passed).await;
                count.set(count.get() + usize::from(cut));
            };
            let main = kernel.spawn("main", main).unwrap();
            let report = kernel.run().unwrap();
            assert_eq!(report.exits()[&main], Exit::Done, "{call:?}");
        }
        assert!(cuts.get() > 0, "{call:?}: no timeout came before an answer");
    }
}

/// Runs a program alone and beside crowds of several sizes, at several distances from a poll.
fn whatever_runs(program: impl AsyncFn(&mut Os) + Clone + 'static) {
    for (crowd, before) in [
        (0, 0),
        (0, 245),
        (0, 252),
        (1, 0),
        (1, 126),
        (40, 0),
        (40, 5),
        (300, 1),
    ] {
        let program = program.clone();
        console(async move |os| {
            let _crowd = Crowd::spawn(os, tenth_in_a_mode(crowd)).await;
            spin(os, before).await;
            program(os).await;
        });
    }
}

/// How a body ends whose timeout is due at once.
async fn at_once<T>(os: &mut Os, body: impl AsyncFnOnce(&mut Os) -> T) -> Result<T, Elapsed> {
    os.timeout(Duration::ZERO, body).await
}

#[test]
fn s57_a_due_timeout_lets_the_first_call_through_that_completes_at_once() {
    whatever_runs(async |os| {
        let queue = Queue::bounded(os, 2).await;
        let zombie = os.spawn("zombie", async |_| ()).await.unwrap();
        let put = at_once(os, async |os| queue.put(os, 1).await).await;
        assert_eq!(put, Ok(Ok(())));
        let put = at_once(os, async |os| queue.try_put(os, 2).await).await;
        assert_eq!(put, Ok(Ok(())));
        let get = at_once(os, async |os| queue.get(os).await).await;
        assert_eq!(get, Ok(Ok(1)));
        let get = at_once(os, async |os| queue.try_get(os).await).await;
        assert_eq!(get, Ok(Ok(2)));
        let wait = at_once(os, async |os| os.wait(zombie).await).await;
        assert_eq!(wait, Ok(Ok(Exit::Done)));
        let child = at_once(os, async |os| os.spawn("child", async |_| ()).await).await;
        let child = child.expect("it completes at once").expect("there is room");
        assert_eq!(os.wait(child).await, Ok(Exit::Done));
    });
}

#[test]
fn s57_every_later_call_is_cut_before_its_effect() {
    whatever_runs(async |os| {
        let queue = Queue::unbounded(os).await;
        for n in 0..3 {
            queue.put(os, n).await.unwrap();
        }
        let victim = os.spawn("victim", async |os| os.sleep(S).await);
        let victim = victim.await.unwrap();
        let got = Cell::new(None);
        let cut = at_once(os, async |os| {
            got.set(queue.get(os).await.ok());
            queue.get(os).await
        });
        assert_eq!(cut.await, Err(Elapsed));
        assert_eq!((got.get(), queue.len()), (Some(0), 2));
        let cut = at_once(os, async |os| {
            os.set_nice(0).await;
            os.kill(victim).await
        });
        assert_eq!(cut.await, Err(Elapsed));
        let cut = at_once(os, async |os| {
            os.set_nice(0).await;
            queue.close(os).await;
        });
        assert_eq!(cut.await, Err(Elapsed));
        assert_eq!(queue.put(os, 3).await, Ok(()), "it is open");
        // Calls that only ask are cut, too.
        let cut = at_once(os, async |os| {
            os.set_nice(0).await;
            os.get_tid().await
        });
        assert_eq!(cut.await, Err(Elapsed));
        let cut = at_once(os, async |os| {
            os.call_soon(async |_: &mut Os| ()).await;
            queue.get(os).await
        });
        assert_eq!(cut.await, Err(Elapsed));
        assert_eq!(queue.len(), 3);
        assert!(os.kill(victim).await, "it is alive");
    });
}

/// How many messages are taken by a body whose timeout is due, after as many calls.
async fn taken_after(
    os: &mut Os,
    calls: usize,
    ask: impl AsyncFn(&mut Os),
) -> (Result<(), Elapsed>, usize) {
    let queue = Queue::unbounded(os).await;
    for n in 0..3 {
        queue.put(os, n).await.unwrap();
    }
    let taken = Cell::new(0);
    let cut = at_once(os, async |os| {
        for _ in 0..calls {
            ask(os).await;
        }
        queue.get(os).await.unwrap();
        taken.set(1);
    });
    let cut = cut.await;
    assert_eq!(queue.len(), 3 - taken.get());
    (cut, taken.get())
}

#[test]
fn s57_calls_that_only_ask_or_arm_or_take_a_free_lock_leave_the_one_answer() {
    whatever_runs(async |os| {
        let one = (Ok(()), 1);
        assert_eq!(
            taken_after(os, 16, async |os| _ = os.now().await).await,
            one
        );
        assert_eq!(
            taken_after(os, 16, async |os| _ = os.get_tid().await).await,
            one
        );
        assert_eq!(
            taken_after(os, 16, async |os| _ = os.random().await).await,
            one
        );
        assert_eq!(
            taken_after(os, 16, async |os| drop(os.host().await)).await,
            one
        );
        let raw = async |os: &mut Os| _ = os.trap(SystemCall::Disarm(0)).await;
        assert_eq!(taken_after(os, 16, raw).await, one);
        let arms = async |os: &mut Os| {
            let inner = os.timeout(9 * S, async |_: &mut Os| ()).await;
            assert_eq!(inner, Ok(()));
        };
        assert_eq!(taken_after(os, 16, arms).await, one);
        let mutex = Mutex::new(os, ()).await;
        let locks = async |os: &mut Os| drop(mutex.lock(os).await.unwrap());
        assert_eq!(taken_after(os, 16, locks).await, one);
        // The seventeenth is the one answer, of whatever kind.
        let none = (Err(Elapsed), 0);
        assert_eq!(
            taken_after(os, 17, async |os| _ = os.now().await).await,
            none
        );
        assert_eq!(taken_after(os, 17, arms).await, none);
        assert_eq!(taken_after(os, 17, locks).await, none);
        // Any other call is it at once.
        assert_eq!(
            taken_after(os, 1, async |os| os.set_nice(0).await).await,
            none
        );
        let semaphore = Semaphore::new(os, 1).await;
        let permit = async |os: &mut Os| drop(semaphore.acquire(os).await);
        assert_eq!(taken_after(os, 1, permit).await, none);
        assert_eq!(
            taken_after(os, 1, async |os| drop(os.tasks().await)).await,
            none
        );
    });
}

#[test]
fn s57_a_lock_that_is_taken_is_waited_for_and_so_cut() {
    whatever_runs(async |os| {
        let mutex = Mutex::new(os, ()).await;
        let _held = mutex.lock(os).await.unwrap();
        let theirs = mutex.clone();
        let other = async move |os: &mut Os| {
            let cut = at_once(os, async |os| theirs.lock(os).await.is_ok());
            assert_eq!(cut.await, Err(Elapsed));
        };
        let other = os.spawn("other", other).await.unwrap();
        assert_eq!(os.wait(other).await, Ok(Exit::Done));
    });
}

#[test]
fn s57_timeouts_compose() {
    whatever_runs(async |os| {
        let queue = Queue::unbounded(os).await;
        for n in 0..4 {
            queue.put(os, n).await.unwrap();
        }
        let get = at_once(os, async |os| queue.get(os).await).await;
        assert_eq!(get, Ok(Ok(0)));
        let get = at_once(os, async |os| {
            os.timeout(9 * S, async |os| queue.get(os).await).await
        });
        assert_eq!(get.await, Ok(Ok(Ok(1))));
        let get = at_once(os, async |os| {
            at_once(os, async |os| queue.get(os).await).await
        });
        assert_eq!(get.await, Ok(Ok(Ok(2))));
        let get = at_once(os, async |os| {
            os.now().await;
            queue.get(os).await
        });
        assert_eq!(get.await, Ok(Ok(3)));
        // What an inner timeout would cut, the outer one cuts.
        let get = at_once(os, async |os| {
            os.timeout(9 * S, async |os| queue.get(os).await).await
        });
        assert_eq!(get.await, Err(Elapsed));
        // A library's helper that arms a timeout and asks for the time first.
        let put = at_once(os, async |os| {
            let deadline = os.now().await + S;
            let left = deadline.saturating_sub(os.now().await);
            os.timeout(left, async |os| queue.put(os, 5).await).await
        });
        assert_eq!(put.await, Ok(Ok(Ok(()))));
        assert_eq!(queue.get(os).await, Ok(5));
    });
}

#[test]
fn s57_an_inner_timeout_that_was_being_armed_when_the_outer_one_came_is_the_one_answer() {
    // S56: the call under way keeps its answer, and the next one is cut. Because of the crowd, a poll
    // comes between a call and its answer.
    let (world, passed) = Moving::new();
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let main = async move |os: &mut Os| {
        let _crowd = Crowd::spawn(os, A_LOOK).await;
        let queue = Queue::unbounded(os).await;
        queue.put(os, ()).await.unwrap();
        for inner in [true, false] {
            let cut = os.timeout(S, async |os| {
                passed.set(passed.get() + 2 * S);
                if inner {
                    os.timeout(9 * S, async |os| queue.get(os).await).await.ok()
                } else {
                    os.now().await;
                    queue.get(os).await.ok().map(Ok)
                }
            });
            assert_eq!(cut.await, Err(Elapsed), "inner: {inner}");
            assert_eq!(queue.len(), 1);
        }
    };
    let main = kernel.spawn("main", main).unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done);
}

#[test]
fn s57_calls_that_would_block_and_yields_and_sleeps_are_cut_at_once() {
    whatever_runs(async |os| {
        let (empty, full) = (
            Queue::<()>::unbounded(os).await,
            Queue::bounded(os, 0).await,
        );
        let live = os
            .spawn("live", async |os| os.sleep(S).await)
            .await
            .unwrap();
        let get = at_once(os, async |os| empty.get(os).await).await;
        assert_eq!(get, Err(Elapsed));
        let put = at_once(os, async |os| full.put(os, ()).await).await;
        assert_eq!(put, Err(Elapsed));
        let wait = at_once(os, async |os| os.wait(live).await).await;
        assert_eq!(wait, Err(Elapsed));
        let naps = [Duration::ZERO, S];
        for nap in naps {
            let sleep = at_once(os, async |os| os.sleep(nap).await).await;
            assert_eq!(sleep, Err(Elapsed));
        }
        let sleep = at_once(os, async |os| os.sleep_until(Duration::ZERO).await);
        assert_eq!(sleep.await, Err(Elapsed));
        let yields = Cell::new(0);
        let cut: Result<(), Elapsed> = at_once(os, async |os| {
            loop {
                os.yield_now().await;
                yields.set(yields.get() + 1);
            }
        })
        .await;
        assert_eq!((cut, yields.get()), (Err(Elapsed), 0));
        assert_eq!(os.now().await, Duration::ZERO);
        assert!(os.kill(live).await);
    });
}

#[test]
fn s57_a_sleep_that_is_over_when_its_timeout_comes_is_cut_at_once() {
    let (world, passed) = Moving::new();
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let main = async move |os: &mut Os| {
        let late = async move |os: &mut Os| {
            // Until the sleep has begun.
            spin(os, 8).await;
            passed.set(3 * S);
        };
        os.spawn_detached("late", late).await?;
        let goes_on = Cell::new(false);
        let cut = os.timeout(2 * S, async |os| {
            os.sleep(S).await;
            goes_on.set(true);
        });
        // At 3 s the kernel looks at its timers again.
        assert_eq!((cut.await, goes_on.get()), (Err(Elapsed), false));
        Ok::<(), Errno>(())
    };
    let main = kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).exits()[&main], Exit::Done);
}

#[test]
fn a_log_answers_a_timeout_before_its_number_is_used() {
    let (mut kernel, log) = logged(sim());
    kernel
        .spawn("main", async |os: &mut Os| {
            let cut = os.timeout(S, async |os| os.sleep(5 * S).await).await;
            assert_eq!(cut, Err(Elapsed));
        })
        .unwrap();
    kernel.run().unwrap();
    let calls: Vec<_> = about(&log, 1)
        .into_iter()
        .filter(|line| line.contains("timeout") || line.contains("disarm"))
        .collect();
    assert_eq!(
        calls,
        [
            "trapped timeout(1s)",
            "replied timeout 1",
            "woken by a timeout",
            "replied timeout 1 elapsed",
            "deferred disarm(1)",
        ]
    );
}
