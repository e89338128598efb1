//! The end of a search's time, within a schedule: an endless one must not run past it.

use std::{cell::Cell, rc::Rc};

use super::deadline::Deadline;
use crate::{Cause, Policy, Runnable};

/// The turns between two looks at the clock.
const TURNS: u32 = 256;

/// The end of a search's time, and whether it has cut the schedule under way. Clones are handles to
/// the same watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    deadline: Deadline,
    has_cut: Rc<Cell<bool>>,
}

impl Watch {
    pub(super) fn new(deadline: Deadline) -> Self {
        Self {
            deadline,
            ..Self::default()
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
        self.turns.is_multiple_of(TURNS) && self.look()
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
