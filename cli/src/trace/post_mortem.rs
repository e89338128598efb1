//! The last traps of the tasks involved in a deadlock or a fault, from the run's recording.

use std::time::Duration;

use serde_json::json;
use trapline::{Exit, Ledger, Nanos, TaskInfo, Tid, Tracer, record::Recording};

use crate::output::{self, Log, aligned, clean};

/// The number of traps shown of a task.
const TRAPS: usize = 5;
/// The number of faulted tasks shown, and of waiting tasks.
const TASKS: usize = 10;

/// Shows the last traps of the tasks that faulted, and of those that wait for ever.
pub(crate) fn show(log: Log, recording: Recording, blocked: &[TaskInfo]) {
    let mut tasks = Ledger::keeping(TRAPS);
    let mut faults = 0;
    // Unreadable events are skipped; the recorder has already reported its failure.
    for event in recording.map_while(Result::ok) {
        tasks.event(&event);
        if let Some(exit @ Exit::Faulted(_)) = event.fact.exit()
            && faults < TASKS
        {
            faults += 1;
            let (tid, comm) = (event.tid, tasks.comm(event.tid));
            tell_last(log, &tasks, tid, comm);
            let place = event.place.as_ref();
            let place = place.map_or_else(String::new, |place| format!(", at {place:#}"));
            tell(
                log,
                event.at,
                tid,
                comm,
                &format!("exited: {exit}{place}"),
                "",
            );
        }
    }
    for task in blocked.iter().take(TASKS) {
        tell_last(log, &tasks, task.tid, &task.name);
    }
    let more = blocked.len().saturating_sub(TASKS);
    if more > 0 {
        log.note(&format!("and the traps of {more} more tasks"));
    }
}

/// Shows the last calls of a task.
fn tell_last(log: Log, tasks: &Ledger, tid: Tid, comm: &str) {
    if !log.is_json() {
        let comm = clean(comm);
        output::tell(&match tasks.last(tid) {
            Some(_) => format!("the last traps of task {tid} {comm}:\n"),
            None => format!("the last traps of task {tid} {comm} are not known\n"),
        });
    }
    for call in tasks.calls(tid) {
        let (message, reply) = match call.answer() {
            Some(reply) => (format!("{call} = {reply}"), reply),
            None if call.blocked.is_some() => (format!("{call} ..."), String::new()),
            None => (format!("{call} = ?"), String::new()),
        };
        tell(log, call.at, tid, comm, &message, &reply);
    }
}

/// A line in the format of `--trace`.
fn tell(log: Log, at: Duration, tid: Tid, comm: &str, message: &str, reply: &str) {
    if log.is_json() {
        return log.json(&json!({
            "at": at.as_secs_f64(),
            "tid": u64::from(tid),
            "comm": comm,
            "message": message,
            "reply": reply,
            "level": "TRACE",
            "target": "trapline::kernel",
            "post_mortem": true,
        }));
    }
    let at = format!("{:.6}", Nanos::from(at));
    let columns = log.columns(&at, tid, &clean(comm));
    let message = aligned(&clean(message), &clean(reply));
    output::tell(&format!("{columns}{message}\n"));
}
