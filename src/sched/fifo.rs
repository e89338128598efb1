//! The default policy: first in, first out.

use super::{Cause, Policy, Runnable};

/// The capacity below which memory is not returned.
const SMALL: usize = 1024;

/// First in, first out: tasks run in the order in which they became ready. With a quantum above one
/// this is round robin.
///
/// It consists of two lists: the tasks of this pass of the loop, and those of the next.
#[derive(Debug, Default)]
pub struct Fifo {
    pass: Vec<Runnable>,
    /// The number of tasks of this pass that have had their turn.
    taken: usize,
    next: Vec<Runnable>,
}

impl Fifo {
    /// Begins the next pass. Returns the memory of a crowd that has left.
    #[inline(never)]
    fn next_pass(&mut self) {
        self.pass.clear();
        self.taken = 0;
        std::mem::swap(&mut self.pass, &mut self.next);
        let room = self.pass.capacity().max(self.next.capacity());
        if room > SMALL && room / 8 > self.pass.len() {
            self.pass.shrink_to(SMALL);
            self.next.shrink_to(SMALL);
        }
    }

    /// Returns the tasks left in this pass.
    #[inline(always)]
    pub(crate) fn ahead(&self) -> &[Runnable] {
        &self.pass[self.taken..]
    }
}

impl Policy for Fifo {
    #[inline]
    fn push(&mut self, task: Runnable, _: Cause) {
        self.next.push(task);
    }

    #[inline]
    fn pop(&mut self) -> Option<Runnable> {
        if self.taken == self.pass.len() {
            self.next_pass();
        }
        let first = self.pass.get(self.taken).copied()?;
        self.taken += 1;
        Some(first)
    }

    /// Keeps the task: skipping it once costs less than a search.
    fn remove(&mut self, _: Runnable) {}

    fn len(&self) -> usize {
        self.pass.len() - self.taken + self.next.len()
    }
}
