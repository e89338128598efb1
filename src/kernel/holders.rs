//! The holders of locks, and cycles of tasks that wait for one another, found when they close.
//!
//! The handles of a lock note its holder beside its queue, without a trap. The kernel reads the
//! holder when a task blocks. A cycle closes at no other moment but two: the latest of several readers
//! leaves a lock to another reader, which waits, or the deadline of a scope is lifted. So a lock that no task
//! waits for costs nothing here.
//!
//! A select blocks again where another task was faster, and a reader may leave a cycle as it is. So a cycle that
//! was reported may be found again, and is known by the calls of its tasks.

use std::iter;

use super::{
    Kernel,
    deadlock::Deadlock,
    report::Error,
    task::{State, WaitingOn},
};
use crate::{
    abi::{End, On, QueueId, Tid},
    log::{
        Fact,
        tracing::warn_report,
        waits::{LONGEST, chain},
    },
    sched::Runnable,
    trap::{Note, Object},
};

/// The action of a kernel when a cycle closes among tasks that wait for locks and for each other's
/// exits. Only a kill can end such a cycle. The kernel reports it at once, even while other tasks
/// run.
///
/// A lock is a [`Mutex`](crate::sync::Mutex), an [`RwLock`](crate::sync::RwLock), or a
/// [`Once`](crate::sync::Once) that a task fills. A wait that a [timeout](crate::Os::timeout) can end
/// is part of no cycle. A wait for a message, a semaphore, a flag, a barrier or a condition is part
/// of none either, because any task may end it, nor is one for a member of a
/// [`Group`](crate::sync::Group), because any member may. A cycle of more than 1,024 tasks is not reported
/// when it closes.
///
/// In each case a tracer receives the event [`Fact::Deadlocked`].
///
/// ```
/// use trapline::{Error, Kernel, OnDeadlock, Os, SimWorld, sync::Mutex};
///
/// let builder = Kernel::builder().world(SimWorld::new(0));
/// let mut kernel = builder.on_deadlock(OnDeadlock::Stop).build()?;
/// kernel.spawn("alive", async |os: &mut Os| loop {
///     os.yield_now().await;
/// })?;
/// kernel.spawn("twice", async |os: &mut Os| {
///     let lock = Mutex::new(os, ()).await;
///     let _held = lock.lock(os).await;
///     let _again = lock.lock(os).await;
/// })?;
/// let Err(Error::Deadlock(deadlock)) = kernel.run() else { panic!() };
/// assert_eq!(deadlock.cycles, [[2.into()]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum OnDeadlock {
    /// Warns through `tracing`, and continues.
    #[default]
    Warn,
    /// Warns, and kills the youngest task of the cycle. The locks of that task are poisoned.
    Kill,
    /// Ends the run with [`Error::Deadlock`].
    Stop,
}

/// The state of the search for cycles.
#[derive(Debug)]
pub(super) struct Holders {
    action: OnDeadlock,
    /// Whether a task has blocked on a lock yet.
    is_contended: bool,
    /// A task of each cycle that has closed since the last poll. That poll warns, or ends the run.
    closed: Vec<Tid>,
    /// The tasks that the next poll kills.
    doomed: Vec<Runnable>,
    /// The cycles that were reported and may not be over: each task with the number of its traps.
    known: Vec<Vec<(Runnable, u64)>>,
}

impl Holders {
    pub(super) fn new(action: OnDeadlock) -> Self {
        Self {
            action,
            is_contended: false,
            closed: Vec::new(),
            doomed: Vec::new(),
            known: Vec::new(),
        }
    }

    #[inline(always)]
    pub(super) fn are_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Forgets the cycles of a task that are over. One of a select may only seem so: its task is woken, and
    /// finds nothing.
    fn forget(&mut self, tid: Tid) {
        let is_of = |cycle: &[(Runnable, u64)]| cycle.iter().any(|(task, _)| task.tid == tid);
        self.known.retain(|cycle| !is_of(cycle));
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.action);
    }
}

impl Kernel {
    /// Follows the wait of a task that has blocked until another has ended, or until it has a lock.
    /// Returns the task to be killed, if this closes a cycle and the host wants that.
    pub(super) fn follow_wait(&mut self, me: Runnable, on: WaitingOn) -> Option<Runnable> {
        // Another task may wait for the caller if it waits for its end, or for any lock. The lock
        // may have been handed to a task that has not run since.
        let is_lock = matches!(on, WaitingOn::Queue(..));
        let is_select = matches!(on, WaitingOn::Select(..));
        self.holders.is_contended |= is_lock || is_select;
        if is_lock && self.ready.inherits() {
            for holder in self.shares.lend(&self.tasks, &self.queues, me) {
                self.policy_learns(holder);
            }
        }
        if self.frame.is_noted() && !self.has_bound_selects() {
            self.note_chain(me);
        } else if self.frame.is_noted() {
            // A select waits for several tasks, and any of them may close a cycle.
            self.touch(Object::All);
        }
        if self.holders.is_contended || self.tasks[me].waiters().is_some() {
            return self.follow(me);
        }
        None
    }

    /// The same for a select that has found nothing at its turn, where others may wait for its task meanwhile.
    /// The next poll kills the task that is to break a cycle.
    #[cold]
    pub(super) fn follow_again(&mut self, me: Runnable, on: WaitingOn) {
        if let Some(victim) = self.follow_wait(me, on) {
            self.doom(victim);
        }
    }

    /// The same for a task that waits, where a timeout could end the wait and does not any more.
    pub(super) fn follow_untimed(&mut self, me: Runnable) {
        if let Some(victim) = self.follow(me) {
            self.doom(victim);
        }
    }

    fn doom(&mut self, victim: Runnable) {
        self.holders.doomed.push(victim);
        self.poll_soon();
    }

    /// Follows the wait of the task that is left as the holder of a lock which readers share: another one has
    /// left, and that may have closed a cycle. The next poll kills the task that is to break it.
    pub(super) fn follow_holder(&mut self, lock: QueueId) {
        let holder = self.queues.holder_of_lock(lock);
        if self.holders.is_contended
            && let Some(holder) = holder.and_then(|tid| self.tasks.find_live(tid))
            && let Some(victim) = self.follow(holder)
        {
            self.doom(victim);
        }
    }

    /// Returns a task that the poll is to kill, unless its cycle is over: another task was killed since.
    pub(super) fn next_doomed(&mut self) -> Option<Runnable> {
        while let Some(victim) = self.holders.doomed.pop() {
            if !self.cycle_of(victim.tid).cycles.is_empty() {
                return Some(victim);
            }
            self.holders.forget(victim.tid);
        }
        None
    }

    /// Follows the waits. They lead back to the caller, or to a task that waits for no other.
    fn follow(&mut self, me: Runnable) -> Option<Runnable> {
        if me.tid.is_daemon() {
            return None;
        }
        let cycle = match self.selects.are_none() {
            true => self.find_chain(me)?,
            false => self.find_ring(me)?,
        };
        if self.is_known(&cycle) {
            return None;
        }
        let cycle: Vec<Tid> = cycle.into_iter().map(|task| task.tid).collect();
        self.deadlocked(&cycle)
    }

    /// Returns whether a cycle was reported, and none of its tasks has gone on since. It is known from now on.
    fn is_known(&mut self, cycle: &[Runnable]) -> bool {
        let tasks = &self.tasks;
        let waits = |&(task, traps): &(Runnable, u64)| {
            tasks.find_live(task.tid).is_some() && tasks[task].traps() == traps
        };
        let known = &mut self.holders.known;
        known.retain(|cycle| cycle.iter().all(waits));
        let calls = cycle.iter().map(|task| (*task, tasks[*task].traps()));
        let mut calls: Vec<(Runnable, u64)> = calls.collect();
        calls.sort_unstable_by_key(|(task, _)| task.tid);
        let is_known = known.contains(&calls);
        if !is_known {
            known.push(calls);
        }
        is_known
    }

    /// Finds the cycle that the caller has closed, where no task selects.
    fn find_chain(&self, me: Runnable) -> Option<Vec<Runnable>> {
        let waits = || chain(me, |task| self.blocker(task));
        if !waits().skip(1).any(|task| task == me) {
            return None;
        }
        // Collected only now: few waits close a cycle.
        let others = waits().skip(1).take_while(|task| *task != me);
        Some(iter::once(me).chain(others).collect())
    }

    /// Finds the shortest cycle that the caller has closed, where tasks select. A task that selects
    /// goes on when any of the tasks does that it waits for. So all that can be reached must be stuck.
    ///
    /// The caller may be on none: a writer comes before a reader that selects already, and that holds the lock.
    #[cold]
    fn find_ring(&self, me: Runnable) -> Option<Vec<Runnable>> {
        // With the index of the task before.
        let mut found = vec![(me, 0)];
        let mut last = None;
        let mut at = 0;
        while let Some(&(task, _)) = found.get(at) {
            for next in self.blockers(task)? {
                if next == me {
                    last = last.or(Some(at));
                } else if !found.iter().any(|(other, _)| *other == next) {
                    found.push((next, at));
                }
            }
            at += 1;
            if found.len() > LONGEST {
                return None;
            }
        }
        if last.is_none() {
            let reached: Vec<Runnable> = found.into_iter().map(|(task, _)| task).collect();
            return self.find_ring(self.on_new_cycle(me, &reached)?);
        }
        let before = |at: &usize| (*at > 0).then(|| found[*at].1);
        let back: Vec<usize> = iter::successors(last, before).collect();
        let ring = back.into_iter().rev().map(|at| found[at].0);
        Some(ring.collect())
    }

    /// Returns the first task on a cycle that the wait of the caller leads to, unless one was reported among
    /// those that it reaches, which are all stuck.
    fn on_new_cycle(&self, me: Runnable, reached: &[Runnable]) -> Option<Runnable> {
        let waits = |(task, traps): &(Runnable, u64)| {
            reached.contains(task) && self.tasks[*task].traps() == *traps
        };
        let mut known = self.holders.known.iter();
        if known.any(|cycle| cycle.iter().all(waits)) {
            return None;
        }
        let (mut seen, mut task) = (Vec::new(), me);
        while !seen.contains(&task) {
            seen.push(task);
            task = *self.blockers(task)?.first()?;
        }
        Some(task)
    }

    /// Returns the tasks of which each can end the wait of a task; `None` if anything else can.
    fn blockers(&self, task: Runnable) -> Option<Vec<Runnable>> {
        if let State::Blocked(WaitingOn::Select(key, _)) = *self.tasks[task].state() {
            let enders = self.enders(task, key)?;
            let live = enders.into_iter().map(|tid| self.tasks.find_live(tid));
            return live.collect();
        }
        Some(vec![self.blocker(task)?])
    }

    /// Returns the task that alone can end the wait of a task.
    fn blocker(&self, waiter: Runnable) -> Option<Runnable> {
        let task = &self.tasks[waiter];
        let State::Blocked(on) = *task.state() else {
            return None;
        };
        let holder = match on {
            WaitingOn::Exit(_) => None,
            WaitingOn::Queue(queue, End::Get) => {
                let count = self
                    .queues
                    .get(queue)
                    .and_then(|found| found.request(waiter));
                self.holder(queue, count.unwrap_or(1), Some(waiter))
            }
            _ => return None,
        };
        self.tasks
            .find_live(On::from(on).ender(task.is_timed(), holder)?)
    }

    /// Returns a task that holds a lock and alone can end the wait of a request for so many permits: a
    /// lock that readers share has several holders, each of which must release it. `None` if anything
    /// else can end the wait: a reader that waits behind writers only goes on if all of these are cut.
    pub(super) fn holder(&self, queue: QueueId, count: u64, me: Option<Runnable>) -> Option<Tid> {
        let holder = self.queues.holder_of_lock(queue)?;
        let Some(permits) = self.queues.get(queue)?.permits() else {
            return Some(holder);
        };
        let is_shared = permits.is_shared() && count < permits.all();
        let mut ahead = permits.writers_before(me);
        let may_go = is_shared && ahead.all(|writer| self.tasks[writer].is_timed());
        (!may_go).then_some(holder)
    }

    /// Notes for a search what closes a cycle now that the caller waits: the task at the end of its
    /// chain of waits would have to wait for the caller, or for a task that waits for the caller. A lock that
    /// was handed to a task which has not run since has no holder yet: one of the ready tasks takes it next.
    #[cold]
    fn note_chain(&self, me: Runnable) {
        let waits = |task| chain(task, |task| self.blocker(task));
        let last = waits(me).last().unwrap_or(me);
        let (enders, handed) = match self.tasks[last].state() {
            _ if self.blocker(last).is_some() => return,
            State::Blocked(WaitingOn::Queue(lock, End::Get)) if self.is_handed_over(*lock) => {
                let mut ready = self.tasks.youngest_first();
                ready.retain(|task| self.tasks[*task].state().is_ready());
                (ready, Some(Object::Beside(*lock)))
            }
            _ if last == me => return,
            _ => (vec![last], None),
        };
        let closes = |object| {
            for ender in &enders {
                self.frame.note(Note::Closes {
                    task: ender.tid,
                    object,
                    handed,
                });
            }
        };
        let mut behind = self.tasks.youngest_first();
        behind.retain(|task| waits(*task).any(|next| next == me));
        for lock in self.queues.iter().filter(|queue| queue.is_lock()) {
            let holder = lock.status().holder();
            if behind.iter().any(|task| Some(task.tid) == holder) {
                closes(Object::GetEnd(lock.id()));
            }
        }
        for task in behind {
            closes(Object::Waits(task.tid));
        }
    }

    fn is_handed_over(&self, lock: QueueId) -> bool {
        let lock = self.queues.get(lock).filter(|queue| queue.is_lock());
        lock.is_some_and(|lock| lock.status().holder().is_none())
    }

    fn deadlocked(&mut self, cycle: &[Tid]) -> Option<Runnable> {
        let first = *cycle.first()?;
        self.emit_at_once(first, || Fact::Deadlocked {
            cycle: cycle.into(),
        });
        // A run that stops here does not reach the turns that would come later.
        self.touch(Object::All);
        if self.holders.action != OnDeadlock::Kill {
            self.holders.closed.push(first);
            self.poll_soon();
            return None;
        }
        let deadlock = self.cycle_of(first);
        let youngest = cycle.iter().copied().max().unwrap_or(first);
        let shown = self.log.shown().map_or(youngest, |id| youngest.beside(id));
        warn_report(&format_args!(
            "{deadlock}\n  task {shown} is killed: it is the youngest of the cycle"
        ));
        self.tasks.find_live(youngest)
    }

    /// Warns of the cycles that have closed, or ends the run. A run that is stuck ends with a report
    /// that includes them. A cycle is over if one of its tasks was killed since.
    pub(super) fn check_cycles(&mut self, is_stuck: bool) -> Result<(), Error> {
        let is_warned = self.holders.action == OnDeadlock::Warn;
        if self.holders.closed.is_empty() || is_stuck && is_warned {
            return Ok(());
        }
        for tid in std::mem::take(&mut self.holders.closed) {
            let deadlock = self.cycle_of(tid);
            if deadlock.cycles.is_empty() {
                self.holders.forget(tid);
                continue;
            }
            if !is_warned {
                return Err(Error::Deadlock(deadlock));
            }
            warn_report(&deadlock);
        }
        Ok(())
    }

    /// Describes the cycle that this task is on, with the number of the kernel if logs show it.
    fn cycle_of(&self, tid: Tid) -> Deadlock {
        let deadlock = Deadlock::around(tid, self.tasks());
        match self.log.shown() {
            Some(id) => deadlock.beside(id),
            None => deadlock,
        }
    }

    pub(super) fn stuck(&self) -> Error {
        Error::Deadlock(Deadlock::of(self.tasks()))
    }
}
