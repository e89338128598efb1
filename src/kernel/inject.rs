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

#[derive(Default)]
pub(super) struct Injection {
    injector: Option<Injector>,
    /// What to do to one trap, by its number in this task.
    into: Option<(Tid, u64, Inject)>,
    seen: BTreeMap<u8, u64>,
    /// Whether the injector looks at the numbers of calls.
    pub(super) counts: bool,
    /// The calls that the injector has seen before: the task, and the number of its trap.
    again: BTreeMap<Tid, u64>,
}

impl Injection {
    /// Without `counts`, the injector does not look at the numbers of calls.
    pub(super) fn set(&mut self, injector: Injector, counts: bool) {
        (self.injector, self.counts) = (Some(injector), counts);
    }

    pub(super) fn set_into(&mut self, tid: Tid, trap: u64, inject: Inject) {
        self.into = Some((tid, trap, inject));
    }

    pub(super) fn reset(&mut self) {
        self.seen.clear();
        self.again.clear();
    }

    /// Lets a call through that the injector has seen before: it was delayed, or it is a `send`
    /// that found no room and is made again. `traps` is the number of the call's trap.
    pub(super) fn pass_again(&mut self, tid: Tid, traps: u64) {
        self.again.insert(tid, traps);
    }

    #[cold]
    pub(super) fn ended(&mut self, tid: Tid) {
        self.again.remove(&tid);
    }

    pub(super) fn audit(&self, is_live: impl Fn(Tid) -> bool) {
        let stale: Vec<_> = self.again.keys().filter(|tid| !is_live(**tid)).collect();
        assert!(stale.is_empty(), "calls of ended tasks: {stale:?}");
    }

    /// Asks the injector. A panic becomes the message of the task's fault.
    fn ask(&mut self, tid: Tid, call: SystemCall, traps: u64) -> Result<Option<Inject>, String> {
        let nth = self.seen.entry(call.number()).or_default();
        *nth += 1;
        let into = self.into.filter(|into| (into.0, into.1) == (tid, traps));
        let asked = catch_unwind(AssertUnwindSafe(|| match (into, &mut self.injector) {
            (Some((.., inject)), _) => Some(inject),
            (None, Some(injector)) => injector(tid, call, *nth),
            (None, None) => None,
        }));
        let panicked = |panic| format!("the injection panicked: {}", panic_message(panic));
        match asked.map_err(panicked)? {
            Some(Inject::Fail(kind)) if !call.is_io() => Err(format!(
                "an injection cannot fail {} ({kind}): it does not return an io::Result",
                call.name()
            )),
            inject => Ok(inject),
        }
    }
}

impl Kernel {
    /// Returns the outcome of a call that is not handled now.
    #[cold]
    pub(super) fn inject(&mut self, me: Runnable, call: SystemCall) -> Option<Outcome> {
        let injection = self.injection.as_mut()?;
        let is_again = injection.again.remove(&me.tid) == Some(self.tasks[me].traps());
        if is_again || me.tid.is_daemon() {
            return None;
        }
        let traps = self.tasks[me].traps();
        let inject = match injection.ask(me.tid, call, traps) {
            Ok(inject) => inject?,
            Err(message) => {
                self.poisoning(|kernel| kernel.abandon(call));
                return Some(Outcome::Die(Exit::Faulted(message)));
            }
        };
        let has_timeout = self.tasks[me].timeouts().next().is_some();
        if matches!(inject, Inject::Cut | Inject::CutIn) && !has_timeout {
            return None;
        }
        self.emit_at_once(me.tid, || Fact::Injected { inject });
        Some(match inject {
            Inject::Fail(kind) => {
                self.abandon(call);
                Answer::with(Reply::Io, Payload::Io(kind.into())).into()
            }
            Inject::Delay(span) => {
                self.touch_clock();
                let deadline = Nanos::from(self.world.now()).saturating_add(Nanos::from(span));
                let timer = self.timers.of(me).arm(deadline, me.slot);
                let ticket = Ticket::Delay(timer.1);
                self.held.hold(ticket, me, Some(call), &self.frame);
                Outcome::Block(WaitingOn::Delay(timer))
            }
            Inject::Kill => {
                self.poisoning(|kernel| kernel.abandon(call));
                Outcome::Die(Exit::Killed)
            }
            Inject::KillIn | Inject::Cut | Inject::CutIn => Outcome::Injected(inject),
        })
    }
}
