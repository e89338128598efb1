//! A pass of turns, and the poll of the world between two passes.

use std::time::Duration;

use super::{
    Kernel,
    report::{Error, Limit},
    turn::Turn,
};
use crate::{
    abi::{Exit, Nanos, Tid},
    sched::{Cause, Runnable},
    trap::Note,
    world::BeforeTurn,
};

/// Where a run or a sequence of steps ends, if tasks are left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    /// Counted from boot.
    pub(super) ticks: u64,
    /// On the world's clock.
    pub(super) time: Nanos,
}

impl Kernel {
    /// Prepares for turns. Sets the clock of the log to `now`: the host has used time since the last
    /// event.
    ///
    /// *Errors:* the kernel runs already: a closure of [`Kernel::on_restart`] runs it.
    pub(super) fn enter(&mut self, now: Duration) -> Result<(), Error> {
        self.check_restarts()?;
        self.log.observe_by_tracing();
        self.frame.set_published(self.published.is_some());
        self.note_tracers();
        self.frame.set_requeued(!self.ready.is_plain());
        self.log.set_clock(now);
        // The host has acted.
        self.frame.note(Note::Barrier);
        // A crash comes before any turn, and so does the end of daemons after the last step.
        self.run_deferred_of_host();
        self.is_over();
        Ok(())
    }

    /// Ends the turns of a run or a step: what follows is done by the host.
    pub(super) fn leave(&mut self) {
        self.end_accesses();
        self.frame.mailboxes.admit();
        self.remote.runs(Tid::KERNEL);
        self.frame.note(Note::Barrier);
    }

    /// Resumes ready tasks, each once per pass. Stops when a poll of the world is due, no task is
    /// ready, or `ticks` since boot are used up. Returns the task that was resumed last.
    #[inline(never)]
    pub(super) fn run_pass(&mut self, ticks: u64) -> Option<Tid> {
        if !self.processors.are_idle() {
            let last = self.run_done(ticks);
            if last.is_some() {
                return last;
            }
        }
        if !self.processors.begin_pass() {
            return None;
        }
        self.pass_ends = self.next_poll.min(ticks);
        let (mut last, mut next) = (None, None);
        while self.stats.ticks < self.pass_ends {
            let Some(me) = next.or_else(|| self.ready.next()) else {
                break;
            };
            // Read ahead: behind the turn, these loads would wait for its stores.
            let following = if !self.ready.is_special() {
                self.ready.take()
            } else if self.ready.is_plain() {
                self.prefetch();
                self.ready.take()
            } else {
                None
            };
            let turn = self.turn(me);
            if turn == Turn::Void {
                self.ready.leave();
                if self.is_asked || self.is_conducted {
                    self.poll_soon();
                }
            } else {
                last = Some(me.tid);
            }
            next = match turn {
                Turn::Kept => following,
                Turn::Void | Turn::Left => None,
            };
        }
        self.processors.end_pass();
        last
    }

    /// Gives each task whose computation is over its turn, before the policy is asked. Returns the
    /// task that was resumed last, if any.
    fn run_done(&mut self, ticks: u64) -> Option<Tid> {
        self.processors.begin_done();
        let last = self.run_apart(ticks, |kernel| kernel.processors.pop_done());
        self.processors.end_pass();
        if last.is_some() && !self.processors.has_done() {
            // In single steps, too, the world is asked before the next pass.
            self.poll_soon();
        }
        last
    }

    /// Resumes tasks that have no place among the ready ones, and must not leave that of a task. Stops
    /// when `ticks` since boot are used up. Returns the task that was resumed last.
    #[inline(never)]
    pub(super) fn run_apart(
        &mut self,
        ticks: u64,
        next: impl Fn(&mut Self) -> Option<Runnable>,
    ) -> Option<Tid> {
        let mut last = None;
        self.ready.end_pass();
        self.frame.set_requeued(true);
        while self.stats.ticks < ticks
            && !self.tasks.are_attendants()
            && let Some(me) = next(self)
        {
            if self.turn(me) != Turn::Void {
                last = Some(me.tid);
            }
        }
        self.frame.set_requeued(!self.ready.is_plain());
        last
    }

    /// Returns whether no task can have a turn: none is ready, or every processor computes.
    #[inline(always)]
    pub(super) fn is_waiting(&self) -> bool {
        if self.processors.are_idle() {
            return self.ready.is_empty();
        }
        !self.processors.has_done() && (self.ready.is_empty() || self.processors.are_full())
    }

    /// Returns the failure of the policy, if it has failed. Its tasks go to the new policy.
    #[inline(always)]
    pub(super) fn check_policy(&mut self) -> Result<(), Error> {
        let failure = self.ready.take_failure();
        failure.map_or(Ok(()), |why| Err(self.leave_policy(why)))
    }

    #[cold]
    fn leave_policy(&mut self, why: String) -> Error {
        self.hand_over_ready();
        Error::Policy(why)
    }

    /// Gives a policy that has none all tasks that are ready, by their numbers. A task whose computation
    /// is over keeps its processor and its turn.
    fn hand_over_ready(&mut self) {
        let is_queued = |task: &Runnable| !self.processors.is_done(*task);
        for task in self.tasks.ready().filter(is_queued).collect::<Vec<_>>() {
            self.enqueue(task, Cause::Woken);
        }
    }

    /// Replaces the policy between two passes, where no task has its turn. Computations are interrupted:
    /// the new policy gives them slices.
    #[cold]
    pub(super) fn replace_policy(&mut self) {
        self.interrupt_all();
        self.ready.replace();
        self.hand_over_ready();
        self.frame.set_requeued(!self.ready.is_plain());
    }

    /// Prefetches what later turns of a crowd touch: the task that is 16 turns away, and the program of
    /// the one that is 8 away.
    #[cold]
    #[inline(never)]
    fn prefetch(&self) {
        if let Some(task) = self.ready.ahead(16) {
            self.tasks.prefetch_task(task);
        }
        if let Some(task) = self.ready.ahead(8) {
            self.tasks.prefetch_program(task);
        }
    }

    /// Polls the world, and wakes the tasks that it has something for. Waits for the world when no
    /// task is ready, until the time at which the run ends at the latest.
    ///
    /// *Errors:* as [`Kernel::run`], at a limit too: tasks are left.
    pub(super) fn poll_world(&mut self, ends: Ends) -> Result<(), Error> {
        if self.stats.ticks >= ends.ticks {
            return Err(self.limit(Limit::Ticks(self.limits.ticks)));
        }
        if cfg!(debug_assertions) {
            self.audit();
        }
        self.check_console()?;
        self.frame.mailboxes.admit();
        self.run_deferred_of_host();
        self.run_daemons();
        while self.holders.are_doomed()
            && let Some(victim) = self.next_doomed()
        {
            self.frame.note(Note::Barrier);
            self.end(victim, &Exit::Killed);
        }
        // A daemon may have taken mail, and the kernel may sleep now.
        self.frame.mailboxes.admit();
        if self.is_over() {
            return Ok(());
        }
        if self.is_asked && self.ask_world(ends)? {
            return Ok(());
        }
        let waits = self.is_waiting();
        if self.ready.is_doubtful() && self.ready.is_empty() {
            self.ready.decide(self.tasks.ready().next().is_some());
        }
        self.check_policy()?;
        let on_threads = waits && self.waits_on_threads();
        let is_stuck = on_threads && !self.awaits_threads() && !self.may_daemons_help();
        self.check_cycles(is_stuck)?;
        let until = if !waits || is_stuck || self.do_daemons_hurry() {
            // An interrupt may have come already.
            Nanos::ZERO
        } else {
            self.next_deadline()
                .unwrap_or(Nanos::FOREVER)
                .min(ends.time)
        };
        self.wait_events(until, on_threads)?;
        // A host has crashed or restarted.
        self.run_deferred_of_host();
        if self.is_over() {
            return Ok(());
        }
        if is_stuck && self.is_waiting() {
            return Err(self.stuck());
        }
        self.check_standstill();
        if self.ready.has_next() {
            self.replace_policy();
        }
        self.ready.begin();
        let pass = match self.is_asked {
            true => u64::from(!waits),
            false => self.ready.pass(),
        };
        self.next_poll = self.stats.ticks.saturating_add(pass);
        self.check_time(ends.time)
    }

    /// Asks the world what happens before the next turn, until nothing more does. Returns whether no
    /// task is left then.
    #[cold]
    #[inline(never)]
    fn ask_world(&mut self, ends: Ends) -> Result<bool, Error> {
        self.look_at_world(Nanos::ZERO)?;
        loop {
            self.run_deferred_of_host();
            if self.is_over() {
                return Ok(true);
            }
            self.remote.runs(Tid::KERNEL);
            let at = BeforeTurn {
                turns: self.stats.ticks,
                waits: self.is_waiting(),
                is_full: !self.processors.are_idle() && self.processors.are_full(),
                deadline: self.next_deadline_apart().map(Duration::from),
            };
            let Some(until) = self.world.before_turn(at) else {
                return Ok(false);
            };
            self.run_deferred_of_host();
            self.look_at_world(Nanos::from(until).min(ends.time))?;
        }
    }

    /// Waits for the world, where that is rare.
    #[cold]
    #[inline(never)]
    fn look_at_world(&mut self, until: Nanos) -> Result<(), Error> {
        self.wait_events(until, false)
    }

    #[cold]
    #[inline(never)]
    fn next_deadline_apart(&mut self) -> Option<Nanos> {
        self.next_deadline()
    }

    /// Returns the next instant at which a timer fires, a computation or a slice ends, or the policy
    /// wants to be called.
    #[inline(always)]
    fn next_deadline(&mut self) -> Option<Nanos> {
        let timer = self.timers.next();
        if self.processors.computing().is_empty() {
            return timer;
        }
        let alarm = Some(self.ready.next_alarm()).filter(|alarm| *alarm < Nanos::FOREVER);
        let deadlines = [timer, self.processors.next(), alarm];
        deadlines.into_iter().flatten().min()
    }

    /// Waits for the world, no longer than until that instant, and handles what has happened:
    /// interrupts first, then the timers that have fired, then signals, then the devices that are ready. If the
    /// wait is `on_threads`, no timer and no device of a task can end it.
    #[inline(always)]
    fn wait_events(&mut self, until: Nanos, on_threads: bool) -> Result<(), Error> {
        let before = self.world.now();
        let computes = !self.processors.are_idle();
        let until = self.spin(until);
        let waits = until > Nanos::ZERO;
        if waits {
            self.remote.runs(Tid::KERNEL);
        }
        if until > before.into() && (on_threads || self.world.spins()) {
            self.log.before_sleep();
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
            self.standstill.end(self.stats.ticks);
        }
        self.clock = now.into();
        if waits && !computes {
            self.keep_slept(before, now);
        }
        self.log.set_clock(now);
        let is_quiet = self.happened.is_empty();
        if !is_quiet || waits {
            self.frame.note(Note::Barrier);
        }
        if self.advance() {
            return Ok(());
        }
        if !is_quiet {
            self.take_interrupts();
        }
        self.fire_timers();
        self.take_signals();
        if !is_quiet {
            self.take_readiness();
        }
        waited.map_or(Ok(()), |waited| self.check_stall(waited))
    }

    /// A task that is ready at the limit has its turn.
    fn check_time(&mut self, limit: Nanos) -> Result<(), Error> {
        if self.clock < limit || self.clock == limit && !self.is_waiting() {
            return Ok(());
        }
        self.emit_slept();
        Err(self.limit(Limit::Time(self.limits.time.into())))
    }
}
