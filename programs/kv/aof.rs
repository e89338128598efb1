//! The append-only file: an entry for each change, in the form of a request. A sum of their bytes is
//! behind the entries of each write, so what a crash has torn or mixed up is found, and is cut.
//!
//! One write and one sync are for all changes that wait meanwhile, of all clients. After an error the file
//! is written anew, since what of it is on the disk is not known.

use std::{io, mem, time::Duration};

use trapline::{Disk, File, Mode, Os, Source, sync::Mutex};

use super::{
    db::{Db, dump},
    log::{Fsync, Log, Progress},
    resp,
    server::Server,
    store::Key,
};

/// How much a rewrite reads and writes at once.
const PIECE: usize = 256 << 10;
/// The least size of a file that is rewritten because it has grown to twice its size.
const REWRITTEN: u64 = 1 << 20;
/// The most bytes that wait to be written while clients go on.
const WAITING: u64 = 16 << 20;

/// The file.
pub(super) struct Aof {
    disk: Disk,
    name: String,
    state: Mutex<State>,
    /// One rewrite at a time.
    rewriting: Mutex<()>,
}

struct State {
    file: File,
    len: u64,
    /// The length after the last rewrite.
    base: u64,
    is_synced: bool,
}

impl Aof {
    /// Opens the file, reads its entries into the store, and cuts what a crash has left behind them.
    pub(super) async fn open(os: &mut Os, name: &str, db: &mut Db) -> io::Result<Self> {
        let disk = os.disk();
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
        let file = disk.open(os, name, Mode::Append).await?;
        let state = State {
            file,
            len: good,
            base: good,
            is_synced: true,
        };
        Ok(Self {
            disk,
            name: name.into(),
            state: Mutex::new(os, state).await,
            rewriting: Mutex::new(os, ()).await,
        })
    }

    /// Writes the entries that wait, and syncs if that is to be.
    async fn write(&self, os: &mut Os, server: &Server, syncs: bool) -> io::Result<()> {
        let Ok(mut state) = self.state.lock(os).await else {
            return Err(io::Error::other(
                "its writer has ended in the middle of a write",
            ));
        };
        let (bytes, queued) = server.db.update(|db| (db.log.take(), db.log.queued()));
        if !bytes.is_empty() {
            state.is_synced = false;
            state.file.append(os, &bytes).await?;
            state.len += bytes.len() as u64;
        }
        if syncs && !state.is_synced {
            state.file.sync(os).await?;
            state.is_synced = true;
        }
        if state.len >= REWRITTEN.max(2 * state.base) {
            // It may be under way already.
            let _ = server.db.update(|db| db.log.ask_for_rewrite());
        }
        drop(state);
        let failed = server.progress.get().failed;
        let done = queued;
        server.progress.set(os, Progress { done, failed }).await;
        Ok(())
    }

    /// Writes the store into a new file, which takes the place of the old one. Other tasks go on: their
    /// changes since then are written behind it. Each entry says all about its key, so it does no harm twice.
    async fn rewrite(&self, os: &mut Os, server: &Server) -> io::Result<()> {
        let _one = self
            .rewriting
            .lock(os)
            .await
            .unwrap_or_else(|poisoned| poisoned.0);
        server.db.update(|db| db.log.since = Some(Vec::new()));
        let rewritten = self.rewritten(os, server).await;
        server.db.update(|db| db.log.since = None);
        rewritten
    }

    async fn rewritten(&self, os: &mut Os, server: &Server) -> io::Result<()> {
        let new = format!("{}.new", self.name);
        let file = self.disk.open(os, &new, Mode::Append).await?;
        // A crash may have left one.
        file.truncate(os, 0).await?;
        let (mut len, mut behind): (_, Option<Key>) = (0, None);
        loop {
            let mut piece = Log::new(Some(Fsync::No));
            let last = server
                .db
                .update(|db| dump(&db.store, behind.as_ref(), PIECE, &mut piece));
            let bytes = piece.take();
            file.append(os, &bytes).await?;
            len += bytes.len() as u64;
            if last.is_none() {
                break;
            }
            behind = last;
        }
        // What an earlier writer has left of the old file does not matter.
        let mut state = self
            .state
            .lock(os)
            .await
            .unwrap_or_else(|poisoned| poisoned.0);
        let (since, queued) = server.db.update(|db| {
            let rest = db.log.take();
            drop(rest);
            (db.log.since.take().unwrap_or_default(), db.log.queued())
        });
        file.append(os, &since).await?;
        file.sync(os).await?;
        self.disk.rename(os, &new, &self.name).await?;
        self.disk.sync_dir(os, parent(&self.name)).await?;
        len += since.len() as u64;
        *state = State {
            file,
            len,
            base: len,
            is_synced: true,
        };
        self.state.clear_poison();
        drop(state);
        let failed = server.progress.get().failed;
        let done = queued;
        server.progress.set(os, Progress { done, failed }).await;
        Ok(())
    }

    /// The worker that writes: at once when there is something, and with `everysec` a sync a second
    /// later. After an error it refuses changes until the file could be written anew.
    pub(super) async fn run(&self, os: &mut Os, server: &Server) -> io::Result<()> {
        let mut dirty_since: Option<Duration> = None;
        loop {
            let mut sources = vec![Source::message(&server.nudge_log)];
            sources.extend(dirty_since.map(|since| Source::at(since + Duration::from_secs(1))));
            let is_nudged = os.select(&sources).await == 0;
            if is_nudged {
                // Closed by nothing.
                let _ = server.nudge_log.get(os).await;
            }
            let fsync = server.db.update(|db| db.log.fsync());
            let syncs = fsync == Fsync::Always || !is_nudged;
            let written = self.write(os, server, syncs).await;
            dirty_since = match fsync {
                Fsync::Everysec if is_nudged => Some(dirty_since.unwrap_or(os.now().await)),
                _ => None,
            };
            if let Err(error) = written {
                self.recover(os, server, error).await;
            }
            if server
                .db
                .update(|db| mem::take(&mut db.log.is_rewrite_asked))
            {
                server.rewrites.set(os).await;
            }
        }
    }

    async fn recover(&self, os: &mut Os, server: &Server, error: io::Error) {
        tracing::warn!(
            "{}: {error}; changes are refused until it works again",
            self.name
        );
        let mut why = error.to_string();
        loop {
            server
                .db
                .update(|db| db.log.refused = Some(mem::take(&mut why)));
            let (done, failed) = (
                server.progress.get().done,
                server.db.update(|db| db.log.queued()),
            );
            server.progress.set(os, Progress { done, failed }).await;
            os.sleep(Duration::from_secs(1)).await;
            match self.rewrite(os, server).await {
                Ok(()) => break,
                Err(error) => why = error.to_string(),
            }
        }
        server.db.update(|db| db.log.refused = None);
        tracing::warn!("{}: it works again", self.name);
    }

    /// The worker that rewrites the file.
    pub(super) async fn rewrite_when_asked(&self, os: &mut Os, server: &Server) {
        loop {
            server.rewrites.wait(os).await;
            server.rewrites.clear(os).await;
            if server.db.update(|db| db.log.since.is_none())
                && let Err(error) = self.rewrite(os, server).await
            {
                tracing::warn!("{}: cannot rewrite it: {error}", self.name);
            }
        }
    }

    /// Writes and syncs all that is left, at the end.
    pub(super) async fn finish(&self, os: &mut Os, server: &Server) -> io::Result<()> {
        self.write(os, server, true).await
    }
}

/// Waits until the changes up to here are as safe as --fsync says. Returns whether they are. Without
/// `always` it waits only if too much is waiting to be written.
pub(super) async fn settled(os: &mut Os, server: &Server, queued: u64) -> bool {
    let room = if server.db.update(|db| db.log.fsync()) == Fsync::Always {
        0
    } else {
        WAITING
    };
    let progress = server.progress.clone();
    loop {
        let now = progress.get();
        if now.done + room >= queued {
            return true;
        }
        if now.failed >= queued {
            return room > 0;
        }
        progress.changed(os).await;
    }
}

/// Carries out the whole entries up to a sum that is wrong. Returns their length, and whether none is wrong.
fn replay(bytes: &[u8], db: &mut Db) -> (usize, bool) {
    let (mut at, mut good) = (0, 0);
    let mut entries = Vec::new();
    let mut words = Vec::new();
    loop {
        let len = match resp::request(&bytes[at..], &mut words) {
            Ok(Some(len)) => len,
            Ok(None) => return (good, true),
            Err(_) => return (good, false),
        };
        let entry: Vec<&[u8]> = words
            .iter()
            .map(|word| &bytes[at..][word.clone()])
            .collect();
        if let [b"SUM", sum] = *entry {
            let found = crc32fast::hash(&bytes[good..at]);
            if sum != format!("{found:08x}").as_bytes()
                || !entries.drain(..).all(|entry: Vec<&[u8]>| db.replay(&entry))
            {
                return (good, false);
            }
            good = at + len;
        } else {
            entries.push(entry);
        }
        at += len;
    }
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or(".", |(parent, _)| parent)
}
