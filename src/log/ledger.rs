//! The ledger: what each task is, what it does and did, and what it waits for.
//!
//! It takes the events of a log in order, live or read.
//!
//! ```text
//!  Spawned ──> Ready ──Resumed──> Running ──Trapped──> InCall ──Replied──> Ready
//!                ^                                       │
//!                └───────────────Woken──────────── Blocked(on)       Exited ──> zombie ──> reaped
//! ```

use std::{collections::hash_map::Entry, fmt, net::SocketAddr, rc::Rc};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Detail, Event, Fact, Tracer, Wake,
    calls::{Around, CallInfo, Object, TraceLine},
    spans::{Doing, Ending, Moment, Now, Span, Task},
};
use crate::abi::{
    DeviceId, Errno, Exit, Inject, KernelId, Kind, On, QueueId, Reply, SystemCall, Tid,
};

/// The books of a run: the tasks of a log, their names, states, waits and last calls.
///
/// It is a [`Tracer`], and also takes the events of a [`Recording`](crate::record::Recording). Give
/// it each event before you ask about that event. A task whose spawn it has missed has the name `?`.
/// A reaped task is kept until the next one is reaped, so that the event itself has a line.
///
/// ```
/// use trapline::{Ledger, Tracer, record::Recording};
///
/// /// Prints a recording as `strace` would, and then what the tasks wait for.
/// fn show(recording: Recording) -> Result<(), trapline::record::Error> {
///     let mut tasks = Ledger::new();
///     for event in recording {
///         let event = event?;
///         tasks.event(&event);
///         println!("{} {}", tasks.comm(event.tid), tasks.line(&event.fact, event.tid));
///     }
///     for task in tasks.tasks() {
///         println!("{task}");
///     }
///     Ok(())
/// }
/// ```
pub struct Ledger {
    pub(super) tasks: FxHashMap<Tid, Task>,
    /// The queues of objects, and those with a name.
    pub(super) objects: FxHashMap<QueueId, Rc<Object>>,
    /// The task that holds a lock, or took the last permit.
    holders: FxHashMap<QueueId, Vec<Tid>>,
    /// The addresses of open devices, and whether each is a listener's.
    pub(super) addrs: FxHashMap<DeviceId, (SocketAddr, bool)>,
    /// The paths of open files.
    pub(super) files: FxHashMap<DeviceId, Box<str>>,
    pub(super) reaped: Option<(Tid, Task)>,
    freed: Option<(QueueId, Rc<Object>)>,
    calls: usize,
    most: usize,
    pub(super) now: Now,
    /// The task whose turn or call is under way; it wakes others.
    pub(super) caller: Option<Tid>,
    /// The task that has ended just now: its end wakes the tasks of its group.
    ended: Option<Tid>,
    /// The kernel of both, and those of the other kernels, if the log is of several.
    kernel: Option<KernelId>,
    others: FxHashMap<Option<KernelId>, [Option<Tid>; 2]>,
    pub(super) computing: FxHashSet<Tid>,
}

/// The earlier name of a [`Ledger`].
pub type Follower = Ledger;

impl Ledger {
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
            holders: FxHashMap::default(),
            addrs: FxHashMap::default(),
            files: FxHashMap::default(),
            reaped: None,
            freed: None,
            calls: calls.max(1),
            most: usize::MAX,
            now: Now {
                moment: Moment::default(),
                gaps: 0,
            },
            caller: None,
            ended: None,
            kernel: None,
            others: FxHashMap::default(),
            computing: FxHashSet::default(),
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

    /// The moment of the last event.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.now.moment
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

    /// Returns the task that holds a lock, or took the last permit; of several, the last.
    pub(super) fn holder(&self, queue: QueueId) -> Option<Tid> {
        self.holders.get(&queue)?.last().copied()
    }

    /// Returns the line of a trace for a fact.
    #[must_use]
    pub fn line<'a>(&'a self, fact: &'a Fact<'a>, tid: Tid) -> TraceLine<'a> {
        let queue = match fact {
            Fact::Deferred { call } => call.queue(),
            Fact::Woken {
                by: Wake::Queue(queue),
            } => Some(*queue),
            _ => None,
        };
        TraceLine {
            fact,
            call: self.last(tid),
            is_whole: self.task(tid).is_some_and(|task| task.is_whole),
            object: queue.and_then(|queue| {
                let freed = self.freed.as_ref().filter(|(freed, _)| *freed == queue);
                let object = self.objects.get(&queue);
                Some(&**object.or_else(|| freed.map(|(_, object)| object))?)
            }),
        }
    }

    /// Notes that events are missing: a task that was not blocked may have done anything since.
    pub fn gap(&mut self) {
        self.now.gaps += 1;
        self.caller = None;
        self.others.clear();
        self.computing.clear();
    }

    /// Has the next event be one of another kernel.
    #[cold]
    fn turn_to(&mut self, kernel: Option<KernelId>) {
        let [caller, ended] = self.others.remove(&kernel).unwrap_or_default();
        let left = std::mem::replace(&mut self.kernel, kernel);
        self.others.insert(left, [self.caller, self.ended]);
        (self.caller, self.ended) = (caller, ended);
    }

    /// Takes the next event. Returns the spans of its task that it ends: at most two.
    pub fn take(&mut self, event: &Event<'_>) -> [Option<Span>; 2] {
        let before = self.now;
        let tid = event.tid;
        self.now.moment.at = event.at.max(before.moment.at);
        if tid.kernel() != self.kernel {
            self.turn_to(tid.kernel());
        }
        if tid.is_kernel() {
            if let Fact::ClockJumped { .. } = event.fact {
                (self.caller, self.ended) = (None, None);
                self.now.moment.turn += 1;
            }
            return [None; 2];
        }
        self.computing.remove(&tid);
        if !matches!(event.fact, Fact::Woken { .. } | Fact::Replied { .. }) {
            self.ended = None;
        }
        let mut read = None;
        if let Fact::DeviceIo { .. } | Fact::Blocked { .. } = event.fact
            && let Some(task) = self.tasks.get_mut(&tid)
            && task.doing == Doing::Ready
        {
            // The task's turn has come, and the kernel reads for it before it runs: from the event
            // before. It has read in vain if the task blocks.
            read = task.begin(tid, Doing::InCall, Ending::Next, before);
        }
        if let Fact::Blocked { .. } = event.fact {
            read = read.filter(Span::has_length);
        }
        [read, self.note(event)]
    }
}

/// What each event does to the books.
impl Ledger {
    /// Returns the span that the event ends.
    fn note(&mut self, event: &Event<'_>) -> Option<Span> {
        let tid = event.tid;
        match &event.fact {
            Fact::Spawned { parent, name } => self.spawn(event, *parent, name),
            Fact::Limited { limits } => {
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.limits = Some((&**limits).into());
                }
            }
            Fact::Resumed => return self.resume(tid),
            Fact::Trapped { call, detail } => return self.call(event, *call, detail),
            Fact::Replied { reply, detail } => return self.answer(tid, *reply, detail),
            Fact::Blocked { on } => return self.block(event, *on),
            Fact::Woken { by } => return self.wake(tid, *by),
            Fact::Computing { .. } => {
                self.computing.insert(tid);
                return self.begin(tid, Doing::Running, Ending::Next);
            }
            Fact::Preempted { .. } => return self.begin(tid, Doing::Ready, Ending::Next),
            Fact::Exited { exit } => return self.exit(tid, exit),
            Fact::Reaped => self.reaped = self.tasks.remove(&tid).map(|task| (tid, task)),
            Fact::Deferred { call } => self.defer(tid, *call),
            Fact::Injected {
                inject: Inject::Delay(_),
            } => {
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.is_delayed = true;
                }
            }
            _ => {}
        }
        None
    }

    fn spawn(&mut self, event: &Event<'_>, parent: Tid, name: &str) {
        // A number is not used twice, except in a recording that was made up.
        self.tasks.remove(&event.tid);
        let now = self.now;
        let call = self.pending(parent).map(|call| call.call);
        let limits = self.task(parent).and_then(|task| task.limits.clone());
        if let Some(task) = self.meet(event.tid) {
            *task = Task {
                comm: name.into(),
                parent,
                spawned: event.place.clone(),
                is_daemon: call == Some(SystemCall::NewDaemon),
                limits,
                is_whole: true,
                ..Task::unknown(now)
            };
        }
    }

    fn resume(&mut self, tid: Tid) -> Option<Span> {
        self.caller = Some(tid);
        let ended = self.begin(tid, Doing::Running, Ending::Next);
        self.now.moment.turn += 1;
        // The handle of a lock or a permit notes the task in that turn.
        let gets = self.tasks.get_mut(&tid)?.gets.take();
        if let Some(queue) = gets {
            let shares = self.kind(queue) == Kind::RwLock;
            let holders = self.holders.entry(queue).or_default();
            holders.truncate(if shares { holders.len() } else { 0 });
            holders.push(tid);
        }
        ended
    }

    fn call(&mut self, event: &Event<'_>, call: SystemCall, detail: &Detail<'_>) -> Option<Span> {
        let object = call.queue().and_then(|queue| self.objects.get(&queue));
        let mut info = CallInfo::new(event.at, call, detail, object.map(Rc::clone));
        if let Detail::Sources(sources) = detail {
            let words = sources.iter().map(|source| self.source_words(*source));
            info.sources = Some(words.collect::<Vec<_>>().join(", ").into());
        }
        let doing = match call {
            // These wake no task, and are answered when their task's turn comes.
            SystemCall::Recv(_)
            | SystemCall::RecvFrom(_)
            | SystemCall::Accept(_)
            | SystemCall::Select => {
                self.caller = None;
                Doing::Ready
            }
            _ => Doing::InCall,
        };
        let (most, now) = (self.calls, self.now);
        let task = self.meet(event.tid)?;
        if let SystemCall::Disarm(number) = call {
            task.disarm(number);
        }
        task.traps += 1;
        if task.calls.len() == most {
            task.calls.pop_front();
        } else if most == 1 {
            // Otherwise it takes room for four.
            task.calls.reserve_exact(1);
        }
        task.calls.push_back(info);
        task.begin(event.tid, doing, Ending::Next, now)
    }

    fn answer(&mut self, tid: Tid, reply: Reply, detail: &Detail<'_>) -> Option<Span> {
        let is_caller = self.caller.take_if(|caller| *caller == tid).is_some();
        let now = self.now;
        let task = self.meet(tid)?;
        if let Some(call) = task.calls.back_mut() {
            call.is_late = call.reply.is_some();
            call.reply = Some((reply, detail.clone().into_owned()));
        }
        // Otherwise the kernel has read for the task, which runs next.
        let is_over = is_caller && task.doing == Doing::InCall;
        let ended = is_over.then(|| task.begin(tid, Doing::Ready, Ending::Next, now));
        let last = task.calls.back();
        match reply {
            Reply::Message(_) | Reply::Permits(_) => {
                let gets = last.filter(|call| call.gets_hold());
                task.gets = gets.and_then(|call| call.call.queue());
            }
            Reply::Timeout(number) => {
                let around = last.map_or(Around::Timeout, CallInfo::arms);
                task.timeouts.push((number, around));
            }
            Reply::Elapsed(number) => task.disarm(number),
            // A call that is cut has moved nothing.
            Reply::Done => {
                if let Some((number, around)) = last.and_then(CallInfo::moved) {
                    let all = self.tasks.iter_mut();
                    let all = all.filter(|(other, _)| other.kernel() == tid.kernel());
                    let all = all.flat_map(|(_, task)| &mut task.timeouts);
                    all.filter(|(other, _)| *other == number)
                        .for_each(|it| it.1 = around);
                }
            }
            Reply::Queue(queue) => {
                let made = last.and_then(CallInfo::made);
                if let Some(made) = made.filter(|_| self.objects.len() < self.most) {
                    self.objects.insert(queue, Rc::new(made));
                }
            }
            Reply::Device(device) => {
                let path: Option<Box<str>> = last.and_then(CallInfo::path).map(Box::from);
                let opened = |call: &CallInfo| {
                    let addr = call.addr()?;
                    let is_server = match call.call {
                        SystemCall::Listen => true,
                        SystemCall::BindUdp => addr.port() != 0,
                        _ => false,
                    };
                    Some((addr, is_server))
                };
                let opened = last.and_then(opened);
                if let Some(opened) = opened.filter(|_| self.addrs.len() < self.most) {
                    self.addrs.insert(device, opened);
                }
                if let Some(path) = path.filter(|_| self.files.len() < self.most) {
                    self.files.insert(device, path);
                }
            }
            _ => {}
        }
        ended.flatten()
    }

    fn block(&mut self, event: &Event<'_>, on: On) -> Option<Span> {
        let tid = event.tid;
        self.caller.take_if(|caller| *caller == tid);
        let now = self.now;
        let task = self.meet(tid)?;
        if let Some(call) = task.calls.back_mut() {
            call.blocked = Some((on, event.at));
            call.place = event.place.clone();
        }
        let ended = task.begin(tid, Doing::Blocked(on), Ending::Next, now);
        // A call that asks for nothing takes no time until it blocks.
        ended.filter(Span::has_length)
    }

    fn wake(&mut self, tid: Tid, by: Wake) -> Option<Span> {
        let waker = match by {
            Wake::Exit(tid) => Some(tid),
            Wake::Queue(_) | Wake::Closed(_) => self.caller.or(self.ended),
            Wake::Timer | Wake::Device(..) | Wake::Timeout => None,
        };
        let now = self.now;
        let task = self.meet(tid)?;
        task.is_delayed = false;
        task.begin(tid, Doing::Ready, Ending::Woken { by, waker }, now)
    }

    fn exit(&mut self, tid: Tid, exit: &Exit) -> Option<Span> {
        self.ended = Some(tid);
        self.caller.take_if(|caller| *caller == tid);
        let task = self.tasks.get_mut(&tid)?;
        task.exit = Some(Box::new(exit.clone()));
        task.begin(tid, Doing::Ready, Ending::Exited, self.now)
    }

    fn defer(&mut self, tid: Tid, call: SystemCall) {
        match call {
            SystemCall::FreeQueue(queue) => {
                let object = self.objects.remove(&queue);
                self.freed = object.map(|object| (queue, object));
                self.holders.remove(&queue);
            }
            SystemCall::TryPut(queue) if self.kind(queue) == Kind::Wake => {
                self.holders.insert(queue, vec![tid]);
            }
            SystemCall::TryPut(queue) | SystemCall::GiveBack(queue)
                if self.kind(queue).is_lock() =>
            {
                self.holders.remove(&queue);
            }
            SystemCall::Give(queue) if self.kind(queue) == Kind::RwLock => {
                if let Some(holders) = self.holders.get_mut(&queue) {
                    let place = holders.iter().rposition(|holder| *holder == tid);
                    place
                        .map(|place| holders.remove(place))
                        .or_else(|| holders.pop());
                }
            }
            SystemCall::Close(device) => {
                self.addrs.remove(&device);
                self.files.remove(&device);
            }
            SystemCall::Unshield(number) => {
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.timeouts.retain(|(other, _)| *other != number);
                }
            }
            SystemCall::Disarm(number) => {
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.disarm(number);
                }
            }
            _ => {}
        }
    }

    /// The task of an event, which may be the first about it; `None` if there is no room.
    fn meet(&mut self, tid: Tid) -> Option<&mut Task> {
        let has_room = self.tasks.len() < self.most;
        match self.tasks.entry(tid) {
            Entry::Occupied(task) => Some(task.into_mut()),
            Entry::Vacant(place) => has_room.then(|| {
                // What it did before is not known.
                let gaps = self.now.gaps.wrapping_sub(1);
                let moment = Moment::default();
                place.insert(Task::unknown(Now { moment, gaps }))
            }),
        }
    }

    /// Begins a state, and returns the span of the state before.
    fn begin(&mut self, tid: Tid, doing: Doing, end: Ending) -> Option<Span> {
        let now = self.now;
        self.meet(tid)?.begin(tid, doing, end, now)
    }
}

impl Tracer for Ledger {
    fn event(&mut self, event: &Event<'_>) {
        self.take(event);
    }

    fn is_exact(&self) -> bool {
        false
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("tasks", &self.tasks.len())
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}
