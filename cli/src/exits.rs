//! `--exits`: how each task ended that did not end well.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::json;
use trapline::{Event, Exit, Fact, Tid};

use super::output::{Log, clean, tell};

/// What each line begins with.
pub(super) const MARK: &str = "exit: ";

/// Notes the ends of tasks. A tracer and the command line share it.
#[derive(Default)]
pub(super) struct Exits {
    live: BTreeMap<Tid, Box<str>>,
    done: u64,
    /// The others, in the order of their ends.
    others: Vec<Ended>,
}

/// A task that did not end well.
struct Ended {
    tid: Tid,
    name: Box<str>,
    exit: String,
}

impl Exits {
    /// A tracer that notes into `exits`.
    pub(super) fn tracer(exits: &Rc<RefCell<Self>>) -> impl FnMut(&Event<'_>) + use<> {
        let exits = Rc::clone(exits);
        move |event| exits.borrow_mut().event(event)
    }

    fn event(&mut self, event: &Event<'_>) {
        let tid = event.tid;
        match &event.fact {
            Fact::Spawned { name, .. } => drop(self.live.insert(tid, (**name).into())),
            Fact::Exited { exit } => {
                let name = self.live.remove(&tid).unwrap_or_default();
                match exit {
                    Exit::Done => self.done += 1,
                    exit => self.others.push(Ended {
                        tid,
                        name,
                        exit: exit.to_string(),
                    }),
                }
            }
            _ => {}
        }
    }

    /// Prints them on standard error: those that did not end well, then how many did and how many
    /// have not ended.
    pub(super) fn show(&self, log: Log) {
        let (done, live) = (self.done, self.live.len());
        if log.is_json() {
            for Ended { tid, name, exit } in &self.others {
                let tid = u64::from(*tid);
                log.json(&json!({ "exits": "task", "tid": tid, "task": name, "exit": exit }));
            }
            log.json(&json!({ "exits": "all", "done": done, "live": live }));
            return;
        }
        for Ended { tid, name, exit } in &self.others {
            let line = format!("task {tid} {name:?}: {exit}");
            tell(&format!("{MARK}{}\n", clean(&line)));
        }
        tell(&format!(
            "{MARK}tasks done: {done}, live at the end: {live}\n"
        ));
    }
}
