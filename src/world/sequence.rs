//! A seeded sequence of random numbers.

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};

/// Returns a number below the limit.
pub(super) fn below(random: &mut Pcg64, limit: u64) -> u64 {
    let wide = u128::from(random.next_u64()) * u128::from(limit);
    (wide >> 64) as u64
}

/// A sequence of random numbers, which begins when the first is drawn. A search seeds thousands of
/// sequences a second, and draws from few.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) seed: u64,
    begun: Option<Pcg64>,
}

impl Sequence {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, begun: None }
    }

    pub(super) fn generator(&mut self) -> &mut Pcg64 {
        self.begun
            .get_or_insert_with(|| Pcg64::seed_from_u64(self.seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.generator().next_u64()
    }
}
