//! The loop of an exhaustive search.

use super::{
    audit::{self, Runs},
    crew::{Crew, run_parts},
    exhaustive::{Cut, Decider, Part, Tree},
    frontier,
    meter::Meter,
    tally::{Found, Tally},
    trial::{THREADS, Test},
    twice::{self, NONDETERMINISM},
};
use crate::Error;

/// Searches until every causal order has been run, or a schedule fails.
pub(super) fn search(crew: Crew<'_>, test: Test<'_>) -> Result<Tally, Error> {
    let settings = test.settings;
    twice::before(test, || {
        let mut parts = if settings.is_divided() {
            frontier::divide(test)?
        } else {
            vec![Part::default()]
        };
        let first = usize::try_from(settings.shard.number).ok();
        if let Some(first) = first.and_then(|first| parts.get_mut(first)) {
            first.is_first = true;
        }
        let mut tally = run_parts(crew, settings, &parts, explore)?;
        if tally.complete && tally.failure.is_none() {
            audit::draw(test, &mut tally)?;
        }
        Ok(tally)
    })
}

/// Searches a part of the tree.
fn explore(test: Test<'_>, part: &Part, meter: &Meter<'_>) -> Result<Tally, Error> {
    let settings = test.settings;
    let watch = settings.watch();
    let mut runs = Runs::new(test, Tree::new(settings, part.clone()), &watch);
    let mut tally = Tally::default();
    let mut counts_on_threads = false;
    loop {
        if let Err(limit) = meter.claim() {
            tally.end_by(limit);
            break;
        }
        let (mut trial, ran) = runs.run(settings.seed, Decider::Tree)?;
        if let Some(cut) = settings.end_within(&watch) {
            meter.unclaim();
            tally.end_by(cut);
            break;
        }
        counts_on_threads |= trial.counts_on_threads;
        match &ran.cut {
            None => {
                let schedule = tally.schedules;
                let is_new = tally.classes.insert(ran.class);
                let audited = runs.audit(settings.seed, schedule, &trial, &ran)?;
                if watch.has_cut() {
                    tally.unaudited = Some(format!("{}, within its audit", settings.end()));
                }
                tally.is_reordered |= ran.other.is_some();
                tally.turns = tally.turns.max(ran.turns as u64);
                tally.add(&mut trial);
                meter.count(is_new);
                let failure = trial.failure.map(|why| Found::new(schedule, why));
                tally.failure = failure.map(|found| found.with(ran.plan)).or(audited);
            }
            Some(Cut::Redundant | Cut::Probed) => meter.unclaim(),
            // It counts for the limit of schedules: there may be no end of such ones.
            Some(Cut::TooLong) => {
                tally.bound = Some(settings.cut());
            }
            Some(Cut::Unrepeatable(why)) => {
                let why = format!("{NONDETERMINISM}: {why}\n{}", trial.hidden());
                tally.failure = Some(Found::new(tally.schedules, why).with(ran.plan));
            }
        }
        if tally.failure.is_some() {
            break;
        }
        if !runs.tree.advance() {
            if counts_on_threads {
                tally.bound.get_or_insert_with(|| THREADS.to_string());
            }
            tally.complete = tally.bound.is_none();
            break;
        }
    }
    tally.has_choice = runs.tree.has_choice();
    Ok(tally)
}
