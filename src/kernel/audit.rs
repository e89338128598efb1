//! The check of the kernel's invariant.

use std::collections::BTreeSet;

use super::{
    Kernel,
    held::Ticket,
    task::{Pending, State, WaitingOn},
    waiters::Waiters,
};
use crate::abi::{Direction, Nanos, Tid};

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
        let mut timers: Vec<_> = self.signals.timers().collect();
        let mut computing = BTreeSet::new();
        let queued = pairs(self.queues.iter().flat_map(|queue| {
            let waiters = queue.waiters();
            waiters.map(move |waiter| (queue.id(), waiter.tid))
        }));
        let joining = pairs(self.tasks.iter().flat_map(|target| {
            let waiters = target.waiters().into_iter().flat_map(Waiters::iter);
            waiters.map(|waiter| (target.tid(), self.tasks.runnable(waiter).tid))
        }));
        for task in self.tasks.iter() {
            let tid = task.tid();
            let me = self.tasks.find(tid).expect("a task is in the map");
            live += usize::from(task.is_live() && !tid.is_daemon());
            timers.extend(task.timeouts());
            let is_in_place = match *task.state() {
                State::Ready(_) if self.processors.is_done(me) => true,
                State::Ready(_) | State::Late(_) | State::Pending(_) => {
                    ready += 1;
                    match *task.state() {
                        State::Pending(Pending::Read(device, _)) => {
                            self.devices.owner(device, Direction::Read) == Some(me)
                        }
                        State::Pending(Pending::Select(key)) => {
                            timers.extend(self.selects.timer(key));
                            devices += self.devices_of(key).count();
                            true
                        }
                        _ => true,
                    }
                }
                State::Computing => computing.insert(tid),
                // Between two turns no task runs.
                State::Running | State::Ending => false,
                State::Zombie(_) => task.family().parent.is_some(),
                State::Blocked(WaitingOn::Timer(timer)) => {
                    timers.push(timer);
                    true
                }
                State::Blocked(WaitingOn::Select(key, _)) => {
                    timers.extend(self.selects.timer(key));
                    devices += self.devices_of(key).count();
                    self.selects.is_listed(key)
                }
                State::Blocked(WaitingOn::Delay(timer)) => {
                    timers.push(timer);
                    self.held.holds(Ticket::Delay(timer.1), me)
                }
                State::Blocked(WaitingOn::Device(device, direction, _)) => {
                    devices += 1;
                    self.devices.owner(device, direction) == Some(me)
                }
                State::Blocked(WaitingOn::Console(ticket)) => {
                    devices += 1;
                    self.held.holds(Ticket::Console(ticket), me)
                }
                State::Blocked(WaitingOn::Room(queue, ticket)) => {
                    self.held.holds(Ticket::Text(ticket), me) && queued.contains(&(queue, tid))
                }
                State::Blocked(WaitingOn::Queue(queue, _)) => queued.contains(&(queue, tid)),
                State::Blocked(WaitingOn::Exit(target)) => {
                    self.tasks[target].is_live() && joining.contains(&(target.tid, tid))
                }
            };
            assert!(
                is_in_place,
                "task {tid} is not in its place: {:?}",
                task.state()
            );
        }
        let computations = self.processors.computing().iter();
        let on_processors: BTreeSet<Tid> = computations.map(|c| c.task.tid).collect();
        assert_eq!(computing, on_processors, "tasks that compute");
        assert_eq!(live, self.tasks.live(), "live tasks");
        let attendants = self.tasks.iter().filter(|task| task.is_live());
        let attendants = attendants.filter(|task| task.is_attendant).count();
        assert_eq!(attendants, self.tasks.attendants(), "daemons of programs");
        // The length of a policy is not trusted: it may withhold tasks.
        let is_queued = ready <= self.ready.len() + self.ready.daemons();
        assert!(!self.ready.is_plain() || is_queued, "ready tasks");
        timers.retain(|(deadline, _)| *deadline != Nanos::FOREVER);
        timers.sort_unstable();
        let sets = [&self.timers.tasks, &self.timers.daemons];
        let mut armed: Vec<_> = sets.iter().flat_map(|set| set.all()).collect();
        armed.sort_unstable();
        assert_eq!(timers, armed, "armed timers");
        let count: usize = sets.iter().map(|set| set.len()).sum();
        assert_eq!(timers.len(), count, "armed timers");
        let waiting: usize = self.devices.waiting().iter().sum();
        assert_eq!(devices, waiting, "tasks that wait for devices");
        self.bounds.audit(|tid| self.tasks.find_live(tid).is_some());
        if let Some(injection) = &self.injection {
            injection.audit(|tid| self.tasks.find_live(tid).is_some());
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
