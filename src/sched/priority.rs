//! Fixed priorities.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    Cause, Facts, Policy, Runnable,
    kept::{PerTask, Slices},
};
use crate::abi::Nanos;

/// Fixed priorities: the ready tasks with the highest number run, round robin among equals. A task
/// that becomes ready interrupts one with a lower number. [`Os::set_priority`](crate::Os::set_priority)
/// sets the number.
///
/// A task with a low number can hold a lock for which one with a high number waits, while a third
/// task computes: *priority inversion*, which stopped the Mars Pathfinder. With
/// [`inherit`](Priority::inherit) the holder of a [`Mutex`](crate::sync::Mutex) has the priority of
/// the tasks that wait for it, as long as they wait.
#[derive(Debug)]
pub struct Priority {
    /// The ready tasks by priority, with the numbers of their entries.
    levels: BTreeMap<i32, VecDeque<(u64, Runnable)>>,
    /// The number of each ready task's entry; 0 if it has none. Entries with other numbers are
    /// stale: their tasks have moved.
    entries: PerTask<u64>,
    count: u64,
    ready: usize,
    slices: Slices,
    inherits: bool,
}

impl Priority {
    /// Returns the policy with this time slice among equals, which is at least a nanosecond.
    #[must_use]
    pub fn new(quantum: Duration) -> Self {
        Self {
            levels: BTreeMap::new(),
            entries: PerTask::default(),
            count: 0,
            ready: 0,
            slices: Slices::of_length(quantum),
            inherits: false,
        }
    }

    /// Lets the holder of a lock inherit the priority of the tasks that wait for it.
    #[must_use]
    pub fn inherit(mut self) -> Self {
        self.inherits = true;
        self
    }

    fn insert(&mut self, task: Runnable, priority: i32, is_first: bool) {
        self.count += 1;
        self.ready += 1;
        *self.entries.at(task) = self.count;
        let level = self.levels.entry(priority).or_default();
        let entry = (self.count, task);
        if is_first {
            level.push_front(entry);
        } else {
            level.push_back(entry);
        }
    }
}

impl Policy for Priority {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.insert(task, 0, false);
    }

    fn push_with(&mut self, _: Cause, facts: &Facts<'_>) {
        let goes_on = self.slices.go_on(facts);
        self.insert(facts.task, facts.priority, goes_on);
    }

    fn pop(&mut self) -> Option<Runnable> {
        while let Some(mut level) = self.levels.last_entry() {
            let Some((number, task)) = level.get_mut().pop_front() else {
                level.remove();
                continue;
            };
            let entry = self.entries.at(task);
            if *entry == number {
                *entry = 0;
                self.ready -= 1;
                return Some(task);
            }
        }
        None
    }

    fn remove(&mut self, task: Runnable) {
        if std::mem::take(self.entries.at(task)) != 0 {
            self.ready -= 1;
        }
    }

    fn len(&self) -> usize {
        self.ready
    }

    fn charge(&mut self, facts: &Facts<'_>) {
        self.slices.charge(facts);
    }

    fn slice(&mut self, facts: &Facts<'_>) -> Nanos {
        self.slices.left(facts.task)
    }

    fn preempts(&self, ready: &Facts<'_>, running: &Facts<'_>) -> bool {
        ready.priority > running.priority
    }

    fn changed(&mut self, facts: &Facts<'_>) {
        if *self.entries.at(facts.task) != 0 {
            self.remove(facts.task);
            self.insert(facts.task, facts.priority, true);
        }
    }

    fn ended(&mut self, task: Runnable) {
        self.remove(task);
        self.slices.forget(task);
    }

    fn inherits(&self) -> bool {
        self.inherits
    }
}
