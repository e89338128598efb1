//! A wait for other threads alone: how long it may take, and what the kernel says of it.

use std::{io, time::Duration};

use super::{
    Kernel,
    report::{Error, Stalled},
};
use crate::{
    abi::{TaskInfo, TaskState},
    interrupt::External,
};

/// After how long the kernel warns.
const WARN_AFTER: Duration = Duration::from_secs(10);

/// The wait for other threads since a task had its last turn.
#[derive(Debug)]
pub(super) struct Stall {
    /// How long it may take.
    limit: Duration,
    /// How many turns tasks had had when it began, daemons apart.
    turns: u64,
    waited: Duration,
    is_told: bool,
}

impl Stall {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            turns: 0,
            waited: Duration::ZERO,
            is_told: false,
        }
    }
}

impl Kernel {
    /// Waits for other threads, until `deadline` or until there is something to say of the wait.
    /// Returns how long the wait has taken so far.
    pub(super) fn wait_for_threads(&mut self, deadline: Option<Duration>) -> io::Result<Duration> {
        let turns = self.stats.ticks;
        if self.stall.turns != turns {
            self.stall = Stall::new(self.stall.limit);
            self.stall.turns = turns;
        }
        let Stall { limit, waited, .. } = self.stall;
        let next = if self.stall.is_told {
            limit
        } else {
            limit.min(WARN_AFTER)
        };
        let patience = next.saturating_sub(waited);
        let span = self
            .world
            .wait_for_threads(deadline, patience, &mut self.happened);
        self.stall.waited = waited.saturating_add(span?);
        Ok(self.stall.waited)
    }

    /// Says that a wait for other threads has taken long.
    ///
    /// *Errors:* [`Error::Stalled`] at the limit.
    pub(super) fn check_stall(&mut self, waited: Duration) -> Result<(), Error> {
        if !self.awaits_threads() {
            // The last of them has ended meanwhile: the next poll says what follows.
            return Ok(());
        }
        let limit = self.stall.limit;
        if waited >= limit {
            self.stall = Stall::new(limit);
            return Err(Error::Stalled(self.stalled(waited)));
        }
        if waited >= WARN_AFTER && !self.stall.is_told {
            self.stall.is_told = true;
            let stalled = self.stalled(waited);
            tracing::warn!(target: "trapline::kernel", "{stalled}");
        }
        Ok(())
    }

    fn stalled(&self, waited: Duration) -> Stalled {
        let is_blocked = |task: &TaskInfo| matches!(task.state, TaskState::Blocked { .. });
        Stalled {
            waited,
            remote_setters: self.awaited(External::Setter),
            jobs: self.awaited(External::Job),
            blocked: self.tasks().filter(is_blocked).collect(),
        }
    }
}
