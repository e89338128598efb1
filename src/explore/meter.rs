//! How far a search is, and whether it goes on.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    deadline::Ticker, explored::Progress, settings::Settings, tally::Tally, watchdog::TrialWatch,
};

/// The counts of a search, over all its threads.
pub(super) struct Meter<'a> {
    settings: &'a Settings,
    most: u64,
    ticker: Ticker,
    /// The schedules that a thread runs or has run.
    claimed: AtomicU64,
    schedules: AtomicU64,
    classes: AtomicU64,
    /// The schedules and causal orders of the search before it began anew.
    least: (u64, u64),
}

impl<'a> Meter<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
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
            least: (0, 0),
        }
    }

    /// Returns the meter of the same search, which begins anew. Its progress never says less than before.
    pub(super) fn again(self) -> Self {
        let Self {
            settings, ticker, ..
        } = self;
        Self {
            least: (self.schedules.into_inner(), self.classes.into_inner()),
            ticker,
            ..Self::new(settings)
        }
    }

    /// Claims a schedule. If there is none, the tally gets what ends the search.
    pub(super) fn claims(&self, tally: &mut Tally) -> bool {
        if self.settings.deadline.is_over() {
            tally.end_by(self.settings.end());
            return false;
        }
        let claims = self.claimed.fetch_add(1, Ordering::Relaxed) < self.most;
        if !claims {
            self.unclaim();
            tally.end_by(format!("it ended after {} schedules", self.most));
        }
        claims
    }

    /// Returns whether the time has cut a schedule, which ends the search.
    pub(super) fn is_cut(&self, watch: &TrialWatch, tally: &mut Tally) -> bool {
        let Some(cut) = self.settings.end_within(watch) else {
            return false;
        };
        self.unclaim();
        tally.end_by(cut);
        true
    }

    /// Returns a schedule that was not run to its end.
    pub(super) fn unclaim(&self) {
        self.claimed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a schedule, of a new causal order or not, and reports the progress if that is due.
    pub(super) fn count(&self, is_new: bool) {
        if self.settings.progress.is_none() {
            return;
        }
        self.schedules.fetch_add(1, Ordering::Relaxed);
        self.classes.fetch_add(u64::from(is_new), Ordering::Relaxed);
        self.tick();
    }

    /// Reports the progress if that is due. A run that counts nowhere takes time as well.
    pub(super) fn tick(&self) {
        let Some(report) = &self.settings.progress else {
            return;
        };
        let Some(elapsed) = self.ticker.due() else {
            return;
        };
        let schedules = self.schedules.load(Ordering::Relaxed).max(self.least.0);
        let classes = self.classes.load(Ordering::Relaxed).max(self.least.1);
        report(&Progress {
            schedules,
            of: self.most,
            classes,
            elapsed,
            left: self.left(elapsed, schedules),
        });
    }

    /// The time up to the limits of the search. Without one nothing is known: how many schedules a
    /// complete search needs shows only at its end.
    fn left(&self, elapsed: Duration, schedules: u64) -> Option<Duration> {
        let share = schedules as f64 / self.most as f64;
        let all = elapsed.as_secs_f64() / share;
        let all = (self.most < u64::MAX).then(|| Duration::try_from_secs_f64(all).ok());
        let limits = [all.flatten(), self.settings.time];
        let all = limits.into_iter().flatten().min()?;
        Some(all.saturating_sub(elapsed))
    }
}
