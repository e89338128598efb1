//! The last calls of each task as lines: what `where` and the screen show of it.

use std::time::Duration;

use serde_json::{Map, Value};
use trapline::{CallInfo, Ledger, Tid};

use super::brief::brief;

/// The number of calls kept for a task.
const CALLS: usize = 16;
/// The number of tasks for which calls are kept.
const TASKS: usize = 1 << 14;

/// Follows a kernel from its first event to its last.
pub(crate) fn ledger() -> Ledger {
    Ledger::keeping(CALLS).at_most(TASKS)
}

/// The last calls of a task as lines, the oldest first.
pub(crate) fn lines(recent: &Ledger, tid: Tid) -> Vec<Map<String, Value>> {
    let comm = recent.comm(tid);
    let calls = recent.calls(tid);
    calls.map(|call| line_of(recent, call, tid, comm)).collect()
}

fn line_of(recent: &Ledger, call: &CallInfo, tid: Tid, comm: &str) -> Map<String, Value> {
    let mut line = line(call.at, tid, comm);
    let message = match (call.answer(), call.blocked) {
        (Some(reply), _) => {
            let message = format!("{call} = {reply}");
            line.insert("reply".into(), brief(reply).into());
            message
        }
        (None, Some((on, _))) => {
            line.insert("blocked_on".into(), brief(recent.thing(on)).into());
            format!("{call} ...")
        }
        (None, None) => format!("{call} = ?"),
    };
    line.insert("call".into(), brief(call.to_string()).into());
    line.insert("message".into(), brief(message).into());
    line
}

/// The start of a line, with the fields of `--log-format json`.
pub(super) fn line(at: Duration, tid: Tid, comm: &str) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("at".into(), at.as_secs_f64().into());
    line.insert("tid".into(), u64::from(tid).into());
    line.insert("comm".into(), brief(comm.to_string()).into());
    line
}
