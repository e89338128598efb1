//! What a search finds.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use super::{
    cut::Cut,
    felt::Faults,
    outcome::COMES,
    plan::{Decisions, Plan, Replay},
    settings::Settings,
    trial::{THREADS, Trial},
    worth::Cuts,
};

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) schedules: u64,
    pub(super) outcomes: BTreeSet<String>,
    /// The first schedule of each outcome, where every end of a run is one.
    pub(super) firsts: Firsts,
    pub(super) held: BTreeSet<&'static str>,
    pub(super) failure: Option<Found>,
    pub(super) classes: FxHashSet<u64>,
    /// Those of them that several schedules have.
    pub(super) repeated: FxHashSet<u64>,
    pub(super) complete: bool,
    /// What keeps the search from being complete, in words.
    pub(super) bound: Option<String>,
    /// Whether a schedule was too long, and was cut.
    pub(super) has_cut: bool,
    /// Whether it has ended because its tree is to be divided.
    pub(super) is_too_large: bool,
    /// What the audit of a complete search has left out, in words.
    pub(super) unaudited: Option<String>,
    pub(super) counts_on_threads: bool,
    /// Whether several tasks were ready at one time, so that there are several orders of turns.
    pub(super) has_choice: bool,
    /// Whether a schedule has another order of turns with the same causal order.
    pub(super) is_reordered: bool,
    /// What the cuts have found, if there are any.
    pub(super) cuts: Option<Cuts>,
    /// The turns of the longest schedule, where causal orders are known.
    pub(super) turns: u64,
    /// The counts of the faults, if there are any.
    pub(super) faults: Faults,
}

/// The first schedule that came to each outcome.
pub(super) type Firsts = BTreeMap<String, Found>;

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) schedule: u64,
    /// What the report calls it, if it is no schedule of the search itself.
    pub(super) name: Option<String>,
    pub(super) why: String,
    /// Its decisions, where the seed does not determine them.
    pub(super) plan: Option<Plan>,
    /// A schedule that should have the same outcome, and has not.
    pub(super) beside: Option<Plan>,
    /// What the report says after the reason.
    pub(super) note: Option<String>,
    /// Where a task of it is cut.
    pub(super) cut: Option<Cut>,
}

impl Found {
    pub(super) fn new(schedule: u64, why: String) -> Self {
        Self {
            schedule,
            why,
            ..Self::default()
        }
    }

    pub(super) fn with(self, plan: Plan) -> Self {
        let plan = Some(plan);
        Self { plan, ..self }
    }

    pub(super) fn beside(self, plan: Plan) -> Self {
        let beside = Some(plan);
        Self { beside, ..self }
    }

    pub(super) fn decided(&self, settings: &Settings) -> (u64, Decisions) {
        let number = if settings.is_exhaustive() {
            0
        } else {
            self.schedule
        };
        let strategy = Decisions::Strategy(settings.strategy);
        let decisions = self.plan.clone().map_or(strategy, Decisions::Plan);
        (settings.seed_of(number), decisions)
    }

    /// Tells the watchdog of it. The report takes more runs, which perhaps do not end.
    pub(super) fn tell(&self, settings: &Settings) {
        let (seed, decisions) = self.decided(settings);
        let replay = Replay {
            seed,
            decisions,
            cut: self.cut,
            hash: 0,
        };
        settings.tell(&self.why, &replay.to_string());
    }
}

impl Tally {
    /// Whether the search has proved that no order of turns has another outcome. If there is one
    /// causal order of several orders of turns, no audit can tell that tasks share nothing unseen.
    pub(super) fn is_proved(&self) -> bool {
        let is_one = self.has_choice && self.classes.len() == 1;
        self.complete && self.unaudited.is_none() && !is_one
    }

    /// Counts the causal order of a schedule.
    pub(super) fn add_class(&mut self, class: u64) {
        if !self.classes.insert(class) {
            self.repeated.insert(class);
        }
    }

    /// Estimates how likely the next schedule has a causal order that none has had, if schedules are
    /// drawn and their orders counted. (Good, "The population frequencies of species and the estimation of
    /// population parameters", 1953.)
    pub(super) fn unseen(&self) -> Option<f64> {
        let once = self.classes.len() - self.repeated.len();
        (!self.classes.is_empty()).then(|| once as f64 / self.schedules.max(1) as f64)
    }

    /// Notes the decisions of a schedule that is the first with its outcome, if the settings ask for all.
    pub(super) fn note_first(&mut self, settings: &Settings, trial: &Trial, plan: &Plan) {
        if settings.judge.is_none() {
            return;
        }
        for outcome in trial.outcomes() {
            if !self.firsts.contains_key(outcome) {
                let found = Found::new(self.schedules, COMES.to_string());
                self.firsts
                    .insert(outcome.clone(), found.with(plan.clone()));
            }
        }
    }

    /// Adds what a trial has noted, apart from its failure.
    pub(super) fn add(&mut self, trial: &mut Trial) {
        self.schedules += 1;
        if let Some(notes) = &mut trial.notes {
            self.outcomes.extend(notes.outcomes.drain(..));
            self.held.append(&mut notes.held);
        }
        if let Some(faults) = trial.faults.take() {
            self.faults.merge(*faults);
        }
    }

    /// Notes that a schedule was too long, and was cut.
    pub(super) fn cut(&mut self, settings: &Settings) {
        self.bound = Some(settings.cut());
        self.has_cut = true;
    }

    /// Notes what has ended the search, behind what else keeps it from being complete.
    pub(super) fn end_by(&mut self, limit: String) {
        self.bound = Some(match self.bound.take() {
            Some(bound) => format!("{bound}; {limit}"),
            None => limit,
        });
    }

    /// Ends a search that has run all its schedules.
    pub(super) fn end(&mut self) {
        if self.counts_on_threads {
            self.bound.get_or_insert_with(|| THREADS.to_string());
        }
        self.complete = self.bound.is_none();
    }

    /// Keeps what the same search has found before it began anew, and a limit ended it. A schedule counts
    /// once: the number is that of the run which has more. What is kept completes and proves nothing.
    pub(super) fn keep(&mut self, mut first: Self) {
        if first.schedules > self.schedules {
            self.schedules = first.schedules;
            self.classes = first.classes;
            self.repeated = first.repeated;
        }
        self.outcomes.append(&mut first.outcomes);
        for (outcome, found) in first.firsts {
            self.firsts.entry(outcome).or_insert(found);
        }
        self.held.append(&mut first.held);
        if let Some(bound) = first.bound.filter(|_| first.has_cut && !self.has_cut) {
            let limit = self.bound.replace(bound);
            limit.into_iter().for_each(|limit| self.end_by(limit));
        }
        self.has_cut |= first.has_cut;
        self.has_choice |= first.has_choice;
        self.is_reordered |= first.is_reordered;
        self.turns = self.turns.max(first.turns);
        self.faults.keep(first.faults);
    }

    /// Adds what another thread has found.
    pub(super) fn merge(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.outcomes.extend(other.outcomes);
        for (outcome, first) in other.firsts {
            self.firsts.entry(outcome).or_insert(first);
        }
        self.held.extend(other.held);
        let failures = self.failure.take().into_iter().chain(other.failure);
        self.failure = failures.min_by_key(|found| found.schedule);
        other
            .classes
            .into_iter()
            .for_each(|class| self.add_class(class));
        self.repeated.extend(other.repeated);
        self.complete &= other.complete;
        self.bound = self.bound.take().or(other.bound);
        self.unaudited = self.unaudited.take().or(other.unaudited);
        self.has_cut |= other.has_cut;
        self.is_too_large |= other.is_too_large;
        self.has_choice |= other.has_choice;
        self.is_reordered |= other.is_reordered;
        self.turns = self.turns.max(other.turns);
        self.faults.merge(other.faults);
    }
}
