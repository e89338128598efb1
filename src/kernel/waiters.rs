//! Queues of waiting tasks: the waiters for the end of a task, and removal from any such queue.

use std::{collections::VecDeque, rc::Rc};

use crate::{sched::Runnable, trap::Keeper};

/// What waits for the end of a task.
#[derive(Default)]
pub(super) struct Waiters {
    /// In order of arrival.
    pub(super) tasks: VecDeque<Runnable>,
    pub(super) keeper: Option<Rc<dyn Keeper>>,
}

impl Waiters {
    pub(super) fn remove(&mut self, waiter: Runnable) {
        if let Some(at) = position(&self.tasks, |other| *other == waiter) {
            self.tasks.remove(at);
        }
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
