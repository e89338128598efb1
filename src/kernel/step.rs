//! A run in single steps, for debuggers; where runs and steps end.

use std::time::Duration;

use super::{
    Kernel,
    report::{Error, Step},
};
use crate::abi::Nanos;

/// Where a run or a sequence of steps ends, if tasks are left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    /// Counted from boot.
    pub(super) ticks: u64,
    /// On the world's clock.
    pub(super) time: Nanos,
}

impl Kernel {
    /// Resumes one task. If no task is ready, waits for the world once.
    ///
    /// Steps up to [`Step::Finished`] or an error ask the world for the same answers as a run. So a
    /// run on a [tape](mod@crate::tape) can be replayed step by step.
    ///
    /// *Errors:* as [`Kernel::run`]. The limits on ticks and time count from the first step after
    /// boot, a run, an error or [`Step::Finished`]. The step after the last tick fails.
    pub fn step(&mut self) -> Result<Step, Error> {
        let (now, ends) = match self.stepping {
            Some(ends) => (self.world.now_for_log(), ends),
            None => self.begin(),
        };
        self.enter(now)?;
        let mut step = loop {
            let ticks = ends.ticks.min(self.stats.ticks + 1);
            if let Some(tid) = self.run_pass(ticks) {
                break Ok(Step::Ran(tid));
            }
            if let Err(error) = self.check_policy() {
                break Err(error);
            }
            if self.tasks.live() == 0 {
                break Ok(Step::Finished);
            }
            let waits = self.is_waiting();
            match self.poll_world(ends) {
                Ok(()) if !waits => {}
                polled => break polled.map(|()| Step::Idle),
            }
        };
        self.leave();
        let goes_on = matches!(step, Ok(Step::Ran(_) | Step::Idle));
        self.stepping = goes_on.then_some(ends);
        if !goes_on {
            self.finish_printing(ends.time);
            step = step.and_then(|step| self.wind_up().map(|()| step));
        }
        self.log.leave_span();
        step
    }

    /// Begins a run or a sequence of steps. Returns the time, and where it ends.
    pub(super) fn begin(&mut self) -> (Duration, Ends) {
        self.note_run();
        self.console.begin();
        let now = self.world.now();
        let ticks = self.stats.ticks.saturating_add(self.limits.ticks);
        let time = Nanos::from(now).saturating_add(self.limits.time);
        self.skip_first_poll(time);
        (now, Ends { ticks, time })
    }
}
