//! The machines of the net: their names, addresses, ports and listeners.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
};

use slab::Slab;

use super::{clock::Clocks, connection::EndId, port::Port};
use crate::abi::{DeviceId, HostId, ListenOptions};

/// The name of the machine of tasks that were spawned without one.
pub(super) const LOCALHOST: &str = "localhost";

/// The ports that hosts choose from, in order.
const FIRST_PORT: u16 = 49_152;

/// How many connections a listener keeps until they are accepted; as in the real world.
const BACKLOG: usize = 4096;

/// The address of [`LOCALHOST`] in the net: behind those of all others.
const LOCAL_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 254);

#[derive(Clone)]
pub(super) struct Hosts {
    all: Vec<Machine>,
    by_name: BTreeMap<String, HostId>,
    by_address: BTreeMap<IpAddr, HostId>,
    last_address: u32,
    pub(super) clocks: Clocks,
}

#[derive(Clone)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) is_up: bool,
    /// Whether the kernel can start its programs again.
    pub(super) boots: bool,
    pub(super) backlog: usize,
    last_port: u16,
    /// The ports of its own connections.
    pub(super) ports: BTreeSet<u16>,
    pub(super) listeners: BTreeMap<u16, Vec<usize>>,
    last_udp_port: u16,
    /// The sockets of UDP, which has ports of its own.
    pub(super) udp: BTreeMap<u16, Vec<usize>>,
    /// The listening Unix sockets.
    pub(super) paths: BTreeMap<Rc<str>, usize>,
}

pub(super) struct Listener {
    pub(super) device: DeviceId,
    pub(super) host: HostId,
    pub(super) addr: SocketAddr,
    /// The path of a Unix socket, which has no address.
    pub(super) path: Option<Rc<str>>,
    pub(super) options: ListenOptions,
    /// The connections to be accepted, in order of their handshakes.
    pub(super) waiting: VecDeque<EndId>,
    pub(super) handshakes: usize,
    /// Whether a report was promised.
    pub(super) is_owed: bool,
}

impl Listener {
    /// How many connections wait to be accepted, or will.
    pub(super) fn waits(&self) -> usize {
        self.waiting.len() + self.handshakes
    }

    /// How many it keeps on a host that keeps so many. As Linux does, one more than was asked for.
    pub(super) fn backlog(&self, of_host: usize) -> usize {
        let own = self.options.backlog.map(|most| most as usize + 1);
        own.unwrap_or(of_host).min(of_host)
    }
}

impl Hosts {
    pub(super) fn new() -> Self {
        let mut hosts = Self {
            all: Vec::new(),
            by_name: BTreeMap::new(),
            by_address: BTreeMap::new(),
            last_address: Ipv4Addr::new(10, 0, 0, 0).to_bits(),
            clocks: Clocks::default(),
        };
        hosts.insert(LOCALHOST, LOCAL_ADDRESS.into());
        hosts
    }

    pub(super) fn get(&self, host: HostId) -> &Machine {
        &self.all[host.index()]
    }

    pub(super) fn get_mut(&mut self, host: HostId) -> &mut Machine {
        &mut self.all[host.index()]
    }

    pub(super) fn clear(&mut self) {
        self.clocks.begin();
        for machine in &mut self.all {
            machine.last_port = FIRST_PORT - 1;
            machine.last_udp_port = FIRST_PORT - 1;
            machine.ports.clear();
            machine.listeners.clear();
            machine.udp.clear();
            machine.paths.clear();
        }
    }

    /// All hosts, in the order in which they were made.
    pub(super) fn ids(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.all.len()).map(HostId::at)
    }

    pub(super) fn find(&self, name: &str) -> io::Result<HostId> {
        self.by_name.get(name).copied().ok_or_else(|| {
            let why = format!(
                "the simulated net has no host {name:?}: a host is made by spawn_on or SimNet::host"
            );
            io::Error::new(io::ErrorKind::NotFound, why)
        })
    }

    /// The host of that name, which is made if there is none.
    pub(super) fn find_or_make(&mut self, name: &str) -> io::Result<HostId> {
        if let Some(host) = self.by_name.get(name) {
            return Ok(*host);
        }
        check_name(name)?;
        let address = self.next_address()?;
        Ok(self.insert(name, address))
    }

    pub(super) fn make(&mut self, name: &str, address: IpAddr) -> io::Result<HostId> {
        check_name(name)?;
        if let Some(host) = self.by_name.get(name) {
            let has = self.get(*host).address;
            let why = format!("there is a host {name:?} already, with the address {has}");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        if let Some(other) = self.by_address.get(&address) {
            let other = &self.get(*other).name;
            let why = format!("the host {other:?} has the address {address} already");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            let why = format!("{address} cannot be the address of a host");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(self.insert(name, address))
    }

    /// The host that a caller reaches at an address.
    pub(super) fn owner(&self, address: IpAddr, caller: HostId) -> Option<HostId> {
        if address.is_loopback() {
            return Some(caller);
        }
        self.by_address.get(&address).copied()
    }

    fn insert(&mut self, name: &str, address: IpAddr) -> HostId {
        let host = HostId::at(self.all.len());
        self.all.push(Machine {
            name: name.into(),
            address,
            is_up: true,
            boots: false,
            backlog: BACKLOG,
            last_port: FIRST_PORT - 1,
            ports: BTreeSet::new(),
            listeners: BTreeMap::new(),
            last_udp_port: FIRST_PORT - 1,
            udp: BTreeMap::new(),
            paths: BTreeMap::new(),
        });
        self.by_name.insert(name.into(), host);
        self.by_address.insert(address, host);
        host
    }

    fn next_address(&mut self) -> io::Result<IpAddr> {
        loop {
            self.last_address += 1;
            if self.last_address >= LOCAL_ADDRESS.to_bits() {
                return Err(io::Error::other("the net has no address left for a host"));
            }
            let address = Ipv4Addr::from_bits(self.last_address).into();
            if !self.by_address.contains_key(&address) {
                return Ok(address);
            }
        }
    }
}

impl Machine {
    /// Takes the next free port, for a connection or a listener. A port is in use by either.
    pub(super) fn take_port(&mut self) -> io::Result<u16> {
        let (ports, listeners) = (&self.ports, &self.listeners);
        let is_taken = |port| ports.contains(&port) || listeners.contains_key(&port);
        next_port(&mut self.last_port, is_taken)
    }

    /// Takes the next free port of UDP.
    pub(super) fn take_udp_port(&mut self) -> io::Result<u16> {
        let udp = &self.udp;
        next_port(&mut self.last_udp_port, |port| udp.contains_key(&port))
    }

    /// Whether a socket at this address would receive datagrams for another one.
    pub(super) fn is_udp_taken(&self, addr: SocketAddr, all: &Slab<Port>) -> bool {
        let here = self.udp.get(&addr.port()).into_iter().flatten();
        here.map(|at| all[*at].addr.ip())
            .any(|other| overlap(addr.ip(), other))
    }

    /// The listener that takes a connection to this address: that of the address itself, or one of
    /// all addresses. The port of the client chooses among those that share an address.
    pub(super) fn listener(
        &self,
        addr: SocketAddr,
        from: SocketAddr,
        all: &Slab<Listener>,
    ) -> Option<usize> {
        let here = self.listeners.get(&addr.port())?;
        let is = |ip: IpAddr| {
            let like = || here.iter().copied().filter(|at| all[*at].addr.ip() == ip);
            match like().count() {
                0 => None,
                count => like().nth(usize::from(from.port()) % count),
            }
        };
        let any_v4 = || is(Ipv4Addr::UNSPECIFIED.into()).filter(|_| addr.is_ipv4());
        // A listener on all IPv6 addresses takes IPv4 as well.
        let any = || is(Ipv6Addr::UNSPECIFIED.into());
        is(addr.ip()).or_else(any_v4).or_else(any)
    }

    /// Whether a listener at this address would take connections from another one.
    pub(super) fn is_taken(
        &self,
        addr: SocketAddr,
        options: &ListenOptions,
        all: &Slab<Listener>,
    ) -> bool {
        let here = self.listeners.get(&addr.port()).into_iter().flatten();
        here.map(|at| &all[*at])
            .filter(|other| !(options.reuse_port && other.options.reuse_port))
            .any(|other| overlap(addr.ip(), other.addr.ip()))
    }
}

/// The first port behind the last one that is free.
fn next_port(last: &mut u16, is_taken: impl Fn(u16) -> bool) -> io::Result<u16> {
    let mut port = *last;
    for _ in FIRST_PORT..=u16::MAX {
        port = port.checked_add(1).unwrap_or(FIRST_PORT);
        if !is_taken(port) {
            *last = port;
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrNotAvailable.into())
}

/// Whether a connection may be for both addresses.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let is_any_v6 = |ip: IpAddr| ip == IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let is_any = one.is_unspecified() || other.is_unspecified();
    let like = one.is_ipv4() == other.is_ipv4();
    one == other || is_any && like || is_any_v6(one) || is_any_v6(other)
}

/// A name is written in commands and in addresses such as `server:80`.
fn check_name(name: &str) -> io::Result<()> {
    let is_fit = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let why = if name.is_empty() {
        "the name of a host is empty".into()
    } else if !name.chars().all(is_fit) {
        format!("{name:?} is no name of a host: use letters, digits, '-', '_' and '.'")
    } else if name.parse::<IpAddr>().is_ok() {
        format!("{name:?} is an address: give the host a name")
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}
