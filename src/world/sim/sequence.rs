//! A seeded sequence of random numbers.

use rand_pcg::{Pcg64, rand_core::SeedableRng};

/// A sequence of random numbers, which begins when the first is drawn. A search seeds thousands of
/// sequences a second, and draws from few.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    seed: u64,
    begun: Option<Pcg64>,
}

impl Sequence {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, begun: None }
    }

    /// Returns what draws the next number.
    pub(super) fn generator(&mut self) -> &mut Pcg64 {
        self.begun
            .get_or_insert_with(|| Pcg64::seed_from_u64(self.seed))
    }
}
