//! A task: its program, its state and its family, and the table that holds them all.
//!
//! Uses the ABI, the frame, `Os`, and the names of events, queues and timers. The life of a task,
//! with who moves it on:
//!
//! ```text
//!  insert ──> Ready ──turn──> Running ──reply──> Ready
//!               ^                │
//!               │ wake           ├──block──> Blocked
//!               └────────────────┼─────────────┘
//!                                └──end (from anywhere)──> Ending ──> Zombie ──> reaped
//! ```
//!
//! A task that is ready is `Owed` where what it will be answered has to be made up first.

use std::{
    any::Any,
    collections::VecDeque,
    io,
    net::SocketAddr,
    num::NonZeroU32,
    ops::{Index, IndexMut},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    ptr,
    rc::Rc,
};

use genawaiter::{
    Coroutine, GeneratorState,
    rc::{Co, Gen},
};

use crate::{
    abi::{
        DeviceId, Direction, End, Errno, Exit, Nanos, On, QueueId, Reply, SystemCall, TaskInfo,
        TaskState, Tid,
    },
    event::Detail,
    frame::{Frame, Payload},
    os::Os,
    sched::Runnable,
    time::Timer,
};

/// A suspended program: a generator that yields calls, is resumed with replies, and leaves its
/// exit in the frame when it completes.
pub(crate) type Program = Pin<Box<dyn Coroutine<Yield = SystemCall, Resume = Reply, Return = ()>>>;

/// What a program may return: what it means as the exit of its task. That is `()`, a
/// `Result<(), E>` whose error can be shown, or nothing ever, as in `async |os| loop { .. }`.
#[diagnostic::on_unimplemented(
    message = "a program cannot return `{Self}`",
    label = "this program returns `{Self}`",
    note = "a program returns (), or Result<(), E> with an error that can be shown; for a result, \
            put it into a Queue or set a Promise"
)]
pub trait IntoExit {
    /// How a task ends that returned this.
    fn into_exit(self) -> Exit;
}

impl IntoExit for () {
    fn into_exit(self) -> Exit {
        Exit::Done
    }
}

impl<E: std::fmt::Display> IntoExit for Result<(), E> {
    fn into_exit(self) -> Exit {
        match self {
            Ok(()) => Exit::Done,
            Err(error) => Exit::Failed(error.to_string()),
        }
    }
}

/// `!`, the type of `loop { .. }`, by the only name that stable Rust has for it.
impl IntoExit for <fn() -> ! as Returns>::Type {
    fn into_exit(self) -> Exit {
        self
    }
}

/// Names the type that a function returns.
#[doc(hidden)]
pub trait Returns {
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

/// Makes a program of an async closure.
pub(crate) fn program<T: IntoExit>(
    frame: &Rc<Frame>,
    body: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> Program {
    let frame = Rc::clone(frame);
    Box::pin(Gen::new(move |co: Co<SystemCall, Reply>| {
        // Made here, the async block has room for it once, and not for its parts as well.
        let mut os = Os::new(co, frame);
        async move {
            let exit = body(&mut os).await.into_exit();
            os.frame().put(Payload::Exit(exit));
        }
    }))
}

/// The program of a task that has ended. Takes no memory.
pub(crate) fn ended() -> Program {
    struct Ended;

    impl Coroutine for Ended {
        type Yield = SystemCall;
        type Resume = Reply;
        type Return = ();

        fn resume_with(self: Pin<&mut Self>, _: Reply) -> GeneratorState<SystemCall, ()> {
            unreachable!("a task that has ended has no turn")
        }
    }

    Box::pin(Ended)
}

/// What a program panicked with.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs a program until it makes a call, or, with `None`, until it ends with its exit in the frame.
#[inline(always)]
pub(crate) fn resume(program: &mut Program, reply: Reply) -> Result<Option<SystemCall>, Panic> {
    match catch_unwind(AssertUnwindSafe(|| program.as_mut().resume_with(reply))) {
        Ok(GeneratorState::Yielded(call)) => Ok(Some(call)),
        Ok(GeneratorState::Complete(())) => Ok(None),
        Err(panic) => Err(panic),
    }
}

const NOT_A_TRAP: &str = "awaited a future that is pending and is not a trap: a task can await \
                          only the calls of its Os, and what is built on them";

/// Leaves the exit of a task whose resume panicked. A panic of the program has unwound through its
/// `Os`; one of the generator, which was left pending without having yielded, has not.
#[cold]
pub(crate) fn fault(frame: &Frame, panic: Panic) {
    // First of all: what is dropped here may have been on the way to be a program, too.
    let unwound = frame.unwound.take();
    // It may have begun a trap that it did not come to make.
    drop_payload(frame);
    frame.message.take();
    frame.len.take();
    frame.body.take();
    let message = panic_message(panic);
    frame.put(Payload::Exit(Exit::Faulted(if unwound {
        message
    } else {
        NOT_A_TRAP.into()
    })));
}

/// Drops what travels beside a call that was given up.
pub(crate) fn drop_payload(frame: &Frame) {
    let payload = frame.take();
    contain(|| drop(payload));
    // A panic that has unwound through an unborn program is not that of the next task.
    frame.unwound.set(false);
}

/// Where a live task is. It is in exactly one place.
#[derive(Debug)]
pub(crate) enum State {
    /// On the ready queue, to be resumed with this.
    Ready(Reply),
    /// On the ready queue, to be resumed with what comes of this.
    Owed(Answer),
    /// The current task.
    Running,
    /// With what it waits for.
    Blocked(Place),
    /// Ending: it has left every queue, and its program is being dropped.
    Ending,
    /// Ended, and waiting to be asked about it; this is what is answered then.
    Zombie(Answer),
}

impl State {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Owed(_))
    }

    /// What a ready task is to be resumed with, if nothing has to be done first and nothing goes
    /// with it.
    #[inline(always)]
    pub(crate) fn plain(&self) -> Option<Reply> {
        if let Self::Ready(reply) = *self {
            return Some(reply);
        }
        self.message()
    }

    /// Apart, so that the usual answer is one compare.
    #[inline(never)]
    fn message(&self) -> Option<Reply> {
        match *self {
            Self::Owed(Answer::Message(_, number)) => Some(Reply::Message(number)),
            _ => None,
        }
    }

    /// What a ready task will be resumed with, in words, if it is known by now.
    pub(crate) fn answer(&self) -> Option<(Reply, Detail<'_>)> {
        match self {
            Self::Ready(reply) => Some(reply.in_words()),
            Self::Owed(answer) => answer.known(),
            _ => None,
        }
    }
}

impl<A: Into<Answer>> From<A> for State {
    #[inline(always)]
    fn from(answer: A) -> Self {
        match answer.into() {
            Answer::Reply(reply) => Self::Ready(reply),
            owed => Self::Owed(owed),
        }
    }
}

/// The queue in which a blocked task waits, with what it takes to leave it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Exit(Runnable),
    Timer(Timer),
    Device(DeviceId, Direction, Then),
    Queue(QueueId, End),
}

impl From<Place> for On {
    fn from(place: Place) -> Self {
        match place {
            Place::Exit(target) => Self::Exit(target.tid),
            Place::Timer((deadline, _)) => Self::Timer(deadline),
            Place::Device(device, direction, _) => Self::Device(device, direction),
            Place::Queue(queue, end) => Self::Queue(queue, end),
        }
    }
}

/// What a task is to be answered that waits for a device, once that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Done,
    Again,
    /// To read off the device what has come, up to so many bytes.
    Recv(u32),
    /// To take a connection off the device.
    Accept,
}

/// What a call is answered with: a bare reply, or what it takes to make one up when the caller's
/// turn comes. Kept small, since every task has room for one.
#[derive(Debug)]
pub(crate) enum Answer {
    Reply(Reply),
    /// An exit that needs words. One that does not is the bare [`Reply::Exit`].
    Exit(Box<Exit>),
    Tasks(Box<[TaskInfo]>),
    Opened(DeviceId, Option<Box<SocketAddr>>),
    Io(io::Error),
    /// A message that was matched with the task.
    Message(QueueId, u64),
    /// A message that was not put, since there is no room: it is the caller's again.
    Full(QueueId, u64),
    /// A message that was not put, since the queue is closed: it is the caller's again.
    Refused(QueueId, u64),
    /// A timeout, to be started when its turn comes, so that it cannot come before its body has
    /// begun.
    Timeout(Timer),
    /// To be read off the device when its turn comes, so that a task that is killed before then
    /// takes no bytes with it.
    Recv {
        device: DeviceId,
        /// In bytes. A full word, since an answer that is words throughout is moved in registers.
        room: u64,
    },
    /// To be taken off the listener when its turn comes.
    Accept {
        device: DeviceId,
    },
}

impl Answer {
    /// The answer in words, once it is known.
    pub(crate) fn known(&self) -> Option<(Reply, Detail<'_>)> {
        Some(match self {
            Self::Reply(reply) => reply.in_words(),
            Self::Exit(exit) => (Reply::Exit, Detail::Exit(exit)),
            Self::Tasks(tasks) => (Reply::Tasks, Detail::Count(tasks.len())),
            Self::Opened(device, addr) => (
                Reply::Device(*device),
                addr.as_deref()
                    .map_or(Detail::None, |addr| Detail::Addr(*addr)),
            ),
            Self::Io(error) => (Reply::Io, Detail::Io(error)),
            Self::Message(_, number) | Self::Refused(_, number) => {
                (Reply::Message(*number), Detail::None)
            }
            Self::Full(_, number) => (Reply::Full(*number), Detail::None),
            Self::Timeout((_, number)) => (Reply::Timeout(*number), Detail::None),
            Self::Recv { .. } | Self::Accept { .. } => return None,
        })
    }
}

impl Reply {
    fn in_words(self) -> (Self, Detail<'static>) {
        let detail = match self {
            Self::Exit => Detail::Exit(&Exit::Done),
            _ => Detail::None,
        };
        (self, detail)
    }
}

impl From<Exit> for Answer {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Reply::Exit.into(),
            other => Self::Exit(Box::new(other)),
        }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl From<Errno> for Answer {
    fn from(errno: Errno) -> Self {
        Self::Reply(Reply::Err(errno))
    }
}

/// What a task leaves behind when it ends and nobody waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Legacy {
    /// A line in the host's report.
    Report,
    /// A zombie.
    Zombie,
    Nothing,
}

#[derive(Debug, Default)]
struct Links {
    first_child: Option<Slot>,
    next: Option<Slot>,
    previous: Option<Slot>,
}

/// A task's place in the table. The first is nobody's: so the lack of one takes no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// A place that no task has.
    pub(crate) const LAST: Self = Self(NonZeroU32::MAX);

    pub(crate) fn new(index: usize) -> Self {
        let number = u32::try_from(index).ok().and_then(NonZeroU32::new);
        Self(number.expect("a kernel has fewer tasks than there are slots"))
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.0.get() as usize
    }
}

/// What a turn touches comes first, and is a line of the cache.
#[repr(C, align(64))]
pub(crate) struct Task {
    pub(crate) tid: Tid,
    pub(crate) program: Program,
    pub(crate) traps: u64,
    pub(crate) state: State,
    /// When it was blocked last.
    pub(crate) since: Nanos,
    pub(crate) name: Rc<str>,
    /// The tasks that wait for this one to end, in order. Most have none, and no room for it.
    #[expect(
        clippy::box_collection,
        reason = "a word in each of a million tasks, rather than three"
    )]
    pub(crate) waiters: Option<Box<VecDeque<Runnable>>>,
    /// The timeouts around its call that have been started, the outermost first.
    #[expect(
        clippy::box_collection,
        reason = "a word in each of a million tasks, rather than three"
    )]
    pub(crate) timeouts: Option<Box<Vec<Timer>>>,
    /// The parent while it lives.
    parent: Option<Slot>,
    links: Links,
    pub(crate) legacy: Legacy,
}

impl Task {
    /// Changes the state of a task whose state has nothing to drop: it is running, or its reply was
    /// taken. Saves the hot path from asking.
    #[inline(always)]
    pub(crate) fn change(&mut self, state: State) {
        std::mem::forget(std::mem::replace(&mut self.state, state));
    }

    pub(crate) fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.state, State::Ending | State::Zombie(_))
    }

    pub(crate) fn add_waiter(&mut self, waiter: Runnable) {
        self.waiters.get_or_insert_default().push_back(waiter);
    }

    pub(crate) fn forget_waiter(&mut self, waiter: Runnable) {
        if let Some(waiters) = &mut self.waiters
            && let Some(at) = find_waiter(waiters, |other| *other == waiter)
        {
            waiters.remove(at);
        }
    }

    /// Takes one of its timeouts, and then those within it.
    pub(crate) fn take_timeouts(&mut self, number: u64) -> impl Iterator<Item = Timer> {
        let timeouts = self.timeouts.as_deref_mut().into_iter();
        timeouts.flat_map(move |timeouts| {
            let outer = timeouts.iter().take_while(|(_, other)| *other != number);
            let outer = outer.count();
            timeouts.drain(outer..)
        })
    }

    fn info(&self, parent: Tid) -> TaskInfo {
        let state = match &self.state {
            State::Ready(_) | State::Owed(_) => TaskState::Ready,
            State::Running | State::Ending => TaskState::Running,
            State::Blocked(place) => TaskState::Blocked {
                on: (*place).into(),
                since: self.since.into(),
            },
            State::Zombie(answer) => match answer.known() {
                Some((_, Detail::Exit(exit))) => TaskState::Zombie(exit.clone()),
                _ => unreachable!("a zombie answers with its exit"),
            },
        };
        TaskInfo {
            tid: self.tid,
            name: self.name.to_string(),
            parent,
            state,
            traps: self.traps,
        }
    }
}

/// Finds one who wants to wait no longer. Whoever began last is most likely to leave first; but
/// those with equal timeouts leave in order.
pub(crate) fn find_waiter<T>(waiters: &VecDeque<T>, is: impl Fn(&T) -> bool) -> Option<usize> {
    if waiters.front().is_some_and(&is) {
        return Some(0);
    }
    waiters.iter().rposition(is)
}

/// The task map. Tasks live in numbered slots, to which the queues lead directly; the list by tid
/// serves kill, wait and `ps`.
pub(crate) struct Tasks {
    slots: Vec<Task>,
    /// The slots whose tasks are gone. Such a task has the number 0, which is nobody's.
    free: Vec<Slot>,
    by_tid: ByTid,
    last: u64,
    /// How many have not ended.
    live: usize,
    /// The tasks that count nowhere and are in no list.
    daemons: ByTid,
    last_daemon: u64,
}

impl Default for Tasks {
    fn default() -> Self {
        let nobody = Task {
            tid: Tid::KERNEL,
            program: ended(),
            traps: 0,
            state: State::Ending,
            since: Nanos::ZERO,
            name: Rc::default(),
            waiters: None,
            timeouts: None,
            parent: None,
            links: Links::default(),
            legacy: Legacy::Nothing,
        };
        Self {
            slots: vec![nobody],
            free: Vec::new(),
            by_tid: ByTid::default(),
            last: 0,
            live: 0,
            daemons: ByTid::default(),
            last_daemon: 0,
        }
    }
}

impl Tasks {
    /// Adds a task and answers its name on the queues. A parent's children are a list through
    /// their links, the youngest first.
    pub(crate) fn insert(
        &mut self,
        name: Rc<str>,
        program: Program,
        parent: Option<Runnable>,
        legacy: Legacy,
        is_daemon: bool,
    ) -> Runnable {
        let tid = self.next_tid(is_daemon);
        let next = parent.and_then(|parent| self[parent].links.first_child);
        let newborn = Task {
            tid,
            program,
            traps: 0,
            state: State::Ready(Reply::Done),
            since: Nanos::ZERO,
            legacy,
            name,
            parent: parent.map(|parent| parent.slot),
            waiters: None,
            timeouts: None,
            links: Links {
                first_child: None,
                next,
                previous: None,
            },
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot.index()] = newborn;
                slot
            }
            None => {
                self.slots.push(newborn);
                Slot::new(self.slots.len() - 1)
            }
        };
        if let Some(next) = next {
            self.at(next).links.previous = Some(slot);
        }
        if let Some(parent) = parent {
            self[parent].links.first_child = Some(slot);
        }
        let task = Runnable { tid, slot };
        if is_daemon {
            self.daemons.all.push(task);
        } else {
            self.by_tid.all.push(task);
            self.live += 1;
        }
        task
    }

    fn next_tid(&mut self, is_daemon: bool) -> Tid {
        if is_daemon {
            self.last_daemon += 1;
            Tid::from(Tid::DAEMONS + self.last_daemon)
        } else {
            self.last += 1;
            Tid::from(self.last)
        }
    }

    /// The number of live tasks, daemons apart.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// How many turns the daemons have had that are there.
    pub(crate) fn daemon_turns(&self) -> u64 {
        let daemons = self.daemons.iter(&self.slots);
        daemons.map(|task| self[task].traps).sum()
    }

    /// Whether any task is ready, daemons apart.
    pub(crate) fn is_any_ready(&self) -> bool {
        let mut tasks = self.by_tid.iter(&self.slots);
        tasks.any(|task| self[task].state.is_ready())
    }

    /// Marks that a task has ended.
    pub(crate) fn ended(&mut self, task: Runnable) {
        self.live -= usize::from(!task.tid.is_daemon());
    }

    /// Whether a queue's entry still stands for a task, or that has ended meanwhile.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, task: Runnable) -> Option<&mut Task> {
        self.slots
            .get_mut(task.slot.index())
            .filter(|found| found.tid == task.tid)
    }

    /// Brings nearer what the turns of these tasks will touch: the task that comes in a while, and
    /// the program of one that comes sooner, which the former has led to. What a generator owns
    /// was allocated just before it, and so mostly lies before it.
    #[inline(always)]
    pub(crate) fn fetch(&self, rest: &[Runnable]) {
        const AHEAD: usize = 16;
        const LINE: usize = 64;
        let task = |at: usize| self.slots.get(rest.get(at)?.slot.index());
        if let Some(task) = task(AHEAD) {
            prefetch(ptr::from_ref(task).cast());
        }
        if let Some(task) = task(AHEAD / 2) {
            let program = ptr::from_ref(&*task.program).cast::<u8>();
            for line in 0..3 {
                prefetch(program.wrapping_sub(line * LINE));
            }
        }
    }

    /// The task of that number, zombie or alive.
    pub(crate) fn find(&self, tid: Tid) -> Option<Runnable> {
        let list = if tid.is_daemon() {
            &self.daemons
        } else {
            &self.by_tid
        };
        list.find(tid).filter(|task| is_there(&self.slots, *task))
    }

    /// The live tasks, the youngest first; daemons last.
    pub(crate) fn youngest_first(&self) -> Vec<Runnable> {
        let all = self.daemons.iter(&self.slots);
        let all = all.chain(self.by_tid.iter(&self.slots)).rev();
        all.filter(|task| self[*task].is_live()).collect()
    }

    /// Every task, by tid, daemons included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        let all = self.by_tid.iter(&self.slots);
        let all = all.chain(self.daemons.iter(&self.slots));
        all.map(|task| &self[task])
    }

    /// A line per task, by tid; none for daemons.
    pub(crate) fn infos(&self) -> impl Iterator<Item = TaskInfo> {
        self.by_tid.iter(&self.slots).map(|task| {
            let task = &self[task];
            let parent = task.parent.map(|parent| self.slots[parent.index()].tid);
            task.info(parent.unwrap_or(Tid::KERNEL))
        })
    }

    /// Forgets a task that has ended and answers its state.
    pub(crate) fn remove(&mut self, task: Runnable) -> State {
        self.unlink(task);
        self.free.push(task.slot);
        let gone = &mut self[task];
        gone.tid = Tid::KERNEL;
        let state = std::mem::replace(&mut gone.state, State::Ending);
        let list = if task.tid.is_daemon() {
            &mut self.daemons
        } else {
            &mut self.by_tid
        };
        list.forget(task, &self.slots);
        state
    }

    /// Takes the youngest child out of its family: an orphan from now on.
    pub(crate) fn release_child(&mut self, parent: Runnable) -> Option<Runnable> {
        let slot = self[parent].links.first_child?;
        let child = self.in_slot(slot);
        self.unlink(child);
        Some(child)
    }

    fn unlink(&mut self, task: Runnable) {
        let this = &mut self[task];
        let Some(parent) = this.parent.take() else {
            return;
        };
        let (next, previous) = (this.links.next.take(), this.links.previous.take());
        if let Some(next) = next {
            self.at(next).links.previous = previous;
        }
        match previous {
            Some(previous) => self.at(previous).links.next = next,
            None => self.at(parent).links.first_child = next,
        }
    }

    /// The task in a slot that has one, by its name on the queues.
    pub(crate) fn in_slot(&self, slot: Slot) -> Runnable {
        let tid = self.slots[slot.index()].tid;
        Runnable { tid, slot }
    }

    fn at(&mut self, slot: Slot) -> &mut Task {
        &mut self.slots[slot.index()]
    }
}

/// Tasks by tid. Tids only rise, so that a list which is appended to stays in order. Who is gone is
/// still on it, for to look for him would cost more than the rest of his end; when half of them are
/// gone, they are swept out.
#[derive(Default)]
struct ByTid {
    all: Vec<Runnable>,
    /// How many of them are gone.
    gone: usize,
}

impl ByTid {
    /// The task of that number, if it was ever there. Whoever was born last is asked about most.
    fn find(&self, tid: Tid) -> Option<Runnable> {
        let last = self.all.last().filter(|last| last.tid == tid);
        let found = last.or_else(|| {
            let at = self.all.binary_search_by_key(&tid, |task| task.tid);
            self.all.get(at.ok()?)
        });
        found.copied()
    }

    fn iter(&self, slots: &[Task]) -> impl DoubleEndedIterator<Item = Runnable> {
        let all = self.all.iter().copied();
        all.filter(|task| is_there(slots, *task))
    }

    /// Takes note that a task is gone from its slot.
    fn forget(&mut self, task: Runnable, slots: &[Task]) {
        if self.all.pop_if(|last| *last == task).is_none() {
            self.gone += 1;
        }
        if self.gone > 16 + self.all.len() / 2 {
            self.all.retain(|task| is_there(slots, *task));
            self.gone = 0;
        }
    }
}

/// Whether a task is in its slot, zombie or alive.
fn is_there(slots: &[Task], task: Runnable) -> bool {
    slots
        .get(task.slot.index())
        .is_some_and(|found| found.tid == task.tid)
}

impl Index<Runnable> for Tasks {
    type Output = Task;

    fn index(&self, task: Runnable) -> &Task {
        &self.slots[task.slot.index()]
    }
}

impl IndexMut<Runnable> for Tasks {
    fn index_mut(&mut self, task: Runnable) -> &mut Task {
        &mut self.slots[task.slot.index()]
    }
}

/// Asks for a line of memory that will be needed. A million tasks in no order switch six times
/// faster for it.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    #[expect(
        unsafe_code,
        reason = "270 ns a switch among a million tasks become 40"
    )]
    // SAFETY: a prefetch is a hint; at no address does it read, write or fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// The text of a panic. A payload whose own destructor panics is leaked.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let message = match panic.downcast_ref::<&str>() {
        Some(text) => (*text).to_string(),
        None => match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => "panicked with a value that is not text".to_string(),
        },
    };
    if let Err(worse) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(worse);
    }
    message
}

/// Runs destructors. One that panics is its own end and nobody else's.
pub(crate) fn contain(destructors: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(destructors)) {
        let message = panic_message(panic);
        tracing::warn!(target: "trapline::kernel", "a destructor panicked: {message}");
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn what_a_turn_touches_is_a_line_of_the_cache() {
        assert_eq!(std::mem::offset_of!(Task, since), 64);
        assert_eq!(size_of::<Task>(), 128);
    }
}
