//! Signals, and sets of them.

use std::{fmt, str::FromStr};

/// A signal that a task can catch ([`Os::catch`](crate::Os::catch)). Its `Display` is the name that
/// the operating system gives it, such as `SIGTERM`; it parses that name with and without `SIG`.
///
/// ```
/// use trapline::Signal;
///
/// assert_eq!("TERM".parse(), Ok(Signal::Terminate));
/// assert_eq!(Signal::User1.to_string(), "SIGUSR1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Signal {
    /// SIGINT: the user has pressed ^C.
    Interrupt,
    /// SIGTERM: the process is asked to end.
    Terminate,
    /// SIGHUP: the terminal has gone. Servers read their configuration again.
    Hangup,
    /// SIGUSR1: what it means is up to the program.
    User1,
    /// SIGUSR2: the same.
    User2,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 5] = [
        Self::Interrupt,
        Self::Terminate,
        Self::Hangup,
        Self::User1,
        Self::User2,
    ];

    /// The number of bits of a message that name its signal.
    const BITS: u32 = 3;

    /// Returns the number of the nth message of a run, which is this signal. Later messages have
    /// higher numbers.
    pub(crate) fn message(self, nth: u64) -> u64 {
        nth << Self::BITS | self as u64
    }

    pub(crate) fn of_message(message: u64) -> Option<Self> {
        let place = message & ((1 << Self::BITS) - 1);
        Self::ALL.get(place as usize).copied()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::User1 => "SIGUSR1",
            Self::User2 => "SIGUSR2",
        })
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let is_it = |signal: &Self| {
            let name = signal.to_string();
            name == text || name.strip_prefix("SIG") == Some(text)
        };
        Self::ALL.into_iter().find(is_it).ok_or(UnknownSignal)
    }
}

/// A text is the name of no [`Signal`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[error("not a signal that a task can catch: these are INT, TERM, HUP, USR1 and USR2")]
pub struct UnknownSignal;

/// A set of signals, as a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SignalSet(u64);

impl SignalSet {
    pub(crate) fn contains(self, signal: Signal) -> bool {
        self.0 & 1 << signal as u64 != 0
    }

    /// Returns the signals of this set that are not in the other one.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the signals of either set.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Signal> {
        let all = Signal::ALL.into_iter();
        all.filter(move |signal| self.contains(*signal))
    }

    pub(crate) fn to_raw(self) -> u64 {
        self.0
    }

    pub(crate) fn from_raw(word: u64) -> Self {
        Self(word)
    }
}

impl From<&[Signal]> for SignalSet {
    fn from(signals: &[Signal]) -> Self {
        let bits = signals.iter().map(|signal| 1 << *signal as u64);
        Self(bits.fold(0, |set, bit: u64| set | bit))
    }
}

/// The names, with commas between them.
impl fmt::Display for SignalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, signal) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{signal}")?;
        }
        Ok(())
    }
}
