//! What the host is told: a [`Report`] of a run, or why it stopped.

use std::{collections::BTreeMap, fmt, io, sync::Arc, time::Duration};

use super::deadlock::Deadlock;
use crate::abi::{Exit, TaskInfo, Tid};

/// What a kernel has done since boot.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many times a task was resumed.
    pub ticks: u64,
    /// How many system calls were made.
    pub traps: u64,
    /// The time since boot, on the world's clock.
    pub elapsed: Duration,
    /// The most tasks that were alive at once.
    pub peak_tasks: usize,
    /// How many tasks failed or faulted, whoever spawned them.
    pub failures: u64,
    /// How many bytes that tasks printed the console did not take: it failed, or took nothing after
    /// a shutdown from outside.
    pub lost: u64,
    /// How many resumes ended a program: the others were ended by a trap.
    pub(super) finished: u64,
    /// The first of those failures.
    pub(super) failed: Vec<Failed>,
    /// Shared, and copied only where the host keeps a report while more of its tasks end.
    pub(super) exits: Arc<BTreeMap<Tid, Exit>>,
}

impl Report {
    /// How each of the host's tasks ended. They leave no zombies: this is where their exits are.
    #[must_use]
    pub fn exits(&self) -> &BTreeMap<Tid, Exit> {
        &self.exits
    }

    /// Whether all is well: fails if any task failed or faulted since boot, whichever task spawned
    /// it. So a test can end with `kernel.run()?.check()`. A task that was killed is no failure.
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
            first: self.failed.clone(),
        }))
    }

    /// Notes that a task failed or faulted.
    pub(super) fn note_failure(&mut self, tid: Tid, name: &str, exit: &Exit) {
        self.failures += 1;
        if self.failed.len() < Failures::NAMED {
            let (name, exit) = (name.to_string(), exit.clone());
            self.failed.push(Failed { tid, name, exit });
        }
    }
}

/// The tasks that failed or faulted, of [`Report::check`]. Its `Display` has a line for each of the
/// first 16.
#[derive(Clone, Debug)]
pub struct Failures {
    /// How many there were.
    pub count: u64,
    first: Vec<Failed>,
}

/// A task that failed or faulted.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    tid: Tid,
    name: String,
    exit: Exit,
}

impl Failures {
    /// How many are named.
    const NAMED: usize = 16;
}

impl std::error::Error for Failures {}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Failed { tid, name, exit }) in self.first.iter().enumerate() {
            let line = if at == 0 { "" } else { "\n" };
            write!(f, "{line}task {tid} {name:?} {exit}")?;
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// What a [`step`](super::Kernel::step) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It resumed this task.
    Ran(Tid),
    /// Nobody was ready; it waited for the world once.
    Idle,
    /// No task is left.
    Finished,
}

/// Why a kernel stopped with tasks left, or that tasks did not end well. It can be run on after any
/// of these.
///
/// Its `Debug` is its `Display`: what a `main` that returns it prints is to be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No task was ready, and nothing could make one ready.
    #[error(transparent)]
    Deadlock(Deadlock),
    /// A limit was reached.
    #[error(transparent)]
    Limit(Limit),
    /// Only other threads could make a task ready, and none has for as long as
    /// [`Builder::max_stall`](crate::Builder::max_stall) allows.
    #[error(transparent)]
    Stalled(Stalled),
    /// The scheduling policy has failed: its type, and what it did wrong. The kernel has replaced it
    /// by [`Fifo`](crate::Fifo), and has lost no task.
    #[error("{0}")]
    Policy(String),
    /// Tasks failed or faulted; of [`Report::check`] alone.
    #[error(transparent)]
    Failed(Failures),
    /// The world failed: the poller, or the console, whose reader has gone.
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
    /// The run's resumes are used up.
    #[error("the limit of {0} ticks is reached")]
    Ticks(u64),
    /// The run's time is over.
    #[error("the limit of {0:?} is reached")]
    Time(Duration),
}

/// For as long as was set, no task was ready and no timer or device was waited for: only another
/// thread could make a task ready, and none did.
///
/// Its `Display` says what is awaited from outside, and then who waits, a line per blocked task.
#[derive(Clone, Debug)]
pub struct Stalled {
    /// How long the kernel has waited.
    pub waited: Duration,
    /// How many [`RemoteSetter`](crate::RemoteSetter)s are alive; clones count once.
    pub remote_setters: usize,
    /// How many jobs of [`Os::run_blocking`](crate::Os::run_blocking) are under way.
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
        write!(
            f,
            "stalled: no task is ready, and other threads alone could make one ready, for {waited:?}"
        )?;
        if *remote_setters > 0 {
            write!(f, "\n  remote setters alive: {remote_setters}")?;
        }
        if *jobs > 0 {
            write!(f, "\n  jobs under way: {jobs}")?;
        }
        for task in &self.blocked {
            write!(f, "\n  {task}")?;
        }
        Ok(())
    }
}
