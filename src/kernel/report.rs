//! What the host is told: a [`Report`] of a run, or why it stopped.

use std::{collections::BTreeMap, fmt, io, sync::Arc, time::Duration};

use super::Deadlock;
use crate::abi::{Exit, Tid};

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
    /// Shared, and copied only where the host keeps a report while more of its tasks end.
    pub(super) exits: Arc<BTreeMap<Tid, Exit>>,
}

impl Report {
    /// How each of the host's tasks ended. They leave no zombies: this is where their exits are.
    #[must_use]
    pub fn exits(&self) -> &BTreeMap<Tid, Exit> {
        &self.exits
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

/// Why a kernel stopped with tasks left. It can be run on after any of these.
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
