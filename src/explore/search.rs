//! The loop over the schedules of a search by seeds.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use super::{
    audit::Audited,
    crew::Crew,
    meter::Meter,
    settings::Settings,
    strategy::SearchStrategy,
    tally::{Found, Tally},
    trial::{self, Test},
    twice::Logged,
    watchdog::lock,
};
use crate::Error;

/// One in so many schedules runs twice, beginning with the first.
const REPEATED: u64 = 100;

/// The runs that count the turns of a schedule. In each, tasks have other priorities.
const MEASURED: u64 = 8;

/// After so many turns of such a run, a task that yields lets the others run: it may wait for them.
const CALM: u64 = 64;

/// Tells the strategy how long a schedule is, if it has to know: as long as the longest of some runs
/// whose priorities do not change. So the length is the same for each thread and each part of the
/// search. Returns a tally of the runs as well if one of them ends the search.
pub(super) fn measured(
    Test { body, settings }: Test<'_>,
) -> Result<(Settings, Option<Tally>), Error> {
    let mut measured = settings.clone();
    let changes = match settings.strategy {
        SearchStrategy::Pct(changes, None) if settings.schedules() > 0 => changes,
        _ => return Ok((measured, None)),
    };
    measured.strategy = SearchStrategy::Pct(0, Some(CALM));
    let (mut kernel, mut length) = (None, 1);
    let watch = settings.watch();
    let mut tally = Tally::default();
    for schedule in 0..MEASURED {
        if settings.deadline.is_over() {
            tally.bound = Some(settings.end());
            return Ok((measured, Some(tally)));
        }
        let seed = settings.seed_of(schedule);
        let kernel = trial::fresh(&mut kernel, &measured, seed, &watch)?;
        let mut trial = trial::run(kernel, body, &watch);
        tally.bound = measured.end_within(&watch);
        if tally.bound.is_none() {
            tally.add(&mut trial);
            let name = || format!("run {} of the {MEASURED} that count turns", schedule + 1);
            tally.failure = trial.failure.map(|why| Found {
                name: Some(name()),
                ..Found::new(schedule, why)
            });
        }
        if tally.bound.is_some() || tally.failure.is_some() {
            return Ok((measured, Some(tally)));
        }
        length = length.max(kernel.report().ticks);
    }
    measured.strategy = SearchStrategy::Pct(changes, Some(length));
    Ok((measured, None))
}

/// Runs a schedule for each seed.
pub(super) fn by_seeds(crew: Crew<'_>, settings: &Settings) -> Result<Tally, Error> {
    let claims = Claims::new(settings);
    let all = Mutex::new(Tally::default());
    crew(&|body| {
        let tally = work(Test { body, settings }, &claims)?;
        let mut all = lock(&all);
        all.merge(tally);
        if let Some(found) = &all.failure {
            found.tell(settings);
        }
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The schedules that no thread has taken yet. They are taken in order. So once a schedule has
/// failed, all those before it are under way, and the first failure is the same on any number of
/// threads.
struct Claims<'a> {
    next: AtomicU64,
    /// Whether several threads take schedules.
    is_shared: bool,
    step: u64,
    /// No schedule from this one on is taken.
    end: AtomicU64,
    meter: Meter<'a>,
}

impl<'a> Claims<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self {
            next: AtomicU64::new(settings.shard.number),
            is_shared: settings.threads.is_some(),
            // No search has so many schedules, and no sum overflows.
            step: settings.shard.of.min(1 << 62),
            end: AtomicU64::new(settings.schedules()),
            meter: Meter::new(settings),
        }
    }

    fn take(&self) -> Option<u64> {
        if self.meter.is_over() {
            return None;
        }
        let schedule = if self.is_shared {
            self.next.fetch_add(self.step, Ordering::Relaxed)
        } else {
            // A locked instruction would be 1% of a small schedule.
            let schedule = self.next.load(Ordering::Relaxed);
            self.next.store(schedule + self.step, Ordering::Relaxed);
            schedule
        };
        (schedule < self.end.load(Ordering::Relaxed)).then_some(schedule)
    }

    fn end_at(&self, schedule: u64) {
        self.end.fetch_min(schedule, Ordering::Relaxed);
    }
}

fn work(test: Test<'_>, claims: &Claims<'_>) -> Result<Tally, Error> {
    let Test { body, settings } = test;
    let mut tally = Tally::default();
    let mut kernel = None;
    let watch = settings.watch();
    let mut logged = Logged::new(body, &watch);
    let mut audited = settings.audits.then(|| Audited::new(test, &watch.beside()));
    while let Some(schedule) = claims.take() {
        let seed = settings.seed_of(schedule);
        let is_repeated = schedule % REPEATED == 0;
        let mut found = None;
        let mut trial = match &mut audited {
            Some(audited) => {
                let (trial, class, order) = audited.run(seed, schedule)?;
                tally.classes.extend(class);
                found = order;
                trial
            }
            None => {
                let kernel = trial::fresh(&mut kernel, settings, seed, &watch)?;
                match is_repeated {
                    true => logged.first(kernel, seed)?,
                    false => trial::run(kernel, body, &watch),
                }
            }
        };
        if let Some(cut) = settings.end_within(&watch) {
            tally.bound = Some(cut);
            break;
        }
        if is_repeated && trial.failure.is_none() && found.is_none() {
            let kernel = trial::fresh(&mut kernel, settings, seed, &watch)?;
            if audited.is_some() {
                logged.first(kernel, seed)?;
            }
            found = logged.repeat(kernel, seed, schedule, &trial)?;
        }
        tally.add(&mut trial);
        claims.meter.count(false);
        let failure = trial.failure.map(|why| Found::new(schedule, why)).or(found);
        if failure.is_some() {
            claims.end_at(schedule);
            tally.failure = failure;
            break;
        }
        // The time may end within the repetition.
        if let Some(cut) = settings.end_within(&watch) {
            tally.bound = Some(cut);
            break;
        }
    }
    if tally.failure.is_none() && settings.deadline.is_stopped() {
        tally.bound.get_or_insert_with(|| settings.end());
    }
    Ok(tally)
}
