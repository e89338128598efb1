//! The bridge from the event log to `tracing`.
//!
//! Targets, all at level TRACE:
//!
//! - `trapline::kernel`: the life of tasks, and their system calls, one event for each that is
//!   answered at once and two for one that blocks.
//! - `trapline::sched`: whose turn it is, who woke whom, and when the clock moved.
//! - `trapline::device`: what went through which device.
//! - `trapline::console`: what was printed.
//!
//! Fields: `at` (seconds since boot), `tid`, `comm` (the task's name; a field called `name` would
//! be a second key of that name in JSON), `call`, `reply`, `blocked_on`, `parent`, `exit`, and the
//! message. Each task has a span `task` with `tid` and `comm`, which follows from its parent's, and
//! is entered while the task runs: a program's own `tracing` events stand between its traps. The
//! kernel has one, too, of tid 0. A task that failed or faulted is a WARN besides, whether or not
//! anybody traces. `docs/tracing.md` is the page for readers.

use std::collections::BTreeMap;

use tracing::{Level, Span, dispatcher, enabled, span::Id, trace, trace_span, warn};

use crate::{
    abi::{Exit, Nanos, Tid},
    event::{Answered, Call, Event, Fact, Log, Tracer},
};

/// Tells `tracing` that a task came to a bad end.
pub(crate) fn warn_of(tid: Tid, comm: &str, exit: &Exit) {
    warn!(target: "trapline::kernel", tid = u64::from(tid), comm, "task {tid} {comm:?} {exit}");
}

impl Log {
    /// Adds the bridge if a subscriber wants it.
    pub(crate) fn observe_by_tracing(&mut self) {
        if self.is_bridged() {
            return;
        }
        // Asked by its own span, since a filter may want spans alone, which say in which task a
        // program's own events happen, or choose by the fields of one. First, since a question
        // without an event after it (`enabled!`) leaves its answer with the layers that have
        // filters, for the next span that comes.
        let kernel = span(Tid::KERNEL, "kernel");
        let wanted = !kernel.is_disabled()
            || enabled!(target: "trapline::kernel", Level::TRACE)
            || enabled!(target: "trapline::sched", Level::TRACE)
            || enabled!(target: "trapline::device", Level::TRACE)
            || enabled!(target: "trapline::console", Level::TRACE);
        if wanted {
            self.add_bridge(Box::new(Bridge {
                tasks: BTreeMap::new(),
                kernel,
                entered: None,
            }));
        }
    }
}

struct Bridge {
    tasks: BTreeMap<Tid, Known>,
    /// The kernel's own span.
    kernel: Span,
    /// The span that is entered: of the task that runs.
    entered: Option<Id>,
}

/// What the bridge remembers of a task.
struct Known {
    span: Span,
    comm: String,
    /// The call that has no reply yet, as text.
    call: String,
    /// Whether that call was shown already, because it blocked.
    shown: bool,
}

fn span(tid: Tid, comm: &str) -> Span {
    trace_span!(target: "trapline::kernel", parent: None, "task", tid = u64::from(tid), comm)
}

impl Known {
    fn new(tid: Tid, comm: &str) -> Self {
        Self {
            span: span(tid, comm),
            comm: comm.to_string(),
            call: String::new(),
            shown: false,
        }
    }
}

/// An event about a task, within its span.
macro_rules! tell {
    ($target:literal, $event:expr, $task:expr, {$($fields:tt)*}, $($message:tt)+) => {
        trace!(
            target: $target,
            parent: &$task.span,
            at = $event.at.as_secs_f64(),
            tid = u64::from($event.tid),
            comm = $task.comm,
            $($fields)*
            $($message)+
        )
    };
}

impl Tracer for Bridge {
    fn event(&mut self, event: &Event<'_>) {
        self.leave();
        if let Fact::ClockJumped { from } = event.fact {
            let at = event.at.as_secs_f64();
            let _entered = self.kernel.enter();
            trace!(target: "trapline::sched", parent: &self.kernel, at, tid = 0, comm = "kernel",
                "slept from {:.6}", Nanos::from(from));
            return;
        }
        if let Fact::Spawned { name, parent } = event.fact {
            let task = Known::new(event.tid, name);
            if let Some(parent) = self.tasks.get(&parent) {
                task.span.follows_from(&parent.span);
            }
            self.tasks.insert(event.tid, task);
        }
        // A subscriber that came late has missed the names.
        let task = self
            .tasks
            .entry(event.tid)
            .or_insert_with(|| Known::new(event.tid, "?"));
        // Filters by span look at the span that is entered, not at that which is named.
        let entered = task.span.clone().entered();
        match &event.fact {
            Fact::Trapped { call, detail } => {
                task.call = Call(*call, *detail).to_string();
                task.shown = false;
            }
            Fact::Blocked { on } => {
                task.shown = true;
                tell!("trapline::kernel", event, task, { call = task.call, blocked_on = %on, },
                    "{} ...", task.call);
            }
            Fact::Replied { reply, detail } => {
                let reply = Answered(*reply, *detail);
                let dots = if task.shown { "... " } else { "" };
                tell!("trapline::kernel", event, task, { call = task.call, reply = %reply, },
                    "{dots}{} = {reply}", task.call);
                task.call.clear();
            }
            Fact::Exited { exit } => {
                if !task.call.is_empty() && !task.shown {
                    tell!("trapline::kernel", event, task, { call = task.call, }, "{} = ?", task.call);
                }
                tell!("trapline::kernel", event, task, { exit = %exit, }, "exited: {exit}");
            }
            Fact::Spawned {
                parent: Tid::KERNEL,
                ..
            } => {
                tell!("trapline::kernel", event, task, {}, "spawned by the host");
            }
            Fact::Spawned { parent, .. } => {
                let parent_tid = u64::from(*parent);
                tell!("trapline::kernel", event, task, { parent = parent_tid, }, "spawned by {parent}");
            }
            Fact::Reaped => tell!("trapline::kernel", event, task, {}, "reaped"),
            Fact::Resumed | Fact::Woken { .. } | Fact::ClockJumped { .. } => {
                tell!("trapline::sched", event, task, {}, "{}", event.fact);
            }
            Fact::DeviceIo { .. } => tell!("trapline::device", event, task, {}, "{}", event.fact),
            Fact::Console { .. } => tell!("trapline::console", event, task, {}, "{}", event.fact),
        }
        drop(entered);
        match event.fact {
            Fact::Resumed => self.enter(event.tid),
            Fact::Reaped => drop(self.tasks.remove(&event.tid)),
            _ => {}
        }
    }
}

impl Bridge {
    fn enter(&mut self, tid: Tid) {
        self.entered = self.tasks.get(&tid).and_then(|task| task.span.id());
        if let Some(id) = &self.entered {
            dispatcher::get_default(|dispatch| dispatch.enter(id));
        }
    }

    /// A task's turn is over as soon as the kernel has anything to say.
    fn leave(&mut self) {
        if let Some(id) = self.entered.take() {
            dispatcher::get_default(|dispatch| dispatch.exit(&id));
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.leave();
    }
}
