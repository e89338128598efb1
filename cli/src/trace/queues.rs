//! The queues of a recording: the objects that they are part of, and what went through them.
//!
//! A message queue has no owner. A mutex is a queue with one message, the lock: the task that got it
//! holds it until it is put back.
//!
//! A semaphore is a queue of permits, and so is a lock that readers share. A task takes some of them and
//! gives them back, perhaps in parts, or gives them to another task that does. So which tasks hold permits
//! is not known. Which task's permit ended a wait is known, and so is which task took one last.

use trapline::{End, Moment, Tid};

use super::life::Piece;

/// A queue: the object that it is part of, and the messages that went through it.
#[derive(Default)]
pub(super) struct QueueLife {
    pub(super) object: Option<String>,
    pub(super) content: Content,
    /// Whether tasks of other kernels put messages into it.
    pub(super) is_mailbox: bool,
    /// In order.
    pub(super) moves: Vec<Move>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Content {
    #[default]
    Messages,
    Lock,
    Permits,
    /// Those of a condition. To wake all is one, too.
    Signals,
}

/// A message that a task put into a queue or got from it.
pub(super) struct Move {
    pub(super) at: Moment,
    pub(super) tid: Tid,
    pub(super) end: End,
}

impl QueueLife {
    /// The queue of an object, by the words for the object.
    pub(super) fn of(object: Option<String>) -> Self {
        let content = match object.as_ref().and_then(|object| object.split(' ').next()) {
            Some("mutex" | "once") => Content::Lock,
            Some("semaphore" | "rwlock") => Content::Permits,
            Some("condition") => Content::Signals,
            _ => Content::Messages,
        };
        Self {
            is_mailbox: object
                .as_ref()
                .is_some_and(|object| object.starts_with("mailbox ")),
            object,
            content,
            moves: Vec::new(),
        }
    }

    /// The last message up to a moment that a task other than `tid` put or got.
    pub(super) fn last_move(&self, end: End, tid: Tid, to: Moment) -> Option<&Move> {
        let before = self.moves.partition_point(|one| one.at <= to);
        let mut moves = self.moves[..before].iter().rev();
        moves.find(|one| one.end == end && one.tid != tid)
    }

    /// The put of the first message that a task got from this moment on.
    pub(super) fn put_of(&self, tid: Tid, from: Moment) -> Option<&Move> {
        let moves = &self.moves;
        let is_its = |one: &Move| one.end == End::Get && one.tid == tid && one.at >= from;
        let get = moves.iter().position(is_its)?;
        let before = moves[..get].iter().filter(|one| one.end == End::Get);
        let mut puts = moves.iter().filter(|one| one.end == End::Put);
        puts.nth(before.count())
    }

    /// The get of the message that was put at this place: messages leave a queue in the order in
    /// which they came.
    pub(super) fn taken(&self, place: usize) -> Option<&Move> {
        let moves = &self.moves;
        let before = moves[..place].iter().filter(|one| one.end == End::Put);
        let mut gets = moves.iter().filter(|one| one.end == End::Get);
        gets.nth(before.count())
    }

    /// When which task took the lock, or a permit; [`Tid::KERNEL`] where a task released the lock.
    pub(super) fn takes(&self) -> Vec<(Moment, Tid)> {
        let take = |one: &Move| match (one.end, self.content) {
            (_, Content::Messages | Content::Signals) | (End::Put, Content::Permits) => None,
            (End::Put, Content::Lock) => Some((one.at, Tid::KERNEL)),
            (End::Get, Content::Lock | Content::Permits) => Some((one.at, one.tid)),
        };
        self.moves.iter().filter_map(take).collect()
    }

    /// Which tasks held a lock within a piece, in order, from when to when. A hold ends with the next
    /// move: the holder may have given its guard to the task that puts the lock back.
    pub(super) fn held(&self, piece: &Piece) -> impl Iterator<Item = (Tid, Moment, Moment)> {
        let (moves, from, to) = (&self.moves, piece.from, piece.to);
        let within = moves.partition_point(|one| one.at < from);
        let last = moves.partition_point(|one| one.at <= to);
        let gets = (within.saturating_sub(1)..last).filter(|at| moves[*at].end == End::Get);
        let held = gets.map(move |at| {
            let until = moves.get(at + 1).map_or(to, |next| next.at.min(to));
            (moves[at].tid, moves[at].at.max(from), until)
        });
        held.filter(move |(_, begin, end)| begin < end || from == to)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trapline::{Doing, Ending};

    use super::*;

    fn at(micros: u64) -> Moment {
        Moment {
            at: Duration::from_micros(micros),
            turn: micros,
        }
    }

    #[test]
    fn a_hold_ends_when_another_task_puts_the_lock_back_or_has_it() {
        use End::{Get, Put};
        let mut lock = QueueLife::of(Some("mutex 1".to_string()));
        let moves = [(0, 1, Put), (0, 2, Get), (8, 2, Put), (10, 2, Get)];
        // The put before the last get is missing.
        let others = [(13, 3, Put), (20, 2, Get), (25, 3, Get)];
        let moves = moves.into_iter().chain(others);
        lock.moves.extend(moves.map(|(micros, tid, end)| Move {
            at: at(micros),
            tid: Tid::from(tid),
            end,
        }));
        for ([from, to], expected) in [
            ([10, 40], &[(2, 10, 13), (2, 20, 25), (3, 25, 40)][..]),
            ([5, 12], &[(2, 5, 8), (2, 10, 12)]),
            ([3, 4], &[(2, 3, 4)]),
            ([0, 0], &[(2, 0, 0)]),
            ([8, 10], &[]),
            ([9, 9], &[]),
        ] {
            let piece = Piece {
                doing: Doing::Ready,
                from: at(from),
                to: at(to),
                end: Ending::Next,
                call: String::new(),
                place: None,
            };
            let held = lock.held(&piece);
            let expected = expected.iter();
            let expected = expected.map(|&(tid, from, to)| (Tid::from(tid), at(from), at(to)));
            assert!(held.eq(expected), "from {from} to {to}");
        }
    }
}
