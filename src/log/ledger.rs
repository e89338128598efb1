//! The ledger: what each task is, what it does and did, and what it waits for.
//!
//! It takes the events of a log in order, live or read. At every instant it describes a task as
//! [`Kernel::tasks`](crate::Kernel::tasks) does, with the same [`TaskInfo`].
//!
//! ```text
//!  Spawned ──> Ready ──Resumed──> Running ──Trapped──> InCall ──Replied──> Ready
//!                ^                                       │
//!                └───────────────Woken──────────── Blocked(on)       Exited ──> zombie ──> reaped
//! ```
//!
//! Uses the ABI, the event log, and `calls.rs` for the words of calls.

use std::{
    collections::{VecDeque, hash_map::Entry},
    fmt,
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Detail, Event, Fact, Tracer, Wake,
    calls::{Around, CallInfo, Object, TraceLine},
};
use crate::abi::{
    DeviceId, End, Errno, Exit, Inject, Interest, Kind, Nanos, On, Place, QueueId, Reply,
    SystemCall, TaskInfo, TaskState, Tid, Wait, first_of,
};

/// The books of a run: the tasks of a log, their names, states, waits and last calls.
///
/// It is a [`Tracer`], and also takes the events of a [`Recording`](crate::record::Recording). Give
/// it each event before you ask about that event.
///
/// A task whose spawn the ledger has missed has the name `?`. A reaped task is kept until the
/// next one is reaped, so that the event itself has a line.
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
    tasks: FxHashMap<Tid, Task>,
    /// The queues of objects, and those with a name.
    objects: FxHashMap<QueueId, Rc<Object>>,
    /// The task that holds a lock, or took the last permit.
    holders: FxHashMap<QueueId, Tid>,
    /// The addresses of open devices.
    addrs: FxHashMap<DeviceId, SocketAddr>,
    /// The task that was reaped last.
    reaped: Option<(Tid, Task)>,
    /// The object that was freed last.
    freed: Option<(QueueId, Rc<Object>)>,
    calls: usize,
    most: usize,
    now: Moment,
    /// The number of gaps so far.
    gaps: u64,
    /// The task whose turn or call is under way; it wakes others.
    caller: Option<Tid>,
    /// The task that has ended just now: its end wakes the tasks of its group.
    ended: Option<Tid>,
    /// The tasks that compute.
    computing: FxHashSet<Tid>,
}

/// The earlier name of a [`Ledger`].
pub type Follower = Ledger;

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Moment {
    /// The time since boot.
    pub at: Duration,
    /// The number of turns so far, plus the number of jumps of the clock. It measures progress
    /// while a virtual clock does not move.
    pub turn: u64,
}

/// What a task does, or the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// It waits for its turn.
    Ready,
    /// It has its turn, up to its next trap, or computes.
    Running,
    /// The kernel works for the task, at the call that the task has made. Of the kernel: it works.
    InCall,
    /// It waits for something else.
    Blocked(On),
    /// Of the kernel: no task is ready, and it waits for the world.
    Idle,
}

/// A span of one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The task; [`Tid::KERNEL`] for the kernel itself.
    pub tid: Tid,
    /// The state.
    pub doing: Doing,
    /// Its begin.
    pub from: Moment,
    /// Its end.
    pub to: Moment,
    /// How it ended.
    pub end: Ending,
}

/// How a [`Span`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The next state began.
    Next,
    /// Its wait ended.
    Woken {
        /// The cause.
        by: Wake,
        /// The task that woke it, if a task did.
        waker: Option<Tid>,
    },
    /// The task ended.
    Exited,
    /// The log ended first.
    Open,
}

struct Task {
    comm: Box<str>,
    parent: Tid,
    /// Where in the source it was made.
    spawned: Option<Place>,
    /// Whether the log holds its spawn, and so all its calls.
    is_whole: bool,
    traps: u64,
    /// The oldest first.
    calls: VecDeque<CallInfo>,
    doing: Doing,
    /// Since when.
    since: Moment,
    /// The number of gaps before that.
    gaps: u64,
    /// Whether an injection delays its call.
    is_delayed: bool,
    /// The lock or the permit that it has from its next turn on.
    gets: Option<QueueId>,
    /// What is around its next call, the outermost first.
    timeouts: Vec<(u64, Around)>,
    exit: Option<Box<Exit>>,
}

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
            reaped: None,
            freed: None,
            calls: calls.max(1),
            most: usize::MAX,
            now: Moment::default(),
            gaps: 0,
            caller: None,
            ended: None,
            computing: FxHashSet::default(),
        }
    }

    /// Follows so many tasks at once, and ignores those that come while there is no room.
    #[must_use]
    pub fn at_most(mut self, tasks: usize) -> Self {
        self.most = tasks;
        self
    }

    // ---- what it knows

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
        self.now
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

    /// What a live task does, and since when; `None` where events are missing.
    #[must_use]
    pub fn doing(&self, tid: Tid) -> Option<(Doing, Moment)> {
        let task = self.tasks.get(&tid).filter(|task| task.exit.is_none())?;
        self.is_known(task).then_some((task.doing, task.since))
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
        self.task(tid)?.pending()
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
            None => self.gaps > 0,
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
            Doing::Blocked(On::Queue(queue, _)) => {
                !task.is_timed() && self.kind(queue) != Kind::Job
            }
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

    /// Returns whether no timer, device or work on a thread makes a source ready.
    fn is_hopeless(&self, source: Interest) -> bool {
        match source {
            Interest::Exit(_) => true,
            Interest::After(time) | Interest::At(time) => time == Nanos::FOREVER,
            Interest::Device(..) => false,
            Interest::Queue(queue, _) => self.kind(queue) != Kind::Job,
        }
    }

    // ---- what it takes

    /// Notes that events are missing: a task that was not blocked may have done anything since.
    pub fn gap(&mut self) {
        self.gaps += 1;
        self.caller = None;
        self.computing.clear();
    }

    /// Takes the next event. Returns the spans of its task that it ends: at most two.
    pub fn take(&mut self, event: &Event<'_>) -> [Option<Span>; 2] {
        let before = self.now;
        self.now.at = event.at.max(before.at);
        let tid = event.tid;
        if tid == Tid::KERNEL {
            if let Fact::ClockJumped { .. } = event.fact {
                (self.caller, self.ended) = (None, None);
                self.now.turn += 1;
            }
            return [None; 2];
        }
        if self.has_computing() {
            self.computing.remove(&tid);
        }
        if !matches!(event.fact, Fact::Woken { .. } | Fact::Replied { .. }) {
            self.ended = None;
        }
        let mut read = None;
        if let Fact::DeviceIo { .. } | Fact::Blocked { .. } = event.fact
            && self
                .tasks
                .get(&tid)
                .is_some_and(|task| task.doing == Doing::Ready)
        {
            // The task's turn has come, and the kernel reads for it before it runs: from the event
            // before. It has read in vain if the task blocks.
            let now = std::mem::replace(&mut self.now, before);
            read = self.begin(tid, Doing::InCall, Ending::Next);
            self.now = now;
        }
        let ended = match &event.fact {
            Fact::Spawned { parent, name } => {
                self.spawn(tid, *parent, name, event.place.clone());
                None
            }
            Fact::Resumed => self.resume(tid),
            Fact::Trapped { call, detail } => {
                let object = call.queue().and_then(|queue| self.objects.get(&queue));
                let sources = match detail {
                    Detail::Sources(sources) => {
                        let words = sources.iter().map(|source| self.source_words(*source));
                        Some(words.collect::<Vec<_>>().join(", ").into())
                    }
                    _ => None,
                };
                let call = CallInfo {
                    at: event.at,
                    call: *call,
                    detail: detail.clone().into_owned(),
                    object: object.map(Rc::clone),
                    sources,
                    blocked: None,
                    place: None,
                    reply: None,
                    is_late: false,
                };
                self.call(tid, call)
            }
            Fact::Replied { reply, detail } => {
                self.answer(tid, *reply, detail.clone().into_owned())
            }
            Fact::Blocked { on } => {
                read = read.filter(Span::has_length);
                self.block(event, *on)
            }
            Fact::Woken { by } => self.wake(tid, *by),
            Fact::Computing { .. } => {
                self.computing.insert(tid);
                self.begin(tid, Doing::Running, Ending::Next)
            }
            Fact::Preempted { .. } => self.begin(tid, Doing::Ready, Ending::Next),
            Fact::Exited { exit } => self.exit(tid, exit),
            Fact::Reaped => {
                let task = self.tasks.remove(&tid);
                self.reaped = task.map(|task| (tid, task));
                None
            }
            Fact::Deferred { call } => {
                self.defer(tid, *call);
                None
            }
            Fact::Injected {
                inject: Inject::Delay(_),
            } => {
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.is_delayed = true;
                }
                None
            }
            _ => None,
        };
        [read, ended]
    }

    /// The spans that the log leaves open: of the live tasks, by tid.
    #[must_use]
    pub fn open_spans(&self) -> Vec<Span> {
        let live = self.tasks.iter();
        let live = live.filter(|(_, task)| task.exit.is_none() && self.is_known(task));
        let open = live.map(|(tid, task)| Span {
            tid: *tid,
            doing: task.doing,
            from: task.since,
            to: self.now,
            end: Ending::Open,
        });
        let mut open: Vec<Span> = open.collect();
        open.sort_unstable_by_key(|span| span.tid);
        open
    }
}

/// What each event does to the books.
impl Ledger {
    fn spawn(&mut self, tid: Tid, parent: Tid, name: &str, place: Option<Place>) {
        // A number is not used twice, except in a recording that was made up.
        self.tasks.remove(&tid);
        let (since, gaps) = (self.now, self.gaps);
        if let Some(task) = self.meet(tid) {
            *task = Task {
                comm: name.into(),
                parent,
                spawned: place,
                is_whole: true,
                since,
                gaps,
                ..Task::unknown(gaps)
            };
        }
    }

    fn resume(&mut self, tid: Tid) -> Option<Span> {
        self.caller = Some(tid);
        let ended = self.begin(tid, Doing::Running, Ending::Next);
        self.now.turn += 1;
        // The handle of a lock or a permit notes the task in that turn.
        let gets = self.tasks.get_mut(&tid)?.gets.take();
        self.holders.extend(gets.map(|queue| (queue, tid)));
        ended
    }

    fn call(&mut self, tid: Tid, call: CallInfo) -> Option<Span> {
        let doing = match call.call {
            // These wake no task, and are answered when their task's turn comes.
            SystemCall::Recv(_) | SystemCall::Accept(_) => {
                self.caller = None;
                Doing::Ready
            }
            _ => Doing::InCall,
        };
        let (most, now, gaps) = (self.calls, self.now, self.gaps);
        let task = self.meet(tid)?;
        if let SystemCall::Disarm(number) = call.call {
            task.disarm(number);
        }
        let moved = call.moved();
        task.traps += 1;
        if task.calls.len() == most {
            task.calls.pop_front();
        } else if most == 1 {
            // Otherwise it takes room for four.
            task.calls.reserve_exact(1);
        }
        task.calls.push_back(call);
        let ended = task.begin(tid, doing, Ending::Next, now, gaps);
        if let Some((number, around)) = moved {
            let all = self.tasks.values_mut().flat_map(|task| &mut task.timeouts);
            all.filter(|(other, _)| *other == number)
                .for_each(|it| it.1 = around);
        }
        ended
    }

    fn answer(&mut self, tid: Tid, reply: Reply, detail: Detail<'static>) -> Option<Span> {
        let is_caller = self.caller == Some(tid);
        self.caller = self.caller.filter(|caller| *caller != tid);
        let (now, gaps) = (self.now, self.gaps);
        let task = self.meet(tid)?;
        if let Some(call) = task.calls.back_mut() {
            call.is_late = call.reply.is_some();
            call.reply = Some((reply, detail));
        }
        // Otherwise the kernel has read for the task, which runs next.
        let is_over = is_caller && task.doing == Doing::InCall;
        let ended = is_over.then(|| task.begin(tid, Doing::Ready, Ending::Next, now, gaps));
        let last = task.calls.back();
        match reply {
            Reply::Message(_) => {
                let gets = last.filter(|call| call.gets_hold());
                task.gets = gets.and_then(|call| call.call.queue());
            }
            Reply::Timeout(number) => {
                let around = last.map_or(Around::Timeout, CallInfo::arms);
                task.timeouts.push((number, around));
            }
            Reply::Elapsed(number) => task.disarm(number),
            Reply::Queue(queue) => {
                let made = last.and_then(CallInfo::made);
                if let Some(made) = made.filter(|_| self.objects.len() < self.most) {
                    self.objects.insert(queue, Rc::new(made));
                }
            }
            Reply::Device(device) => {
                let addr = last.and_then(CallInfo::addr);
                if let Some(addr) = addr.filter(|_| self.addrs.len() < self.most) {
                    self.addrs.insert(device, addr);
                }
            }
            _ => {}
        }
        ended.flatten()
    }

    fn block(&mut self, event: &Event<'_>, on: On) -> Option<Span> {
        let tid = event.tid;
        self.caller = self.caller.filter(|caller| *caller != tid);
        let (now, gaps) = (self.now, self.gaps);
        let task = self.meet(tid)?;
        if let Some(call) = task.calls.back_mut() {
            call.blocked = Some((on, event.at));
            call.place = event.place.clone();
        }
        let ended = task.begin(tid, Doing::Blocked(on), Ending::Next, now, gaps);
        // A call that asks for nothing takes no time until it blocks.
        ended.filter(Span::has_length)
    }

    fn wake(&mut self, tid: Tid, by: Wake) -> Option<Span> {
        let waker = match by {
            Wake::Exit(tid) => Some(tid),
            Wake::Queue(_) | Wake::Closed(_) => self.caller.or(self.ended),
            Wake::Timer | Wake::Device(..) | Wake::Timeout => None,
        };
        let (now, gaps) = (self.now, self.gaps);
        let task = self.meet(tid)?;
        task.is_delayed = false;
        task.begin(tid, Doing::Ready, Ending::Woken { by, waker }, now, gaps)
    }

    fn exit(&mut self, tid: Tid, exit: &Exit) -> Option<Span> {
        self.ended = Some(tid);
        self.caller = self.caller.filter(|caller| *caller != tid);
        let (now, gaps) = (self.now, self.gaps);
        let task = self.tasks.get_mut(&tid)?;
        task.exit = Some(Box::new(exit.clone()));
        task.begin(tid, Doing::Ready, Ending::Exited, now, gaps)
    }

    /// Notes a call without a trap.
    fn defer(&mut self, tid: Tid, call: SystemCall) {
        match call {
            SystemCall::FreeQueue(queue) => {
                let object = self.objects.remove(&queue);
                self.freed = object.map(|object| (queue, object));
                self.holders.remove(&queue);
            }
            SystemCall::TryPut(queue) | SystemCall::GiveBack(queue)
                if self.kind(queue) == Kind::Mutex =>
            {
                self.holders.remove(&queue);
            }
            SystemCall::Close(device) => drop(self.addrs.remove(&device)),
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
            Entry::Vacant(place) if has_room => {
                // What it did before is not known.
                Some(place.insert(Task::unknown(self.gaps.wrapping_sub(1))))
            }
            Entry::Vacant(_) => None,
        }
    }

    /// Begins a state, and returns the span of the state before.
    fn begin(&mut self, tid: Tid, doing: Doing, end: Ending) -> Option<Span> {
        let (now, gaps) = (self.now, self.gaps);
        self.meet(tid)?.begin(tid, doing, end, now, gaps)
    }
}

/// How it describes a task.
impl Ledger {
    fn task(&self, tid: Tid) -> Option<&Task> {
        let reaped = self.reaped.as_ref().filter(|(last, _)| *last == tid);
        self.tasks
            .get(&tid)
            .or_else(|| reaped.map(|(_, task)| task))
    }

    /// Returns whether no events are missing since the task's state began, or do not matter.
    fn is_known(&self, task: &Task) -> bool {
        task.gaps == self.gaps || matches!(task.doing, Doing::Blocked(_))
    }

    fn kind(&self, queue: QueueId) -> Kind {
        let object = self.objects.get(&queue);
        object.map_or(Kind::Queue, |object| object.kind)
    }

    fn state(&self, tid: Tid, task: &Task) -> TaskState {
        if let Some(exit) = &task.exit {
            return TaskState::Zombie((**exit).clone());
        }
        let is_running = match task.doing {
            Doing::Blocked(on) => {
                let since = task.since.at;
                return TaskState::Blocked { on, since };
            }
            // It waits for a processor.
            Doing::InCall => !matches!(task.pending(), Some(call) if call.computes()),
            // Its computation is over, and its turn has not come.
            Doing::Running => self.caller == Some(tid) || self.computing.contains(&tid),
            Doing::Ready | Doing::Idle => false,
        };
        match is_running && self.is_known(task) {
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
        let kind = match on {
            On::Queue(queue, _) => self.kind(queue),
            On::Exit(_) | On::Timer(_) | On::Device(..) | On::First(_) => Kind::Queue,
        };
        wait.is_lock = kind == Kind::Mutex;
        if let On::First(_) = on {
            let sources = task.sources();
            wait.thing = Some(first_of(sources.iter().map(|source| self.source(*source))));
            let enders = sources.iter().map(|source| self.ender(*source));
            let enders = enders.filter(|_| !wait.is_timed);
            wait.enders = enders.collect::<Option<_>>().unwrap_or_default();
        }
        if let On::Queue(queue, _) = on {
            wait.holder = self.holders.get(&queue).copied();
        }
        if task.is_delayed || matches!(on, On::Device(DeviceId::CONSOLE, _)) {
            // The kernel holds back any call.
            return wait;
        }
        let last = task.calls.back();
        wait.place = last.map_or(&task.spawned, |call| &call.place).clone();
        wait.call = match on {
            On::Exit(_) => "wait",
            On::Timer(_) => "sleep",
            On::Queue(queue, End::Put) => kind.verb(SystemCall::Put(queue)),
            On::Queue(queue, End::Get) => kind.verb(SystemCall::Get(queue)),
            On::First(_) => "select",
            On::Device(..) => match last.map(|call| call.call) {
                Some(SystemCall::SendFile(_)) => "send",
                Some(call) => call.name(),
                None => "",
            },
        };
        wait.is_accept = matches!(last, Some(call) if matches!(call.call, SystemCall::Accept(_)));
        wait.is_accept &= matches!(on, On::Device(..));
        wait
    }

    /// What a wait is for, if it has a name.
    fn named(&self, on: On) -> Option<String> {
        match on {
            On::Queue(queue, end) => {
                let object = self.objects.get(&queue)?;
                object.kind.thing(queue, end, &object.name)
            }
            On::Device(device, _) => {
                let addr = self.addr(device)?;
                Some(format!("{on}, {addr}"))
            }
            On::Exit(_) | On::Timer(_) | On::First(_) => None,
        }
    }

    /// The source of a select in words, with the holder of a lock.
    fn source(&self, source: Interest) -> String {
        let words = self.source_words(source);
        match self.holder_of_lock(source) {
            Some(holder) => format!("{words}, held by task {holder}"),
            None => words,
        }
    }

    fn source_words(&self, source: Interest) -> String {
        let none = Object::default();
        let object = match source {
            Interest::Queue(queue, _) => self.objects.get(&queue).map_or(&none, |object| &**object),
            _ => &none,
        };
        source.words(object.kind, &object.name)
    }

    fn ender(&self, source: Interest) -> Option<Tid> {
        source.ender(self.holder_of_lock(source))
    }

    fn holder_of_lock(&self, source: Interest) -> Option<Tid> {
        match source {
            Interest::Queue(queue, _) if self.kind(queue) == Kind::Mutex => {
                self.holders.get(&queue).copied()
            }
            _ => None,
        }
    }
}

impl Task {
    /// A task whose spawn the log does not hold, or that has done nothing yet.
    fn unknown(gaps: u64) -> Self {
        Self {
            comm: "?".into(),
            parent: Tid::KERNEL,
            spawned: None,
            is_whole: false,
            traps: 0,
            calls: VecDeque::new(),
            doing: Doing::Ready,
            since: Moment::default(),
            gaps,
            is_delayed: false,
            gets: None,
            timeouts: Vec::new(),
            exit: None,
        }
    }

    fn begin(
        &mut self,
        tid: Tid,
        doing: Doing,
        end: Ending,
        now: Moment,
        gaps: u64,
    ) -> Option<Span> {
        let before = std::mem::replace(&mut self.doing, doing);
        let span = Span {
            tid,
            doing: before,
            from: std::mem::replace(&mut self.since, now),
            to: now,
            end,
        };
        let is_blocked = matches!(before, Doing::Blocked(_));
        let is_known = std::mem::replace(&mut self.gaps, gaps) == gaps || is_blocked;
        // The kernel has read for the task, or answered, in no time.
        let is_short = before == Doing::InCall && end == Ending::Next && !span.has_length();
        (is_known && !is_short).then_some(span)
    }

    /// Returns what the last call selects among.
    fn sources(&self) -> &[Interest] {
        match self.calls.back().map(|call| &call.detail) {
            Some(Detail::Sources(sources)) => sources,
            _ => &[],
        }
    }

    fn pending(&self) -> Option<&CallInfo> {
        self.calls.back().filter(|call| call.reply.is_none())
    }

    /// Takes away a timeout, and those within it.
    fn disarm(&mut self, number: u64) {
        let outer = self
            .timeouts
            .iter()
            .take_while(|(other, _)| *other != number);
        let outer = outer.count();
        self.timeouts.truncate(outer);
    }

    /// Returns whether a timeout can end its wait.
    fn is_timed(&self) -> bool {
        let shield = |around: &&(u64, Around)| around.1 != Around::Shield;
        let mut within = self.timeouts.iter().rev().take_while(shield);
        within.any(|(_, around)| *around == Around::Timeout)
    }
}

impl Span {
    /// How long it took.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.to.at.saturating_sub(self.from.at)
    }

    /// Returns whether a task ran, or the kernel worked at its call.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.tid != Tid::KERNEL && matches!(self.doing, Doing::Running | Doing::InCall)
    }

    fn has_length(&self) -> bool {
        self.from != self.to
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
