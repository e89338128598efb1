//! The same schedule twice: the event logs of both runs are equal, unless something that the kernel
//! does not know decides what the program does.

use std::{cell::RefCell, rc::Rc};

use super::{
    plan::Plan,
    tally::{Found, Tally},
    trial::{Test, Trial, Trials},
};
use crate::{Error, Event, Tracer, record::OwnedEvent};

/// Longer logs are compared up to here.
const MOST: usize = 100_000;

/// The begin of the report on two runs that differ.
pub(super) const NONDETERMINISM: &str = "hidden nondeterminism";

/// Runs that are logged, by the strategy of the search.
pub(super) struct Logged<'a> {
    pub(super) trials: Trials<'a>,
    events: Rc<RefCell<Events>>,
    /// The turns of the last run, in a search whose time ends.
    turns: u64,
}

/// The events of a run, and how far those of the next are the same.
#[derive(Default)]
struct Events {
    first: Vec<OwnedEvent>,
    is_second: bool,
    same: usize,
    /// The first of the second run that differs.
    other: Option<OwnedEvent>,
}

impl Events {
    fn add(&mut self, event: &Event<'_>) {
        if !self.is_second {
            if self.first.len() < MOST {
                self.first.push(event.into());
            }
        } else if self.other.is_none() && self.same < MOST {
            match self.first.get(self.same) {
                Some(first) if first == event => self.same += 1,
                _ => self.other = Some(event.into()),
            }
        }
    }

    fn difference(&self) -> Option<String> {
        let first = self.first.get(self.same);
        if first.is_none() && self.other.is_none() {
            return None;
        }
        let line = |event: Option<&OwnedEvent>| event.map_or("the end".into(), ToString::to_string);
        Some(format!(
            "the same schedule ran twice, and event {} differs\n  first:  {}\n  second: {}",
            self.same + 1,
            line(first),
            line(self.other.as_ref()),
        ))
    }
}

/// Compares what the closure did after its tasks, of which the log has nothing.
fn outcomes_differ(first: &Trial, second: &Trial) -> Option<String> {
    let (first, second) = (first.in_a_line(), second.in_a_line());
    let why = "the same schedule ran twice, with the same events, and its outcomes differ";
    (first != second).then(|| format!("{why}\n  first:  {first}\n  second: {second}"))
}

/// Runs the first schedule of an exhaustive search twice, and the search if the two do not differ. If
/// the time ends before the search runs that schedule again, its failure is that of the search.
pub(super) fn before(
    test: Test<'_>,
    search: impl FnOnce() -> Result<Tally, Error>,
) -> Result<Tally, Error> {
    let (settings, watch) = (test.settings, test.settings.watch());
    let mut logged = Logged::new(Trials::new(test, watch.clone()));
    let first = logged.first(settings.seed)?;
    // A schedule that was cut has no result.
    let is_cut = watch.has_cut() || logged.turns > settings.steps();
    let found = |why: &String| Found::new(0, why.clone()).with(Plan::default());
    let failure = first.failure.as_ref().filter(|_| !is_cut).map(found);
    if let Some(found) = &failure {
        found.tell(settings);
    }
    let differs = logged.repeat(settings.seed, 0, &first)?;
    if differs.is_some() {
        return Ok(Tally {
            failure: differs,
            ..Tally::default()
        });
    }
    let mut tally = search()?;
    if tally.schedules == 0 && settings.deadline.is_over() {
        tally.failure = tally.failure.or(failure);
        if watch.waits() {
            // It says more than the search that did not begin.
            tally.bound = settings.end_within(&watch);
        }
    }
    Ok(tally)
}

impl<'a> Logged<'a> {
    pub(super) fn new(trials: Trials<'a>) -> Self {
        Self {
            trials,
            events: Rc::default(),
            turns: 0,
        }
    }

    /// Runs the schedule of a seed, to be repeated.
    pub(super) fn first(&mut self, seed: u64) -> Result<Trial, Error> {
        let mut events = self.events.borrow_mut();
        events.first.clear();
        (events.is_second, events.same, events.other) = (false, 0, None);
        drop(events);
        self.run_once(seed)
    }

    /// Runs the schedule again. Returns a failure if the two differ.
    pub(super) fn repeat(
        &mut self,
        seed: u64,
        schedule: u64,
        first: &Trial,
    ) -> Result<Option<Found>, Error> {
        if self.trials.watch.has_cut() {
            // The kernel has lost its policy, and nothing would cut the second run.
            return Ok(None);
        }
        if let Some(why) = first.failure.as_ref().filter(|_| first.has_stalled) {
            // The second run would wait as long.
            return Ok(Some(Found::new(schedule, why.clone())));
        }
        self.events.borrow_mut().is_second = true;
        let second = self.run_once(seed)?;
        if self.trials.watch.has_cut() {
            return Ok(None);
        }
        let why = first.hidden();
        let differs = self.events.borrow().difference();
        let differs = differs.or_else(|| outcomes_differ(first, &second));
        let found = |differs| Found::new(schedule, format!("{NONDETERMINISM}: {differs}\n{why}"));
        Ok(differs.map(found))
    }

    fn run_once(&mut self, seed: u64) -> Result<Trial, Error> {
        let events = Rc::clone(&self.events);
        let Trials {
            test, watch, space, ..
        } = &self.trials;
        let (test, watch, space) = (*test, watch.clone(), space.clone());
        let mut faults = test.settings.has_faults().then(|| space.tracer());
        let tracer = move |event: &Event<'_>| {
            events.borrow_mut().add(event);
            if let Some(faults) = &mut faults {
                faults.event(event);
            }
        };
        self.trials.by_seed(seed)?;
        self.trials.space.begin();
        let trial = self.trials.kernel().with_tracer(tracer, |kernel| {
            let trial = test.run_in(&space, kernel, &watch);
            if watch.is_set() {
                self.turns = kernel.report().ticks;
            }
            kernel.end_run();
            trial
        });
        Ok(trial)
    }
}
