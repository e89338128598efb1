//! The fewest preemptions with which a schedule fails.
//!
//! First come all schedules with no departure from first in, first out, then all with one, then all
//! with two. What fails there is minimal. (Delay bounding: Emmi, Qadeer and Rakamarić, POPL 2011.)
//! If the time does not suffice, or if more departures are needed, delta debugging removes
//! departures from the schedule that was found. (Zeller and Hildebrandt, TSE 2002.)

use std::time::Duration;

use super::{
    deadline::{Budget, Deadline},
    plan::Plan,
    planned::Planned,
    trial::Test,
};
use crate::Error;

/// The CPU time for all schedules with few departures, and again for delta debugging.
const TIME: Duration = Duration::from_millis(450);

/// The most departures of the schedules that are all tried.
const MOST: usize = 2;

/// A schedule that fails with few preemptions.
#[derive(Debug)]
pub(super) struct Fewest {
    pub(super) plan: Plan,
    /// Whether no schedule with fewer preemptions fails.
    pub(super) is_least: bool,
}

/// Searches for the fewest preemptions. `found` fails.
pub(super) fn minimise(test: Test<'_>, seed: u64, found: &Plan) -> Result<Fewest, Error> {
    let settings = test.settings;
    let watch = settings.watch_without_end();
    let mut runs = Trials {
        planned: Planned::new(test, seed, &watch)?,
        end: settings.deadline,
    };
    let budget = Budget::of(TIME, settings.deadline);
    for departures in 0..=MOST.min(found.0.len()) {
        let mut plan = Plan::default();
        match runs.try_all(&mut plan, departures, budget)? {
            Tried::Fails => {
                let is_least = true;
                return Ok(Fewest { plan, is_least });
            }
            Tried::Passes => {}
            Tried::NoTime => {
                let plan = runs.reduce(found)?;
                let is_least = plan.0.len() <= departures;
                return Ok(Fewest { plan, is_least });
            }
        }
    }
    let plan = runs.reduce(found)?;
    let is_least = plan.0.len() <= MOST + 1;
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
    let mut runs = Planned::new(test, seed, &settings.watch_without_end())?;
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
        let at = failing.0.partition_point(|other| other.turn < delay.turn);
        if failing
            .0
            .get(at)
            .is_some_and(|other| other.turn == delay.turn)
        {
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

/// The result of trying all schedules of a kind.
enum Tried {
    Fails,
    Passes,
    NoTime,
}

/// The runs of a minimisation.
struct Trials<'a> {
    planned: Planned<'a>,
    /// The end of the search.
    end: Deadline,
}

impl Trials<'_> {
    /// Tries every schedule with so many departures after those of `plan`, which passes without
    /// more. Leaves the one that fails in `plan`.
    fn try_all(
        &mut self,
        plan: &mut Plan,
        departures: usize,
        budget: Budget,
    ) -> Result<Tried, Error> {
        if budget.is_spent() {
            return Ok(Tried::NoTime);
        }
        // Also for the number of ready tasks at each turn.
        if self.planned.fails(plan)? {
            return Ok(Tried::Fails);
        }
        if departures == 0 {
            return Ok(Tried::Passes);
        }
        for mut longer in self.planned.longer(plan) {
            match self.try_all(&mut longer, departures - 1, budget)? {
                Tried::Passes => {}
                other => {
                    *plan = longer;
                    return Ok(other);
                }
            }
        }
        Ok(Tried::Passes)
    }

    /// Removes departures as long as the schedule fails without them.
    fn reduce(&mut self, found: &Plan) -> Result<Plan, Error> {
        let budget = Budget::of(TIME, self.end);
        let mut plan = found.clone();
        let mut parts = 2;
        while !plan.0.is_empty() && !budget.is_spent() {
            let size = plan.0.len().div_ceil(parts);
            let mut is_reduced = false;
            for at in (0..plan.0.len()).step_by(size) {
                let mut rest = plan.clone();
                rest.0.drain(at..(at + size).min(plan.0.len()));
                if self.planned.fails(&rest)? {
                    plan = rest;
                    parts = (parts - 1).max(2);
                    is_reduced = true;
                    break;
                }
                if budget.is_spent() {
                    break;
                }
            }
            if !is_reduced {
                if size == 1 {
                    break;
                }
                parts *= 2;
            }
        }
        Ok(plan)
    }
}
