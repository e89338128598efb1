//! The contract between a task and the kernel: what crosses at a trap.
//!
//! Everything here is plain data. [`SystemCall`] and [`Reply`] are `Copy` and exactly two words
//! wide, tag and payload, because both cross at every trap and a narrower payload would be copied
//! in pieces (three times the price of the whole trap). What does not fit travels beside them, in
//! the kernel's frame. This module uses no other.

use std::{fmt, io, time::Duration};

/// A task's number: from 1 upward in order of creation, never used twice in a run.
///
/// 0 stands for the kernel itself, and for the host as a parent. Daemons have numbers of their own,
/// far above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tid(u64);

impl Tid {
    /// The kernel, or the host that booted it.
    pub const KERNEL: Self = Self(0);

    /// What the first daemon's number follows.
    pub(crate) const DAEMONS: u64 = 1 << 63;

    /// Whether it is the number of a daemon, of
    /// [`Kernel::spawn_daemon`](crate::Kernel::spawn_daemon).
    #[must_use]
    pub fn is_daemon(self) -> bool {
        self.0 > Self::DAEMONS
    }
}

impl From<u64> for Tid {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<Tid> for u64 {
    fn from(tid: Tid) -> Self {
        tid.0
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An attached descriptor's token: from 1 upward in order of attachment, never used twice in a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(u64);

impl DeviceId {
    /// No device at all: every call on it answers [`Errno::BadFd`].
    pub const NONE: Self = Self(0);
}

impl From<u64> for DeviceId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<DeviceId> for u64 {
    fn from(device: DeviceId) -> Self {
        device.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message queue's name: the number it was given in order of creation, which is never given
/// again, and its place in the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueId(u64);

impl QueueId {
    /// How many bits of the word are the place: 16 million queues at once.
    const SLOT_BITS: u32 = 24;

    /// No queue at all: every call on it answers that it is closed.
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) fn new(number: u64, slot: usize) -> Option<Self> {
        let slot = slot as u64;
        (slot >> Self::SLOT_BITS == 0).then_some(Self(number << Self::SLOT_BITS | slot))
    }

    /// Whatever was once [`QueueId::number`] and [`QueueId::slot`].
    pub(crate) fn from_parts(number: u64, slot: usize) -> Option<Self> {
        let fits = number <= u64::MAX >> Self::SLOT_BITS;
        fits.then(|| Self::new(number, slot)).flatten()
    }

    /// The number it was given, from 1 upward: what is shown of it.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// Nanoseconds: a span, or an instant since boot. Reaches 584 years; [`Nanos::FOREVER`] is beyond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub(crate) u64);

impl Nanos {
    /// Boot, or no time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than can be represented: a deadline that never comes.
    pub const FOREVER: Self = Self(u64::MAX);

    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// This instant moved by `span`; for ever if that cannot be represented.
    #[must_use]
    pub fn saturating_add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

/// An instant, as minutes, seconds and milliseconds: `00:04.000`. A precision adds digits.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FOREVER {
            return f.write_str("for ever");
        }
        let digits = f.precision().unwrap_or(3).clamp(1, 9);
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let fraction = nanos / 10u64.pow(9 - digits as u32);
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        write!(f, "{minutes:02}:{seconds:02}.{fraction:0digits$}")
    }
}

/// What one can want of a device, or be told about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Bytes, a connection or the end of the stream can be read.
    Read,
    /// Bytes can be written.
    Write,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// Which end of a message queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// Where messages are put.
    Put,
    /// Where messages are taken.
    Get,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Put => "put",
            Self::Get => "get",
        })
    }
}

/// A request to the kernel. A task makes one by yielding it; there is no other way out of a task.
///
/// Each has a stub on [`Os`](crate::Os), whose documentation is the manual of that call. Arguments
/// that are not part of the variant (a program, an address, bytes) travel in the kernel's frame,
/// where only the stub can put them: made without its stub, such a call answers [`Errno::Invalid`].
/// `Recv` and `Send` have room for no bytes then, and move none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
#[non_exhaustive]
pub enum SystemCall {
    /// [`Os::get_tid`](crate::Os::get_tid). Answers [`Reply::Tid`].
    GetTid,
    /// [`Os::yield_now`](crate::Os::yield_now). Answers [`Reply::Done`].
    Yield,
    /// [`Os::spawn`](crate::Os::spawn). Answers [`Reply::Tid`] or [`Reply::Err`].
    NewTask,
    /// [`Os::spawn_detached`](crate::Os::spawn_detached). Answers like [`SystemCall::NewTask`].
    NewDetachedTask,
    /// [`Os::kill`](crate::Os::kill). Answers [`Reply::Yes`] or [`Reply::No`].
    KillTask(Tid),
    /// [`Os::wait`](crate::Os::wait). Answers [`Reply::Exit`] or [`Reply::Err`].
    WaitTask(Tid),
    /// [`Os::exit`](crate::Os::exit). Never answers.
    Exit,
    /// [`Os::shutdown`](crate::Os::shutdown). Never answers.
    Shutdown,
    /// [`Os::sleep`](crate::Os::sleep). Answers [`Reply::Done`].
    Sleep(Nanos),
    /// [`Os::sleep_until`](crate::Os::sleep_until). Answers [`Reply::Done`].
    SleepUntil(Nanos),
    /// [`Os::now`](crate::Os::now). Answers [`Reply::Time`].
    Now,
    /// [`Os::random`](crate::Os::random). Answers [`Reply::Random`].
    Random,
    /// [`Os::tasks`](crate::Os::tasks). Answers [`Reply::Tasks`].
    Tasks,
    /// [`Os::read_wait`](crate::Os::read_wait). Answers [`Reply::Done`] or [`Reply::Err`].
    ReadWait(DeviceId),
    /// [`Os::write_wait`](crate::Os::write_wait). Answers [`Reply::Done`] or [`Reply::Err`].
    WriteWait(DeviceId),
    /// [`Os::timeout`](crate::Os::timeout): arms it. Answers [`Reply::Timeout`], or
    /// [`Errno::Invalid`] without a body that it could cut short.
    Timeout(Nanos),
    /// [`Os::run_blocking`](crate::Os::run_blocking): hands the work over. Answers
    /// [`Reply::Done`].
    Submit,
    /// [`Queue::bounded`](crate::Queue::bounded), with its capacity. Answers [`Reply::Queue`]
    /// or [`Reply::Err`].
    NewQueue(u64),
    /// [`Queue::put`](crate::Queue::put). Answers [`Reply::Done`], or [`Reply::Message`] if it is
    /// closed.
    Put(QueueId),
    /// [`Queue::get`](crate::Queue::get). Answers [`Reply::Message`] or [`Reply::Err`].
    Get(QueueId),
    /// [`Queue::try_put`](crate::Queue::try_put). Answers like [`SystemCall::Put`], or
    /// [`Reply::Full`].
    TryPut(QueueId),
    /// [`Queue::try_get`](crate::Queue::try_get). Answers like [`SystemCall::Get`], or
    /// [`Reply::Again`].
    TryGet(QueueId),
    /// [`Queue::close`](crate::Queue::close). Answers [`Reply::Done`] or [`Reply::Err`].
    CloseQueue(QueueId),
    /// [`Os::attach`](crate::Os::attach). Answers [`Reply::Device`] or [`Reply::Io`].
    Attach,
    /// [`Os::listen`](crate::Os::listen). Answers [`Reply::Device`] or [`Reply::Io`].
    Listen,
    /// [`Os::connect`](crate::Os::connect): starts it. Answers [`Reply::Device`] or [`Reply::Io`].
    Connect,
    /// How a started connection came out, once it is writable. Answers [`Reply::Done`] or an error.
    Connected(DeviceId),
    /// [`TcpListener::accept`](crate::TcpListener::accept). Answers [`Reply::Device`] or an error.
    Accept(DeviceId),
    /// [`Device::recv`](crate::Device::recv). Answers [`Reply::Bytes`] or an error.
    Recv(DeviceId),
    /// [`Device::send`](crate::Device::send). Answers [`Reply::Bytes`], [`Reply::Again`] or an error.
    Send(DeviceId),
    /// [`Device::send_file`](crate::Device::send_file). Answers like [`SystemCall::Send`].
    SendFile(DeviceId),
    /// [`TcpStream::shutdown_write`](crate::TcpStream::shutdown_write). Answers [`Reply::Done`] or
    /// an error.
    ShutdownWrite(DeviceId),
    /// [`Device::close`](crate::Device::close). Answers [`Reply::Done`] or [`Reply::Err`].
    Close(DeviceId),
}

impl SystemCall {
    /// The device that it is about, if it names one.
    #[must_use]
    pub fn device(self) -> Option<DeviceId> {
        match self {
            Self::ReadWait(device)
            | Self::WriteWait(device)
            | Self::Connected(device)
            | Self::Accept(device)
            | Self::Recv(device)
            | Self::Send(device)
            | Self::SendFile(device)
            | Self::ShutdownWrite(device)
            | Self::Close(device) => Some(device),
            _ => None,
        }
    }

    /// The message queue that it is about, if it names one.
    #[must_use]
    pub fn queue(self) -> Option<QueueId> {
        match self {
            Self::Put(queue)
            | Self::Get(queue)
            | Self::TryPut(queue)
            | Self::TryGet(queue)
            | Self::CloseQueue(queue) => Some(queue),
            _ => None,
        }
    }

    /// Whether an argument of it travels in the frame.
    pub(crate) fn has_payload(self) -> bool {
        matches!(
            self,
            Self::NewTask
                | Self::NewDetachedTask
                | Self::Exit
                | Self::Submit
                | Self::NewQueue(_)
                | Self::Attach
                | Self::Listen
                | Self::Connect
                | Self::SendFile(_)
        )
    }

    /// The names of all calls.
    pub const NAMES: [&'static str; 33] = [
        "get_tid",
        "yield",
        "new_task",
        "new_detached_task",
        "kill_task",
        "wait_task",
        "exit",
        "shutdown",
        "sleep",
        "sleep_until",
        "now",
        "random",
        "tasks",
        "read_wait",
        "write_wait",
        "timeout",
        "submit",
        "new_queue",
        "put",
        "get",
        "try_put",
        "try_get",
        "close_queue",
        "attach",
        "listen",
        "connect",
        "connected",
        "accept",
        "recv",
        "send",
        "send_file",
        "shutdown_write",
        "close",
    ];

    /// The call's name as traces show it, in the manner of `strace`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GetTid => "get_tid",
            Self::Yield => "yield",
            Self::NewTask => "new_task",
            Self::NewDetachedTask => "new_detached_task",
            Self::KillTask(_) => "kill_task",
            Self::WaitTask(_) => "wait_task",
            Self::Exit => "exit",
            Self::Shutdown => "shutdown",
            Self::Sleep(_) => "sleep",
            Self::SleepUntil(_) => "sleep_until",
            Self::Now => "now",
            Self::Random => "random",
            Self::Tasks => "tasks",
            Self::ReadWait(_) => "read_wait",
            Self::WriteWait(_) => "write_wait",
            Self::Timeout(_) => "timeout",
            Self::Submit => "submit",
            Self::NewQueue(_) => "new_queue",
            Self::Put(_) => "put",
            Self::Get(_) => "get",
            Self::TryPut(_) => "try_put",
            Self::TryGet(_) => "try_get",
            Self::CloseQueue(_) => "close_queue",
            Self::Attach => "attach",
            Self::Listen => "listen",
            Self::Connect => "connect",
            Self::Connected(_) => "connected",
            Self::Accept(_) => "accept",
            Self::Recv(_) => "recv",
            Self::Send(_) => "send",
            Self::SendFile(_) => "send_file",
            Self::ShutdownWrite(_) => "shutdown_write",
            Self::Close(_) => "close",
        }
    }
}

/// The kernel's answer to a [`SystemCall`]. What does not fit in a word is in the kernel's frame,
/// where the stub that made the call fetches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
#[non_exhaustive]
pub enum Reply {
    /// It is done, and there is nothing to say about it.
    Done,
    /// Yes.
    Yes,
    /// No.
    No,
    /// Not now, but it may work if it is asked again.
    Again,
    /// A task's number.
    Tid(Tid),
    /// The time since boot.
    Time(Nanos),
    /// A number from the world's seed.
    Random(u64),
    /// How many bytes were moved.
    Bytes(u64),
    /// A newly attached device.
    Device(DeviceId),
    /// A new message queue.
    Queue(QueueId),
    /// The message of this number is the caller's: got, or handed back because the queue is closed.
    Message(u64),
    /// There is no room for the message of this number, which is the caller's again.
    Full(u64),
    /// The timeout of this number is armed.
    Timeout(u64),
    /// The timeout of this number has come, before the call could be answered.
    Elapsed(u64),
    /// An [`Exit`](enum@Exit), in the frame; none there stands for [`Exit::Done`](enum@Exit).
    Exit,
    /// A list of [`TaskInfo`], in the frame.
    Tasks,
    /// An [`io::Error`], in the frame.
    Io,
    /// A refusal that the caller may handle.
    Err(Errno),
}

/// How a task ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    /// It returned `()` or `Ok`.
    Done,
    /// It returned an error, whose text this is.
    Failed(String),
    /// It panicked, or awaited something that is not a trap; this is the message.
    Faulted(String),
    /// Somebody killed it, or the kernel was shut down.
    Killed,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Faulted(why) => write!(f, "faulted: {why}"),
            Self::Killed => f.write_str("killed"),
        }
    }
}

/// Why the kernel refused a call. Converts into an [`io::Error`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[repr(u64)]
#[non_exhaustive]
pub enum Errno {
    /// No task has that tid any more, or ever had.
    #[error("no such task")]
    NoSuchTask,
    /// A task cannot wait for its own end.
    #[error("a task that waits for itself would wait for ever")]
    WouldDeadlock,
    /// The kernel's limit of live tasks is reached.
    #[error("too many live tasks")]
    TooManyTasks,
    /// The device was never attached to this kernel, or has been closed.
    #[error("no such device in this kernel")]
    BadFd,
    /// Another task waits for the same direction of the device.
    #[error("another task waits for this direction of the device")]
    Busy,
    /// The device was closed while the task waited for it, or the queue is closed.
    #[error("it is closed")]
    Closed,
    /// A raw call came without the argument that its stub would have put beside it.
    #[error("the call came without its argument: use its stub on Os")]
    Invalid,
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        use io::ErrorKind as Kind;
        let kind = match errno {
            Errno::NoSuchTask => Kind::NotFound,
            Errno::WouldDeadlock => Kind::Deadlock,
            Errno::TooManyTasks => Kind::QuotaExceeded,
            Errno::Busy => Kind::ResourceBusy,
            Errno::Closed => Kind::NotConnected,
            Errno::BadFd | Errno::Invalid => Kind::InvalidInput,
        };
        Self::new(kind, errno)
    }
}

/// What a blocked task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum On {
    /// The end of another task.
    Exit(Tid),
    /// An instant since boot.
    Timer(Nanos),
    /// The readiness of a device.
    Device(DeviceId, Direction),
    /// Room in a message queue, or a message.
    Queue(QueueId, End),
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(tid) => write!(f, "the end of task {tid}"),
            Self::Timer(Nanos::FOREVER) => f.write_str("nothing: it sleeps for ever"),
            Self::Timer(deadline) => write!(f, "the timer at {deadline}"),
            Self::Device(device, direction) => write!(f, "device {device} ({direction})"),
            Self::Queue(queue, end) => write!(f, "queue {queue} ({end})"),
        }
    }
}

/// What a task is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskState {
    /// It waits for its turn.
    Ready,
    /// It is the task that is asking.
    Running,
    /// It waits for something else.
    Blocked {
        /// What for.
        on: On,
        /// Since when, counted from boot.
        since: Duration,
    },
    /// It has ended, and nobody has asked how.
    Zombie(Exit),
}

/// A line of `ps`: one task as the kernel sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskInfo {
    /// Its number.
    pub tid: Tid,
    /// The name it was spawned with.
    pub name: String,
    /// The task that spawned it; [`Tid::KERNEL`] for the host's tasks and for orphans.
    pub parent: Tid,
    /// What it is doing.
    pub state: TaskState,
    /// How many traps it has made.
    pub traps: u64,
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tid {} {:?} ", self.tid, self.name)?;
        match &self.state {
            TaskState::Ready => f.write_str("is ready"),
            TaskState::Running => f.write_str("is running"),
            TaskState::Blocked { on, since } => {
                write!(f, "waits for {on}, since {}", Nanos::from(*since))
            }
            TaskState::Zombie(exit) => write!(f, "is a zombie: {exit}"),
        }
    }
}
