//! What the real world does at a request, apart from those of each message.

use std::{
    fs::File,
    io::{self, Result},
    net::SocketAddr,
    os::fd::AsFd,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{fs::FileType, net::Shutdown};

#[cfg(target_os = "linux")]
use super::sendfile;
use super::{
    RealWorld, sockets,
    source::{Fd, Kind},
    stdin::{self, Way},
};
use crate::{
    abi::{DeviceId, Direction, ListenOptions},
    trap::Descriptor,
    world::{Answer, Request, World as _, io::send_piece, text::Text},
};

impl RealWorld {
    /// Answers a request.
    #[inline(never)]
    pub(super) fn answer(&mut self, device: DeviceId, request: Request<'_>) -> Result<Answer> {
        let done = |()| Answer::Done;
        match request {
            Request::SendFile { file, offset, len } => {
                let sent = self.send_file(device, file, offset, len);
                sent.map(Answer::Bytes)
            }
            Request::Ready(direction) => self.ready(device, direction).map(Answer::Ready),
            Request::Accept { connection, .. } => self.accept(device, connection),
            Request::Attach { descriptor, .. } => self.attach(device, descriptor).map(done),
            Request::Listen { addr, options, .. } => {
                self.listen(device, addr, options).map(Answer::Addr)
            }
            Request::Connect { addr, options, .. } => {
                let socket = sockets::connect(addr, options)?;
                let registered = self.register(device, Fd::Owned(socket), Kind::Stream);
                registered.map(done)
            }
            Request::Bind { addr, .. } => self.bind(device, addr).map(Answer::Addr),
            Request::RecvFrom { buf, from } => self.recv_from(device, buf, from).map(Answer::Bytes),
            Request::SendTo { bytes, to } => self.send_to(device, bytes, to).map(Answer::Bytes),
            Request::ConnectTo(peer) => {
                let (source, _) = self.sources.get(device)?;
                sockets::connect_to(source.fd.as_fd(), peer).map(done)
            }
            Request::ListenUnix { path, .. } => self.listen_unix(device, path).map(done),
            Request::ConnectUnix { path, .. } => {
                let socket = sockets::connect_unix(path)?;
                let registered = self.register(device, Fd::Owned(socket), Kind::Socket);
                registered.map(done)
            }
            Request::Pair { other, .. } => self.pair([device, other]).map(done),
            Request::SetOptions(options) => {
                let (source, _) = self.sources.get(device)?;
                sockets::set_options(&(&source.fd).into(), options).map(done)
            }
            Request::Connected => self.connected(device).map(done),
            Request::Shutdown => self.shutdown(device).map(done),
            Request::ShutdownRead => self.shutdown_read(device).map(done),
            // The system's look-up blocks.
            Request::Resolve { .. } => Ok(Answer::Ready(false)),
            Request::Catch(signals) => {
                let remote = self.interrupts.remote();
                self.signals.catch(&remote, signals).map(done)
            }
            Request::Disk { op, .. } => self.disk.begin_on_names(&self.pool, device, op),
            Request::File(op) => self.disk.begin_on_file(&self.pool, device, op),
            Request::Finish(into) => self.disk.finish(device, into),
            Request::Input => self.open_input(device).map(done),
            Request::Feed(text) => {
                self.fed = Some(Box::new(Text::new(text)));
                Ok(Answer::Done)
            }
            Request::WallClock { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                Ok(Answer::Time(since.unwrap_or_default()))
            }
            Request::Close => {
                self.close(device);
                Ok(Answer::Done)
            }
            Request::Recv(buf) => {
                let (n, is_promised) = self.recv(device, buf)?;
                if is_promised {
                    self.sources.take_back(device);
                }
                Ok(Answer::Bytes(n))
            }
            Request::Drained => self.drained(device).map(Answer::Ready),
            Request::Send(buf) => self.send(device, buf).map(Answer::Bytes),
        }
    }

    fn attach(&mut self, id: DeviceId, descriptor: Descriptor) -> Result<()> {
        let mode = rustix::fs::fstat(descriptor.as_fd())?.st_mode;
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Socket => Kind::Socket,
            _ => Kind::File,
        };
        descriptor.set_nonblocking()?;
        self.register(id, Fd::Attached(descriptor), kind)
    }

    fn open_input(&mut self, id: DeviceId) -> Result<()> {
        if let Some(fed) = &mut self.fed {
            fed.device = Some(id);
            return Ok(());
        }
        let (fd, way) = stdin::open(self.has_stdin)?;
        let kind = match way {
            Way::File => Kind::File,
            Way::Socket => Kind::Socket,
            Way::Pump => Kind::Pump(false),
        };
        self.register(id, Fd::Attached(Descriptor::new(fd.into())), kind)
    }

    fn listen(
        &mut self,
        id: DeviceId,
        addr: SocketAddr,
        how: &ListenOptions,
    ) -> Result<SocketAddr> {
        let (socket, local) = match &mut self.ports {
            Some(ports) => {
                let open = &self.sources.open;
                ports.listen(id, addr, how, |id| open.contains_key(&id))?
            }
            None => sockets::listen(addr, how)?,
        };
        self.register(id, Fd::Owned(socket), Kind::Socket)?;
        Ok(local)
    }

    fn listen_unix(&mut self, id: DeviceId, path: &str) -> Result<()> {
        let (socket, file) = sockets::listen_unix(path)?;
        self.register(id, Fd::Owned(socket), Kind::Socket)?;
        self.sources.get(id)?.0.file = Some(file);
        Ok(())
    }

    fn bind(&mut self, id: DeviceId, addr: SocketAddr) -> Result<SocketAddr> {
        let (socket, local) = sockets::bind(addr)?;
        self.register(id, Fd::Owned(socket), Kind::Socket)?;
        Ok(local)
    }

    fn pair(&mut self, ids: [DeviceId; 2]) -> Result<()> {
        let mut registered = Ok(());
        for (id, socket) in ids.into_iter().zip(sockets::pair()?) {
            let register = |()| self.register(id, Fd::Owned(socket), Kind::Socket);
            registered = registered.and_then(register);
        }
        if registered.is_err() {
            self.close(ids[0]);
        }
        registered
    }

    fn connected(&mut self, id: DeviceId) -> Result<()> {
        let (source, _) = self.sources.get(id)?;
        Ok(rustix::net::sockopt::socket_error(source.fd.as_fd())??)
    }

    fn accept(&mut self, listener: DeviceId, id: DeviceId) -> Result<Answer> {
        let (source, owed) = self.sources.get(listener)?;
        let (socket, peer) = source.attempt(Direction::Read, owed, |fd| match fd {
            Fd::Owned(socket) => socket.accept(),
            Fd::Attached(_) => Err(io::ErrorKind::InvalidInput.into()),
        })?;
        socket.set_nonblocking(true)?;
        if peer.is_unix() {
            // A read may end before its buffer is full, where descriptors travel with the bytes.
            self.register(id, Fd::Owned(socket), Kind::Socket)?;
            return Ok(Answer::Done);
        }
        socket.set_tcp_nodelay(true)?;
        let peer = peer.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        self.register(id, Fd::Owned(socket), Kind::Stream)?;
        Ok(Answer::Addr(peer))
    }

    fn recv_from(&mut self, id: DeviceId, buf: &mut [u8], from: &mut SocketAddr) -> Result<usize> {
        let (source, owed) = self.sources.get(id)?;
        let recv = |fd: &Fd| sockets::recv_from(fd.as_fd(), buf, from);
        source.attempt(Direction::Read, owed, recv)
    }

    fn send_to(&mut self, id: DeviceId, bytes: &[u8], to: SocketAddr) -> Result<usize> {
        let (source, owed) = self.sources.get(id)?;
        let send = |fd: &Fd| sockets::send_to(fd.as_fd(), bytes, to);
        source.attempt(Direction::Write, owed, send)
    }

    fn send_file(&mut self, id: DeviceId, file: &File, offset: u64, len: usize) -> Result<usize> {
        #[cfg(target_os = "linux")]
        {
            let is_quiet = *self
                .ignores_pipe_signal
                .get_or_insert_with(sendfile::is_pipe_signal_ignored);
            let (source, owed) = self.sources.get(id)?;
            // The call blocks unless the descriptor is non-blocking: that of a stream is, since
            // nothing outside of this world can reach it.
            if is_quiet && source.kind == Kind::Stream {
                let sent = source.attempt(Direction::Write, owed, |fd| {
                    sendfile::send(fd.as_fd(), file, offset, len)
                });
                if !matches!(&sent, Err(error) if error.kind() == io::ErrorKind::Unsupported) {
                    return sent;
                }
            }
        }
        send_piece(file, offset, len, |piece| self.send(id, piece))
    }

    fn shutdown(&mut self, id: DeviceId) -> Result<()> {
        let (source, _) = self.sources.get(id)?;
        rustix::net::shutdown(source.fd.as_fd(), Shutdown::Write)?;
        source.left = None;
        Ok(())
    }

    /// The operating system is not told. Linux would pass on what arrives later, and once the other
    /// half has ended it would answer that with a reset, which discards what the peer has not received.
    fn shutdown_read(&mut self, id: DeviceId) -> Result<()> {
        let (source, owed) = self.sources.get(id)?;
        rustix::net::getpeername(source.fd.as_fd())?;
        let arrived = rustix::io::ioctl_fionread(source.fd.as_fd())?;
        source.left = Some(source.left.unwrap_or(u64::MAX).min(arrived));
        source.set_ready(Direction::Read, true, owed);
        Ok(())
    }

    fn ready(&mut self, id: DeviceId, direction: Direction) -> Result<bool> {
        let (source, owed) = self.sources.get(id)?;
        if direction == Direction::Read && source.left.is_some() {
            return Ok(true);
        }
        source.ask(direction, owed)
    }
}
