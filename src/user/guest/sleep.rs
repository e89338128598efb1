//! The timers of guests.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::hub;
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
type Key = (Nanos, u64);

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
}

/// A sleep of a guest, by [`Foreign::sleep`](super::Foreign::sleep): a future that any guest may poll.
///
/// It panics where no guest polls it.
pub struct Sleep {
    until: Until,
    listed: Option<(Arc<Timers>, Key)>,
}

#[derive(Clone, Copy)]
enum Until {
    /// A span from the first poll on.
    After(Duration),
    At(Nanos),
}

impl Sleep {
    pub(super) fn after(span: Duration) -> Self {
        let now = hub::current().map(|hub| hub.timers.now());
        Self {
            until: now.map_or(Until::After(span), |now| Until::At(later(now, span))),
            listed: None,
        }
    }

    pub(super) fn until(instant: Duration) -> Self {
        Self {
            until: Until::At(instant.into()),
            listed: None,
        }
    }

    /// Changes the deadline, counted from boot.
    pub fn reset(&mut self, instant: Duration) {
        self.unlist();
        self.until = Until::At(instant.into());
    }

    fn unlist(&mut self) {
        if let Some((timers, key)) = self.listed.take() {
            let waker = lock(&timers.sleeps).wakers.remove(&key);
            drop(waker);
        }
    }
}

fn later(now: Nanos, span: Duration) -> Nanos {
    Duration::from(now).saturating_add(span).into()
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timers = &hub::required("a sleep").timers;
        let now = timers.now();
        let deadline = match self.until {
            Until::At(deadline) => deadline,
            Until::After(span) => later(now, span),
        };
        self.until = Until::At(deadline);
        if deadline <= now {
            self.unlist();
            return Poll::Ready(());
        }
        // It may have moved to another task.
        if !self
            .listed
            .as_ref()
            .is_some_and(|(at, _)| Arc::ptr_eq(at, timers))
        {
            self.unlist();
        }
        let mut sleeps = lock(&timers.sleeps);
        let key = match self.listed {
            Some((_, key)) => key,
            None => {
                sleeps.last += 1;
                (deadline, sleeps.last)
            }
        };
        let before = match sleeps.wakers.get(&key) {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => sleeps.wakers.insert(key, cx.waker().clone()),
        };
        drop(sleeps);
        drop(before);
        self.listed = Some((Arc::clone(timers), key));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.unlist();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").finish_non_exhaustive()
    }
}
