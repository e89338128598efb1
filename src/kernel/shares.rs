//! What a policy knows of a task: its share of the processors, and the facts around it.

use super::{
    queues::Queues,
    table::Tasks,
    task::{Pending, State, WaitingOn},
};
use crate::{
    abi::{End, Nanos, Share, ShareOf, Tid},
    log::waits::chain,
    sched::{Facts, Runnable},
};

/// The shares of the tasks that do not have the usual ones.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// By the task's slot. Empty until a share is set.
    of: Vec<Shared>,
    /// The shares that tasks of these names begin with.
    named: Vec<Named>,
    /// The tasks that have blocked on locks, if the policy inherits priorities. Those that have woken
    /// since are removed when the next one blocks.
    lock_waits: Vec<Runnable>,
}

/// A share of each task of a name.
#[derive(Debug)]
struct Named {
    name: String,
    share: Share,
    /// Whether there was such a task.
    is_used: bool,
}

/// The shares of a task.
#[derive(Clone, Copy, Debug)]
struct Shared {
    tickets: u32,
    nice: i32,
    priority: i32,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            tickets: 100,
            nice: 0,
            priority: 0,
        }
    }
}

impl Shared {
    fn set(&mut self, share: Share) {
        match share.of() {
            ShareOf::Tickets(tickets) => self.tickets = tickets,
            ShareOf::Nice(nice) => self.nice = nice,
            ShareOf::Priority(priority) => self.priority = priority,
        }
    }
}

impl Shares {
    pub(super) fn new(named: Vec<(String, Share)>) -> Self {
        let is_used = false;
        let named = named.into_iter().map(|(name, share)| Named {
            name,
            share,
            is_used,
        });
        Self {
            named: named.collect(),
            ..Self::default()
        }
    }

    pub(super) fn reset(&mut self) {
        self.of.clear();
        self.lock_waits.clear();
        for named in &mut self.named {
            named.is_used = false;
        }
    }

    fn get(&self, task: Runnable) -> Shared {
        self.of.get(task.slot.index()).copied().unwrap_or_default()
    }

    fn at(&mut self, task: Runnable) -> &mut Shared {
        let index = task.slot.index();
        if self.of.len() <= index {
            self.of.resize(index + 1, Shared::default());
        }
        &mut self.of[index]
    }

    /// Returns whether any share was set.
    #[inline(always)]
    pub(super) fn are_used(&self) -> bool {
        !(self.of.is_empty() && self.named.is_empty())
    }

    /// Gives a new task the shares of its parent, and then those of its name.
    #[cold]
    #[inline(never)]
    pub(super) fn inherit(&mut self, child: Runnable, parent: Option<Runnable>, name: &str) {
        let mut shared = parent.map_or_else(Shared::default, |parent| self.get(parent));
        for named in self.named.iter_mut().filter(|named| named.name == name) {
            shared.set(named.share);
            named.is_used = true;
        }
        *self.at(child) = shared;
    }

    pub(super) fn set(&mut self, task: Runnable, share: Share) {
        self.at(task).set(share);
    }

    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        let unused = self.named.iter().filter(|named| !named.is_used);
        unused.map(|named| named.name.as_str())
    }

    /// Returns the highest priority of the tasks that wait for a lock of this one.
    #[cold]
    #[inline(never)]
    fn lent(&self, tasks: &Tasks, queues: &Queues, task: Runnable) -> i32 {
        let waits = self.lock_waits.iter();
        let waits = waits.filter(|waiter| leads_to(tasks, queues, **waiter, task));
        let lent = waits.map(|waiter| self.get(*waiter).priority).max();
        lent.unwrap_or(i32::MIN)
    }

    /// Notes that a task waits for a lock. It lends its priority to the holder, and to the holder of
    /// the lock for which that one waits: these are returned.
    pub(super) fn lend(&mut self, tasks: &Tasks, queues: &Queues, me: Runnable) -> Vec<Runnable> {
        let holder = |waiter| holder_awaited_by(tasks, queues, waiter);
        self.lock_waits
            .retain(|waiter| *waiter != me && holder(*waiter).is_some());
        self.lock_waits.push(me);
        chain(me, holder).skip(1).collect()
    }
}

/// Returns what a policy knows of a task that is ready or computes. Its priority is its own, or
/// the highest of those that wait for its locks if the policy inherits priorities.
#[inline(always)]
pub(super) fn facts<'a>(
    tasks: &'a Tasks,
    queues: &Queues,
    shares: &Shares,
    task: Runnable,
    now: Nanos,
) -> Facts<'a> {
    let own = shares.get(task);
    let length = match *tasks[task].state() {
        State::Pending(Pending::Compute(left)) => left,
        _ => Nanos::ZERO,
    };
    let mut priority = own.priority;
    if !shares.lock_waits.is_empty() {
        priority = priority.max(shares.lent(tasks, queues, task));
    }
    Facts {
        task,
        name: tasks[task].name(),
        parent: tasks.parent_of(task).unwrap_or(Tid::KERNEL),
        tickets: own.tickets,
        nice: own.nice,
        priority,
        length,
        now,
        computed: Nanos::ZERO,
        keeps_place: false,
    }
}

/// Returns whether a task waits for a lock of this task, or for one of a task that does.
fn leads_to(tasks: &Tasks, queues: &Queues, waiter: Runnable, task: Runnable) -> bool {
    let holder = |waiter| holder_awaited_by(tasks, queues, waiter);
    chain(waiter, holder).skip(1).any(|holder| holder == task)
}

fn holder_awaited_by(tasks: &Tasks, queues: &Queues, waiter: Runnable) -> Option<Runnable> {
    let waiter = tasks.find_live(waiter.tid)?;
    match *tasks[waiter].state() {
        State::Blocked(WaitingOn::Queue(queue, End::Get)) => {
            tasks.find_live(queues.holder_of_lock(queue)?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Kernel, Os, SimWorld, sched::Priority, sync::Mutex};

    #[test]
    fn a_task_that_waits_for_a_lock_again_and_again_is_listed_once() {
        let policy = Priority::new(Duration::ZERO).inherit();
        let builder = Kernel::builder().world(SimWorld::new(1)).policy(policy);
        let mut kernel = builder.build().unwrap();
        let main = async move |os: &mut Os| {
            let lock = Mutex::new(os, ()).await;
            for _ in 0..2 {
                let lock = lock.clone();
                let worker = async move |os: &mut Os| {
                    for _ in 0..50 {
                        let _guard = lock.lock(os).await;
                        os.sleep(Duration::from_millis(2)).await;
                    }
                };
                os.spawn("worker", worker).await.unwrap();
            }
        };
        kernel.spawn("main", main).unwrap();
        kernel.run().unwrap();
        let listed = kernel.shares.lock_waits.len();
        assert!(listed <= 2, "{listed}");
    }
}
