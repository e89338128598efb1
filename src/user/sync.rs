//! Synchronization of tasks: semaphore, mutex, flag, barrier, condition and task group. All of them
//! consist of message queues, which contain tokens or are closed as a signal.
//!
//! Each belongs to the kernel that made it. In another kernel its calls fault the caller, except
//! for calls with an error for that case. Making one also faults the caller at the limit of queues
//! ([`Builder::max_queues`](crate::Builder::max_queues)).

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
    ops::{Deref, DerefMut},
    panic::Location,
    rc::Rc,
    time::Duration,
};

use super::{
    os::Os,
    program::IntoExit,
    queue::{Closed, Queue, Side},
    time::Elapsed,
};
use crate::{
    abi::{Errno, Exit, QueueId, SystemCall, Tid},
    trap::{Keeper, Kind, TrapFrame},
};

/// A number of permits. A task that finds none waits. First come, first served.
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
    /// The permits that have been returned.
    permits: Queue<()>,
    /// The number of permits that were never taken. No task waits while there is one.
    unissued: Rc<Cell<usize>>,
}

/// A permit of a [`Semaphore`]. Dropping it returns it.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit {
    permits: Queue<()>,
}

impl Semaphore {
    /// Makes a semaphore with this number of permits. Never blocks. Its memory grows with the
    /// permits that are taken at once.
    pub async fn new(os: &mut Os, permits: usize) -> Self {
        Self::maybe_named(os, None, permits).await
    }

    /// Makes a semaphore with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, permits: usize) -> Self {
        Self::maybe_named(os, Some(name), permits).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, permits: usize) -> Self {
        Self {
            permits: Queue::required(os, u64::MAX, Kind::Semaphore, name).await,
            unissued: Rc::new(Cell::new(permits)),
        }
    }

    /// Takes a permit. *Blocks* while there is none.
    ///
    /// *Errors:* [`Closed`] in a kernel other than its own.
    #[track_caller]
    pub fn acquire(&self, os: &mut Os) -> impl Future<Output = Result<Permit, Closed>> {
        os.note_caller();
        async {
            if !self.permits.is_home(os) {
                return Err(Closed(()));
            }
            self.issue_permit();
            self.permits.take(os).await?;
            Ok(self.permit())
        }
    }

    /// Takes a permit if there is one. Never blocks.
    pub async fn try_acquire(&self, os: &mut Os) -> Option<Permit> {
        self.permits.require_home(os, "the semaphore");
        self.issue_permit();
        self.permits.try_get(os).await.ok()?;
        Some(self.permit())
    }

    /// Returns a permit that the caller has taken from the queue.
    fn permit(&self) -> Permit {
        self.issue_permit();
        self.permits.set_held();
        Permit {
            permits: self.permits.clone(),
        }
    }

    /// Puts a permit into the queue, if the queue is empty and one is left. The next call finds it
    /// there. If that call is cut, the permit stays in the queue.
    ///
    /// A task does so before it takes a permit and after: it may have taken the permit of a task whose
    /// call is held back.
    fn issue_permit(&self) {
        let is_empty = self.permits.is_empty();
        self.permits.touch_beside(is_empty);
        if is_empty && self.unissued.get() > 0 {
            self.unissued.set(self.unissued.get() - 1);
            self.permits.defer_put(());
        }
    }

    /// Returns the number of permits that are left. A permit that was returned to a waiting task
    /// does not count.
    #[must_use]
    pub fn available(&self) -> usize {
        self.permits.touch_beside(false);
        self.unissued.get() + self.permits.len()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.defer_put(());
    }
}

/// A value that one task uses at a time.
///
/// A task that is killed or panics while it holds the lock may leave the value half changed. This
/// poisons the lock: [`Mutex::lock`] fails with [`Poisoned`] until a task calls
/// [`Mutex::clear_poison`]. (As in the standard library's `Mutex`.)
///
/// A [timeout](Os::timeout) that cuts its body poisons the locks that the body holds. A task that
/// returns an error or calls [`Os::exit`] poisons none, because it chooses the moment. An exit of
/// `Killed` or `Faulted` poisons in any case.
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
    poisoned: Cell<bool>,
    /// `None` while a guard has it.
    value: Cell<Option<Box<T>>>,
    /// Drops the value.
    drop: fn(&TrapFrame, Box<T>),
}

/// The lock of a [`Mutex`], which dereferences to its value. Dropping it releases the lock.
///
/// For the kernel the task that locked the mutex is the holder. A task that receives a guard from
/// another task calls [`Guard::adopt`]. Otherwise the kernel may report a cycle that does not exist.
pub struct Guard<T> {
    inner: Rc<Locked<T>>,
    value: Option<Box<T>>,
    /// Whether the task has begun to wait for a condition. Then the guard poisons nothing.
    released: bool,
}

/// A task was killed, panicked or was cut by a timeout while it held the lock. The caller holds the
/// lock all the same.
#[derive(thiserror::Error)]
#[error("the lock is poisoned: a task died or was cut by a timeout while it held the lock")]
pub struct Poisoned<T>(pub Guard<T>);

impl<T: 'static> Mutex<T> {
    /// Makes a mutex around a value. Never blocks.
    pub async fn new(os: &mut Os, value: T) -> Self {
        let token = Queue::required(os, u64::MAX, Kind::Mutex, None).await;
        Self::around(token, value)
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
        let token = Queue::required(os, u64::MAX, Kind::Mutex, Some(name)).await;
        Self::around(token, value)
    }

    /// Returns a mutex whose lock is the message of this queue.
    fn around(token: Queue<()>, value: T) -> Self {
        token.defer_put(());
        let (poisoned, value) = (Cell::new(false), Cell::new(Some(Box::new(value))));
        Self {
            inner: Rc::new(Locked {
                token,
                poisoned,
                value,
                drop: TrapFrame::drop_iteratively,
            }),
        }
    }

    /// Takes the lock. *Blocks* while another task has it. First come, first served.
    ///
    /// *Errors:* [`Poisoned`], with the lock, if the lock is poisoned.
    #[track_caller]
    pub fn lock(&self, os: &mut Os) -> impl Future<Output = Result<Guard<T>, Poisoned<T>>> {
        os.note_caller();
        self.lock_noted(os)
    }

    /// Takes the lock, for a caller that has noted its own caller.
    async fn lock_noted(&self, os: &mut Os) -> Result<Guard<T>, Poisoned<T>> {
        self.inner.token.require_home(os, "the mutex");
        let token = self.inner.token.take(os).await;
        token.expect("only a raw trap closes the queue of a mutex");
        self.inner.token.set_held();
        let value = self.inner.value.take();
        let guard = Guard {
            inner: Rc::clone(&self.inner),
            value,
            released: false,
        };
        self.inner.token.touch_beside(false);
        if self.inner.poisoned.get() {
            Err(Poisoned(guard))
        } else {
            Ok(guard)
        }
    }

    /// Clears the poison of the lock, after the caller has repaired the value.
    pub fn clear_poison(&self) {
        self.inner.token.touch_beside(true);
        self.inner.poisoned.set(false);
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.drop)(self.token.frame(), value);
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
    /// Returns the mutex of this lock.
    #[must_use]
    pub fn mutex(&self) -> Mutex<T> {
        Mutex {
            inner: Rc::clone(&self.inner),
        }
    }

    /// Makes the calling task the holder of the lock, in reports and in the search for cycles. A
    /// task that receives a guard from another task calls this. Never blocks.
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
        let is_cut = self.inner.token.frame().killing.get() || std::thread::panicking();
        if is_cut && !self.released {
            self.inner.token.touch_beside(true);
            self.inner.poisoned.set(true);
        }
        self.inner.token.set_free();
        self.inner.token.defer_put(());
    }
}

/// A flag for which tasks wait. While it is set, no task waits; while it is clear, every task
/// waits.
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
        Self::maybe_named(os, None).await
    }

    /// Makes a flag with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str) -> Self {
        Self::maybe_named(os, Some(name)).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>) -> Self {
        let gate = Queue::required(os, u64::MAX, Kind::Flag, name).await;
        Self {
            gate: Rc::new(RefCell::new(gate)),
        }
    }

    /// Returns the gate. Faults a caller of another kernel.
    fn gate_in(&self, os: &Os) -> Queue<()> {
        let gate = self.gate.borrow().clone();
        gate.require_home(os, "the flag");
        gate.touch_beside(false);
        gate
    }

    /// Sets the flag, and wakes every waiting task. Never blocks.
    pub async fn set(&self, os: &mut Os) {
        let gate = self.gate_in(os);
        gate.close(os).await;
    }

    /// Clears the flag. Never blocks.
    pub async fn clear(&self, os: &mut Os) {
        let gate = self.gate_in(os).successor(os, u64::MAX).await;
        if self.is_set() {
            gate.touch_beside(true);
            self.gate.replace(gate).touch_beside(true);
        }
    }

    /// Waits for the flag. *Blocks* while it is not set.
    #[track_caller]
    pub fn wait(&self, os: &mut Os) -> impl Future<Output = ()> {
        os.note_caller();
        async {
            let gate = self.gate_in(os);
            let _ = gate.take(os).await;
        }
    }

    /// Returns whether the flag is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let gate = self.gate.borrow();
        gate.touch_beside(false);
        gate.is_closed()
    }
}

/// A barrier: a number of tasks wait until all of them have arrived. It can be used again then.
#[derive(Clone, Debug)]
pub struct Barrier {
    tasks: usize,
    round: Rc<RefCell<Rc<Round>>>,
}

#[derive(Debug)]
struct Round {
    arrived: Cell<usize>,
    /// Closed when all have arrived.
    gate: Queue<()>,
}

/// The arrival of a waiting task. Dropping it, for instance by a kill, takes it back.
struct Arrival(Rc<Round>);

impl Drop for Arrival {
    fn drop(&mut self) {
        // When the round is over, its count is of no use.
        if !self.0.gate.is_closed() {
            self.0.gate.touch_beside(true);
        }
        self.0.arrived.set(self.0.arrived.get() - 1);
    }
}

impl Barrier {
    /// Makes a barrier for this number of tasks. Never blocks.
    pub async fn new(os: &mut Os, tasks: usize) -> Self {
        Self::maybe_named(os, None, tasks).await
    }

    /// Makes a barrier with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, tasks: usize) -> Self {
        Self::maybe_named(os, Some(name), tasks).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, tasks: usize) -> Self {
        let gate = Queue::required(os, u64::MAX, Kind::Barrier, name).await;
        Self {
            tasks,
            round: Rc::new(RefCell::new(Round::new(gate))),
        }
    }

    /// Waits for the others. *Blocks* until all have arrived. Returns whether this task was the
    /// last.
    #[track_caller]
    pub fn wait(&self, os: &mut Os) -> impl Future<Output = bool> {
        let place = os.note_caller();
        self.wait_at(place, os)
    }

    async fn wait_at(&self, place: &'static Location<'static>, os: &mut Os) -> bool {
        let gate = self.round.borrow().gate.clone();
        gate.require_home(os, "the barrier");
        // Made before this task is counted: a trap between the two would let another task arrive.
        let next = Round::new(gate.successor(os, u64::MAX).await);
        let round = Rc::clone(&self.round.borrow());
        round.gate.touch_beside(true);
        let last = round.arrived.get() + 1 >= self.tasks;
        if last {
            next.gate.touch_beside(true);
            self.round.replace(next);
            round.gate.close(os).await;
        } else {
            round.arrived.set(round.arrived.get() + 1);
            let _arrival = Arrival(Rc::clone(&round));
            os.frame().set_place(place);
            let _ = round.gate.take(os).await;
        }
        last
    }
}

impl Round {
    fn new(gate: Queue<()>) -> Rc<Self> {
        Rc::new(Self {
            arrived: Cell::new(0),
            gate,
        })
    }
}

/// The lock after a wait for a limited time, and whether the signal came in that time.
type Waited<T> = Result<(Guard<T>, Result<(), Elapsed>), Poisoned<T>>;

/// A condition variable: tasks wait for a change of what a [`Mutex`] protects.
///
/// A signal goes to a waiting task. If that task is killed or cut by a timeout before it has the
/// lock again, the signal goes to the next waiting task. Without one it is dropped.
#[derive(Clone, Debug)]
pub struct Condition {
    /// A queue of capacity zero: a message passes only to a waiting task.
    signals: Rc<RefCell<Queue<()>>>,
}

impl Condition {
    /// Makes a condition. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self::maybe_named(os, None).await
    }

    /// Makes a condition with a name, which reports and traces show beside its number. Never
    /// blocks.
    pub async fn named(os: &mut Os, name: &str) -> Self {
        Self::maybe_named(os, Some(name)).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>) -> Self {
        let signals = Queue::required(os, 0, Kind::Condition, name).await;
        Self {
            signals: Rc::new(RefCell::new(signals)),
        }
    }

    /// Returns the signals. Faults a caller of another kernel.
    fn signals_in(&self, os: &Os) -> Queue<()> {
        let signals = self.signals.borrow().clone();
        signals.require_home(os, "the condition");
        signals.touch_beside(false);
        signals
    }

    /// Releases the lock, waits for a signal, and takes the lock again. *Blocks* until it has the
    /// lock. The caller must check its condition again: another task may have run first.
    ///
    /// A timeout that cuts the wait poisons nothing, because the wait has released the lock.
    /// [`Condition::wait_for`] waits for a limited time and takes the lock again.
    ///
    /// *Errors:* as [`Mutex::lock`].
    #[track_caller]
    pub fn wait<T: 'static>(
        &self,
        os: &mut Os,
        guard: Guard<T>,
    ) -> impl Future<Output = Result<Guard<T>, Poisoned<T>>> {
        let place = os.note_caller();
        self.wait_at(place, os, guard)
    }

    async fn wait_at<T: 'static>(
        &self,
        place: &'static Location<'static>,
        os: &mut Os,
        guard: Guard<T>,
    ) -> Result<Guard<T>, Poisoned<T>> {
        let mutex = guard.mutex();
        let signals = self.signals_in(os);
        if os.frame().may_wait_to_print() {
            // Otherwise a signal could come between the release of the lock and the wait.
            os.yield_now().await;
        }
        drop_stale(os, &signals).await;
        // The lock is released at the next trap, which is the one that waits.
        drop(guard);
        os.frame().set_place(place);
        let signal = signals.take(os).await.map(|()| Signal(&signals));
        os.frame().set_place(place);
        let locked = mutex.lock_noted(os).await;
        // The signal has arrived.
        std::mem::forget(signal);
        locked
    }

    /// Like [`Condition::wait`], but waits for a signal for at most `span`. Then it takes the lock
    /// again, and returns `Err(Elapsed)` beside it. *Blocks* until it has the lock, which may be
    /// later than `span`.
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
    ///     let (guard, signalled) = changed.wait_for(os, guard, span).await.unwrap();
    ///     assert_eq!(signalled, Err(Elapsed));
    ///     assert!(guard.is_empty()); // and it is locked
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// *Errors:* as [`Mutex::lock`].
    #[track_caller]
    pub fn wait_for<T: 'static>(
        &self,
        os: &mut Os,
        guard: Guard<T>,
        span: Duration,
    ) -> impl Future<Output = Waited<T>> {
        let place = os.note_caller();
        self.wait_for_at(place, os, guard, span)
    }

    async fn wait_for_at<T: 'static>(
        &self,
        place: &'static Location<'static>,
        os: &mut Os,
        mut guard: Guard<T>,
        span: Duration,
    ) -> Waited<T> {
        let mutex = guard.mutex();
        let signals = self.signals_in(os);
        guard.released = true;
        let signal = os.timeout(span, async |os: &mut Os| {
            drop_stale(os, &signals).await;
            // As above. After the timeout is armed, because arming is a trap too.
            drop(guard);
            os.frame().set_place(place);
            signals.take(os).await
        });
        let (signal, signalled) = match signal.await {
            Ok(signal) => (signal.ok().map(|()| Signal(&signals)), Ok(())),
            Err(elapsed) => (None, Err(elapsed)),
        };
        os.frame().set_place(place);
        let locked = mutex.lock_noted(os).await;
        // The signal has arrived.
        std::mem::forget(signal);
        locked.map(|guard| (guard, signalled))
    }

    /// Wakes the task that has waited longest. Returns whether there was one. Never blocks.
    pub async fn notify_one(&self, os: &mut Os) -> bool {
        let signals = self.signals_in(os);
        signals.try_put(os, ()).await.is_ok()
    }

    /// Wakes every task that waits. Never blocks.
    pub async fn notify_all(&self, os: &mut Os) {
        let signals = self.signals_in(os);
        // A task that waits again before this is done waits for the next signal.
        let next = signals.successor(os, 0).await;
        next.touch_beside(true);
        let all = self.signals.replace(next);
        all.touch_beside(true);
        all.close(os).await;
    }
}

/// Drops stale signals: their tasks were killed or cut before their turn, and no other task waited.
/// Returns in the turn in which it finds none.
async fn drop_stale(os: &mut Os, signals: &Queue<()>) {
    while !signals.is_empty() {
        let _ = signals.try_get(os).await;
    }
}

/// A signal of [`Condition::notify_one`] on its way. If its task is killed or cut before it has the
/// lock again, the drop passes the signal to the next waiting task.
struct Signal<'a>(&'a Queue<()>);

impl Drop for Signal<'_> {
    fn drop(&mut self) {
        self.0.defer_put(());
    }
}

/// A group of tasks. [`Group::join`] waits for all of them, and kills the rest when one fails.
/// Dropping the group kills its members, at the next trap of the task that drops it and before that
/// trap has an effect. (The nursery of trio, the `TaskGroup` of curio.)
///
/// An ended member is a zombie until [`Group::next`], [`Group::join`] or [`Group::first`] has
/// returned its exit, or the group is dropped. No zombie outlives the group.
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
/// The kernel gives the group each member's exit when the member ends, even if other tasks wait for
/// the member or the group has moved to another task. A member also stops being a zombie when the
/// task that spawned it ends.
pub struct Group {
    /// The exits that the group has not returned yet.
    ended: Queue<(Tid, Exit)>,
    members: Rc<Members>,
    frame: Rc<TrapFrame>,
}

/// The state that a group and the kernel share.
struct Members {
    ended: QueueId,
    exits: Rc<Side<(Tid, Exit)>>,
    /// Every member whose exit the group has not returned, by tid. The kernel adds a member when it
    /// makes the task: the owner may be killed before it receives the tid.
    left: RefCell<BTreeSet<Tid>>,
}

impl Keeper for Members {
    fn spawned(&self, tid: Tid) {
        self.left.borrow_mut().insert(tid);
    }

    fn ended(&self, tid: Tid, exit: &Exit) -> Option<(QueueId, u64)> {
        Some((self.ended, self.exits.push((tid, exit.clone()))))
    }
}

/// A task of a [`Group`] failed, faulted or was killed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("task {tid} {exit}")]
pub struct Failure {
    /// The task.
    pub tid: Tid,
    /// Its exit.
    pub exit: Exit,
}

impl Group {
    /// Makes a group without tasks. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self::maybe_named(os, None).await
    }

    /// Makes a group with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str) -> Self {
        Self::maybe_named(os, Some(name)).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>) -> Self {
        let ended = Queue::required(os, u64::MAX, Kind::Group, name).await;
        let members = Rc::new(Members {
            ended: ended.id(),
            exits: ended.side(),
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
    /// *Errors:* [`Errno::TooManyTasks`]; [`Errno::Invalid`] in a kernel other than its own.
    #[track_caller]
    pub fn spawn<T: IntoExit>(
        &mut self,
        os: &mut Os,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        os.note_caller();
        async move {
            if !Rc::ptr_eq(&self.frame, os.frame()) {
                return Err(Errno::Invalid);
            }
            let members = Rc::clone(&self.members);
            os.spawn_kept(name.as_ref(), program, members).await
        }
    }

    /// Waits for the next member to end, and returns its exit; `None` when none is left. *Blocks*
    /// until one ends. Faults the caller in a kernel other than the group's own.
    #[track_caller]
    pub fn next(&mut self, os: &mut Os) -> impl Future<Output = Option<(Tid, Exit)>> {
        let place = os.note_caller();
        self.next_at(place, os)
    }

    async fn next_at(
        &mut self,
        place: &'static Location<'static>,
        os: &mut Os,
    ) -> Option<(Tid, Exit)> {
        self.ended.require_home(os, "the group");
        if self.members.left.borrow().is_empty() {
            return None;
        }
        os.frame().set_place(place);
        let (tid, exit) = self.ended.take(os).await.ok()?;
        self.members.left.borrow_mut().remove(&tid);
        self.frame.defer(SystemCall::Disown(tid));
        Some((tid, exit))
    }

    /// Waits for all members, or kills the rest when one fails, faults or is killed. *Blocks* until
    /// then. When this returns, all have ended and their destructors have run.
    ///
    /// *Errors:* the first [`Failure`].
    #[track_caller]
    pub fn join(mut self, os: &mut Os) -> impl Future<Output = Result<(), Failure>> {
        let place = os.note_caller();
        async move {
            while let Some((tid, exit)) = self.next_at(place, os).await {
                if exit != Exit::Done {
                    self.end(os).await;
                    return Err(Failure { tid, exit });
                }
            }
            Ok(())
        }
    }

    /// Waits for the first member to end, kills the rest, and returns the first exit; `None` in an
    /// empty group. *Blocks* until one ends. When this returns, all have ended and their
    /// destructors have run.
    #[track_caller]
    pub fn first(mut self, os: &mut Os) -> impl Future<Output = Option<(Tid, Exit)>> {
        let place = os.note_caller();
        async move {
            let first = self.next_at(place, os).await?;
            self.end(os).await;
            Some(first)
        }
    }

    /// Ends the remaining members.
    async fn end(self, os: &mut Os) {
        drop(self);
        // They end at this trap, before it has an effect.
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

impl<T> fmt::Debug for Poisoned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poisoned({:?})", self.0)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.members.left.borrow().iter())
            .finish()
    }
}
