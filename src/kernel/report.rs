//! What a run returns to the host: a [`Report`] or an [`Error`].

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{
    Kernel,
    deadlock::{Deadlock, write_tasks},
};
use crate::abi::{Errno, Exit, Place, TaskInfo, TaskState, Tid};

/// The account of a kernel since boot.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of resumes.
    pub ticks: u64,
    /// The number of system calls.
    pub traps: u64,
    /// The time since boot, on the world's clock.
    pub elapsed: Duration,
    /// The highest number of tasks that were alive at once.
    pub peak_tasks: usize,
    /// The number of tasks that failed or faulted.
    pub failures: u64,
    /// The number of printed bytes that are lost. The console failed, or took nothing after a
    /// shutdown from outside.
    pub lost: u64,
    /// The number of resumes that ended a program. Every other resume ended in a trap.
    pub(super) finished: u64,
    /// The first of those failures: 16 that failed, and 16 that faulted. Shared; copied if more tasks
    /// fail while the host keeps a report.
    failed: Option<Arc<Vec<Failed>>>,
    /// The number of tasks that faulted.
    pub(super) faults: u64,
    pub(super) exits: Exits,
}

/// The exits of the host's tasks.
#[derive(Clone, Default)]
pub(super) struct Exits {
    /// All of several, or of one that the host has looked at. Shared; copied if more tasks end while
    /// the host keeps a report.
    all: OnceLock<Arc<BTreeMap<Tid, Exit>>>,
    /// The first, if there is no other: many runs have one, which needs no memory of its own.
    first: Option<(Tid, Exit)>,
}

impl Exits {
    pub(super) fn insert(&mut self, tid: Tid, exit: Exit) {
        if self.first.is_none() && self.all.get().is_none() {
            self.first = Some((tid, exit));
            return;
        }
        self.all();
        self.first = None;
        if let Some(all) = self.all.get_mut() {
            Arc::make_mut(all).insert(tid, exit);
        }
    }

    fn all(&self) -> &BTreeMap<Tid, Exit> {
        let all = || Arc::new(self.first.clone().into_iter().collect());
        self.all.get_or_init(all)
    }

    fn reset(&mut self) {
        self.first = None;
        match self.all.get_mut().map(Arc::get_mut) {
            // One by one, which keeps the memory of the last.
            Some(Some(all)) => while all.pop_first().is_some() {},
            // The host has kept a report.
            Some(None) => self.all = OnceLock::new(),
            None => {}
        }
    }
}

impl fmt::Debug for Exits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all().fmt(f)
    }
}

impl Report {
    /// Returns the exits of the tasks that the host has spawned. These leave no zombies.
    #[must_use]
    pub fn exits(&self) -> &BTreeMap<Tid, Exit> {
        self.exits.all()
    }

    /// Fails if any task has failed or faulted since boot. A killed task is no failure. A test can
    /// end with `kernel.run()?.check()`.
    ///
    /// *Errors:* [`Error::Failed`], which names the tasks.
    ///
    /// ```
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn("parent", async |os: &mut Os| {
    ///     os.spawn_detached("child", async |_| Err("no luck")).await.map(drop)
    /// })?;
    /// let error = kernel.run()?.check().unwrap_err();
    /// assert_eq!(error.to_string(), "task 2 \"child\" failed: no luck");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        if self.failures == 0 {
            return Ok(());
        }
        Err(Error::Failed(Failures {
            count: self.failures,
            first: self.failed().take(Failures::NAMED).cloned().collect(),
        }))
    }

    /// Fails if any task has faulted since boot: it panicked, or awaited something that is not a
    /// trap. [`Report::check`] also fails for tasks that returned an error.
    ///
    /// *Errors:* [`Error::Failed`], which names the tasks.
    pub fn check_faults(&self) -> Result<(), Error> {
        let faulted = self.failed().filter(|failed| failed.is_fault());
        let first: Vec<Failed> = faulted.take(Failures::NAMED).cloned().collect();
        if self.faults == 0 {
            return Ok(());
        }
        Err(Error::Failed(Failures {
            count: self.faults,
            first,
        }))
    }

    /// Forgets an earlier run.
    pub(super) fn reset(&mut self) {
        self.failed = None;
        self.exits.reset();
        (self.ticks, self.traps, self.finished) = (0, 0, 0);
        self.elapsed = Duration::ZERO;
        self.peak_tasks = 0;
        (self.failures, self.faults, self.lost) = (0, 0, 0);
    }

    /// Counts a task that failed or faulted.
    pub(super) fn note_failure(&mut self, tid: Tid, name: &str, exit: &Exit, at: Option<&Place>) {
        let failed = Failed {
            tid,
            name: name.to_string(),
            exit: exit.clone(),
            at: at.cloned(),
        };
        let is_fault = failed.is_fault();
        let named = self.failed().filter(|other| other.is_fault() == is_fault);
        let has_room = named.count() < Failures::NAMED;
        self.failures += 1;
        self.faults += u64::from(is_fault);
        if has_room {
            Arc::make_mut(self.failed.get_or_insert_default()).push(failed);
        }
    }

    fn failed(&self) -> impl Iterator<Item = &Failed> {
        self.failed.iter().flat_map(|failed| failed.iter())
    }
}

/// The tasks that failed or faulted, reported by [`Report::check`]. Its `Display` has a line for
/// each of the first 16, with the place of a panic.
#[derive(Clone, Debug)]
pub struct Failures {
    /// The number of such tasks.
    pub count: u64,
    first: Vec<Failed>,
}

/// A task that failed or faulted.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    tid: Tid,
    name: String,
    exit: Exit,
    /// The place of its panic.
    at: Option<Place>,
}

impl Failed {
    fn is_fault(&self) -> bool {
        matches!(self.exit, Exit::Faulted(_))
    }
}

impl Failures {
    /// The number of tasks that are named.
    const NAMED: usize = 16;
}

impl std::error::Error for Failures {}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, failed) in self.first.iter().enumerate() {
            let line = if nth == 0 { "" } else { "\n" };
            write!(
                f,
                "{line}task {} {:?} {}",
                failed.tid, failed.name, failed.exit
            )?;
            if let Some(at) = &failed.at {
                write!(f, ", at {at}")?;
            }
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// The result of a [`step`](super::Kernel::step).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The step resumed this task.
    Ran(Tid),
    /// No task was ready; the step waited for the world once.
    Idle,
    /// No task is left.
    Finished,
}

/// Why a kernel stopped with tasks left, or which tasks failed. The kernel can run again after any
/// of these.
///
/// Its `Debug` is its `Display`, because a `main` that returns an error prints the `Debug`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No task was ready, and nothing could make one ready.
    #[error(transparent)]
    Deadlock(Deadlock),
    /// A limit was reached, while these tasks were blocked.
    #[error("{0}{1}")]
    Limit(Limit, Blocked),
    /// Only other threads could make a task ready, and none did within
    /// [`Builder::max_stall`](crate::Builder::max_stall).
    #[error(transparent)]
    Stalled(Stalled),
    /// The scheduling policy failed. The text is its type and the reason. The kernel has replaced
    /// it by [`Fifo`](crate::Fifo), and has lost no task.
    #[error("{0}")]
    Policy(String),
    /// Tasks failed or faulted. Only [`Report::check`] and [`Report::check_faults`] return this.
    #[error(transparent)]
    Failed(Failures),
    /// The kernel refused a call of the host, such as [`Kernel::spawn`](crate::Kernel::spawn).
    #[error("the kernel refused a call: {0}")]
    Refused(#[from] Errno),
    /// The world failed: the poller, or the console after its reader has closed it.
    #[error("the world failed: {0}")]
    Io(#[from] io::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The limit of a run that was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The resumes of the run are used up.
    #[error("the limit of {0} ticks is reached")]
    Ticks(u64),
    /// The time of the run is used up.
    #[error("the limit of {0:?} is reached")]
    Time(Duration),
}

/// The tasks that were blocked when a run ended. Its `Display` has lines for the first 16.
#[derive(Clone, Debug, Default)]
pub struct Blocked(pub Vec<TaskInfo>);

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.len().min(Failures::NAMED);
        write_tasks(f, &self.0[..shown])?;
        match self.0.len() - shown {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more blocked tasks"),
        }
    }
}

/// Only another thread could make a task ready, and none did within the limit. No task was ready,
/// and no task waited for a timer or a device.
///
/// Its `Display` lists what the kernel waits for, and has a line per blocked task.
#[derive(Clone, Debug)]
pub struct Stalled {
    /// The time that the kernel has waited.
    pub waited: Duration,
    /// The number of [`RemoteSetter`](crate::RemoteSetter)s that are alive; clones count once.
    pub remote_setters: usize,
    /// The number of jobs of [`Os::run_blocking`](crate::Os::run_blocking) that are under way.
    pub jobs: usize,
    /// The blocked tasks, by tid.
    pub blocked: Vec<TaskInfo>,
}

impl std::error::Error for Stalled {}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waited,
            remote_setters,
            jobs,
            ..
        } = self;
        let waited = Duration::from_millis(waited.as_millis().try_into().unwrap_or(u64::MAX));
        write!(
            f,
            "stalled: no task is ready, and only other threads could make one ready, for {waited:?}"
        )?;
        if *remote_setters > 0 {
            write!(f, "\n  remote setters alive: {remote_setters}")?;
        }
        if *jobs > 0 {
            write!(f, "\n  jobs under way: {jobs}")?;
        }
        write_tasks(f, &self.blocked)
    }
}

impl Kernel {
    pub(super) fn limit(&self, limit: Limit) -> Error {
        Error::Limit(limit, Blocked(self.blocked()))
    }

    /// Describes the blocked tasks, by tid.
    pub(super) fn blocked(&self) -> Vec<TaskInfo> {
        let is_blocked = |task: &TaskInfo| matches!(task.state, TaskState::Blocked { .. });
        self.tasks().filter(is_blocked).collect()
    }

    /// Returns whether any task has faulted since boot, as [`Report::check_faults`] does.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.stats.faults > 0
    }

    /// Returns whether there are tasks and none has had a turn since boot.
    pub(crate) fn has_unrun_tasks(&self) -> bool {
        self.stats.ticks == 0 && self.tasks.live() > 0
    }

    /// Returns the account since boot, as [`Kernel::run`] does at the end of a run.
    #[inline]
    #[must_use]
    pub fn report(&mut self) -> Report {
        let stats = &mut self.stats;
        stats.elapsed = self.world.now_for_log();
        stats.traps = stats.ticks - stats.finished;
        stats.clone()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("live_tasks", &self.tasks.live())
            .field("ready", &self.ready)
            .field("timers", &self.timers.tasks.len())
            .finish_non_exhaustive()
    }
}
