//! What a run of a graded program comes to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
};

use crate::{Deadlock, Error, Kernel, On, TaskInfo, TaskState, panic::lock};

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
    pub(super) fn to_text(&self) -> String {
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

    pub(super) fn from_text(text: &str) -> Option<Self> {
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

/// What is said of a run that comes to an outcome and does not fail.
pub(super) const COMES: &str = "the run comes to this";

/// Has a search take each end of a run as an outcome.
#[derive(Clone, Default, Debug)]
pub(super) struct Judge {
    /// The outcome of which it finds a schedule. Without one it gathers all, and no schedule fails.
    wanted: Option<String>,
    /// Whether a program must not come to it.
    pub(super) is_wrong: bool,
    choices: Arc<Mutex<Choices>>,
}

/// The choices that the tasks of a program make, and the places of each.
pub(super) type Choices = BTreeMap<String, BTreeSet<String>>;

impl Judge {
    pub(super) fn of(outcome: &Outcome, is_wrong: bool) -> Self {
        Self {
            wanted: Some(outcome.to_text()),
            is_wrong,
            choices: Default::default(),
        }
    }

    pub(super) fn note_choices(&self, made: BTreeSet<(String, String)>) {
        if made.is_empty() {
            return;
        }
        let mut choices = lock(&self.choices);
        for (choice, place) in made {
            choices.entry(choice).or_default().insert(place);
        }
    }

    /// Returns the choices of all schedules so far.
    pub(super) fn choices(&self) -> Choices {
        lock(&self.choices).clone()
    }

    /// Returns why the schedule fails.
    pub(super) fn failure(&self, outcome: &str, failure: Option<String>) -> Option<String> {
        let is_wanted = self.wanted.as_deref() == Some(outcome);
        is_wanted.then(|| failure.unwrap_or_else(|| COMES.to_string()))
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
