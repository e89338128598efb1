//! How far a search is, and whether it goes on.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use super::{deadline::Ticker, explored::Progress, settings::Settings, timed::Watch};

/// The counts of a search, over all its threads.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    settings: &'a Settings,
    /// The most schedules of this shard.
    most: u64,
    ticker: Ticker,
    /// The schedules that a thread runs or has run.
    claimed: AtomicU64,
    /// The schedules that have run.
    schedules: AtomicU64,
    /// The causal orders among them.
    classes: AtomicU64,
    /// The parts of the search that have ended, of so many.
    ended: AtomicUsize,
    parts: usize,
}

impl<'a> Meter<'a> {
    pub(super) fn new(settings: &'a Settings, parts: usize) -> Self {
        let shard = settings.shard;
        let all = settings.schedules();
        // Shard 0 has the first of each round.
        let most = (all / shard.of) + u64::from(shard.number < all % shard.of);
        Self {
            settings,
            most,
            ticker: Ticker::new(),
            claimed: AtomicU64::new(0),
            schedules: AtomicU64::new(0),
            classes: AtomicU64::new(0),
            ended: AtomicUsize::new(0),
            parts,
        }
    }

    /// Claims a schedule. The error says what ends the search, in words.
    pub(super) fn claim(&self) -> Result<(), String> {
        if let Some(time) = self.settings.time.filter(|_| self.is_over()) {
            return Err(format!("it ended after {time:?}"));
        }
        if self.claimed.fetch_add(1, Ordering::Relaxed) < self.most {
            return Ok(());
        }
        self.unclaim();
        Err(format!("it ended after {} schedules", self.most))
    }

    /// Returns a schedule that was not run to its end.
    pub(super) fn unclaim(&self) {
        self.claimed.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.settings.deadline.is_over()
    }

    /// Says that the time has cut the schedule under way, which counts nowhere.
    pub(super) fn cut(&self, watch: &Watch) -> Option<String> {
        let time = self.settings.time.filter(|_| watch.has_cut())?;
        Some(format!("it ended after {time:?}, within a schedule"))
    }

    pub(super) fn end_part(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a schedule, of a new causal order or not, and reports the progress if that is due.
    /// `share` estimates how much of the part is done, from 0 to 1.
    pub(super) fn count(&self, is_new: bool, share: impl FnOnce() -> f64) {
        if self.settings.progress.is_none() {
            return;
        }
        let schedules = self.schedules.fetch_add(1, Ordering::Relaxed) + 1;
        let classes = self.classes.fetch_add(u64::from(is_new), Ordering::Relaxed);
        let classes = classes + u64::from(is_new);
        let (Some(report), Some(elapsed)) = (&self.settings.progress, self.ticker.due()) else {
            return;
        };
        let ended = self.ended.load(Ordering::Relaxed) as f64;
        let share = (ended + share()) / self.parts.max(1) as f64;
        (report.0)(&Progress {
            schedules,
            of: self.most,
            classes,
            elapsed,
            left: self.left(elapsed, share.max(schedules as f64 / self.most as f64)),
        });
    }

    fn left(&self, elapsed: Duration, share: f64) -> Option<Duration> {
        let all = Duration::try_from_secs_f64(elapsed.as_secs_f64() / share).ok();
        let left = all.map(|all| all.saturating_sub(elapsed));
        let time = self.settings.time.map(|time| time.saturating_sub(elapsed));
        left.into_iter().chain(time).min()
    }
}
