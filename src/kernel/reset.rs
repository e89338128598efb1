//! A kernel for one more run, in the memory of the last; and whether one kernel alone has run on its
//! thread. A search decides the turns of the kernel that it gives to its closure, and of no other.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use super::{Kernel, report::Error};
use crate::{abi::Nanos, trap::TrapFrame};

thread_local! {
    /// The last number that a kernel of this thread got.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The number of the kernel that is watched, and whether another one has run since.
    static WATCHED: Cell<(u64, bool)> = const { Cell::new((0, false)) };
}

pub(super) fn next_number() -> u64 {
    LAST.set(LAST.get() + 1);
    LAST.get()
}

impl Kernel {
    /// Watches from now on whether another kernel runs on this thread.
    #[doc(hidden)]
    pub fn watch_alone(&self) {
        WATCHED.set((self.number, false));
    }

    /// Returns whether this is the kernel that is watched, not made as new since, and no other has
    /// run. Ends the watch.
    #[doc(hidden)]
    #[must_use]
    pub fn was_alone(&self) -> bool {
        WATCHED.take() == (self.number, false)
    }

    pub(super) fn mark_run(&self) {
        let (watched, _) = WATCHED.get();
        if watched != self.number && !self.is_conducted {
            WATCHED.set((watched, true));
        }
    }

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
        // To clear an empty map takes long, so most parts look first.
        self.end_run();
        if Rc::strong_count(&self.frame) > 1 {
            // A setter that the host has kept may be set in a later run.
            self.remote.lend();
        }
        if !self.world.reset(seed) {
            let why = "this world cannot begin anew: build another kernel";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why).into());
        }
        self.number = next_number();
        self.reset_frame();
        self.tasks.reset();
        self.ready.reset(seed);
        self.processors.reset();
        self.shares.reset();
        self.timers.reset();
        self.devices.reset();
        self.console = Default::default();
        self.stdio.reset();
        self.queues.reset();
        self.holders.reset();
        self.held.reset();
        self.selects.reset();
        self.signals.reset();
        self.remote.reset_signals();
        if !self.faults.is_empty() {
            self.faults.clear();
        }
        self.bounds.reset();
        if let Some(published) = &self.published {
            published.reset();
        }
        if let Some(injection) = &mut self.injection {
            injection.reset();
        }
        self.clock = Nanos::ZERO;
        self.log.set_clock(Duration::ZERO);
        self.shown = 0;
        (self.next_poll, self.pass_ends) = (0, 0);
        self.stepping = None;
        self.daemons = Default::default();
        self.choices = Default::default();
        self.slept = None;
        self.happened.clear();
        self.over = Default::default();
        self.stall.reset();
        self.standstill = Default::default();
        if let Some(captured) = &mut self.captured {
            captured.take();
        }
        self.trouble = None;
        self.stats.reset();
        Ok(())
    }

    /// Ends what the last run has left, as a reset does: a log has these ends.
    pub(crate) fn end_run(&mut self) {
        self.restarts.reset();
        self.end_everything();
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
            self.bind_frame();
        }
        self.screen_traps();
        if let Some(footprints) = footprints {
            footprints.reset();
            self.frame.set_footprints(footprints);
        }
    }

    /// Makes a new frame that of this kernel.
    pub(super) fn bind_frame(&mut self) {
        self.frame.kernel.set(self.id);
        self.frame.mailboxes.set_prompt(!self.world.spins());
        if let Some(net) = self.world.net() {
            net.bind(&self.frame);
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
