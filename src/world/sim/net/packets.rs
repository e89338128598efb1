//! Packets: how they are sent, what they do when they arrive, and what follows when they are lost.
//!
//! A packet holds no bytes: those wait in the pipe, and the packet says how many of them have
//! arrived. So lost bytes are sent again without a copy. An acknowledgement takes no time and no
//! packet: what has arrived is acknowledged unless the way back is cut.

use std::io;

use super::{
    connection::{CLIENT, EndId, SERVER, Stage},
    state::{Net, Packet, Signal, Timer},
};
use crate::abi::{DeviceId, Direction, Nanos};

/// With a limited bandwidth, more bytes travel as several packets.
const SEGMENT: usize = 8 * 1024;

const SECOND: Nanos = Nanos::from_millis(1000);

impl Net {
    /// Sends a packet.
    #[inline]
    pub(super) fn send_packet(&mut self, from: EndId, signal: Signal) {
        let way = self.way(from);
        if self.connections[from.slot as usize].pipes[from.side].is_stalled {
            // It is sent again with the rest.
            return;
        }
        if self.links.is_blocked(way) {
            return self.lose(from, signal);
        }
        match signal {
            Signal::Bytes(n) if n as usize > SEGMENT && self.links.bandwidth(way) > 0 => {
                for start in (0..n as usize).step_by(SEGMENT) {
                    let len = SEGMENT.min(n as usize - start);
                    self.post(from, Signal::Bytes(len as u32));
                }
            }
            _ => self.post(from, signal),
        }
    }

    /// Puts a packet on its way.
    #[inline]
    fn post(&mut self, from: EndId, signal: Signal) {
        let way = self.way(from);
        let len = match signal {
            Signal::Bytes(n) => n as usize,
            _ => 0,
        };
        let at = self
            .links
            .arrival(way, len, self.now, self.random.generator());
        let pipe = &mut self.connections[from.slot as usize].pipes[from.side];
        pipe.is_reset_under_way |= signal == Signal::Reset;
        let at = at.max(pipe.last_arrival);
        pipe.last_arrival = at;
        let epoch = pipe.epoch;
        let packet = Packet {
            from,
            epoch,
            signal,
        };
        self.agenda.send(at, packet);
    }

    /// Hands a packet over that is due, unless it was lost on the way.
    #[inline]
    pub(super) fn deliver(&mut self, packet: Packet) {
        let Packet {
            from,
            epoch,
            signal,
        } = packet;
        let Some(connection) = self.connection(from) else {
            return;
        };
        if connection.pipes[from.side].epoch != epoch {
            return;
        }
        let to = connection.ends[1 - from.side].host;
        if self.hosts.get(to).is_up {
            self.arrive(from, signal);
        } else {
            self.lose(from, signal);
        }
    }

    /// What a packet does to the other end.
    fn arrive(&mut self, from: EndId, signal: Signal) {
        match signal {
            Signal::Syn => self.arrive_request(from),
            Signal::SynAck => self.arrive_consent(from),
            Signal::Ack => self.arrive_handshake(from),
            Signal::Refused => self.refuse(from.peer(), io::ErrorKind::ConnectionRefused),
            Signal::Unreachable => self.refuse(from.peer(), io::ErrorKind::HostUnreachable),
            Signal::Bytes(n) => self.arrive_bytes(from, n as usize),
            Signal::Fin => self.arrive_end(from),
            Signal::Reset => self.arrive_reset(from.peer()),
            Signal::Room => self.arrive_room(from.peer()),
        }
    }

    /// A server receives the request for a connection.
    fn arrive_request(&mut self, from: EndId) {
        let server = from.peer();
        let stage = &mut self.connections[from.slot as usize].ends[SERVER].stage;
        match stage {
            // The host has restarted, and does not know of the first request.
            Stage::Gone => *stage = Stage::Absent,
            Stage::Absent => {}
            // The client asks again: the answer was lost.
            _ => return self.send_packet(server, Signal::SynAck),
        }
        let Some(at) = self.listener_of(from) else {
            return self.send_packet(server, Signal::Refused);
        };
        let listener = &mut self.listeners[at];
        let backlog = self.hosts.get(listener.host).backlog;
        if listener.waiting.len() + listener.handshakes >= backlog {
            // It is dropped, and the client asks again.
            return self.retry_later(from);
        }
        listener.handshakes += 1;
        self.connections[from.slot as usize].ends[SERVER].stage = Stage::Handshake;
        self.send_packet(server, Signal::SynAck);
    }

    /// A client receives the server's consent.
    fn arrive_consent(&mut self, from: EndId) {
        let client = from.peer();
        let connection = &mut self.connections[from.slot as usize];
        if connection.ends[CLIENT].stage == Stage::Connecting {
            connection.ends[CLIENT].stage = Stage::Open;
            if let Some(place) = connection.retry.take() {
                self.agenda.disarm(place);
            }
            self.notify(client, Direction::Write);
        }
        self.send_packet(client, Signal::Ack);
    }

    /// A server receives the end of the handshake: the connection can be accepted.
    fn arrive_handshake(&mut self, from: EndId) {
        if self.connections[from.slot as usize].ends[SERVER].stage != Stage::Handshake {
            return;
        }
        let listener = self.listener_of(from);
        let server = &mut self.connections[from.slot as usize].ends[SERVER];
        let Some(at) = listener else {
            server.stage = Stage::Gone;
            return self.send_packet(from.peer(), Signal::Reset);
        };
        server.stage = Stage::Queued;
        let listener = &mut self.listeners[at];
        listener.handshakes = listener.handshakes.saturating_sub(1);
        listener.waiting.push_back(from.peer());
        if std::mem::take(&mut listener.is_owed) {
            self.ready.push_back((listener.device, Direction::Read));
        }
        self.acknowledge(from);
    }

    /// A client receives a refusal.
    fn refuse(&mut self, client: EndId, why: io::ErrorKind) {
        if self.connections[client.slot as usize].ends[CLIENT].stage == Stage::Connecting {
            self.fail(client, why);
        }
    }

    #[inline]
    fn arrive_bytes(&mut self, from: EndId, n: usize) {
        let connection = &mut self.connections[from.slot as usize];
        let receiver = &mut connection.ends[1 - from.side];
        let is_open = match receiver.stage {
            Stage::Open => receiver.device != DeviceId::NONE,
            Stage::Queued => true,
            Stage::Absent | Stage::Connecting | Stage::Handshake | Stage::Gone => false,
        };
        if is_open {
            connection.pipes[from.side].arrived += n;
            self.notify(from.peer(), Direction::Read);
            self.acknowledge(from);
        } else {
            self.reject(from);
        }
    }

    fn arrive_end(&mut self, from: EndId) {
        let receiver = &mut self.connections[from.slot as usize].ends[1 - from.side];
        if receiver.stage == Stage::Gone {
            return self.reject(from);
        }
        receiver.got_end = true;
        self.notify(from.peer(), Direction::Read);
        self.acknowledge(from);
    }

    /// Something has arrived for an end that is gone: it answers with a reset.
    fn reject(&mut self, from: EndId) {
        let connection = &mut self.connections[from.slot as usize];
        connection.ends[1 - from.side].stage = Stage::Gone;
        connection.pipes[from.side].clear();
        self.send_packet(from.peer(), Signal::Reset);
    }

    fn arrive_reset(&mut self, end: EndId) {
        self.connections[end.slot as usize].pipes[1 - end.side].is_reset_under_way = false;
        let this = &self.connections[end.slot as usize].ends[end.side];
        match this.stage {
            Stage::Gone => {}
            Stage::Connecting => self.fail(end, io::ErrorKind::ConnectionRefused),
            // As Linux does: a peer that has ended its half is known to read no more.
            _ if this.got_end => self.fail(end, io::ErrorKind::BrokenPipe),
            _ => self.fail(end, io::ErrorKind::ConnectionReset),
        }
    }

    fn arrive_room(&mut self, sender: EndId) {
        let pipe = &mut self.connections[sender.slot as usize].pipes[sender.side];
        pipe.is_room_under_way = false;
        // Another send may have filled the room meanwhile. The next read tells again.
        if pipe.bytes.len() < self.limits.buffer {
            pipe.wants_room = false;
            self.notify(sender, Direction::Write);
        }
    }

    /// Ends a connection at this end, with an error for the calls on it. What has arrived can still
    /// be read.
    pub(super) fn fail(&mut self, end: EndId, why: io::ErrorKind) {
        let connection = &mut self.connections[end.slot as usize];
        let this = &mut connection.ends[end.side];
        if this.stage == Stage::Gone {
            return;
        }
        this.error = Some(why);
        self.abandon(end);
        self.notify(end, Direction::Read);
        self.notify(end, Direction::Write);
        self.sweep(end);
    }

    /// Makes an end send nothing any more and wait for nothing.
    pub(super) fn abandon(&mut self, end: EndId) {
        let connection = &mut self.connections[end.slot as usize];
        let stage = std::mem::replace(&mut connection.ends[end.side].stage, Stage::Gone);
        connection.pipes[end.side].drop_under_way();
        let retry = connection.retry.take_if(|_| end.side == CLIENT);
        let give_up = connection.pipes[end.side].give_up.take();
        let server = &connection.ends[SERVER];
        let (host, addr) = (server.host, server.addr);
        for place in retry.into_iter().chain(give_up) {
            self.agenda.disarm(place);
        }
        if stage == Stage::Handshake {
            self.leave_handshake(host, addr);
        }
    }

    // ---- what is lost

    /// Drops a packet. What this end sends from now on waits until the loss is made good.
    pub(super) fn lose(&mut self, from: EndId, signal: Signal) {
        match signal {
            Signal::Syn | Signal::SynAck | Signal::Refused => self.retry_later(Net::client(from)),
            Signal::Unreachable => {}
            // The peer would send again, and would be answered by another reset.
            Signal::Reset => {
                self.connections[from.slot as usize].pipes[from.side].is_reset_lost = true;
            }
            Signal::Room => self.stall(from),
            Signal::Ack | Signal::Bytes(_) | Signal::Fin => {
                self.stall(from);
                self.await_acknowledgement(from);
            }
        }
    }

    /// Loses all that is under way from this end.
    pub(super) fn lose_all(&mut self, from: EndId) {
        let connection = &mut self.connections[from.slot as usize];
        if connection.ends[CLIENT].stage == Stage::Connecting {
            connection.pipes[from.side].epoch += 1;
            return self.retry_later(Self::client(from));
        }
        let pipe = &mut connection.pipes[from.side];
        if pipe.is_reset_under_way {
            pipe.epoch += 1;
            pipe.is_reset_lost = true;
            return;
        }
        let needs_acknowledgement = connection.is_unacknowledged(from.side);
        if needs_acknowledgement || connection.pipes[1 - from.side].is_room_under_way {
            self.stall(from);
        }
        if needs_acknowledgement {
            self.await_acknowledgement(from);
        }
    }

    fn stall(&mut self, from: EndId) {
        let pipe = &mut self.connections[from.slot as usize].pipes[from.side];
        pipe.epoch += 1;
        pipe.is_stalled = true;
    }

    /// Sends again what has not arrived.
    pub(super) fn resend(&mut self, from: EndId) {
        let connection = &mut self.connections[from.slot as usize];
        connection.pipes[from.side].is_stalled = false;
        let (end, peer) = (&connection.ends[from.side], &connection.ends[1 - from.side]);
        if end.stage == Stage::Gone {
            return;
        }
        let lost = connection.pipes[from.side].under_way() as u32;
        let is_end_lost = end.sent_end && !peer.got_end;
        let is_room_lost = connection.pipes[1 - from.side].is_room_under_way;
        if from.side == CLIENT && peer.stage == Stage::Handshake {
            self.send_packet(from, Signal::Ack);
        }
        if lost > 0 {
            self.send_packet(from, Signal::Bytes(lost));
        }
        if is_end_lost {
            self.send_packet(from, Signal::Fin);
        }
        if is_room_lost {
            self.send_packet(from, Signal::Room);
        }
    }

    /// Sends a reset again that was lost.
    pub(super) fn resend_reset(&mut self, from: EndId) {
        self.connections[from.slot as usize].pipes[from.side].is_stalled = false;
        self.send_packet(from, Signal::Reset);
    }

    /// What this end has sent is not acknowledged: it gives up after a while.
    pub(super) fn await_acknowledgement(&mut self, from: EndId) {
        let way = self.way(from);
        let is_cut = self.links.is_cut(way) || self.links.is_cut((way.1, way.0));
        if !is_cut && self.hosts.get(way.1).is_up {
            // A link that holds packets back delivers them: no one gives up.
            return;
        }
        let connection = &mut self.connections[from.slot as usize];
        let is_gone = connection.ends[from.side].stage == Stage::Gone;
        let pipe = &mut connection.pipes[from.side];
        if pipe.give_up.is_none() && !is_gone {
            let at = self.now.saturating_add(self.limits.acknowledging);
            pipe.give_up = Some(self.agenda.arm(at, Timer::GiveUp(from)));
        }
    }

    /// What this end has sent has arrived, and the other end says so.
    #[inline]
    fn acknowledge(&mut self, from: EndId) {
        let way = self.way(from);
        if self.links.is_cut((way.1, way.0)) {
            return self.await_acknowledgement(from);
        }
        let pipe = &mut self.connections[from.slot as usize].pipes[from.side];
        if let Some(place) = pipe.give_up.take() {
            self.agenda.disarm(place);
        }
    }

    /// Nothing was acknowledged for too long.
    pub(super) fn give_up(&mut self, sender: EndId) {
        if let Some(connection) = self.connection(sender) {
            connection.pipes[sender.side].give_up = None;
            self.fail(sender, io::ErrorKind::TimedOut);
        }
    }

    /// The client's request is lost: it asks again after 1, 2, 4 and so on seconds, until it has
    /// waited for long enough. These are the times of Linux.
    pub(super) fn retry_later(&mut self, client: EndId) {
        let connection = &mut self.connections[client.slot as usize];
        let is_connecting = connection.ends[CLIENT].stage == Stage::Connecting;
        if connection.retry.is_some() || !is_connecting {
            return;
        }
        let span = SECOND.0.checked_shl(connection.attempts + 1);
        let next = connection
            .begun
            .0
            .saturating_add(span.unwrap_or(u64::MAX) - SECOND.0);
        let last = connection.begun.saturating_add(self.limits.connecting);
        let at = Nanos(next).min(last).max(self.now);
        connection.retry = Some(self.agenda.arm(at, Timer::Retry(client)));
    }

    /// A client asks for its connection again, or gives up.
    pub(super) fn retry(&mut self, client: EndId) {
        let (now, patience) = (self.now, self.limits.connecting);
        let Some(connection) = self.connection(client) else {
            return;
        };
        connection.retry = None;
        connection.attempts += 1;
        if now >= connection.begun.saturating_add(patience) {
            return self.fail(client, io::ErrorKind::TimedOut);
        }
        self.send_packet(client, Signal::Syn);
    }

    /// A client asks for its connection again, before its time.
    pub(super) fn ask_again(&mut self, client: EndId) {
        let connection = &mut self.connections[client.slot as usize];
        if let Some(place) = connection.retry.take() {
            self.agenda.disarm(place);
        }
        self.send_packet(client, Signal::Syn);
    }
}
