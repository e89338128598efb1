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
    doing: Phase,
    since: Duration,
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Phase {
    #[default]
    Other,
    Ready,
    Computing,
}

/// What a task did, and from when to when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) doing: Phase,
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Measured {
    /// Takes an event of this task. Returns what it ends.
    pub(super) fn event(&mut self, event: &Event<'_>) -> Option<Stretch> {
        let (at, fact) = (event.at, &event.fact);
        let is_computing = self.doing == Phase::Computing;
        let doing = if let Some((_, name)) = fact.spawned() {
            self.name = name.to_string();
            self.arrival = Some(at);
            Phase::Ready
        } else if fact.blocked_on().is_some() {
            if self.first_turn.is_none() && self.arrival == Some(at) {
                // A task that starts later: it was not ready yet.
                self.arrival = None;
            }
            Phase::Other
        } else if fact.woken_by().is_some() {
            self.arrival.get_or_insert(at);
            Phase::Ready
        } else if fact.is_resumed() {
            self.first_turn.get_or_insert(at);
            Phase::Other
        } else if fact.processor().is_some() {
            self.first_computation.get_or_insert(at);
            Phase::Computing
        } else if fact.exit().is_some() {
            self.ended = Some(at);
            Phase::Other
        } else if is_computing && fact.answer().is_some()
            || fact.call().is_some()
            || fact.left().is_some()
        {
            Phase::Ready
        } else {
            return None;
        };
        self.turn_to(doing, at)
    }

    /// Ends what the task does at the end of a run.
    pub(super) fn close(&mut self, at: Duration) -> Option<Stretch> {
        self.turn_to(Phase::Other, at)
    }

    fn turn_to(&mut self, doing: Phase, to: Duration) -> Option<Stretch> {
        let (before, from) = (self.doing, self.since);
        (self.doing, self.since) = (doing, to);
        let span = to.saturating_sub(from);
        match before {
            Phase::Other => return None,
            Phase::Ready => self.waiting += span,
            Phase::Computing => self.computed += span,
        }
        let stretch = Stretch {
            doing: before,
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
