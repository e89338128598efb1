//! What the screen shows, apart from drawing it: the state that keys change.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    model::{Row, Snapshot, Whereabouts},
    text,
};
use crate::cli::output::clean;

/// The number of snapshots in the history.
const HISTORY: usize = 64;
/// The longest filter, in characters.
const FILTER: usize = 64;

#[derive(Default)]
pub(in crate::cli) struct View {
    pub(in crate::cli) snapshot: Snapshot,
    /// Traps per second of each listed task, the newest last.
    history: BTreeMap<u64, VecDeque<f64>>,
    /// The same for all tasks together.
    pub(super) all: VecDeque<f64>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) tree: bool,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// Whether the details of the selected task are shown.
    pub(super) details: bool,
    /// Whether the programs' output is shown.
    pub(super) console: bool,
    pub(in crate::cli) whereabouts: Option<Whereabouts>,
    /// The result of the last command.
    pub(super) notice: String,
    /// The tasks to kill.
    pub(super) victims: Vec<u64>,
    /// The task that the user has chosen, wherever it moves.
    chosen: Option<u64>,
    /// The selected line: the place of the chosen task, or its last place.
    line: usize,
    /// The number of lines that fitted.
    pub(super) page: usize,
    pub(super) colored: bool,
    /// Whether the run is halted, and there are no rates.
    pub(super) is_halted: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    #[default]
    Share,
    Rate,
    Tid,
    Name,
    State,
    Since,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    #[default]
    Look,
    /// The user is typing the filter.
    Filter,
    /// The question whether to kill this task.
    Kill(u64),
    Help,
}

/// The effect of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cli) enum Wish {
    /// Redraw with the present state.
    Redraw,
    /// Redraw from the first line.
    Repaint,
    /// Fetch a new snapshot.
    Ask,
    Quit,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Share => "time",
            Self::Rate => "traps/s",
            Self::Tid => "tid",
            Self::Name => "name",
            Self::State => "state",
            Self::Since => "since",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Share => Self::Rate,
            Self::Rate => Self::Tid,
            Self::Tid => Self::Name,
            Self::Name => Self::State,
            Self::State => Self::Since,
            Self::Since => Self::Share,
        }
    }

    /// The busiest first.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let rate = || b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0));
        let first = match self {
            Self::Share => {
                let share = b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0));
                share.then_with(rate)
            }
            Self::Rate => rate(),
            Self::Tid => Ordering::Equal,
            Self::Name => a.comm.cmp(&b.comm),
            Self::State => a.state.cmp(&b.state),
            Self::Since => {
                let since = |row: &Row| row.since.unwrap_or(f64::INFINITY);
                since(a).total_cmp(&since(b))
            }
        };
        first.then(a.tid.cmp(&b.tid))
    }
}

impl View {
    pub(super) fn new(colored: bool) -> Self {
        Self {
            console: true,
            colored,
            ..Self::default()
        }
    }

    /// A view of a run that a debugger has halted.
    pub(in crate::cli) fn halted(colored: bool) -> Self {
        Self {
            sort: Sort::Tid,
            is_halted: true,
            ..Self::new(colored)
        }
    }

    /// Takes a new snapshot.
    pub(in crate::cli) fn update(&mut self, snapshot: Snapshot) {
        let mut history = std::mem::take(&mut self.history);
        for row in &snapshot.tasks {
            let mut rates = history.remove(&row.tid).unwrap_or_default();
            push(&mut rates, row.rate);
            self.history.insert(row.tid, rates);
        }
        push(&mut self.all, snapshot.totals.rate);
        self.snapshot = snapshot;
    }

    pub(super) fn history(&self, tid: u64) -> &VecDeque<f64> {
        static NONE: VecDeque<f64> = VecDeque::new();
        self.history.get(&tid).unwrap_or(&NONE)
    }

    /// The listed tasks, in order, with the branch before each.
    pub(super) fn rows(&self) -> Vec<(&Row, String)> {
        let mut rows: Vec<&Row> = self
            .snapshot
            .tasks
            .iter()
            .filter(|row| row.lets_through(&self.filter))
            .collect();
        if self.tree {
            return text::branches(&rows);
        }
        rows.sort_by(|a, b| self.sort.compare(a, b));
        if self.reversed {
            rows.reverse();
        }
        rows.into_iter().map(|row| (row, String::new())).collect()
    }

    /// The selected line among those listed, with its task.
    pub(in crate::cli) fn select(&mut self) -> Option<(usize, u64)> {
        let rows = self.rows();
        let tids: Vec<u64> = rows.iter().map(|(row, _)| row.tid).collect();
        let chosen = self.chosen;
        let found = chosen.and_then(|tid| tids.iter().position(|other| *other == tid));
        self.line = found.unwrap_or(self.line.min(tids.len().saturating_sub(1)));
        self.chosen = found.and(self.chosen);
        tids.get(self.line).map(|tid| (self.line, *tid))
    }

    /// The task whose details are shown, if any.
    pub(super) fn subject(&mut self) -> Option<u64> {
        let selected = self.select().filter(|_| self.details);
        selected.map(|(_, tid)| tid)
    }

    /// Chooses a task.
    pub(in crate::cli) fn choose_task(&mut self, tid: u64) {
        self.chosen = Some(tid);
    }

    /// Chooses the task in that line.
    fn choose(&mut self, line: usize) -> Option<u64> {
        self.chosen = None;
        self.line = line;
        self.chosen = self.select().map(|(_, tid)| tid);
        self.chosen
    }

    pub(in crate::cli) fn press(&mut self, key: KeyEvent) -> Wish {
        if let (KeyCode::Char('c'), true) =
            (key.code, key.modifiers.contains(KeyModifiers::CONTROL))
        {
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
        let page = self.page.max(1);
        match key.code {
            KeyCode::Char('l') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Wish::Repaint;
            }
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('s') => {
                self.tree = false;
                self.sort = self.sort.next();
            }
            KeyCode::Char('r') => self.reversed ^= true,
            KeyCode::Char('t') => self.tree ^= true,
            KeyCode::Char('c') => self.console ^= true,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('k') => {
                if let Some(tid) = self.choose(self.line) {
                    self.mode = Mode::Kill(tid);
                }
            }
            KeyCode::Enter => {
                self.details ^= true;
                self.choose(self.line);
                self.whereabouts = None;
                return Wish::Ask;
            }
            KeyCode::Esc => {
                self.details = false;
                self.filter.clear();
            }
            KeyCode::Up => return self.walk(self.line.saturating_sub(1)),
            KeyCode::Down => return self.walk(self.line + 1),
            KeyCode::PageUp => return self.walk(self.line.saturating_sub(page)),
            KeyCode::PageDown => return self.walk(self.line + page),
            KeyCode::Home => return self.walk(0),
            KeyCode::End => return self.walk(usize::MAX),
            _ => {}
        }
        Wish::Redraw
    }

    fn walk(&mut self, line: usize) -> Wish {
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
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Look;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.len() < FILTER => self.filter.push(letter),
            _ => {}
        }
        Wish::Redraw
    }

    /// A task, as the question before a kill names it.
    pub(super) fn name(&self, tid: u64) -> String {
        let mut tasks = self.snapshot.tasks.iter();
        let found = tasks.find(|row| row.tid == tid);
        let comm = found.map_or_else(String::new, |row| clean(&row.comm));
        format!("{tid} {comm}")
    }
}

fn push(rates: &mut VecDeque<f64>, rate: Option<f64>) {
    if rates.len() == HISTORY {
        rates.pop_front();
    }
    rates.extend(rate);
}
