//! What a view lists: which tasks, and which of them are one row.

use clap::Args;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trapline::Ledger;

use super::{
    entry::{Entry, Line},
    row::{Row, Totals},
    sort::Sort,
};
use crate::values::whole;

/// More tasks of a name than this are one row, where a view folds names.
pub(crate) const CROWD: usize = 10;

/// What a view lists.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Query {
    /// Only tasks whose number, name, state or wait contains TEXT
    #[serde(skip_serializing_if = "String::is_empty")]
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) filter: String,
    /// Sort by this; the most traps come first
    #[arg(long, value_name = "COLUMN", default_value = "tid")]
    pub(crate) sort: Sort,
    /// Reverse the order
    #[arg(long = "reverse")]
    pub(crate) reversed: bool,
    /// A row per name, with the number of its tasks in each state
    // More tasks of a name than this are one row. In a tree, siblings without children are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long = "by-name", num_args = 0, default_missing_value = "1")]
    pub(crate) fold: Option<usize>,
    /// Only the first N rows
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) most: Option<usize>,
    /// The names whose tasks have a row each all the same, below that of the name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(skip)]
    pub(crate) open: Vec<String>,
    /// A tree of parents, which has an order of its own.
    #[arg(skip)]
    pub(crate) tree: bool,
}

impl Query {
    /// Arranges tasks, which are sorted by tid. Counts in the totals how many match and how many rows
    /// have no room.
    pub(crate) fn arrange<'a>(
        &self,
        mut tasks: Vec<Entry<'a>>,
        recent: &Ledger,
        totals: &mut Totals,
    ) -> Vec<Line<'a>> {
        if !self.filter.is_empty() {
            tasks.retain(|task| Line::of(*task).row(recent).lets_through(&self.filter));
            totals.matching = Some(tasks.len());
        }
        let room = self.most.unwrap_or(usize::MAX);
        let (lines, left_out) = if self.tree {
            let mut lines = self.tree(&tasks);
            let left_out = lines.len().saturating_sub(room);
            lines.truncate(room);
            (lines, left_out)
        } else {
            self.list(tasks, room)
        };
        totals.left_out = Some(left_out).filter(|rows| *rows > 0);
        lines
    }

    /// The lines of a list. Those of an unfolded name have the room that the others leave.
    fn list<'a>(&self, tasks: Vec<Entry<'a>>, room: usize) -> (Vec<Line<'a>>, usize) {
        let mut heads = self.fold(tasks, |_| true);
        self.sort(&mut heads);
        let mut left_out = heads.len().saturating_sub(room);
        heads.truncate(room);
        let mut spare = room - heads.len();
        let mut lines = Vec::with_capacity(heads.len());
        for head in heads {
            let mut members = self.members(&head);
            self.sort(&mut members);
            let shown = members.len().min(spare);
            left_out += members.len() - shown;
            spare -= shown;
            lines.push(head);
            let branch = || "  ".to_string();
            lines.extend(members.into_iter().take(shown).map(|line| Line {
                branch: branch(),
                ..line
            }));
        }
        (lines, left_out)
    }

    fn sort(&self, lines: &mut [Line<'_>]) {
        lines.sort_by(|a, b| self.sort.compare(&a.entry.key(), &b.entry.key()));
        if self.reversed {
            lines.reverse();
        }
    }

    /// The rows of several kernels, each in this order, as those of one. Returns how many have no room.
    pub(super) fn merge(&self, kernels: impl IntoIterator<Item = Vec<Row>>) -> (Vec<Row>, usize) {
        let rows = kernels.into_iter().flatten();
        let mut rows: Vec<Row> = match self.tree {
            true => rows.collect(),
            false => {
                // The rows of an unfolded name stay below it.
                let mut heads: Vec<Vec<Row>> = Vec::new();
                for row in rows {
                    match heads.last_mut() {
                        Some(head) if !row.branch.is_empty() => head.push(row),
                        _ => heads.push(vec![row]),
                    }
                }
                heads.sort_by(|a, b| {
                    let order = self.sort.compare(&a[0].key(), &b[0].key());
                    if self.reversed {
                        order.reverse()
                    } else {
                        order
                    }
                });
                heads.into_iter().flatten().collect()
            }
        };
        let room = self.most.unwrap_or(usize::MAX);
        let left_out = rows.len().saturating_sub(room);
        rows.truncate(room);
        (rows, left_out)
    }

    /// Tasks as lines. Those of a name that is to be folded are one, where the first of them was.
    pub(super) fn fold<'a>(
        &self,
        tasks: Vec<Entry<'a>>,
        may_fold: impl Fn(&Entry<'a>) -> bool,
    ) -> Vec<Line<'a>> {
        let Some(most) = self.fold else {
            return tasks.into_iter().map(Line::of).collect();
        };
        let mut counts = FxHashMap::<&str, usize>::default();
        for entry in tasks.iter().filter(|entry| may_fold(entry)) {
            *counts.entry(&entry.task.name).or_default() += 1;
        }
        let mut places = FxHashMap::<&str, usize>::default();
        let mut lines = Vec::<Line<'_>>::new();
        for entry in tasks {
            let name = entry.task.name.as_str();
            if !may_fold(&entry) || counts[name] <= most.max(1) {
                lines.push(Line::of(entry));
            } else if let Some(&at) = places.get(name) {
                lines[at].add(entry);
            } else {
                places.insert(name, lines.len());
                lines.push(Line {
                    many: vec![entry],
                    ..Line::of(entry)
                });
            }
        }
        lines
    }

    /// A line for each task of a name that is unfolded.
    pub(super) fn members<'a>(&self, line: &Line<'a>) -> Vec<Line<'a>> {
        match !line.many.is_empty() && self.open.contains(&line.entry.task.name) {
            true => line.many.iter().copied().map(Line::of).collect(),
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use trapline::{KernelId, On, TaskInfo, TaskState, Tid, Wait};

    use super::*;

    fn task(tid: u64, parent: u64, name: &str, traps: u64) -> TaskInfo {
        TaskInfo {
            tid: tid.into(),
            name: name.to_string(),
            parent: parent.into(),
            state: TaskState::Blocked {
                on: On::Exit(Tid::KERNEL),
                since: Default::default(),
            },
            traps,
            wait: Wait::default(),
            spawned: None,
            is_daemon: false,
            limits: None,
        }
    }

    fn rows(tasks: &[TaskInfo], query: &Query) -> (Vec<Row>, Totals) {
        let (recent, mut totals) = (Ledger::new(), Totals::default());
        let entries = tasks.iter().map(|task| Entry::of(None, task)).collect();
        let lines = query.arrange(entries, &recent, &mut totals).into_iter();
        (lines.map(|line| line.row(&recent)).collect(), totals)
    }

    fn shown(tasks: &[TaskInfo], query: &Query) -> String {
        let line = |row: &Row| match &row.group {
            None => format!("{}{}", row.branch, row.tid),
            Some(group) => format!("{}{} x{}: {group}", row.branch, row.comm, group.tasks),
        };
        let lines: Vec<String> = rows(tasks, query).0.iter().map(line).collect();
        lines.join("\n")
    }

    fn folded() -> Query {
        Query {
            fold: Some(1),
            ..Query::default()
        }
    }

    #[test]
    fn cycles_of_parents_are_shown() {
        let tree = |tasks: &[(u64, u64)]| {
            let tasks = tasks.iter().map(|&(tid, parent)| task(tid, parent, "", 0));
            let query = Query {
                tree: true,
                ..Query::default()
            };
            shown(&tasks.collect::<Vec<_>>(), &query)
        };
        assert_eq!(tree(&[(1, 0), (2, 1), (9, 7)]), "1\n└─ 2\n9");
        assert_eq!(tree(&[(1, 0), (2, 2)]), "1\n↻ 2");
        let below = tree(&[(1, 5), (5, 6), (6, 5), (7, 6), (8, 1)]);
        assert_eq!(below, "↻ 5\n├─ 1\n│  └─ 8\n└─ 6\n   └─ 7");
    }

    /// A server with clients, of which one is ready, and a task below another client.
    fn server() -> Vec<TaskInfo> {
        let mut tasks = vec![task(1, 0, "server", 9)];
        tasks.extend((2..=5).map(|tid| task(tid, 1, "client", tid)));
        tasks[2].state = TaskState::Ready;
        tasks.push(task(6, 5, "helper", 20));
        tasks
    }

    #[test]
    fn tasks_of_a_name_are_a_row_that_unfolds() {
        let mut query = Query {
            sort: Sort::Traps,
            ..folded()
        };
        let crowd = "client x4: 3 task, 1 ready";
        assert_eq!(shown(&server(), &query), format!("6\n{crowd}\n1"));
        query.open = vec!["client".to_string()];
        let open = shown(&server(), &query);
        assert_eq!(open, format!("6\n{crowd}\n  5\n  4\n  3\n  2\n1"));
        query.most = Some(5);
        let cut = shown(&server(), &query);
        assert_eq!(cut, format!("6\n{crowd}\n  5\n  4\n1"));
        query.fold = Some(4);
        query.reversed = true;
        assert_eq!(shown(&server(), &query), "2\n3\n4\n5\n1");
    }

    #[test]
    fn a_row_of_several_parents_names_none() {
        for (parents, parent, differ) in [
            ([1, 1], 1, false),
            ([0, 0], 0, false),
            ([1, 5], 0, true),
            ([1, 0], 0, true),
        ] {
            let tasks = [2, 3].map(|tid| task(tid, parents[tid as usize - 2], "client", 0));
            let row = &rows(&tasks, &folded()).0[0];
            let has_parents = row.group.as_ref().map(|group| group.has_parents);
            assert_eq!((row.parent, has_parents), (parent.into(), Some(differ)));
        }
    }

    #[test]
    fn rows_of_several_kernels_are_listed_as_those_of_one() {
        let tasks = [
            task(1, 0, "server", 5),
            task(2, 1, "client", 9),
            task(3, 1, "client", 1),
        ];
        let of_kernel = |index: usize, query: &Query| {
            let kernel = Some(KernelId::at(index));
            let (recent, mut totals) = (Ledger::new(), Totals::default());
            let entries = tasks.iter().map(|task| Entry::of(kernel, task)).collect();
            let lines = query.arrange(entries, &recent, &mut totals).into_iter();
            lines.map(|line| line.row(&recent)).collect::<Vec<_>>()
        };
        let shown = |query: &Query| {
            let (rows, left_out) = query.merge((0..2).map(|index| of_kernel(index, query)));
            let rows: Vec<String> = rows.iter().map(|row| row.tid.to_string()).collect();
            (rows.join(" "), left_out)
        };
        let mut query = Query {
            sort: Sort::Traps,
            ..Query::default()
        };
        assert_eq!(shown(&query), ("1:2 2:2 1:1 2:1 1:3 2:3".into(), 0));
        query.reversed = true;
        assert_eq!(shown(&query), ("2:3 1:3 2:1 1:1 2:2 1:2".into(), 0));
        query.most = Some(2);
        assert_eq!(shown(&query), ("2:3 1:3".into(), 2));
        // Those of an unfolded name stay below it.
        let query = Query {
            sort: Sort::Name,
            open: vec!["client".to_string()],
            ..folded()
        };
        assert_eq!(shown(&query), ("1:2 1:2 1:3 2:2 2:2 2:3 1:1 2:1".into(), 0));
        let query = Query {
            tree: true,
            ..Query::default()
        };
        assert_eq!(shown(&query), ("1:1 1:2 1:3 2:1 2:2 2:3".into(), 0));
        assert_eq!(of_kernel(1, &query)[1].parent.to_string(), "2:1");
        assert_eq!(of_kernel(1, &query)[0].parent, Tid::KERNEL);
        let query = Query {
            filter: "2:".to_string(),
            ..Query::default()
        };
        assert_eq!(shown(&query).0, "2:1 2:2 2:3");
    }

    #[test]
    fn a_long_name_of_many_tasks_is_truncated() {
        let name = "n".repeat(1 << 20);
        let (rows, _) = rows(&[task(1, 0, &name, 0), task(2, 0, &name, 0)], &folded());
        assert!(rows[0].comm.len() < 1 << 16, "{}", rows[0].comm.len());
        assert!(rows[0].comm.ends_with("... (1048576 bytes)"));
    }

    #[test]
    fn siblings_without_children_are_a_line_that_unfolds() {
        let mut query = Query {
            tree: true,
            ..folded()
        };
        let crowd = "client x3: 2 task, 1 ready";
        let tree = shown(&server(), &query);
        assert_eq!(tree, format!("1\n├─ {crowd}\n└─ 5\n   └─ 6"));
        query.open = vec!["client".to_string()];
        assert_eq!(
            shown(&server(), &query),
            format!("1\n├─ {crowd}\n│  ├─ 2\n│  ├─ 3\n│  └─ 4\n└─ 5\n   └─ 6")
        );
        query.filter = "client".to_string();
        query.fold = Some(5);
        assert_eq!(shown(&server(), &query), "2\n3\n4\n5");
    }
}
