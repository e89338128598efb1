//! The bridge from the event log to `tracing`.
//!
//! Targets, all at level TRACE:
//!
//! - `trapline::kernel`: the life of tasks, and their system calls. A call that is answered at once
//!   is one event, and a call that blocks is two. A timeout that replaces an answer is one more.
//! - `trapline::sched`: turns, wake-ups, and jumps of the clock.
//! - `trapline::device`: what went through which device.
//! - `trapline::console`: what was printed.
//!
//! `docs/tracing.md` lists the fields. `comm` is the task's name: a field called `name` would be a
//! second key of that name in JSON. Each task has a span `task` with `tid` and `comm`, which follows
//! from its parent's. It is entered once a turn, from the turn's first event to its last, and for
//! events about the task in turns of others: filters by span look at the span that is entered. No
//! task's span is entered while the host runs. The kernel has a span of tid 0. A task that fails or
//! faults is also a WARN, even without a tracer.

use std::{cell::Cell, collections::BTreeMap, fmt::Display, rc::Rc};

use tracing::{
    Dispatch, Level, Span, dispatcher, enabled, field::display, subscriber::NoSubscriber, trace,
    trace_span, warn,
};

use super::{Event, Ledger, Log, Topic, Tracer, dispatch::Entered, event::Step};
use crate::abi::{Exit, KernelId, Nanos, Place, QueueId, Reply, SystemCall, Tid};

pub(crate) fn warn_of(
    kernel: Option<KernelId>,
    tid: Tid,
    comm: &str,
    exit: &Exit,
    place: Option<&Place>,
) {
    let at = place.map_or_else(String::new, |place| format!(", at {place:#}"));
    let of = kernel.map_or_else(String::new, |kernel| format!("{kernel}:"));
    let kernel = kernel.map(u64::from);
    warn!(target: "trapline::kernel", kernel, tid = u64::from(tid), comm, "task {of}{tid} {comm:?} {exit}{at}");
}

/// Warns through `tracing` of a task whose turns stop the virtual clock.
pub(crate) fn warn_of_standstill(tid: Tid, comm: &str, at: Nanos) {
    warn!(
        target: "trapline::kernel",
        tid = u64::from(tid),
        comm,
        "task {tid} {comm:?} has had a million turns at {at}: the virtual clock stops while a task \
         is ready, and other tasks wait for the clock"
    );
}

/// Warns through `tracing` with a report of several lines, in which programs' text is quoted. The
/// field `report` lets a subscriber show the lines as such.
pub(crate) fn warn_report(report: &impl Display) {
    warn!(target: "trapline::kernel", report = true, "{report}");
}

impl Log {
    /// Adds the bridge if a subscriber wants it.
    pub(crate) fn observe_by_tracing(&mut self) {
        // Without a subscriber, `tracing` still has the interests of the last one.
        let has_subscriber = !dispatcher::get_default(Dispatch::is::<NoSubscriber>);
        if self.is_bridged() || !has_subscriber {
            return;
        }
        // A filter may enable only spans, or select by their fields, so a span is part of the
        // check. It comes first: layers with filters keep the result of an `enabled!` without an
        // event, and apply it to the next span.
        let kernel = span(Tid::KERNEL, "kernel");
        let wanted = !kernel.is_disabled()
            || enabled!(target: "trapline::kernel", Level::TRACE)
            || enabled!(target: "trapline::sched", Level::TRACE)
            || enabled!(target: "trapline::device", Level::TRACE)
            || enabled!(target: "trapline::console", Level::TRACE);
        if wanted {
            let entered = Rc::new(Entered::default());
            let bridge = Bridge {
                of: Rc::clone(self.kernel()),
                tasks: Ledger::new(),
                spans: BTreeMap::new(),
                kernel,
                entered: Rc::clone(&entered),
                has_turn: false,
            };
            self.add_bridge(Box::new(bridge), entered);
        }
    }
}

struct Bridge {
    /// The kernel's number, if others run beside it.
    of: Rc<Cell<Option<KernelId>>>,
    tasks: Ledger,
    spans: BTreeMap<Tid, Span>,
    kernel: Span,
    entered: Rc<Entered>,
    /// Whether the task whose span is entered has had a turn since.
    has_turn: bool,
}

fn span(tid: Tid, comm: &str) -> Span {
    // Displayed, so that a filter compares the name itself: the text of a string has quotes.
    trace_span!(target: "trapline::kernel", parent: None, "task", tid = u64::from(tid), comm = %comm)
}

/// An event about a task, within its span.
macro_rules! tell {
    ($target:literal, $of:expr, $event:expr, $span:expr, $comm:expr, {$($fields:tt)*}, $($message:tt)+) => {
        trace!(
            target: $target,
            parent: $span,
            at = $event.at.as_secs_f64(),
            kernel = $of,
            tid = u64::from($event.tid),
            comm = $comm,
            $($fields)*
            $($message)+
        )
    };
}

impl Tracer for Bridge {
    fn event(&mut self, event: &Event<'_>) {
        let (of, tid, fact) = (self.of.get().map(u64::from), event.tid, &event.fact);
        let is_next_turn = fact.is_resumed() && self.has_turn;
        if !self.entered.is(tid) || is_next_turn {
            self.leave();
        }
        self.tasks.event(event);
        let told = self.tasks.line(fact, tid);
        if fact.jumped_from().is_some() {
            let at = event.at.as_secs_f64();
            let _entered = self.kernel.enter();
            trace!(target: "trapline::sched", parent: &self.kernel, at, kernel = of, tid = 0, comm = "kernel",
                "{told}");
            return;
        }
        // A subscriber that came late has missed the names.
        let comm = self.tasks.comm(tid);
        let parent = fact.spawned().map(|(parent, _)| parent);
        if let Some(parent) = parent {
            let span = span(tid, comm);
            if let Some(parent) = self.spans.get(&parent) {
                span.follows_from(parent);
            }
            self.spans.insert(tid, span);
        }
        let span = self.spans.entry(tid).or_insert_with(|| span(tid, comm));
        // Filters by span look at the span that is entered, not at that which is named.
        self.entered.enter(tid, span);
        let last = self.tasks.last(tid);
        let op = last.map(|last| last.call.name());
        match fact.topic() {
            Topic::Call if fact.call().is_some() => {}
            Topic::Call => {
                let (answer, blocked_on) = (fact.answer(), fact.blocked_on());
                // A deferred call is none of the task's last one.
                let last = last.filter(|_| answer.is_some() || blocked_on.is_some());
                let call = last.map(|last| last.call);
                let op = call.map(SystemCall::name);
                let device = call.and_then(SystemCall::device).map(u64::from);
                let queue = call.and_then(SystemCall::queue).map(QueueId::number);
                let bytes = answer.and_then(|answer| match answer.0 {
                    Reply::Bytes(bytes) => Some(bytes),
                    _ => None,
                });
                let reply = told.answer().map(display);
                let blocked_on = blocked_on.map(|on| display(self.tasks.thing(on)));
                tell!("trapline::kernel", of, event, &*span, comm,
                    { call = last.map(ToString::to_string), op, device, queue, blocked_on, bytes, reply, }, "{told}");
            }
            Topic::Life => {
                let exit = fact.exit();
                if exit.is_some()
                    && let Some(call) = self.tasks.unseen(tid)
                {
                    let call = call.to_string();
                    tell!("trapline::kernel", of, event, &*span, comm, { call, }, "{call} = ?");
                }
                let parent = parent
                    .filter(|parent| *parent != Tid::KERNEL)
                    .map(u64::from);
                let exit = exit.map(display);
                tell!("trapline::kernel", of, event, &*span, comm, { parent, exit, }, "{told}");
            }
            Topic::Sched => {
                let woken_by = fact.woken_by();
                let op = op.filter(|_| woken_by.is_some());
                let woken_by = woken_by.map(display);
                tell!("trapline::sched", of, event, &*span, comm, { op, woken_by, }, "{told}");
            }
            Topic::Device => {
                let moved = fact.device_io();
                let device = moved.map(|(device, ..)| u64::from(device));
                let bytes = moved.and_then(|(_, _, result)| Some(result.ok()? as u64));
                tell!("trapline::device", of, event, &*span, comm, { op, device, bytes, }, "{told}");
            }
            Topic::Console => tell!("trapline::console", of, event, &*span, comm, {}, "{told}"),
        }
        match fact.step() {
            // The next event may be long after.
            Some(Step::Waits | Step::Ends) => self.leave(),
            Some(Step::Gone) => {
                self.leave();
                self.spans.remove(&tid);
            }
            _ => self.has_turn |= fact.is_resumed(),
        }
    }
}

impl Bridge {
    fn leave(&mut self) {
        self.has_turn = false;
        self.entered.leave();
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
