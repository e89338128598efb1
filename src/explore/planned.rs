//! Runs of a body under plans.

use super::{
    guide::Guide,
    plan::{Delay, Plan},
    timed::{Timed, TrialWatch},
    trial::{self, Body, Test, Trial},
};
use crate::{Error, Kernel};

/// A body, and the kernel on which it runs under one plan after the other.
pub(super) struct Planned<'a> {
    body: Body<'a>,
    seed: u64,
    guide: Guide,
    kernel: Kernel,
    watch: TrialWatch,
    /// An exhaustive search cuts schedules of more turns.
    most: Option<u64>,
}

impl<'a> Planned<'a> {
    pub(super) fn new(test: Test<'a>, seed: u64, watch: &TrialWatch) -> Result<Self, Error> {
        let Test { body, settings } = test;
        let guide = Guide::default();
        let policy = Timed::new(guide.clone(), watch);
        let kernel = settings.builder(seed, watch).policy(policy).build()?;
        Ok(Self {
            body,
            seed,
            guide,
            kernel,
            watch: watch.clone(),
            most: settings.is_exhaustive().then(|| settings.steps()),
        })
    }

    pub(super) fn run(&mut self, plan: &Plan) -> Result<Trial, Error> {
        self.kernel.reset(self.seed)?;
        self.guide.follow(plan);
        self.watch.seed(self.seed);
        self.watch.decide(plan);
        Ok(trial::run(&mut self.kernel, self.body, &self.watch))
    }

    pub(super) fn fails(&mut self, plan: &Plan) -> Result<bool, Error> {
        Ok(self.run(plan)?.failure.is_some() && !self.is_cut())
    }

    /// Whether the last run was longer than the search allows, and so has no result.
    pub(super) fn is_cut(&self) -> bool {
        let turns = u64::from(self.guide.turns());
        self.most.is_some_and(|most| turns > most)
    }

    /// Returns every departure after a turn that the last run offers.
    pub(super) fn delays(&self, after: u32) -> impl Iterator<Item = Delay> + use<> {
        let widths = self.guide.widths().into_iter();
        let turns = widths.zip(1..).skip(after as usize);
        turns.flat_map(|(width, turn)| (1..width).map(move |by| Delay { turn, by }))
    }

    /// Returns the plans that have one departure more than this one, which ran last.
    pub(super) fn longer(&self, plan: &Plan) -> impl Iterator<Item = Plan> + use<> {
        let plan = plan.clone();
        let last = plan.0.last().map_or(0, |last| last.turn);
        self.delays(last).map(move |delay| {
            let mut longer = plan.clone();
            longer.0.push(delay);
            longer
        })
    }
}
