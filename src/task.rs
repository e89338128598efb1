//! A task: its program, its state and its family. The table that holds them all is in `table.rs`.
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

mod table;

use std::{
    any::Any,
    collections::VecDeque,
    io,
    net::SocketAddr,
    num::NonZeroU32,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
};

pub(crate) use table::Tasks;

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
    /// For room at the console, with its call held back under this number.
    Console(u64),
}

impl From<Place> for On {
    fn from(place: Place) -> Self {
        match place {
            Place::Exit(target) => Self::Exit(target.tid),
            Place::Timer((deadline, _)) => Self::Timer(deadline),
            Place::Device(device, direction, _) => Self::Device(device, direction),
            Place::Queue(queue, end) => Self::Queue(queue, end),
            Place::Console(_) => Self::Device(DeviceId::CONSOLE, Direction::Write),
        }
    }
}

/// What a task is to be answered that waits for a device, once that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Done,
    Again,
    Read(Read),
}

/// What a task takes off a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// Up to so many bytes.
    Bytes(u32),
    Connection,
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
    /// takes nothing with it.
    Read(DeviceId, Read),
    /// Nothing yet: its call was held back under this number, and is handled when its turn comes.
    Held(u64),
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
            Self::Read(..) | Self::Held(_) => return None,
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
