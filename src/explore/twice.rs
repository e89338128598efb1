//! The same schedule twice: the event logs of both runs are equal, unless something that the kernel
//! does not know decides what the program does.

use std::{cell::RefCell, rc::Rc};

use super::{
    guide::Guide,
    settings::Settings,
    trial::{self, Body},
};
use crate::Event;

/// Longer logs are compared up to here.
const MOST: usize = 100_000;

/// Runs the schedule of a seed twice. Returns the first events that differ, in words.
pub(super) fn differ(body: Body<'_>, settings: &Settings, seed: u64) -> Option<String> {
    let [first, second] = [(); 2].map(|()| log(body, settings, seed));
    let at = (0..first.len().max(second.len())).find(|at| first.get(*at) != second.get(*at))?;
    let line = |log: &[String]| log.get(at).cloned().unwrap_or_else(|| "the end".into());
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

fn log(body: Body<'_>, settings: &Settings, seed: u64) -> Vec<String> {
    let lines: Rc<RefCell<Vec<String>>> = Rc::default();
    let log = Rc::clone(&lines);
    let guide = Guide::default();
    guide.record(settings.strategy.policy(seed));
    let builder = settings.builder(seed).policy(guide);
    let builder = builder.tracer(move |event: &Event<'_>| {
        let mut lines = log.borrow_mut();
        if lines.len() < MOST {
            lines.push(event.to_string());
        }
    });
    if let Ok(mut kernel) = builder.build() {
        trial::run(&mut kernel, body);
    }
    lines.take()
}
