//! The strategies of a search.

use std::{fmt, str::FromStr};

use super::{timed::Timed, watchdog::TrialWatch};
use crate::{
    Builder, Fifo, Policy,
    sched::{Pct, Random, Surw, TurnCounts},
};

/// How a search chooses its schedules. The text of a strategy is the name of its policy in
/// [`POLICIES`](crate::sched::POLICIES), or `surw`,
/// `rff` or `exhaustive`.
///
/// ```
/// use trapline::SearchStrategy;
///
/// assert_eq!("pct:2".parse(), Ok(SearchStrategy::Pct(2, None)));
/// assert_eq!(SearchStrategy::Fifo.to_string(), "fifo");
/// assert!("luck".parse::<SearchStrategy>().is_err());
/// ```
#[expect(clippy::large_enum_variant, reason = "a strategy stays `Copy`")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum SearchStrategy {
    /// [`Check::fifo`](crate::Check::fifo).
    Fifo,
    /// [`Check::random`](crate::Check::random).
    #[default]
    Random,
    /// [`Check::pct`](crate::Check::pct), with this number of changes in a run of so many turns. The
    /// search counts the turns if they are not known.
    Pct(u32, Option<u64>),
    /// [`Check::surw`](crate::Check::surw), where tasks have so many turns. The search counts them if they
    /// are not known.
    Surw(Option<TurnCounts>),
    /// [`Check::rff`](crate::Check::rff).
    Rff,
    /// [`Check::exhaustive`](crate::Check::exhaustive).
    Exhaustive,
}

impl SearchStrategy {
    /// Sets the policy of a kernel, without indirection. The watch ends a schedule.
    pub(super) fn set(self, builder: Builder, seed: u64, watch: &TrialWatch) -> Builder {
        match self {
            Self::Fifo | Self::Exhaustive if !watch.is_set() => builder,
            Self::Fifo | Self::Exhaustive => timed(builder, Fifo::default(), watch),
            Self::Random | Self::Rff => timed(builder, Random::new(seed), watch),
            Self::Pct(changes, length) => timed(builder, Pct::of(changes, length, seed), watch),
            Self::Surw(counts) => {
                timed(builder, Surw::new(counts.unwrap_or_default(), seed), watch)
            }
        }
    }

    pub(super) fn policy(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Fifo | Self::Exhaustive => Box::new(Fifo::default()),
            Self::Random | Self::Rff => Box::new(Random::new(seed)),
            Self::Pct(changes, length) => Box::new(Pct::of(changes, length, seed)),
            Self::Surw(counts) => Box::new(Surw::new(counts.unwrap_or_default(), seed)),
        }
    }
}

/// Sets a policy, under a watch only if there is an end of the time: a turn takes less without.
fn timed(builder: Builder, policy: impl Policy + 'static, watch: &TrialWatch) -> Builder {
    match watch.is_set() {
        true => builder.policy(Timed::new(policy, watch)),
        false => builder.policy(policy),
    }
}

impl FromStr for SearchStrategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const USAGE: &str = "there are random, pct, pct:CHANGES[,length=TURNS] (changes from 0 to 1000), surw, \
             surw:TURNS/TURNS<PARENT (of up to 32 tasks), rff, fifo and exhaustive";
        let (name, params) = text.split_once(':').unwrap_or((text, ""));
        match name {
            // The other words are those of earlier versions.
            "fifo" | "round_robin" | "round-robin" if text == name => Ok(Self::Fifo),
            "random" if text == name => Ok(Self::Random),
            "rff" if text == name => Ok(Self::Rff),
            "surw" if text == name => Ok(Self::Surw(None)),
            "surw" => Ok(Self::Surw(Some(params.parse().map_err(|()| USAGE)?))),
            "exhaustive" if text == name => Ok(Self::Exhaustive),
            "pct" if !text.ends_with(':') => {
                let (changes, length) = Pct::parameters(params).map_err(|_| USAGE)?;
                Ok(Self::Pct(changes, length))
            }
            _ => Err(USAGE.into()),
        }
    }
}

impl fmt::Display for SearchStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo => f.write_str("fifo"),
            Self::Random => f.write_str("random"),
            Self::Pct(changes, None) => write!(f, "pct:{changes}"),
            Self::Pct(changes, Some(length)) => write!(f, "pct:{changes},length={length}"),
            Self::Surw(None) => f.write_str("surw"),
            Self::Surw(Some(counts)) => write!(f, "surw:{counts}"),
            Self::Rff => f.write_str("rff"),
            Self::Exhaustive => f.write_str("exhaustive"),
        }
    }
}
