//! Chaos: when faults come at random, and how long they last.

use rand_pcg::{Pcg64, rand_core::SeedableRng};

use crate::{
    abi::{HostId, Nanos},
    world::sequence::below,
};

/// The random numbers of chaos are a sequence apart from those of the net.
const OF_CHAOS: u64 = 0x0063_6861_6f73;
const OF_DATAGRAMS: u64 = 0x6461_7461_6772_616d;
const OF_KINDS: u64 = 0x6b69_6e64;

/// The kinds of faults: of hosts and links, and behind those of [`HOSTS`] the ones of datagrams.
const KINDS: [&str; 8] = [
    "cut",
    "cut-one-way",
    "slow",
    "reset",
    "crash",
    "loss",
    "duplicate",
    "reorder",
];

pub(super) const CUT: usize = 0;
pub(super) const CUT_ONE_WAY: usize = 1;
pub(super) const SLOW: usize = 2;
pub(super) const CRASH: usize = 4;

/// How often each kind of hosts and links comes, in proportion.
const HOSTS: [u64; 5] = [4, 1, 2, 2, 1];

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
    /// A random half of the kinds. What one kind prevents, another seed shows. (Swarm testing: Groce and
    /// others, ISSTA 2012.)
    is_on: [bool; KINDS.len()],
    /// How often each kind was drawn, and how often it happened.
    counts: [[u64; 2]; KINDS.len()],
    /// The draws so far. Those of hosts and links have odd numbers, and those of datagrams even ones.
    drawn: [u32; 2],
    /// If this is set, only the faults of these numbers happen.
    only: Option<Vec<u32>>,
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
            is_on: half(seed),
            counts: [[0; 2]; KINDS.len()],
            drawn: [0; 2],
            only: None,
        };
        chaos.schedule();
        Some(chaos)
    }

    /// Has only the faults of these numbers happen, or all of them.
    pub(super) fn keep(&mut self, only: Option<Vec<u32>>) {
        self.only = only;
    }

    /// Returns how often each kind was drawn, and how often it happened.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64, u64)> {
        let kinds = KINDS.into_iter().zip(self.counts);
        let counted = kinds.map(|(kind, [drawn, happened])| (kind, drawn, happened));
        counted.filter(|(_, drawn, _)| *drawn > 0).collect()
    }

    /// Returns the numbers of all faults that were drawn.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let [hosts, datagrams] = self.drawn;
        let odd = (1..=hosts).map(|nth| 2 * nth - 1);
        let mut all: Vec<u32> = odd.chain((1..=datagrams).map(|nth| 2 * nth)).collect();
        all.sort_unstable();
        all
    }

    /// Counts a draw of a kind, which has something to break or has not. Returns whether it happens.
    pub(super) fn count(&mut self, kind: usize, can_happen: bool) -> bool {
        let of_datagrams = usize::from(kind >= HOSTS.len());
        self.drawn[of_datagrams] += 1;
        let number = 2 * self.drawn[of_datagrams] - 1 + of_datagrams as u32;
        let is_kept = self.only.as_ref().is_none_or(|only| only.contains(&number));
        let happens = can_happen && is_kept;
        self.counts[kind][0] += 1;
        self.counts[kind][1] += u64::from(happens);
        happens
    }

    /// Draws one of the kinds of hosts and links that are on. Half of eight is less than five, so there is
    /// one.
    pub(super) fn kind(&mut self) -> usize {
        let weight = |kind: &usize| HOSTS[*kind] * u64::from(self.is_on[*kind]);
        let mut drawn = below(
            &mut self.random,
            (0..HOSTS.len()).map(|it| weight(&it)).sum(),
        );
        let is_drawn = |kind: &usize| match drawn.checked_sub(weight(kind)) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        };
        (0..HOSTS.len()).find(is_drawn).unwrap_or_default()
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
        if !self.is_on[HOSTS.len()..].contains(&true) {
            return;
        }
        let mut random = Pcg64::seed_from_u64(seed ^ OF_DATAGRAMS);
        let next = now.saturating_add(gap(&mut random, self.mean));
        self.weather = Some(Weather {
            random,
            next,
            until: [Nanos::ZERO; 3],
        });
    }

    /// Draws what happens to datagrams, if that is due: the kind, its share, and when it is over. A
    /// share of `None` says that nothing happens: the kind is under way already.
    pub(super) fn draw_weather(&mut self, now: Nanos) -> Option<(usize, Option<u32>, Nanos)> {
        let (end, mean) = (self.end, self.mean);
        let weather = self.weather.as_mut()?;
        let at = weather.next;
        if at > now || at >= end {
            return None;
        }
        let random = &mut weather.random;
        let mut kinds = (0..3).filter(|kind| self.is_on[HOSTS.len() + kind]);
        let count = kinds.clone().count() as u64;
        let kind = kinds.nth(below(random, count) as usize)?;
        let share = SHARES[0] + below(random, u64::from(SHARES[1] - SHARES[0])) as u32;
        let span = SHORTEST.0 + below(random, LONGEST.0 - SHORTEST.0);
        let until = at.saturating_add(Nanos(span)).min(end);
        weather.next = at.saturating_add(gap(random, mean));
        let is_free = at >= weather.until[kind];
        if is_free {
            weather.until[kind] = until;
        }
        let happens = self.count(HOSTS.len() + kind, is_free);
        Some((kind, happens.then_some(share), until))
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
        // Without a host, too: what comes later is the same, whatever has happened.
        let at = below(&mut self.random, hosts.len() as u64);
        hosts.get(at as usize).copied()
    }
}

/// Draws half of the kinds.
fn half(seed: u64) -> [bool; KINDS.len()] {
    let mut random = Pcg64::seed_from_u64(seed ^ OF_KINDS);
    let mut is_on = [true; KINDS.len()];
    for left in (KINDS.len() / 2 + 1..=KINDS.len()).rev() {
        let nth = below(&mut random, left as u64) as usize;
        let mut on = (0..KINDS.len()).filter(|kind| is_on[*kind]);
        if let Some(kind) = on.nth(nth) {
            is_on[kind] = false;
        }
    }
    is_on
}

fn gap(random: &mut Pcg64, mean: Nanos) -> Nanos {
    Nanos(1 + below(random, 2 * mean.0))
}
