//! The wait-for graph at the end of a log, which explains a deadlock.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use trapline::{
    Deadlock, Event, Fact, Follower, Nanos, On, Place, QueueId, Reply, SystemCall, TaskInfo,
    TaskState, Tid, Tracer, Wait,
};

use super::queues::Content;

/// Tracks what tasks wait for, from events that it takes in order.
pub(super) struct Watch {
    /// The live tasks, with what each is blocked on, and since when.
    blocked: BTreeMap<Tid, Option<(On, Duration)>>,
    /// With the previous call: a task waits for a thread in the call after a `submit`.
    tasks: Follower,
    /// The task that took a mutex's token last, or a semaphore's permit.
    takers: BTreeMap<QueueId, Tid>,
    /// The timeouts around the next call of a task, the outermost first, and whether they ever end.
    timeouts: BTreeMap<Tid, Vec<(u64, bool)>>,
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
    /// The task that holds the mutex, or took the semaphore's last permit.
    pub(super) holder: Option<Tid>,
    /// Whether it waits for a mutex.
    is_lock: bool,
    /// Whether a timeout can end the wait.
    is_timed: bool,
    /// The task for which it waits: the target of `wait_task`, or the holder.
    pub(super) target: Option<Tid>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            blocked: BTreeMap::new(),
            tasks: Follower::keeping(2),
            takers: BTreeMap::new(),
            timeouts: BTreeMap::new(),
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
        self.note_timeout(event);
        match event.fact {
            Fact::Exited { .. } | Fact::Reaped => {
                self.blocked.remove(&tid);
                self.timeouts.remove(&tid);
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
            _ => {}
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

    /// Notes a timeout around the next calls of a task, or its end.
    fn note_timeout(&mut self, event: &Event<'_>) {
        let tid = event.tid;
        match event.fact {
            Fact::Replied {
                reply: Reply::Timeout(number),
                ..
            } => {
                let last = self.tasks.last(tid);
                let ends = last.is_none_or(|last| match last.call {
                    SystemCall::Timeout(span) => {
                        Nanos::from(last.at).saturating_add(span) < Nanos::FOREVER
                    }
                    _ => true,
                });
                self.timeouts.entry(tid).or_default().push((number, ends));
            }
            Fact::Replied {
                reply: Reply::Elapsed(number),
                ..
            }
            | Fact::Trapped {
                call: SystemCall::Disarm(number),
                ..
            }
            | Fact::Deferred {
                call: SystemCall::Disarm(number),
            } => {
                if let Some(armed) = self.timeouts.get_mut(&tid) {
                    let outer = armed.iter().take_while(|(other, _)| *other != number);
                    armed.truncate(outer.count());
                }
            }
            _ => {}
        }
    }

    /// Whether a thread works for the task: its previous call submitted work.
    fn has_helper(&self, tid: Tid) -> bool {
        let before = self.tasks.calls(tid).rev().nth(1);
        before.is_some_and(|call| call.call == SystemCall::Submit)
    }

    /// The result at the end of the log. `is_whole` tells whether the run ended there.
    pub(super) fn finish(self, is_whole: bool) -> Waits {
        let blocked: Vec<Waiting> = self
            .blocked
            .iter()
            .filter_map(|(&tid, blocked)| Some(self.waiting(tid, (*blocked)?)))
            .collect();
        let is_hopeless = |waiting: &Waiting| {
            let ends = match waiting.on {
                On::Exit(_) | On::Queue(..) => waiting.is_timed,
                On::Timer(deadline) => deadline < Nanos::FOREVER,
                _ => true,
            };
            !ends && !self.has_helper(waiting.tid)
        };
        let is_deadlock = is_whole
            && !blocked.is_empty()
            && blocked.len() == self.blocked.len()
            && blocked.iter().all(is_hopeless);
        let mut waits = Waits {
            blocked,
            cycles: Vec::new(),
            is_deadlock,
        };
        let infos = waits.blocked.iter().map(Waiting::info);
        waits.cycles = match is_deadlock {
            true => Deadlock::of(infos).cycles,
            false => Deadlock::among(infos).cycles,
        };
        for waiting in &mut waits.blocked {
            let info = waiting.info();
            waiting.target = match is_deadlock {
                true => info.waits_for_when_stuck(),
                false => info.waits_for(),
            };
        }
        waits
    }

    fn waiting(&self, tid: Tid, (on, since): (On, Duration)) -> Waiting {
        let object = match on {
            On::Queue(queue, _) => self.tasks.object(queue),
            _ => None,
        };
        let content = Content::of(object.as_deref());
        let holder = match on {
            On::Queue(queue, _) if content != Content::Messages => self.takers.get(&queue).copied(),
            _ => None,
        };
        let call = self.tasks.last(tid);
        let timeouts = self.timeouts.get(&tid);
        Waiting {
            tid,
            name: self.tasks.comm(tid).to_string(),
            call: call.map_or("?".to_string(), ToString::to_string),
            method: call.map_or("", |call| call.call.name()),
            place: call.and_then(|call| call.place.clone()),
            spawned: self.tasks.spawned(tid).cloned(),
            on,
            object,
            addr: match on {
                On::Device(device, _) => self.tasks.addr(device),
                _ => None,
            },
            since,
            holder,
            is_lock: content == Content::Lock,
            is_timed: timeouts.is_some_and(|armed| armed.iter().any(|(_, ends)| *ends)),
            target: None,
        }
    }
}

impl Waiting {
    /// The same as the kernel describes it.
    pub(super) fn info(&self) -> TaskInfo {
        let on = self.on;
        let device = self.addr.map(|addr| format!("{on}, {addr}"));
        let mut wait = Wait::default();
        wait.call = self.method;
        wait.place = self.place.clone();
        wait.thing = self.object.clone().or(device);
        wait.holder = self.holder;
        wait.is_lock = self.is_lock;
        wait.is_timed = self.is_timed;
        TaskInfo {
            tid: self.tid,
            name: self.name.clone(),
            parent: Tid::KERNEL,
            state: TaskState::Blocked {
                on,
                since: self.since,
            },
            traps: 0,
            wait,
            spawned: self.spawned.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use proptest::prelude::*;
    use trapline::{
        Error, Kernel, Os, Queue, SimWorld,
        sync::{Mutex, Semaphore},
    };

    use super::*;

    /// What a task of a random program does.
    #[derive(Clone, Copy, Debug)]
    enum Op {
        Lock(usize),
        Unlock,
        Acquire,
        Release,
        Get(usize),
        Put(usize),
        Join(u64),
        Yield,
        /// The rest of the task, within a timeout.
        Within(u64),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0..3_usize).prop_map(Op::Lock),
            1 => Just(Op::Unlock),
            2 => Just(Op::Acquire),
            1 => Just(Op::Release),
            2 => (0..2_usize).prop_map(Op::Get),
            2 => (0..2_usize).prop_map(Op::Put),
            2 => (1..6_u64).prop_map(Op::Join),
            2 => Just(Op::Yield),
            1 => prop_oneof![Just(5), Just(u64::MAX)].prop_map(Op::Within),
        ];
        prop::collection::vec(op, 0..8)
    }

    /// What the tasks share.
    struct Things {
        locks: Vec<Mutex<()>>,
        permits: Semaphore,
        queues: Vec<Queue<()>>,
    }

    async fn run(os: &mut Os, ops: &[Op], things: &Things) {
        let (mut guards, mut permits) = (Vec::new(), Vec::new());
        for (at, op) in ops.iter().enumerate() {
            match *op {
                Op::Lock(at) => guards.push(things.locks[at].lock(os).await),
                Op::Unlock => drop(guards.pop()),
                Op::Acquire => permits.push(things.permits.acquire(os).await),
                Op::Release => drop(permits.pop()),
                Op::Get(at) => drop(things.queues[at].get(os).await),
                Op::Put(at) => drop(things.queues[at].put(os, ()).await),
                Op::Join(tid) => drop(os.wait(tid.into()).await),
                Op::Yield => os.yield_now().await,
                Op::Within(millis) => {
                    let span = Duration::from_millis(millis);
                    let rest = async |os: &mut Os| Box::pin(run(os, &ops[at + 1..], things)).await;
                    let _ = os.timeout(span, rest).await;
                    return;
                }
            }
        }
    }

    /// Runs tasks up to so many turns. Returns the kernel's cycles and those of its log, and whether
    /// each says that nothing can happen any more.
    type Found = (Vec<Vec<Tid>>, bool);

    fn both(tasks: &[Vec<Op>], ticks: u64) -> (Found, Found) {
        let watch = Rc::new(RefCell::new(Watch::default()));
        let shared = Rc::clone(&watch);
        let tracer = move |event: &Event<'_>| shared.borrow_mut().event(event);
        let builder = Kernel::builder().world(SimWorld::new(1)).max_ticks(ticks);
        let mut kernel = builder.tracer(tracer).build().unwrap();
        let tasks = tasks.to_vec();
        let main = async move |os: &mut Os| {
            let mut things = Things {
                locks: Vec::new(),
                permits: Semaphore::new(os, 2).await,
                queues: Vec::new(),
            };
            for _ in 0..3 {
                things.locks.push(Mutex::new(os, ()).await);
                things.queues.push(Queue::bounded(os, 1).await);
            }
            let things = Rc::new(things);
            for ops in tasks {
                let things = Rc::clone(&things);
                let task = async move |os: &mut Os| run(os, &ops, &things).await;
                os.spawn_detached("task", task).await.unwrap();
            }
        };
        kernel.spawn("main", main).unwrap();
        let mut ended = kernel.run();
        let waits = watch.take().finish(true);
        if waits.is_deadlock && matches!(ended, Err(Error::Limit(..))) {
            // The limit came first.
            ended = kernel.run();
        }
        let kernels = match ended {
            Err(Error::Deadlock(deadlock)) => (deadlock.cycles, true),
            _ => (Deadlock::among(kernel.tasks()).cycles, false),
        };
        (kernels, (waits.cycles, waits.is_deadlock))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn the_cycles_of_a_log_are_those_of_the_kernel(
            tasks in prop::collection::vec(ops(), 1..6),
            ticks in prop_oneof![3 => Just(100_000), 1 => 20..80_u64],
        ) {
            let (kernels, logs) = both(&tasks, ticks);
            prop_assert_eq!(kernels, logs);
        }
    }

    #[test]
    fn two_plain_queues_crosswise_are_no_cycle() {
        // Each has got the last message of the queue at which the other waits.
        let tasks = [
            vec![Op::Put(0), Op::Get(0), Op::Yield, Op::Get(1)],
            vec![Op::Put(1), Op::Get(1), Op::Yield, Op::Get(0)],
        ];
        let none = (Vec::new(), true);
        assert_eq!(both(&tasks, 1000), (none.clone(), none));
    }
}
