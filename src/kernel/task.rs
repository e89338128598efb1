//! A task: its program, its state and its family. `table.rs` is the table of all tasks.
//!
//! The states of a task, with the functions that change them:
//!
//! ```text
//!  admit ──> Ready ──turn──> Running ──dispatch──> Ready
//!              ^                │
//!              │ wake           ├──block──> Blocked
//!              └────────────────┼──────────────┘
//!                               └──end (from any state)──> Ending ──> Zombie ──> reaped
//! ```

use std::rc::Rc;

use super::{
    answer::{Answer, Beside},
    deadlines::Timeouts,
    held::Ticket,
    timers::Timer,
    waiters::Waiters,
};
use crate::{
    abi::{DeviceId, Direction, End, Exit, HostId, Nanos, QueueId, Reply, Tid},
    sched::{Runnable, Slot},
    trap::Program,
};

/// The place of a live task: exactly one.
#[derive(Debug)]
pub(super) enum State {
    /// On the ready queue; the task is resumed with this answer.
    Ready(Answer),
    /// The same, with a due timeout around it, which cuts the next call.
    Late(Box<Answer>),
    /// On the ready queue; work at its turn determines the answer.
    Pending(Pending),
    /// The current task.
    Running,
    /// On a processor, which `processors.rs` keeps.
    Computing,
    /// In the queue of what the task waits for.
    Blocked(WaitingOn),
    /// Off every queue; its program is being dropped.
    Ending,
    /// Ended; a task that waits takes the exit. [`Exit::Done`] needs no memory.
    Zombie(Option<Box<Exit>>),
}

impl State {
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Late(_) | Self::Pending(_))
    }

    pub(super) fn zombie(exit: &Exit) -> Self {
        let is_done = matches!(exit, Exit::Done);
        Self::Zombie((!is_done).then(|| Box::new(exit.clone())))
    }

    /// Returns the reply of a ready task, unless its turn begins with other work.
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

/// Work at the begin of a turn, which determines the answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A read from a device. At the turn, so that a task killed before it consumes no input.
    Read(DeviceId, ReadOp),
    /// The start of a timeout. At the turn, so that it cannot fire before its body begins.
    StartTimeout(Timer),
    /// A call or an end that was held back.
    Held(Ticket),
    /// What is left of a computation. The turn gives it a processor.
    Compute(Nanos),
}

impl From<Pending> for State {
    fn from(pending: Pending) -> Self {
        Self::Pending(pending)
    }
}

/// What a task reads from a device.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadOp {
    /// At most this number of bytes.
    Bytes(u32),
    Connection,
}

/// The queue in which a blocked task waits, and its position there.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitingOn {
    Exit(Runnable),
    Timer(Timer),
    Device(DeviceId, Direction, Then),
    Queue(QueueId, End),
    /// Room at the console. The call is held back under this number.
    Console(u64),
    /// The end of a delay. The call is held back.
    Delay(Timer),
}

/// What follows when a device is ready.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// The caller asked only for readiness.
    Done,
    /// The caller makes its call again.
    Again,
    Read(ReadOp),
}

/// What remains of a task that ends while no task waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnExit {
    /// A line in the host's report.
    Report,
    /// A zombie.
    Zombie,
    Nothing,
}

/// The places of a task in its family.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) first_child: Option<Slot>,
    pub(super) next: Option<Slot>,
    pub(super) previous: Option<Slot>,
}

/// A task. The fields that a turn touches come first and fill one cache line.
#[repr(C, align(64))]
pub(super) struct Task {
    pub(super) tid: Tid,
    pub(super) program: Program,
    pub(super) traps: u64,
    pub(super) state: State,
    /// The time at which it last blocked.
    pub(super) since: Nanos,
    pub(super) name: Rc<str>,
    /// What waits for the end of this task; `None`, without memory, for most tasks.
    pub(super) waiters: Option<Box<Waiters>>,
    pub(super) timeouts: Option<Box<Timeouts>>,
    /// The parent, while it is alive.
    pub(super) parent: Option<Slot>,
    pub(super) links: Links,
    pub(super) on_exit: OnExit,
    /// The machine on which it runs.
    pub(super) host: HostId,
}

impl Task {
    /// Replaces a state that owns nothing: the task is running, or its reply was taken. The old
    /// state is not dropped, which saves the hot path a branch.
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
