//! The contract between a task and the kernel: what crosses at a trap.
//!
//! Everything here is plain data. [`SystemCall`] and [`Reply`] are `Copy` and exactly two words
//! wide: tag and payload. Both cross at every trap, and a narrower payload would be copied in
//! pieces; that makes a trap three times as expensive. What does not fit travels beside them, in
//! the kernel's frame. This module uses no other.

use std::{borrow::Cow, fmt, io, panic::Location, time::Duration};

/// A task's number: from 1 upward in order of creation, never used twice in a run.
///
/// 0 is the kernel itself, and the host as a parent. The numbers of daemons are in a range apart,
/// far above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tid(u64);

impl Tid {
    /// The kernel, or the host that booted it.
    pub const KERNEL: Self = Self(0);

    /// The number before that of the first daemon.
    pub(crate) const DAEMONS: u64 = 1 << 63;

    /// Returns whether this is the number of a daemon
    /// ([`Kernel::spawn_daemon`](crate::Kernel::spawn_daemon)).
    #[must_use]
    pub fn is_daemon(self) -> bool {
        self.0 >= Self::DAEMONS
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
    /// No device. Every call on it fails with [`Errno::BadFd`].
    pub const NONE: Self = Self(0);

    /// The console, in reports of a task that has printed more than the console takes. No task can
    /// use this token: in a call it is the same as [`DeviceId::NONE`].
    pub const CONSOLE: Self = Self::NONE;

    /// The token before that of the first device of a daemon. The range apart keeps the tokens of
    /// tasks unchanged.
    pub(crate) const DAEMONS: u64 = 1 << 62;

    pub(crate) fn is_of_daemon(self) -> bool {
        self.0 > Self::DAEMONS
    }

    /// Returns the token of this number, for readers of logs and for tests. A program uses a
    /// [`Device`](crate::Device), because a raw call reaches the device of any task
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

/// A machine that tasks run on: a host of a simulated network, or the one machine of the real world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HostId(u32);

impl HostId {
    /// The machine of tasks that were spawned without a host; in the real world that of all tasks.
    pub const LOCAL: Self = Self(0);

    /// Returns the host with this place in the table of hosts.
    pub(crate) fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("the net has addresses for fewer hosts"))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A message queue's name: its number, in order of creation and never used twice, and its slot in
/// the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QueueId(u64);

impl QueueId {
    /// The number of bits for the slot: 16 million queues at once.
    const SLOT_BITS: u32 = 24;

    /// The largest number of queues at once.
    pub(crate) const PLACES: usize = 1 << Self::SLOT_BITS;

    /// No queue. Every call on it fails as on a closed queue.
    pub(crate) const NONE: Self = Self(0);

    /// The number before that of the first queue of a daemon: the begin of the upper half.
    pub(crate) const DAEMONS: u64 = 1 << (63 - Self::SLOT_BITS);

    #[inline]
    pub(crate) fn is_of_daemon(self) -> bool {
        self.0 >> 63 != 0
    }

    /// Returns a name that no queue in this slot has: it is of another slot.
    pub(crate) fn of_none_in(slot: usize) -> Self {
        Self(slot as u64 ^ 1)
    }

    pub(crate) fn new(number: u64, slot: usize) -> Option<Self> {
        let slot = slot as u64;
        (slot >> Self::SLOT_BITS == 0).then_some(Self(number << Self::SLOT_BITS | slot))
    }

    /// Returns the name of this number and slot, for readers of logs and for tests; `None` if
    /// either is too large. A program uses a [`Queue`](crate::Queue), because a raw call reaches
    /// the queue of any task ([`Os::trap`](crate::Os::trap)).
    #[must_use]
    pub fn from_raw(number: u64, slot: usize) -> Option<Self> {
        let fits = number <= u64::MAX >> Self::SLOT_BITS;
        fits.then(|| Self::new(number, slot)).flatten()
    }

    /// Returns the number, from 1 upward, which logs and reports show.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    /// Returns the slot in the kernel's table, from 0 upward. A later queue may have the same slot.
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

/// The kind of object that a queue is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    Queue,
    Semaphore,
    Mutex,
    Flag,
    Barrier,
    Condition,
    Promise,
    Callback,
    Group,
    Job,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Queue,
        Self::Semaphore,
        Self::Mutex,
        Self::Flag,
        Self::Barrier,
        Self::Condition,
        Self::Promise,
        Self::Callback,
        Self::Group,
        Self::Job,
    ];

    /// The name of the kind, and the words for the calls on its queue: `get`, `try_get`, `put`,
    /// `try_put` and `close_queue`. A word is the method that makes the call, where there is one.
    fn words(self) -> [&'static str; 6] {
        match self {
            Self::Queue => ["queue", "get", "try_get", "put", "try_put", "close"],
            Self::Semaphore => [
                "semaphore",
                "acquire",
                "try_acquire",
                "put",
                "release",
                "close",
            ],
            Self::Mutex => ["mutex", "lock", "try_lock", "put", "unlock", "close"],
            Self::Flag => ["flag", "wait", "try_get", "put", "try_put", "set"],
            Self::Barrier => ["barrier", "wait", "try_get", "put", "try_put", "open"],
            Self::Condition => [
                "condition",
                "wait",
                "try_get",
                "put",
                "notify_one",
                "notify_all",
            ],
            Self::Promise => ["promise", "wait", "try_get", "put", "try_put", "set"],
            Self::Callback => ["callback", "on_done", "try_get", "put", "call", "close"],
            Self::Group => ["group", "next", "try_get", "put", "try_put", "close"],
            Self::Job => ["job", "run_blocking", "try_get", "put", "try_put", "close"],
        }
    }

    /// Returns the kind of that name; a queue if there is none.
    pub(crate) fn of(name: &str) -> Self {
        let named = Self::ALL.into_iter().find(|kind| kind.name() == name);
        named.unwrap_or_default()
    }

    pub(crate) fn name(self) -> &'static str {
        self.words()[0]
    }

    /// Returns the word for a call on a queue of this kind, such as `lock` for the `get` of a mutex.
    pub(crate) fn verb(self, call: SystemCall) -> &'static str {
        let [_, get, try_get, put, try_put, close] = self.words();
        match call {
            SystemCall::Get(_) => get,
            SystemCall::TryGet(_) => try_get,
            SystemCall::Put(_) => put,
            SystemCall::TryPut(_) => try_put,
            SystemCall::CloseQueue(_) => close,
            SystemCall::FreeQueue(_) => "free",
            SystemCall::OpenQueue(_) => "clear",
            other => other.name(),
        }
    }

    /// Returns the word for what a task gets from a queue of this kind, as the source of a select.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Queue | Self::Condition | Self::Callback => "message",
            Self::Semaphore => "permit",
            Self::Mutex => "lock",
            Self::Group => "member",
            Self::Flag | Self::Barrier | Self::Promise | Self::Job => self.name(),
        }
    }

    /// Returns the kind, number and name of a queue, such as `mutex 2 "savings"`.
    pub(crate) fn title(self, queue: QueueId, name: &str) -> String {
        match (self.name(), name) {
            (kind, "") => format!("{kind} {queue}"),
            (kind, name) => format!("{kind} {queue} {name:?}"),
        }
    }

    /// Returns in words what a task waits for at this end of a queue; `None` for a queue without a
    /// name.
    pub(crate) fn thing(self, queue: QueueId, end: End, name: &str) -> Option<String> {
        match (self, name) {
            (Self::Queue, "") => None,
            (Self::Queue, name) => Some(format!("{} ({end})", self.title(queue, name))),
            (_, name) => Some(self.title(queue, name)),
        }
    }
}

/// Nanoseconds: a span, or an instant since boot. The range is 584 years; [`Nanos::FOREVER`] is
/// beyond it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub(crate) u64);

impl Nanos {
    /// Boot, or an empty span.
    pub const ZERO: Self = Self(0);
    /// Beyond the range: a deadline that never comes.
    pub const FOREVER: Self = Self(u64::MAX);

    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Returns this instant moved by `span`; [`Nanos::FOREVER`] beyond the range.
    #[must_use]
    pub fn saturating_add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the span from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
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

/// One of the numbers by which a policy shares the processors: tickets, a nice value or a priority.
/// [`sched`](crate::sched) says which policy uses which.
///
/// ```
/// use trapline::Share;
///
/// assert_eq!(Share::nice(-30), Share::nice(-20));
/// assert_eq!(Share::tickets(50).to_string(), "tickets=50");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Share(u64);

/// What a [`Share`] holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShareOf {
    Tickets(u32),
    Nice(i32),
    Priority(i32),
}

impl Share {
    /// The tickets of [`Lottery`](crate::sched::Lottery) and [`Stride`](crate::sched::Stride).
    /// Every task begins with 100. A number of 0 counts as 1.
    #[must_use]
    pub const fn tickets(number: u32) -> Self {
        Self(if number == 0 { 1 } else { number as u64 })
    }

    /// The nice value of [`Fair`](crate::sched::Fair): -20 is the largest share, 19 the smallest.
    /// Every task begins with 0. A value outside the range counts as the nearest one in it.
    #[must_use]
    pub const fn nice(value: i32) -> Self {
        let value = if value < -20 {
            -20
        } else if value > 19 {
            19
        } else {
            value
        };
        Self(1 << 32 | value as u32 as u64)
    }

    /// The priority of [`Priority`](crate::sched::Priority): the highest number runs first. Every
    /// task begins with 0.
    #[must_use]
    pub const fn priority(number: i32) -> Self {
        Self(2 << 32 | number as u32 as u64)
    }

    pub(crate) fn of(self) -> ShareOf {
        let low = self.0 as u32;
        match self.0 >> 32 {
            1 => ShareOf::Nice(low.cast_signed()),
            2 => ShareOf::Priority(low.cast_signed()),
            _ => ShareOf::Tickets(low),
        }
    }

    /// Returns its number in recordings.
    pub(crate) fn to_raw(self) -> u64 {
        self.0
    }

    /// Returns the share of this number; `None` if no share has it.
    pub(crate) fn from_raw(number: u64) -> Option<Self> {
        let share = match Self(number).of() {
            ShareOf::Tickets(tickets) => Self::tickets(tickets),
            ShareOf::Nice(nice) => Self::nice(nice),
            ShareOf::Priority(priority) => Self::priority(priority),
        };
        (share.0 == number).then_some(share)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::tickets(100)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of() {
            ShareOf::Tickets(tickets) => write!(f, "tickets={tickets}"),
            ShareOf::Nice(nice) => write!(f, "nice={nice}"),
            ShareOf::Priority(priority) => write!(f, "priority={priority}"),
        }
    }
}

/// A direction of I/O: the interest in a device, or its readiness.
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

/// An end of a message queue.
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

/// Names a variant, or `None` if the row of a table below has none.
macro_rules! or_none {
    ($Enum:ident) => { $Enum::None };
    ($Enum:ident $($variant:tt)+) => { $Enum::$($variant)+ };
}

/// Makes an enum of two words, number and argument, from a table with a row for each variant:
///
/// ```text
/// number Variant(argument: Kind(Type)),
/// ```
///
/// The kind is a variant of [`Argument`]. Recordings contain the number, so it never changes and is
/// never reused. A new row takes the next number.
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
            /// Returns its number in the table of `src/abi.rs`. Recordings contain it.
            #[must_use]
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$Row { .. } => const {
                        assert!($number < 0x80, "recordings have seven bits for a number");
                        $number
                    },)*
                }
            }

            /// Returns the variant of this number, with an argument of zero; `None` if there is
            /// none.
            #[must_use]
            pub fn from_number(number: u8) -> Option<Self> {
                Some(match number {
                    $($number => Self::$Row $((<$Type>::default()))?,)*
                    _ => return None,
                })
            }

            /// Returns its argument.
            #[must_use]
            #[inline]
            pub fn argument(self) -> Argument {
                match self {
                    $(Self::$Row $(($argument))? => or_none!(Argument $($Kind($argument))?),)*
                }
            }

            /// Returns the same variant with another argument; `None` if the kind is wrong.
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

/// Makes [`SystemCall`] and its methods from the table of all calls:
///
/// ```text
/// number "name" Call(argument: Kind(Type)) + Beside => Touches(argument); Mark Mark,
/// ```
///
/// The first columns are those of [`words`]. `+` names what travels beside the call, if something
/// does. `=>` names what it touches, a variant of [`Touches`]. The last column has its [`Mark`]s.
/// Besides its row, a call needs an arm in the kernel's match, a stub on the task's side, and a row
/// in the README's table. A test checks the README.
macro_rules! calls {
    (
        $(#[$about:meta])*
        pub enum $Enum:ident {
            $(
                $(#[$docs:meta])*
                $number:literal $name:literal $Call:ident $(($argument:ident: $Kind:ident($Type:ty)))?
                $(+ $Beside:ident)? => $Touches:ident $(($touched:ident))? $(; $($Mark:ident)+)?,
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

            /// Returns the call's name in traces, in the manner of `strace`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Call { .. } => $name,)*
                }
            }

            /// Returns what travels beside the call.
            pub(crate) fn beside(self) -> Beside {
                match self {
                    $(Self::$Call { .. } => or_none!(Beside $($Beside)?),)*
                }
            }

            /// Returns what the call touches.
            #[allow(unused_variables, reason = "not every argument is touched")]
            pub(crate) fn touches(self) -> Touches {
                match self {
                    $(Self::$Call $(($argument))? => Touches::$Touches $(($touched))?,)*
                }
            }

            fn marks(self) -> &'static [Mark] {
                match self {
                    $(Self::$Call { .. } => &[$($(Mark::$Mark),+)?],)*
                }
            }
        }
    };
}

calls! {
    /// A request to the kernel. A task makes it by yielding it; a task has no other exit to the
    /// kernel.
    ///
    /// Each call has a stub on [`Os`](crate::Os); the stub's documentation is the manual of the
    /// call. Arguments that are not part of the variant (a program, an address, bytes) travel in
    /// the kernel's frame. Only the stub can put them there. Without its stub, such a call fails
    /// with [`Errno::Invalid`]; `Recv` and `Send` move no bytes.
    ///
    /// ```
    /// use trapline::SystemCall;
    ///
    /// let calls = (0..=u8::MAX).filter_map(SystemCall::from_number);
    /// assert!(calls.map(SystemCall::name).eq(SystemCall::NAMES));
    /// ```
    pub enum SystemCall {
        /// [`Os::get_tid`](crate::Os::get_tid). Returns [`Reply::Tid`].
        0 "get_tid" GetTid => Nothing; Asks,
        /// [`Os::yield_now`](crate::Os::yield_now). Returns [`Reply::Done`].
        1 "yield" Yield => Nothing,
        /// [`Os::spawn`](crate::Os::spawn). Returns [`Reply::Tid`] or [`Reply::Err`].
        2 "new_task" NewTask + Program => Tids; Fails,
        /// [`Os::spawn_detached`](crate::Os::spawn_detached). Returns the same as
        /// [`SystemCall::NewTask`].
        3 "new_detached_task" NewDetachedTask + Program => Tids; Fails,
        /// [`Os::kill`](crate::Os::kill). Returns [`Reply::Yes`] or [`Reply::No`].
        4 "kill_task" KillTask(tid: Task(Tid)) => Life(tid),
        /// [`Os::wait`](crate::Os::wait). Returns [`Reply::Exit`] or [`Reply::Err`].
        5 "wait_task" WaitTask(tid: Task(Tid)) => Exit(tid); Fails,
        /// [`Os::exit`](crate::Os::exit). Never returns.
        6 "exit" Exit + Exit => Nothing,
        /// [`Os::shutdown`](crate::Os::shutdown). Never returns.
        7 "shutdown" Shutdown => All,
        /// [`Os::sleep`](crate::Os::sleep). Returns [`Reply::Done`].
        8 "sleep" Sleep(span: Span(Nanos)) => Nothing,
        /// [`Os::sleep_until`](crate::Os::sleep_until). Returns [`Reply::Done`].
        9 "sleep_until" SleepUntil(instant: Instant(Nanos)) => Nothing,
        /// [`Os::now`](crate::Os::now). Returns [`Reply::Time`].
        10 "now" Now => Nothing; Asks,
        /// [`Os::random`](crate::Os::random). Returns [`Reply::Random`].
        11 "random" Random => Random; Asks,
        /// [`Os::tasks`](crate::Os::tasks). Returns [`Reply::Tasks`].
        12 "tasks" Tasks => All,
        /// [`Os::read_wait`](crate::Os::read_wait). Returns [`Reply::Done`] or [`Reply::Err`].
        13 "read_wait" ReadWait(device: Device(DeviceId)) => World; Fails,
        /// [`Os::write_wait`](crate::Os::write_wait). Returns [`Reply::Done`] or [`Reply::Err`].
        14 "write_wait" WriteWait(device: Device(DeviceId)) => World; Fails,
        /// [`Os::timeout`](crate::Os::timeout): arms it. Returns [`Reply::Timeout`], or
        /// [`Errno::Invalid`] without a body that it could cut short.
        15 "timeout" Timeout(span: Span(Nanos)) + Body => Nothing; Asks Fails,
        /// [`Os::run_blocking`](crate::Os::run_blocking): hands the work over. Returns
        /// [`Reply::Done`].
        16 "submit" Submit + Job => World,
        /// [`Queue::bounded`](crate::Queue::bounded), with its capacity. Returns [`Reply::Queue`]
        /// or [`Reply::Err`].
        17 "new_queue" NewQueue(capacity: Capacity(u64)) + Store => Nothing; Fails,
        /// [`Queue::put`](crate::Queue::put). Returns [`Reply::Done`], or [`Reply::Refused`] if it
        /// is closed.
        18 "put" Put(queue: Queue(QueueId)) + Message => Put(queue),
        /// [`Queue::get`](crate::Queue::get). Returns [`Reply::Message`] or [`Reply::Err`].
        19 "get" Get(queue: Queue(QueueId)) => Get(queue); Fails,
        /// [`Queue::try_put`](crate::Queue::try_put). Returns the same as [`SystemCall::Put`], or
        /// [`Reply::Full`].
        20 "try_put" TryPut(queue: Queue(QueueId)) + Message => TryPut(queue),
        /// [`Queue::try_get`](crate::Queue::try_get). Returns the same as [`SystemCall::Get`], or
        /// [`Reply::Again`].
        21 "try_get" TryGet(queue: Queue(QueueId)) => Ends(queue); Fails,
        /// [`Queue::close`](crate::Queue::close). Returns [`Reply::Done`] or [`Reply::Err`].
        22 "close_queue" CloseQueue(queue: Queue(QueueId)) => Ends(queue); Fails,
        /// [`Os::attach`](crate::Os::attach). Returns [`Reply::Device`] or [`Reply::Io`].
        23 "attach" Attach + Source => World; Io,
        /// [`Os::listen`](crate::Os::listen). Returns [`Reply::Device`] or [`Reply::Io`].
        24 "listen" Listen + Addr => World; Io,
        /// [`Os::connect`](crate::Os::connect): starts it. Returns [`Reply::Device`] or
        /// [`Reply::Io`].
        25 "connect" Connect + Addr => World; Io,
        /// Takes the result of a started connection, once it is writable. Returns [`Reply::Done`]
        /// or an error.
        26 "connected" Connected(device: Device(DeviceId)) => World; Io,
        /// [`TcpListener::accept`](crate::TcpListener::accept). Returns [`Reply::Device`] or an
        /// error.
        27 "accept" Accept(device: Device(DeviceId)) => World; Io,
        /// [`Device::recv`](crate::Device::recv). Returns [`Reply::Bytes`] or an error.
        28 "recv" Recv(device: Device(DeviceId)) + Bytes => World; Io,
        /// [`Device::send`](crate::Device::send). Returns [`Reply::Bytes`], [`Reply::Again`] or an
        /// error.
        29 "send" Send(device: Device(DeviceId)) + Bytes => World; Io,
        /// [`TcpStream::shutdown_write`](crate::TcpStream::shutdown_write). Returns [`Reply::Done`]
        /// or an error.
        30 "shutdown_write" ShutdownWrite(device: Device(DeviceId)) => World; Io,
        /// [`Device::close`](crate::Device::close). Returns [`Reply::Done`] or [`Reply::Err`].
        31 "close" Close(device: Device(DeviceId)) => World; Fails,
        /// [`Device::send_file`](crate::Device::send_file). Returns [`Reply::Bytes`],
        /// [`Reply::Again`] or an error.
        32 "send_file" SendFile(device: Device(DeviceId)) + File => World; Io,
        /// Ends a task, which leaves no zombie. Returns the same as
        /// [`SystemCall::KillTask`]. Deferred, by handles of tasks that are dropped.
        33 "release" Release(tid: Task(Tid)) + Waited => Life(tid),
        /// Makes a task leave no zombie: reaps it when it ends, or now if it has ended. Returns
        /// [`Reply::Done`]. Deferred, by a [`Child`](crate::Child) that is dropped.
        34 "disown" Disown(tid: Task(Tid)) + Waited => Zombie(tid),
        /// Disarms the caller's timeout of that number and those within it. Returns
        /// [`Reply::Done`]. Deferred, when the body of a timeout has ended.
        35 "disarm" Disarm(timeout: Number(u64)) => Nothing; Asks,
        /// Gives back a message that the caller has received and not taken. Returns
        /// [`Reply::Done`]. Deferred.
        36 "give_back" GiveBack(queue: Queue(QueueId)) + Message => Ends(queue),
        /// Closes and frees a queue. Returns [`Reply::Done`]. Deferred, by the last handle.
        37 "free_queue" FreeQueue(queue: Queue(QueueId)) => Waiters(queue),
        /// [`Os::observe`](crate::Os::observe), with the tracer's number. Returns [`Reply::Done`].
        /// Deferred.
        38 "observe" Observe(tracer: Number(u64)) + Tracer => All,
        /// Detaches the tracer of that number. Returns [`Reply::Done`]. Deferred, by
        /// [`Observer`](crate::Observer).
        39 "unobserve" Unobserve(tracer: Number(u64)) => All,
        /// [`Os::host`](crate::Os::host). Returns [`Reply::Host`].
        40 "host" Host => World; Asks,
        /// [`Os::resolve`](crate::Os::resolve). Returns [`Reply::Addresses`], [`Reply::Io`], or
        /// [`Reply::Again`] where a thread has to ask the operating system.
        41 "resolve" Resolve + Name => World; Io,
        /// A fault of the simulated network; a crash ends the tasks of its host. Returns
        /// [`Reply::Done`]. Deferred, by [`SimNet`](crate::SimNet).
        42 "fault" Fault + Fault => All,
        /// [`Os::compute`](crate::Os::compute). Returns [`Reply::Done`].
        43 "compute" Compute(span: Span(Nanos)) => Processor(span),
        /// [`Os::set_tickets`](crate::Os::set_tickets), [`Os::set_nice`](crate::Os::set_nice) and
        /// [`Os::set_priority`](crate::Os::set_priority). Returns [`Reply::Done`].
        44 "set_share" SetShare(share: Share(Share)) => Nothing,
        /// [`Os::select`](crate::Os::select). Returns [`Reply::Ready`].
        45 "select" Select + Interests => Nothing; Asks,
        /// Opens the queue of a flag again. Returns [`Reply::Done`] or [`Reply::Err`].
        46 "open_queue" OpenQueue(queue: Queue(QueueId)) => Ends(queue); Fails,
        /// [`Scope::run`](crate::Scope::run), with its deadline: begins it. Returns
        /// [`Reply::Timeout`], or [`Errno::Invalid`] without a scope.
        47 "scope" Scope(deadline: Instant(Nanos)) + Scope => Nothing; Asks Fails,
        /// [`Scope::cancel`](crate::Scope::cancel), with the task that runs it, and
        /// [`Os::cancel`](crate::Os::cancel). Returns [`Reply::Yes`] or [`Reply::No`].
        48 "cancel" Cancel(tid: Task(Tid)) + Scope => All,
        /// [`Scope::deadline`](crate::Scope::deadline). Returns [`Reply::Done`], or
        /// [`Errno::Invalid`] without a scope.
        49 "set_deadline" SetDeadline(deadline: Instant(Nanos)) + Scope => All; Fails,
        /// [`Os::shield`](crate::Os::shield): enters it. Returns [`Reply::Timeout`].
        50 "shield" Shield => Nothing; Asks,
        /// Leaves the shield of that number. Returns [`Reply::Done`]. Deferred.
        51 "unshield" Unshield(shield: Number(u64)) => Nothing; Asks,
    }
}

impl SystemCall {
    /// Returns the device that the call names, if any.
    #[must_use]
    #[inline]
    pub fn device(self) -> Option<DeviceId> {
        match self.argument() {
            Argument::Device(device) => Some(device),
            _ => None,
        }
    }

    /// Returns the message queue that the call names, if any.
    #[must_use]
    #[inline]
    pub fn queue(self) -> Option<QueueId> {
        match self.argument() {
            Argument::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    /// Returns whether the call returns an [`io::Result`]. Only such a call can be failed by an
    /// injection ([`Inject::Fail`]).
    ///
    /// ```
    /// use trapline::SystemCall;
    ///
    /// assert!(SystemCall::Connect.is_io());
    /// assert!(!SystemCall::Yield.is_io());
    /// ```
    #[must_use]
    pub fn is_io(self) -> bool {
        self.marks().contains(&Mark::Io)
    }

    /// Returns whether the answer may be an error: [`Reply::Err`] or [`Reply::Io`]. A raw call that
    /// lacks what its stub puts beside it fails, whichever it is.
    ///
    /// ```
    /// use trapline::{SystemCall, Tid};
    ///
    /// assert!(SystemCall::WaitTask(Tid::from(7)).can_fail());
    /// assert!(!SystemCall::Now.can_fail());
    /// ```
    #[must_use]
    pub fn can_fail(self) -> bool {
        let marks = self.marks();
        marks.contains(&Mark::Io) || marks.contains(&Mark::Fails)
    }

    /// Returns whether the call only asks or arms. A due timeout lets some of these through before
    /// the one answer.
    pub(crate) fn only_asks(self) -> bool {
        self.marks().contains(&Mark::Asks)
    }

    /// Returns whether the call's second word is a number of bytes.
    pub(crate) fn has_length(self) -> bool {
        matches!(self.beside(), Beside::Bytes | Beside::File)
    }

    /// Returns whether an argument of the call is a payload in the frame.
    pub(crate) fn has_payload(self) -> bool {
        !matches!(
            self.beside(),
            Beside::None | Beside::Bytes | Beside::Message | Beside::Body | Beside::Waited
        )
    }
}

/// A mark in the table of calls.
#[derive(PartialEq, Eq)]
enum Mark {
    /// The call only asks or arms.
    Asks,
    /// It returns an [`io::Result`].
    Io,
    /// It may be refused with an [`Errno`], even by its stub.
    Fails,
}

/// What a call touches whatever the state is: its footprint, for the search.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Touches {
    /// Only the caller.
    Nothing,
    /// Everything there is.
    All,
    /// What is outside of the kernel.
    World,
    /// The sequence of random numbers.
    Random,
    /// The numbers of tasks.
    Tids,
    /// The life of a task: the call ends it.
    Life(Tid),
    /// The end of a task: the call waits for it.
    Exit(Tid),
    /// The zombie of a task.
    Zombie(Tid),
    /// The end of a queue where the caller waits to put.
    Put(QueueId),
    /// The same end; it does not wait.
    TryPut(QueueId),
    /// The end of a queue where the caller waits to get.
    Get(QueueId),
    /// Both ends of a queue.
    Ends(QueueId),
    /// The tasks that wait at a queue without handles.
    Waiters(QueueId),
    /// A processor, for this time.
    Processor(Nanos),
}

/// What travels beside a call in the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    None,
    /// A program, its name and the options of a new task.
    Program,
    /// The exit of the task.
    Exit,
    /// Work for a thread.
    Job,
    /// The store of a queue's messages.
    Store,
    /// A descriptor.
    Source,
    /// An address.
    Addr,
    /// The name of a host.
    Name,
    /// A fault of the network.
    Fault,
    /// Bytes in the buffer, or their number.
    Bytes,
    /// The number of a message.
    Message,
    /// Whether a timeout has a body.
    Body,
    /// Whether a task has waited for the end of that task.
    Waited,
    /// A file, an offset, and a number of bytes.
    File,
    /// A tracer.
    Tracer,
    /// The sources of a select, and the number of the first to look at.
    Interests,
    /// What a scope shares with its handles.
    Scope,
}

/// The argument of a [`SystemCall`] or a [`Reply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Argument {
    /// No argument.
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
    /// The capacity of a queue; `u64::MAX` if it is unbounded.
    Capacity(u64),
    /// A number of any other kind: a count of bytes, a message, a timeout, a random number.
    Number(u64),
    /// An error.
    Errno(Errno),
    /// A share of the processors.
    Share(Share),
}

/// The text of `strace`; empty for [`Argument::None`].
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
            Self::Share(share) => share.fmt(f),
        }
    }
}

words! {
    /// The kernel's answer to a [`SystemCall`]. What does not fit in a word is in the kernel's
    /// frame, and the stub of the call takes it from there.
    pub enum Reply {
        /// The call is done, without a result.
        0 Done,
        /// Yes.
        1 Yes,
        /// No.
        2 No,
        /// The call would block; it can be tried again.
        3 Again,
        /// A task's number.
        4 Tid(tid: Task(Tid)),
        /// The time since boot.
        5 Time(now: Instant(Nanos)),
        /// A random number from the world's seed.
        6 Random(number: Number(u64)),
        /// The number of bytes that were moved.
        7 Bytes(count: Number(u64)),
        /// A newly attached device.
        8 Device(device: Device(DeviceId)),
        /// A new message queue.
        9 Queue(queue: Queue(QueueId)),
        /// The caller receives the message of this number.
        10 Message(message: Number(u64)),
        /// The queue is full; the caller gets back the message of this number.
        11 Full(message: Number(u64)),
        /// The timeout of this number is armed.
        12 Timeout(timeout: Number(u64)),
        /// The timeout of this number has fired and cut the call.
        13 Elapsed(timeout: Number(u64)),
        /// An [`Exit`](enum@Exit), in the frame; an empty frame means [`Exit::Done`](enum@Exit).
        14 Exit,
        /// A list of [`TaskInfo`], in the frame.
        15 Tasks,
        /// An [`io::Error`], in the frame.
        16 Io,
        /// A refusal that the caller may handle.
        17 Err(errno: Errno(Errno)),
        /// The queue is closed; the caller gets back the message of this number.
        18 Refused(message: Number(u64)),
        /// The name of a host, in the frame.
        19 Host,
        /// The addresses of a host, in the frame.
        20 Addresses,
        /// The source with this index is ready.
        21 Ready(index: Number(u64)),
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Self {
        Self::Err(errno)
    }
}

/// The way in which a task ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The program returned `()` or `Ok`.
    Done,
    /// The program returned an error with this text.
    Failed(String),
    /// The program panicked with this message, or awaited something that is not a trap.
    Faulted(String),
    /// A task killed it, or the kernel was shut down.
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
    /// No such task exists, or it was reaped.
    #[error("no such task")]
    NoSuchTask,
    /// The task waits for its own end.
    #[error("a task that waits for itself would wait for ever")]
    WouldDeadlock,
    /// The kernel's limit of live tasks is reached.
    #[error("too many live tasks")]
    TooManyTasks,
    /// The device is not attached to this kernel, or is closed.
    #[error("no such device in this kernel")]
    BadFd,
    /// Another task waits for the same direction of the device.
    #[error("another task waits for this direction of the device")]
    Busy,
    /// The device was closed while the task waited for it, or the queue is closed.
    #[error("it is closed")]
    Closed,
    /// The world has no such host, or its name is not one.
    #[error("no such host in this world: in the real world there is only localhost")]
    NoSuchHost,
    /// The host has crashed, and was not restarted.
    #[error("the host has crashed, and was not restarted")]
    HostDown,
    /// A raw call lacks the argument that its stub puts beside it.
    #[default]
    #[error("the call came without its argument: use its stub on Os")]
    Invalid,
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        use io::ErrorKind as Kind;
        let kind = match errno {
            Errno::NoSuchTask | Errno::NoSuchHost => Kind::NotFound,
            Errno::HostDown => Kind::NetworkDown,
            Errno::WouldDeadlock => Kind::Deadlock,
            Errno::TooManyTasks => Kind::QuotaExceeded,
            Errno::Busy => Kind::ResourceBusy,
            Errno::Closed => Kind::NotConnected,
            Errno::BadFd | Errno::Invalid => Kind::InvalidInput,
        };
        Self::new(kind, errno)
    }
}

/// What an injection does to a call ([`Builder::inject`](crate::Builder::inject)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inject {
    /// The call fails with an error of this kind and has no effect. Only for calls that return an
    /// [`io::Result`] ([`SystemCall::is_io`]).
    Fail(io::ErrorKind),
    /// The task waits for this time before the kernel handles the call.
    Delay(Duration),
    /// The task is killed at the call, which has no effect.
    Kill,
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(kind) => kind.fmt(f),
            Self::Delay(span) => write!(f, "a delay of {span:?}"),
            Self::Kill => f.write_str("a kill"),
        }
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
    /// The first of so many sources: the task selects.
    First(u64),
}

impl On {
    /// Returns the task that alone can end this wait: the task whose end it is for, or the holder of
    /// the lock that it is for. `None` if a timeout can end the wait too.
    pub(crate) fn ender(self, is_timed: bool, holder: Option<Tid>) -> Option<Tid> {
        match self {
            _ if is_timed => None,
            Self::Exit(target) => Some(target),
            Self::Queue(_, End::Get) => holder,
            Self::Queue(_, End::Put) | Self::Timer(_) | Self::Device(..) | Self::First(_) => None,
        }
    }
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
            Self::First(0) => f.write_str("nothing: it selects among no sources"),
            Self::First(1) => f.write_str("one source"),
            Self::First(sources) => write!(f, "the first of {sources} sources"),
        }
    }
}

/// A source of a select: what [`Os::select`](crate::Os::select) asks the kernel for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Interest {
    /// The end of a task.
    Exit(Tid),
    /// A time from the call on.
    After(Nanos),
    /// An instant since boot.
    At(Nanos),
    /// The readiness of a device.
    Device(DeviceId, Direction),
    /// Room in a message queue, or a message.
    Queue(QueueId, End),
}

impl Interest {
    /// Returns the task that alone can make the source ready: the task whose end it is, or the
    /// holder of the lock that it is.
    pub(crate) fn ender(self, holder: Option<Tid>) -> Option<Tid> {
        match self {
            Self::Exit(target) => Some(target),
            Self::Queue(_, End::Get) => holder,
            _ => None,
        }
    }

    /// Returns the source in words: what a call on it would wait for. `kind` and `name` are those of
    /// its queue.
    pub(crate) fn words(self, kind: Kind, name: &str) -> String {
        let word = match self {
            Self::Queue(_, End::Get) => kind.message(),
            _ => return self.to_string(),
        };
        match (self, name) {
            (Self::Queue(queue, _), "") => format!("{word} {queue}"),
            (Self::Queue(queue, _), name) => format!("{word} {queue} {name:?}"),
            _ => word.into(),
        }
    }
}

impl fmt::Display for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(tid) => write!(f, "exit {tid}"),
            Self::After(Nanos::FOREVER) => f.write_str("never"),
            Self::After(span) => write!(f, "after {:?}", Duration::from(*span)),
            Self::At(instant) => write!(f, "at {instant}"),
            Self::Device(device, Direction::Read) => write!(f, "readable {device}"),
            Self::Device(device, Direction::Write) => write!(f, "writable {device}"),
            Self::Queue(queue, End::Get) => write!(f, "message {queue}"),
            Self::Queue(queue, End::Put) => write!(f, "room {queue}"),
        }
    }
}

/// Says what a select waits for, whose sources have these words.
pub(crate) fn first_of(sources: impl ExactSizeIterator<Item = String>) -> String {
    /// The most sources that are named.
    const NAMED: usize = 8;
    let more = sources.len().saturating_sub(NAMED);
    let mut words: Vec<String> = sources.take(NAMED).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    match words.len() {
        0 => On::First(0).to_string(),
        1 => words.swap_remove(0),
        _ => format!("the first of: {}", words.join("; ")),
    }
}

/// The state of a task, as `ps` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskState {
    /// The task waits for its turn.
    Ready,
    /// The task runs: it is the caller.
    Running,
    /// The task is blocked.
    Blocked {
        /// What it waits for.
        on: On,
        /// When it blocked, counted from boot.
        since: Duration,
    },
    /// The task has ended, and no task has waited for it yet.
    Zombie(Exit),
}

/// A place in the source code. Its `Display` is the file and the line, such as `src/server.rs:41`,
/// without detours: `cli/../programs/echo.rs` is `programs/echo.rs`. The alternate form `{:#}` adds the
/// chain of functions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Place {
    /// The file, as the compiler names it.
    pub file: Cow<'static, str>,
    /// The line, counted from 1.
    pub line: u32,
    /// The functions that were under way there, the innermost first, such as
    /// `parse at src/parse.rs:7, serve at src/server.rs:41`. Only a fault has them, if
    /// `RUST_BACKTRACE` is set.
    pub chain: Box<str>,
}

impl Place {
    /// Returns the file without detours. A package that has a file of a folder beside it makes them.
    #[must_use]
    pub fn path(&self) -> Cow<'_, str> {
        let mut path = Cow::Borrowed(&*self.file);
        if path.contains("./../") {
            path = path.replace("/./", "/").into();
            path = path
                .strip_prefix("./")
                .map_or(path.clone(), |rest| rest.to_string().into());
        }
        while let Some(at) = path.find("/../") {
            let from = path[..at].rfind('/').map_or(0, |slash| slash + 1);
            if matches!(&path[from..at], "" | "..") {
                break;
            }
            path.to_mut().replace_range(from..at + "/../".len(), "");
        }
        path
    }
}

impl From<&'static Location<'static>> for Place {
    fn from(location: &'static Location<'static>) -> Self {
        Self {
            file: location.file().into(),
            line: location.line(),
            chain: Box::default(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path(), self.line)?;
        if f.alternate() && !self.chain.is_empty() {
            write!(f, ", in {}", self.chain)?;
        }
        Ok(())
    }
}

/// Details of a blocked task's wait.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Wait {
    /// The kind, number and name of the queue at which it waits, such as `mutex 2 "accounts"`; or
    /// the device, with its connection in a simulated network.
    pub thing: Option<String>,
    /// The task that holds the lock that it waits for, or that took the last permit.
    pub holder: Option<Tid>,
    /// Whether it waits for a lock. Only the holder can release a lock.
    pub is_lock: bool,
    /// The method in which it waits, such as `recv`; empty if it is not blocked.
    pub call: &'static str,
    /// The place of that call.
    pub place: Option<Place>,
    /// Whether a timeout around the call can end the wait.
    pub is_timed: bool,
    /// Whether it waits for a connection at a listener.
    pub is_accept: bool,
    /// The tasks that alone can end the wait of a select, each by itself: of each source the task
    /// whose end it is, or the holder of the lock. Empty if something else can end the wait.
    pub enders: Vec<Tid>,
    /// Whether it waits for an answer: at the end of a connection that
    /// [`Os::connect`](crate::Os::connect) has opened, in a simulated network. The end has sent
    /// something and has read nothing since, or it has no room to send.
    pub is_client: bool,
}

/// A line of `ps`: one task as the kernel sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskInfo {
    /// Its number.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// The task that spawned it; [`Tid::KERNEL`] for the host's tasks and for orphans.
    pub parent: Tid,
    /// Its state.
    pub state: TaskState,
    /// The number of its traps.
    pub traps: u64,
    /// Details of its wait, if it is blocked.
    pub wait: Wait,
    /// The place at which it was made.
    pub spawned: Option<Place>,
}

/// A message queue as the kernel sees it. Locks, flags and promises are queues too.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its number.
    pub id: QueueId,
    /// Its kind, number and name, such as `queue 3` or `mutex 2 "accounts"`.
    pub thing: String,
    /// The number of messages in it.
    pub len: usize,
    /// How many it takes; `None` if it is unbounded.
    pub capacity: Option<u64>,
    /// The number of tasks that wait for a message.
    pub getters: usize,
    /// The number of tasks that wait for room.
    pub putters: usize,
    /// Whether it is closed.
    pub is_closed: bool,
}

impl TaskInfo {
    /// Returns the task that alone can end the wait: the task whose end it waits for, or the holder
    /// of the lock. `None` if a timeout can end the wait too.
    #[must_use]
    pub fn waits_for(&self) -> Option<Tid> {
        let TaskState::Blocked { on, .. } = self.state else {
            return None;
        };
        let holder = self.wait.holder.filter(|_| self.wait.is_lock);
        on.ender(self.wait.is_timed, holder)
    }

    /// Returns the task that could end the wait, if no task can run: as [`TaskInfo::waits_for`] does, or
    /// the task that took the semaphore's last permit.
    #[must_use]
    pub fn waits_for_when_stuck(&self) -> Option<Tid> {
        self.waits_for().or(self.wait.holder)
    }

    /// Returns in words what it waits for, with the holder of a lock; `None` if it is not blocked.
    #[must_use]
    pub fn blocked_on(&self) -> Option<String> {
        let TaskState::Blocked { on, .. } = self.state else {
            return None;
        };
        let thing = self.wait.thing.clone();
        let thing = thing.unwrap_or_else(|| on.to_string());
        Some(match self.wait.holder {
            Some(holder) if self.wait.is_lock => format!("{thing}, held by task {holder}"),
            Some(holder) => format!("{thing}, last taken by task {holder}"),
            None => thing,
        })
    }

    /// Returns the places of the call in which it waits and of its spawn, such as
    /// `recv at src/server.rs:41, spawned at src/server.rs:20`.
    #[must_use]
    pub fn places(&self) -> Option<String> {
        let spawned = self.spawned.as_ref();
        let spawned = spawned.map(|place| format!("spawned at {place}"));
        let call = self.wait.place.as_ref();
        let call = call.map(|place| format!("{} at {place}", self.wait.call));
        let places: Vec<String> = call.into_iter().chain(spawned).collect();
        (!places.is_empty()).then(|| places.join(", "))
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
