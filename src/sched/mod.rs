//! Who runs next. The kernel says what happened to a task; a [`Policy`] says whose turn it is.

mod fifo;

use std::num::NonZeroU32;

pub use fifo::Fifo;

use crate::abi::Tid;

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

/// A task's place in the table. The first is nobody's: so the lack of one takes no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// A place that no task has.
    pub(crate) const LAST: Self = Self(NonZeroU32::MAX);

    pub(crate) fn new(index: usize) -> Self {
        let number = u32::try_from(index).ok().and_then(NonZeroU32::new);
        Self(number.expect("a kernel has fewer tasks than there are slots"))
    }

    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize
    }
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
