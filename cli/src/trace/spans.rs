//! What each task and the kernel did at every moment, derived from a log of events. The commands that
//! show a whole recording use it.
//!
//! At every instant tasks run their programs, or the kernel works, or no task is ready and the kernel
//! waits. So the spans of [`Tid::KERNEL`] and the tasks' spans of [`Doing::Running`] cover the whole
//! time. Only spans of tasks overlap, and only on several processors. [`Shares`] count such time once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use trapline::{DeviceId, Direction, End, Event, Exit, Fact, On, SystemCall, Tid, Wake};

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Moment {
    /// The time since boot.
    pub(crate) at: Duration,
    /// The number of turns so far, plus the number of jumps of the clock. It measures progress
    /// while a virtual clock does not move.
    pub(crate) turn: u64,
}

/// The state of a task, or of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// It has its turn, up to its next trap.
    Running,
    /// The kernel works for the task, at the call that the task has made. Of the kernel: it works.
    InCall,
    /// It waits for its turn.
    Ready,
    /// It waits for something else.
    Blocked(On),
    /// Of the kernel: no task is ready, and it waits for the world.
    Idle,
}

/// A span of one state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) tid: Tid,
    pub(crate) doing: Doing,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) end: Ending,
}

/// How a span ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
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
pub(crate) struct Spans {
    now: Moment,
    /// The state of each live task.
    open: BTreeMap<Tid, Open>,
    /// The number of gaps so far.
    gaps: u64,
    /// The task whose call is being handled; it wakes others.
    running: Option<Tid>,
    /// The task that has ended just now: its end wakes the tasks of its group.
    ended: Option<Tid>,
    /// Since when the kernel works; `None` while a task runs its program, or the time is not known.
    working: Option<Moment>,
    /// The tasks that compute.
    computing: BTreeSet<Tid>,
    /// The number of tasks that run their programs, and since when at least one does.
    busy: usize,
    busy_since: Duration,
    has_begun: bool,
    shares: Shares,
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
        write!(
            f,
            "tasks {tasks}, kernel {kernel}, idle {idle} of {known}{}",
            seconds(total)
        )
    }
}

/// A part of a whole in percent: to two digits below ten, and never rounded to nothing or to all.
pub(crate) fn share(part: Duration, whole: Duration) -> String {
    let percent = 100.0 * part.as_secs_f64() / whole.as_secs_f64();
    match percent {
        _ if part.is_zero() || whole.is_zero() => "0 %".into(),
        _ if part == whole => "100 %".into(),
        ..0.01 => "<0.01 %".into(),
        0.01..0.95 => format!("{percent:.2} %"),
        0.95..9.95 => format!("{percent:.1} %"),
        99.0.. => format!("{:.2} %", (percent * 100.0).floor() / 100.0),
        _ => format!("{percent:.0} %"),
    }
}

/// A span of time in seconds, to three digits.
fn seconds(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    // A number that is rounded up to a power of ten has a digit more.
    let digits = (2.0 - (seconds * 1.0005).log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{seconds:.digits$} s")
}

impl Spans {
    /// The moment of the last event.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Takes the next event. Returns the spans that it ends.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> Ended {
        let before = self.now;
        self.now.at = event.at.max(before.at);
        if !std::mem::replace(&mut self.has_begun, true) {
            self.working = Some(self.now);
        }
        let mut kernel = None;
        if !self.computing.is_empty() && self.now.at > before.at {
            // The time has passed for what computes.
            kernel = self.work_ends(before);
        }
        self.computing.remove(&event.tid);
        let mut waited = None;
        let ended = match event.fact {
            Fact::Resumed => {
                kernel = kernel.or(self.work_ends(self.now));
                let ended = self.begin(event.tid, Doing::Running, Ending::Next);
                // The kernel has read for the task in no time.
                let ended = ended.filter(|span| span.doing != Doing::InCall || span.has_length());
                self.running = Some(event.tid);
                self.ended = None;
                self.now.turn += 1;
                ended
            }
            Fact::ClockJumped { from } => {
                let at = from.clamp(before.at, self.now.at);
                let from = Moment { at, ..before };
                kernel = kernel.or(self.work_ends(from));
                (self.running, self.ended) = (None, None);
                self.now.turn += 1;
                self.working = Some(self.now);
                self.shares.idle += self.now.at - at;
                Some(Span {
                    tid: Tid::KERNEL,
                    doing: Doing::Idle,
                    from,
                    to: self.now,
                    end: Ending::Next,
                })
            }
            // The task's turn has come, and the kernel has read for it before it runs.
            Fact::DeviceIo { .. } if self.is(event.tid, Doing::Ready) => {
                self.read(event.tid, before)
            }
            // It has read in vain.
            Fact::Blocked { .. } if self.is(event.tid, Doing::Ready) => {
                waited = self.read(event.tid, before).filter(Span::has_length);
                self.change(event)
            }
            _ => self.change(event),
        };
        [kernel, waited, ended].into_iter().flatten()
    }

    /// Ends the wait of a task for its turn where the kernel began to read for it: at the event before.
    fn read(&mut self, tid: Tid, before: Moment) -> Option<Span> {
        let now = std::mem::replace(&mut self.now, before);
        let waited = self.begin(tid, Doing::InCall, Ending::Next);
        self.now = now;
        waited
    }

    /// Takes an event that begins no turn and no wait for the world.
    fn change(&mut self, event: &Event<'_>) -> Option<Span> {
        let tid = event.tid;
        if !matches!(event.fact, Fact::Woken { .. } | Fact::Replied { .. }) {
            self.ended = None;
        }
        match event.fact {
            Fact::Spawned { .. } => self.begin(tid, Doing::Ready, Ending::Next),
            Fact::Trapped { call, .. } => {
                self.working.get_or_insert(self.now);
                let doing = match call {
                    // These wake no task, and are answered when their task's turn comes.
                    SystemCall::Recv(_) | SystemCall::Accept(_) => {
                        self.running = None;
                        Doing::Ready
                    }
                    _ => Doing::InCall,
                };
                self.begin(tid, doing, Ending::Next)
            }
            Fact::Replied { .. } => {
                let is_caller = self.running == Some(tid);
                self.running = self.running.filter(|running| *running != tid);
                // Otherwise the kernel has read for the task, which runs next.
                let is_over = is_caller && self.is(tid, Doing::InCall);
                let ended = is_over.then(|| self.begin(tid, Doing::Ready, Ending::Next));
                ended.flatten().filter(Span::has_length)
            }
            Fact::Blocked { on } => {
                self.running = self.running.filter(|running| *running != tid);
                let ended = self.begin(tid, Doing::Blocked(on), Ending::Next);
                // A call that asks for nothing takes no time until it blocks.
                ended.filter(Span::has_length)
            }
            Fact::Woken { by } => {
                let waker = match by {
                    Wake::Exit(tid) => Some(tid),
                    Wake::Queue(_) | Wake::Closed(_) => self.running.or(self.ended),
                    _ => None,
                };
                self.begin(tid, Doing::Ready, Ending::Woken { by, waker })
            }
            Fact::Computing { .. } => {
                self.computing.insert(tid);
                self.begin(tid, Doing::Running, Ending::Next)
            }
            Fact::Preempted { .. } => self.begin(tid, Doing::Ready, Ending::Next),
            Fact::Exited { .. } => {
                self.ended = Some(tid);
                self.running = self.running.filter(|running| *running != tid);
                let ended = self.end(tid, Ending::Exited);
                if let Some(Doing::Running) = ended.map(|span| span.doing) {
                    self.working.get_or_insert(self.now);
                }
                ended
            }
            _ => None,
        }
    }

    /// Notes a gap: a task that was not blocked may have done anything since.
    pub(crate) fn gap(&mut self) {
        self.gaps += 1;
        self.shares.is_partial = true;
        self.running = None;
        self.working = None;
        self.computing.clear();
        self.busy = 0;
    }

    /// The number of tasks known to be alive.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// How the time of the spans so far was used.
    pub(crate) fn shares(&self) -> Shares {
        self.shares
    }

    /// The spans of the tasks that were alive at the end of the log, and of the kernel.
    pub(crate) fn finish(&mut self) -> Vec<Span> {
        let tids: Vec<Tid> = self.open.keys().copied().collect();
        let kernel = self.work_ends(self.now);
        let tasks = tids.into_iter().map(|tid| self.end(tid, Ending::Open));
        kernel.into_iter().chain(tasks.flatten()).collect()
    }

    /// Whether an event is part of the end of a task that is killed: its exit, or the call of a
    /// destructor outside of its turns.
    pub(crate) fn is_kill(&self, event: &Event<'_>) -> bool {
        match event.fact {
            Fact::Exited { exit } => *exit == Exit::Killed,
            Fact::Deferred { .. } => {
                let open = self.open.get(&event.tid);
                open.is_some_and(|open| matches!(open.doing, Doing::Blocked(_) | Doing::Ready))
            }
            _ => false,
        }
    }

    fn is(&self, tid: Tid, doing: Doing) -> bool {
        self.open.get(&tid).is_some_and(|open| open.doing == doing)
    }

    fn begin(&mut self, tid: Tid, doing: Doing, end: Ending) -> Option<Span> {
        let before = self.end(tid, end);
        let (from, gaps) = (self.now, self.gaps);
        if doing == Doing::Running {
            if self.busy == 0 {
                self.busy_since = from.at;
            }
            self.busy += 1;
        }
        self.open.insert(tid, Open { doing, from, gaps });
        before
    }

    fn end(&mut self, tid: Tid, end: Ending) -> Option<Span> {
        let Open { doing, from, gaps } = self.open.remove(&tid)?;
        // Dropped here instead of at the gap, since a recording may have as many gaps as tasks.
        let is_known = gaps == self.gaps || matches!(doing, Doing::Blocked(_));
        let span = Span {
            tid,
            doing,
            from,
            to: self.now,
            end,
        };
        if is_known && doing == Doing::Running {
            self.busy -= 1;
            if self.busy == 0 {
                self.shares.tasks += self.now.at - self.busy_since;
            }
        }
        is_known.then_some(span)
    }

    /// The kernel's work up to a moment, if it has worked.
    fn work_ends(&mut self, to: Moment) -> Option<Span> {
        let from = self.working.take()?;
        let span = Span {
            tid: Tid::KERNEL,
            doing: Doing::InCall,
            from,
            to,
            end: Ending::Next,
        };
        self.shares.kernel += span.time();
        (!span.time().is_zero()).then_some(span)
    }
}

impl Span {
    /// How long it took.
    pub(crate) fn time(&self) -> Duration {
        self.to.at.saturating_sub(self.from.at)
    }

    /// Whether a task ran, or the kernel worked at its call.
    pub(crate) fn is_busy(&self) -> bool {
        self.tid != Tid::KERNEL && matches!(self.doing, Doing::Running | Doing::InCall)
    }

    fn has_length(&self) -> bool {
        self.from != self.to
    }
}

/// What a task is blocked on, without the instant of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Exit(Tid),
    Timer,
    Device(DeviceId, Direction),
    /// Any device: for tables of many tasks.
    Devices(Direction),
    Queue(u64, End),
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
            On::Queue(queue, end) => Self::Queue(queue.number(), end),
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
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use trapline::{Kernel, Os, SimWorld};

    use super::*;

    #[test]
    fn the_shares_of_several_processors_add_up_to_the_time_of_the_run() {
        let spans = Rc::new(RefCell::new(Spans::default()));
        let shared = Rc::clone(&spans);
        let tracer = move |event: &Event<'_>| drop(shared.borrow_mut().event(event));
        let builder = Kernel::builder().world(SimWorld::new(1)).tracer(tracer);
        let mut kernel = builder.processors(2).build().unwrap();
        let [half, second] = [500, 1000].map(Duration::from_millis);
        for name in ["a", "b"] {
            let task = async move |os: &mut Os| {
                os.compute(second).await;
                os.sleep(second + half).await;
            };
            kernel.spawn(name, task).unwrap();
        }
        let later = async move |os: &mut Os| {
            os.sleep(half).await;
            os.compute(second).await;
        };
        kernel.spawn("c", later).unwrap();
        // The two compute for 1 s, then the third alone, and then all sleep.
        let elapsed = kernel.run().unwrap().elapsed;
        let mut spans = spans.borrow_mut();
        spans.finish();
        let shares = spans.shares();
        assert_eq!((shares.tasks, shares.idle), (2 * second, half));
        assert_eq!(shares.total(), elapsed);
    }
}
