//! `--exits`: how each task ended that did not end well.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::output::{clean, tell};
use crate::{Event, Exit, Fact, Tid};

/// What each line begins with.
pub(super) const MARK: &str = "exit: ";

/// Notes the ends of tasks. A tracer and the command line share it.
#[derive(Default)]
pub(super) struct Exits {
    live: BTreeMap<Tid, Box<str>>,
    done: u64,
    /// A line for each of the others, in the order of their ends.
    lines: Vec<String>,
}

impl Exits {
    /// A tracer that notes into `exits`.
    pub(super) fn tracer(exits: &Rc<RefCell<Self>>) -> impl FnMut(&Event<'_>) + use<> {
        let exits = Rc::clone(exits);
        move |event| exits.borrow_mut().note(event)
    }

    fn note(&mut self, event: &Event<'_>) {
        let tid = event.tid;
        match event.fact {
            Fact::Spawned { name, .. } => drop(self.live.insert(tid, name.into())),
            Fact::Exited { exit } => {
                let name = self.live.remove(&tid).unwrap_or_default();
                match exit {
                    Exit::Done => self.done += 1,
                    exit => self.lines.push(format!("task {tid} {name:?}: {exit}")),
                }
            }
            _ => {}
        }
    }

    /// Prints them on standard error: those that did not end well, then how many did and how many
    /// have not ended.
    pub(super) fn show(&self) {
        for line in &self.lines {
            tell(&format!("{MARK}{}\n", clean(line)));
        }
        let (done, live) = (self.done, self.live.len());
        tell(&format!(
            "{MARK}tasks done: {done}, live at the end: {live}\n"
        ));
    }
}
