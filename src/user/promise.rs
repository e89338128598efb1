//! Promises: values that are set once, by a task or from any thread, and that any number of tasks
//! wait for.
//!
//! A promise is a message queue in which nothing is ever put: that it is decided shows in the
//! queue's being closed.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{os::Os, program::IntoExit, queue::Queue};
use crate::{
    abi::{Errno, QueueId, SystemCall, Tid},
    interrupt::{Expected, Outside, Remote},
    trap::TrapFrame,
};

/// The promise was set before. Hands the value back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the promise is set already")]
pub struct AlreadySet<T>(pub T);

impl<T> fmt::Debug for AlreadySet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AlreadySet(..)")
    }
}

/// Nobody is left who could set the promise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[error("nobody is left who could set the promise")]
pub struct Abandoned;

/// The end of a promise that is waited at; clones are ends of the same promise. (The `Future` of
/// asyncio.)
///
/// ```
/// # use trapline::{Abandoned, Kernel, Os, Promise};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let (setter, promise) = Promise::new(os).await;
///     os.spawn("setter", async move |os| {
///         let _ = setter.set(os, 42).await;
///     }).await.unwrap();
///     assert_eq!(promise.wait(os).await, Ok(42));
///     assert_eq!(promise.get(), Some(42));
/// })?;
/// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Promise<T> {
    slot: Arc<Slot<T>>,
    decided: Queue<()>,
    line: Rc<Line>,
}

/// The callbacks of a promise that have not begun.
#[derive(Default)]
struct Line {
    last: Cell<u64>,
    /// By order of adding. One whose turn came before that of an earlier one waits at a gate.
    left: RefCell<BTreeMap<u64, Option<Queue<()>>>>,
}

/// A callback's place in the line. When it leaves, because it begins or because it is killed, the
/// next one may begin.
struct Place {
    line: Rc<Line>,
    number: u64,
}

impl Place {
    fn new(line: &Rc<Line>) -> Self {
        let number = line.last.get() + 1;
        line.last.set(number);
        line.left.borrow_mut().insert(number, None);
        Self {
            line: Rc::clone(line),
            number,
        }
    }

    fn is_first(&self) -> bool {
        let left = self.line.left.borrow();
        let first = left.first_key_value();
        first.is_some_and(|(number, _)| *number == self.number)
    }

    /// Waits until those before it have begun. A policy may have preferred this one.
    async fn wait(&self, os: &mut Os) {
        if self.is_first() {
            return;
        }
        let gate = Queue::required(os, u64::MAX, "callback").await;
        if !self.is_first() {
            let mine = Some(gate.clone());
            self.line.left.borrow_mut().insert(self.number, mine);
            let _ = gate.get(os).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut left = self.line.left.borrow_mut();
        left.remove(&self.number);
        if let Some((_, Some(gate))) = left.first_key_value() {
            gate.post(());
        }
    }
}

/// The end of a promise where it is set; clones are ends of the same promise.
pub struct Setter<T> {
    slot: Arc<Slot<T>>,
    hope: Arc<Hope>,
    frame: Rc<TrapFrame>,
}

/// A [`Setter`] for other threads. While one lives, the kernel counts on it: it waits rather than
/// report a deadlock, unless a daemon has made it. One that is leaked is waited for without end. The
/// kernel warns of that after 10 seconds, and [`Builder::max_stall`](crate::Builder::max_stall) ends
/// the wait.
pub struct RemoteSetter<T> {
    slot: Arc<Slot<T>>,
    // In this order: the kernel must not stop counting on us before the bell has rung.
    hope: Arc<Hope>,
    expected: Expected,
}

/// What the two ends share.
struct Slot<T> {
    /// Once it is set.
    value: Mutex<Option<T>>,
    /// How it is dropped.
    drop: fn(&TrapFrame, T),
}

impl<T> Slot<T> {
    /// Sets the value, unless it is set: then it hands the new one back. Whoever is refused can
    /// count on the value's being there.
    fn set(&self, value: T) -> Option<T> {
        let mut slot = self.lock();
        if slot.is_some() {
            return Some(value);
        }
        *slot = Some(value);
        None
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the value with the last end, if that is one of a task.
    fn leave(self: &mut Arc<Self>, frame: &TrapFrame) {
        if let Some(slot) = Arc::get_mut(self)
            && let Some(value) = slot.lock().take()
        {
            (slot.drop)(frame, value);
        }
    }
}

/// That somebody may yet set the promise. When nobody may, the promise is decided.
struct Hope {
    remote: Remote,
    decided: QueueId,
}

impl Drop for Hope {
    fn drop(&mut self) {
        self.remote.ring(self.decided);
    }
}

impl<T: Clone + 'static> Promise<T> {
    /// Makes a promise and answers its two ends. Never blocks. Faults the caller where the kernel has
    /// as many queues as it may.
    pub async fn new(os: &mut Os) -> (Setter<T>, Self) {
        let decided = Queue::required(os, u64::MAX, "promise").await;
        let slot = Arc::new(Slot {
            value: Mutex::new(None),
            drop: TrapFrame::drop_flat,
        });
        let frame = Rc::clone(os.frame());
        let hope = Arc::new(Hope {
            remote: frame.remote.clone(),
            decided: decided.id(),
        });
        (
            Setter {
                slot: Arc::clone(&slot),
                hope,
                frame,
            },
            Self {
                slot,
                decided,
                line: Rc::default(),
            },
        )
    }

    /// Waits for the value. *Blocks* until it is set, or cannot be set any more. Faults the caller in
    /// another kernel than the promise's own.
    ///
    /// *Errors:* [`Abandoned`], if every setter is gone and none has set it.
    pub async fn wait(&self, os: &mut Os) -> Result<T, Abandoned> {
        self.decided.require_home(os, "the promise");
        // Nothing is ever put: this comes back when the queue is closed.
        let _ = self.decided.get(os).await;
        self.get().ok_or(Abandoned)
    }

    /// The value, if it is set.
    #[must_use]
    pub fn get(&self) -> Option<T> {
        // Not before the kernel knows: until then a thread may be about to set it.
        if !self.decided.is_closed() {
            return None;
        }
        self.slot.lock().clone()
    }

    /// Runs `callback` with what [`Promise::wait`] answers, as a task of its own whose number this
    /// answers. Callbacks begin in the order in which they were added, under every policy: each when
    /// the one before it has come to its first trap. To kill one takes it out of the line. Never
    /// blocks.
    ///
    /// *Errors:* [`Errno::TooManyTasks`].
    pub async fn on_done<R: IntoExit>(
        &self,
        os: &mut Os,
        callback: impl AsyncFnOnce(&mut Os, Result<T, Abandoned>) -> R + 'static,
    ) -> Result<Tid, Errno> {
        self.decided.require_home(os, "the promise");
        let promise = self.clone();
        let place = Place::new(&self.line);
        os.spawn_detached("on_done", async move |os: &mut Os| {
            let value = promise.wait(os).await;
            place.wait(os).await;
            drop(place);
            callback(os, value).await
        })
        .await
    }
}

impl<T: 'static> Setter<T> {
    /// Sets the value, once for all setters. Never blocks.
    ///
    /// *Errors:* [`AlreadySet`], with the value.
    pub async fn set(&self, os: &mut Os, value: T) -> Result<(), AlreadySet<T>> {
        let refused = Cell::new(None);
        let decide = |frame: &TrapFrame| {
            refused.set(self.slot.set(value));
            if std::ptr::eq(frame, &*self.frame) {
                return SystemCall::CloseQueue(self.hope.decided);
            }
            self.hope.remote.ring(self.hope.decided);
            SystemCall::Yield
        };
        os.call(decide, |_, _| ()).await;
        refused
            .take()
            .map_or(Ok(()), |value| Err(AlreadySet(value)))
    }
}

impl<T: Send> Setter<T> {
    /// A setter for other threads.
    #[must_use]
    pub fn remote(&self) -> RemoteSetter<T> {
        RemoteSetter {
            slot: Arc::clone(&self.slot),
            hope: Arc::clone(&self.hope),
            expected: Expected::new(&self.hope.remote, Outside::Setter),
        }
    }
}

impl<T: Send> RemoteSetter<T> {
    /// Sets the value from whatever thread this is, and wakes the kernel.
    ///
    /// *Errors:* [`AlreadySet`], with the value.
    pub fn set(&self, value: T) -> Result<(), AlreadySet<T>> {
        if let Some(value) = self.slot.set(value) {
            return Err(AlreadySet(value));
        }
        self.hope.remote.ring(self.hope.decided);
        Ok(())
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.slot.leave(self.decided.frame());
    }
}

impl<T> Drop for Setter<T> {
    fn drop(&mut self) {
        self.slot.leave(&self.frame);
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self {
            slot: Arc::clone(&self.slot),
            decided: self.decided.clone(),
            line: Rc::clone(&self.line),
        }
    }
}

impl<T> Clone for Setter<T> {
    fn clone(&self) -> Self {
        let (slot, hope) = (Arc::clone(&self.slot), Arc::clone(&self.hope));
        Self {
            slot,
            hope,
            frame: Rc::clone(&self.frame),
        }
    }
}

impl<T> Clone for RemoteSetter<T> {
    fn clone(&self) -> Self {
        let (slot, hope) = (Arc::clone(&self.slot), Arc::clone(&self.hope));
        Self {
            slot,
            hope,
            expected: self.expected.clone(),
        }
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Promise({:?})", self.decided)
    }
}

impl<T> fmt::Debug for Setter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Setter({})", self.hope.decided)
    }
}

impl<T> fmt::Debug for RemoteSetter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSetter({})", self.hope.decided)
    }
}
