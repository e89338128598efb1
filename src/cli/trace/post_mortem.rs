//! After a deadlock or a fault: the last traps of those concerned, from a recording of the run.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde_json::json;
use tracing::Level;

use super::tasks::Tasks;
use crate::{
    Answered, Call, Exit, Fact, TaskInfo, Tid,
    cli::log::{self, Log, clean},
    record::{OwnedEvent, Recording},
};

/// How many traps are shown of a task.
const TRAPS: usize = 5;
/// Of how many tasks they are shown that faulted, and that wait.
const TASKS: usize = 10;

/// A trap, and what became of it.
struct Trap {
    trapped: OwnedEvent,
    has_blocked: bool,
    replied: Option<OwnedEvent>,
}

/// The last traps of each task.
#[derive(Default)]
struct Last(BTreeMap<Tid, VecDeque<Trap>>);

/// Shows the last traps of the tasks that faulted, and of those that wait for ever.
pub(in crate::cli) fn show(log: Log, recording: Recording, blocked: &[TaskInfo]) {
    let mut tasks = Tasks::default();
    let mut last = Last::default();
    let mut faults = 0;
    // What cannot be read is not shown; the recording has had its own word about it.
    for owned in recording.map_while(Result::ok) {
        let event = owned.borrow();
        tasks.meet(&event);
        if let Fact::Exited { exit } = event.fact
            && let Exit::Faulted(_) = exit
            && faults < TASKS
        {
            faults += 1;
            let comm = tasks.comm(event.tid);
            last.tell(log, event.tid, comm);
            tell(
                log,
                event.at,
                event.tid,
                comm,
                &format!("exited: {exit}"),
                "",
            );
        }
        last.follow(&owned);
        tasks.follow(owned);
    }
    for task in blocked.iter().take(TASKS) {
        last.tell(log, task.tid, &task.name);
    }
    let more = blocked.len().saturating_sub(TASKS);
    if more > 0 {
        log.note(&format!("and the traps of {more} more tasks"));
    }
}

impl Last {
    fn follow(&mut self, owned: &OwnedEvent) {
        let event = owned.borrow();
        if let Fact::Trapped { .. } = event.fact {
            let traps = self.0.entry(event.tid).or_default();
            if traps.len() == TRAPS {
                traps.pop_front();
            }
            traps.push_back(Trap {
                trapped: owned.clone(),
                has_blocked: false,
                replied: None,
            });
        }
        let Some(trap) = self.0.get_mut(&event.tid).and_then(VecDeque::back_mut) else {
            return;
        };
        match event.fact {
            Fact::Blocked { .. } => trap.has_blocked = true,
            Fact::Replied { .. } => trap.replied = Some(owned.clone()),
            Fact::Reaped => drop(self.0.remove(&event.tid)),
            _ => {}
        }
    }

    fn tell(&self, log: Log, tid: Tid, comm: &str) {
        let traps = self.0.get(&tid);
        if !log.is_json() {
            let comm = clean(comm);
            log::tell(&match traps {
                Some(_) => format!("the last traps of task {tid} {comm}:\n"),
                None => format!("the last traps of task {tid} {comm} are not known\n"),
            });
        }
        for trap in traps.into_iter().flatten() {
            trap.tell(log, comm);
        }
    }
}

impl Trap {
    fn tell(&self, log: Log, comm: &str) {
        let event = self.trapped.borrow();
        let Fact::Trapped { call, detail } = event.fact else {
            return;
        };
        let call = Call(call, detail);
        let replied = self.replied.as_ref().map(OwnedEvent::borrow);
        let (message, reply) = match replied.map(|event| event.fact) {
            Some(Fact::Replied { reply, detail }) => {
                let reply = Answered(reply, detail).to_string();
                (format!("{call} = {reply}"), reply)
            }
            _ if self.has_blocked => (format!("{call} ..."), String::new()),
            _ => (format!("{call} = ?"), String::new()),
        };
        tell(log, event.at, event.tid, comm, &message, &reply);
    }
}

/// A line as of `--trace`.
fn tell(log: Log, at: Duration, tid: Tid, comm: &str, message: &str, reply: &str) {
    let target = "trapline::kernel";
    let mut line = serde_json::Map::new();
    for (key, value) in [
        ("at", json!(at.as_secs_f64())),
        ("tid", json!(u64::from(tid))),
        ("comm", json!(comm)),
        ("message", json!(message)),
        ("reply", json!(reply)),
    ] {
        line.insert(key.into(), value);
    }
    if !log.is_json() {
        return log::tell(&(log.line(target, Level::TRACE, &line) + "\n"));
    }
    line.insert("level".into(), Level::TRACE.as_str().into());
    line.insert("target".into(), target.into());
    line.insert("post_mortem".into(), true.into());
    log.json(&line);
}
