//! The layout of the screen, at any width.

use std::collections::VecDeque;

use ratatui::{
    Frame,
    layout::{
        Alignment, Constraint,
        Constraint::{Fill, Length, Min, Percentage},
        Layout, Rect,
    },
    style::{Color, Style, Stylize},
    text::{Line, Text},
    widgets::{Block, Borders, Cell, Clear, Paragraph, Row as Cells, Table, TableState, Wrap},
};

use super::{
    protocol::Answers,
    row::{Group, Row, State},
    sort::Sort,
    text,
    view::{Mode, View},
};
use crate::{
    output::{Log, clean},
    table::cut,
    units::{self, number},
};

const HELP: &[(&str, &str)] = &[
    ("up down pgup pgdn home end", "choose a task"),
    ("enter", "its details and last traps; unfold a name"),
    ("k", "kill it"),
    ("s", "sort by another column"),
    ("r", "reverse the order"),
    ("/", "filter by tid, name, state or cause"),
    ("t", "tree of parents"),
    ("n", "fold names of many tasks, or not"),
    ("c", "show or hide the output"),
    ("esc", "no filter, no details"),
    ("^L", "repaint"),
    ("q", "quit"),
];

/// What is said while the kernel takes long to answer.
const LATE: &str = "no answer: does a task run without making a trap?";

/// Draws the screen. `printed` is the programs' recent output.
pub(super) fn draw(frame: &mut Frame, view: &mut View, printed: &[String]) {
    let area = frame.area();
    let head = if area.height >= 6 { 2 } else { 0 };
    let has_console = view.console && !printed.is_empty();
    let [header, body, console, footer] = areas(area, head, has_console);
    frame.render_widget(Paragraph::new(heading(view, header.width)), header);
    let tasks = if view.details {
        let [tasks, details] = halves(body);
        draw_details(frame, view, details);
        tasks
    } else {
        body
    };
    draw_tasks(frame, view, tasks);
    draw_console(frame, printed, console);
    frame.render_widget(Paragraph::new(foot(view, footer.width)), footer);
    if view.mode == Mode::Help {
        draw_help(frame, area);
    }
}

/// The areas of a screen: a header of so many lines, the tasks, what was printed, and a line below.
pub(crate) fn areas(area: Rect, head: u16, has_console: bool) -> [Rect; 4] {
    let console = match area.height {
        height if has_console && height >= 12 + head => (height / 4).clamp(3, 10),
        _ => 0,
    };
    Layout::vertical([Length(head), Min(1), Length(console), Length(1)]).areas(area)
}

/// The areas of the tasks and of a pane beside or below them.
pub(crate) fn halves(body: Rect) -> [Rect; 2] {
    match body.width {
        110.. => Layout::horizontal([Percentage(55), Percentage(45)]).areas(body),
        _ => Layout::vertical([Percentage(50), Percentage(50)]).areas(body),
    }
}

/// The instant, and how many tasks are in which state, as far as there is room.
pub(crate) fn counts(view: &View, width: u16) -> Line<'static> {
    let totals = &view.snapshot.totals;
    let count = |n: usize, what: &str, end: &str| {
        let end = if n == 1 { "" } else { end };
        format!("{} {what}{end}", number(n))
    };
    let mut parts = vec![
        count(totals.tasks, "task", "s"),
        count(totals.ready, "ready", ""),
        count(totals.blocked, "blocked", ""),
    ];
    if totals.zombies > 0 {
        parts.push(count(totals.zombies, "zombie", "s"));
    }
    if let Some(left_out) = totals.left_out {
        let rows = view.snapshot.tasks.len();
        let all = rows + left_out;
        parts.push(format!("{} of {} rows", number(rows), number(all)));
    }
    let at = text::instant(totals.at);
    let rest = hints(at.clone(), &parts, width).split_off(at.len());
    Line::from(vec![at.bold(), rest.into()])
}

fn heading(view: &View, width: u16) -> Text<'static> {
    let totals = &view.snapshot.totals;
    let mut second = format!("{} traps/s", rate(totals.rate));
    if totals.idle.is_some() {
        second += &format!("  idle {}", percent(totals.idle));
    }
    if totals.watching.is_some_and(|share| share >= 0.001) {
        second += &format!("  top {}", percent(totals.watching));
    }
    second += "  ";
    let room = usize::from(width).saturating_sub(second.len());
    second += &sparks(&view.all, room.min(64));
    Text::from(vec![counts(view, width), Line::from(second)])
}

pub(super) fn foot(view: &View, width: u16) -> Line<'static> {
    let query = &view.query;
    match view.mode {
        Mode::Filter => {
            let matching = matching(view);
            return Line::from(format!("filter: {}_{matching}  (enter, esc)", query.filter));
        }
        Mode::Kill(tid) => {
            return Line::from(format!("kill task {}? y/n", view.name(tid)).reversed());
        }
        Mode::Look | Mode::Help if view.is_late => return Line::from(LATE.reversed()),
        Mode::Look | Mode::Help if !view.notice.is_empty() => {
            return Line::from(clean(&view.notice).reversed());
        }
        Mode::Look | Mode::Help => {}
    }
    if let Some(kernel) = view.snapshot.silent.first() {
        let silent = format!("kernel {kernel} does not answer: {}", text::SPINS);
        return Line::from(silent.reversed());
    }
    let mut words = vec!["q quit".to_string(), "? help".to_string()];
    if !query.filter.is_empty() {
        words.insert(0, format!("filter {:?}{}", query.filter, matching(view)));
    }
    let back = if query.reversed { " reversed" } else { "" };
    words.push(match query.tree {
        true => "tree".to_string(),
        false => format!("s sort: {}{back}", query.sort.name()),
    });
    let more = ["enter details", "k kill", "/ filter", "t tree"];
    Line::from(hints(words.join("  "), &more, width))
}

/// A line of hints. Those for which there is no room are left out.
pub(crate) fn hints(mut line: String, more: &[impl AsRef<str>], width: u16) -> String {
    for hint in more.iter().map(AsRef::as_ref) {
        if line.chars().count() + 2 + hint.len() <= usize::from(width) {
            line += &format!("  {hint}");
        }
    }
    line
}

/// How many tasks the filter lets through.
fn matching(view: &View) -> String {
    let tasks = number(view.snapshot.totals.tasks);
    let matching = view.snapshot.totals.matching.map(number);
    matching.map_or_else(String::new, |matching| {
        format!("  {matching} of {tasks} match")
    })
}

/// The columns that a halted run has nothing for.
const OF_A_RUN: [&str; 3] = ["traps/s", "time", "history"];

/// A column of the table: the least width of a table that has room for it, its title, its width,
/// the order by it, and its cells in a column of so many letters.
struct Column(
    u16,
    &'static str,
    Constraint,
    Option<Sort>,
    fn(&View, &Row, usize) -> Cell<'static>,
);

const COLUMNS: [Column; 9] = [
    Column(0, "tid", Length(6), Some(Sort::Tid), |_, row, _| {
        right(match (&row.group, row.tid.kernel()) {
            (None, _) => row.tid.to_string(),
            (Some(_), Some(kernel)) => format!("{kernel}:"),
            (Some(_), None) => String::new(),
        })
    }),
    Column(0, "task", Fill(2), Some(Sort::Name), |_, row, width| {
        Cell::from(cut(&(clean(&row.branch) + &text::name(row)), width))
    }),
    // The name goes last: without it, a row says nothing.
    Column(24, "state", Length(7), Some(Sort::State), state),
    Column(64, "blocked on", Fill(3), None, |_, row, width| {
        Cell::from(cut(&text::cause(row), width))
    }),
    Column(84, "since", Length(9), Some(Sort::Since), |_, row, _| {
        right(text::since(row))
    }),
    Column(100, "traps", Length(11), Some(Sort::Traps), |_, row, _| {
        right(number(row.traps))
    }),
    Column(48, "traps/s", Length(9), Some(Sort::Rate), |_, row, _| {
        right(rate(row.rate))
    }),
    Column(32, "time", Length(6), Some(Sort::Share), |_, row, _| {
        right(percent(row.share))
    }),
    Column(90, "history", Length(12), None, |view, row, _| {
        Cell::from(sparks(view.history(row), 12))
    }),
];

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).alignment(Alignment::Right))
}

fn state(view: &View, row: &Row, width: usize) -> Cell<'static> {
    if let Some(group) = &row.group {
        // The column with the others may have no room.
        return Cell::from(cut(&clean(group.most()), width));
    }
    let name = row.state.name();
    Cell::from(match row.state {
        State::Ready | State::Running | State::InCall if view.colored => name.fg(Color::Green),
        State::Zombie if view.colored => name.fg(Color::Red),
        _ => name.into(),
    })
}

pub(crate) fn draw_tasks(frame: &mut Frame, view: &mut View, area: Rect) {
    view.page = usize::from(area.height.saturating_sub(1));
    let selected = view.select();
    let has_room = |Column(least, title, ..): &&Column| {
        area.width >= *least && !(view.is_halted && OF_A_RUN.contains(title))
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(has_room).collect();
    let titles = columns.iter().map(|Column(_, title, _, sort, _)| {
        let has_numbers = ["tid", "since", "traps", "traps/s", "time"].contains(title);
        let title = match !view.query.tree && *sort == Some(view.query.sort) {
            true => title.bold().underlined(),
            false => title.bold(),
        };
        match has_numbers {
            true => Cell::from(Text::from(title).alignment(Alignment::Right)),
            false => Cell::from(title),
        }
    });
    // Only the visible lines are made, since there may be many.
    let rows = &view.snapshot.tasks;
    let page = view.page.max(1);
    let line = selected.unwrap_or(0);
    let first = line
        .saturating_sub(page / 2)
        .min(rows.len().saturating_sub(page));
    let view = &*view;
    let widths = columns.iter().map(|Column(_, _, width, ..)| *width);
    let areas = Layout::horizontal(widths).spacing(1).split(area);
    let cells = |row| {
        let columns = columns.iter().zip(areas.iter());
        columns.map(move |(Column(.., cell), area)| cell(view, row, area.width.into()))
    };
    let seen = rows.iter().skip(first).take(page);
    let seen = seen.map(|row| Cells::new(cells(row)));
    let table = Table::new(seen, areas.iter().map(|area| Length(area.width)))
        .header(Cells::new(titles))
        .column_spacing(1)
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(selected.map(|line| line - first));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Draws a pane's border and title, and returns the area within.
pub(crate) fn pane(frame: &mut Frame, area: Rect, title: &str) -> Rect {
    let borders = match area.width < frame.area().width {
        true => Borders::LEFT,
        false => Borders::TOP,
    };
    let block = Block::new().borders(borders).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

pub(crate) fn draw_details(frame: &mut Frame, view: &View, area: Rect) {
    let inner = pane(frame, area, "details");
    let lines = match &view.whereabouts {
        None => match view.group() {
            Some((row, group)) => group_lines(row, group),
            None => vec!["...".to_string()],
        },
        Some(Answers { tasks, traps, .. }) => {
            let mut lines = text::where_lines(tasks, view.snapshot.totals.at);
            lines.push(match traps.len() {
                0 => "no traps are kept of it".to_string(),
                _ => "its last traps:".to_string(),
            });
            let traps = traps.iter().map(|trap| text::event(Log::PLAIN, trap));
            // The header names the task and the instant. The newest calls come first, as far as
            // there is room.
            lines.extend(traps.rev());
            lines
        }
    };
    let lines: Vec<Line> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), inner);
}

/// What the tasks of a name do.
fn group_lines(row: &Row, group: &Group) -> Vec<String> {
    let mut lines = vec![text::name(row)];
    let kinds = group.sorted().into_iter();
    lines.extend(kinds.map(|(kind, count)| format!("  {} {}", number(*count), clean(kind))));
    lines.push("enter shows or hides a row for each".to_string());
    lines
}

pub(crate) fn draw_console(frame: &mut Frame, printed: &[String], area: Rect) {
    if area.height == 0 {
        return;
    }
    let inner = pane(frame, area, "printed");
    let from = printed.len().saturating_sub(inner.height.into());
    let plain = |line: &String| {
        let line = clean(&anstream::adapter::strip_str(line).to_string());
        cut(&line, inner.width.into()).into()
    };
    let lines: Vec<Line> = printed[from..].iter().map(plain).collect();
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_help(frame: &mut Frame, area: Rect) {
    let line = |(key, what): &(&str, &str)| match area.width {
        ..60 => Line::from(format!("{}: {what}", key.split(' ').next().unwrap_or(key))),
        _ => Line::from(format!("{key:<28} {what}")),
    };
    let lines: Vec<Line> = HELP.iter().map(line).collect();
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 2;
    let height = lines.len() as u16 + 2;
    let popup = area.centered(
        Length(width.min(area.width)),
        Length(height.min(area.height)),
    );
    frame.render_widget(Clear, popup);
    let block = Block::bordered().title("keys");
    frame.render_widget(Paragraph::new(lines).block(block), popup);
}

/// A number in few characters.
fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_string(), |rate| number(rate.round()))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_string(), |share| units::percent(share, 1.0))
}

/// The newest numbers as bars, scaled to the largest.
fn sparks(numbers: &VecDeque<f64>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let from = numbers.len().saturating_sub(width);
    let most = numbers.iter().skip(from).copied().fold(0.0, f64::max);
    // With a largest value of zero every bar is empty.
    let bar = |number: &f64| BARS[((number / most.max(1e-9) * 7.0).round() as usize).min(7)];
    numbers.iter().skip(from).map(bar).collect()
}
