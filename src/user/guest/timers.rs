//! The timers of a guest, as its task has them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use crate::{abi::Nanos, panic::lock};

/// The sleeps of a guest that were polled, and the time as its task has last read it.
pub(super) struct Timers {
    now: AtomicU64,
    sleeps: Mutex<Sleeps>,
}

#[derive(Default)]
struct Sleeps {
    wakers: BTreeMap<Key, Waker>,
    last: u64,
}

/// A deadline, and a number for those that are equal.
pub(super) type Key = (Nanos, u64);

impl Timers {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            now: AtomicU64::new(Nanos::from(now).0),
            sleeps: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    /// Returns the earliest deadline.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let sleeps = lock(&self.sleeps);
        let first = sleeps.wakers.first_key_value();
        first.map(|((deadline, _), _)| (*deadline).into())
    }

    /// Wakes the sleeps that are over, in order.
    pub(super) fn advance(&self, now: Duration) {
        let now = Nanos::from(now);
        self.now.store(now.0, Ordering::Relaxed);
        let mut sleeps = lock(&self.sleeps);
        if sleeps.wakers.is_empty() {
            return;
        }
        let later = sleeps.wakers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut sleeps.wakers, later);
        drop(sleeps);
        due.into_values().for_each(Waker::wake);
    }

    /// Adds a sleep, or changes its waker.
    pub(super) fn list(&self, key: Option<Key>, deadline: Nanos, waker: &Waker) -> Key {
        let mut sleeps = lock(&self.sleeps);
        let key = key.unwrap_or_else(|| {
            sleeps.last += 1;
            (deadline, sleeps.last)
        });
        let before = match sleeps.wakers.get(&key) {
            Some(before) if before.will_wake(waker) => None,
            _ => sleeps.wakers.insert(key, waker.clone()),
        };
        drop(sleeps);
        drop(before);
        key
    }

    /// Removes a sleep that is not over, and returns its waker.
    pub(super) fn unlist(&self, key: Key) -> Option<Waker> {
        lock(&self.sleeps).wakers.remove(&key)
    }
}
