//! The calls about time, and timeouts around any calls.
//!
//! A timeout that fires answers the call that its task is in. The future of that call stays
//! pending, and so do the futures around it, up to the timeout. The timeout finds its own number in
//! the frame, and drops its body.

use std::{future::poll_fn, pin::pin, rc::Rc, task::Poll, time::Duration};

use super::os::{Os, answer, carrying, checked, mismatch};
use crate::{
    abi::{Errno, Nanos, Reply, Share, SystemCall},
    sched::Policy,
    trap::{Effect, Payload, TrapFrame},
};

/// A timeout fired before its body had ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

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
    /// Sleeps for `span`. *Blocks* until the deadline. A span of zero is a yield. A span of more
    /// than 584 years never ends. Sleepers with equal deadlines wake in the order in which they
    /// began to sleep.
    #[track_caller]
    pub fn sleep(&mut self, span: Duration) -> impl Future<Output = ()> {
        self.note_caller();
        self.sleep_noted(SystemCall::Sleep(span.into()))
    }

    /// Sleeps until `instant`, counted from boot like [`Os::now`]. *Blocks* unless the instant has
    /// passed.
    #[track_caller]
    pub fn sleep_until(&mut self, instant: Duration) -> impl Future<Output = ()> {
        self.note_caller();
        self.sleep_noted(SystemCall::SleepUntil(instant.into()))
    }

    /// Makes a call without a result, for a caller that has noted its own caller.
    pub(crate) fn sleep_noted(&mut self, call: SystemCall) -> impl Future<Output = ()> {
        self.call(move |_| call, answer!(Reply::Done => ()))
    }

    /// Computes for `span`. *Blocks* until the task has had a processor for that long; the policy
    /// decides when it has one, and whether it is interrupted. Then it goes on, on that processor, to
    /// its next call. A span of zero is a yield. A span of more than 584 years never ends. A daemon
    /// needs no processor and sleeps instead.
    ///
    /// In the simulated world the clock advances while tasks compute, on as many processors as
    /// [`Builder::processors`](crate::Builder::processors) says. In the real world the kernel spins
    /// for the task, in pieces of at most a millisecond, and polls the world between them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use trapline::{Kernel, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// for name in ["first", "second"] {
    ///     kernel.spawn(name, async move |os: &mut Os| {
    ///         os.compute(Duration::from_secs(2)).await;
    ///         let now = os.now().await;
    ///         writeln!(os, "{name} is over at {now:?}");
    ///     })?;
    /// }
    /// # kernel.run()?;
    /// # assert_eq!(kernel.take_console(), "first is over at 2s\nsecond is over at 4s\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compute(&mut self, span: Duration) -> impl Future<Output = ()> {
        self.sleep_noted(SystemCall::Compute(span.into()))
    }

    /// Sets this task's tickets, for [`Lottery`](crate::sched::Lottery) and
    /// [`Stride`](crate::sched::Stride). Every task begins with 100; 0 counts as 1. Tasks that it
    /// spawns from then on inherit them. Never blocks.
    pub fn set_tickets(&mut self, number: u32) -> impl Future<Output = ()> {
        self.set_share(Share::tickets(number))
    }

    /// Sets this task's nice value, for [`Fair`](crate::sched::Fair): from -20, the largest share,
    /// to 19, the smallest. A value outside counts as the nearest one. Every task begins with 0.
    /// Inherited as in [`Os::set_tickets`]. Never blocks.
    pub fn set_nice(&mut self, value: i32) -> impl Future<Output = ()> {
        self.set_share(Share::nice(value))
    }

    /// Sets this task's priority, for [`Priority`](crate::sched::Priority): the highest number runs
    /// first. Every task begins with 0. Inherited as in [`Os::set_tickets`]. Never blocks.
    pub fn set_priority(&mut self, number: i32) -> impl Future<Output = ()> {
        self.set_share(Share::priority(number))
    }

    fn set_share(&mut self, share: Share) -> impl Future<Output = ()> {
        self.sleep_noted(SystemCall::SetShare(share))
    }

    /// Replaces the scheduling policy before the next turn. The ready tasks go over in the order of their
    /// numbers. The computations of other processors are interrupted, and go over as well: the new policy
    /// orders them, and gives them slices. A call needs a processor, too. So while the computations of
    /// other tasks take all of them, this call comes when one of them is over, or its slice is. The ticks
    /// of a turn ([`Builder::quantum`](crate::Builder::quantum)) stay. Never blocks.
    ///
    /// *Errors:* [`Errno::Invalid`] where the policy [stays](crate::Policy::stays): a search chooses the
    /// order itself. [`Errno::Denied`] if the limits of the task deny the call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Errno, Kernel, Os, sched::Sjf};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     os.set_policy(Sjf::default()).await?;
    ///     for seconds in [9, 1, 3] {
    ///         let work = async move |os: &mut Os| {
    ///             os.compute(Duration::from_secs(seconds)).await;
    ///             writeln!(os, "{seconds}");
    ///         };
    ///         os.spawn("work", work).await?;
    ///     }
    ///     Ok::<(), Errno>(())
    /// })?;
    /// kernel.run()?.check()?;
    /// assert_eq!(kernel.take_console(), "1\n3\n9\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_policy(
        &mut self,
        policy: impl Policy + 'static,
    ) -> impl Future<Output = Result<(), Errno>> {
        let policy = Payload::Policy(Box::new(policy));
        self.call(carrying(SystemCall::SetPolicy, policy), checked)
    }

    /// Returns the time since boot. Never blocks.
    pub fn now(&mut self) -> impl Future<Output = Duration> {
        self.call(|_| SystemCall::Now, answer!(Reply::Time(now) => now.into()))
    }

    /// Runs `body` for at most `span`. Returns the value of the body, or `Err(Elapsed)` after
    /// dropping the body. *Blocks* as the body does. Timeouts nest: an outer timeout drops
    /// everything inside it. A body that makes no trap is not cut. (Curio's `timeout_after`.)
    ///
    /// A due timeout lets one answer through: that of the call under way, otherwise that of the first
    /// call which completes at once. So a body with a span of zero takes a message that is there.
    /// Before that answer, up to 16 calls that only ask ([`Os::now`], [`Os::get_tid`],
    /// [`Os::random`], [`Os::host`]), arm an inner timeout or take a free lock are answered too. A
    /// call that would block is cut at once, and so is a yield. After it every call is cut, before
    /// its effect.
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
    #[track_caller]
    pub fn timeout<T>(
        &mut self,
        span: Duration,
        body: impl AsyncFnOnce(&mut Self) -> T,
    ) -> impl Future<Output = Result<T, Elapsed>> {
        let span = match self.leaves_out(Effect::Timeout) {
            true => Nanos::FOREVER,
            false => span.into(),
        };
        let begin = move |frame: &TrapFrame| {
            frame.put_word(1);
            SystemCall::Timeout(span)
        };
        self.cuttable(begin, body)
    }

    /// Runs `body` within the timeout that this call arms.
    pub(crate) async fn cuttable<T>(
        &mut self,
        begin: impl FnOnce(&TrapFrame) -> SystemCall,
        body: impl AsyncFnOnce(&mut Self) -> T,
    ) -> Result<T, Elapsed> {
        let armed = self.call(begin, |reply, frame| match reply {
            Reply::Timeout(number) => Armed {
                frame: Rc::clone(frame),
                number,
            },
            other => mismatch(other),
        });
        let armed = armed.await;
        let mut body = pin!(Some(body(self)));
        poll_fn(|cx| {
            let under_way = body.as_mut().as_pin_mut().expect("it is cut once");
            match under_way.poll(cx) {
                Poll::Ready(value) => Poll::Ready(Ok(value)),
                Poll::Pending if armed.frame.elapsed.get() == Some(armed.number) => {
                    let _cut = Cutting::new(&armed.frame);
                    body.set(None);
                    Poll::Ready(Err(Elapsed))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// Marks that a timeout drops its body. The drop poisons the locks that the body holds, as a kill
/// does.
struct Cutting<'a> {
    frame: &'a TrapFrame,
    outer: bool,
}

impl<'a> Cutting<'a> {
    fn new(frame: &'a TrapFrame) -> Self {
        let outer = frame.killing.replace(true);
        Self { frame, outer }
    }
}

// A destructor, because one of the body may panic.
impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.frame.killing.set(self.outer);
    }
}
