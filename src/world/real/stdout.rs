//! Standard output, written to without ever waiting for its reader.
//!
//! Other processes may have the same open file: a shell, the other end of a terminal, the rest of a
//! pipeline. So it is not made non-blocking, which would be for all of them. A pipe and a terminal
//! are opened once more, as a file of this process alone. Where that cannot be had, `poll` is asked
//! first, and no more is written than it promises room for.

use std::{
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    fs::{FileType, OFlags, fstat},
    io::retry_on_intr,
    net::SendFlags,
    termios::isatty,
};

use super::poller::is_ready;
use crate::abi::Direction;

/// How many bytes a pipe or a terminal has room for that is said to be writable, at least.
const PROMISED: usize = 512;

#[derive(Debug)]
pub(super) struct Stdout {
    fd: Rc<OwnedFd>,
    how: How,
}

#[derive(Debug)]
enum How {
    /// At once: it does not block, being this process's own, or a file.
    AtOnce,
    /// After asking, a little at a time.
    Asking,
    /// By a call that does not block.
    Socket,
}

impl Stdout {
    pub(super) fn open() -> io::Result<Self> {
        let stdout = io::stdout();
        let fd = stdout.as_fd();
        let (fd, how) = match FileType::from_raw_mode(fstat(fd)?.st_mode) {
            FileType::Socket => (fd.try_clone_to_owned()?, How::Socket),
            kind if kind == FileType::Fifo || isatty(fd) => match open_again(fd) {
                Some(own) => (own, How::AtOnce),
                None => (fd.try_clone_to_owned()?, How::Asking),
            },
            _ => (fd.try_clone_to_owned()?, How::AtOnce),
        };
        let fd = Rc::new(fd);
        Ok(Self { fd, how })
    }

    /// What is watched for room.
    pub(super) fn source(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.fd)
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&self, text: &[u8]) -> io::Result<usize> {
        // A program may have printed past its `Os`, and not to the end of a line.
        let _ = io::stdout().flush();
        let fd = self.fd.as_fd();
        let n = match self.how {
            How::AtOnce => retry_on_intr(|| rustix::io::write(fd, text))?,
            How::Socket => {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                retry_on_intr(|| rustix::net::send(fd, text, flags))?
            }
            How::Asking => {
                if !is_ready(fd, Direction::Write)? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let some = &text[..text.len().min(PROMISED)];
                retry_on_intr(|| rustix::io::write(fd, some))?
            }
        };
        Ok(n)
    }
}

/// Opens a pipe or terminal once more, for writing: the new open file does not block, and the
/// streams that other processes share stay as they are. `None` where this is not possible, as on
/// systems other than Linux.
#[must_use]
pub fn open_again(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    open_for(fd, OFlags::WRONLY)
}

/// The same, for writing or for reading.
#[cfg(target_os = "linux")]
pub(super) fn open_for(fd: BorrowedFd<'_>, access: OFlags) -> Option<OwnedFd> {
    use rustix::fs::{Mode, major, minor};
    use std::os::fd::AsRawFd;

    // The master of a pseudoterminal: to open it again makes another pair.
    let device = fstat(fd).ok()?.st_rdev;
    if (major(device), minor(device)) == (5, 2) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Returns `None`: on this system, to open a pipe or terminal again is to share it.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_for(_: BorrowedFd<'_>, _: OFlags) -> Option<OwnedFd> {
    None
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_pipe_that_is_full_is_waited_for_by_no_one() {
        let (mut reader, writer) = io::pipe().unwrap();
        let stdout = Stdout {
            fd: Rc::new(writer.into()),
            how: How::Asking,
        };
        let (text, mut taken) = ([b'x'; 3000], 0);
        let error = loop {
            match stdout.write(&text) {
                Ok(n) => taken += n,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        reader.read_exact(&mut vec![0; taken]).unwrap();
        assert!(stdout.write(&text).unwrap() > 0);
    }
}
