//! The strategies of a search.

use std::{fmt, str::FromStr};

use super::timed::{Timed, Watch};
use crate::{
    Builder, Fifo, Policy,
    sched::{Pct, Random},
};

/// The most changes of priorities.
pub(super) const MOST: u32 = 1000;

/// How a search chooses its schedules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strategy {
    /// First in, first out: only the seed changes.
    RoundRobin,
    /// Each turn is drawn.
    Random,
    /// Random priorities, with this number of changes in a run of so many turns, if that is known.
    Pct(u32, Option<u64>),
    /// Each causal order.
    Exhaustive,
}

impl Strategy {
    /// Sets the policy of a kernel, without indirection. The watch ends a schedule.
    pub(super) fn set(self, builder: Builder, seed: u64, watch: &Watch) -> Builder {
        match self {
            Self::RoundRobin | Self::Exhaustive if !watch.is_set() => builder,
            Self::RoundRobin | Self::Exhaustive => timed(builder, Fifo::default(), watch),
            Self::Random => timed(builder, Random::new(seed), watch),
            Self::Pct(changes, length) => timed(builder, pct(changes, length, seed), watch),
        }
    }

    /// Returns the policy for the schedule of a seed.
    pub(super) fn policy(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::RoundRobin | Self::Exhaustive => Box::new(Fifo::default()),
            Self::Random => Box::new(Random::new(seed)),
            Self::Pct(changes, length) => Box::new(pct(changes, length, seed)),
        }
    }
}

fn pct(changes: u32, length: Option<u64>, seed: u64) -> Pct {
    let pct = Pct::new(changes, seed);
    match length {
        Some(turns) => pct.length(turns),
        None => pct,
    }
}

/// Sets a policy, under a watch only if there is an end of the time: a turn takes less without.
fn timed(builder: Builder, policy: impl Policy + 'static, watch: &Watch) -> Builder {
    if watch.is_set() {
        builder.policy(Timed::new(policy, watch))
    } else {
        builder.policy(policy)
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, params) = text.split_once(':').unwrap_or((text, "3"));
        let (changes, length) = match params.split_once(",length=") {
            Some((changes, length)) => (changes, length.parse().ok().map(Some)),
            None => (params, Some(None)),
        };
        match (name, changes.parse().ok().zip(length)) {
            ("round_robin", _) if text == name => Ok(Self::RoundRobin),
            ("random", _) if text == name => Ok(Self::Random),
            ("exhaustive", _) if text == name => Ok(Self::Exhaustive),
            ("pct", Some((changes @ 0..=MOST, length))) => Ok(Self::Pct(changes, length)),
            _ => Err(
                "there are random, pct:CHANGES (from 0 to 1000), round_robin and exhaustive".into(),
            ),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundRobin => f.write_str("round_robin"),
            Self::Exhaustive => f.write_str("exhaustive"),
            Self::Random => f.write_str("random"),
            Self::Pct(changes, None) => write!(f, "pct:{changes}"),
            Self::Pct(changes, Some(length)) => write!(f, "pct:{changes},length={length}"),
        }
    }
}
