//! The processors: what computes, and which computation ends next. `schedule.rs` starts and stops
//! computations.
//!
//! A turn needs a free processor and takes no time. A computation has its processor until it is
//! over, until its slice ends, or until the policy prefers another task. Without a policy a caller
//! of `compute` keeps the processor of its turn.

use std::collections::VecDeque;

use crate::{abi::Nanos, sched::Runnable};

/// The most processors of a kernel.
const MOST: usize = 1024;

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
pub(super) struct Computation {
    pub(super) task: Runnable,
    pub(super) processor: usize,
    pub(super) since: Nanos,
    /// What was left of it at that instant.
    pub(super) left: Nanos,
    pub(super) slice_ends: Nanos,
}

impl Computation {
    /// Returns the instant at which it is over or its slice ends.
    fn ends(&self) -> Nanos {
        self.since.saturating_add(self.left).min(self.slice_ends)
    }

    /// Returns what it has computed by now, and what is left.
    pub(super) fn progress(&self, now: Nanos) -> (Nanos, Nanos) {
        let ran = now.saturating_sub(self.since).min(self.left);
        (ran, self.left.saturating_sub(ran))
    }
}

/// A task that left its processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) task: Runnable,
    processor: usize,
    /// What is left of its computation. A task that goes on at the same instant was never
    /// interrupted, so the log learns of an interruption only when it is one.
    pub(super) interrupted: Option<Nanos>,
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
    pub(super) fn are_full(&self) -> bool {
        self.computing.len() + self.done.len() >= self.count
    }

    /// Returns whether a task that becomes ready would have to take the processor of a computation.
    pub(super) fn are_taken(&self) -> bool {
        let taken = self.computing.len() + self.done.len() + usize::from(self.in_pass);
        !self.computing.is_empty() && taken >= self.count
    }

    /// Notes whether a pass is under way. Returns whether a processor is free for its turns.
    #[inline(always)]
    pub(super) fn begin_pass(&mut self) -> bool {
        self.in_pass = !self.are_full();
        self.in_pass
    }

    /// The same, for the turns of tasks that still have their processors.
    pub(super) fn begin_done(&mut self) {
        self.in_pass = true;
    }

    #[inline(always)]
    pub(super) fn end_pass(&mut self) {
        self.in_pass = false;
    }

    pub(super) fn computing(&self) -> &[Computation] {
        &self.computing
    }

    /// Adds a task whose computation is over or was cut.
    pub(super) fn finish(&mut self, task: Runnable) {
        self.done.push_back(task);
    }

    /// Takes the next task that has a turn after its computation.
    pub(super) fn pop_done(&mut self) -> Option<Runnable> {
        self.done.pop_front()
    }

    /// Takes a task out of those that have turns after their computations. Returns whether it was
    /// among them.
    pub(super) fn leave_done(&mut self, task: Runnable) -> bool {
        let at = self.done.iter().position(|done| *done == task);
        at.and_then(|at| self.done.remove(at)).is_some()
    }

    pub(super) fn is_done(&self, task: Runnable) -> bool {
        self.done.contains(&task)
    }

    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        let ends = self.computing.iter().map(Computation::ends).min();
        ends.filter(|ends| *ends < Nanos::FOREVER)
    }

    pub(super) fn due(&self, now: Nanos) -> Option<usize> {
        let mut computing = self.computing.iter();
        computing.position(|computation| computation.ends() <= now)
    }

    /// Chooses a free processor for a task: its own, if it has just left it, or the first. Returns
    /// it with what the task had left there.
    pub(super) fn place(&mut self, task: Runnable) -> (usize, Option<Left>) {
        let own = self.left.iter().position(|left| left.task == task);
        let own = own.map(|at| self.left.remove(at));
        let is_taken = |processor| self.computing.iter().any(|c| c.processor == processor);
        let own = own.filter(|own| !is_taken(own.processor));
        let first = || (0..self.count).find(|processor| !is_taken(*processor));
        let place = own.map(|own| own.processor).or_else(first);
        (place.expect("a turn has a processor"), own)
    }

    /// Starts or continues a computation on a processor.
    pub(super) fn start(&mut self, computation: Computation) {
        self.computing.push(computation);
    }

    /// Takes a computation off its processor. `interrupted` is what its task has left to compute.
    pub(super) fn stop(&mut self, at: usize, interrupted: Option<Nanos>) {
        let stopped = self.computing.remove(at);
        self.left.push(Left {
            task: stopped.task,
            processor: stopped.processor,
            interrupted,
        });
    }

    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Takes the tasks that left this processor at this instant, or any.
    pub(super) fn take_left(&mut self, processor: Option<usize>) -> Vec<Left> {
        let is_asked = |left: &mut Left| processor.is_none_or(|asked| asked == left.processor);
        self.left.extract_if(.., is_asked).collect()
    }
}
