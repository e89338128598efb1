//! The queues of a recording: the objects that they are part of, and what went through them.
//!
//! A message queue has no owner. A mutex is a queue with one message, the lock: the task that got it
//! holds it until it is put back.
//!
//! A semaphore is a queue of permits. A task puts a permit into it for each permit that it gives back,
//! and also for each that was never taken before, just before or after it takes one itself. A recording
//! does not tell these apart. So which tasks hold permits is not known. Which task's permit ended a wait
//! is known, and so is which task took one last.

use trapline::{End, Moment, Tid};

use super::life::Piece;

/// A queue: the object that it is part of, and the messages that went through it.
#[derive(Default)]
pub(super) struct QueueLife {
    pub(super) object: Option<String>,
    pub(super) content: Content,
    /// In order.
    pub(super) moves: Vec<Move>,
    /// Of a lock, in order: it has one holder at a time.
    holds: Vec<Hold>,
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

/// The time for which a task held a lock.
struct Hold {
    tid: Tid,
    from: Moment,
    /// `None` up to the end of the recording.
    to: Option<Moment>,
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
    /// Notes the next message that a task put into the queue or got from it.
    pub(super) fn moved(&mut self, at: Moment, tid: Tid, end: End) {
        self.moves.push(Move { at, tid, end });
        if self.content != Content::Lock {
            return;
        }
        // The holder may have given its guard to the task that puts the lock back.
        if let Some(hold) = self.holds.last_mut() {
            hold.to.get_or_insert(at);
        }
        if end == End::Get {
            let (from, to) = (at, None);
            self.holds.push(Hold { tid, from, to });
        }
    }

    /// The last message up to a moment that a task other than `tid` put or got.
    pub(super) fn last_move(&self, end: End, tid: Tid, to: Moment) -> Option<&Move> {
        let before = self.moves.partition_point(|one| one.at <= to);
        let mut moves = self.moves[..before].iter().rev();
        moves.find(|one| one.end == end && one.tid != tid)
    }

    /// The get of the message that was put at this place: messages leave a queue in the order in
    /// which they came.
    pub(super) fn taken(&self, place: usize) -> Option<&Move> {
        let moves = &self.moves;
        let before = moves[..place].iter().filter(|one| one.end == End::Put);
        let mut gets = moves.iter().filter(|one| one.end == End::Get);
        gets.nth(before.count())
    }

    /// Which tasks held a lock within a piece, in order, from when to when.
    pub(super) fn held(&self, piece: &Piece) -> impl Iterator<Item = (Tid, Moment, Moment)> {
        let is_before = |hold: &Hold| hold.to.is_some_and(|to| to < piece.from);
        let first = self.holds.partition_point(is_before);
        let last = self.holds.partition_point(|hold| hold.from <= piece.to);
        let clip = move |hold: &Hold| {
            let to = hold.to.map_or(piece.to, |to| to.min(piece.to));
            (hold.tid, hold.from.max(piece.from), to)
        };
        let held = self.holds[first..last.max(first)].iter().map(clip);
        held.filter(move |(_, from, to)| from < to || piece.from == piece.to)
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

    fn piece(from: u64, to: u64) -> Piece {
        Piece {
            doing: Doing::Ready,
            from: at(from),
            to: at(to),
            end: Ending::Next,
            call: String::new(),
            place: None,
        }
    }

    /// A lock that two tasks hold in turn: each for 8 µs, and no task for 2 µs.
    fn contended(holds: u64) -> QueueLife {
        let mut lock = QueueLife {
            content: Content::Lock,
            ..QueueLife::default()
        };
        lock.moved(at(0), 1.into(), End::Put);
        for hold in 0..holds {
            let tid = Tid::from(2 + hold % 2);
            lock.moved(at(10 * hold), tid, End::Get);
            lock.moved(at(10 * hold + 8), tid, End::Put);
        }
        lock
    }

    #[test]
    fn a_wait_for_a_lock_looks_at_the_holds_within_it_alone() {
        let lock = contended(10_000);
        let wait = piece(50_005, 50_025);
        let held = lock.held(&wait);
        assert_eq!(held.size_hint().1, Some(3));
        let held: Vec<_> = held.collect();
        let expected = [
            (2, 50_005, 50_008),
            (3, 50_010, 50_018),
            (2, 50_020, 50_025),
        ];
        let expected = expected.map(|(tid, from, to)| (Tid::from(tid), at(from), at(to)));
        assert_eq!(held, expected);
        for (from, to, count) in [
            (8, 10, 0),
            (0, 0, 1),
            (9, 9, 0),
            (3, 4, 1),
            (99_998, 200_000, 0),
        ] {
            assert_eq!(lock.held(&piece(from, to)).count(), count, "{from} to {to}");
        }
    }

    #[test]
    fn a_hold_ends_when_another_task_puts_the_lock_back_or_has_it() {
        let mut lock = contended(1);
        lock.moved(at(10), 2.into(), End::Get);
        lock.moved(at(13), 3.into(), End::Put);
        lock.moved(at(20), 2.into(), End::Get);
        // The put before this get is missing.
        lock.moved(at(25), 3.into(), End::Get);
        let held: Vec<_> = lock.held(&piece(10, 40)).collect();
        let expected = [(2, 10, 13), (2, 20, 25), (3, 25, 40)];
        assert_eq!(
            held,
            expected.map(|(tid, from, to)| (Tid::from(tid), at(from), at(to)))
        );
    }
}
