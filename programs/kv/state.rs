//! What the tasks of the server share, and what belongs to one client.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    rc::Rc,
    time::{Duration, UNIX_EPOCH},
};

use clap::ValueEnum;
use trapline::{
    Os, Queue, Shared, TcpStream,
    sync::{Flag, Watch},
};

use super::{resp, store::Store};

pub(super) struct Server {
    pub(super) db: Shared<Db>,
    /// How long a client may read nothing of its replies.
    pub(super) slow: Duration,
    /// How many bytes of entries are in the append-only file, and with `always` on the disk.
    pub(super) written: Watch<u64>,
    pub(super) nudge_log: Queue<()>,
    pub(super) nudge_expiry: Queue<()>,
    /// Set to have the server end, and when its clients have finished.
    pub(super) stop: Flag,
    pub(super) drained: Flag,
}

#[derive(Default)]
pub(super) struct Db {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) max_clients: usize,
    pub(super) max_memory: usize,
    pub(super) clients: BTreeMap<u64, Outbox>,
    /// The clients that have subscribed to each channel.
    pub(super) channels: BTreeMap<Rc<[u8]>, BTreeSet<u64>>,
    /// The number of the last client.
    pub(super) last: u64,
    pub(super) requests: u64,
    /// When the expiry worker looks again.
    pub(super) expiry_at: u64,
}

/// What other clients have for a client: messages of channels.
pub(super) struct Outbox {
    pub(super) letters: Vec<u8>,
    /// Told when some wait.
    pub(super) nudge: Queue<()>,
    /// Closed if too many wait.
    pub(super) stream: TcpStream,
}

/// The entries that are not in the append-only file yet.
#[derive(Default)]
pub(super) struct Log {
    /// `None` without a file.
    pub(super) fsync: Option<Fsync>,
    pub(super) pending: Vec<u8>,
    /// The bytes of all entries so far.
    pub(super) queued: u64,
    pub(super) is_rewrite_asked: bool,
    /// Why no change is taken.
    pub(super) refused: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
pub(crate) enum Fsync {
    /// A reply comes when all changes that it may show are on the disk
    Always,
    /// A crash of the machine may lose the changes of the last second
    Everysec,
    /// The system decides when it writes to the disk
    No,
}

/// A client.
#[derive(Default)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    /// The requests between MULTI and EXEC: their number and their bytes.
    pub(super) queue: Option<(usize, Vec<u8>)>,
    pub(super) is_spoiled: bool,
    /// The keys that it watches, and the last change of each before.
    pub(super) watched: Vec<(Vec<u8>, u64)>,
    pub(super) channels: BTreeSet<Rc<[u8]>>,
    /// About the bytes of these three.
    pub(super) kept: usize,
    /// The subscribers to be told that messages wait, and those that are too slow.
    pub(super) nudges: Vec<Queue<()>>,
    pub(super) too_slow: Vec<TcpStream>,
    pub(super) stop: Option<Stop>,
}

/// Why no further request is answered.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stop {
    Quit,
    Shutdown,
}

impl Session {
    /// Keeps a request for EXEC.
    pub(super) fn queue(&mut self, words: &[&[u8]]) {
        let (count, requests) = self.queue.get_or_insert_default();
        let before = requests.len();
        resp::texts(requests, words);
        self.kept += requests.len() - before;
        *count += 1;
    }

    /// Watches no key any more, and has no transaction.
    pub(super) fn unwatch(&mut self) {
        self.watched.clear();
        self.kept = 0;
    }
}

impl Log {
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        match expires {
            None => self.entry(&[b"SET", key, value]),
            Some(at) => resp::digits(at as i64, |at| {
                self.entry(&[b"SET", key, value, b"PXAT", at]);
            }),
        }
    }

    fn entry(&mut self, words: &[&[u8]]) {
        if self.fsync.is_some() {
            let before = self.pending.len();
            resp::texts(&mut self.pending, words);
            self.queued += (self.pending.len() - before) as u64;
        }
    }

    /// Takes the entries for a write, with their sum behind them.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = mem::take(&mut self.pending);
        if !bytes.is_empty() {
            let sum = format!("{:08x}", crc32fast::hash(&bytes));
            resp::texts(&mut bytes, &[b"SUM", sum.as_bytes()]);
        }
        bytes
    }
}

impl Db {
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        self.store.set(key, value, expires);
        self.log.set(key, value, expires);
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.store.remove(key).is_some() {
            self.log.entry(&[b"DEL", key]);
        }
    }

    pub(super) fn clear(&mut self) {
        self.store.clear();
        self.log.entry(&[b"FLUSHALL"]);
    }

    /// Carries out an entry of the log. Returns whether it is one.
    pub(super) fn replay(&mut self, words: &[&[u8]]) -> bool {
        match words {
            [b"SET", key, value] => self.store.set(key, value, None),
            [b"SET", key, value, b"PXAT", at] => match resp::number(at) {
                Some(at) => self.store.set(key, value, Some(at as u64)),
                None => return false,
            },
            [b"DEL", key] => drop(self.store.remove(key)),
            [b"FLUSHALL"] => self.store.clear(),
            _ => return false,
        }
        true
    }

    /// Removes some keys that have expired. Returns how long the others may wait: not long, since the wall
    /// clock may step. The log needs no entry: a key expires there, too.
    pub(super) fn expire(&mut self, now: u64) -> Option<Duration> {
        for _ in 0..100 {
            match self.store.expiries.first() {
                Some((at, key)) if *at <= now => {
                    let key = Rc::clone(key);
                    self.store.remove(&key);
                }
                _ => break,
            }
        }
        let first = self.store.expiries.first().map(|(at, _)| *at);
        let next = first.map(|at| at.clamp(now, now + 1000));
        self.expiry_at = next.unwrap_or(u64::MAX);
        next.map(|at| Duration::from_millis(at - now))
    }

    /// The options of the command line, by the names that redis gives them.
    pub(super) fn settings(&self) -> [(&'static str, String); 5] {
        let fsync = self.log.fsync.and_then(|fsync| fsync.to_possible_value());
        let fsync = fsync.as_ref().map_or("no", |value| value.get_name());
        let is_on = if self.log.fsync.is_some() {
            "yes"
        } else {
            "no"
        };
        [
            ("appendfsync", fsync.into()),
            ("appendonly", is_on.into()),
            ("maxclients", self.max_clients.to_string()),
            ("maxmemory", self.max_memory.to_string()),
            ("save", String::new()),
        ]
    }

    pub(super) fn facts(&self) -> [(&'static str, String); 6] {
        let (keys, expires) = (self.store.entries.len(), self.store.expiries.len());
        let is_right = self.log.refused.is_none();
        [
            (
                "aof_last_write_status",
                if is_right { "ok" } else { "err" }.into(),
            ),
            ("connected_clients", self.clients.len().to_string()),
            ("db0", format!("keys={keys},expires={expires}")),
            ("total_commands_processed", self.requests.to_string()),
            ("total_connections_received", self.last.to_string()),
            ("used_memory", self.store.bytes.to_string()),
        ]
    }

    pub(super) fn unsubscribe(&mut self, id: u64, channel: &[u8]) {
        if let Some(subscribers) = self.channels.get_mut(channel) {
            subscribers.remove(&id);
            if subscribers.is_empty() {
                self.channels.remove(channel);
            }
        }
    }

    /// Returns the number of the new client.
    pub(super) fn join(&mut self, outbox: Outbox) -> u64 {
        self.last += 1;
        self.clients.insert(self.last, outbox);
        self.last
    }

    pub(super) fn leave(&mut self, session: &Session) {
        self.clients.remove(&session.id);
        for channel in &session.channels {
            self.unsubscribe(session.id, channel);
        }
    }
}

/// Returns the wall clock in milliseconds.
pub(super) async fn wall_clock(os: &mut Os) -> u64 {
    let since = os.wall_clock().await.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
