//! The task's side: [`Os`], the handle through which a program makes its system calls.
//!
//! Uses the ABI and the frame. The only file that yields; `task.rs` makes the generators.

use std::{
    cell::Cell,
    fmt, io,
    net::SocketAddr,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use genawaiter::rc::Co;

use crate::{
    abi::{Errno, Exit, Nanos, Reply, SystemCall, TaskInfo, Tid},
    blocking::Panicked,
    device::{AsDevice, Device},
    frame::{Frame, Payload},
    net::{TcpListener, TcpStream},
    task::{self, IntoExit},
    timeout::Elapsed,
};

/// A task's door to the world: one method per system call.
///
/// A program is lent its `Os` as `&mut Os` and lends it on to the functions it calls. Every call
/// is a *trap*: the task stops, the kernel handles the call, other tasks take their turns, and the
/// reply is the value of the `.await`. Nothing happens before the `.await`. Calls that do not
/// block come back when it is the task's turn again; what makes a call block is said with it.
///
/// A call whose future is polled and then dropped in the same turn is half made, and a bug: what
/// the task awaits next takes its place in a release build, and in a debug build it faults.
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
    frame: Rc<Frame>,
}

impl Os {
    pub(crate) fn new(co: Co<SystemCall, Reply>, frame: Rc<Frame>) -> Self {
        Self { co, frame }
    }

    pub(crate) fn frame(&self) -> &Rc<Frame> {
        &self.frame
    }

    /// The door. Yields the call that `prepare` returns, after it has put into the frame what
    /// travels beside it, and answers what `decode` makes of the reply.
    pub(crate) fn call<'a, T>(
        &'a mut self,
        prepare: impl FnOnce(&Frame) -> SystemCall + 'a,
        decode: impl FnMut(Reply, &Rc<Frame>) -> T + 'a,
    ) -> impl Future<Output = T> + 'a {
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
        let prepare = move |frame: &Frame| {
            // An answer that nobody took must not pass for this call's argument.
            frame.take();
            frame.message.take();
            frame.len.take();
            frame.body.take();
            call
        };
        self.call(prepare, |reply, frame| {
            if let Reply::Device(_) = reply
                && let Some(Payload::Opened(handle, _)) = frame.take()
            {
                handle.let_go();
            }
            reply
        })
    }

    /// Answers this task's own number. Never blocks. (Beazley's `GetTid`.)
    pub fn get_tid(&mut self) -> impl Future<Output = Tid> {
        self.call(
            |_| SystemCall::GetTid,
            |reply, _| match reply {
                Reply::Tid(tid) => tid,
                other => mismatch(other),
            },
        )
    }

    /// Lets every other ready task have its turn. Never blocks. Answers nothing.
    pub fn yield_now(&mut self) -> impl Future<Output = ()> {
        self.call(|_| SystemCall::Yield, done)
    }

    /// Starts `program` as a new task, a child of this one, and answers its number. The child is
    /// on the ready queue before its parent is put back. Never blocks. (Beazley's `NewTask`.)
    ///
    /// A child that has ended stays a zombie until somebody [waits](Self::wait) for it or its
    /// parent ends; where nobody will wait, [`Os::spawn_detached`] leaves none. When the parent
    /// ends first, the child runs on as an orphan.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] at the kernel's limit of live tasks; the program and
    /// what it owned are dropped.
    ///
    /// ```
    /// # use trapline::{Exit, Kernel, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("parent", async |os: &mut Os| {
    ///     let child = os.spawn("child", async |os| writeln!(os, "at work")).await?;
    ///     assert_eq!(os.wait(child).await?, Exit::Done);
    ///     Ok::<(), trapline::Errno>(())
    /// })?;
    /// # kernel.run()?;
    /// # assert_eq!(kernel.take_console(), "at work\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame.intern(name.as_ref());
        self.new_task(SystemCall::NewTask, name, program, None, Nanos::ZERO)
    }

    /// Like [`Os::spawn`], for a task that nobody will wait for: it leaves no zombie.
    pub fn spawn_detached<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame.intern(name.as_ref());
        self.new_task(
            SystemCall::NewDetachedTask,
            name,
            program,
            None,
            Nanos::ZERO,
        )
    }

    /// Like [`Os::spawn_detached`], for a task that is born asleep: its first turn comes when
    /// `delay` has passed.
    pub(crate) fn spawn_later<T: IntoExit>(
        &mut self,
        name: &str,
        delay: Duration,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame.intern(name);
        let delay = Nanos::from(delay);
        self.new_task(SystemCall::NewDetachedTask, name, program, None, delay)
    }

    /// Like [`Os::spawn`], and leaves the new task's number in `newborn` before anybody else runs.
    pub(crate) fn spawn_into<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
        newborn: Rc<Cell<Tid>>,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame.intern(name.as_ref());
        self.new_task(
            SystemCall::NewTask,
            name,
            program,
            Some(newborn),
            Nanos::ZERO,
        )
    }

    fn new_task<T: IntoExit>(
        &mut self,
        call: SystemCall,
        name: Rc<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
        newborn: Option<Rc<Cell<Tid>>>,
        delay: Nanos,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let program = task::program(&self.frame, program);
        self.call(
            move |frame| {
                frame.put(Payload::Program {
                    name,
                    program,
                    newborn,
                    delay,
                });
                call
            },
            |reply, _| match reply {
                Reply::Tid(tid) => Ok(tid),
                Reply::Err(errno) => Err(errno),
                other => mismatch(other),
            },
        )
    }

    /// Ends a task, from outside and at once: when this answers, the victim has left every queue
    /// and its destructors have run, innermost call first. Answers whether there was a live task
    /// of that number. A task that kills itself gets no answer. Never blocks. (Beazley's
    /// `KillTask`.)
    pub fn kill(&mut self, tid: Tid) -> impl Future<Output = bool> {
        self.call(
            move |_| SystemCall::KillTask(tid),
            |reply, _| match reply {
                Reply::Yes => true,
                Reply::No => false,
                other => mismatch(other),
            },
        )
    }

    /// Answers how another task ended, and reaps it. (Beazley's `WaitTask`; the zombies are
    /// Unix's.)
    ///
    /// *Blocks* until the other has ended, if it is alive. Any number of tasks may wait for the
    /// same one; they wake in the order in which they began to wait.
    ///
    /// *Errors:* [`Errno::NoSuchTask`] at once, if there never was such a task or somebody has
    /// waited for it before; [`Errno::WouldDeadlock`] at once, for a task that waits for itself.
    pub fn wait(&mut self, tid: Tid) -> impl Future<Output = Result<Exit, Errno>> {
        self.call(
            move |_| SystemCall::WaitTask(tid),
            |reply, frame| match (reply, frame.take()) {
                (Reply::Exit, None) => Ok(Exit::Done),
                (Reply::Exit, Some(Payload::Exit(exit))) => Ok(exit),
                (Reply::Err(errno), _) => Err(errno),
                (other, _) => mismatch(other),
            },
        )
    }

    /// Ends this task with the exit of its choice. Its destructors run; nothing after the call
    /// does.
    pub async fn exit(&mut self, exit: Exit) -> ! {
        let prepare = |frame: &Frame| {
            frame.put(Payload::Exit(exit));
            SystemCall::Exit
        };
        mismatch(self.call(prepare, |reply, _| reply).await)
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
        crate::timeout::timeout(self, span, body).await
    }

    /// Runs `work` on a thread of its own and answers what it returns, so that a call which the
    /// kernel cannot watch (a file, a name look-up, a long computation) holds up nobody else.
    /// *Blocks* until it is done; that is an interrupt, which wakes a sleeping kernel. The
    /// simulated world runs it in place; there only a [`pause`](crate::pause()) delays the result.
    /// Work whose task is killed runs to its end unheard.
    ///
    /// *Errors:* [`Panicked`] with the message, if it panicked.
    pub async fn run_blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        crate::blocking::run_blocking(self, work).await
    }

    /// Ends every task, this one included, the youngest first; then the kernel's `run` answers.
    pub async fn shutdown(&mut self) -> ! {
        mismatch(self.trap(SystemCall::Shutdown).await)
    }

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

    /// Answers a random number: all 64 bits, from the world's seed, not for secrets. Never blocks.
    pub fn random(&mut self) -> impl Future<Output = u64> {
        self.call(
            |_| SystemCall::Random,
            |reply, _| match reply {
                Reply::Random(number) => number,
                other => mismatch(other),
            },
        )
    }

    /// Answers a line per task, zombies included, by tid: `ps`. Never blocks.
    pub fn tasks(&mut self) -> impl Future<Output = Vec<TaskInfo>> {
        self.call(
            |_| SystemCall::Tasks,
            |reply, frame| match (reply, frame.take()) {
                (Reply::Tasks, Some(Payload::Tasks(tasks))) => tasks,
                (other, _) => mismatch(other),
            },
        )
    }

    /// Waits until the device can be read, or its stream has ended. (Beazley's `ReadWait`.)
    ///
    /// *Blocks* until there is something to read; if there is already, comes back at once. This is
    /// level-triggered: what is left unread makes the next wait come back at once too. A device
    /// that cannot be watched, such as a regular file, is always ready.
    ///
    /// *Errors:* [`Errno::Busy`] if another task waits to read the same device or has yet to be
    /// answered what it read, [`Errno::Closed`] if it is closed meanwhile, [`Errno::BadFd`] if it is
    /// closed already or belongs to another kernel.
    pub fn read_wait(
        &mut self,
        device: &(impl AsDevice + ?Sized),
    ) -> impl Future<Output = Result<(), Errno>> {
        let device = device.device_id(self);
        self.call(move |_| SystemCall::ReadWait(device), checked)
    }

    /// Waits until the device can be written. Like [`Os::read_wait`] in everything else.
    pub fn write_wait(
        &mut self,
        device: &(impl AsDevice + ?Sized),
    ) -> impl Future<Output = Result<(), Errno>> {
        let device = device.device_id(self);
        self.call(move |_| SystemCall::WriteWait(device), checked)
    }

    /// Hands a descriptor to the kernel, which owns it from then on and closes it with the last
    /// handle: a socket, a pipe, a terminal, a file. It is made non-blocking, unless it is one of
    /// the three standard streams, which other processes may share. Never blocks.
    ///
    /// *Errors:* what the operating system says of it; `AlreadyExists` if it is attached already;
    /// `Unsupported` in a world without devices.
    pub async fn attach<S: AsFd + 'static>(&mut self, source: S) -> io::Result<Device<S>> {
        Device::attach(self, source).await
    }

    /// Opens a listening TCP socket. Port 0 stands for any free one; the listener knows which it
    /// got. The address is marked for reuse, so that a server can be started again at once. Never
    /// blocks.
    ///
    /// *Errors:* an [`io::Error`] with the operating system's reason, such as `AddrInUse`;
    /// `Unsupported` in a world without a network.
    pub async fn listen(&mut self, addr: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::open(self, addr).await
    }

    /// Connects to a TCP server. *Blocks* until the connection stands or has failed.
    ///
    /// *Errors:* an [`io::Error`] such as `ConnectionRefused`, `NetworkUnreachable` or `TimedOut`;
    /// `Unsupported` in a world without a network.
    pub async fn connect(&mut self, addr: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::open(self, addr).await
    }

    /// Appends to the console; so `writeln!(os, "...")` prints a line. No trap of its own: what
    /// was written goes out at the task's next trap or end.
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
fn done(reply: Reply, _: &Rc<Frame>) {
    match reply {
        Reply::Done => (),
        other => mismatch(other),
    }
}

/// Decodes the reply of a call that has nothing to answer but a refusal.
pub(crate) fn checked(reply: Reply, _: &Rc<Frame>) -> Result<(), Errno> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Err(errno) => Err(errno),
        other => mismatch(other),
    }
}

/// Decodes the reply of a call that has nothing to answer but an error.
pub(crate) fn io_checked(reply: Reply, frame: &Rc<Frame>) -> io::Result<()> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(io_error(other, frame)),
    }
}

/// The error behind a reply that is one.
pub(crate) fn io_error(reply: Reply, frame: &Frame) -> io::Error {
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

/// A trap under way, as a future of a single layer: each `async fn` between a program and the
/// yield would cost a third of the price of the whole trap.
struct Trap<'a, P, Y, B, D> {
    os: &'a Os,
    /// Builds the call; taken at the first poll, which makes the trap.
    prepare: Option<P>,
    /// Yields it.
    door: Y,
    /// What waits for the reply, once the trap is made.
    barrier: Option<B>,
    decode: D,
}

/// Neither the call nor its decoding is ever pinned.
impl<P, Y, B: Unpin, D> Unpin for Trap<'_, P, Y, B, D> {}

impl<'a, P, Y, B, D, T> Future for Trap<'a, P, Y, B, D>
where
    P: FnOnce(&Frame) -> SystemCall,
    Y: Fn(&'a Os, SystemCall) -> B,
    B: Future<Output = Reply> + Unpin,
    D: FnMut(Reply, &Rc<Frame>) -> T,
{
    type Output = T;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        if let Some(barrier) = &mut this.barrier {
            return match Pin::new(barrier).poll(cx) {
                Poll::Pending => Poll::Pending,
                // After a timeout has come, the call never ends: the timeout drops it.
                Poll::Ready(Reply::Elapsed(number)) => {
                    this.barrier = None;
                    this.os.frame.elapsed.set(Some(number));
                    Poll::Pending
                }
                Poll::Ready(reply) => Poll::Ready((this.decode)(reply, &this.os.frame)),
            };
        }
        if let Some(prepare) = this.prepare.take() {
            let call = prepare(&this.os.frame);
            this.barrier = Some((this.door)(this.os, call));
        }
        Poll::Pending
    }
}
