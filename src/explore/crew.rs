//! The threads of a search, and its division into parts that need no talk.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    meter::Meter,
    settings::Settings,
    tally::Tally,
    trial::{Body, Test},
    watchdog::lock,
};
use crate::{Error, Kernel};

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

/// Runs the parts of this shard. The parts are taken in order. So once one has failed, all those
/// before it are under way, and the result is the same on any number of threads.
pub(super) fn run_parts<P: Sync>(
    crew: Crew<'_>,
    settings: &Settings,
    parts: &[P],
    work: impl Fn(Test<'_>, &P, &Meter<'_>) -> Result<Tally, Error> + Sync,
) -> Result<Tally, Error> {
    let shard = settings.shard;
    let mine = parts.iter().enumerate();
    let mine: Vec<&P> = mine
        .filter_map(|(at, part)| (at as u64 % shard.of == shard.number).then_some(part))
        .collect();
    let meter = Meter::new(settings);
    let (next, end) = (AtomicUsize::new(0), AtomicUsize::new(mine.len()));
    let tallies = Mutex::new(BTreeMap::new());
    crew(&|body| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= end.load(Ordering::Relaxed) {
                return Ok(());
            }
            let tally = work(Test { body, settings }, mine[at], &meter)?;
            if let Some(found) = &tally.failure {
                found.tell(settings);
                end.fetch_min(at, Ordering::Relaxed);
            }
            lock(&tallies).insert(at, tally);
        }
    })?;
    let tallies = tallies.into_inner();
    let mut all = Tally {
        complete: true,
        ..Tally::default()
    };
    for tally in tallies
        .unwrap_or_else(PoisonError::into_inner)
        .into_values()
    {
        if all.failure.is_none() {
            all.append(tally);
        }
    }
    if mine.is_empty() && settings.deadline.is_over() {
        // The end of the time has perhaps cut the division, and other shards have other parts then.
        all.complete = false;
        all.bound = Some(settings.end());
    }
    Ok(all)
}
