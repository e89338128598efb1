//! The ports that kernels side by side listen on together.

use std::{
    collections::BTreeMap,
    io::Result,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use socket2::{Domain, Protocol, Socket, Type};

use super::sockets;
use crate::{
    abi::{DeviceId, ListenOptions},
    panic::lock,
};

/// The addresses on which kernels that run side by side listen together: see
/// [`RealWorld::share_ports`](crate::RealWorld::share_ports). Clones are the same ports.
#[derive(Clone, Debug, Default)]
pub struct SharedPorts(Arc<Mutex<Addresses>>);

/// The addresses that worlds listen on, by what was asked for and how often the same world has asked for
/// it before.
type Addresses = BTreeMap<(SocketAddr, usize), SocketAddr>;

impl SharedPorts {
    /// No address yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// What one world has of them.
#[derive(Default)]
pub(super) struct Ports {
    pub(super) shared: SharedPorts,
    /// How often this world has asked for each address.
    asked: BTreeMap<SocketAddr, usize>,
    /// The listeners of this world: where each listens, and whether the program has it share its port.
    mine: BTreeMap<DeviceId, (SocketAddr, bool)>,
}

impl Ports {
    pub(super) fn of(shared: SharedPorts) -> Self {
        Self {
            shared,
            asked: BTreeMap::new(),
            mine: BTreeMap::new(),
        }
    }

    /// Listens where the other worlds listen that have asked for this address as often. Of a listener of this
    /// world, `is_open` tells whether it is still there.
    ///
    /// *Errors:* as those of a world that shares no port: this one listens there.
    pub(super) fn listen(
        &mut self,
        id: DeviceId,
        addr: SocketAddr,
        options: &ListenOptions,
        is_open: impl Fn(DeviceId) -> bool,
    ) -> Result<(Socket, SocketAddr)> {
        self.mine.retain(|listener, _| is_open(*listener));
        let shares = options.reuse_port;
        let is_taken = |(mine, shared): &(_, bool)| !(shares && *shared) && overlap(*mine, addr);
        if self.mine.values().any(is_taken) {
            return Err(rustix::io::Errno::ADDRINUSE.into());
        }
        let options = options.reuse_port(true);
        let asked = self.asked.get(&addr).copied().unwrap_or(0);
        // A port that is given is one, however often it is asked for.
        let nth = if addr.port() == 0 { asked } else { 0 };
        let mut known = lock(&self.shared.0);
        let at = known.get(&(addr, nth)).copied().unwrap_or(addr);
        // A port that another world was given for port 0 is one of ours.
        if !known.values().any(|ours| *ours == at) {
            refuse_foreign(at)?;
        }
        let (socket, local) = sockets::listen(at, &options)?;
        known.insert((addr, nth), local);
        self.asked.insert(addr, asked + 1);
        self.mine.insert(id, (local, shares));
        Ok((socket, local))
    }
}

/// Whether two listeners get the same connections.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (ip, other_ip) = (one.ip(), other.ip());
    let is_any = ip.is_unspecified() || other_ip.is_unspecified();
    let is_same = ip == other_ip || is_any && one.is_ipv4() == other.is_ipv4();
    is_same && one.port() == other.port()
}

/// Fails if another process listens there, which may share the port as well.
fn refuse_foreign(addr: SocketAddr) -> Result<()> {
    let probe = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    probe.set_reuse_address(true)?;
    probe.bind(&addr.into())
}
