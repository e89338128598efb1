//! A policy that draws the next task.

use rand_pcg::{
    Pcg64Mcg,
    rand_core::{Rng, SeedableRng},
};

use super::{Cause, Policy, Runnable};
use crate::abi::Tid;

/// Each turn goes to a ready task that is drawn with equal probability. The seed determines all
/// draws, and so the schedule.
///
/// ```
/// use trapline::{Kernel, Os, SimWorld, sched::Random};
///
/// let schedule = |seed| -> Result<String, Box<dyn std::error::Error>> {
///     let builder = Kernel::builder().world(SimWorld::new(0)).policy(Random::new(seed));
///     let mut kernel = builder.build()?;
///     for name in ["a", "b", "c"] {
///         kernel.spawn(name, async move |os: &mut Os| for _ in 0..3 {
///             write!(os, "{name}");
///             os.yield_now().await;
///         })?;
///     }
///     kernel.run()?;
///     Ok(kernel.take_console())
/// };
/// assert_eq!(schedule(7)?, schedule(7)?);
/// assert_ne!(schedule(7)?, schedule(8)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Random {
    /// In an order that depends on pushes and draws alone, so that a seed repeats a run.
    ready: Vec<Runnable>,
    /// The killed tasks that are still in `ready`. One search removes all of them before the next
    /// draw: a search for each would take seconds for a hundred thousand.
    killed: Vec<Tid>,
    draws: Draws,
}

impl Random {
    /// Returns the policy with the draws of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            ready: Vec::new(),
            killed: Vec::new(),
            draws: Draws::new(seed),
        }
    }

    #[cold]
    fn remove_killed(&mut self) {
        let mut killed = std::mem::take(&mut self.killed);
        killed.sort_unstable();
        self.ready
            .retain(|task| killed.binary_search(&task.tid).is_err());
    }
}

impl Policy for Random {
    #[inline]
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.push(task);
    }

    #[inline]
    fn pop(&mut self) -> Option<Runnable> {
        if !self.killed.is_empty() {
            self.remove_killed();
        }
        if self.ready.len() < 2 {
            return self.ready.pop();
        }
        let at = self.draws.below(self.ready.len() as u64);
        // `swap_remove` moves the last as a whole, and waits for the stores of its parts.
        let last = self.ready.pop()?;
        let place = self.ready.get_mut(at as usize);
        Some(place.map_or(last, |place| std::mem::replace(place, last)))
    }

    fn remove(&mut self, task: Runnable) {
        self.killed.push(task.tid);
    }

    fn len(&self) -> usize {
        self.ready.len().saturating_sub(self.killed.len())
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn reseed(&mut self, seed: u64) {
        self.draws = Draws::new(seed);
    }
}

/// The random numbers of a policy: a sequence apart from that of the world with the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    numbers: Pcg64Mcg,
    /// The next number. It is drawn ahead, so that the choice of a task does not wait for it.
    next: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        let mut numbers = Pcg64Mcg::seed_from_u64(!seed);
        let next = numbers.next_u64();
        Self { numbers, next }
    }

    pub(crate) fn next(&mut self) -> u64 {
        std::mem::replace(&mut self.next, self.numbers.next_u64())
    }

    /// Returns a number below `end`. (Lemire's multiplication; its bias is below `end` / 2^64.)
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Slot;

    fn task(number: usize) -> Runnable {
        Runnable {
            tid: (number as u64).into(),
            slot: Slot::new(number),
        }
    }

    /// A kill between two draws has the same effect whether the task left before or after others
    /// arrived.
    #[test]
    fn the_draws_after_kills_are_those_without_the_killed() {
        let (mut with, mut without) = (Random::new(7), Random::new(7));
        for number in 1..100 {
            with.push(task(number), Cause::Spawned);
            if number % 3 != 0 {
                without.push(task(number), Cause::Spawned);
            }
        }
        for number in (3..100).step_by(3).rev() {
            with.remove(task(number));
        }
        for number in 100..110 {
            with.push(task(number), Cause::Woken);
            without.push(task(number), Cause::Woken);
        }
        assert_eq!(with.len(), 76);
        for left in (0..76).rev() {
            assert_eq!(with.pop(), without.pop());
            assert_eq!((with.len(), without.len()), (left, left));
        }
        assert_eq!((with.pop(), without.pop()), (None, None));
    }
}
