//! A kernel for one more run, in the memory of the last.

use std::{io, rc::Rc};

use super::{Kernel, alone::next_number, report::Error};
use crate::{abi::Nanos, trap::TrapFrame};

impl Kernel {
    /// Makes the kernel as new, with another seed, and keeps its memory. A search runs thousands of
    /// schedules on one kernel.
    ///
    /// All tasks end, and their destructors run. Queues, devices, timers and printed text are
    /// dropped. The clock, and the numbers of tasks, queues and devices, begin anew. The settings of
    /// the [`Builder`](crate::Builder) and its tracers stay; the closures of [`Kernel::on_restart`] are dropped. A simulated network is as
    /// it was when the world got it. An injection counts calls from zero. The policy loses its tasks
    /// and gets the seed ([`Policy::reseed`](crate::Policy::reseed)). A policy that failed was replaced by
    /// [`Fifo`](crate::Fifo), which stays.
    ///
    /// *Errors:* [`Error::Io`] if the world cannot begin anew
    /// ([`World::reset`](crate::World::reset)), as the real one cannot. The tasks have ended then.
    ///
    /// ```
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// let mut drawn = Vec::new();
    /// for seed in [1, 2, 1] {
    ///     kernel.reset(seed)?;
    ///     kernel.spawn("dice", async |os: &mut Os| {
    ///         let number = os.random().await;
    ///         writeln!(os, "{number}");
    ///     })?;
    ///     kernel.run()?;
    ///     drawn.push(kernel.take_console());
    /// }
    /// assert_eq!(drawn[0], drawn[2]);
    /// assert_ne!(drawn[0], drawn[1]);
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn reset(&mut self, seed: u64) -> Result<(), Error> {
        self.restarts.reset();
        self.end_everything();
        if !self.world.reset(seed) {
            let error = io::Error::new(
                io::ErrorKind::Unsupported,
                "this world cannot begin anew: build another kernel",
            );
            return Err(Error::Io(error));
        }
        self.number = next_number();
        self.reset_frame();
        self.tasks.reset();
        self.ready.reset(seed);
        self.processors.reset();
        self.shares.reset();
        self.timers.reset();
        self.devices.reset();
        self.console.reset();
        self.queues.reset();
        self.holders.reset();
        self.held.reset();
        self.selects.reset();
        self.places.reset();
        if let Some(published) = &self.published {
            published.reset();
        }
        if let Some(injection) = &mut self.injection {
            injection.reset();
        }
        self.clock = Nanos::ZERO;
        self.next_poll = 0;
        self.pass_ends = 0;
        self.stepping = None;
        self.daemons = Default::default();
        self.slept = None;
        self.happened.clear();
        self.over = [0; 2];
        self.stall.reset();
        self.standstill = Default::default();
        if let Some(captured) = &mut self.captured {
            captured.clear();
        }
        self.trouble = None;
        self.stats.reset();
        Ok(())
    }

    /// Makes the frame as new. A handle that outlives its run must not name what this run makes: it
    /// keeps the frame of its run.
    fn reset_frame(&mut self) {
        let footprints = self.frame.footprints();
        // The world has another line only if a thread may yet use that of the last run.
        if Rc::strong_count(&self.frame) == 1 && !self.remote.is_used() {
            self.frame.reset();
        } else {
            self.remote = self.world.remote();
            self.frame = Rc::new(TrapFrame::new(self.remote.clone()));
            if let Some(published) = &self.published {
                published.follow(&self.remote);
            }
        }
        if let Some(net) = self.world.net() {
            net.bind(&self.frame);
        }
        if let Some(footprints) = footprints {
            footprints.reset();
            self.frame.set_footprints(footprints);
        }
        if self.injection.is_some() {
            self.frame.set_injected();
        }
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;
    use crate::Os;

    #[test]
    fn a_task_of_a_kernel_that_is_as_new_takes_one_allocation() {
        let mut kernel = Kernel::simulated(0);
        let mut run = |seed| {
            kernel.reset(seed).unwrap();
            let yields = async |os: &mut Os| os.yield_now().await;
            kernel.spawn("one", yields).unwrap();
            kernel.run().unwrap();
        };
        run(1);
        assert_eq!(measure(|| run(2)).count_total, 1);
    }
}
