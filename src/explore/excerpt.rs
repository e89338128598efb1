//! The rows of a schedule as text, and those that are shown.
//!
//! A short schedule is shown whole. Of a longer one these are shown: the turns around each fault and
//! preemption, the last turns, and the last uses of what the failure is about. That is what a
//! preempted task uses before and after, what a task used when it blocked or failed, and what the
//! test looks at in the end.

use std::{collections::BTreeSet, ops::Range};

use super::notes::Made;
use crate::{Continued, QueueId, Tid};

/// The most rows of a schedule that is always shown whole.
const SHORT: usize = 20;

/// The rows that are shown before and after a preemption, and at the end.
const BEFORE: usize = 3;
const AFTER: usize = 5;
const LAST: usize = 5;

/// The turns that are shown before another one because they use something that it uses.
const USES: usize = 3;

/// The most faults that are shown with the turns around them.
const FAULTS: usize = 16;

/// The most tasks whose last turns are shown. A report names as many.
const TASKS: usize = 16;

#[derive(Default)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) place: Place,
    /// The task of the turn, or that is preempted.
    pub(super) task: Option<Tid>,
    /// How often the task is preempted here.
    pub(super) preemptions: usize,
    pub(super) used: BTreeSet<Used>,
    /// Of a turn: its number, the name of its task, its call, and whether that waits.
    pub(super) turn: u32,
    pub(super) name: String,
    pub(super) call: String,
    pub(super) waits: bool,
    /// Whether it is a fault.
    pub(super) is_fault: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Used {
    Queue(QueueId),
    Shared(Made),
}

#[derive(Default)]
pub(super) enum Place {
    #[default]
    None,
    /// As its stub has noted it.
    Called(String),
    /// Where its task continued.
    Continued(Continued),
    Of(usize),
}

impl Row {
    pub(super) fn is_turn(&self) -> bool {
        self.task.is_some() && self.preemptions == 0
    }
}

/// Returns the rows to show. `unfinished` are the last turns of the tasks that have not ended well.
pub(super) fn shown(rows: &[Row], unfinished: impl Iterator<Item = usize>) -> BTreeSet<usize> {
    let len = rows.len();
    if len <= SHORT {
        return (0..len).collect();
    }
    let mut shown: BTreeSet<usize> = (len - LAST..len).collect();
    let faults = (0..len).filter(|at| rows[*at].is_fault).take(FAULTS);
    shown.extend(faults.flat_map(|at| at.saturating_sub(BEFORE)..(at + AFTER + 1).min(len)));
    for at in (0..len).filter(|at| rows[*at].preemptions > 0) {
        shown.extend(at.saturating_sub(BEFORE)..(at + AFTER + 1).min(len));
        // The turns of the task before and after, and what others do between to what it uses.
        let is_next = |row: &Row| row.is_turn() && row.task == rows[at].task;
        let next = (at..len).find(|at| is_next(&rows[*at]));
        let before = match rows[at].place {
            Place::Of(row) => Some(row),
            _ => None,
        };
        for turn in before.into_iter().chain(next) {
            follow(rows, turn, at..next.unwrap_or(len), &mut shown);
        }
    }
    let by_host = |row: &Row| row.task.is_none() && !row.used.is_empty();
    let host = rows.iter().rposition(by_host);
    let ends = unfinished.take(TASKS).chain(host);
    for at in ends.filter(|at| *at < len) {
        follow(rows, at, 0..at, &mut shown);
        // Another task may have taken what a blocked one waits for.
        shown.extend(uses(rows, at, at..len));
    }
    // A gap takes a line, too.
    let is_lone = |at: &usize| shown.contains(&(at - 1)) && shown.contains(&(at + 1));
    let lone: Vec<usize> = (1..len).filter(is_lone).collect();
    shown.extend(lone);
    shown
}

/// Adds a row, the last rows of a range that use what it uses, and those before that use what these
/// use.
fn follow(rows: &[Row], at: usize, range: Range<usize>, shown: &mut BTreeSet<usize>) {
    shown.insert(at);
    for at in uses(rows, at, range.clone()) {
        shown.insert(at);
        shown.extend(uses(rows, at, range.start..at));
    }
}

/// Returns the last rows of a range that use what another row uses.
fn uses(rows: &[Row], at: usize, range: Range<usize>) -> impl Iterator<Item = usize> {
    let used = &rows[at].used;
    let is_use = |at: &usize| !rows[*at].used.is_disjoint(used);
    range.rev().filter(is_use).take(USES)
}
