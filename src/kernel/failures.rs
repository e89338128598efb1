//! The tasks that ended badly: which of them count, and which are named.

use std::{collections::BTreeMap, fmt};

use super::{
    table::Tasks,
    task::{OnExit, Task},
    waiters::Waiters,
};
use crate::{
    abi::{Exit, Place, Tid},
    sched::Slot,
};

/// What a report knows of the tasks that failed or faulted.
#[derive(Clone, Debug, Default)]
pub(super) struct BadEnds {
    /// By task: the first 16 that failed, and the first 16 that faulted; and all that a task may yet wait
    /// for.
    failed: BTreeMap<Tid, Failed>,
    /// How many of these no task can wait for any more: that failed, and that faulted.
    named: [usize; 2],
    /// The number of tasks that failed or faulted, waited for or not.
    all: u64,
    /// The number of tasks that faulted, without the children of supervisors.
    faults: u64,
}

impl BadEnds {
    /// Adds a task that failed or faulted. Returns whether it counts.
    pub(super) fn add(
        &mut self,
        tid: Tid,
        name: &str,
        exit: &Exit,
        at: Option<&Place>,
        standing: Standing,
    ) -> bool {
        let failed = Failed {
            nth: self.all,
            tid,
            name: name.to_string(),
            exit: exit.clone(),
            at: at.cloned(),
            standing,
        };
        self.all += 1;
        let is_fault = failed.is_fault();
        if standing == Standing::Judged || standing == Standing::Waited && !is_fault {
            return false;
        }
        self.faults += u64::from(is_fault);
        let is_open = standing.is_open() && !is_fault;
        if is_open || self.has_room(is_fault) {
            self.named[usize::from(is_fault)] += usize::from(!is_open);
            self.failed.insert(tid, failed);
        }
        true
    }

    fn has_room(&self, is_fault: bool) -> bool {
        self.named[usize::from(is_fault)] < Failures::NAMED
    }

    /// Returns whether that task failed, and its standing is open in this way.
    pub(super) fn is_open(&self, tid: Tid, is: impl Fn(Standing) -> bool) -> bool {
        let failed = self.failed.get(&tid);
        failed.is_some_and(|failed| !failed.is_fault() && is(failed.standing))
    }

    /// Closes the standing of a task. It is forgotten unless it counts now, and there is room to name it.
    pub(super) fn close(&mut self, tid: Tid, standing: Standing) {
        let is_named = standing == Standing::Counts && self.has_room(false);
        if is_named && let Some(failed) = self.failed.get_mut(&tid) {
            self.named[0] += 1;
            failed.standing = standing;
        } else {
            self.failed.remove(&tid);
        }
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults
    }

    /// Names the first of those that are meant, of which there are so many.
    pub(super) fn failures(&self, count: u64, is: impl Fn(&Failed) -> bool) -> Failures {
        let mut first: Vec<&Failed> = self.failed.values().filter(|failed| is(failed)).collect();
        first.sort_unstable_by_key(|failed| failed.nth);
        let first = first.into_iter().take(Failures::NAMED).cloned().collect();
        Failures { count, first }
    }
}

/// Whether the failure of a task counts. A fault counts in any case but the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It does not: the supervisor of the task fails if it gives up.
    Judged,
    /// It does not: a task has waited for it.
    Waited,
    /// It does, until a task waits for the zombie.
    Zombie,
    /// It does, until a task receives the exit through the handle that has it.
    Kept,
    /// It does.
    Counts,
}

impl Standing {
    /// The standing of a task that ends now.
    pub(super) fn of(tasks: &Tasks, task: &Task, waiters: Option<&Waiters>) -> Self {
        // A daemon observes, and changes nothing.
        let is_task = |waiter: Slot| !tasks.runnable(waiter).tid.is_daemon();
        let judges = |waiters: &Waiters| {
            waiters
                .keeper
                .as_ref()
                .is_some_and(|keeper| keeper.judges())
        };
        match waiters {
            Some(waiters) if judges(waiters) => Self::Judged,
            Some(waiters) if waiters.iter().any(is_task) => Self::Waited,
            Some(waiters) if waiters.keeper.is_some() => Self::Kept,
            _ if task.on_exit == OnExit::Zombie => Self::Zombie,
            _ => Self::Counts,
        }
    }

    /// Returns whether a task may yet wait for it.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Zombie | Self::Kept)
    }
}

/// The tasks that faulted, and those that failed without a wait for them, reported by
/// [`Report::check`](crate::Report::check). Its `Display` has a line for each of the first 16, with the place of a panic.
#[derive(Clone, Debug)]
pub struct Failures {
    /// The number of such tasks.
    pub count: u64,
    first: Vec<Failed>,
}

/// A task that failed or faulted.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// Its number in the order of such ends.
    nth: u64,
    tid: Tid,
    name: String,
    exit: Exit,
    /// The place of its panic.
    at: Option<Place>,
    standing: Standing,
}

impl Failed {
    pub(super) fn is_fault(&self) -> bool {
        matches!(self.exit, Exit::Faulted(_))
    }
}

impl Failures {
    /// The number of tasks that are named.
    pub(super) const NAMED: usize = 16;
}

impl std::error::Error for Failures {}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, failed) in self.first.iter().enumerate() {
            if nth > 0 {
                f.write_str("\n")?;
            }
            write!(f, "task {} {:?} {}", failed.tid, failed.name, failed.exit)?;
            if let Some(at) = &failed.at {
                write!(f, ", at {at}")?;
            }
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}
