//! What tasks agree by: semaphore, mutex, event, barrier, condition and task group. All of them
//! stand on message queues: of tokens, or closed as a signal.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
    rc::Rc,
};

use crate::{
    abi::{Errno, Exit, Tid},
    frame::{Frame, Mail},
    os::Os,
    queue::{Closed, Queue},
    task::IntoExit,
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
            permits: Queue::unbounded(os).await,
            fresh: Rc::new(Cell::new(permits)),
        }
    }

    /// Takes a permit. *Blocks* while there is none.
    ///
    /// *Errors:* [`Closed`], in another kernel than its own.
    pub async fn acquire(&self, os: &mut Os) -> Result<Permit, Closed> {
        self.freshen();
        self.permits.get(os).await?;
        Ok(Permit {
            permits: self.permits.clone(),
        })
    }

    /// Takes a permit if there is one. Never blocks.
    pub async fn try_acquire(&self, os: &mut Os) -> Option<Permit> {
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

    /// How many permits are left.
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
/// [`Mutex::mend`]. (The poisoning of the standard library's `Mutex`.) A task that fails, or ends
/// by [`Os::exit`], has chosen the moment, and breaks nothing, unless the exit that it gives says
/// that it was killed or faulted.
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
    frame: Rc<Frame>,
    broken: Cell<bool>,
    /// `None` while a guard has it.
    value: Cell<Option<Box<T>>>,
    /// How it is dropped.
    drop: fn(&Frame, Box<T>),
}

/// The lock of a [`Mutex`], and the way to its value; released when it is dropped.
pub struct Guard<T> {
    inner: Rc<Locked<T>>,
    value: Option<Box<T>>,
}

/// A task died with the lock in its hands. The lock is held all the same.
#[derive(thiserror::Error)]
#[error("a task died with the lock in its hands")]
pub struct Broken<T>(pub Guard<T>);

impl<T: 'static> Mutex<T> {
    /// Makes a mutex around a value. Never blocks.
    pub async fn new(os: &mut Os, value: T) -> Self {
        let token = Queue::unbounded(os).await;
        token.post(());
        let (broken, value) = (Cell::new(false), Cell::new(Some(Box::new(value))));
        Self {
            inner: Rc::new(Locked {
                token,
                frame: Rc::clone(os.frame()),
                broken,
                value,
                drop: Frame::drop_flat,
            }),
        }
    }

    /// Takes the lock. *Blocks* while another task has it; first come, first served.
    ///
    /// *Errors:* [`Broken`], with the lock, if a task died that had it. In another kernel than its
    /// own the lock never comes.
    pub async fn lock(&self, os: &mut Os) -> Result<Guard<T>, Broken<T>> {
        while self.inner.token.get(os).await.is_err() {
            os.sleep(std::time::Duration::MAX).await;
        }
        let value = self.inner.value.take();
        let guard = Guard {
            inner: Rc::clone(&self.inner),
            value,
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
        if self.inner.frame.killing.get() || std::thread::panicking() {
            self.inner.broken.set(true);
        }
        self.inner.token.post(());
    }
}

/// A flag that tasks wait for. Set, it lets everybody through; cleared, nobody.
#[derive(Clone, Debug)]
pub struct Event {
    /// Closed while the flag is set.
    gate: Rc<RefCell<Queue<()>>>,
}

impl Event {
    /// Makes an event that is not set. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self {
            gate: Rc::new(RefCell::new(Queue::unbounded(os).await)),
        }
    }

    /// Sets it and wakes everybody who waits. Never blocks.
    pub async fn set(&self, os: &mut Os) {
        let gate = self.gate.borrow().clone();
        gate.close(os).await;
    }

    /// Clears it. Never blocks.
    pub async fn clear(&self, os: &mut Os) {
        let gate = Queue::unbounded(os).await;
        if self.is_set() {
            self.gate.replace(gate);
        }
    }

    /// Waits for it. *Blocks* while it is not set.
    pub async fn wait(&self, os: &mut Os) {
        let gate = self.gate.borrow().clone();
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
            gate: Queue::unbounded(os).await,
        })
    }
}

/// A place to wait for a change of what a [`Mutex`] protects.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Without room: a message passes only to a task that waits.
    signals: Rc<RefCell<Queue<()>>>,
}

impl Condition {
    /// Makes a condition. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self {
            signals: Rc::new(RefCell::new(Queue::bounded(os, 0).await)),
        }
    }

    /// Releases the lock, waits for a signal, and takes the lock again. *Blocks* until then. What
    /// was waited for must be checked again: another task may have come first.
    ///
    /// *Errors:* as [`Mutex::lock`].
    pub async fn wait<T: 'static>(
        &self,
        os: &mut Os,
        guard: Guard<T>,
    ) -> Result<Guard<T>, Broken<T>> {
        let mutex = guard.mutex();
        // The lock is free from the next trap on, which is the one that waits.
        drop(guard);
        let signals = self.signals.borrow().clone();
        let signal = signals.get(os).await.map(|()| Signal(&signals));
        let locked = mutex.lock(os).await;
        // It has been heard.
        std::mem::forget(signal);
        locked
    }

    /// Wakes the task that has waited longest, if there is one. Never blocks.
    pub async fn notify_one(&self, os: &mut Os) -> bool {
        let signals = self.signals.borrow().clone();
        signals.try_put(os, ()).await.is_ok()
    }

    /// Wakes every task that waits. Never blocks.
    pub async fn notify_all(&self, os: &mut Os) {
        // Who waits again before this is done waits for the next signal.
        let next = Queue::bounded(os, 0).await;
        let all = self.signals.replace(next);
        all.close(os).await;
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
/// the group is dropped. (The nursery of trio, the `TaskGroup` of curio.)
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
pub struct Group {
    /// The members that have ended.
    ended: Queue<u64>,
    /// Everybody who is not known to have ended, by order of joining. The kernel writes the number
    /// when the task is made: its owner may be killed before it hears of it.
    members: BTreeMap<u64, Rc<Cell<Tid>>>,
    joined: u64,
    /// The member whose exit is being asked for: a timeout may cut that short.
    ending: Option<u64>,
    frame: Rc<Frame>,
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

/// Tells the group that its task has ended, however that came.
struct Ending {
    ended: Queue<u64>,
    member: u64,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ended.post(self.member);
    }
}

impl Group {
    /// Makes a group without tasks. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        let ended = Queue::unbounded(os).await;
        Self {
            ended,
            members: BTreeMap::new(),
            joined: 0,
            ending: None,
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
        self.joined += 1;
        let member = self.joined;
        let ending = Ending {
            ended: self.ended.clone(),
            member,
        };
        let newborn = Rc::new(Cell::new(Tid::KERNEL));
        self.members.insert(member, Rc::clone(&newborn));
        let program = async move |os: &mut Os| {
            let _ending = ending;
            program(os).await
        };
        let child = os.spawn_into(name, program, newborn).await;
        if child.is_err() {
            self.members.remove(&member);
        }
        child
    }

    /// Waits for the next task that ends and answers how; `None` when none is left. *Blocks* until
    /// one ends.
    pub async fn next(&mut self, os: &mut Os) -> Option<(Tid, Exit)> {
        while !self.members.is_empty() {
            let member = match self.ending {
                Some(member) => member,
                None => self.ended.get(os).await.ok()?,
            };
            self.ending = Some(member);
            let Some(tid) = self.members.get(&member).map(|tid| tid.get()) else {
                self.ending = None;
                continue;
            };
            // Its program may be gone a moment before the task has ended.
            let exit = os.wait(tid).await;
            self.members.remove(&member);
            self.ending = None;
            if let Ok(exit) = exit {
                return Some((tid, exit));
            }
        }
        None
    }

    /// Waits for all of them. *Blocks* until all have ended, or one has not ended well: then the
    /// rest are killed.
    ///
    /// *Errors:* [`Failure`], of the first that failed, faulted or was killed.
    pub async fn join(mut self, os: &mut Os) -> Result<(), Failure> {
        while let Some((tid, exit)) = self.next(os).await {
            if exit != Exit::Done {
                return Err(Failure { tid, exit });
            }
        }
        Ok(())
    }

    /// Waits for the first that ends, kills the rest, and answers how it ended; `None` in a group
    /// without tasks. *Blocks* until one ends.
    pub async fn first(mut self, os: &mut Os) -> Option<(Tid, Exit)> {
        self.next(os).await
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for tid in self.members.values() {
            self.frame.post(Mail::Kill(tid.get()));
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
            .entries(self.members.values().map(|tid| tid.get()))
            .finish()
    }
}
