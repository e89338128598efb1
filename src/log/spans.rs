//! The books of a task, and the spans that are drawn from them.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use super::{
    Detail, Wake,
    calls::{Around, CallInfo},
};
use crate::abi::{Exit, Interest, On, Place, QueueId, Tid};

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Moment {
    /// The time since boot.
    pub at: Duration,
    /// The number of turns and of jumps of the clock so far: progress while a virtual clock does not
    /// move.
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

/// A moment, and the number of gaps in the log before it.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) moment: Moment,
    pub(super) gaps: u64,
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

impl Span {
    /// How long it took.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.to.at.saturating_sub(self.from.at)
    }

    /// Returns whether a task ran, or the kernel worked at its call.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.tid.is_kernel() && matches!(self.doing, Doing::Running | Doing::InCall)
    }

    pub(super) fn has_length(&self) -> bool {
        self.from != self.to
    }
}

pub(super) struct Task {
    pub(super) comm: Box<str>,
    pub(super) parent: Tid,
    pub(super) spawned: Option<Place>,
    pub(super) is_daemon: bool,
    pub(super) limits: Option<Rc<str>>,
    /// Whether the log holds its spawn, and so all its calls.
    pub(super) is_whole: bool,
    pub(super) traps: u64,
    /// The oldest first.
    pub(super) calls: VecDeque<CallInfo>,
    pub(super) doing: Doing,
    pub(super) since: Now,
    pub(super) is_delayed: bool,
    /// The lock or the permit that it has from its next turn on.
    pub(super) gets: Option<QueueId>,
    /// What is around its next call, the outermost first.
    pub(super) timeouts: Vec<(u64, Around)>,
    pub(super) exit: Option<Box<Exit>>,
}

impl Task {
    /// A task whose spawn the log does not hold, or that has done nothing yet.
    pub(super) fn unknown(since: Now) -> Self {
        Self {
            comm: "?".into(),
            parent: Tid::KERNEL,
            spawned: None,
            is_daemon: false,
            limits: None,
            is_whole: false,
            traps: 0,
            calls: VecDeque::new(),
            doing: Doing::Ready,
            since,
            is_delayed: false,
            gets: None,
            timeouts: Vec::new(),
            exit: None,
        }
    }

    /// Begins a state. Returns the span of the state before, if it is known.
    pub(super) fn begin(&mut self, tid: Tid, doing: Doing, end: Ending, now: Now) -> Option<Span> {
        let is_known = self.is_known(now.gaps);
        let before = std::mem::replace(&mut self.doing, doing);
        let since = std::mem::replace(&mut self.since, now);
        let span = Span {
            tid,
            doing: before,
            from: since.moment,
            to: now.moment,
            end,
        };
        // The kernel has read for the task, or answered, in no time.
        let is_short = before == Doing::InCall && end == Ending::Next && !span.has_length();
        (is_known && !is_short).then_some(span)
    }

    /// Returns whether no events are missing since its state began, or do not matter.
    pub(super) fn is_known(&self, gaps: u64) -> bool {
        self.since.gaps == gaps || matches!(self.doing, Doing::Blocked(_))
    }

    /// Returns what the last call selects among.
    pub(super) fn sources(&self) -> &[Interest] {
        match self.calls.back().map(|call| &call.detail) {
            Some(Detail::Sources(sources)) => sources,
            _ => &[],
        }
    }

    pub(super) fn pending(&self) -> Option<&CallInfo> {
        self.calls.back().filter(|call| call.reply.is_none())
    }

    /// Takes away a timeout, and those within it.
    pub(super) fn disarm(&mut self, number: u64) {
        let mut timeouts = self.timeouts.iter();
        if let Some(outer) = timeouts.position(|(other, _)| *other == number) {
            self.timeouts.truncate(outer);
        }
    }

    pub(super) fn is_timed(&self) -> bool {
        let shield = |around: &&(u64, Around)| around.1 != Around::Shield;
        let mut within = self.timeouts.iter().rev().take_while(shield);
        within.any(|(_, around)| *around == Around::Timeout)
    }
}
