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
    failures::{BadEnds, Failed, Failures, Standing},
    task::OnExit,
};
use crate::abi::{Errno, Exit, KernelId, Place, Signal, TaskInfo, TaskState, Tid};

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
    /// The number of tasks that faulted, and of tasks that failed and that no task has waited for,
    /// without the children of supervisors. These are what [`Report::check`] names.
    pub failures: u64,
    /// The number of printed bytes that are lost. The console failed, or took nothing after a
    /// shutdown from outside.
    pub lost: u64,
    /// The signal that ended the run, because no task had caught it.
    pub ended_by: Option<Signal>,
    /// The number of resumes that ended a program. Every other resume ended in a trap.
    pub(super) finished: u64,
    /// `None` if none has. Shared; copied if more tasks fail while the host keeps a report.
    bad_ends: Option<Arc<BadEnds>>,
    exits: Exits,
}

/// The exits of the host's tasks. Most schedules of a search have one, which takes no map.
#[derive(Clone, Default)]
struct Exits {
    /// The only task that has ended, if it ended well; otherwise [`Tid::KERNEL`], which is no task.
    done: Tid,
    /// All, unless there is only that one and the host has not asked. Shared; copied if more tasks end
    /// while the host keeps a report.
    all: OnceLock<Arc<BTreeMap<Tid, Exit>>>,
}

impl Exits {
    fn all(&self) -> &BTreeMap<Tid, Exit> {
        self.all
            .get_or_init(|| Arc::new(self.done().into_iter().collect()))
    }

    fn done(&self) -> Option<(Tid, Exit)> {
        (self.done != Tid::KERNEL).then_some((self.done, Exit::Done))
    }

    #[inline(always)]
    fn insert(&mut self, tid: Tid, exit: &Exit) {
        let is_first = self.all.get().is_none() && self.done == Tid::KERNEL;
        if is_first && matches!(exit, Exit::Done) {
            self.done = tid;
        } else {
            self.insert_into_all(tid, exit.clone());
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_into_all(&mut self, tid: Tid, exit: Exit) {
        let mut shared = self.all.take().unwrap_or_default();
        let all = Arc::make_mut(&mut shared);
        all.extend(self.done());
        all.insert(tid, exit);
        self.done = Tid::KERNEL;
        self.all = shared.into();
    }

    fn reset(&mut self) {
        self.done = Tid::KERNEL;
        let Some(shared) = self.all.get_mut() else {
            return;
        };
        match Arc::get_mut(shared) {
            // The host has kept no report. One by one, which keeps the memory of the last.
            Some(all) => while all.pop_first().is_some() {},
            None => drop(self.all.take()),
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

    #[inline(always)]
    pub(super) fn ended(&mut self, tid: Tid, exit: &Exit) {
        self.exits.insert(tid, exit);
    }

    /// Fails if any task has faulted since boot, or has failed and no task has waited for it. A task
    /// that waits for the end of another is told of its failure: by [`Os::wait`](crate::Os::wait), by
    /// the wait for a [`Child`](crate::Child) or a [`Group`](crate::sync::Group). A fault counts in
    /// any case, so that a wait swallows no assertion. A killed task is no failure. The children of a
    /// [`Supervisor`](crate::Supervisor) do not count: when it gives up, its own task fails. A test can
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
        self.check_count(self.failures, |_| true)
    }

    /// Fails if any task has faulted since boot: it panicked, or awaited something that is not a
    /// trap. [`Report::check`] also fails for tasks that returned an error. Neither counts the children
    /// of a supervisor.
    ///
    /// *Errors:* [`Error::Failed`], which names the tasks.
    pub fn check_faults(&self) -> Result<(), Error> {
        self.check_count(self.faults(), Failed::is_fault)
    }

    fn check_count(&self, count: u64, is: impl Fn(&Failed) -> bool) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        let none = BadEnds::default();
        let bad_ends = self.bad_ends.as_deref().unwrap_or(&none);
        Err(Error::Failed(bad_ends.failures(count, is)))
    }

    /// Field by field: a copy of the whole would wait for the stores of its parts.
    pub(super) fn reset(&mut self) {
        let Self {
            ticks,
            traps,
            elapsed,
            peak_tasks,
            failures,
            lost,
            ended_by,
            finished,
            bad_ends,
            exits,
        } = self;
        (*ticks, *traps, *finished, *lost) = (0, 0, 0, 0);
        (*elapsed, *peak_tasks) = (Duration::ZERO, 0);
        (*failures, *ended_by, *bad_ends) = (0, None, None);
        exits.reset();
    }

    /// Counts a task that failed or faulted.
    pub(super) fn count_failure(
        &mut self,
        tid: Tid,
        name: &str,
        exit: &Exit,
        at: Option<&Place>,
        standing: Standing,
    ) {
        let bad_ends = self.bad_ends.get_or_insert_default();
        let counts = Arc::make_mut(bad_ends).add(tid, name, exit, at, standing);
        self.failures += u64::from(counts);
    }

    /// Notes that a task has waited for that task. If it failed, it counts no more.
    #[inline]
    pub(super) fn waited_for(&mut self, tid: Tid) {
        if self.bad_ends.is_some() && self.close(tid, Standing::is_open, Standing::Waited) {
            self.failures -= 1;
        }
    }

    /// Notes that a task was reaped. If it failed, it counts, unless a handle still has its exit.
    pub(super) fn reaped(&mut self, tid: Tid) {
        let is_zombie = |standing| standing == Standing::Zombie;
        self.close(tid, is_zombie, Standing::Counts);
    }

    /// Notes that no handle has the exit of a task any more. If it failed, it counts.
    #[inline]
    pub(super) fn given_up(&mut self, tid: Tid) {
        if self.bad_ends.is_some() {
            self.close(tid, Standing::is_open, Standing::Counts);
        }
    }

    /// Closes the standing of a task that failed, if it is open in this way. Returns whether it was.
    #[cold]
    fn close(&mut self, tid: Tid, is: impl Fn(Standing) -> bool, standing: Standing) -> bool {
        let Some(bad_ends) = &mut self.bad_ends else {
            return false;
        };
        let is_open = bad_ends.is_open(tid, is);
        if is_open {
            Arc::make_mut(bad_ends).close(tid, standing);
        }
        is_open
    }

    /// The number of tasks that faulted, without the children of supervisors.
    fn faults(&self) -> u64 {
        self.bad_ends.as_ref().map_or(0, |ends| ends.faults())
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
/// of these. An error or a limit that a variant holds is its [`source`](std::error::Error::source). A
/// report is not: a program that prints an error and its sources prints the report once.
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
    Limit(#[source] Limit, Blocked),
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
    /// Another kernel that ran [beside](crate::Kernels) this one failed, and so this one was shut down.
    #[error("kernel {kernel} has failed: {why}")]
    Peer {
        /// The kernel that failed.
        kernel: KernelId,
        /// Its error, as text.
        why: String,
    },
    /// The kernel refused a call of the host, such as [`Kernel::spawn`](crate::Kernel::spawn).
    #[error("the kernel refused a call: {0}")]
    Refused(#[from] Errno),
    /// The world failed: the poller, or the console after its reader has closed it.
    #[error("the world failed: {0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// Returns the error with the number of its kernel before those of the tasks that it names.
    pub(crate) fn beside(self, kernel: KernelId) -> Self {
        match self {
            Self::Deadlock(deadlock) => Self::Deadlock(deadlock.beside(kernel)),
            Self::Limit(limit, Blocked(tasks)) => {
                Self::Limit(limit, Blocked(TaskInfo::all_beside(tasks, kernel)))
            }
            Self::Stalled(stalled) => Self::Stalled(stalled.beside(kernel)),
            Self::Policy(_)
            | Self::Failed(_)
            | Self::Peer { .. }
            | Self::Refused(_)
            | Self::Io(_) => self,
        }
    }
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
    /// The number of [mailboxes](crate::Mailbox) of this kernel that have senders, and of messages of
    /// this kernel that wait for room in others.
    pub mail: usize,
    /// The blocked tasks, by tid.
    pub blocked: Vec<TaskInfo>,
}

impl std::error::Error for Stalled {}

impl Stalled {
    pub(super) fn beside(self, kernel: KernelId) -> Self {
        Self {
            blocked: TaskInfo::all_beside(self.blocked, kernel),
            ..self
        }
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = self.waited.as_millis().try_into().unwrap_or(u64::MAX);
        write!(
            f,
            "stalled: no task is ready, and only other threads could make one ready, for {:?}",
            Duration::from_millis(waited)
        )?;
        if self.remote_setters > 0 {
            let leaked = "one that is leaked keeps the run for ever";
            let setters = self.remote_setters;
            write!(f, "\n  remote setters alive: {setters}; {leaked}")?;
        }
        if self.jobs > 0 {
            write!(f, "\n  jobs under way: {}", self.jobs)?;
        }
        if self.mail > 0 {
            write!(
                f,
                "\n  mailboxes with senders, and messages that wait for room: {}",
                self.mail
            )?;
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

    /// Returns whether any task has failed or faulted since boot, as [`Report::check`] does.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.stats.failures > 0
    }

    /// Returns whether any task has faulted since boot, as [`Report::check_faults`] does.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.stats.faults() > 0
    }

    /// Returns whether there are tasks and none has had a turn since boot.
    #[must_use]
    pub fn has_unrun_tasks(&self) -> bool {
        self.stats.ticks == 0 && self.tasks.live() > 0
    }

    /// Returns whether a task that the host has spawned is alive.
    pub(crate) fn has_hosts_tasks(&self) -> bool {
        let mut live = self.tasks.iter().filter(|task| task.is_live());
        live.any(|task| task.on_exit == OnExit::Report)
    }

    /// Returns the account since boot, as [`Kernel::run`] does at the end of a run.
    #[inline]
    #[must_use]
    pub fn report(&mut self) -> Report {
        let stats = &mut self.stats;
        stats.elapsed = self.world.now_for_log();
        stats.traps = stats.ticks - stats.finished;
        stats.lost = self.console.lost();
        stats.ended_by = self.signals.ended_by();
        stats.clone()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("live_tasks", &self.tasks.live())
            .field("ready", &self.ready.len())
            .field("timers", &self.timers.tasks.len())
            .finish_non_exhaustive()
    }
}
