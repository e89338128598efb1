//! Several futures and several guests that wait for one listener, one socket or one sleep.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use trapline::{Errno, Exit, Foreign, ForeignListener, Kernel, Os, SimWorld, Tid, check};

use super::{alone, either, second};

/// The waker of one future among several.
struct Branch(AtomicBool, Waker);

impl Wake for Branch {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
        self.1.wake_by_ref();
    }
}

/// Polls each future only when its own waker was woken. (The `FuturesUnordered` of futures.)
async fn apart<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|it| Some(Box::pin(it))).collect();
    let mut branches: Vec<Arc<Branch>> = Vec::new();
    let mut values = Vec::new();
    poll_fn(|cx| {
        for (at, future) in futures.iter_mut().enumerate() {
            if branches.len() == at {
                branches.push(Arc::new(Branch(true.into(), cx.waker().clone())));
            }
            let waker = Waker::from(Arc::clone(&branches[at]));
            if branches[at].0.swap(false, Ordering::Relaxed)
                && let Some(polled) = future
                && let Poll::Ready(value) = polled.as_mut().poll(&mut Context::from_waker(&waker))
            {
                values.push(value);
                *future = None;
            }
        }
        match futures.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    values
}

/// Makes a listener, and a task that connects so often, once a second.
async fn connected(os: &mut Os, times: u64) -> Rc<ForeignListener> {
    let local = ([127, 0, 0, 1], 0).into();
    let listener = os.listen(local).await.expect("it listens");
    let addr = listener.local_addr().expect("it has one");
    let client = async move |os: &mut Os| {
        let mut kept = Vec::new();
        for _ in 0..times {
            os.sleep(second(1)).await;
            kept.push(os.connect(addr).await?);
        }
        io::Result::Ok(())
    };
    os.spawn("client", client).await.expect("there is room");
    os.run_future(async |foreign: &Foreign| Rc::new(foreign.listener(listener)))
        .await
}

async fn acceptor(os: &mut Os, listener: &Rc<ForeignListener>) -> Tid {
    let listener = Rc::clone(listener);
    let accepts = async move |os: &mut Os| {
        os.run_future(async |_: &Foreign| listener.accept().await.map(drop))
            .await
    };
    os.spawn("acceptor", accepts).await.expect("there is room")
}

#[test]
fn s96_all_futures_that_accept_are_served() {
    alone(async |os: &mut Os| {
        let listener = connected(os, 3).await;
        os.run_future(async |_: &Foreign| {
            let accepted = apart([(); 3].map(|()| listener.accept())).await;
            assert!(accepted.iter().all(Result::is_ok));
        })
        .await;
        assert!(os.now().await < second(4));
    });
}

#[test]
fn s96_all_guests_that_accept_are_served_and_do_not_wake_one_another_meanwhile() {
    let world = SimWorld::new(1);
    let builder = Kernel::builder().world(world).max_ticks(500);
    let mut kernel = builder.build().expect("it has a world");
    let main = async |os: &mut Os| {
        let listener = connected(os, 3).await;
        let mut guests = Vec::new();
        for _ in 0..3 {
            guests.push(acceptor(os, &listener).await);
        }
        for tid in guests {
            assert_eq!(os.wait(tid).await, Ok(Exit::Done));
        }
    };
    kernel.spawn("main", main).expect("there is room");
    let report = kernel.run().expect("it is over soon");
    report.check().expect("all is well");
}

#[test]
fn s96_no_order_leaves_a_listener_with_a_guest_that_has_lost_it() {
    let all = check(|kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let listener = connected(os, 2).await;
            let guests = [acceptor(os, &listener).await, acceptor(os, &listener).await];
            for tid in guests {
                os.wait(tid).await?;
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()
    });
    all.random().schedules(40).run();
}

#[test]
fn s96_a_guest_that_ends_or_gives_up_leaves_the_listener_to_another_that_waits() {
    alone(async |os: &mut Os| {
        let listener = connected(os, 1).await;
        let waits = acceptor(os, &listener).await;
        let killed = acceptor(os, &listener).await;
        let gives_up = async move |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let accepts = async || drop(listener.accept().await);
                let half = Duration::from_millis(500);
                assert!(!either(accepts(), foreign.sleep(half)).await);
                foreign.sleep(second(9)).await;
            })
            .await;
        };
        os.spawn("gives up", gives_up).await.expect("there is room");
        os.sleep(Duration::from_millis(100)).await;
        assert!(os.kill(killed).await);
        assert_eq!(os.wait(waits).await, Ok(Exit::Done));
        assert!(os.now().await < second(2));
    });
}

#[test]
fn s96_all_futures_that_wait_for_datagrams_or_for_room_are_served() {
    alone(async |os: &mut Os| {
        let local = ([127, 0, 0, 1], 0).into();
        let [one, other] = [os.bind_udp(local).await, os.bind_udp(local).await];
        let (one, other) = (one.expect("it is bound"), other.expect("it is bound"));
        let addr = other.local_addr().expect("it has one");
        os.run_future(async |foreign: &Foreign| {
            let (one, other) = (foreign.udp(one), foreign.udp(other));
            // 64 find room at once.
            let sent = apart([(); 200].map(|()| one.send_to(b"hi", addr))).await;
            assert!(sent.iter().all(|sent| matches!(sent, Ok(2))));
            let takes = async || other.recv_from(&mut [0; 8]).await.map(|(n, _)| n);
            let taken = apart([(); 200].map(|()| takes())).await;
            assert!(taken.iter().all(|taken| matches!(taken, Ok(2))));
        })
        .await;
    });
}

#[test]
fn s96_a_sleep_that_is_reset_wakes_without_another_poll() {
    alone(async |os: &mut Os| {
        let shared = Rc::new(RefCell::new(None));
        let mine = Rc::clone(&shared);
        let guest = async move |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let mut sleep = foreign.sleep(second(9));
                let mut polls = 0;
                poll_fn(|cx| {
                    polls += 1;
                    let polled = Pin::new(&mut sleep).poll(cx);
                    if polls == 1 {
                        sleep.reset(second(3));
                    }
                    polled
                })
                .await;
                assert_eq!((polls, foreign.now()), (2, second(3)));
                *mine.borrow_mut() = Some(foreign.sleep(second(9)));
                poll_fn(|cx| Pin::new(mine.borrow_mut().as_mut().expect("it is here")).poll(cx))
                    .await;
                assert_eq!(foreign.now(), second(5));
            })
            .await;
        };
        let guest = os.spawn("guest", guest).await.expect("there is room");
        os.sleep(second(4)).await;
        // By a task that is no guest.
        if let Some(sleep) = &mut *shared.borrow_mut() {
            sleep.reset(second(5));
        }
        assert_eq!(os.wait(guest).await, Ok(Exit::Done));
    });
}

#[test]
fn what_is_written_or_closed_outside_of_a_guest_is_refused_without_an_effect() {
    alone(async |os: &mut Os| {
        let (one, other) = os.socketpair().await.expect("there is room");
        let stream = os
            .run_future(async |foreign: &Foreign| foreign.stream(one))
            .await;
        let cx = Context::from_waker(Waker::noop());
        assert!(matches!(stream.poll_write(&cx, b"no"), Poll::Ready(Err(_))));
        assert!(matches!(stream.poll_close(&cx), Poll::Ready(Err(_))));
        os.run_future(async move |_: &Foreign| {
            poll_fn(|cx| stream.poll_write(cx, b"yes")).await?;
            poll_fn(|cx| stream.poll_close(cx)).await
        })
        .await
        .expect("it is open");
        let mut got = Vec::new();
        while other.recv_into(os, &mut got).await.expect("it is open") > 0 {}
        assert_eq!(got, b"yes");
    });
}
