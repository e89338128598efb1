//! The wait-for graph at the end of a log, which explains a deadlock.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use crate::{Event, Fact, Follower, Nanos, On, Place, QueueId, Reply, SystemCall, Tid, Tracer};

/// Tracks what tasks wait for, from events that it takes in order.
pub(super) struct Watch {
    /// The live tasks, with what each is blocked on, and since when.
    blocked: BTreeMap<Tid, Option<(On, Duration)>>,
    /// With the previous call: a task waits for a thread in the call after a `submit`.
    tasks: Follower,
    /// The task that got the last message from a queue. For a lock's queue, that is the lock's
    /// holder.
    takers: BTreeMap<QueueId, Tid>,
}

/// The tasks that were blocked when the log ended.
#[derive(Default)]
pub(super) struct Waits {
    /// By tid.
    pub(super) blocked: Vec<Waiting>,
    /// Each cycle of tasks that wait for one another, starting at its lowest tid.
    pub(super) cycles: Vec<Vec<Tid>>,
    /// Whether no task was ready, and no timer, device or work on a thread could make one ready.
    pub(super) is_deadlock: bool,
}

/// A task that was blocked.
pub(super) struct Waiting {
    pub(super) tid: Tid,
    pub(super) name: String,
    pub(super) call: String,
    /// The name of the call.
    pub(super) method: &'static str,
    pub(super) place: Option<Place>,
    pub(super) spawned: Option<Place>,
    pub(super) on: On,
    /// The object that the queue is part of, in words.
    pub(super) object: Option<String>,
    /// The address of the device: of the peer of a connection, or a listener's own.
    pub(super) addr: Option<SocketAddr>,
    pub(super) since: Duration,
    /// The live task that it waits for. It is the target of `wait_task`, or the task that got the
    /// queue's last message.
    pub(super) target: Option<Tid>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            blocked: BTreeMap::new(),
            tasks: Follower::keeping(2),
            takers: BTreeMap::new(),
        }
    }
}

impl Watch {
    /// Takes the next event.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        let tid = event.tid;
        if tid == Tid::KERNEL {
            return;
        }
        self.tasks.event(event);
        match event.fact {
            Fact::Exited { .. } | Fact::Reaped => {
                self.blocked.remove(&tid);
                return;
            }
            Fact::Blocked { on } => {
                self.blocked.insert(tid, Some((on, event.at)));
                return;
            }
            Fact::Woken { .. } => {
                self.blocked.insert(tid, None);
                return;
            }
            Fact::Replied { reply, .. } => {
                if let (Some(queue), Reply::Message(_)) = (self.gets(tid), reply) {
                    self.takers.insert(queue, tid);
                }
            }
            Fact::Spawned { .. }
            | Fact::Fault { .. }
            | Fact::Trapped { .. }
            | Fact::Deferred { .. }
            | Fact::Injected { .. }
            | Fact::Resumed
            | Fact::DeviceIo { .. }
            | Fact::Console { .. }
            | Fact::Deadlocked { .. }
            | Fact::Computing { .. }
            | Fact::Preempted { .. }
            | Fact::ClockJumped { .. } => {}
        }
        self.blocked.entry(tid).or_default();
    }

    /// Whether an event is a failure, as [`Follower::is_error`] has it.
    pub(super) fn is_error(&self, event: &Event<'_>) -> bool {
        self.tasks.is_error(event)
    }

    /// The text of a task's last call.
    pub(super) fn call(&self, tid: Tid) -> String {
        let call = self.tasks.last(tid);
        call.map_or_else(String::new, ToString::to_string)
    }

    /// The queue that a task's last call takes a message from.
    fn gets(&self, tid: Tid) -> Option<QueueId> {
        match self.tasks.last(tid)?.call {
            SystemCall::Get(queue) | SystemCall::TryGet(queue) => Some(queue),
            _ => None,
        }
    }

    /// Whether a thread works for the task: its previous call submitted work.
    fn has_helper(&self, tid: Tid) -> bool {
        let before = self.tasks.calls(tid).rev().nth(1);
        before.is_some_and(|call| call.call == SystemCall::Submit)
    }

    /// The result at the end of the log.
    pub(super) fn finish(self) -> Waits {
        let is_hopeless = |(&tid, blocked): (&Tid, &Option<(On, Duration)>)| {
            !self.has_helper(tid)
                && matches!(
                    blocked,
                    Some((On::Exit(_) | On::Queue(..) | On::Timer(Nanos::FOREVER), _))
                )
        };
        let is_deadlock = !self.blocked.is_empty() && self.blocked.iter().all(is_hopeless);
        let blocked = self.blocked.iter();
        let blocked: Vec<Waiting> = blocked
            .filter_map(|(&tid, blocked)| Some(self.waiting(tid, (*blocked)?)))
            .collect();
        Waits {
            cycles: cycles(&blocked),
            blocked,
            is_deadlock,
        }
    }

    fn waiting(&self, tid: Tid, (on, since): (On, Duration)) -> Waiting {
        let target = match on {
            On::Exit(target) => Some(target),
            On::Queue(queue, _) => self.takers.get(&queue).copied(),
            On::Timer(_) | On::Device(..) => None,
        };
        let call = self.tasks.last(tid);
        Waiting {
            tid,
            name: self.tasks.comm(tid).to_string(),
            call: call.map_or("?".to_string(), ToString::to_string),
            method: call.map_or("", |call| call.call.name()),
            place: call.and_then(|call| call.place.clone()),
            spawned: self.tasks.spawned(tid).cloned(),
            on,
            object: match on {
                On::Queue(queue, _) => self.tasks.object(queue),
                On::Exit(_) | On::Timer(_) | On::Device(..) => None,
            },
            addr: match on {
                On::Device(device, _) => self.tasks.addr(device),
                On::Exit(_) | On::Timer(_) | On::Queue(..) => None,
            },
            since,
            target: target.filter(|target| *target != tid && self.blocked.contains_key(target)),
        }
    }
}

/// Each task waits for at most one other. A task that is met twice on one path is on a cycle.
fn cycles(blocked: &[Waiting]) -> Vec<Vec<Tid>> {
    let next: BTreeMap<Tid, Tid> = blocked
        .iter()
        .filter_map(|waiting| Some((waiting.tid, waiting.target?)))
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
