//! Who waits for whom when nothing can go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::abi::{On, TaskInfo, TaskState, Tid};

/// No task was ready, and no timer, device or interrupt could make one ready.
///
/// Its `Display` is the report: a line per blocked task with what it waits for and since when, a
/// line per cycle, and a line per task that waits on a cycle.
#[derive(Clone, Debug)]
pub struct Deadlock {
    /// The blocked tasks, by tid.
    pub blocked: Vec<TaskInfo>,
    /// Each ring of tasks that wait for one another, from its lowest tid on; ordered by that.
    pub cycles: Vec<Vec<Tid>>,
    /// Each task that waits, directly or through others, for a task on a cycle: the way there,
    /// ending with the first task that is on it.
    pub tails: Vec<Vec<Tid>>,
}

impl Deadlock {
    pub(super) fn of(tasks: impl Iterator<Item = TaskInfo>) -> Self {
        let blocked: Vec<_> = tasks
            .filter(|task| matches!(task.state, TaskState::Blocked { .. }))
            .collect();
        let waits: BTreeMap<Tid, Tid> = blocked.iter().filter_map(edge).collect();
        let cycles = cycles(&waits);
        let on_cycle: BTreeSet<Tid> = cycles.iter().flatten().copied().collect();
        // Who is known to wait for no cycle: no need to go that way again.
        let mut open = BTreeSet::new();
        let mut tails = Vec::new();
        for &start in waits.keys().filter(|tid| !on_cycle.contains(tid)) {
            let mut way = vec![start];
            let mut last = start;
            while !on_cycle.contains(&last) && !open.contains(&last) {
                let Some(&next) = waits.get(&last) else { break };
                way.push(next);
                last = next;
            }
            if on_cycle.contains(&last) {
                tails.push(way);
            } else {
                open.extend(way);
            }
        }
        Self {
            blocked,
            cycles,
            tails,
        }
    }
}

/// Whom a task waits for, where that is a task.
fn edge(task: &TaskInfo) -> Option<(Tid, Tid)> {
    match task.state {
        TaskState::Blocked {
            on: On::Exit(target),
            ..
        } => Some((task.tid, target)),
        TaskState::Blocked { .. }
        | TaskState::Ready
        | TaskState::Running
        | TaskState::Zombie(_) => None,
    }
}

/// The cycles of a graph in which each task waits for one other at most: whoever is met again on
/// one walk is on one.
fn cycles(waits: &BTreeMap<Tid, Tid>) -> Vec<Vec<Tid>> {
    let mut walk_of: BTreeMap<Tid, Tid> = BTreeMap::new();
    let mut cycles = Vec::new();
    for &start in waits.keys() {
        let mut tid = start;
        while !walk_of.contains_key(&tid) {
            walk_of.insert(tid, start);
            let Some(&next) = waits.get(&tid) else { break };
            tid = next;
        }
        if walk_of[&tid] == start && waits.contains_key(&tid) {
            let mut ring = vec![tid];
            let mut next = waits[&tid];
            while next != tid {
                ring.push(next);
                next = waits[&next];
            }
            let lowest = (0..ring.len()).min_by_key(|&at| ring[at]).unwrap_or(0);
            ring.rotate_left(lowest);
            cycles.push(ring);
        }
    }
    cycles.sort();
    cycles
}

impl std::error::Error for Deadlock {}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadlock: no task is ready, and nothing can make one ready")?;
        for task in &self.blocked {
            write!(f, "\n  {task}")?;
        }
        for ring in &self.cycles {
            write!(f, "\n  cycle: {} -> {}", Way(ring), ring[0])?;
        }
        for way in &self.tails {
            write!(f, "\n  waits on a cycle: {}", Way(way))?;
        }
        Ok(())
    }
}

struct Way<'a>(&'a [Tid]);

impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, tid) in self.0.iter().enumerate() {
            let arrow = if at == 0 { "" } else { " -> " };
            write!(f, "{arrow}{tid}")?;
        }
        Ok(())
    }
}
