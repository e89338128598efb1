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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DeviceId(u64);

impl DeviceId {
    /// No device at all: every call on it answers [`Errno::BadFd`].
    pub const NONE: Self = Self(0);

    /// What a task is blocked on that has printed more than the console takes. No task can have it:
    /// in a call it is the same as [`DeviceId::NONE`].
    pub const CONSOLE: Self = Self::NONE;

    /// What the first device of a daemon follows: they change no other device's number.
    pub(crate) const DAEMONS: u64 = 1 << 62;

    pub(crate) fn is_of_daemon(self) -> bool {
        self.0 > Self::DAEMONS
    }

    /// The token of this number, for readers of logs and for tests. A program uses a
    /// [`Device`](crate::Device): a raw call reaches the device of any task by its number
    /// ([`Os::trap`](crate::Os::trap)).
    #[must_use]
    pub const fn from_raw(number: u64) -> Self {
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QueueId(u64);

impl QueueId {
    /// How many bits of the word are the place: 16 million queues at once.
    const SLOT_BITS: u32 = 24;

    /// How many queues there can be at once.
    pub(crate) const PLACES: usize = 1 << Self::SLOT_BITS;

    /// No queue at all: every call on it answers that it is closed.
    pub(crate) const NONE: Self = Self(0);

    /// What the number of the first queue of a daemon follows: the upper half of all numbers.
    pub(crate) const DAEMONS: u64 = 1 << (63 - Self::SLOT_BITS);

    #[inline]
    pub(crate) fn is_of_daemon(self) -> bool {
        self.0 >> 63 != 0
    }

    pub(crate) fn new(number: u64, slot: usize) -> Option<Self> {
        let slot = slot as u64;
        (slot >> Self::SLOT_BITS == 0).then_some(Self(number << Self::SLOT_BITS | slot))
    }

    /// The name of this number and this place in the table, for readers of logs and for tests;
    /// `None` if either is too large. A program uses a [`Queue`](crate::Queue): a raw call reaches
    /// the queue of any task by its name ([`Os::trap`](crate::Os::trap)).
    #[must_use]
    pub fn from_raw(number: u64, slot: usize) -> Option<Self> {
        let fits = number <= u64::MAX >> Self::SLOT_BITS;
        fits.then(|| Self::new(number, slot)).flatten()
    }

    /// The number it was given, from 1 upward: what is shown of it.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    /// Its place in the kernel's table, from 0 upward; a later queue may have the same.
    #[must_use]
    pub fn slot(self) -> usize {
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

/// Names a variant, or `None` without one: a row of the tables below says only what there is.
macro_rules! or_none {
    ($Enum:ident) => { $Enum::None };
    ($Enum:ident $($variant:tt)+) => { $Enum::$($variant)+ };
}

/// Makes an enum of two words, number and argument, of a table with a row for each variant:
///
/// ```text
/// number Variant(argument: Kind(Type)),
/// ```
///
/// The kind is a variant of [`Argument`]. Recordings contain the number: it never changes, and is
/// never used again. A later row takes the next one.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $Enum:ident {
            $(
                $(#[$docs:meta])*
                $number:literal $Row:ident $(($argument:ident: $Kind:ident($Type:ty)))?,
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u64)]
        #[non_exhaustive]
        pub enum $Enum {
            $($(#[$docs])* $Row $(($Type))? = $number,)*
        }

        impl $Enum {
            /// Its number in the table of `src/abi.rs`, which recordings contain.
            #[must_use]
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$Row { .. } => const {
                        assert!($number < 0x80, "recordings have seven bits for a number");
                        $number
                    },)*
                }
            }

            /// The variant of this number, with a zero for its argument; `None` if there is none.
            #[must_use]
            pub fn from_number(number: u8) -> Option<Self> {
                Some(match number {
                    $($number => Self::$Row $((<$Type>::default()))?,)*
                    _ => return None,
                })
            }

            /// Its argument.
            #[must_use]
            #[inline]
            pub fn argument(self) -> Argument {
                match self {
                    $(Self::$Row $(($argument))? => or_none!(Argument $($Kind($argument))?),)*
                }
            }

            /// The same variant with another argument; `None` if it takes none of that kind.
            #[must_use]
            pub fn with_argument(self, argument: Argument) -> Option<Self> {
                match (self, argument) {
                    $((Self::$Row { .. }, or_none!(Argument $($Kind($argument))?)) => {
                        Some(Self::$Row $(($argument))?)
                    })*
                    _ => None,
                }
            }
        }
    };
}

/// Makes [`SystemCall`] of the table of all calls, and all that is said of each call:
///
/// ```text
/// number "name" Call(argument: Kind(Type)) + Beside,
/// ```
///
/// The first words are those of [`words`]; then, what travels beside the call, if something does.
/// Besides its row, a call needs a stub on the task's side, an arm in the kernel's match, and a row
/// in the README's table, which a test looks for.
macro_rules! calls {
    (
        $(#[$about:meta])*
        pub enum $Enum:ident {
            $(
                $(#[$docs:meta])*
                $number:literal $name:literal $Call:ident $(($argument:ident: $Kind:ident($Type:ty)))?
                $(+ $Beside:ident)?,
            )*
        }
    ) => {
        words! {
            $(#[$about])*
            pub enum $Enum {
                $($(#[$docs])* $number $Call $(($argument: $Kind($Type)))?,)*
            }
        }

        impl $Enum {
            /// The names of all calls.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            /// The call's name as traces show it, in the manner of `strace`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Call { .. } => $name,)*
                }
            }

            /// What travels beside it.
            pub(crate) fn beside(self) -> Beside {
                match self {
                    $(Self::$Call { .. } => or_none!(Beside $($Beside)?),)*
                }
            }
        }
    };
}

calls! {
    /// A request to the kernel. A task makes one by yielding it; there is no other way out of a task.
    ///
    /// Each has a stub on [`Os`](crate::Os), whose documentation is the manual of that call.
    /// Arguments that are not part of the variant (a program, an address, bytes) travel in the
    /// kernel's frame, where only the stub can put them: made without its stub, such a call answers
    /// [`Errno::Invalid`]. `Recv` and `Send` have room for no bytes then, and move none.
    ///
    /// ```
    /// use trapline::SystemCall;
    ///
    /// let calls = (0..=u8::MAX).filter_map(SystemCall::from_number);
    /// assert!(calls.map(SystemCall::name).eq(SystemCall::NAMES));
    /// ```
    pub enum SystemCall {
        /// [`Os::get_tid`](crate::Os::get_tid). Answers [`Reply::Tid`].
        0 "get_tid" GetTid,
        /// [`Os::yield_now`](crate::Os::yield_now). Answers [`Reply::Done`].
        1 "yield" Yield,
        /// [`Os::spawn`](crate::Os::spawn). Answers [`Reply::Tid`] or [`Reply::Err`].
        2 "new_task" NewTask + Program,
        /// [`Os::spawn_detached`](crate::Os::spawn_detached). Answers like [`SystemCall::NewTask`].
        3 "new_detached_task" NewDetachedTask + Program,
        /// [`Os::kill`](crate::Os::kill). Answers [`Reply::Yes`] or [`Reply::No`].
        4 "kill_task" KillTask(tid: Task(Tid)),
        /// [`Os::wait`](crate::Os::wait). Answers [`Reply::Exit`] or [`Reply::Err`].
        5 "wait_task" WaitTask(tid: Task(Tid)),
        /// [`Os::exit`](crate::Os::exit). Never answers.
        6 "exit" Exit + Exit,
        /// [`Os::shutdown`](crate::Os::shutdown). Never answers.
        7 "shutdown" Shutdown,
        /// [`Os::sleep`](crate::Os::sleep). Answers [`Reply::Done`].
        8 "sleep" Sleep(span: Span(Nanos)),
        /// [`Os::sleep_until`](crate::Os::sleep_until). Answers [`Reply::Done`].
        9 "sleep_until" SleepUntil(instant: Instant(Nanos)),
        /// [`Os::now`](crate::Os::now). Answers [`Reply::Time`].
        10 "now" Now,
        /// [`Os::random`](crate::Os::random). Answers [`Reply::Random`].
        11 "random" Random,
        /// [`Os::tasks`](crate::Os::tasks). Answers [`Reply::Tasks`].
        12 "tasks" Tasks,
        /// [`Os::read_wait`](crate::Os::read_wait). Answers [`Reply::Done`] or [`Reply::Err`].
        13 "read_wait" ReadWait(device: Device(DeviceId)),
        /// [`Os::write_wait`](crate::Os::write_wait). Answers [`Reply::Done`] or [`Reply::Err`].
        14 "write_wait" WriteWait(device: Device(DeviceId)),
        /// [`Os::timeout`](crate::Os::timeout): arms it. Answers [`Reply::Timeout`], or
        /// [`Errno::Invalid`] without a body that it could cut short.
        15 "timeout" Timeout(span: Span(Nanos)) + Body,
        /// [`Os::run_blocking`](crate::Os::run_blocking): hands the work over. Answers
        /// [`Reply::Done`].
        16 "submit" Submit + Job,
        /// [`Queue::bounded`](crate::Queue::bounded), with its capacity. Answers [`Reply::Queue`]
        /// or [`Reply::Err`].
        17 "new_queue" NewQueue(capacity: Capacity(u64)) + Store,
        /// [`Queue::put`](crate::Queue::put). Answers [`Reply::Done`], or [`Reply::Refused`] if it is
        /// closed.
        18 "put" Put(queue: Queue(QueueId)) + Message,
        /// [`Queue::get`](crate::Queue::get). Answers [`Reply::Message`] or [`Reply::Err`].
        19 "get" Get(queue: Queue(QueueId)),
        /// [`Queue::try_put`](crate::Queue::try_put). Answers like [`SystemCall::Put`], or
        /// [`Reply::Full`].
        20 "try_put" TryPut(queue: Queue(QueueId)) + Message,
        /// [`Queue::try_get`](crate::Queue::try_get). Answers like [`SystemCall::Get`], or
        /// [`Reply::Again`].
        21 "try_get" TryGet(queue: Queue(QueueId)),
        /// [`Queue::close`](crate::Queue::close). Answers [`Reply::Done`] or [`Reply::Err`].
        22 "close_queue" CloseQueue(queue: Queue(QueueId)),
        /// [`Os::attach`](crate::Os::attach). Answers [`Reply::Device`] or [`Reply::Io`].
        23 "attach" Attach + Source,
        /// [`Os::listen`](crate::Os::listen). Answers [`Reply::Device`] or [`Reply::Io`].
        24 "listen" Listen + Addr,
        /// [`Os::connect`](crate::Os::connect): starts it. Answers [`Reply::Device`] or [`Reply::Io`].
        25 "connect" Connect + Addr,
        /// How a started connection came out, once it is writable. Answers [`Reply::Done`] or an error.
        26 "connected" Connected(device: Device(DeviceId)),
        /// [`TcpListener::accept`](crate::TcpListener::accept). Answers [`Reply::Device`] or an error.
        27 "accept" Accept(device: Device(DeviceId)),
        /// [`Device::recv`](crate::Device::recv). Answers [`Reply::Bytes`] or an error.
        28 "recv" Recv(device: Device(DeviceId)) + Bytes,
        /// [`Device::send`](crate::Device::send). Answers [`Reply::Bytes`], [`Reply::Again`] or an error.
        29 "send" Send(device: Device(DeviceId)) + Bytes,
        /// [`TcpStream::shutdown_write`](crate::TcpStream::shutdown_write). Answers [`Reply::Done`] or
        /// an error.
        30 "shutdown_write" ShutdownWrite(device: Device(DeviceId)),
        /// [`Device::close`](crate::Device::close). Answers [`Reply::Done`] or [`Reply::Err`].
        31 "close" Close(device: Device(DeviceId)),
        /// [`Device::send_file`](crate::Device::send_file). Answers [`Reply::Bytes`], [`Reply::Again`]
        /// or an error.
        32 "send_file" SendFile(device: Device(DeviceId)) + File,
        /// Ends a task that no other will ask about: it leaves no zombie. Answers like
        /// [`SystemCall::KillTask`]. Deferred, by handles of tasks that are dropped.
        33 "release" Release(tid: Task(Tid)),
        /// Lets a task leave no zombie when it ends, or now if it has ended. Answers [`Reply::Done`].
        /// Deferred, by a [`Child`](crate::Child) that is dropped.
        34 "disown" Disown(tid: Task(Tid)),
        /// Disarms the caller's timeout of that number, and those within it. Answers [`Reply::Done`].
        /// Deferred, when the body of a timeout has ended.
        35 "disarm" Disarm(timeout: Number(u64)),
        /// Gives a message back that the caller was answered with and did not take. Answers
        /// [`Reply::Done`]. Deferred.
        36 "give_back" GiveBack(queue: Queue(QueueId)) + Message,
        /// Closes a queue and forgets it. Answers [`Reply::Done`]. Deferred, by the last handle.
        37 "free_queue" FreeQueue(queue: Queue(QueueId)),
        /// [`Os::observe`](crate::Os::observe), with the tracer's number. Answers [`Reply::Done`].
        /// Deferred.
        38 "observe" Observe(tracer: Number(u64)) + Tracer,
        /// Detaches the tracer of that number. Answers [`Reply::Done`]. Deferred, by
        /// [`Observer`](crate::Observer).
        39 "unobserve" Unobserve(tracer: Number(u64)),
    }
}

impl SystemCall {
    /// The device that it is about, if it names one.
    #[must_use]
    #[inline]
    pub fn device(self) -> Option<DeviceId> {
        match self.argument() {
            Argument::Device(device) => Some(device),
            _ => None,
        }
    }

    /// The message queue that it is about, if it names one.
    #[must_use]
    #[inline]
    pub fn queue(self) -> Option<QueueId> {
        match self.argument() {
            Argument::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    /// Whether an argument of it is a payload in the frame.
    pub(crate) fn has_payload(self) -> bool {
        match self.beside() {
            Beside::Program
            | Beside::Exit
            | Beside::Job
            | Beside::Store
            | Beside::Source
            | Beside::Addr
            | Beside::File
            | Beside::Tracer => true,
            Beside::None | Beside::Bytes | Beside::Message | Beside::Body => false,
        }
    }
}

/// What travels beside a call in the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    None,
    /// A program, its name and what else a new task needs.
    Program,
    /// How the task ends.
    Exit,
    /// Work for a thread.
    Job,
    /// Where a queue keeps its messages.
    Store,
    /// A descriptor.
    Source,
    /// An address.
    Addr,
    /// Bytes in the buffer, or room for them.
    Bytes,
    /// The number of a message.
    Message,
    /// Whether a timeout has a body.
    Body,
    /// A file, an offset, and how many bytes of it.
    File,
    /// A tracer.
    Tracer,
}

/// The argument of a [`SystemCall`] or a [`Reply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Argument {
    /// It has none.
    None,
    /// A task.
    Task(Tid),
    /// A span of time.
    Span(Nanos),
    /// An instant since boot.
    Instant(Nanos),
    /// A device.
    Device(DeviceId),
    /// A message queue.
    Queue(QueueId),
    /// How many messages a queue has room for; `u64::MAX` for any number.
    Capacity(u64),
    /// A number of any other kind: a count of bytes, a message, a timeout, a random number.
    Number(u64),
    /// An error.
    Errno(Errno),
}

/// The way `strace` shows it; nothing for [`Argument::None`].
impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Task(tid) => tid.fmt(f),
            Self::Span(Nanos::FOREVER) => f.write_str("for ever"),
            Self::Span(span) => write!(f, "{:?}", Duration::from(*span)),
            Self::Instant(instant) => instant.fmt(f),
            Self::Device(device) => device.fmt(f),
            Self::Queue(queue) => queue.fmt(f),
            Self::Capacity(u64::MAX) => f.write_str("unbounded"),
            Self::Capacity(number) | Self::Number(number) => number.fmt(f),
            Self::Errno(errno) => errno.fmt(f),
        }
    }
}

words! {
    /// The kernel's answer to a [`SystemCall`]. What does not fit in a word is in the kernel's frame,
    /// where the stub that made the call fetches it.
    pub enum Reply {
        /// It is done, and there is nothing to say about it.
        0 Done,
        /// Yes.
        1 Yes,
        /// No.
        2 No,
        /// Not now, but it may work if it is asked again.
        3 Again,
        /// A task's number.
        4 Tid(tid: Task(Tid)),
        /// The time since boot.
        5 Time(now: Instant(Nanos)),
        /// A number from the world's seed.
        6 Random(number: Number(u64)),
        /// How many bytes were moved.
        7 Bytes(count: Number(u64)),
        /// A newly attached device.
        8 Device(device: Device(DeviceId)),
        /// A new message queue.
        9 Queue(queue: Queue(QueueId)),
        /// The message of this number is the caller's.
        10 Message(message: Number(u64)),
        /// There is no room for the message of this number, which is the caller's again.
        11 Full(message: Number(u64)),
        /// The timeout of this number is armed.
        12 Timeout(timeout: Number(u64)),
        /// The timeout of this number has come, before the call could be answered.
        13 Elapsed(timeout: Number(u64)),
        /// An [`Exit`](enum@Exit), in the frame; none there stands for [`Exit::Done`](enum@Exit).
        14 Exit,
        /// A list of [`TaskInfo`], in the frame.
        15 Tasks,
        /// An [`io::Error`], in the frame.
        16 Io,
        /// A refusal that the caller may handle.
        17 Err(errno: Errno(Errno)),
        /// The queue is closed: the message of this number is the caller's again.
        18 Refused(message: Number(u64)),
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Self {
        Self::Err(errno)
    }
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
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
    #[default]
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
            Self::Device(DeviceId::CONSOLE, _) => f.write_str("the console"),
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

/// What the kernel knows of a blocked task's wait besides what it is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Wait {
    /// What it waits for in words, of a message queue: its kind, its number and its name, such as
    /// `mutex 2 "accounts"`.
    pub thing: Option<String>,
    /// The task that holds the lock that it waits for.
    pub holder: Option<Tid>,
    /// Whether a timeout around the call can end the wait.
    pub is_timed: bool,
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
    /// More of its wait, if it is blocked.
    pub wait: Wait,
}

impl TaskInfo {
    /// The task that alone can end its wait: the one whose end it waits for, or the holder of the
    /// lock. `None` where a timeout can end the wait too.
    #[must_use]
    pub fn waits_for(&self) -> Option<Tid> {
        match self.state {
            TaskState::Blocked { .. } if self.wait.is_timed => None,
            TaskState::Blocked {
                on: On::Exit(target),
                ..
            } => Some(target),
            TaskState::Blocked {
                on: On::Queue(_, End::Get),
                ..
            } => self.wait.holder,
            TaskState::Blocked { .. }
            | TaskState::Ready
            | TaskState::Running
            | TaskState::Zombie(_) => None,
        }
    }

    /// What it waits for in words, with the holder of a lock; `None` if it is not blocked.
    #[must_use]
    pub fn blocked_on(&self) -> Option<String> {
        let TaskState::Blocked { on, .. } = self.state else {
            return None;
        };
        let thing = self.wait.thing.clone();
        let thing = thing.unwrap_or_else(|| on.to_string());
        Some(match self.wait.holder {
            Some(holder) => format!("{thing}, held by task {holder}"),
            None => thing,
        })
    }
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tid {} {:?} ", self.tid, self.name)?;
        match &self.state {
            TaskState::Ready => f.write_str("is ready"),
            TaskState::Running => f.write_str("is running"),
            TaskState::Blocked { since, .. } => {
                let on = self.blocked_on().unwrap_or_default();
                write!(f, "waits for {on}, since {}", Nanos::from(*since))
            }
            TaskState::Zombie(exit) => write!(f, "is a zombie: {exit}"),
        }
    }
}
