//! A policy that draws the next task.

use rand_pcg::{
    Pcg64Mcg,
    rand_core::{Rng, SeedableRng},
};

use super::{Cause, Policy, Runnable};

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
    ready: Vec<Runnable>,
    draws: Draws,
}

impl Random {
    /// Returns the policy with the draws of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            ready: Vec::new(),
            draws: Draws::new(seed),
        }
    }
}

impl Policy for Random {
    #[inline]
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.push(task);
    }

    #[inline]
    fn pop(&mut self) -> Option<Runnable> {
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
        // In the order of the others, so that the draws of a run do not depend on the search.
        self.ready.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.ready.len()
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
pub(crate) struct Draws(Pcg64Mcg);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(!seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `end`. (Lemire's multiplication; its bias is below `end` / 2^64.)
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
