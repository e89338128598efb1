//! The default policy: first in, first out.

use super::{Cause, Facts, Policy, Runnable};

/// The capacity below which memory is not returned.
const SMALL: usize = 1024;

/// The number of entries of tasks that have left which are not worth a sweep.
const SHORT: usize = 16;

/// First in, first out: tasks run in the order in which they became ready. With a quantum above one
/// this is round robin.
///
/// The kernel takes a task and lets it keep its place, if its turn changes nothing else. When all
/// tasks have kept their places, the next pass is the same list. A pop and a push would be a sixth
/// of a trap.
#[derive(Debug, Default)]
pub struct Fifo {
    /// Three parts. First come entries of tasks that have left. Then come tasks that have had their
    /// turns and keep their places. Then come tasks that wait for their turns, and precede those.
    list: Vec<Runnable>,
    kept: usize,
    next: usize,
}

impl Fifo {
    /// Returns the next task; `None` at the end of the list.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<Runnable> {
        self.list.get(self.next).copied()
    }

    /// Takes the next task. It keeps its place until [`Fifo::leave`].
    #[inline(always)]
    pub(crate) fn take(&mut self) {
        self.next += 1;
    }

    /// Returns to the first task that has kept its place, at the end of the list.
    #[inline(always)]
    pub(crate) fn rewind(&mut self) {
        self.next = self.kept;
    }

    /// Removes the task that was taken last. Tasks that have kept their places come before every
    /// task that is pushed from now on.
    #[inline(always)]
    pub(crate) fn leave(&mut self) {
        if self.kept + 1 < self.next {
            self.move_kept(self.next - 1);
        }
        self.kept = self.next;
    }

    /// Moves the tasks that have kept their places behind the others.
    #[inline(always)]
    pub(crate) fn end_pass(&mut self) {
        if self.kept < self.next {
            self.move_kept(self.next);
        }
    }

    /// Moves the tasks that have kept their places, up to this one, behind the others.
    #[inline(never)]
    fn move_kept(&mut self, end: usize) {
        let count = end - self.kept;
        self.make_room(count);
        self.list.extend_from_within(self.kept..self.kept + count);
        self.kept += count;
    }

    /// Uses the room of the tasks that have left, before a list that is not short allocates more.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, count: usize) {
        let is_full = self.list.capacity() - self.list.len() < count;
        if is_full && self.kept >= SHORT.max(self.list.len() / 2) {
            self.forget_left();
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_left(&mut self) {
        self.list.drain(..self.kept);
        self.next -= self.kept;
        self.kept = 0;
    }

    /// Returns the task that comes after so many others.
    pub(crate) fn ahead(&self, turns: usize) -> Option<Runnable> {
        self.list.get(self.next + turns).copied()
    }

    #[inline(always)]
    pub(crate) fn exceeds(&self, len: usize) -> bool {
        self.list.len() > len
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        (self.kept, self.next) = (0, 0);
    }

    /// Returns the memory of a crowd that has left.
    pub(crate) fn shrink(&mut self) {
        let room = self.list.capacity();
        if room > SMALL && room / 8 > self.len() {
            self.forget_left();
            self.list.shrink_to(SMALL);
        }
    }
}

impl Policy for Fifo {
    #[inline(always)]
    fn push(&mut self, task: Runnable, _: Cause) {
        self.end_pass();
        if self.list.len() == self.list.capacity() {
            self.make_room(1);
        }
        self.list.push(task);
    }

    /// A task that keeps its place goes to the front.
    fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        if !facts.keeps_place {
            return self.push(facts.task, cause);
        }
        self.end_pass();
        match self.next.checked_sub(1) {
            // The place of a task that has left.
            Some(place) if self.kept == self.next => {
                self.list[place] = facts.task;
                (self.kept, self.next) = (place, place);
            }
            _ => self.list.insert(self.next, facts.task),
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Runnable> {
        let task = self.peek()?;
        self.take();
        self.leave();
        Some(task)
    }

    /// Keeps the task: skipping it once costs less than a search.
    fn remove(&mut self, _: Runnable) {}

    #[inline]
    fn len(&self) -> usize {
        self.list.len() - self.kept
    }
}
