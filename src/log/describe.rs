//! What a [`Ledger`] says of the tasks, their waits and their calls.

use std::net::SocketAddr;

use super::{
    Detail, Event, Wake,
    calls::CallInfo,
    ledger::Ledger,
    spans::{Doing, Ending, Moment, Span, Task},
};
use crate::abi::{
    Beside, DeviceId, End, Interest, Kind, Nanos, On, Place, QueueId, SystemCall, TaskInfo,
    TaskState, Tid, Wait, first_of,
};

impl Ledger {
    /// The name of a task: `?` if it is not known, and `kernel` for [`Tid::KERNEL`].
    #[must_use]
    pub fn comm(&self, tid: Tid) -> &str {
        match tid {
            tid if tid.is_kernel() => "kernel",
            tid => self.task(tid).map_or("?", |task| &task.comm),
        }
    }

    /// The place in the source at which a task was made, if it is known.
    #[must_use]
    pub fn spawned(&self, tid: Tid) -> Option<&Place> {
        self.task(tid)?.spawned.as_ref()
    }

    /// What a live task does, and since when; `None` where events are missing.
    #[must_use]
    pub fn doing(&self, tid: Tid) -> Option<(Doing, Moment)> {
        let task = self.tasks.get(&tid).filter(|task| task.exit.is_none())?;
        let is_known = task.is_known(self.now.gaps);
        is_known.then_some((task.doing, task.since.moment))
    }

    /// Returns whether any task computes.
    #[must_use]
    pub fn has_computing(&self) -> bool {
        !self.computing.is_empty()
    }

    /// What a task waits for at a queue, in words such as `mutex 2 "savings"`; `None` for a queue
    /// that is no object's and has no name.
    #[must_use]
    pub fn object(&self, queue: QueueId) -> Option<String> {
        Some(self.objects.get(&queue)?.title(queue))
    }

    /// What a wait is for, in words such as `mutex 2 "savings"` or `device 3 (read), 127.0.0.1:80`.
    #[must_use]
    pub fn thing(&self, on: On) -> String {
        self.named(on).unwrap_or_else(|| on.to_string())
    }

    /// The cause that woke a task, in words such as `mutex 2 "savings"` or `its timer`.
    #[must_use]
    pub fn cause(&self, by: Wake) -> String {
        match by {
            Wake::Queue(queue) => self.object(queue).unwrap_or_else(|| by.to_string()),
            by => by.to_string(),
        }
    }

    /// Returns whether a timeout is armed around the calls of a task that ends one day.
    #[must_use]
    pub fn is_timed(&self, tid: Tid) -> bool {
        self.task(tid).is_some_and(Task::is_timed)
    }

    /// The address of an open device: of the peer of a connection, or a listener's own. `None` for
    /// other devices, and for those that were opened before.
    #[must_use]
    pub fn addr(&self, device: DeviceId) -> Option<SocketAddr> {
        self.addrs.get(&device).map(|(addr, _)| *addr)
    }

    /// The calls of a task that are kept, the oldest first.
    pub fn calls(&self, tid: Tid) -> impl DoubleEndedIterator<Item = &CallInfo> {
        self.task(tid).into_iter().flat_map(|task| &task.calls)
    }

    /// The call that an event is about: one without a trap, or else the last one of its task. The ledger has the
    /// event already.
    #[must_use]
    pub fn call_of(&self, event: &Event<'_>) -> Option<SystemCall> {
        let last = || self.last(event.tid).map(|call| call.call);
        event.fact.deferred().or_else(last)
    }

    /// The last call of a task.
    #[must_use]
    pub fn last(&self, tid: Tid) -> Option<&CallInfo> {
        self.task(tid)?.calls.back()
    }

    /// The call that a task is in: its last one, unless that is answered.
    #[must_use]
    pub fn pending(&self, tid: Tid) -> Option<&CallInfo> {
        self.task(tid)?.pending()
    }

    /// Returns the call that a task is in, if no line of a trace has shown it yet. It is shown when
    /// the task ends.
    #[must_use]
    pub fn unseen(&self, tid: Tid) -> Option<&CallInfo> {
        self.pending(tid).filter(|call| call.blocked.is_none())
    }

    /// Describes a task that is not reaped, as [`Kernel::tasks`](crate::Kernel::tasks) does. A task
    /// that is in call is running, and so is one that computes. Where events are missing, it is ready.
    ///
    /// Two things are not in a log. A simulated network describes its connections and knows its
    /// clients. A task that adopts a [`Guard`](crate::sync::Guard) becomes the holder.
    #[must_use]
    pub fn info(&self, tid: Tid) -> Option<TaskInfo> {
        let task = self.tasks.get(&tid)?;
        let is_live = |parent: &Tid| match self.tasks.get(parent) {
            Some(parent) => parent.exit.is_none(),
            // It was reaped, unless events are missing.
            None => self.now.gaps > 0,
        };
        Some(TaskInfo {
            tid,
            name: task.comm.to_string(),
            parent: Some(task.parent).filter(is_live).unwrap_or_default(),
            state: self.state(tid, task),
            traps: task.traps,
            wait: match task.doing {
                Doing::Blocked(on) if task.exit.is_none() => self.wait(task, on),
                _ => Wait::default(),
            },
            spawned: task.spawned.clone(),
            is_daemon: task.is_daemon,
            limits: task.limits.as_ref().map(ToString::to_string),
        })
    }

    /// Describes the tasks that are not reaped, by tid.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskInfo> {
        let mut tids: Vec<Tid> = self.tasks.keys().copied().collect();
        tids.sort_unstable();
        tids.into_iter().filter_map(|tid| self.info(tid)).collect()
    }

    /// Returns whether nothing can happen any more: there are live tasks, each is blocked, and no
    /// timer, device or work on a thread can wake one.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let is_hopeless = |task: &Task| match task.doing {
            Doing::Blocked(On::Timer(deadline)) => deadline == Nanos::FOREVER,
            Doing::Blocked(On::Exit(_)) => !task.is_timed(),
            Doing::Blocked(On::Queue(queue, _)) => !task.is_timed() && !self.is_from_outside(queue),
            Doing::Blocked(On::First(_)) => {
                let mut sources = task.sources().iter();
                !task.is_timed() && sources.all(|source| self.is_hopeless(*source))
            }
            _ => false,
        };
        let live = self.tasks.values().filter(|task| task.exit.is_none());
        let mut live = live.peekable();
        live.peek().is_some() && live.all(is_hopeless)
    }

    /// The spans that the log leaves open: of the live tasks, by tid.
    #[must_use]
    pub fn open_spans(&self) -> Vec<Span> {
        let open = self.tasks.keys().filter_map(|tid| {
            let (doing, from) = self.doing(*tid)?;
            Some(Span {
                tid: *tid,
                doing,
                from,
                to: self.now.moment,
                end: Ending::Open,
            })
        });
        let mut open: Vec<Span> = open.collect();
        open.sort_unstable_by_key(|span| span.tid);
        open
    }

    pub(super) fn task(&self, tid: Tid) -> Option<&Task> {
        let reaped = self.reaped.as_ref().filter(|(last, _)| *last == tid);
        self.tasks.get(&tid).or(reaped.map(|(_, task)| task))
    }

    pub(super) fn kind(&self, queue: QueueId) -> Kind {
        let object = self.objects.get(&queue);
        object.map_or(Kind::Queue, |object| object.kind)
    }

    fn state(&self, tid: Tid, task: &Task) -> TaskState {
        if let Some(exit) = &task.exit {
            return TaskState::Zombie((**exit).clone());
        }
        let is_running = match task.doing {
            Doing::Blocked(on) => {
                let since = task.since.moment.at;
                return TaskState::Blocked { on, since };
            }
            // It waits for a processor.
            Doing::InCall => !matches!(task.pending(), Some(call) if call.computes()),
            // Its computation is over, and its turn has not come.
            Doing::Running => self.caller == Some(tid) || self.computing.contains(&tid),
            Doing::Ready | Doing::Idle => false,
        };
        match is_running && task.is_known(self.now.gaps) {
            true => TaskState::Running,
            false => TaskState::Ready,
        }
    }

    fn wait(&self, task: &Task, on: On) -> Wait {
        let mut wait = Wait {
            thing: self.named(on),
            is_timed: task.is_timed(),
            ..Wait::default()
        };
        let mut kind = Kind::Queue;
        if let On::Queue(queue, _) = on {
            kind = self.kind(queue);
            wait.is_lock = kind.is_lock();
            wait.holder = self.holder(queue);
        }
        if let On::First(_) = on {
            let sources = task.sources();
            wait.thing = Some(first_of(sources.iter().map(|source| self.source(*source))));
            let enders = sources.iter().map(|source| self.ender(*source));
            let enders = enders.collect::<Option<_>>().filter(|_| !wait.is_timed);
            wait.enders = enders.unwrap_or_default();
            wait.is_accept = sources.iter().any(|source| match source {
                Interest::Device(device, _) => self.addrs.get(device).is_some_and(|(_, is)| *is),
                _ => false,
            });
        }
        if task.is_delayed || matches!(on, On::Device(DeviceId::CONSOLE, _)) {
            // The kernel holds back any call.
            return wait;
        }
        let last = task.calls.back();
        let names_files = |call: &&CallInfo| call.call.beside() == Beside::Disk;
        if let (On::Device(..), Some(call)) = (on, last.filter(names_files)) {
            wait.thing = Some(disk_words(&call.detail));
        }
        wait.place = last.map_or(&task.spawned, |call| &call.place).clone();
        wait.call = match on {
            On::Exit(_) => "wait",
            On::Timer(_) => "sleep",
            On::Queue(queue, End::Put) => kind.verb(SystemCall::Put(queue)),
            On::Queue(queue, End::Get) => {
                let count = last.map_or(1, CallInfo::count);
                kind.verb_of(SystemCall::Take(queue), count)
            }
            On::First(_) => "select",
            On::Device(..) => match last.map(|call| call.call) {
                Some(SystemCall::SendFile(_)) => "send",
                Some(call) => call.name(),
                None => "",
            },
        };
        let is_accept = last.is_some_and(|last| match last.call {
            SystemCall::Accept(_) => true,
            SystemCall::RecvFrom(device) => self.addrs.get(&device).is_some_and(|(_, is)| *is),
            _ => false,
        });
        wait.is_accept |= is_accept && matches!(on, On::Device(..));
        wait
    }

    fn named(&self, on: On) -> Option<String> {
        match on {
            On::Queue(queue, end) => {
                let object = self.objects.get(&queue)?;
                object.kind.thing(queue, end, &object.name)
            }
            On::Device(device, _) => {
                if let Some(path) = self.files.get(&device) {
                    return Some(file_words(device, path));
                }
                let addr = self.addr(device)?;
                Some(format!("{on}, {addr}"))
            }
            On::Exit(_) | On::Timer(_) | On::First(_) => None,
        }
    }

    /// A source of a select in words, with the holder of a lock.
    fn source(&self, source: Interest) -> String {
        if let Interest::Device(device, _) = source
            && let Some(addr) = self.addr(device)
        {
            return format!("{}, {addr}", self.source_words(source));
        }
        let (kind, name) = self.object_of(source);
        let holder = source.taken().and_then(|(queue, _)| self.holder(queue));
        source.words_with(kind, name, holder)
    }

    pub(super) fn source_words(&self, source: Interest) -> String {
        let (kind, name) = self.object_of(source);
        source.words(kind, name)
    }

    /// Returns the kind and the name of the queue of a source.
    fn object_of(&self, source: Interest) -> (Kind, &str) {
        let object = match source {
            Interest::Queue(queue, _) | Interest::Permits(queue, _) => self.objects.get(&queue),
            _ => None,
        };
        object.map_or((Kind::Queue, ""), |object| (object.kind, &object.name))
    }

    fn ender(&self, source: Interest) -> Option<Tid> {
        source.ender(self.holder_of_lock(source))
    }

    fn holder_of_lock(&self, source: Interest) -> Option<Tid> {
        let (queue, _) = source.taken()?;
        let is_lock = self.kind(queue).is_lock();
        is_lock.then(|| self.holder(queue)).flatten()
    }

    /// Returns whether no timer, device or work on a thread makes a source ready.
    fn is_hopeless(&self, source: Interest) -> bool {
        match source {
            Interest::Exit(_) => true,
            Interest::After(time) | Interest::At(time) => time == Nanos::FOREVER,
            Interest::Device(..) => false,
            Interest::Queue(queue, _) | Interest::Permits(queue, _) => !self.is_from_outside(queue),
        }
    }

    /// Returns whether the messages of a queue are of threads, or signals.
    fn is_from_outside(&self, queue: QueueId) -> bool {
        matches!(self.kind(queue), Kind::Job | Kind::Signals)
    }
}

/// An open file, in words.
pub(crate) fn file_words(device: DeviceId, path: &str) -> String {
    format!("file {device} {path:?}")
}

/// What a task waits for whose operation on names has this detail.
pub(crate) fn disk_words(detail: &Detail<'_>) -> String {
    format!("the disk: {detail}")
}
