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
    /// How many of them are daemons'.
    of_daemons: usize,
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
            self.of_daemons += usize::from(task.tid.is_daemon());
        }
    }

    pub(crate) fn disarm(&mut self, timer: Timer) {
        if let Some(task) = self.armed.remove(&timer) {
            self.of_daemons -= usize::from(task.tid.is_daemon());
        }
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
        if first.key().0 > now {
            return None;
        }
        let (timer, task) = first.remove_entry();
        self.of_daemons -= usize::from(task.tid.is_daemon());
        Some((timer, task))
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.armed.contains_key(&timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.armed.len()
    }

    /// Whether one is armed for a task that is no daemon.
    pub(crate) fn count(&self) -> bool {
        self.armed.len() > self.of_daemons
    }
}
