//! The same schedule twice: the event logs of both runs are equal, unless something that the kernel
//! does not know decides what the program does.

use std::{cell::RefCell, rc::Rc};

use super::{
    guide::Guide,
    settings::Settings,
    trial::{self, Body},
};
use crate::{Event, record::OwnedEvent};

/// Longer logs are compared up to here.
const MOST: usize = 100_000;

/// Runs the schedule of a seed twice. Returns the first events that differ, in words.
pub(super) fn differ(body: Body<'_>, settings: &Settings, seed: u64) -> Option<String> {
    let [first, second] = [(); 2].map(|()| log(body, settings, seed));
    let at = (0..first.len().max(second.len())).find(|at| first.get(*at) != second.get(*at))?;
    let line = |log: &[OwnedEvent]| log.get(at).map_or("the end".into(), ToString::to_string);
    Some(format!(
        "hidden nondeterminism: the same schedule ran twice, and event {} differs\n  \
         first:  {}\n  second: {}\n\
         Something besides the world decides what the program does: the order of a hash map, a \
         static, a clock, a thread.",
        at + 1,
        line(&first),
        line(&second),
    ))
}

fn log(body: Body<'_>, settings: &Settings, seed: u64) -> Vec<OwnedEvent> {
    let events: Rc<RefCell<Vec<OwnedEvent>>> = Rc::default();
    let log = Rc::clone(&events);
    let guide = Guide::default();
    guide.record(settings.strategy.policy(seed));
    let builder = settings.builder(seed).policy(guide);
    let builder = builder.tracer(move |event: &Event<'_>| {
        let mut events = log.borrow_mut();
        if events.len() < MOST {
            events.push(event.into());
        }
    });
    if let Ok(mut kernel) = builder.build() {
        trial::run(&mut kernel, body);
    }
    events.take()
}
