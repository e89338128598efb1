//! The entries of the append-only file, in the form of requests. Each says all about its key.

use std::{io, rc::Rc};

use trapline::Shared;

use super::{
    resp::{number, request, texts},
    state::Db,
    store::Store,
};

/// About how many bytes of entries a walk gives at once.
const PIECE: usize = 256 << 10;

impl Db {
    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        self.store.set(key, value, expires);
        self.log(|out| set(out, key, value, expires));
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.store.remove(key).is_some() {
            self.log(|out| texts(out, &[b"DEL", key]));
        }
    }

    pub(super) fn clear(&mut self) {
        self.store.clear();
        self.log(|out| texts(out, &[b"FLUSHALL"]));
    }

    fn log(&mut self, entry: impl FnOnce(&mut Vec<u8>)) {
        if let Some(log) = &self.log {
            self.changes += 1;
            log.add(entry);
        }
    }
}

fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8], expires: Option<u64>) {
    match expires {
        None => texts(out, &[b"SET", key, value]),
        Some(at) => {
            let mut digits = itoa::Buffer::new();
            let at = digits.format(at).as_bytes();
            texts(out, &[b"SET", key, value, b"PXAT", at]);
        }
    }
}

/// Carries out entries.
pub(super) fn replay(store: &mut Store, mut entries: &[u8]) -> io::Result<()> {
    let mut words = Vec::new();
    while let Ok(len) = request(entries, &mut words) {
        match *words {
            [b"SET", key, value] => store.set(key, value, None),
            [b"SET", key, value, b"PXAT", at] if number(at).is_some() => {
                store.set(key, value, number(at).map(|at| at as u64));
            }
            [b"DEL", key] => drop(store.remove(key)),
            [b"FLUSHALL"] => store.clear(),
            _ => break,
        }
        entries = &entries[len..];
    }
    match entries {
        [] => Ok(()),
        _ => Err(io::Error::other(
            "the file of --aof has an entry that is none of this program",
        )),
    }
}

/// Begins a walk over all keys.
pub(super) fn walk(db: Shared<Db>) -> impl FnMut(&mut Vec<u8>) -> bool {
    let mut last = None;
    move |out| {
        db.update(|db| {
            let from = last.take();
            for (key, entry) in db.store.behind(from.as_ref()) {
                set(out, key, &entry.value, entry.expires);
                if out.len() >= PIECE {
                    last = Some(Rc::clone(key));
                    break;
                }
            }
            last.is_some()
        })
    }
}
