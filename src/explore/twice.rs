//! The same schedule twice: the event logs of both runs are equal, unless something that the kernel
//! does not know decides what the program does.

use std::{cell::RefCell, rc::Rc};

use super::{
    settings::Settings,
    trial::{self, Body},
};
use crate::{Error, Event, Kernel, record::OwnedEvent};

/// Longer logs are compared up to here.
const MOST: usize = 100_000;

/// Runs that are logged.
pub(super) struct Logged<'a> {
    body: Body<'a>,
    kernel: Kernel,
    log: Rc<RefCell<Vec<OwnedEvent>>>,
}

impl<'a> Logged<'a> {
    pub(super) fn new(body: Body<'a>, settings: &Settings, seed: u64) -> Result<Self, Error> {
        let log: Rc<RefCell<Vec<OwnedEvent>>> = Rc::default();
        let events = Rc::clone(&log);
        let builder = settings.strategy.set(settings.builder(seed), seed);
        let builder = builder.tracer(move |event: &Event<'_>| {
            let mut events = events.borrow_mut();
            if events.len() < MOST {
                events.push(event.into());
            }
        });
        let kernel = builder.build()?;
        Ok(Self { body, kernel, log })
    }

    /// Runs the schedule of a seed twice. Returns the first events that differ, in words.
    pub(super) fn differ(&mut self, seed: u64) -> Result<Option<String>, Error> {
        let first = self.run(seed)?;
        let second = self.run(seed)?;
        Ok(difference(&first, &second))
    }

    fn run(&mut self, seed: u64) -> Result<Vec<OwnedEvent>, Error> {
        self.kernel.reset(seed)?;
        trial::run(&mut self.kernel, self.body);
        // The tasks that are left end.
        self.kernel.reset(seed)?;
        Ok(self.log.take())
    }
}

fn difference(first: &[OwnedEvent], second: &[OwnedEvent]) -> Option<String> {
    let at = (0..first.len().max(second.len())).find(|at| first.get(*at) != second.get(*at))?;
    let line = |log: &[OwnedEvent]| log.get(at).map_or("the end".into(), ToString::to_string);
    Some(format!(
        "hidden nondeterminism: the same schedule ran twice, and event {} differs\n  \
         first:  {}\n  second: {}\n\
         Something besides the world decides what the program does: the order of a hash map, a \
         static, a clock, a thread.",
        at + 1,
        line(first),
        line(second),
    ))
}
