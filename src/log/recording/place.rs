//! The file of a recording: readable by its owner alone, and written by one recorder at a time.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    ops::Deref,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// How often a file is opened again that was replaced meanwhile.
const ATTEMPTS: usize = 8;

/// A file that stays locked until it is dropped.
#[derive(Debug)]
pub(crate) struct Locked(File);

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A process that another thread has just forked has the descriptor until its exec. If the
        // file were only closed, that process would keep the lock until then.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Opens or creates a file, and locks it. What is no file is only opened. *Blocks* until a pipe has a
/// reader.
///
/// *Errors:* `ResourceBusy` while another recorder writes to it, or replaces it again and again.
pub(crate) fn open(path: &Path) -> io::Result<Locked> {
    open_current(path, |found| {
        let now = fs::metadata(path);
        now.is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino()))
    })
}

/// `is_current` returns whether the locked file is still at the path: the recorder that had the lock
/// may have put another file in its place.
fn open_current(path: &Path, is_current: impl Fn(&Metadata) -> bool) -> io::Result<Locked> {
    for _ in 0..ATTEMPTS {
        let file = Locked(create(path)?);
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(file);
        }
        try_lock(&file)?;
        if is_current(&found) {
            return Ok(file);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "another process replaces it again and again: give another file",
    ))
}

pub(super) fn create(path: &Path) -> io::Result<File> {
    options().create(true).truncate(false).open(path)
}

pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// *Errors:* `ResourceBusy` while another recorder writes to it.
pub(super) fn lock(file: File) -> io::Result<Locked> {
    try_lock(&file)?;
    Ok(Locked(file))
}

fn try_lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another recorder writes to it: give another file",
        )),
        // A file system without locks is no reason not to record.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_file_that_is_always_replaced_is_not_returned_without_a_lock() {
        let path = std::env::temp_dir().join(format!("trapline-place-{}", std::process::id()));
        let left = Cell::new(ATTEMPTS);
        let replaced = |times: usize| {
            left.set(times);
            open_current(&path, |_| left.replace(left.get().saturating_sub(1)) == 0)
        };
        let late = replaced(ATTEMPTS - 1).unwrap();
        assert_eq!(
            open(&path).unwrap_err().kind(),
            io::ErrorKind::ResourceBusy,
            "it is locked"
        );
        drop(late);
        let never = replaced(ATTEMPTS).map(drop).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(never.to_string().contains("again and again"), "{never}");
    }

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let path = std::env::temp_dir().join(format!("trapline-lock-{}", std::process::id()));
        let first = open(&path).unwrap();
        let copy = first.try_clone().unwrap();
        assert_eq!(open(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        let second = open(&path).map(drop);
        drop(copy);
        fs::remove_file(&path).unwrap();
        second.unwrap();
    }
}
