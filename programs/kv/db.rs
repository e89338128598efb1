//! The keys with their values, when they expire, and the entries of the append-only file. Its walks have
//! an order that no hash decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Bound::{Excluded, Unbounded},
    rc::Rc,
    time::{Duration, UNIX_EPOCH},
};

use clap::{ValueEnum, builder::RangedU64ValueParser};
use trapline::{Journal, Os, Shared, TcpStream, sync::Flag};

use crate::resp::{number, request, texts};

pub(super) type Key = Rc<[u8]>;
/// Under each key the clients that watch it, or under each channel those that have subscribed to it.
pub(super) type Groups = BTreeMap<Key, BTreeSet<u64>>;

/// What a key takes beside its bytes, about.
const OVERHEAD: usize = 128;
/// About how many bytes of entries a walk gives at once.
const PIECE: usize = 256 << 10;

#[derive(Clone, Copy, Default, clap::Args)]
pub(crate) struct Limits {
    /// The most clients at once
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = one_or_more())]
    pub(super) maxclients: usize,
    /// The most bytes of keys and values, about, before changes that need more are refused; 0 is no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(super) maxmemory: usize,
}

fn one_or_more() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Fsync {
    /// A reply comes when all changes that it may show are on the disk
    Always,
    /// A crash of the machine may lose the changes of the last second
    Everysec,
    /// The system decides when it writes to the disk
    No,
}

/// What the tasks of the server share.
pub(super) struct Server {
    pub(super) db: Shared<Db>,
    pub(super) log: Option<Journal>,
    /// How long a client may read nothing of its replies.
    pub(super) slow: Duration,
    /// Set when there are keys that expire.
    pub(super) expires: Flag,
    /// Set to have the server end.
    pub(super) stop: Flag,
}

/// The part of it that a task changes in one turn.
#[derive(Default)]
pub(super) struct Db {
    pub(super) limits: Limits,
    pub(super) fsync: Option<Fsync>,
    /// The append-only file, which a task of its own writes.
    pub(super) log: Option<Journal>,
    /// How many entries were added to that.
    pub(super) logged: u64,
    /// The wall clock in milliseconds, as it was read last.
    pub(super) now: u64,
    pub(super) entries: BTreeMap<Key, Entry>,
    /// The keys in the order in which they came, for SCAN.
    pub(super) order: BTreeMap<u64, Key>,
    pub(super) expiries: BTreeSet<(u64, Key)>,
    pub(super) changes: u64,
    /// The clients that watch a key, and know of no change of it since.
    pub(super) watched: Groups,
    /// About the memory that keys and values take.
    pub(super) bytes: usize,
    pub(super) clients: BTreeMap<u64, Rc<Outbox>>,
    /// The clients that have subscribed to each channel.
    pub(super) channels: Groups,
    /// The number of the last client.
    pub(super) last: u64,
    pub(super) requests: u64,
}

pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    /// In milliseconds of the wall clock.
    pub(super) expires: Option<u64>,
    /// The number of the first change: a key keeps it as long as it exists.
    number: u64,
}

/// What other clients have for a client: messages of channels.
pub(super) struct Outbox {
    pub(super) letters: Shared<Vec<u8>>,
    /// Set when some wait.
    pub(super) nudge: Flag,
    /// Closed if too many wait.
    pub(super) stream: TcpStream,
}

impl Db {
    // ---- keys

    pub(super) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let entry = self.entries.get(key);
        entry.filter(|entry| entry.expires.is_none_or(|at| at > self.now))
    }

    pub(super) fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.get(key).map(|entry| &*entry.value)
    }

    pub(super) fn expires(&self, key: &[u8]) -> Option<u64> {
        self.get(key).and_then(|entry| entry.expires)
    }

    /// Sets a value, and when it expires.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        self.changes += 1;
        self.watched.remove(key);
        match self.entries.get_mut(key) {
            Some(entry) if entry.expires == expires => {
                self.bytes = self.bytes - entry.value.len() + value.len();
                entry.value.clear();
                entry.value.extend_from_slice(value);
            }
            _ => self.insert(key, value, expires),
        }
        self.log(|out| put(out, key, value, expires));
    }

    fn insert(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        let number = self.take(key).map_or(self.changes, |old| old.number);
        let key: Key = key.into();
        self.bytes += key.len() + value.len() + OVERHEAD;
        self.order.insert(number, Rc::clone(&key));
        let expiry = expires.map(|at| (at, Rc::clone(&key)));
        self.expiries.extend(expiry);
        let entry = Entry {
            value: value.to_vec(),
            expires,
            number,
        };
        self.entries.insert(key, entry);
    }

    /// Returns whether the key was there.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let is_there = self.get(key).is_some();
        if self.take(key).is_some() {
            self.log(|out| texts(out, &[b"DEL", key]));
        }
        is_there
    }

    fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.watched.remove(&key);
        self.bytes -= key.len() + entry.value.len() + OVERHEAD;
        self.order.remove(&entry.number);
        if let Some(at) = entry.expires {
            self.expiries.remove(&(at, key));
        }
        Some(entry)
    }

    pub(super) fn clear(&mut self) {
        self.watched
            .retain(|key, _| !self.entries.contains_key(key));
        self.entries.clear();
        self.order.clear();
        self.expiries.clear();
        self.bytes = 0;
        self.log(|out| texts(out, &[b"FLUSHALL"]));
    }

    /// Looks at so many keys from this number down, or from the youngest if it is zero: a walk does not meet
    /// the keys that are made meanwhile, and so ends. Returns those that live, and the number to go on with:
    /// zero at the end.
    pub(super) fn scan(&self, from: u64, count: usize) -> (u64, Vec<&Key>) {
        let first = if from == 0 { u64::MAX } else { from };
        let mut keys = self.order.range(..=first).rev();
        let found = keys.by_ref().take(count).map(|(_, key)| key);
        let found = found.filter(|key| self.get(key).is_some()).collect();
        (keys.next().map_or(0, |(number, _)| *number), found)
    }

    /// Removes a key, if it has expired.
    pub(super) fn expire_one(&mut self, key: &[u8]) {
        if self.get(key).is_none() {
            self.take(key);
        }
    }

    /// Sets the clock, and removes some keys that have expired by it. Returns how long the others may wait: not
    /// long, since the wall clock may step. The log needs no entry: a key expires there, too.
    pub(super) fn expire(&mut self, now: u64) -> Option<Duration> {
        self.now = now;
        for _ in 0..100 {
            match self.expiries.first() {
                Some((at, key)) if *at <= now => self.take(&Rc::clone(key)),
                _ => break,
            };
        }
        let (first, _) = self.expiries.first()?;
        Some(Duration::from_millis(first.saturating_sub(now).min(1000)))
    }

    // ---- the append-only file: its entries are requests, and each says all about its key

    fn log(&mut self, entry: impl FnOnce(&mut Vec<u8>)) {
        if let Some(log) = &self.log {
            self.logged += 1;
            log.add(entry);
        }
    }

    /// Why no change is taken.
    pub(super) fn refused(&self) -> Option<String> {
        self.log.as_ref().and_then(Journal::error)
    }

    /// Carries out entries.
    pub(super) fn replay(&mut self, mut entries: &[u8]) -> io::Result<()> {
        let mut words = Vec::new();
        while let Ok(len) = request(entries, &mut words) {
            match *words {
                [b"SET", key, value] => self.set(key, value, None),
                [b"SET", key, value, b"PXAT", at] if number(at).is_some() => {
                    self.set(key, value, number(at).map(|at| at as u64));
                }
                [b"DEL", key] => drop(self.take(key)),
                [b"FLUSHALL"] => self.clear(),
                _ => break,
            }
            entries = &entries[len..];
        }
        let strange = "the file of --aof has an entry that is none of this program";
        let is_whole = entries.is_empty().then_some(());
        is_whole.ok_or_else(|| io::Error::other(strange))
    }

    /// What INFO tells. The first ones, [`Db::SETTINGS`], are options by the names that redis gives them.
    pub(super) fn facts(&self) -> [(&'static str, String); 11] {
        let fsync = self.fsync.map_or("no".into(), |fsync| format!("{fsync:?}"));
        let is_on = self.log.as_ref().map_or("no", |_| "yes");
        let state = self.refused().map_or("ok", |_| "err");
        let (keys, expires) = (self.entries.len(), self.expiries.len());
        [
            ("appendfsync", fsync.to_lowercase()),
            ("appendonly", is_on.into()),
            ("maxclients", self.limits.maxclients.to_string()),
            ("maxmemory", self.limits.maxmemory.to_string()),
            ("save", String::new()),
            ("aof_last_write_status", state.into()),
            ("connected_clients", self.clients.len().to_string()),
            ("db0", format!("keys={keys},expires={expires}")),
            ("total_commands_processed", self.requests.to_string()),
            ("total_connections_received", self.last.to_string()),
            ("used_memory", self.bytes.to_string()),
        ]
    }

    pub(super) const SETTINGS: usize = 5;
}

/// Removes a client from the groups of these keys.
pub(super) fn leave<'a>(groups: &mut Groups, id: u64, keys: impl IntoIterator<Item = &'a Key>) {
    for key in keys {
        if let Some(clients) = groups.get_mut(key) {
            clients.remove(&id);
            if clients.is_empty() {
                groups.remove(key);
            }
        }
    }
}

fn put(out: &mut Vec<u8>, key: &[u8], value: &[u8], expires: Option<u64>) {
    match expires {
        None => texts(out, &[b"SET", key, value]),
        Some(at) => {
            let mut digits = itoa::Buffer::new();
            let at = digits.format(at).as_bytes();
            texts(out, &[b"SET", key, value, b"PXAT", at]);
        }
    }
}

/// Begins a walk over all keys, for a new append-only file.
pub(super) fn walk(db: Shared<Db>) -> impl FnMut(&mut Vec<u8>) -> bool {
    let mut last: Option<Key> = None;
    move |out| {
        db.update(|db| {
            let from = last.take();
            let from = from.as_ref().map_or(Unbounded, Excluded);
            for (key, entry) in db.entries.range::<Key, _>((from, Unbounded)) {
                put(out, key, &entry.value, entry.expires);
                if out.len() >= PIECE {
                    last = Some(Rc::clone(key));
                    break;
                }
            }
            last.is_some()
        })
    }
}

/// Returns the wall clock in milliseconds.
pub(super) async fn wall_clock(os: &mut Os) -> u64 {
    let since = os.wall_clock().await.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
