//! A cut of a schedule, and the tasks to cut.

use std::{fmt, str::FromStr};

use crate::{Event, Inject, Tid};

/// The begin of the reason where nothing was cut.
pub(super) const NOTHING: &str = "the search cuts nothing";

/// A cut of a schedule: what happens to one trap of a task. Its text is `killed-in:TASK:TRAP`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) tid: Tid,
    /// Counted from 1 in its task.
    pub(super) trap: u64,
    pub(super) inject: Inject,
}

impl Cut {
    /// Returns whether an event is this cut.
    pub(super) fn is(&self, event: &Event<'_>) -> bool {
        event.tid == self.tid && event.fact.injected() == Some(self.inject)
    }
}

const WORDS: [(&str, Inject); 4] = [
    ("killed-at", Inject::Kill),
    ("killed-in", Inject::KillIn),
    ("cut-at", Inject::Cut),
    ("cut-in", Inject::CutIn),
];

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS.iter().find(|(_, inject)| *inject == self.inject);
        let word = word.map_or("", |(word, _)| word);
        write!(f, "{word}:{}:{}", self.tid, self.trap)
    }
}

impl FromStr for Cut {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(':').collect();
        let [word, tid, trap] = parts[..] else {
            return Err(());
        };
        let inject = WORDS.iter().find(|(known, _)| *known == word).ok_or(())?.1;
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or(());
        Ok(Self {
            tid: Tid::from(number(tid)?),
            trap: number(trap)?,
            inject,
        })
    }
}

/// The tasks to cut: those of this name.
#[derive(Clone, Debug)]
pub(super) struct Victims {
    pub(super) name: String,
    pub(super) by_timeout: bool,
}

impl Victims {
    /// A task of a host is also meant by its name alone.
    pub(super) fn are(&self, name: &str) -> bool {
        let alone = name.split_once('@').map_or(name, |(alone, _)| alone);
        self.name == name || self.name == alone
    }
}

/// A trap of a task in the schedule without a cut.
pub(super) struct Await {
    pub(super) tid: Tid,
    pub(super) name: String,
    pub(super) trap: u64,
    /// The call with its arguments, and its name.
    pub(super) call: String,
    pub(super) verb: String,
    pub(super) place: String,
    pub(super) waits: bool,
}

impl Await {
    /// Names the schedule with a cut here.
    pub(super) fn named(&self, inject: Inject) -> String {
        let (what, when) = match inject {
            Inject::Kill => ("a kill", "before"),
            Inject::KillIn => ("a kill", "within"),
            Inject::Cut => ("a timeout", "before"),
            _ => ("a timeout", "within"),
        };
        let Self {
            tid,
            name,
            trap,
            call,
            place,
            ..
        } = self;
        let place = match &**place {
            "" => String::new(),
            place => format!(" at {place}"),
        };
        format!("{what} of {name} {tid} {when} its trap {trap}, {call}{place},")
    }
}
