//! The file of a tape that is written.
//!
//! The kernel's thread appends to a buffer. It writes the buffer to the file before it sleeps, and a
//! thread does so every 50 ms. So an entry costs no system call, and a process that is killed leaves
//! everything up to the last sleep of the kernel, or up to a twentieth of a second before its end.

use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, Weak},
    thread,
    time::Duration,
};

use super::{Header, MAGIC, VERSION, entry, kind};
use crate::{
    log::recording::{chunks::FRAME, encode, growing::Growing, place},
    panic::lock,
};

/// The time between two writes.
const EVERY: Duration = Duration::from_millis(50);
/// How many bytes are kept for the thread. The kernel's thread writes them itself beyond that.
const KEPT: usize = 1 << 20;

/// Where a [`Taping`](super::Taping) writes to: for any thread, at any time.
#[derive(Clone, Debug)]
pub struct Writer(Arc<TapeFile>);

#[derive(Debug)]
struct TapeFile {
    /// Locked before `kept`, and for as long as a write takes.
    target: Mutex<Target>,
    /// Entries that are not in the file yet.
    kept: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct Target {
    /// `None` after the end.
    file: Option<Growing>,
    max: u64,
    is_full: bool,
    error: Option<(io::ErrorKind, String)>,
    /// The memory of the entries that were written last, for those to come.
    spare: Vec<u8>,
}

impl Writer {
    pub(super) fn create(path: &Path, header: &Header, max: Option<u64>) -> io::Result<Self> {
        let head = encode::framed(MAGIC, VERSION, &encode::body(header))?;
        // Before it is opened: that waits for the reader of a pipe.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let why = "a tape is a file: a folder, a pipe or a device cannot hold it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let file = Growing::new(place::open(path)?, &head, entry::skip)?;
        let shared = Arc::new(TapeFile {
            target: Mutex::new(Target {
                file: Some(file),
                max: max.unwrap_or(u64::MAX),
                is_full: false,
                error: None,
                spare: Vec::new(),
            }),
            kept: Mutex::default(),
        });
        let weak = Arc::downgrade(&shared);
        let thread = thread::Builder::new().name("tape".into());
        thread.spawn(move || write_again_and_again(&weak))?;
        Ok(Self(shared))
    }

    pub(super) fn put(&self, entry: impl FnOnce(&mut Vec<u8>)) {
        let mut kept = lock(&self.0.kept);
        entry(&mut kept);
        let is_long = kept.len() > KEPT;
        drop(kept);
        if is_long {
            self.write();
        }
    }

    /// Writes to the file what is on the tape so far. An error ends the tape.
    pub(super) fn write(&self) {
        drop(self.0.write());
    }

    /// Writes to the file what is on the tape so far. Rarely needed: it happens before each sleep of
    /// the kernel, and every 50 ms.
    ///
    /// *Errors:* the first that a write has met. It ends the tape, not the run.
    pub fn flush(&self) -> io::Result<()> {
        self.0.write().result()
    }

    /// Ends the tape: nothing that happens later is on it.
    ///
    /// *Errors:* the first that a write has met.
    pub fn close(&self) -> io::Result<()> {
        let mut target = self.0.write();
        if let Some(file) = target.file.take() {
            let result = file.end(kind::END);
            target.note(result);
        }
        target.result()
    }

    /// Returns whether the tape ended because it had reached its limit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        lock(&self.0.target).is_full
    }
}

impl TapeFile {
    fn write(&self) -> MutexGuard<'_, Target> {
        let mut target = lock(&self.target);
        let spare = std::mem::take(&mut target.spare);
        let mut entries = std::mem::replace(&mut *lock(&self.kept), spare);
        target.write(&entries);
        entries.clear();
        entries.shrink_to(KEPT);
        target.spare = entries;
        target
    }
}

impl Target {
    fn write(&mut self, entries: &[u8]) {
        if entries.is_empty() {
            return;
        }
        let Some(mut file) = self.file.take() else {
            return;
        };
        let size = file.len() + (FRAME + entries.len()) as u64;
        // There must be room for the mark of the end.
        let result = if size + (FRAME as u64 + 1) > self.max {
            self.is_full = true;
            file.end(kind::FULL)
        } else {
            let result = file.append(entries);
            self.file = Some(file);
            result
        };
        self.note(result);
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error = Some((error.kind(), error.to_string()));
            self.file = None;
        }
    }

    fn result(&self) -> io::Result<()> {
        match &self.error {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }
}

/// Writes what is new, now and then, until the tape is at its end.
fn write_again_and_again(shared: &Weak<TapeFile>) {
    loop {
        thread::sleep(EVERY);
        match shared.upgrade() {
            Some(shared) if shared.write().file.is_some() => {}
            _ => return,
        }
    }
}
