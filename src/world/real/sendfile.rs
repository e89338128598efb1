//! Linux: files that the system sends to a connection by itself.

use std::{
    fs::{self, File},
    io::{self, Result},
    os::fd::BorrowedFd,
};

use rustix::io::Errno;

/// Whether the process ignores SIGPIPE, as Rust's start-up code has it. `sendfile` raises that
/// signal at a peer that has gone, and has no flag against it.
pub(super) fn is_pipe_signal_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGPIPE is signal 13.
    mask.is_some_and(|mask| mask & (1 << 12) != 0)
}

/// Sends part of a file; `Unsupported` where this call cannot.
pub(super) fn send(to: BorrowedFd<'_>, file: &File, mut offset: u64, len: usize) -> Result<usize> {
    rustix::fs::sendfile(to, file, Some(&mut offset), len).map_err(|errno| match errno {
        // Some file systems have no support for it.
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
        other => other.into(),
    })
}
