//! The contents of a timeline.

use std::collections::BTreeMap;

use trapline::{Deadlock, Exit, Moment, Span, Tid, record::Header};

use super::scale::Window;
use crate::{
    output::clean,
    trace::{history::History, life::Amount, spans::Shares},
};

#[derive(Default)]
pub(super) struct Timeline {
    pub(super) header: Header,
    /// In the order of their tasks' numbers.
    pub(super) lanes: Vec<Lane>,
    /// In order.
    pub(super) rows: Vec<Row>,
    /// The spans in which no task was ready and the clock moved.
    pub(super) idle: Vec<(Moment, Moment)>,
    pub(super) begin: Moment,
    pub(super) end: Moment,
    pub(super) events: u64,
    /// The number of events that were not recorded.
    pub(super) missing: u64,
    /// Whether the window ends before the recording.
    pub(super) is_cut: bool,
    /// Whether the recording has no end, since its writer was killed.
    pub(super) is_torn: bool,
    /// What the tasks waited for at the end, if nothing could happen any more.
    pub(super) deadlock: Option<Deadlock>,
    /// Why tasks waited. `None` for a picture, and for a recording that is too long.
    pub(super) history: Option<History>,
    /// What tasks were blocked on and woken by, apart from timers, with the words for it.
    pub(super) words: BTreeMap<String, String>,
    /// The bytes that went from one row to another, in the order of the first.
    pub(super) messages: Vec<Message>,
    pub(super) deadlocks: Vec<Closed>,
    /// How the time up to the end of the window was used.
    pub(super) shares: Shares,
    /// The selected tasks that were not found up to the end of the window.
    pub(super) unknown: Vec<String>,
}

#[derive(Default)]
pub(super) struct Lane {
    pub(super) tid: Tid,
    pub(super) name: String,
    pub(super) parent: Tid,
    pub(super) spawned: Option<String>,
    /// In order, without gaps except where events are missing.
    pub(super) bars: Vec<Bar>,
    pub(super) exit: Option<Exit>,
    pub(super) traps: u64,
    /// The row of its last call, or of its spawn.
    pub(super) row: Option<usize>,
    pub(super) has_rows: bool,
}

pub(super) struct Bar {
    pub(super) is_timed: bool,
    pub(super) span: Span,
    /// For a turn, the row of the call that ended it; otherwise the row of the last call.
    pub(super) row: Option<usize>,
}

/// A call or a change of state, as a row of a table.
pub(super) struct Row {
    pub(super) at: Moment,
    pub(super) tid: Tid,
    pub(super) kind: Kind,
    pub(super) what: String,
    /// The places in the source of a call that blocked and of its task's spawn, in words; or the
    /// place of a spawn or a fault.
    pub(super) places: Option<String>,
    /// The answer to a call, once it exists, and the time that it took.
    pub(super) result: Option<(String, Amount)>,
    /// Whether it is a failure, or a fault.
    pub(super) is_error: bool,
}

/// A cycle of waits that closed: each task waits for the next, and the last for the first.
pub(super) struct Closed {
    pub(super) at: Moment,
    pub(super) tids: Vec<Tid>,
}

/// Bytes that a task sent and another received: the rows of both transfers, and how many. Or the message of a
/// mailbox, without bytes.
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: usize,
}

/// What a row is about. The page has the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Call,
    Spawned,
    Console,
    Device,
    Exited,
    Injected,
    /// A fault of the network.
    Fault,
    Deadlocked,
    /// An access to a shared value.
    Accessed,
    /// A message of a mailbox that is taken.
    Mail,
}

impl Lane {
    pub(super) fn is_kernel(&self) -> bool {
        self.tid.is_kernel()
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.exit, Some(Exit::Failed(_) | Exit::Faulted(_)))
    }

    /// The place of its end among the words for ends: well, failed, faulted, killed, not ended.
    pub(super) fn fate(&self) -> usize {
        match self.exit {
            Some(Exit::Done) => 0,
            Some(Exit::Failed(_)) => 1,
            Some(Exit::Faulted(_)) => 2,
            Some(Exit::Killed) => 3,
            None => 4,
        }
    }

    /// The row of the task's last call, if the table has it.
    pub(super) fn call<'a>(&self, rows: &'a mut [Row]) -> Option<&'a mut Row> {
        let row = rows.get_mut(self.row?)?;
        (row.kind == Kind::Call).then_some(row)
    }
}

impl Row {
    /// Whether it is a failure of a task: a picture has a cross there.
    pub(super) fn is_cross(&self) -> bool {
        self.is_error && !matches!(self.kind, Kind::Fault | Kind::Deadlocked)
    }
}

impl Timeline {
    pub(super) fn nothing(&self, window: &Window) -> String {
        let is_all = window.from.is_none() && window.to.is_none();
        let why = match (&*window.tasks, &*self.unknown) {
            ([], _) if is_all => "the recording has no task".to_string(),
            ([], _) => "no task was alive in this window".to_string(),
            (wanted, unknown) if wanted.len() == unknown.len() && !self.is_cut => {
                let names: Vec<String> = unknown.iter().map(|task| clean(task)).collect();
                format!("no task is called {}", names.join(" or "))
            }
            _ => "no selected task was alive in this window".to_string(),
        };
        format!("there is nothing to show: {why}")
    }

    /// The words for what a task waits for, or for what woke it.
    pub(super) fn said(&self, of: &impl ToString) -> String {
        let of = of.to_string();
        self.words.get(&of).map_or(of, |words| clean(words))
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|lane| !lane.is_kernel())
    }

    pub(super) fn lane(&self, tid: Tid) -> Option<usize> {
        self.lanes.binary_search_by_key(&tid, |lane| lane.tid).ok()
    }
}
