//! What a task did while another waited, in sentences, and which of its own waits explains that.

use std::{collections::BTreeMap, time::Duration};

use trapline::{Doing, Ending, Moment, Nanos, On, Tid};

use super::{
    history::{History, Step},
    life::{Amount, Life, Piece},
};

/// The number of tasks named in a sentence.
pub(super) const NAMED: usize = 4;

impl History {
    /// What a task does at the end of the recording.
    pub(super) fn now_does(&self, tid: Tid) -> String {
        let who = self.task(tid);
        let Some(life) = self.tasks.get(&tid) else {
            return format!("{who} is not known.");
        };
        let waits = life.pieces.last().filter(|piece| piece.is_endless());
        match (waits, &life.exit, life.now()) {
            (None, Some((at, exit)), _) => {
                format!("{who} ended at {}: {exit}.", Nanos::from(at.at))
            }
            (Some(piece), ..) | (None, None, Some(piece)) => {
                format!("{who} is {}.", self.state(piece))
            }
            (None, None, None) => format!("What {who} does is not known: events are missing."),
        }
    }

    /// The turn of another task between a task's last two calls, in which a wake-up may be lost.
    pub(super) fn before(&self, tid: Tid, index: usize) -> Option<String> {
        let pieces = &self.tasks.get(&tid)?.pieces[..index];
        let mut pieces = pieces.iter();
        let gap = pieces.rfind(|piece| piece.doing == Doing::Ready)?;
        let call = &pieces.next_back()?.call;
        let mut last: BTreeMap<Tid, &Piece> = BTreeMap::new();
        last.extend(self.turns_in(gap).filter(|(other, _)| *other != tid));
        let others = last.into_iter().take(NAMED);
        let others = others
            .map(|(other, turn)| format!("{} had a turn, up to {}", self.task(other), turn.call));
        let others = others.collect::<Vec<_>>().join(", ");
        (!others.is_empty()).then(|| {
            format!("After its {call}, and before this wait, {others}: a wake-up in that turn would have come too early.")
        })
    }

    pub(super) fn absent(&self, tid: Tid, life: &Life, at: Option<Duration>) -> String {
        let who = self.task(tid);
        let from = Nanos::from(life.spawned.at);
        let to = life.exit.as_ref().map_or(self.end(), |(end, _)| *end);
        let has_gap = self.has_gap(life.spawned, to);
        let Some(instant) = at else {
            return match has_gap {
                true => format!("No wait of {who} is recorded: events are missing."),
                false => format!("{who} never waited."),
            };
        };
        let at = Nanos::from(instant);
        if has_gap && life.spawned.at <= instant && instant <= to.at {
            return format!("What {who} did at {at} is not known: events are missing.");
        }
        let end = life.exit.as_ref().map(|(end, _)| Nanos::from(end.at));
        let end = end.map_or_else(String::new, |end| format!(" to {end}"));
        format!("{who} did not live at {at}: it lived from {from}{end}.")
    }

    pub(super) fn cycle(&self, steps: &[Step]) -> String {
        let tasks = steps.iter().chain(steps.first());
        let way: Vec<String> = tasks.map(|(tid, _)| tid.to_string()).collect();
        let is_endless = |step: &Step| self.piece_at_step(*step).is_some_and(Piece::is_endless);
        let wait = match steps.iter().all(is_endless) {
            true => "wait",
            false => "waited",
        };
        format!("So they {wait} for one another: {}.", way.join(" -> "))
    }

    /// What explains a wait for a task that held it up in this window.
    pub(super) fn next(&self, tid: Tid, wait: &Piece, from: Moment, to: Moment) -> Option<Step> {
        match wait.is_endless() {
            true => self.last_wait(tid),
            false => self.longest_wait(tid, from, to),
        }
    }

    /// The piece of a task that a wait in this window was mostly spent on, if that was a wait itself.
    pub(super) fn longest_wait(&self, tid: Tid, from: Moment, to: Moment) -> Option<Step> {
        let (before, pieces) = self.tasks.get(&tid)?.touching(from, to);
        let overlap = |piece: &Piece| Amount::of(piece.from.max(from), piece.to.min(to));
        let (index, piece) = (before..)
            .zip(pieces)
            .filter(|(_, piece)| from == to || overlap(piece) > Amount::default())
            .max_by_key(|(_, piece)| (overlap(piece), piece.end == Ending::Open))?;
        let is_wait = matches!(piece.doing, Doing::Blocked(on) if !matches!(on, On::Timer(_)));
        is_wait.then_some((tid, index))
    }

    /// The wait of a task at the end of the recording.
    pub(super) fn last_wait(&self, tid: Tid) -> Option<Step> {
        let life = self.tasks.get(&tid)?;
        life.waits_at_end().then(|| (tid, life.pieces.len() - 1))
    }
}
