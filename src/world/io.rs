//! What the kernel asks of a device, and what the world answers.

use std::{
    fs::File,
    io::{self, ErrorKind, Result},
    net::{IpAddr, SocketAddr},
    os::unix::fs::FileExt,
    time::Duration,
};

use crate::{
    abi::{DeviceId, Direction, HostId, ListenOptions, Signal, StreamOptions},
    trap::{Descriptor, DiskOp, FileOp, MAX_IO},
};

/// What the kernel asks of a device, by [`World::io`](crate::World::io).
///
/// The requests that open a device name its new token and the host of the task. They are
/// [`Attach`](Request::Attach), [`Listen`](Request::Listen), [`Connect`](Request::Connect),
/// [`Accept`](Request::Accept), [`Bind`](Request::Bind), [`ListenUnix`](Request::ListenUnix),
/// [`ConnectUnix`](Request::ConnectUnix), [`Pair`](Request::Pair) and [`Disk`](Request::Disk). After an error the device is not
/// open.
///
/// Of the others, those that fail with `WouldBlock` promise a report by
/// [`Happening::Ready`](crate::Happening::Ready).
#[derive(Debug)]
pub enum Request<'a> {
    /// Takes on a descriptor of a program's as this device. Answered by [`Answer::Done`].
    Attach {
        /// The host of the task that attaches it.
        host: HostId,
        /// The descriptor, with the value that keeps it open.
        descriptor: Descriptor,
    },
    /// Opens a listening TCP socket as this device. Answered by [`Answer::Addr`], with its own
    /// address.
    Listen {
        /// The host of the task that listens.
        host: HostId,
        /// Where to listen; port 0 lets the world choose a free one.
        addr: SocketAddr,
        /// The options of the socket.
        options: &'a ListenOptions,
    },
    /// Begins a TCP connection as this device. Answered by [`Answer::Done`]. The device is writable
    /// once the connection is established or has failed.
    Connect {
        /// The host of the task that connects.
        host: HostId,
        /// The address of the peer.
        addr: SocketAddr,
        /// The options of the socket.
        options: &'a StreamOptions,
    },
    /// How a begun connection came out. Answered by [`Answer::Done`], or by the error of the attempt.
    /// A simulated network answers [`Answer::Addr`], the connection's own address: the log shows it,
    /// so that traces can match the two ends.
    Connected,
    /// Takes a connection off this listener. Answered by [`Answer::Addr`], with the peer's address; by
    /// [`Answer::Done`] for a Unix socket, whose peer has none.
    Accept {
        /// The host of the task that accepts.
        host: HostId,
        /// The token of the connection.
        connection: DeviceId,
    },
    /// Reads. Answered by [`Answer::Bytes`]; 0 at the end of the stream.
    Recv(&'a mut [u8]),
    /// Whether it is known that there is nothing to read. Answered by [`Answer::Ready`]: `true` is
    /// a promise to report the device, and the kernel does not try to read. After `false` or an error
    /// the kernel tries.
    Drained,
    /// Writes. Answered by [`Answer::Bytes`].
    Send(&'a [u8]),
    /// Writes at most `len` bytes of a file. Answered by [`Answer::Bytes`]; 0 at the end of the file.
    /// A world that has no call for it reads a piece and sends that.
    SendFile {
        /// The file to read.
        file: &'a File,
        /// Where in the file to begin, in bytes.
        offset: u64,
        /// How many bytes to write at most.
        len: usize,
    },
    /// Ends the outgoing half of a connection. Answered by [`Answer::Done`].
    Shutdown,
    /// Ends the incoming half of a connection: after what has arrived comes the end of the stream.
    /// Answered by [`Answer::Done`].
    ShutdownRead,
    /// Whether the device is ready at this moment. Answered by [`Answer::Ready`]: `false` is a
    /// promise to report the device when it is.
    Ready(Direction),
    /// Looks up the name of a host; the device is [`DeviceId::NONE`]. Answered by [`Answer::Ready`]:
    /// `true` with at least one address, `false` where a thread has to ask the operating system.
    Resolve {
        /// The name.
        name: &'a str,
        /// Where the addresses go, the preferred one first.
        addresses: &'a mut Vec<IpAddr>,
    },
    /// Has these signals of the process sent to the kernel, by
    /// [`Remote::signal`](crate::Remote::signal); the device is [`DeviceId::NONE`]. Answered by
    /// [`Answer::Done`]. The error `Unsupported` means that none come from outside, and the call
    /// succeeds.
    Catch(&'a [Signal]),
    /// Opens a UDP socket as this device. Answered by [`Answer::Addr`], with its own address.
    Bind {
        /// The host of the task that binds it.
        host: HostId,
        /// Its address; port 0 lets the world choose a free one.
        addr: SocketAddr,
    },
    /// Takes a datagram off a UDP socket. What does not fit is dropped. Answered by
    /// [`Answer::Bytes`].
    RecvFrom {
        /// Where the datagram goes.
        buf: &'a mut [u8],
        /// Where the sender's address goes.
        from: &'a mut SocketAddr,
    },
    /// Sends a datagram. Answered by [`Answer::Bytes`], with all of them.
    SendTo {
        /// The datagram.
        bytes: &'a [u8],
        /// The receiver.
        to: SocketAddr,
    },
    /// Makes this the peer of a UDP socket: the only one that it receives from, and the one that
    /// [`Request::Send`] sends to. Answered by [`Answer::Done`].
    ConnectTo(SocketAddr),
    /// Opens a listening Unix socket as this device. Its file is removed when the device is closed.
    /// Answered by [`Answer::Done`].
    ListenUnix {
        /// The host of the task that listens.
        host: HostId,
        /// The path of the socket's file.
        path: &'a str,
    },
    /// Connects to a Unix socket, as this device. Answered by [`Answer::Done`] once it is established.
    /// Here `WouldBlock` promises nothing: the listener's queue is full.
    ConnectUnix {
        /// The host of the task that connects.
        host: HostId,
        /// The path of the socket's file.
        path: &'a str,
    },
    /// Opens two connected Unix sockets: this device and another one. Answered by [`Answer::Done`].
    Pair {
        /// The host of the task.
        host: HostId,
        /// The token of the other one.
        other: DeviceId,
    },
    /// Sets options of a socket. Answered by [`Answer::Done`].
    SetOptions(&'a StreamOptions),
    /// Begins an operation on names of the host's disk, as this device: an open file is this device from
    /// then on, and after any other operation the kernel closes it. Answered by [`Answer::Done`], or by
    /// an error at once. When the operation is over, the world reports the device as readable.
    ///
    /// Operations on names take effect in the order of their requests.
    Disk {
        /// The host of the task.
        host: HostId,
        /// The operation.
        op: DiskOp,
    },
    /// Begins an operation on the open file that is this device. Answered as
    /// [`Disk`](Request::Disk) is. Operations on one file take effect in the order of their requests,
    /// whichever device of it they are made on. One that is still under way on this device was given
    /// up: its result is dropped.
    File(FileOp),
    /// Takes the result of the operation that was begun on this device: its error, or [`Answer::Bytes`]
    /// for `ReadAt`, `WriteAt`, `Append` and `Len`, and [`Answer::Done`] for the others. What was read,
    /// or the names of a list, go into the vector, which is empty. `WouldBlock` promises a report.
    Finish(&'a mut Vec<u8>),
    /// Opens the standard input of the world as this device. Answered by [`Answer::Done`]. A kernel
    /// opens it once; closing the device leaves the stream of the process open.
    Input,
    /// Has this text be the standard input from now on, from its begin, and no other; the device is
    /// [`DeviceId::NONE`]. Answered by [`Answer::Done`]. A tape does not have it: it has the bytes that
    /// are read.
    Feed(&'a [u8]),
    /// The time of day on the clock of this host; the device is [`DeviceId::NONE`]. Answered by
    /// [`Answer::Time`].
    WallClock {
        /// The host of the task that asks.
        host: HostId,
    },
    /// Closes the device. An operation under way on it may come to its end or not. Answered by
    /// [`Answer::Done`]. The kernel ignores an error.
    Close,
}

/// The answer of a world to a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// So many bytes were transferred.
    Bytes(usize),
    /// Yes or no.
    Ready(bool),
    /// An address: the listener's own, that of an accepted peer, or a connection's own.
    Addr(SocketAddr),
    /// A time of day, counted from 1970-01-01T00:00:00Z.
    Time(Duration),
}

impl Answer {
    /// That it is done.
    ///
    /// *Errors:* `InvalidData` for any other answer, since the world has answered another question.
    pub fn done(self) -> Result<()> {
        match self {
            Self::Done => Ok(()),
            _ => self.mistaken("Done"),
        }
    }

    /// How many bytes were transferred.
    ///
    /// *Errors:* as [`Answer::done`].
    #[inline]
    pub fn bytes(self) -> Result<usize> {
        match self {
            Self::Bytes(n) => Ok(n),
            _ => self.mistaken("Bytes"),
        }
    }

    /// Yes or no.
    ///
    /// *Errors:* as [`Answer::done`].
    #[inline]
    pub fn ready(self) -> Result<bool> {
        match self {
            Self::Ready(ready) => Ok(ready),
            _ => self.mistaken("Ready"),
        }
    }

    /// The address.
    ///
    /// *Errors:* as [`Answer::done`].
    pub fn addr(self) -> Result<SocketAddr> {
        match self {
            Self::Addr(addr) => Ok(addr),
            _ => self.mistaken("Addr"),
        }
    }

    /// The time of day.
    ///
    /// *Errors:* as [`Answer::done`].
    pub fn time(self) -> Result<Duration> {
        match self {
            Self::Time(time) => Ok(time),
            _ => self.mistaken("Time"),
        }
    }

    #[cold]
    fn mistaken<T>(self, expected: &str) -> Result<T> {
        let why = format!("the world answered {self:?} to a request that {expected} belongs to");
        Err(io::Error::new(ErrorKind::InvalidData, why))
    }
}

/// Reads a piece of a file and sends it, where there is no call that sends files.
pub(super) fn send_piece(
    file: &File,
    offset: u64,
    len: usize,
    send: impl FnOnce(&[u8]) -> Result<usize>,
) -> Result<usize> {
    let mut piece = vec![0; len.min(MAX_IO)];
    match file.read_at(&mut piece, offset)? {
        0 if len > 0 => Ok(0),
        n => send(&piece[..n]),
    }
}

/// The answer of a world that has no disk.
pub(super) fn no_disk<T>(advice: &str) -> Result<T> {
    Err(io::Error::new(
        ErrorKind::Unsupported,
        format!("this world has no disk: {advice}"),
    ))
}

pub(super) fn unsupported<T>() -> Result<T> {
    Err(io::Error::new(
        ErrorKind::Unsupported,
        "this world has no devices and no network, which the real one has",
    ))
}
