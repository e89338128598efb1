//! The current call of each task, and facts as lines of a trace.
//!
//! Uses the ABI and the event log.

use std::{
    collections::{VecDeque, hash_map::Entry},
    fmt,
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use rustc_hash::FxHashMap;

use super::{Answered, Call, Detail, Event, Fact, Tracer, text::write_call};
use crate::abi::{Argument, DeviceId, Errno, Nanos, On, Place, QueueId, Reply, SystemCall, Tid};

/// Follows the tasks of a log: their names and their last calls.
///
/// It is a [`Tracer`], and also takes the events of a [`Recording`](crate::record::Recording). Give
/// it each event before you ask about that event.
///
/// A task whose spawn the follower has missed has the name `?`. A reaped task is kept until the
/// next one is reaped, so that the event itself has a line.
///
/// ```
/// use trapline::{Follower, Tracer, record::Recording};
///
/// /// Prints a recording as `strace` would.
/// fn show(recording: Recording) -> Result<(), trapline::record::Error> {
///     let mut tasks = Follower::new();
///     for event in recording {
///         let event = event?;
///         tasks.event(&event);
///         println!("{} {}", tasks.comm(event.tid), tasks.line(&event.fact, event.tid));
///     }
///     Ok(())
/// }
/// ```
pub struct Follower {
    tasks: FxHashMap<Tid, Task>,
    /// The queues of objects, and those with a name.
    objects: FxHashMap<QueueId, Object>,
    /// The addresses of open devices.
    addrs: FxHashMap<DeviceId, SocketAddr>,
    /// The task that was reaped last.
    reaped: Option<(Tid, Task)>,
    calls: usize,
    most: usize,
}

/// An object that a queue is part of.
struct Object {
    kind: Box<str>,
    name: Rc<str>,
}

struct Task {
    comm: Box<str>,
    /// Where in the source it was made.
    spawned: Option<Place>,
    /// Whether the log holds its spawn, and so all its calls.
    is_whole: bool,
    /// The oldest first.
    calls: VecDeque<CallInfo>,
}

/// A call of a task, as far as it has come: of a [`Follower`]. Its `Display` is the [`Call`] with
/// its arguments.
#[derive(Debug)]
pub struct CallInfo {
    /// When the task trapped, counted from boot.
    pub at: Duration,
    /// The call.
    pub call: SystemCall,
    detail: Detail<'static>,
    /// The name of the queue in its argument, or nothing.
    name: Rc<str>,
    /// The wait of this call, and its start. It is kept when the task is woken.
    pub blocked: Option<(On, Duration)>,
    /// The place in the source, if the call blocked.
    pub place: Option<Place>,
    reply: Option<(Reply, Detail<'static>)>,
    /// True if the reply is the second one: a timeout may come after the answer.
    pub is_late: bool,
}

impl Follower {
    /// Keeps the last call of each task.
    #[must_use]
    pub fn new() -> Self {
        Self::keeping(1)
    }

    /// Keeps so many calls of each task; at least one.
    #[must_use]
    pub fn keeping(calls: usize) -> Self {
        Self {
            tasks: FxHashMap::default(),
            objects: FxHashMap::default(),
            addrs: FxHashMap::default(),
            reaped: None,
            calls: calls.max(1),
            most: usize::MAX,
        }
    }

    /// Follows so many tasks at once, and ignores those that come while there is no room.
    #[must_use]
    pub fn at_most(mut self, tasks: usize) -> Self {
        self.most = tasks;
        self
    }

    /// The number of tasks followed: all that are not reaped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// True if no task is followed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The name of a task: `?` if it is not known, and `kernel` for [`Tid::KERNEL`].
    #[must_use]
    pub fn comm(&self, tid: Tid) -> &str {
        match tid {
            Tid::KERNEL => "kernel",
            tid => self.task(tid).map_or("?", |task| &task.comm),
        }
    }

    /// The place in the source at which a task was made, if it is known.
    #[must_use]
    pub fn spawned(&self, tid: Tid) -> Option<&Place> {
        self.task(tid)?.spawned.as_ref()
    }

    /// What a task waits for at a queue, in words such as `mutex 2 "savings"`; `None` for a queue
    /// that is no object's and has no name.
    #[must_use]
    pub fn object(&self, queue: QueueId) -> Option<String> {
        let Object { kind, name } = self.objects.get(&queue)?;
        Some(match &**name {
            "" => format!("{kind} {queue}"),
            name => format!("{kind} {queue} {name:?}"),
        })
    }

    /// The address of an open device: of the peer of a connection, or a listener's own. `None` for
    /// other devices, and for those that were opened before.
    #[must_use]
    pub fn addr(&self, device: DeviceId) -> Option<SocketAddr> {
        self.addrs.get(&device).copied()
    }

    /// The calls of a task that are kept, the oldest first.
    pub fn calls(&self, tid: Tid) -> impl DoubleEndedIterator<Item = &CallInfo> {
        self.task(tid).into_iter().flat_map(|task| &task.calls)
    }

    /// The last call of a task.
    #[must_use]
    pub fn last(&self, tid: Tid) -> Option<&CallInfo> {
        self.task(tid)?.calls.back()
    }

    /// The call that a task is in: its last one, unless that is answered.
    #[must_use]
    pub fn pending(&self, tid: Tid) -> Option<&CallInfo> {
        self.last(tid).filter(|call| call.reply.is_none())
    }

    /// Returns the call that a task is in, if no line of a trace has shown it yet. It is shown when
    /// the task ends.
    #[must_use]
    pub fn unseen(&self, tid: Tid) -> Option<&CallInfo> {
        self.pending(tid).filter(|call| call.blocked.is_none())
    }

    /// Returns true for a failure, as [`Fact::is_error`] does, except for the end of a queue: a
    /// consumer's last `get`, and the wait for a thread's work, end with [`Errno::Closed`].
    #[must_use]
    pub fn is_error(&self, event: &Event<'_>) -> bool {
        let ends_queue = || {
            let last = self.last(event.tid).map(|call| call.call);
            matches!(last, Some(SystemCall::Get(_) | SystemCall::TryGet(_)))
        };
        match event.fact {
            Fact::Replied {
                reply: Reply::Err(Errno::Closed),
                ..
            } => !ends_queue(),
            _ => event.fact.is_error(),
        }
    }

    /// Returns the line of a trace for a fact.
    #[must_use]
    pub fn line<'a>(&'a self, fact: &'a Fact<'a>, tid: Tid) -> TraceLine<'a> {
        let last = self.last(tid);
        let unknown = match self.task(tid) {
            // It waits before its first turn.
            Some(task) if task.is_whole => &"start",
            // The call was before the recording.
            _ => &"?",
        };
        TraceLine {
            fact,
            call: last.map_or(unknown, |call| call as &dyn fmt::Display),
            is_shown: last.is_none_or(CallInfo::is_shown),
        }
    }

    fn task(&self, tid: Tid) -> Option<&Task> {
        let reaped = self.reaped.as_ref().filter(|(last, _)| *last == tid);
        self.tasks
            .get(&tid)
            .or_else(|| reaped.map(|(_, task)| task))
    }

    /// The task of an event, which may be the first about it.
    fn meet(&mut self, tid: Tid, comm: &str) -> Option<&mut Task> {
        let has_room = self.tasks.len() < self.most;
        match self.tasks.entry(tid) {
            Entry::Occupied(task) => Some(task.into_mut()),
            Entry::Vacant(place) if has_room => Some(place.insert(Task {
                comm: comm.into(),
                spawned: None,
                is_whole: false,
                calls: VecDeque::new(),
            })),
            Entry::Vacant(_) => None,
        }
    }

    fn call(&mut self, tid: Tid, call: CallInfo) {
        let most = self.calls;
        let Some(task) = self.meet(tid, "?") else {
            return;
        };
        if task.calls.len() == most {
            task.calls.pop_front();
        } else if most == 1 {
            // Otherwise it takes room for four.
            task.calls.reserve_exact(1);
        }
        task.calls.push_back(call);
    }

    /// Notes the object of a new queue, which the task's last call describes.
    fn meet_object(&mut self, queue: QueueId, tid: Tid) {
        let detail = self.last(tid).map(|call| &call.detail);
        let (kind, name) = match detail {
            Some(Detail::Name(name)) => ("queue", &**name),
            Some(Detail::Object(kind, name)) => (&**kind, &**name),
            _ => return,
        };
        let object = Object {
            kind: kind.into(),
            name: name.into(),
        };
        if self.objects.len() < self.most {
            self.objects.insert(queue, object);
        }
    }

    /// The name of the queue in a call's argument, or nothing.
    fn name_in(&self, call: SystemCall) -> Rc<str> {
        let object = match call.argument() {
            Argument::Queue(queue) => self.objects.get(&queue),
            _ => None,
        };
        object.map_or_else(Rc::default, |object| Rc::clone(&object.name))
    }

    fn last_mut(&mut self, tid: Tid) -> Option<&mut CallInfo> {
        self.tasks.get_mut(&tid)?.calls.back_mut()
    }
}

impl Tracer for Follower {
    fn event(&mut self, event: &Event<'_>) {
        let Event { at, tid, .. } = *event;
        match &event.fact {
            Fact::Spawned { name, .. } => {
                // A number is not used twice, except in a recording that was made up.
                self.tasks.remove(&tid);
                if let Some(task) = self.meet(tid, name) {
                    task.spawned = event.place.clone();
                    task.is_whole = true;
                }
            }
            Fact::Trapped { call, detail } => {
                let call = CallInfo {
                    at,
                    call: *call,
                    detail: detail.clone().into_owned(),
                    name: self.name_in(*call),
                    blocked: None,
                    place: None,
                    reply: None,
                    is_late: false,
                };
                self.call(tid, call);
            }
            Fact::Blocked { on } => {
                if let Some(call) = self.last_mut(tid) {
                    call.blocked = Some((*on, at));
                    call.place = event.place.clone();
                }
            }
            Fact::Replied { reply, detail } => {
                if let Reply::Queue(queue) = reply {
                    self.meet_object(*queue, tid);
                }
                if let Some(call) = self.last_mut(tid) {
                    call.is_late = call.reply.is_some();
                    call.reply = Some((*reply, detail.clone().into_owned()));
                }
                if let Reply::Device(device) = reply
                    && self.addrs.len() < self.most
                    && let Some(addr) = self.last(tid).and_then(CallInfo::addr)
                {
                    self.addrs.insert(*device, addr);
                }
            }
            Fact::Reaped => {
                let task = self.tasks.remove(&tid);
                self.reaped = task.map(|task| (tid, task));
            }
            Fact::Deferred {
                call: SystemCall::FreeQueue(queue),
            } => drop(self.objects.remove(queue)),
            Fact::Deferred {
                call: SystemCall::Close(device),
            } => drop(self.addrs.remove(device)),
            Fact::Resumed
            | Fact::Fault { .. }
            | Fact::Deferred { .. }
            | Fact::Injected { .. }
            | Fact::Woken { .. }
            | Fact::DeviceIo { .. }
            | Fact::Console { .. }
            | Fact::Exited { .. }
            | Fact::Deadlocked { .. }
            | Fact::Computing { .. }
            | Fact::Preempted { .. }
            | Fact::ClockJumped { .. } => {}
        }
    }

    fn is_exact(&self) -> bool {
        false
    }
}

impl CallInfo {
    /// The answer, once it is there; of a call that a timeout cut after its answer, the timeout.
    #[must_use]
    pub fn reply(&self) -> Option<Answered<'_>> {
        let (reply, detail) = self.reply.as_ref()?;
        Some(Answered(*reply, detail))
    }

    /// The address in the reply: of a listener, or of the peer of an accepted connection; otherwise
    /// the address in the call, which a connection leads to.
    #[must_use]
    pub fn addr(&self) -> Option<SocketAddr> {
        let reply = self.reply.as_ref().map(|(_, detail)| detail);
        let mut details = reply.into_iter().chain([&self.detail]);
        details.find_map(|detail| match detail {
            Detail::Addr(addr) => Some(*addr),
            _ => None,
        })
    }

    /// True if a trace has a line of the call from before its last reply:
    /// [`TraceLine::is_shown`].
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.blocked.is_some() || self.is_late
    }
}

impl fmt::Display for CallInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_call(f, Call(self.call, &self.detail), &self.name)
    }
}

impl Default for Follower {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("tasks", &self.tasks.len())
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

/// A fact as a line of a trace, in the manner of `strace`, without the time and the task.
/// [`Follower::line`] returns it.
#[derive(Clone, Copy)]
pub struct TraceLine<'a> {
    /// The event.
    pub fact: &'a Fact<'a>,
    /// The last call of the task: its [`Call`], or the text of one.
    pub call: &'a dyn fmt::Display,
    /// True if the trace has shown the call already: it blocked, or has a reply.
    pub is_shown: bool,
}

impl fmt::Display for TraceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call;
        match self.fact {
            Fact::Blocked { .. } => write!(f, "{call} ..."),
            Fact::Replied { reply, detail } => {
                let dots = if self.is_shown { "... " } else { "" };
                write!(f, "{dots}{call} = {}", Answered(*reply, detail))
            }
            Fact::Deferred { call } => write!(f, "{} deferred", Call(*call, &Detail::None)),
            Fact::Injected { inject } => write!(f, "injected into {call}: {inject}"),
            Fact::Exited { exit } => write!(f, "exited: {exit}"),
            Fact::Spawned {
                parent: Tid::KERNEL,
                ..
            } => f.write_str("spawned by the host"),
            Fact::Spawned { parent, .. } => write!(f, "spawned by {parent}"),
            Fact::ClockJumped { from } => write!(f, "slept from {:.6}", Nanos::from(*from)),
            Fact::Trapped { .. }
            | Fact::Resumed
            | Fact::Fault { .. }
            | Fact::Woken { .. }
            | Fact::DeviceIo { .. }
            | Fact::Console { .. }
            | Fact::Deadlocked { .. }
            | Fact::Computing { .. }
            | Fact::Preempted { .. }
            | Fact::Reaped => self.fact.fmt(f),
        }
    }
}

impl fmt::Debug for TraceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceLine({self})")
    }
}
