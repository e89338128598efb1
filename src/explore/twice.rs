//! The same schedule twice: the event logs of both runs are equal, unless something that the kernel
//! does not know decides what the program does.

use std::{cell::RefCell, rc::Rc};

use super::{
    plan::Plan,
    settings::Settings,
    tally::{Found, Tally},
    timed::Watch,
    trial::{self, Body, THREADS, Trial},
};
use crate::{Error, Event, Kernel, record::OwnedEvent};

/// Longer logs are compared up to here.
const MOST: usize = 100_000;

/// What may have made two runs differ.
const HIDDEN: &str = "Something besides the world decides what the program does: the order of a \
     hash map, a static, a clock, a thread.";

/// Runs that are logged.
pub(super) struct Logged<'a> {
    body: Body<'a>,
    kernel: Kernel,
    log: Rc<RefCell<Vec<OwnedEvent>>>,
    /// The log of the first of two runs.
    first: Vec<OwnedEvent>,
    /// The turns of the last run.
    ticks: u64,
    watch: Watch,
}

/// Runs the first schedule of an exhaustive search twice, and the search if the two do not differ. If
/// the time ends before the search runs that schedule again, its failure is that of the search.
pub(super) fn before(
    body: Body<'_>,
    settings: &Settings,
    search: impl FnOnce() -> Result<Tally, Error>,
) -> Result<Tally, Error> {
    let mut logged = Logged::new(body, settings, settings.seed, &settings.watch())?;
    let first = logged.first(settings.seed)?;
    // A schedule that was cut has no result.
    let is_cut = logged.watch.has_cut() || logged.ticks > settings.steps() && !first.is_late;
    let differs = logged.repeat(settings.seed, 0, &first)?;
    if differs.is_some() {
        return Ok(Tally {
            failure: differs,
            ..Tally::default()
        });
    }
    let mut tally = search()?;
    if tally.schedules == 0 && settings.deadline.is_over() {
        let failure = first.failure.filter(|_| !is_cut);
        let failure = failure.map(|why| Found::new(0, why).with(Plan::default()));
        tally.failure = tally.failure.or(failure);
    }
    Ok(tally)
}

impl<'a> Logged<'a> {
    pub(super) fn new(
        body: Body<'a>,
        settings: &Settings,
        seed: u64,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let log: Rc<RefCell<Vec<OwnedEvent>>> = Rc::default();
        let events = Rc::clone(&log);
        let builder = settings.strategy.set(settings.builder(seed), seed, watch);
        let builder = builder.tracer(move |event: &Event<'_>| {
            let mut events = events.borrow_mut();
            if events.len() < MOST {
                events.push(event.into());
            }
        });
        let kernel = builder.build()?;
        Ok(Self {
            body,
            kernel,
            log,
            first: Vec::new(),
            ticks: 0,
            watch: watch.clone(),
        })
    }

    /// Runs the schedule of a seed, to be repeated.
    pub(super) fn first(&mut self, seed: u64) -> Result<Trial, Error> {
        self.kernel.reset(seed)?;
        self.run_once(seed)
    }

    /// Runs the schedule again. Returns a failure if the two differ.
    pub(super) fn repeat(
        &mut self,
        seed: u64,
        schedule: u64,
        first: &Trial,
    ) -> Result<Option<Found>, Error> {
        if self.watch.has_cut() {
            // The kernel has lost its policy, and nothing would cut the second run.
            return Ok(None);
        }
        std::mem::swap(&mut self.first, &mut *self.log.borrow_mut());
        self.run_once(seed)?;
        if self.watch.has_cut() {
            return Ok(None);
        }
        let why = match first.counts_on_threads {
            true => THREADS,
            false => HIDDEN,
        };
        let differs = difference(&self.first, &self.log.borrow(), why);
        Ok(differs.map(|why| Found::new(schedule, why)))
    }

    /// Runs the schedule on a kernel that is as new, and makes it so again.
    fn run_once(&mut self, seed: u64) -> Result<Trial, Error> {
        self.log.borrow_mut().clear();
        let trial = trial::run(&mut self.kernel, self.body);
        self.ticks = self.kernel.report().ticks;
        // The tasks that are left end, and the log has their ends.
        self.kernel.reset(seed)?;
        Ok(trial)
    }
}

fn difference(first: &[OwnedEvent], second: &[OwnedEvent], why: &str) -> Option<String> {
    let at = (0..first.len().max(second.len())).find(|at| first.get(*at) != second.get(*at))?;
    let line = |log: &[OwnedEvent]| log.get(at).map_or("the end".into(), ToString::to_string);
    Some(format!(
        "hidden nondeterminism: the same schedule ran twice, and event {} differs\n  \
         first:  {}\n  second: {}\n{why}",
        at + 1,
        line(first),
        line(second),
    ))
}
