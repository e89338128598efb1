//! Reads-from feedback: each schedule of a search learns from those before it.
//!
//! A turn *reads from* the last turn of another task that changed what it touches. A schedule that has a pair
//! of turns which no schedule had is kept, with the rules that it followed. Later schedules follow the rules
//! of one that was kept, with one of them added, removed or turned round, and draw the rest. A rule says of a
//! pair of turns that the second reads from the first, or comes before it. Each fourth schedule has no rule.
//! (RFF: Wolff, Shi, Duck, Mathur and Roychoudhury, "Greybox fuzzing for concurrency testing", ASPLOS 2024.
//! There the pairs are of instructions, and the corpus has weights. Here they are of turns, by the number of a
//! turn among those of its task.)

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{
    audit::Runs,
    causal::Turn,
    crew::Claims,
    foot::Name,
    meter::Meter,
    node::{Decider, Part, Ran},
    space::Drawn,
    tally::{Found, Tally},
    trial::{HIDDEN, Test, Trial},
    twice::NONDETERMINISM,
};
use crate::{Cause, Error, Policy, Runnable, Tid, sched::Draws};

/// The most sets of rules that are kept. The oldest goes.
const KEPT: usize = 128;

/// The most rules of a schedule.
const RULES: usize = 8;

/// One in so many schedules runs twice, beginning with the first.
const REPEATED: u64 = 100;

/// What a schedule does about two turns, if it can.
#[derive(Clone, Copy, Debug)]
struct Rule {
    first: At,
    second: At,
    /// Whether the second turn follows at once. It waits for the first otherwise, too.
    at_once: bool,
}

/// What the schedules so far have shown.
#[derive(Default)]
struct Feedback {
    /// Rules of schedules that had a new pair.
    kept: Vec<Vec<Rule>>,
    /// The pairs, in the order in which they were found, and how many schedules had each.
    pairs: Vec<((At, At), u64)>,
    places: BTreeMap<(At, At), usize>,
}

impl Feedback {
    /// Returns the rules of the next schedule.
    fn rules(&self, schedule: u64, draws: &mut Draws) -> Vec<Rule> {
        if schedule.is_multiple_of(4) || self.pairs.is_empty() {
            return Vec::new();
        }
        // The latest are new behaviour, and chosen more often.
        let len = self.kept.len() as u64;
        let kept = (draws.below(len + 1).max(draws.below(len + 1))) as usize;
        let mut rules = self.kept.get(kept).cloned().unwrap_or_default();
        let at = (!rules.is_empty()).then(|| draws.below(rules.len() as u64) as usize);
        match (draws.below(4), at) {
            (0, Some(at)) => drop(rules.remove(at)),
            (1, Some(at)) => {
                let Rule { first, second, .. } = rules[at];
                (rules[at].first, rules[at].second) = (second, first);
            }
            _ => rules.push(self.rule(draws)),
        }
        if rules.len() > RULES {
            rules.remove(0);
        }
        rules
    }

    /// Draws a rule about a pair: of two that are drawn, the one that fewer schedules had.
    fn rule(&self, draws: &mut Draws) -> Rule {
        let mut draw = || self.pairs[draws.below(self.pairs.len() as u64) as usize];
        let (one, other) = (draw(), draw());
        let ((first, second), _) = if other.1 < one.1 { other } else { one };
        match draws.below(2) {
            0 => Rule {
                first,
                second,
                at_once: true,
            },
            // It reads from an earlier turn.
            _ => Rule {
                first: second,
                second: first,
                at_once: false,
            },
        }
    }

    /// Learns from a schedule that followed these rules. With a new pair as one more rule they lead to it again.
    fn learn(&mut self, rules: &[Rule], pairs: Vec<(At, At)>) {
        for (first, second) in pairs {
            let pair = (first, second);
            if let Some(place) = self.places.get(&pair) {
                self.pairs[*place].1 += 1;
                continue;
            }
            self.places.insert(pair, self.pairs.len());
            self.pairs.push((pair, 1));
            let leads = Rule {
                first,
                second,
                at_once: false,
            };
            self.kept
                .push(rules.iter().copied().chain([leads]).collect());
            if self.kept.len() > KEPT {
                self.kept.remove(0);
            }
        }
    }
}

/// Follows rules where it can, and draws otherwise.
struct Follows {
    ready: Vec<Runnable>,
    rules: Vec<Rule>,
    /// The turns that each task has had.
    had: FxHashMap<Tid, u32>,
    last: Option<At>,
    draws: Draws,
}

impl Follows {
    fn new(rules: Vec<Rule>, seed: u64) -> Self {
        Self {
            ready: Vec::new(),
            rules,
            had: FxHashMap::default(),
            last: None,
            draws: Draws::new(seed),
        }
    }

    fn turns(&self, task: Tid) -> u32 {
        self.had.get(&task).copied().unwrap_or(0)
    }

    fn next(&self, task: &Runnable) -> At {
        (task.tid, self.turns(task.tid) + 1)
    }

    /// Whether the next turn of a task waits for another one.
    fn is_held(&self, task: &Runnable) -> bool {
        let next = self.next(task);
        let waits = |rule: &Rule| rule.second == next && self.turns(rule.first.0) < rule.first.1;
        self.rules.iter().any(waits)
    }

    /// Whether the next turn of a task is to follow the last one.
    fn follows(&self, task: &Runnable) -> bool {
        let next = self.next(task);
        let is_due =
            |rule: &Rule| rule.at_once && rule.second == next && Some(rule.first) == self.last;
        self.rules.iter().any(is_due)
    }

    /// Returns the place of the task that has the next turn, among those that are ready.
    fn choose(&mut self) -> usize {
        if let Some(due) = self.ready.iter().position(|task| self.follows(task)) {
            return due;
        }
        let free = (0..self.ready.len()).filter(|at| !self.is_held(&self.ready[*at]));
        let free: Vec<usize> = free.collect();
        match free.len() {
            // The rules contradict one another, or a turn that never comes.
            0 => self.draws.below(self.ready.len() as u64) as usize,
            count => free[self.draws.below(count as u64) as usize],
        }
    }
}

impl Policy for Follows {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.push(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        if self.ready.is_empty() {
            return None;
        }
        let at = self.choose();
        let task = self.ready.swap_remove(at);
        let next = self.next(&task);
        self.had.insert(task.tid, next.1);
        self.last = Some(next);
        Some(task)
    }

    fn remove(&mut self, task: Runnable) {
        self.ready.retain(|other| *other != task);
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.ready.len()
    }
}

/// Searches on one thread: each schedule needs those before it.
pub(super) fn search(test: Test<'_>) -> Result<Tally, Error> {
    let settings = test.settings;
    let (claims, meter) = (
        Claims::new(settings, settings.schedules()),
        Meter::new(settings),
    );
    let (mut tally, mut feedback) = (Tally::default(), Feedback::default());
    let watch = settings.watch();
    let mut runs = Runs::new(test, Part::default(), &watch);
    while !settings.deadline.is_over()
        && let Some(schedule) = claims.take()
    {
        let seed = settings.seed_of(schedule);
        let rules = feedback.rules(schedule, &mut Draws::new(seed ^ OF_RULES));
        let (mut trial, ran) = follow(&mut runs, &rules, seed)?;
        tally.bound = settings.end_within(&watch);
        if tally.bound.is_some() {
            break;
        }
        feedback.learn(&rules, runs.tree.with_turns(reads_from));
        let mut found = None;
        if settings.audits {
            tally.add_class(ran.class);
            found = runs.audit(seed, schedule, &trial, &ran)?;
        }
        if schedule.is_multiple_of(REPEATED) && trial.failure.is_none() && found.is_none() {
            let (second, _) = follow(&mut runs, &rules, seed)?;
            found = differs(schedule, &trial, &second, &ran).filter(|_| !watch.has_cut());
        }
        tally.add(&mut trial);
        meter.count(false);
        let failed = |why| Found::new(schedule, why).with(ran.plan.clone());
        tally.failure = trial.failure.map(failed).or(found);
        if let Some(found) = &tally.failure {
            found.tell(settings);
            break;
        }
    }
    if tally.failure.is_none() && settings.deadline.is_stopped() {
        tally.bound.get_or_insert_with(|| settings.end());
    }
    Ok(tally)
}

/// The draws of rules are a sequence of their own.
const OF_RULES: u64 = 0x7275_6c65;

fn follow(runs: &mut Runs<'_>, rules: &[Rule], seed: u64) -> Result<(Trial, Ran), Error> {
    let policy = Box::new(Follows::new(rules.to_vec(), seed));
    runs.run(seed, Decider::Policy(policy, Drawn::new(seed)))
}

/// Compares two runs of a schedule.
fn differs(schedule: u64, first: &Trial, second: &Trial, ran: &Ran) -> Option<Found> {
    let (first, second) = (first.in_a_line(), second.in_a_line());
    let why = format!(
        "{NONDETERMINISM}: the same schedule ran twice, and its outcomes differ\n  first:  {first}\n  \
         second: {second}\n{HIDDEN}"
    );
    (first != second).then(|| Found::new(schedule, why).with(ran.plan.clone()))
}

/// A turn of a task, by its number among those of the task, from 1.
type At = (Tid, u32);

/// Returns the pairs of turns of which the second reads from the first: the last turn that changed what it
/// touches, of another task.
fn reads_from(turns: &[Turn]) -> Vec<(At, At)> {
    let mut changed: FxHashMap<Name, At> = FxHashMap::default();
    let mut pairs = Vec::new();
    for turn in turns.iter().filter(|turn| turn.task > Tid::KERNEL) {
        let at = (turn.task, turn.number);
        for (name, writes) in &turn.foot.names {
            let last = changed.get(name).filter(|last| last.0 != turn.task);
            pairs.extend(last.map(|last| (*last, at)));
            if *writes {
                changed.insert(*name, at);
            }
        }
    }
    pairs
}
