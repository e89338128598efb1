//! What policies keep for each task: a table, the slices, a queue and an order.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use super::{Facts, Runnable, Slot};
use crate::abi::{Nanos, Tid};

/// A value for each task, by its slot. A task without one has the default.
#[derive(Debug, Default)]
pub(super) struct PerTask<T>(Vec<T>);

impl<T: Default + Copy> PerTask<T> {
    pub(super) fn get(&self, slot: Slot) -> T {
        self.0.get(slot.index()).copied().unwrap_or_default()
    }

    pub(super) fn at(&mut self, task: Runnable) -> &mut T {
        let index = task.slot.index();
        if self.0.len() <= index {
            // Grows by an eighth, not to double the room: there may be a million tasks.
            if self.0.capacity() <= index {
                self.0.reserve_exact(index + index / 8 + 16 - self.0.len());
            }
            self.0.resize(index + 1, T::default());
        }
        &mut self.0[index]
    }

    /// Forgets a task that has ended. Another task may get its slot.
    pub(super) fn forget(&mut self, task: Runnable) {
        if let Some(value) = self.0.get_mut(task.slot.index()) {
            *value = T::default();
        }
    }

    /// Returns the values of all slots, those of ended tasks included.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

/// The slices of tasks. A task that keeps its place keeps the rest of its slice.
#[derive(Debug)]
pub(super) struct Slices {
    /// What each task has computed of its slice.
    used: PerTask<Nanos>,
    /// The length of a slice, which is at least a nanosecond.
    pub(super) quantum: Nanos,
}

impl Slices {
    pub(super) fn of_length(quantum: Duration) -> Self {
        Self {
            used: PerTask::default(),
            quantum: Nanos::from(quantum).max(Nanos(1)),
        }
    }

    pub(super) fn charge(&mut self, facts: &Facts<'_>) {
        let used = self.used.at(facts.task);
        *used = used.saturating_add(facts.computed);
    }

    /// Returns whether a task that becomes ready goes on with its slice. Otherwise its next slice
    /// is a new one.
    pub(super) fn go_on(&mut self, facts: &Facts<'_>) -> bool {
        let used = self.used.at(facts.task);
        let goes_on = facts.keeps_place && *used < self.quantum;
        if !goes_on {
            *used = Nanos::ZERO;
        }
        goes_on
    }

    pub(super) fn left(&self, task: Runnable) -> Nanos {
        self.quantum.saturating_sub(self.used.get(task.slot))
    }

    pub(super) fn forget(&mut self, task: Runnable) {
        self.used.forget(task);
    }
}

/// A queue of tasks. Its room is at most twice its length, or [`Line::SMALL`].
#[derive(Debug, Default)]
pub(super) struct Line(VecDeque<Runnable>);

impl Line {
    /// The room that is never returned.
    const SMALL: usize = 1024;

    pub(super) fn push_back(&mut self, task: Runnable) {
        self.make_room();
        self.0.push_back(task);
    }

    pub(super) fn push_front(&mut self, task: Runnable) {
        self.make_room();
        self.0.push_front(task);
    }

    pub(super) fn pop_front(&mut self) -> Option<Runnable> {
        let task = self.0.pop_front();
        let len = self.0.len();
        if len < self.0.capacity() / 2 && self.0.capacity() > Self::SMALL {
            self.0.shrink_to(len + len / 8 + 16);
        }
        task
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn make_room(&mut self) {
        let len = self.0.len();
        if len == self.0.capacity() {
            self.0.reserve_exact(len / 8 + 16);
        }
    }
}

/// The ready tasks by a key, the lowest first; of equals, the task that arrived first.
///
/// A heap of 16 bytes for each entry, and a table of 24 for each task. An entry is stale if its task
/// has left or has another key.
#[derive(Debug, Default)]
pub(super) struct Order {
    heap: BinaryHeap<Reverse<HeapEntry>>,
    places: PerTask<OrderPlace>,
    arrived: u32,
    ready: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct HeapEntry {
    key: u64,
    number: u32,
    slot: Slot,
}

#[derive(Clone, Copy, Debug, Default)]
struct OrderPlace {
    tid: Tid,
    key: u64,
    /// The number of the task, in order of arrival; 0 if it has not arrived.
    number: u32,
    is_ready: bool,
}

impl Order {
    /// Returns the key of a task, which changes only while the task is not in the order.
    pub(super) fn key(&mut self, task: Runnable) -> &mut u64 {
        &mut self.places.at(task).key
    }

    pub(super) fn insert(&mut self, task: Runnable) {
        let place = self.places.at(task);
        if place.number == 0 {
            self.arrived += 1;
            place.number = self.arrived;
        }
        (place.tid, place.is_ready) = (task.tid, true);
        let entry = HeapEntry {
            key: place.key,
            number: place.number,
            slot: task.slot,
        };
        self.ready += 1;
        if self.heap.len() == self.heap.capacity() {
            self.heap.reserve_exact(self.heap.len() / 8 + 16);
        }
        self.heap.push(Reverse(entry));
    }

    pub(super) fn first_key(&mut self) -> Option<u64> {
        while let Some(Reverse(entry)) = self.heap.peek() {
            if self.places.get(entry.slot).has(entry) {
                return Some(entry.key);
            }
            self.heap.pop();
        }
        None
    }

    pub(super) fn pop(&mut self) -> Option<Runnable> {
        self.first_key()?;
        let Reverse(HeapEntry { slot, .. }) = self.heap.pop()?;
        let OrderPlace { tid, .. } = self.places.get(slot);
        let task = Runnable { tid, slot };
        self.places.at(task).is_ready = false;
        self.ready -= 1;
        Some(task)
    }

    /// Removes a task. Returns whether it was there.
    pub(super) fn remove(&mut self, task: Runnable) -> bool {
        let was_there = std::mem::take(&mut self.places.at(task).is_ready);
        self.ready -= usize::from(was_there);
        if self.heap.len() > 2 * self.ready + 64 {
            let places = &self.places;
            self.heap
                .retain(|Reverse(entry)| places.get(entry.slot).has(entry));
        }
        was_there
    }

    /// Forgets a task that has ended.
    pub(super) fn forget(&mut self, task: Runnable) {
        self.remove(task);
        self.places.forget(task);
    }

    pub(super) fn len(&self) -> usize {
        self.ready
    }
}

impl OrderPlace {
    fn has(&self, entry: &HeapEntry) -> bool {
        self.is_ready && (self.key, self.number) == (entry.key, entry.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u64) -> Runnable {
        Runnable {
            tid: number.into(),
            slot: Slot::new(number as usize),
        }
    }

    #[test]
    fn tasks_come_by_key_and_then_by_arrival() {
        let mut order = Order::default();
        for (number, key) in [(3, 7), (1, 7), (2, 5), (4, 9)] {
            *order.key(task(number)) = key;
            order.insert(task(number));
        }
        assert!(order.remove(task(1)) && !order.remove(task(1)));
        *order.key(task(1)) = 1;
        order.insert(task(1));
        order.forget(task(4));
        // Another task in the slot of one that has ended.
        let other = Runnable {
            tid: 9.into(),
            ..task(4)
        };
        *order.key(other) = 7;
        order.insert(other);
        assert_eq!(order.len(), 4);
        let all: Vec<u64> = std::iter::from_fn(|| order.pop())
            .map(|task| task.tid.into())
            .collect();
        assert_eq!((all, order.len()), (vec![1, 2, 3, 9], 0));
    }
}
