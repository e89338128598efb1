//! A task of a listing, and a row before it is made.

use std::{collections::BTreeMap, ops::Add};

use trapline::{KernelId, Ledger, On, TaskInfo, TaskState, Tid};

use super::row::{Group, Row, State, brief};

/// What the order of a row depends on: of a task, or of all tasks of a name.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// The task, or the first of them.
    pub(super) task: &'a TaskInfo,
    /// Its kernel, if others run beside it: its number is before those of the tasks.
    pub(super) kernel: Option<KernelId>,
    pub(super) tid: Tid,
    pub(super) parent: Tid,
    pub(crate) state: State,
    /// What it waits for, in a word; or its state.
    pub(crate) kind: &'a str,
    /// In seconds since boot.
    pub(crate) since: Option<f64>,
    pub(super) traps: u64,
    pub(super) rate: Option<f64>,
    pub(super) share: Option<f64>,
}

/// A row before it is made.
pub(crate) struct Line<'a> {
    pub(super) entry: Entry<'a>,
    /// The tasks, if they are not one.
    pub(super) many: Vec<Entry<'a>>,
    pub(super) branch: String,
}

/// The number of a task, with that of its kernel if others run beside it. The host is no task.
pub(super) fn shown(kernel: Option<KernelId>, tid: Tid) -> Tid {
    match kernel {
        Some(kernel) if tid != Tid::KERNEL => tid.beside(kernel),
        _ => tid,
    }
}

impl<'a> Entry<'a> {
    pub(crate) fn of(kernel: Option<KernelId>, task: &'a TaskInfo) -> Self {
        let (state, kind, since) = match &task.state {
            TaskState::Ready => (State::Ready, "ready", None),
            TaskState::Running => (State::Running, "running", None),
            TaskState::Zombie(_) => (State::Zombie, "zombie", None),
            TaskState::Blocked { on, since } => {
                let thing = task.wait.thing.as_deref();
                let kind = match on {
                    On::Exit(_) => "task",
                    On::Timer(_) => "timer",
                    On::Device(..) => "device",
                    _ => thing.unwrap_or("queue").split(' ').next().unwrap_or(""),
                };
                (State::Blocked, kind, Some(since.as_secs_f64()))
            }
        };
        Self {
            task,
            kernel,
            tid: shown(kernel, task.tid),
            parent: shown(kernel, task.parent),
            state,
            kind,
            since,
            traps: task.traps,
            rate: None,
            share: None,
        }
    }

    pub(super) fn tid(&self) -> Tid {
        self.tid
    }
}

impl<'a> Line<'a> {
    pub(super) fn of(entry: Entry<'a>) -> Self {
        Self {
            entry,
            many: Vec::new(),
            branch: String::new(),
        }
    }

    /// Adds a task to those of a name: they are in the state that comes first, since the longest time.
    pub(super) fn add(&mut self, task: Entry<'a>) {
        type Of = fn(f64, f64) -> f64;
        let both = |a: Option<f64>, b: Option<f64>, of: Of| a.into_iter().chain(b).reduce(of);
        let all = &mut self.entry;
        all.state = all.state.min(task.state);
        all.since = both(all.since, task.since, f64::min);
        all.traps += task.traps;
        all.rate = both(all.rate, task.rate, f64::add);
        all.share = both(all.share, task.share, f64::add);
        if all.parent != task.parent {
            all.parent = Tid::KERNEL;
        }
        self.many.push(task);
    }

    /// The ledger has the addresses of devices.
    pub(crate) fn row(self, recent: &Ledger) -> Row {
        let Entry { task, state, .. } = self.entry;
        let row = Row {
            tid: self.entry.tid(),
            comm: brief(task.name.clone()),
            parent: self.entry.parent,
            state,
            since: self.entry.since,
            traps: self.entry.traps,
            rate: self.entry.rate,
            share: self.entry.share,
            branch: self.branch,
            ..Row::default()
        };
        if let Some(first) = self.many.first() {
            let mut group = Group {
                tasks: self.many.len(),
                has_parents: self.many.iter().any(|task| task.parent != first.parent),
                kinds: BTreeMap::new(),
            };
            for task in &self.many {
                *group.kinds.entry(task.kind.to_string()).or_default() += 1;
            }
            let group = Some(group);
            return Row { group, ..row };
        }
        let blocked_on = match task.state {
            _ if state == State::InCall => recent.last(task.tid).map(ToString::to_string),
            // A simulated network has described the connection.
            TaskState::Blocked { on, .. } if task.wait.thing.is_none() => Some(match on {
                On::Exit(tid) => On::Exit(shown(self.entry.kernel, tid)).to_string(),
                on => recent.thing(on),
            }),
            _ => task.blocked_on().map(brief),
        };
        Row {
            blocked_on,
            waits_for: task.waits_for().map(|tid| shown(self.entry.kernel, tid)),
            places: task.places().map(brief),
            daemon: task.is_daemon,
            limits: task.limits.clone().map(brief),
            exit: match &task.state {
                TaskState::Zombie(exit) => Some(brief(exit.to_string())),
                _ => None,
            },
            ..row
        }
    }
}
