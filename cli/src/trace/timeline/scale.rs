//! The scale of a timeline's width, and the text of amounts on it.

use std::time::Duration;

use clap::ValueEnum;

use trapline::Moment;

use crate::units::{count, rounded, span};

/// The meaning of the width.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scale {
    /// The clock
    Time,
    /// Each turn has the same width, and so has each jump of the clock
    Turns,
}

impl Scale {
    /// The position of a moment.
    pub(super) fn of(self, moment: Moment) -> f64 {
        match self {
            Self::Time => moment.at.as_nanos() as f64,
            Self::Turns => moment.turn as f64,
        }
    }

    /// A place on the ruler.
    pub(super) fn tick(self, value: f64) -> String {
        match self {
            Self::Time if value > 0.0 => span(Duration::from_nanos(value as u64)),
            Self::Time | Self::Turns => format!("{value}"),
        }
    }

    /// An amount of the scale.
    pub(super) fn amount(self, value: f64) -> String {
        match self {
            Self::Time => rounded(Duration::from_nanos(value as u64)),
            Self::Turns => count(value as u64, "turn"),
        }
    }
}
