//! Standard input, read without ever waiting for its writer.
//!
//! Other processes may have the same open file, as with standard output: it is not made non-blocking,
//! and what `poll` promises, another process may read first. So a pipe and a terminal are opened once
//! more, as a file of this process alone that does not block. The settings of a terminal belong to the
//! terminal, and nothing here changes them. Where a stream cannot be opened again (the terminal of
//! another user, systems other than Linux) a thread reads it: once, each time a task waits. So no more
//! is taken from the other processes than a task has asked for.

use std::{
    io::{self, Error, ErrorKind, Result},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
};

use rustix::{
    fs::{FileType, OFlags, fcntl_getfl, fstat},
    io::{fcntl_dupfd_cloexec, retry_on_intr},
    net::SendFlags,
    termios::isatty,
};

use super::stdout::open_for;

/// How much the thread reads at once. A terminal has no longer lines.
const PIECE: usize = 4096;

/// How a stream is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// At once: it does not block.
    File,
    Socket,
    /// By a thread, at the other end of a socket.
    Pump,
}

pub(super) fn is_open() -> bool {
    fcntl_getfl(io::stdin()).is_ok()
}

/// Opens standard input for a world, at whose begin it was open or not. The descriptor is another one
/// than 0, which stays as it is.
///
/// *Errors:* `NotFound` if it is closed; `InvalidInput` if nothing can be read from it.
pub(super) fn open(was_open: bool) -> Result<(OwnedFd, Way)> {
    if !was_open || !is_open() {
        let why = "standard input is closed: give the program an input, such as < /dev/null";
        return Err(Error::new(ErrorKind::NotFound, why));
    }
    open_as(io::stdin().as_fd(), open_for)
}

fn open_as(
    fd: BorrowedFd<'_>,
    again: impl Fn(BorrowedFd<'_>, OFlags) -> Option<OwnedFd>,
) -> Result<(OwnedFd, Way)> {
    let unfit = |why: &str| Err(Error::new(ErrorKind::InvalidInput, why));
    if fcntl_getfl(fd)? & OFlags::ACCMODE == OFlags::WRONLY {
        return unfit("standard input is open for writing only");
    }
    let copy = || fcntl_dupfd_cloexec(fd, 3);
    match FileType::from_raw_mode(fstat(fd)?.st_mode) {
        FileType::Socket => Ok((copy()?, Way::Socket)),
        kind if kind == FileType::Fifo || isatty(fd) => match again(fd, OFlags::RDONLY) {
            Some(own) => Ok((own, Way::File)),
            None => pump(copy()?),
        },
        // They never block; a directory cannot be read, which shows then.
        FileType::RegularFile | FileType::BlockDevice | FileType::Directory => {
            Ok((copy()?, Way::File))
        }
        FileType::CharacterDevice if is_memory(fd) => Ok((copy()?, Way::File)),
        FileType::CharacterDevice => pump(copy()?),
        _ => unfit("standard input is nothing that can be read"),
    }
}

/// Whether it is `/dev/null`, `/dev/zero` or their like.
fn is_memory(fd: BorrowedFd<'_>) -> bool {
    cfg!(target_os = "linux") && fstat(fd).is_ok_and(|found| rustix::fs::major(found.st_rdev) == 1)
}

/// Asks the thread of a pump to read once.
pub(super) fn ask(pump: BorrowedFd<'_>) -> Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| rustix::net::send(pump, &[0], flags))?;
    Ok(())
}

/// Starts a thread that reads a stream when it is asked to. It ends with the stream, and after the
/// other end of its socket is closed.
fn pump(from: OwnedFd) -> Result<(OwnedFd, Way)> {
    let (own, its) = UnixStream::pair()?;
    let serve = move || {
        let mut piece = [0; PIECE];
        while matches!(rustix::io::read(&its, &mut [0; 1]), Ok(1)) {
            let n = match retry_on_intr(|| rustix::io::read(&from, &mut piece)) {
                Ok(0) => return,
                Ok(n) => n,
                Err(error) => {
                    tracing::warn!(
                        target: "trapline::kernel",
                        "cannot read standard input: {error}; it counts as ended"
                    );
                    return;
                }
            };
            let mut left = &piece[..n];
            while !left.is_empty() {
                match rustix::net::send(&its, left, SendFlags::NOSIGNAL) {
                    Ok(n) => left = &left[n..],
                    Err(_) => return,
                }
            }
        }
    };
    thread::Builder::new()
        .name("trapline-input".into())
        .spawn(serve)?;
    Ok((own.into(), Way::Pump))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(pump: &OwnedFd) -> Result<Vec<u8>> {
        let mut buf = [0; 64];
        let n = rustix::io::read(pump, &mut buf)?;
        Ok(buf[..n].to_vec())
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_again_is_read_once_for_each_question() {
        let (reader, mut writer) = io::pipe().unwrap();
        let (pump, way) = open_as(reader.as_fd(), |_, _| None).unwrap();
        assert_eq!(way, Way::Pump);
        writer.write_all(b"one").unwrap();
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let early = rustix::net::recv(&pump, &mut [0; 8], flags);
        assert!(early.is_err(), "nothing is read before it is asked for");
        ask(pump.as_fd()).unwrap();
        assert_eq!(read(&pump).unwrap(), b"one");
        ask(pump.as_fd()).unwrap();
        drop(writer);
        assert_eq!(read(&pump).unwrap(), b"");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let (_reader, writer) = io::pipe().unwrap();
        let error = open_as(writer.as_fd(), open_for).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = open(false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_other_descriptor_passes_for_standard_input() {
        use rustix::event::epoll;

        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let error = open_as(epoll.as_fd(), open_for).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_pipe_and_a_file_are_read_at_once() {
        let (reader, mut writer) = io::pipe().unwrap();
        let (own, way) = open_as(reader.as_fd(), open_for).unwrap();
        let is_own = way == Way::File;
        assert_eq!(is_own, cfg!(target_os = "linux"));
        if is_own {
            let early = rustix::io::read(&own, &mut [0; 8]);
            assert_eq!(early, Err(rustix::io::Errno::AGAIN));
            writer.write_all(b"x").unwrap();
            assert_eq!(rustix::io::read(&own, &mut [0; 8]), Ok(1));
        }
        let null = std::fs::File::open("/dev/null").unwrap();
        let (_, way) = open_as(null.as_fd(), open_for).unwrap();
        assert_eq!(way == Way::File, cfg!(target_os = "linux"));
    }
}
