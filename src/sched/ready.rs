//! The kernel's ready queue: first in, first out without indirection, or a policy and a quantum.

use std::fmt;

use super::{Cause, Fifo, Policy, Runnable};
use crate::abi::{Nanos, SystemCall};

/// The kernel's ready queue.
#[derive(Debug)]
pub(crate) struct Ready {
    /// First in, first out, a tick at a time: what nearly every run uses, without indirection.
    plain: Fifo,
    /// What is used instead.
    turns: Option<Box<Turns>>,
}

/// A policy, and turns of more than a tick.
pub(crate) struct Turns {
    policy: Box<dyn Policy>,
    /// How many ticks a turn has.
    quantum: u32,
    /// How many are left of the turn under way.
    left: u32,
    /// The task whose turn goes on.
    holder: Option<Runnable>,
}

impl Ready {
    pub(crate) fn new(policy: Option<Box<dyn Policy>>, quantum: u32) -> Self {
        let turns = (policy.is_some() || quantum > 1).then(|| {
            let policy = policy.unwrap_or_else(|| Box::<Fifo>::default());
            Box::new(Turns {
                policy,
                quantum: quantum.max(1),
                left: 0,
                holder: None,
            })
        });
        Self {
            plain: Fifo::default(),
            turns,
        }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, task: Runnable, cause: Cause) {
        match &mut self.turns {
            None => self.plain.push(task, cause),
            Some(turns) => turns.policy.push(task, cause),
        }
    }

    /// Puts a task back that has made a call which does not block: to the others, unless its turn
    /// goes on.
    #[inline(always)]
    pub(crate) fn requeue(&mut self, task: Runnable, call: SystemCall) {
        match &mut self.turns {
            None => self.plain.push(task, Cause::Preempted),
            Some(turns) => turns.requeue(task, call),
        }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.turns.is_none()
    }

    pub(crate) fn take_pass(&mut self) -> (Vec<Runnable>, usize) {
        self.plain.take_pass()
    }

    pub(crate) fn resume_pass(&mut self, pass: Vec<Runnable>, taken: usize) {
        self.plain.resume_pass(pass, taken);
    }

    #[inline(always)]
    pub(crate) fn next_pass(&mut self, pass: &mut Vec<Runnable>) {
        self.plain.next_pass(pass);
    }

    #[inline(always)]
    pub(crate) fn push_all(&mut self, tasks: &[Runnable]) {
        self.plain.push_all(tasks);
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        match &mut self.turns {
            None => self.plain.pop(),
            Some(turns) => turns.pop(),
        }
    }

    pub(crate) fn remove(&mut self, task: Runnable) {
        match &mut self.turns {
            None => self.plain.remove(task),
            Some(turns) => turns.remove(task),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        match &self.turns {
            None => self.plain.len(),
            Some(turns) => turns.policy.len() + usize::from(turns.holder.is_some()),
        }
    }
}

impl Turns {
    #[inline(never)]
    fn requeue(&mut self, task: Runnable, call: SystemCall) {
        match call {
            SystemCall::Yield | SystemCall::Sleep(Nanos::ZERO) => {
                self.policy.push(task, Cause::Yielded);
            }
            _ if self.left > 0 => self.holder = Some(task),
            _ => self.policy.push(task, Cause::Preempted),
        }
    }

    #[inline(never)]
    fn pop(&mut self) -> Option<Runnable> {
        let task = match self.holder.take() {
            Some(holder) => holder,
            None => {
                self.left = self.quantum;
                self.policy.pop()?
            }
        };
        self.left -= 1;
        Some(task)
    }

    fn remove(&mut self, task: Runnable) {
        if self.holder == Some(task) {
            self.holder = None;
        } else {
            self.policy.remove(task);
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Turns({} ready, quantum {})",
            self.policy.len(),
            self.quantum
        )
    }
}
