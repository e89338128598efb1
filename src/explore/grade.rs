//! Grading: all outcomes of a program, beside those of a reference.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    check::{Check, check},
    explored::{Explored, Failure, Progress},
    outcome::{COMES, Choices, Judge, Outcome, RunEnd},
    tally::{Firsts, Found},
};
use crate::{Error, Kernel};

/// The most differences of a kind that get a schedule.
const LOCATED: usize = 8;

/// Compares a program with a reference: both are searched completely, and their sets of outcomes are
/// compared. An outcome that only the submission has is a race, or a deadlock, a leak, a fault. One that only
/// the reference has is an overlap that the submission does not allow: it synchronises too much.
///
/// Each closure is as that of [`check`]: it spawns tasks and runs the kernel. It may leave the judgement
/// to this function. See [`Outcome`] for what counts. The tasks may share memory by
/// [`Shared`](crate::Shared), queues and the types of [`sync`](crate::sync) alone: the search sees no other.
///
/// ```
/// use trapline::{Kernel, Os, Shared};
///
/// fn counter(kernel: &mut Kernel, is_right: bool) -> Result<(), trapline::Error> {
///     kernel.spawn("main", async move |os: &mut Os| {
///         let sum = Shared::new(0);
///         let mut tasks = Vec::new();
///         for _ in 0..2 {
///             let sum = sum.clone();
///             let add = async move |os: &mut Os| {
///                 if is_right {
///                     return sum.update(|sum| *sum += 1);
///                 }
///                 let read = sum.get();
///                 os.yield_now().await;
///                 sum.set(read + 1);
///             };
///             tasks.push(os.spawn("add", add).await?);
///         }
///         for task in tasks {
///             os.wait(task).await?;
///         }
///         writeln!(os, "{}", sum.get());
///         Ok::<_, trapline::Errno>(())
///     })?;
///     kernel.run().map(drop)
/// }
///
/// let graded = trapline::grade(|k| counter(k, false), |k| counter(k, true)).run();
/// assert!(!graded.is_equal() && graded.is_complete());
/// assert_eq!(graded.races[0].outcome.printed, ["1\n"]);
/// assert!(graded.missing.is_empty());
/// ```
///
/// The idea is that of the sets of outcomes with which litmus tests of memory models are judged (Alglave,
/// Maranget, Sarkar and Sewell, "Litmus: running tests against hardware", 2011).
pub fn grade<S, R>(submission: S, reference: R) -> Grade<S, R>
where
    S: Fn(&mut Kernel) -> Result<(), Error> + Sync,
    R: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    Grade {
        submission,
        reference,
        commands: Default::default(),
        bounds: Bounds {
            schedules: 100_000,
            steps: 10_000,
            turns_take: None,
            seed: 0,
            time: None,
            threads: 0,
            stop: None,
            progress: None,
        },
    }
}

/// A comparison that is about to begin, made by [`grade`].
#[must_use = "it does nothing until `run`"]
pub struct Grade<S, R> {
    submission: S,
    reference: R,
    /// What runs a schedule of each again.
    commands: [Option<String>; 2],
    bounds: Bounds,
}

struct Bounds {
    schedules: u64,
    steps: u64,
    turns_take: Option<RangeInclusive<Duration>>,
    seed: u64,
    time: Option<Duration>,
    threads: usize,
    stop: Option<fn() -> bool>,
    progress: Option<Arc<Report>>,
}

type Report = dyn Fn(&Progress) + Send + Sync;

impl Bounds {
    /// Searches all outcomes of a program. Returns the first schedule of each, too.
    fn search<F>(&self, body: &F, judge: Judge) -> (Explored, Firsts)
    where
        F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
    {
        self.check(body, judge).explore_all()
    }

    /// Describes the schedule of an outcome that a search has found.
    fn explain<F>(
        &self,
        body: &F,
        judge: Judge,
        command: Option<&String>,
        found: Found,
    ) -> Option<Failure>
    where
        F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
    {
        let mut search = self.check(body, judge);
        if let Some(command) = command {
            search = search.command(command);
        }
        search.explain(found)
    }

    fn check<'a, F>(&self, body: &'a F, judge: Judge) -> Check<&'a F>
    where
        F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
    {
        let mut search = check(body)
            .without_environment()
            .exhaustive()
            .schedules(self.schedules)
            .steps(self.steps)
            .seed(self.seed)
            .threads(self.threads);
        if let Some(span) = &self.turns_take {
            search = search.turns_take(span.clone());
        }
        if let Some(time) = self.time {
            search = search.time(time);
        }
        if let Some(stop) = self.stop {
            search = search.stop_when(stop);
        }
        if let Some(progress) = &self.progress {
            let progress = Arc::clone(progress);
            search = search.progress(move |now| progress(now));
        }
        search.settings.judge = Some(judge);
        search
    }
}

impl<S, R> Grade<S, R>
where
    S: Fn(&mut Kernel) -> Result<(), Error> + Sync,
    R: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    /// Limits the schedules of each search: [`Check::schedules`](crate::Check::schedules). Default: 100,000.
    pub fn schedules(mut self, schedules: u64) -> Self {
        self.bounds.schedules = schedules;
        self
    }

    /// Limits the turns of a schedule: [`Check::steps`](crate::Check::steps). Default: 10,000. A longer one is cut, and the search
    /// is not complete: a task may go on for ever while another one starves.
    pub fn steps(mut self, steps: u64) -> Self {
        self.bounds.steps = steps;
        self
    }

    /// Lets turns take time: [`Check::turns_take`](crate::Check::turns_take). Without it turns take none,
    /// so a program in which only sleeps keep tasks apart has no race.
    pub fn turns_take(mut self, span: RangeInclusive<Duration>) -> Self {
        self.bounds.turns_take = Some(span);
        self
    }

    /// Sets the seed of the random numbers of both programs. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.bounds.seed = seed;
        self
    }

    /// Limits the time of each search on the machine's clock: [`Check::time`](crate::Check::time).
    pub fn time(mut self, time: Duration) -> Self {
        self.bounds.time = Some(time);
        self
    }

    /// Sets the threads that search: [`Check::threads`](crate::Check::threads). Default: one per
    /// processor, which 0 is as well.
    pub fn threads(mut self, threads: usize) -> Self {
        self.bounds.threads = threads;
        self
    }

    /// Has the searches end when this returns `true`: [`Check::stop_when`](crate::Check::stop_when).
    pub fn stop_when(mut self, stop: fn() -> bool) -> Self {
        self.bounds.stop = Some(stop);
        self
    }

    /// Has this closure told how far the search under way is: [`Check::progress`](crate::Check::progress).
    pub fn progress(mut self, report: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.bounds.progress = Some(Arc::new(report));
        self
    }

    /// Sets the commands that run a schedule of the submission and of the reference again:
    /// [`Check::command`](crate::Check::command).
    pub fn commands(mut self, submission: impl Into<String>, reference: impl Into<String>) -> Self {
        self.commands = [Some(submission.into()), Some(reference.into())];
        self
    }

    /// Searches both programs, and finds a schedule of the first outcomes that differ. A submission that chooses
    /// ([`Os::choose`](crate::Os::choose)) what the reference does not choose, or at more places in the source, is
    /// refused. A program that the
    /// search cannot judge is not complete, and [`Searched::trouble`] says why.
    pub fn run(self) -> Graded {
        let (bounds, [again, again_reference]) = (&self.bounds, &self.commands);
        let (judge, judge_of_reference) = (Judge::default(), Judge::default());
        let (submission, mut firsts) = bounds.search(&self.submission, judge.clone());
        let submission = Searched::new(&submission);
        let (reference, mut firsts_of_reference) =
            bounds.search(&self.reference, judge_of_reference.clone());
        let reference = Searched::new(&reference);
        let refused = reference
            .complete
            .then(|| refusal(&judge.choices(), &judge_of_reference.choices()));
        if let Some(refused) = refused.flatten() {
            return Graded {
                submission,
                reference,
                races: Vec::new(),
                missing: Vec::new(),
                refused: Some(refused),
            };
        }
        let races = differences(&submission, &reference, |outcome| {
            let found = firsts.remove(&outcome.to_text())?;
            let judge = Judge::of(outcome, true);
            bounds.explain(&self.submission, judge, again.as_ref(), found)
        });
        let missing = differences(&reference, &submission, |outcome| {
            let found = firsts_of_reference.remove(&outcome.to_text())?;
            let judge = Judge::of(outcome, false);
            bounds.explain(&self.reference, judge, again_reference.as_ref(), found)
        });
        Graded {
            submission,
            reference,
            races,
            missing,
            refused: None,
        }
    }
}

impl<S, R> fmt::Debug for Grade<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grade").finish_non_exhaustive()
    }
}

/// Returns why a submission is not compared: it makes a choice that the reference does not make, so that its
/// outcomes are not those of its schedules.
fn refusal(submission: &Choices, reference: &Choices) -> Option<String> {
    submission.iter().find_map(|(choice, places)| {
        let known = reference.get(choice).map_or(0, BTreeSet::len);
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        (places.len() > known).then(|| {
            let (all, s) = (places.join(", "), if known == 1 { "" } else { "s" });
            format!(
                "it calls os.{choice} at {all}, and the reference does so at {known} place{s}: a search runs \
                 both answers of a choice, which can stand in for outcomes of schedules"
            )
        })
    })
}

/// Returns the outcomes that only the first program has, if the search of the other was complete.
fn differences(
    has: &Searched,
    lacks: &Searched,
    mut find: impl FnMut(&Outcome) -> Option<Failure>,
) -> Vec<Difference> {
    if !lacks.complete {
        return Vec::new();
    }
    let only = has.outcomes.difference(&lacks.outcomes).enumerate();
    only.map(|(at, outcome)| Difference {
        outcome: outcome.clone(),
        schedule: (at < LOCATED).then(|| find(outcome)).flatten(),
    })
    .collect()
}

/// What the search of one of the programs came to.
#[derive(Clone, Debug, Default)]
pub struct Searched {
    /// The number of schedules that ran.
    pub schedules: u64,
    /// What they came to.
    pub outcomes: BTreeSet<Outcome>,
    /// Whether there are no others, for its [`premise`](Self::premise).
    pub complete: bool,
    /// What the search takes for granted, such as `turns take no time and the seed is 0`.
    pub premise: String,
    /// Why the search is not complete, or why it proves nothing although it is, in words.
    pub trouble: Option<String>,
}

impl Searched {
    fn new(explored: &Explored) -> Self {
        let texts = explored.outcomes.iter();
        let failed = explored.failure.as_ref();
        let trouble = failed.map(|failure| failure.why.clone());
        Self {
            schedules: explored.schedules,
            outcomes: texts.filter_map(|text| Outcome::from_text(text)).collect(),
            complete: explored.complete && failed.is_none(),
            premise: explored.premise.clone(),
            trouble: trouble
                .or_else(|| explored.bound.clone())
                .or_else(|| explored.unproved().map(str::to_string)),
        }
    }
}

impl fmt::Display for Searched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let (schedules, outcomes) = (self.schedules, self.outcomes.len());
        let is_one = plural(usize::try_from(schedules).unwrap_or(usize::MAX));
        write!(f, "{schedules} schedule{is_one}, ")?;
        write!(f, "{outcomes} outcome{}", plural(outcomes))?;
        let trouble = self.trouble.as_ref();
        let trouble = trouble.map(|trouble| trouble.replace('\n', "\n  "));
        match (self.complete, trouble) {
            (true, None) => write!(f, "; there are no others if {}", self.premise),
            (true, Some(why)) => write!(f, "; no others were found, and nothing is proved: {why}"),
            (false, Some(why)) => write!(f, "; not complete: {why}"),
            (false, None) => f.write_str("; not complete"),
        }
    }
}

/// An outcome that only one of the programs has.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The outcome.
    pub outcome: Outcome,
    /// The schedule of the program that has it, with the fewest preemptions that were found. Only the first few
    /// differences have one.
    pub schedule: Option<Failure>,
}

impl Difference {
    /// Returns what it is called, if only a submission has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let outcome = &self.outcome;
        match outcome.end {
            RunEnd::Deadlock => "DEADLOCK",
            RunEnd::Leak => "LEAK",
            RunEnd::Over if outcome.faults => "FAULT",
            RunEnd::Over if outcome.fails => "FAILURE",
            RunEnd::Over => "RACE",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.outcome)?;
        match &self.schedule {
            None => f.write_str("\n\n  no schedule is shown: only the first eight have one"),
            // The outcome says it.
            Some(schedule) if schedule.why == COMES => write!(f, "\n\n{}", schedule.details),
            Some(schedule) => write!(f, "\n\n{schedule}"),
        }
    }
}

/// Whether two programs come to the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Both have the same outcomes.
    Equal,
    /// One has an outcome that the other does not have.
    Different,
    /// No difference was found, and a search was not complete.
    Unknown,
    /// The submission makes a choice ([`Os::choose`](crate::Os::choose)) that the reference does not make, and is
    /// not compared.
    Refused,
}

/// The result of [`Grade::run`]. Its `Display` is the report.
#[derive(Clone, Debug)]
pub struct Graded {
    /// The search of the submission.
    pub submission: Searched,
    /// The search of the reference.
    pub reference: Searched,
    /// The outcomes that only the submission has. Empty if the reference was not searched completely: it may
    /// have them, too.
    pub races: Vec<Difference>,
    /// The outcomes that only the reference has. Empty if the submission was not searched completely.
    pub missing: Vec<Difference>,
    /// Why the submission is not compared, in words. `None` if it is.
    pub refused: Option<String>,
}

impl Graded {
    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.refused.is_some() {
            Verdict::Refused
        } else if !self.races.is_empty() || !self.missing.is_empty() {
            Verdict::Different
        } else if self.is_complete() {
            Verdict::Equal
        } else {
            Verdict::Unknown
        }
    }

    /// Returns whether both have the same outcomes, and no others.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.verdict() == Verdict::Equal
    }

    /// Returns whether both searches were complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.submission.complete && self.reference.complete
    }
}

impl fmt::Display for Graded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "submission: {}", self.submission)?;
        writeln!(f, "reference:  {}", self.reference)?;
        for race in &self.races {
            writeln!(
                f,
                "\n{}: the reference never comes to this\n{race}",
                race.name()
            )?;
        }
        for missing in &self.missing {
            let what = "TOO MUCH SYNCHRONISATION: only the reference comes to this";
            writeln!(f, "\n{what}\n{missing}")?;
        }
        if let Some(why) = &self.refused {
            writeln!(f, "\nREFUSED: {why}")?;
        }
        let verdict = match self.verdict() {
            Verdict::Refused => "refused: the submission is not compared",
            Verdict::Equal => "equal: both have the same outcomes",
            Verdict::Different => "different",
            Verdict::Unknown => "unknown: a search was not complete, and no difference was found",
        };
        write!(f, "\nverdict: {verdict}")
    }
}
