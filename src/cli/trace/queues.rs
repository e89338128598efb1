//! The queues of a recording: the objects that they are part of, and what went through them.
//!
//! A message queue has no owner. A mutex is a queue with one message, the lock: the task that got it
//! holds it until it is put back.
//!
//! A semaphore is a queue of permits. A task puts a permit into it for each permit that it gives back,
//! and also for each that was never taken before, just before or after it takes one itself. A recording
//! does not tell these apart. So which tasks hold permits is not known. Which task's permit ended a wait
//! is known, and so is which task took one last.

use std::collections::BTreeMap;

use super::{history::Piece, spans::Moment};
use crate::{End, Tid};

/// A queue: the object that it is part of, and the messages that went through it.
#[derive(Default)]
pub(super) struct QueueLife {
    pub(super) object: Option<String>,
    pub(super) content: Content,
    /// In order.
    pub(super) moves: Vec<Move>,
}

/// What the messages of a queue are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Content {
    #[default]
    Messages,
    /// The lock of a mutex.
    Lock,
    /// The permits of a semaphore.
    Permits,
}

/// A message that a task put into a queue or got from it.
pub(super) struct Move {
    pub(super) at: Moment,
    pub(super) tid: Tid,
    pub(super) end: End,
}

impl Content {
    /// What is in the queue of an object, by the words for the object.
    pub(super) fn of(object: Option<&str>) -> Self {
        match object.and_then(|object| object.split(' ').next()) {
            Some("mutex") => Self::Lock,
            Some("semaphore") => Self::Permits,
            _ => Self::Messages,
        }
    }
}

impl QueueLife {
    /// The last message up to a moment that a task other than `tid` put or got.
    pub(super) fn last_move(&self, end: End, tid: Tid, to: Moment) -> Option<&Move> {
        let before = self.moves.partition_point(|one| one.at <= to);
        let mut moves = self.moves[..before].iter().rev();
        moves.find(|one| one.end == end && one.tid != tid)
    }

    /// Which tasks held a lock within a piece, in order, from when to when.
    pub(super) fn held(&self, piece: &Piece, end: Moment) -> Vec<(Tid, Moment, Moment)> {
        let mut since: BTreeMap<Tid, Moment> = BTreeMap::new();
        let mut held = Vec::new();
        for Move { at, tid, end } in &self.moves {
            match end {
                End::Get => drop(since.insert(*tid, *at)),
                End::Put => held.extend(since.remove(tid).map(|from| (*tid, from, *at))),
            }
        }
        held.extend(since.into_iter().map(|(tid, from)| (tid, from, end)));
        let clip =
            |(tid, from, to): (Tid, Moment, Moment)| (tid, from.max(piece.from), to.min(piece.to));
        let mut held: Vec<_> = held
            .into_iter()
            .map(clip)
            .filter(|(_, from, to)| from <= to)
            .collect();
        if piece.from < piece.to {
            held.retain(|(_, from, to)| from < to);
        }
        held.sort_by_key(|(_, from, _)| *from);
        held
    }
}
