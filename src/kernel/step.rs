//! A run in single steps, for debuggers.

use super::{
    Kernel,
    report::{Error, Step},
};
use crate::abi::{Nanos, Tid};

impl Kernel {
    /// Resumes one task. If no task is ready, waits for the world once.
    ///
    /// Steps up to [`Step::Finished`] or an error ask the world for the same answers as a run. So a
    /// run on a [tape](mod@crate::tape) can be replayed step by step.
    ///
    /// *Errors:* as [`Kernel::run`], except for the limits on ticks and time: those apply to runs.
    pub fn step(&mut self) -> Result<Step, Error> {
        let now = match self.is_stepping {
            true => self.world.now_for_log(),
            false => self.begin(),
        };
        self.enter(now)?;
        self.is_stepping = true;
        let step = loop {
            if let Some(tid) = self.run_pass(self.stats.ticks + 1) {
                break Ok(Step::Ran(tid));
            }
            if let Err(error) = self.check_policy() {
                break Err(error);
            }
            if self.tasks.live() == 0 {
                self.finish_printing(Nanos::FOREVER);
                break self.wind_up().map(|()| Step::Finished);
            }
            let waits = self.is_waiting();
            match self.poll_world(Nanos::FOREVER) {
                Ok(()) if !waits => {}
                polled => break polled.map(|()| Step::Idle),
            }
        };
        self.is_stepping = matches!(step, Ok(Step::Ran(_) | Step::Idle));
        self.remote.runs(Tid::KERNEL);
        self.log.leave_span();
        step
    }
}
