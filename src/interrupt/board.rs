//! What every thread knows of the signals of a kernel: those that tasks have caught, and those that
//! no task has taken yet.

use crate::abi::{Signal, SignalSet};

#[derive(Debug, Default)]
pub(super) struct Board {
    /// The signals for which a task holds a [`Signals`](crate::Signals).
    pub(super) caught: SignalSet,
    /// How many of each were sent and have not reached the kernel yet.
    pub(super) coming: [usize; Signal::ALL.len()],
    /// The messages that no holder has taken, in order.
    untaken: Vec<u64>,
    /// The signals that the host of the kernel handles itself.
    pub(super) of_host: SignalSet,
}

impl Board {
    pub(super) fn reset(&mut self) {
        self.untaken.clear();
        self.caught = SignalSet::default();
        self.coming = Default::default();
    }

    pub(super) fn untaken(&self, signal: Signal) -> usize {
        let is_it = |message: &&u64| Signal::of_message(**message) == Some(signal);
        self.untaken.iter().filter(is_it).count()
    }

    pub(super) fn deliver(&mut self, message: u64, signal: Signal) -> bool {
        let is_second = signal == Signal::Interrupt && self.untaken(signal) > 0;
        if !is_second {
            self.untaken.push(message);
        }
        !is_second
    }

    pub(super) fn take(&mut self, message: u64) {
        if let Some(at) = self.untaken.iter().position(|other| *other == message) {
            self.untaken.remove(at);
        }
    }

    pub(super) fn set_caught(&mut self, caught: SignalSet) -> Option<Signal> {
        self.caught = caught;
        let is_caught = |message: u64| {
            let signal = Signal::of_message(message);
            signal.is_some_and(|signal| caught.contains(signal))
        };
        let left = self.untaken.iter().find(|message| !is_caught(**message));
        let first = left.copied().and_then(Signal::of_message);
        self.untaken.retain(|message| is_caught(*message));
        first
    }
}
