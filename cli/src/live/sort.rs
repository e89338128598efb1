//! The order of the rows of a view.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use trapline::Tid;

use super::{
    entry::Entry,
    row::{Row, State},
};

/// The order of the rows. Those of largest rates, shares and numbers of traps come first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sort {
    #[value(skip)]
    Share,
    #[value(skip)]
    Rate,
    #[default]
    Tid,
    Name,
    State,
    Since,
    Traps,
}

/// What the order of a row depends on.
pub(super) struct Key<'a> {
    tid: Tid,
    name: &'a str,
    state: State,
    since: Option<f64>,
    traps: u64,
    rate: Option<f64>,
    share: Option<f64>,
}

impl Sort {
    /// In the order of the key for them, with their titles.
    const ALL: [(Self, &'static str); 7] = [
        (Self::Share, "time"),
        (Self::Rate, "traps/s"),
        (Self::Tid, "tid"),
        (Self::Name, "name"),
        (Self::State, "state"),
        (Self::Since, "since"),
        (Self::Traps, "traps"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()].0
    }

    pub(super) fn compare(self, a: &Key<'_>, b: &Key<'_>) -> Ordering {
        let most = |of: fn(&Key<'_>) -> Option<f64>| {
            let of = |key| of(key).unwrap_or(0.0);
            of(b).total_cmp(&of(a))
        };
        let since = |key: &Key<'_>| key.since.unwrap_or(f64::INFINITY);
        let first = match self {
            Self::Share => most(|key| key.share).then_with(|| most(|key| key.rate)),
            Self::Rate => most(|key| key.rate),
            Self::Traps => b.traps.cmp(&a.traps),
            Self::Tid => Ordering::Equal,
            Self::Name => a.name.cmp(b.name),
            Self::State => a.state.cmp(&b.state),
            Self::Since => since(a).total_cmp(&since(b)),
        };
        first.then(a.tid.cmp(&b.tid))
    }
}

impl Entry<'_> {
    pub(super) fn key(&self) -> Key<'_> {
        Key {
            tid: self.tid,
            name: &self.task.name,
            state: self.state,
            since: self.since,
            traps: self.traps,
            rate: self.rate,
            share: self.share,
        }
    }
}

impl Row {
    pub(super) fn key(&self) -> Key<'_> {
        Key {
            tid: self.tid,
            name: &self.comm,
            state: self.state,
            since: self.since,
            traps: self.traps,
            rate: self.rate,
            share: self.share,
        }
    }
}
