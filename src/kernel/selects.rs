//! The selects under way, and the lists of those that watch a queue or the end of a task.
//! `select_calls.rs` has the call.
//!
//! A select is on the list of each of its sources from the turn in which it blocks until it is
//! answered. To be woken does not take it off: if another task was faster, it goes on waiting in its
//! old place.

use slab::Slab;

use super::timers::Timer;
use crate::{
    abi::{Interest, Nanos},
    sched::Runnable,
};

/// The index of no watch.
const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct Selects {
    /// By key. A free one keeps the memory of its sources.
    slots: Vec<Select>,
    free: Vec<u32>,
    watches: Slab<Watch>,
    /// The number of the last select.
    last: u64,
}

/// The most sources whose memory is kept for the next select.
const KEPT: usize = 64;

#[derive(Debug)]
struct Select {
    task: Runnable,
    /// In order of arrival.
    number: u64,
    /// When the task called, if that matters.
    at: Nanos,
    /// With the place on the list of each, while the select is listed.
    sources: Vec<(Interest, u32)>,
    /// The source to look at first.
    first: usize,
    is_listed: bool,
    /// The timer of its first instant, while that is armed.
    timer: Option<Timer>,
}

/// A select on a list of watchers.
#[derive(Debug)]
struct Watch {
    select: u32,
    previous: u32,
    next: u32,
}

/// The selects that watch a thing, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watchers {
    first: u32,
    last: u32,
}

impl Default for Watchers {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl Watchers {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

impl Selects {
    /// Adds the select of a task, whose call was at `now`.
    pub(super) fn begin(
        &mut self,
        task: Runnable,
        sources: &[Interest],
        first: u64,
        now: Nanos,
    ) -> u32 {
        self.last += 1;
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Select {
                task,
                number: 0,
                at: now,
                sources: Vec::new(),
                first: 0,
                is_listed: false,
                timer: None,
            });
            self.slots.len() as u32 - 1
        });
        let select = &mut self.slots[key as usize];
        (select.task, select.number, select.at) = (task, self.last, now);
        select.first = (first as usize).checked_rem(sources.len()).unwrap_or(0);
        let sources = sources.iter().map(|source| (*source, NONE));
        select.sources.extend(sources);
        key
    }

    pub(super) fn reset(&mut self) {
        if self.last > 0 {
            *self = Self::default();
        }
    }

    /// Forgets a select, which is on no list.
    pub(super) fn end(&mut self, key: u32) {
        let select = &mut self.slots[key as usize];
        select.sources.clear();
        if select.sources.capacity() > KEPT {
            select.sources = Vec::new();
        }
        self.free.push(key);
    }

    /// Returns whether no select is under way.
    pub(super) fn are_none(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Returns the sources of a select, those to look at first in front, and their indices.
    pub(super) fn in_turn(&self, key: u32) -> impl Iterator<Item = usize> + use<> {
        let Select { sources, first, .. } = &self.slots[key as usize];
        (*first..sources.len()).chain(0..*first)
    }

    pub(super) fn source(&self, key: u32, at: usize) -> Interest {
        self.slots[key as usize].sources[at].0
    }

    pub(super) fn sources(&self, key: u32) -> impl ExactSizeIterator<Item = Interest> {
        let sources = self.slots[key as usize].sources.iter();
        sources.map(|(source, _)| *source)
    }

    pub(super) fn len(&self, key: u32) -> usize {
        self.slots[key as usize].sources.len()
    }

    /// Marks that a select is on the lists of its sources. Returns whether it was before.
    pub(super) fn set_listed(&mut self, key: u32, is_listed: bool) -> bool {
        std::mem::replace(&mut self.slots[key as usize].is_listed, is_listed)
    }

    pub(super) fn is_listed(&self, key: u32) -> bool {
        self.slots[key as usize].is_listed
    }

    // ---- its timer

    /// Returns the first instant among its sources.
    pub(super) fn deadline(&self, key: u32) -> Option<Nanos> {
        let instants = self.sources(key);
        instants
            .filter_map(|source| self.instant(key, source))
            .min()
    }

    /// Returns the instant at which a source is ready, if it is one.
    pub(super) fn instant(&self, key: u32, source: Interest) -> Option<Nanos> {
        match source {
            Interest::After(span) => Some(self.slots[key as usize].at.saturating_add(span)),
            Interest::At(instant) => Some(instant),
            _ => None,
        }
    }

    pub(super) fn set_timer(&mut self, key: u32, timer: Option<Timer>) -> Option<Timer> {
        std::mem::replace(&mut self.slots[key as usize].timer, timer)
    }

    pub(super) fn timer(&self, key: u32) -> Option<Timer> {
        self.slots[key as usize].timer
    }

    // ---- its places on the lists

    /// Puts a select on the list of one of its sources, behind those that arrived earlier.
    pub(super) fn watch(&mut self, key: u32, at: usize, list: &mut Watchers) {
        let number = self.slots[key as usize].number;
        let mut previous = list.last;
        while let Some(watch) = self.watches.get(previous as usize)
            && self.slots[watch.select as usize].number > number
        {
            previous = watch.previous;
        }
        let next = match self.watches.get(previous as usize) {
            Some(watch) => watch.next,
            None => list.first,
        };
        let watch = Watch {
            select: key,
            previous,
            next,
        };
        let watch = self.watches.insert(watch) as u32;
        *self.next_of(previous, list) = watch;
        *self.previous_of(next, list) = watch;
        self.slots[key as usize].sources[at].1 = watch;
    }

    /// Takes a select off the list of one of its sources. The list may be gone with its owner.
    pub(super) fn unwatch(&mut self, key: u32, at: usize, list: Option<&mut Watchers>) {
        let watch = std::mem::replace(&mut self.slots[key as usize].sources[at].1, NONE);
        let Watch { previous, next, .. } = self.watches.remove(watch as usize);
        if let Some(list) = list {
            *self.next_of(previous, list) = next;
            *self.previous_of(next, list) = previous;
        }
    }

    fn next_of<'a>(&'a mut self, watch: u32, list: &'a mut Watchers) -> &'a mut u32 {
        match self.watches.get_mut(watch as usize) {
            Some(watch) => &mut watch.next,
            None => &mut list.first,
        }
    }

    fn previous_of<'a>(&'a mut self, watch: u32, list: &'a mut Watchers) -> &'a mut u32 {
        match self.watches.get_mut(watch as usize) {
            Some(watch) => &mut watch.previous,
            None => &mut list.last,
        }
    }

    /// Iterates over the tasks on a list: returns the task at a place, and the next place.
    pub(super) fn walk(&self, place: u32) -> Option<(Runnable, u32)> {
        let watch = self.watches.get(place as usize)?;
        Some((self.slots[watch.select as usize].task, watch.next))
    }
}

impl Watchers {
    /// Returns the place at which [`Selects::walk`] begins.
    pub(super) fn begin(&self) -> u32 {
        self.first
    }
}
