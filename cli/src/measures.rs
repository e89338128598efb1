//! The textbook's measures of a task: arrival, response, turnaround and waiting.

use std::time::Duration;

use trapline::Event;

/// What one task did with its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) name: String,
    /// When it first became ready; `None` if it did not.
    pub(super) arrival: Option<Duration>,
    /// The start of its first turn, and of its first computation.
    first_turn: Option<Duration>,
    first_computation: Option<Duration>,
    pub(super) ended: Option<Duration>,
    /// How long it computed, and how long it was ready without a processor.
    pub(super) computed: Duration,
    pub(super) waiting: Duration,
    /// Since when it is ready, or computes (`true`).
    since: Option<(bool, Duration)>,
}

/// A time in which a task computed, or was ready without a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) is_computing: bool,
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Measured {
    /// Takes an event of this task. Returns what it ends.
    pub(super) fn event(&mut self, event: &Event<'_>) -> Option<Stretch> {
        let (at, fact) = (event.at, &event.fact);
        let (ready, computing) = (Some((false, at)), Some((true, at)));
        let is_computing = matches!(self.since, Some((true, _)));
        let since = if let Some((_, name)) = fact.spawned() {
            self.name = name.to_string();
            self.arrival = Some(at);
            ready
        } else if fact.blocked_on().is_some() {
            // A task that starts later was not ready yet.
            let is_late = self.first_turn.is_none() && self.arrival == Some(at);
            self.arrival = self.arrival.filter(|_| !is_late);
            None
        } else if fact.woken_by().is_some() {
            self.arrival.get_or_insert(at);
            ready
        } else if fact.is_resumed() {
            self.first_turn.get_or_insert(at);
            None
        } else if fact.processor().is_some() {
            self.first_computation.get_or_insert(at);
            computing
        } else if fact.exit().is_some() {
            self.ended = Some(at);
            None
        } else if is_computing && fact.answer().is_some()
            || fact.call().is_some()
            || fact.left().is_some()
        {
            ready
        } else {
            return None;
        };
        self.turn_to(since, at)
    }

    /// Ends what the task does at the end of a run.
    pub(super) fn close(&mut self, at: Duration) -> Option<Stretch> {
        self.turn_to(None, at)
    }

    fn turn_to(&mut self, since: Option<(bool, Duration)>, to: Duration) -> Option<Stretch> {
        let (is_computing, from) = std::mem::replace(&mut self.since, since)?;
        let span = to.saturating_sub(from);
        match is_computing {
            true => self.computed += span,
            false => self.waiting += span,
        }
        let stretch = Stretch {
            is_computing,
            from,
            to,
        };
        (!span.is_zero()).then_some(stretch)
    }

    /// Returns the time from its arrival to its first computation, or to its first turn if it did
    /// not compute.
    pub(super) fn response(&self) -> Option<Duration> {
        let start = self.first_computation.or(self.first_turn)?;
        Some(start.saturating_sub(self.arrival?))
    }

    /// Returns the time from its arrival to its end.
    pub(super) fn turnaround(&self) -> Option<Duration> {
        Some(self.ended?.saturating_sub(self.arrival?))
    }
}
