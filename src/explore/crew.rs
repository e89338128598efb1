//! The threads of a search, and its division into parts that need no talk.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{
    meter::Meter,
    settings::Settings,
    tally::Tally,
    trial::{Body, Test},
};
use crate::{Error, Kernel, panic::lock};

/// What each thread of a search runs, with the body of the search.
pub(super) type Job<'a> = &'a (dyn Fn(Body<'_>) -> Result<(), Error> + Sync);

/// Runs a job on each thread of a search.
pub(super) type Crew<'a> = &'a dyn Fn(Job<'_>) -> Result<(), Error>;

/// Runs a job on so many threads, which share the body.
pub(super) fn in_threads<F>(body: &F, threads: usize, job: Job<'_>) -> Result<(), Error>
where
    F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    let name = thread::current().name().unwrap_or("search").to_string();
    thread::scope(|scope| {
        let start = |_| {
            let thread = thread::Builder::new().name(name.clone());
            thread.spawn_scoped(scope, move || job(body))
        };
        let workers: Result<Vec<_>, _> = (0..threads).map(start).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().expect("panics of a trial are contained")
        };
        workers?.into_iter().try_for_each(join)
    })
}

/// The schedules or the parts of this shard that no thread has taken yet. They are taken in order. So
/// once one has failed, all those before it are under way, and the first failure is the same on any
/// number of threads.
pub(super) struct Claims {
    next: AtomicU64,
    is_shared: bool,
    step: u64,
    /// None from this one on is taken.
    end: AtomicU64,
}

impl Claims {
    pub(super) fn new(settings: &Settings, end: u64) -> Self {
        Self {
            next: AtomicU64::new(settings.shard.number),
            is_shared: settings.threads.is_some(),
            // No search has so many, and no sum overflows.
            step: settings.shard.of.min(1 << 62),
            end: AtomicU64::new(end),
        }
    }

    pub(super) fn take(&self) -> Option<u64> {
        let next = if self.is_shared {
            self.next.fetch_add(self.step, Ordering::Relaxed)
        } else {
            // A locked instruction would be 1% of a small schedule.
            let next = self.next.load(Ordering::Relaxed);
            self.next.store(next + self.step, Ordering::Relaxed);
            next
        };
        (next < self.end.load(Ordering::Relaxed)).then_some(next)
    }

    pub(super) fn end_at(&self, failed: u64) {
        self.end.fetch_min(failed, Ordering::Relaxed);
    }
}

pub(super) fn run_parts<P: Sync>(
    crew: Crew<'_>,
    settings: &Settings,
    meter: &Meter<'_>,
    parts: &[P],
    work: impl Fn(Test<'_>, &P, &Meter<'_>) -> Result<Tally, Error> + Sync,
) -> Result<Tally, Error> {
    let claims = Claims::new(settings, parts.len() as u64);
    let tallies = Mutex::new(BTreeMap::new());
    crew(&|body| {
        while let Some(at) = claims.take() {
            let tally = work(Test { body, settings }, &parts[at as usize], meter)?;
            if let Some(found) = &tally.failure {
                found.tell(settings);
                claims.end_at(at);
            }
            lock(&tallies).insert(at, tally);
        }
        Ok(())
    })?;
    let tallies = tallies.into_inner();
    let tallies = tallies.unwrap_or_else(PoisonError::into_inner);
    let mut all = Tally {
        complete: true,
        ..Tally::default()
    };
    if tallies.is_empty() && settings.deadline.is_over() {
        // The end of the time has perhaps cut the division, and other shards have other parts then.
        all.complete = false;
        all.bound = Some(settings.end());
    }
    for mut tally in tallies.into_values() {
        if all.failure.is_some() {
            break;
        }
        if let Some(found) = &mut tally.failure {
            found.schedule += all.schedules;
        }
        for first in tally.firsts.values_mut() {
            first.schedule += all.schedules;
        }
        all.merge(tally);
    }
    Ok(all)
}
