//! The keys with their values, and when they expire. Its walks have an order that no hash decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

pub(super) type Key = Rc<[u8]>;

/// What a key takes beside its bytes, about.
const OVERHEAD: usize = 128;

#[derive(Default)]
pub(super) struct Store {
    entries: BTreeMap<Key, Entry>,
    /// The keys in the order in which they came, for SCAN: a key keeps its number as long as it exists.
    order: BTreeMap<u64, Key>,
    expiries: BTreeSet<(u64, Key)>,
    /// The number of the last key.
    last: u64,
    /// About the memory that all of it takes.
    bytes: usize,
    /// The keys that clients watch: by how many, and how often they have changed since.
    watched: BTreeMap<Key, (usize, u64)>,
}

pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    /// In milliseconds of the wall clock.
    pub(super) expires: Option<u64>,
    number: u64,
}

impl Store {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many keys expire.
    pub(super) fn expiring(&self) -> usize {
        self.expiries.len()
    }

    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Returns a key that has expired.
    pub(super) fn expired(&self, now: u64) -> Option<Key> {
        let (at, key) = self.expiries.first()?;
        (*at <= now).then(|| Rc::clone(key))
    }

    pub(super) fn get(&self, key: &[u8], now: u64) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        entry.expires.is_none_or(|at| at > now).then_some(entry)
    }

    /// Returns whether the key is there, though it may have expired.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// Sets a value, and when it expires.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        self.change(key, expires, |old| {
            old.clear();
            old.extend_from_slice(value);
        });
    }

    /// Changes a value, which begins as an empty one.
    pub(super) fn change(
        &mut self,
        key: &[u8],
        expires: Option<u64>,
        change: impl FnOnce(&mut Vec<u8>),
    ) {
        self.touch(key);
        if let Some(entry) = self.entries.get_mut(key) {
            self.bytes -= entry.value.len();
            change(&mut entry.value);
            self.bytes += entry.value.len();
            let old = std::mem::replace(&mut entry.expires, expires);
            if old != expires {
                let key: Key = key.into();
                if let Some(old) = old {
                    self.expiries.remove(&(old, Rc::clone(&key)));
                }
                self.expiries.extend(expires.map(|at| (at, key)));
            }
            return;
        }
        let key: Key = key.into();
        let mut value = Vec::new();
        change(&mut value);
        self.bytes += key.len() + value.len() + OVERHEAD;
        self.last += 1;
        self.order.insert(self.last, Rc::clone(&key));
        self.expiries
            .extend(expires.map(|at| (at, Rc::clone(&key))));
        let entry = Entry {
            value,
            expires,
            number: self.last,
        };
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let Some((key, entry)) = self.entries.remove_entry(key) else {
            return false;
        };
        self.touch(&key);
        self.bytes -= key.len() + entry.value.len() + OVERHEAD;
        self.order.remove(&entry.number);
        if let Some(at) = entry.expires {
            self.expiries.remove(&(at, key));
        }
        true
    }

    pub(super) fn clear(&mut self) {
        let watched = std::mem::take(&mut self.watched);
        *self = Self {
            watched,
            last: self.last,
            ..Self::default()
        };
        self.watched
            .values_mut()
            .for_each(|(_, changes)| *changes += 1);
    }

    /// Walks the keys in their order.
    pub(super) fn iter(&self, now: u64) -> impl Iterator<Item = (&Key, &Entry)> {
        let lives = move |(_, entry): &(&Key, &Entry)| entry.expires.is_none_or(|at| at > now);
        self.entries.iter().filter(lives)
    }

    /// Returns the entries behind this key, or the first ones.
    pub(super) fn behind<'a>(
        &'a self,
        key: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Entry)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = key.map_or(Unbounded, |key| Excluded(Rc::clone(key)));
        self.entries.range::<Key, _>((from, Unbounded))
    }

    /// Looks at so many keys from this number on. Returns those that live, and the number to go on with:
    /// zero at the end.
    pub(super) fn scan(&self, from: u64, count: usize, now: u64) -> (u64, Vec<Key>) {
        let mut keys = self.order.range(from..);
        let found: Vec<Key> = keys
            .by_ref()
            .take(count)
            .map(|(_, key)| Rc::clone(key))
            .collect();
        let next = keys.next().map_or(0, |(number, _)| *number);
        let lives = |key: &Key| self.get(key, now).is_some();
        (next, found.into_iter().filter(lives).collect())
    }

    /// Returns how often the key has changed, which is counted from now on.
    pub(super) fn watch(&mut self, key: &[u8]) -> u64 {
        let (watchers, changes) = self.watched.entry(key.into()).or_default();
        *watchers += 1;
        *changes
    }

    /// Returns how often the key has changed. One client watches it no more.
    pub(super) fn unwatch(&mut self, key: &[u8]) -> Option<u64> {
        let (watchers, changes) = self.watched.get_mut(key)?;
        *watchers -= 1;
        let (is_last, changes) = (*watchers == 0, *changes);
        if is_last {
            self.watched.remove(key);
        }
        Some(changes)
    }

    fn touch(&mut self, key: &[u8]) {
        if !self.watched.is_empty()
            && let Some((_, changes)) = self.watched.get_mut(key)
        {
            *changes += 1;
        }
    }
}
