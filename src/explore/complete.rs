//! The loop of an exhaustive search.

use super::{
    audit::Runs,
    crew::{Crew, run_parts},
    exhaustive::{Cut, Decider, Part, Tree},
    frontier,
    meter::Meter,
    settings::Settings,
    tally::{Found, Tally},
    trial::{Body, THREADS},
    twice,
};
use crate::Error;

/// Searches until every causal order has been run, or a schedule fails.
pub(super) fn search(crew: Crew<'_>, body: Body<'_>, settings: &Settings) -> Result<Tally, Error> {
    twice::before(body, settings, || {
        let parts = if settings.is_divided() {
            frontier::divide(body, settings)?
        } else {
            vec![Part::default()]
        };
        run_parts(crew, settings, &parts, |body, part, meter| {
            explore(body, settings, part, meter)
        })
    })
}

/// Searches a part of the tree.
fn explore(
    body: Body<'_>,
    settings: &Settings,
    part: &Part,
    meter: &Meter<'_>,
) -> Result<Tally, Error> {
    let watch = settings.watch();
    let mut runs = Runs::new(body, settings, Tree::new(settings, part.clone()), &watch);
    let mut tally = Tally::default();
    let mut counts_on_threads = false;
    loop {
        if let Err(limit) = meter.claim() {
            tally.bound = Some(limit);
            break;
        }
        let (mut trial, ran) = runs.run(settings.seed, Decider::Tree)?;
        if let Some(cut) = meter.cut(&watch) {
            meter.unclaim();
            tally.bound = Some(cut);
            break;
        }
        counts_on_threads |= trial.counts_on_threads;
        match &ran.cut {
            None => {
                let schedule = tally.schedules;
                let is_new = tally.classes.insert(ran.class);
                let audited = match runs.audit(settings.seed, schedule, &trial, &ran)? {
                    None if trial.failure.is_none() => {
                        runs.audit_again(settings.seed, schedule, &trial, &ran)?
                    }
                    found => found,
                };
                tally.add(&mut trial);
                meter.count(is_new);
                let failure = trial.failure.map(|why| Found::new(schedule, why));
                tally.failure = failure.map(|found| found.with(ran.plan)).or(audited);
            }
            Some(Cut::Redundant | Cut::Probed) => meter.unclaim(),
            Some(Cut::TooLong) => {
                meter.unclaim();
                tally.bound = Some(settings.cut());
            }
            Some(Cut::Unrepeatable(why)) => {
                let threads = if trial.counts_on_threads {
                    format!("\n{THREADS}")
                } else {
                    String::new()
                };
                let why = format!("hidden nondeterminism: {why}{threads}");
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
    Ok(tally)
}
