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
    /// Hands out the pass under way, and how many of it have had their turn.
    pub(super) fn take_pass(&mut self) -> (Vec<Runnable>, usize) {
        (
            std::mem::take(&mut self.pass),
            std::mem::take(&mut self.taken),
        )
    }

    /// Takes it back.
    pub(super) fn resume_pass(&mut self, pass: Vec<Runnable>, taken: usize) {
        (self.pass, self.taken) = (pass, taken);
        if taken == self.pass.len() {
            self.pass.clear();
            self.taken = 0;
        }
        self.shrink();
    }

    /// Puts back many at once; mostly it is one.
    #[inline(always)]
    pub(super) fn push_all(&mut self, tasks: &[Runnable]) {
        match tasks {
            [] => {}
            [one] => self.next.push(*one),
            many => self.next.extend_from_slice(many),
        }
    }

    /// Makes of a pass that is through the next one.
    #[inline(always)]
    pub(super) fn next_pass(&mut self, pass: &mut Vec<Runnable>) {
        pass.clear();
        std::mem::swap(pass, &mut self.next);
    }

    /// Gives back the room of a crowd that has left.
    #[inline(always)]
    fn shrink(&mut self) {
        let room = self.pass.capacity().max(self.next.capacity());
        if room > SMALL && room / 8 > self.len() {
            self.pass.shrink_to(SMALL);
            self.next.shrink_to(SMALL);
        }
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
            let (mut pass, _) = self.take_pass();
            self.next_pass(&mut pass);
            self.resume_pass(pass, 0);
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
