//! Sets of calls, and the limits of a task: plain data. `kernel/limits.rs` keeps what is used of them.

use std::{
    fmt,
    ops::{BitOr, Sub},
};

use super::{Class, SystemCall};

/// A set of system calls. Each call belongs to exactly one of the classes below; get_tid, yield, exit
/// and select belong to none, and are always allowed. A select needs the calls of its sources:
/// `sleep`, `wait_task`, `put`, `get`, `read_wait` and `write_wait`.
///
/// What is built on calls needs those of several classes. Promises and all of [`sync`](crate::sync)
/// need the queues; a stream needs the devices to send, and the network to be opened;
/// [`Os::run_blocking`](crate::Os::run_blocking) needs the world and the queues.
///
/// ```
/// use trapline::{Calls, SystemCall};
///
/// assert!(Calls::TIME.contains(SystemCall::Now));
/// assert_eq!((Calls::TIME | Calls::named("listen").unwrap()).to_string(), "time, listen");
/// assert_eq!((Calls::ALL - Calls::TIME).to_string(), "all but time");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Calls(u128);

impl Calls {
    /// No call but those that are always allowed.
    pub const NONE: Self = Self(0);
    /// Every call.
    pub const ALL: Self = Self(u128::MAX ^ Self::of(Class::Free).0);
    /// Spawns, waits, kills, cancels, and the list of tasks.
    pub const TASKS: Self = Self::of(Class::Tasks);
    /// The clock, sleeps, timeouts, scopes and shields.
    pub const TIME: Self = Self::of(Class::Time);
    /// Message queues, and so promises, locks and groups.
    pub const QUEUES: Self = Self::of(Class::Queues);
    /// What is done with an open device, and the attachment of a descriptor.
    pub const DEVICES: Self = Self::of(Class::Devices);
    /// Listeners, connections and names of hosts.
    pub const NETWORK: Self = Self::of(Class::Network);
    /// Files, and the names on a disk.
    pub const FILES: Self = Self::of(Class::Files);
    /// Random numbers, choices, processors and work on threads.
    pub const WORLD: Self = Self::of(Class::World);
    /// Tracers, the policy, shares of the processors, faults of the network, and the shutdown.
    pub const ADMIN: Self = Self::of(Class::Admin);

    /// The names of the classes, in the words of `boot --deny`.
    pub const CLASSES: [(&'static str, Self); 8] = [
        ("tasks", Self::TASKS),
        ("time", Self::TIME),
        ("queues", Self::QUEUES),
        ("devices", Self::DEVICES),
        ("network", Self::NETWORK),
        ("files", Self::FILES),
        ("world", Self::WORLD),
        ("admin", Self::ADMIN),
    ];

    const fn of(class: Class) -> Self {
        let (mut calls, mut at) = (0, 0);
        while at < SystemCall::CLASSES.len() {
            let (number, of) = SystemCall::CLASSES[at];
            if of as u8 == class as u8 {
                calls |= 1 << number;
            }
            at += 1;
        }
        Self(calls)
    }

    /// Returns the class of this name, such as `network`, or the call of this name, such as `connect`.
    /// `None` if there is none, or it is always allowed.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let class = Self::CLASSES.into_iter().find(|(word, _)| *word == name);
        let call = || Self::each().find(|(word, _)| *word == name);
        class.or_else(call).map(|(_, calls)| calls)
    }

    /// Returns the names that [`Calls::named`] knows: the classes, then the calls.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let classes = Self::CLASSES.into_iter();
        classes.chain(Self::each()).map(|(name, _)| name)
    }

    /// Returns whether the call is one of these. Those that are always allowed are in every set.
    #[must_use]
    pub fn contains(self, call: SystemCall) -> bool {
        (self.0 | Self::of(Class::Free).0) >> call.number() & 1 != 0
    }

    /// Each call that is not always allowed, with its name.
    fn each() -> impl Iterator<Item = (&'static str, Self)> {
        let calls = (0..128).filter_map(SystemCall::from_number);
        let calls = calls.map(|call| (call.name(), Self(1 << call.number())));
        calls.filter(|(_, call)| !Self::NONE.covers(*call) && Self::ALL.covers(*call))
    }

    fn covers(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    /// Returns the calls that are in both sets.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Lists the classes, and the calls of those that are not complete.
    fn words(self) -> Vec<&'static str> {
        let mut left = self;
        let mut words = Vec::new();
        for (name, calls) in Self::CLASSES.into_iter().chain(Self::each()) {
            if left.covers(calls) {
                words.push(name);
                left = left - calls;
            }
        }
        words
    }
}

impl BitOr for Calls {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Sub for Calls {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, missing) = (self.words(), (Self::ALL - *self).words());
        match (words.len(), missing.len()) {
            (_, 0) => f.write_str("all calls"),
            (0, _) => f.write_str("no calls"),
            (some, few) if few < some => write!(f, "all but {}", missing.join(", ")),
            _ => f.write_str(&words.join(", ")),
        }
    }
}

/// What a task may do, and all that it spawns: [`Os::spawn_with`](crate::Os::spawn_with). The limits
/// of a task narrow those of its parent. (The sandbox of seccomp, and the limits of rlimit and
/// cgroups.)
///
/// Budgets are shared: what any of the tasks uses counts for the task with the limits, and for all
/// with limits above it.
///
/// ```
/// use trapline::{Calls, Limits};
///
/// let limits = Limits::new().allow([Calls::TIME, Calls::QUEUES]).max_tasks(3);
/// assert_eq!(limits.to_string(), "time, queues; at most 3 tasks");
/// ```
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    allowed: Option<Calls>,
    denied: Calls,
    pub(crate) traps: u64,
    pub(crate) tasks: u64,
    pub(crate) bytes: u64,
}

impl Limits {
    /// Allows every call, and sets no budget.
    pub fn new() -> Self {
        let (traps, tasks, bytes) = (u64::MAX, u64::MAX, u64::MAX);
        Self {
            allowed: None,
            denied: Calls::NONE,
            traps,
            tasks,
            bytes,
        }
    }

    /// Allows these calls, with those of earlier `allow`s, and no others.
    pub fn allow(mut self, calls: impl IntoIterator<Item = Calls>) -> Self {
        let before = self.allowed.unwrap_or_default();
        self.allowed = Some(calls.into_iter().fold(before, Calls::bitor));
        self
    }

    /// Denies these calls, allowed or not.
    pub fn deny(mut self, calls: impl IntoIterator<Item = Calls>) -> Self {
        self.denied = calls.into_iter().fold(self.denied, Calls::bitor);
        self
    }

    /// Allows so many traps, of all tasks together. A trap beyond faults its task.
    pub fn max_traps(mut self, traps: u64) -> Self {
        self.traps = traps;
        self
    }

    /// Allows so many tasks to live at once, the task with the limits included. A spawn beyond fails
    /// with [`Errno::TooManyTasks`](crate::Errno::TooManyTasks).
    pub fn max_tasks(mut self, tasks: usize) -> Self {
        self.tasks = tasks as u64;
        self
    }

    /// Allows messages of so many bytes in queues at once, of all that these tasks have put. A message
    /// counts as the size of its type, from the put until it is taken or dropped. A put beyond faults
    /// its task.
    pub fn max_memory_of_queues(mut self, bytes: usize) -> Self {
        self.bytes = bytes as u64;
        self
    }

    pub(crate) fn calls(&self) -> Calls {
        self.allowed.unwrap_or(Calls::ALL) - self.denied
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calls().fmt(f)?;
        let budgets = [
            (self.traps, "traps"),
            (self.tasks, "tasks"),
            (self.bytes, "bytes in queues"),
        ];
        for (most, what) in budgets.into_iter().filter(|(most, _)| *most < u64::MAX) {
            write!(f, "; at most {most} {what}")?;
        }
        Ok(())
    }
}
