//! The screen before a call: the limits of its task, and injections.

use std::{io, rc::Rc};

use super::{
    Kernel,
    answer::Answer,
    limits::{Bounds, TRAPS, charge},
    outcome::Outcome,
    queues::MessageQueue,
};
use crate::{
    abi::{Direction, End, Errno, Exit, Interest, Limits, SystemCall},
    log::Fact,
    sched::Runnable,
    trap::{Payload, Program, screened},
};

impl Kernel {
    /// Has each trap screened, if there is an injection.
    pub(super) fn screen_traps(&self) {
        self.frame.set_screened(self.injection.is_some());
    }

    /// Returns the outcome of a trap that is not handled now.
    #[cold]
    #[inline(never)]
    pub(super) fn screen(&mut self, me: Runnable, call: SystemCall) -> Option<Outcome> {
        self.screen_traps();
        self.refuse(me, call).or_else(|| self.inject(me, call))
    }

    /// Refuses a trap that the limits of its task do not allow.
    fn refuse(&mut self, me: Runnable, call: SystemCall) -> Option<Outcome> {
        let trap = self.tasks[me].traps();
        let (bounds, denied) = self.bounds.screen(me.tid, trap)?;
        let spent = bounds.take(TRAPS, 1, &self.frame).err();
        let spent = spent.map(|most| format!("the limit of {most} traps is used up"));
        if let Some(why) = denied.or(spent) {
            return Some(self.fault_at(call, why));
        }
        let Some(lacks) = self.lacks(&bounds, call) else {
            let why = self.charge_message(&bounds, call).err()?;
            return Some(self.fault_at(call, why));
        };
        if !call.can_be_denied() {
            return Some(self.fault_at(call, lacks));
        }
        match self.frame.take() {
            Some(Payload::Program(new)) => self.drop_apart(new.program),
            Some(payload) => self.frame.put(payload),
            None => {}
        }
        self.abandon(call);
        if !call.is_io() {
            return Some(Errno::Denied.into());
        }
        let errno = Errno::Denied;
        let error = Denied { why: lacks, errno };
        let error = Payload::Io(io::Error::new(io::ErrorKind::PermissionDenied, error));
        Some(Answer::with(errno.into(), error).into())
    }

    fn fault_at(&mut self, call: SystemCall, why: String) -> Outcome {
        self.poisoning(|kernel| kernel.abandon(call));
        Outcome::Die(Exit::Faulted(why))
    }

    /// Says which call the limits lack that this one needs, if any: itself, or that of a source.
    fn lacks(&self, bounds: &Bounds, call: SystemCall) -> Option<String> {
        let mut needs = vec![call];
        if let Some(payload) = self.frame.take() {
            if let Payload::Interests(sources) = &payload {
                needs.extend(sources.iter().map(|source| call_of(*source)));
            }
            self.frame.put(payload);
        }
        let lacking = needs.into_iter().find(|needed| !bounds.allow(*needed))?;
        Some(denial(call, lacking))
    }

    /// Takes the bytes of the message that the call puts.
    fn charge_message(&self, bounds: &Rc<Bounds>, call: SystemCall) -> Result<(), String> {
        let (SystemCall::Put(queue) | SystemCall::TryPut(queue)) = call else {
            return Ok(());
        };
        let store = self.queues.get(queue).and_then(MessageQueue::messages);
        if let (Some(store), Some(message)) = (store, self.frame.word())
            && store.size() > 0
        {
            let charge = charge(bounds, store.size() as u64, &self.frame);
            let charge = charge
                .map_err(|most| format!("a put exceeds the limit of {most} bytes in queues"))?;
            store.charge(message, charge);
        }
        Ok(())
    }

    /// Returns whether the limits of the task deny a call without a trap. Those of destructors are
    /// never denied: what a task holds must come back. The others fault the task at its trap.
    #[cold]
    #[inline(never)]
    pub(super) fn is_denied_deferred(&mut self, me: Runnable, call: SystemCall) -> bool {
        let (SystemCall::Observe(_) | SystemCall::Fault) = call else {
            return false;
        };
        let bounds = self.bounds.bounds(me.tid);
        let is_denied = bounds.is_some_and(|bounds| !bounds.allow(call));
        if is_denied {
            self.bounds.deny(me.tid, denial(call, call));
        }
        is_denied
    }

    // ---- births and ends

    /// Prepares the birth of a task within the limits of its parent, and its own if it has any. Returns
    /// its program.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] if they have no room; the program is dropped.
    #[inline(always)]
    pub(super) fn confine(
        &mut self,
        parent: Runnable,
        limits: Option<Box<Limits>>,
        program: Program,
    ) -> Result<Program, Errno> {
        if limits.is_none() && self.bounds.are_none() {
            return Ok(program);
        }
        self.confine_apart(parent, limits, program)
    }

    #[cold]
    #[inline(never)]
    fn confine_apart(
        &mut self,
        parent: Runnable,
        limits: Option<Box<Limits>>,
        program: Program,
    ) -> Result<Program, Errno> {
        match self.bounds.prepare(parent.tid, limits, &self.frame) {
            Ok(true) => {
                let denies_faults = self.bounds.denies_newborn(SystemCall::Fault);
                Ok(screened(program, &self.frame, denies_faults))
            }
            Ok(false) => Ok(program),
            Err(errno) => {
                self.drop_apart(program);
                Err(errno)
            }
        }
    }

    /// Puts the new task within the bounds that were prepared for it, if any; or gives its room back, if
    /// it was not made.
    #[inline(always)]
    pub(super) fn confined(&mut self, child: Result<Runnable, Errno>) {
        if !self.bounds.are_none() {
            self.confined_apart(child);
        }
    }

    #[cold]
    #[inline(never)]
    fn confined_apart(&mut self, child: Result<Runnable, Errno>) {
        let tid = child.ok().map(|child| child.tid);
        if let (Some(limits), Some(tid)) = (self.bounds.enter(tid, &self.frame), tid) {
            self.emit(tid, || Fact::Limited {
                limits: limits.to_string().into(),
            });
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn leave_bounds(&mut self, me: Runnable) {
        self.bounds.leave(me.tid, &self.frame);
    }
}

/// Why a call was denied, for those that return an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct Denied {
    why: String,
    #[source]
    errno: Errno,
}

/// The call that a source of a select needs.
fn call_of(source: Interest) -> SystemCall {
    match source {
        Interest::Exit(tid) => SystemCall::WaitTask(tid),
        Interest::After(span) => SystemCall::Sleep(span),
        Interest::At(instant) => SystemCall::SleepUntil(instant),
        Interest::Device(device, Direction::Read) => SystemCall::ReadWait(device),
        Interest::Device(device, Direction::Write) => SystemCall::WriteWait(device),
        Interest::Queue(queue, End::Get) => SystemCall::Get(queue),
        Interest::Queue(queue, End::Put) => SystemCall::Put(queue),
        Interest::Permits(queue, _) => SystemCall::Take(queue),
    }
}

fn denial(call: SystemCall, lacking: SystemCall) -> String {
    let (name, lacks, class) = (call.name(), lacking.name(), lacking.class());
    let class = format!("{class:?}").to_uppercase();
    format!("{name} is denied: the limits of the task lack {lacks}, of Calls::{class}")
}
