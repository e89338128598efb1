//! What a motion waits for: a call, a time, the end of a task, a fault.

use std::{fmt, time::Duration};

use trapline::{Event, Exit, Fact, Nanos, SystemCall, Tid};

use crate::values::{among, instant, whole};

/// A fact to stop at.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    what: What,
    /// The task that it is about; any if there is none.
    pub(super) task: Option<Tid>,
}

#[derive(Clone, Debug)]
enum What {
    /// One of [`FACTS`].
    Fact(&'static str, IsMet),
    Call(&'static str),
    At(Duration),
    Print(String),
}

type IsMet = fn(&Fact<'_>) -> bool;

const FACTS: [(&str, IsMet); 5] = [
    ("call", |fact| fact.call().is_some()),
    ("end", |fact| fact.exit().is_some()),
    ("fault", |fact| {
        matches!(fact.exit(), Some(Exit::Faulted(_) | Exit::Failed(_)))
    }),
    ("wake", |fact| fact.woken_by().is_some()),
    ("spawn", |fact| fact.spawned().is_some()),
];

/// The words that begin a condition and name no call.
const WORDS: [&str; 6] = ["at", "end", "fault", "wake", "spawn", "print"];

impl Condition {
    /// A fact about a task.
    pub(super) fn of(task: Tid, fact: &str) -> Result<Self, String> {
        let task = Some(task);
        Ok(Self {
            task,
            ..Self::parse(&[fact])?
        })
    }

    /// Reads a condition such as `recv tid 3`, `at 3.2s` or `fault`. An error says what is wrong.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let (words, task) = match words {
            [rest @ .., "tid", number] => (rest, Some(tid(number)?)),
            rest => (rest, None),
        };
        let what = match words {
            ["at", time] => match instant(time)? {
                Duration::ZERO => return Err("the run begins at 0s: goto 0 goes there".into()),
                time => What::At(time),
            },
            ["print", text @ ..] if !text.is_empty() => What::Print(text.join(" ")),
            ["print"] => return Err("it takes a text: print lost".into()),
            ["at", ..] => return Err("it takes one time: at 3.2s".into()),
            [name] => match FACTS.iter().find(|(word, _)| word == name) {
                Some((word, is_met)) => What::Fact(word, *is_met),
                None => What::Call(call(name)?),
            },
            [name, ..] => {
                call(name)?;
                return Err(format!("after '{name}' only tid N can follow"));
            }
            [] => {
                let what = "it takes a call such as recv, at TIME, end, fault, wake, spawn or \
                            print TEXT; and then tid N for one task alone";
                return Err(what.into());
            }
        };
        match (&what, task) {
            (What::At(_), Some(_)) => Err("a time is that of all tasks: leave out tid".into()),
            _ => Ok(Self { what, task }),
        }
    }

    /// The time that it waits for, if it is one.
    pub(super) fn time(&self) -> Option<Duration> {
        match self.what {
            What::At(time) => Some(time),
            _ => None,
        }
    }

    /// Whether an event is what it waits for. The event before was at `before`.
    pub(super) fn is_met(&self, event: &Event<'_>, before: Duration) -> bool {
        if self.task.is_some_and(|task| task != event.tid) {
            return false;
        }
        let fact = &event.fact;
        match &self.what {
            What::Fact(_, is_met) => is_met(fact),
            What::Call(name) => fact.call().is_some_and(|call| call.0.name() == *name),
            What::At(time) => before < *time && *time <= event.at,
            What::Print(wanted) => fact.printed().is_some_and(|text| text.contains(wanted)),
        }
    }
}

/// The number of a task.
pub(super) fn tid(text: &str) -> Result<Tid, String> {
    match whole::<u64>(text)?.into() {
        Tid::KERNEL => Err("0 is the kernel, which makes no calls: tasks count from 1".into()),
        tid => Ok(tid),
    }
}

/// The name of a call, as the list of all calls has it.
fn call(name: &str) -> Result<&'static str, String> {
    let words: Vec<&'static str> = SystemCall::NAMES.into_iter().chain(WORDS).collect();
    among("call or condition", name, &words, |word| (*word).into())
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Fact(name, _) | What::Call(name) => f.write_str(name)?,
            What::At(time) => write!(f, "at {}", Nanos::from(*time))?,
            What::Print(text) => write!(f, "print {text}")?,
        }
        match self.task {
            Some(task) => write!(f, " tid {task}"),
            None => Ok(()),
        }
    }
}
