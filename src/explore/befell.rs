//! The faults of a schedule, and what felt them first.

use crate::{Exit, Fact, Inject, Reply, Tid};

/// A fault that has happened.
#[derive(Debug)]
pub(super) struct Befell {
    /// In the words of `--may`.
    text: String,
    at: String,
    felt: Option<Felt>,
}

/// What has felt a fault: a call, with the row of its turn, or a task.
#[derive(Clone, Debug)]
pub(super) struct Felt {
    by: String,
    row: Option<usize>,
}

impl Felt {
    /// A call that failed, by its text.
    pub(super) fn call(text: &str, row: usize) -> Self {
        let by = text.split('(').next().unwrap_or_default().to_string();
        Self { by, row: Some(row) }
    }

    /// A task that was killed.
    pub(super) fn task(name: &str, tid: Tid) -> Self {
        Self {
            by: format!("the task {name} {tid}"),
            row: None,
        }
    }
}

/// Whether a fact is the effect of a fault on its task.
pub(super) fn is_felt(fact: &Fact<'_>, is_between_turns: bool) -> bool {
    let is_error = fact.answer().is_some_and(|answer| answer.0 == Reply::Io);
    let is_killed = matches!(fact.exit(), Some(Exit::Killed));
    is_error || is_killed && is_between_turns
}

impl Befell {
    /// A fault before the turn of this number.
    pub(super) fn before(text: &str, turn: u32) -> Self {
        Self {
            text: text.to_string(),
            at: format!("before turn {turn}"),
            felt: None,
        }
    }

    /// What befalls a call in the turn of this number.
    pub(super) fn call(call: &str, inject: Inject, turn: u32, felt: Felt) -> Self {
        let call = call.split('(').next().unwrap_or_default();
        let what = match inject {
            Inject::Fail(kind) => format!("error={kind:?}"),
            Inject::Delay(span) => format!("delay={span:?}"),
            Inject::Kill => "kill".to_string(),
            Inject::KillIn => "kill within it".to_string(),
            Inject::Cut => "timeout".to_string(),
            Inject::CutIn => "timeout within it".to_string(),
        };
        Self {
            text: format!("{call}:{what}"),
            at: format!("at turn {turn}"),
            felt: Some(felt),
        }
    }

    pub(super) fn feel(&mut self, felt: &Felt) {
        self.felt.get_or_insert_with(|| felt.clone());
    }

    /// Describes the fault; `place` is that of the call of a row.
    pub(super) fn describe(&self, place: impl Fn(usize) -> String) -> String {
        let Self { text, at, felt } = self;
        let Some(Felt { by, row }) = felt else {
            return format!("{text} {at}, felt by no task");
        };
        let place = row.map(place).filter(|place| !place.is_empty());
        let place = place.map_or(String::new(), |place| format!(" at {place}"));
        format!("{text} {at}, felt by {by}{place}")
    }
}
