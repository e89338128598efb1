//! The state of the server, which all tasks share, and what belongs to one client.

use std::{collections::BTreeMap, rc::Rc};

use trapline::{Queue, TcpStream};

use super::{
    log::Log,
    store::{Key, Store},
};

/// Where messages for a subscriber go.
#[derive(Clone)]
pub(super) struct Mailbox {
    /// As they are sent.
    pub(super) letters: Queue<Rc<[u8]>>,
    /// Closed if too many wait.
    pub(super) stream: TcpStream,
}

pub(super) struct Db {
    pub(super) store: Store,
    pub(super) log: Log,
    /// The subscribers of each channel, by the number of the client.
    pub(super) channels: BTreeMap<Rc<[u8]>, BTreeMap<u64, Mailbox>>,
    pub(super) clients: usize,
    pub(super) max_clients: usize,
    pub(super) max_memory: usize,
    /// The number of the last client.
    pub(super) last: u64,
    pub(super) requests: u64,
}

/// A client.
#[derive(Default)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    /// The wall clock in milliseconds, as it was read last.
    pub(super) now: u64,
    /// The requests between MULTI and EXEC.
    pub(super) queue: Option<Vec<Vec<Vec<u8>>>>,
    pub(super) is_spoiled: bool,
    /// The keys that it watches, and how often each had changed before.
    pub(super) watched: Vec<(Vec<u8>, u64)>,
    pub(super) mailbox: Option<Mailbox>,
    /// The number of channels it has subscribed to.
    pub(super) channels: usize,
    /// Messages that it has published, still to be put.
    pub(super) letters: Vec<(Mailbox, Rc<[u8]>)>,
    /// Whether the worker of the log has something else to do than to write.
    pub(super) asks_log: bool,
    pub(super) stop: Option<Stop>,
}

/// Why no further request is answered for now.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stop {
    /// The same request is to come again when there is a mailbox.
    NeedsMailbox,
    Quit,
    Shutdown,
}

impl Db {
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        self.store.set(key, value, expires);
        self.log.set(key, value, expires);
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.store.remove(key) {
            self.log.entry(&[b"DEL", key]);
        }
    }

    pub(super) fn expire(&mut self, key: &[u8], expires: Option<u64>) {
        self.store.change(key, expires, |_| {});
        match expires {
            Some(at) => self
                .log
                .entry(&[b"PEXPIREAT", key, at.to_string().as_bytes()]),
            None => self.log.entry(&[b"PERSIST", key]),
        }
    }

    pub(super) fn clear(&mut self) {
        self.store.clear();
        self.log.entry(&[b"FLUSHALL"]);
    }

    /// Carries out an entry of the log. Returns whether it is one.
    pub(super) fn replay(&mut self, words: &[&[u8]]) -> bool {
        let instant = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok();
        match words {
            [b"SET", key, value] => self.store.set(key, value, None),
            [b"SET", key, value, b"PXAT", at] => match instant(at) {
                Some(at) => self.store.set(key, value, Some(at)),
                None => return false,
            },
            [b"DEL", key] => drop(self.store.remove(key)),
            [b"PEXPIREAT", key, at] => match instant(at) {
                // The rewritten log may be behind the entry: then the key is gone.
                Some(at) if self.store.has(key) => self.store.change(key, Some(at), |_| {}),
                Some(_) => {}
                None => return false,
            },
            [b"PERSIST", key] if self.store.has(key) => self.store.change(key, None, |_| {}),
            [b"PERSIST", _] => {}
            [b"FLUSHALL"] => self.store.clear(),
            _ => return false,
        }
        true
    }

    /// Removes keys that have expired: a few of them. Returns when the next one expires.
    pub(super) fn expire_some(&mut self, now: u64) -> Option<u64> {
        for _ in 0..100 {
            let Some(key) = self.store.expired(now) else {
                break;
            };
            self.remove(&key);
        }
        self.store.next_expiry()
    }

    pub(super) fn channels_of(&self, id: u64) -> Vec<Rc<[u8]>> {
        let is_his =
            |(_, subscribers): &(&Rc<[u8]>, &BTreeMap<u64, _>)| subscribers.contains_key(&id);
        self.channels
            .iter()
            .filter(is_his)
            .map(|(channel, _)| Rc::clone(channel))
            .collect()
    }

    /// Returns whether the client was a subscriber.
    pub(super) fn unsubscribe(&mut self, id: u64, channel: &[u8]) -> bool {
        let Some(subscribers) = self.channels.get_mut(channel) else {
            return false;
        };
        let was_one = subscribers.remove(&id).is_some();
        if subscribers.is_empty() {
            self.channels.remove(channel);
        }
        was_one
    }

    /// Forgets a client.
    pub(super) fn leave(&mut self, session: &mut Session) {
        self.clients -= 1;
        session.unwatch(self);
        if session.channels > 0 {
            for channel in self.channels_of(session.id) {
                self.unsubscribe(session.id, &channel);
            }
        }
    }

    pub(super) fn settings(&self) -> [(&'static str, String); 5] {
        [
            ("appendfsync", self.log.fsync().to_string()),
            (
                "appendonly",
                if self.log.is_on() { "yes" } else { "no" }.into(),
            ),
            ("maxclients", self.max_clients.to_string()),
            (
                "maxmemory",
                match self.max_memory {
                    usize::MAX => "0".into(),
                    bytes => bytes.to_string(),
                },
            ),
            ("save", String::new()),
        ]
    }

    pub(super) fn info(&self) -> String {
        let (store, log) = (&self.store, &self.log);
        let ok = if log.refused().is_some() { "err" } else { "ok" };
        format!(
            "# Server\r\nredis_version:7.0.0\r\nserver_name:trapline\r\n\
             # Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\
             # Memory\r\nused_memory:{}\r\nmaxmemory:{}\r\n\
             # Persistence\r\nloading:0\r\naof_enabled:{}\r\naof_last_write_status:{ok}\r\n\
             # Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
             # Keyspace\r\ndb0:keys={},expires={}\r\n",
            self.clients,
            self.max_clients,
            store.bytes(),
            if self.max_memory == usize::MAX {
                0
            } else {
                self.max_memory
            },
            u8::from(log.is_on()),
            self.last,
            self.requests,
            store.len(),
            store.expiring(),
        )
    }
}

impl Session {
    pub(super) fn is_subscribed(&self) -> bool {
        self.channels > 0
    }

    /// Notes that a transaction under way is to be refused.
    pub(super) fn spoil(&mut self) {
        self.is_spoiled |= self.queue.is_some();
    }

    /// Watches no key any more. Returns whether one has changed.
    pub(super) fn unwatch(&mut self, db: &mut Db) -> bool {
        let mut is_changed = false;
        for (key, before) in self.watched.drain(..) {
            let expired = db.store.expired(self.now);
            if expired.is_some_and(|expired| *expired == *key) {
                db.remove(&key);
            }
            is_changed |= db.store.unwatch(&key) != Some(before);
        }
        is_changed
    }
}

/// What is in the store, as entries: those of the keys behind this one, about so many bytes of them.
/// Returns the last key.
pub(super) fn dump(store: &Store, behind: Option<&Key>, bytes: usize, to: &mut Log) -> Option<Key> {
    let mut last = None;
    for (key, entry) in store.behind(behind) {
        to.set(key, &entry.value, entry.expires);
        last = Some(Rc::clone(key));
        if to.pending() >= bytes {
            break;
        }
    }
    last
}
