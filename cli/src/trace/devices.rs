//! The devices of a recording: what went through each, and the two ends of each connection.
//!
//! In a simulated network the log has the address of both ends, and they are matched by it. In the real
//! world it has that of the accepted end only. There the order decides: the first connection to an
//! address is the first that its listener accepts.

use std::{collections::BTreeMap, net::SocketAddr};

use rustc_hash::FxHashMap;
use trapline::{
    Answered, Call, CallInfo, DeviceId, Direction, Event, Ledger, Moment, Reply, SystemCall, Tid,
};

#[derive(Default)]
pub(super) struct Devices {
    pub(super) lives: FxHashMap<DeviceId, Life>,
    listeners: BTreeMap<DeviceId, SocketAddr>,
    /// The ends of connections whose other end is not known: by the address of the end that connects,
    /// and whether it is the accepted end.
    halves: FxHashMap<(Place, bool), DeviceId>,
    /// The connections to an address whose own address is not known, in order.
    started: BTreeMap<SocketAddr, Vec<DeviceId>>,
}

#[derive(Default)]
pub(super) struct Life {
    /// What it is connected to, or listens on.
    addr: Option<SocketAddr>,
    pub(super) opened: Sent,
    /// The first close of the device or of its sending side.
    pub(super) closed: Option<Sent>,
    /// The connections that a listener accepted, in order.
    pub(super) accepted: Vec<DeviceId>,
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
pub(super) struct Use {
    pub(super) by: Sent,
    /// The bytes that went this way so far, with these.
    pub(super) bytes: u64,
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

    pub(super) fn addr(&self, device: DeviceId) -> Option<SocketAddr> {
        self.lives.get(&device)?.addr
    }

    pub(super) fn peer(&self, device: DeviceId) -> Option<DeviceId> {
        self.lives.get(&device)?.peer
    }

    pub(super) fn is_listener(&self, device: DeviceId) -> bool {
        self.listeners.contains_key(&device)
    }

    /// The bytes that went this way, in order.
    pub(super) fn uses(&self, device: DeviceId, direction: Direction) -> &[Use] {
        let life = self.lives.get(&device);
        life.map_or(&[], |life| &life.uses[direction as usize])
    }
}

/// An address, on the host in the name of a task such as `echo@server`.
fn place(addr: SocketAddr, task: &str) -> Place {
    let host = task.rsplit_once('@').map(|(_, host)| host);
    let host = host.filter(|host| !host.is_empty() && addr.ip().is_loopback());
    (host.map(Into::into), addr)
}
