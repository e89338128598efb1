//! The model of a running kernel: a [`Snapshot`], the same for the screen, the socket and the
//! commands.

use std::{cell::RefCell, iter, rc::Rc, time::Duration, vec};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};
use trapline::{Ledger, Os, TaskInfo, Tid};

use super::{
    behind::behind,
    query::{Entry, Line, Query},
    recent,
    row::{Row, Totals},
    sampler::{Sampler, Shares},
    shared::Shared,
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
        let lines = query.arrange(&entries, row, totals);
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
