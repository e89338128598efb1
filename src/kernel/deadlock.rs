//! The report of a deadlock: the blocked tasks, and the cycles among them.

use std::{collections::BTreeSet, fmt};

use crate::{
    abi::{KernelId, TaskInfo, TaskState, Tid},
    log::{
        Cycle,
        waits::{choose, cycles, tails},
    },
};

/// Tasks that wait for one another. Either no task was ready, and no timer, device or interrupt
/// could make one ready. Or a cycle closed among tasks that wait for locks and for each other's
/// exits, while other tasks may run.
///
/// Its `Display` is the report. Each blocked task has a line with what it waits for and since when.
/// Each cycle has a line, and further lines list the tasks that wait on a cycle. The length of the
/// report is linear in the number of tasks.
#[derive(Clone, Debug)]
pub struct Deadlock {
    /// Whether only the tasks of a cycle are stuck, and other tasks may run.
    pub is_partial: bool,
    /// The blocked tasks, by tid. If partial: those on the cycle, and those that wait for them.
    pub blocked: Vec<TaskInfo>,
    /// Each ring of tasks that wait for one another, beginning with its lowest tid; ordered by
    /// that.
    pub cycles: Vec<Vec<Tid>>,
    /// Paths of tasks that wait, directly or through others, for a task on a cycle. A path begins
    /// with a task for which no task waits; the paths are ordered by that. It ends with the first
    /// task that is on a cycle or on an earlier path. So each task is listed once, apart from the
    /// ends.
    pub tails: Vec<Vec<Tid>>,
}

impl Deadlock {
    /// Returns the report of tasks of which none can run: they are all tasks, and nothing can make one
    /// ready.
    pub fn of(tasks: impl IntoIterator<Item = TaskInfo>) -> Self {
        Self::by(
            tasks.into_iter(),
            TaskInfo::waits_for_when_stuck,
            None,
            false,
        )
    }

    fn by(
        tasks: impl Iterator<Item = TaskInfo>,
        ender: fn(&TaskInfo) -> Option<Tid>,
        toward: Option<Tid>,
        is_partial: bool,
    ) -> Self {
        let blocked: Vec<_> = tasks
            .filter(|task| matches!(task.state, TaskState::Blocked { .. }))
            .collect();
        let enders = |task: &TaskInfo| {
            let several = task.wait.enders.iter().copied();
            (task.tid, several.chain(ender(task)).collect())
        };
        let waits = choose(blocked.iter().map(enders).collect(), toward);
        let cycles = cycles(&waits);
        let tails = tails(&waits, &cycles);
        Self {
            is_partial,
            blocked,
            cycles,
            tails,
        }
    }

    /// Returns the blocked tasks among these, and their cycles: of a kernel that runs.
    ///
    /// ```
    /// # use trapline::{Deadlock, Kernel, Os};
    /// # let mut kernel = Kernel::simulated(1);
    /// kernel.spawn("one", async |os: &mut Os| os.wait(2.into()).await.map(drop))?;
    /// kernel.spawn("two", async |os: &mut Os| os.wait(1.into()).await.map(drop))?;
    /// kernel.step()?;
    /// kernel.step()?;
    /// assert_eq!(Deadlock::among(kernel.tasks()).cycles, [[1, 2].map(From::from)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn among(tasks: impl IntoIterator<Item = TaskInfo>) -> Self {
        Self::by(tasks.into_iter(), TaskInfo::waits_for, None, true)
    }

    /// Returns the report with the number of its kernel before those of the tasks.
    pub(super) fn beside(self, kernel: KernelId) -> Self {
        let beside = |paths: Vec<Vec<Tid>>| {
            let path = |path: Vec<Tid>| path.into_iter().map(|tid| tid.beside(kernel)).collect();
            paths.into_iter().map(path).collect()
        };
        Self {
            is_partial: self.is_partial,
            blocked: TaskInfo::all_beside(self.blocked, kernel),
            cycles: beside(self.cycles),
            tails: beside(self.tails),
        }
    }

    /// Returns the cycle that this task is on, with the tasks that wait for it.
    pub(super) fn around(tid: Tid, tasks: impl Iterator<Item = TaskInfo>) -> Self {
        let mut deadlock = Self::by(tasks, TaskInfo::waits_for, Some(tid), true);
        deadlock.cycles.retain(|ring| ring.contains(&tid));
        let mut stuck: BTreeSet<Tid> = deadlock.cycles.iter().flatten().copied().collect();
        // A path ends on a cycle or on an earlier path.
        deadlock.tails.retain(|path| {
            let leads_there = path.last().is_some_and(|last| stuck.contains(last));
            if leads_there {
                stuck.extend(path);
            }
            leads_there
        });
        deadlock.blocked.retain(|task| stuck.contains(&task.tid));
        deadlock
    }
}

impl Deadlock {
    /// Returns whether this is how a simulation of servers ends: a task waits for a connection, which
    /// no task will make. No client waits for an answer, and no tasks wait for one another. The
    /// commands count it as a good end.
    ///
    /// A client waits at a connection's end that [`Os::connect`](crate::Os::connect) has opened. It
    /// has sent something and has read nothing since, or it has no room to send. So a server that
    /// forgets an answer or stops reading is found, and a fault that loses an answer. An idle
    /// connection is at rest: its client has read the last answer. An answer that stops in its
    /// middle is not found. Neither is the second of two answers that a client asks for at once.
    ///
    /// ```
    /// use trapline::{Error, Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn("server", async |os: &mut Os| {
    ///     let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
    ///     listener.accept(os).await.map(drop)
    /// })?;
    /// let Err(Error::Deadlock(deadlock)) = kernel.run() else { panic!() };
    /// assert!(deadlock.is_at_rest());
    /// # Ok::<(), trapline::Errno>(())
    /// ```
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let accepts = self.blocked.iter().any(|task| task.wait.is_accept);
        accepts && self.cycles.is_empty() && self.clients().next().is_none()
    }

    fn clients(&self) -> impl Iterator<Item = &TaskInfo> {
        self.blocked.iter().filter(|task| task.wait.is_client)
    }
}

impl std::error::Error for Deadlock {}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lacks_answers = self.cycles.is_empty() && self.clients().next().is_some();
        f.write_str(if self.is_partial {
            "deadlock: tasks wait for one another, and no other can end that"
        } else if lacks_answers {
            "deadlock: a client waits for an answer, and nothing can bring it"
        } else {
            "deadlock: no task is ready, and nothing can make one ready"
        })?;
        write_tasks(f, &self.blocked)?;
        for ring in &self.cycles {
            write!(f, "\n  cycle: {}", Cycle(ring))?;
        }
        let on_cycle: BTreeSet<&Tid> = self.cycles.iter().flatten().collect();
        for path in &self.tails {
            let tids: Vec<String> = path.iter().map(Tid::to_string).collect();
            write!(f, "\n  waits on a cycle: {}", tids.join(" -> "))?;
            if path.last().is_some_and(|last| !on_cycle.contains(last)) {
                f.write_str(" (see above)")?;
            }
        }
        if !self.is_partial {
            for TaskInfo { tid, name, .. } in self.clients() {
                write!(f, "\n  a client without an answer: {tid} {name:?}")?;
            }
        }
        Ok(())
    }
}

/// Writes a line per task, and one with its places in the source.
pub(super) fn write_tasks(f: &mut fmt::Formatter<'_>, tasks: &[TaskInfo]) -> fmt::Result {
    for task in tasks {
        write!(f, "\n  {task}")?;
        if let Some(places) = task.places() {
            write!(f, "\n    {places}")?;
        }
    }
    Ok(())
}
