//! The end of a search's time. The only clock of this room.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// An instant of the machine's clock, or what ends a search before it. Without both it never comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deadline {
    at: Option<Instant>,
    stop: Option<fn() -> bool>,
}

impl Deadline {
    /// Returns the instant after this time, or when `stop` returns true.
    pub(super) fn after(time: Option<Duration>, stop: Option<fn() -> bool>) -> Self {
        let at = time.and_then(|time| Instant::now().checked_add(time));
        Self { at, stop }
    }

    pub(super) fn is_set(self) -> bool {
        self.at.is_some() || self.stop.is_some()
    }

    pub(super) fn is_over(self) -> bool {
        self.is_stopped() || self.at.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Returns the deadline that comes so long after this one, which is over.
    pub(super) fn later(self, time: Duration) -> Self {
        let now = Instant::now();
        let end = self.at.map_or(now, |at| at.min(now));
        Self {
            at: end.checked_add(time),
            stop: None,
        }
    }

    pub(super) fn is_stopped(self) -> bool {
        self.stop.is_some_and(|stop| stop())
    }
}

/// An amount of the thread's CPU time. A machine that does other work, too, changes nothing then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    spent: Duration,
    /// For runs that wait for other threads.
    deadline: Deadline,
}

impl Budget {
    /// The most time on the machine's clock, as a multiple of the CPU time.
    const PATIENCE: u32 = 10;

    const LATE: Duration = Duration::from_millis(500);

    /// Returns so much time, in a search that ends then.
    pub(super) fn of(time: Duration, search: Deadline) -> Self {
        let patience = Deadline::after(Some(time * Self::PATIENCE), None);
        let late = search.at.and_then(|at| at.checked_add(Self::LATE));
        Self {
            spent: cpu_time() + time,
            deadline: Deadline {
                at: [patience.at, late].into_iter().flatten().min(),
                stop: None,
            },
        }
    }

    pub(super) fn is_spent(self) -> bool {
        cpu_time() >= self.spent || self.deadline.is_over()
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Tells when the next report of a search's progress is due.
#[derive(Debug)]
pub(super) struct Ticker {
    start: Instant,
    next: Mutex<Duration>,
}

impl Ticker {
    const EVERY: Duration = Duration::from_millis(200);

    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            next: Mutex::new(Self::EVERY),
        }
    }

    /// Returns the time since the begin, if a report is due. One of several threads makes it.
    pub(super) fn due(&self) -> Option<Duration> {
        let mut next = self.next.try_lock().ok()?;
        let elapsed = self.start.elapsed();
        (elapsed >= *next).then(|| {
            *next = elapsed + Self::EVERY;
            elapsed
        })
    }
}
