//! A lock around a value, which a crash poisons.

use std::{
    cell::Cell,
    fmt,
    ops::{Deref, DerefMut},
    rc::Rc,
};

use crate::{
    trap::{Effect, Kind, TrapFrame},
    user::{os::Os, queue::Queue},
};

/// A value that one task uses at a time.
///
/// A task that is killed or panics while it holds the lock may leave the value half changed. This
/// poisons the lock: [`Mutex::lock`] fails with [`Poisoned`] until a task calls
/// [`Mutex::clear_poison`]. (As in the standard library's `Mutex`.)
///
/// A lock is poisoned when a kill, a fault or the cut of a [timeout](Os::timeout) drops its
/// [`Guard`], even within a message. A task that returns or calls [`Os::exit`] poisons none, because
/// it chooses the moment. Nor does the cut of a wait for the lock or a
/// [`Condition`](super::Condition), or a cut while the guard lives outside the body.
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
    pub(super) released: bool,
    /// Whether the task has the lock: a mutation may have left that out.
    is_locked: bool,
}

/// A task was killed, panicked or was cut by a timeout while it held the lock. The caller holds the
/// lock all the same.
#[derive(thiserror::Error)]
#[error("the lock is poisoned: a task died or was cut by a timeout while it held the lock")]
pub struct Poisoned<T>(pub Guard<T>);

impl<T: 'static> Mutex<T> {
    /// Makes a mutex around a value. Never blocks.
    pub async fn new(os: &mut Os, value: T) -> Self {
        Self::around(Queue::required(os, Kind::Mutex, None).await, value)
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
        Self::around(Queue::required(os, Kind::Mutex, Some(name)).await, value)
    }

    /// Returns a mutex whose lock is the message of this queue.
    fn around(token: Queue<()>, value: T) -> Self {
        token.store_token();
        let inner = Rc::new(Locked {
            token,
            poisoned: Cell::new(false),
            value: Cell::new(Some(Box::new(value))),
            drop: TrapFrame::drop_box_iteratively,
        });
        Self { inner }
    }

    /// Takes the lock. *Blocks* while another task has it. First come, first served.
    ///
    /// *Errors:* [`Poisoned`], with the lock, if the lock is poisoned.
    #[track_caller]
    pub fn lock(&self, os: &mut Os) -> impl Future<Output = Result<Guard<T>, Poisoned<T>>> {
        os.note_caller();
        let is_locked = !os.leaves_out(Effect::Lock);
        self.lock_noted(os, is_locked)
    }

    /// For a caller that has noted its own caller.
    pub(super) async fn lock_noted(
        &self,
        os: &mut Os,
        is_locked: bool,
    ) -> Result<Guard<T>, Poisoned<T>> {
        let Locked { token, value, .. } = &*self.inner;
        token.require_home(os, "the mutex");
        if is_locked {
            let taken = token.take(os).await;
            taken.expect("only a raw trap closes the queue of a mutex");
            token.set_held();
        } else {
            os.nothing().await;
        }
        let guard = Guard {
            inner: Rc::clone(&self.inner),
            value: value.take(),
            released: false,
            is_locked,
        };
        token.touch_beside(os.frame().mutated.breaks_locks());
        match self.inner.poisoned.get() {
            true => Err(Poisoned(guard)),
            false => Ok(guard),
        }
    }

    /// Returns the queue of the lock.
    pub(crate) fn token(&self) -> &Queue<()> {
        &self.inner.token
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
        let inner = Rc::clone(&self.inner);
        Self { inner }
    }
}

impl<T: 'static> Guard<T> {
    /// Returns the mutex of this lock.
    #[must_use]
    pub fn mutex(&self) -> Mutex<T> {
        let inner = Rc::clone(&self.inner);
        Mutex { inner }
    }

    /// Makes the calling task the holder of the lock, in reports and in the search for cycles. A
    /// task that receives a guard from another task calls this. Never blocks.
    pub fn adopt(&mut self, os: &Os) {
        self.inner.token.require_home(os, "the mutex");
        self.inner.token.touch_unless_held();
        self.inner.token.set_held();
    }
}

const HAS_VALUE: &str = "a guard has the value until it is dropped";

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect(HAS_VALUE)
    }
}

impl<T> DerefMut for Guard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect(HAS_VALUE)
    }
}

impl<T> Guard<T> {
    /// Ends the use of a value by a task that was not alone with it.
    #[cold]
    fn leave(&mut self) {
        let Locked { token, value, .. } = &*self.inner;
        if let Some(mine) = self.value.take() {
            value.set(Some(mine));
        }
        if self.is_locked {
            token.set_free();
            token.defer_put(());
        }
    }
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        let token = &self.inner.token;
        if token.frame().mutated.breaks_locks() {
            token.touch_beside(true);
            if !self.is_locked || self.value.is_none() {
                return self.leave();
            }
        }
        self.inner.value.set(self.value.take());
        let is_cut = token.frame().killing.get() || std::thread::panicking();
        if is_cut && !self.released {
            token.touch_beside(true);
            self.inner.poisoned.set(true);
        }
        token.touch_unless_held();
        token.set_free();
        token.defer_put(());
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
