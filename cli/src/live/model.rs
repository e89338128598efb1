//! The model of a running kernel: a [`Snapshot`], the same for the screen, the socket and the
//! commands.

use std::{
    cell::RefCell, cmp::Reverse, collections::BTreeMap, fmt, iter, rc::Rc, time::Duration, vec,
};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trapline::{Ledger, On, Os, TaskInfo, TaskState, Tid};

use super::{
    behind::behind,
    brief::brief,
    query::{Entry, Line, Listing, Query},
    recent,
    sampler::{Sampler, Shares},
    shared::Shared,
    text::separated,
};

/// The longest chain that goes on at a queue, since each such step looks at the calls of all tasks.
const LINKS: usize = 12;

/// The longest time between two snapshots.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The tasks of a kernel at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// In the order in which they are shown.
    pub(crate) tasks: Vec<Row>,
    pub(crate) totals: Totals,
}

/// One task; or all tasks of a name, of which `tid` is the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) tid: u64,
    pub(crate) comm: String,
    /// 0 for the host's tasks and for orphans.
    pub(crate) parent: u64,
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked_on: Option<String>,
    /// The task that it waits for in `wait_task`, or the holder of the lock that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits_for: Option<u64>,
    /// The places in the source of its call, if it is blocked, and of its spawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) places: Option<String>,
    /// The instant at which it blocked, in seconds since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<f64>,
    /// Why the next task of a chain follows, or why none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
    /// Its exit, if it is a zombie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<String>,
    pub(crate) traps: u64,
    /// Traps per second, since the last snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// Its share of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
    /// The branch of a tree before it, or the indent below the row of a name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) branch: String,
    /// The tasks of the name, if this is no single task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<Group>,
}

/// The tasks of a name. Its `Display` is how many are in which state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) tasks: usize,
    /// Whether their parents differ. The parent of their row is 0 then.
    #[serde(default)]
    pub(super) has_parents: bool,
    /// The number of tasks by what they wait for, in a word, or by their state.
    pub(super) kinds: BTreeMap<String, usize>,
}

impl Group {
    /// The number of tasks in each state, the largest first.
    pub(super) fn sorted(&self) -> Vec<(&String, &usize)> {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(_, count)| Reverse(**count));
        kinds
    }

    /// What most of the tasks wait for, or their state.
    pub(super) fn most(&self) -> &str {
        self.sorted().first().map_or("", |(kind, _)| kind)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.sorted();
        let kind = |(kind, count): &(&String, &usize)| format!("{} {kind}", separated(**count));
        let kinds: Vec<String> = kinds.iter().map(kind).collect();
        f.write_str(&kinds.join(", "))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    #[default]
    Ready,
    Running,
    Blocked,
    Zombie,
    /// The kernel works for it. Only recordings tell.
    #[serde(rename = "in call")]
    InCall,
    /// Events of it are missing. Only recordings tell.
    Unknown,
}

/// The totals of all tasks, listed or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// The instant, in seconds since boot.
    pub(super) at: f64,
    pub(crate) tasks: usize,
    pub(super) ready: usize,
    pub(super) blocked: usize,
    pub(super) zombies: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<f64>,
    /// The share of the time in which the kernel waited for the world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle: Option<f64>,
    /// The share of the time that the observation itself takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) watching: Option<f64>,
    /// The number of tasks that the filter lets through, if there is a filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) matching: Option<usize>,
    /// The number of rows for which the query has no room, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_out: Option<usize>,
    /// The number of seconds until the monitor reads the client's next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<f64>,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Zombie => "zombie",
            Self::InCall => "in call",
            Self::Unknown => "unknown",
        }
    }
}

impl Row {
    /// The follower has the addresses of devices.
    pub(crate) fn of(task: &TaskInfo, recent: &Ledger) -> Self {
        let mut row = Self {
            tid: task.tid.into(),
            comm: brief(task.name.clone()),
            parent: task.parent.into(),
            traps: task.traps,
            places: task.places().map(brief),
            ..Self::default()
        };
        match &task.state {
            TaskState::Ready => {}
            TaskState::Running => row.state = State::Running,
            TaskState::Blocked { since, on } => {
                let addr = match on {
                    // A simulated network has described the connection.
                    On::Device(device, _) if task.wait.thing.is_none() => recent.addr(*device),
                    _ => None,
                };
                let addr = addr.map_or_else(String::new, |addr| format!(", {addr}"));
                row.state = State::Blocked;
                row.blocked_on = task.blocked_on().map(|on| brief(on + &addr));
                row.since = Some(since.as_secs_f64());
                row.waits_for = task.waits_for().map(u64::from);
            }
            TaskState::Zombie(exit) => {
                row.state = State::Zombie;
                row.exit = Some(brief(exit.to_string()));
            }
        }
        row
    }

    /// Whether its number, its name, its state or what it is blocked on contains the text.
    pub(super) fn lets_through(&self, filter: &str) -> bool {
        let on = self.blocked_on.as_deref().unwrap_or_default();
        [&self.tid.to_string(), &*self.comm, self.state.name(), on]
            .iter()
            .any(|text| text.contains(filter))
    }
}

impl Totals {
    pub(crate) fn of(tasks: &[TaskInfo], now: Duration) -> Self {
        let mut totals = Self {
            at: now.as_secs_f64(),
            tasks: tasks.len(),
            ..Self::default()
        };
        for task in tasks {
            match task.state {
                TaskState::Ready | TaskState::Running => totals.ready += 1,
                TaskState::Blocked { .. } => totals.blocked += 1,
                TaskState::Zombie(_) => totals.zombies += 1,
            }
        }
        totals
    }

    /// Notes how many tasks a listing has, and returns its lines.
    pub(crate) fn note(&mut self, listing: Listing) -> Vec<Line> {
        self.matching = listing.matching;
        self.left_out = Some(listing.left_out).filter(|rows| *rows > 0);
        listing.lines
    }
}

/// Takes snapshots. Each has the changes since the previous one.
pub(super) struct Model {
    recent: Rc<RefCell<Ledger>>,
    sampler: Option<Rc<Sampler>>,
    before: Option<(Duration, FxHashMap<Tid, u64>)>,
}

impl Model {
    pub(super) fn new(live: &Shared) -> Self {
        Self {
            recent: Rc::clone(&live.recent),
            sampler: live.sampler(),
            before: None,
        }
    }

    /// The tasks as they are now that a query lists.
    pub(super) async fn snapshot(&mut self, os: &mut Os, query: &Query) -> Snapshot {
        let now = os.now().await;
        let tasks = os.tasks().await;
        let mut totals = Totals::of(&tasks, now);
        let mut entries: Vec<Entry<'_>> = tasks.iter().map(Entry::of).collect();
        if let Some((then, before)) = &self.before {
            let seconds = now.saturating_sub(*then).as_secs_f64().max(1e-9);
            for (entry, task) in entries.iter_mut().zip(&tasks) {
                let done = task.traps
                    - before
                        .get(&task.tid)
                        .map_or(0, |before| *before.min(&task.traps));
                entry.rate = Some(done as f64 / seconds);
            }
            totals.rate = Some(entries.iter().filter_map(|entry| entry.rate).sum());
        }
        let shares = self.sampler.as_ref().and_then(|sampler| sampler.shares());
        if let Some(shares) = &shares {
            for (entry, task) in entries.iter_mut().zip(&tasks) {
                entry.share = Some(shares.of(task.tid));
            }
        }
        totals.idle = shares.as_ref().map(Shares::idle);
        totals.watching = shares.as_ref().map(Shares::daemons);
        let recent = self.recent.borrow();
        let rows = Rows::of(query, &tasks, entries, &recent, &mut totals);
        let rows = rows.collect(&recent);
        let traps = tasks.iter().map(|task| (task.tid, task.traps));
        self.before = Some((now, traps.collect()));
        Snapshot {
            tasks: rows,
            totals,
        }
    }
}

/// The rows that a query lists of a kernel's tasks. Each is made when it is asked for, since there
/// may be many.
pub(crate) struct Rows<'a> {
    tasks: &'a [TaskInfo],
    entries: Vec<Entry<'a>>,
    lines: vec::IntoIter<Line>,
}

impl<'a> Rows<'a> {
    /// Arranges the tasks, and notes in the totals how many match.
    pub(crate) fn of(
        query: &Query,
        tasks: &'a [TaskInfo],
        entries: Vec<Entry<'a>>,
        recent: &Ledger,
        totals: &mut Totals,
    ) -> Self {
        let row = |at: usize| Row::of(&tasks[at], recent);
        let lines = totals.note(query.arrange(&entries, row));
        Self {
            tasks,
            entries,
            lines: lines.into_iter(),
        }
    }

    pub(super) fn next(&mut self, recent: &Ledger) -> Option<Row> {
        Some(match self.lines.next()? {
            Line::Crowd(row) => *row,
            Line::Task(at, branch) => Row {
                branch,
                rate: self.entries[at].rate,
                share: self.entries[at].share,
                ..Row::of(&self.tasks[at], recent)
            },
        })
    }

    pub(crate) fn collect(mut self, recent: &Ledger) -> Vec<Row> {
        iter::from_fn(|| self.next(recent)).collect()
    }
}

/// How long to wait after listing so many tasks: about forty times the time of the listing. A few
/// tasks have a minimum, since each answer takes time.
pub(super) fn pause(tasks: usize) -> Duration {
    Duration::from_micros(4 * tasks as u64).clamp(Duration::from_millis(1), LONGEST)
}

/// A task, the chain of tasks that it waits for, and its last traps as lines.
pub(crate) type Whereabouts = (Vec<Row>, Vec<Map<String, Value>>);

/// A task and the chain that it waits for. In a cycle, the last row repeats an earlier one. Empty if
/// the task does not exist.
pub(super) fn chain(tasks: &[TaskInfo], recent: &Ledger, tid: u64) -> Vec<Row> {
    let find = |tid: Tid| tasks.binary_search_by_key(&tid, |task| task.tid).ok();
    let mut chain = Vec::new();
    let mut seen = FxHashSet::default();
    let mut next = find(tid.into());
    while let Some(at) = next {
        let (task, is_first) = (&tasks[at], seen.insert(at));
        let (target, link) = match task.waits_for() {
            _ if !is_first => (None, None),
            Some(target) => (Some(target), None),
            None if chain.len() >= LINKS => (None, Some("The chain goes on.".into())),
            None => behind(tasks, recent, task),
        };
        let row = Row::of(task, recent);
        chain.push(Row { link, ..row });
        next = target.and_then(find);
    }
    chain
}

/// A task with its chain and its last traps, if it exists.
pub(crate) fn whereabouts(tasks: &[TaskInfo], calls: &Ledger, tid: u64) -> Option<Whereabouts> {
    let rows = chain(tasks, calls, tid);
    (!rows.is_empty()).then(|| (rows, recent::lines(calls, tid.into())))
}

#[cfg(test)]
mod tests {
    use trapline::Kernel;

    use super::*;
    use crate::live::query::Sort;

    #[test]
    fn a_query_lists_all_tasks_and_not_the_first_thousand() {
        let mut kernel = Kernel::simulated(1);
        let main = kernel.spawn("main", async |os: &mut Os| {
            for n in 0..3000 {
                let name = if n == 1234 { "stuck" } else { "client" };
                let span = Duration::from_secs(9000 - n);
                os.spawn(name, async move |os: &mut Os| {
                    os.sleep(span).await;
                })
                .await?;
            }
            os.yield_now().await;
            let mut model = Model {
                recent: Rc::new(RefCell::new(recent::ledger())),
                sampler: None,
                before: None,
            };
            let mut query = Query {
                most: Some(10),
                filter: "stuck".to_string(),
                ..Query::default()
            };
            let found = model.snapshot(os, &query).await;
            assert_eq!(found.totals.matching, Some(1));
            assert_eq!((found.totals.tasks, found.totals.left_out), (3001, None));
            assert_eq!(found.tasks.len(), 1);
            assert_eq!(found.tasks[0].comm, "stuck");
            query.filter = "client".to_string();
            let many = model.snapshot(os, &query).await;
            assert_eq!((many.totals.matching, many.tasks.len()), (Some(2999), 10));
            assert_eq!(many.totals.left_out, Some(2989));
            query.filter = "zzz".to_string();
            let none = model.snapshot(os, &query).await;
            assert_eq!((none.totals.matching, none.tasks.len()), (Some(0), 0));
            query.filter.clear();
            (query.sort, query.reversed) = (Sort::Tid, true);
            let last = model.snapshot(os, &query).await;
            assert_eq!((last.totals.matching, last.tasks[0].tid), (None, 3001));
            query.fold = Some(1);
            let folded = model.snapshot(os, &query).await;
            let texts: Vec<_> = folded.tasks.iter().map(|row| &*row.comm).collect();
            assert_eq!(texts, ["stuck", "client", "main"]);
            let clients = folded.tasks[1].group.as_ref().map(ToString::to_string);
            assert_eq!(clients.as_deref(), Some("2,999 timer"));
            Ok::<(), trapline::Errno>(())
        });
        let main = main.expect("there is room");
        let report = kernel.run_until(&[main]).expect("the run ends well");
        report.check().expect("the task ends well");
    }
}
