//! A schedule as text.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{
    befell::{Befell, Feelings, Felt, fault_of},
    cut::Await,
    excerpt::{self, Place, Row, Used},
    guide::{Begun, Guide},
    notes::{self, Made},
};
use crate::{Call, Event, Exit, Fact, Footprints, Ledger, Note, SystemCall, Tid, Tracer};

/// The most turns whose text is kept. A story of a longer schedule ends there.
const MOST: usize = 100_000;

/// The story of what a guide decides.
pub(super) struct Story(Rc<RefCell<Told>>);

#[derive(Default)]
struct Told {
    guide: Guide,
    rows: Vec<Row>,
    /// Whether the story has ended before the schedule.
    is_full: bool,
    /// The names of tasks and objects, and the last calls.
    ledger: Ledger,
    /// The last call of each task that has not ended well: its text, and its row.
    calls: BTreeMap<Tid, (String, usize)>,
    /// The shared values, in the order of their first use.
    shared: Vec<Made>,
    /// The rows of the preempted tasks that have had no turn since.
    held: BTreeMap<Tid, usize>,
    turn: Option<Turn>,
    faults: Vec<Befell>,
    /// Of these, those that happened between turns, by their places.
    feelings: Feelings<usize>,
    /// The kernel's notes, which have the places of calls.
    footprints: Footprints,
    notes: Vec<Note>,
    /// The files of the places so far: as the compiler names them, and as they are shown.
    files: BTreeMap<String, String>,
}

struct Turn {
    row: Row,
    has_call: bool,
    /// The row of the task's call before.
    before: Option<usize>,
}

impl Story {
    pub(super) fn of(guide: &Guide) -> Self {
        let guide = guide.clone();
        Self(Rc::new(RefCell::new(Told {
            guide,
            ..Told::default()
        })))
    }

    pub(super) fn tracer(&self) -> impl Tracer + 'static {
        let told = Rc::clone(&self.0);
        move |event: &Event<'_>| told.borrow_mut().tell(event)
    }

    /// Takes the places of calls from the notes of this kernel.
    pub(super) fn locate(&self, footprints: Footprints) {
        self.0.borrow_mut().footprints = footprints;
    }

    /// Describes the faults of the schedule, in order.
    pub(super) fn faults(&self) -> Vec<String> {
        let told = self.0.borrow();
        let place = |row: usize| match told.rows.get(row) {
            Some(row) => told.place(&row.place),
            None => String::new(),
        };
        let faults = told.faults.iter();
        faults.map(|fault| fault.describe(place)).collect()
    }

    /// Returns the traps of all tasks, in order.
    pub(super) fn awaits(&self) -> Vec<Await> {
        let mut told = self.0.borrow_mut();
        told.end_turn();
        let mut traps: BTreeMap<Tid, u64> = BTreeMap::new();
        let calls = told.rows.iter().filter(|row| !row.call.is_empty());
        calls
            .map(|row| {
                let tid = row.task.unwrap_or(Tid::KERNEL);
                let trap = traps.entry(tid).or_default();
                *trap += 1;
                Await {
                    tid,
                    name: row.name.clone(),
                    trap: *trap,
                    call: row.call.clone(),
                    verb: row.call.split('(').next().unwrap_or_default().into(),
                    place: told.place(&row.place),
                    waits: row.waits,
                }
            })
            .collect()
    }

    /// Describes a turn, counted from 1: its task, its call and the place of that.
    pub(super) fn turn(&self, number: u32) -> Option<String> {
        let told = self.0.borrow();
        let mut turns = told.rows.iter().filter(|row| row.is_turn());
        let row = turns.find(|row| row.turn == number)?;
        let what = match &*row.call {
            "" if row.waits => "its call waits",
            "" => "its last turn",
            call => call,
        };
        let place = match &*told.place(&row.place) {
            "" => String::new(),
            place => format!(" at {place}"),
        };
        let task = row.task.unwrap_or(Tid::KERNEL);
        Some(match task.is_kernel() {
            true => row.name.clone(),
            false => format!("{} {task}: {what}{place}", row.name),
        })
    }

    /// Returns the text, and how many turns it leaves out. Each line is indented.
    pub(super) fn text(&self, is_whole: bool) -> (String, usize) {
        let mut told = self.0.borrow_mut();
        told.begin_own_turns();
        told.end_turn();
        told.note_host();
        let rows = &told.rows;
        let shown = match is_whole {
            true => (0..rows.len()).collect(),
            false => excerpt::shown(rows, told.calls.values().map(|(_, row)| *row)),
        };
        let (mut text, mut left_out, mut next) = (String::new(), 0, 0);
        // Behind the last row, for a gap before it.
        for at in shown.into_iter().chain([rows.len()]) {
            let gap = rows[next..at].iter().filter(|row| row.is_turn()).count();
            if gap > 0 {
                let s = if gap == 1 { "" } else { "s" };
                text += &format!("    ...  {gap} more turn{s}\n");
            }
            left_out += gap;
            next = at + 1;
            let line = rows.get(at).map(|row| told.line(row));
            text.extend(line.map(|line| format!("  {}\n", line.trim_end())));
        }
        (text, left_out)
    }
}

impl Told {
    fn tell(&mut self, event: &Event<'_>) {
        if self.is_full {
            return;
        }
        self.ledger.event(event);
        self.begin_own_turns();
        if self.is_full {
            return;
        }
        self.feel(event);
        let fact = &event.fact;
        if fact.is_resumed() {
            return self.begin_turn(event.tid);
        }
        self.note_accesses();
        if fact.spawned().is_some() {
            return self.files.extend(event.place.as_ref().map(file));
        }
        if let Fact::Fault { text } = fact
            && event.tid == Tid::KERNEL
        {
            self.end_turn();
            if let Some(fault) = fault_of(text) {
                self.feelings.add(self.faults.len(), fault);
            }
            self.faults
                .push(Befell::before(text, self.guide.turns() + 1));
            self.tell_apart(&format!("fault: {text}"), BTreeSet::new());
            self.rows.last_mut().expect("it was told").is_fault = true;
            return;
        }
        if fact.jumped_from().is_some() {
            self.end_turn();
            let text = format!("the clock jumps to {:?}", event.at);
            return self.tell_apart(&text, BTreeSet::new());
        }
        let text = if let Some(Call(call, _)) = fact.call() {
            self.call(event.tid, call)
        } else if fact.answer().is_some() && self.is_turn_of(event.tid) {
            let answer = self.ledger.line(fact, event.tid).answer();
            format!("= {}", answer.unwrap_or_default())
        } else if let Some(inject) = fact.injected() {
            format!("[{inject}]")
        } else if fact.blocked_on().is_some() {
            self.begin_wait(event.tid);
            if let Some(turn) = &mut self.turn {
                turn.row.waits = true;
            }
            "...".into()
        } else if let Some(by) = fact.woken_by() {
            let by = self.ledger.cause(by);
            format!("[{} {}: {by}]", self.ledger.comm(event.tid), event.tid)
        } else if let Some(exit) = fact.exit() {
            let place = event.place.as_ref().map(|place| format!(", at {place}"));
            let text = self.exit(event.tid, exit);
            // The report has the other lines of a panic.
            text.lines().next().unwrap_or_default().to_string() + &place.unwrap_or_default()
        } else {
            return;
        };
        if let Some(turn) = &mut self.turn {
            turn.row.text += &format!(" {text}");
        }
    }

    /// Notes what befalls a call, and what is the effect of a fault.
    fn feel(&mut self, event: &Event<'_>) {
        let felt = self.feelings.observe(event);
        let injected = event.fact.injected();
        if felt.is_empty() && injected.is_none() {
            return;
        }
        let call = self.calls.get(&event.tid);
        let by_call = call.map(|(text, row)| Felt::call(text, *row));
        if let (Some(inject), Some((text, _)), Some(felt)) = (injected, call, &by_call) {
            let fault = Befell::call(text, inject, self.guide.turns(), felt.clone());
            self.faults.push(fault);
        }
        let task = || Felt::task(self.ledger.comm(event.tid), event.tid);
        let by = match event.fact.exit() {
            Some(_) => task(),
            None => by_call.unwrap_or_else(task),
        };
        for at in felt {
            self.faults[at].feel(&by);
        }
    }

    fn begin_turn(&mut self, task: Tid) {
        self.begin(Begun {
            turn: self.guide.turns(),
            task,
            preempted: self.guide.preempted().map(|victim| victim.tid),
        });
    }

    /// Begins the turns that kernels have had themselves since the last event.
    fn begin_own_turns(&mut self) {
        while !self.is_full
            && let Some(own) = self.guide.take_own()
        {
            self.begin(own);
        }
    }

    fn begin(&mut self, begun: Begun) {
        let Begun {
            turn,
            task,
            preempted,
        } = begun;
        self.end_turn();
        self.note_host();
        if self.rows.len() >= MOST {
            self.is_full = true;
            return self.tell_apart("the later turns are not kept", BTreeSet::new());
        }
        if let Some(victim) = preempted {
            self.preempt(victim);
        }
        self.held.remove(&task);
        let (name, who) = match task.is_kernel() {
            true => (kernel_itself(task), kernel_itself(task)),
            false => {
                let name = self.ledger.comm(task).to_string();
                let who = format!("{name} {task}");
                (name, who)
            }
        };
        self.turn = Some(Turn {
            row: Row {
                text: format!("{turn:>5}  {who:<14}"),
                task: Some(task),
                turn,
                name,
                ..Row::default()
            },
            has_call: false,
            before: self.calls.get(&task).map(|(_, row)| *row),
        });
    }

    /// Begins the turn of a task that is not resumed: the kernel handles its call, which has to wait.
    fn begin_wait(&mut self, task: Tid) {
        let turns = self.rows.iter().filter(|row| row.is_turn());
        let last = self.turn.as_ref().map(|turn| &turn.row).or(turns.last());
        // The task may have had the turn before as well.
        if last.is_some_and(|row| row.turn == self.guide.turns()) {
            return;
        }
        self.begin_turn(task);
        let Some((text, row)) = self.calls.get(&task) else {
            return;
        };
        if let Some(call) = self.rows.get_mut(*row) {
            call.waits = true;
        }
        if let Some(turn) = &mut self.turn {
            turn.row.text += &format!(" {text}");
        }
    }

    fn call(&mut self, task: Tid, call: SystemCall) -> String {
        let last = self.ledger.last(task);
        let text = last.map_or(String::new(), ToString::to_string);
        // This turn becomes the next row.
        self.calls.insert(task, (text.clone(), self.rows.len()));
        if let Some(turn) = &mut self.turn {
            turn.has_call = true;
            turn.row.call.clone_from(&text);
            turn.row.used.extend(call.queue().map(Used::Queue));
        }
        text
    }

    fn exit(&mut self, task: Tid, exit: &Exit) -> String {
        match exit {
            Exit::Failed(_) | Exit::Faulted(_) => {
                self.calls.insert(task, (String::new(), self.rows.len()));
            }
            _ => drop(self.calls.remove(&task)),
        }
        match self.is_turn_of(task) {
            true => format!("exits: {exit}"),
            // The turn of another task, or of its kernel, has ended it.
            false => format!("[{} {task} exits: {exit}]", self.ledger.comm(task)),
        }
    }

    /// Notes what the turn has done to shared values since the last event.
    fn note_accesses(&mut self) {
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        let (texts, used) = self.tell_accesses(notes::take_shared());
        let texts = texts.into_iter().map(|text| format!(" {text},"));
        turn.row.text.extend(texts);
        turn.row.used.extend(used);
        self.turn = Some(turn);
    }

    /// Notes what the host has done to shared values between turns.
    fn note_host(&mut self) {
        if self.is_full {
            return;
        }
        let (texts, used) = self.tell_accesses(notes::take_shared_by_host());
        if !texts.is_empty() {
            self.tell_apart(&format!("the test {}", texts.join(", ")), used);
        }
    }

    /// Describes accesses to shared values, each of them once: a loop may have thousands. The values
    /// are numbered in the order of their first use.
    fn tell_accesses(&mut self, accesses: Vec<(Made, bool)>) -> (Vec<String>, BTreeSet<Used>) {
        let (mut texts, mut seen) = (Vec::new(), BTreeSet::new());
        for (shared, writes) in accesses {
            let name = notes::name_of_shared(shared);
            let is_mark = name.as_ref().is_some_and(|name| name.is_empty());
            if !is_mark && seen.insert((shared, writes)) {
                let known = self.shared.iter().position(|other| *other == shared);
                let at = known.unwrap_or(self.shared.len());
                if known.is_none() {
                    self.shared.push(shared);
                }
                let verb = if writes { "writes" } else { "reads" };
                let name = name.map_or(String::new(), |name| format!(" {name:?}"));
                texts.push(format!("{verb} shared {}{name}", at + 1));
            }
        }
        let used = seen.into_iter().map(|(shared, _)| Used::Shared(shared));
        (texts, used.collect())
    }

    fn tell_apart(&mut self, text: &str, used: BTreeSet<Used>) {
        self.rows.push(Row {
            text: format!("{:>5}  {text}", ""),
            used,
            ..Row::default()
        });
    }

    fn is_turn_of(&self, task: Tid) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.row.task == Some(task))
    }

    fn end_turn(&mut self) {
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        // A turn without a call ends the task, and may have notes of an earlier place.
        let called = self.called().filter(|_| turn.has_call);
        turn.row.place = called.map_or(Place::None, Place::Called);
        if let Some(continued) = self.footprints.take_continued()
            && let Some(row) = turn.before.and_then(|row| self.rows.get_mut(row))
        {
            row.place = Place::Continued(continued);
        }
        self.rows.push(turn.row);
    }

    fn called(&mut self) -> Option<String> {
        self.footprints.take(&mut self.notes);
        let place = self.notes.iter().rev().find_map(|note| match note {
            Note::Called(place) => Some(crate::Place::from(*place)),
            _ => None,
        })?;
        self.files.extend([file(&place)]);
        Some(place.to_string())
    }

    /// A backtrace has absolute paths of files that are not below the working directory.
    fn shortened(&self, place: &str) -> String {
        let short = self.files.iter().find_map(|(file, path)| {
            let (dir, line) = place.split_once(file.as_str())?;
            let is_whole = dir.is_empty() || dir.ends_with('/');
            (is_whole && line.starts_with(':')).then(|| format!("{path}{line}"))
        });
        short.unwrap_or_else(|| place.to_string())
    }

    /// Notes that a task is preempted. A task that has had no turn since the last time is only
    /// counted.
    fn preempt(&mut self, task: Tid) {
        let at = *self.held.entry(task).or_insert(self.rows.len());
        if let Some(row) = self.rows.get_mut(at) {
            row.preemptions += 1;
            return;
        }
        let (before, place) = match self.calls.get(&task) {
            Some((call, row)) => (format!("after {call}"), Place::Of(*row)),
            None => ("where it begins".into(), Place::None),
        };
        let text = match task.is_kernel() {
            true => format!("{} has to wait", kernel_itself(task)),
            false => format!("{} {task} is preempted {before}", self.ledger.comm(task)),
        };
        self.rows.push(Row {
            text: format!("    !  {text}"),
            place,
            task: Some(task),
            preemptions: 1,
            ..Row::default()
        });
    }

    fn line(&self, row: &Row) -> String {
        let times = match row.preemptions {
            0 | 1 => String::new(),
            times => format!(" ({times} times)"),
        };
        match (&row.place, self.place(&row.place)) {
            (_, place) if place.is_empty() => row.text.clone() + &times,
            (Place::Of(_), place) => format!("{} at {place}{times}", row.text),
            (_, place) => format!("{:<62}  {place}", row.text),
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

/// A kernel whose own turn it is: it looks at what has come, shuts down or ends.
fn kernel_itself(of: Tid) -> String {
    let number = of
        .kernel()
        .map_or(String::new(), |kernel| format!(" {kernel}"));
    format!("kernel{number} itself")
}

/// The file of a place: as the compiler names it, and as it is shown.
fn file(place: &crate::Place) -> (String, String) {
    (place.file.to_string(), place.path().into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Cause, Kernel, KernelId, Policy, Runnable};

    #[test]
    fn a_story_that_is_full_says_so_and_takes_no_more() {
        let (task, value) = (Tid::from(1), (Tid::KERNEL, 1));
        for has_own_turn in [false, true] {
            let mut guide = Guide::default();
            let story = Story::of(&guide);
            if has_own_turn {
                guide.push(Runnable::kernel(KernelId::at(0)), Cause::Woken);
                guide.pop();
            }
            story.0.borrow_mut().rows.resize_with(MOST, Row::default);
            notes::open(&Kernel::simulated(0).remote());
            let mut tracer = story.tracer();
            for _ in 0..2 {
                tracer.event(&Event {
                    at: Duration::ZERO,
                    tid: task,
                    fact: Fact::Resumed,
                    place: None,
                });
                notes::touch_shared(value, true);
            }
            let (text, _) = story.text(false);
            notes::close();
            let told: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            assert_eq!(told, ["         the later turns are not kept"]);
        }
    }
}
