//! The tracers of a kernel: who is told of each event, and containment of those that panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use super::{Event, Fact, Tracer};
use crate::{
    abi::{Reply, SystemCall, Tid},
    panic::{Panic, contain, panic_message},
};

/// The tracers of a kernel. With none, an event costs a branch.
#[derive(Default)]
pub(crate) struct Log {
    tracers: Vec<Attached>,
    /// Whether one of them leads, or led, to `tracing`.
    is_bridged: bool,
    /// Whether one of them wants each event's own time.
    is_exact: bool,
    /// What the clock said when it was last read for the log.
    now: Duration,
}

struct Attached {
    /// Of those that tasks have attached; 0 of the host's.
    number: u64,
    is_exact: bool,
    tracer: Box<dyn Tracer>,
}

impl Log {
    pub(crate) fn add(&mut self, tracer: Box<dyn Tracer>) {
        self.attach(0, tracer);
    }

    pub(crate) fn attach(&mut self, number: u64, tracer: Box<dyn Tracer>) {
        let asked = catch_unwind(AssertUnwindSafe(|| tracer.is_exact()));
        self.tracers.push(Attached {
            number,
            is_exact: matches!(asked, Ok(true)),
            tracer,
        });
        self.count_exact();
        if let Err(panic) = asked {
            self.switch_off(self.tracers.len() - 1, panic);
        }
    }

    /// Drops a tracer that a task has attached.
    pub(crate) fn detach(&mut self, number: u64) {
        let place = self.tracers.iter().position(|at| at.number == number);
        let tracer = place.map(|place| self.tracers.remove(place));
        self.count_exact();
        drop(tracer);
    }

    fn count_exact(&mut self) {
        self.is_exact = self.tracers.iter().any(|tracer| tracer.is_exact);
    }

    pub(crate) fn add_bridge(&mut self, bridge: Box<dyn Tracer>) {
        self.is_bridged = true;
        self.add(bridge);
    }

    pub(crate) fn is_bridged(&self) -> bool {
        self.is_bridged
    }

    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        !self.tracers.is_empty()
    }

    /// Whether the time of each event is asked for.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Tells of a fact that follows at once from the one before, and has its time: a clock is read
    /// once in a turn, not three times.
    #[inline(always)]
    pub(crate) fn emit_at_once<'a>(&mut self, tid: Tid, fact: impl FnOnce() -> Fact<'a>) {
        if self.is_observed() && !tid.is_daemon() {
            let (at, fact) = (self.now, fact());
            self.tell_event(&Event { at, tid, fact });
        }
    }

    /// Tells of a call that was answered at once, with nothing beside either.
    pub(crate) fn tell_trap(&mut self, tid: Tid, call: SystemCall, reply: Reply) {
        let at = self.now;
        self.tell(|tracer| tracer.trap(at, tid, call, reply));
    }

    /// Takes the time for what follows at once from something else than a fact.
    pub(crate) fn set_clock(&mut self, now: Duration) {
        self.now = now;
    }

    #[cold]
    fn tell_event(&mut self, event: &Event<'_>) {
        self.tell(|tracer| tracer.event(event));
    }

    fn tell(&mut self, what: impl Fn(&mut dyn Tracer)) {
        let mut at = 0;
        while at < self.tracers.len() {
            let tracer = &mut self.tracers[at].tracer;
            match catch_unwind(AssertUnwindSafe(|| what(&mut **tracer))) {
                Ok(()) => at += 1,
                Err(panic) => self.switch_off(at, panic),
            }
        }
    }

    /// Drops a tracer that panicked; its destructor may panic as well.
    fn switch_off(&mut self, at: usize, panic: Panic) {
        let message = panic_message(panic);
        tracing::warn!(target: "trapline::kernel", "a tracer panicked and is switched off: {message}");
        let tracer = self.tracers.remove(at);
        self.count_exact();
        contain(|| drop(tracer));
    }
}
