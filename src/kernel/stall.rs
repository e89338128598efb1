//! The wait in which only other threads can wake a task: its limit, and the warning.

use std::time::Duration;

use super::{
    Kernel,
    report::{Error, Stalled},
};
use crate::{
    abi::{TaskInfo, TaskState},
    interrupt::Outside,
};

/// The time after which the kernel warns.
const WARN_AFTER: Duration = Duration::from_secs(10);

/// The wait for other threads since the last turn of a task.
#[derive(Debug)]
pub(super) struct Stall {
    /// The longest allowed wait.
    limit: Duration,
    /// The turns of tasks before the wait, daemons apart.
    turns: u64,
    waited: Duration,
    is_reported: bool,
}

impl Stall {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            turns: 0,
            waited: Duration::ZERO,
            is_reported: false,
        }
    }
}

impl Kernel {
    /// Waits for other threads, until `deadline`, the warning or the limit.
    ///
    /// *Errors:* [`Error::Stalled`] at the limit, and the errors of the world.
    pub(super) fn wait_for_threads(&mut self, deadline: Option<Duration>) -> Result<(), Error> {
        let turns = self.stats.ticks;
        if self.stall.turns != turns {
            self.stall = Stall::new(self.stall.limit);
            self.stall.turns = turns;
        }
        let Stall { limit, waited, .. } = self.stall;
        let next = if self.stall.is_reported {
            limit
        } else {
            limit.min(WARN_AFTER)
        };
        let patience = next.saturating_sub(waited);
        let span = self
            .world
            .wait_for_threads(deadline, patience, &mut self.reported);
        let waited = waited.saturating_add(span?);
        self.stall.waited = waited;
        if self.remote.expected() == 0 {
            // The last thread has finished meanwhile; the next poll decides what follows.
            return Ok(());
        }
        if waited >= limit {
            self.stall = Stall::new(limit);
            return Err(Error::Stalled(self.stalled(waited)));
        }
        if waited >= WARN_AFTER && !self.stall.is_reported {
            self.stall.is_reported = true;
            let stalled = self.stalled(waited);
            tracing::warn!(target: "trapline::kernel", "{stalled}");
        }
        Ok(())
    }

    fn stalled(&self, waited: Duration) -> Stalled {
        let is_blocked = |task: &TaskInfo| matches!(task.state, TaskState::Blocked { .. });
        Stalled {
            waited,
            remote_setters: self.remote.awaited(Outside::Setter),
            jobs: self.remote.awaited(Outside::Job),
            blocked: self.tasks().filter(is_blocked).collect(),
        }
    }
}
