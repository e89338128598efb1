//! The types that describe a task, its wait and its end, and a queue.

use std::{borrow::Cow, fmt, panic::Location, time::Duration};

use super::{
    Kind,
    values::{DeviceId, Direction, End, KernelId, Nanos, QueueId, Tid},
};

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
    /// As [`TaskInfo::waits_for`].
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
    /// So many permits at once.
    Permits(QueueId, u32),
}

impl Interest {
    /// Returns the task that alone can make the source ready: the task whose end it is, or the
    /// holder of the lock that it is.
    pub(crate) fn ender(self, holder: Option<Tid>) -> Option<Tid> {
        match self {
            Self::Exit(target) => Some(target),
            Self::Queue(_, End::Get) | Self::Permits(..) => holder,
            _ => None,
        }
    }

    /// Returns the queue of the source, and how many permits the call for it takes.
    pub(crate) fn taken(self) -> Option<(QueueId, u64)> {
        match self {
            Self::Queue(queue, End::Get) => Some((queue, 1)),
            Self::Permits(queue, count) => Some((queue, count.into())),
            _ => None,
        }
    }

    /// Returns the source in words, with what the task last named beside its queue is to it.
    pub(crate) fn words_with(self, kind: Kind, name: &str, holder: Option<Tid>) -> String {
        let words = self.words(kind, name);
        match holder {
            Some(holder) if kind.is_lock() => format!("{words}, held by task {holder}"),
            Some(waker) if kind == Kind::Wake => format!("{words}, last woken by task {waker}"),
            _ => words,
        }
    }

    /// Returns the source in words: what a call on it would wait for. `kind` and `name` are those of
    /// its queue.
    pub(crate) fn words(self, kind: Kind, name: &str) -> String {
        let word = match self {
            Self::Queue(_, End::Get) => kind.message().into(),
            Self::Permits(..) if kind == Kind::RwLock => "write".into(),
            Self::Permits(_, count) => format!("{count} permits"),
            _ => return self.to_string(),
        };
        match (self.taken(), name) {
            (Some((queue, _)), "") => format!("{word} {queue}"),
            (Some((queue, _)), name) => format!("{word} {queue} {name:?}"),
            (None, _) => word,
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
            Self::Device(device, Direction::Read) => write!(f, "readable device {device}"),
            Self::Device(device, Direction::Write) => write!(f, "writable device {device}"),
            Self::Queue(queue, End::Get) => write!(f, "message {queue}"),
            Self::Queue(queue, End::Put) => write!(f, "room {queue}"),
            Self::Permits(queue, count) => write!(f, "{count} permits {queue}"),
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
            let straight = path.replace("/./", "/");
            path = straight
                .strip_prefix("./")
                .unwrap_or(&straight)
                .to_string()
                .into();
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
    /// Whether it waits for an answer, in a simulated network: at a connection that it has opened
    /// ([`Os::connect`](crate::Os::connect)), and at which it has read nothing since it sent
    /// something, or has no room to send.
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
    /// Whether it is a daemon of a program, which keeps no run alive
    /// ([`Os::spawn_daemon`](crate::Os::spawn_daemon)).
    pub is_daemon: bool,
    /// Its limits, in words: the innermost that it was spawned within ([`Limits`](crate::Limits)).
    pub limits: Option<String>,
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

    /// Returns the description with the number of its kernel before those of the tasks that it names.
    pub(crate) fn beside(mut self, kernel: KernelId) -> Self {
        self.tid = self.tid.beside(kernel);
        if self.parent != Tid::KERNEL {
            self.parent = self.parent.beside(kernel);
        }
        if let TaskState::Blocked {
            on: On::Exit(tid), ..
        } = &mut self.state
        {
            *tid = tid.beside(kernel);
        }
        let others = self.wait.holder.iter_mut().chain(&mut self.wait.enders);
        others.for_each(|tid| *tid = tid.beside(kernel));
        self
    }

    pub(crate) fn all_beside(tasks: Vec<Self>, kernel: KernelId) -> Vec<Self> {
        let tasks = tasks.into_iter();
        tasks.map(|task| task.beside(kernel)).collect()
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
        let thing = self.wait.thing.clone().unwrap_or_else(|| on.to_string());
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
        let call = self
            .wait
            .place
            .as_ref()
            .map(|place| (self.wait.call, place));
        let spawned = self.spawned.as_ref().map(|place| ("spawned", place));
        let places = call.into_iter().chain(spawned);
        let places: Vec<String> = places
            .map(|(what, place)| format!("{what} at {place}"))
            .collect();
        (!places.is_empty()).then(|| places.join(", "))
    }
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tid {} {:?} ", self.tid, self.name)?;
        if self.is_daemon {
            f.write_str("(daemon) ")?;
        }
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
