//! A schedule as text: the turns around its preemptions, and the last ones.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::guide::Guide;
use crate::{Answered, Call, Event, Fact, Tid, Tracer};

/// The turns that are shown before and after a preemption, and at the end.
const BEFORE: usize = 3;
const AFTER: usize = 5;
const LAST: usize = 5;

/// The most turns whose text is kept. A story of a longer schedule ends there.
const MOST: usize = 100_000;

/// The story of a schedule. Clones are handles to the same story.
#[derive(Clone)]
pub(super) struct Story {
    guide: Guide,
    told: Rc<RefCell<Told>>,
}

#[derive(Default)]
struct Told {
    rows: Vec<Row>,
    names: BTreeMap<Tid, String>,
    /// The last call of each task.
    calls: BTreeMap<Tid, String>,
    /// The turn under way.
    turn: Option<(u32, Tid, Vec<String>)>,
}

struct Row {
    text: String,
    is_preemption: bool,
}

impl Story {
    /// Returns the story of what the guide decides. It is complete when the kernel has run.
    pub(super) fn of(guide: &Guide) -> Self {
        Self {
            guide: guide.clone(),
            told: Rc::default(),
        }
    }

    /// Returns the tracer that the kernel needs.
    pub(super) fn tracer(&self) -> impl Tracer + 'static {
        let Self { guide, told } = self.clone();
        move |event: &Event<'_>| told.borrow_mut().tell(event, &guide)
    }

    /// Returns the text. Each line is indented.
    pub(super) fn text(&self) -> String {
        let mut told = self.told.borrow_mut();
        told.end_turn();
        let rows = &told.rows;
        let is_shown = |at: usize| {
            let from = at.saturating_sub(AFTER);
            let to = (at + BEFORE + 1).min(rows.len());
            at + LAST >= rows.len() || rows[from..to].iter().any(|row| row.is_preemption)
        };
        let mut text = String::new();
        let mut is_cut = false;
        for (at, row) in rows.iter().enumerate() {
            if is_shown(at) {
                text += &format!("  {}\n", row.text.trim_end());
            } else if !is_cut {
                text += "     ...\n";
            }
            is_cut = !is_shown(at);
        }
        text
    }
}

impl Told {
    fn tell(&mut self, event: &Event<'_>, guide: &Guide) {
        if self.rows.len() > MOST {
            return;
        }
        let text = match &event.fact {
            Fact::Spawned { name, .. } => {
                self.names.insert(event.tid, (*name).to_string());
                return;
            }
            Fact::Resumed => {
                self.end_turn();
                if let Some(victim) = guide.preempted() {
                    self.preempt(victim.tid);
                }
                self.turn = Some((guide.turns(), event.tid, Vec::new()));
                return;
            }
            Fact::Trapped { call, detail } => {
                let call = Call(*call, *detail).to_string();
                self.calls.insert(event.tid, call.clone());
                call
            }
            Fact::Replied { reply, detail } if self.is_turn_of(event.tid) => {
                format!("= {}", Answered(*reply, *detail))
            }
            Fact::Blocked { .. } => "...".into(),
            Fact::Woken { by } => format!("[{} {}: {by}]", self.name(event.tid), event.tid),
            Fact::Exited { exit } => format!("exits: {exit}"),
            Fact::ClockJumped { .. } => {
                self.end_turn();
                let text = format!("{:>5}  the clock jumps to {:?}", "", event.at);
                return self.row(text, false);
            }
            _ => return,
        };
        if let Some((_, _, texts)) = &mut self.turn {
            texts.push(text);
        }
    }

    fn is_turn_of(&self, task: Tid) -> bool {
        self.turn.as_ref().is_some_and(|(_, tid, _)| *tid == task)
    }

    fn name(&self, task: Tid) -> &str {
        self.names.get(&task).map_or("", |name| name)
    }

    fn end_turn(&mut self) {
        if let Some((turn, tid, texts)) = self.turn.take() {
            let who = format!("{} {tid}", self.name(tid));
            self.row(format!("{turn:>5}  {who:<14} {}", texts.join(" ")), false);
        }
    }

    fn preempt(&mut self, task: Tid) {
        let place = match self.calls.get(&task) {
            Some(call) => format!("after {call}"),
            None => "where it begins".into(),
        };
        let text = format!("    !  {} {task} is preempted {place}", self.name(task));
        self.row(text, true);
    }

    fn row(&mut self, text: String, is_preemption: bool) {
        self.rows.push(Row {
            text,
            is_preemption,
        });
    }
}
