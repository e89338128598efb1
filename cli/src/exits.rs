//! `--exits`: how each task ended that did not end well.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::json;
use trapline::{Event, Exit, Tid};

use super::output::{Log, clean, tell};

/// What each line begins with.
pub(super) const MARK: &str = "exit: ";

/// Notes the ends of tasks. A tracer and the command line share it.
#[derive(Default)]
pub(super) struct Exits {
    live: BTreeMap<Tid, Box<str>>,
    done: u64,
    /// The others and their exits, in the order of their ends.
    others: Vec<(Tid, Box<str>, String)>,
}

impl Exits {
    pub(super) fn tracer(exits: &Rc<RefCell<Self>>) -> impl FnMut(&Event<'_>) + use<> {
        let exits = Rc::clone(exits);
        move |event| exits.borrow_mut().event(event)
    }

    fn event(&mut self, event: &Event<'_>) {
        let tid = event.tid;
        if let Some((_, name)) = event.fact.spawned() {
            self.live.insert(tid, name.into());
        }
        if let Some(exit) = event.fact.exit() {
            let name = self.live.remove(&tid).unwrap_or_default();
            match exit {
                Exit::Done => self.done += 1,
                exit => self.others.push((tid, name, exit.to_string())),
            }
        }
    }

    /// Prints them on standard error: those that did not end well, then how many did and how many
    /// have not ended.
    pub(super) fn show(&self, log: Log) {
        let (done, live) = (self.done, self.live.len());
        if log.is_json() {
            for (tid, name, exit) in &self.others {
                let tid = u64::from(*tid);
                log.json(&json!({ "exits": "task", "tid": tid, "task": name, "exit": exit }));
            }
            log.json(&json!({ "exits": "all", "done": done, "live": live }));
            return;
        }
        for (tid, name, exit) in &self.others {
            let line = format!("task {tid} {name:?}: {exit}");
            tell(&format!("{MARK}{}\n", clean(&line)));
        }
        tell(&format!(
            "{MARK}tasks done: {done}, live at the end: {live}\n"
        ));
    }
}
