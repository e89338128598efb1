//! How sockets are opened, and their options.

use std::{
    fs,
    io::{self, Result},
    net::SocketAddr,
    os::{fd::BorrowedFd, unix::fs::MetadataExt},
    path::PathBuf,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::abi::{ListenOptions, StreamOptions};

/// How many connections the operating system keeps for a listener that is busy.
const BACKLOG: i32 = 4096;

/// The file of a listening Unix socket. Dropping it removes the file, if it is still the same one.
pub(super) struct OwnFile {
    path: PathBuf,
    /// The device and the number of the file.
    identity: Option<(u64, u64)>,
}

impl OwnFile {
    fn new(path: PathBuf) -> Self {
        let identity = Self::identify(&path);
        Self { path, identity }
    }

    fn identify(path: &PathBuf) -> Option<(u64, u64)> {
        let found = fs::symlink_metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.identity.is_some() && Self::identify(&self.path) == self.identity {
            // It may go in between: then there is nothing to remove.
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) fn listen(addr: SocketAddr, options: &ListenOptions) -> Result<(Socket, SocketAddr)> {
    let socket = open(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    set_buffers(&(&socket).into(), options.recv_buffer, options.send_buffer)?;
    socket.bind(&addr.into())?;
    let backlog = options.backlog.map(i32::try_from);
    socket.listen(backlog.map_or(BACKLOG, |most| most.unwrap_or(i32::MAX)))?;
    let local = socket.local_addr()?.as_socket().unwrap_or(addr);
    Ok((socket, local))
}

/// Begins a connection.
pub(super) fn connect(addr: SocketAddr, options: &StreamOptions) -> Result<Socket> {
    let socket = open(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    set_options(&(&socket).into(), options)?;
    match socket.connect(&addr.into()) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

pub(super) fn bind(addr: SocketAddr) -> Result<(Socket, SocketAddr)> {
    let socket = open(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&addr.into())?;
    let local = socket.local_addr()?.as_socket().unwrap_or(addr);
    Ok((socket, local))
}

pub(super) fn listen_unix(path: &str) -> Result<(Socket, OwnFile)> {
    let socket = open(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = OwnFile::new(path.into());
    socket.listen(BACKLOG)?;
    Ok((socket, file))
}

pub(super) fn connect_unix(path: &str) -> Result<Socket> {
    let socket = open(Domain::UNIX, Type::STREAM, None)?;
    match socket.connect(&SockAddr::unix(path)?) {
        // As a tape has it, which holds no more of such an error.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        connected => connected.map(|()| socket),
    }
}

pub(super) fn pair() -> Result<[Socket; 2]> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok([one, other])
}

fn open(domain: Domain, kind: Type, protocol: Option<Protocol>) -> Result<Socket> {
    let socket = Socket::new(domain, kind, protocol)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Takes a datagram, and puts its sender's address into `from`.
pub(super) fn recv_from(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    from: &mut SocketAddr,
) -> Result<usize> {
    let (n, _, sender) = rustix::net::recvfrom(fd, buf, RecvFlags::DONTWAIT)?;
    if let Some(sender) = sender {
        *from = sender.try_into()?;
    }
    Ok(n)
}

pub(super) fn send_to(fd: BorrowedFd<'_>, bytes: &[u8], to: SocketAddr) -> Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendto(fd, bytes, flags, &to)?)
}

pub(super) fn connect_to(fd: BorrowedFd<'_>, peer: SocketAddr) -> Result<()> {
    Ok(rustix::net::connect(fd, &peer)?)
}

pub(super) fn set_options(socket: &SockRef<'_>, options: &StreamOptions) -> Result<()> {
    if let Some(nodelay) = options.nodelay {
        socket.set_tcp_nodelay(nodelay)?;
    }
    match options.keepalive {
        Some(Some(after)) => {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(after))?;
        }
        Some(None) => socket.set_keepalive(false)?,
        None => {}
    }
    if let Some(span) = options.linger {
        socket.set_linger(span)?;
    }
    set_buffers(socket, options.recv_buffer, options.send_buffer)
}

fn set_buffers(socket: &SockRef<'_>, recv: Option<usize>, send: Option<usize>) -> Result<()> {
    if let Some(bytes) = recv {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(bytes) = send {
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}
