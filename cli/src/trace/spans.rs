//! How the time of a run was used, derived from a log of events: the spans of tasks that the ledger
//! ends, and those of the kernel. The commands that show a whole recording use it.
//!
//! At every instant tasks run their programs, or the kernel works, or no task is ready and the kernel
//! waits. So the spans of [`Tid::KERNEL`] and the tasks' spans of [`Doing::Running`] cover the whole
//! time. Only spans of tasks overlap, and only on several processors. [`Shares`] count such time once.

use std::{collections::BTreeMap, fmt, time::Duration};

use trapline::{
    DeviceId, Direction, Doing, End, Ending, Event, Exit, Ledger, Moment, On, QueueId, Span, Tid,
};

use crate::units::{percent, span};

/// The books of a run, and its spans. It takes events in order.
#[derive(Default)]
pub(crate) struct Spans {
    ledger: Ledger,
    /// The kernels of the log, each by its number as a task.
    kernels: BTreeMap<Tid, OfKernel>,
    shares: Shares,
}

/// What a kernel does.
#[derive(Default)]
struct OfKernel {
    /// Since when it works; `None` while a task runs its program, or the time is not known.
    working: Option<Moment>,
    /// The number of tasks that run their programs, and since when at least one does.
    busy: usize,
    busy_since: Duration,
    /// Its last event.
    last: Moment,
    has_begun: bool,
}

/// The spans that an event ends: at most two of a task, and one of the kernel.
pub(crate) type Ended = std::iter::Flatten<std::array::IntoIter<Option<Span>, 3>>;

/// How the time of a run was used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Shares {
    /// One task or more ran their programs.
    pub(crate) tasks: Duration,
    /// The kernel worked, for tasks or for itself.
    pub(crate) kernel: Duration,
    /// No task was ready.
    pub(crate) idle: Duration,
    /// Whether events are missing, so that a part of the time is not known.
    pub(crate) is_partial: bool,
    /// How many kernels had this time together.
    pub(crate) kernels: usize,
}

impl Shares {
    /// The known time of the run. Time in gaps of the recording is not known.
    pub(crate) fn total(&self) -> Duration {
        self.tasks + self.kernel + self.idle
    }
}

/// The first line of every summary.
impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        if total.is_zero() {
            return f.write_str(match self.is_partial {
                true => "events are missing, and the others took no time",
                false => "the run took no time",
            });
        }
        let known = if self.is_partial { "the known " } else { "" };
        let [tasks, kernel, idle] =
            [self.tasks, self.kernel, self.idle].map(|part| share(part, total));
        let total = span(total);
        write!(
            f,
            "tasks {tasks}, kernel {kernel}, idle {idle} of {known}{total}"
        )?;
        match self.kernels {
            0 | 1 => Ok(()),
            kernels => write!(f, " of {kernels} kernels"),
        }
    }
}

pub(crate) fn share(part: Duration, whole: Duration) -> String {
    percent(part.as_secs_f64(), whole.as_secs_f64())
}

impl Spans {
    pub(crate) fn tasks(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn now(&self) -> Moment {
        self.ledger.now()
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) -> Ended {
        let kernel = kernel_of(event.tid);
        let its = self.kernels.entry(kernel).or_default();
        let before = its.last;
        let had_computing = self.ledger.has_computing();
        let [read, ended] = self.ledger.take(event);
        let now = self.ledger.now();
        its.last = now;
        if !std::mem::replace(&mut its.has_begun, true) {
            let at = now.at;
            its.working = Some(Moment { at, ..before });
            self.shares.kernels += 1;
        }
        // The time has passed for what computes.
        let mut work = match had_computing && now.at > before.at {
            true => self.work_ends(kernel, before),
            false => None,
        };
        let its = self.kernels.entry(kernel).or_default();
        let has_run = ended.is_some_and(|span| span.doing == Doing::Running);
        if has_run {
            its.busy -= 1;
            if its.busy == 0 {
                self.shares.tasks += now.at - its.busy_since;
            }
        }
        let fact = &event.fact;
        let is_resumed = fact.is_resumed();
        if is_resumed || fact.processor().is_some() {
            if its.busy == 0 {
                its.busy_since = now.at;
            }
            its.busy += 1;
        }
        let mut idle = None;
        if is_resumed {
            let turn = now.turn - 1;
            work = work.or(self.work_ends(kernel, Moment { turn, ..now }));
        } else if has_run && fact.exit().is_some() || fact.call().is_some() {
            its.working.get_or_insert(now);
        } else if let Some(from) = fact.jumped_from() {
            let at = from.clamp(before.at, now.at);
            let from = Moment { at, ..before };
            work = work.or(self.work_ends(kernel, from));
            self.kernels.entry(kernel).or_default().working = Some(now);
            self.shares.idle += now.at - at;
            idle = Some(span_of(kernel, Doing::Idle, from, now));
        }
        [work, read, ended.or(idle)].into_iter().flatten()
    }

    pub(crate) fn gap(&mut self) {
        self.ledger.gap();
        self.shares.is_partial = true;
        for kernel in self.kernels.values_mut() {
            kernel.working = None;
            kernel.busy = 0;
        }
    }

    pub(crate) fn shares(&self) -> Shares {
        self.shares
    }

    /// The spans of the tasks that were alive at the end of the log, and of the kernels.
    pub(crate) fn finish(&mut self) -> Vec<Span> {
        for kernel in self.kernels.values_mut() {
            if std::mem::take(&mut kernel.busy) > 0 {
                self.shares.tasks += kernel.last.at - kernel.busy_since;
            }
        }
        // Another kernel may have gone on after the last event of one.
        let kernels = self.kernels.iter();
        let lasts: Vec<(Tid, Moment)> = kernels.map(|(tid, kernel)| (*tid, kernel.last)).collect();
        let works = lasts.into_iter();
        let mut spans: Vec<Span> = works
            .filter_map(|(tid, last)| self.work_ends(tid, last))
            .collect();
        spans.extend(self.ledger.open_spans());
        spans
    }

    /// Whether an event is part of the end of a task that is killed: its exit, or the call of a
    /// destructor outside of its turns.
    pub(crate) fn is_kill(&self, event: &Event<'_>) -> bool {
        if event.fact.deferred().is_some() {
            let doing = self.ledger.doing(event.tid);
            return matches!(doing, Some((Doing::Blocked(_) | Doing::Ready, _)));
        }
        event.fact.exit() == Some(&Exit::Killed)
    }

    /// The kernel's work up to a moment, if it has worked.
    fn work_ends(&mut self, kernel: Tid, to: Moment) -> Option<Span> {
        let from = self.kernels.get_mut(&kernel)?.working.take()?;
        let span = span_of(kernel, Doing::InCall, from, to);
        self.shares.kernel += span.time();
        (!span.time().is_zero()).then_some(span)
    }
}

/// The kernel of a task, by its number as a task.
pub(crate) fn kernel_of(tid: Tid) -> Tid {
    tid.kernel()
        .map_or(Tid::KERNEL, |kernel| Tid::KERNEL.beside(kernel))
}

fn span_of(tid: Tid, doing: Doing, from: Moment, to: Moment) -> Span {
    Span {
        tid,
        doing,
        from,
        to,
        end: Ending::Next,
    }
}

/// What a task is blocked on, without the instant of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    Exit(Tid),
    Timer,
    Device(DeviceId, Direction),
    /// Any device: for tables of many tasks.
    Devices(Direction),
    Queue(QueueId, End),
    /// The first of so many sources.
    First(u64),
}

impl What {
    /// The same without the number of a device: a server has thousands.
    pub(crate) fn kind(self) -> Self {
        match self {
            Self::Device(_, direction) => Self::Devices(direction),
            what => what,
        }
    }

    /// The smallest value of this type.
    pub(crate) const FIRST: Self = Self::Exit(Tid::KERNEL);
}

impl From<On> for What {
    fn from(on: On) -> Self {
        match on {
            On::Exit(tid) => Self::Exit(tid),
            On::Device(device, direction) => Self::Device(device, direction),
            On::Queue(queue, end) => Self::Queue(queue, end),
            On::First(sources) => Self::First(sources),
            _ => Self::Timer,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(tid) => write!(f, "the end of task {tid}"),
            Self::Timer => f.write_str("a timer"),
            Self::Device(device, direction) => write!(f, "device {device} ({direction})"),
            Self::Devices(direction) => write!(f, "devices ({direction})"),
            Self::Queue(queue, end) => write!(f, "queue {queue} ({end})"),
            Self::First(sources) => On::First(*sources).fmt(f),
        }
    }
}
