//! Queues of waiting tasks: the waiters for the end of a task, and removal from any such queue.

use std::{collections::VecDeque, rc::Rc};

use super::selects::Watchers;
use crate::{sched::Slot, trap::Keeper};

/// Waiting tasks by their slots. A task that ends leaves its queue first, so no slot is stale.
#[derive(Default)]
pub(super) struct Waiters {
    /// The first of the tasks, apart: most tasks have one waiter, which needs no memory of its own.
    first: Option<Slot>,
    /// The others, in order of arrival.
    others: VecDeque<Slot>,
    pub(super) keeper: Option<Rc<dyn Keeper>>,
    /// The selects on the end of the task.
    pub(super) selects: Watchers,
}

impl Waiters {
    pub(super) fn push(&mut self, waiter: Slot) {
        match self.first {
            None => self.first = Some(waiter),
            Some(_) => self.others.push_back(waiter),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Slot> {
        let first = self.first.take();
        self.first = self.others.pop_front();
        first
    }

    pub(super) fn remove(&mut self, waiter: Slot) {
        if self.first == Some(waiter) {
            self.pop();
        } else if let Some(at) = position(&self.others, |other| *other == waiter) {
            self.others.remove(at);
        }
    }

    /// Returns whether there was never more than one waiter.
    pub(super) fn is_small(&self) -> bool {
        self.others.capacity() == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.first.iter().chain(&self.others).copied()
    }
}

/// Returns the position of a waiter that leaves early. Checks the first one, because waiters with
/// equal timeouts leave in order. Then searches from the end, where the latest waiters are.
pub(super) fn position<T>(waiters: &VecDeque<T>, is: impl Fn(&T) -> bool) -> Option<usize> {
    if waiters.front().is_some_and(&is) {
        return Some(0);
    }
    waiters.iter().rposition(is)
}
