//! The tracers of a kernel, and containment of their panics.

use std::{
    cell::{Cell, RefCell},
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};

use tracing::{dispatcher, span::Id};

use super::{Event, Fact, Tracer};
use crate::{
    abi::{KernelId, Place, Tid},
    panic::{Panic, contain, panic_message},
};

/// The tracers of a kernel. With none, an event costs a branch.
#[derive(Default)]
pub(crate) struct Log {
    tracers: Vec<Attached>,
    /// Set if one of them leads, or led, to `tracing`.
    bridge: Option<Rc<Entered>>,
    is_exact: bool,
    /// The kernel's number, if others run beside it. The bridge has it, too.
    kernel: Rc<Cell<Option<KernelId>>>,
    /// The last time that was read for the log.
    now: Duration,
}

/// The number of the host's tracers.
const HOST: u64 = 0;

struct Attached {
    /// The number of a tracer that a task has attached, or [`HOST`].
    number: u64,
    is_exact: bool,
    tracer: Box<dyn Tracer>,
}

impl Log {
    /// Has the kernel's number shown before those of its tasks.
    pub(crate) fn show_kernel(&self, kernel: KernelId) {
        self.kernel.set(Some(kernel));
    }

    /// The number of the kernel, if it is shown before the numbers of tasks: others run beside it.
    pub(crate) fn shown(&self) -> Option<KernelId> {
        self.kernel.get()
    }

    pub(crate) fn kernel(&self) -> &Rc<Cell<Option<KernelId>>> {
        &self.kernel
    }

    pub(crate) fn add(&mut self, tracer: Box<dyn Tracer>) {
        self.attach(HOST, tracer);
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

    /// Drops a tracer that a task has attached. Those of the host stay.
    pub(crate) fn detach(&mut self, number: u64) {
        let mut tracers = self.tracers.iter();
        let place = tracers.position(|at| at.number == number && number != HOST);
        let tracer = place.map(|place| self.tracers.remove(place));
        self.count_exact();
        drop(tracer);
    }

    fn count_exact(&mut self) {
        self.is_exact = self.tracers.iter().any(|tracer| tracer.is_exact);
    }

    pub(crate) fn add_bridge(&mut self, bridge: Box<dyn Tracer>, entered: Rc<Entered>) {
        self.bridge = Some(entered);
        self.add(bridge);
    }

    pub(crate) fn is_bridged(&self) -> bool {
        self.bridge.is_some()
    }

    /// Leaves the span of the task that had the last turn: the host's code follows.
    pub(crate) fn leave_span(&self) {
        if let Some(entered) = &self.bridge {
            entered.leave();
        }
    }

    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        !self.tracers.is_empty()
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Emits a fact with the time of [`Log::set_clock`].
    #[inline(always)]
    pub(crate) fn emit(&mut self, tid: Tid, fact: Fact<'_>) {
        self.emit_at(tid, fact, None);
    }

    /// The same, with a place in the source. The event is built by the caller, so that it is never
    /// copied. Most facts are known there to own nothing: then no code drops the event.
    #[inline(always)]
    pub(crate) fn emit_at(&mut self, tid: Tid, fact: Fact<'_>, place: Option<Place>) {
        let owns = place.is_some() || fact.may_own();
        let event = ManuallyDrop::new(Event {
            at: self.now,
            tid,
            fact,
            place,
        });
        self.send(&event);
        if owns {
            drop(ManuallyDrop::into_inner(event));
        }
    }

    /// Passes an event of another kernel on.
    pub(crate) fn pass(&mut self, event: &Event<'_>) {
        if self.is_observed() {
            self.send(event);
        }
    }

    /// One tracer is the usual case. It needs neither a loop nor the registers of one.
    #[cold]
    fn send(&mut self, event: &Event<'_>) {
        let [Attached { tracer, .. }] = &mut self.tracers[..] else {
            return self.send_to_each(event);
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| tracer.event(event))) {
            self.switch_off(0, panic);
        }
    }

    #[inline(never)]
    fn send_to_each(&mut self, event: &Event<'_>) {
        self.tell_each(|tracer| tracer.event(event));
    }

    fn tell_each(&mut self, mut tell: impl FnMut(&mut dyn Tracer)) {
        let mut next = 0;
        while let Some(Attached { tracer, .. }) = self.tracers.get_mut(next) {
            match catch_unwind(AssertUnwindSafe(|| tell(&mut **tracer))) {
                Ok(()) => next += 1,
                Err(panic) => self.switch_off(next, panic),
            }
        }
    }

    pub(crate) fn before_sleep(&mut self) {
        self.tell_each(|tracer| tracer.before_sleep());
    }

    pub(crate) fn set_clock(&mut self, now: Duration) {
        self.now = now;
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

impl Drop for Log {
    fn drop(&mut self) {
        for tracer in self.tracers.drain(..) {
            contain(|| drop(tracer));
        }
    }
}

/// The task whose span is entered.
#[derive(Default)]
pub(crate) struct Entered(RefCell<Option<(Tid, Id)>>);

impl Entered {
    pub(super) fn is(&self, tid: Tid) -> bool {
        self.0.borrow().as_ref().is_some_and(|(of, _)| *of == tid)
    }

    /// Enters the span of a task, unless one is entered.
    pub(super) fn enter(&self, tid: Tid, span: &tracing::Span) {
        if self.0.borrow().is_none()
            && let Some(id) = span.id()
        {
            dispatcher::get_default(|dispatch| dispatch.enter(&id));
            self.0.replace(Some((tid, id)));
        }
    }

    pub(super) fn leave(&self) {
        if let Some((_, id)) = self.0.take() {
            dispatcher::get_default(|dispatch| dispatch.exit(&id));
        }
    }
}
