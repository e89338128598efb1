//! What is under way, in order of time. What is due at one instant comes in the order of sending.
//! What is due at [`Nanos::FOREVER`] never comes: it is not kept.

use std::collections::{BTreeMap, VecDeque};

use crate::abi::Nanos;

/// The place of an event: its time, and its number among all events.
pub(super) type Place = (Nanos, u64);

/// The events to come: packets that are under way, and timers.
///
/// With a fixed latency packets arrive in the order in which they were sent: a queue holds those. A
/// tree holds the others, and the timers, most of which are cancelled.
pub(super) struct Agenda<E> {
    in_order: VecDeque<(Place, E)>,
    others: BTreeMap<Place, E>,
    /// The number of the last event.
    last: u64,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self {
            in_order: VecDeque::new(),
            others: BTreeMap::new(),
            last: 0,
        }
    }

    /// Adds a packet.
    pub(super) fn send(&mut self, at: Nanos, packet: E) {
        match self.in_order.back() {
            _ if at == Nanos::FOREVER => {}
            Some(((last, _), _)) if *last > at => _ = self.arm(at, packet),
            _ => {
                self.last += 1;
                self.in_order.push_back(((at, self.last), packet));
            }
        }
    }

    /// Adds a timer. The place cancels it.
    pub(super) fn arm(&mut self, at: Nanos, timer: E) -> Place {
        self.last += 1;
        if at != Nanos::FOREVER {
            self.others.insert((at, self.last), timer);
        }
        (at, self.last)
    }

    /// Cancels a timer, if there is one.
    pub(super) fn disarm(&mut self, timer: Option<Place>) {
        if let Some(place) = timer {
            self.others.remove(&place);
        }
    }

    /// When the next event is due.
    #[inline]
    pub(super) fn next(&self) -> Option<Nanos> {
        self.first().map(|(at, _)| at)
    }

    /// Takes the first event that is due at `now`.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<E> {
        let first = self.first().filter(|(at, _)| *at <= now)?;
        match self.in_order.front() {
            Some((place, _)) if *place == first => self.in_order.pop_front().map(|(_, due)| due),
            _ => self.others.remove(&first),
        }
    }

    #[inline]
    fn first(&self) -> Option<Place> {
        let other = self.others.first_key_value().map(|(place, _)| *place);
        let in_order = self.in_order.front().map(|(place, _)| *place);
        in_order.into_iter().chain(other).min()
    }
}
