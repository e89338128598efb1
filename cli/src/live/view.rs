//! What the screen shows, apart from drawing it: the state that keys change.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use termina::event::{KeyCode, KeyEvent, Modifiers};
use trapline::{KernelId, Tid};

use super::{
    protocol::Answers,
    query::{CROWD, Query},
    row::{Group, Row},
    sort::Sort,
};
use crate::{output::clean, units::number};

/// The number of snapshots in the history.
const HISTORY: usize = 64;
/// The longest filter, in bytes.
const FILTER: usize = 64;
/// The largest number of rows that are fetched.
const ROWS: usize = 1000;
/// The largest number of names unfolded, and their length in bytes: a request has room for them.
const OPEN: usize = 8;
const NAME: usize = 60;

#[derive(Default)]
pub(crate) struct View {
    pub(crate) snapshot: Answers,
    /// Traps per second of each listed row, the newest last.
    history: BTreeMap<Id, VecDeque<f64>>,
    /// The same for all tasks together.
    pub(super) all: VecDeque<f64>,
    /// What the next snapshot lists.
    pub(crate) query: Query,
    pub(super) mode: Mode,
    /// Whether the details of the selected task are shown.
    pub(super) details: bool,
    /// Whether the programs' output is shown.
    pub(super) console: bool,
    pub(crate) whereabouts: Option<Answers>,
    /// The result of the last command.
    pub(super) notice: String,
    /// Whether the kernel takes long to answer.
    pub(super) is_late: bool,
    /// The tasks to kill.
    pub(super) victims: Vec<Tid>,
    /// The row that the user has chosen, wherever it moves.
    chosen: Option<Id>,
    /// The selected line: the place of the chosen row, or its last place.
    line: usize,
    /// The number of lines that fitted.
    pub(super) page: usize,
    pub(super) colored: bool,
    /// Whether the run is halted, and there are no rates.
    pub(super) is_halted: bool,
}

/// A row, wherever it is: that of a task, or that of a name below a parent of a kernel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    Task(Tid),
    Name(Option<KernelId>, Tid, String),
}

impl Id {
    fn of(row: &Row) -> Self {
        match row.group {
            None => Self::Task(row.tid),
            Some(_) => Self::Name(row.tid.kernel(), row.parent, row.comm.clone()),
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    #[default]
    Look,
    /// The user is typing the filter.
    Filter,
    /// The question whether to kill this task.
    Kill(Tid),
    Help,
}

/// The effect of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// Redraw with the present state.
    Redraw,
    /// Redraw from the first line.
    Repaint,
    /// Fetch a new snapshot.
    Ask,
    Quit,
}

impl View {
    pub(super) fn new(colored: bool) -> Self {
        let query = Query {
            most: Some(ROWS),
            sort: Sort::Share,
            fold: Some(CROWD),
            ..Query::default()
        };
        Self {
            console: true,
            colored,
            query,
            ..Self::default()
        }
    }

    /// A view of a run that a debugger has halted.
    pub(crate) fn halted(colored: bool) -> Self {
        let mut view = Self::new(colored);
        view.is_halted = true;
        view.query.sort = Sort::Tid;
        view
    }

    pub(crate) fn update(&mut self, snapshot: Answers) {
        let mut before = mem::take(&mut self.history);
        for row in &snapshot.tasks {
            let rates = before.remove(&Id::of(row)).unwrap_or_default();
            let rates = self.history.entry(Id::of(row)).or_insert(rates);
            push(rates, row.rate);
        }
        push(&mut self.all, snapshot.totals.rate);
        self.snapshot = snapshot;
    }

    pub(super) fn history(&self, row: &Row) -> &VecDeque<f64> {
        static NONE: VecDeque<f64> = VecDeque::new();
        self.history.get(&Id::of(row)).unwrap_or(&NONE)
    }

    /// The selected line among those listed.
    pub(crate) fn select(&mut self) -> Option<usize> {
        let rows = &self.snapshot.tasks;
        let chosen = self.chosen.as_ref();
        let found = chosen.and_then(|id| rows.iter().position(|row| Id::of(row) == *id));
        self.line = found.unwrap_or(self.line.min(rows.len().saturating_sub(1)));
        if found.is_none() {
            self.chosen = None;
        }
        (!rows.is_empty()).then_some(self.line)
    }

    fn selected(&mut self) -> Option<&Row> {
        let line = self.select()?;
        self.snapshot.tasks.get(line)
    }

    /// The selected task, if the row is no name's.
    pub(crate) fn selected_task(&mut self) -> Option<Tid> {
        let task = self.selected().filter(|row| row.group.is_none());
        task.map(|row| row.tid)
    }

    /// The selected row, if it is a name's.
    pub(super) fn group(&self) -> Option<(&Row, &Group)> {
        let row = self.snapshot.tasks.get(self.line)?;
        Some((row, row.group.as_ref()?))
    }

    /// The task whose details are shown, if any.
    pub(super) fn subject(&mut self) -> Option<Tid> {
        self.selected_task().filter(|_| self.details)
    }

    /// Takes the details of `subject`, unless the user has chosen another row in the meantime.
    pub(super) fn describe(&mut self, subject: Option<Tid>, details: Option<Answers>) {
        if self.subject() == subject {
            self.whereabouts = details;
        }
    }

    pub(crate) fn choose_task(&mut self, tid: Tid) {
        self.chosen = Some(Id::Task(tid));
    }

    /// Chooses the row in that line.
    fn choose(&mut self, line: usize) {
        self.chosen = None;
        self.line = line;
        self.chosen = self.selected().map(Id::of);
    }

    pub(crate) fn press(&mut self, key: KeyEvent) -> Wish {
        if let (KeyCode::Char('c'), true) = (key.code, key.modifiers.contains(Modifiers::CONTROL)) {
            return Wish::Quit;
        }
        match self.mode {
            Mode::Look => self.press_looking(key),
            Mode::Filter => self.press_filtering(key),
            Mode::Help => {
                self.mode = Mode::Look;
                Wish::Redraw
            }
            Mode::Kill(tid) => {
                self.mode = Mode::Look;
                if key.code != KeyCode::Char('y') {
                    return Wish::Redraw;
                }
                self.victims.push(tid);
                Wish::Ask
            }
        }
    }

    fn press_looking(&mut self, key: KeyEvent) -> Wish {
        self.notice.clear();
        // The present line of the chosen task.
        self.select();
        match key.code {
            KeyCode::Char('s') => {
                self.query.tree = false;
                self.query.sort = self.query.sort.next();
            }
            KeyCode::Char('r') => self.query.reversed ^= true,
            KeyCode::Char('t') => self.query.tree ^= true,
            KeyCode::Char('n') => self.query.fold = self.query.fold.xor(Some(CROWD)),
            KeyCode::Enter => {
                self.choose(self.line);
                self.whereabouts = None;
                match self.selected().cloned() {
                    Some(Row { comm, group, .. }) if group.is_some() => self.unfold(comm),
                    _ => self.details ^= true,
                }
            }
            KeyCode::Escape => {
                self.details = false;
                self.query.filter.clear();
            }
            code => {
                return match walked(code, self.line, self.page.max(1)) {
                    Some(line) => self.walk(line),
                    None => self.press_without_asking(key),
                };
            }
        }
        Wish::Ask
    }

    fn press_without_asking(&mut self, key: KeyEvent) -> Wish {
        match key.code {
            KeyCode::Char('l') if key.modifiers.contains(Modifiers::CONTROL) => {
                return Wish::Repaint;
            }
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('c') => self.console ^= true,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('k') => {
                self.choose(self.line);
                match self.selected_task() {
                    Some(tid) => self.mode = Mode::Kill(tid),
                    None if self.snapshot.tasks.is_empty() => {}
                    None => self.notice = "this row is many tasks: enter unfolds it".into(),
                }
            }
            _ => {}
        }
        Wish::Redraw
    }

    /// Unfolds a name, or folds it again.
    fn unfold(&mut self, comm: String) {
        let open = &mut self.query.open;
        if let Some(at) = open.iter().position(|name| *name == comm) {
            open.remove(at);
        } else if comm.len() > NAME {
            self.notice = "the name is too long to unfold: n unfolds all".into();
        } else {
            open.push(comm);
            if open.len() > OPEN {
                open.remove(0);
            }
        }
    }

    fn walk(&mut self, line: usize) -> Wish {
        if line >= self.snapshot.tasks.len()
            && let Some(left_out) = self.snapshot.totals.left_out
        {
            let rows = number(left_out);
            self.notice = format!("{rows} more rows are not listed: filter, or sort otherwise");
        }
        self.choose(line);
        if self.details {
            self.whereabouts = None;
            Wish::Ask
        } else {
            Wish::Redraw
        }
    }

    fn press_filtering(&mut self, key: KeyEvent) -> Wish {
        match key.code {
            KeyCode::Enter => self.mode = Mode::Look,
            KeyCode::Escape => {
                self.query.filter.clear();
                self.mode = Mode::Look;
            }
            KeyCode::Backspace => {
                self.query.filter.pop();
            }
            KeyCode::Char(letter) if self.query.filter.len() < FILTER => {
                self.query.filter.push(letter);
            }
            _ => {}
        }
        Wish::Ask
    }

    /// A task, as the question before a kill names it.
    pub(super) fn name(&self, tid: Tid) -> String {
        let mut tasks = self.snapshot.tasks.iter();
        let found = tasks.find(|row| Id::of(row) == Id::Task(tid));
        let comm = found.map_or_else(String::new, |row| clean(&row.comm));
        format!("{tid} {comm}")
    }
}

/// The line to which a key leads from a line, if it is a key for that.
pub(crate) fn walked(key: KeyCode, line: usize, page: usize) -> Option<usize> {
    Some(match key {
        KeyCode::Up => line.saturating_sub(1),
        KeyCode::Down => line + 1,
        KeyCode::PageUp => line.saturating_sub(page),
        KeyCode::PageDown => line + page,
        KeyCode::Home => 0,
        KeyCode::End => usize::MAX,
        _ => return None,
    })
}

fn push(rates: &mut VecDeque<f64>, rate: Option<f64>) {
    if rates.len() == HISTORY {
        rates.pop_front();
    }
    rates.extend(rate);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::draw;

    fn listing(rows: &[(u64, Option<Group>)]) -> Answers {
        let row = |(tid, group): &(u64, Option<Group>)| Row {
            tid: (*tid).into(),
            group: group.clone(),
            ..Row::default()
        };
        Answers {
            tasks: rows.iter().map(row).collect(),
            ..Answers::default()
        }
    }

    #[test]
    fn details_are_those_of_the_chosen_row() {
        let mut view = View::new(false);
        view.update(listing(&[(1, None), (2, Some(Group::default()))]));
        view.press(KeyEvent::from(KeyCode::Enter));
        let asked = view.subject();
        assert_eq!(asked, Some(1.into()));
        view.describe(asked, Some(Answers::default()));
        assert!(view.whereabouts.is_some());
        view.press(KeyEvent::from(KeyCode::Down));
        view.describe(asked, Some(Answers::default()));
        assert!(view.whereabouts.is_none(), "they come late");
        view.press(KeyEvent::from(KeyCode::Up));
        view.describe(asked, Some(Answers::default()));
        assert!(view.whereabouts.is_some());
        view.update(listing(&[(2, Some(Group::default()))]));
        let asked = view.subject();
        view.describe(asked, None);
        assert!(view.whereabouts.is_none(), "the row is a group now");
    }

    #[test]
    fn rows_that_are_not_listed_are_told_of() {
        let mut view = View::new(false);
        let mut snapshot = listing(&[(1, None), (2, None)]);
        snapshot.totals.left_out = Some(3039);
        view.update(snapshot);
        let heading = draw::counts(&view, 80).to_string();
        assert!(heading.ends_with("  2 of 3,041 rows"), "{heading}");
        let notice = "3,039 more rows are not listed: filter, or sort otherwise";
        let (down, up) = ((KeyCode::Down, notice), (KeyCode::Up, ""));
        for (key, notice) in [(KeyCode::Down, ""), down, up] {
            view.press(KeyEvent::from(key));
            assert_eq!(view.notice, notice);
        }
    }
}
