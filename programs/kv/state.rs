//! What the tasks of the server share, and what belongs to one client.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::{Duration, UNIX_EPOCH},
};

use clap::ValueEnum;
use trapline::{Durability, Journal, Os, Shared, TcpStream, sync::Flag};

use super::store::Store;

pub(super) struct Server {
    pub(super) db: Shared<Db>,
    /// The append-only file, which a task of its own writes.
    pub(super) log: Option<Journal>,
    /// How long a client may read nothing of its replies.
    pub(super) slow: Duration,
    /// Set when a key expires before the expiry worker looks again.
    pub(super) expires: Flag,
    /// Set to have the server end, and when its clients have finished.
    pub(super) stop: Flag,
    pub(super) drained: Flag,
}

#[derive(Default)]
pub(super) struct Db {
    pub(super) store: Store,
    pub(super) log: Option<Journal>,
    /// How many entries were added to that.
    pub(super) changes: u64,
    pub(super) fsync: Option<Fsync>,
    pub(super) max_clients: usize,
    pub(super) max_memory: usize,
    pub(super) clients: BTreeMap<u64, Rc<Outbox>>,
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
    pub(super) letters: Shared<Vec<u8>>,
    /// Set when some wait.
    pub(super) nudge: Flag,
    /// Closed if too many wait.
    pub(super) stream: TcpStream,
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

impl From<Fsync> for Durability {
    fn from(fsync: Fsync) -> Self {
        match fsync {
            Fsync::Always => Self::Always,
            Fsync::Everysec => Self::Every(Duration::from_secs(1)),
            Fsync::No => Self::Never,
        }
    }
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
    /// The subscribers that are to be told of messages.
    pub(super) told: Vec<Rc<Outbox>>,
    pub(super) stop: Option<Stop>,
}

/// Why no further request is answered.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stop {
    Quit,
    Shutdown,
}

impl Db {
    /// Removes some keys that have expired. Returns how long the others may wait: not long, since the wall
    /// clock may step. The log needs no entry: a key expires there, too.
    pub(super) fn expire(&mut self, now: u64) -> Duration {
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
        Duration::from_millis(self.expiry_at - now)
    }

    /// Returns whether a key expires before the expiry worker looks again.
    pub(super) fn expires_sooner(&self) -> bool {
        let first = self.store.expiries.first();
        first.is_some_and(|(at, _)| *at < self.expiry_at)
    }

    /// The options of the command line, by the names that redis gives them.
    pub(super) fn settings(&self) -> [(&'static str, String); 5] {
        let fsync = self.fsync.and_then(|fsync| fsync.to_possible_value());
        let fsync = fsync.as_ref().map_or("no", |value| value.get_name());
        let is_on = self.log.as_ref().map_or("no", |_| "yes");
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
        let status = self.refused().map_or("ok", |_| "err");
        [
            ("aof_last_write_status", status.into()),
            ("connected_clients", self.clients.len().to_string()),
            ("db0", format!("keys={keys},expires={expires}")),
            ("total_commands_processed", self.requests.to_string()),
            ("total_connections_received", self.last.to_string()),
            ("used_memory", self.store.bytes.to_string()),
        ]
    }

    /// Why no change is taken.
    pub(super) fn refused(&self) -> Option<String> {
        self.log.as_ref().and_then(Journal::error)
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
    pub(super) fn join(&mut self, outbox: Rc<Outbox>) -> u64 {
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
