//! The scale of a timeline's width, the text of amounts on it, and the part that is shown.

use std::{fmt, time::Duration};

use clap::{Args, ValueEnum};

use trapline::{Moment, Nanos};

use crate::{
    units::{count, span},
    values::instant,
};

/// The meaning of the width.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scale {
    /// The clock
    Time,
    /// Each turn has the same width, and so has each jump of the clock
    Turns,
}

impl Scale {
    pub(super) fn of(self, moment: Moment) -> f64 {
        match self {
            Self::Time => moment.at.as_nanos() as f64,
            Self::Turns => moment.turn as f64,
        }
    }

    pub(super) fn tick(self, value: f64) -> String {
        match self {
            // With all digits: neighbours may differ in the last.
            Self::Time if value > 0.0 => format!("{:?}", Duration::from_nanos(value as u64)),
            Self::Time | Self::Turns => format!("{value}"),
        }
    }

    pub(super) fn amount(self, value: f64) -> String {
        match self {
            Self::Time => span(Duration::from_nanos(value as u64)),
            Self::Turns => count(value as u64, "turn"),
        }
    }
}

/// The part of a recording to show.
#[derive(Args, Default)]
pub(super) struct Window {
    /// Only from this time or turn on, such as 00:04.000, 250ms or 300t
    #[arg(long, value_name = "TIME", value_parser = Bound::parse)]
    pub(super) from: Option<Bound>,
    /// Only up to this time or turn
    #[arg(long, value_name = "TIME", value_parser = Bound::parse)]
    pub(super) to: Option<Bound>,
    /// Only this task, by its number or name; can be repeated
    #[arg(long = "task", value_name = "TASK")]
    pub(super) tasks: Vec<String>,
}

/// An end of a window. Those of one kind are in order.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub(super) enum Bound {
    Time(Duration),
    Turn(u64),
}

impl Bound {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(Ok(turn)) = text.strip_suffix('t').map(str::parse) {
            return Ok(Self::Turn(turn));
        }
        let at = instant(text).map_err(|error| format!("{error}, or a turn, such as 300t"));
        at.map(Self::Time)
    }

    /// A moment as a bound of this kind.
    pub(super) fn of(self, moment: Moment) -> Self {
        match self {
            Self::Time(_) => Self::Time(moment.at),
            Self::Turn(_) => Self::Turn(moment.turn),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(at) => Nanos::from(*at).fmt(f),
            Self::Turn(turn) => write!(f, "{turn}t"),
        }
    }
}

/// Round values between two others, about this many.
pub(super) fn ticks(begin: f64, end: f64, wanted: f64) -> Vec<f64> {
    let rough = (end - begin) / wanted.max(1.0);
    let power = 10f64.powf(rough.log10().floor()).max(1.0);
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(power);
    let first = (begin / step).ceil() as u64;
    let last = (end / step).floor() as u64;
    (first..=last).map(|n| n as f64 * step).collect()
}
