//! The task's side: [`Os`], the handle through which a program makes its system calls.
//!
//! Uses the ABI and the frame. The only file that yields; `task.rs` makes the generators.

use std::{
    fmt, io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use genawaiter::rc::Co;

use crate::{
    abi::{Errno, Reply, SystemCall},
    trap::{Payload, TrapFrame},
};

/// A task's door to the world: one method per system call.
///
/// A program is lent its `Os` as `&mut Os` and lends it on to the functions it calls. Every call
/// is a *trap*: the task stops, the kernel handles the call, other tasks take their turns, and the
/// reply is the value of the `.await`. Nothing happens before the `.await`. Calls that do not
/// block come back when it is the task's turn again; what makes a call block is said with it.
///
/// A call whose future is polled and then dropped in the same turn is half made, and a bug: what
/// the task awaits next takes its place in a release build, and in a debug build it faults. One that
/// is dropped in a later turn has been made: its answer is dropped with it, and a message that it
/// was to get goes back to its queue, in its old place.
///
/// ```
/// use trapline::{Kernel, Os};
///
/// let mut kernel = Kernel::simulated(0);
/// kernel.spawn("hello", async |os: &mut Os| {
///     let tid = os.get_tid().await;
///     writeln!(os, "I'm task {tid}");
/// })?;
/// kernel.run()?;
/// assert_eq!(kernel.take_console(), "I'm task 1\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Os {
    co: Co<SystemCall, Reply>,
    frame: Rc<TrapFrame>,
}

impl Os {
    pub(crate) fn new(co: Co<SystemCall, Reply>, frame: Rc<TrapFrame>) -> Self {
        Self { co, frame }
    }

    pub(crate) fn frame(&self) -> &Rc<TrapFrame> {
        &self.frame
    }

    /// The door. Yields the call that `prepare` returns, after it has put into the frame what
    /// travels beside it, and answers what `decode` makes of the reply.
    pub(crate) fn call<'a, T>(
        &'a mut self,
        prepare: impl FnOnce(&TrapFrame) -> SystemCall + 'a,
        decode: impl FnMut(Reply, &Rc<TrapFrame>) -> T + 'a,
    ) -> impl Future<Output = T> + 'a {
        self.call_undoing(prepare, decode)
    }

    /// The same, for a call that has its own way to undo a reply that the caller does not take.
    pub(crate) fn call_undoing<'a, D: Decode + 'a>(
        &'a mut self,
        prepare: impl FnOnce(&TrapFrame) -> SystemCall + 'a,
        decode: D,
    ) -> impl Future<Output = D::Output> + 'a {
        Trap {
            os: self,
            prepare: Some(prepare),
            door: |os: &'a Self, call| os.co.yield_(call),
            barrier: None,
            decode,
        }
    }

    /// Makes any system call and answers the kernel's bare reply: the door that every other
    /// method goes through. *Blocks* when the call does. Calls with arguments that are not part
    /// of [`SystemCall`], and the timeout, which needs a body that it can cut short, are for their
    /// stubs: made here they answer [`Errno::Invalid`].
    ///
    /// The kernel does not know which task holds a handle. A raw call that names a device or a queue
    /// therefore works for every task of the kernel, and `Close` of a number closes the device of
    /// another task. The tasks of a kernel share one [protection domain](crate#what-is-isolated-and-what-is-not).
    ///
    /// ```
    /// # use trapline::{Kernel, Os, Reply, SystemCall, Tid};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("raw", async |os: &mut Os| {
    ///     let reply = os.trap(SystemCall::GetTid).await;
    ///     assert_eq!(reply, Reply::Tid(Tid::from(1)));
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&Tid::from(1)], trapline::Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trap(&mut self, call: SystemCall) -> impl Future<Output = Reply> {
        let prepare = move |frame: &TrapFrame| {
            // An answer that was not taken must not pass for this call's argument.
            frame.clear();
            call
        };
        self.call(prepare, |reply, frame| {
            if let Reply::Device(_) = reply
                && let Some(Payload::Opened(handle, _)) = frame.take()
            {
                handle.leave_open();
            }
            reply
        })
    }

    /// Appends to the console; so `writeln!(os, "...")` prints a line. No trap of its own: what
    /// was written goes out at the task's next trap or end.
    ///
    /// *Blocks* at that trap, or at the end, while more than 64 KiB wait for a console that is slower
    /// than the tasks; other tasks go on. What a console that fails does not take is lost, and
    /// counted in [`Report::lost`](crate::Report::lost).
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        self.frame.print(text);
    }
}

// Leaves word that a panic unwinds through the program. To look whether it has yielded after each
// poll instead would cost a layer, and that a third of the price of a trap.
impl Drop for Os {
    fn drop(&mut self) {
        self.frame.unwound.set(std::thread::panicking());
    }
}

impl fmt::Debug for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Os").finish_non_exhaustive()
    }
}

/// Decodes the reply of a call that has nothing to answer.
pub(super) fn done(reply: Reply, _: &Rc<TrapFrame>) {
    match reply {
        Reply::Done => (),
        other => mismatch(other),
    }
}

/// Decodes the reply of a call that has nothing to answer but a refusal.
pub(crate) fn checked(reply: Reply, _: &Rc<TrapFrame>) -> Result<(), Errno> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Err(errno) => Err(errno),
        other => mismatch(other),
    }
}

/// Decodes the reply of a call that has nothing to answer but an error.
pub(crate) fn io_checked(reply: Reply, frame: &Rc<TrapFrame>) -> io::Result<()> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(io_error(other, frame)),
    }
}

/// The error behind a reply that is one.
pub(crate) fn io_error(reply: Reply, frame: &TrapFrame) -> io::Error {
    match (reply, frame.take()) {
        (Reply::Err(errno), _) => errno.into(),
        (Reply::Io, Some(Payload::Io(error))) => error,
        (other, _) => mismatch(other),
    }
}

/// The kernel broke its contract: only a bug in trapline gets here.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn mismatch(reply: Reply) -> ! {
    unreachable!("the kernel answered {reply:?} to a call that has no such answer")
}

/// What a call makes of its reply.
pub(crate) trait Decode {
    type Output;

    fn decode(&mut self, reply: Reply, frame: &Rc<TrapFrame>) -> Self::Output;

    /// Undoes a reply that the caller did not take.
    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        drop(self.decode(reply, frame));
    }
}

impl<T, F: FnMut(Reply, &Rc<TrapFrame>) -> T> Decode for F {
    type Output = T;

    #[inline(always)]
    fn decode(&mut self, reply: Reply, frame: &Rc<TrapFrame>) -> T {
        self(reply, frame)
    }
}

/// A trap under way, as a future of a single layer: each `async fn` between a program and the
/// yield would cost a third of the price of the whole trap.
struct Trap<'a, P, Y, B, D>
where
    B: Future<Output = Reply> + Unpin,
    D: Decode,
{
    os: &'a Os,
    /// Builds the call; taken at the first poll, which makes the trap.
    prepare: Option<P>,
    /// Yields it.
    door: Y,
    /// What waits for the reply, once the trap is made and until the reply is taken.
    barrier: Option<B>,
    decode: D,
}

/// Neither the call nor its decoding is ever pinned.
impl<P, Y, B: Future<Output = Reply> + Unpin, D: Decode> Unpin for Trap<'_, P, Y, B, D> {}

impl<'a, P, Y, B, D> Future for Trap<'a, P, Y, B, D>
where
    P: FnOnce(&TrapFrame) -> SystemCall,
    Y: Fn(&'a Os, SystemCall) -> B,
    B: Future<Output = Reply> + Unpin,
    D: Decode,
{
    type Output = D::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Output> {
        let this = self.get_mut();
        if this.barrier.is_some() {
            return match this.reply(cx) {
                Poll::Pending => Poll::Pending,
                // After a timeout has come, the call never ends: the timeout drops it.
                Poll::Ready(Reply::Elapsed(number)) => {
                    this.os.frame.elapsed.set(Some(number));
                    Poll::Pending
                }
                Poll::Ready(reply) => Poll::Ready(this.decode.decode(reply, &this.os.frame)),
            };
        }
        if let Some(prepare) = this.prepare.take() {
            let call = prepare(&this.os.frame);
            this.barrier = Some((this.door)(this.os, call));
        }
        Poll::Pending
    }
}

impl<P, Y, B, D> Trap<'_, P, Y, B, D>
where
    B: Future<Output = Reply> + Unpin,
    D: Decode,
{
    /// Takes the reply, if it is there.
    #[inline(always)]
    fn reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let barrier = match &mut self.barrier {
            // The airlock of a program that is being dropped is empty, and waiting at it would panic.
            Some(barrier) if !self.os.frame.dropping_program.get() => barrier,
            _ => return Poll::Pending,
        };
        let reply = Pin::new(barrier).poll(cx);
        if reply.is_ready() {
            self.barrier = None;
        }
        reply
    }

    /// Undoes what the kernel has answered, if it has.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        match self.reply(&mut cx) {
            Poll::Pending => {}
            // The timeout cuts at the next call.
            Poll::Ready(Reply::Elapsed(number)) => {
                self.os.frame.elapsed.set(Some(number));
                self.os.frame.set_due();
            }
            Poll::Ready(reply) => self.decode.undo(reply, &self.os.frame),
        }
    }
}

// A call that was made and answered, and is dropped before its answer is taken.
impl<P, Y, B, D> Drop for Trap<'_, P, Y, B, D>
where
    B: Future<Output = Reply> + Unpin,
    D: Decode,
{
    #[inline(always)]
    fn drop(&mut self) {
        if self.barrier.is_some() {
            self.give_up();
        }
    }
}
