//! A trial: the body of a check under one schedule.

use std::mem;

use super::{
    felt::Faults,
    notes::{self, Notes},
    outcome::{end_of, in_words, outcome},
    plan::Plan,
    quiet,
    settings::Settings,
    space::{Drawn, First, Space},
    strategy::SearchStrategy,
    watchdog::TrialWatch,
};
use crate::{Builder, Error, Kernel};

pub(super) type Body<'a> = &'a dyn Fn(&mut Kernel) -> Result<(), Error>;

#[derive(Clone, Copy)]
pub(super) struct Test<'a> {
    pub(super) body: Body<'a>,
    pub(super) settings: &'a Settings,
}

#[derive(Debug)]
pub(super) struct Trial {
    pub(super) failure: Option<String>,
    /// Whether it failed because another thread did not wake it.
    pub(super) has_stalled: bool,
    /// `None` if there are none.
    pub(super) notes: Option<Box<Notes>>,
    /// Whether another thread may have decided what happened.
    pub(super) counts_on_threads: bool,
    /// The counts of its faults. `None` if there are none.
    pub(super) faults: Option<Box<Faults>>,
}

impl Trial {
    pub(super) fn outcomes(&self) -> &[String] {
        self.notes.as_ref().map_or(&[], |notes| &notes.outcomes)
    }

    /// Returns what the schedule came to, in a line.
    pub(super) fn in_a_line(&self) -> String {
        let outcomes = self.outcomes().iter().map(|outcome| in_words(outcome));
        let outcomes = outcomes.collect::<Vec<_>>().join(", ");
        match &self.failure {
            None if outcomes.is_empty() => "passes".to_string(),
            None => format!("passes: {outcomes}"),
            Some(why) => format!("fails: {}", why.lines().next().unwrap_or_default()),
        }
    }

    /// Says what may have made another run of the same schedule differ.
    pub(super) fn hidden(&self) -> &'static str {
        match self.counts_on_threads {
            true => THREADS,
            false => HIDDEN,
        }
    }
}

/// What may have made two runs of a schedule differ.
pub(super) const HIDDEN: &str = "Something besides the world decides what the program does: the \
     order of a hash map, a static, a clock, a thread.";

/// What a search says of a program that another thread may decide.
pub(super) const THREADS: &str = "the program counts on threads of the operating system \
     (Setter::remote), or on other kernels (a Mailbox): no schedule decides when these run, and no search \
     can repeat it. A test that is searched sets its promises in tasks. check_kernels searches several \
     kernels and their mail.";

/// Trials on one kernel, which is reset between them.
pub(super) struct Trials<'a> {
    pub(super) test: Test<'a>,
    pub(super) watch: TrialWatch,
    pub(super) space: Space,
    kernel: Option<Kernel>,
}

impl<'a> Trials<'a> {
    pub(super) fn new(test: Test<'a>, watch: TrialWatch) -> Self {
        let settings = test.settings;
        Self {
            test,
            watch,
            space: Space::new(settings.space.clone(), settings.steps()),
            kernel: None,
        }
    }

    /// Returns the kernel as new. If there is none yet, makes it, with the policy that `set` sets.
    pub(super) fn prepare(
        &mut self,
        seed: u64,
        set: impl FnOnce(Builder, &TrialWatch) -> Builder,
    ) -> Result<&mut Kernel, Error> {
        self.watch.seed(seed);
        let kept = self.kernel.as_mut();
        if kept.is_none_or(|kernel| kernel.reset(seed).is_err()) {
            let builder = self.test.settings.builder(seed, &self.watch, &self.space);
            self.kernel = Some(set(builder, &self.watch).build()?);
        }
        Ok(self.kernel())
    }

    pub(super) fn by_seed(&mut self, seed: u64) -> Result<&mut Kernel, Error> {
        let strategy = &self.test.settings.strategy;
        match strategy {
            SearchStrategy::Exhaustive => self.space.decide_by(First),
            _ => self.draw(seed),
        }
        self.prepare(seed, |builder, watch| {
            watch.decide(strategy);
            strategy.set(builder, seed, watch)
        })
    }

    /// Draws what the next schedule decides besides the order of turns.
    pub(super) fn draw(&self, seed: u64) {
        if self.test.settings.space.is_used() {
            self.space.decide_by(Drawn::new(seed));
        }
    }

    /// Has the faults of chaos happen that the plan of the next schedule names.
    pub(super) fn keep_chaos(&mut self, plan: &Plan) {
        if let Some(kept) = plan.kept() {
            self.kernel().net().chaos_only(&kept);
        }
    }

    pub(super) fn kernel(&mut self) -> &mut Kernel {
        self.kernel.as_mut().expect("it was prepared")
    }

    /// Runs the body on the kernel, which is as new.
    pub(super) fn run(&mut self) -> Trial {
        self.space.begin();
        let kernel = self.kernel.as_mut().expect("it was prepared");
        self.test.run_in(&self.space, kernel, &self.watch)
    }

    /// Drops the kernel: a schedule that was cut has cost it its policy.
    pub(super) fn drop_kernel(&mut self) {
        self.kernel = None;
    }
}

const NOT_RUN: &str = "the closure has made tasks, and has not run them: call kernel.run()";

const NOT_CONDUCTED: &str = "the closure has run a kernel besides those that it is given: the search decides \
     the turns of these alone. Boot each kernel in kernels.run(..)";

const NOT_ALONE: &str = "the closure has run another kernel than the one that it is given, or has \
     replaced or reset that one: the search decides the turns of that kernel alone. Spawn the tasks \
     on it, and call kernel.run()";

impl Test<'_> {
    /// Runs the body on a kernel that is as new, and counts its faults, which this space has decided. A
    /// trial fails if the body returns an error or panics, or if [`Report::check`](crate::Report::check)
    /// fails, or if none of its tasks has had a turn, or if it runs another kernel.
    pub(super) fn run_in(self, space: &Space, kernel: &mut Kernel, watch: &TrialWatch) -> Trial {
        watch.begin(kernel);
        notes::open(kernel.own_remote());
        if self.settings.judge.is_some() {
            kernel.keep_texts();
            kernel.keep_choices();
        }
        kernel.watch_alone();
        // In a box, so that a result without an error is a word.
        let result = quiet::contain(|| (self.body)(kernel).map_err(Box::new));
        let mut notes = notes::close();
        let error = match &result {
            Ok(Err(error)) => Some(&**error),
            _ => None,
        };
        let has_stalled = matches!(error, Some(Error::Stalled(_)));
        let was_alone = kernel.was_alone();
        if !was_alone {
            // The next trial resets a kernel, which one of the real world cannot.
            *kernel = Kernel::simulated(kernel.seed());
        }
        let is_judged = was_alone && result.is_ok() && self.settings.judge.is_some();
        let end = is_judged.then(|| end_of(kernel, error)).flatten();
        if let Some(judge) = &self.settings.judge {
            judge.note_choices(kernel.take_choices());
        }
        let mut failure = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(panic),
        };
        if kernel.has_failures()
            && let Err(failed) = kernel.report().check()
        {
            let failed = failed.to_string();
            failure = Some(match failure {
                Some(failure) if failure != failed => format!("{failure}\n{failed}"),
                _ => failed,
            });
        }
        let has_run = !kernel.has_unrun_tasks();
        if failure.is_none() && !has_run {
            failure = Some(NOT_RUN.to_string());
        }
        if !was_alone {
            // What it came to was no schedule of the search.
            let why = match self.settings.kernels {
                Some(_) => NOT_CONDUCTED,
                None => NOT_ALONE,
            };
            failure = Some(why.to_string());
        }
        if let (Some(judge), Some(end), true) = (&self.settings.judge, end, has_run) {
            let notes = notes.get_or_insert_default();
            let outcome = outcome(kernel, end, mem::take(&mut notes.outcomes));
            failure = judge.failure(&outcome, failure);
            notes.outcomes.push(outcome);
        }
        watch.begin_or_end();
        let faults = self.settings.has_faults().then(|| space.end(&kernel.net()));
        Trial {
            failure,
            has_stalled,
            notes,
            counts_on_threads: kernel.counts_on_threads(),
            faults: faults.map(Box::new),
        }
    }
}
