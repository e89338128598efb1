//! Round robin.

use std::{collections::VecDeque, time::Duration};

use super::{Cause, Facts, Policy, Runnable, kept::Slices};
use crate::abi::Nanos;

/// Round robin: each task computes for a time slice and then goes behind the others. (OSTEP,
/// chapter 7.)
///
/// ```
/// use std::time::Duration;
/// use trapline::{Kernel, Os, SimWorld, sched::RoundRobin};
///
/// let policy = RoundRobin::new(Duration::from_secs(1));
/// let mut kernel = Kernel::builder().world(SimWorld::new(0)).policy(policy).build()?;
/// for (name, length) in [("long", 3), ("short", 1)] {
///     kernel.spawn(name, async move |os: &mut Os| {
///         os.compute(Duration::from_secs(length)).await;
///         let now = os.now().await;
///         writeln!(os, "{name} {now:?}");
///     })?;
/// }
/// kernel.run()?;
/// assert_eq!(kernel.take_console(), "short 2s\nlong 4s\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RoundRobin {
    ready: VecDeque<Runnable>,
    slices: Slices,
}

impl RoundRobin {
    /// Returns the policy with this time slice, which is at least a nanosecond.
    #[must_use]
    pub fn new(quantum: Duration) -> Self {
        Self {
            ready: VecDeque::new(),
            slices: Slices::of_length(quantum),
        }
    }
}

impl Policy for RoundRobin {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.push_back(task);
    }

    fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        if self.slices.go_on(facts) {
            self.ready.push_front(facts.task);
        } else {
            self.push(facts.task, cause);
        }
    }

    fn pop(&mut self) -> Option<Runnable> {
        self.ready.pop_front()
    }

    /// Keeps the task: the kernel skips it.
    fn remove(&mut self, _: Runnable) {}

    fn len(&self) -> usize {
        self.ready.len()
    }

    fn charge(&mut self, facts: &Facts<'_>) {
        self.slices.charge(facts);
    }

    fn slice(&mut self, facts: &Facts<'_>) -> Nanos {
        self.slices.left(facts.task)
    }

    fn ended(&mut self, task: Runnable) {
        self.slices.forget(task);
    }
}
