//! Chaos: when faults come at random, and how long they last.

use rand_pcg::{Pcg64, rand_core::SeedableRng};

use crate::{
    abi::{HostId, Nanos},
    world::sequence::below,
};

/// The random numbers of chaos are a sequence apart from those of the net.
const OF_CHAOS: u64 = 0x0063_6861_6f73;

/// How long it lasts.
const SPAN: Nanos = Nanos::from_millis(60_000);

/// The mean time between two faults, for each level.
const MEANS: [Nanos; 3] = [
    Nanos::from_millis(5000),
    Nanos::from_millis(1500),
    Nanos::from_millis(400),
];

/// The shortest and the longest time until a fault ends.
const SHORTEST: Nanos = Nanos::from_millis(10);
const LONGEST: Nanos = Nanos::from_millis(5000);

pub(super) struct Chaos {
    pub(super) random: Pcg64,
    /// When the next fault comes, if that is before the end.
    next: Nanos,
    end: Nanos,
    mean: Nanos,
}

impl Chaos {
    pub(super) fn new(level: u8, seed: u64, now: Nanos) -> Option<Self> {
        let level = usize::from(level).checked_sub(1)?.min(MEANS.len() - 1);
        let mut chaos = Self {
            random: Pcg64::seed_from_u64(seed ^ OF_CHAOS),
            next: now,
            end: now.saturating_add(SPAN),
            mean: MEANS[level],
        };
        chaos.schedule();
        Some(chaos)
    }

    /// When the next fault comes. It is not waited for: chaos keeps no run alive.
    pub(super) fn next(&self) -> Option<Nanos> {
        (self.next < self.end).then_some(self.next)
    }

    pub(super) fn schedule(&mut self) {
        let gap = 1 + below(&mut self.random, 2 * self.mean.0);
        self.next = self.next.saturating_add(Nanos(gap));
    }

    /// When a fault of now ends.
    pub(super) fn until(&mut self) -> Nanos {
        let span = SHORTEST.0 + below(&mut self.random, LONGEST.0 - SHORTEST.0);
        self.next.saturating_add(Nanos(span)).min(self.end)
    }

    pub(super) fn pick(&mut self, hosts: impl Iterator<Item = HostId>) -> Option<HostId> {
        let hosts: Vec<_> = hosts.collect();
        if hosts.is_empty() {
            return None;
        }
        Some(hosts[below(&mut self.random, hosts.len() as u64) as usize])
    }
}
