//! [`Os`], the handle through which a program makes its system calls. The only file that yields.

use std::{
    fmt, io, mem,
    panic::Location,
    pin::Pin,
    ptr,
    rc::Rc,
    task::{Context, Poll},
};

use genawaiter::stack::Co;

use crate::{
    abi::{Errno, KernelId, Reply, SystemCall, Tid},
    trap::{Caller, Effect, Payload, TrapFrame},
};

/// A task's handle to the kernel: one method per system call.
///
/// A program borrows its `Os` as `&mut Os`, and passes it to the functions that it calls. Every
/// call is a *trap*: the task stops, the kernel handles the call, and other tasks have their turns.
/// The reply is the value of the `.await`. Nothing happens before the `.await`. A call that does
/// not block returns in the task's next turn. The documentation of a call says when it blocks.
///
/// A future that is polled and dropped in the same turn is a bug. In a release build the next awaited
/// call replaces it; in a debug build the task faults. A future that is dropped in a later turn has
/// made its call. The answer is dropped, and a message in it goes back to its old place in the queue.
///
/// Two mistakes in safe code end the whole process, and not only the task:
///
/// - An exchange of the handles of two kernels by [`std::mem::swap`], through a scoped thread-local
///   variable. The drop of a handle out of its place aborts, because it would use freed memory.
/// - A second panic, in a destructor that runs while its task unwinds from the first. Rust aborts.
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
    co: Co<'static, SystemCall, ()>,
    frame: Rc<TrapFrame>,
    /// Its address in its program, from the first turn of that.
    home: *const Self,
}

impl Os {
    pub(crate) fn new(co: Co<'static, SystemCall, ()>, frame: Rc<TrapFrame>) -> Self {
        let home = ptr::null();
        Self { co, frame, home }
    }

    /// Notes its place in its program, which never moves again.
    pub(super) fn settle(&mut self) {
        self.home = self;
    }

    /// Returns whether it is in the place of another one.
    pub(super) fn is_away(&self) -> bool {
        !self.home.is_null() && !ptr::eq(self.home, self)
    }

    pub(crate) fn frame(&self) -> &Rc<TrapFrame> {
        &self.frame
    }

    /// Notes the caller of a stub, and returns it. A stub notes it again before each trap but the
    /// first.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn note_caller(&self) -> Caller {
        let place = Location::caller();
        self.frame.set_place(place);
        place
    }

    /// Returns the number of the task's kernel among those that run side by side
    /// ([`Kernels`](crate::Kernels)). This makes no trap: the number never changes. A kernel alone is 1.
    #[must_use]
    pub fn kernel(&self) -> KernelId {
        self.frame.kernel.get()
    }

    /// Returns the number of the task, without a trap.
    #[doc(hidden)]
    #[must_use]
    pub fn running(&self) -> Tid {
        self.frame.running()
    }

    /// Returns whether a mutation leaves out what the caller of a stub has asked for. Then the stub makes
    /// a call that does [nothing](Self::nothing) in its place.
    #[inline(always)]
    #[track_caller]
    pub(super) fn leaves_out(&self, effect: Effect) -> bool {
        self.frame.mutated.leaves_out(effect, Location::caller())
    }

    pub(super) fn nothing(&mut self) -> impl Future<Output = ()> {
        self.sleep_noted(SystemCall::Yield)
    }

    /// Makes a trap. `prepare` puts what travels beside the call into the frame.
    pub(crate) fn call<'a, T>(
        &'a mut self,
        prepare: impl FnOnce(&TrapFrame) -> SystemCall + 'a,
        decode: impl FnMut(Reply, &Rc<TrapFrame>) -> T + 'a,
    ) -> impl Future<Output = T> + 'a {
        self.call_undoing(prepare, decode)
    }

    /// The same, for a call with a special way to undo a reply that the caller does not take.
    pub(crate) fn call_undoing<'a, D: Decode + 'a>(
        &'a mut self,
        prepare: impl FnOnce(&TrapFrame) -> SystemCall + 'a,
        decode: D,
    ) -> impl Future<Output = D::Output> + 'a {
        Trap {
            os: self,
            stage: Stage::Ahead(prepare),
            decode,
        }
    }

    /// Makes any system call, and returns the kernel's bare reply. *Blocks* when the call does.
    ///
    /// Calls with arguments that are not part of [`SystemCall`], and the timeout, need their stubs.
    /// Made here, they fail with [`Errno::Invalid`].
    ///
    /// The kernel does not know which task holds a handle. A raw call therefore reaches every device
    /// and queue of the kernel, and can close the device of another task: see the
    /// [protection domain](crate#what-is-isolated-and-what-is-not).
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
    #[track_caller]
    pub fn trap(&mut self, call: SystemCall) -> impl Future<Output = Reply> {
        self.note_caller();
        let prepare = move |frame: &TrapFrame| {
            // A stale answer must not become the argument of this call.
            frame.clear();
            frame.take_addr();
            call
        };
        self.call(prepare, |reply, frame| {
            if let Reply::Device(_) = reply {
                match frame.take() {
                    Some(Payload::Opened(handle, _)) => handle.leave_open(),
                    Some(Payload::Pair(one, other)) => {
                        one.leave_open();
                        other.leave_open();
                    }
                    _ => {}
                }
            }
            reply
        })
    }

    /// Appends to the console; `writeln!(os, "...")` prints a line. This makes no trap. The text is
    /// printed at the task's next trap or end, which *blocks* while more than 64 KiB wait for the
    /// console. A task may print to a queue instead ([`Stdio`](crate::Stdio)). Text that a failed console does not take is counted in
    /// [`Report::lost`](crate::Report::lost).
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        self.frame.print(text);
    }
}

impl fmt::Debug for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Os").finish_non_exhaustive()
    }
}

/// Decodes a reply by these arms. Any other reply is a bug of the kernel.
macro_rules! answer {
    ($($reply:pat => $value:expr),+) => {
        |reply, _| match reply {
            $($reply => $value,)+
            other => $crate::user::os::mismatch(other),
        }
    };
}

pub(super) use answer;

/// Prepares a call with a payload.
pub(super) fn carrying(
    call: SystemCall,
    payload: Payload,
) -> impl FnOnce(&TrapFrame) -> SystemCall + Unpin {
    move |frame| {
        frame.put(payload);
        call
    }
}

pub(crate) fn checked(reply: Reply, _: &Rc<TrapFrame>) -> Result<(), Errno> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Err(errno) => Err(errno),
        other => mismatch(other),
    }
}

/// Decodes the reply of a call that returns only an error. What is beside a success is for the log.
pub(crate) fn io_checked(reply: Reply, frame: &Rc<TrapFrame>) -> io::Result<()> {
    if reply == Reply::Done {
        drop(frame.take());
        return Ok(());
    }
    Err(io_error(reply, frame))
}

pub(crate) fn io_error(reply: Reply, frame: &TrapFrame) -> io::Error {
    match (reply, frame.take()) {
        (Reply::Err(Errno::Denied), Some(Payload::Io(error))) => error,
        (Reply::Err(errno), _) => errno.into(),
        (Reply::Io, Some(Payload::Io(error))) => error,
        (other, _) => mismatch(other),
    }
}

/// Panics: the kernel broke its contract, which is a bug in trapline.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn mismatch(reply: Reply) -> ! {
    unreachable!("the kernel answered {reply:?} to a call that has no such answer")
}

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

/// A trap under way. Each layer of `async fn` here would make a trap cost a third more.
struct Trap<'a, P, D: Decode> {
    os: &'a Os,
    stage: Stage<P>,
    decode: D,
}

/// One word less of each task than a flag beside an option.
enum Stage<P> {
    /// The first poll builds the call by this, and makes the trap.
    Ahead(P),
    /// The trap is made, and its reply is not taken.
    UnderWay,
    Over,
}

/// Neither the call nor its decoding is ever pinned.
impl<P, D: Decode> Unpin for Trap<'_, P, D> {}

impl<P: FnOnce(&TrapFrame) -> SystemCall, D: Decode> Future for Trap<'_, P, D> {
    type Output = D::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<D::Output> {
        let this = self.get_mut();
        let frame = &this.os.frame;
        if let Stage::UnderWay = this.stage {
            let reply = match frame.take_reply() {
                Some(reply) => reply,
                None => match frame.take_located_reply() {
                    Some(reply) => reply,
                    None => return Poll::Pending,
                },
            };
            this.stage = Stage::Over;
            if let Reply::Elapsed(number) = reply {
                return this.cut(number);
            }
            return Poll::Ready(this.decode.decode(reply, frame));
        }
        if let Stage::Ahead(prepare) = mem::replace(&mut this.stage, Stage::Over) {
            let call = prepare(frame);
            // A reply that was not taken must not answer this call.
            frame.take_reply();
            this.stage = Stage::UnderWay;
            // The future of the generator is not awaited, because the frame has the reply.
            drop(this.os.co.yield_(call));
        }
        Poll::Pending
    }
}

impl<P, D: Decode> Trap<'_, P, D> {
    /// A timeout has cut the call. It stays pending, and the timeout drops it.
    #[cold]
    fn cut(&self, number: u64) -> Poll<D::Output> {
        self.os.frame.elapsed.set(Some(number));
        Poll::Pending
    }

    #[cold]
    #[inline(never)]
    fn cancel(&mut self) {
        let frame = &self.os.frame;
        match frame.take_reply().or_else(|| frame.take_located_reply()) {
            None => {}
            // The timeout cuts at the next call.
            Some(Reply::Elapsed(number)) => {
                frame.elapsed.set(Some(number));
                frame.set_due();
            }
            Some(reply) => self.decode.undo(reply, frame),
        }
    }
}

// The future may be dropped after the answer has arrived, and before it is taken.
impl<P, D: Decode> Drop for Trap<'_, P, D> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Stage::UnderWay = self.stage {
            self.cancel();
        }
    }
}
