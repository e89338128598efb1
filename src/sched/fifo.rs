//! First in, first out.

use std::collections::VecDeque;

use super::{Cause, Policy, Runnable};

/// How much room is not worth giving back.
const SMALL: usize = 1024;

/// First in, first out: tasks run in the order in which they became ready. With a quantum of more
/// than one this is round robin.
#[derive(Debug, Default)]
pub struct Fifo {
    queue: VecDeque<Runnable>,
}

impl Fifo {
    /// The task that comes after so many others.
    pub(crate) fn ahead(&self, turns: usize) -> Option<Runnable> {
        self.queue.get(turns).copied()
    }

    /// Gives back the room of a crowd that has left.
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

    /// Leaves the entry: finding it would cost more than one turn without a task.
    fn remove(&mut self, _: Runnable) {}

    #[inline]
    fn len(&self) -> usize {
        self.queue.len()
    }
}
