//! The wait in which only other threads can wake a task: its limit, and the warning.

use std::{io, time::Duration};

use super::{
    Kernel,
    report::{Error, Stalled},
};
use crate::{abi::Nanos, interrupt::External, log::tracing::warn_report};

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

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.limit);
    }
}

impl Kernel {
    #[inline(always)]
    pub(super) fn waits_on_threads(&self) -> bool {
        self.timers.tasks.len() == 0 && self.expects_no_event()
    }

    /// Returns whether no computation, device or signal of the world can end a wait.
    #[inline(never)]
    fn expects_no_event(&self) -> bool {
        !self.will_compute()
            && (self.devices.waiting()[0] == 0 && !self.awaits_signal() || self.world.is_idle())
    }

    /// Returns whether computations will end, or slices of them, or go on until the run is ended: by
    /// its limit of time, or by an interrupt in the real world.
    fn will_compute(&self) -> bool {
        let is_limited = self.limits.time < Nanos::FOREVER;
        let has_end = || self.processors.has_done() || self.processors.next().is_some();
        !self.processors.are_idle() && (is_limited || self.world.spins() || has_end())
    }

    /// Returns how many threads of this kind may yet raise an interrupt.
    pub(super) fn awaited(&self, what: External) -> usize {
        // A world could report more ends than there were beginnings.
        let started = self.remote.started(what);
        started.saturating_sub(self.over[what as usize])
    }

    pub(super) fn awaits_threads(&self) -> bool {
        External::ALL.iter().any(|what| self.awaited(*what) > 0)
    }

    /// Waits for other threads, until `deadline`, the warning or the limit. Returns how long the wait
    /// has taken so far.
    pub(super) fn wait_for_threads(&mut self, deadline: Option<Duration>) -> io::Result<Duration> {
        let turns = self.stats.ticks;
        if self.stall.turns != turns {
            self.stall.reset();
            self.stall.turns = turns;
        }
        let stall = &mut self.stall;
        let next = match stall.is_reported {
            true => stall.limit,
            false => stall.limit.min(WARN_AFTER),
        };
        let (world, patience) = (&mut self.world, next.saturating_sub(stall.waited));
        let span = world.wait_for_threads(deadline, patience, &mut self.happened)?;
        stall.waited = stall.waited.saturating_add(span);
        Ok(stall.waited)
    }

    /// Reports a wait for other threads that has taken long.
    ///
    /// *Errors:* [`Error::Stalled`] at the limit.
    pub(super) fn check_stall(&mut self, waited: Duration) -> Result<(), Error> {
        if !self.awaits_threads() || self.tasks.lasting() == 0 {
            // The last thread has finished meanwhile, or a shutdown has come; the next poll decides what
            // follows.
            return Ok(());
        }
        if waited >= self.stall.limit {
            self.stall.reset();
            return Err(Error::Stalled(self.stalled(waited)));
        }
        if waited >= WARN_AFTER && !self.stall.is_reported {
            self.stall.is_reported = true;
            let stalled = self.stalled(waited);
            let shown = self.log.shown();
            warn_report(&match shown {
                Some(id) => stalled.beside(id),
                None => stalled,
            });
        }
        Ok(())
    }

    fn stalled(&self, waited: Duration) -> Stalled {
        Stalled {
            waited,
            remote_setters: self.awaited(External::Setter),
            jobs: self.awaited(External::Job),
            mail: self.awaited(External::Mail),
            blocked: self.blocked(),
        }
    }
}
