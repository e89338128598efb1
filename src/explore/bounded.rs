//! The search of all schedules with few preemptions, or of all there are.

use super::{
    deadline::Deadline,
    guide::Guide,
    minimise::delays,
    plan::Plan,
    search::{Found, Tally},
    settings::Settings,
    trial::{self, Body},
};
use crate::Error;

/// Runs every schedule with at most so many preemptions, those with fewer first among those that
/// begin alike.
pub(super) fn search(body: Body<'_>, settings: &Settings, most: usize) -> Result<Tally, Error> {
    let guide = Guide::default();
    let deadline = Deadline::after(settings.time);
    let mut kernel = settings
        .builder(settings.seed)
        .policy(guide.clone())
        .build()?;
    let mut tally = Tally::default();
    let mut is_bounded = false;
    let mut ahead = vec![Plan::default()];
    while let Some(plan) = ahead.pop() {
        if tally.schedules >= settings.schedules() || deadline.is_over() {
            return Ok(tally);
        }
        kernel.reset(settings.seed)?;
        guide.follow(&plan);
        let trial = trial::run(&mut kernel, body);
        let schedule = tally.schedules;
        tally.schedules += 1;
        tally.outcomes.extend(trial.notes.outcomes);
        tally.held.extend(trial.notes.held);
        if let Some(why) = trial.failure {
            tally.failure = Some(Found::new(schedule, why).with(plan));
            return Ok(tally);
        }
        let last = plan.0.last().map_or(0, |last| last.turn);
        let widths = guide.widths();
        let mut more = delays(&widths, last).peekable();
        if plan.0.len() == most {
            is_bounded |= more.peek().is_some();
            continue;
        }
        let more: Vec<Plan> = more
            .map(|delay| {
                let mut longer = plan.clone();
                longer.0.push(delay);
                longer
            })
            .collect();
        ahead.extend(more.into_iter().rev());
    }
    tally.complete = !is_bounded;
    Ok(tally)
}
