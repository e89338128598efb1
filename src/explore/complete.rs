//! The loop of an exhaustive search, and its audit.
//!
//! The audit runs each causal order a second time, in another order of its turns. Only independent
//! turns tell the two apart, so both must have the same causal order and the same outcome. If they
//! do not, the tasks share something that the search does not see.

use rustc_hash::FxHashSet;

use super::{
    deadline::Deadline,
    exhaustive::{Cut, Ran, Tree},
    search::{Found, Tally},
    settings::Settings,
    trial::{self, Body, Trial},
    twice,
};
use crate::{Error, Kernel, Tid};

/// Searches until every causal order has been run, or a schedule fails.
pub(super) fn search(body: Body<'_>, settings: &Settings) -> Result<Tally, Error> {
    let most = usize::try_from(settings.steps()).unwrap_or(usize::MAX);
    let mut search = Search {
        body,
        settings,
        tree: Tree::new(most),
        kernel: None,
        tally: Tally::default(),
        classes: FxHashSet::default(),
    };
    let deadline = Deadline::after(settings.time);
    let mut is_bounded = false;
    if let Some(why) = twice::differ(body, settings, settings.seed) {
        search.tally.failure = Some(Found::new(0, why));
        return Ok(search.tally);
    }
    while search.tally.schedules < settings.schedules() && !deadline.is_over() {
        let (trial, ran) = search.run(None)?;
        match &ran.cut {
            None => search.take(trial, &ran)?,
            Some(Cut::Redundant) => {}
            Some(Cut::TooLong) => is_bounded = true,
            Some(Cut::Unrepeatable(why)) => {
                let why = format!("hidden nondeterminism: {why}");
                let found = Found::new(search.tally.schedules, why).with(ran.plan);
                search.tally.failure = Some(found);
            }
        }
        if search.tally.failure.is_some() {
            break;
        }
        if !search.tree.advance() {
            search.tally.complete = !is_bounded;
            break;
        }
    }
    search.tally.classes = search.classes.len() as u64;
    Ok(search.tally)
}

struct Search<'a> {
    body: Body<'a>,
    settings: &'a Settings,
    tree: Tree,
    kernel: Option<Kernel>,
    tally: Tally,
    classes: FxHashSet<u64>,
}

impl Search<'_> {
    /// Runs the next schedule, or the one with these turns.
    fn run(&mut self, turns: Option<Vec<Tid>>) -> Result<(Trial, Ran), Error> {
        let seed = self.settings.seed;
        // A schedule that was cut has cost the kernel its policy.
        let kept = self.kernel.take();
        let kept = kept.and_then(|mut kernel| kernel.reset(seed).is_ok().then_some(kernel));
        let mut kernel = match kept {
            Some(kernel) => kernel,
            None => self
                .settings
                .builder(seed)
                .policy(self.tree.clone())
                .build()?,
        };
        let footprints = kernel.footprints();
        match turns {
            None => self.tree.begin(footprints),
            Some(turns) => self.tree.begin_forced(footprints, turns),
        }
        let trial = trial::run(&mut kernel, self.body);
        let ran = self.tree.end();
        if ran.cut.is_none() {
            self.kernel = Some(kernel);
        }
        Ok((trial, ran))
    }

    /// Counts a schedule that was run to its end.
    fn take(&mut self, trial: Trial, ran: &Ran) -> Result<(), Error> {
        let schedule = self.tally.schedules;
        self.tally.schedules += 1;
        self.classes.insert(ran.class);
        let outcome = outcome(&trial);
        self.tally.outcomes.extend(trial.notes.outcomes);
        self.tally.held.extend(trial.notes.held);
        if let Some(why) = trial.failure {
            self.tally.failure = Some(Found::new(schedule, why).with(ran.plan.clone()));
            return Ok(());
        }
        let Some(turns) = ran.other.clone() else {
            return Ok(());
        };
        let (trial, again) = self.run(Some(turns))?;
        let differs = match &again.cut {
            Some(Cut::Unrepeatable(why)) => Some(why.clone()),
            _ if again.class != ran.class => Some("its turns touch other objects".to_string()),
            _ => Some(self::outcome(&trial)).filter(|other| *other != outcome),
        };
        if let Some(differs) = differs {
            let why = format!(
                "the tasks share something that the search does not see: two orders of turns that \
                 touch nothing in common differ\n  one:   {outcome}\n  other: {differs}\n\
                 Use trapline::Shared, or a call, for what the tasks share."
            );
            let found = Found::new(schedule, why)
                .with(again.plan)
                .beside(ran.plan.clone());
            self.tally.failure = Some(found);
        }
        Ok(())
    }
}

/// What a trial came to, in a line.
fn outcome(trial: &Trial) -> String {
    let outcomes = trial.notes.outcomes.join(", ");
    match &trial.failure {
        None if outcomes.is_empty() => "passes".to_string(),
        None => format!("passes: {outcomes}"),
        Some(why) => format!("fails: {}", why.lines().next().unwrap_or_default()),
    }
}
