//! The processors: what computes, which computation ends next, and the task that gives way.
//!
//! A turn needs a free processor and takes no time. A computation has its processor until it is
//! over, until its slice ends, or until the policy prefers another task. Without a policy a caller
//! of `compute` keeps the processor of its turn.

use std::collections::VecDeque;

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    shares,
    task::{Pending, State},
    turn::Turn,
};
use crate::{
    abi::{Nanos, Reply, SystemCall, Tid},
    log::{Fact, Wake},
    sched::{Cause, Runnable},
    trap::{Note, Object},
};

/// The longest spin in the real world without a look at the world.
const PIECE: Nanos = Nanos::from_millis(1);

/// The most processors of a kernel.
pub(super) const MOST: usize = 1024;

/// The processors of a kernel.
#[derive(Debug)]
pub(super) struct Processors {
    count: usize,
    /// The computations under way, in order of their starts.
    computing: Vec<Computation>,
    /// The tasks whose computations are over or were cut. They keep their processors for a turn.
    done: VecDeque<Runnable>,
    /// The tasks that left a processor at this instant.
    left: Vec<Left>,
    /// Whether a task has its turn, which needs a processor.
    in_pass: bool,
}

/// A computation on a processor.
#[derive(Clone, Copy, Debug)]
struct Computation {
    task: Runnable,
    processor: usize,
    since: Nanos,
    /// What was left of it at that instant.
    left: Nanos,
    /// The instant at which its slice ends.
    slice_ends: Nanos,
}

impl Computation {
    /// Returns the instant at which it is over or its slice ends.
    fn ends(&self) -> Nanos {
        self.since.saturating_add(self.left).min(self.slice_ends)
    }
}

/// A task that left its processor.
#[derive(Clone, Copy, Debug)]
struct Left {
    task: Runnable,
    processor: usize,
    /// What is left of its computation. A task that goes on at the same instant was never
    /// interrupted, so the log learns of an interruption only when it is one.
    interrupted: Option<Nanos>,
}

impl Processors {
    pub(super) fn new(count: usize) -> Self {
        Self {
            count: count.clamp(1, MOST),
            computing: Vec::new(),
            done: VecDeque::new(),
            left: Vec::new(),
            in_pass: false,
        }
    }

    /// Forgets the tasks of an earlier run.
    pub(super) fn reset(&mut self) {
        self.computing.clear();
        self.done.clear();
        self.left.clear();
        self.in_pass = false;
    }

    /// Returns whether no task computes and none has just computed.
    #[inline(always)]
    pub(super) fn are_idle(&self) -> bool {
        self.computing.is_empty() && self.done.is_empty()
    }

    /// Returns whether no processor is free for a turn.
    fn are_full(&self) -> bool {
        self.computing.len() + self.done.len() >= self.count
    }

    /// Returns whether a task that becomes ready finds no processor.
    fn are_taken(&self) -> bool {
        self.computing.len() + self.done.len() + usize::from(self.in_pass) >= self.count
    }

    /// Returns the tasks that compute.
    pub(super) fn tasks(&self) -> impl Iterator<Item = Runnable> {
        self.computing.iter().map(|computation| computation.task)
    }

    /// Returns whether a task has its turn next, after its computation.
    pub(super) fn is_done(&self, task: Runnable) -> bool {
        self.done.contains(&task)
    }

    /// Returns the next instant at which a computation or a slice ends.
    fn next(&self) -> Option<Nanos> {
        let ends = self.computing.iter().map(Computation::ends).min();
        ends.filter(|ends| *ends < Nanos::FOREVER)
    }

    /// Chooses a free processor for a task: its own, if it has just left it, or the first. Returns
    /// it with what the task had left there.
    fn place(&mut self, task: Runnable) -> (usize, Option<Left>) {
        let own = self.left.iter().position(|left| left.task == task);
        let own = own.map(|at| self.left.remove(at));
        let is_taken = |processor| self.computing.iter().any(|c| c.processor == processor);
        let own = own.filter(|own| !is_taken(own.processor));
        let first = || (0..self.count).find(|processor| !is_taken(*processor));
        let place = own.map(|own| own.processor).or_else(first);
        (place.expect("a turn has a processor"), own)
    }
}

impl Kernel {
    // ---- turns

    /// Gives each task whose computation is over its turn, before the policy is asked. Returns the
    /// task that was resumed last, if any.
    pub(super) fn run_done(&mut self, ticks: u64) -> Option<Tid> {
        let mut last = None;
        // These tasks have no place among the ready tasks, and must not leave that of a task.
        self.ready.end_pass();
        self.frame.set_requeued(true);
        self.processors.in_pass = true;
        while self.stats.ticks < ticks
            && let Some(me) = self.processors.done.pop_front()
        {
            if self.turn::<true>(me) != Turn::Void {
                last = Some(me.tid);
            }
        }
        self.processors.in_pass = false;
        self.frame.set_requeued(!self.ready.is_plain());
        if last.is_some() && self.processors.done.is_empty() {
            // In single steps, too, the world is asked before the next pass.
            self.poll_soon();
        }
        last
    }

    /// Returns whether no task can have a turn: none is ready, or every processor computes.
    #[inline(always)]
    pub(super) fn is_waiting(&self) -> bool {
        if self.processors.are_idle() {
            return self.ready.is_empty();
        }
        self.processors.done.is_empty() && (self.ready.is_empty() || self.processors.are_full())
    }

    /// Notes whether a pass is under way. Returns whether a processor is free for its turns.
    #[inline(always)]
    pub(super) fn begin_pass(&mut self) -> bool {
        self.processors.in_pass = !self.processors.are_full();
        self.processors.in_pass
    }

    #[inline(always)]
    pub(super) fn end_pass(&mut self) {
        self.processors.in_pass = false;
    }

    // ---- the ready queue

    /// Puts a task on the ready queue. A task that computes may give way to it.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, task: Runnable, cause: Cause) {
        if self.ready.is_plain() || task.tid.is_daemon() {
            return self.ready.push(task, cause);
        }
        if !self.processors.computing.is_empty() && self.processors.are_taken() {
            self.preempt_for(task);
        }
        if !self.ready.push_bare(task, cause) {
            self.hand_over(task, cause, Nanos::ZERO, false);
        }
    }

    /// Puts a task on the ready queue that was blocked. Its answer is known.
    #[inline(never)]
    pub(super) fn woken(&mut self, task: Runnable, by: Wake) {
        self.emit(task.tid, || Fact::Woken { by });
        self.frame.note(Note::Woken(task.tid));
        self.tell_answer(task);
        self.enqueue(task, Cause::Woken);
    }

    /// Puts the caller back after a call that does not block, or gives it a processor.
    #[inline(always)]
    pub(super) fn requeue(&mut self, me: Runnable, call: SystemCall) {
        if let SystemCall::Compute(_) = call
            && let State::Pending(Pending::Compute(left)) = self.tasks[me].state
        {
            return if self.ready.is_plain() {
                self.compute_now(me, left);
            } else {
                self.hand_over(me, Cause::Preempted, Nanos::ZERO, true);
            };
        }
        if self.ready.is_plain() || me.tid.is_daemon() {
            return self.ready.push(me, Cause::Preempted);
        }
        if let Some(cause) = self.ready.requeue(me, call) {
            self.hand_over(me, cause, Nanos::ZERO, false);
        }
    }

    /// Gives a task to the policy.
    #[inline(never)]
    fn hand_over(&mut self, task: Runnable, cause: Cause, computed: Nanos, keeps_place: bool) {
        if self.ready.push_bare(task, cause) {
            return;
        }
        let mut facts = shares::facts(&self.tasks, &self.shares, task, self.clock);
        (facts.computed, facts.keeps_place) = (computed, keeps_place);
        facts.priority = self.inherited(task, facts.priority);
        self.ready.push_with(cause, &facts);
    }

    /// Interrupts the least urgent computation, if the policy prefers this task.
    fn preempt_for(&mut self, task: Runnable) {
        let facts_of = |task| {
            let mut facts = shares::facts(&self.tasks, &self.shares, task, self.clock);
            facts.priority = self.inherited(task, facts.priority);
            facts
        };
        let mut victim: Option<(usize, _)> = None;
        for (at, computation) in self.processors.computing.iter().enumerate() {
            let mut facts = facts_of(computation.task);
            let ran = self.clock.saturating_sub(computation.since);
            facts.length = computation.left.saturating_sub(ran);
            facts.computed = ran;
            let is_weaker = victim
                .as_ref()
                .is_none_or(|(_, weakest)| self.ready.preempts(weakest, &facts));
            if is_weaker {
                victim = Some((at, facts));
            }
        }
        let victim = victim.filter(|(_, running)| self.ready.preempts(&facts_of(task), running));
        if let Some((at, _)) = victim {
            self.interrupt(at, true);
        }
    }

    /// Tells the policy that the length or the priority of a ready task has changed.
    pub(super) fn tell_change(&mut self, task: Runnable) {
        let is_queued = self.tasks[task].state.is_ready() && !self.processors.is_done(task);
        if self.ready.is_plain() || !is_queued {
            return;
        }
        let mut facts = shares::facts(&self.tasks, &self.shares, task, self.clock);
        facts.priority = self.inherited(task, facts.priority);
        self.ready.changed(&facts);
    }

    // ---- computations

    /// Handles `compute`. Daemons need no processor.
    pub(super) fn compute(&mut self, me: Runnable, span: Nanos) -> Outcome {
        match span {
            _ if me.tid.is_daemon() => self.sleep(me, span),
            Nanos::ZERO => Answer::SLEPT.into(),
            span => Outcome::Ready(Pending::Compute(span).into()),
        }
    }

    /// Starts or continues a computation on a free processor.
    pub(super) fn compute_now(&mut self, me: Runnable, left: Nanos) {
        let slice = if self.ready.is_plain() {
            Nanos::FOREVER
        } else {
            let mut facts = shares::facts(&self.tasks, &self.shares, me, self.clock);
            facts.priority = self.inherited(me, facts.priority);
            self.ready.slice(&facts)
        };
        // A turn that comes before the start may come after the computation otherwise.
        self.touch(Object::All);
        let (processor, own) = self.processors.place(me);
        if own.is_none_or(|own| own.interrupted.is_none()) {
            self.tell_left(Some(processor));
            self.emit(me.tid, || Fact::Computing { processor });
        }
        let since = self.time_now();
        self.processors.computing.push(Computation {
            task: me,
            processor,
            since,
            left,
            slice_ends: since.saturating_add(slice),
        });
        self.tasks[me].change(State::Computing);
        if self.processors.are_full() {
            self.poll_soon();
        }
    }

    /// Returns the next instant at which a timer fires, a computation or a slice ends, or the policy
    /// wants to be called.
    #[inline(always)]
    pub(super) fn next_deadline(&mut self) -> Option<Nanos> {
        let timer = self.timers.next();
        if self.processors.computing.is_empty() {
            return timer;
        }
        let alarm = Some(self.ready.next_alarm()).filter(|alarm| *alarm < Nanos::FOREVER);
        let deadlines = [timer, self.processors.next(), alarm];
        deadlines.into_iter().flatten().min()
    }

    /// Returns whether computations will end, or slices of them, or go on until the run is ended: by
    /// its limit of time, or by an interrupt in the real world.
    #[inline(always)]
    pub(super) fn will_compute(&self) -> bool {
        !self.processors.are_idle() && self.has_ends()
    }

    fn has_ends(&self) -> bool {
        let is_limited = self.limits.time < Nanos::FOREVER;
        let has_end = || !self.processors.done.is_empty() || self.processors.next().is_some();
        is_limited || self.world.spins() || has_end()
    }

    /// Prepares for a wait until this instant, and returns the instant until which the kernel waits.
    /// In the real world the kernel spins for the task that computes.
    #[inline(always)]
    pub(super) fn spin(&mut self, until: Nanos) -> Nanos {
        let is_idle = self.processors.computing.is_empty() && self.processors.left.is_empty();
        if is_idle { until } else { self.spin_on(until) }
    }

    fn spin_on(&mut self, until: Nanos) -> Nanos {
        if until > Nanos::ZERO && !self.processors.left.is_empty() {
            self.tell_left(None);
        }
        if self.processors.computing.is_empty() || !self.world.spins() {
            return until;
        }
        let piece = self.time_now().saturating_add(PIECE).min(until);
        self.world.spin(piece.into());
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
        let clock = self.clock;
        while let Some(at) = self
            .processors
            .computing
            .iter()
            .position(|computation| computation.ends() <= clock)
        {
            self.interrupt(at, false);
        }
        if !self.processors.done.is_empty() {
            return true;
        }
        if self.ready.next_alarm() <= clock {
            // The last is the first at the front.
            while let Some(last) = self.processors.computing.len().checked_sub(1) {
                self.interrupt(last, true);
            }
            self.ready.alarm(clock);
        }
        false
    }

    /// Takes a computation off its processor. If it is over, its task has its turn; otherwise the
    /// task goes back to the policy.
    fn interrupt(&mut self, at: usize, keeps_place: bool) {
        let Computation {
            task,
            processor,
            since,
            left,
            ..
        } = self.processors.computing.remove(at);
        let ran = self.clock.saturating_sub(since).min(left);
        let left = left.saturating_sub(ran);
        let is_over = left == Nanos::ZERO;
        self.processors.left.push(Left {
            task,
            processor,
            interrupted: (!is_over).then_some(left),
        });
        if is_over {
            return self.finish_computing(task, ran, Answer::SLEPT.into());
        }
        self.tasks[task].change(Pending::Compute(left).into());
        self.charge(task, ran);
        if self.ready.is_plain() {
            self.ready.push(task, Cause::Preempted);
        } else {
            self.hand_over(task, Cause::Preempted, ran, keeps_place);
        }
    }

    /// Answers a computation that is over or cut. Its task has the next turn.
    fn finish_computing(&mut self, task: Runnable, ran: Nanos, state: State) {
        self.tasks[task].change(state);
        self.tell_answer(task);
        self.charge(task, ran);
        self.processors.done.push_back(task);
    }

    fn charge(&mut self, task: Runnable, computed: Nanos) {
        if !self.ready.is_plain() {
            let mut facts = shares::facts(&self.tasks, &self.shares, task, self.clock);
            facts.computed = computed;
            self.ready.charge(&facts);
        }
    }

    /// Frees the processor of a task that is killed or whose computation is cut. Returns what it has
    /// computed.
    pub(super) fn stop_computing(&mut self, me: Runnable) -> Nanos {
        let computing = &mut self.processors.computing;
        let at = computing.iter().position(|c| c.task == me);
        let stopped = computing.remove(at.expect("a task that computes has a processor"));
        self.processors.left.push(Left {
            task: me,
            processor: stopped.processor,
            interrupted: None,
        });
        self.time_now()
            .saturating_sub(stopped.since)
            .min(stopped.left)
    }

    /// Cuts the computation of a task at its timeout. The task goes on at once if it has a
    /// processor, and otherwise in its turn.
    pub(super) fn cut_computing(&mut self, me: Runnable, number: u64) {
        let cut = State::from(Reply::Elapsed(number));
        if let State::Computing = self.tasks[me].state {
            let ran = self.stop_computing(me);
            return self.finish_computing(me, ran, cut);
        }
        self.tasks[me].change(cut);
        self.tell_answer(me);
        self.tell_change(me);
    }

    /// Takes a ready task out of the ready queue, or out of the turns that come before it.
    pub(super) fn leave_ready(&mut self, me: Runnable) {
        let done = &mut self.processors.done;
        match done.iter().position(|task| *task == me) {
            Some(at) => drop(done.remove(at)),
            None => self.ready.remove(me),
        }
    }

    /// Forgets which tasks have their turns next: all ready tasks go to another policy.
    pub(super) fn forget_done(&mut self) {
        self.processors.done.clear();
    }

    /// Emits which tasks were interrupted, on this processor or on all.
    fn tell_left(&mut self, processor: Option<usize>) {
        let mut told = Vec::new();
        self.processors.left.retain(|left| {
            let stays = processor.is_some_and(|processor| processor != left.processor);
            if !stays {
                told.push(*left);
            }
            stays
        });
        for Left {
            task, interrupted, ..
        } in told
        {
            let task_left = self.tasks.get_mut(task).map(|task| &task.state);
            if let (Some(left), Some(State::Pending(Pending::Compute(_)))) =
                (interrupted, task_left)
            {
                let left = left.into();
                self.emit(task.tid, || Fact::Preempted { left });
            }
        }
    }
}
