//! The report of a deadlock: the blocked tasks, and the cycles among them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    abi::{Nanos, On, TaskInfo, TaskState, Tid},
    log::Cycle,
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
        let edge = |task: &TaskInfo| Some((task.tid, task.waits_for_when_stuck()?));
        Self::by(tasks.into_iter(), edge, false)
    }

    fn by(
        tasks: impl Iterator<Item = TaskInfo>,
        edge: fn(&TaskInfo) -> Option<(Tid, Tid)>,
        is_partial: bool,
    ) -> Self {
        let blocked: Vec<_> = tasks
            .filter(|task| matches!(task.state, TaskState::Blocked { .. }))
            .collect();
        let waits: BTreeMap<Tid, Tid> = blocked.iter().filter_map(edge).collect();
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
        let edge = |task: &TaskInfo| Some((task.tid, task.waits_for()?));
        Self::by(tasks.into_iter(), edge, true)
    }

    /// Returns the cycle that this task is on, with the tasks that wait for it.
    pub(super) fn around(tid: Tid, tasks: impl Iterator<Item = TaskInfo>) -> Self {
        let mut deadlock = Self::among(tasks);
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

    /// The clients that wait for an answer.
    fn clients(&self) -> impl Iterator<Item = &TaskInfo> {
        self.blocked.iter().filter(|task| task.wait.is_client)
    }

    /// Returns the report as a graph for Graphviz. Tasks are boxes, what they wait for are
    /// ellipses, and the cycles are red. Graphviz makes it fit a page. More than ten tasks of one
    /// name that wait for the same, or for devices, are one box, unless other tasks wait for them.
    ///
    /// ```
    /// # use trapline::{Deadlock, Error, Kernel, Os};
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn("one", async |os: &mut Os| os.wait(2.into()).await.map(drop))?;
    /// kernel.spawn("two", async |os: &mut Os| os.wait(1.into()).await.map(drop))?;
    /// let Err(Error::Deadlock(deadlock)) = kernel.run() else { panic!() };
    /// assert!(deadlock.dot().contains("task1 -> task2 [label=\"its end\", color=red]"));
    /// # Ok::<(), trapline::Errno>(())
    /// ```
    #[must_use]
    pub fn dot(&self) -> String {
        let mut dot = "digraph waits {\n  rankdir=LR\n  size=\"7.5,10\"\n".to_string();
        let (mut things, mut held) = (BTreeMap::new(), BTreeSet::new());
        let on_cycle = self.on_cycle();
        let crowds = self.crowds();
        let folded: BTreeSet<Tid> = crowds.values().flatten().map(|task| task.tid).collect();
        for task in self
            .blocked
            .iter()
            .filter(|task| !folded.contains(&task.tid))
        {
            let TaskState::Blocked { on, since } = task.state else {
                continue;
            };
            let (tid, since) = (task.tid, Nanos::from(since));
            let color = if on_cycle.contains(&tid) {
                "red"
            } else {
                "black"
            };
            let label = quoted(&format!("{tid} {}\nsince {since}", task.name));
            let (thing, how, name) = thing_of(task, on);
            held.extend(holding(task, &thing));
            dot += &format!("  task{tid} [shape=box, label={label}, color={color}]\n");
            dot += &format!("  task{tid} -> {thing} [label=\"{how}\", color={color}]\n");
            things.extend(name.map(|name| (thing, name)));
        }
        for (at, ((name, thing, how), tasks)) in crowds.iter().enumerate() {
            let label = quoted(&format!("{} x {name}", tasks.len()));
            dot += &format!("  crowd{at} [shape=box, peripheries=2, label={label}]\n");
            dot += &format!("  crowd{at} -> {thing} [label=\"{how}\"]\n");
            held.extend(tasks.iter().filter_map(|task| holding(task, thing)));
            let named = tasks.first().and_then(|task| kind_of(task)?.2);
            things.extend(named.map(|name| (thing.clone(), name)));
        }
        for (thing, name) in things {
            dot += &format!("  {thing} [label={}]\n", quoted(&name));
        }
        for (thing, holder, how) in held {
            dot += &format!("  {thing} -> task{holder} [label=\"{how}\"]\n");
        }
        dot + "}\n"
    }

    /// The tasks that are one box of the graph: by their name, and by what they wait for.
    fn crowds(&self) -> BTreeMap<(&str, String, String), Vec<&TaskInfo>> {
        let awaited = self.blocked.iter().flat_map(|task| {
            let target = match task.state {
                TaskState::Blocked {
                    on: On::Exit(target),
                    ..
                } => Some(target),
                _ => None,
            };
            [target, task.wait.holder].into_iter().flatten()
        });
        let mut apart: BTreeSet<Tid> = awaited.collect();
        apart.extend(self.on_cycle());
        let mut crowds: BTreeMap<_, Vec<&TaskInfo>> = BTreeMap::new();
        for task in self
            .blocked
            .iter()
            .filter(|task| !apart.contains(&task.tid))
        {
            if let Some((thing, how, _)) = kind_of(task) {
                crowds
                    .entry((&*task.name, thing, how))
                    .or_default()
                    .push(task);
            }
        }
        crowds.retain(|_, tasks| tasks.len() > FEW);
        crowds
    }

    fn on_cycle(&self) -> BTreeSet<&Tid> {
        self.cycles.iter().flatten().collect()
    }
}

/// More tasks of one kind are one box of a graph.
const FEW: usize = 10;

/// What a task waits for, as [`thing`] describes it, with the words of the report for it.
fn thing_of(task: &TaskInfo, on: On) -> (String, String, Option<String>) {
    let (thing, how, mut name) = thing(on);
    if let (Some(name), Some(words)) = (&mut name, &task.wait.thing) {
        name.clone_from(words);
    }
    (thing, how, name)
}

/// The edge to the task that holds what another waits for.
fn holding(task: &TaskInfo, thing: &str) -> Option<(String, Tid, &'static str)> {
    let how = match task.wait.is_lock {
        true => "held by",
        false => "last taken by",
    };
    Some((thing.to_string(), task.wait.holder?, how))
}

/// The same for a crowd of tasks: which device, or which instant, makes no difference.
fn kind_of(task: &TaskInfo) -> Option<(String, String, Option<String>)> {
    let TaskState::Blocked { on, .. } = task.state else {
        return None;
    };
    Some(match on {
        On::Device(_, direction) => {
            let name = "devices".to_string();
            (name.clone(), direction.to_string(), Some(name))
        }
        On::Timer(instant) if instant != Nanos::FOREVER => {
            let (thing, _, name) = thing(on);
            (thing, String::new(), name)
        }
        On::Exit(_) | On::Timer(_) | On::Queue(..) => thing_of(task, on),
    })
}

/// The node of what a task waits for, the label of the edge, and the name of the node unless it is
/// a task.
fn thing(on: On) -> (String, String, Option<String>) {
    match on {
        On::Exit(tid) => (format!("task{tid}"), "its end".into(), None),
        On::Timer(Nanos::FOREVER) => ("never".into(), String::new(), Some("nothing".into())),
        On::Timer(instant) => (
            "clock".into(),
            instant.to_string(),
            Some("the clock".into()),
        ),
        On::Device(device, direction) => {
            let name = format!("device {device}");
            (format!("device{device}"), direction.to_string(), Some(name))
        }
        On::Queue(queue, end) => {
            let name = format!("queue {queue}");
            (format!("queue{queue}"), end.to_string(), Some(name))
        }
    }
}

/// Quotes a text for Graphviz.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => quoted.push('?'),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// Finds the cycles of a graph in which each task waits for at most one other. A task that one walk
/// meets twice is on a cycle.
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

/// Finds the paths to the cycles. A path ends at a task that was visited before: its continuation
/// is known.
fn tails(waits: &BTreeMap<Tid, Tid>, cycles: &[Vec<Tid>]) -> Vec<Vec<Tid>> {
    let mut is_stuck: BTreeMap<Tid, bool> =
        cycles.iter().flatten().map(|tid| (*tid, true)).collect();
    let waited_for: BTreeSet<Tid> = waits.values().copied().collect();
    let mut tails = Vec::new();
    for &start in waits.keys().filter(|tid| !waited_for.contains(tid)) {
        let (mut path, mut last) = (vec![start], start);
        while !is_stuck.contains_key(&last)
            && let Some(&next) = waits.get(&last)
        {
            path.push(next);
            last = next;
        }
        let stuck = is_stuck.get(&last) == Some(&true);
        is_stuck.extend(path.iter().map(|tid| (*tid, stuck)));
        if stuck {
            tails.push(path);
        }
    }
    tails
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
        let on_cycle = self.on_cycle();
        for path in &self.tails {
            write!(f, "\n  waits on a cycle: {}", Path(path))?;
            if path.last().is_some_and(|last| !on_cycle.contains(last)) {
                f.write_str(" (see above)")?;
            }
        }
        if !self.is_partial {
            for client in self.clients() {
                write!(
                    f,
                    "\n  a client without an answer: {} {:?}",
                    client.tid, client.name
                )?;
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

struct Path<'a>(&'a [Tid]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, tid) in self.0.iter().enumerate() {
            let arrow = if at == 0 { "" } else { " -> " };
            write!(f, "{arrow}{tid}")?;
        }
        Ok(())
    }
}
