//! First in, first out.

use std::collections::VecDeque;

use super::{Cause, Policy, Runnable};

/// First in, first out: tasks run in the order in which they became ready. With a quantum of more
/// than one this is round robin.
#[derive(Debug, Default)]
pub struct Fifo(VecDeque<Runnable>);

impl Policy for Fifo {
    #[inline]
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0.push_back(task);
    }

    #[inline]
    fn pop(&mut self) -> Option<Runnable> {
        self.0.pop_front()
    }

    /// Leaves it: to find it would cost more than to pass over it once.
    fn remove(&mut self, _: Runnable) {}

    fn len(&self) -> usize {
        self.0.len()
    }
}
