//! The order of turns. The kernel reports which tasks become ready; a [`Policy`] chooses the next.
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | [`Policy`], and what it receives: [`Runnable`], [`Cause`] |
//! | `fifo.rs` | [`Fifo`]: first in, first out |
//! | `random.rs` | [`Random`]: each turn is drawn |
//! | `pct.rs` | [`Pct`]: random priorities that change a few times |

mod fifo;
mod pct;
mod random;

use std::num::NonZeroU32;

pub use fifo::Fifo;
pub use pct::Pct;
pub use random::Random;

use crate::abi::Tid;

/// A task on a queue: its number, and its slot in the task map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Runnable {
    /// The task's number, for decisions of a policy.
    pub tid: Tid,
    pub(crate) slot: Slot,
}

impl Runnable {
    /// No task: the host.
    pub(crate) const HOST: Self = Self {
        tid: Tid::KERNEL,
        slot: Slot::LAST,
    };
}

/// A task's slot in the task map. No task has slot 0, so `Option<Slot>` needs no extra memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// A slot that no task has.
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

/// Why a task is put on the ready queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The task is new.
    Spawned,
    /// The task was blocked, and has been woken.
    Woken,
    /// The task yielded.
    Yielded,
    /// The task has used up its quantum.
    Preempted,
}

/// A scheduling policy: the ready queue, and the choice of the next task.
///
/// The kernel pushes every task that becomes ready, exactly once, and pops one for each turn. A
/// policy never receives a running or blocked task. It must decide only on the calls of these
/// methods and on its own state, such as a seed. Then a run can be repeated.
///
/// A policy fails if it panics, if `len` is wrong, if it withholds every ready task, or if it
/// returns more tasks than it received. A failure ends the run with
/// [`Error::Policy`](crate::Error::Policy), and has no other effect. The kernel can run again,
/// first in, first out.
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
    /// Adds a task that has become ready.
    fn push(&mut self, task: Runnable, cause: Cause);

    /// Removes and returns the task whose turn is next.
    fn pop(&mut self) -> Option<Runnable>;

    /// Removes a task that was killed. A policy may also keep the task: the kernel skips tasks that
    /// have ended.
    fn remove(&mut self, task: Runnable);

    /// Returns the number of tasks on the queue, including ended tasks that it keeps.
    fn len(&self) -> usize;

    /// Returns whether no task is ready.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts the policy's random numbers anew. [`Kernel::reset`](crate::Kernel::reset) calls it,
    /// after it has taken all tasks from the policy. A policy without random numbers ignores it.
    fn reseed(&mut self, _seed: u64) {}
}
