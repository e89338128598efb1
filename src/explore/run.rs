//! The run of a search: from its settings to what it has found.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    thread,
};

use super::{
    bounded,
    check::Check,
    complete,
    crew::Job,
    cuts,
    deadline::Deadline,
    explored::{Explored, Failure},
    feedback,
    felt::FaultCounts,
    mutate,
    reruns::Reruns,
    search,
    settings::Settings,
    sometimes::claims_in,
    strategy::SearchStrategy,
    tally::{Firsts, Found, Tally},
    trial::{Body, Test},
    watchdog::Watchdog,
};
use crate::{Error, Kernel};

/// The search itself.
impl<F> Check<F>
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    /// Searches. If something keeps an exhaustive search from being complete, or a complete one from
    /// being [proved](Explored::proved), a line on standard error says what. So it does if no task felt a fault of
    /// chaos ([`Explored::unfelt`]).
    ///
    /// *Panics* with the report if a schedule fails, or if a claim of [`sometimes!`](crate::sometimes)
    /// held in none, or a fault of [`Check::faults`] never could happen. Also if no schedule ran to its end: the limit is [0](Self::schedules), or the
    /// [time](Self::time) was too short. A [shard](Self::shard) without a schedule of its own passes.
    #[track_caller]
    pub fn run(mut self) {
        let (explored, _) = self.found();
        if explored.failure.is_some() || explored.is_idle() {
            panic!("{explored}");
        }
        if explored.schedules == 0 {
            let settings = &self.settings;
            if settings.deadline.is_stopped() {
                panic!("no schedule ran to its end: the search was interrupted");
            }
            if settings.deadline.is_over() {
                let time = settings.time.unwrap_or_default();
                let within = explored.bound.filter(|bound| *bound != settings.end());
                let within = within.map_or(String::new(), |within| format!("\n{within}"));
                panic!(
                    "no schedule ran to its end within {time:?}: give the search more time{within}"
                );
            }
            if explored.part.is_none() {
                let why = explored.bound.as_deref();
                let why = why.unwrap_or("the search proves nothing with 0 schedules");
                panic!("no schedule ran to its end: {why}: raise the limit");
            }
        }
        let thread = thread::current();
        let test = thread.name().unwrap_or("a test");
        // Past the test harness, which shows no output of a test that passes.
        let say = |text: String| _ = writeln!(io::stderr(), "{text}");
        if let Some(turns) = &explored.turns {
            say(turns.clone());
        }
        if let Some(unfelt) = &explored.unfelt {
            say(format!("{test}: {unfelt}"));
        }
        let is_cut = self.settings.preemptions.is_none() || self.settings.deadline.is_over();
        let is_bound = is_cut && explored.bound.is_some();
        let is_unproved = explored.complete && !explored.proved;
        if self.settings.is_exhaustive() && (is_bound || is_unproved) {
            say(format!("{test}: {explored}"));
        }
    }

    /// Searches, and returns what was found. It may be nothing, where [`Check::run`] panics.
    ///
    /// *Panics* if a variable of the environment has a wrong value.
    #[track_caller]
    pub fn explore(mut self) -> Explored {
        self.found().0
    }

    /// The same, with the first schedule of each outcome, if the settings ask for all outcomes.
    pub(super) fn explore_all(mut self) -> (Explored, Firsts) {
        self.found()
    }

    /// Describes a schedule of an earlier search: minimised, and with its turns. `None` if no kernel can run.
    pub(super) fn explain(mut self, found: Found) -> Option<Failure> {
        let _watchdog = self.begin();
        let (body, settings): (Body<'_>, _) = (&self.body, &self.settings);
        Reruns(Test { body, settings }).explain(found).ok()
    }

    #[track_caller]
    fn found(&mut self) -> (Explored, Firsts) {
        let _watchdog = self.begin();
        match self.search() {
            Ok(found) => found,
            Err(error) => panic!("the search cannot begin: {error}"),
        }
    }

    /// Reads the environment, and begins the time of the search.
    #[track_caller]
    fn begin(&mut self) -> Watchdog {
        if let Err(error) = self.settings.read_environment() {
            panic!("{error}");
        }
        if self.settings.audits && self.settings.preemptions.is_some() {
            let why = "`audit` does not go with `preemptions`: leave one of them out";
            panic!("the search cannot begin: {why}");
        }
        let space = &self.settings.space;
        if space.most > 0 && space.faults.is_empty() {
            panic!(
                "the search cannot begin: `faults` lets up to {} happen, and the list is empty: name those that \
                 may happen, or leave it out",
                space.most
            );
        }
        if self.settings.estimates && !self.settings.draws() {
            let why = match self.settings.strategy {
                SearchStrategy::Rff => {
                    "`estimate` does not go with `rff`, which learns from each schedule: its schedules are \
                     not drawn independently"
                }
                SearchStrategy::Fifo => "`estimate` does not go with `fifo`, which draws no turns",
                _ => "`estimate` is for a search that draws its schedules",
            };
            panic!("the search cannot begin: {why}: leave it out");
        }
        if self.settings.kernels.is_some()
            && let Some(what) = self.settings.for_one_kernel()
        {
            panic!("the search cannot begin: {what} is for a search of one kernel: leave it out");
        }
        if self.settings.mutation.is_some() && self.settings.shard.of > 1 {
            panic!(
                "the search cannot begin: `mutate` does not go with a shard: leave one of them out"
            );
        }
        self.settings.deadline = Deadline::after(self.settings.time, self.settings.stop);
        self.settings.is_chaotic = self.settings.make_net().has_chaos();
        self.settings.watchdog()
    }

    /// Says that a search under chaos has tested nothing of it, if so.
    fn unfelt(&self, tally: &Tally, faults: &BTreeMap<String, FaultCounts>) -> Option<String> {
        let is_unfelt = faults.values().all(|counts| counts.felt == 0);
        let has_run = tally.schedules > 0 && tally.failure.is_none();
        (self.settings.is_chaotic && has_run && is_unfelt).then(|| {
            let schedules = match tally.schedules {
                1 => "1 schedule".to_string(),
                n => format!("{n} schedules"),
            };
            let applied: u64 = faults.values().map(|counts| counts.applied).sum();
            if applied == 0 && tally.faults.hosts.len() < 2 {
                return format!(
                    "no task felt a fault of chaos: none happened in {schedules}, since chaos breaks what \
                     is between hosts, and the test has one"
                );
            }
            format!(
                "no task felt a fault of chaos: in {schedules} {applied} faults happened, after which \
                 no call failed or was cut by a timeout, and no task was killed"
            )
        })
    }

    fn search(&self) -> Result<(Explored, Firsts), Error> {
        let (body, settings): (Body<'_>, _) = (&self.body, &self.settings);
        if let Some(replay) = &settings.replay {
            let settings = &settings.with_cut(replay.cut);
            let explored = Reruns(Test { body, settings }).replay(replay)?;
            return Ok((explored, Firsts::new()));
        }
        let (settings, tally) = self.tally(settings)?;
        let settings = &settings;
        let mutants = match (&settings.mutation, &tally.failure) {
            (Some(mutation), None) => {
                let search = |settings: &Settings| Ok(self.tally(settings)?.1);
                Some(mutate::search(
                    &self.settings,
                    &mutation.sites(),
                    &tally,
                    search,
                )?)
            }
            _ => None,
        };
        let (proved, unseen) = (tally.is_proved(), tally.unseen());
        let cut = tally.failure.as_ref().and_then(|found| found.cut);
        let faults = match settings.has_faults() {
            true => tally.faults.by_text(),
            false => BTreeMap::default(),
        };
        let unfelt = self.unfelt(&tally, &faults);
        let settings = &settings.with_cut(cut);
        let test = Test { body, settings };
        let failure = tally.failure.map(|found| Reruns(test).explain(found));
        let has_faults = settings.space.most > 0 && tally.schedules > 0;
        let idle = match has_faults && failure.is_none() {
            true => tally.faults.idle(&settings.space.faults),
            false => BTreeMap::default(),
        };
        let body = settings.kernels.unwrap_or(std::any::type_name::<F>());
        let claims = claims_in(body);
        let never = claims.filter(|claim| !tally.held.contains(claim));
        let explored = Explored {
            schedules: tally.schedules,
            classes: tally.classes.len() as u64,
            unseen: unseen.filter(|_| settings.draws()),
            complete: tally.complete,
            proved,
            premise: settings.premise(),
            unaudited: tally.unaudited,
            bound: tally.bound,
            cut_at: tally.has_cut.then(|| settings.steps()),
            part: (settings.shard.of > 1).then(|| settings.shard.to_string()),
            never: never.map(str::to_string).collect(),
            outcomes: tally.outcomes,
            faults,
            idle,
            unfelt,
            changed: None,
            turns: None,
            cuts: tally.cuts,
            mutants,
            failure: failure.transpose()?,
        };
        Ok((explored, tally.firsts))
    }

    /// Searches. Returns what it has found, and its settings with the length of a schedule, if the strategy
    /// had to count it.
    fn tally(&self, settings: &Settings) -> Result<(Settings, Tally), Error> {
        let body: Body<'_> = &self.body;
        let (settings, ended) = search::measured(Test { body, settings })?;
        let test = Test {
            body,
            settings: &settings,
        };
        let crew = |job: Job<'_>| match (settings.threads, self.in_threads) {
            (Some(threads), Some(run)) => run(&self.body, threads, job),
            _ => job(body),
        };
        let mut tally = match (ended, settings.preemptions) {
            (Some(tally), _) => tally,
            _ if settings.strategy == SearchStrategy::Rff => feedback::search(test)?,
            _ if !settings.is_exhaustive() => search::by_seeds(&crew, &settings)?,
            (None, Some(most)) => bounded::search(&crew, test, most)?,
            (None, None) => complete::search(&crew, test)?,
        };
        if tally.failure.is_none() && !settings.cuts.is_empty() {
            let (cuts, failure) = cuts::search(test)?;
            tally.cuts = Some(cuts);
            tally.failure = failure;
        }
        Ok((settings, tally))
    }
}
