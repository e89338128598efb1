//! [`Fault`]: what can go wrong in a simulated network and on its disks, as a value and as words.

use std::{fmt, str::FromStr};

/// A fault of a simulated network or a disk, or its end. [`SimNet::apply`](crate::SimNet::apply) makes it
/// happen; each also has a method of [`SimNet`](crate::SimNet) of its own.
///
/// Its text is a command, as in `cut server client`.
///
/// ```
/// use trapline::Fault;
///
/// let fault: Fault = "cut server client".parse()?;
/// assert_eq!(fault, Fault::Cut("server".into(), "client".into()));
/// assert_eq!(fault.to_string(), "cut server client");
/// # Ok::<(), trapline::BadFault>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Packets between the two hosts are lost.
    Cut(String, String),
    /// Packets from the first host to the second one are lost.
    CutOneWay(String, String),
    /// Packets between the two hosts arrive again.
    Heal(String, String),
    /// Packets between the two hosts wait.
    Hold(String, String),
    /// Packets between the two hosts go on.
    Release(String, String),
    /// All connections between the two hosts are reset.
    Reset(String, String),
    /// Packets from and to the host take so many times as long.
    Slow(String, u32),
    /// Reads and writes come in pieces of random length, or no longer do.
    Fragment(bool),
    /// So many millionths of all datagrams are lost.
    Loss(u32),
    /// So many millionths of all datagrams arrive twice.
    Duplicate(u32),
    /// So many millionths of all datagrams are late, and may be overtaken.
    Reorder(u32),
    /// The wall clock of this host, or of every host, steps by so many nanoseconds: back, if negative.
    ClockStep(Option<String>, i64),
    /// The wall clock of this host, or of every host, repeats or skips a second when its second ends.
    ClockLeap(Option<String>, Leap),
    /// The host loses its power.
    Crash(String),
    /// The host boots again.
    Restart(String),
    /// The host loses its power, and boots again at once.
    Power(String),
    /// Every operation on the host's disk fails with an I/O error.
    DiskEio(String),
    /// Every read of the host's disk returns a flipped bit.
    DiskRot(String),
    /// The host's disk has no room.
    DiskFull(String),
    /// The host's disk works again.
    DiskHeal(String),
}

/// What a clock does at a leap second ([`Fault::ClockLeap`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Leap {
    /// It repeats the second that ends, as Linux does for a leap second: the clock goes back by a second.
    Repeat,
    /// It skips the second that would begin.
    Skip,
}

impl Fault {
    /// Returns the hosts that the fault names: two for a link, in its order, and none for what befalls
    /// every host.
    ///
    /// ```
    /// use trapline::Fault;
    ///
    /// let cut: Fault = "cut server client".parse()?;
    /// assert_eq!(cut.hosts(), ["server", "client"]);
    /// assert!(Fault::Fragment(true).hosts().is_empty());
    /// # Ok::<(), trapline::BadFault>(())
    /// ```
    #[must_use]
    pub fn hosts(&self) -> Vec<&str> {
        match self {
            Self::Cut(a, b)
            | Self::CutOneWay(a, b)
            | Self::Heal(a, b)
            | Self::Hold(a, b)
            | Self::Release(a, b)
            | Self::Reset(a, b) => vec![a, b],
            Self::Slow(host, _)
            | Self::Crash(host)
            | Self::Restart(host)
            | Self::Power(host)
            | Self::DiskEio(host)
            | Self::DiskRot(host)
            | Self::DiskFull(host)
            | Self::DiskHeal(host) => vec![host],
            Self::ClockStep(host, _) | Self::ClockLeap(host, _) => {
                host.iter().map(String::as_str).collect()
            }
            Self::Fragment(_) | Self::Loss(_) | Self::Duplicate(_) | Self::Reorder(_) => Vec::new(),
        }
    }
}

impl Leap {
    pub(super) fn nanos(self) -> i64 {
        match self {
            Self::Repeat => -1_000_000_000,
            Self::Skip => 1_000_000_000,
        }
    }
}

impl FromStr for Leap {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        match text {
            "repeat" => Ok(Self::Repeat),
            "skip" => Ok(Self::Skip),
            other => Err(BadFault(other.into())),
        }
    }
}

impl fmt::Display for Leap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeat => "repeat",
            Self::Skip => "skip",
        })
    }
}

/// The units of a step, and their nanoseconds.
const UNITS: [(&str, i64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a step of a clock, such as `-1h` and `+500ms`.
fn step(text: &str) -> Option<i64> {
    let (sign, span) = match text.strip_prefix('-') {
        Some(span) => (-1, span),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = span.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = span.split_at(end);
    let (_, nanos) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<i64>().ok()?.checked_mul(nanos * sign)
}

/// Writes a step in the largest unit of which it is a whole number.
fn write_step(f: &mut fmt::Formatter<'_>, by: i64) -> fmt::Result {
    let fits = |(_, nanos): &(&str, i64)| by != 0 && by % nanos == 0;
    let (unit, nanos) = UNITS.into_iter().find(fits).unwrap_or(("s", 1));
    write!(f, "{:+}{unit}", by / nanos)
}

/// A text is no [`Fault`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no fault: write {USAGE}")]
pub struct BadFault(String);

const USAGE: &str = "cut A B, cut-one-way A B, heal A B, hold A B, release A B, reset A B, slow A \
                     FACTOR, fragment on|off, loss SHARE, duplicate SHARE, reorder SHARE, clock-step [A] \
                     SPAN as in -1h, clock-leap [A] repeat|skip, crash A, restart A, power A, disk:eio A, \
                     disk:rot A, disk:full A or disk:heal A; a SHARE is 1% or 0.01";

impl FromStr for Fault {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let is_space = |letter: char| letter.is_whitespace() || letter == '=';
        let words: Vec<_> = match text.trim_start().starts_with("clock-") {
            true => text
                .split(is_space)
                .filter(|word| !word.is_empty())
                .collect(),
            false => text.split_whitespace().collect(),
        };
        let own = |word: &str| word.to_string();
        let bad = || BadFault(text.into());
        Ok(match words[..] {
            ["cut", a, b] => Self::Cut(own(a), own(b)),
            ["cut-one-way", a, b] => Self::CutOneWay(own(a), own(b)),
            ["heal", a, b] => Self::Heal(own(a), own(b)),
            ["hold", a, b] => Self::Hold(own(a), own(b)),
            ["release", a, b] => Self::Release(own(a), own(b)),
            ["reset", a, b] => Self::Reset(own(a), own(b)),
            ["slow", host, factor] => {
                let factor = factor.parse().ok().filter(|factor| *factor > 0);
                Self::Slow(own(host), factor.ok_or_else(bad)?)
            }
            ["clock-step", by] => Self::ClockStep(None, step(by).ok_or_else(bad)?),
            ["clock-step", host, by] => Self::ClockStep(Some(own(host)), step(by).ok_or_else(bad)?),
            ["clock-leap", leap] => Self::ClockLeap(None, leap.parse().map_err(|_| bad())?),
            ["clock-leap", host, leap] => {
                Self::ClockLeap(Some(own(host)), leap.parse().map_err(|_| bad())?)
            }
            ["fragment", "on"] => Self::Fragment(true),
            ["fragment", "off"] => Self::Fragment(false),
            ["loss" | "duplicate" | "reorder", share] => {
                let share = millionths(share).ok_or_else(|| BadFault(text.into()))?;
                match words[0] {
                    "loss" => Self::Loss(share),
                    "duplicate" => Self::Duplicate(share),
                    _ => Self::Reorder(share),
                }
            }
            ["crash", host] => Self::Crash(own(host)),
            ["restart", host] => Self::Restart(own(host)),
            ["power", host] => Self::Power(own(host)),
            ["disk:eio", host] => Self::DiskEio(own(host)),
            ["disk:rot", host] => Self::DiskRot(own(host)),
            ["disk:full", host] => Self::DiskFull(own(host)),
            ["disk:heal", host] => Self::DiskHeal(own(host)),
            _ => return Err(bad()),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut(a, b) => write!(f, "cut {a} {b}"),
            Self::CutOneWay(a, b) => write!(f, "cut-one-way {a} {b}"),
            Self::Heal(a, b) => write!(f, "heal {a} {b}"),
            Self::Hold(a, b) => write!(f, "hold {a} {b}"),
            Self::Release(a, b) => write!(f, "release {a} {b}"),
            Self::Reset(a, b) => write!(f, "reset {a} {b}"),
            Self::Slow(host, factor) => write!(f, "slow {host} {factor}"),
            Self::Fragment(true) => f.write_str("fragment on"),
            Self::Fragment(false) => f.write_str("fragment off"),
            Self::Loss(share) => write!(f, "loss {}", Percent(*share)),
            Self::Duplicate(share) => write!(f, "duplicate {}", Percent(*share)),
            Self::Reorder(share) => write!(f, "reorder {}", Percent(*share)),
            Self::ClockStep(host, by) => {
                write!(f, "clock-step {}", of_host(host))?;
                write_step(f, *by)
            }
            Self::ClockLeap(host, leap) => write!(f, "clock-leap {}{leap}", of_host(host)),
            Self::Crash(host) => write!(f, "crash {host}"),
            Self::Restart(host) => write!(f, "restart {host}"),
            Self::Power(host) => write!(f, "power {host}"),
            Self::DiskEio(host) => write!(f, "disk:eio {host}"),
            Self::DiskRot(host) => write!(f, "disk:rot {host}"),
            Self::DiskFull(host) => write!(f, "disk:full {host}"),
            Self::DiskHeal(host) => write!(f, "disk:heal {host}"),
        }
    }
}

/// A share in millionths, as text.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

/// Reads a share: 1% or 0.01.
fn millionths(text: &str) -> Option<u32> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then(|| share_of(share))
}

/// A share in millionths; one outside of 0 to 1 counts as the nearest, and NaN as 0.
pub(super) fn share_of(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 1e6).round() as u32
}

fn of_host(host: &Option<String>) -> String {
    host.as_ref()
        .map_or(String::new(), |host| format!("{host} "))
}
