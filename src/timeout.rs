//! Timeouts around any calls, built on the calls of [`Os`](crate::Os).
//!
//! A timeout that comes answers the call that its task is at. That call never ends: it is pending,
//! and so is everything around it, up to the timeout, which knows its number and drops its body.

use std::{future::poll_fn, pin::pin, rc::Rc, task::Poll, time::Duration};

use crate::{
    abi::{Nanos, Reply, SystemCall},
    frame::{Frame, Mail},
    os::{Os, mismatch},
};

/// A timeout came before its body had ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[error("the time is over")]
pub struct Elapsed;

/// An armed timeout; disarmed when its body has ended, however that is.
struct Armed {
    frame: Rc<Frame>,
    number: u64,
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.frame.post(Mail::Disarm(self.number));
    }
}

pub(crate) async fn timeout<T>(
    os: &mut Os,
    span: Duration,
    body: impl AsyncFnOnce(&mut Os) -> T,
) -> Result<T, Elapsed> {
    let span = Nanos::from(span);
    let frame = Rc::clone(os.frame());
    let armed = os.call(
        |frame| {
            frame.body.set(true);
            SystemCall::Timeout(span)
        },
        |reply, frame| match reply {
            Reply::Timeout(number) => Armed {
                frame: Rc::clone(frame),
                number,
            },
            other => mismatch(other),
        },
    );
    let armed = armed.await;
    let mut body = pin!(Some(body(os)));
    poll_fn(|cx| {
        let under_way = body.as_mut().as_pin_mut().expect("it is cut once");
        match under_way.poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending if frame.elapsed.get() == Some(armed.number) => {
                frame.elapsed.set(None);
                let _cut = Cut::new(&frame);
                body.set(None);
                Poll::Ready(Err(Elapsed))
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// While a body is dropped that a timeout has cut: the locks that it holds break, as at a kill.
struct Cut<'a> {
    frame: &'a Frame,
    outer: bool,
}

impl<'a> Cut<'a> {
    fn new(frame: &'a Frame) -> Self {
        let outer = frame.killing.replace(true);
        Self { frame, outer }
    }
}

// Also when a destructor of the body panics.
impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.frame.killing.set(self.outer);
    }
}
