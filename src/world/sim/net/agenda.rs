//! What is under way, in order of time. What is due at one instant comes in the order of sending.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use crate::abi::Nanos;

/// The place of an entry: its time, and its number among all entries.
pub(super) type Place = (Nanos, u64);

/// The packets that are under way, and the timers of the net.
///
/// With a fixed latency packets arrive in the order in which they were sent: a queue holds those. A
/// heap holds the others. Most timers are cancelled, so they are in a tree.
pub(super) struct Agenda<P, T> {
    in_order: VecDeque<Entry<P>>,
    others: BinaryHeap<Entry<P>>,
    timers: BTreeMap<Place, T>,
    /// The number of the last entry.
    last: u64,
}

/// An entry that has come due.
pub(super) enum Due<P, T> {
    Packet(P),
    Timer(T),
}

impl<P, T> Agenda<P, T> {
    pub(super) fn new() -> Self {
        Self {
            in_order: VecDeque::new(),
            others: BinaryHeap::new(),
            timers: BTreeMap::new(),
            last: 0,
        }
    }

    /// Adds a packet.
    pub(super) fn send(&mut self, at: Nanos, packet: P) {
        let place = self.place(at);
        let entry = Entry { place, packet };
        match self.in_order.back() {
            Some(last) if last.place > place => self.others.push(entry),
            _ => self.in_order.push_back(entry),
        }
    }

    /// Adds a timer. The place cancels it.
    pub(super) fn arm(&mut self, at: Nanos, timer: T) -> Place {
        let place = self.place(at);
        self.timers.insert(place, timer);
        place
    }

    pub(super) fn disarm(&mut self, place: Place) {
        self.timers.remove(&place);
    }

    /// When the next entry is due.
    #[inline]
    pub(super) fn next(&self) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        let packet = self.next_packet();
        let timer = self.timers.first_key_value().map(|(place, _)| *place);
        packet.into_iter().chain(timer).min().map(|(at, _)| at)
    }

    /// Takes the first entry that is due at `now`.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Due<P, T>> {
        if self.is_empty() {
            return None;
        }
        let packet = self.next_packet();
        let timer = self.timers.first_key_value().map(|(place, _)| *place);
        let first = packet.into_iter().chain(timer).min()?;
        if first.0 > now {
            return None;
        }
        if Some(first) == timer {
            return self.timers.remove(&first).map(Due::Timer);
        }
        let is_in_order = self
            .in_order
            .front()
            .is_some_and(|entry| entry.place == first);
        let entry = if is_in_order {
            self.in_order.pop_front()
        } else {
            self.others.pop()
        };
        entry.map(|entry| Due::Packet(entry.packet))
    }

    fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.others.is_empty() && self.timers.is_empty()
    }

    fn next_packet(&self) -> Option<Place> {
        let (one, other) = (self.in_order.front(), self.others.peek());
        let places = one.into_iter().chain(other).map(|entry| entry.place);
        places.min()
    }

    fn place(&mut self, at: Nanos) -> Place {
        self.last += 1;
        (at, self.last)
    }
}

struct Entry<P> {
    place: Place,
    packet: P,
}

/// The earliest is the greatest, as a heap wants it.
impl<P> Ord for Entry<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.place.cmp(&self.place)
    }
}

impl<P> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl<P> Eq for Entry<P> {}
