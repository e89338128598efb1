//! The check of the kernel's invariant.

use std::collections::BTreeSet;

use super::{
    Kernel,
    held::Ticket,
    task::{Pending, State, WaitingOn},
    waiters::Waiters,
};
use crate::{
    abi::{Direction, Nanos, Tid},
    sched::Runnable,
};

/// The most tasks that an audit at each step or poll checks.
const MOST: usize = 512;

impl Kernel {
    /// Audits a kernel of at most 512 tasks. A debug build calls it at each poll.
    #[doc(hidden)]
    pub fn audit(&self) {
        if self.tasks.iter().nth(MOST).is_none() {
            self.audit_all();
        }
    }

    /// Panics unless every live task is in exactly one place. For tests. It takes O(n log n) for n
    /// tasks.
    #[doc(hidden)]
    pub fn audit_all(&self) {
        let (mut live, mut ready, mut devices) = (0, 0, 0);
        let (mut timers, mut computing) = (Vec::new(), Vec::new());
        let queued = pairs(self.queues.iter().flat_map(|queue| {
            let waiters = queue.waiters();
            waiters.map(move |waiter| (queue.id(), waiter.tid))
        }));
        let joining = pairs(self.tasks.iter().flat_map(|target| {
            let waiters = target.waiters().into_iter().flat_map(Waiters::iter);
            waiters.map(move |waiter| (target.tid(), waiter.tid))
        }));
        for task in self.tasks.iter() {
            let (tid, me) = (
                task.tid(),
                self.tasks.find(task.tid()).expect("a task is in the map"),
            );
            live += usize::from(task.is_live() && !tid.is_daemon());
            timers.extend(task.timeouts());
            match *task.state() {
                State::Pending(Pending::Read(device, _)) => {
                    ready += 1;
                    let owner = self.devices.owner(device, Direction::Read);
                    assert_eq!(owner, Some(me), "task {tid}");
                }
                State::Ready(_) if self.processors.is_done(me) => {}
                State::Ready(_) | State::Late(_) | State::Pending(_) => ready += 1,
                State::Computing => computing.push(tid),
                State::Running | State::Ending => {
                    panic!("task {tid} runs between two turns")
                }
                State::Zombie(_) => {
                    assert!(
                        task.family().parent.is_some(),
                        "task {tid} is a zombie without a parent"
                    );
                }
                State::Blocked(WaitingOn::Timer(timer)) => timers.push(timer),
                State::Blocked(WaitingOn::Delay(timer)) => {
                    timers.push(timer);
                    assert!(self.held.holds(Ticket::Delay(timer.1), me), "task {tid}");
                }
                State::Blocked(WaitingOn::Device(device, direction, _)) => {
                    devices += 1;
                    assert_eq!(
                        self.devices.owner(device, direction),
                        Some(me),
                        "task {tid}"
                    );
                }
                State::Blocked(WaitingOn::Console(ticket)) => {
                    devices += 1;
                    assert!(self.held.holds(Ticket::Console(ticket), me), "task {tid}");
                }
                State::Blocked(WaitingOn::Queue(queue, _)) => {
                    assert!(queued.contains(&(queue, tid)), "task {tid}");
                }
                State::Blocked(WaitingOn::Exit(target)) => {
                    let target = &self.tasks[target];
                    let is_listed = joining.contains(&(target.tid(), tid));
                    assert!(target.is_live() && is_listed, "task {tid}");
                }
            }
        }
        let computations = self.processors.computing().iter();
        let mut on_processors: Vec<Tid> = computations.map(|c| c.task.tid).collect();
        on_processors.sort_unstable();
        assert_eq!(computing, on_processors, "tasks that compute");
        assert_eq!(live, self.tasks.live(), "live tasks");
        // The length of a policy is not trusted: it may withhold tasks.
        assert!(
            !self.ready.is_plain() || ready <= self.ready.len() + self.ready.daemons(),
            "ready tasks"
        );
        timers.retain(|(deadline, _)| *deadline != Nanos::FOREVER);
        timers.sort_unstable();
        let mut armed = self.timers.tasks.all();
        armed.extend(self.timers.daemons.all());
        armed.sort_unstable();
        assert_eq!(timers, armed, "armed timers");
        let count = self.timers.tasks.len() + self.timers.daemons.len();
        assert_eq!(timers.len(), count, "armed timers");
        assert_eq!(
            devices,
            self.devices.waiting() + self.devices.daemons(),
            "tasks that wait for devices"
        );
        if let Some(injection) = &self.injection {
            let is_live = |task: Runnable| self.tasks[task].is_live();
            injection.audit(|tid| self.tasks.find(tid).is_some_and(is_live));
        }
    }
}

fn pairs<T: Ord>(waits: impl Iterator<Item = (T, Tid)>) -> BTreeSet<(T, Tid)> {
    let mut pairs = BTreeSet::new();
    for wait in waits {
        assert!(pairs.insert(wait), "a list of waiters has a task twice");
    }
    pairs
}
