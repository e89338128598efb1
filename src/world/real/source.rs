//! The registered descriptors, and what is known of their readiness.
//!
//! A report is owed for a direction once the world has said that it is not ready. The number of
//! reports that are owed says whether there is anything to poll for.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::net::RecvFlags;
use socket2::Socket;

use super::{
    poller::{Readiness, is_ready},
    sockets::OwnFile,
    stdin,
};
use crate::{
    abi::{DeviceId, Direction},
    trap::Descriptor,
    world::{DeviceMap, Happening},
};

#[derive(Default)]
pub(super) struct Sources {
    pub(super) open: DeviceMap<Source>,
    /// How many reports are owed: for devices of tasks and the console, and for those of daemons.
    pub(super) owed: [usize; 2],
}

pub(super) struct Source {
    pub(super) fd: Fd,
    pub(super) kind: Kind,
    /// Whether it is a standard stream, which other processes may share: it was not made
    /// non-blocking.
    pub(super) shared: bool,
    /// Whether the poller watches it. What it cannot watch is always ready; an attempt that would
    /// block is an error then, since no report would follow.
    pub(super) watched: bool,
    /// Whether an attempt may succeed. Indexed by [`Direction`].
    ready: [bool; 2],
    /// Whether a report was promised. Indexed by [`Direction`].
    owed: [bool; 2],
    /// Whether a report has come since the last attempt. Indexed by [`Direction`].
    is_fresh: [bool; 2],
    /// Whether more may follow a read that does not fill its buffer, without another event: the end
    /// of the stream or urgent data, which the poller has reported with the rest.
    unclear: bool,
    /// How many bytes may yet be read from a stream whose incoming half was ended.
    pub(super) left: Option<u64>,
    /// The file of a listening Unix socket, which goes with it.
    pub(super) file: Option<OwnFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A TCP connection: a read that does not fill its buffer has emptied it, unless that is
    /// unclear.
    Stream,
    Socket,
    /// Something that is not a socket.
    File,
    /// The socket of a thread that reads standard input, and whether the thread has been asked for more.
    Pump(bool),
}

impl Kind {
    pub(super) fn is_socket(self) -> bool {
        self != Self::File
    }

    /// What the thread was asked for has come.
    pub(super) fn answered(&mut self) {
        if let Self::Pump(is_asked) = self {
            *is_asked = false;
        }
    }
}

pub(super) enum Fd {
    /// Opened here.
    Owned(Socket),
    /// Attached; the handles of the task's side hold it too.
    Attached(Descriptor),
}

impl Sources {
    /// A device, and the count of the reports that are owed for it and its like.
    pub(super) fn get(&mut self, id: DeviceId) -> io::Result<(&mut Source, &mut usize)> {
        let source = self.open.get_mut(&id).ok_or(io::ErrorKind::NotFound)?;
        Ok((source, &mut self.owed[usize::from(id.is_of_daemon())]))
    }

    /// Takes back the promise of a report, which no task waits for.
    pub(super) fn take_back(&mut self, id: DeviceId) {
        if let Ok((source, owed)) = self.get(id) {
            *owed -= usize::from(std::mem::take(&mut source.owed[Direction::Read as usize]));
        }
    }

    pub(super) fn remove(&mut self, id: DeviceId) -> Option<Source> {
        let source = self.open.remove(&id)?;
        let owed = source.owed.iter().filter(|owed| **owed).count();
        self.owed[usize::from(id.is_of_daemon())] -= owed;
        Some(source)
    }

    /// Remembers what the poller says of a device, and reports it if that is owed. Readers first:
    /// the end of a half-closed stream must be seen before we write to it.
    #[inline(always)]
    pub(super) fn note(
        &mut self,
        id: DeviceId,
        readiness: &Readiness,
        happened: &mut Vec<Happening>,
    ) {
        let Ok((source, count)) = self.get(id) else {
            return;
        };
        source.unclear = readiness.unclear;
        for (direction, now) in [
            (Direction::Read, readiness.readable),
            (Direction::Write, readiness.writable),
        ] {
            source.is_fresh[direction as usize] = now;
            if now && source.set_ready(direction, true, count) {
                happened.push(match id {
                    DeviceId::CONSOLE => Happening::Console,
                    _ => Happening::Ready(id, direction),
                });
            }
        }
    }
}

impl Source {
    pub(super) fn new(fd: Fd, kind: Kind, watched: bool) -> Self {
        Self {
            // What is opened here may have the number of a standard stream that was closed.
            shared: matches!(&fd, Fd::Attached(descriptor) if descriptor.is_standard()),
            fd,
            kind,
            watched,
            ready: [true; 2],
            owed: [false; 2],
            is_fresh: [false; 2],
            unclear: cfg!(not(target_os = "linux")),
            left: None,
            file: None,
        }
    }

    /// Makes an attempt at the descriptor, unless it is known to be in vain. One that would block
    /// promises a report, which is counted.
    #[inline(always)]
    pub(super) fn attempt<T>(
        &mut self,
        direction: Direction,
        count: &mut usize,
        mut io: impl FnMut(&Fd) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.shared && self.watched && self.ready[direction as usize] {
            let ready = is_ready(self.fd.as_fd(), direction)?;
            self.set_ready(direction, ready, count);
        }
        self.is_fresh[direction as usize] = false;
        if !self.is_ready_or_owed(direction, count) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        loop {
            match io(&self.fd) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.watched {
                        return Err(io::Error::new(io::ErrorKind::Unsupported, error));
                    }
                    self.set_ready(direction, false, count);
                    self.ask_pump();
                    return Err(error);
                }
                result => return result,
            }
        }
    }

    /// Reads, whatever may be left.
    #[inline(always)]
    pub(super) fn read(&mut self, count: &mut usize, buf: &mut [u8]) -> io::Result<usize> {
        let is_socket = self.kind.is_socket();
        self.attempt(Direction::Read, count, |fd| {
            Ok(if is_socket {
                rustix::net::recv(fd.as_fd(), &mut *buf, RecvFlags::DONTWAIT)?.0
            } else {
                rustix::io::read(fd.as_fd(), &mut *buf)?
            })
        })
    }

    /// Reads from a stream whose incoming half was ended.
    #[cold]
    #[inline(never)]
    pub(super) fn read_left(&mut self, count: &mut usize, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.left.unwrap_or(0);
        if left == 0 {
            return Ok(0);
        }
        let len = left.min(buf.len() as u64) as usize;
        let n = self.read(count, &mut buf[..len])?;
        self.left = Some(left - n as u64);
        if n > 0 {
            self.kind.answered();
        }
        Ok(n)
    }

    /// Whether an attempt would succeed. If not, a report is owed from now on.
    pub(super) fn ask(&mut self, direction: Direction, count: &mut usize) -> io::Result<bool> {
        let at = direction as usize;
        // What is not ready has a report to come, and nothing else reads a connection of ours.
        let is_known = !self.ready[at] || (self.is_fresh[at] && self.kind == Kind::Stream);
        if self.watched && !is_known {
            let ready = is_ready(self.fd.as_fd(), direction)?;
            self.set_ready(direction, ready, count);
        }
        Ok(self.is_ready_or_owed(direction, count))
    }

    /// Whether an attempt may succeed. If not, a report is owed from now on.
    #[inline]
    pub(super) fn is_ready_or_owed(&mut self, direction: Direction, count: &mut usize) -> bool {
        let ready = self.ready[direction as usize];
        if !ready {
            self.set_ready(direction, false, count);
            self.ask_pump();
        }
        ready
    }

    /// Has the thread of a pump read once, where a task waits for that.
    fn ask_pump(&mut self) {
        if let Kind::Pump(is_asked @ false) = &mut self.kind {
            *is_asked = true;
            // It fails only where the thread has ended, and so has the stream.
            let _ = stdin::ask(self.fd.as_fd());
        }
    }

    /// Notes the readiness of a direction. A report is owed while it is not ready. Returns whether
    /// one was owed before.
    #[inline]
    pub(super) fn set_ready(
        &mut self,
        direction: Direction,
        ready: bool,
        count: &mut usize,
    ) -> bool {
        self.ready[direction as usize] = ready;
        let was = std::mem::replace(&mut self.owed[direction as usize], !ready);
        *count = *count + usize::from(!ready) - usize::from(was);
        was
    }

    /// A read did not fill its buffer: nothing is left, unless that is unclear. A report is owed then. Returns
    /// whether it is so. Not for a stream whose incoming half was ended.
    #[inline(always)]
    pub(super) fn is_drained(&mut self, count: &mut usize) -> bool {
        let is_drained = !self.unclear;
        if is_drained {
            self.set_ready(Direction::Read, false, count);
        }
        is_drained
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Owned(socket) => socket.as_fd(),
            Self::Attached(descriptor) => descriptor.as_fd(),
        }
    }
}
