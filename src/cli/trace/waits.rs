//! Who waits for whom at the end of a log: what is to be known when nothing can go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{Call, Event, Fact, Nanos, On, QueueId, Reply, SystemCall, Tid};

/// Keeps what tasks wait for, of events that it takes in order.
#[derive(Default)]
pub(super) struct Watch {
    tasks: BTreeMap<Tid, Task>,
    /// Who got a message from a queue last: of a lock's, who holds the lock.
    takers: BTreeMap<QueueId, Tid>,
}

#[derive(Default)]
struct Task {
    name: String,
    /// Its last call, which it still waits in if it is blocked.
    call: String,
    /// The queue that it wants a message from.
    gets: Option<QueueId>,
    blocked: Option<(On, Duration)>,
    /// Whether its last call handed work to a thread, or the one before: then it waits for that.
    submits: bool,
    has_helper: bool,
}

/// The tasks that were blocked when the log ended.
#[derive(Default)]
pub(super) struct Waits {
    /// By tid.
    pub(super) blocked: Vec<Waiting>,
    /// Each ring of tasks that wait for one another, from its lowest tid on.
    pub(super) cycles: Vec<Vec<Tid>>,
    /// Whether no task was ready, and no timer, device or work on a thread could make one ready.
    pub(super) is_deadlock: bool,
}

/// A task that was blocked.
pub(super) struct Waiting {
    pub(super) tid: Tid,
    pub(super) name: String,
    pub(super) call: String,
    pub(super) on: On,
    pub(super) since: Duration,
    /// The live task that it waits for: it waits for its end, or the other got the last message of
    /// the queue.
    pub(super) whom: Option<Tid>,
}

impl Watch {
    /// Takes the next event.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        if event.tid == Tid::KERNEL {
            return;
        }
        if let Fact::Exited { .. } | Fact::Reaped = event.fact {
            self.tasks.remove(&event.tid);
            return;
        }
        let task = self.tasks.entry(event.tid).or_default();
        match event.fact {
            Fact::Spawned { name, .. } => task.name = name.to_string(),
            Fact::Trapped { call, detail } => {
                task.call = Call(call, detail).to_string();
                task.has_helper = task.submits;
                task.submits = call == SystemCall::Submit;
                task.gets = match call {
                    SystemCall::Get(queue) | SystemCall::TryGet(queue) => Some(queue),
                    _ => None,
                };
            }
            Fact::Replied { reply, .. } => {
                if let (Some(queue), Reply::Message(_)) = (task.gets, reply) {
                    self.takers.insert(queue, event.tid);
                }
            }
            Fact::Blocked { on } => task.blocked = Some((on, event.at)),
            Fact::Woken { .. } => task.blocked = None,
            Fact::Resumed
            | Fact::Deferred { .. }
            | Fact::DeviceIo { .. }
            | Fact::Console { .. }
            | Fact::Exited { .. }
            | Fact::Reaped
            | Fact::ClockJumped { .. } => {}
        }
    }

    /// What there is at the end of the log.
    pub(super) fn finish(self) -> Waits {
        let is_hopeless = |task: &Task| {
            !task.has_helper
                && matches!(
                    task.blocked,
                    Some((On::Exit(_) | On::Queue(..) | On::Timer(Nanos::FOREVER), _))
                )
        };
        let is_deadlock = !self.tasks.is_empty() && self.tasks.values().all(is_hopeless);
        let blocked: Vec<Waiting> = self
            .tasks
            .iter()
            .filter_map(|(&tid, task)| {
                let (on, since) = task.blocked?;
                let whom = match on {
                    On::Exit(target) => Some(target),
                    On::Queue(queue, _) => self.takers.get(&queue).copied(),
                    On::Timer(_) | On::Device(..) => None,
                };
                Some(Waiting {
                    tid,
                    name: task.name.clone(),
                    call: task.call.clone(),
                    on,
                    since,
                    whom: whom.filter(|whom| *whom != tid && self.tasks.contains_key(whom)),
                })
            })
            .collect();
        Waits {
            cycles: cycles(&blocked),
            blocked,
            is_deadlock,
        }
    }
}

/// Each waits for one other at most: whoever is met again on one walk is on a cycle.
fn cycles(blocked: &[Waiting]) -> Vec<Vec<Tid>> {
    let next: BTreeMap<Tid, Tid> = blocked
        .iter()
        .filter_map(|waiting| Some((waiting.tid, waiting.whom?)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut cycles = Vec::new();
    for &start in next.keys() {
        let mut walk = Vec::new();
        let mut at = Some(start);
        while let Some(tid) = at.filter(|tid| seen.insert(*tid)) {
            walk.push(tid);
            at = next.get(&tid).copied();
        }
        let met = at.and_then(|tid| walk.iter().position(|other| *other == tid));
        if let Some(met) = met {
            let mut ring = walk.split_off(met);
            let lowest = (0..ring.len()).min_by_key(|&at| ring[at]).unwrap_or(0);
            ring.rotate_left(lowest);
            cycles.push(ring);
        }
    }
    cycles.sort();
    cycles
}
