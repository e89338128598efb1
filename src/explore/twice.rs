//! The same schedule twice: the event logs of both runs are equal, unless something that the kernel
//! does not know decides what the program does.

use std::{cell::RefCell, rc::Rc};

use super::{
    settings::Settings,
    timed::Watch,
    trial::{self, Body, THREADS},
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
    watch: Watch,
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
            watch: watch.clone(),
        })
    }

    /// Runs the schedule of a seed twice. Returns the first events that differ, in words.
    pub(super) fn differ(&mut self, seed: u64) -> Result<Option<String>, Error> {
        self.kernel.reset(seed)?;
        self.log.borrow_mut().clear();
        let counts_on_threads = self.run(seed)?;
        if self.watch.has_cut() {
            // The kernel has lost its policy, and nothing would cut the second run.
            return Ok(None);
        }
        std::mem::swap(&mut self.first, &mut *self.log.borrow_mut());
        self.log.borrow_mut().clear();
        self.run(seed)?;
        if self.watch.has_cut() {
            return Ok(None);
        }
        let why = if counts_on_threads { THREADS } else { HIDDEN };
        Ok(difference(&self.first, &self.log.borrow(), why))
    }

    /// Runs the schedule on a kernel that is as new, and makes it so again. Returns whether another
    /// thread may have decided what happened.
    fn run(&mut self, seed: u64) -> Result<bool, Error> {
        let trial = trial::run(&mut self.kernel, self.body);
        // The tasks that are left end, and the log has their ends.
        self.kernel.reset(seed)?;
        Ok(trial.counts_on_threads)
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
