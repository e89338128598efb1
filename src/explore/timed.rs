//! The end of a search's time, within a schedule: an endless one must not run past it. What the
//! watchdog has to know of the schedule.

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
    rc::Rc,
    sync::Arc,
};

use super::{
    deadline::Deadline,
    watchdog::{Run, UnderWay},
};
use crate::{Cause, CurrentTurn, Kernel, Policy, Runnable};

/// The turns between two looks at the clock.
const TURNS: u32 = 256;

/// The end of a search's time, and whether it has cut the schedule under way. Clones are handles to
/// the same watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    deadline: Deadline,
    has_cut: Rc<Cell<bool>>,
    run: Arc<Run>,
    /// The view of the kernel of the schedule.
    turn: Rc<RefCell<Option<CurrentTurn>>>,
    /// Whether kernels publish their turns.
    publishes: bool,
}

/// A schedule that is under way, until it is dropped.
pub(super) struct Begun<'a>(&'a Run);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.begin_or_end();
    }
}

impl Watch {
    /// Returns the watch over the schedules of a thread. Without a deadline none is cut.
    pub(super) fn new(deadline: Deadline, all: &UnderWay, publishes: bool) -> Self {
        Self {
            deadline,
            run: all.add(),
            publishes,
            ..Self::default()
        }
    }

    /// Returns the same for schedules on another kernel.
    pub(super) fn beside(&self) -> Self {
        Self {
            run: self.run.beside(),
            turn: Rc::default(),
            ..self.clone()
        }
    }

    /// Returns whether there is such an end.
    pub(super) fn is_set(&self) -> bool {
        self.deadline.is_set()
    }

    /// Returns whether a schedule was cut. Its result is none.
    pub(super) fn has_cut(&self) -> bool {
        self.has_cut.get()
    }

    /// Notes the decisions of the schedules from now on, as a replay has them.
    pub(super) fn decide(&self, decisions: &impl Display) {
        if self.publishes {
            self.run.set_decisions(decisions.to_string());
        }
    }

    /// Notes one more decision of the schedule that is under way.
    pub(super) fn decide_also(&self, decision: &impl Display) {
        if self.publishes {
            self.run.add_decision(decision);
        }
    }

    /// Notes the seed of the next schedule.
    pub(super) fn seed(&self, seed: u64) {
        self.run.set_seed(seed);
    }

    /// Notes that a schedule begins on this kernel.
    pub(super) fn begin(&self, kernel: &mut Kernel) -> Begun<'_> {
        if self.publishes {
            let turn = kernel.current_turn();
            let mut known = self.turn.borrow_mut();
            if known.as_ref().is_none_or(|known| !known.is_same(turn)) {
                *known = Some(turn.clone());
                self.run.set_turn(turn.clone());
            }
        }
        self.run.begin_or_end();
        Begun(&self.run)
    }
}

/// A policy that returns no task any more when the time of the search is over. The run ends with an
/// error of the policy then.
#[derive(Debug)]
pub(super) struct Timed<P> {
    policy: P,
    watch: Watch,
    turns: u32,
}

impl<P> Timed<P> {
    pub(super) fn new(policy: P, watch: &Watch) -> Self {
        Self {
            policy,
            watch: watch.clone(),
            turns: 0,
        }
    }

    #[inline(always)]
    fn is_over(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let is_due = self.turns.is_multiple_of(TURNS) || self.watch.run.is_over();
        is_due && self.look()
    }

    #[cold]
    fn look(&self) -> bool {
        let is_over = self.watch.deadline.is_over();
        if is_over {
            self.watch.has_cut.set(true);
        }
        is_over
    }
}

impl<P: Policy> Policy for Timed<P> {
    fn push(&mut self, task: Runnable, cause: Cause) {
        self.policy.push(task, cause);
    }

    fn pop(&mut self) -> Option<Runnable> {
        if self.is_over() {
            return None;
        }
        self.policy.pop()
    }

    fn remove(&mut self, task: Runnable) {
        self.policy.remove(task);
    }

    fn ended(&mut self, task: Runnable) {
        self.policy.ended(task);
    }

    fn len(&self) -> usize {
        self.policy.len()
    }

    /// The policies of a search look at no facts.
    fn wants_facts(&self) -> bool {
        false
    }

    fn reseed(&mut self, seed: u64) {
        self.policy.reseed(seed);
    }
}
