//! What policies keep for each task: a table, and the slices.

use std::ops::{Index, IndexMut};

use super::{Facts, Runnable};
use crate::abi::Nanos;

/// A value for each task, by its slot. A task without one has the default.
#[derive(Debug, Default)]
pub(super) struct PerTask<T>(Vec<T>);

impl<T: Default + Clone> PerTask<T> {
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

    pub(super) fn get(&self, task: Runnable) -> Option<&T> {
        self.0.get(task.slot.index())
    }
}

impl<T> Index<Runnable> for PerTask<T> {
    type Output = T;

    fn index(&self, task: Runnable) -> &T {
        &self.0[task.slot.index()]
    }
}

impl<T> IndexMut<Runnable> for PerTask<T> {
    fn index_mut(&mut self, task: Runnable) -> &mut T {
        &mut self.0[task.slot.index()]
    }
}

/// The slices of tasks. What is left of a slice stays with a task that keeps its place.
#[derive(Debug, Default)]
pub(super) struct Slices(PerTask<Slice>);

/// What is left of the slice of a task; [`Slice::FRESH`] until it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slice(Nanos);

impl Slice {
    const FRESH: Self = Self(Nanos::FOREVER);
}

impl Default for Slice {
    fn default() -> Self {
        Self::FRESH
    }
}

impl Slices {
    /// Takes off what a task has computed.
    pub(super) fn charge(&mut self, facts: &Facts<'_>) {
        let slice = self.0.at(facts.task);
        if *slice != Slice::FRESH {
            slice.0 = slice.0.saturating_sub(facts.computed);
        }
    }

    /// Returns whether a task that becomes ready goes on with its slice. Otherwise its next slice
    /// is a new one.
    pub(super) fn go_on(&mut self, facts: &Facts<'_>) -> bool {
        let slice = self.0.at(facts.task);
        let goes_on = facts.keeps_place && slice.0 > Nanos::ZERO;
        if !goes_on {
            *slice = Slice::FRESH;
        }
        goes_on
    }

    /// Returns what is left of the slice of a task. A new slice has the length `fresh`.
    pub(super) fn left(&mut self, task: Runnable, fresh: Nanos) -> Nanos {
        let slice = self.0.at(task);
        if *slice == Slice::FRESH {
            slice.0 = fresh;
        }
        slice.0
    }

    pub(super) fn forget(&mut self, task: Runnable) {
        self.0.forget(task);
    }
}

/// The order in which tasks became ready for the first time: the order of equals.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    count: u32,
    /// 0 for a task that has not arrived.
    numbers: PerTask<u32>,
}

impl Arrivals {
    /// Returns the number of a task, in order of arrival.
    pub(super) fn number(&mut self, task: Runnable) -> u32 {
        let number = self.numbers.at(task);
        if *number == 0 {
            self.count += 1;
            *number = self.count;
        }
        *number
    }

    pub(super) fn forget(&mut self, task: Runnable) {
        self.numbers.forget(task);
    }
}
