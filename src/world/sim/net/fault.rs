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
                     FACTOR, fragment on|off, crash A or restart A";

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
        }
    }
}
