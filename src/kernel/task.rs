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

use std::{collections::VecDeque, io, net::SocketAddr, rc::Rc};

use super::timers::Timer;
use crate::{
    abi::{
        DeviceId, Direction, End, Errno, Exit, Nanos, On, QueueId, Reply, TaskInfo, TaskState, Tid,
    },
    log::Detail,
    sched::{Runnable, Slot},
    trap::Program,
};

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
            Self::Read(..) => return None,
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

/// What a handler decides. The loop acts on it: no handler touches the ready queue for its caller.
///
/// Two words wide, so that it stays in registers: richer answers are left with the task.
#[must_use]
pub(super) enum Outcome {
    /// The caller goes to the back of the ready queue with this reply.
    Reply(Reply),
    /// The same, with an answer that the handler has left with it.
    Answered,
    /// The caller waits, where the handler has put it.
    Blocked,
    /// The caller ends, with the exit in the frame.
    Exit,
    /// The caller has ended, with everybody else.
    Gone,
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
pub(super) struct Links {
    pub(super) first_child: Option<Slot>,
    pub(super) next: Option<Slot>,
    pub(super) previous: Option<Slot>,
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
    pub(super) parent: Option<Slot>,
    pub(super) links: Links,
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

    pub(super) fn info(&self, parent: Tid) -> TaskInfo {
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

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn what_a_turn_touches_is_a_line_of_the_cache() {
        assert_eq!(std::mem::offset_of!(Task, since), 64);
        assert_eq!(size_of::<Task>(), 128);
    }
}
