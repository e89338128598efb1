//! The loop of an exhaustive search, and its division: parts of the tree that no other part needs to
//! know.
//!
//! Every ready task is tried at the nodes above the parts, so no race of a part can add a choice
//! there. Sleep sets go down with the parts. So each causal order is run in one part alone.

use std::collections::VecDeque;

use super::{
    audit::{self, Runs},
    crew::{Crew, run_parts},
    foot::Foot,
    meter::Meter,
    node::{Cut, Decider, Part, next_picks},
    settings::Settings,
    space::{Move, Pick},
    tally::{Found, Tally},
    trial::Test,
    twice::{self, NONDETERMINISM},
};
use crate::Error;

/// The least number of parts, where the tree has so many; and the least of each shard.
const PARTS: u64 = 64;
const EACH: u64 = 8;

/// A tree of so few schedules is not divided: that would take more runs than the search. Their turns are
/// few as well: one thread runs them all. No clock decides, so the result depends on none. Of a larger tree
/// they run again, in its parts. What they have shown is kept in case that a limit ends the search early.
const FEW: u64 = 256;
const FEW_TURNS: u64 = 1 << 15;

/// Searches until every causal order has been run, or a schedule fails.
pub(super) fn search(crew: Crew<'_>, test: Test<'_>) -> Result<Tally, Error> {
    let settings = test.settings;
    twice::before(test, || {
        let meter = Meter::new(settings);
        let mut tally = match settings.shard.of {
            1 => undivided(crew, settings, &meter)?,
            _ => too_large(),
        };
        if tally.is_too_large {
            let first = tally;
            tally = divided(crew, test, &meter.again())?;
            if !tally.complete && tally.failure.is_none() {
                tally.keep(first);
            }
        }
        if tally.complete && tally.failure.is_none() {
            audit::draw(test, &mut tally)?;
        }
        Ok(tally)
    })
}

/// What a search without a division finds of a tree that is to be divided anyway.
fn too_large() -> Tally {
    Tally {
        is_too_large: true,
        ..Tally::default()
    }
}

/// Searches without a division. Ends as too large if the tree is to be divided: it has more schedules than a
/// few. So the result is the same on any number of threads.
fn undivided(crew: Crew<'_>, settings: &Settings, meter: &Meter<'_>) -> Result<Tally, Error> {
    let whole = Part {
        is_first: true,
        ..Part::default()
    };
    let is_few = settings.is_divided() && settings.schedules() > FEW;
    run_parts(crew, settings, meter, &[whole], |test, part, meter| {
        explore(test, part, meter, is_few)
    })
}

/// Divides the tree, and searches its parts.
fn divided(crew: Crew<'_>, test: Test<'_>, meter: &Meter<'_>) -> Result<Tally, Error> {
    let settings = test.settings;
    let mut parts = divide(test, meter)?;
    let first = usize::try_from(settings.shard.number).ok();
    if let Some(first) = first.and_then(|first| parts.get_mut(first)) {
        first.is_first = true;
    }
    run_parts(crew, settings, meter, &parts, |test, part, meter| {
        explore(test, part, meter, false)
    })
}

/// Divides the tree, from its root, breadth first.
fn divide(test: Test<'_>, meter: &Meter<'_>) -> Result<Vec<Part>, Error> {
    let settings = test.settings;
    let most = PARTS.max(EACH.saturating_mul(settings.shard.of));
    let mut runs = Runs::new(test, Part::default(), &settings.watch());
    // Returns the tasks that are ready after these turns, and what the last of them touches.
    let mut probe = |turns: &[Move]| {
        let (_, ran) = runs.run(settings.seed, Decider::Probe(turns.to_vec()))?;
        meter.tick();
        let ready = match ran.cut {
            Some(Cut::Probed(ready)) => ready,
            _ => Vec::new(),
        };
        Ok::<_, Error>((ready, runs.tree.last_turn()))
    };
    let mut ended = Vec::new();
    let mut open = VecDeque::from([(Part::default(), probe(&[])?.0)]);
    // A program with few choices has a long way to the first of them.
    let mut probes = 16 * most;
    let is_coarse = |parts: usize| (parts as u64) < most && !settings.deadline.is_over();
    while is_coarse(ended.len() + open.len())
        && probes > 0
        && let Some((part, ready)) = open.pop_front()
    {
        if ready.is_empty() {
            ended.push(part);
            continue;
        }
        let mut asleep = part.sleep;
        for task in ready {
            if asleep.iter().any(|(other, _)| *other == task) {
                continue;
            }
            let (mut picks, mut foot): (Vec<Pick>, Foot) = Default::default();
            loop {
                let next = Move { task, picks };
                let turns = [&part.turns[..], &[next]].concat();
                let (next, (last, decided)) = probe(&turns)?;
                probes = probes.saturating_sub(1);
                let sleep = asleep.iter();
                let sleep = sleep.filter(|(other, foot)| !last.wakes(*other, foot));
                let part = Part {
                    sleep: sleep.cloned().collect(),
                    turns,
                    is_first: false,
                };
                open.push_back((part, next));
                foot.join(&last);
                picks = decided;
                if !next_picks(&mut picks) {
                    break;
                }
            }
            asleep.push((task, foot));
        }
    }
    ended.extend(open.into_iter().map(|(part, _)| part));
    Ok(ended)
}

/// Searches a part. If it is to have few schedules, it may end as too large.
fn explore(test: Test<'_>, part: &Part, meter: &Meter<'_>, is_few: bool) -> Result<Tally, Error> {
    let settings = test.settings;
    let watch = settings.watch();
    let mut runs = Runs::new(test, part.clone(), &watch);
    let (mut tally, mut turns) = (Tally::default(), 0);
    while meter.claims(&mut tally) {
        if is_few && (tally.schedules >= FEW || turns > FEW_TURNS) {
            tally.is_too_large = true;
            break;
        }
        let (mut trial, ran) = runs.run(settings.seed, Decider::Tree)?;
        if meter.is_cut(&watch, &mut tally) {
            break;
        }
        turns += ran.turns as u64;
        tally.counts_on_threads |= trial.counts_on_threads;
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
                tally.note_first(settings, &trial, &ran.plan);
                tally.add(&mut trial);
                meter.count(is_new);
                let failure = trial.failure.map(|why| Found::new(schedule, why));
                tally.failure = failure.map(|found| found.with(ran.plan)).or(audited);
            }
            Some(Cut::Redundant | Cut::Probed(_)) => {
                meter.unclaim();
                meter.tick();
            }
            // It counts for the limit of schedules: there may be no end of such ones.
            Some(Cut::TooLong) => {
                tally.cut(settings);
                meter.tick();
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
            tally.end();
            break;
        }
    }
    tally.has_choice = runs.tree.has_choice();
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Kernel, Os, SearchStrategy, Shared,
        explore::crew::{Job, in_threads},
    };

    /// Two tasks that write a value three times each, with so many turns between.
    fn writers(between: usize) -> impl Fn(&mut Kernel) -> Result<(), Error> {
        move |kernel| {
            let shared = Shared::new(0);
            for value in 0..2 {
                let shared = shared.clone();
                kernel.spawn("writer", async move |os: &mut Os| {
                    for _ in 0..3 {
                        shared.set(value);
                        for _ in 0..=between {
                            os.yield_now().await;
                        }
                    }
                })?;
            }
            kernel.run()?.check()
        }
    }

    #[test]
    fn a_tree_is_divided_if_its_schedules_are_many_or_long() {
        let mut settings = Settings {
            threads: Some(1),
            ..Settings::default()
        };
        settings.set_strategy(SearchStrategy::Exhaustive);
        let undivided = |between: usize, schedules: Option<u64>| {
            let settings = Settings {
                schedules,
                ..settings.clone()
            };
            let body = writers(between);
            let crew = |job: Job<'_>| in_threads(&body, 1, job);
            let tally = undivided(&crew, &settings, &Meter::new(&settings)).expect("it runs");
            (!tally.is_too_large).then_some(tally.schedules)
        };
        // Of six turns in two tasks there are 20 orders.
        assert_eq!(undivided(0, None), Some(20));
        assert_eq!(undivided(700, None), None);
        // A search of few schedules is never divided.
        assert_eq!(undivided(700, Some(10)), Some(10));
    }
}
