//! The devices of a recording: what went through each, the two ends of each connection, and the task
//! that ended a wait for a device.
//!
//! In a simulated network the log has the address of both ends, and they are matched by it. In the real
//! world it has that of the accepted end only. There the order decides: the first connection to an
//! address is the first that its listener accepts.
//!
//! A network takes time: a task connects, sends bytes or closes its end before the wait for that ends.
//! The first byte that a reader has not read tells which send ended its wait.

use std::{collections::BTreeMap, net::SocketAddr};

use rustc_hash::FxHashMap;
use trapline::{
    Answered, Call, CallInfo, DeviceId, Direction, Doing, Ending, Event, Ledger, Moment, On, Reply,
    SystemCall, Tid, Wake,
};

use super::{history::History, life::Piece};

/// All devices, and the connections between them.
#[derive(Default)]
pub(super) struct Devices {
    lives: FxHashMap<DeviceId, Life>,
    listeners: BTreeMap<DeviceId, SocketAddr>,
    /// The ends of connections whose other end is not known: by the address of the end that connects,
    /// and whether it is the accepted end.
    halves: FxHashMap<(Place, bool), DeviceId>,
    /// The connections to an address whose own address is not known, in order.
    started: BTreeMap<SocketAddr, Vec<DeviceId>>,
}

/// A device.
#[derive(Default)]
struct Life {
    /// What it is connected to, or listens on.
    addr: Option<SocketAddr>,
    opened: Sent,
    /// The first close of the device or of its sending side.
    closed: Option<Sent>,
    /// The connections that a listener accepted, in order.
    accepted: Vec<DeviceId>,
    /// The other end of a connection, if it is in the same run.
    peer: Option<DeviceId>,
    /// What went through it, by direction.
    uses: [Vec<Use>; 2],
}

/// A task that did something to a device, and when. It may end the wait of another.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    pub(super) tid: Tid,
    pub(super) at: Moment,
}

/// Bytes that a task read from a device or wrote to it.
struct Use {
    by: Sent,
    /// The bytes that went this way so far, with these.
    bytes: u64,
}

/// An address. Each host has a loopback address of its own.
type Place = (Option<Box<str>>, SocketAddr);

impl Devices {
    /// Takes the next event, after the ledger.
    pub(super) fn event(&mut self, event: &Event<'_>, tasks: &Ledger) {
        let (tid, fact) = (event.tid, &event.fact);
        let by = Sent {
            tid,
            at: tasks.now(),
        };
        if let Some((device, direction, Ok(bytes))) = fact.device_io() {
            let uses = &mut self.life(device).uses[direction as usize];
            let bytes = bytes as u64 + uses.last().map_or(0, |one| one.bytes);
            uses.push(Use { by, bytes });
        } else if let Some(Answered(reply, _)) = fact.answer() {
            self.answered(tasks.last(tid), &reply, by, tasks.comm(tid));
        } else if let Some(SystemCall::ShutdownWrite(device) | SystemCall::Close(device)) =
            fact.deferred().or(fact.call().map(|Call(call, _)| call))
        {
            self.life(device).closed.get_or_insert(by);
        }
    }

    fn answered(&mut self, call: Option<&CallInfo>, reply: &Reply, by: Sent, name: &str) {
        let addr = call.and_then(CallInfo::addr);
        if let Reply::Device(device) = reply {
            let life = self.life(*device);
            (life.addr, life.opened) = (addr, by);
        }
        match (call.map(|call| call.call), reply) {
            (Some(SystemCall::Listen), Reply::Device(device)) => {
                self.listeners.extend(addr.map(|addr| (*device, addr)));
            }
            (Some(SystemCall::Accept(listener)), Reply::Device(device)) => {
                self.life(listener).accepted.push(*device);
                if let Some(addr) = addr {
                    self.meet(place(addr, name), true, *device);
                }
            }
            (Some(SystemCall::Connected(device)), Reply::Done) => match addr {
                Some(own) => self.meet(place(own, name), false, device),
                None => {
                    if let Some(target) = self.life(device).addr {
                        self.started.entry(target).or_default().push(device);
                    }
                }
            },
            _ => {}
        }
    }

    /// Links an end of a connection to the other, or notes that it is the first of the two.
    fn meet(&mut self, place: Place, is_accepted: bool, device: DeviceId) {
        let half = (place, !is_accepted);
        match self.halves.remove(&half) {
            Some(other) => self.link(device, other),
            None => drop(self.halves.insert((half.0, is_accepted), device)),
        }
    }

    fn link(&mut self, a: DeviceId, b: DeviceId) {
        self.life(a).peer = Some(b);
        self.life(b).peer = Some(a);
    }

    /// Links the ends whose order tells. Call it after the last event, if none is missing.
    pub(super) fn finish(&mut self) {
        for (addr, started) in std::mem::take(&mut self.started) {
            let listens = |(_, at): &(&DeviceId, &SocketAddr)| {
                **at == addr || (at.port() == addr.port() && at.ip().is_unspecified())
            };
            let mut listeners = self.listeners.iter().filter(listens);
            // With two listeners, on two hosts, the order would tell nothing.
            let (Some((&listener, _)), None) = (listeners.next(), listeners.next()) else {
                continue;
            };
            let accepted = self.life(listener).accepted.clone();
            // Otherwise some of them came from outside of the run.
            if accepted.len() <= started.len() {
                for (a, b) in started.into_iter().zip(accepted) {
                    self.link(a, b);
                }
            }
        }
    }

    fn life(&mut self, device: DeviceId) -> &mut Life {
        self.lives.entry(device).or_default()
    }

    /// What it is connected to, or listens on.
    pub(super) fn addr(&self, device: DeviceId) -> Option<SocketAddr> {
        self.lives.get(&device)?.addr
    }

    /// The other end of a connection, if it is in the same run.
    pub(super) fn peer(&self, device: DeviceId) -> Option<DeviceId> {
        self.lives.get(&device)?.peer
    }

    pub(super) fn is_listener(&self, device: DeviceId) -> bool {
        self.listeners.contains_key(&device)
    }

    /// The bytes that went this way, in order.
    fn uses(&self, device: DeviceId, direction: Direction) -> &[Use] {
        let life = self.lives.get(&device);
        life.map_or(&[], |life| &life.uses[direction as usize])
    }
}

impl History {
    /// The task that ended a wait for a connection or for bytes, and when it did so. `None` if it is
    /// not in the run, or not known.
    pub(super) fn sent(&self, tid: Tid, piece: &Piece) -> Option<Sent> {
        let (device, Direction::Read) = awaited(piece)? else {
            return None;
        };
        let sent = match self.accepted(tid, piece) {
            Some(accepted) => self.connected(accepted),
            None => self.wrote(device, piece),
        };
        sent.filter(|sent| sent.tid != tid && sent.at <= piece.to)
    }

    /// When bytes were sent that had not arrived at the end of a wait without an end, if there are any.
    pub(super) fn under_way(
        &self,
        peer: DeviceId,
        (device, direction): (DeviceId, Direction),
        piece: &Piece,
    ) -> Option<Moment> {
        if !piece.is_endless() || direction != Direction::Read || self.has_gaps() {
            return None;
        }
        let writes = self.devices.uses(peer, Direction::Write);
        let unread = first_unread(writes, self.devices.uses(device, Direction::Read))?;
        Some(unread.by.at)
    }

    /// The connection whose arrival ended a wait for a listener.
    pub(super) fn accepted(&self, tid: Tid, piece: &Piece) -> Option<DeviceId> {
        let (listener, _) = awaited(piece)?;
        let all = &self.devices.lives.get(&listener)?.accepted;
        let opened = |device: &DeviceId| self.devices.lives[device].opened;
        let rest = &all[all.partition_point(|one| opened(one).at < piece.to)..];
        // Another task may have been faster.
        let mut own = rest
            .iter()
            .take_while(|one| opened(one).at.at == piece.to.at)
            .filter(|one| opened(one).tid == tid);
        own.next().or(rest.first()).copied()
    }

    /// The task that opened the other end of a connection.
    pub(super) fn connected(&self, accepted: DeviceId) -> Option<Sent> {
        let peer = self.devices.peer(accepted)?;
        Some(self.devices.lives.get(&peer)?.opened)
    }

    /// The task that sent the first byte not yet read from a connection, or closed the other end.
    fn wrote(&self, device: DeviceId, piece: &Piece) -> Option<Sent> {
        let peer = self.devices.peer(device)?;
        let arrived = up_to(self.devices.uses(peer, Direction::Write), piece.to);
        let unread = match self.has_gaps() {
            // Missing events are missing bytes.
            true => arrived.last(),
            false => {
                let reads = self.devices.uses(device, Direction::Read);
                first_unread(arrived, up_to(reads, piece.from))
            }
        };
        if let Some(write) = unread {
            return Some(write.by);
        }
        let user = || self.user_of(peer, Direction::Write, piece.to);
        let ended = || {
            let tid = user();
            let (at, _) = self.tasks.get(&tid)?.exit.as_ref()?;
            Some(Sent { tid, at: *at })
        };
        let closed = self.devices.lives.get(&peer)?.closed.or_else(ended);
        let closed = closed.filter(|sent| sent.at <= piece.to);
        Some(closed.unwrap_or_else(|| Sent {
            tid: user(),
            at: piece.to,
        }))
    }

    /// The task that last used a side of a device before a moment; otherwise the one that last used
    /// its other side, and otherwise the one that opened it.
    pub(super) fn user_of(&self, device: DeviceId, side: Direction, before: Moment) -> Tid {
        let Some(life) = self.devices.lives.get(&device) else {
            return Tid::KERNEL;
        };
        let other = match side {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        };
        let last = |side| up_to(self.devices.uses(device, side), before).last();
        if let Some(last) = last(side).or_else(|| last(other)) {
            return last.by.tid;
        }
        // A task that waits for the device may never have used it.
        let waits = |piece: &Piece| matches!(piece.doing, Doing::Blocked(On::Device(its, _)) if its == device);
        let mut tasks = self.tasks.iter();
        let waiting = tasks.find(|(_, life)| life.pieces.iter().any(waits));
        waiting.map_or(life.opened.tid, |(tid, _)| *tid)
    }
}

fn up_to(uses: &[Use], to: Moment) -> &[Use] {
    &uses[..uses.partition_point(|one| one.by.at <= to)]
}

/// The write of the first byte that is not among those read.
fn first_unread<'a>(writes: &'a [Use], reads: &[Use]) -> Option<&'a Use> {
    let read = reads.last().map_or(0, |one| one.bytes);
    writes.get(writes.partition_point(|one| one.bytes <= read))
}

/// The device that a task waited for until it was ready.
fn awaited(piece: &Piece) -> Option<(DeviceId, Direction)> {
    let (Doing::Blocked(On::Device(device, direction)), Ending::Woken { by, .. }) =
        (piece.doing, piece.end)
    else {
        return None;
    };
    matches!(by, Wake::Device(..)).then_some((device, direction))
}

/// An address, on the host in the name of a task such as `echo@server`.
fn place(addr: SocketAddr, task: &str) -> Place {
    let host = task.rsplit_once('@').map(|(_, host)| host);
    let host = host.filter(|host| !host.is_empty() && addr.ip().is_loopback());
    (host.map(Into::into), addr)
}
