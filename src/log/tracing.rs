//! The bridge from the event log to `tracing`.
//!
//! Targets, all at level TRACE:
//!
//! - `trapline::kernel`: the life of tasks, and their system calls, one event for each that is
//!   answered at once and two for one that blocks; and one more where a timeout comes before the
//!   task has heard the answer.
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

use std::{collections::BTreeMap, fmt};

use tracing::{
    Dispatch, Level, Span, dispatcher, enabled, span::Id, subscriber::NoSubscriber, trace,
    trace_span, warn,
};

use super::{Answered, Call, Detail, Event, Fact, Log, Tracer};
use crate::abi::{Exit, Nanos, Tid};

/// An event in the words of a trace, the way `strace` shows it: what stands on its line after when
/// it was, and whom it is about.
#[derive(Clone, Copy)]
pub struct Told<'a> {
    /// What happened.
    pub fact: &'a Fact<'a>,
    /// The last call of the task: its [`Call`], or the text of one.
    pub call: &'a dyn fmt::Display,
    /// Whether that call has been shown already: it blocked, or has a reply.
    pub is_shown: bool,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call;
        match self.fact {
            Fact::Blocked { .. } => write!(f, "{call} ..."),
            Fact::Replied { reply, detail } => {
                let dots = if self.is_shown { "... " } else { "" };
                write!(f, "{dots}{call} = {}", Answered(*reply, *detail))
            }
            Fact::Deferred { call } => write!(f, "{} deferred", Call(*call, Detail::None)),
            Fact::Exited { exit } => write!(f, "exited: {exit}"),
            Fact::Spawned {
                parent: Tid::KERNEL,
                ..
            } => f.write_str("spawned by the host"),
            Fact::Spawned { parent, .. } => write!(f, "spawned by {parent}"),
            Fact::ClockJumped { from } => write!(f, "slept from {:.6}", Nanos::from(*from)),
            Fact::Trapped { .. }
            | Fact::Resumed
            | Fact::Woken { .. }
            | Fact::DeviceIo { .. }
            | Fact::Console { .. }
            | Fact::Reaped => self.fact.fmt(f),
        }
    }
}

impl fmt::Debug for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Told({self})")
    }
}

/// Tells `tracing` that a task came to a bad end.
pub(crate) fn warn_of(tid: Tid, comm: &str, exit: &Exit) {
    warn!(target: "trapline::kernel", tid = u64::from(tid), comm, "task {tid} {comm:?} {exit}");
}

impl Log {
    /// Adds the bridge if a subscriber wants it.
    pub(crate) fn observe_by_tracing(&mut self) {
        // Where there is no subscriber any more, `tracing` remembers what the last one wanted.
        let is_heard = !dispatcher::get_default(Dispatch::is::<NoSubscriber>);
        if self.is_bridged() || !is_heard {
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
    /// Its last call, as text.
    call: String,
    /// Whether that call was shown already: it blocked, or has a reply, which a timeout may come
    /// after.
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
        if let Fact::ClockJumped { .. } = event.fact {
            let at = event.at.as_secs_f64();
            let told = Told {
                fact: &event.fact,
                call: &"",
                is_shown: false,
            };
            let _entered = self.kernel.enter();
            trace!(target: "trapline::sched", parent: &self.kernel, at, tid = 0, comm = "kernel",
                "{told}");
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
        let told = Told {
            fact: &event.fact,
            call: &task.call,
            is_shown: task.shown,
        };
        // Filters by span look at the span that is entered, not at that which is named.
        let entered = task.span.clone().entered();
        match &event.fact {
            Fact::Trapped { .. } => {}
            Fact::Blocked { on } => {
                tell!("trapline::kernel", event, task, { call = task.call, blocked_on = %on, },
                    "{told}");
            }
            Fact::Replied { reply, detail } => {
                let reply = Answered(*reply, *detail);
                tell!("trapline::kernel", event, task, { call = task.call, reply = %reply, },
                    "{told}");
            }
            Fact::Exited { exit } => {
                if !task.call.is_empty() && !task.shown {
                    tell!("trapline::kernel", event, task, { call = task.call, }, "{} = ?", task.call);
                }
                tell!("trapline::kernel", event, task, { exit = %exit, }, "{told}");
            }
            Fact::Spawned { parent, .. } if *parent != Tid::KERNEL => {
                let parent = u64::from(*parent);
                tell!("trapline::kernel", event, task, { parent, }, "{told}");
            }
            Fact::Spawned { .. } | Fact::Reaped | Fact::Deferred { .. } => {
                tell!("trapline::kernel", event, task, {}, "{told}");
            }
            Fact::Resumed | Fact::Woken { .. } | Fact::ClockJumped { .. } => {
                tell!("trapline::sched", event, task, {}, "{told}");
            }
            Fact::DeviceIo { .. } => tell!("trapline::device", event, task, {}, "{told}"),
            Fact::Console { .. } => tell!("trapline::console", event, task, {}, "{told}"),
        }
        match event.fact {
            Fact::Trapped { call, detail } => {
                task.call = Call(call, detail).to_string();
                task.shown = false;
            }
            Fact::Blocked { .. } | Fact::Replied { .. } => task.shown = true,
            _ => {}
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

#[cfg(test)]
mod tests {
    use tracing::subscriber::set_default;

    use super::*;

    fn is_bridged() -> bool {
        let mut log = Log::default();
        log.observe_by_tracing();
        log.is_bridged()
    }

    #[test]
    fn a_subscriber_that_is_gone_is_told_nothing() {
        let subscriber = tracing_subscriber::fmt().with_max_level(Level::TRACE);
        let guard = set_default(subscriber.finish());
        assert!(is_bridged());
        drop(guard);
        assert!(!is_bridged());
    }
}
