//! Locks and their holders: a cycle of tasks that wait for one another is found when it closes.
//!
//! The handles of a lock note the holder beside its queue, without a trap. The kernel reads that
//! when a task blocks: a cycle closes at no other moment. A task that holds a lock is no more
//! expensive than one that holds none.

use super::{
    Kernel,
    deadlock::Deadlock,
    queues::MessageQueue,
    report::Error,
    task::{Outcome, State, WaitingOn},
};
use crate::{
    abi::{End, Exit, On, TaskInfo, TaskState, Tid},
    log::Fact,
    sched::Runnable,
};

/// The longest chain of waits that the kernel follows when a task blocks. It bounds the price of a
/// block. A longer cycle is in the report of a deadlock all the same.
const LONGEST: usize = 1024;

/// What a kernel does when a cycle closes among tasks that wait for locks and for each other's
/// ends. Only a kill can end such a cycle, so the kernel reports it at once, whatever else runs.
///
/// A lock is a [`Mutex`](crate::sync::Mutex). A wait that a [timeout](crate::Os::timeout) can end is
/// part of no cycle. Neither is a wait for a message, a semaphore, a flag, a barrier or a condition:
/// any task may end it. A cycle of more than 1,024 tasks is not reported when it closes.
///
/// In each case a tracer has the event [`Fact::Deadlocked`].
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
    /// It warns, by `tracing`, and goes on.
    #[default]
    Warn,
    /// It warns, and kills the youngest task of the cycle. The locks of that task are broken.
    Kill,
    /// It ends the run with [`Error::Deadlock`].
    Stop,
}

/// What the kernel keeps for cycles.
#[derive(Debug)]
pub(super) struct Holders {
    action: OnDeadlock,
    /// Whether a task has blocked on a lock yet.
    is_contended: bool,
    /// The task whose call closed a cycle that ends the run.
    stop: Option<Tid>,
}

impl Holders {
    pub(super) fn new(action: OnDeadlock) -> Self {
        Self {
            action,
            is_contended: false,
            stop: None,
        }
    }
}

impl Kernel {
    /// Acts on the cycle that the caller has closed by blocking, if it has closed one.
    #[inline(always)]
    pub(super) fn check_cycle(&mut self, me: Runnable, on: WaitingOn) -> Outcome {
        match on {
            WaitingOn::Exit(_) | WaitingOn::Queue(_, End::Get) if self.may_close(me, on) => {
                self.follow(me)
            }
            _ => Outcome::Blocked,
        }
    }

    /// Whether a cycle may have closed: the caller waits for a task, and a task may wait for it.
    #[inline(always)]
    fn may_close(&mut self, me: Runnable, on: WaitingOn) -> bool {
        if let WaitingOn::Queue(queue, _) = on {
            let Some(status) = self.queues.get(queue).map(MessageQueue::status) else {
                return false;
            };
            // The lock may be on its way to a task that has yet to run.
            self.holders.is_contended |= status.is_lock();
            return status.holder().is_some();
        }
        self.holders.is_contended || self.tasks[me].waiters.is_some()
    }

    /// Follows the waits from the caller on, until they lead back to it or to a task that does not
    /// wait for another.
    #[cold]
    fn follow(&mut self, me: Runnable) -> Outcome {
        let mut cycle = vec![me.tid];
        let mut next = self.awaited(me);
        while let Some(task) = next.filter(|task| *task != me) {
            if cycle.len() == LONGEST {
                return Outcome::Blocked;
            }
            cycle.push(task.tid);
            next = self.awaited(task);
        }
        if next.is_some() && !me.tid.is_daemon() {
            self.deadlocked(me, &cycle)
        } else {
            Outcome::Blocked
        }
    }

    /// The task that alone can end the wait of a task.
    fn awaited(&self, task: Runnable) -> Option<Runnable> {
        let task = &self.tasks[task];
        match task.state {
            State::Blocked(_) if task.is_timed() => None,
            State::Blocked(WaitingOn::Exit(target)) => Some(target),
            State::Blocked(WaitingOn::Queue(queue, End::Get)) => {
                let holder = self.queues.get(queue)?.status().holder()?;
                self.find_live(holder)
            }
            _ => None,
        }
    }

    /// Says that a cycle has closed, and does what the host wants done.
    fn deadlocked(&mut self, me: Runnable, cycle: &[Tid]) -> Outcome {
        self.emit_at_once(me.tid, || Fact::Deadlocked { cycle });
        let action = self.holders.action;
        if action == OnDeadlock::Stop {
            self.holders.stop = Some(me.tid);
            // The world is polled at once, where the run ends.
            self.next_poll = self.stats.ticks;
            return Outcome::Blocked;
        }
        // A warning is a line.
        let deadlock = Deadlock::around(me.tid, self.tasks()).to_string();
        let deadlock = deadlock.replace("\n  ", "; ");
        let youngest = cycle.iter().copied().max().unwrap_or(me.tid);
        if action == OnDeadlock::Warn {
            tracing::warn!(target: "trapline::kernel", "{deadlock}");
            return Outcome::Blocked;
        }
        tracing::warn!(
            target: "trapline::kernel",
            "{deadlock}; task {youngest} is killed: it is the youngest of the cycle"
        );
        if let Some(victim) = self.find_live(youngest) {
            self.end(victim, Exit::Killed);
        }
        Outcome::Gone
    }

    /// Fails if a cycle has closed that ends the run.
    pub(super) fn check_deadlock(&mut self) -> Result<(), Error> {
        let Some(tid) = self.holders.stop.take() else {
            return Ok(());
        };
        let deadlock = Deadlock::around(tid, self.tasks());
        if deadlock.cycles.is_empty() {
            // A task of the cycle has been killed since.
            return Ok(());
        }
        Err(Error::Deadlock(deadlock))
    }

    /// Adds what the queue of a blocked task says of its wait.
    pub(super) fn complete(&self, mut info: TaskInfo) -> TaskInfo {
        if let TaskState::Blocked {
            on: On::Queue(queue, end),
            ..
        } = info.state
            && let Some(status) = self.queues.get(queue).map(MessageQueue::status)
        {
            info.wait.thing = status.thing(queue, end);
            info.wait.holder = status.holder();
        }
        info
    }
}
