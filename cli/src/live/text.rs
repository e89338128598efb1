//! The tables, trees and lines that show the tasks of a kernel.

use std::time::Duration;

use serde_json::{Map, Value};
use tracing::Level;
use trapline::Nanos;

use super::row::{Row, State, Totals};
use crate::{
    output::{Log, clean},
    table::table,
    units::separated,
};

/// The largest number of tasks in a table. A row takes kilobytes until it is shown.
pub(super) const ROWS: usize = 10_000;

/// A table of the tasks, and how many match. `all` says how to see those that it has no room for.
pub(crate) fn ps(tasks: &[Row], totals: &Totals, all: &str) -> String {
    let columns = [
        "tid",
        "task",
        "parent",
        "state",
        "blocked on",
        "since",
        "traps",
    ];
    let rows: Vec<_> = tasks.iter().take(ROWS).map(ps_row).collect();
    let mut text = format!("{}\n", table(columns, &rows));
    let more = tasks.len() - rows.len();
    if more > 0 {
        text += &format!("and {more} more tasks{all}\n");
    }
    text + &counted(totals)
}

/// The tasks as a tree of parents, and how many match.
pub(crate) fn tree(tasks: &[Row], totals: &Totals) -> String {
    let line = |row: &Row| {
        let (branch, doing) = (clean(&row.branch), doing(row));
        match row.group {
            Some(_) => format!("{branch}{}: {doing}\n", name(row)),
            None => format!("{branch}{} {}: {doing}\n", row.tid, name(row)),
        }
    };
    tasks.iter().map(line).collect::<String>() + &counted(totals)
}

/// What of a listing is not shown.
fn counted(totals: &Totals) -> String {
    let left_out = totals
        .left_out
        .map(|rows| format!("and {} more rows\n", separated(rows)));
    let matching = totals.matching.map(|matching| {
        let (matching, tasks) = (separated(matching), separated(totals.tasks));
        format!("{matching} of {tasks} match\n")
    });
    left_out.unwrap_or_default() + &matching.unwrap_or_default()
}

/// The name of a task, or that of many with their number.
pub(super) fn name(row: &Row) -> String {
    let comm = clean(&row.comm);
    match &row.group {
        Some(group) => format!("{comm} x{}", group.tasks),
        None => comm,
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

/// A cycle of tasks that wait for one another.
pub(crate) fn cycle(tids: &[u64]) -> String {
    let first = tids.first().copied();
    let ring: Vec<u64> = tids.iter().copied().chain(first).collect();
    format!("cycle: {}\n", arrows(&ring))
}

/// Tasks that wait for a task on a cycle.
pub(crate) fn behind(tids: &[u64]) -> String {
    format!("waits on a cycle: {}\n", arrows(tids))
}

fn arrows(tids: &[u64]) -> String {
    let tids: Vec<String> = tids.iter().map(ToString::to_string).collect();
    tids.join(" -> ")
}

/// Formats a line as `--trace` does.
pub(crate) fn event(log: Log, line: &Map<String, Value>) -> String {
    let target = line.get("target").and_then(Value::as_str);
    log.line(target.unwrap_or("trapline::kernel"), Level::TRACE, line)
}

fn ps_row(row: &Row) -> [Value; 7] {
    let since = row.since.map_or_else(String::new, instant);
    let of_one = |value: Value| {
        if row.group.is_some() {
            Value::Null
        } else {
            value
        }
    };
    let parent = match &row.group {
        Some(group) if group.has_parents => "-".into(),
        _ => row.parent.into(),
    };
    [
        of_one(row.tid.into()),
        format!("{}{}", clean(&row.branch), name(row)).into(),
        parent,
        of_one(row.state.name().into()),
        cause(row).into(),
        since.into(),
        row.traps.into(),
    ]
}

/// A blocked task and its places, as reports show them.
pub(crate) fn waits_line(row: &Row) -> String {
    let line = format!("task {} {:?} {}\n", row.tid, row.comm, doing(row));
    let places = row
        .places
        .iter()
        .map(|places| format!("  {}\n", clean(places)));
    line + &places.collect::<String>()
}

/// Formats an instant as reports do.
pub(crate) fn instant(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Nanos::from(span).to_string()
}

/// The state of a task, in words.
fn doing(row: &Row) -> String {
    if row.group.is_some() {
        return cause(row);
    }
    match (row.state, &row.blocked_on, &row.exit) {
        (State::Blocked, Some(on), _) => {
            let since = row.since.map_or_else(String::new, instant);
            format!("waits for {}, since {since}", clean(on))
        }
        (State::InCall, Some(call), _) => format!("in {}", clean(call)),
        (State::Zombie, _, Some(exit)) => format!("a zombie: {}", clean(exit)),
        (state, ..) => state.name().to_string(),
    }
}

/// The output of `where`, except the last traps.
pub(crate) fn where_lines(chain: &[Row], now: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, row) in chain.iter().enumerate() {
        let name = format!("task {} {:?}", row.tid, row.comm);
        let parent = match row.parent {
            0 => String::new(),
            parent => format!(", parent {parent}"),
        };
        let span = row.since.map_or_else(String::new, |since| {
            format!(" (for {:.3} s)", (now - since).max(0.0))
        });
        let (indent, doing, traps) = ("  ".repeat(at.min(8)), doing(row), row.traps);
        // A cycle ends here.
        let is_last = at + 1 == chain.len();
        if is_last && chain[..at].iter().any(|other| other.tid == row.tid) {
            lines.push(format!("{indent}{name}, again: a cycle"));
        } else {
            lines.push(format!(
                "{indent}{name} {doing}{span}{parent}, {traps} traps"
            ));
            lines.extend(
                row.places
                    .iter()
                    .chain(row.link.as_ref().filter(|_| !is_last))
                    .map(|text| format!("{indent}  {}", clean(text))),
            );
        }
    }
    lines
}

/// The chain of waits in sentences. In a cycle, the last row repeats an earlier one.
pub(super) fn why_lines(chain: &[Row], now: f64) -> String {
    let again = chain.split_last().and_then(|(last, before)| {
        let first = before.iter().position(|row| row.tid == last.tid)?;
        Some(&before[first..])
    });
    let waits = match again {
        Some(_) => &chain[..chain.len() - 1],
        None => chain,
    };
    let mut text = String::new();
    for row in waits {
        let place = row
            .places
            .as_ref()
            .map_or_else(String::new, |at| format!(" ({})", clean(at)));
        let (tid, comm) = (row.tid, clean(&row.comm));
        text += &match (row.state, &row.blocked_on, row.since) {
            (State::Blocked, Some(on), Some(since)) => {
                let span = (now - since).max(0.0);
                format!(
                    "{tid} {comm:?} has waited {span:.3} s for {}{place}.\n",
                    clean(on)
                )
            }
            (state, ..) => format!("{tid} {comm:?} is {}.\n", state.name()),
        };
        text.extend(row.link.iter().map(|link| clean(link) + "\n"));
    }
    if let Some(ring) = again {
        let tids = ring.iter().chain(ring.first());
        let tids: Vec<String> = tids.map(|row| row.tid.to_string()).collect();
        text += &format!("So they wait for one another: {}.\n", tids.join(" -> "));
    }
    text
}
