//! The links between hosts: how long a packet takes, and whether it arrives.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

use rand_pcg::Pcg64;

use crate::{
    abi::{HostId, Nanos},
    world::sequence::below,
};

/// A way from one host to another.
pub(super) type Way = (HostId, HostId);

/// The link of two hosts that no setting sets apart.
const LATENCY: Nanos = Nanos::from_millis(1);

/// A packet that stays within its host.
const LOOPBACK: Nanos = Nanos(10_000);

/// The shortest time of a packet. Without any, an exchange of messages would stop the clock.
const SHORTEST: Nanos = Nanos(1);

/// What shares are counted in.
pub(super) const MILLION: u64 = 1_000_000;

/// The places of the shares.
pub(super) const LOSS: usize = 0;
pub(super) const DUPLICATE: usize = 1;
pub(super) const REORDER: usize = 2;

#[derive(Clone)]
pub(super) struct Links {
    loopback: Nanos,
    pub(super) latency: Span,
    /// How many bytes a way takes in a second; 0 is no limit.
    pub(super) bandwidth: u64,
    pub(super) latencies: BTreeMap<Way, Span>,
    pub(super) bandwidths: BTreeMap<Way, u64>,
    /// When the next byte of a way with a limited bandwidth can leave.
    free_from: BTreeMap<Way, Nanos>,
    /// The ways on which packets are lost.
    pub(super) cut: BTreeSet<Way>,
    /// The ways on which packets wait.
    pub(super) held: BTreeSet<Way>,
    /// By how much the packets of a host are slower.
    pub(super) slow: BTreeMap<HostId, u32>,
    /// The shares of the datagrams, in millionths, that are lost, doubled and reordered.
    pub(super) shares: [u32; 3],
    /// How often each way was cut.
    cuts: BTreeMap<Way, u32>,
}

#[derive(Clone, Copy)]
pub(super) struct Span {
    from: Nanos,
    to: Nanos,
}

impl From<RangeInclusive<Duration>> for Span {
    fn from(range: RangeInclusive<Duration>) -> Self {
        let (from, to) = range.into_inner();
        let from = SHORTEST.max(from.into());
        let to = from.max(to.into());
        Self { from, to }
    }
}

impl Span {
    fn draw(self, random: &mut Pcg64) -> Nanos {
        match self.to.0 - self.from.0 {
            0 => self.from,
            width => Nanos(self.from.0 + below(random, width.saturating_add(1))),
        }
    }
}

impl Links {
    pub(super) fn new() -> Self {
        Self {
            loopback: LOOPBACK,
            latency: Span {
                from: LATENCY,
                to: LATENCY,
            },
            bandwidth: 0,
            latencies: BTreeMap::new(),
            bandwidths: BTreeMap::new(),
            free_from: BTreeMap::new(),
            cut: BTreeSet::new(),
            held: BTreeSet::new(),
            slow: BTreeMap::new(),
            shares: [0; 3],
            cuts: BTreeMap::new(),
        }
    }

    /// Whether every packet arrives, after a time that depends on no draw and no other packet.
    pub(super) fn is_calm(&self) -> bool {
        let is_fixed = |span: &Span| span.from == span.to;
        let has_limit = self.bandwidth > 0 || !self.bandwidths.is_empty();
        let is_blocked = !self.cut.is_empty() || !self.held.is_empty();
        is_fixed(&self.latency)
            && self.latencies.values().all(is_fixed)
            && !has_limit
            && !is_blocked
    }

    /// Forgets what has happened on the ways.
    pub(super) fn clear(&mut self) {
        self.free_from.clear();
        self.cuts.clear();
    }

    /// Loses the datagrams that are on these ways.
    pub(super) fn lose(&mut self, ways: &[Way]) {
        for way in ways {
            *self.cuts.entry(*way).or_default() += 1;
        }
    }

    /// How often a way was cut.
    pub(super) fn cuts(&self, way: Way) -> u32 {
        self.cuts.get(&way).copied().unwrap_or_default()
    }

    pub(super) fn set_loopback(&mut self, span: Duration) {
        self.loopback = SHORTEST.max(span.into());
    }

    /// Whether packets are lost on the way.
    #[inline]
    pub(super) fn is_cut(&self, way: Way) -> bool {
        self.cut.contains(&way)
    }

    /// Whether packets do not arrive: they are lost, or they wait.
    #[inline]
    pub(super) fn is_blocked(&self, way: Way) -> bool {
        self.is_cut(way) || self.held.contains(&way)
    }

    /// How many bytes a way takes in a second; 0 is no limit. Within a host there is none.
    #[inline]
    pub(super) fn bandwidth_of(&self, way: Way) -> u64 {
        if way.0 == way.1 {
            return 0;
        }
        *self.bandwidths.get(&way).unwrap_or(&self.bandwidth)
    }

    /// When a packet with so many bytes arrives that is sent now.
    #[inline]
    pub(super) fn arrival(
        &mut self,
        way: Way,
        len: usize,
        now: Nanos,
        random: &mut Pcg64,
    ) -> Nanos {
        let leaves = match self.bandwidth_of(way) {
            0 => now,
            bandwidth => self.transmit(way, len, now, bandwidth),
        };
        let latency = match self.latencies.get(&way) {
            _ if way.0 == way.1 => self.loopback,
            other => other.unwrap_or(&self.latency).draw(random),
        };
        leaves.saturating_add(self.slowed(way, latency))
    }

    /// When a router answers that it knows no host of an address. It is as far as most hosts.
    pub(super) fn answer_of_router(&self, host: HostId, now: Nanos, random: &mut Pcg64) -> Nanos {
        let [there, back] = [(); 2].map(|()| self.latency.draw(random));
        let both = there.saturating_add(back);
        now.saturating_add(self.slowed((host, host), both))
    }

    /// The latency of a packet, with the slowness of its hosts.
    #[inline]
    fn slowed(&self, way: Way, latency: Nanos) -> Nanos {
        let factor = |host| *self.slow.get(&host).unwrap_or(&1);
        let factor = factor(way.0).max(factor(way.1));
        Nanos(latency.0.saturating_mul(factor.into()))
    }

    /// When the last of so many bytes has left.
    fn transmit(&mut self, way: Way, len: usize, now: Nanos, bandwidth: u64) -> Nanos {
        let free_from = self.free_from.entry(way).or_default();
        let takes = len as u128 * 1_000_000_000 / u128::from(bandwidth);
        let takes = Nanos(u64::try_from(takes).unwrap_or(u64::MAX));
        *free_from = now.max(*free_from).saturating_add(takes);
        *free_from
    }
}
