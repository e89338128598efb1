//! UDP: what the kernel asks of its sockets, and what becomes of a datagram on its way.
//!
//! A datagram holds its bytes. It is sent once: what is lost stays lost. Loss, doubling and reordering
//! are drawn when it is sent, from the random sequence of the net, and only where their shares are
//! above zero.

use std::{
    io::{ErrorKind, Result},
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

use rustix::io::Errno;

use super::{
    links::{DUPLICATE, LOSS, MILLION, REORDER, Way},
    port::{Flight, Load, OVERHEAD, Port, canonical, here_if_unspecified},
    state::{Event, Net, Socket},
};
use crate::{
    abi::{DeviceId, Direction, HostId, Nanos},
    world::sequence::below,
};

/// The most bytes of a datagram over IPv4: 65,535 less the two headers.
const MOST: usize = 65_507;

/// A datagram that is reordered takes at most so many times as long, in addition.
const DELAY: u64 = 4;

impl Net {
    pub(super) fn bind(
        &mut self,
        device: DeviceId,
        host: HostId,
        addr: SocketAddr,
    ) -> Result<SocketAddr> {
        self.is_used = true;
        self.check_own(host, addr.ip())?;
        let ports = &self.ports;
        let machine = self.hosts.get_mut(host);
        let serves = addr.port() != 0;
        let port = match addr.port() {
            0 => machine.take_udp_port()?,
            port => port,
        };
        let addr = SocketAddr::new(addr.ip(), port);
        if machine.is_udp_taken(addr, ports) {
            return Err(ErrorKind::AddrInUse.into());
        }
        self.last_serial = self.last_serial.wrapping_add(1);
        let at = self
            .ports
            .insert(Port::new(device, self.last_serial, host, addr));
        self.ports[at].serves = serves;
        machine.udp.entry(port).or_default().push(at);
        self.devices.insert(device, Socket::Udp(at));
        self.begin_weather();
        Ok(addr)
    }

    /// Makes this the peer. The socket gets an address of its own, if it has none.
    pub(super) fn connect_to(&mut self, device: DeviceId, peer: SocketAddr) -> Result<()> {
        let at = self.port(device)?;
        let from = self.route(at, peer)?.1;
        let port = &mut self.ports[at];
        port.peer = Some(peer);
        if port.addr.ip().is_unspecified() && port.addr.is_ipv4() {
            port.addr = from;
        }
        Ok(())
    }

    pub(super) fn send_connected(&mut self, at: usize, bytes: &[u8]) -> Result<usize> {
        match self.ports[at].peer {
            Some(peer) => self.send_datagram(at, bytes, peer),
            None => Err(Errno::DESTADDRREQ.into()),
        }
    }

    pub(super) fn send_to(
        &mut self,
        device: DeviceId,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Result<usize> {
        let at = self.port(device)?;
        self.send_datagram(at, bytes, to)
    }

    fn send_datagram(&mut self, at: usize, bytes: &[u8], to: SocketAddr) -> Result<usize> {
        let port = &mut self.ports[at];
        if let Some(error) = port.error.take() {
            return Err(error.into());
        }
        if bytes.len() > MOST {
            return Err(Errno::MSGSIZE.into());
        }
        port.asks = true;
        let (host, sender) = (port.host, (at, port.serial));
        let (there, from, to) = self.route(at, to)?;
        if !self.hosts.get(host).is_up {
            return Err(ErrorKind::NetworkDown.into());
        }
        let mut flight = Flight {
            way: (host, there.unwrap_or(host)),
            number: 0,
            cuts: 0,
            sender,
            from,
            to,
            load: Load::Datagram(bytes.into()),
        };
        if there.is_some() {
            self.launch(flight);
        } else if self.ports[at].peer.is_some() {
            // No host has the address: a router says so after a round trip.
            flight.load = Load::Error(ErrorKind::HostUnreachable);
            let random = self.random.generator();
            let at = self.links.answer_of_router(host, self.now, random);
            self.agenda.send(at, Event::Datagram(Box::new(flight)));
        }
        Ok(bytes.len())
    }

    /// The host of a receiver, and the addresses of sender and receiver.
    fn route(&self, at: usize, to: SocketAddr) -> Result<(Option<HostId>, SocketAddr, SocketAddr)> {
        let port = &self.ports[at];
        let own = port.addr.ip();
        if to.port() == 0 {
            return Err(ErrorKind::InvalidInput.into());
        }
        let to = SocketAddr::new(here_if_unspecified(to.ip().to_canonical()), to.port());
        if own.is_ipv4() && to.is_ipv6() {
            return Err(Errno::AFNOSUPPORT.into());
        }
        let there = self.hosts.owner(to.ip(), port.host);
        let ip = match own {
            _ if own.is_unspecified() && there == Some(port.host) => to.ip(),
            _ if own.is_unspecified() => self.hosts.get(port.host).address,
            _ if own.is_loopback() && there != Some(port.host) => {
                return Err(ErrorKind::InvalidInput.into());
            }
            own => own,
        };
        Ok((there, SocketAddr::new(ip, port.addr.port()), to))
    }

    // ---- on the way

    /// Sends a datagram: never, once or twice.
    fn launch(&mut self, mut flight: Flight) {
        self.flights += 1;
        flight.number = self.flights;
        if self.happens(LOSS) {
            return;
        }
        if self.happens(DUPLICATE) {
            self.post_datagram(flight.clone(), true);
        }
        self.post_datagram(flight, true);
    }

    fn happens(&mut self, what: usize) -> bool {
        match self.links.shares[what] {
            0 => false,
            share => below(self.random.generator(), MILLION) < u64::from(share),
        }
    }

    /// Puts it on its way, or lays it aside where packets wait.
    fn post_datagram(&mut self, mut flight: Flight, may_be_late: bool) {
        let way = flight.way;
        if self.links.is_cut(way) {
            return;
        }
        flight.cuts = self.links.cuts(way);
        if self.links.is_blocked(way) {
            return self.held.push(flight);
        }
        let len = match &flight.load {
            Load::Datagram(bytes) => bytes.len(),
            Load::Error(_) => 0,
        };
        let is_late = may_be_late && self.happens(REORDER);
        let random = self.random.generator();
        let mut at = self.links.arrival(way, len, self.now, random);
        if is_late {
            let took = at.0.saturating_sub(self.now.0);
            let more = 1 + below(random, took.saturating_mul(DELAY));
            at = at.saturating_add(Nanos(more));
        }
        self.agenda.send(at, Event::Datagram(Box::new(flight)));
    }

    /// Sends on what was laid aside, on these ways.
    pub(super) fn send_held(&mut self, ways: &[Way]) {
        let mut held = std::mem::take(&mut self.held);
        // Some had left before the others, and were stopped when they would have arrived.
        held.sort_by_key(|flight| flight.number);
        for flight in held {
            if flight.cuts != self.links.cuts(flight.way) {
                // The way was cut meanwhile.
            } else if ways.contains(&flight.way) {
                self.post_datagram(flight, false);
            } else {
                self.held.push(flight);
            }
        }
    }

    pub(super) fn deliver_datagram(&mut self, flight: Flight) {
        let way = flight.way;
        if flight.cuts != self.links.cuts(way) || !self.hosts.get(way.1).is_up {
            return;
        }
        if self.links.is_blocked(way) {
            return self.held.push(flight);
        }
        let bytes = match &flight.load {
            Load::Datagram(bytes) => Rc::clone(bytes),
            Load::Error(error) => return self.deliver_error(&flight, *error),
        };
        let Some(at) = self.receiver(way.1, flight.from, flight.to) else {
            let answer = Flight {
                way: (way.1, way.0),
                load: Load::Error(ErrorKind::ConnectionRefused),
                ..flight
            };
            return self.post_datagram(answer, false);
        };
        let port = &mut self.ports[at];
        let takes = bytes.len() + OVERHEAD;
        if port.taken > 0 && port.taken + takes > port.room {
            return;
        }
        port.taken += takes;
        let from = match (port.addr, flight.from.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => (ip.to_ipv6_mapped(), flight.from.port()).into(),
            _ => flight.from,
        };
        port.inbox.push_back((from, bytes));
        self.notify_port(at);
    }

    /// Tells a connected socket that its peer is not there. Others are not told, as on Linux.
    fn deliver_error(&mut self, flight: &Flight, error: ErrorKind) {
        let (at, serial) = flight.sender;
        if let Some(port) = self.ports.get_mut(at)
            && port.serial == serial
            && port.peer.map(canonical) == Some(flight.to)
        {
            port.error = Some(error);
            self.notify_port(at);
        }
    }

    fn notify_port(&mut self, at: usize) {
        let port = &mut self.ports[at];
        if std::mem::take(&mut port.is_owed) {
            self.ready.push_back((port.device, Direction::Read));
        }
    }

    /// The socket that fits a datagram best: a connected one first, then one with that very address.
    fn receiver(&self, host: HostId, from: SocketAddr, to: SocketAddr) -> Option<usize> {
        let here = self.hosts.get(host).udp.get(&to.port())?;
        let fitting = here.iter().filter_map(|at| {
            let fit = self.ports[*at].fit(from, to)?;
            Some((fit, *at))
        });
        fitting.max_by_key(|(fit, _)| *fit).map(|(_, at)| at)
    }

    // ---- receiving

    /// Takes a datagram, and returns its sender and how many bytes were moved.
    pub(super) fn recv_datagram(
        &mut self,
        at: usize,
        buf: &mut [u8],
    ) -> Result<(usize, SocketAddr)> {
        let port = &mut self.ports[at];
        if let Some(error) = port.error.take() {
            return Err(error.into());
        }
        let Some((from, bytes)) = port.inbox.pop_front() else {
            port.is_owed = true;
            return Err(ErrorKind::WouldBlock.into());
        };
        port.asks = false;
        port.taken -= bytes.len() + OVERHEAD;
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        Ok((n, from))
    }

    pub(super) fn recv_from(
        &mut self,
        device: DeviceId,
        buf: &mut [u8],
        from: &mut SocketAddr,
    ) -> Result<usize> {
        let at = self.port(device)?;
        let (n, sender) = self.recv_datagram(at, buf)?;
        *from = sender;
        Ok(n)
    }

    fn port(&self, device: DeviceId) -> Result<usize> {
        match self.socket(device)? {
            Socket::Udp(at) => Ok(at),
            Socket::Listener(_) | Socket::Stream(_) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    pub(super) fn close_udp(&mut self, at: usize) {
        let port = self.ports.remove(at);
        let machine = self.hosts.get_mut(port.host);
        let number = port.addr.port();
        if let Some(others) = machine.udp.get_mut(&number) {
            others.retain(|other| *other != at);
            if others.is_empty() {
                machine.udp.remove(&number);
            }
        }
    }

    /// Takes the sockets of a host that crashes.
    pub(super) fn crash_udp(&mut self, host: HostId) {
        let sockets = std::mem::take(&mut self.hosts.get_mut(host).udp);
        for at in sockets.into_values().flatten() {
            let port = self.ports.remove(at);
            self.devices.remove(&port.device);
        }
    }
}
