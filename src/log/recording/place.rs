//! The file of a recording: readable by its owner alone, and written by one recorder at a time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// How often a file is opened again that was replaced meanwhile.
const ATTEMPTS: usize = 8;

/// Opens a file and locks it, with what is in it, or creates it. What is no file is opened alone;
/// a pipe is waited for until it has a reader.
///
/// *Errors:* `ResourceBusy` while another recorder writes to it; the operating system's.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut file = create(path)?;
    for _ in 0..ATTEMPTS {
        let found = file.metadata()?;
        if !found.is_file() {
            break;
        }
        lock(&file)?;
        // The recorder that had the lock may have put another file in its place.
        match fs::metadata(path) {
            Ok(now) if (now.dev(), now.ino()) == (found.dev(), found.ino()) => break,
            Ok(_) | Err(_) => file = create(path)?,
        }
    }
    Ok(file)
}

/// Opens a file as it is, or creates it.
pub(super) fn create(path: &Path) -> io::Result<File> {
    options().create(true).truncate(false).open(path)
}

/// How a recording is created.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// Locks a file for as long as it is open.
pub(super) fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another recorder writes to it: give another file",
        )),
        // A file system without locks is no reason not to record.
        Ok(()) | Err(_) => Ok(()),
    }
}
