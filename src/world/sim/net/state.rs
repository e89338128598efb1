//! [`Net`]: the state of a simulated network.

use std::{collections::VecDeque, net::SocketAddr, rc::Weak};

use slab::Slab;

use super::{
    agenda::{Agenda, Due},
    chaos::Chaos,
    connection::{CLIENT, Connection, EndId, SERVER, Stage},
    fault::Fault,
    hosts::{Hosts, Listener},
    links::Links,
};
use crate::{
    abi::{DeviceId, Direction, HostId, Nanos},
    trap::TrapFrame,
    world::{DeviceMap, Happening, sim::sequence::Sequence},
};

/// The random numbers of the net are a sequence apart from those of the programs.
const OF_THE_NET: u64 = 0x6e65_7477_6f72_6b73;

/// A simulated network. Programs reach it by the requests of the kernel, tests by a
/// [`SimNet`](super::SimNet).
pub(super) struct Net {
    pub(super) hosts: Hosts,
    pub(super) links: Links,
    /// The hosts, links and limits when a world took the net.
    initial: Option<Box<(Hosts, Links, Limits)>>,
    pub(super) connections: Slab<Connection>,
    pub(super) listeners: Slab<Listener>,
    pub(super) devices: DeviceMap<Socket>,
    pub(super) agenda: Agenda<Packet, Timer>,
    pub(super) random: Sequence,
    pub(super) limits: Limits,
    pub(super) now: Nanos,
    /// The reports that the kernel has not taken.
    pub(super) ready: VecDeque<(DeviceId, Direction)>,
    /// The number of the last connection.
    pub(super) last_serial: u32,
    /// Whether anything has happened since the begin.
    pub(super) is_used: bool,
    pub(super) chaos: Option<Chaos>,
    /// What ends the faults of chaos that are over.
    pub(super) ended_faults: Vec<Fault>,
    seed: u64,
    /// The frame of the kernel whose world has the net.
    pub(super) kernel: Weak<TrapFrame>,
}

/// How much a connection keeps, and for how long it tries.
#[derive(Clone)]
pub(super) struct Limits {
    /// The bytes that are sent and not yet read, for each direction.
    pub(super) buffer: usize,
    /// Whether reads and writes come in pieces.
    pub(super) fragments: bool,
    /// The level of chaos.
    chaos: u8,
    /// How long a client waits for an answer.
    pub(super) connecting: Nanos,
    /// How long a sender waits for an acknowledgement.
    pub(super) acknowledging: Nanos,
}

/// What a device is.
#[derive(Clone, Copy)]
pub(super) enum Socket {
    /// A listener, by its place in the slab.
    Listener(usize),
    Stream(EndId),
}

/// A packet under way.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    /// The end that has sent it.
    pub(super) from: EndId,
    /// The epoch of the pipe in which it was sent.
    pub(super) epoch: u32,
    pub(super) signal: Signal,
}

/// What a packet says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The client asks for a connection.
    Syn,
    /// The server agrees.
    SynAck,
    /// The client knows: the handshake is over.
    Ack,
    /// No task listens.
    Refused,
    /// No host has the address.
    Unreachable,
    /// So many bytes.
    Bytes(u32),
    /// No more bytes follow.
    Fin,
    /// There is no such connection any more.
    Reset,
    /// The receiver has read.
    Room,
}

/// What happens at a time unless it is cancelled.
pub(super) enum Timer {
    /// A client asks for its connection again.
    Retry(EndId),
    /// A sender has waited long enough for an acknowledgement.
    GiveUp(EndId),
    /// A fault of chaos ends by this one.
    EndFault(Box<Fault>),
}

impl Net {
    pub(super) fn new() -> Self {
        Self {
            hosts: Hosts::new(),
            links: Links::new(),
            initial: None,
            connections: Slab::new(),
            listeners: Slab::new(),
            devices: DeviceMap::default(),
            agenda: Agenda::new(),
            random: Sequence::new(OF_THE_NET),
            limits: Limits {
                buffer: 64 * 1024,
                fragments: false,
                chaos: 0,
                connecting: Nanos::from_millis(127_000),
                acknowledging: Nanos::from_millis(924_000),
            },
            now: Nanos::ZERO,
            ready: VecDeque::new(),
            last_serial: 0,
            is_used: false,
            chaos: None,
            ended_faults: Vec::new(),
            seed: 0,
            kernel: Weak::new(),
        }
    }

    /// Begins in a world: without connections, at time zero.
    pub(super) fn begin(&mut self, seed: u64) {
        self.kernel = Weak::new();
        self.hosts.clear();
        self.links.clear();
        let initial = (self.hosts.clone(), self.links.clone(), self.limits.clone());
        self.initial = Some(Box::new(initial));
        self.clear();
        self.reseed(seed);
    }

    /// Makes the net as it was at its begin in this world. It remembers whether anything has
    /// happened: a search resets it thousands of times a second.
    pub(super) fn renew(&mut self, seed: u64) {
        if std::mem::take(&mut self.is_used) {
            if let Some(initial) = &self.initial {
                (self.hosts, self.links, self.limits) = (**initial).clone();
            }
            self.clear();
        }
        self.now = Nanos::ZERO;
        self.reseed(seed);
    }

    /// Drops all connections and listeners.
    fn clear(&mut self) {
        self.connections.clear();
        self.listeners.clear();
        self.devices.clear();
        self.agenda = Agenda::new();
        self.ready.clear();
        self.ended_faults.clear();
        self.last_serial = 0;
        self.now = Nanos::ZERO;
    }

    pub(super) fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.random = Sequence::new(seed ^ OF_THE_NET);
        if self.limits.chaos > 0 || self.chaos.is_some() {
            self.chaos = Chaos::new(self.limits.chaos, seed, self.now);
        }
    }

    /// The connection of an end, unless it is no more.
    #[inline]
    pub(super) fn connection(&mut self, end: EndId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(end.slot as usize)?;
        (connection.serial == end.serial).then_some(connection)
    }

    /// The way that a packet of this end takes.
    pub(super) fn way(&self, from: EndId) -> (HostId, HostId) {
        let ends = &self.connections[from.slot as usize].ends;
        (ends[from.side].host, ends[1 - from.side].host)
    }

    /// Names an end of the connection in that place.
    pub(super) fn end_of(&self, slot: usize, side: usize) -> EndId {
        EndId {
            slot: slot as u32,
            serial: self.connections[slot].serial,
            side,
        }
    }

    /// When something happens next.
    #[inline]
    pub(super) fn next(&self) -> Option<Nanos> {
        if !self.ready.is_empty() {
            return Some(self.now);
        }
        let next = self.agenda.next();
        match &self.chaos {
            None => next,
            Some(chaos) => next.into_iter().chain(chaos.next()).min(),
        }
    }

    /// Whether nothing will happen by itself, chaos apart.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.agenda.next().is_none()
    }

    /// Begins chaos of this level, or ends it.
    pub(super) fn begin_chaos(&mut self, level: u8) {
        self.limits.chaos = level;
        self.chaos = Chaos::new(level, self.seed, self.now);
    }

    /// Moves the clock. Returns whether faults are due.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos) -> bool {
        self.now = now;
        while let Some(due) = self.agenda.pop_due(now) {
            match due {
                Due::Packet(packet) => self.deliver(packet),
                Due::Timer(Timer::Retry(client)) => self.retry(client),
                Due::Timer(Timer::GiveUp(sender)) => self.give_up(sender),
                Due::Timer(Timer::EndFault(fault)) => self.ended_faults.push(*fault),
            }
        }
        self.chaos.is_some() || !self.ended_faults.is_empty()
    }

    /// Appends the reports that the kernel has not taken.
    #[inline]
    pub(super) fn take_reports(&mut self, happened: &mut Vec<Happening>) {
        for _ in 0..self.ready.len() {
            let Some((device, direction)) = self.ready.pop_front() else {
                return;
            };
            // Another task may have read what there was.
            if let Some(socket) = self.devices.get(&device)
                && self.is_ready(*socket, direction)
            {
                happened.push(Happening::Ready(device, direction));
            }
        }
    }

    /// What a device is, in words for reports.
    pub(super) fn describe(&self, device: DeviceId) -> Option<String> {
        let name = |host| &self.hosts.get(host).name;
        Some(match self.devices.get(&device)? {
            Socket::Listener(at) => {
                let listener = &self.listeners[*at];
                format!("the listener {} of {}", listener.addr, name(listener.host))
            }
            Socket::Stream(end) => {
                let connection = self.connections.get(end.slot as usize)?;
                let (own, peer) = (&connection.ends[end.side], &connection.ends[1 - end.side]);
                let (here, there) = (name(own.host), name(peer.host));
                format!(
                    "the connection of {here} {} with {there} {}",
                    own.addr, peer.addr
                )
            }
        })
    }

    /// Whether a task that waits for this waits for an answer of a server.
    pub(super) fn is_client(&self, device: DeviceId, direction: Direction) -> bool {
        let Some(Socket::Stream(end)) = self.devices.get(&device) else {
            return false;
        };
        let connection = self.connections.get(end.slot as usize);
        let asks = connection.is_some_and(|connection| connection.ends[CLIENT].asks);
        end.side == CLIENT && (asks || direction == Direction::Write)
    }

    /// Reports an end that is ready, if that was promised.
    #[inline]
    pub(super) fn notify(&mut self, end: EndId, direction: Direction) {
        let end = &mut self.connections[end.slot as usize].ends[end.side];
        if let Some(device) = end.take_owed(direction) {
            self.ready.push_back((device, direction));
        }
    }

    /// Removes a connection that no task can reach any more.
    pub(super) fn sweep(&mut self, end: EndId) {
        let Some(connection) = self.connections.get(end.slot as usize) else {
            return;
        };
        if connection.serial != end.serial || !connection.is_forgotten() {
            return;
        }
        let connection = self.connections.remove(end.slot as usize);
        let timers = connection.pipes.iter().filter_map(|pipe| pipe.give_up);
        for place in timers.chain(connection.retry) {
            self.agenda.disarm(place);
        }
        let [client, server] = &connection.ends;
        self.hosts.get_mut(client.host).release(client.addr.port());
        if server.stage == Stage::Handshake {
            self.leave_handshake(server.host, server.addr);
        }
    }

    /// The listener that a connection of this client is for.
    pub(super) fn listener_of(&self, end: EndId) -> Option<usize> {
        let server = &self.connections[end.slot as usize].ends[SERVER];
        let machine = self.hosts.get(server.host);
        machine.listener(server.addr, &self.listeners)
    }

    /// A handshake with the listener of that address is over.
    pub(super) fn leave_handshake(&mut self, host: HostId, addr: SocketAddr) {
        let listener = self.hosts.get(host).listener(addr, &self.listeners);
        if let Some(at) = listener {
            let handshakes = &mut self.listeners[at].handshakes;
            *handshakes = handshakes.saturating_sub(1);
        }
    }

    /// The client's end of a connection.
    pub(super) fn client(end: EndId) -> EndId {
        EndId {
            side: CLIENT,
            ..end
        }
    }
}
