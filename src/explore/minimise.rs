//! The fewest preemptions with which a schedule fails.
//!
//! First come all schedules with no departure from first in, first out, then all with one, then all
//! with two. What fails there is minimal. (Delay bounding: Emmi, Qadeer and Rakamarić, POPL 2011.)
//! If the time does not suffice, or if more departures are needed, delta debugging removes
//! departures from the schedule that was found. (Zeller and Hildebrandt, TSE 2002.)
//!
//! A schedule with other decisions first loses those of them that do not matter, kind by kind: the faults of
//! chaos, too, which are drawn as before and do not happen. The
//! answers of its choices are lowered. Then delta debugging removes departures.

use std::time::Duration;

use super::{
    deadline::Budget,
    guide::Planned,
    plan::{Plan, Step},
    trial::Test,
};
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
    let mut plan = found.clone();
    for kind in KINDS {
        plan = reduce(&mut runs, &plan, kind, budget)?;
    }
    plan = lower(&mut runs, plan, budget)?;
    let chaos = plan.of_chaos();
    if plan.preemptions() + chaos.0.len() < plan.0.len() {
        let budget = Budget::of(TIME, settings.deadline);
        plan = reduce(&mut runs, &plan, Step::is_delay, budget)?;
        return Ok(Fewest {
            is_least: plan.preemptions() == 0,
            plan,
        });
    }
    // Every schedule with fewer departures than these passes.
    let mut least = 0;
    while least <= MOST.min(plan.preemptions()) {
        let mut fewer = chaos.clone();
        match try_all(&mut runs, &mut fewer, least, budget)? {
            Some(true) => {
                return Ok(Fewest {
                    plan: fewer,
                    is_least: !runs.offers_others(),
                });
            }
            Some(false) => least += 1,
            None => break,
        }
    }
    let budget = Budget::of(TIME, settings.deadline);
    let plan = reduce(&mut runs, &plan, Step::is_delay, budget)?;
    let is_least = plan.preemptions() <= least && !runs.offers_others();
    Ok(Fewest { plan, is_least })
}

/// What is removed from a schedule before its preemptions, in this order.
const KINDS: [fn(&Step) -> bool; 4] = [
    |step| matches!(step, Step::Keep(1..)),
    |step| matches!(step, Step::Fault(..)),
    |step| matches!(step, Step::Time(_)),
    |step| matches!(step, Step::Choice(..)),
];

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
        if failing.0[at] == Step::Keep(0) {
            continue;
        }
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
    for delay in runs.delays() {
        let turns = |step: &Step| step.turn() < delay.turn();
        let at = failing.0.iter().rposition(turns).map_or(0, |at| at + 1);
        let next = failing.0[at..].iter().find(|step| step.is_delay());
        if next.is_some_and(|next| next.turn() == delay.turn()) {
            continue;
        }
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
        let longer = runs.longer(plan, true);
        for mut longer in longer.filter(|plan| plan.0.last().is_some_and(Step::is_delay)) {
            let tried = try_all(runs, &mut longer, departures - 1, budget)?;
            if tried != Some(false) {
                *plan = longer;
                return Ok(tried);
            }
        }
    }
    Ok(Some(false))
}

/// Removes decisions of a kind as long as the schedule fails without them.
fn reduce(
    runs: &mut Planned<'_>,
    found: &Plan,
    is_kind: fn(&Step) -> bool,
    budget: Budget,
) -> Result<Plan, Error> {
    let mut plan = found.clone();
    let mut parts = 2;
    'plan: while !budget.is_spent() {
        let steps = plan.0.iter().enumerate();
        let places: Vec<usize> = steps.filter(|it| is_kind(it.1)).map(|it| it.0).collect();
        if places.is_empty() {
            break;
        }
        let size = places.len().div_ceil(parts);
        for left_out in places.chunks(size) {
            let steps = plan.0.iter().enumerate();
            let rest = steps.filter(|(at, _)| !left_out.contains(at));
            let rest = Plan(rest.map(|(_, step)| *step).collect());
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

/// Lowers the answers of choices as long as the schedule fails: by halves, then by ones.
fn lower(runs: &mut Planned<'_>, mut plan: Plan, budget: Budget) -> Result<Plan, Error> {
    for at in 0..plan.0.len() {
        while let Step::Choice(number, answer) = plan.0[at]
            && answer > 1
            && !budget.is_spent()
        {
            let mut lowered = false;
            for lower in [answer / 2, answer - 1] {
                let mut next = plan.clone();
                next.0[at] = Step::Choice(number, lower);
                if runs.fails(&next)? {
                    (plan, lowered) = (next, true);
                    break;
                }
            }
            if !lowered {
                break;
            }
        }
    }
    Ok(plan)
}
