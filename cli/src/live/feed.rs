//! The live trace: a tracer that formats the lines of `--trace` for one reader. It drops and counts
//! the lines that a slow reader has no room for.

use std::{cell::RefCell, rc::Rc};

use serde_json::{Map, Value};
use trapline::{CallInfo, Event, Ledger, Tid, Tracer};

use super::{
    brief::brief,
    protocol::{Answer, Filter},
    recent,
};
use crate::log;

/// The size of a reader's buffer, in bytes.
const ROOM: usize = 1 << 20;

/// The reader's buffer.
#[derive(Default)]
pub(super) struct Outbox {
    lines: Vec<u8>,
    lost: u64,
}

impl Outbox {
    /// Moves the buffer's content to `to`.
    pub(super) fn drain(&mut self, to: &mut Vec<u8>) {
        to.append(&mut self.lines);
        if self.lost > 0 {
            let count = std::mem::take(&mut self.lost);
            Answer::Lost { count }.write(to);
        }
    }
}

pub(super) struct Feed {
    pub(super) filter: Filter,
    /// It receives each event before this tracer does. For a call that is answered at once, it also
    /// has the answer before this tracer has the call.
    pub(super) recent: Rc<RefCell<Ledger>>,
    pub(super) outbox: Rc<RefCell<Outbox>>,
}

impl Tracer for Feed {
    fn event(&mut self, event: &Event<'_>) {
        let filter = &self.filter;
        let calls_only = !filter.calls.is_empty();
        if !log::is_shown(&event.fact, calls_only, filter.sched, filter.console) {
            return;
        }
        let recent = self.recent.borrow();
        let comm = recent.comm(event.tid);
        if !filter.selects(event.tid, comm) {
            return;
        }
        let fact = &event.fact;
        let is_of_call = fact.blocked_on().is_some() || fact.answer().is_some();
        if is_of_call && !filter.has(recent.last(event.tid)) {
            return;
        }
        let mut outbox = self.outbox.borrow_mut();
        if outbox.lines.len() >= ROOM {
            outbox.lost += 1;
            return;
        }
        if let (Some(_), Some(call)) = (fact.exit(), recent.unseen(event.tid)) {
            let line = line(event, comm, |line| {
                let call = call.to_string();
                let message = format!("{call} = ?");
                line.insert("call".into(), brief(call).into());
                message
            });
            Answer::Event(line).write(&mut outbox.lines);
        }
        let line = line(event, comm, |line| describe(event, &recent, line));
        Answer::Event(line).write(&mut outbox.lines);
    }
}

impl Filter {
    fn selects(&self, tid: Tid, comm: &str) -> bool {
        (self.tids.is_empty() || self.tids.contains(&tid.into()))
            && (self.comms.is_empty() || self.comms.iter().any(|wanted| wanted == comm))
    }

    fn has(&self, call: Option<&CallInfo>) -> bool {
        let name = call.map(|call| call.call.name());
        self.calls.is_empty() || name.is_some_and(|name| self.calls.iter().any(|call| call == name))
    }
}

fn line(
    event: &Event<'_>,
    comm: &str,
    describe: impl FnOnce(&mut Map<String, Value>) -> String,
) -> Map<String, Value> {
    let mut line = recent::line(event.at, event.tid, comm);
    line.insert("target".into(), event.fact.target().into());
    let message = describe(&mut line);
    line.insert("message".into(), brief(message).into());
    line
}

/// The message and the fields, named as in the bridge to `tracing`.
fn describe(event: &Event<'_>, recent: &Ledger, line: &mut Map<String, Value>) -> String {
    let fact = &event.fact;
    let told = recent.line(fact, event.tid);
    let message = told.to_string();
    let call = || match recent.last(event.tid) {
        Some(call) => brief(call.to_string()),
        None => "?".to_string(),
    };
    if let Some(on) = fact.blocked_on() {
        line.insert("blocked_on".into(), brief(recent.thing(on)).into());
        line.insert("call".into(), call().into());
    } else if let Some(reply) = told.answer() {
        line.insert("reply".into(), brief(reply).into());
        line.insert("call".into(), call().into());
    } else if let Some((parent, _)) = fact.spawned() {
        if parent != Tid::KERNEL {
            line.insert("parent".into(), u64::from(parent).into());
        }
    } else if let Some(exit) = fact.exit() {
        line.insert("exit".into(), brief(exit.to_string()).into());
    }
    message
}
