//! What a view lists: which tasks, in which order, and which of them are one row.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    iter,
};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trapline::{On, TaskInfo, TaskState};

use super::{
    brief::brief,
    row::{Group, Row, State, Totals},
};

/// More tasks of a name than this are one row, where a view folds names.
pub(crate) const CROWD: usize = 10;

/// What a view lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Query {
    /// The largest number of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) most: Option<usize>,
    /// Only tasks whose number, name, state or cause contains this text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) filter: String,
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    /// More tasks of a name than this are one row. In a tree, siblings without children are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fold: Option<usize>,
    /// The names whose tasks have a row each all the same, below that of the name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) open: Vec<String>,
    /// A tree of parents, which has an order of its own.
    pub(crate) tree: bool,
}

/// The order of the rows. Those of largest rates, shares and numbers of traps come first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sort {
    #[default]
    Tid,
    Name,
    State,
    Since,
    Traps,
    #[value(skip)]
    Rate,
    #[value(skip)]
    Share,
}

/// What the order of a row depends on: of a task, or of all tasks of a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry<'a> {
    pub(crate) tid: u64,
    pub(crate) parent: u64,
    pub(crate) comm: &'a str,
    pub(crate) state: State,
    /// What it waits for, in a word; or its state.
    pub(crate) kind: &'a str,
    /// In seconds since boot.
    pub(crate) since: Option<f64>,
    pub(crate) traps: u64,
    pub(crate) rate: Option<f64>,
    pub(crate) share: Option<f64>,
}

/// A row before it is made.
pub(crate) enum Line {
    /// The task of this index, after its branch.
    Task(usize, String),
    Crowd(Box<Row>),
}

impl Query {
    /// Arranges tasks, which are sorted by tid. Counts in the totals how many match and how many have
    /// no room.
    pub(crate) fn arrange(
        &self,
        tasks: &[Entry<'_>],
        row: impl Fn(usize) -> Row,
        totals: &mut Totals,
    ) -> Vec<Line> {
        let all = 0..tasks.len();
        let (chosen, matching): (Vec<usize>, _) = if self.filter.is_empty() {
            (all.collect(), None)
        } else {
            let lets_through = |at: &usize| row(*at).lets_through(&self.filter);
            let chosen: Vec<usize> = all.filter(lets_through).collect();
            let matching = chosen.len();
            (chosen, Some(matching))
        };
        let room = self.most.unwrap_or(usize::MAX);
        let (lines, left_out) = if self.tree {
            let mut lines = Tree::new(self, tasks, chosen).lines();
            let left_out = lines.len().saturating_sub(room);
            lines.truncate(room);
            (lines, left_out)
        } else {
            self.list(tasks, chosen, room)
        };
        totals.matching = matching;
        totals.left_out = Some(left_out).filter(|rows| *rows > 0);
        lines
    }

    /// The rows of a list. Those of an unfolded name have the room that the others leave.
    fn list(&self, tasks: &[Entry<'_>], chosen: Vec<usize>, room: usize) -> (Vec<Line>, usize) {
        let crowds = crowds(tasks, chosen, |_| true, self.fold);
        let mut items: Vec<(Entry<'_>, Crowd)> = crowds
            .into_iter()
            .map(|crowd| (Entry::of_all(tasks, &crowd), crowd))
            .collect();
        self.sort(&mut items, |(entry, _)| entry);
        let mut left_out = items.len().saturating_sub(room);
        items.truncate(room);
        let mut spare = room - items.len();
        let mut lines = Vec::with_capacity(items.len());
        for (entry, crowd) in items {
            if crowd.rest.is_empty() {
                lines.push(Line::Task(crowd.first, String::new()));
                continue;
            }
            lines.push(entry.line(tasks, &crowd, ""));
            if self.is_open(entry.comm) {
                let mut members: Vec<usize> = crowd.iter().collect();
                self.sort(&mut members, |at| &tasks[*at]);
                let shown = members.len().min(spare);
                left_out += members.len() - shown;
                spare -= shown;
                let member = |at: &usize| Line::Task(*at, "  ".to_string());
                lines.extend(members[..shown].iter().map(member));
            }
        }
        (lines, left_out)
    }

    fn sort<'a, T>(&self, items: &mut [T], entry: impl Fn(&T) -> &Entry<'a>) {
        items.sort_by(|a, b| self.sort.compare(entry(a), entry(b)));
        if self.reversed {
            items.reverse();
        }
    }

    fn is_open(&self, comm: &str) -> bool {
        self.open.iter().any(|open| open == comm)
    }
}

/// Tasks that are one row: many of a name, or one.
#[derive(Clone)]
struct Crowd {
    first: usize,
    /// Takes no memory of its own if it is empty, as it mostly is.
    rest: Vec<usize>,
}

impl Crowd {
    fn one(task: usize) -> Self {
        Self {
            first: task,
            rest: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        1 + self.rest.len()
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        iter::once(self.first).chain(self.rest.iter().copied())
    }
}

/// Tasks as crowds: those of a name that is to be folded, or one task each. A crowd is where its
/// first task was.
fn crowds(
    tasks: &[Entry<'_>],
    chosen: Vec<usize>,
    may_fold: impl Fn(usize) -> bool,
    fold: Option<usize>,
) -> Vec<Crowd> {
    let Some(most) = fold else {
        return chosen.into_iter().map(Crowd::one).collect();
    };
    let mut by_name: FxHashMap<&str, Crowd> = FxHashMap::default();
    for &task in chosen.iter().filter(|task| may_fold(**task)) {
        let crowd = by_name.entry(tasks[task].comm);
        crowd
            .and_modify(|crowd| crowd.rest.push(task))
            .or_insert_with(|| Crowd::one(task));
    }
    let group = |task: usize| {
        let is_crowd = |crowd: &&Crowd| may_fold(task) && crowd.len() > most.max(1);
        match by_name.get(tasks[task].comm).filter(is_crowd) {
            Some(crowd) if crowd.first == task => Some(crowd.clone()),
            Some(_) => None,
            None => Some(Crowd::one(task)),
        }
    };
    chosen.into_iter().filter_map(group).collect()
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Share => "time",
            Self::Rate => "traps/s",
            Self::Traps => "traps",
            Self::Tid => "tid",
            Self::Name => "name",
            Self::State => "state",
            Self::Since => "since",
        }
    }

    pub(super) fn next(self) -> Self {
        match self {
            Self::Share => Self::Rate,
            Self::Rate => Self::Tid,
            Self::Tid => Self::Name,
            Self::Name => Self::State,
            Self::State => Self::Since,
            Self::Since => Self::Traps,
            Self::Traps => Self::Share,
        }
    }

    fn compare(self, a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
        let rate = || b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0));
        let first = match self {
            Self::Share => {
                let share = b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0));
                share.then_with(rate)
            }
            Self::Rate => rate(),
            Self::Traps => b.traps.cmp(&a.traps),
            Self::Tid => Ordering::Equal,
            Self::Name => a.comm.cmp(b.comm),
            Self::State => a.state.cmp(&b.state),
            Self::Since => {
                let since = |entry: &Entry<'_>| entry.since.unwrap_or(f64::INFINITY);
                since(a).total_cmp(&since(b))
            }
        };
        first.then(a.tid.cmp(&b.tid))
    }
}

impl<'a> Entry<'a> {
    pub(crate) fn of(task: &'a TaskInfo) -> Self {
        let (mut state, mut since) = (State::Ready, None);
        let kind = match &task.state {
            TaskState::Ready => "ready",
            TaskState::Running => {
                state = State::Running;
                "running"
            }
            TaskState::Zombie(_) => {
                state = State::Zombie;
                "zombie"
            }
            TaskState::Blocked { on, since: then } => {
                (state, since) = (State::Blocked, Some(then.as_secs_f64()));
                kind(*on, task.wait.thing.as_deref())
            }
        };
        Self {
            tid: task.tid.into(),
            parent: task.parent.into(),
            comm: &task.name,
            state,
            kind,
            since,
            traps: task.traps,
            rate: None,
            share: None,
        }
    }

    /// What all tasks of a crowd come to. It is in the state that comes first, since the longest time.
    fn of_all(tasks: &[Self], crowd: &Crowd) -> Self {
        let mut all = tasks[crowd.first].clone();
        let add = |a: Option<f64>, b: Option<f64>| a.map(|a| a + b.unwrap_or(0.0)).or(b);
        for task in crowd.rest.iter().map(|&at| &tasks[at]) {
            all.state = all.state.min(task.state);
            all.since = match (all.since, task.since) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            all.traps += task.traps;
            all.rate = add(all.rate, task.rate);
            all.share = add(all.share, task.share);
            if all.parent != task.parent {
                all.parent = 0;
            }
        }
        all
    }

    /// The row of a crowd.
    fn line(&self, tasks: &[Self], crowd: &Crowd, branch: &str) -> Line {
        let mut kinds = BTreeMap::new();
        let parent = tasks[crowd.first].parent;
        let has_parents = crowd.iter().any(|task| tasks[task].parent != parent);
        for task in crowd.iter() {
            *kinds.entry(tasks[task].kind.to_string()).or_default() += 1;
        }
        Line::Crowd(Box::new(Row {
            tid: self.tid,
            comm: brief(self.comm.to_string()),
            parent: self.parent,
            state: self.state,
            since: self.since,
            traps: self.traps,
            rate: self.rate,
            share: self.share,
            branch: branch.to_string(),
            group: Some(Group {
                tasks: crowd.len(),
                has_parents,
                kinds,
            }),
            ..Row::default()
        }))
    }
}

/// What a wait is for, in a word. `thing` describes a queue.
pub(crate) fn kind(on: On, thing: Option<&str>) -> &str {
    match on {
        On::Exit(_) => "task",
        On::Timer(_) => "timer",
        On::Device(..) => "device",
        _ => thing
            .and_then(|thing| thing.split(' ').next())
            .unwrap_or("queue"),
    }
}

/// Tasks below their parents.
struct Tree<'a> {
    query: &'a Query,
    tasks: &'a [Entry<'a>],
    /// By tid.
    chosen: Vec<usize>,
    /// By the parent's tid; 0 is the parent of roots.
    children: BTreeMap<u64, Vec<usize>>,
}

/// Tasks that are to be shown: a task, or a crowd of siblings.
struct Ahead {
    crowd: Crowd,
    /// The branch before it, and that before its children.
    branch: String,
    below: String,
}

impl<'a> Tree<'a> {
    fn new(query: &'a Query, tasks: &'a [Entry<'a>], chosen: Vec<usize>) -> Self {
        let mut tree = Self {
            query,
            tasks,
            chosen,
            children: BTreeMap::new(),
        };
        for &task in &tree.chosen {
            let parent = tree.find(tasks[task].parent);
            let parent = parent.map_or(0, |parent| tasks[parent].tid);
            tree.children.entry(parent).or_default().push(task);
        }
        tree
    }

    fn find(&self, tid: u64) -> Option<usize> {
        let chosen = &self.chosen;
        let found = chosen.binary_search_by_key(&tid, |task| self.tasks[*task].tid);
        found.ok().map(|at| chosen[at])
    }

    /// The lines of the tree.
    ///
    /// A cycle of parents does not occur in a kernel. If one is received, one of its tasks is shown
    /// as a marked root.
    fn lines(mut self) -> Vec<Line> {
        let mut lines = Vec::with_capacity(self.chosen.len());
        let roots = self.children.remove(&0).unwrap_or_default();
        self.grow(&mut lines, roots, "");
        // The remaining tasks are on a cycle or below one.
        for at in 0..self.chosen.len() {
            let task = self.chosen[at];
            if !self.children.contains_key(&self.tasks[task].parent) {
                continue;
            }
            let (mut root, mut seen) = (task, BTreeSet::new());
            while seen.insert(root)
                && let Some(parent) = self.find(self.tasks[root].parent)
            {
                root = parent;
            }
            if let Some(family) = self.children.get_mut(&self.tasks[root].parent) {
                family.retain(|other| *other != root);
            }
            self.grow(&mut lines, vec![root], "↻ ");
        }
        lines
    }

    /// Appends tasks and their descendants.
    fn grow(&mut self, lines: &mut Vec<Line>, roots: Vec<usize>, mark: &str) {
        // The work list: a deep tree must not need a deep stack.
        let mut ahead: Vec<Ahead> = Vec::new();
        for crowd in self.fold(roots).into_iter().rev() {
            ahead.push(Ahead {
                crowd,
                branch: mark.to_string(),
                below: String::new(),
            });
        }
        while let Some(Ahead {
            crowd,
            branch,
            below,
        }) = ahead.pop()
        {
            let family = if crowd.rest.is_empty() {
                lines.push(Line::Task(crowd.first, branch));
                let family = self.children.remove(&self.tasks[crowd.first].tid);
                self.fold(family.unwrap_or_default())
            } else {
                let entry = Entry::of_all(self.tasks, &crowd);
                lines.push(entry.line(self.tasks, &crowd, &branch));
                let is_open = self.query.is_open(entry.comm);
                let members = crowd.iter().filter(|_| is_open);
                members.map(Crowd::one).collect()
            };
            for (at, crowd) in family.into_iter().rev().enumerate() {
                let (branch, bar) = match at {
                    0 => ("└─ ", "   "),
                    _ => ("├─ ", "│  "),
                };
                // At greater depth the lines are unreadable.
                let bar = if below.len() < 256 { bar } else { "" };
                ahead.push(Ahead {
                    crowd,
                    branch: format!("{below}{branch}"),
                    below: format!("{below}{bar}"),
                });
            }
        }
    }

    /// Siblings, of which those without children may be crowds.
    fn fold(&self, siblings: Vec<usize>) -> Vec<Crowd> {
        let is_leaf = |task: usize| !self.children.contains_key(&self.tasks[task].tid);
        crowds(self.tasks, siblings, is_leaf, self.query.fold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::text;

    fn tree(tasks: &[(u64, u64)]) -> String {
        let entry = |&(tid, parent): &(u64, u64)| Entry {
            tid,
            parent,
            ..Entry::default()
        };
        let entries: Vec<Entry<'_>> = tasks.iter().map(entry).collect();
        let query = Query {
            tree: true,
            ..Query::default()
        };
        shown(&entries, &query)
    }

    fn shown(entries: &[Entry<'_>], query: &Query) -> String {
        let row = |at: usize| Row {
            tid: entries[at].tid,
            comm: entries[at].comm.to_string(),
            ..Row::default()
        };
        let lines = query.arrange(entries, row, &mut Totals::default());
        let line = |line: &Line| match line {
            Line::Task(at, branch) => format!("{branch}{}", entries[*at].tid),
            Line::Crowd(row) => {
                let group = row.group.as_ref().expect("it is a crowd");
                format!("{}{} x{}: {group}", row.branch, row.comm, group.tasks)
            }
        };
        let lines: Vec<String> = lines.iter().map(line).collect();
        lines.join("\n")
    }

    #[test]
    fn cycles_of_parents_are_shown() {
        assert_eq!(tree(&[(1, 0), (2, 1), (9, 7)]), "1\n└─ 2\n9");
        assert_eq!(tree(&[(1, 0), (2, 2)]), "1\n↻ 2");
        let below = tree(&[(1, 5), (5, 6), (6, 5), (7, 6), (8, 1)]);
        assert_eq!(below, "↻ 5\n├─ 1\n│  └─ 8\n└─ 6\n   └─ 7");
    }

    /// A server with clients, of which one is ready, and a task below another client.
    fn server() -> Vec<Entry<'static>> {
        let entry = |(tid, parent, comm, kind, traps)| Entry {
            tid,
            parent,
            comm,
            kind,
            traps,
            ..Entry::default()
        };
        let mut tasks = vec![(1, 0, "server", "device", 9)];
        tasks.extend((2..=5).map(|tid| (tid, 1, "client", "device", tid)));
        tasks[2].3 = "ready";
        tasks.push((6, 5, "helper", "timer", 20));
        tasks.into_iter().map(entry).collect()
    }

    #[test]
    fn tasks_of_a_name_are_a_row_that_unfolds() {
        let mut query = Query {
            fold: Some(1),
            sort: Sort::Traps,
            ..Query::default()
        };
        let crowd = "client x4: 3 device, 1 ready";
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
        let parent = |parents: [u64; 2]| {
            let mut tasks = server();
            (tasks[1].parent, tasks[2].parent) = parents.into();
            let query = Query {
                fold: Some(1),
                ..Query::default()
            };
            let row = |_| Row::default();
            let lines = query.arrange(&tasks[1..3], row, &mut Totals::default());
            let [Line::Crowd(row)] = &lines[..] else {
                panic!("they are one row");
            };
            let shown = text::ps(&[(**row).clone()], &Totals::default(), "");
            let line = shown.lines().nth(1).map(str::to_string);
            let mut words = line.as_deref().unwrap_or("").split_whitespace();
            words.nth(2).map(str::to_string)
        };
        assert_eq!(parent([1, 1]).as_deref(), Some("1"));
        assert_eq!(parent([0, 0]).as_deref(), Some("0"));
        assert_eq!(parent([1, 5]).as_deref(), Some("-"));
    }

    #[test]
    fn a_long_name_of_many_tasks_is_truncated() {
        let name = "n".repeat(1 << 20);
        let task = |tid| Entry {
            tid,
            comm: &name,
            ..Entry::default()
        };
        let query = Query {
            fold: Some(1),
            ..Query::default()
        };
        let row = |_| Row::default();
        let lines = query.arrange(&[task(1), task(2)], row, &mut Totals::default());
        let [Line::Crowd(row)] = &lines[..] else {
            panic!("they are one row");
        };
        assert!(row.comm.len() < 1 << 16, "{}", row.comm.len());
        assert!(row.comm.ends_with("... (1048576 bytes)"));
    }

    #[test]
    fn siblings_without_children_are_a_line_that_unfolds() {
        let mut query = Query {
            fold: Some(1),
            tree: true,
            ..Query::default()
        };
        let crowd = "client x3: 2 device, 1 ready";
        let folded = shown(&server(), &query);
        assert_eq!(folded, format!("1\n├─ {crowd}\n└─ 5\n   └─ 6"));
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
