//! The sleeps of guests.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    hub,
    timers::{Key, Timers},
};
use crate::abi::Nanos;

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

    /// Changes the deadline, counted from boot. A task that waits for this sleep is woken then.
    pub fn reset(&mut self, instant: Duration) {
        let deadline = instant.into();
        self.until = Until::At(deadline);
        let Some((timers, key)) = self.listed.take() else {
            return;
        };
        let Some(waker) = timers.unlist(key) else {
            return;
        };
        if hub::current().is_some_and(|hub| Arc::ptr_eq(&hub.timers, &timers)) {
            let key = timers.list(None, deadline, &waker);
            self.listed = Some((timers, key));
        } else {
            // The task of that guest waits for the old deadline. The poll of its guest lists the new one.
            waker.wake();
        }
    }

    fn unlist(&mut self) {
        if let Some((timers, key)) = self.listed.take() {
            drop(timers.unlist(key));
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
        let key = self.listed.as_ref().map(|(_, key)| *key);
        let key = timers.list(key, deadline, cx.waker());
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
