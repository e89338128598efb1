//! Runs on a kernel whose turns are noted, and their audit.
//!
//! The audit runs a schedule a second time, in another order of its turns. Only independent turns
//! tell the two apart, so both must have the same causal order and the same outcome. If they do not,
//! the tasks share something that the search does not see.

use super::{
    exhaustive::{Cut, Decider, Part, Ran, Tree},
    settings::Settings,
    tally::Found,
    timed::{Timed, Watch},
    trial::{self, Body, THREADS, Trial},
};
use crate::{Error, Kernel, Tid};

/// Runs of a body on a kernel whose turns are noted.
pub(super) struct Runs<'a> {
    body: Body<'a>,
    settings: &'a Settings,
    pub(super) tree: Tree,
    kernel: Option<Kernel>,
    pub(super) watch: Watch,
}

impl<'a> Runs<'a> {
    pub(super) fn new(body: Body<'a>, settings: &'a Settings, tree: Tree, watch: &Watch) -> Self {
        tree.tell(watch);
        Self {
            body,
            settings,
            tree,
            kernel: None,
            watch: watch.clone(),
        }
    }

    /// Runs the schedule of a seed that is decided so.
    pub(super) fn run(&mut self, seed: u64, decider: Decider) -> Result<(Trial, Ran), Error> {
        // A schedule that was cut has cost the kernel its policy.
        let kept = self.kernel.take();
        let kept = kept.and_then(|mut kernel| kernel.reset(seed).is_ok().then_some(kernel));
        let mut kernel = match kept {
            Some(kernel) => kernel,
            None => {
                let builder = self.settings.builder(seed);
                let policy = Timed::new(self.tree.clone(), &self.watch);
                builder.policy(policy).build()?
            }
        };
        self.watch.seed(seed);
        self.tree.begin(kernel.footprints(), decider);
        let trial = trial::run(&mut kernel, self.body, &self.watch);
        let ran = self.tree.end();
        if ran.cut.is_none() && !self.watch.has_cut() {
            self.kernel = Some(kernel);
        }
        Ok((trial, ran))
    }

    /// Runs another order of the same turns, and returns a failure if it differs.
    pub(super) fn audit(
        &mut self,
        seed: u64,
        schedule: u64,
        trial: &Trial,
        ran: &Ran,
    ) -> Result<Option<Found>, Error> {
        match &ran.other {
            Some(turns) if trial.failure.is_none() => {
                self.compare(seed, schedule, trial, ran, turns.clone())
            }
            _ => Ok(None),
        }
    }

    /// Runs the orders that were drawn for the first schedule that has any, and returns the first failure. A
    /// program whose tasks share memory that the search does not see has few causal orders, perhaps
    /// one. Each is run in one other order, which may not tell the difference.
    pub(super) fn audit_again(
        &mut self,
        seed: u64,
        schedule: u64,
        trial: &Trial,
        ran: &Ran,
    ) -> Result<Option<Found>, Error> {
        for turns in &ran.drawn {
            let found = self.compare(seed, schedule, trial, ran, turns.clone())?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn compare(
        &mut self,
        seed: u64,
        schedule: u64,
        trial: &Trial,
        ran: &Ran,
        turns: Vec<Tid>,
    ) -> Result<Option<Found>, Error> {
        let one = trial.in_a_line();
        let (trial, again) = self.run(seed, Decider::Order(turns.into()))?;
        if self.watch.has_cut() {
            return Ok(None);
        }
        let other = match &again.cut {
            Some(Cut::Unrepeatable(why)) => why.clone(),
            _ if again.class != ran.class => "its turns touch other objects".to_string(),
            _ => trial.in_a_line(),
        };
        if other == one {
            return Ok(None);
        }
        let why = if trial.counts_on_threads {
            format!("{THREADS}\n  one run:      {one}\n  another run:  {other}")
        } else {
            format!(
                "the tasks share something that the search does not see: two orders of turns that \
                 touch nothing in common differ\n  one:   {one}\n  other: {other}\n\
                 Use trapline::Shared, or a call, for what the tasks share."
            )
        };
        let found = Found::new(schedule, why).with(again.plan);
        Ok(Some(found.beside(ran.plan.clone())))
    }
}

/// Schedules of a search by seeds, each of which is audited.
pub(super) struct Audited<'a>(Runs<'a>);

impl<'a> Audited<'a> {
    pub(super) fn new(body: Body<'a>, settings: &'a Settings, watch: &Watch) -> Self {
        let tree = Tree::new(settings, Part::default());
        Self(Runs::new(body, settings, tree, watch))
    }

    /// Runs a schedule. Returns the hash of its causal order if it ran to its end, and what the
    /// audit has found.
    pub(super) fn run(
        &mut self,
        seed: u64,
        schedule: u64,
    ) -> Result<(Trial, Option<u64>, Option<Found>), Error> {
        let Self(runs) = self;
        let decider = Decider::Policy(runs.settings.strategy.policy(seed));
        let (trial, ran) = runs.run(seed, decider)?;
        let found = runs.audit(seed, schedule, &trial, &ran)?;
        Ok((trial, Some(ran.class), found))
    }
}
