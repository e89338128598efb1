//! [`Fault`]: what can go wrong in a simulated network, as a value and as words.

use std::{fmt, str::FromStr};

/// A fault of a simulated network, or its end. [`SimNet::apply`](crate::SimNet::apply) makes it
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
    /// The host loses its power.
    Crash(String),
    /// The host boots again.
    Restart(String),
}

/// A text is no [`Fault`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no fault: write {USAGE}")]
pub struct BadFault(String);

const USAGE: &str = "cut A B, cut-one-way A B, heal A B, hold A B, release A B, reset A B, slow A \
                     FACTOR, fragment on|off, loss SHARE, duplicate SHARE, reorder SHARE, crash A or \
                     restart A; a SHARE is 1% or 0.01";

impl FromStr for Fault {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let words: Vec<_> = text.split_whitespace().collect();
        let own = |word: &str| word.to_string();
        Ok(match words[..] {
            ["cut", a, b] => Self::Cut(own(a), own(b)),
            ["cut-one-way", a, b] => Self::CutOneWay(own(a), own(b)),
            ["heal", a, b] => Self::Heal(own(a), own(b)),
            ["hold", a, b] => Self::Hold(own(a), own(b)),
            ["release", a, b] => Self::Release(own(a), own(b)),
            ["reset", a, b] => Self::Reset(own(a), own(b)),
            ["slow", host, factor] => {
                let factor = factor.parse().ok().filter(|factor| *factor > 0);
                Self::Slow(own(host), factor.ok_or_else(|| BadFault(text.into()))?)
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
            _ => return Err(BadFault(text.into())),
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
            Self::Crash(host) => write!(f, "crash {host}"),
            Self::Restart(host) => write!(f, "restart {host}"),
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

/// A share in millionths; one outside of 0 to 1 counts as the nearest.
pub(super) fn share_of(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 1e6).round() as u32
}
