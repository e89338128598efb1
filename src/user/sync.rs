//! What tasks agree by: semaphore, mutex, flag, barrier, condition and task group. All of them are
//! made of message queues: of tokens, or closed as a signal.
//!
//! Each belongs to the kernel that made it. Used in another kernel, it faults the caller, unless
//! the call has an error for that case. To make one faults the caller, too, where the kernel has as
//! many queues as it may ([`Builder::max_queues`](crate::Builder::max_queues)).

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
    ops::{Deref, DerefMut},
    rc::Rc,
    time::Duration,
};

use super::{
    os::Os,
    program::IntoExit,
    queue::{Closed, Messages, Queue},
    time::Elapsed,
};
use crate::{
    abi::{Errno, Exit, QueueId, SystemCall, Tid},
    trap::{Keeper, TrapFrame},
};

/// A number of permits; whoever finds none left waits. First come, first served.
///
/// ```
/// # use trapline::{Closed, Kernel, Os, sync::Semaphore};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let semaphore = Semaphore::new(os, 2).await;
///     let permit = semaphore.acquire(os).await?;
///     drop(permit); // gives it back, and so does the end of the task
///     Ok::<(), Closed>(())
/// })?;
/// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    /// The permits that have been given back.
    permits: Queue<()>,
    /// How many have never been asked for. Nobody waits while there is one.
    fresh: Rc<Cell<usize>>,
}

/// A permit of a [`Semaphore`], given back when it is dropped.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit {
    permits: Queue<()>,
}

impl Semaphore {
    /// Makes a semaphore with so many permits. Never blocks. It takes room only for as many as
    /// have been out at once.
    pub async fn new(os: &mut Os, permits: usize) -> Self {
        Self {
            permits: Queue::required(os, u64::MAX, "semaphore").await,
            fresh: Rc::new(Cell::new(permits)),
        }
    }

    /// Takes a permit. *Blocks* while there is none.
    ///
    /// *Errors:* [`Closed`], in another kernel than its own.
    pub async fn acquire(&self, os: &mut Os) -> Result<Permit, Closed> {
        if !self.permits.is_home(os) {
            return Err(Closed(()));
        }
        self.freshen();
        self.permits.get(os).await?;
        Ok(Permit {
            permits: self.permits.clone(),
        })
    }

    /// Takes a permit if there is one. Never blocks.
    pub async fn try_acquire(&self, os: &mut Os) -> Option<Permit> {
        self.permits.require_home(os, "the semaphore");
        self.freshen();
        self.permits.try_get(os).await.ok()?;
        Some(Permit {
            permits: self.permits.clone(),
        })
    }

    /// Sees to it that there is a permit to be had, if one is left. It is in the queue before the
    /// call that follows, and stays there if nothing comes of that call.
    fn freshen(&self) {
        if self.permits.is_empty() && self.fresh.get() > 0 {
            self.fresh.set(self.fresh.get() - 1);
            self.permits.post(());
        }
    }

    /// How many permits are left. One that was given back while a task waits for it is that task's
    /// and does not count.
    #[must_use]
    pub fn available(&self) -> usize {
        self.fresh.get() + self.permits.len()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.post(());
    }
}

/// A value that one task uses at a time.
///
/// A task that dies with the lock in its hands, killed or panicking, may have left the value half
/// changed: the lock is broken then, and each task that locks it is told, until one has called
/// [`Mutex::mend`]. (The poisoning of the standard library's `Mutex`.) A [timeout](Os::timeout) that
/// cuts its body breaks the locks that the body holds, as a kill does: the body did not choose the
/// moment either. A task that fails, or ends by [`Os::exit`], has chosen the moment, and breaks
/// nothing, unless the exit that it gives says that it was killed or faulted.
///
/// ```
/// # use trapline::{Kernel, Os, sync::Mutex};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let total = Mutex::new(os, 0).await;
///     *total.lock(os).await.unwrap() += 1;
///     assert_eq!(*total.lock(os).await.unwrap(), 1);
/// })?;
/// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mutex<T> {
    inner: Rc<Locked<T>>,
}

struct Locked<T> {
    token: Queue<()>,
    frame: Rc<TrapFrame>,
    broken: Cell<bool>,
    /// `None` while a guard has it.
    value: Cell<Option<Box<T>>>,
    /// How it is dropped.
    drop: fn(&TrapFrame, Box<T>),
}

/// The lock of a [`Mutex`], and the way to its value; released when it is dropped.
///
/// The kernel takes the task that locked it for its holder. A guard that moves to another task tells
/// the kernel so with [`Guard::adopt`]; otherwise a cycle may be reported that is none.
pub struct Guard<T> {
    inner: Rc<Locked<T>>,
    value: Option<Box<T>>,
    /// Whether its task has given it up, to wait for a condition: it breaks nothing any more.
    given_up: bool,
}

/// A task died, or was cut by a timeout, with the lock in its hands. The lock is held all the same.
#[derive(thiserror::Error)]
#[error("a task died or was cut by a timeout with the lock in its hands")]
pub struct Broken<T>(pub Guard<T>);

impl<T: 'static> Mutex<T> {
    /// Makes a mutex around a value. Never blocks.
    pub async fn new(os: &mut Os, value: T) -> Self {
        let token = Queue::required(os, u64::MAX, "mutex").await;
        Self::around(os, token, value)
    }

    /// Makes a mutex with a name, which reports and traces show beside its number. Never blocks.
    ///
    /// ```
    /// # use trapline::{Error, Kernel, Os, sync::Mutex};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let savings = Mutex::named(os, "savings", 100).await;
    ///     let _held = savings.lock(os).await;
    ///     let _again = savings.lock(os).await;
    /// })?;
    /// let Err(Error::Deadlock(deadlock)) = kernel.run() else { panic!() };
    /// let report = deadlock.to_string();
    /// assert!(report.contains("waits for mutex 1 \"savings\", held by task 1"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn named(os: &mut Os, name: &str, value: T) -> Self {
        let token = Queue::required_named(os, u64::MAX, "mutex", Some(name.into())).await;
        Self::around(os, token, value)
    }

    /// A mutex whose lock is the message of this queue.
    fn around(os: &Os, token: Queue<()>, value: T) -> Self {
        token.post(());
        let (broken, value) = (Cell::new(false), Cell::new(Some(Box::new(value))));
        Self {
            inner: Rc::new(Locked {
                token,
                frame: Rc::clone(os.frame()),
                broken,
                value,
                drop: TrapFrame::drop_flat,
            }),
        }
    }

    /// Takes the lock. *Blocks* while another task has it; first come, first served.
    ///
    /// *Errors:* [`Broken`], with the lock, if a task died or was cut by a timeout that had it.
    pub async fn lock(&self, os: &mut Os) -> Result<Guard<T>, Broken<T>> {
        self.inner.token.require_home(os, "the mutex");
        let token = self.inner.token.get(os).await;
        token.expect("the queue of a mutex is closed by nothing but a raw trap");
        self.inner.token.set_held();
        let value = self.inner.value.take();
        let guard = Guard {
            inner: Rc::clone(&self.inner),
            value,
            given_up: false,
        };
        if self.inner.broken.get() {
            Err(Broken(guard))
        } else {
            Ok(guard)
        }
    }

    /// Declares a broken lock whole again, its value having been seen to.
    pub fn mend(&self) {
        self.inner.broken.set(false);
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.drop)(&self.frame, value);
        }
    }
}

impl<T> Clone for Mutex<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Rc::clone(&self.inner),
        }
    }
}

impl<T: 'static> Guard<T> {
    /// The mutex that this is the lock of.
    #[must_use]
    pub fn mutex(&self) -> Mutex<T> {
        Mutex {
            inner: Rc::clone(&self.inner),
        }
    }

    /// Makes the calling task the holder of the lock, in reports and in the search for cycles: for a
    /// guard that has come from another task. Never blocks.
    pub fn adopt(&mut self, os: &Os) {
        self.inner.token.require_home(os, "the mutex");
        self.inner.token.set_held();
    }
}

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
            .as_deref()
            .expect("a guard has the value until it is dropped")
    }
}

impl<T> DerefMut for Guard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
            .as_deref_mut()
            .expect("a guard has the value until it is dropped")
    }
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        self.inner.value.set(self.value.take());
        let is_cut = self.inner.frame.killing.get() || std::thread::panicking();
        if is_cut && !self.given_up {
            self.inner.broken.set(true);
        }
        self.inner.token.set_free();
        self.inner.token.post(());
    }
}

/// A flag that tasks wait for. Set, it lets everybody through; cleared, nobody.
///
/// ```
/// # use trapline::{Errno, Kernel, Os, sync::Flag};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let open = Flag::new(os).await;
///     let theirs = open.clone();
///     let guest = os.spawn("guest", async move |os| theirs.wait(os).await).await?;
///     open.set(os).await;
///     os.wait(guest).await?;
///     Ok::<(), Errno>(())
/// })?;
/// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Flag {
    /// Closed while the flag is set.
    gate: Rc<RefCell<Queue<()>>>,
}

impl Flag {
    /// Makes a flag that is not set. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self {
            gate: Rc::new(RefCell::new(Self::gate(os).await)),
        }
    }

    async fn gate(os: &mut Os) -> Queue<()> {
        Queue::required(os, u64::MAX, "flag").await
    }

    /// The gate, to be used in this kernel.
    fn gate_in(&self, os: &Os) -> Queue<()> {
        let gate = self.gate.borrow().clone();
        gate.require_home(os, "the flag");
        gate
    }

    /// Sets it and wakes everybody who waits. Never blocks.
    pub async fn set(&self, os: &mut Os) {
        let gate = self.gate_in(os);
        gate.close(os).await;
    }

    /// Clears it. Never blocks.
    pub async fn clear(&self, os: &mut Os) {
        self.gate_in(os);
        let gate = Self::gate(os).await;
        if self.is_set() {
            self.gate.replace(gate);
        }
    }

    /// Waits for it. *Blocks* while it is not set.
    pub async fn wait(&self, os: &mut Os) {
        let gate = self.gate_in(os);
        let _ = gate.get(os).await;
    }

    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.gate.borrow().is_closed()
    }
}

/// A place where a number of tasks wait until all of them are there. Then it can be used again.
#[derive(Clone, Debug)]
pub struct Barrier {
    tasks: usize,
    round: Rc<RefCell<Rc<Round>>>,
}

#[derive(Debug)]
struct Round {
    arrived: Cell<usize>,
    /// Closed when all are there.
    gate: Queue<()>,
}

/// One of those who have arrived; who is killed while waiting has not.
struct Arrival(Rc<Round>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arrived.set(self.0.arrived.get() - 1);
    }
}

impl Barrier {
    /// Makes a barrier for so many tasks. Never blocks.
    pub async fn new(os: &mut Os, tasks: usize) -> Self {
        Self {
            tasks,
            round: Rc::new(RefCell::new(Round::new(os).await)),
        }
    }

    /// Waits for the others. *Blocks* until all are there. Answers whether this task was the last.
    pub async fn wait(&self, os: &mut Os) -> bool {
        self.round.borrow().gate.require_home(os, "the barrier");
        // Made before we are counted, so that nobody can come between the last and the next round.
        let next = Round::new(os).await;
        let round = Rc::clone(&self.round.borrow());
        let last = round.arrived.get() + 1 >= self.tasks;
        if last {
            self.round.replace(next);
            round.gate.close(os).await;
        } else {
            round.arrived.set(round.arrived.get() + 1);
            let _arrival = Arrival(Rc::clone(&round));
            let _ = round.gate.get(os).await;
        }
        last
    }
}

impl Round {
    async fn new(os: &mut Os) -> Rc<Self> {
        Rc::new(Self {
            arrived: Cell::new(0),
            gate: Queue::required(os, u64::MAX, "barrier").await,
        })
    }
}

/// A place to wait for a change of what a [`Mutex`] protects.
///
/// A signal is for a task that waits. If that task is killed or cut by a timeout before it has the
/// lock again, the signal goes to the next task that waits; without one it is dropped.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Without room: a message passes only to a task that waits.
    signals: Rc<RefCell<Queue<()>>>,
}

impl Condition {
    /// Makes a condition. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self {
            signals: Rc::new(RefCell::new(Self::signals(os).await)),
        }
    }

    async fn signals(os: &mut Os) -> Queue<()> {
        Queue::required(os, 0, "condition").await
    }

    /// The signals, to be used in this kernel.
    fn signals_in(&self, os: &Os) -> Queue<()> {
        let signals = self.signals.borrow().clone();
        signals.require_home(os, "the condition");
        signals
    }

    /// Releases the lock, waits for a signal, and takes the lock again. *Blocks* until then. What
    /// was waited for must be checked again: another task may have come first.
    ///
    /// A wait that is cut from outside, by a timeout around it, holds nothing and breaks nothing:
    /// the lock was given up when the wait began. To go on with the lock after a time, use
    /// [`Condition::wait_for`].
    ///
    /// *Errors:* as [`Mutex::lock`].
    pub async fn wait<T: 'static>(
        &self,
        os: &mut Os,
        guard: Guard<T>,
    ) -> Result<Guard<T>, Broken<T>> {
        let mutex = guard.mutex();
        let signals = self.signals_in(os);
        forget_stale(os, &signals).await;
        // The lock is free from the next trap on, which is the one that waits.
        drop(guard);
        let signal = signals.get(os).await.map(|()| Signal(&signals));
        let locked = mutex.lock(os).await;
        // It has been heard.
        std::mem::forget(signal);
        locked
    }

    /// Like [`Condition::wait`], but waits for a signal no longer than `span`. Then it takes the
    /// lock again all the same, and says `Err(Elapsed)` beside it. *Blocks* until it has the lock,
    /// which may be later than `span`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use trapline::{Elapsed, Kernel, Os, sync::{Condition, Mutex}};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let jobs = Mutex::new(os, Vec::<u32>::new()).await;
    ///     let changed = Condition::new(os).await;
    ///     let guard = jobs.lock(os).await.unwrap();
    ///     let span = Duration::from_secs(1);
    ///     let (guard, heard) = changed.wait_for(os, guard, span).await.unwrap();
    ///     assert_eq!(heard, Err(Elapsed));
    ///     assert!(guard.is_empty()); // and it is locked
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// *Errors:* as [`Mutex::lock`].
    pub async fn wait_for<T: 'static>(
        &self,
        os: &mut Os,
        mut guard: Guard<T>,
        span: Duration,
    ) -> Result<(Guard<T>, Result<(), Elapsed>), Broken<T>> {
        let mutex = guard.mutex();
        let signals = self.signals_in(os);
        guard.given_up = true;
        let heard = os.timeout(span, async |os: &mut Os| {
            forget_stale(os, &signals).await;
            // As above. Not before the timeout is armed: that is a trap, too.
            drop(guard);
            signals.get(os).await
        });
        let (signal, heard) = match heard.await {
            Ok(signal) => (signal.ok().map(|()| Signal(&signals)), Ok(())),
            Err(elapsed) => (None, Err(elapsed)),
        };
        let locked = mutex.lock(os).await;
        // It has been heard.
        std::mem::forget(signal);
        locked.map(|guard| (guard, heard))
    }

    /// Wakes the task that has waited longest, if there is one. Never blocks.
    pub async fn notify_one(&self, os: &mut Os) -> bool {
        let signals = self.signals_in(os);
        signals.try_put(os, ()).await.is_ok()
    }

    /// Wakes every task that waits. Never blocks.
    pub async fn notify_all(&self, os: &mut Os) {
        self.signals_in(os);
        // Who waits again before this is done waits for the next signal.
        let next = Self::signals(os).await;
        let all = self.signals.replace(next);
        all.close(os).await;
    }
}

/// Drops signals whose tasks were killed or cut before their turn, while no other waited. Comes back
/// in the same turn in which it found none.
async fn forget_stale(os: &mut Os, signals: &Queue<()>) {
    while !signals.is_empty() {
        let _ = signals.try_get(os).await;
    }
}

/// A signal of [`Condition::notify_one`] on its way: who dies or gives up before it has the lock
/// again has not heard it, and it is for the next who waits.
struct Signal<'a>(&'a Queue<()>);

impl Drop for Signal<'_> {
    fn drop(&mut self) {
        self.0.post(());
    }
}

/// Tasks that belong together: waited for together, and killed together when one fails, or when
/// the group is dropped: then at the next trap of the task that drops it, before that trap has an
/// effect. (The nursery of trio, the `TaskGroup` of curio.)
///
/// A member that has ended is a zombie until [`Group::next`], [`Group::join`] or [`Group::first`] has
/// its exit, or the group is dropped. No zombie outlives the group.
///
/// ```
/// # use trapline::{Kernel, Os, sync::Group};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let mut group = Group::new(os).await;
///     for n in 1..=3 {
///         group.spawn(os, "worker", async move |os| writeln!(os, "{n}")).await?;
///     }
///     group.join(os).await.map_err(|failure| failure.to_string())?;
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # kernel.run()?;
/// # assert_eq!(kernel.take_console(), "1\n2\n3\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The kernel gives the group each member's exit when it buries the member, whatever other task waits
/// for the member and wherever the group has moved. A member that has ended stays a zombie until the
/// group has answered its exit, or until the task that spawned it ends.
pub struct Group {
    /// How members ended that are not answered yet.
    ended: Queue<(Tid, Exit)>,
    members: Rc<Members>,
    frame: Rc<TrapFrame>,
}

/// What a group and the kernel share.
struct Members {
    ended: QueueId,
    exits: Rc<Messages<(Tid, Exit)>>,
    /// Every member whose exit is not answered yet, by order of joining. The kernel adds it when the
    /// task is made: its owner may be killed before it hears of it.
    left: RefCell<BTreeSet<Tid>>,
}

impl Keeper for Members {
    fn born(&self, tid: Tid) {
        self.left.borrow_mut().insert(tid);
    }

    fn ended(&self, tid: Tid, exit: &Exit) -> Option<(QueueId, u64)> {
        Some((self.ended, self.exits.push((tid, exit.clone()))))
    }
}

/// A task of a [`Group`] did not end well.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("task {tid} {exit}")]
pub struct Failure {
    /// Which task.
    pub tid: Tid,
    /// How it ended.
    pub exit: Exit,
}

impl Group {
    /// Makes a group without tasks. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        let ended = Queue::required(os, u64::MAX, "group").await;
        let members = Rc::new(Members {
            ended: ended.id(),
            exits: ended.messages(),
            left: RefCell::default(),
        });
        Self {
            ended,
            members,
            frame: Rc::clone(os.frame()),
        }
    }

    /// Starts a task in the group, as [`Os::spawn`] does.
    ///
    /// *Errors:* [`Errno::TooManyTasks`]; [`Errno::Invalid`] in another kernel than its own.
    pub async fn spawn<T: IntoExit>(
        &mut self,
        os: &mut Os,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        if !Rc::ptr_eq(&self.frame, os.frame()) {
            return Err(Errno::Invalid);
        }
        let members = Rc::clone(&self.members);
        os.spawn_kept(name.as_ref(), program, members).await
    }

    /// Waits for the next task that ends and answers how; `None` when none is left. *Blocks* until
    /// one ends. Faults the caller in another kernel than the group's own.
    pub async fn next(&mut self, os: &mut Os) -> Option<(Tid, Exit)> {
        self.ended.require_home(os, "the group");
        if self.members.left.borrow().is_empty() {
            return None;
        }
        let (tid, exit) = self.ended.get(os).await.ok()?;
        self.members.left.borrow_mut().remove(&tid);
        self.frame.defer(SystemCall::Disown(tid));
        Some((tid, exit))
    }

    /// Waits for all of them. *Blocks* until all have ended, or one has not ended well: then the
    /// rest are killed. When this answers, all are gone, destructors included.
    ///
    /// *Errors:* [`Failure`], of the first that failed, faulted or was killed.
    pub async fn join(mut self, os: &mut Os) -> Result<(), Failure> {
        while let Some((tid, exit)) = self.next(os).await {
            if exit != Exit::Done {
                self.end(os).await;
                return Err(Failure { tid, exit });
            }
        }
        Ok(())
    }

    /// Waits for the first that ends, kills the rest, and answers how it ended; `None` in a group
    /// without tasks. *Blocks* until one ends. When this answers, all are gone, destructors
    /// included.
    pub async fn first(mut self, os: &mut Os) -> Option<(Tid, Exit)> {
        let first = self.next(os).await?;
        self.end(os).await;
        Some(first)
    }

    /// Ends those that are left.
    async fn end(self, os: &mut Os) {
        drop(self);
        // They end at the next trap, before it has an effect: this one.
        os.yield_now().await;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for tid in self.members.left.take() {
            self.frame.defer(SystemCall::Release(tid));
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({:?})", self.inner.token)
    }
}

impl<T> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({:?})", self.inner.token)
    }
}

impl<T> fmt::Debug for Broken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broken({:?})", self.0)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.members.left.borrow().iter())
            .finish()
    }
}
