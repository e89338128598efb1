//! The permits of a queue that counts them: of a semaphore, or of a lock that readers share.
//!
//! A request is for any number of them, and is granted as a whole. First come, first served: while a
//! request waits, no later one is granted, however small it is. So a writer, which takes all permits,
//! waits for the readers before it and is before those behind it, and neighbours among these share.

use std::collections::VecDeque;

use super::waiters::position;
use crate::sched::Runnable;

pub(super) struct Permits {
    /// Those that no task has.
    left: u64,
    all: u64,
    /// The requests that wait, each with its task. The first is for more than there are.
    waiting: VecDeque<(Runnable, u64)>,
    /// The sum of these requests.
    wanted: u64,
}

impl Permits {
    pub(super) fn new(all: u64) -> Self {
        Self {
            left: all,
            all,
            waiting: VecDeque::new(),
            wanted: 0,
        }
    }

    pub(super) fn all(&self) -> u64 {
        self.all
    }

    /// Returns whether a request is granted at once. One for none always is, as in tokio.
    pub(super) fn has(&self, count: u64) -> bool {
        count == 0 || self.waiting.is_empty() && count <= self.left
    }

    /// Takes permits. Returns whether they are there.
    pub(super) fn take(&mut self, count: u64) -> bool {
        let has = self.has(count);
        if has {
            self.left -= count;
        }
        has
    }

    pub(super) fn add(&mut self, task: Runnable, count: u64) {
        self.waiting.push_back((task, count));
        self.wanted = self.wanted.saturating_add(count);
    }

    pub(super) fn give(&mut self, count: u64) {
        self.left = self.left.saturating_add(count);
    }

    /// Grants the first request, if there is enough for it.
    pub(super) fn next(&mut self) -> Option<(Runnable, u64)> {
        let (_, count) = self.waiting.front()?;
        self.left = self.left.checked_sub(*count)?;
        self.wanted = self.wanted.saturating_sub(*count);
        self.waiting.pop_front()
    }

    /// Removes a task that waits. The next request may be granted then.
    pub(super) fn remove(&mut self, task: Runnable) {
        if let Some(place) = position(&self.waiting, |(other, _)| *other == task)
            && let Some((_, count)) = self.waiting.remove(place)
        {
            self.wanted = self.wanted.saturating_sub(count);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Runnable> {
        self.waiting.pop_front().map(|(task, _)| task)
    }

    pub(super) fn waiters(&self) -> impl ExactSizeIterator<Item = Runnable> {
        self.waiting.iter().map(|(task, _)| *task)
    }

    /// Returns the tasks that want all of them, and wait before another one if that waits.
    pub(super) fn writers_before(&self, task: Option<Runnable>) -> impl Iterator<Item = Runnable> {
        let before = self.waiting.iter();
        let before = before.take_while(move |(other, _)| Some(*other) != task);
        let writers = before.filter(|(_, count)| *count == self.all);
        writers.map(|(task, _)| *task)
    }

    /// Returns whether tasks share them: some are taken, and some are left or free to be shared.
    pub(super) fn is_shared(&self) -> bool {
        self.left > 0
    }

    /// Returns what a task waits for.
    pub(super) fn request(&self, task: Runnable) -> Option<u64> {
        let mut waiting = self.waiting.iter();
        waiting.find_map(|(other, count)| (*other == task).then_some(*count))
    }

    /// Returns how many a task can take at once, and how many those that wait are short of.
    pub(super) fn status(&self) -> (u64, u64) {
        if self.waiting.is_empty() {
            return (self.left, 0);
        }
        (0, self.wanted.saturating_sub(self.left))
    }
}
