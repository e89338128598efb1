//! The values in calls and replies: ids, times, shares, directions and errors.

use std::{fmt, io, str::FromStr, time::Duration};

/// A task's number: from 1 upward in order of creation, never used twice in a run.
///
/// 0 is the kernel itself, and the host as a parent. The numbers of daemons are in a range apart,
/// far above. What shows several kernels together puts the number of a task's kernel before its own:
/// see [`Tid::beside`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tid(u64);

impl Tid {
    /// The kernel, or the host that booted it.
    pub const KERNEL: Self = Self(0);

    /// A number of no task. A search gives it to faults.
    #[doc(hidden)]
    pub const FAULTS: Self = Self(u64::MAX);

    /// The number before that of the first daemon.
    pub(crate) const DAEMONS: u64 = 1 << 63;

    /// Returns whether this is the number of a daemon
    /// ([`Kernel::spawn_daemon`](crate::Kernel::spawn_daemon)).
    #[must_use]
    pub fn is_daemon(self) -> bool {
        self.0 >= Self::DAEMONS
    }

    /// Returns the number of a task that is shown beside those of other kernels: its text is that of the
    /// kernel and its own, as in logs. Daemons stay as they are.
    ///
    /// ```
    /// use trapline::{KernelId, Tid};
    ///
    /// let tid = Tid::from(17).beside(KernelId::at(1));
    /// assert_eq!(tid.to_string(), "2:17");
    /// assert_eq!("2:17".parse(), Ok(tid));
    /// assert_eq!((tid.kernel(), tid.alone()), (Some(KernelId::at(1)), Tid::from(17)));
    /// ```
    #[must_use]
    pub fn beside(self, kernel: KernelId) -> Self {
        match self.is_daemon() {
            true => self,
            false => Self(beside(self.0, kernel)),
        }
    }

    /// Returns whether this is the kernel itself, or one of several.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        self.alone() == Self::KERNEL
    }

    /// Returns the kernel whose number is before that of the task, if there is one.
    #[must_use]
    pub fn kernel(self) -> Option<KernelId> {
        kernel_of(self.0)
    }

    /// Returns the number that the task has in its kernel.
    #[must_use]
    pub fn alone(self) -> Self {
        Self(alone(self.0))
    }
}

/// The bits of a number in its kernel. Above them there is room for the number of the kernel, and all of
/// them fit in a float.
const OWN: u32 = 42;
const KERNELS: u64 = 1 << 11;

pub(crate) fn beside(number: u64, kernel: KernelId) -> u64 {
    number | kernel.0 << OWN
}

fn kernel_of(number: u64) -> Option<KernelId> {
    let kernel = number >> OWN;
    (1..KERNELS).contains(&kernel).then_some(KernelId(kernel))
}

fn alone(number: u64) -> u64 {
    match kernel_of(number) {
        Some(_) => number & ((1 << OWN) - 1),
        None => number,
    }
}

impl From<u64> for Tid {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl FromStr for Tid {
    type Err = &'static str;

    /// Reads a number such as `17`, or `2:17` of a task of the second kernel.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str, most: u64| {
            let number = text.parse().ok().filter(|number| *number < most);
            number
                .ok_or("it takes the number of a task, such as 17, or 2:17 for task 17 of kernel 2")
        };
        let Some((kernel, own)) = text.split_once(':') else {
            return number(text, u64::MAX).map(Self);
        };
        let kernel = KernelId(number(kernel, KERNELS)?.max(1));
        Ok(Self(number(own, 1 << OWN)?).beside(kernel))
    }
}

/// A number, and its text.
macro_rules! number {
    ($Type:ty) => {
        impl From<$Type> for u64 {
            fn from(id: $Type) -> Self {
                id.0
            }
        }

        impl fmt::Display for $Type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match kernel_of(self.0) {
                    Some(kernel) => f.pad(&format!("{kernel}:{}", alone(self.0))),
                    None => self.0.fmt(f),
                }
            }
        }
    };
}

number!(Tid);
number!(KernelId);

/// A kernel's number among those that run side by side ([`Kernels`](crate::Kernels)): from 1 upward. A
/// kernel alone is 1.
///
/// ```
/// use trapline::KernelId;
///
/// let second = KernelId::at(1);
/// assert_eq!((second.to_string(), second.index()), ("2".into(), 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelId(u64);

impl KernelId {
    /// Returns the number of the kernel at this place, counted from 0.
    #[must_use]
    pub const fn at(index: usize) -> Self {
        Self(index as u64 + 1)
    }

    /// Returns its place among the kernels, counted from 0: for what is kept per kernel in a slice.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Returns the kernel of this number, if a kernel can have it.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        (1..KERNELS).contains(&number).then_some(Self(number))
    }
}

impl Default for KernelId {
    fn default() -> Self {
        Self::at(0)
    }
}
number!(DeviceId);

/// An attached descriptor's token: from 1 upward in order of attachment, never used twice in a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DeviceId(u64);

impl DeviceId {
    /// No device. Every call on it fails with [`Errno::BadFd`].
    pub const NONE: Self = Self(0);

    /// The console, in reports of a task that has printed more than it takes. In a call it is the same
    /// as [`DeviceId::NONE`].
    pub const CONSOLE: Self = Self::NONE;

    /// The token before that of the first device of a daemon. The range apart keeps the tokens of
    /// tasks unchanged.
    pub(crate) const DAEMONS: u64 = 1 << 62;

    pub(crate) fn is_of_daemon(self) -> bool {
        self.0 > Self::DAEMONS
    }

    /// Returns the token of a device that is shown beside those of other kernels, as [`Tid::beside`] does.
    #[must_use]
    pub fn beside(self, kernel: KernelId) -> Self {
        match self {
            Self::NONE => self,
            Self(number) => Self(beside(number, kernel)),
        }
    }

    /// Returns the token of this number, for readers of logs and for tests. A raw call reaches the
    /// device of any task ([`Os::trap`](crate::Os::trap)): a program uses a [`Device`](crate::Device).
    #[must_use]
    pub const fn from_raw(number: u64) -> Self {
        Self(number)
    }
}

/// A machine that tasks run on: a host of a simulated network, or the one machine of the real world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HostId(u32);

impl HostId {
    /// The machine of tasks that were spawned without a host; in the real world that of all tasks.
    pub const LOCAL: Self = Self(0);

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
pub struct QueueId(pub(crate) u64);

impl QueueId {
    /// For 16 million queues at once.
    const SLOT_BITS: u32 = 24;

    pub(crate) const PLACES: usize = 1 << Self::SLOT_BITS;

    /// No queue. Every call on it fails as on a closed queue.
    pub(crate) const NONE: Self = Self(0);

    /// The number before that of the first queue of a daemon: the upper half.
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

    /// Returns the name of this number and slot, for readers of logs and for tests; `None` if either is
    /// too large. A raw call reaches the queue of any task ([`Os::trap`](crate::Os::trap)): a program
    /// uses a [`Queue`](crate::Queue).
    #[must_use]
    pub fn from_raw(number: u64, slot: usize) -> Option<Self> {
        let fits = number <= u64::MAX >> Self::SLOT_BITS;
        fits.then(|| Self::new(number, slot)).flatten()
    }

    /// The flag of a queue that is shown beside those of other kernels. In place of the slot is the number of
    /// the kernel. No kernel makes so many queues that one has this bit in its number.
    const BESIDE: u64 = 1 << 62;

    /// Returns the name of a queue that is shown beside those of other kernels, as [`Tid::beside`] does.
    #[must_use]
    pub fn beside(self, kernel: KernelId) -> Self {
        match self.is_of_daemon() {
            true => self,
            false => Self(Self::BESIDE | self.number() << Self::SLOT_BITS | kernel.0),
        }
    }

    fn is_beside(self) -> bool {
        self.0 & Self::BESIDE != 0 && !self.is_of_daemon()
    }

    /// Returns the number, from 1 upward, which logs and reports show.
    #[must_use]
    pub fn number(self) -> u64 {
        let number = self.0 >> Self::SLOT_BITS;
        match self.is_beside() {
            true => number ^ (Self::BESIDE >> Self::SLOT_BITS),
            false => number,
        }
    }

    /// Returns the slot in the kernel's table, from 0 upward. A later queue may have the same slot.
    #[must_use]
    pub fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_beside() {
            true => write!(f, "{}:{}", self.slot(), self.number()),
            false => self.number().fmt(f),
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
        let value = match value {
            ..-20 => -20,
            20.. => 19,
            value => value,
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

    pub(crate) fn to_raw(self) -> u64 {
        self.0
    }

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

/// An enum of two whose text is a word.
macro_rules! either {
    ($Type:ident, $First:ident $first:literal, $Second:ident $second:literal) => {
        impl fmt::Display for $Type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    Self::$First => $first,
                    Self::$Second => $second,
                })
            }
        }
    };
}

either!(Direction, Read "read", Write "write");
either!(End, Put "put", Get "get");

/// A direction of I/O: the interest in a device, or its readiness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Bytes, a connection or the end of the stream can be read.
    Read,
    /// Bytes can be written.
    Write,
}

/// An end of a message queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// Where messages are put.
    Put,
    /// Where messages are taken.
    Get,
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
    /// The limits of the task lack this call ([`Limits`](crate::Limits)).
    #[error("the limits of this task do not allow the call")]
    Denied,
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
            Errno::Denied => Kind::PermissionDenied,
            Errno::BadFd | Errno::Invalid => Kind::InvalidInput,
        };
        Self::new(kind, errno)
    }
}

/// The argument of a [`SystemCall`](crate::SystemCall) or a [`Reply`](crate::Reply).
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
