//! First in, first out.

use super::{Cause, Policy, Runnable};

/// How much room is not worth giving back.
const SMALL: usize = 1024;

/// First in, first out: tasks run in the order in which they became ready. With a quantum of more
/// than one this is round robin.
///
/// It is kept as the passes of the loop are: the tasks of this pass, and those that have become
/// ready for the next.
#[derive(Debug, Default)]
pub struct Fifo {
    pass: Vec<Runnable>,
    /// How many of this pass have had their turn.
    taken: usize,
    next: Vec<Runnable>,
}

impl Fifo {
    /// Makes the next pass of those that have become ready. Gives back the room of a crowd that has
    /// left.
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

    /// What is left of this pass.
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

    /// Leaves it: to find it would cost more than to pass over it once.
    fn remove(&mut self, _: Runnable) {}

    fn len(&self) -> usize {
        self.pass.len() - self.taken + self.next.len()
    }
}
