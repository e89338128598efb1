//! The tables, trees and lines that show the tasks of a kernel.

use std::time::Duration;

use serde_json::{Map, Value};
use tracing::Level;
use trapline::{Nanos, Tid};

use super::{
    protocol::Answers,
    row::{Row, State},
};
use crate::{
    output::{Log, clean},
    table::table,
    units::{count, lasting, number},
};

/// The largest number of tasks in a table. A row takes kilobytes until it is shown.
pub(super) const ROWS: usize = 10_000;

/// A table of the tasks, and how many match. `more` says how to see those that it has no room for.
pub(crate) fn ps(all: &Answers, more: &str) -> String {
    let columns = [
        "tid",
        "task",
        "parent",
        "state",
        "blocked on",
        "since",
        "traps",
    ];
    let rows: Vec<_> = all.tasks.iter().take(ROWS).map(ps_row).collect();
    let mut text = format!("{}\n", table(columns, &rows));
    let left = all.tasks.len() - rows.len();
    if left > 0 {
        text += &format!("and {left} more tasks{more}\n");
    }
    text + &counted(all)
}

/// The tasks as a tree of parents, and how many match.
pub(crate) fn tree(all: &Answers) -> String {
    let line = |row: &Row| {
        let (branch, doing) = (clean(&row.branch), doing(row));
        match row.group {
            Some(_) => format!("{branch}{}: {doing}\n", name(row)),
            None => format!("{branch}{} {}: {doing}\n", row.tid, name(row)),
        }
    };
    all.tasks.iter().map(line).collect::<String>() + &counted(all)
}

/// What of a listing is not shown.
fn counted(all: &Answers) -> String {
    let (mut text, totals) = (String::new(), &all.totals);
    if let Some(rows) = totals.left_out {
        let are = if rows == 1 { "row" } else { "rows" };
        text += &format!("and {} more {are}\n", number(rows));
    }
    if let Some(matching) = totals.matching {
        let (matching, tasks) = (number(matching), number(totals.tasks));
        text += &format!("{matching} of {tasks} match\n");
    }
    text + &silent(all)
}

/// The kernels of which nothing is listed.
fn silent(all: &Answers) -> String {
    let line = |kernel: &u64| format!("kernel {kernel} does not answer: {SPINS}\n");
    all.silent.iter().map(line).collect()
}

/// Why a kernel is late with its answer, most likely.
pub(super) const SPINS: &str = "does a task run without making a trap?";

/// The name of a task, or that of many with their number.
pub(super) fn name(row: &Row) -> String {
    let comm = clean(&row.comm);
    match (&row.group, row.daemon, &row.limits) {
        (Some(group), ..) => format!("{comm} x{}", group.tasks),
        (None, false, None) => comm,
        (None, true, None) => format!("{comm} (daemon)"),
        (None, false, Some(_)) => format!("{comm} (limited)"),
        (None, true, Some(_)) => format!("{comm} (daemon, limited)"),
    }
}

/// What a task waits for, or how it ended; what the tasks of a name do.
pub(super) fn cause(row: &Row) -> String {
    match (&row.group, &row.exit, &row.blocked_on) {
        (Some(group), ..) => clean(&group.to_string()),
        (None, Some(text), _) | (None, None, Some(text)) => clean(text),
        (None, None, None) => String::new(),
    }
}

/// Formats a line as `--trace` does.
pub(crate) fn event(log: Log, line: &Map<String, Value>) -> String {
    let target = line.get("target").and_then(Value::as_str);
    log.line(target.unwrap_or("trapline::kernel"), Level::TRACE, line)
}

fn ps_row(row: &Row) -> [Value; 7] {
    let of_one = |value: Value| match row.group {
        Some(_) => Value::Null,
        None => value,
    };
    let parent = match &row.group {
        Some(group) if group.has_parents => "-".into(),
        _ => number_of(row.parent),
    };
    [
        match (&row.group, row.tid.kernel()) {
            (Some(_), Some(kernel)) => format!("{kernel}:").into(),
            _ => of_one(number_of(row.tid)),
        },
        format!("{}{}", clean(&row.branch), name(row)).into(),
        parent,
        of_one(row.state.name().into()),
        cause(row).into(),
        since(row).into(),
        row.traps.into(),
    ]
}

/// The number of a task in a table or in JSON; a text such as `2:17` where several kernels are shown.
pub(crate) fn number_of(tid: Tid) -> Value {
    match tid.kernel() {
        Some(_) => tid.to_string().into(),
        None => u64::from(tid).into(),
    }
}

/// The blocked tasks and their places, as reports show them: so many at most, and their cycles.
pub(crate) fn waits(all: &Answers, most: usize) -> String {
    let mut text = String::new();
    for row in all.tasks.iter().take(most) {
        text += &format!("task {} {:?} {}\n", row.tid, row.comm, doing(row));
        text.extend(
            row.places
                .iter()
                .map(|places| format!("  {}\n", clean(places))),
        );
    }
    let more = all.tasks.len().saturating_sub(most);
    if more > 0 {
        text += &format!("and {more} more tasks: --json lists all\n");
    }
    for ring in &all.cycles {
        let ring = ring.iter().chain(ring.first());
        text += &format!("cycle: {}\n", arrows(ring));
    }
    for path in &all.behind {
        text += &format!("waits on a cycle: {}\n", arrows(path));
    }
    text + &silent(all)
}

fn arrows<'a>(tids: impl IntoIterator<Item = &'a Tid>) -> String {
    let tids: Vec<String> = tids.into_iter().map(ToString::to_string).collect();
    tids.join(" -> ")
}

/// Formats an instant as reports do.
pub(crate) fn instant(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Nanos::from(span).to_string()
}

/// Since when a task is blocked, if it is.
pub(super) fn since(row: &Row) -> String {
    row.since.map_or_else(String::new, instant)
}

/// The state of a task, in words.
fn doing(row: &Row) -> String {
    if row.group.is_some() {
        return cause(row);
    }
    match (row.state, &row.blocked_on, &row.exit) {
        (State::Blocked, Some(on), _) => {
            format!("waits for {}, since {}", clean(on), since(row))
        }
        (State::InCall, Some(call), _) => format!("in {}", clean(call)),
        (State::Zombie, _, Some(exit)) => format!("a zombie: {}", clean(exit)),
        (state, ..) => state.name().to_string(),
    }
}

/// Splits a chain of waits before its last row, if that repeats an earlier one. Then the second part
/// is the cycle, from the first row of that task.
fn split_ring(chain: &[Row]) -> (&[Row], Option<&[Row]>) {
    let ring = chain.split_last().and_then(|(last, before)| {
        let first = before.iter().position(|row| row.tid == last.tid)?;
        Some((before, Some(&before[first..])))
    });
    ring.unwrap_or((chain, None))
}

/// The output of `where`, except the last traps.
pub(crate) fn where_lines(chain: &[Row], now: f64) -> Vec<String> {
    let (waits, _) = split_ring(chain);
    let mut lines = Vec::new();
    for (at, row) in chain.iter().enumerate() {
        let indent = "  ".repeat(at.min(8));
        let name = format!("{indent}task {} {:?}", row.tid, row.comm);
        if at == waits.len() {
            lines.push(format!("{name}, again: a cycle"));
            break;
        }
        let parent = match row.parent {
            Tid::KERNEL => String::new(),
            parent => format!(", parent {parent}"),
        };
        let span = row.since.map_or_else(String::new, |since| {
            format!(" (for {})", lasting(now - since))
        });
        let (doing, traps) = (doing(row), count(row.traps, "trap"));
        lines.push(format!("{name} {doing}{span}{parent}, {traps}"));
        let is_last = at + 1 == chain.len();
        let texts = row
            .places
            .iter()
            .chain(row.link.as_ref().filter(|_| !is_last));
        lines.extend(texts.map(|text| format!("{indent}  {}", clean(text))));
    }
    lines
}

/// The chain of waits in sentences.
pub(super) fn why_lines(chain: &[Row], now: f64) -> String {
    let (waits, ring) = split_ring(chain);
    let mut text = String::new();
    for row in waits {
        let (tid, comm) = (row.tid, clean(&row.comm));
        text += &match (row.state, &row.blocked_on, row.since) {
            (State::Blocked, Some(on), Some(since)) => {
                let (span, on) = (lasting(now - since), clean(on));
                let place = row.places.as_ref().map(|at| format!(" ({})", clean(at)));
                let place = place.unwrap_or_default();
                format!("{tid} {comm:?} has waited {span} for {on}{place}.\n")
            }
            (state, ..) => format!("{tid} {comm:?} is {}.\n", state.name()),
        };
        text.extend(row.link.iter().map(|link| clean(link) + "\n"));
    }
    if let Some(ring) = ring {
        let tids = ring.iter().chain(ring.first()).map(|row| &row.tid);
        text += &format!("So they wait for one another: {}.\n", arrows(tids));
    }
    text
}
