//! Calls and events as lines: the last calls of each task, and the live trace. A trace is a tracer
//! that drops and counts the lines that a slow reader has no room for.

use std::{cell::RefCell, rc::Rc, time::Duration};

use serde_json::{Map, Value};
use trapline::{CallInfo, Event, Fact, KernelId, Ledger, Observer, Os, TaskState, Tid, Tracer};

use super::{
    entry::shown,
    protocol::{self, Answer, Filter},
    row::brief,
};
use crate::log;

/// The number of calls kept for a task.
const CALLS: usize = 16;
/// The number of tasks for which calls are kept.
const TASKS: usize = 1 << 14;
/// The size of a reader's buffer, in bytes.
const ROOM: usize = 1 << 20;

/// Follows a kernel from its first event to its last.
pub(crate) fn ledger() -> Rc<RefCell<Ledger>> {
    Rc::new(RefCell::new(Ledger::keeping(CALLS).at_most(TASKS)))
}

/// A tracer that keeps a ledger up to date.
pub(crate) fn follow(recent: &Rc<RefCell<Ledger>>) -> impl Tracer + use<> {
    Recent(Rc::clone(recent))
}

struct Recent(Rc<RefCell<Ledger>>);

impl Tracer for Recent {
    fn event(&mut self, event: &Event<'_>) {
        self.0.borrow_mut().event(event);
    }

    fn is_exact(&self) -> bool {
        false
    }
}

/// Has a tracer follow the kernel of a task from now on. First it is told which tasks there are, and what
/// they wait for. It misses what others do between the answer and the next turn of the task, if the answer
/// comes with the last call of a turn.
pub(crate) async fn join(os: &mut Os, mut tracer: impl Tracer + 'static) -> Observer {
    // No call comes between the tasks and what follows them.
    let (at, tasks) = (os.now().await, os.tasks().await);
    for task in &tasks {
        let mut tell = |fact| {
            tracer.event(&Event {
                at,
                tid: task.tid,
                fact,
                place: None,
            });
        };
        tell(Fact::Spawned {
            parent: task.parent,
            name: (&task.name).into(),
        });
        if let TaskState::Blocked { on, .. } = task.state {
            tell(Fact::Blocked { on });
        }
    }
    os.observe(tracer)
}

/// The last calls of a task as lines, the oldest first.
pub(crate) fn calls(
    kernel: Option<KernelId>,
    recent: &Ledger,
    tid: Tid,
) -> Vec<Map<String, Value>> {
    let line_of = |call: &CallInfo| {
        let text = call.to_string();
        let (message, more) = match (call.answer(), call.blocked) {
            (Some(reply), _) => (format!("{text} = {reply}"), Some(("reply", reply))),
            (None, Some((on, _))) => (
                format!("{text} ..."),
                Some(("blocked_on", recent.thing(on))),
            ),
            (None, None) => (format!("{text} = ?"), None),
        };
        let fields = [("call", text), ("message", message)];
        line(kernel, recent, call.at, tid, fields.into_iter().chain(more))
    };
    recent.calls(tid).map(line_of).collect()
}

/// A line with the fields of `--log-format json`, named as in the bridge to `tracing`.
fn line(
    kernel: Option<KernelId>,
    recent: &Ledger,
    at: Duration,
    tid: Tid,
    fields: impl IntoIterator<Item = (&'static str, String)>,
) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("at".into(), at.as_secs_f64().into());
    if let Some(kernel) = kernel.or(tid.kernel()) {
        line.insert("kernel".into(), u64::from(kernel).into());
    }
    line.insert("tid".into(), u64::from(tid.alone()).into());
    let comm = ("comm", recent.comm(tid).to_string());
    let fields = [comm].into_iter().chain(fields);
    line.extend(fields.map(|(name, text)| (name.to_string(), brief(text).into())));
    line
}

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
            protocol::write(&Answer::Lost { count }, to);
        }
    }

    /// Takes an answer of another monitor, as far as there is room. Returns whether more may come.
    pub(super) fn take(&mut self, answer: &Answer) -> bool {
        match answer {
            Answer::Lost { count } => self.lost += *count,
            Answer::Event(_) if self.lines.len() >= ROOM => self.lost += 1,
            Answer::Event(_) => protocol::write(answer, &mut self.lines),
            Answer::Error { .. } => return false,
            _ => {}
        }
        true
    }
}

pub(super) struct Feed {
    /// The kernel's number, if others run beside it.
    pub(super) kernel: Option<KernelId>,
    pub(super) filter: Filter,
    /// It receives each event before this tracer does. For a call that is answered at once, it also
    /// has the answer before this tracer has the call.
    pub(super) recent: Rc<RefCell<Ledger>>,
    pub(super) outbox: Rc<RefCell<Outbox>>,
}

impl Tracer for Feed {
    fn event(&mut self, event: &Event<'_>) {
        let recent = self.recent.borrow();
        if !self.filter.selects(self.kernel, event, &recent) {
            return;
        }
        let mut outbox = self.outbox.borrow_mut();
        if outbox.lines.len() >= ROOM {
            outbox.lost += 1;
            return;
        }
        for line in lines(self.kernel, event, &recent) {
            protocol::write(&Answer::Event(line), &mut outbox.lines);
        }
    }
}

/// An event as lines, the last of which is of the event itself. The ledger has it already.
pub(crate) fn lines(
    kernel: Option<KernelId>,
    event: &Event<'_>,
    recent: &Ledger,
) -> Vec<Map<String, Value>> {
    let mut lines = Vec::new();
    let target = ("target", event.fact.target().to_string());
    if let (Some(_), Some(call)) = (event.fact.exit(), recent.unseen(event.tid)) {
        let message = ("message", format!("{call} = ?"));
        let fields = [target.clone(), ("call", call.to_string()), message];
        lines.push(line(kernel, recent, event.at, event.tid, fields));
    }
    let fields = [target].into_iter().chain(describe(event, recent));
    let mut line = line(kernel, recent, event.at, event.tid, fields);
    if let Some((parent, _)) = event.fact.spawned()
        && parent != Tid::KERNEL
    {
        line.insert("parent".into(), u64::from(parent.alone()).into());
    }
    lines.push(line);
    lines
}

impl Filter {
    /// An event as lines, if it passes. The ledger has it already.
    pub(crate) fn lines(&self, event: &Event<'_>, recent: &Ledger) -> Vec<Map<String, Value>> {
        match self.selects(None, event, recent) {
            true => lines(None, event, recent),
            false => Vec::new(),
        }
    }

    fn selects(&self, kernel: Option<KernelId>, event: &Event<'_>, recent: &Ledger) -> bool {
        let (fact, tid) = (&event.fact, event.tid);
        let is_task = |wanted: &String| {
            is_task(wanted, tid, recent) || wanted.parse() == Ok(shown(kernel, tid))
        };
        let is_any = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|wanted| wanted == name)
        };
        let is_of_last = fact.blocked_on().is_some() || fact.answer().is_some();
        let is_of_call = is_of_last || fact.deferred().is_some();
        let call = || recent.call_of(event).map_or("", |call| call.name());
        log::is_shown(fact, !self.calls.is_empty(), self.sched, self.console)
            && (self.tasks.is_empty() || self.tasks.iter().any(is_task))
            && (!is_of_call || is_any(&self.calls, call()))
    }
}

/// Whether a text of the command line means this task: its number, or its name.
pub(crate) fn is_task(wanted: &str, tid: Tid, tasks: &Ledger) -> bool {
    match wanted.parse::<Tid>() {
        Ok(number) => tid == number,
        Err(_) => tasks.comm(tid) == wanted,
    }
}

/// The message and the fields.
fn describe(
    event: &Event<'_>,
    recent: &Ledger,
) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let (fact, last) = (&event.fact, recent.last(event.tid));
    let told = recent.line(fact, event.tid);
    let call = || last.map_or_else(|| "?".to_string(), ToString::to_string);
    let (call, more) = if let Some(on) = fact.blocked_on() {
        (Some(call()), Some(("blocked_on", recent.thing(on))))
    } else if let Some(reply) = told.answer() {
        (Some(call()), Some(("reply", reply)))
    } else {
        let exit = fact.exit().map(|exit| ("exit", exit.to_string()));
        (None, exit)
    };
    let call = call.map(|call| ("call", call));
    [("message", told.to_string())]
        .into_iter()
        .chain(call)
        .chain(more)
}
