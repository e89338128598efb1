//! Who runs next. The kernel says what happened to a task; a [`Policy`] says whose turn it is.

mod fifo;

use std::fmt;

pub use fifo::Fifo;

use crate::{
    abi::{Nanos, SystemCall, Tid},
    task::Slot,
};

/// A task on a queue: its number, and the slot in the task map where it is found without a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Runnable {
    /// The task's number: what a policy may look at.
    pub tid: Tid,
    pub(crate) slot: Slot,
}

impl Runnable {
    /// No task at all: the host.
    pub(crate) const HOST: Self = Self {
        tid: Tid::KERNEL,
        slot: Slot::LAST,
    };
}

/// Why a task is put on the ready queue: what a policy learns about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It is new.
    Spawned,
    /// What it was blocked on has come.
    Woken,
    /// It gave up the rest of its turn.
    Yielded,
    /// It has used up its quantum.
    Preempted,
}

/// A scheduling policy: the ready queue, and the decision who leaves it next.
///
/// The kernel hands over every task that becomes ready, exactly once, and takes one for each turn.
/// A policy never sees a task that is running or blocked. It decides on what it has been told and
/// on its own state alone (a seed, say), so that a run can be repeated.
///
/// ```
/// use std::time::Duration;
/// use trapline::{Cause, Kernel, Os, Policy, Runnable};
///
/// /// The youngest first: unfair on purpose.
/// #[derive(Default)]
/// struct Lifo(Vec<Runnable>);
///
/// impl Policy for Lifo {
///     fn push(&mut self, task: Runnable, _: Cause) { self.0.push(task) }
///     fn pop(&mut self) -> Option<Runnable> { self.0.pop() }
///     fn remove(&mut self, task: Runnable) { self.0.retain(|other| *other != task) }
///     fn len(&self) -> usize { self.0.len() }
/// }
///
/// let mut kernel = Kernel::builder().policy(Lifo::default()).build()?;
/// for name in ["first", "second"] {
///     kernel.spawn(name, async move |os: &mut Os| writeln!(os, "{name}"))?;
/// }
/// kernel.run()?; // prints "second", then "first"
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Policy {
    /// A task has become ready.
    fn push(&mut self, task: Runnable, cause: Cause);

    /// Whose turn it is: takes that task off the queue.
    fn pop(&mut self) -> Option<Runnable>;

    /// A ready task was killed. A policy may also leave it where it is: the kernel passes over
    /// tasks that have ended.
    fn remove(&mut self, task: Runnable);

    /// How many tasks are on the queue.
    fn len(&self) -> usize;

    /// Whether no task is ready.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

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
