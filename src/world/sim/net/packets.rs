//! Packets: how they are sent, what they do when they arrive, and what follows when they are lost.
//!
//! A packet holds no bytes: those wait in the pipe, and the packet says how many of them have
//! arrived. So lost bytes are sent again without a copy. An acknowledgement takes no time and no
//! packet: what has arrived is acknowledged unless the way back is cut.

use std::io;

use super::{
    connection::{CLIENT, EndId, SERVER, Stage},
    state::{Event, Net, Packet, Signal},
};
use crate::abi::{DeviceId, Direction, Nanos, StreamOptions};

/// With a limited bandwidth, more bytes travel as several packets.
const SEGMENT: u32 = 8 * 1024;

const SECOND: Nanos = Nanos::from_millis(1000);

impl Net {
    #[inline]
    pub(super) fn send_packet(&mut self, from: EndId, signal: Signal) {
        let way = self.way(from);
        let (_, pipe) = self.end(from);
        if pipe.is_stalled {
            // It is sent again with the rest. After a reset, that is all that is sent.
            pipe.is_reset_lost |= signal == Signal::Reset;
            return;
        }
        if self.links.is_blocked(way) {
            return self.lose(from, signal);
        }
        match signal {
            Signal::Bytes(n) if n > SEGMENT && self.links.bandwidth_of(way) > 0 => {
                for start in (0..n).step_by(SEGMENT as usize) {
                    self.post(from, Signal::Bytes(SEGMENT.min(n - start)));
                }
            }
            _ => self.post(from, signal),
        }
    }

    /// Puts a packet on its way.
    #[inline]
    fn post(&mut self, from: EndId, signal: Signal) {
        let len = match signal {
            Signal::Bytes(n) => n as usize,
            _ => 0,
        };
        let (way, random) = (self.way(from), self.random.generator());
        let at = self.links.arrival(way, len, self.now, random);
        let (_, pipe) = self.end(from);
        pipe.is_reset_under_way |= signal == Signal::Reset;
        pipe.last_arrival = at.max(pipe.last_arrival);
        let (at, epoch) = (pipe.last_arrival, pipe.epoch);
        match signal {
            Signal::Ack | Signal::Bytes(_) | Signal::Fin => self.limit_acknowledging(from, at),
            Signal::Syn | Signal::SynAck | Signal::Refused => self.limit_connecting(from, at),
            Signal::Unreachable | Signal::Reset | Signal::Room => {}
        }
        self.agenda.send(
            at,
            Event::Arrival(Packet {
                from,
                epoch,
                signal,
            }),
        );
    }

    /// Hands a packet over that is due, unless it was lost on the way.
    #[inline]
    pub(super) fn deliver(&mut self, packet: Packet) {
        let (from, signal) = (packet.from, packet.signal);
        let epoch = self.find(from).map(|found| found.pipes[from.side].epoch);
        if epoch != Some(packet.epoch) {
            return;
        }
        if !self.hosts.get(self.way(from).1).is_up {
            return self.lose(from, signal);
        }
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

    fn arrive_request(&mut self, from: EndId) {
        let server = from.peer();
        match self.connection(from).ends[SERVER].stage {
            // Or the host has restarted, or the listener is closed: it does not know of the first request. An end
            // that is gone stays so up to a new handshake, and answers what comes behind with a reset.
            Stage::Absent | Stage::Gone => {}
            // The client asks again: the answer was lost.
            _ => return self.send_packet(server, Signal::SynAck),
        }
        let Some(at) = self.listener_of(from) else {
            return self.send_packet(server, Signal::Refused);
        };
        let listener = &mut self.listeners[at];
        let backlog = listener.backlog(self.hosts.get(listener.host).backlog);
        if listener.waits() >= backlog {
            // It is dropped, and the client asks again.
            return self.retry_later(from);
        }
        listener.handshakes += 1;
        let options = StreamOptions {
            recv_buffer: listener.options.recv_buffer,
            send_buffer: listener.options.send_buffer,
            ..StreamOptions::default()
        };
        self.connection(from).set_options(SERVER, &options);
        self.end(server).0.stage = Stage::Handshake;
        self.send_packet(server, Signal::SynAck);
    }

    fn arrive_consent(&mut self, from: EndId) {
        let client = from.peer();
        let (this, _) = self.end(client);
        match this.stage {
            Stage::Connecting => {
                this.stage = Stage::Open;
                self.cancel_retry(client);
                self.notify(client, Direction::Write);
            }
            Stage::Gone => return self.reject(from),
            Stage::Absent | Stage::Handshake | Stage::Queued | Stage::Open => {}
        }
        self.send_packet(client, Signal::Ack);
    }

    /// A server receives the end of the handshake: the connection can be accepted.
    fn arrive_handshake(&mut self, from: EndId) {
        let server = from.peer();
        match self.end(server).0.stage {
            Stage::Handshake => {}
            Stage::Gone => return self.reject(from),
            Stage::Absent | Stage::Connecting | Stage::Queued | Stage::Open => return,
        }
        let Some(at) = self.listener_of(from) else {
            return self.reject(from);
        };
        self.leave_handshake(server);
        let (this, _) = self.end(server);
        (this.stage, this.is_queued) = (Stage::Queued, true);
        let listener = &mut self.listeners[at];
        listener.waiting.push_back(server);
        if std::mem::take(&mut listener.is_owed) {
            self.ready.push_back((listener.device, Direction::Read));
        }
        self.acknowledge(from);
    }

    fn refuse(&mut self, client: EndId, why: io::ErrorKind) {
        if self.end(client).0.stage == Stage::Connecting {
            self.fail(client, why);
        }
    }

    #[inline]
    fn arrive_bytes(&mut self, from: EndId, n: usize) {
        let (receiver, _) = self.end(from.peer());
        let is_open = match receiver.stage {
            Stage::Open => receiver.device != DeviceId::NONE,
            Stage::Queued => true,
            Stage::Absent | Stage::Connecting | Stage::Handshake | Stage::Gone => false,
        };
        if is_open {
            self.end(from).1.arrived += n;
            self.notify(from.peer(), Direction::Read);
            self.acknowledge(from);
        } else {
            self.reject(from);
        }
    }

    fn arrive_end(&mut self, from: EndId) {
        let (receiver, _) = self.end(from.peer());
        if receiver.stage == Stage::Gone {
            return self.reject(from);
        }
        receiver.got_end = true;
        self.notify(from.peer(), Direction::Read);
        self.acknowledge(from);
    }

    /// Something has arrived for an end that is gone: it answers with a reset.
    fn reject(&mut self, from: EndId) {
        self.end(from.peer()).0.stage = Stage::Gone;
        self.end(from).1.clear();
        self.send_packet(from.peer(), Signal::Reset);
    }

    fn arrive_reset(&mut self, end: EndId) {
        self.end(end.peer()).1.is_reset_under_way = false;
        let is_tcp = self.connection(end).path.is_none();
        let (this, _) = self.end(end);
        match this.stage {
            Stage::Gone => {}
            // The peer has closed its end: after the error the stream has ended.
            _ if !is_tcp => {
                this.got_end = true;
                self.fail(end, io::ErrorKind::ConnectionReset);
            }
            Stage::Connecting => self.fail(end, io::ErrorKind::ConnectionRefused),
            // As Linux does: a peer that has ended its half is known to read no more.
            _ if this.got_end => self.fail(end, io::ErrorKind::BrokenPipe),
            _ => self.fail(end, io::ErrorKind::ConnectionReset),
        }
    }

    fn arrive_room(&mut self, sender: EndId) {
        let of_net = self.limits.buffer;
        let (_, pipe) = self.end(sender);
        let most = pipe.most(of_net);
        pipe.is_room_under_way = false;
        // Another send may have filled the room meanwhile. The next read tells again.
        if pipe.bytes.len() < most {
            pipe.wants_room = false;
            self.notify(sender, Direction::Write);
        }
    }

    /// Ends a connection at this end, with an error for the calls on it. What has arrived can still
    /// be read.
    pub(super) fn fail(&mut self, end: EndId, why: io::ErrorKind) {
        let (this, _) = self.end(end);
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
        let (this, pipe) = self.end(end);
        let stage = std::mem::replace(&mut this.stage, Stage::Gone);
        pipe.drop_under_way();
        self.cancel_retry(end);
        self.cancel_give_up(end);
        if stage == Stage::Handshake {
            self.leave_handshake(end);
        }
    }

    // ---- what is lost

    /// Drops a packet. What this end sends from now on waits until the loss is made good.
    pub(super) fn lose(&mut self, from: EndId, signal: Signal) {
        match signal {
            Signal::Syn | Signal::SynAck | Signal::Refused => self.retry_later(from.client()),
            Signal::Unreachable => {}
            // The peer would send again, and would be answered by another reset.
            Signal::Reset => self.end(from).1.is_reset_lost = true,
            Signal::Room => self.stall(from),
            Signal::Ack | Signal::Bytes(_) | Signal::Fin => {
                self.stall(from);
                self.await_acknowledgement(from);
            }
        }
    }

    pub(super) fn lose_all(&mut self, from: EndId) {
        let connection = self.connection(from);
        if connection.ends[CLIENT].stage == Stage::Connecting {
            connection.pipes[from.side].lose_under_way();
            return self.retry_later(from.client());
        }
        let pipe = &mut connection.pipes[from.side];
        if pipe.is_reset_under_way {
            pipe.lose_under_way();
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
        let (_, pipe) = self.end(from);
        pipe.lose_under_way();
        pipe.is_stalled = true;
    }

    /// Sends again what has not arrived.
    pub(super) fn resend(&mut self, from: EndId) {
        let connection = self.connection(from);
        let pipe = &mut connection.pipes[from.side];
        pipe.is_stalled = false;
        if std::mem::take(&mut pipe.is_reset_lost) {
            return self.send_packet(from, Signal::Reset);
        }
        let (end, peer) = (&connection.ends[from.side], &connection.ends[1 - from.side]);
        if end.stage == Stage::Gone {
            return;
        }
        let lost = pipe.under_way() as u32;
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

    /// What this end has sent is not acknowledged: it gives up after a while.
    pub(super) fn await_acknowledgement(&mut self, from: EndId) {
        let way = self.way(from);
        let is_cut = self.links.is_cut(way) || self.links.is_cut((way.1, way.0));
        if !is_cut && self.hosts.get(way.1).is_up {
            // A link that holds packets back delivers them: no end gives up.
            return self.cancel_give_up(from);
        }
        self.arm_give_up(from);
    }

    fn arm_give_up(&mut self, from: EndId) {
        let (this, pipe) = self.end(from);
        if pipe.give_up.is_none() && this.stage != Stage::Gone {
            let at = self.now.saturating_add(self.limits.acknowledging);
            self.end(from).1.give_up = Some(self.agenda.arm(at, Event::GiveUp(from)));
        }
    }

    /// Makes an end give up before its last packet arrives, if that takes longer than the limit. A timer
    /// for each packet would cost more, and most arrive in time. A Unix socket has no limit.
    #[inline]
    fn limit_acknowledging(&mut self, from: EndId, last_arrival: Nanos) {
        if last_arrival > self.now.saturating_add(self.limits.acknowledging) {
            let connection = self.connection(from);
            if connection.path.is_none() && connection.is_unacknowledged(from.side) {
                self.arm_give_up(from);
            }
        }
    }

    /// Makes a client give up before a packet of its handshake arrives, if that comes too late.
    pub(super) fn limit_connecting(&mut self, from: EndId, arrival: Nanos) {
        let patience = self.limits.connecting;
        let connection = self.connection(from);
        let limit = connection.begun.saturating_add(patience);
        let is_connecting = connection.ends[CLIENT].stage == Stage::Connecting;
        if arrival > limit && is_connecting && connection.retry.is_none() {
            let timer = Event::Retry(from.client());
            let at = limit.max(self.now);
            self.connection(from).retry = Some(self.agenda.arm(at, timer));
        }
    }

    /// What this end has sent has arrived, and the other end says so.
    #[inline]
    pub(super) fn acknowledge(&mut self, from: EndId) {
        let way = self.way(from);
        if self.links.is_cut((way.1, way.0)) {
            return self.await_acknowledgement(from);
        }
        self.cancel_give_up(from);
        let last_arrival = self.end(from).1.last_arrival;
        self.limit_acknowledging(from, last_arrival);
    }

    pub(super) fn give_up(&mut self, sender: EndId) {
        if let Some(connection) = self.find(sender) {
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
        let span = span.unwrap_or(u64::MAX) - SECOND.0;
        let last = span.min(self.limits.connecting.0);
        let at = connection.begun.saturating_add(Nanos(last)).max(self.now);
        connection.retry = Some(self.agenda.arm(at, Event::Retry(client)));
    }

    /// A client asks for its connection again, or gives up.
    pub(super) fn retry(&mut self, client: EndId) {
        let (now, patience) = (self.now, self.limits.connecting);
        let Some(connection) = self.find(client) else {
            return;
        };
        connection.retry = None;
        connection.attempts += 1;
        if now >= connection.begun.saturating_add(patience) {
            return self.fail(client, io::ErrorKind::TimedOut);
        }
        self.send_packet(client, Signal::Syn);
    }

    pub(super) fn ask_again(&mut self, client: EndId) {
        self.cancel_retry(client);
        self.send_packet(client, Signal::Syn);
    }
}
