//! The default policy: first in, first out.

use std::collections::VecDeque;

use super::{Cause, Policy, Runnable};

/// The capacity below which memory is not returned.
const SMALL: usize = 1024;

/// First in, first out: tasks run in the order in which they became ready. With a quantum above one
/// this is round robin.
#[derive(Debug, Default)]
pub struct Fifo {
    queue: VecDeque<Runnable>,
}

impl Fifo {
    /// Returns the task that comes after so many others.
    pub(crate) fn ahead(&self, turns: usize) -> Option<Runnable> {
        self.queue.get(turns).copied()
    }

    /// Returns the memory of a crowd that has left.
    pub(crate) fn shrink(&mut self) {
        let room = self.queue.capacity();
        if room > SMALL && room / 8 > self.queue.len() {
            self.queue.shrink_to(SMALL);
        }
    }
}

impl Policy for Fifo {
    #[inline]
    fn push(&mut self, task: Runnable, _: Cause) {
        self.queue.push_back(task);
    }

    #[inline]
    fn pop(&mut self) -> Option<Runnable> {
        self.queue.pop_front()
    }

    /// Keeps the task: skipping it once costs less than a search.
    fn remove(&mut self, _: Runnable) {}

    #[inline]
    fn len(&self) -> usize {
        self.queue.len()
    }
}
