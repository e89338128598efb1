//! The two ends of each connection of a run, from its events.
//!
//! In a simulated network the log has the address of both ends, and they are matched by it. In the real
//! world it has that of the accepted end only. There the order decides: the first connection to an
//! address is the first that its listener accepts.

use std::{collections::BTreeMap, net::SocketAddr};

use rustc_hash::FxHashMap;
use trapline::{Answered, CallInfo, Detail, DeviceId, Event, Ledger, Reply, SystemCall, Tid};

/// An address. Each host has a loopback address of its own.
type Place = (Option<Box<str>>, SocketAddr);

#[derive(Default)]
pub(super) struct Peers {
    of: FxHashMap<DeviceId, DeviceId>,
    /// The addresses that connections lead to.
    targets: FxHashMap<DeviceId, SocketAddr>,
    /// The connections whose own address is known, and whose other end is not: by that address.
    connected: FxHashMap<Place, DeviceId>,
    /// The accepted connections whose other end is not known: by the address of that end.
    unmatched: FxHashMap<Place, DeviceId>,
    /// The connections to an address whose own address is not known, in order.
    started: BTreeMap<SocketAddr, Vec<DeviceId>>,
    /// The connections that each listener accepted, in order.
    accepted: BTreeMap<DeviceId, (SocketAddr, Vec<DeviceId>)>,
    /// Whether events are missing, so that no order tells.
    has_gap: bool,
}

impl Peers {
    /// Notes that events are missing.
    pub(super) fn gap(&mut self) {
        self.has_gap = true;
    }

    /// Takes the next event, after the ledger.
    pub(super) fn event(&mut self, event: &Event<'_>, tasks: &Ledger) {
        let (tid, Some(Answered(reply, _))) = (event.tid, event.fact.answer()) else {
            return;
        };
        let Some(last) = tasks.last(tid) else {
            return;
        };
        match (last.call, reply) {
            (SystemCall::Listen, Reply::Device(device)) => {
                if let Some(addr) = last.addr() {
                    self.accepted.insert(device, (addr, Vec::new()));
                }
            }
            (SystemCall::Accept(listener), Reply::Device(device)) => {
                self.accept(
                    listener,
                    device,
                    last.addr().map(|addr| place(addr, tid, tasks)),
                );
            }
            (SystemCall::Connect, Reply::Device(device)) => {
                self.targets.extend(last.addr().map(|addr| (device, addr)));
            }
            (SystemCall::Connected(device), Reply::Done) => match own(last) {
                Some(addr) => self.connect(device, place(addr, tid, tasks)),
                None => {
                    if let Some(addr) = self.targets.get(&device) {
                        self.started.entry(*addr).or_default().push(device);
                    }
                }
            },
            _ => {}
        }
    }

    fn accept(&mut self, listener: DeviceId, device: DeviceId, peer: Option<Place>) {
        if let Some((_, ends)) = self.accepted.get_mut(&listener) {
            ends.push(device);
        }
        let Some(peer) = peer else {
            return;
        };
        match self.connected.remove(&peer) {
            Some(other) => self.link(device, other),
            None => drop(self.unmatched.insert(peer, device)),
        }
    }

    fn connect(&mut self, device: DeviceId, own: Place) {
        match self.unmatched.remove(&own) {
            Some(other) => self.link(device, other),
            None => drop(self.connected.insert(own, device)),
        }
    }

    fn link(&mut self, a: DeviceId, b: DeviceId) {
        self.of.insert(a, b);
        self.of.insert(b, a);
    }

    /// Links the ends whose order tells. Call it after the last event.
    pub(super) fn finish(&mut self) {
        if self.has_gap {
            return;
        }
        for (addr, started) in std::mem::take(&mut self.started) {
            let listens = |at: &SocketAddr| {
                *at == addr || (at.port() == addr.port() && at.ip().is_unspecified())
            };
            let mut listeners = self.accepted.values().filter(|(at, _)| listens(at));
            // With two listeners, on two hosts, the order would tell nothing.
            let (Some((_, accepted)), None) = (listeners.next(), listeners.next()) else {
                continue;
            };
            // Some of them came from outside of the run.
            if accepted.len() > started.len() {
                continue;
            }
            for (a, b) in started.into_iter().zip(accepted.clone()) {
                self.link(a, b);
            }
        }
    }

    /// The other end of a connection, if it is in the same run.
    pub(super) fn of(&self, device: DeviceId) -> Option<DeviceId> {
        self.of.get(&device).copied()
    }

    pub(super) fn is_listener(&self, device: DeviceId) -> bool {
        self.accepted.contains_key(&device)
    }
}

/// The address in a reply: the connection's own.
fn own(call: &CallInfo) -> Option<SocketAddr> {
    match call.reply() {
        Some(Answered(_, Detail::Addr(addr))) => Some(*addr),
        _ => None,
    }
}

fn place(addr: SocketAddr, tid: Tid, tasks: &Ledger) -> Place {
    let host = host_of(tasks.comm(tid)).filter(|_| addr.ip().is_loopback());
    (host.map(Into::into), addr)
}

/// The host in the name of a task, such as `echo@server`.
pub(super) fn host_of(name: &str) -> Option<&str> {
    let (_, host) = name.rsplit_once('@')?;
    (!host.is_empty()).then_some(host)
}
