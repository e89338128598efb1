//! `--policy NAME[:PARAMS]`: the policies by their names.

use std::{fmt, str::FromStr};

use crate::{
    Builder,
    sched::{Pct, Random},
};

/// A policy of the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    Fifo,
    Random,
    /// With this number of changes.
    Pct(u32),
}

impl Policy {
    /// The changes of `pct` without a parameter.
    const CHANGES: u32 = 3;

    /// Sets the policy, with the draws of this seed.
    pub(super) fn set(self, builder: Builder, seed: u64) -> Builder {
        match self {
            Self::Fifo => builder,
            Self::Random => builder.policy(Random::new(seed)),
            Self::Pct(changes) => builder.policy(Pct::new(changes, seed)),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, params) = match text.split_once(':') {
            Some((name, params)) => (name, Some(params)),
            None => (text, None),
        };
        match (name, params) {
            ("fifo", None) => Ok(Self::Fifo),
            ("random", None) => Ok(Self::Random),
            ("pct", None) => Ok(Self::Pct(Self::CHANGES)),
            ("pct", Some(changes)) => match changes.parse() {
                Ok(changes) if changes <= 1000 => Ok(Self::Pct(changes)),
                _ => Err("pct takes a number of changes from 0 to 1000, such as pct:3".into()),
            },
            ("fifo" | "random", Some(_)) => Err(format!("{name} takes no parameters")),
            _ => Err("there are fifo, random, pct and pct:CHANGES".into()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo => f.write_str("fifo"),
            Self::Random => f.write_str("random"),
            Self::Pct(changes) => write!(f, "pct:{changes}"),
        }
    }
}
