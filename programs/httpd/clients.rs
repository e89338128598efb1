//! The limit on clients, and the choice of the connection to close beyond it.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use trapline::{
    Os, Source, TcpStream,
    sync::{Permit, Semaphore},
};

/// How long an idle connection is left open when another client needs its place. A request on it
/// may be under way.
const NOTICE: Duration = Duration::from_millis(1);
/// The period for finding idle connections while all are busy.
const BUSY: Duration = Duration::from_millis(100);

pub(super) struct Clients {
    free: Semaphore,
    per_address: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    connections: BTreeMap<IpAddr, usize>,
    /// The connections that wait for a request, the longest idle first.
    idle: BTreeMap<u64, (IpAddr, TcpStream)>,
    last: u64,
    is_stopping: bool,
}

/// A place among the clients, given back when it is dropped.
pub(super) struct Seat {
    clients: Rc<Clients>,
    address: IpAddr,
    _permit: Permit,
}

/// While it lasts, the connection may be closed in favour of another.
pub(super) struct Idle {
    clients: Rc<Clients>,
    number: u64,
}

impl Clients {
    pub(super) async fn new(os: &mut Os, most: usize, per_address: usize) -> Self {
        Self {
            free: Semaphore::new(os, most).await,
            per_address,
            state: RefCell::default(),
        }
    }

    /// Makes room for a client. It closes the connection that has been idle longest, or waits for
    /// one to end. Returns `None` if the client's address has too many connections and none is
    /// idle, or the server is to stop.
    pub(super) async fn admit(
        self: &Rc<Self>,
        os: &mut Os,
        peer: SocketAddr,
        stop: Source,
    ) -> Option<Seat> {
        let address = owner(peer.ip());
        if self.is_crowded(peer) {
            os.sleep(NOTICE).await;
            if self.is_crowded(peer) && !self.recycle(os, Some(address)).await {
                return None;
            }
        }
        let mut patience = NOTICE;
        let permit = loop {
            let free = Source::permit(&self.free);
            match os.select(&[free, stop, Source::after(patience)]).await {
                0 => break self.free.acquire(os).await.expect("it is of this kernel"),
                1 => return None,
                _ => {}
            }
            let recycled = self.recycle(os, None).await;
            patience = if recycled { NOTICE } else { BUSY };
        };
        let mut state = self.state.borrow_mut();
        *state.connections.entry(address).or_default() += 1;
        Some(Seat {
            clients: Rc::clone(self),
            address,
            _permit: permit,
        })
    }

    /// Returns whether the client's address has all its connections.
    pub(super) fn is_crowded(&self, peer: SocketAddr) -> bool {
        let state = self.state.borrow();
        let connections = state.connections.get(&owner(peer.ip()));
        connections.is_some_and(|count| *count >= self.per_address)
    }

    /// Ends the connections that wait for a request. The others get no further one.
    pub(super) async fn stop(&self, os: &mut Os) {
        self.state.borrow_mut().is_stopping = true;
        let idle = self
            .state
            .borrow()
            .idle
            .values()
            .cloned()
            .collect::<Vec<_>>();
        for (_, client) in idle {
            // It fails if the connection has just ended.
            let _ = client.shutdown_read(os).await;
        }
    }

    /// Closes the connection that has been idle longest, of an address or of all. Returns whether
    /// there was one.
    pub(super) async fn recycle(&self, os: &mut Os, of: Option<IpAddr>) -> bool {
        let client = {
            let idle = &mut self.state.borrow_mut().idle;
            let is_wanted = |address: &IpAddr| of.is_none_or(|of| of == *address);
            let longest = idle.iter().find(|(_, (address, _))| is_wanted(address));
            let number = longest.map(|(number, _)| *number);
            number.and_then(|number| idle.remove(&number))
        };
        let Some((_, client)) = client else {
            return false;
        };
        // It fails if the connection has just ended.
        let _ = client.close(os).await;
        true
    }
}

impl Seat {
    /// Returns whether the server stops.
    pub(super) fn is_last(&self) -> bool {
        self.clients.state.borrow().is_stopping
    }

    pub(super) fn idle(&self, client: &TcpStream) -> Idle {
        let mut state = self.clients.state.borrow_mut();
        state.last += 1;
        let number = state.last;
        state.idle.insert(number, (self.address, client.clone()));
        let clients = Rc::clone(&self.clients);
        Idle { clients, number }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let client = self.clients.state.borrow_mut().idle.remove(&self.number);
        drop(client);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let connections = &mut self.clients.state.borrow_mut().connections;
        if let Some(count) = connections.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}

/// The unit of the limit per address: for IPv6 the network, since a host has all of it.
fn owner(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}
