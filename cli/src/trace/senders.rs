//! The task that ended a wait for a device: it connected, sent bytes, or closed its end.
//!
//! A network takes time, so the task did that before the wait ended. The first byte that a reader has
//! not read tells which send ended its wait.

use trapline::{DeviceId, Direction, Doing, Ending, Moment, On, Tid, Wake};

use super::{
    history::{Accepted, History},
    life::Piece,
};

/// What ended a wait for a device.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) tid: Tid,
    pub(super) at: Moment,
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
        let uses = |of, way| {
            let life = self.devices.get(&of);
            life.map_or(&[][..], |life| life.uses(way))
        };
        let read = uses(device, Direction::Read).last();
        let read = read.map_or(0, |one| one.bytes);
        let writes = uses(peer, Direction::Write);
        let unread = writes.get(writes.partition_point(|one| one.bytes <= read))?;
        Some(unread.at)
    }

    /// The connection whose arrival ended a wait for a listener.
    pub(super) fn accepted(&self, tid: Tid, piece: &Piece) -> Option<&Accepted> {
        let (listener, _) = awaited(piece)?;
        let all = &self.devices.get(&listener)?.accepted;
        let rest = &all[all.partition_point(|one| one.at < piece.to)..];
        // Another task may have been faster.
        let own = rest.iter().take_while(|one| one.at.at == piece.to.at);
        let mut own = own.filter(|one| one.tid == tid);
        own.next().or(rest.first())
    }

    /// The task that opened the other end of a connection.
    pub(super) fn connected(&self, accepted: &Accepted) -> Option<Sent> {
        let peer = self.devices.get(&self.peer(accepted.device)?)?;
        Some(Sent {
            tid: peer.owner,
            at: peer.opened,
        })
    }

    /// The task that sent the first byte not yet read from a connection, or closed the other end.
    fn wrote(&self, device: DeviceId, piece: &Piece) -> Option<Sent> {
        let peer = self.peer(device)?;
        let writes = self
            .devices
            .get(&peer)
            .map_or(&[][..], |of| of.uses(Direction::Write));
        let arrived = &writes[..writes.partition_point(|one| one.at <= piece.to)];
        // Missing events are missing bytes.
        let unread = match self.has_gaps() {
            true => arrived.last(),
            false => {
                let reads = self
                    .devices
                    .get(&device)
                    .map_or(&[][..], |of| of.uses(Direction::Read));
                let before = &reads[..reads.partition_point(|one| one.at <= piece.from)];
                let read = before.last().map_or(0, |one| one.bytes);
                arrived.get(arrived.partition_point(|one| one.bytes <= read))
            }
        };
        if let Some(write) = unread {
            return Some(Sent {
                tid: write.tid,
                at: write.at,
            });
        }
        let closed = self.devices.get(&peer).and_then(|of| of.closed);
        let closed = closed.or_else(|| {
            let user = self.user_of(peer, Direction::Write, piece.to);
            let (at, _) = self.tasks.get(&user)?.exit.as_ref()?;
            Some((*at, user))
        });
        match closed.filter(|(at, _)| *at <= piece.to) {
            Some((at, tid)) => Some(Sent { tid, at }),
            None => Some(Sent {
                tid: self.user_of(peer, Direction::Write, piece.to),
                at: piece.to,
            }),
        }
    }
}

/// The device that a task waited for until it was ready.
fn awaited(piece: &Piece) -> Option<(DeviceId, Direction)> {
    match (piece.doing, piece.end) {
        (
            Doing::Blocked(On::Device(device, direction)),
            Ending::Woken {
                by: Wake::Device(..),
                ..
            },
        ) => Some((device, direction)),
        _ => None,
    }
}
