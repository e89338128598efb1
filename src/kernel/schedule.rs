//! Which task is ready, blocked or on a processor: the verbs that change several parts at once.
//!
//! Handlers and the loop call these. Nothing here calls a handler.

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    processors::Computation,
    shares::facts,
    task::{Pending, State, WaitingOn},
};
use crate::{
    abi::{Nanos, Reply, SystemCall},
    log::{Fact, Wake},
    sched::{Cause, Facts, Runnable},
    trap::{Note, Object},
};

/// The longest spin in the real world without a look at the world.
const PIECE: Nanos = Nanos::from_millis(1);

/// Blocked and ready.
impl Kernel {
    #[inline(always)]
    pub(super) fn block(&mut self, me: Runnable, on: WaitingOn) {
        self.tasks[me].block(on, self.clock);
        if self.is_seen(me.tid) {
            self.emit_blocked(me);
        }
    }

    /// Writes the answer of the caller, which becomes ready.
    #[inline(always)]
    pub(super) fn answer(&mut self, me: Runnable, answer: impl Into<Answer>) -> Outcome {
        self.tasks[me].answer(answer.into());
        Outcome::Answered
    }

    /// Makes a blocked task ready. It has left the queue where it waited.
    #[inline(always)]
    pub(super) fn wake(&mut self, task: Runnable, by: Wake, answer: impl Into<State>) {
        self.tasks[task].wake(answer);
        self.woken_apart(task, by);
    }

    #[inline(never)]
    fn woken_apart(&mut self, task: Runnable, by: Wake) {
        self.woken(task, by);
    }

    /// Puts a task on the ready queue that was blocked. Its answer is known.
    #[inline(always)]
    pub(super) fn woken(&mut self, task: Runnable, by: Wake) {
        if self.is_seen(task.tid) {
            self.emit_woken(task, by);
        }
        if self.frame.is_noted() {
            self.frame.note(Note::Woken(task.tid));
        }
        self.enqueue(task, Cause::Woken);
    }

    #[inline(always)]
    pub(super) fn enqueue(&mut self, task: Runnable, cause: Cause) {
        if self.processors.are_taken() && !task.tid.is_daemon() {
            self.preempt_for(task);
        }
        if !self.ready.push(task, cause) {
            self.hand_over(task, cause, Nanos::ZERO, false);
        }
    }

    /// Puts the caller back after a call that does not block, or gives it a processor.
    #[inline(always)]
    pub(super) fn requeue(&mut self, me: Runnable, call: SystemCall) {
        if let SystemCall::Compute(_) = call
            && let &State::Pending(Pending::Compute(left)) = self.tasks[me].state()
        {
            if self.ready.is_plain() {
                self.compute_now(me, left);
            } else if !self.ready.push(me, Cause::Preempted) {
                self.hand_over(me, Cause::Preempted, Nanos::ZERO, true);
            }
            return;
        }
        if let Some(cause) = self.ready.requeue(me, call) {
            self.hand_over(me, cause, Nanos::ZERO, false);
        }
    }

    /// Has the next poll of the world come before the next turn.
    pub(super) fn poll_soon(&mut self) {
        (self.next_poll, self.pass_ends) = (0, 0);
    }
}

/// What a policy learns.
impl Kernel {
    /// Gives a task to a policy that wants facts.
    #[inline(never)]
    fn hand_over(&mut self, task: Runnable, cause: Cause, computed: Nanos, keeps_place: bool) {
        let mut given = facts(&self.tasks, &self.queues, &self.shares, task, self.clock);
        (given.computed, given.keeps_place) = (computed, keeps_place);
        self.ready.push_with(cause, &given);
    }

    pub(super) fn policy_learns(&mut self, task: Runnable) {
        let is_queued = self.tasks[task].state().is_ready() && !self.processors.is_done(task);
        if !self.ready.is_plain() && is_queued {
            let facts = facts(&self.tasks, &self.queues, &self.shares, task, self.clock);
            self.ready.changed(&facts);
        }
    }

    /// Tells the policy that a task has left its processor.
    fn charge(&mut self, task: Runnable, computed: Nanos) {
        let facts = facts(&self.tasks, &self.queues, &self.shares, task, self.clock);
        self.ready.charge(&Facts { computed, ..facts });
    }

    /// Interrupts the least urgent computation, if the policy prefers this task.
    #[cold]
    #[inline(never)]
    fn preempt_for(&mut self, task: Runnable) {
        let facts_of = |task| facts(&self.tasks, &self.queues, &self.shares, task, self.clock);
        let running = self.processors.computing().iter().map(|computation| {
            let (computed, length) = computation.progress(self.clock);
            Facts {
                computed,
                length,
                ..facts_of(computation.task)
            }
        });
        let weakest = running.enumerate().reduce(|weakest, next| {
            let is_weaker = self.ready.preempts(&weakest.1, &next.1);
            if is_weaker { next } else { weakest }
        });
        let victim = weakest.filter(|(_, running)| self.ready.preempts(&facts_of(task), running));
        if let Some((at, _)) = victim {
            self.interrupt(at, true);
        }
    }

    /// Takes a ready task out of the ready queue, or out of the turns that come before it.
    pub(super) fn leave_ready(&mut self, me: Runnable) {
        if !self.processors.leave_done(me) {
            self.ready.remove(me);
        }
    }
}

/// Computations.
impl Kernel {
    /// Starts or continues a computation on a free processor.
    pub(super) fn compute_now(&mut self, me: Runnable, left: Nanos) {
        let facts = facts(&self.tasks, &self.queues, &self.shares, me, self.clock);
        let slice = self.ready.slice(&facts);
        // A turn that comes before the start may come after the computation otherwise.
        self.touch(Object::All);
        let (processor, own) = self.processors.place(me);
        if own.is_none_or(|own| own.interrupted.is_none()) {
            self.emit_left(Some(processor));
            self.emit(me.tid, || Fact::Computing { processor });
        }
        let since = Nanos::from(self.world.now());
        self.processors.start(Computation {
            task: me,
            processor,
            since,
            left,
            slice_ends: since.saturating_add(slice),
        });
        self.tasks[me].compute();
        if self.processors.are_full() {
            self.poll_soon();
        }
    }

    /// Prepares for a wait until this instant, and returns the instant until which the kernel waits.
    /// In the real world the kernel spins for the task that computes.
    #[inline(always)]
    pub(super) fn spin(&mut self, until: Nanos) -> Nanos {
        let is_idle = self.processors.computing().is_empty() && !self.processors.has_left();
        if is_idle { until } else { self.spin_on(until) }
    }

    fn spin_on(&mut self, until: Nanos) -> Nanos {
        if until > Nanos::ZERO && self.processors.has_left() {
            self.emit_left(None);
        }
        if self.processors.computing().is_empty() || !self.world.spins() {
            return until;
        }
        let now = Nanos::from(self.world.now());
        self.world.spin(now.saturating_add(PIECE).min(until).into());
        Nanos::ZERO
    }

    /// Ends the computations and slices that are due, and then calls the policy if it is time.
    /// Returns whether a task has its turn before anything else happens.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> bool {
        let is_idle = self.processors.are_idle() && self.ready.is_plain();
        !is_idle && self.advance_to_clock()
    }

    fn advance_to_clock(&mut self) -> bool {
        while let Some(at) = self.processors.due(self.clock) {
            self.interrupt(at, false);
        }
        if self.processors.has_done() {
            return true;
        }
        if self.ready.next_alarm() <= self.clock {
            self.interrupt_all();
            self.ready.alarm(self.clock);
        }
        false
    }

    pub(super) fn interrupt_all(&mut self) {
        // The last is the first at the front.
        while let Some(last) = self.processors.computing().len().checked_sub(1) {
            self.interrupt(last, true);
        }
    }

    /// Takes a computation off its processor. If it is over, its task has its turn; otherwise the
    /// task goes back to the policy.
    fn interrupt(&mut self, at: usize, keeps_place: bool) {
        let computation = self.processors.computing()[at];
        let task = computation.task;
        let (ran, left) = computation.progress(self.clock);
        if left == Nanos::ZERO {
            self.processors.stop(at, None);
            return self.finish_computing(task, ran, Answer::SLEPT.into());
        }
        self.processors.stop(at, Some(left));
        self.tasks[task].answer(Pending::Compute(left));
        self.charge(task, ran);
        if !self.ready.push(task, Cause::Preempted) {
            self.hand_over(task, Cause::Preempted, ran, keeps_place);
        }
    }

    /// Answers a computation that is over or cut. Its task has the next turn.
    fn finish_computing(&mut self, task: Runnable, ran: Nanos, state: State) {
        self.tasks[task].answer(state);
        self.emit_answer(task);
        self.charge(task, ran);
        self.processors.finish(task);
    }

    /// Frees the processor of a task that is killed or whose computation is cut. Returns what it has
    /// computed.
    pub(super) fn stop_computing(&mut self, me: Runnable) -> Nanos {
        let computing = self.processors.computing();
        let at = computing.iter().position(|c| c.task == me);
        let at = at.expect("a task that computes has a processor");
        let now = self.world.now().into();
        let (ran, _) = self.processors.computing()[at].progress(now);
        self.processors.stop(at, None);
        ran
    }

    /// Cuts the computation of a task at its timeout. The task goes on at once if it has a
    /// processor, and otherwise in its turn.
    pub(super) fn cut_computing(&mut self, me: Runnable, number: u64) {
        let cut = State::from(Reply::Elapsed(number));
        if let State::Computing = self.tasks[me].state() {
            let ran = self.stop_computing(me);
            return self.finish_computing(me, ran, cut);
        }
        self.tasks[me].answer(cut);
        self.emit_answer(me);
        self.policy_learns(me);
    }

    /// Emits which tasks were interrupted, on this processor or on all.
    fn emit_left(&mut self, processor: Option<usize>) {
        for left in self.processors.take_left(processor) {
            let Some(task) = self.tasks.get_mut(left.task) else {
                continue;
            };
            if let State::Pending(Pending::Compute(_)) = task.state()
                && let Some(rest) = left.interrupted
            {
                let tid = left.task.tid;
                self.emit(tid, || Fact::Preempted { left: rest.into() });
            }
        }
    }
}
