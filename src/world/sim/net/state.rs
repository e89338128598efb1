//! [`Net`]: the state of a simulated network.

use std::{collections::VecDeque, rc::Weak};

use slab::Slab;

use super::{
    agenda::Agenda,
    chaos::Chaos,
    clock::DAWN,
    connection::{CLIENT, Connection, End, EndId, Pipe, SERVER, Stage},
    fault::Fault,
    hosts::{Hosts, Listener},
    links::{Links, Way},
    port::{Flight, Port},
};
use crate::{
    abi::{DeviceId, Direction, Nanos},
    trap::TrapFrame,
    world::{
        DeviceMap, Happening,
        sequence::Sequence,
        sim::disk::{Disks, Over},
    },
};

/// The random numbers of the net are a sequence apart from those of the programs.
const OF_THE_NET: u64 = 0x6e65_7477_6f72_6b73;

/// A simulated network. Programs reach it by the requests of the kernel, tests by a
/// [`SimNet`](super::SimNet).
pub(in crate::world::sim) struct Net {
    pub(super) hosts: Hosts,
    pub(super) links: Links,
    /// The hosts, links and limits when a world took the net.
    initial: Option<Box<(Hosts, Links, Limits)>>,
    pub(super) connections: Slab<Connection>,
    pub(super) listeners: Slab<Listener>,
    /// The sockets of UDP.
    pub(super) ports: Slab<Port>,
    /// The datagrams that wait on ways that hold packets.
    pub(super) held: Vec<Flight>,
    /// How many datagrams were sent.
    pub(super) flights: u64,
    pub(super) devices: DeviceMap<Socket>,
    pub(in crate::world::sim) disks: Disks,
    pub(super) agenda: Agenda<Event>,
    pub(super) random: Sequence,
    pub(super) limits: Limits,
    pub(in crate::world::sim) now: Nanos,
    /// The time of day at the begin.
    pub(in crate::world::sim) dawn: Nanos,
    /// The reports that the kernel has not taken.
    pub(super) ready: VecDeque<(DeviceId, Direction)>,
    pub(super) last_serial: u32,
    /// Whether anything has happened since the begin.
    pub(super) is_used: bool,
    /// Whether a socket of UDP was opened since then.
    pub(super) has_udp: bool,
    pub(super) chaos: Option<Chaos>,
    /// If this is set, only the faults of chaos with these numbers happen.
    pub(super) chaos_only: Option<Vec<u32>>,
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
    pub(super) chaos: u8,
    /// How long a client waits for an answer.
    pub(super) connecting: Nanos,
    /// How long a sender waits for an acknowledgement.
    pub(super) acknowledging: Nanos,
}

#[derive(Clone, Copy)]
pub(super) enum Socket {
    /// A listener, by its place in the slab.
    Listener(usize),
    Stream(EndId),
    /// A socket of UDP, by its place in the slab.
    Udp(usize),
}

#[derive(Clone, Copy)]
pub(super) struct Packet {
    pub(super) from: EndId,
    /// The epoch of the pipe in which it was sent.
    pub(super) epoch: u32,
    pub(super) signal: Signal,
}

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
pub(super) enum Event {
    Arrival(Packet),
    Datagram(Box<Flight>),
    /// A client asks for its connection again.
    Retry(EndId),
    /// A sender has waited long enough for an acknowledgement.
    GiveUp(EndId),
    /// A fault of chaos ends by this one.
    EndFault(Box<Fault>),
    /// An operation on a disk is over.
    DiskIsOver(Box<Over>),
}

impl Net {
    pub(super) fn new() -> Self {
        Self {
            hosts: Hosts::new(),
            links: Links::new(),
            initial: None,
            connections: Slab::new(),
            listeners: Slab::new(),
            ports: Slab::new(),
            held: Vec::new(),
            flights: 0,
            devices: DeviceMap::default(),
            disks: Disks::new(),
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
            dawn: DAWN.into(),
            ready: VecDeque::new(),
            last_serial: 0,
            is_used: false,
            has_udp: false,
            chaos: None,
            chaos_only: None,
            ended_faults: Vec::new(),
            seed: 0,
            kernel: Weak::new(),
        }
    }

    /// Begins in a world: with the same hosts and links, without connections, at time zero.
    pub(in crate::world::sim) fn begin(&mut self, seed: u64) {
        self.kernel = Weak::new();
        self.dawn = DAWN.into();
        self.hosts.clear();
        self.links.clear();
        let initial = (self.hosts.clone(), self.links.clone(), self.limits.clone());
        self.initial = Some(Box::new(initial));
        self.clear();
        self.disks.begin();
        self.reseed(seed);
    }

    /// Makes the net as it was at its begin in this world. It remembers whether anything has
    /// happened: a search resets it thousands of times a second.
    pub(in crate::world::sim) fn renew(&mut self, seed: u64) {
        if std::mem::take(&mut self.is_used) {
            if let Some(initial) = &self.initial {
                (self.hosts, self.links, self.limits) = (**initial).clone();
            }
            self.clear();
        }
        self.disks.renew();
        self.now = Nanos::ZERO;
        self.reseed(seed);
    }

    fn clear(&mut self) {
        self.connections.clear();
        self.listeners.clear();
        self.ports.clear();
        self.held.clear();
        self.flights = 0;
        self.has_udp = false;
        self.devices.clear();
        self.agenda = Agenda::new();
        self.ready.clear();
        self.ended_faults.clear();
        self.last_serial = 0;
        self.now = Nanos::ZERO;
    }

    pub(in crate::world::sim) fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.random = Sequence::new(seed ^ OF_THE_NET);
        self.disks.reseed(seed);
        self.chaos_only = None;
        if self.limits.chaos > 0 || self.chaos.is_some() {
            self.begin_chaos(self.limits.chaos);
        }
    }

    /// Notes that there is UDP. Chaos without it draws nothing for it.
    pub(super) fn begin_weather(&mut self) {
        if !std::mem::replace(&mut self.has_udp, true) {
            self.begin_weather_of_chaos();
        }
    }

    fn begin_weather_of_chaos(&mut self) {
        if let Some(chaos) = self.chaos.as_mut().filter(|_| self.has_udp) {
            chaos.begin_weather(self.seed, self.now);
        }
    }

    /// The connection of an end, unless it is no more.
    #[inline]
    pub(super) fn find(&mut self, end: EndId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(end.slot as usize)?;
        (connection.serial == end.serial).then_some(connection)
    }

    /// The connection of an end, which is there.
    #[inline]
    pub(super) fn connection(&mut self, end: EndId) -> &mut Connection {
        &mut self.connections[end.slot as usize]
    }

    /// An end that is there, and the pipe that leads away from it.
    #[inline]
    pub(super) fn end(&mut self, end: EndId) -> (&mut End, &mut Pipe) {
        let connection = self.connection(end);
        let (ends, pipes) = (&mut connection.ends, &mut connection.pipes);
        (&mut ends[end.side], &mut pipes[end.side])
    }

    pub(super) fn way(&self, from: EndId) -> Way {
        let ends = &self.connections[from.slot as usize].ends;
        (ends[from.side].host, ends[1 - from.side].host)
    }

    pub(super) fn end_of(&self, slot: usize, side: usize) -> EndId {
        EndId {
            slot: slot as u32,
            serial: self.connections[slot].serial,
            side,
        }
    }

    #[inline]
    pub(in crate::world::sim) fn next(&self) -> Option<Nanos> {
        if !self.ready.is_empty() {
            return Some(self.now);
        }
        let chaos = self.chaos.as_ref().and_then(Chaos::next);
        self.agenda.next().into_iter().chain(chaos).min()
    }

    /// Whether calls on different connections commute: no draw and no limit makes one depend on another.
    pub(super) fn is_calm(&self) -> bool {
        self.chaos.is_none() && !self.limits.fragments && self.links.is_calm()
    }

    /// Whether nothing will happen by itself, chaos apart.
    pub(in crate::world::sim) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.agenda.next().is_none()
    }

    /// Begins chaos of this level, or ends it.
    pub(super) fn begin_chaos(&mut self, level: u8) {
        self.limits.chaos = level;
        self.chaos = Chaos::new(level, self.seed, self.now);
        self.keep_only();
        self.begin_weather_of_chaos();
    }

    /// Tells chaos, if there is any, which of its faults happen.
    pub(super) fn keep_only(&mut self) {
        if let Some(chaos) = &mut self.chaos {
            chaos.keep(self.chaos_only.clone());
        }
    }

    /// Moves the clock. Returns whether faults are due.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos) -> bool {
        self.now = now;
        while let Some(due) = self.agenda.pop_due(now) {
            match due {
                Event::Arrival(packet) => self.deliver(packet),
                Event::Datagram(flight) => self.deliver_datagram(*flight),
                Event::Retry(client) => self.retry(client),
                Event::GiveUp(sender) => self.give_up(sender),
                Event::EndFault(fault) => self.ended_faults.push(*fault),
                Event::DiskIsOver(over) => self.end_on_disk(&over),
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
            let is_ready = match self.devices.get(&device) {
                Some(socket) => self.is_ready(*socket, direction),
                None => self.disks.is_over(device),
            };
            if is_ready {
                happened.push(Happening::Ready(device, direction));
            }
        }
    }

    /// Reports an end that is ready, if that was promised.
    #[inline]
    pub(super) fn notify(&mut self, end: EndId, direction: Direction) {
        let (end, _) = self.end(end);
        let device = end.device;
        if std::mem::take(&mut end.owed[direction as usize]) {
            self.ready.push_back((device, direction));
        }
    }

    /// Removes a connection that no task can reach any more.
    pub(super) fn sweep(&mut self, end: EndId) {
        if self.find(end).is_none_or(|found| !found.is_forgotten()) {
            return;
        }
        for side in [end, end.peer()] {
            self.cancel_retry(side);
            self.cancel_give_up(side);
        }
        if self.connection(end).ends[SERVER].stage == Stage::Handshake {
            self.leave_handshake(end);
        }
        let client = &self.connections.remove(end.slot as usize).ends[CLIENT];
        let ports = &mut self.hosts.get_mut(client.host).ports;
        ports.remove(&client.addr.port());
    }

    pub(super) fn cancel_give_up(&mut self, end: EndId) {
        let place = self.end(end).1.give_up.take();
        self.agenda.disarm(place);
    }

    /// A client does not ask again. A server never does.
    pub(super) fn cancel_retry(&mut self, end: EndId) {
        let retry = &mut self.connection(end).retry;
        let place = retry.take_if(|_| end.side == CLIENT);
        self.agenda.disarm(place);
    }

    pub(super) fn listener_of(&self, end: EndId) -> Option<usize> {
        let connection = &self.connections[end.slot as usize];
        let [client, server] = &connection.ends;
        let machine = self.hosts.get(server.host);
        match &connection.path {
            Some(path) => machine.paths.get(path).copied(),
            None => machine.listener(server.addr, client.addr, &self.listeners),
        }
    }

    pub(super) fn leave_handshake(&mut self, end: EndId) {
        if let Some(at) = self.listener_of(end) {
            let handshakes = &mut self.listeners[at].handshakes;
            *handshakes = handshakes.saturating_sub(1);
        }
    }
}
