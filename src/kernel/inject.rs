//! Injection: faults at the trap, for tests. A closure of the host is asked at each call.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{Kernel, answer::Answer, held::Ticket, outcome::Outcome, task::WaitingOn};
use crate::{
    abi::{Exit, Inject, Nanos, Reply, SystemCall, Tid},
    log::Fact,
    panic::panic_message,
    sched::Runnable,
    trap::Payload,
};

/// Returns what to do to a call of this task, which is the nth call of its kind.
pub(super) type Injector = Box<dyn FnMut(Tid, SystemCall, u64) -> Option<Inject>>;

pub(super) struct Injection {
    injector: Injector,
    /// How many calls of each kind the kernel has seen, by the number of the kind.
    seen: BTreeMap<u8, u64>,
    /// The calls that the injector has seen before: the task, and the number of its trap.
    again: BTreeMap<Tid, u64>,
}

impl Injection {
    pub(super) fn new(injector: Injector) -> Self {
        Self {
            injector,
            seen: BTreeMap::new(),
            again: BTreeMap::new(),
        }
    }

    /// Forgets the calls of an earlier run.
    pub(super) fn reset(&mut self) {
        self.seen.clear();
        self.again.clear();
    }

    /// Forgets that an ended task was to repeat a call.
    #[cold]
    pub(super) fn ended(&mut self, tid: Tid) {
        self.again.remove(&tid);
    }

    /// Panics if it keeps a call of a task that has ended. For tests.
    pub(super) fn audit(&self, is_live: impl Fn(Tid) -> bool) {
        let stale: Vec<_> = self.again.keys().filter(|tid| !is_live(**tid)).collect();
        assert!(stale.is_empty(), "calls of ended tasks: {stale:?}");
    }

    /// Asks the injector. A panic becomes the message of the task's fault.
    fn ask(&mut self, tid: Tid, call: SystemCall) -> Result<Option<Inject>, String> {
        let nth = self.seen.entry(call.number()).or_default();
        *nth += 1;
        let nth = *nth;
        let asked = catch_unwind(AssertUnwindSafe(|| (self.injector)(tid, call, nth)));
        let inject = asked.map_err(|panic| {
            let message = panic_message(panic);
            format!("the injection panicked: {message}")
        })?;
        match inject {
            Some(Inject::Fail(kind)) if !call.is_io() => Err(format!(
                "an injection cannot fail {} ({kind}): it does not return an io::Result",
                call.name()
            )),
            inject => Ok(inject),
        }
    }
}

impl Kernel {
    /// Handles a call, after the injection.
    #[inline(always)]
    pub(super) fn perform(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        if self.frame.is_noted() {
            self.note_place(call);
            self.note_call(me, call);
        }
        if self.injection.is_some()
            && let Some(outcome) = self.inject(me, call)
        {
            return outcome;
        }
        self.handle(me, call)
    }

    /// Returns the outcome of a call that is not handled now.
    #[cold]
    fn inject(&mut self, me: Runnable, call: SystemCall) -> Option<Outcome> {
        let injection = self.injection.as_mut()?;
        let is_again = injection.again.remove(&me.tid) == Some(self.tasks[me].traps());
        if is_again || me.tid.is_daemon() {
            return None;
        }
        let inject = match injection.ask(me.tid, call) {
            Ok(inject) => inject?,
            Err(message) => return Some(self.end_at(me, call, Exit::Faulted(message))),
        };
        self.emit_at_once(me.tid, || Fact::Injected { inject });
        Some(match inject {
            Inject::Fail(kind) => {
                self.abandon(call);
                Answer::with(Reply::Io, Payload::Io(kind.into())).into()
            }
            Inject::Delay(span) => {
                let deadline = self.time_now().saturating_add(Nanos::from(span));
                let timer = self.timers.of(me).arm(deadline, me.slot);
                let ticket = Ticket::Delay(timer.1);
                self.held.hold(ticket, me, Some(call), &self.frame);
                self.block(me, WaitingOn::Delay(timer))
            }
            Inject::Kill => self.end_at(me, call, Exit::Killed),
        })
    }

    /// Ends the caller at a call that is not handled.
    fn end_at(&mut self, me: Runnable, call: SystemCall, exit: Exit) -> Outcome {
        self.poisoning(|kernel| kernel.abandon(call));
        self.end(me, exit);
        Outcome::Gone
    }

    /// Lets a call through that the injector has seen before: it was delayed, or it is a `send`
    /// that found no room and is made again. `traps` is the number of the call's trap.
    pub(super) fn pass_again(&mut self, task: Runnable, traps: u64) {
        if let Some(injection) = &mut self.injection {
            injection.again.insert(task.tid, traps);
        }
    }
}
