//! The order of turns. The kernel reports which tasks become ready; a [`Policy`] chooses the next.
//! Where tasks compute ([`Os::compute`](crate::Os::compute)), it also gives slices, and says which
//! task interrupts which.
//!
//! Each policy has a file, after its name. `kept.rs` has what several of them keep for each task, and
//! `table.rs` their names and parameters: [`POLICIES`].

mod fair;
mod fifo;
mod kept;
mod lottery;
mod mlfq;
mod pct;
mod priority;
mod random;
mod round_robin;
mod shortest;
mod stride;
mod surw;
mod table;

use std::num::NonZeroU32;

pub use fair::Fair;
pub use fifo::Fifo;
pub use lottery::Lottery;
pub use mlfq::{Allotment, Mlfq};
pub use pct::Pct;
pub use priority::Priority;
pub use random::{Draws, Random};
pub use round_robin::RoundRobin;
pub use shortest::{Sjf, Stcf};
pub use stride::Stride;
pub(crate) use surw::Counting;
pub use surw::{Surw, TurnCounts};
pub use table::{Make, NamedPolicy, POLICIES};

use crate::abi::{KernelId, Nanos, Tid};

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

    /// The most kernels whose tasks a policy can have together.
    pub(crate) const KERNELS: usize = 32;

    /// The slots for one of each kernel.
    const ROOM: usize = 2 * Self::KERNELS;

    /// Returns the task as one of several kernels: policies tell tasks by their slots, too.
    pub(crate) fn beside(self, kernel: KernelId) -> Self {
        Self {
            tid: self.tid.beside(kernel),
            slot: Slot::new(self.slot.index() * Self::ROOM + kernel.index()),
        }
    }

    /// Returns the kernel of a task among several, and the task as it has it.
    pub(crate) fn alone(self) -> Option<(KernelId, Self)> {
        let slot = Slot::new((self.slot.index() / Self::ROOM).max(1));
        let tid = self.tid.alone();
        Some((self.tid.kernel()?, Self { tid, slot }))
    }

    /// Returns a kernel among several, as if it was a task.
    pub(crate) fn kernel(kernel: KernelId) -> Self {
        Self {
            tid: Tid::KERNEL.beside(kernel),
            slot: Slot::new(kernel.index() + 1),
        }
    }
}

/// A task's slot in the task map. No task has slot 0, so `Option<Slot>` needs no extra memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// A slot that no task has.
    pub(crate) const LAST: Self = Self(NonZeroU32::MAX);

    /// The slot of a timer that is disarmed. No task has it.
    pub(crate) const NONE: Self = Self(NonZeroU32::new(u32::MAX - 1).expect("it is not zero"));

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

/// What a policy knows of a task.
///
/// A computation is the work that a task asks for with [`Os::compute`](crate::Os::compute).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// The task.
    pub task: Runnable,
    /// Its name.
    pub name: &'a str,
    /// The task that spawned it; [`Tid::KERNEL`] for the host's tasks and for orphans.
    pub parent: Tid,
    /// Its tickets; 100 unless they were set.
    pub tickets: u32,
    /// Its nice value, from -20 to 19; 0 unless it was set.
    pub nice: i32,
    /// Its priority; 0 unless it was set. If the policy [inherits](Policy::inherits) priorities, at
    /// least that of each task that waits for one of its locks.
    pub priority: i32,
    /// What is left of its computation; zero if it has asked for none.
    pub length: Nanos,
    /// The time.
    pub now: Nanos,
    /// What it has just computed: until its slice ended, or until another task interrupted it.
    pub computed: Nanos,
    /// Whether it keeps its place before the other tasks, and the rest of its slice. It has asked
    /// for a computation in its turn, or another task interrupted it before its slice ended.
    pub keeps_place: bool,
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

    /// Returns whether the policy looks at the facts that [`Policy::push_with`] receives. The kernel
    /// asks once. If not, it calls [`Policy::push`] instead, and a turn takes a tenth less time. By
    /// default it does.
    fn wants_facts(&self) -> bool {
        true
    }

    /// Adds a task that has become ready, with what the kernel knows of it. By default it calls
    /// [`Policy::push`]. The kernel calls only this method, unless the policy
    /// [wants no facts](Policy::wants_facts).
    fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        self.push(facts.task, cause);
    }

    /// Learns that a task has left its processor after it has computed
    /// [`facts.computed`](Facts::computed). If the task is still ready, [`Policy::push_with`]
    /// follows; if it is over with its computation, the task goes on to its next call.
    fn charge(&mut self, _facts: &Facts<'_>) {}

    /// Returns how long a task may compute before it goes back to the policy;
    /// [`Nanos::FOREVER`], the default, for no limit. The kernel asks when a computation starts or
    /// continues.
    fn slice(&mut self, _facts: &Facts<'_>) -> Nanos {
        Nanos::FOREVER
    }

    /// Returns whether a task that becomes ready interrupts one that computes. By default none does.
    /// The kernel asks when every processor is taken, before it adds the task.
    fn preempts(&self, _ready: &Facts<'_>, _running: &Facts<'_>) -> bool {
        false
    }

    /// Learns that the length or the priority of a task on the queue has changed.
    fn changed(&mut self, _facts: &Facts<'_>) {}

    /// Learns that a task has ended.
    fn ended(&mut self, _task: Runnable) {}

    /// Does what is due at an instant, such as a priority boost, and returns the next instant at
    /// which something is. The kernel calls it first at boot. By default nothing is ever due. Before
    /// the call every computation is interrupted.
    fn alarm(&mut self, _now: Nanos) -> Nanos {
        Nanos::FOREVER
    }

    /// Returns whether no task may replace it by [`Os::set_policy`](crate::Os::set_policy). That of a
    /// search stays: the search chooses the order. By default a policy does not stay.
    fn stays(&self) -> bool {
        false
    }

    /// Returns whether a task that holds a lock has the priority of the tasks that wait for it.
    fn inherits(&self) -> bool {
        false
    }
}

/// Writes methods of a policy that ask the policy within.
macro_rules! forward {
    ($([$($mutable:tt)?] $method:ident($($name:ident: $Type:ty),*) $(-> $Answer:ty)?;)*) => {
        $(fn $method(&$($mutable)? self $(, $name: $Type)*) $(-> $Answer)? {
            (**self).$method($($name),*)
        })*
    };
}

impl Policy for Box<dyn Policy> {
    forward! {
        [mut] push(task: Runnable, cause: Cause);
        [mut] pop() -> Option<Runnable>;
        [mut] remove(task: Runnable);
        [] len() -> usize;
        [mut] reseed(seed: u64);
        [] wants_facts() -> bool;
        [mut] push_with(cause: Cause, facts: &Facts<'_>);
        [mut] charge(facts: &Facts<'_>);
        [mut] slice(facts: &Facts<'_>) -> Nanos;
        [] preempts(ready: &Facts<'_>, running: &Facts<'_>) -> bool;
        [mut] changed(facts: &Facts<'_>);
        [mut] ended(task: Runnable);
        [mut] alarm(now: Nanos) -> Nanos;
        [] stays() -> bool;
        [] inherits() -> bool;
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;

    /// Just above a power of two, where a room that doubles has the most to spare.
    const TASKS: u64 = 16_500;

    /// Facts of a task that computes for a long time.
    fn facts(number: u64) -> Facts<'static> {
        Facts {
            task: Runnable {
                tid: number.into(),
                slot: Slot::new(number as usize),
            },
            name: "task",
            parent: Tid::KERNEL,
            tickets: 1 + number as u32 % 1000,
            nice: number as i32 % 20,
            priority: number as i32 % 100,
            length: Nanos(1_000_000_000 + number % 1000),
            now: Nanos::ZERO,
            computed: Nanos::ZERO,
            keeps_place: false,
        }
    }

    /// Gives so many tasks their slices.
    fn turns(policy: &mut dyn Policy, count: u64) {
        for _ in 0..count {
            let task = policy.pop().expect("every task is ready");
            let mut facts = facts(task.tid.into());
            facts.computed = policy.slice(&facts).min(facts.length);
            policy.charge(&facts);
            policy.push_with(Cause::Preempted, &facts);
        }
    }

    #[test]
    fn every_policy_needs_at_most_64_bytes_for_each_task() {
        for row in &POLICIES {
            let make = row.read("", &|_| None).expect("it needs no parameters");
            let name = row.name;
            let mut made = None;
            let grown = measure(|| {
                let mut policy = make(1);
                for number in 1..=TASKS {
                    policy.push_with(Cause::Spawned, &facts(number));
                }
                made = Some(policy);
            });
            let mut policy = made.expect("it was made");
            let mut bytes = grown.bytes_current;
            let mut most = bytes;
            // Every task has some slices. Some tasks fall to a lower level before the others.
            for _ in 0..12 {
                bytes += measure(|| turns(&mut *policy, TASKS / 4)).bytes_current;
                most = most.max(bytes);
            }
            assert_eq!(policy.len() as u64, TASKS, "{name}");
            let each = most as u64 / TASKS;
            assert!(each <= 64, "{name} has {each} bytes for each task");
        }
    }
}
