//! An operation of a history, and the columns in which some of them are drawn.

use crate::Tid;

/// An operation of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// The task that has called it.
    pub task: Tid,
    /// What it asks.
    pub input: String,
    /// What was answered. `None` if it has not returned, or its answer is not known: it may have taken
    /// effect at any time since its call, or not at all.
    pub answer: Option<String>,
    /// The number of its call among all calls and returns of its history, from 0.
    pub called: usize,
    /// The number of its return.
    pub returned: Option<usize>,
}

impl Operation {
    /// Returns what was asked, and what was answered.
    pub(super) fn said(&self) -> String {
        let answer = self.answer.as_deref().unwrap_or("?");
        format!("{} = {answer}", self.input)
    }
}

/// Columns of the calls and returns of some operations.
pub(super) struct Columns(Vec<usize>);

impl Columns {
    /// What happens after the return `end` has no column.
    pub(super) fn of(operations: &[Operation], end: Option<usize>) -> Self {
        let events = operations.iter();
        let events = events.flat_map(|it| [Some(it.called), it.returned]);
        let is_shown = |event: &usize| end.is_none_or(|end| *event <= end);
        let mut events: Vec<usize> = events.flatten().filter(is_shown).collect();
        events.sort_unstable();
        Self(events)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the columns of a call, and of its return if it has one.
    pub(super) fn span(&self, operation: &Operation) -> (usize, Option<usize>) {
        let column = |event: &usize| self.0.binary_search(event).ok();
        let begin = column(&operation.called).unwrap_or(0);
        (begin, operation.returned.as_ref().and_then(column))
    }
}
