//! What the kernel asks of the net.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Result},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{
    connection::{CLIENT, Connection, End, EndId, Stage},
    hosts::{LOCALHOST, Listener},
    port::here_if_unspecified,
    state::{Event, Net, Packet, Signal, Socket},
};
use crate::{
    abi::{DeviceId, Direction, HostId, ListenOptions, StreamOptions},
    world::{
        io::{Answer, Request, send_piece},
        sequence::below,
    },
};

/// Half of the pieces of a fragmented stream are not longer than this.
const SMALL: u64 = 16;

impl Net {
    #[inline]
    pub(in crate::world::sim) fn io(
        &mut self,
        device: DeviceId,
        request: Request<'_>,
    ) -> Result<Answer> {
        let done = |()| Answer::Done;
        match request {
            Request::Recv(buf) => self.recv(device, buf).map(Answer::Bytes),
            Request::Drained => self.drained(device).map(Answer::Ready),
            Request::Send(buf) => self.send(device, buf).map(Answer::Bytes),
            Request::SendFile { file, offset, len } => {
                let sent = send_piece(file, offset, len, |piece| self.send(device, piece));
                sent.map(Answer::Bytes)
            }
            Request::Ready(direction) => self.ready(device, direction).map(Answer::Ready),
            Request::Accept { connection, .. } => self.accept(device, connection),
            Request::Attach { .. } => Err(io::Error::new(
                ErrorKind::Unsupported,
                "the simulated world has no descriptors: run it in the real one",
            )),
            Request::Listen {
                host,
                addr,
                options,
            } => self.listen(device, host, addr, options).map(Answer::Addr),
            Request::Connect {
                host,
                addr,
                options,
            } => self.connect(device, host, addr, options).map(done),
            Request::Bind { host, addr } => self.bind(device, host, addr).map(Answer::Addr),
            Request::RecvFrom { buf, from } => self.recv_from(device, buf, from).map(Answer::Bytes),
            Request::SendTo { bytes, to } => self.send_to(device, bytes, to).map(Answer::Bytes),
            Request::ConnectTo(peer) => self.connect_to(device, peer).map(done),
            Request::ListenUnix { host, path } => self.listen_unix(device, host, path).map(done),
            Request::ConnectUnix { host, path } => self.connect_unix(device, host, path).map(done),
            Request::Pair { host, other } => self.pair(device, other, host).map(done),
            Request::SetOptions(options) => self.set_options(device, options).map(done),
            Request::Connected => self.connected(device).map(Answer::Addr),
            Request::Shutdown => self.shutdown(device).map(done),
            Request::ShutdownRead => self.shutdown_read(device).map(done),
            Request::Resolve { name, addresses } => {
                self.resolve(name, addresses)?;
                Ok(Answer::Ready(true))
            }
            // None comes from outside.
            Request::Catch(_) => Ok(Answer::Done),
            Request::Disk { host, op } => self.begin_on_disk(device, host, op).map(done),
            Request::File(op) => self.begin_on_file(device, op).map(done),
            Request::Finish(bytes) => self.disks.finish(device, bytes),
            Request::WallClock { host } => {
                let time = self.hosts.clocks.time(host, self.dawn, self.now);
                Ok(Answer::Time(time.into()))
            }
            // Of the world.
            Request::Input | Request::Feed(_) => Err(ErrorKind::Unsupported.into()),
            Request::Close => {
                self.close(device);
                Ok(Answer::Done)
            }
        }
    }

    // ---- opening

    /// Checks that a host is up, and has this address.
    pub(super) fn check_own(&self, host: HostId, ip: IpAddr) -> Result<()> {
        let is_own = ip.is_unspecified() || self.hosts.owner(ip, host) == Some(host);
        let machine = self.hosts.get(host);
        if !is_own {
            let (name, address) = (&machine.name, machine.address);
            let why = format!("{ip} is no address of the host {name:?}, which has {address}");
            return Err(io::Error::new(ErrorKind::AddrNotAvailable, why));
        }
        if !machine.is_up {
            return Err(ErrorKind::NetworkDown.into());
        }
        Ok(())
    }

    fn listen(
        &mut self,
        device: DeviceId,
        host: HostId,
        addr: SocketAddr,
        options: &ListenOptions,
    ) -> Result<SocketAddr> {
        self.is_used = true;
        let ip = addr.ip();
        self.check_own(host, ip)?;
        let machine = self.hosts.get_mut(host);
        let port = match addr.port() {
            0 => machine.take_port()?,
            port => port,
        };
        let addr = SocketAddr::new(ip, port);
        if machine.is_taken(addr, options, &self.listeners) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let at = self.listeners.insert(Listener {
            device,
            host,
            addr,
            path: None,
            options: *options,
            waiting: VecDeque::new(),
            handshakes: 0,
            is_owed: false,
        });
        machine.listeners.entry(port).or_default().push(at);
        self.devices.insert(device, Socket::Listener(at));
        Ok(addr)
    }

    fn connect(
        &mut self,
        device: DeviceId,
        host: HostId,
        addr: SocketAddr,
        options: &StreamOptions,
    ) -> Result<()> {
        self.is_used = true;
        let addr = SocketAddr::new(here_if_unspecified(addr.ip()), addr.port());
        let server = self.hosts.owner(addr.ip(), host);
        let machine = self.hosts.get_mut(host);
        if !machine.is_up {
            return Err(ErrorKind::NetworkDown.into());
        }
        let ip = match server {
            Some(server) if server == host => addr.ip(),
            Some(_) | None => machine.address,
        };
        let port = machine.take_port()?;
        machine.ports.insert(port);
        let local = SocketAddr::new(ip, port);
        let client = End::new(device, host, local, Stage::Connecting);
        let to = server.unwrap_or(host);
        let peer = End::new(DeviceId::NONE, to, addr, Stage::Absent);
        self.last_serial = self.last_serial.wrapping_add(1);
        let mut connection = Connection::new(self.last_serial, client, peer, self.now);
        connection.set_options(CLIENT, options);
        let slot = self.connections.insert(connection);
        let client = self.end_of(slot, CLIENT);
        self.devices.insert(device, Socket::Stream(client));
        match server {
            Some(_) => self.send_packet(client, Signal::Syn),
            None => self.answer_for_nobody(client),
        }
        Ok(())
    }

    /// No host has the address: a router says so after a round trip.
    fn answer_for_nobody(&mut self, client: EndId) {
        let (host, _) = self.way(client);
        let random = self.random.generator();
        let at = self.links.answer_of_router(host, self.now, random);
        self.limit_connecting(client, at);
        let packet = Packet {
            from: client.peer(),
            epoch: 0,
            signal: Signal::Unreachable,
        };
        self.agenda.send(at, Event::Arrival(packet));
    }

    fn accept(&mut self, device: DeviceId, connection: DeviceId) -> Result<Answer> {
        let Socket::Listener(at) = self.socket(device)? else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let listener = &mut self.listeners[at];
        let Some(server) = listener.waiting.pop_front() else {
            listener.is_owed = true;
            return Err(ErrorKind::WouldBlock.into());
        };
        self.devices.insert(connection, Socket::Stream(server));
        let (end, _) = self.end(server);
        (end.device, end.is_queued) = (connection, false);
        // Its client may have reset it meanwhile.
        if end.stage == Stage::Queued {
            end.stage = Stage::Open;
        }
        Ok(match self.connection(server).path {
            Some(_) => Answer::Done,
            None => Answer::Addr(self.end(server.peer()).0.addr),
        })
    }

    fn set_options(&mut self, device: DeviceId, options: &StreamOptions) -> Result<()> {
        match self.socket(device)? {
            Socket::Listener(_) => return Err(ErrorKind::InvalidInput.into()),
            Socket::Udp(at) => {
                let port = &mut self.ports[at];
                port.room = options.recv_buffer.unwrap_or(port.room);
            }
            Socket::Stream(_) => {
                let end = self.stream(device)?;
                self.connection(end).set_options(end.side, options);
            }
        }
        Ok(())
    }

    fn connected(&mut self, device: DeviceId) -> Result<SocketAddr> {
        let end = self.stream(device)?;
        let (this, _) = self.end(end);
        match this.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(this.addr),
        }
    }

    fn resolve(&self, name: &str, addresses: &mut Vec<IpAddr>) -> Result<()> {
        if name == LOCALHOST {
            let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
            addresses.extend([IpAddr::from(v4), v6.into()]);
        } else {
            let host = self.hosts.find(name)?;
            addresses.push(self.hosts.get(host).address);
        }
        Ok(())
    }

    // ---- data

    #[inline]
    fn recv(&mut self, device: DeviceId, buf: &mut [u8]) -> Result<usize> {
        let (fragments, of_net) = (self.limits.fragments, self.limits.buffer);
        if let Socket::Udp(at) = self.socket(device)? {
            return self.recv_datagram(at, buf).map(|(n, _)| n);
        }
        let end = self.stream(device)?;
        let connection = self.connection(end);
        let (this, pipe) = (
            &mut connection.ends[end.side],
            &mut connection.pipes[1 - end.side],
        );
        let left = this.left.unwrap_or(usize::MAX);
        if pipe.arrived == 0 || left == 0 {
            // As Linux does: after the end of a TCP stream no error is reported.
            let is_over = left == 0 || this.got_end && connection.path.is_none();
            return match this.error {
                _ if is_over => Ok(0),
                Some(error) => {
                    this.error = None;
                    Err(error.into())
                }
                None if this.got_end || this.stage == Stage::Gone || buf.is_empty() => Ok(0),
                None => {
                    this.owed[Direction::Read as usize] = true;
                    Err(ErrorKind::WouldBlock.into())
                }
            };
        }
        let mut n = pipe.arrived.min(buf.len()).min(left);
        if fragments {
            n = self.piece(n);
        }
        let (this, _) = self.end(end);
        this.asks = false;
        this.left = this.left.map(|left| left - n);
        let (_, pipe) = self.end(end.peer());
        pipe.read(&mut buf[..n]);
        let most = pipe.most(of_net);
        if pipe.wants_room && !pipe.is_room_under_way && pipe.bytes.len() <= most / 2 {
            pipe.is_room_under_way = true;
            self.send_packet(end, Signal::Room);
        }
        Ok(n)
    }

    #[inline]
    fn send(&mut self, device: DeviceId, buf: &[u8]) -> Result<usize> {
        let (fragments, of_net) = (self.limits.fragments, self.limits.buffer);
        match self.socket(device)? {
            Socket::Listener(_) => return Err(ErrorKind::BrokenPipe.into()),
            Socket::Udp(at) => return self.send_connected(at, buf),
            Socket::Stream(_) => {}
        }
        let end = self.stream(device)?;
        if self.knows_of_close(end) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let (this, pipe) = self.end(end);
        if let Some(error) = this.error.take() {
            return Err(error.into());
        }
        if this.sent_end || this.stage == Stage::Gone {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if buf.is_empty() {
            return Ok(0);
        }
        let room = pipe.most(of_net).saturating_sub(pipe.bytes.len());
        if room == 0 || this.stage == Stage::Connecting {
            pipe.wants_room = this.stage != Stage::Connecting;
            this.owed[Direction::Write as usize] = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut n = room.min(buf.len());
        if fragments {
            n = self.piece(n);
        }
        let (this, pipe) = self.end(end);
        this.asks = true;
        pipe.bytes.extend(&buf[..n]);
        self.send_packet(end, Signal::Bytes(n as u32));
        Ok(n)
    }

    /// Whether the peer of a Unix socket has closed it. A sender knows at once.
    #[inline]
    fn knows_of_close(&mut self, end: EndId) -> bool {
        let connection = self.connection(end);
        let peer = &connection.ends[1 - end.side];
        let is_accepted = !peer.is_queued && peer.stage != Stage::Handshake;
        peer.device == DeviceId::NONE && is_accepted && connection.path.is_some()
    }

    /// A number of bytes from one to `n`, small ones more often.
    fn piece(&mut self, n: usize) -> usize {
        let random = self.random.generator();
        let most = match below(random, 2) {
            0 => SMALL.min(n as u64),
            _ => n as u64,
        };
        match most {
            0 => 0,
            most => 1 + below(random, most) as usize,
        }
    }

    /// Returns the end of a connection that is one. As on Linux, TCP has none any more once both halves
    /// have ended, and a Unix socket remains connected.
    fn open_stream(&mut self, device: DeviceId) -> Result<EndId> {
        let end = self.stream(device)?;
        let is_tcp = self.connection(end).path.is_none();
        let peer_knows = self.end(end.peer()).0.got_end;
        let (this, _) = self.end(end);
        if is_tcp && (this.stage != Stage::Open || this.got_end && peer_knows) {
            return Err(ErrorKind::NotConnected.into());
        }
        Ok(end)
    }

    /// The peer does not learn of it. The kernel wakes a reader that waits.
    fn shutdown_read(&mut self, device: DeviceId) -> Result<()> {
        let end = self.open_stream(device)?;
        let arrived = self.connection(end).unread(end.side);
        let (this, _) = self.end(end);
        this.left = Some(this.left.unwrap_or(usize::MAX).min(arrived));
        this.owed[Direction::Read as usize] = false;
        Ok(())
    }

    fn shutdown(&mut self, device: DeviceId) -> Result<()> {
        let end = self.open_stream(device)?;
        let (this, _) = self.end(end);
        this.left = None;
        if !std::mem::replace(&mut this.sent_end, true) && this.stage == Stage::Open {
            this.asks = true;
            self.notify(end, Direction::Write);
            self.send_packet(end, Signal::Fin);
        }
        Ok(())
    }

    // ---- readiness

    #[inline]
    fn drained(&mut self, device: DeviceId) -> Result<bool> {
        // A receive on a listener is an error, which only the attempt returns.
        let receives = !matches!(self.socket(device)?, Socket::Listener(_));
        Ok(receives && !self.ready(device, Direction::Read)?)
    }

    #[inline]
    fn ready(&mut self, device: DeviceId, direction: Direction) -> Result<bool> {
        let socket = self.socket(device)?;
        let is_ready = self.is_ready(socket, direction);
        match socket {
            Socket::Listener(at) => {
                self.listeners[at].is_owed |= direction == Direction::Read && !is_ready;
            }
            Socket::Udp(at) if !is_ready => self.ports[at].owe(),
            Socket::Udp(_) => {}
            Socket::Stream(_) => {
                let end = self.stream(device)?;
                let (this, pipe) = self.end(end);
                this.owed[direction as usize] |= !is_ready;
                let is_open = this.stage == Stage::Open;
                pipe.wants_room |= direction == Direction::Write && !is_ready && is_open;
            }
        }
        Ok(is_ready)
    }

    /// Whether an attempt at a socket may succeed or fail, rather than wait.
    #[inline]
    pub(super) fn is_ready(&self, socket: Socket, direction: Direction) -> bool {
        let end = match socket {
            Socket::Listener(at) => {
                return direction == Direction::Read && !self.listeners[at].waiting.is_empty();
            }
            Socket::Udp(at) => return self.ports[at].is_ready(direction),
            Socket::Stream(end) => end,
        };
        let Some(connection) = self.connections.get(end.slot as usize) else {
            return true;
        };
        let this = &connection.ends[end.side];
        if this.error.is_some() || this.stage == Stage::Gone {
            return true;
        }
        match direction {
            Direction::Read => {
                let has_arrived = connection.pipes[1 - end.side].arrived > 0;
                has_arrived || this.got_end || this.left == Some(0)
            }
            Direction::Write => {
                let pipe = &connection.pipes[end.side];
                let has_room = pipe.bytes.len() < pipe.most(self.limits.buffer);
                this.sent_end || this.stage == Stage::Open && has_room
            }
        }
    }

    // ---- closing

    fn close(&mut self, device: DeviceId) {
        match self.devices.remove(&device) {
            None => self.disks.close(device),
            Some(Socket::Listener(at)) => self.close_listener(at),
            Some(Socket::Stream(end)) => self.close_stream(end),
            Some(Socket::Udp(at)) => self.close_udp(at),
        }
    }

    /// Closes a listener. What was not accepted is reset. As on Linux, a later listener does not take
    /// over the handshakes of this one.
    fn close_listener(&mut self, at: usize) {
        let has_handshakes = self.listeners[at].handshakes > 0;
        for (end, _) in has_handshakes.then(|| self.ends()).into_iter().flatten() {
            let stage = self.end(end).0.stage;
            if stage == Stage::Handshake && self.listener_of(end) == Some(at) {
                self.end(end).0.stage = Stage::Gone;
                self.sweep(end);
            }
        }
        let listener = self.listeners.remove(at);
        let machine = self.hosts.get_mut(listener.host);
        let port = listener.addr.port();
        if let Some(others) = machine.listeners.get_mut(&port) {
            others.retain(|other| *other != at);
            if others.is_empty() {
                machine.listeners.remove(&port);
            }
        }
        if let Some(path) = listener.path {
            machine.paths.remove(&path);
        }
        for end in listener.waiting {
            self.end(end).0.is_queued = false;
            self.abandon(end);
            self.send_packet(end, Signal::Reset);
            self.sweep(end);
        }
    }

    /// Closes an end. With unread bytes the peer is told of a reset, otherwise of the end of the
    /// stream, as Linux does.
    fn close_stream(&mut self, end: EndId) {
        if self.find(end).is_none() {
            return;
        }
        let has_unread = self.connection(end).unread(end.side) > 0;
        let (this, _) = self.end(end);
        this.device = DeviceId::NONE;
        match this.stage {
            Stage::Connecting => self.abandon(end),
            Stage::Open if has_unread || this.resets => {
                this.stage = Stage::Gone;
                self.send_packet(end, Signal::Reset);
            }
            Stage::Open if !this.sent_end => {
                this.sent_end = true;
                self.send_packet(end, Signal::Fin);
            }
            Stage::Open | Stage::Absent | Stage::Handshake | Stage::Queued | Stage::Gone => {}
        }
        self.sweep(end);
    }

    /// Resets a connection from this end. What the end has sent arrives before.
    pub(super) fn abort(&mut self, device: DeviceId) -> Result<()> {
        let end = self.stream(device)?;
        let (this, _) = self.end(end);
        if this.stage == Stage::Open {
            this.stage = Stage::Gone;
            this.error = Some(ErrorKind::ConnectionAborted);
            self.send_packet(end, Signal::Reset);
            self.notify(end, Direction::Read);
            self.notify(end, Direction::Write);
        }
        Ok(())
    }

    // ---- look-ups

    #[inline]
    pub(super) fn socket(&self, device: DeviceId) -> Result<Socket> {
        let socket = self.devices.get(&device).copied();
        socket.ok_or(ErrorKind::NotFound.into())
    }

    /// The end of a connection that a device is. It is there.
    #[inline]
    fn stream(&mut self, device: DeviceId) -> Result<EndId> {
        match self.socket(device)? {
            Socket::Stream(end) if self.find(end).is_some() => Ok(end),
            Socket::Stream(_) => Err(ErrorKind::NotFound.into()),
            Socket::Listener(_) | Socket::Udp(_) => Err(ErrorKind::NotConnected.into()),
        }
    }
}
