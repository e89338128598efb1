//! The life of a task: its pieces, and amounts of time and turns.

use std::{cmp::Reverse, fmt, time::Duration};

use trapline::{Doing, Ending, Moment, On, Place, QueueId, Tid};

use crate::units::{count, span};

#[derive(Default)]
pub(super) struct Life {
    pub(super) name: String,
    pub(super) parent: Tid,
    pub(super) spawned: Moment,
    /// In order.
    pub(super) pieces: Vec<Piece>,
    /// When it ended, and how.
    pub(super) exit: Option<(Moment, String)>,
    /// The messages that it put into queues, in order: the places of the moves.
    pub(super) puts: Vec<(QueueId, usize)>,
}

/// A time in one state.
pub(super) struct Piece {
    pub(super) doing: Doing,
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) end: Ending,
    /// The call that the task was in; of a turn, the call that ended it.
    pub(super) call: String,
    pub(super) place: Option<Place>,
}

/// How much time something took, and how many turns of all tasks. Turns count where a virtual clock
/// does not move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Amount {
    pub(super) time: Duration,
    pub(super) turns: u64,
}

impl Life {
    /// The pieces that overlap a window or touch it, and the index of the first.
    pub(super) fn touching(&self, from: Moment, to: Moment) -> (usize, &[Piece]) {
        let first = self.pieces.partition_point(|piece| piece.to < from);
        let last = self.pieces.partition_point(|piece| piece.from <= to);
        (first, &self.pieces[first..last.max(first)])
    }

    /// What the task does at the end, unless events are missing.
    pub(super) fn now(&self) -> Option<&Piece> {
        self.pieces.last().filter(|piece| piece.end == Ending::Open)
    }

    pub(super) fn waits_at_end(&self) -> bool {
        self.pieces.last().is_some_and(Piece::is_endless)
    }

    /// The piece at an instant, a wait if there is one; without an instant, the wait that was not
    /// over at the end, or the longest.
    pub(super) fn piece_at(&self, at: Option<Duration>) -> Option<usize> {
        let mut pieces = self.pieces.iter().enumerate();
        let is_wait = |piece: &Piece| matches!(piece.doing, Doing::Blocked(_));
        let is_sleep = |piece: &Piece| matches!(piece.doing, Doing::Blocked(On::Timer(_)));
        let found = match at {
            Some(at) => pieces
                .filter(|(_, piece)| piece.from.at <= at && at <= piece.to.at)
                .max_by_key(|(_, piece)| (is_wait(piece), !is_sleep(piece), piece.amount())),
            None if self.waits_at_end() => pieces.next_back(),
            None => pieces
                .filter(|(_, piece)| is_wait(piece))
                .max_by_key(|(index, piece)| (!is_sleep(piece), piece.amount(), Reverse(*index))),
        };
        found.map(|(index, _)| index)
    }
}

impl Piece {
    pub(super) fn amount(&self) -> Amount {
        Amount::of(self.from, self.to)
    }

    /// Whether this is a wait that never ended: the recording ended first, or the task was killed.
    pub(super) fn is_endless(&self) -> bool {
        let is_cut = matches!(self.end, Ending::Open | Ending::Exited);
        is_cut && matches!(self.doing, Doing::Blocked(_))
    }
}

impl Amount {
    pub(super) fn of(from: Moment, to: Moment) -> Self {
        Self {
            time: to.at.saturating_sub(from.at),
            turns: to.turn.saturating_sub(from.turn),
        }
    }

    /// Its share of a whole, in percent: to a tenth, so that the shares of a path add up.
    pub(super) fn share_of(self, whole: Self) -> String {
        let percent = match whole.time.is_zero() {
            true => 100.0 * self.turns as f64 / (whole.turns as f64).max(1.0),
            false => 100.0 * self.time.as_secs_f64() / whole.time.as_secs_f64(),
        };
        format!("{percent:.1} %")
    }

    /// Whether it is at least a tenth of a whole. Where there is time, turns do not count.
    pub(super) fn is_share_of(self, whole: Self) -> bool {
        match whole.time.is_zero() {
            true => self.turns * 10 >= whole.turns,
            false => self.time * 10 >= whole.time,
        }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.turns += other.turns;
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        let mut sum = Self::default();
        amounts.for_each(|amount| sum += amount);
        sum
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self.time.is_zero() {
            true => count(self.turns, "turn"),
            false => span(self.time),
        })
    }
}
