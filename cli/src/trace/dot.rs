//! The wait-for graph as a picture, for Graphviz.

use std::collections::{BTreeMap, BTreeSet};

use trapline::{Deadlock, Nanos, On, TaskInfo, TaskState, Tid};

/// More tasks of one kind are one box of a graph.
const FEW: usize = 10;

/// What a task waits for: the node, the label of the edge, and the label of the node unless it is a task.
type Thing = (String, String, Option<String>);

/// Returns the waits as a graph for Graphviz. Tasks are boxes, what they wait for are ellipses, and the
/// cycles are red. Graphviz makes it fit a page. More than ten tasks of one name that wait for the
/// same, or for devices, are one box, unless other tasks wait for them.
pub(super) fn dot(deadlock: &Deadlock) -> String {
    let mut dot = "digraph waits {\n  rankdir=LR\n  size=\"7.5,10\"\n".to_string();
    let (mut things, mut held) = (BTreeMap::new(), BTreeSet::new());
    let mut draw = |node, style, label: &str, color, thing: Thing, tasks: &[&TaskInfo]| {
        let (label, (thing, how, name)) = (quoted(label), thing);
        dot += &format!("  {node} [shape=box, {style}label={label}{color}]\n");
        dot += &format!("  {node} -> {thing} [label=\"{how}\"{color}]\n");
        held.extend(tasks.iter().flat_map(|task| holding(task, &thing)));
        things.extend(name.map(|name| (thing, name)));
    };
    let on_cycle: BTreeSet<&Tid> = deadlock.cycles.iter().flatten().collect();
    let crowds = crowds(deadlock);
    let folded: BTreeSet<Tid> = crowds.values().flatten().map(|task| task.tid).collect();
    for task in &deadlock.blocked {
        let (tid, name) = (task.tid, &task.name);
        if let TaskState::Blocked { on, since } = task.state
            && !folded.contains(&tid)
        {
            let label = format!("{tid} {name}\nsince {}", Nanos::from(since));
            let color = match on_cycle.contains(&tid) {
                true => ", color=red",
                false => ", color=black",
            };
            draw(
                format!("task{tid}"),
                "",
                &label,
                color,
                thing_of(task, on),
                &[task],
            );
        }
    }
    for (at, ((name, ..), tasks)) in crowds.iter().enumerate() {
        if let Some(thing) = kind_of(tasks[0]) {
            let label = format!("{} x {name}", tasks.len());
            draw(
                format!("crowd{at}"),
                "peripheries=2, ",
                &label,
                "",
                thing,
                tasks,
            );
        }
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
        let known = [target, task.wait.holder].into_iter().flatten();
        known.chain(task.wait.enders.iter().copied())
    });
    let awaited: BTreeSet<Tid> = awaited.collect();
    let mut crowds: BTreeMap<_, Vec<&TaskInfo>> = BTreeMap::new();
    for task in &deadlock.blocked {
        if !awaited.contains(&task.tid)
            && let Some((thing, how, _)) = kind_of(task)
        {
            let key = (&*task.name, thing, how);
            crowds.entry(key).or_default().push(task);
        }
    }
    crowds.retain(|_, tasks| tasks.len() > FEW);
    crowds
}

/// What a task waits for, with the words of the report for it.
fn thing_of(task: &TaskInfo, on: On) -> Thing {
    let (node, how, name) = thing(on);
    let words = name.map(|name| task.wait.thing.clone().unwrap_or(name));
    match (on, &words) {
        (On::First(_), Some(words)) => (quoted(words), how, Some(words.clone())),
        _ => (node, how, words),
    }
}

/// The edges to the task that holds what another waits for, or to those that can end its select.
fn holding(task: &TaskInfo, thing: &str) -> impl Iterator<Item = (String, Tid, &'static str)> {
    let how = match task.wait.is_lock {
        true => "held by",
        false => "last taken by",
    };
    let holder = task.wait.holder.map(|holder| (holder, how));
    let enders = task.wait.enders.iter().map(|ender| (*ender, "ended by"));
    let edges = holder.into_iter().chain(enders);
    edges.map(|(task, how)| (thing.to_string(), task, how))
}

/// The same for a crowd of tasks: which device, or which instant, makes no difference.
fn kind_of(task: &TaskInfo) -> Option<Thing> {
    let TaskState::Blocked { on, .. } = task.state else {
        return None;
    };
    let (node, how, name) = thing_of(task, on);
    Some(match on {
        On::Device(..) => ("devices".into(), how, Some("devices".into())),
        On::Timer(instant) if instant != Nanos::FOREVER => (node, String::new(), name),
        _ => (node, how, name),
    })
}

fn thing(on: On) -> Thing {
    match on {
        On::Exit(tid) => (format!("task{tid}"), "its end".into(), None),
        On::Timer(Nanos::FOREVER) => ("never".into(), String::new(), Some("nothing".into())),
        On::Timer(instant) => {
            let name = Some("the clock".into());
            ("clock".into(), instant.to_string(), name)
        }
        On::Device(device, direction) => {
            let name = format!("device {device}");
            (format!("device{device}"), direction.to_string(), Some(name))
        }
        On::Queue(queue, end) => {
            let name = format!("queue {queue}");
            (format!("queue{queue}"), end.to_string(), Some(name))
        }
        other => ("first".into(), "select".into(), Some(other.to_string())),
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

    #[test]
    fn each_task_of_a_great_ring_is_a_red_box() {
        const RING: u64 = 20_000;
        let mut kernel = Kernel::simulated(0);
        for task in 1..=RING {
            let next = (task % RING + 1).into();
            let task = async move |os: &mut Os| os.wait(next).await.map(drop);
            kernel.spawn("t", task).unwrap();
        }
        let Err(Error::Deadlock(deadlock)) = kernel.run() else {
            panic!("the tasks wait for ever");
        };
        let red = dot(&deadlock).matches("color=red").count();
        assert_eq!(red as u64, 2 * RING);
    }
}
