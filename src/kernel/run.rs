//! A pass of turns, and the poll of the world between two passes.

use super::{
    Kernel,
    deadlock::Deadlock,
    report::{Error, Limit},
};
use crate::{
    abi::{Nanos, Tid},
    log::Fact,
    sched::{Cause, Runnable},
};

/// How many ticks may pass before the world is polled, where the passes are shorter.
const POLL_AFTER: u64 = 256;

/// How long daemons may have to wait for a poll of their devices, which costs a system call, while
/// tasks are ready.
const GLANCE_AFTER: Nanos = Nanos::from_millis(1);

/// How many polls with ready daemons may pass while no task is ready and the clock stands still.
/// Then the daemons are taken to spin, and the run goes on without them.
const PATIENCE: u32 = 16;

/// When daemons have their turns.
#[derive(Debug, Default)]
pub(super) struct Daemons {
    /// When their devices are polled next, if no task waits for a device.
    next_glance: Nanos,
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
        self.check_deadlock()?;
        // From the host, or from a destructor of a message.
        if self.frame.has_deferred() {
            self.run_deferred(Runnable::HOST);
        }
        // Read first: what external work says before it ends is in the interrupts.
        let external = self.remote.expected();
        if let Some(interrupts) = self.remote.take() {
            for queue in interrupts.rung {
                self.close_queue(queue);
            }
            if interrupts.shutdown {
                self.console.hurry();
                self.end_all();
                return Ok(());
            }
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
        let on_threads = self.timers.tasks.len() == 0 && self.devices.waiting() == 0;
        let may_be_helped = daemons_run && self.daemons.idle < PATIENCE;
        if waits && on_threads && external == 0 && !may_be_helped {
            return Err(Error::Deadlock(Deadlock::of(self.tasks())));
        }
        let until = match self.timers.next() {
            _ if !waits || daemons_run && self.daemons.still < PATIENCE => Nanos::ZERO,
            deadline => deadline.unwrap_or(Nanos::FOREVER).min(limit),
        };
        self.wait_events(until, on_threads)?;
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

    /// Waits for the world, no longer than until that instant. Wakes the tasks whose timers have
    /// fired, then those whose devices are ready. If the wait is `on_threads`, no timer and no device
    /// of a task can end it.
    fn wait_events(&mut self, until: Nanos, on_threads: bool) -> Result<(), Error> {
        let before = self.world.now();
        let glance = self.devices.daemons() > 0 && Nanos::from(before) >= self.daemons.next_glance;
        let waits = until > Nanos::ZERO;
        if waits {
            self.remote.runs(Tid::KERNEL);
        }
        if waits || self.devices.waiting() > 0 || !self.console.is_empty() || glance {
            self.daemons.next_glance = Nanos::from(before).saturating_add(GLANCE_AFTER);
            let until = (until != Nanos::FOREVER).then(|| until.into());
            if waits && on_threads {
                self.wait_for_threads(until)?;
            } else {
                self.world.wait(until, &mut self.reported)?;
            }
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
        while let Some((timer, slot)) = self.timers.pop_due(self.clock) {
            self.alarm(timer, slot);
        }
        self.take_reports();
        Ok(())
    }

    /// Wakes the tasks that wait for what the world has reported.
    pub(super) fn take_reports(&mut self) {
        let mut reported = std::mem::take(&mut self.reported);
        for (device, direction) in reported.drain(..) {
            self.report_ready(device, direction);
        }
        self.reported = reported;
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
        if self.remote.take_shutdown() {
            self.end_all();
        }
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
