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

/// A text is no [`Fault`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no fault: write {USAGE}")]
pub struct BadFault(String);

const USAGE: &str = "cut A B, cut-one-way A B, heal A B, hold A B, release A B, reset A B, slow A \
                     FACTOR, fragment on|off, crash A, restart A, power A, disk:eio A, disk:rot A, \
                     disk:full A or disk:heal A";

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
            ["crash", host] => Self::Crash(own(host)),
            ["restart", host] => Self::Restart(own(host)),
            ["power", host] => Self::Power(own(host)),
            ["disk:eio", host] => Self::DiskEio(own(host)),
            ["disk:rot", host] => Self::DiskRot(own(host)),
            ["disk:full", host] => Self::DiskFull(own(host)),
            ["disk:heal", host] => Self::DiskHeal(own(host)),
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
