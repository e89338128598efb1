//! What a search finds.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::{plan::Plan, trial::Trial};

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) schedules: u64,
    pub(super) outcomes: BTreeSet<String>,
    /// The claims that held.
    pub(super) held: BTreeSet<&'static str>,
    /// The first schedule that failed.
    pub(super) failure: Option<Found>,
    /// The hashes of the causal orders, where they are known.
    pub(super) classes: FxHashSet<u64>,
    /// Whether no other schedule can have another outcome.
    pub(super) complete: bool,
    /// What keeps the search from being complete, in words.
    pub(super) bound: Option<String>,
}

/// A schedule that failed.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) schedule: u64,
    pub(super) why: String,
    /// Its decisions, where the seed does not determine them.
    pub(super) plan: Option<Plan>,
    /// A schedule that should have the same outcome, and has not.
    pub(super) beside: Option<Plan>,
}

impl Found {
    pub(super) fn new(schedule: u64, why: String) -> Self {
        Self {
            schedule,
            why,
            plan: None,
            beside: None,
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
}

impl Tally {
    /// Adds what a trial has noted, apart from its failure.
    pub(super) fn add(&mut self, trial: &mut Trial) {
        self.schedules += 1;
        if let Some(notes) = &mut trial.notes {
            self.outcomes.extend(notes.outcomes.drain(..));
            self.held.append(&mut notes.held);
        }
    }

    /// Appends what the next part of the search has found.
    pub(super) fn append(&mut self, mut next: Self) {
        if let Some(found) = &mut next.failure {
            found.schedule += self.schedules;
        }
        self.merge(next);
    }

    /// Adds what another thread has found.
    pub(super) fn merge(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.outcomes.extend(other.outcomes);
        self.held.extend(other.held);
        let failures = self.failure.take().into_iter().chain(other.failure);
        self.failure = failures.min_by_key(|found| found.schedule);
        self.classes.extend(other.classes);
        self.complete &= other.complete;
        self.bound = self.bound.take().or(other.bound);
    }
}
