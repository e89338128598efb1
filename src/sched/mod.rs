//! Who runs next. The kernel says what happened to a task; a [`Policy`] says whose turn it is.

mod fifo;

use std::{
    cell::OnceCell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

pub use fifo::Fifo;

use crate::{
    abi::{Nanos, SystemCall, Tid},
    task::{Slot, contain, panic_message},
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
/// A policy that fails ends the run with [`Error::Policy`](crate::Error::Policy), and harms nothing
/// else: it panics, has a `len` that is not true, withholds every ready task, or gives more tasks than
/// it was handed. The kernel can be run on, first in, first out.
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

    /// How many tasks are on the queue; those that have ended count as long as it keeps them.
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

/// A policy, and the name of its type.
pub(crate) type Named = (&'static str, Box<dyn Policy>);

/// A policy, and turns of more than a tick.
pub(crate) struct Turns {
    name: &'static str,
    policy: Box<dyn Policy>,
    /// How many tasks it was handed and has not given back. It may have dropped some that have ended.
    handed: usize,
    /// What it did wrong. It is not asked again.
    failure: OnceCell<String>,
    /// How many ticks a turn has.
    quantum: u32,
    /// How many are left of the turn under way.
    left: u32,
    /// The task whose turn goes on.
    holder: Option<Runnable>,
}

impl Ready {
    pub(crate) fn new(policy: Option<Named>, quantum: u32) -> Self {
        let turns = (policy.is_some() || quantum > 1).then(|| {
            let (name, policy) = policy.unwrap_or_else(fifo);
            Box::new(Turns {
                name,
                policy,
                handed: 0,
                failure: OnceCell::new(),
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
            Some(turns) => turns.push(task, cause),
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
            Some(turns) => turns.len() + usize::from(turns.holder.is_some()),
        }
    }

    /// Whether a policy that says it has no task may have one.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.handed > 0)
    }

    /// Marks that the policy has failed, for this reason.
    pub(crate) fn blame(&self, why: &str) {
        if let Some(turns) = &self.turns {
            turns.blame(why);
        }
    }

    /// Puts first in, first out in the place of a policy that has failed, with nothing on its queue,
    /// and answers what the policy did wrong.
    #[inline(always)]
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        self.turns.as_mut()?.take_failure()
    }
}

impl Turns {
    #[inline(never)]
    fn requeue(&mut self, task: Runnable, call: SystemCall) {
        match call {
            SystemCall::Yield | SystemCall::Sleep(Nanos::ZERO) => {
                self.push(task, Cause::Yielded);
            }
            _ if self.left > 0 => self.holder = Some(task),
            _ => self.push(task, Cause::Preempted),
        }
    }

    #[inline(never)]
    fn pop(&mut self) -> Option<Runnable> {
        let task = match self.holder.take() {
            Some(holder) => holder,
            None => {
                self.left = self.quantum;
                self.choose()?
            }
        };
        self.left -= 1;
        Some(task)
    }

    fn remove(&mut self, task: Runnable) {
        if self.holder == Some(task) {
            self.holder = None;
        } else {
            self.ask("remove", |policy| policy.remove(task));
        }
    }

    /// No more than it was handed: what it says beyond that is not true.
    fn len(&self) -> usize {
        if self.failure.get().is_some() {
            return 0;
        }
        let len = catch_unwind(AssertUnwindSafe(|| self.policy.len()));
        self.heed("len", len).unwrap_or(0).min(self.handed)
    }

    fn push(&mut self, task: Runnable, cause: Cause) {
        self.handed += 1;
        self.ask("push", |policy| policy.push(task, cause));
    }

    /// Has the policy choose.
    fn choose(&mut self) -> Option<Runnable> {
        let task = self.ask("pop", |policy| policy.pop())?;
        match task {
            Some(_) if self.handed == 0 => {
                self.blame("gives more tasks than it was handed");
                return None;
            }
            Some(_) => self.handed -= 1,
            None if self.len() > 0 => self.blame("gives no task, though its `len` counts some"),
            None => self.handed = 0,
        }
        task
    }

    /// Asks the policy; it answers nothing once it has failed.
    fn ask<T>(&mut self, method: &str, ask: impl FnOnce(&mut dyn Policy) -> T) -> Option<T> {
        if self.failure.get().is_some() {
            return None;
        }
        let answer = catch_unwind(AssertUnwindSafe(|| ask(&mut *self.policy)));
        self.heed(method, answer)
    }

    fn heed<T>(&self, method: &str, answer: thread::Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(panic) => {
                self.blame(&format!("panicked in `{method}`: {}", panic_message(panic)));
                None
            }
        }
    }

    #[cold]
    fn blame(&self, why: &str) {
        // The first failure is the one to tell.
        let _ = self.failure.set(format!("the policy {} {why}", self.name));
    }

    fn take_failure(&mut self) -> Option<String> {
        let failure = self.failure.take()?;
        (self.handed, self.left, self.holder) = (0, 0, None);
        self.replace();
        Some(failure)
    }

    /// Puts another policy in its place; its destructor may panic.
    fn replace(&mut self) {
        let (name, policy) = fifo();
        self.name = name;
        let old = std::mem::replace(&mut self.policy, policy);
        contain(|| drop(old));
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.replace();
    }
}

fn fifo() -> Named {
    (std::any::type_name::<Fifo>(), Box::<Fifo>::default())
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Turns({}, {} handed, quantum {})",
            self.name, self.handed, self.quantum
        )
    }
}
