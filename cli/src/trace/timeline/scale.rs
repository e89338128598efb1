//! The scale of a timeline's width, and the text of amounts on it.

use std::time::Duration;

use clap::ValueEnum;

use trapline::Moment;

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

/// So many of something.
pub(in crate::trace) fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A span of time, exactly.
pub(super) fn span(span: Duration) -> String {
    format!("{span:?}")
}

/// A span of time, to three digits.
pub(in crate::trace) fn rounded(span: Duration) -> String {
    let nanos = span.as_nanos() as f64;
    let digits = nanos.max(1.0).log10().floor() as i32 + 1;
    let unit = 10f64.powi((digits - 3).max(0));
    format!(
        "{:?}",
        Duration::from_nanos(((nanos / unit).round() * unit) as u64)
    )
}
