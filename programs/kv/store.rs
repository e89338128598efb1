//! The keys with their values, and when they expire. Its walks have an order that no hash decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    rc::Rc,
};

pub(super) type Key = Rc<[u8]>;

/// What a key takes beside its bytes, about.
const OVERHEAD: usize = 128;

#[derive(Default)]
pub(super) struct Store {
    /// The wall clock in milliseconds, as it was read last.
    pub(super) now: u64,
    pub(super) entries: BTreeMap<Key, Entry>,
    /// The keys in the order in which they came, for SCAN.
    order: BTreeMap<u64, Key>,
    pub(super) expiries: BTreeSet<(u64, Key)>,
    changes: u64,
    /// About the memory that all of it takes.
    pub(super) bytes: usize,
}

pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    /// In milliseconds of the wall clock.
    pub(super) expires: Option<u64>,
    /// The number of the last change.
    version: u64,
    /// That of the first: a key keeps it as long as it exists.
    number: u64,
}

impl Store {
    pub(super) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        entry
            .expires
            .is_none_or(|at| at > self.now)
            .then_some(entry)
    }

    /// Sets a value, and when it expires.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        self.changes += 1;
        let version = self.changes;
        if let Some(entry) = self.entries.get_mut(key)
            && entry.expires == expires
        {
            self.bytes = self.bytes - entry.value.len() + value.len();
            entry.value.clear();
            entry.value.extend_from_slice(value);
            entry.version = version;
            return;
        }
        let number = self.remove(key).map_or(version, |old| old.number);
        let key: Key = key.into();
        self.bytes += key.len() + value.len() + OVERHEAD;
        self.order.insert(number, Rc::clone(&key));
        let expiry = expires.map(|at| (at, Rc::clone(&key)));
        self.expiries.extend(expiry);
        let entry = Entry {
            value: value.to_vec(),
            expires,
            version,
            number,
        };
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.bytes -= key.len() + entry.value.len() + OVERHEAD;
        self.order.remove(&entry.number);
        if let Some(at) = entry.expires {
            self.expiries.remove(&(at, key));
        }
        Some(entry)
    }

    pub(super) fn clear(&mut self) {
        *self = Self {
            now: self.now,
            changes: self.changes,
            ..Self::default()
        };
    }

    /// Returns the number of a key's last change; zero if it does not exist.
    pub(super) fn version(&self, key: &[u8]) -> u64 {
        self.get(key).map_or(0, |entry| entry.version)
    }

    /// Returns the entries behind this key, or all.
    pub(super) fn behind(&self, key: Option<&Key>) -> impl Iterator<Item = (&Key, &Entry)> {
        let from = key.map_or(Unbounded, Excluded);
        self.entries.range::<Key, _>((from, Unbounded))
    }

    /// Looks at so many keys from this number on. Returns those that live, and the number to go on with:
    /// zero at the end.
    pub(super) fn scan(&self, from: u64, count: usize) -> (u64, Vec<&Key>) {
        let mut keys = self.order.range(from..);
        let found = keys.by_ref().take(count).map(|(_, key)| key);
        let found = found.filter(|key| self.get(key).is_some()).collect();
        (keys.next().map_or(0, |(number, _)| *number), found)
    }
}
