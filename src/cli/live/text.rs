//! The tables, trees and lines that show the tasks of a kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Map, Value};
use tracing::Level;

use super::model::{Row, State};
use crate::{
    Nanos,
    cli::{
        output::{Log, clean},
        table::table,
    },
};

/// The largest number of tasks in a table. A row takes kilobytes until it is shown.
pub(super) const ROWS: usize = 10_000;

/// A table of the tasks. `all` says how to see those that it has no room for.
pub(in crate::cli) fn ps(tasks: &[Row], all: &str) -> String {
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
    text
}

/// The tasks as a tree of parents. The input is sorted by tid.
pub(in crate::cli) fn tree(tasks: &[Row]) -> String {
    let mut text = String::new();
    for (row, branch) in branches(&tasks.iter().collect::<Vec<_>>()) {
        let (comm, doing) = (clean(&row.comm), doing(row));
        text += &format!("{branch}{} {comm}: {doing}\n", row.tid);
    }
    text
}

/// A cycle of tasks that wait for one another.
pub(in crate::cli) fn cycle(tids: &[u64]) -> String {
    let first = tids.first().copied();
    let ring: Vec<u64> = tids.iter().copied().chain(first).collect();
    format!("cycle: {}\n", arrows(&ring))
}

/// Tasks that wait for a task on a cycle.
pub(in crate::cli) fn behind(tids: &[u64]) -> String {
    format!("waits on a cycle: {}\n", arrows(tids))
}

fn arrows(tids: &[u64]) -> String {
    let tids: Vec<String> = tids.iter().map(ToString::to_string).collect();
    tids.join(" -> ")
}

/// Formats a line as `--trace` does.
pub(in crate::cli) fn event(log: Log, line: &Map<String, Value>) -> String {
    let target = line.get("target").and_then(Value::as_str);
    log.line(target.unwrap_or("trapline::kernel"), Level::TRACE, line)
}

fn ps_row(row: &Row) -> [Value; 7] {
    let since = row.since.map_or_else(String::new, instant);
    let on = match &row.exit {
        Some(exit) => clean(exit),
        None => clean(row.blocked_on.as_deref().unwrap_or_default()),
    };
    [
        row.tid.into(),
        clean(&row.comm).into(),
        row.parent.into(),
        row.state.name().into(),
        on.into(),
        since.into(),
        row.traps.into(),
    ]
}

/// A blocked task and its places, as reports show them.
pub(in crate::cli) fn waits_line(row: &Row) -> String {
    let line = format!("task {} {:?} {}\n", row.tid, row.comm, doing(row));
    let places = row
        .places
        .iter()
        .map(|places| format!("  {}\n", clean(places)));
    line + &places.collect::<String>()
}

/// Formats an instant as reports do.
pub(in crate::cli) fn instant(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Nanos::from(span).to_string()
}

/// The state of a task, in words.
fn doing(row: &Row) -> String {
    match (row.state, &row.blocked_on, &row.exit) {
        (State::Blocked, Some(on), _) => {
            let since = row.since.map_or_else(String::new, instant);
            format!("waits for {}, since {since}", clean(on))
        }
        (State::Zombie, _, Some(exit)) => format!("a zombie: {}", clean(exit)),
        (state, ..) => state.name().to_string(),
    }
}

/// The output of `where`, except the last traps.
pub(in crate::cli) fn where_lines(chain: &[Row], now: f64) -> Vec<String> {
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
                    .map(|places| format!("{indent}  {}", clean(places))),
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
    }
    if let Some(ring) = again {
        let tids = ring.iter().chain(ring.first());
        let tids: Vec<String> = tids.map(|row| row.tid.to_string()).collect();
        text += &format!("So they wait for one another: {}.\n", tids.join(" -> "));
    }
    text
}

/// The tasks in the order of a tree of parents, with the branch before each. The input is sorted by
/// tid.
///
/// A cycle of parents does not occur in a kernel. If one is received, one of its tasks is shown as
/// a marked root.
pub(super) fn branches<'a>(tasks: &[&'a Row]) -> Vec<(&'a Row, String)> {
    let find = |tid: u64| tasks.binary_search_by_key(&tid, |row| row.tid).ok();
    let mut children: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    for &row in tasks {
        let parent = find(row.parent).map_or(0, |_| row.parent);
        children.entry(parent).or_default().push(row);
    }
    let mut lines = Vec::with_capacity(tasks.len());
    for root in children.remove(&0).into_iter().flatten() {
        grow(&mut lines, &mut children, root, "");
    }
    // The remaining tasks are on a cycle or below one.
    for &row in tasks {
        if !children.contains_key(&row.parent) {
            continue;
        }
        let (mut root, mut seen) = (row, BTreeSet::new());
        while seen.insert(root.tid)
            && let Some(parent) = find(root.parent)
        {
            root = tasks[parent];
        }
        if let Some(family) = children.get_mut(&root.parent) {
            family.retain(|other| other.tid != root.tid);
        }
        grow(&mut lines, &mut children, root, "↻ ");
    }
    lines
}

/// Appends a task and its descendants.
fn grow<'a>(
    lines: &mut Vec<(&'a Row, String)>,
    children: &mut BTreeMap<u64, Vec<&'a Row>>,
    root: &'a Row,
    mark: &str,
) {
    // The work list: a deep tree must not need a deep stack.
    let mut ahead = vec![(root, mark.to_string(), String::new())];
    while let Some((row, branch, below)) = ahead.pop() {
        lines.push((row, branch));
        let family = children.remove(&row.tid).unwrap_or_default();
        for (at, child) in family.iter().enumerate().rev() {
            let (branch, bar) = if at + 1 == family.len() {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            // At greater depth the lines are unreadable.
            let bar = if below.len() < 256 { bar } else { "" };
            ahead.push((child, format!("{below}{branch}"), format!("{below}{bar}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tasks: &[(u64, u64)]) -> String {
        let row = |&(tid, parent): &(u64, u64)| Row {
            tid,
            parent,
            ..Row::default()
        };
        let rows: Vec<Row> = tasks.iter().map(row).collect();
        let lines = branches(&rows.iter().collect::<Vec<_>>());
        let line = |(row, branch): &(&Row, String)| format!("{branch}{}", row.tid);
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn cycles_of_parents_are_shown() {
        assert_eq!(shown(&[(1, 0), (2, 1), (9, 7)]), "1\n└─ 2\n9");
        assert_eq!(shown(&[(1, 0), (2, 2)]), "1\n↻ 2");
        let below = shown(&[(1, 5), (5, 6), (6, 5), (7, 6), (8, 1)]);
        assert_eq!(below, "↻ 5\n├─ 1\n│  └─ 8\n└─ 6\n   └─ 7");
    }
}
