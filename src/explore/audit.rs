//! Runs on a kernel whose turns are noted, and their audit.
//!
//! The audit runs a schedule again, in other orders of its turns. Only independent turns tell these
//! apart, so all must have the same causal order and the same outcome. After a complete search it
//! also draws schedules, none of which may have an outcome that the search has not found. If one
//! differs, the tasks share something that the search does not see.

use super::{
    exhaustive::Tree,
    node::{Cut, Decider, Part, Ran},
    space::{Drawn, Move},
    tally::{Found, Tally},
    timed::Timed,
    trial::{HIDDEN, THREADS, Test, Trial, Trials},
    twice::NONDETERMINISM,
    watchdog::TrialWatch,
};
use crate::{Error, sched::Random};

/// The begin of the report on tasks that share what the search does not see.
pub(super) const UNSEEN: &str = "the tasks share something that the search does not see";

const CURE: &str = "Use trapline::Shared, or a call, for what the tasks share.";

/// Runs of a body on a kernel whose turns are noted.
pub(super) struct Runs<'a> {
    trials: Trials<'a>,
    pub(super) tree: Tree,
    schedule: Schedule,
}

#[derive(Clone, Copy, Default)]
struct Schedule {
    number: u64,
    seed: u64,
    class: u64,
}

impl<'a> Runs<'a> {
    pub(super) fn new(test: Test<'a>, part: Part, watch: &TrialWatch) -> Self {
        let trials = Trials::new(test, watch.clone());
        let tree = Tree::new(test.settings, part, watch);
        trials.space.decide_by(tree.clone());
        Self {
            trials,
            tree,
            schedule: Schedule::default(),
        }
    }

    /// Runs the schedule of a seed that is decided so.
    pub(super) fn run(&mut self, seed: u64, decider: Decider) -> Result<(Trial, Ran), Error> {
        let tree = &self.tree;
        let kernel = self.trials.prepare(seed, |builder, watch| {
            builder.policy(Timed::new(tree.clone(), watch))
        })?;
        tree.begin(kernel.footprints(), decider);
        let trial = self.trials.run();
        let ran = self.tree.end();
        if ran.cut.is_some() || self.trials.watch.has_cut() {
            self.trials.drop_kernel();
        }
        Ok((trial, ran))
    }

    /// Runs the other orders of the turns of a schedule, which was the last to be searched. Returns
    /// the first failure. Ends early with the time of the search: see [`TrialWatch::has_cut`].
    pub(super) fn audit(
        &mut self,
        seed: u64,
        number: u64,
        trial: &Trial,
        ran: &Ran,
    ) -> Result<Option<Found>, Error> {
        if trial.failure.is_some() {
            return Ok(None);
        }
        let class = ran.class;
        self.schedule = Schedule {
            number,
            seed,
            class,
        };
        for turns in ran.other.iter().chain(&ran.more) {
            let found = self.compare(trial, ran, turns)?;
            if found.is_some() || self.trials.watch.has_cut() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn compare(
        &mut self,
        trial: &Trial,
        ran: &Ran,
        turns: &[Move],
    ) -> Result<Option<Found>, Error> {
        let one = trial.in_a_line();
        let Some((other, again)) = self.run_in_order(turns)? else {
            return Ok(None);
        };
        if other == one {
            return Ok(None);
        }
        let why = if trial.counts_on_threads {
            format!("{THREADS}\n  one run:      {one}\n  another run:  {other}")
        } else {
            let searched = self.tree.order();
            for (turns, line) in [(&searched[..], &one), (turns, &other)] {
                let found = self.repeat(turns, line)?;
                if found.is_some() || self.trials.watch.has_cut() {
                    return Ok(found);
                }
            }
            format!(
                "{UNSEEN}: two orders of turns that touch nothing in common differ\n  \
                 one:   {one}\n  other: {other}\n{CURE}"
            )
        };
        let found = Found::new(self.schedule.number, why).with(again.plan);
        Ok(Some(found.beside(ran.plan.clone())))
    }

    /// Runs turns in this order, and returns what the schedule came to, in a line. It should have
    /// the same causal order. `None` if the time has ended.
    fn run_in_order(&mut self, turns: &[Move]) -> Result<Option<(String, Ran)>, Error> {
        let order = turns.iter().cloned().collect();
        let (trial, ran) = self.run(self.schedule.seed, Decider::Order(order))?;
        if self.trials.watch.has_cut() {
            return Ok(None);
        }
        let line = match &ran.cut {
            Some(Cut::Unrepeatable(why)) => why.clone(),
            _ if ran.class != self.schedule.class => "its turns touch other objects".to_string(),
            _ => trial.in_a_line(),
        };
        Ok(Some((line, ran)))
    }

    /// Runs turns again that came to this. Returns a failure if they now come to something else:
    /// what they share is not the reason then.
    fn repeat(&mut self, turns: &[Move], line: &str) -> Result<Option<Found>, Error> {
        let again = self.run_in_order(turns)?;
        let differs = again.filter(|(again, _)| again != line);
        Ok(differs.map(|(again, ran)| {
            let why = format!(
                "{NONDETERMINISM}: the same schedule ran twice, and its outcomes differ\n  \
                 first:  {line}\n  second: {again}\n{HIDDEN}"
            );
            Found::new(self.schedule.number, why).with(ran.plan)
        }))
    }

    /// Looks at a schedule that was drawn after a complete search. Returns a failure if it has an
    /// outcome that the search has not found.
    fn stray(
        &mut self,
        seed: u64,
        trial: &Trial,
        ran: &Ran,
        tally: &Tally,
    ) -> Result<Option<Found>, Error> {
        // Of a part of the search, the other outcomes are not known.
        let is_known =
            self.trials.test.settings.shard.of == 1 || tally.classes.contains(&ran.class);
        let mut outcomes = trial.outcomes().iter();
        let is_new = outcomes.any(|outcome| !tally.outcomes.contains(outcome));
        if trial.failure.is_none() && !(is_known && is_new) {
            return Ok(None);
        }
        self.schedule = Schedule {
            number: tally.schedules,
            seed,
            class: ran.class,
        };
        let (turns, line) = (self.tree.order(), trial.in_a_line());
        let found = self.repeat(&turns, &line)?;
        if found.is_some() || self.trials.watch.has_cut() {
            return Ok(found);
        }
        let (why, note) = match &trial.failure {
            Some(why) => {
                let note = format!("{UNSEEN}: no schedule of the complete search fails\n{CURE}");
                (why.clone(), Some(note))
            }
            None => {
                let why = format!(
                    "{UNSEEN}: a schedule that was drawn has an outcome that no schedule of the \
                     complete search has\n  drawn: {line}\n{CURE}"
                );
                (why, None)
            }
        };
        let found = Found::new(tally.schedules, why).with(ran.plan.clone());
        Ok(Some(Found { note, ..found }))
    }
}

/// Returns how many schedules are drawn after a complete search: one for 16 that it ran. After a small
/// one there are from 16 to 32; if they are long, at least 8, with 20,000 turns.
fn draws(tally: &Tally) -> u64 {
    let few = (20_000 / tally.turns.max(1)).max(8);
    let least = tally.schedules.clamp(16, 32).min(few);
    least.max(tally.schedules / 16)
}

pub(super) fn draw(test: Test<'_>, tally: &mut Tally) -> Result<(), Error> {
    if !tally.is_reordered {
        // Every schedule there is has run.
        return Ok(());
    }
    let settings = test.settings;
    let watch = settings.watch();
    let mut runs = Runs::new(test, Part::default(), &watch);
    let all = draws(tally);
    for number in 0..all {
        let drawn = number.wrapping_mul(settings.shard.of);
        let drawn = drawn.wrapping_add(settings.shard.number);
        let policy = Box::new(Random::new(drawn));
        let decider = Decider::Policy(policy, Drawn::with_choices(drawn));
        let (trial, ran) = runs.run(settings.seed, decider)?;
        if trial.counts_on_threads {
            (tally.bound, tally.complete) = (Some(THREADS.to_string()), false);
            return Ok(());
        }
        if !watch.has_cut()
            && let Some(found) = runs.stray(settings.seed, &trial, &ran, tally)?
        {
            (tally.failure, tally.complete) = (Some(found), false);
            return Ok(());
        }
        if watch.has_cut() || settings.deadline.is_over() {
            let end = settings.end();
            tally.unaudited = Some(format!(
                "{end}, after {number} of the {all} schedules that its audit draws"
            ));
            return Ok(());
        }
        if settings.shard.of == 1 && !tally.classes.contains(&ran.class) {
            let why = "a schedule that its audit has drawn has a causal order that it has not run";
            tally.unaudited.get_or_insert_with(|| why.to_string());
        }
    }
    Ok(())
}
