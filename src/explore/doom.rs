//! The turn from which a schedule fails, however it goes on.
//!
//! Continuations of each prefix tell: a prefix of which none passes is doomed. Longer prefixes of the same
//! schedule are doomed as well, so a binary search finds the shortest. All continuations run if there are
//! few; otherwise some are drawn, and then the turn is an estimate. A continuation decides anew all that the
//! search varies: the order of turns, choices, steps of the clock and faults.

use std::{fmt, time::Duration};

use super::{deadline::Budget, guide::Planned, plan::Plan, trial::Test};
use crate::Error;

/// The CPU time for all of it.
const TIME: Duration = Duration::from_secs(1);

/// The most continuations of a prefix that the binary search runs.
const PROBES: u64 = 40;

/// The most continuations that are counted: before the turn, and from it on.
const COUNTED: u64 = 200;

/// A longer schedule is not asked.
const LONGEST: u32 = 2_000;

/// Where the doom of a schedule begins. Its text counts the schedules that begin alike: up to the turn, and
/// with it.
pub(super) struct Doom {
    /// The turn, counted from 1; 0 if no order of turns passes.
    pub(super) turn: u32,
    from: Count,
    pub(super) before: Count,
}

impl Doom {
    /// Whether no order of turns passes, as far as is drawn.
    pub(super) fn is_drawn_from_the_start(&self) -> bool {
        self.turn == 0 && !self.from.are_all
    }
}

/// The continuations of a prefix.
#[derive(Default)]
pub(super) struct Count {
    passed: u64,
    of: u64,
    are_all: bool,
    /// One that passes.
    pub(super) passing: Option<Plan>,
}

impl fmt::Display for Doom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { of, are_all, .. } = self.from;
        match (self.turn, are_all, of) {
            (0, true, 1) => f.write_str("its only schedule fails"),
            (0, true, _) => write!(f, "none of its {of} schedules passes"),
            (0, false, _) => write!(f, "none of {of} drawn schedules passes"),
            (_, true, 1) => write!(
                f,
                "before it, {}; after it, the only one fails",
                self.before
            ),
            (_, true, _) => write!(f, "before it, {}; after it, none of all {of}", self.before),
            (_, false, _) => write!(
                f,
                "before it, {}; after it, none of {of} drawn",
                self.before
            ),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, of, .. } = self;
        let pass = if *passed == 1 { "passes" } else { "pass" };
        match self.are_all {
            true => write!(f, "{passed} of all {of} schedules {pass}"),
            false => write!(f, "{passed} of {of} drawn schedules {pass}"),
        }
    }
}

/// Finds the turn. `failing` fails after so many turns. Returns `None` if the time does not suffice.
pub(super) fn find(
    test: Test<'_>,
    seed: u64,
    failing: &Plan,
    turns: u32,
) -> Result<Option<Doom>, Error> {
    let settings = test.settings;
    if turns > LONGEST || settings.deadline.is_over() {
        return Ok(None);
    }
    let mut search = Search {
        runs: Planned::new(test, seed, settings.watch_without_end()),
        failing,
        turns_of: Vec::new(),
        budget: Budget::of(TIME, settings.deadline),
    };
    search.runs.run(failing)?;
    search.turns_of = search.runs.turns_of(failing);
    search.find(turns)
}

struct Search<'a> {
    runs: Planned<'a>,
    failing: &'a Plan,
    /// The turns of its decisions.
    turns_of: Vec<u32>,
    budget: Budget,
}

impl Search<'_> {
    fn find(&mut self, turns: u32) -> Result<Option<Doom>, Error> {
        // The prefix of the first length has a continuation that passes, and the other one has none.
        let (mut saved, mut doomed): (Option<u32>, _) = (None, turns);
        let mut probed = None;
        loop {
            while saved.map_or(0, |saved| saved + 1) < doomed {
                let middle = saved.map_or(0, |saved| saved + (doomed - saved) / 2);
                match self.count(middle, PROBES, true)? {
                    None => return Ok(None),
                    Some(count) if count.passed > 0 => saved = Some(middle),
                    Some(count) => (doomed, probed) = (middle, Some(count)),
                }
            }
            // If the time is over, the last probe has counted some.
            let Some(from) = self.count(doomed, COUNTED, false)?.or(probed.take()) else {
                return Ok(None);
            };
            if from.passed > 0 && doomed < turns {
                // The probes have missed those that pass.
                (saved, doomed) = (Some(doomed), turns);
                continue;
            }
            let before = match saved {
                Some(saved) => self.count(saved, COUNTED, false)?,
                None => Some(Count::default()),
            };
            return Ok(before.map(|before| Doom {
                turn: if saved.is_some() { doomed } else { 0 },
                from,
                before,
            }));
        }
    }

    /// Counts continuations of a prefix: all of them if there are at most so many, or as many that are drawn.
    /// A probe ends with the first that passes. Returns `None` if the time is over, and none was drawn.
    fn count(&mut self, prefix: u32, most: u64, is_probe: bool) -> Result<Option<Count>, Error> {
        let steps = self.failing.0.iter().zip(&self.turns_of);
        let ahead = steps.take_while(|(_, turn)| **turn <= prefix);
        let begin = Plan(ahead.map(|(step, _)| *step).collect());
        if is_probe {
            return self.draw(prefix, &begin, most, true);
        }
        let mut count = Count::default();
        let mut open = vec![begin.clone()];
        while let Some(plan) = open.pop() {
            if count.of + open.len() as u64 >= most {
                return self.draw(prefix, &begin, most, false);
            }
            if self.budget.is_spent() {
                return Ok(None);
            }
            let passes = self.runs.passes(&plan)?;
            count.add(passes, || plan.clone());
            let longer = self.runs.longer_behind(&plan, prefix);
            open.extend(longer.take(most as usize));
        }
        count.are_all = true;
        Ok(Some(count))
    }

    fn draw(
        &mut self,
        prefix: u32,
        begin: &Plan,
        most: u64,
        is_probe: bool,
    ) -> Result<Option<Count>, Error> {
        let mut count = Count::default();
        while count.of < most && !(is_probe && count.passed > 0) {
            if self.budget.is_spent() {
                return Ok(Some(count).filter(|count| !is_probe && count.of > 0));
            }
            let (passes, made) = self.runs.passes_beyond(begin, prefix, count.of)?;
            count.add(passes, || made);
        }
        Ok(Some(count))
    }
}

impl Count {
    fn add(&mut self, passes: bool, plan: impl FnOnce() -> Plan) {
        self.of += 1;
        self.passed += u64::from(passes);
        if passes && self.passing.is_none() {
            self.passing = Some(plan());
        }
    }
}
