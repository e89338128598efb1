//! What a poller says of a device, and what the operating system says when it is asked.

use std::{io, os::fd::BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::abi::Direction;

/// What the poller says of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether it has told of the end of the stream or of urgent data, or cannot.
    pub(super) unclear: bool,
}

/// Asks the operating system about one descriptor.
pub(super) fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<bool> {
    let flags = match direction {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    };
    let mut asked = [PollFd::from_borrowed_fd(fd, flags)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut asked, Some(&Timespec::default())))?;
    Ok(!asked[0].revents().is_empty())
}
