//! A schedule as text: the turns around its preemptions, and the last ones.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::guide::Guide;
use crate::{Answered, Call, Continued, Event, Fact, Footprints, Note, Tid, Tracer};

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
    /// The last call of each task: its text, and its row.
    calls: BTreeMap<Tid, (String, usize)>,
    turn: Option<Turn>,
    /// The kernel's notes, which have the places of calls.
    footprints: Footprints,
    notes: Vec<Note>,
    /// The files of the places so far, as the compiler names them.
    files: BTreeSet<String>,
}

/// The turn under way.
struct Turn {
    number: u32,
    task: Tid,
    texts: Vec<String>,
    has_call: bool,
    /// The row of the task's call before.
    before: Option<usize>,
}

struct Row {
    text: String,
    /// The place of the call.
    place: Place,
    is_preemption: bool,
}

/// A place in the source.
enum Place {
    None,
    /// As its stub has noted it.
    Called(String),
    /// Where its task continued.
    Continued(Continued),
    /// That of another row.
    Of(usize),
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

    /// Takes the places of calls from the notes of this kernel.
    pub(super) fn locate(&self, footprints: Footprints) {
        self.told.borrow_mut().footprints = footprints;
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
                text += &format!("  {}\n", told.line(row).trim_end());
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
                let file = event.place.map(|place| place.file.to_string());
                self.files.extend(file);
                return;
            }
            Fact::Resumed => {
                self.end_turn();
                if let Some(victim) = guide.preempted() {
                    self.preempt(victim.tid);
                }
                self.turn = Some(Turn {
                    number: guide.turns(),
                    task: event.tid,
                    texts: Vec::new(),
                    has_call: false,
                    before: self.calls.get(&event.tid).map(|(_, row)| *row),
                });
                return;
            }
            Fact::Trapped { call, detail } => {
                let call = Call(*call, *detail).to_string();
                // This turn becomes the next row, unless a preemption does.
                self.calls
                    .insert(event.tid, (call.clone(), self.rows.len()));
                if let Some(turn) = &mut self.turn {
                    turn.has_call = true;
                }
                call
            }
            Fact::Replied { reply, detail } if self.is_turn_of(event.tid) => {
                format!("= {}", Answered(*reply, *detail))
            }
            Fact::Blocked { .. } => "...".into(),
            Fact::Woken { by } => format!("[{} {}: {by}]", self.name(event.tid), event.tid),
            Fact::Exited { exit } if self.is_turn_of(event.tid) => format!("exits: {exit}"),
            // One that the task of the turn has ended.
            Fact::Exited { exit } => {
                format!("[{} {} exits: {exit}]", self.name(event.tid), event.tid)
            }
            Fact::ClockJumped { .. } => {
                self.end_turn();
                let text = format!("{:>5}  the clock jumps to {:?}", "", event.at);
                return self.row(text, Place::None, false);
            }
            _ => return,
        };
        if let Some(turn) = &mut self.turn {
            turn.texts.push(text);
        }
    }

    fn is_turn_of(&self, task: Tid) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.task == task)
    }

    fn name(&self, task: Tid) -> &str {
        self.names.get(&task).map_or("", |name| name)
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let Turn { number, task, .. } = turn;
        let who = format!("{} {task}", self.name(task));
        let text = format!("{number:>5}  {who:<14} {}", turn.texts.join(" "));
        // A turn without a call ends the task, and may have notes of an earlier place.
        let called = self.called().filter(|_| turn.has_call);
        let place = called.map_or(Place::None, Place::Called);
        if let Some(continued) = self.footprints.take_continued()
            && let Some(row) = turn.before.and_then(|row| self.rows.get_mut(row))
        {
            row.place = Place::Continued(continued);
        }
        self.row(text, place, false);
    }

    /// Returns the place of the last call.
    fn called(&mut self) -> Option<String> {
        self.footprints.take(&mut self.notes);
        let called = self.notes.iter().rev().find_map(|note| match note {
            Note::Called(place) => Some(place),
            _ => None,
        });
        called.map(|place| {
            self.files.insert(place.file().to_string());
            format!("{}:{}", place.file(), place.line())
        })
    }

    /// A backtrace has absolute paths of files that are not below the working directory.
    fn shortened(&self, place: &str) -> String {
        let is_of = |file: &&String| {
            let rest = place.split_once(file.as_str());
            rest.is_some_and(|(dir, line)| dir.ends_with('/') && line.starts_with(':'))
        };
        let file = self.files.iter().find(is_of);
        let short = file.and_then(|file| place.find(file.as_str()).map(|at| &place[at..]));
        short.unwrap_or(place).to_string()
    }

    fn preempt(&mut self, task: Tid) {
        let (place, of) = match self.calls.get(&task) {
            Some((call, row)) => (format!("after {call}"), Place::Of(*row)),
            None => ("where it begins".into(), Place::None),
        };
        let text = format!("    !  {} {task} is preempted {place}", self.name(task));
        self.row(text, of, true);
    }

    fn row(&mut self, text: String, place: Place, is_preemption: bool) {
        self.rows.push(Row {
            text,
            place,
            is_preemption,
        });
    }

    fn line(&self, row: &Row) -> String {
        match (&row.place, self.place(&row.place)) {
            (_, place) if place.is_empty() => row.text.clone(),
            (Place::Of(_), place) => format!("{} at {place}", row.text),
            (_, place) => format!("{:<54}  {place}", row.text),
        }
    }

    fn place(&self, place: &Place) -> String {
        match place {
            Place::None => String::new(),
            Place::Called(place) => place.clone(),
            Place::Continued(continued) => self.shortened(&continued.to_string()),
            Place::Of(row) => self.place(&self.rows[*row].place),
        }
    }
}
