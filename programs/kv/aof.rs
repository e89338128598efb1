//! The append-only file: an entry for each change, in the form of a request that says all about its key.
//! A sum of their bytes is behind the entries of each write, so what a crash has torn or mixed up is
//! found, and is cut.
//!
//! One task writes. A new file takes the place of the old one when that has grown, and after an error,
//! since what of it is on the disk is not known then. Both have the changes until the new one has all.

use std::{io, mem, rc::Rc, time::Duration};

use trapline::{File, Mode, Os, Source};

use super::{
    resp::{self, Unread},
    state::{Db, Fsync, Log, Server},
    store::{Key, Store},
};

/// How much is read and rewritten at once.
const PIECE: usize = 256 << 10;
/// The least size of a file that is rewritten because it has grown to twice its size.
const REWRITTEN: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);
/// How long changes gather for one write, without `always`.
const GATHERING: Duration = Duration::from_millis(10);

/// The file, and what the task that writes it knows of it.
#[derive(Default)]
pub(super) struct Aof {
    name: String,
    /// `None` if it is not known what of the file is on the disk.
    file: Option<File>,
    len: u64,
    /// The length after the last rewrite.
    base: u64,
    /// When the first change was written that is not synced.
    unsynced: Option<Duration>,
    rewrite: Option<Rewrite>,
}

/// A new file: each turn of the worker writes a piece of the keys to it.
#[derive(Default)]
struct Rewrite {
    file: Option<File>,
    len: u64,
    /// The last key of the pieces so far.
    last: Option<Key>,
    has_all: bool,
}

impl Aof {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Takes what is known of the file.
    pub(super) fn take(&mut self) -> Self {
        let unknown = Self::new(self.name.clone());
        mem::replace(self, unknown)
    }

    /// Opens the file, carries out its entries, and cuts what a crash has left behind them.
    pub(super) async fn load(&mut self, os: &mut Os, db: &mut Db) -> io::Result<()> {
        let (disk, name) = (os.disk(), &self.name);
        let file = disk.open(os, name, Mode::Write).await?;
        let (mut bytes, mut at, mut good) = (Vec::new(), 0, 0);
        let mut piece = vec![0; PIECE];
        loop {
            let read = file.read_at(os, &mut piece, at).await?;
            bytes.extend_from_slice(&piece[..read]);
            at += read as u64;
            // Those without their sum are read again with what follows.
            let (used, is_right) = replay(&bytes, db);
            good += used as u64;
            bytes.drain(..used);
            if read == 0 || !is_right {
                break;
            }
        }
        let len = file.len(os).await?;
        if good < len {
            let cut = len - good;
            tracing::warn!("{name}: the last {cut} bytes are no whole entries, and are cut");
            file.truncate(os, good).await?;
        }
        // What was read may be in memory alone, and the file's name as well.
        file.sync(os).await?;
        disk.sync_dir(os, parent(name)).await?;
        self.file = Some(disk.open(os, name, Mode::Append).await?);
        (self.len, self.base) = (good, good);
        Ok(())
    }

    /// The worker that writes, up to the end of the server. After an error changes are refused, and the
    /// supervisor starts it again: then it has no file, and begins with a new one.
    pub(super) async fn work(mut self, os: &mut Os, server: &Server) -> io::Result<()> {
        let Err(error) = self.write(os, server).await else {
            return Ok(());
        };
        let name = &self.name;
        tracing::warn!("{name}: {error}; changes are refused until it works again");
        server
            .db
            .update(|db| db.log.refused = Some(error.to_string()));
        // Clients that wait look again.
        server.written.set(os, server.written.get()).await;
        if server.drained.is_set() {
            Ok(())
        } else {
            Err(error)
        }
    }

    async fn write(&mut self, os: &mut Os, server: &Server) -> io::Result<()> {
        let fsync = server.db.update(|db| db.log.fsync);
        loop {
            let is_last = server.drained.is_set();
            if !is_last && self.rewrite.is_none() && self.file.is_some() {
                self.wait(os, server, fsync).await;
            }
            let (bytes, piece, queued) = server.db.update(|db| self.turn(db));
            let now = os.now().await;
            if let Some(file) = &self.file {
                if !bytes.is_empty() {
                    file.append(os, &bytes).await?;
                    self.len += bytes.len() as u64;
                    self.unsynced.get_or_insert(now);
                }
                let is_due = |since| match fsync {
                    Some(Fsync::Always) => true,
                    Some(Fsync::Everysec) => is_last || since + SECOND <= now,
                    _ => is_last,
                };
                if self.unsynced.is_some_and(is_due) {
                    file.sync(os).await?;
                    self.unsynced = None;
                }
            }
            if let Some(piece) = piece {
                self.rewrite(os, &[bytes, piece].concat()).await?;
            }
            if self.file.is_some() {
                server.db.update(|db| db.log.refused = None);
                if server.written.get() != queued {
                    server.written.set(os, queued).await;
                }
                if is_last {
                    return Ok(());
                }
            }
        }
    }

    /// Waits for changes, for a sync that is due, or for the end.
    async fn wait(&self, os: &mut Os, server: &Server, fsync: Option<Fsync>) {
        let ends = [
            Source::flag(&server.drained),
            Source::message(&server.nudge_log),
        ];
        let due = self.unsynced.filter(|_| fsync == Some(Fsync::Everysec));
        let due = due.map(|since| Source::at(since + SECOND));
        let sources: Vec<Source> = ends.into_iter().chain(due).collect();
        if os.select(&sources).await == 1 {
            // Nothing closes it.
            let _ = server.nudge_log.get(os).await;
            if fsync != Some(Fsync::Always) {
                os.sleep(GATHERING).await;
            }
        }
    }

    /// Takes the entries that wait, and a piece of the keys if the file is to be rewritten.
    fn turn(&mut self, db: &mut Db) -> (Vec<u8>, Option<Vec<u8>>, u64) {
        let is_asked = mem::take(&mut db.log.is_rewrite_asked);
        if is_asked || self.file.is_none() || self.len >= REWRITTEN.max(2 * self.base) {
            self.rewrite.get_or_insert_default();
        }
        let piece = self
            .rewrite
            .as_mut()
            .map(|rewrite| rewrite.piece(&db.store));
        (db.log.take(), piece, db.log.queued)
    }

    /// Writes these entries to the new file, which takes the place of the old one when it has all.
    async fn rewrite(&mut self, os: &mut Os, bytes: &[u8]) -> io::Result<()> {
        let Some(rewrite) = &mut self.rewrite else {
            return Ok(());
        };
        let new = format!("{}.new", self.name);
        let file = match rewrite.append(os, &new, bytes).await {
            Ok(None) => return Ok(()),
            Ok(Some(file)) => file,
            // The old one may have room for what comes, if this one has none.
            Err(error) if self.file.is_some() => {
                tracing::warn!("{}: cannot rewrite it: {error}", self.name);
                self.rewrite = None;
                self.base = self.len;
                return os.disk().remove(os, &new).await;
            }
            Err(error) => return Err(error),
        };
        os.disk().rename(os, &new, &self.name).await?;
        os.disk().sync_dir(os, parent(&self.name)).await?;
        self.file = Some(file);
        (self.len, self.base, self.unsynced) = (rewrite.len, rewrite.len, None);
        self.rewrite = None;
        Ok(())
    }
}

impl Rewrite {
    /// Returns entries for the next keys.
    fn piece(&mut self, store: &Store) -> Vec<u8> {
        let mut log = Log {
            fsync: Some(Fsync::No),
            ..Log::default()
        };
        let mut last = None;
        self.has_all = true;
        for (key, entry) in store.behind(self.last.as_ref()) {
            log.set(key, &entry.value, entry.expires);
            last = Some(Rc::clone(key));
            if log.pending.len() >= PIECE {
                self.has_all = false;
                break;
            }
        }
        self.last = last.or(self.last.take());
        log.take()
    }

    /// Appends entries. Returns the file when it has all keys, and is synced.
    async fn append(&mut self, os: &mut Os, name: &str, bytes: &[u8]) -> io::Result<Option<File>> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let file = os.disk().open(os, name, Mode::Append).await?;
                // A crash may have left one.
                file.truncate(os, 0).await?;
                file
            }
        };
        file.append(os, bytes).await?;
        self.len += bytes.len() as u64;
        if self.has_all {
            file.sync(os).await?;
            return Ok(Some(file));
        }
        self.file = Some(file);
        Ok(None)
    }
}

/// Carries out the whole entries up to a sum that is wrong. Returns their length, and whether none is wrong.
fn replay(bytes: &[u8], db: &mut Db) -> (usize, bool) {
    let (mut at, mut good) = (0, 0);
    let (mut entries, mut words) = (Vec::new(), Vec::new());
    loop {
        let len = match resp::request(&bytes[at..], &mut words) {
            Ok(len) => len,
            Err(Unread::Part(_)) => return (good, true),
            Err(Unread::Wrong(_)) => return (good, false),
        };
        if let [b"SUM", sum] = *words {
            let found = format!("{:08x}", crc32fast::hash(&bytes[good..at]));
            let is_right = sum == found.as_bytes();
            if !is_right || !entries.drain(..).all(|entry: Vec<&[u8]>| db.replay(&entry)) {
                return (good, false);
            }
            good = at + len;
        } else {
            entries.push(mem::take(&mut words));
        }
        at += len;
    }
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or(".", |(parent, _)| parent)
}
