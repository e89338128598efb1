//! The tracer of a run that is debugged: it keeps the last calls of each task, and stops the run
//! where a condition is met.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use trapline::{Call, Event, Ledger, Nanos, Tid, Tracer};

use super::condition::Condition;
use crate::live::feed;

pub(super) struct Witness {
    /// The last calls of each task.
    pub(super) recent: Rc<RefCell<Ledger>>,
    /// What to look for, with a number each.
    pub(super) watched: Vec<(usize, Condition)>,
    /// What was found first. Nothing else is found until it is taken.
    pub(super) found: Option<Found>,
    /// The tasks that have ended, the last of them, with a line on when, where and how.
    pub(super) ended: BTreeMap<Tid, String>,
    /// The task that was spawned last.
    pub(super) newest: Tid,
    /// The time of the last event.
    pub(super) at: Duration,
}

/// A condition that is met.
pub(super) struct Found {
    pub(super) number: usize,
    pub(super) task: Tid,
    /// The event, in the manner of `--trace`.
    pub(super) line: String,
}

/// How many ended tasks are kept.
const ENDED: usize = 1 << 16;

impl Witness {
    pub(super) fn watching(watched: Vec<(usize, Condition)>) -> Self {
        Self {
            recent: feed::ledger(),
            watched,
            found: None,
            ended: BTreeMap::new(),
            newest: Tid::KERNEL,
            at: Duration::ZERO,
        }
    }

    fn line(&self, event: &Event<'_>) -> String {
        let recent = self.recent.borrow();
        let what = match event.fact.call() {
            Some(Call(call, _)) => call.name().to_string(),
            None => recent.line(&event.fact, event.tid).to_string(),
        };
        let (at, comm) = (Nanos::from(event.at), recent.comm(event.tid));
        format!("{at:.6} {} {comm}: {what}", event.tid)
    }

    /// The kernel's end of a witness.
    pub(super) fn tracer(witness: &Rc<RefCell<Self>>) -> impl FnMut(&Event<'_>) + use<> {
        let witness = Rc::clone(witness);
        move |event| witness.borrow_mut().event(event)
    }

    fn event(&mut self, event: &Event<'_>) {
        self.recent.borrow_mut().event(event);
        if event.fact.spawned().is_some() {
            self.newest = event.tid;
        }
        if event.fact.exit().is_some() {
            let place = event.place.as_ref().map(|place| format!(" at {place}"));
            let line = self.line(event) + &place.unwrap_or_default();
            self.ended.insert(event.tid, line);
            if self.ended.len() > ENDED {
                self.ended.pop_first();
            }
        }
        let before = std::mem::replace(&mut self.at, event.at);
        if self.found.is_some() {
            return;
        }
        let mut watched = self.watched.iter();
        let met = watched.find(|(_, condition)| condition.is_met(event, before));
        if let Some(&(number, _)) = met {
            let line = self.line(event);
            let task = event.tid;
            self.found = Some(Found { number, task, line });
        }
    }
}
