//! The kernel's ready queue: first in, first out without indirection, or a policy and a quantum.

use std::fmt;

use super::{Cause, Fifo, Policy, Runnable};
use crate::abi::{Nanos, SystemCall};

/// How many tasks, with their programs, are more than the nearer caches hold.
const CROWD: usize = 4096;

/// The kernel's ready queue.
#[derive(Debug)]
pub(crate) struct Ready {
    /// First in, first out, a tick at a time: what nearly every run uses, without indirection.
    plain: Fifo,
    /// What is used instead.
    turns: Option<Box<Turns>>,
    /// Daemons, which no policy sees.
    daemons: Fifo,
}

/// A policy, and turns of more than a tick.
struct Turns {
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
            daemons: Fifo::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, task: Runnable, cause: Cause) {
        match &mut self.turns {
            _ if task.tid.is_daemon() => self.daemons.push(task, cause),
            None => self.plain.push(task, cause),
            Some(turns) => turns.policy.push(task, cause),
        }
    }

    /// Puts a task back that has made a call which does not block: behind the others, unless its
    /// turn goes on.
    #[inline(always)]
    pub(crate) fn requeue(&mut self, task: Runnable, call: SystemCall) {
        match &mut self.turns {
            Some(turns) if !task.tid.is_daemon() => turns.requeue(task, call),
            _ => self.push(task, Cause::Preempted),
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        match &mut self.turns {
            None => self.plain.pop(),
            Some(turns) => turns.pop(),
        }
    }

    /// The tasks that come next, where there are so many that it pays to prefetch them.
    #[inline(always)]
    pub(crate) fn ahead(&self) -> &[Runnable] {
        match self.plain.ahead() {
            few if few.len() < CROWD => &[],
            many => many,
        }
    }

    pub(crate) fn pop_daemon(&mut self) -> Option<Runnable> {
        self.daemons.pop()
    }

    pub(crate) fn daemons(&self) -> usize {
        self.daemons.len()
    }

    pub(crate) fn remove(&mut self, task: Runnable) {
        match &mut self.turns {
            _ if task.tid.is_daemon() => self.daemons.remove(task),
            None => self.plain.remove(task),
            Some(turns) => turns.remove(task),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tasks are ready, daemons apart.
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
