//! Wakes of guests: futures that are pending, and count on their waker.

use std::{
    cell::RefCell,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use trapline::{Foreign, Kernel, Os};

/// A guest that wakes itself in each poll, as one does that yields.
pub(crate) fn wakes_itself(laps: u64) {
    let mut kernel = Kernel::simulated(0);
    let guest = async move |os: &mut Os| {
        os.run_future(async |_: &Foreign| {
            let mut left = laps;
            poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        })
        .await;
    };
    kernel.spawn("guest", guest).expect("there is room");
    kernel.run().expect("the tasks come to an end");
}

/// Two guests in two tasks, each of which wakes the other and waits: two wakes in a lap.
pub(crate) fn wake_each_other(laps: u64) {
    let mut kernel = Kernel::simulated(0);
    let turn = Rc::new(RefCell::new((0, None::<Waker>)));
    for mine in 0..2 {
        let turn = Rc::clone(&turn);
        let guest = async move |os: &mut Os| {
            os.run_future(async |_: &Foreign| {
                for _ in 0..laps {
                    poll_fn(|cx| {
                        let mut turn = turn.borrow_mut();
                        if turn.0 == mine {
                            return Poll::Ready(());
                        }
                        turn.1 = Some(cx.waker().clone());
                        Poll::Pending
                    })
                    .await;
                    let waker = {
                        let mut turn = turn.borrow_mut();
                        turn.0 = 1 - mine;
                        turn.1.take()
                    };
                    waker.into_iter().for_each(Waker::wake);
                }
            })
            .await;
        };
        kernel.spawn("guest", guest).expect("there is room");
    }
    kernel.run().expect("the tasks come to an end");
}
