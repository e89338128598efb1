//! Grading: all outcomes of a program, beside those of a reference.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    check::check,
    explored::{Explored, Failure, Progress},
};
use crate::{Deadlock, Error, Kernel, On, TaskInfo, TaskState};

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
    fn search<F>(&self, body: &F, judge: Judge, command: Option<&String>) -> Explored
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
        if let Some(command) = command {
            search = search.command(command);
        }
        search.settings.judge = Some(judge);
        search.explore()
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

    /// Sets the threads that search: [`Check::threads`](crate::Check::threads). Default: one per processor.
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

    /// Searches both programs, and finds a schedule of the first outcomes that differ. A program that the
    /// search cannot judge is not complete, and [`Searched::trouble`] says why.
    pub fn run(self) -> Graded {
        let (bounds, [again, again_reference]) = (&self.bounds, &self.commands);
        let submission = Searched::new(&bounds.search(&self.submission, Judge::default(), None));
        let reference = Searched::new(&bounds.search(&self.reference, Judge::default(), None));
        let races = differences(&submission, &reference, |outcome| {
            let judge = Judge::of(outcome, true);
            bounds.search(&self.submission, judge, again.as_ref())
        });
        let missing = differences(&reference, &submission, |outcome| {
            let judge = Judge::of(outcome, false);
            bounds.search(&self.reference, judge, again_reference.as_ref())
        });
        Graded {
            submission,
            reference,
            races,
            missing,
        }
    }
}

impl<S, R> fmt::Debug for Grade<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grade").finish_non_exhaustive()
    }
}

/// Returns the outcomes that only the first program has, if the search of the other was complete.
fn differences(
    has: &Searched,
    lacks: &Searched,
    find: impl Fn(&Outcome) -> Explored,
) -> Vec<Difference> {
    if !lacks.complete {
        return Vec::new();
    }
    let only = has.outcomes.difference(&lacks.outcomes).enumerate();
    only.map(|(at, outcome)| Difference {
        outcome: outcome.clone(),
        schedule: (at < LOCATED).then(|| find(outcome).failure).flatten(),
    })
    .collect()
}

/// What a run comes to: how it ends, and what it prints. The lines of a task have an order; the texts of
/// different tasks have none, and the names of tasks do not count.
///
/// If an order matters, one task prints it: for example a log that all tasks share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Outcome {
    /// How it ends.
    pub end: RunEnd,
    /// Whether a task faults: it panics.
    pub faults: bool,
    /// Whether a task fails: it returns an error, and no task waits for it.
    pub fails: bool,
    /// A text for each task that has printed, in the order of these texts. Behind them what
    /// [`Kernel::outcome`] has named.
    pub printed: Vec<String>,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum RunEnd {
    /// No task is left, or only servers that wait for clients, and tasks that wait for their ends.
    Over,
    /// The tasks that the host has spawned have ended, or are at rest, and others are left that wait.
    Leak,
    /// Tasks wait for what no task will do.
    Deadlock,
}

const FAULT: &str = "a task faults";
const FAIL: &str = "a task fails";

impl Outcome {
    /// Returns how it ends, in words.
    #[must_use]
    pub fn ends(&self) -> String {
        let end = match self.end {
            RunEnd::Over => None,
            RunEnd::Leak => Some("a leak: tasks are left that wait for ever"),
            RunEnd::Deadlock => Some("a deadlock"),
        };
        let parts = [
            end,
            self.faults.then_some(FAULT),
            self.fails.then_some(FAIL),
        ];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => "it ends".to_string(),
            false => parts.join(", "),
        }
    }

    /// Returns it as the text that a search notes.
    fn to_text(&self) -> String {
        let head = [
            match self.end {
                RunEnd::Over => 'o',
                RunEnd::Leak => 'l',
                RunEnd::Deadlock => 'd',
            },
            if self.faults { '!' } else { '-' },
            if self.fails { '!' } else { '-' },
        ];
        let head = MARK.into_iter().chain(head).collect();
        let parts = [vec![head], self.printed.clone()].concat();
        parts.join(BETWEEN)
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(MARK)?.split(BETWEEN);
        let mut head = parts.next()?.chars();
        let end = match head.next()? {
            'o' => RunEnd::Over,
            'l' => RunEnd::Leak,
            'd' => RunEnd::Deadlock,
            _ => return None,
        };
        Some(Self {
            end,
            faults: head.next()? == '!',
            fails: head.next()? == '!',
            printed: parts.map(str::to_string).collect(),
        })
    }
}

/// What the text of an outcome begins with, and what is between its parts: characters that no program has
/// reason to print.
const MARK: [char; 1] = ['\u{2}'];
const BETWEEN: &str = "\u{1e}";

/// Returns the outcome of a trial in a line, for people.
pub(super) fn in_words(outcome: &str) -> String {
    match Outcome::from_text(outcome) {
        None => outcome.to_string(),
        Some(outcome) => format!("{}: {:?}", outcome.ends(), outcome.printed.concat()),
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.printed.is_empty() {
            true => write!(f, "{}, and prints nothing", self.ends()),
            false => {
                write!(f, "{}, and prints", self.ends())?;
                for text in &self.printed {
                    // A text of its own begins at each dash.
                    write!(f, "\n  - {}", text.trim_end().replace('\n', "\n    "))?;
                }
                Ok(())
            }
        }
    }
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
            None => f.write_str("\n\n  no schedule is shown: only the first eight are looked for, within the limits"),
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
}

impl Graded {
    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !self.races.is_empty() || !self.missing.is_empty() {
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
        let verdict = match self.verdict() {
            Verdict::Equal => "equal: both have the same outcomes",
            Verdict::Different => "different",
            Verdict::Unknown => "unknown: a search was not complete, and no difference was found",
        };
        write!(f, "\nverdict: {verdict}")
    }
}

/// Has a search take each end of a run as an outcome.
#[derive(Clone, Default, Debug)]
pub(super) struct Judge {
    /// The outcome of which it finds a schedule. Without one it gathers all, and no schedule fails.
    wanted: Option<String>,
    /// Whether a program must not come to it.
    pub(super) is_wrong: bool,
}

impl Judge {
    fn of(outcome: &Outcome, is_wrong: bool) -> Self {
        Self {
            wanted: Some(outcome.to_text()),
            is_wrong,
        }
    }

    /// Returns why the schedule fails.
    pub(super) fn failure(&self, outcome: &str, failure: Option<String>) -> Option<String> {
        let is_wanted = self.wanted.as_deref() == Some(outcome);
        is_wanted.then(|| failure.unwrap_or_else(|| "the run comes to this".to_string()))
    }
}

/// Returns how a run has ended; `None` if it was cut, or the closure has failed.
pub(super) fn end_of(kernel: &Kernel, error: Option<&Error>) -> Option<RunEnd> {
    match error {
        // The closure may have left tasks behind.
        None | Some(Error::Failed(_)) if kernel.tasks().any(|task| is_left(&task)) => {
            Some(RunEnd::Leak)
        }
        None | Some(Error::Failed(_)) => Some(RunEnd::Over),
        Some(Error::Deadlock(deadlock)) => Some(end_by(kernel, deadlock)),
        Some(_) => None,
    }
}

fn is_left(task: &TaskInfo) -> bool {
    !task.is_daemon && !matches!(task.state, TaskState::Zombie(_))
}

fn end_by(kernel: &Kernel, deadlock: &Deadlock) -> RunEnd {
    let is_idle = |task: &TaskInfo| match task.state {
        TaskState::Blocked { on, .. } => matches!(on, On::Device(..) | On::Exit(_)),
        _ => true,
    };
    match deadlock.is_at_rest() {
        true if deadlock.blocked.iter().all(is_idle) => RunEnd::Over,
        true => RunEnd::Leak,
        false if kernel.has_hosts_tasks() => RunEnd::Deadlock,
        false => RunEnd::Leak,
    }
}

/// Returns what a run has come to, as a text. These are the outcomes that the closure has named.
pub(super) fn outcome(kernel: &mut Kernel, end: RunEnd, named: Vec<String>) -> String {
    let mut texts = kernel.take_texts();
    texts.sort_unstable();
    texts.extend(named);
    let report = kernel.report();
    let faults = report.check_faults().is_err();
    let outcome = Outcome {
        end,
        faults,
        fails: !faults && report.check().is_err(),
        printed: texts,
    };
    outcome.to_text()
}
