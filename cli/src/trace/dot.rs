//! The wait-for graph as a picture, for Graphviz.

use std::collections::{BTreeMap, BTreeSet};

use trapline::{Deadlock, Nanos, On, TaskInfo, TaskState, Tid};

/// More tasks of one kind are one box of a graph.
const FEW: usize = 10;

/// Returns the waits as a graph for Graphviz. Tasks are boxes, what they wait for are ellipses, and the
/// cycles are red. Graphviz makes it fit a page. More than ten tasks of one name that wait for the
/// same, or for devices, are one box, unless other tasks wait for them.
pub(super) fn dot(deadlock: &Deadlock) -> String {
    let mut dot = "digraph waits {\n  rankdir=LR\n  size=\"7.5,10\"\n".to_string();
    let (mut things, mut held) = (BTreeMap::new(), BTreeSet::new());
    let on_cycle = on_cycle(deadlock);
    let crowds = crowds(deadlock);
    let folded: BTreeSet<Tid> = crowds.values().flatten().map(|task| task.tid).collect();
    for task in deadlock
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
fn crowds(deadlock: &Deadlock) -> BTreeMap<(&str, String, String), Vec<&TaskInfo>> {
    let awaited = deadlock.blocked.iter().flat_map(|task| {
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
    apart.extend(on_cycle(deadlock));
    let mut crowds: BTreeMap<_, Vec<&TaskInfo>> = BTreeMap::new();
    for task in deadlock
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

fn on_cycle(deadlock: &Deadlock) -> BTreeSet<&Tid> {
    deadlock.cycles.iter().flatten().collect()
}

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
        _ => thing_of(task, on),
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
        other => ("other".into(), String::new(), Some(other.to_string())),
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

#[cfg(test)]
mod tests {
    use super::*;
    use trapline::{Error, Kernel, Os};

    /// The picture of tasks of these names of which each waits for the end of another, and so for ever.
    fn picture(tasks: impl Iterator<Item = (&'static str, u64)>) -> String {
        let mut kernel = Kernel::simulated(0);
        for (name, target) in tasks {
            let task = async move |os: &mut Os| os.wait(target.into()).await.map(drop);
            kernel.spawn(name, task).unwrap();
        }
        let Err(Error::Deadlock(deadlock)) = kernel.run() else {
            panic!("the tasks wait for ever");
        };
        dot(&deadlock)
    }

    #[test]
    fn each_task_of_a_great_ring_is_a_red_box() {
        const RING: u64 = 20_000;
        let dot = picture((1..=RING).map(|task| ("t", task % RING + 1)));
        assert_eq!(dot.matches("color=red").count() as u64, 2 * RING);
    }

    #[test]
    fn tasks_that_wait_alike_are_one_box() {
        let clients = std::iter::repeat_n(("client", 1), 3000);
        let dot = picture([("server", 2)].into_iter().chain(clients));
        assert!(dot.contains("\n  size=\"7.5,10\"\n"), "{dot}");
        assert!(
            dot.contains("label=\"2 client\\n"),
            "the one on the cycle: {dot}"
        );
        assert!(dot.contains("label=\"2999 x client\""), "{dot}");
        assert_eq!(dot.lines().count(), 10, "{dot}");
    }
}
