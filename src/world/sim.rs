//! The simulated world: a virtual clock, a seeded sequence of random numbers, a console that is
//! kept, and nothing outside.

use std::{io, time::Duration};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};

use super::World;
use crate::abi::{DeviceId, Direction};

/// The simulated world. Its clock stands still until the kernel waits, and then jumps to the
/// deadline: a day of sleep takes no time. Everything that happens in it follows from its seed.
#[derive(Debug)]
pub struct SimWorld {
    now: Duration,
    seed: u64,
    random: Pcg64,
    console: String,
}

impl SimWorld {
    /// A world at time zero.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = Pcg64::seed_from_u64(seed);
        Self {
            now: Duration::ZERO,
            seed,
            random,
            console: String::new(),
        }
    }
}

impl World for SimWorld {
    fn now(&mut self) -> Duration {
        self.now
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.random = Pcg64::seed_from_u64(seed);
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        self.console.push_str(text);
        Ok(())
    }

    fn take_console(&mut self) -> String {
        std::mem::take(&mut self.console)
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        _: &mut Vec<(DeviceId, Direction)>,
    ) -> io::Result<()> {
        self.now = self.now.max(deadline.unwrap_or(self.now));
        Ok(())
    }
}
