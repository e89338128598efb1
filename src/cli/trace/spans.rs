//! What each task did at every moment, derived from a log of events: it ran, it was ready, or it
//! was blocked. The commands that show a whole recording use it.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{DeviceId, Direction, End, Event, Fact, On, SystemCall, Tid, Wake};

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Moment {
    /// The time since boot.
    pub(super) at: Duration,
    /// The number of turns so far, plus the number of jumps of the clock. It measures progress
    /// while a virtual clock does not move.
    pub(super) turn: u64,
}

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    /// It has its turn, up to its next trap.
    Running,
    /// It waits for its turn.
    Ready,
    /// It waits for something else.
    Blocked(On),
}

/// A span of one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) tid: Tid,
    pub(super) doing: Doing,
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) end: Ending,
}

/// How a span ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Its turn began or ended.
    Next,
    /// Its wait ended; with the task that woke it, if a task did.
    Woken { by: Wake, waker: Option<Tid> },
    /// The task ended.
    Exited,
    /// The log ended first.
    Open,
}

/// An open span.
struct Open {
    doing: Doing,
    from: Moment,
    /// The number of gaps before it began.
    gaps: u64,
}

/// Builds spans from events, which it takes in order.
#[derive(Default)]
pub(super) struct Spans {
    now: Moment,
    /// The state of each live task.
    open: BTreeMap<Tid, Open>,
    /// The number of gaps so far.
    gaps: u64,
    /// The task whose call is being handled; it wakes others.
    running: Option<Tid>,
}

impl Spans {
    /// The moment of the last event.
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// Takes the next event. Returns the span that it ends, if any.
    pub(super) fn event(&mut self, event: &Event<'_>) -> Option<Span> {
        let tid = event.tid;
        self.now.at = event.at;
        match event.fact {
            Fact::Spawned { .. } => self.begin(tid, Doing::Ready, Ending::Next),
            Fact::Resumed => {
                let ready = self.begin(tid, Doing::Running, Ending::Next);
                self.running = Some(tid);
                self.now.turn += 1;
                ready
            }
            Fact::Trapped { call, .. } => {
                // These wake no task, and are answered at the next turn.
                if let SystemCall::Recv(_) | SystemCall::Accept(_) = call {
                    self.running = None;
                }
                self.begin(tid, Doing::Ready, Ending::Next)
            }
            Fact::Replied { .. } => {
                self.running = self.running.filter(|running| *running != tid);
                None
            }
            Fact::Blocked { on } => {
                self.running = self.running.filter(|running| *running != tid);
                let ready = self.begin(tid, Doing::Blocked(on), Ending::Next);
                // The time between a trap and its block is zero.
                ready.filter(|span| span.from != span.to)
            }
            Fact::Woken { by } => {
                let waker = match by {
                    Wake::Exit(tid) => Some(tid),
                    Wake::Queue(_) | Wake::Closed(_) => self.running,
                    Wake::Timer | Wake::Device(..) | Wake::Timeout => None,
                };
                self.begin(tid, Doing::Ready, Ending::Woken { by, waker })
            }
            Fact::Computing { .. } => self.begin(tid, Doing::Running, Ending::Next),
            Fact::Preempted { .. } => self.begin(tid, Doing::Ready, Ending::Next),
            Fact::Exited { .. } => {
                self.running = self.running.filter(|running| *running != tid);
                self.end(tid, Ending::Exited)
            }
            Fact::ClockJumped { .. } => {
                self.running = None;
                self.now.turn += 1;
                None
            }
            Fact::Deferred { .. }
            | Fact::Fault { .. }
            | Fact::Injected { .. }
            | Fact::DeviceIo { .. }
            | Fact::Console { .. }
            | Fact::Deadlocked { .. }
            | Fact::Reaped => None,
        }
    }

    /// Notes a gap: a task that was not blocked may have done anything since.
    pub(super) fn gap(&mut self) {
        self.gaps += 1;
        self.running = None;
    }

    /// The number of tasks known to be alive.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The spans of the tasks that were alive at the end of the log.
    pub(super) fn finish(mut self) -> Vec<Span> {
        let tids: Vec<Tid> = self.open.keys().copied().collect();
        tids.into_iter()
            .filter_map(|tid| self.end(tid, Ending::Open))
            .collect()
    }

    fn begin(&mut self, tid: Tid, doing: Doing, end: Ending) -> Option<Span> {
        let before = self.end(tid, end);
        let (from, gaps) = (self.now, self.gaps);
        self.open.insert(tid, Open { doing, from, gaps });
        before
    }

    fn end(&mut self, tid: Tid, end: Ending) -> Option<Span> {
        let Open { doing, from, gaps } = self.open.remove(&tid)?;
        // Dropped here instead of at the gap, since a recording may have as many gaps as tasks.
        let is_known = gaps == self.gaps || matches!(doing, Doing::Blocked(_));
        is_known.then_some(Span {
            tid,
            doing,
            from,
            to: self.now,
            end,
        })
    }
}

/// What a task is blocked on, without the instant of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Exit(Tid),
    Timer,
    Device(DeviceId, Direction),
    Queue(u64, End),
}

impl What {
    /// The smallest value of this type.
    pub(super) const FIRST: Self = Self::Exit(Tid::KERNEL);
}

impl From<On> for What {
    fn from(on: On) -> Self {
        match on {
            On::Exit(tid) => Self::Exit(tid),
            On::Timer(_) => Self::Timer,
            On::Device(device, direction) => Self::Device(device, direction),
            On::Queue(queue, end) => Self::Queue(queue.number(), end),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(tid) => write!(f, "the end of task {tid}"),
            Self::Timer => f.write_str("a timer"),
            Self::Device(device, direction) => write!(f, "device {device} ({direction})"),
            Self::Queue(queue, end) => write!(f, "queue {queue} ({end})"),
        }
    }
}
