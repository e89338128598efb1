//! Chaos: when faults come at random, and how long they last.

use rand_pcg::{Pcg64, rand_core::SeedableRng};

use crate::{
    abi::{HostId, Nanos},
    world::sequence::below,
};

/// The random numbers of chaos are a sequence apart from those of the net.
const OF_CHAOS: u64 = 0x0063_6861_6f73;
const OF_DATAGRAMS: u64 = 0x6461_7461_6772_616d;

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
    /// What happens to datagrams, if there are any.
    weather: Option<Weather>,
}

/// Spans in which datagrams are lost, doubled or reordered. A random sequence of its own: runs without
/// datagrams are as they were.
struct Weather {
    random: Pcg64,
    next: Nanos,
    /// When the span of each kind is over.
    until: [Nanos; 3],
}

/// The smallest and the largest share of the datagrams that such a span befalls, in millionths.
const SHARES: [u32; 2] = [10_000, 400_000];

impl Chaos {
    pub(super) fn new(level: u8, seed: u64, now: Nanos) -> Option<Self> {
        let level = usize::from(level).checked_sub(1)?.min(MEANS.len() - 1);
        let mut chaos = Self {
            random: Pcg64::seed_from_u64(seed ^ OF_CHAOS),
            next: now,
            end: now.saturating_add(SPAN),
            mean: MEANS[level],
            weather: None,
        };
        chaos.schedule();
        Some(chaos)
    }

    /// When the next fault comes. It is not waited for: chaos keeps no run alive.
    pub(super) fn next(&self) -> Option<Nanos> {
        let weather = self.weather.as_ref().map(|weather| weather.next);
        let next = weather.map_or(self.next, |weather| weather.min(self.next));
        (next < self.end).then_some(next)
    }

    /// Whether a fault of the hosts and links is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.next < self.end && self.next <= now
    }

    /// Begins the weather.
    pub(super) fn begin_weather(&mut self, seed: u64, now: Nanos) {
        let mut random = Pcg64::seed_from_u64(seed ^ OF_DATAGRAMS);
        let next = now.saturating_add(gap(&mut random, self.mean));
        self.weather = Some(Weather {
            random,
            next,
            until: [Nanos::ZERO; 3],
        });
    }

    /// Draws what happens to datagrams, if that is due: the kind, its share, and when it is over. A
    /// share of `None` says that the kind is under way already.
    pub(super) fn draw_weather(&mut self, now: Nanos) -> Option<(usize, Option<u32>, Nanos)> {
        let (end, mean) = (self.end, self.mean);
        let weather = self.weather.as_mut()?;
        let at = weather.next;
        if at > now || at >= end {
            return None;
        }
        let random = &mut weather.random;
        let kind = below(random, 3) as usize;
        let share = SHARES[0] + below(random, u64::from(SHARES[1] - SHARES[0])) as u32;
        let span = SHORTEST.0 + below(random, LONGEST.0 - SHORTEST.0);
        let until = at.saturating_add(Nanos(span)).min(end);
        weather.next = at.saturating_add(gap(random, mean));
        if at < weather.until[kind] {
            return Some((kind, None, until));
        }
        weather.until[kind] = until;
        Some((kind, Some(share), until))
    }

    pub(super) fn schedule(&mut self) {
        self.next = self.next.saturating_add(gap(&mut self.random, self.mean));
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

fn gap(random: &mut Pcg64, mean: Nanos) -> Nanos {
    Nanos(1 + below(random, 2 * mean.0))
}
