//! The timer store: who wakes when.

use std::collections::BTreeMap;

use crate::{abi::Nanos, sched::Runnable};

/// An armed timer: its deadline, and its number in order of arming.
pub(crate) type Timer = (Nanos, u64);

/// Armed timers, ordered by deadline and then by order of arming.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    armed: BTreeMap<Timer, Runnable>,
    count: u64,
}

impl Timers {
    /// Arms a timer for `task`.
    pub(crate) fn arm(&mut self, deadline: Nanos, task: Runnable) -> Timer {
        let timer = self.reserve(deadline);
        self.start(timer, task);
        timer
    }

    /// Gives out a place in the order of arming, to be started later.
    pub(crate) fn reserve(&mut self, deadline: Nanos) -> Timer {
        self.count += 1;
        (deadline, self.count)
    }

    /// Starts a timer for `task`. One that never comes is not kept.
    pub(crate) fn start(&mut self, timer: Timer, task: Runnable) {
        if timer.0 != Nanos::FOREVER {
            self.armed.insert(timer, task);
        }
    }

    pub(crate) fn disarm(&mut self, timer: Timer) {
        self.armed.remove(&timer);
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.armed
            .first_key_value()
            .map(|(&(deadline, _), _)| deadline)
    }

    /// Takes the first timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<(Timer, Runnable)> {
        let first = self.armed.first_entry()?;
        (first.key().0 <= now).then(|| first.remove_entry())
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.armed.contains_key(&timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.armed.len()
    }
}
