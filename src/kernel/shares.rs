//! What a policy knows of a task: its share of the processors, and the facts around it.

use super::{
    Kernel,
    outcome::Outcome,
    table::Tasks,
    task::{Pending, State},
};
use crate::{
    abi::{Errno, Nanos, Reply, Share, ShareOf, Tid},
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
        let named = named.into_iter().map(|(name, share)| Named {
            name,
            share,
            is_used: false,
        });
        Self {
            named: named.collect(),
            ..Self::default()
        }
    }

    /// Forgets the tasks of an earlier run.
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
    pub(super) fn inherit(&mut self, child: Runnable, parent: Option<Runnable>, name: &str) {
        *self.at(child) = parent.map_or_else(Shared::default, |parent| self.get(parent));
        let mut named = std::mem::take(&mut self.named);
        for named in named.iter_mut().filter(|named| named.name == name) {
            self.at(child).set(named.share);
            named.is_used = true;
        }
        self.named = named;
    }
}

/// Returns what a policy knows of a task that is ready or computes.
pub(super) fn facts<'a>(
    tasks: &'a Tasks,
    shares: &Shares,
    task: Runnable,
    now: Nanos,
) -> Facts<'a> {
    let Shared {
        tickets,
        nice,
        priority,
    } = shares.get(task);
    let state = &tasks[task];
    let parent = state.parent.map(|slot| tasks.runnable(slot).tid);
    let length = match state.state {
        State::Pending(Pending::Compute(left)) => left,
        _ => Nanos::ZERO,
    };
    Facts {
        task,
        name: &state.name,
        parent: parent.unwrap_or(Tid::KERNEL),
        tickets,
        nice,
        priority,
        length,
        now,
        computed: Nanos::ZERO,
        keeps_place: false,
    }
}

impl Kernel {
    /// Handles `set_share`.
    pub(super) fn set_own_share(&mut self, me: Runnable, share: Share) -> Outcome {
        self.shares.at(me).set(share);
        Reply::Done.into()
    }

    /// Sets a share of a task: its tickets, its nice value or its priority. Tasks that it spawns
    /// from then on inherit it.
    ///
    /// *Errors:* [`Errno::NoSuchTask`] if no live task has this number.
    ///
    /// ```
    /// use trapline::{Errno, Kernel, Os, Share};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// let tid = kernel.spawn("batch", async |os: &mut Os| os.yield_now().await)?;
    /// kernel.set_share(tid, Share::nice(10))?;
    /// assert_eq!(kernel.set_share(7.into(), Share::nice(10)), Err(Errno::NoSuchTask));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_share(&mut self, tid: Tid, share: Share) -> Result<(), Errno> {
        let task = self.find_live(tid).ok_or(Errno::NoSuchTask)?;
        self.shares.at(task).set(share);
        self.tell_change(task);
        Ok(())
    }

    /// Returns the names of [`Builder::share`](crate::Builder::share) that no task has had so far,
    /// in the order of the calls.
    ///
    /// ```
    /// use trapline::{Kernel, Os, Share};
    ///
    /// let builder = Kernel::builder().share("batch", Share::nice(10));
    /// let mut kernel = builder.share("bach", Share::tickets(5)).build()?;
    /// kernel.spawn("batch", async |os: &mut Os| os.yield_now().await)?;
    /// assert!(kernel.unused_shares().eq(["bach"]));
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn unused_shares(&self) -> impl Iterator<Item = &str> {
        let unused = self.shares.named.iter().filter(|named| !named.is_used);
        unused.map(|named| named.name.as_str())
    }

    /// Returns the priority of a task: its own, or the highest of those that wait for its locks if
    /// the policy inherits priorities.
    #[inline(always)]
    pub(super) fn inherited(&self, task: Runnable, own: i32) -> i32 {
        if self.shares.lock_waits.is_empty() {
            return own;
        }
        self.lent(task, own)
    }

    #[cold]
    #[inline(never)]
    fn lent(&self, task: Runnable, own: i32) -> i32 {
        let waits = self.shares.lock_waits.iter();
        let waits = waits.filter(|waiter| self.leads_to(**waiter, task));
        let lent = waits.map(|waiter| self.shares.get(*waiter).priority).max();
        lent.map_or(own, |lent| own.max(lent))
    }

    /// Notes that the caller waits for a lock, and tells the policy of the priority that it lends to
    /// the holder, and to the holder of the lock for which that one waits.
    pub(super) fn lend_priority(&mut self, me: Runnable) {
        if !self.ready.inherits() {
            return;
        }
        let mut waits = std::mem::take(&mut self.shares.lock_waits);
        waits.retain(|waiter| *waiter != me && self.holders_from(*waiter).next().is_some());
        waits.push(me);
        self.shares.lock_waits = waits;
        let holders: Vec<Runnable> = self.holders_from(me).collect();
        for holder in holders {
            self.tell_change(holder);
        }
    }

    /// Returns whether a task waits for a lock of this task, or for one of a task that does.
    fn leads_to(&self, waiter: Runnable, task: Runnable) -> bool {
        self.holders_from(waiter).any(|holder| holder == task)
    }

    /// Returns the holder of the lock for which a task waits, that of the lock for which the holder
    /// waits, and so on.
    fn holders_from(&self, waiter: Runnable) -> impl Iterator<Item = Runnable> {
        let waiter = self.find_live(waiter.tid);
        let first = waiter.and_then(|waiter| self.holder_awaited_by(waiter));
        first
            .into_iter()
            .flat_map(|first| chain(first, |holder| self.holder_awaited_by(holder)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Kernel, Os, SimWorld, sched::Priority, sync::Mutex};

    #[test]
    fn a_task_that_waits_for_a_lock_again_and_again_is_listed_once() {
        let ms = Duration::from_millis;
        let policy = Priority::new(Duration::ZERO).inherit();
        let builder = Kernel::builder().world(SimWorld::new(1)).policy(policy);
        let mut kernel = builder.build().unwrap();
        let main = async move |os: &mut Os| {
            let lock = Mutex::new(os, ()).await;
            for begin in 0..2 {
                let lock = lock.clone();
                let worker = async move |os: &mut Os| {
                    os.sleep(ms(begin)).await;
                    for _ in 0..50 {
                        let _guard = lock.lock(os).await;
                        os.sleep(ms(2)).await;
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
