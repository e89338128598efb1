//! The calls about time, and timeouts around any calls.
//!
//! A timeout that comes answers the call that its task is at. That call never ends: it is pending,
//! and so is everything around it, up to the timeout, which knows its number and drops its body.

use std::{future::poll_fn, pin::pin, rc::Rc, task::Poll, time::Duration};

use super::os::{Os, done, mismatch};
use crate::{
    abi::{Nanos, Reply, SystemCall},
    trap::TrapFrame,
};

/// A timeout came before its body had ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

/// An armed timeout; disarmed when its body has ended, however that is.
struct Armed {
    frame: Rc<TrapFrame>,
    number: u64,
}

impl Drop for Armed {
    fn drop(&mut self) {
        if self.frame.elapsed.get() == Some(self.number) {
            self.frame.elapsed.set(None);
        }
        self.frame.defer(SystemCall::Disarm(self.number));
    }
}

impl Os {
    /// Sleeps for `span`. *Blocks* until the deadline; a span of zero is a yield, one that is too
    /// long to represent (584 years) never ends. Sleepers with equal deadlines wake in the order
    /// in which they went to sleep.
    pub fn sleep(&mut self, span: Duration) -> impl Future<Output = ()> {
        let span = Nanos::from(span);
        self.call(move |_| SystemCall::Sleep(span), done)
    }

    /// Sleeps until `instant`, counted from boot like [`Os::now`]. *Blocks* unless it has passed.
    pub fn sleep_until(&mut self, instant: Duration) -> impl Future<Output = ()> {
        let instant = Nanos::from(instant);
        self.call(move |_| SystemCall::SleepUntil(instant), done)
    }

    /// Answers the time since boot. Never blocks.
    pub fn now(&mut self) -> impl Future<Output = Duration> {
        self.call(
            |_| SystemCall::Now,
            |reply, _| match reply {
                Reply::Time(now) => now.into(),
                other => mismatch(other),
            },
        )
    }

    /// Runs `body`, but no longer than `span`: answers what it returned, or `Err(Elapsed)` after
    /// dropping it, destructors included. *Blocks* as the body does. Timeouts nest; when an outer
    /// one comes, everything inside it is dropped. A body that runs on without a trap is not cut.
    /// (Curio's `timeout_after`.)
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use trapline::{Elapsed, Kernel, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("hasty", async |os: &mut Os| {
    ///     let slow = os.timeout(Duration::from_secs(1), async |os| {
    ///         os.sleep(Duration::from_secs(5)).await;
    ///     });
    ///     assert_eq!(slow.await, Err(Elapsed));
    ///     assert_eq!(os.now().await, Duration::from_secs(1));
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn timeout<T>(
        &mut self,
        span: Duration,
        body: impl AsyncFnOnce(&mut Self) -> T,
    ) -> Result<T, Elapsed> {
        let span = Nanos::from(span);
        let frame = Rc::clone(self.frame());
        let armed = self.call(
            |frame| {
                frame.put_word(1);
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
        let mut body = pin!(Some(body(self)));
        poll_fn(|cx| {
            let under_way = body.as_mut().as_pin_mut().expect("it is cut once");
            match under_way.poll(cx) {
                Poll::Ready(value) => Poll::Ready(Ok(value)),
                Poll::Pending if frame.elapsed.get() == Some(armed.number) => {
                    let _cut = Cut::new(&frame);
                    body.set(None);
                    Poll::Ready(Err(Elapsed))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// While a body is dropped that a timeout has cut: the locks that it holds are poisoned, as at a
/// kill.
struct Cut<'a> {
    frame: &'a TrapFrame,
    outer: bool,
}

impl<'a> Cut<'a> {
    fn new(frame: &'a TrapFrame) -> Self {
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
