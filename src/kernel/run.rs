//! A pass of turns, and the poll of the world between two passes.

use std::time::Duration;

use super::{
    Kernel,
    deadlock::Deadlock,
    report::{Error, Limit},
};
use crate::{
    abi::{Nanos, Tid},
    interrupt::Interrupt,
    log::Fact,
    sched::{Cause, Runnable},
    world::Happening,
};

/// How many ticks may pass before the world is polled, where the passes are shorter.
const POLL_AFTER: u64 = 256;

/// How many polls with ready daemons may pass while no task is ready and the clock stands still.
/// Then the daemons are taken to spin, and the run goes on without them.
const PATIENCE: u32 = 16;

/// When daemons have their turns.
#[derive(Debug, Default)]
pub(super) struct Daemons {
    /// How many ticks the tasks had had at the poll before.
    ticks: u64,
    /// Polls since a task had a turn.
    idle: u32,
    /// Polls since a task had a turn, or the clock moved.
    still: u32,
    /// How many random numbers they have drawn.
    drawn: u64,
}

impl Daemons {
    /// A random number for a daemon: a sequence of its own, so that the tasks' does not change.
    /// (SplitMix64.)
    pub(super) fn random(&mut self, seed: u64) -> u64 {
        self.drawn += 1;
        let mut z = seed.wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

impl Kernel {
    /// Readies the log for what follows: the host has had the time since the last event.
    pub(super) fn enter(&mut self) {
        self.log.observe_by_tracing();
        self.frame.set_observed(self.log.is_observed());
        let now = self.world.now();
        self.log.set_clock(now);
    }

    /// Resumes ready tasks, in passes, until the world is due to be polled, no task is ready, or
    /// there were so many ticks since boot.
    pub(super) fn run_pass(&mut self, ticks: u64) {
        while self.stats.ticks < self.next_poll.min(ticks) && self.next_turn().is_some() {}
    }

    /// Gives the next ready task its turn, and returns which it was.
    #[inline(always)]
    pub(super) fn next_turn(&mut self) -> Option<Tid> {
        loop {
            let me = self.ready.pop()?;
            self.tasks.prefetch(self.ready.ahead());
            if self.turn(me) {
                return Some(me.tid);
            }
        }
    }

    /// Polls the world, and wakes the tasks that it has something for. Waits for the world when no
    /// task is ready, until `limit` at the latest.
    pub(super) fn poll_world(&mut self, limit: Nanos) -> Result<(), Error> {
        if cfg!(debug_assertions) {
            self.audit();
        }
        if let Some(error) = self.trouble.take() {
            return Err(Error::Io(error));
        }
        // From the host, or from a destructor of a message.
        if self.frame.has_deferred() {
            self.run_deferred(Runnable::HOST);
        }
        self.run_daemons();
        if self.tasks.live() == 0 {
            return Ok(());
        }
        let waits = self.ready.is_empty();
        if waits && self.ready.is_doubtful() {
            self.doubt_policy();
        }
        self.check_policy()?;
        let daemons_run = self.ready.daemons() > 0;
        let may_be_helped = daemons_run && self.daemons.idle < PATIENCE;
        let on_threads =
            self.timers.tasks.len() == 0 && (self.devices.waiting() == 0 || self.world.is_idle());
        let is_stuck = waits && on_threads && !self.awaits_threads() && !may_be_helped;
        let until = match self.timers.next() {
            // An interrupt may have come already.
            _ if !waits || is_stuck => Nanos::ZERO,
            _ if daemons_run && self.daemons.still < PATIENCE => Nanos::ZERO,
            deadline => deadline.unwrap_or(Nanos::FOREVER).min(limit),
        };
        self.wait_events(until, on_threads)?;
        if self.tasks.live() == 0 {
            return Ok(());
        }
        if is_stuck && self.ready.is_empty() {
            return Err(Error::Deadlock(Deadlock::of(self.tasks())));
        }
        let pass = POLL_AFTER.max(self.ready.len() as u64);
        self.next_poll = self.stats.ticks.saturating_add(pass);
        let is_over = if self.ready.is_empty() {
            self.clock >= limit
        } else {
            self.clock > limit
        };
        if is_over {
            self.tell_slept();
            return Err(Error::Limit(Limit::Time(self.limits.time.into())));
        }
        Ok(())
    }

    /// Waits for the world, no longer than until that instant, and handles what has happened:
    /// interrupts first, then the timers that have fired, then the devices that are ready. If the
    /// wait is `on_threads`, no timer and no device of a task can end it.
    fn wait_events(&mut self, until: Nanos, on_threads: bool) -> Result<(), Error> {
        let before = self.world.now();
        let waits = until > Nanos::ZERO;
        if waits {
            self.remote.runs(Tid::KERNEL);
        }
        let deadline = (until != Nanos::FOREVER).then(|| until.into());
        let mut waited = None;
        if waits && on_threads {
            waited = Some(self.wait_for_threads(deadline)?);
        } else {
            self.world.wait(deadline, &mut self.happened)?;
        }
        let now = self.world.now();
        if self.clock < now.into() {
            self.daemons.still = 0;
        }
        self.clock = now.into();
        if waits && now > before && self.log.is_observed() {
            let from = self.slept.map_or(before, |(from, _)| from);
            self.slept = Some((from, now));
        }
        self.log.set_clock(now);
        let is_quiet = self.happened.is_empty();
        if !is_quiet {
            self.take_interrupts();
        }
        while let Some((timer, slot)) = self.timers.pop_due(self.clock) {
            self.alarm(timer, slot);
        }
        if !is_quiet {
            self.take_readiness();
        }
        waited.map_or(Ok(()), |waited| self.check_stall(waited))
    }

    /// Handles what the world has reported, where no timer comes in between.
    pub(super) fn take_reports(&mut self) {
        self.take_interrupts();
        self.take_readiness();
    }

    /// Handles the interrupts among what the world has reported.
    fn take_interrupts(&mut self) {
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
    fn take_readiness(&mut self) {
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

    /// Gives each ready daemon a turn; when no task is ready, as many as a pass may have. The turns
    /// count nowhere.
    fn run_daemons(&mut self) {
        let ticks = self.stats.ticks;
        if ticks != self.daemons.ticks {
            (self.daemons.idle, self.daemons.still) = (0, 0);
            self.daemons.ticks = ticks;
        }
        if self.ready.daemons() == 0 {
            return;
        }
        self.daemons.idle += 1;
        self.daemons.still += 1;
        let turns = if self.ready.is_empty() {
            POLL_AFTER
        } else {
            self.ready.daemons() as u64
        };
        while self.stats.ticks < ticks + turns
            && let Some(me) = self.ready.pop_daemon()
        {
            self.turn(me);
        }
        self.stats.ticks = ticks;
    }

    /// Handles what came too late for a poll: no task is left. A shutdown is for daemons too, and
    /// not for the next run.
    pub(super) fn wind_up(&mut self) -> Result<(), Error> {
        self.world.wait(Some(Duration::ZERO), &mut self.happened)?;
        self.take_reports();
        self.trouble
            .take()
            .map_or(Ok(()), |error| Err(Error::Io(error)))
    }

    /// Finds out whether the policy says that it has no task, though one is ready.
    #[cold]
    fn doubt_policy(&mut self) {
        if self.tasks.is_any_ready() {
            self.ready.blame("withholds a task that is ready");
        }
    }

    /// Fails if the policy has. Its tasks go to the policy that takes its place.
    pub(super) fn check_policy(&mut self) -> Result<(), Error> {
        let Some(why) = self.ready.take_failure() else {
            return Ok(());
        };
        for task in self.tasks.all_ready() {
            self.ready.push(task, Cause::Woken);
        }
        Err(Error::Policy(why))
    }

    // ---- the log

    /// Tells tracers of a fact that has just come about.
    #[inline(always)]
    pub(super) fn emit<'a>(&mut self, tid: Tid, fact: impl FnOnce() -> Fact<'a>) {
        if self.log.is_observed() && !tid.is_daemon() {
            self.read_clock();
            self.log.emit(tid, fact());
        }
    }

    /// The same, of a fact that follows at once from the one before, and has its time.
    #[inline(always)]
    pub(super) fn emit_at_once<'a>(&mut self, tid: Tid, fact: impl FnOnce() -> Fact<'a>) {
        if self.log.is_observed() && !tid.is_daemon() {
            self.tell_slept();
            self.log.emit(tid, fact());
        }
    }

    /// Readies the log for a fact that has just come about.
    pub(super) fn read_clock(&mut self) {
        self.tell_slept();
        if self.log.is_exact() {
            let now = self.world.now();
            self.log.set_clock(now);
        }
    }

    /// Tells tracers of a wait, once a task has something to do with what follows: a wait that was
    /// interrupted for daemons alone is one wait.
    fn tell_slept(&mut self) {
        if let Some((from, to)) = self.slept.take() {
            self.log.set_clock(to);
            self.log.emit(Tid::KERNEL, Fact::ClockJumped { from });
        }
    }
}
