//! The search of all schedules with few preemptions, or of all there are.

use super::{
    crew::{Crew, run_parts},
    guide::Planned,
    meter::Meter,
    plan::Plan,
    tally::{Found, Tally},
    trial::Test,
    twice,
};
use crate::Error;

/// A part of the search: this schedule, and those that begin with its preemptions.
#[derive(Default)]
struct PlanPart {
    plan: Plan,
    is_alone: bool,
}

/// Runs every schedule with at most so many preemptions, those with fewer first among those that
/// begin alike.
pub(super) fn search(crew: Crew<'_>, test: Test<'_>, most: usize) -> Result<Tally, Error> {
    twice::before(test, || {
        let settings = test.settings;
        let mut parts = vec![PlanPart::default()];
        if settings.is_divided() {
            // The others begin with each preemption of the schedule without any.
            let mut runs = Planned::new(test, settings.seed, settings.watch());
            runs.run(&Plan::default())?;
            parts[0].is_alone = true;
            let more = runs.longer(&Plan::default(), most > 0);
            parts.extend(more.map(|plan| PlanPart {
                plan,
                is_alone: false,
            }));
        }
        let meter = Meter::new(settings);
        run_parts(crew, settings, &meter, &parts, |test, part, meter| {
            explore(test, most, part, meter)
        })
    })
}

fn explore(
    test: Test<'_>,
    most: usize,
    part: &PlanPart,
    meter: &Meter<'_>,
) -> Result<Tally, Error> {
    let settings = test.settings;
    let watch = settings.watch();
    let mut runs = Planned::new(test, settings.seed, watch.clone());
    let mut tally = Tally::default();
    let mut ahead = vec![part.plan.clone()];
    while let Some(plan) = ahead.pop() {
        if !meter.claims(&mut tally) {
            return Ok(tally);
        }
        let mut trial = runs.run(&plan)?;
        if meter.is_cut(&watch, &mut tally) {
            return Ok(tally);
        }
        tally.counts_on_threads |= trial.counts_on_threads;
        let schedule = tally.schedules;
        if runs.is_cut() {
            tally.cut(settings);
            meter.tick();
        } else {
            tally.add(&mut trial);
            meter.count(false);
            if let Some(why) = trial.failure {
                tally.failure = Some(Found::new(schedule, why).with(plan));
                return Ok(tally);
            }
        }
        // Choices and faults do not count.
        let takes_more = plan.counted() < most;
        if !part.is_alone {
            let more: Vec<Plan> = runs.longer(&plan, takes_more).collect();
            ahead.extend(more.into_iter().rev());
        }
        if !takes_more && runs.offers_more() {
            let plural = if most == 1 { "" } else { "s" };
            let only = || format!("only schedules with at most {most} preemption{plural} ran");
            tally.bound.get_or_insert_with(only);
        }
    }
    tally.end();
    Ok(tally)
}
