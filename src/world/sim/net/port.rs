//! A socket of UDP, and what is on its way to one.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
};

use super::links::Way;
use crate::abi::{DeviceId, Direction, HostId};

/// How much a socket keeps until it is read, as Linux has it by default.
const ROOM: usize = 212_992;

/// What Linux charges a small datagram beyond its bytes.
pub(super) const OVERHEAD: usize = 768;

pub(super) struct Port {
    pub(super) device: DeviceId,
    /// Sets it apart from others in the same place of the slab.
    pub(super) serial: u32,
    pub(super) host: HostId,
    pub(super) addr: SocketAddr,
    pub(super) peer: Option<SocketAddr>,
    /// Whether its program has chosen its port.
    pub(super) serves: bool,
    /// The datagrams that have arrived, with their senders.
    pub(super) inbox: VecDeque<(SocketAddr, Rc<[u8]>)>,
    /// What the inbox takes of the room.
    pub(super) taken: usize,
    pub(super) room: usize,
    /// Whether it has sent something and has received nothing since.
    pub(super) asks: bool,
    /// Whether a report was promised.
    pub(super) is_owed: bool,
    pub(super) error: Option<ErrorKind>,
}

/// What is on its way.
#[derive(Clone)]
pub(super) struct Flight {
    pub(super) way: Way,
    /// Its number among all datagrams: those that wait go on in this order.
    pub(super) number: u64,
    /// How often the way had been cut when it left.
    pub(super) cuts: u32,
    /// The socket that has sent it: its place, and its number.
    pub(super) sender: (usize, u32),
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) load: Load,
}

#[derive(Clone)]
pub(super) enum Load {
    Datagram(Rc<[u8]>),
    /// The answer to a datagram that has found no socket.
    Error(ErrorKind),
}

impl Port {
    pub(super) fn new(device: DeviceId, serial: u32, host: HostId, addr: SocketAddr) -> Self {
        Self {
            device,
            serial,
            host,
            addr,
            peer: None,
            serves: false,
            inbox: VecDeque::new(),
            taken: 0,
            room: ROOM,
            asks: false,
            is_owed: false,
            error: None,
        }
    }

    pub(super) fn is_ready(&self, direction: Direction) -> bool {
        direction == Direction::Write || self.error.is_some() || !self.inbox.is_empty()
    }

    pub(super) fn owe(&mut self) {
        self.is_owed = true;
    }

    /// How well the socket fits a datagram; `None` if it is for another one.
    pub(super) fn fit(&self, from: SocketAddr, to: SocketAddr) -> Option<(bool, bool)> {
        let ip = self.addr.ip();
        let is_any = ip.is_unspecified() && (ip.is_ipv6() || to.is_ipv4());
        let is_fit = is_any || ip == to.ip();
        match self.peer {
            Some(peer) if canonical(peer) != from => None,
            peer => is_fit.then_some((peer.is_some(), !is_any)),
        }
    }
}

/// The address of a peer as packets have it.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    let ip = here_if_unspecified(addr.ip().to_canonical());
    SocketAddr::new(ip, addr.port())
}

/// The unspecified address, as a peer's, is that of the host itself.
pub(super) fn here_if_unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}
