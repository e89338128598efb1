//! A task: its program, its state and its family. The table that holds them all is `table.rs`.
//!
//! The life of a task, with the function that moves it on:
//!
//! ```text
//!  admit ──> Ready ──turn──> Running ──dispatch──> Ready
//!              ^                │
//!              │ wake           ├──block──> Blocked
//!              └────────────────┼──────────────┘
//!                               └──end (from any state)──> Ending ──> Zombie ──> reaped
//! ```

use std::{collections::VecDeque, rc::Rc};

use super::timers::Timer;
use crate::{
    abi::{
        DeviceId, Direction, End, Exit, Nanos, On, QueueId, Reply, TaskInfo, TaskState, Tid, Wait,
    },
    log::Detail,
    sched::{Runnable, Slot},
    trap::{Keeper, Payload, Program},
};

/// Where a live task is. It is in exactly one place.
#[derive(Debug)]
pub(super) enum State {
    /// On the ready queue, to be resumed with this answer.
    Ready(Answer),
    /// The same, with a timeout around it that is due: it cuts the next call.
    Late(Box<Answer>),
    /// On the ready queue, with something to do before its answer is known.
    Pending(Pending),
    /// The current task.
    Running,
    /// In the queue of what it waits for.
    Blocked(WaitingOn),
    /// Ending: it has left every queue, and its program is being dropped.
    Ending,
    /// Ended; the exit is kept until a task waits for it. [`Exit::Done`] needs no memory.
    Zombie(Option<Box<Exit>>),
}

impl State {
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Late(_) | Self::Pending(_))
    }

    pub(super) fn zombie(exit: &Exit) -> Self {
        let words = *exit != Exit::Done;
        Self::Zombie(words.then(|| Box::new(exit.clone())))
    }

    /// The reply of a ready task, unless something has to be done before it is resumed.
    #[inline(always)]
    pub(super) fn plain(&self) -> Option<Reply> {
        match self {
            Self::Ready(Answer { reply, beside }) if !matches!(beside, Beside::Payload(_)) => {
                Some(*reply)
            }
            _ => None,
        }
    }
}

impl<A: Into<Answer>> From<A> for State {
    #[inline(always)]
    fn from(answer: A) -> Self {
        Self::Ready(answer.into())
    }
}

/// What a call is answered with: a reply word, and at most one thing beside it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) beside: Beside,
}

/// What goes with a reply.
#[derive(Debug)]
pub(super) enum Beside {
    Nothing,
    /// The call was a yield, or a sleep that is over: a due timeout replaces its answer.
    Rest,
    /// The queue of the message that the reply hands out or hands back.
    Queue(QueueId),
    /// Does not fit in the reply word.
    Payload(Box<Payload>),
}

impl Answer {
    /// The answer of a yield, and of a sleep that is over.
    pub(super) const REST: Self = Self {
        reply: Reply::Done,
        beside: Beside::Rest,
    };

    pub(super) fn with(reply: Reply, payload: Payload) -> Self {
        let beside = Beside::Payload(Box::new(payload));
        Self { reply, beside }
    }

    /// A message of this queue is the caller's.
    pub(super) fn message(reply: Reply, queue: QueueId) -> Self {
        let beside = Beside::Queue(queue);
        Self { reply, beside }
    }

    /// How a task ended. [`Exit::Done`] needs no payload.
    pub(super) fn exit(exit: Exit) -> Self {
        match exit {
            Exit::Done => Reply::Exit.into(),
            other => Self::with(Reply::Exit, Payload::Exit(other)),
        }
    }

    pub(super) fn is_rest(&self) -> bool {
        matches!(self.beside, Beside::Rest)
    }

    /// What travels beside the reply, as the log tells it.
    pub(super) fn detail(&self) -> Detail<'_> {
        match &self.beside {
            Beside::Payload(payload) => payload.detail(),
            _ if self.reply == Reply::Exit => Detail::Exit(&Exit::Done),
            _ => Detail::None,
        }
    }
}

impl<R: Into<Reply>> From<R> for Answer {
    #[inline(always)]
    fn from(reply: R) -> Self {
        Self {
            reply: reply.into(),
            beside: Beside::Nothing,
        }
    }
}

/// What has to be done at a task's turn, before its answer is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A read off a device: a task that is killed before its turn takes nothing with it.
    Read(DeviceId, ReadOp),
    /// The start of a timeout: it cannot fire before its body has begun.
    StartTimeout(Timer),
    /// A call, or an end, that the console has held back under this number.
    Held(u64),
}

impl From<Pending> for State {
    fn from(pending: Pending) -> Self {
        Self::Pending(pending)
    }
}

/// What a task takes off a device.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadOp {
    /// Up to so many bytes.
    Bytes(u32),
    Connection,
}

/// The queue in which a blocked task waits, with what it takes to leave it.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitingOn {
    Exit(Runnable),
    Timer(Timer),
    Device(DeviceId, Direction, Then),
    Queue(QueueId, End),
    /// For room at the console, with its call held back under this number.
    Console(u64),
}

impl From<WaitingOn> for On {
    fn from(on: WaitingOn) -> Self {
        match on {
            WaitingOn::Exit(target) => Self::Exit(target.tid),
            WaitingOn::Timer((deadline, _)) => Self::Timer(deadline),
            WaitingOn::Device(device, direction, _) => Self::Device(device, direction),
            WaitingOn::Queue(queue, end) => Self::Queue(queue, end),
            WaitingOn::Console(_) => Self::Device(DeviceId::CONSOLE, Direction::Write),
        }
    }
}

/// What follows when the device is ready.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// The caller asked for readiness alone.
    Done,
    /// The caller tries its call again.
    Again,
    Read(ReadOp),
}

/// What a handler decides. The loop acts on it: no handler touches the ready queue for its caller.
#[must_use]
pub(super) enum Outcome {
    /// The caller goes to the back of the ready queue, in this state.
    Ready(State),
    /// The same, and its new child goes behind it.
    Parent(State, Runnable),
    /// The caller waits, where the handler has put it.
    Blocked,
    /// The caller ends, with this exit.
    Exit(Exit),
    /// The caller has ended, with all other tasks.
    Gone,
}

impl<S: Into<State>> From<S> for Outcome {
    #[inline(always)]
    fn from(state: S) -> Self {
        Self::Ready(state.into())
    }
}

/// What remains of a task that has ended while no task waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnExit {
    /// A line in the host's report.
    Report,
    /// A zombie.
    Zombie,
    Nothing,
}

/// The timeouts around a task's calls.
#[derive(Default, Debug)]
pub(super) struct Timeouts {
    /// Those that have yet to fire, the outermost first.
    pub(super) armed: Vec<Timer>,
    /// The outermost that has fired and has not cut yet. Those within it are disarmed.
    pub(super) due: Option<Due>,
}

/// A timeout that has fired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// Whether it has let an answer through: then it cuts the next call before its effect.
    pub(super) spent: bool,
}

#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) first_child: Option<Slot>,
    pub(super) next: Option<Slot>,
    pub(super) previous: Option<Slot>,
}

/// What waits for a task to end.
#[derive(Default)]
pub(super) struct Waiters {
    /// In order.
    pub(super) tasks: VecDeque<Runnable>,
    pub(super) keeper: Option<Rc<dyn Keeper>>,
}

/// What a turn touches comes first, and is a line of the cache.
#[repr(C, align(64))]
pub(super) struct Task {
    pub(super) tid: Tid,
    pub(super) program: Program,
    pub(super) traps: u64,
    pub(super) state: State,
    /// When it was blocked last.
    pub(super) since: Nanos,
    pub(super) name: Rc<str>,
    /// What waits for this one to end. Most tasks have nothing, and no room for it.
    pub(super) waiters: Option<Box<Waiters>>,
    pub(super) timeouts: Option<Box<Timeouts>>,
    /// The parent while it lives.
    pub(super) parent: Option<Slot>,
    pub(super) links: Links,
    pub(super) on_exit: OnExit,
}

impl Task {
    /// Changes a state that owns nothing: the task is running, or its reply was taken. The hot path
    /// is spared the drop.
    #[inline(always)]
    pub(super) fn change(&mut self, state: State) {
        std::mem::forget(std::mem::replace(&mut self.state, state));
    }

    pub(super) fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, State::Ending | State::Zombie(_))
    }

    pub(super) fn add_waiter(&mut self, waiter: Runnable) {
        let waiters = self.waiters.get_or_insert_default();
        waiters.tasks.push_back(waiter);
    }

    pub(super) fn forget_waiter(&mut self, waiter: Runnable) {
        if let Some(waiters) = &mut self.waiters
            && let Some(at) = find_waiter(&waiters.tasks, |other| *other == waiter)
        {
            waiters.tasks.remove(at);
        }
    }

    /// Takes one of its armed timeouts, and then those within it.
    pub(super) fn take_timeouts(&mut self, number: u64) -> impl Iterator<Item = Timer> {
        let timeouts = self.timeouts.as_deref_mut().into_iter();
        timeouts.flat_map(move |timeouts| {
            let outer = timeouts.armed.iter();
            let outer = outer.take_while(|(_, other)| *other != number).count();
            timeouts.armed.drain(outer..)
        })
    }

    /// The timeout that is due, if one is.
    pub(super) fn due(&self) -> Option<Due> {
        self.timeouts.as_ref()?.due
    }

    /// Whether a timeout can end a wait of its.
    pub(super) fn is_timed(&self) -> bool {
        self.timeouts.as_ref().is_some_and(|timeouts| {
            let ends = |(deadline, _): &Timer| *deadline != Nanos::FOREVER;
            timeouts.due.is_some() || timeouts.armed.iter().any(ends)
        })
    }

    pub(super) fn set_due(&mut self, due: Option<Due>) {
        self.timeouts.get_or_insert_default().due = due;
    }

    pub(super) fn info(&self, parent: Tid) -> TaskInfo {
        let state = match &self.state {
            State::Ready(_) | State::Late(_) | State::Pending(_) => TaskState::Ready,
            State::Running | State::Ending => TaskState::Running,
            State::Blocked(on) => TaskState::Blocked {
                on: (*on).into(),
                since: self.since.into(),
            },
            State::Zombie(exit) => {
                TaskState::Zombie(exit.as_deref().cloned().unwrap_or(Exit::Done))
            }
        };
        TaskInfo {
            tid: self.tid,
            name: self.name.to_string(),
            parent,
            state,
            traps: self.traps,
            wait: Wait {
                is_timed: self.is_timed(),
                ..Wait::default()
            },
        }
    }
}

/// Finds one who wants to wait no longer. Whoever began last is most likely to leave first; but
/// those with equal timeouts leave in order.
pub(super) fn find_waiter<T>(waiters: &VecDeque<T>, is: impl Fn(&T) -> bool) -> Option<usize> {
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
