//! The model of a running kernel: a [`Snapshot`], the same for the screen, the socket and the
//! commands.

use std::{rc::Rc, time::Duration};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    brief::brief,
    recent,
    sampler::{Sampler, Shares},
    shared::Shared,
};
use crate::{Follower, Os, TaskInfo, TaskState, Tid};

/// The longest time between two snapshots.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The tasks of a kernel at one instant.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Snapshot {
    pub(in crate::cli) tasks: Vec<Row>,
    pub(in crate::cli) totals: Totals,
}

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::cli) struct Row {
    pub(super) tid: u64,
    pub(super) comm: String,
    /// 0 for the host's tasks and for orphans.
    pub(super) parent: u64,
    pub(super) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blocked_on: Option<String>,
    /// The task that it waits for in `wait_task`, or the holder of the lock that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits_for: Option<u64>,
    /// The places in the source of its call, if it is blocked, and of its spawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) places: Option<String>,
    /// The instant at which it blocked, in seconds since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<f64>,
    /// Its exit, if it is a zombie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit: Option<String>,
    pub(super) traps: u64,
    /// Traps per second, since the last snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<f64>,
    /// Its share of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum State {
    #[default]
    Ready,
    Running,
    Blocked,
    Zombie,
}

/// The totals of all tasks, listed or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::cli) struct Totals {
    /// The instant, in seconds since boot.
    pub(super) at: f64,
    pub(super) tasks: usize,
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
    /// The number of seconds until the monitor reads the client's next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<f64>,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Zombie => "zombie",
        }
    }
}

impl Row {
    pub(in crate::cli) fn of(task: &TaskInfo) -> Self {
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
            TaskState::Blocked { since, .. } => {
                row.state = State::Blocked;
                row.blocked_on = task.blocked_on().map(brief);
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
    pub(in crate::cli) fn of(tasks: &[TaskInfo], now: Duration) -> Self {
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
}

/// Takes snapshots. Each has the changes since the previous one.
pub(super) struct Model {
    sampler: Option<Rc<Sampler>>,
    before: Option<(Duration, FxHashMap<Tid, u64>)>,
}

impl Model {
    pub(super) fn new(live: &Shared) -> Self {
        Self {
            sampler: live.sampler(),
            before: None,
        }
    }

    /// The tasks as they are now that a filter lets through. Above `most` tasks, it lists those with
    /// the most recent traps.
    pub(super) async fn snapshot(&mut self, os: &mut Os, most: usize, filter: &str) -> Snapshot {
        let now = os.now().await;
        let tasks = os.tasks().await;
        let mut totals = Totals::of(&tasks, now);
        let mut order: Vec<(u64, &TaskInfo)> = tasks.iter().map(|task| (0, task)).collect();
        let mut seconds = None;
        if let Some((then, traps)) = &self.before {
            for (done, task) in &mut order {
                *done = task
                    .traps
                    .saturating_sub(traps.get(&task.tid).copied().unwrap_or(0));
            }
            seconds = Some(now.saturating_sub(*then).as_secs_f64().max(1e-9));
        }
        let all: u64 = order.iter().map(|(done, _)| done).sum();
        if !filter.is_empty() {
            order.retain(|(_, task)| Row::of(task).lets_through(filter));
            totals.matching = Some(order.len());
        }
        if order.len() > most {
            order.sort_by_key(|(done, task)| (u64::MAX - done, task.tid));
            order.truncate(most);
            order.sort_by_key(|(_, task)| task.tid);
        }
        let rate = |done: u64| seconds.map(|seconds| done as f64 / seconds);
        let shares = self.sampler.as_ref().and_then(|sampler| sampler.shares());
        let row = |(done, task): &(u64, &TaskInfo)| Row {
            rate: rate(*done),
            share: shares.as_ref().map(|shares| shares.of(task.tid)),
            ..Row::of(task)
        };
        let rows = order.iter().map(row).collect();
        totals.rate = rate(all);
        totals.idle = shares.as_ref().map(Shares::idle);
        totals.watching = shares.as_ref().map(Shares::daemons);
        let traps = tasks.iter().map(|task| (task.tid, task.traps));
        self.before = Some((now, traps.collect()));
        Snapshot {
            tasks: rows,
            totals,
        }
    }
}

/// How long to wait after listing so many tasks: about forty times the time of the listing. A few
/// tasks have a minimum, since each answer takes time.
pub(super) fn pause(tasks: usize) -> Duration {
    Duration::from_micros(4 * tasks as u64).clamp(Duration::from_millis(1), LONGEST)
}

/// A task, the chain of tasks that it waits for, and its last traps as lines.
pub(in crate::cli) type Whereabouts = (Vec<Row>, Vec<Map<String, Value>>);

/// A task and the chain that it waits for, as indices into the list. In a cycle, the last entry
/// repeats an earlier one. Empty if the task does not exist.
pub(super) fn chain(tasks: &[TaskInfo], tid: u64) -> Vec<usize> {
    let find = |tid: Tid| tasks.binary_search_by_key(&tid, |task| task.tid).ok();
    let mut chain = Vec::new();
    let mut seen = FxHashSet::default();
    let mut next = find(tid.into());
    while let Some(at) = next {
        chain.push(at);
        let target = tasks[at].waits_for().filter(|_| seen.insert(at));
        next = target.and_then(find);
    }
    chain
}

/// The index of a task, if it exists.
pub(in crate::cli) fn whereabouts(
    tasks: &[TaskInfo],
    calls: &Follower,
    tid: u64,
) -> Option<Whereabouts> {
    let chain = chain(tasks, tid);
    let rows: Vec<Row> = chain.iter().map(|&at| Row::of(&tasks[at])).collect();
    (!rows.is_empty()).then(|| (rows, recent::lines(calls, tid.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;

    #[test]
    fn a_filter_finds_a_stuck_task_among_thousands() {
        let mut kernel = Kernel::simulated(1);
        let main = kernel.spawn("main", async |os: &mut Os| {
            for n in 0..3000 {
                let name = if n == 1234 { "stuck" } else { "client" };
                os.spawn(name, async |os: &mut Os| os.sleep(Duration::MAX).await)
                    .await?;
            }
            os.yield_now().await;
            let mut model = Model {
                sampler: None,
                before: None,
            };
            let found = model.snapshot(os, 10, "stuck").await;
            assert_eq!(found.totals.matching, Some(1));
            assert_eq!(found.totals.tasks, 3001);
            assert_eq!(found.tasks.len(), 1);
            assert_eq!(found.tasks[0].comm, "stuck");
            let many = model.snapshot(os, 10, "client").await;
            assert_eq!((many.totals.matching, many.tasks.len()), (Some(2999), 10));
            let none = model.snapshot(os, 10, "zzz").await;
            assert_eq!((none.totals.matching, none.tasks.len()), (Some(0), 0));
            assert_eq!(model.snapshot(os, 10, "").await.totals.matching, None);
            Ok::<(), crate::Errno>(())
        });
        let main = main.expect("there is room");
        let report = kernel.run_until(&[main]).expect("the run ends well");
        report.check().expect("the task ends well");
    }
}
