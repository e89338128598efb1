//! The task that ended a wait for a device: it connected, sent bytes, or closed its end.
//!
//! A network takes time, so the task did that before the wait ended. The first byte that a reader has
//! not read tells which send ended its wait.

use trapline::{DeviceId, Direction, Doing, Ending, Moment, On, Tid, Wake};

use super::{
    devices::{Sent, Use},
    history::History,
    life::Piece,
};

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

/// The device that a task waited for until it was ready, alone or among others.
fn awaited(piece: &Piece) -> Option<(DeviceId, Direction)> {
    match (piece.doing, piece.end) {
        (
            Doing::Blocked(On::Device(..) | On::First(_)),
            Ending::Woken {
                by: Wake::Device(device, direction),
                ..
            },
        ) => Some((device, direction)),
        _ => None,
    }
}
