//! The fewest preemptions with which a schedule fails.
//!
//! First come all schedules with no departure from first in, first out, then all with one, then all
//! with two. What fails there is minimal. (Delay bounding: Emmi, Qadeer and Rakamarić, POPL 2011.)
//! If the time does not suffice, or if more departures are needed, delta debugging removes
//! departures from the schedule that was found. (Zeller and Hildebrandt, TSE 2002.)

use std::time::Duration;

use super::{deadline::Budget, guide::Planned, plan::Plan, trial::Test};
use crate::Error;

/// The CPU time for all schedules with few departures, and again for delta debugging.
const TIME: Duration = Duration::from_millis(450);

/// The most departures of the schedules that are all tried.
const MOST: usize = 2;

pub(super) struct Fewest {
    pub(super) plan: Plan,
    pub(super) is_least: bool,
}

/// Searches for the fewest preemptions. `found` fails.
pub(super) fn minimise(test: Test<'_>, seed: u64, found: &Plan) -> Result<Fewest, Error> {
    let settings = test.settings;
    let mut runs = Planned::new(test, seed, settings.watch_without_end());
    let budget = Budget::of(TIME, settings.deadline);
    // Every schedule with fewer departures than these passes.
    let mut least = 0;
    while least <= MOST.min(found.0.len()) {
        let mut plan = Plan::default();
        match try_all(&mut runs, &mut plan, least, budget)? {
            Some(true) => {
                let is_least = true;
                return Ok(Fewest { plan, is_least });
            }
            Some(false) => least += 1,
            None => break,
        }
    }
    let plan = reduce(&mut runs, found, Budget::of(TIME, settings.deadline))?;
    let is_least = plan.0.len() <= least;
    Ok(Fewest { plan, is_least })
}

/// Returns a schedule that passes, and departs from `failing` as little as possible: it lacks one
/// departure, or has one more.
pub(super) fn nearest_passing(
    test: Test<'_>,
    seed: u64,
    failing: &Plan,
) -> Result<Option<Plan>, Error> {
    let settings = test.settings;
    let mut runs = Planned::new(test, seed, settings.watch_without_end());
    let budget = Budget::of(TIME, settings.deadline);
    for at in (0..failing.0.len()).rev() {
        let mut plan = failing.clone();
        plan.0.remove(at);
        if !runs.fails(&plan)? {
            return Ok(Some(plan));
        }
        if budget.is_spent() {
            return Ok(None);
        }
    }
    runs.fails(failing)?;
    for delay in runs.delays(0) {
        let place = failing.0.binary_search_by_key(&delay.turn, |it| it.turn);
        let Err(at) = place else {
            continue;
        };
        let mut plan = failing.clone();
        plan.0.insert(at, delay);
        if !runs.fails(&plan)? {
            return Ok(Some(plan));
        }
        if budget.is_spent() {
            break;
        }
    }
    Ok(None)
}

/// Tries every schedule with so many departures after those of `plan`, which passes without more.
/// Returns whether one fails, which it leaves in `plan`; `None` if the time is over.
fn try_all(
    runs: &mut Planned<'_>,
    plan: &mut Plan,
    departures: usize,
    budget: Budget,
) -> Result<Option<bool>, Error> {
    if budget.is_spent() {
        return Ok(None);
    }
    // Also for the number of ready tasks at each turn.
    if runs.fails(plan)? {
        return Ok(Some(true));
    }
    if departures > 0 {
        for mut longer in runs.longer(plan) {
            let tried = try_all(runs, &mut longer, departures - 1, budget)?;
            if tried != Some(false) {
                *plan = longer;
                return Ok(tried);
            }
        }
    }
    Ok(Some(false))
}

/// Removes departures as long as the schedule fails without them.
fn reduce(runs: &mut Planned<'_>, found: &Plan, budget: Budget) -> Result<Plan, Error> {
    let mut plan = found.clone();
    let mut parts = 2;
    'plan: while !plan.0.is_empty() && !budget.is_spent() {
        let size = plan.0.len().div_ceil(parts);
        for at in (0..plan.0.len()).step_by(size) {
            let mut rest = plan.clone();
            rest.0.drain(at..(at + size).min(plan.0.len()));
            if runs.fails(&rest)? {
                plan = rest;
                parts = (parts - 1).max(2);
                continue 'plan;
            }
            if budget.is_spent() {
                break;
            }
        }
        if size == 1 {
            break;
        }
        parts *= 2;
    }
    Ok(plan)
}
