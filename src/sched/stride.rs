//! Stride scheduling.

use std::time::Duration;

use super::{
    Cause, Facts, Policy, Runnable,
    kept::{Order, Slices},
};
use crate::abi::Nanos;

/// The stride of a task with one ticket. Most numbers of tickets divide it, so that most strides are
/// exact.
const STRIDE: u64 = 720_720_000_000;

/// Stride: the ready task with the lowest pass computes for a time slice, and its pass then rises
/// by its stride, which is inverse to its tickets. A task that computes for less pays for less. It
/// is exact where [`Lottery`](super::Lottery) is exact on average. (OSTEP, chapter 9; Waldspurger
/// and Weihl, 1995.)
///
/// A task that arrives, or comes back from a wait, has at least the pass of the task that ran last;
/// otherwise it would compute alone until it had caught up. Of equals, the task that arrived first.
#[derive(Debug)]
pub struct Stride {
    ready: Order,
    /// The pass of the task that ran last.
    now: u64,
    /// The tasks that go on with their slices, the next of them at the end.
    going_on: Vec<Runnable>,
    slices: Slices,
}

impl Stride {
    /// Returns the policy with this time slice, which is at least a nanosecond.
    #[must_use]
    pub fn new(quantum: Duration) -> Self {
        Self {
            ready: Order::default(),
            now: 0,
            going_on: Vec::new(),
            slices: Slices::of_length(quantum),
        }
    }
}

impl Policy for Stride {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.insert(task);
    }

    fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        if self.slices.go_on(facts) {
            self.going_on.push(facts.task);
            return;
        }
        if let Cause::Spawned | Cause::Woken = cause {
            let pass = self.ready.key(facts.task);
            *pass = self.now.max(*pass);
        }
        self.ready.insert(facts.task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        if let Some(task) = self.going_on.pop() {
            return Some(task);
        }
        let task = self.ready.pop()?;
        self.now = self.now.max(*self.ready.key(task));
        Some(task)
    }

    fn remove(&mut self, task: Runnable) {
        if !self.ready.remove(task) {
            self.going_on.retain(|other| *other != task);
        }
    }

    fn len(&self) -> usize {
        self.ready.len() + self.going_on.len()
    }

    fn charge(&mut self, facts: &Facts<'_>) {
        self.slices.charge(facts);
        let stride = u128::from(STRIDE / u64::from(facts.tickets));
        let price = stride * u128::from(facts.computed.0) / u128::from(self.slices.quantum.0);
        let pass = self.ready.key(facts.task);
        *pass = pass.saturating_add(u64::try_from(price).unwrap_or(u64::MAX));
    }

    fn slice(&mut self, facts: &Facts<'_>) -> Nanos {
        self.slices.left(facts.task)
    }

    fn ended(&mut self, task: Runnable) {
        self.ready.forget(task);
        self.slices.forget(task);
    }
}
