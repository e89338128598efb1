//! A lock around a value that readers share.

use std::{
    cell::{Cell, RefCell},
    fmt,
    ops::{Deref, DerefMut},
    rc::Rc,
};

use crate::{
    abi::Tid,
    trap::{Effect, Kind, TrapFrame},
    user::{os::Os, queue::Queue},
};

/// The number of permits: of readers that share the lock. A writer takes all of them.
pub(crate) const READERS: u32 = u32::MAX >> 3;

/// A value that either several tasks read or one task changes. First come, first served: a reader that
/// comes behind a waiting writer waits too, and readers that wait side by side share the lock.
///
/// A task that holds the lock for reading and asks for it again may wait for a writer that waits for that
/// task: a deadlock, which is reported.
///
/// The lock is poisoned as that of a [`Mutex`](super::Mutex), and only by a [`WriteGuard`]: a reader
/// changes nothing. (tokio's `RwLock`, with the poison of the standard library's.)
///
/// ```
/// # use trapline::{Kernel, Os, sync::RwLock};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let routes = RwLock::new(os, vec!["/"]).await;
///     routes.write(os).await.unwrap().push("/health");
///     let (one, two) = (routes.read(os).await.unwrap(), routes.read(os).await.unwrap());
///     assert_eq!((one.len(), two.len()), (2, 2));
/// })?;
/// # kernel.run()?.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RwLock<T> {
    inner: Rc<Locked<T>>,
}

struct Locked<T> {
    permits: Queue<()>,
    poisoned: Cell<bool>,
    /// `None` while a writer has it.
    value: RefCell<Option<Rc<T>>>,
    /// The tasks that hold it, the latest last. For reports and the search for cycles, this is the holder.
    holders: RefCell<Vec<Tid>>,
    drop: fn(&TrapFrame, Rc<T>),
}

/// A share of an [`RwLock`], which dereferences to its value. Dropping it releases the share.
///
/// For the kernel the task that took the share holds it. A task that receives it from another task calls
/// [`ReadGuard::adopt`]. Otherwise the kernel may report a cycle that does not exist.
pub struct ReadGuard<T> {
    // Dropped in this order: the lock may drop the value apart.
    value: Rc<T>,
    hold: Hold<T>,
}

/// The whole of an [`RwLock`], which dereferences to its value. Dropping it releases the lock.
///
/// For the kernel the task that took the lock holds it. A task that receives it from another task calls
/// [`WriteGuard::adopt`]. Otherwise the kernel may report a cycle that does not exist.
pub struct WriteGuard<T> {
    hold: Hold<T>,
    value: Option<Rc<T>>,
}

/// A writer was killed, panicked or was cut while it held the lock. The caller has its guard all the same:
/// a [`ReadGuard`] or a [`WriteGuard`].
#[derive(thiserror::Error)]
#[error(
    "the lock is poisoned: a task died or was cut by a timeout while it held the lock to write"
)]
pub struct PoisonedBy<G>(pub G);

/// What [`RwLock::read`] returns.
pub(crate) type Read<T> = Result<ReadGuard<T>, PoisonedBy<ReadGuard<T>>>;

/// What [`RwLock::write`] returns.
pub(crate) type Write<T> = Result<WriteGuard<T>, PoisonedBy<WriteGuard<T>>>;

/// Permits that a task has taken. Dropping it gives them back.
struct Hold<T> {
    inner: Rc<Locked<T>>,
    count: u64,
    holder: Tid,
}

impl<T: 'static> RwLock<T> {
    /// Makes a lock around a value. Never blocks.
    pub async fn new(os: &mut Os, value: T) -> Self {
        Self::maybe_named(os, None, value).await
    }

    /// Makes a lock with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, value: T) -> Self {
        Self::maybe_named(os, Some(name), value).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, value: T) -> Self {
        let permits = Queue::required_with(os, Kind::RwLock, name, READERS.into()).await;
        let inner = Rc::new(Locked {
            permits,
            poisoned: Cell::new(false),
            value: RefCell::new(Some(Rc::new(value))),
            holders: RefCell::default(),
            drop: TrapFrame::drop_iteratively,
        });
        Self { inner }
    }

    /// Takes a share of the lock. *Blocks* while a writer has it, or waits for it since before.
    ///
    /// *Errors:* [`PoisonedBy`], with the share, if the lock is poisoned.
    #[track_caller]
    pub fn read(&self, os: &mut Os) -> impl Future<Output = Read<T>> {
        os.note_caller();
        let count = u64::from(!os.leaves_out(Effect::Lock));
        async move {
            let hold = self.take(os, count).await;
            let value = self.inner.value.borrow().clone();
            let value = value.expect("no writer has it");
            self.checked(ReadGuard { value, hold })
        }
    }

    /// Takes the whole lock. *Blocks* while other tasks have any of it, or wait for it since before.
    ///
    /// *Errors:* [`PoisonedBy`], with the lock, if the lock is poisoned.
    #[track_caller]
    pub fn write(&self, os: &mut Os) -> impl Future<Output = Write<T>> {
        os.note_caller();
        let count = match os.leaves_out(Effect::Lock) {
            true => 0,
            false => READERS.into(),
        };
        async move {
            let hold = self.take(os, count).await;
            let value = self.inner.value.take();
            self.checked(WriteGuard { hold, value })
        }
    }

    /// Takes so many shares. With none, for a mutation, the caller only seems to have the lock.
    async fn take(&self, os: &mut Os, count: u64) -> Hold<T> {
        let permits = &self.inner.permits;
        permits.require_home(os, "the lock");
        let taken = permits.take_permits(os, count).await;
        taken.expect("only a raw trap closes the queue of a lock");
        permits.touch_beside(true);
        permits.touch_cycles();
        let holder = permits.frame().remote.running();
        if count > 0 {
            permits.set_held();
            self.inner.holders.borrow_mut().push(holder);
        }
        Hold {
            inner: Rc::clone(&self.inner),
            count,
            holder,
        }
    }

    fn checked<G>(&self, guard: G) -> Result<G, PoisonedBy<G>> {
        match self.inner.poisoned.get() {
            true => Err(PoisonedBy(guard)),
            false => Ok(guard),
        }
    }

    /// Returns the queue that counts the shares.
    pub(crate) fn permits(&self) -> &Queue<()> {
        &self.inner.permits
    }

    /// Clears the poison of the lock, after the caller has repaired the value.
    pub fn clear_poison(&self) {
        self.inner.permits.touch_beside(true);
        self.inner.poisoned.set(false);
    }
}

impl<T> Hold<T> {
    /// Makes the calling task the holder.
    fn adopt(&mut self, os: &Os) {
        let permits = &self.inner.permits;
        permits.require_home(os, "the lock");
        permits.touch_beside(true);
        permits.touch_cycles();
        if self.count > 0 {
            self.leave();
            self.holder = os.running();
            self.inner.holders.borrow_mut().push(self.holder);
            permits.set_held();
        }
    }

    /// Takes the holder from the list. Returns the latest of the others.
    fn leave(&self) -> Option<Tid> {
        let mut holders = self.inner.holders.borrow_mut();
        let place = holders.iter().rposition(|holder| *holder == self.holder);
        holders.remove(place.expect("it holds the lock"));
        holders.last().copied()
    }
}

impl<T> Drop for Hold<T> {
    fn drop(&mut self) {
        let permits = &self.inner.permits;
        permits.touch_beside(true);
        permits.touch_cycles();
        if self.count > 0 {
            permits.pass_to(self.leave().unwrap_or(Tid::KERNEL));
            permits.defer_give(self.count);
        }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.drop)(self.permits.frame(), value);
        }
    }
}

impl<T> Clone for RwLock<T> {
    fn clone(&self) -> Self {
        let inner = Rc::clone(&self.inner);
        Self { inner }
    }
}

impl<T: 'static> ReadGuard<T> {
    /// Makes the calling task the holder of the share, in reports and in the search for cycles. A task that
    /// receives a guard from another task calls this. Never blocks.
    pub fn adopt(&mut self, os: &Os) {
        self.hold.adopt(os);
    }
}

impl<T: 'static> WriteGuard<T> {
    /// Makes the calling task the holder of the lock, in reports and in the search for cycles. A task that
    /// receives a guard from another task calls this. Never blocks.
    ///
    /// ```
    /// # use trapline::{Kernel, Os, sync::RwLock};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let table = RwLock::new(os, 0).await;
    ///     let mut whole = table.write(os).await.unwrap();
    ///     let writer = os.spawn("writer", async move |os: &mut Os| {
    ///         whole.adopt(os);
    ///         os.yield_now().await;
    ///         *whole += 1;
    ///     }).await;
    ///     assert!(writer.is_ok());
    ///     assert_eq!(*table.read(os).await.unwrap(), 1);
    /// })?;
    /// # kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn adopt(&mut self, os: &Os) {
        self.hold.adopt(os);
    }
}

impl<T> Deref for ReadGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

const HAS_VALUE: &str = "a guard has the value until it is dropped";

impl<T> Deref for WriteGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect(HAS_VALUE)
    }
}

impl<T> DerefMut for WriteGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        let value = self.value.as_mut().expect(HAS_VALUE);
        Rc::get_mut(value).expect("no reader has a share")
    }
}

impl<T> Drop for WriteGuard<T> {
    fn drop(&mut self) {
        let inner = &*self.hold.inner;
        if let Some(value) = self.value.take() {
            inner.value.replace(Some(value));
        }
        if inner.permits.frame().killing.get() || std::thread::panicking() {
            inner.poisoned.set(true);
        }
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RwLock({:?})", self.inner.permits)
    }
}

impl<T> fmt::Debug for ReadGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadGuard({:?})", self.hold.inner.permits)
    }
}

impl<T> fmt::Debug for WriteGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteGuard({:?})", self.hold.inner.permits)
    }
}

impl<G: fmt::Debug> fmt::Debug for PoisonedBy<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoisonedBy({:?})", self.0)
    }
}
