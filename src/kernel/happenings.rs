//! What the world reports: interrupts of other threads, and devices that are ready.

use std::time::Duration;

use super::{Kernel, report::Error};
use crate::{interrupt::Interrupt, world::Happening};

impl Kernel {
    /// Handles what the world has reported, where no timer comes in between.
    pub(super) fn take_reports(&mut self) {
        self.take_interrupts();
        self.take_readiness();
    }

    /// Handles the interrupts among what the world has reported.
    pub(super) fn take_interrupts(&mut self) {
        for at in 0..self.happened.len() {
            let Happening::Interrupt(interrupt) = self.happened[at] else {
                continue;
            };
            match interrupt {
                Interrupt::Close(queue) => {
                    self.close_queue(queue);
                }
                Interrupt::Over(what) => self.over[what as usize] += 1,
                Interrupt::Shutdown => {
                    self.console.hurry();
                    self.end_all();
                }
            }
        }
    }

    /// Wakes the tasks that wait for the devices that the world has reported.
    pub(super) fn take_readiness(&mut self) {
        let mut happened = std::mem::take(&mut self.happened);
        for happening in happened.drain(..) {
            match happening {
                Happening::Ready(device, direction) => self.report_ready(device, direction),
                Happening::Console => self.write_out(),
                Happening::Interrupt(_) => {}
            }
        }
        self.happened = happened;
    }

    /// Handles interrupts that arrived after the last poll of a run. A shutdown also ends the
    /// daemons, and must not reach the next run.
    pub(super) fn wind_up(&mut self) -> Result<(), Error> {
        self.world.wait(Some(Duration::ZERO), &mut self.happened)?;
        if !self.happened.is_empty() {
            self.take_reports();
        }
        self.check_console()?;
        self.check_late_deadlock()
    }
}
