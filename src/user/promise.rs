//! Promises: values that are set once, by a task or from any thread, and that any number of tasks
//! wait for.
//!
//! A promise contains a message queue in which nothing is ever put. Closing the queue decides the
//! promise.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{os::Os, program::IntoExit, queue::Queue};
use crate::{
    abi::{Errno, QueueId, SystemCall, Tid},
    interrupt::{External, ExternalWork, Remote},
    panic::lock,
    trap::{Caller, Effect, Kind, Object, TrapFrame},
};

/// The promise was set before: the value is returned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the promise is set already")]
pub struct AlreadySet<T>(pub T);

impl<T> fmt::Debug for AlreadySet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AlreadySet(..)")
    }
}

/// Every setter was dropped before the promise was set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[error("every setter was dropped before the promise was set")]
pub struct Abandoned;

/// The end of a promise at which tasks wait. Clones are ends of the same promise. (The `Future` of
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
    callbacks: Rc<Callbacks>,
}

/// The callbacks of a promise that have not begun, by their numbers in the order in which they were
/// added. A callback that runs before an earlier one waits at a gate.
type Callbacks = RefCell<BTreeMap<u64, Option<Queue<()>>>>;

/// A callback's position, until it begins or is killed. Then the next callback may begin.
struct Ticket {
    callbacks: Rc<Callbacks>,
    number: u64,
    /// A search finds the callbacks beside this queue of the promise.
    decided: Queue<()>,
}

impl Ticket {
    fn new(callbacks: &Rc<Callbacks>, decided: &Queue<()>) -> Self {
        decided.touch_beside(true);
        let last = callbacks.borrow().keys().next_back().copied();
        let number = last.map_or(0, |last| last + 1);
        callbacks.borrow_mut().insert(number, None);
        Self {
            callbacks: Rc::clone(callbacks),
            number,
            decided: decided.clone(),
        }
    }

    fn is_first(&self) -> bool {
        self.decided.touch_beside(true);
        self.callbacks.borrow().keys().next() == Some(&self.number)
    }

    /// Waits until the earlier callbacks have begun. A policy may run this one first.
    async fn wait(&self, os: &mut Os, place: Caller) {
        if self.is_first() {
            return;
        }
        let gate = Queue::required(os, Kind::Callback, None).await;
        if !self.is_first() {
            let mine = Some(gate.clone());
            self.callbacks.borrow_mut().insert(self.number, mine);
            os.frame().set_place(place);
            let _ = gate.take(os).await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.decided.touch_beside(true);
        let mut callbacks = self.callbacks.borrow_mut();
        callbacks.remove(&self.number);
        if let Some((_, Some(gate))) = callbacks.first_key_value() {
            gate.defer_put(());
        }
    }
}

/// The end of a promise that sets it. Clones are ends of the same promise.
pub struct Setter<T> {
    slot: Arc<Slot<T>>,
    setters: Arc<CloseOnDrop>,
    frame: Rc<TrapFrame>,
}

/// A [`Setter`] for other threads.
///
/// While one exists, the kernel waits for it and reports no deadlock, unless a daemon has made it.
/// For a leaked one, as by [`std::mem::forget`], it waits for ever. If nothing else is left to wait
/// for, it warns after 10 seconds: of the tasks, their promises and the number of remote setters.
/// [`Builder::max_stall`](crate::Builder::max_stall) limits the wait.
pub struct RemoteSetter<T> {
    slot: Arc<Slot<T>>,
    // Dropped in this order: the queue must be closed before the kernel stops waiting.
    setters: Arc<CloseOnDrop>,
    external: ExternalWork,
}

struct Slot<T> {
    value: Mutex<Option<T>>,
    drop: fn(&TrapFrame, T),
}

impl<T> Slot<T> {
    fn set(&self, value: T) -> Result<(), AlreadySet<T>> {
        let mut slot = lock(&self.value);
        if slot.is_some() {
            return Err(AlreadySet(value));
        }
        *slot = Some(value);
        Ok(())
    }

    /// Drops the value if this is the last end, and a task drops it.
    fn release(self: &mut Arc<Self>, frame: &TrapFrame) {
        if let Some(slot) = Arc::get_mut(self)
            && let Some(value) = lock(&slot.value).take()
        {
            (slot.drop)(frame, value);
        }
    }
}

/// Shared by all setters. Dropping the last one closes the queue, which decides the promise.
struct CloseOnDrop {
    remote: Remote,
    decided: QueueId,
    /// Whether the queue is closed already, or will be by what was asked of the kernel.
    is_closed: AtomicBool,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut() {
            self.remote.ring(self.decided);
        }
    }
}

impl<T: Clone + 'static> Promise<T> {
    /// Makes a promise, and returns its two ends. Never blocks. Faults the caller at the limit of
    /// queues.
    pub async fn new(os: &mut Os) -> (Setter<T>, Self) {
        Self::maybe_named(os, None).await
    }

    /// Makes a promise with a name, which reports and traces show beside its number. Otherwise like
    /// [`Promise::new`].
    pub async fn named(os: &mut Os, name: &str) -> (Setter<T>, Self) {
        Self::maybe_named(os, Some(name)).await
    }

    /// Returns the queue that is closed once the promise is decided.
    pub(crate) fn decided(&self) -> &Queue<()> {
        &self.decided
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>) -> (Setter<T>, Self) {
        let decided = Queue::required(os, Kind::Promise, name).await;
        let slot = Arc::new(Slot {
            value: Mutex::new(None),
            drop: TrapFrame::drop_iteratively,
        });
        let frame = Rc::clone(os.frame());
        let setters = Arc::new(CloseOnDrop {
            remote: frame.remote.clone(),
            decided: decided.id(),
            is_closed: AtomicBool::new(false),
        });
        let setter = Setter {
            slot: Arc::clone(&slot),
            setters,
            frame,
        };
        let promise = Self {
            slot,
            decided,
            callbacks: Rc::default(),
        };
        (setter, promise)
    }

    /// Waits for the value. *Blocks* until it is set or every setter is dropped. Faults the caller
    /// in a kernel other than the promise's own.
    ///
    /// *Errors:* [`Abandoned`] if every setter was dropped before the value was set.
    #[track_caller]
    pub fn wait(&self, os: &mut Os) -> impl Future<Output = Result<T, Abandoned>> {
        os.note_caller();
        self.wait_noted(os)
    }

    /// For a caller that has noted its own caller.
    async fn wait_noted(&self, os: &mut Os) -> Result<T, Abandoned> {
        self.decided.require_home(os, "the promise");
        // Nothing is ever put: this returns when the queue is closed.
        let _ = self.decided.take(os).await;
        self.get().ok_or(Abandoned)
    }

    /// Returns the value, if it is set.
    #[must_use]
    pub fn get(&self) -> Option<T> {
        // Only after the kernel has closed the queue: before, a thread may be setting the value.
        if !self.decided.is_closed() {
            return None;
        }
        lock(&self.slot.value).clone()
    }

    /// Runs `callback` with the result of [`Promise::wait`], as a new task, and returns its number.
    /// Callbacks begin in the order in which they were added, under every policy. Each begins after
    /// the first trap of the one before. A killed callback is skipped. Never blocks.
    ///
    /// *Errors:* [`Errno::TooManyTasks`].
    #[track_caller]
    pub fn on_done<R: IntoExit>(
        &self,
        os: &mut Os,
        callback: impl AsyncFnOnce(&mut Os, Result<T, Abandoned>) -> R + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let place = os.note_caller();
        async move {
            self.decided.require_home(os, "the promise");
            let promise = self.clone();
            let ticket = Ticket::new(&self.callbacks, &self.decided);
            let program = async move |os: &mut Os| {
                os.frame().set_place(place);
                let value = promise.wait_noted(os).await;
                ticket.wait(os, place).await;
                drop(ticket);
                callback(os, value).await
            };
            os.new_task(SystemCall::NewDetachedTask, "on_done", program, None)
                .await
        }
    }
}

impl<T: 'static> Setter<T> {
    /// Sets the value, once for all setters. Never blocks. The value stays set if a timeout cuts the
    /// call.
    ///
    /// *Errors:* [`AlreadySet`], with the value.
    #[track_caller]
    pub fn set(&self, os: &mut Os, value: T) -> impl Future<Output = Result<(), AlreadySet<T>>> {
        let is_left_out = os.leaves_out(Effect::Set);
        async move {
            if is_left_out {
                os.nothing().await;
                return Ok(());
            }
            let result = Cell::new(Ok(()));
            let mut deciding = Deciding {
                frame: &self.frame,
                decided: Cell::new(None),
            };
            let decide = |frame: &TrapFrame| {
                result.set(self.slot.set(value));
                self.setters.is_closed.store(true, Ordering::Relaxed);
                if std::ptr::eq(frame, &*self.frame) {
                    deciding.decided.set(Some(self.setters.decided));
                    return SystemCall::CloseQueue(self.setters.decided);
                }
                self.setters.remote.ring(self.setters.decided);
                SystemCall::Yield
            };
            os.call(decide, |_, _| ()).await;
            *deciding.decided.get_mut() = None;
            result.into_inner()
        }
    }
}

/// The call of a setter that has set the value. If it is cut, the waiting tasks wake without it.
struct Deciding<'a> {
    frame: &'a TrapFrame,
    decided: Cell<Option<QueueId>>,
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        if let Some(decided) = self.decided.take() {
            self.frame.defer(SystemCall::CloseQueue(decided));
        }
    }
}

impl<T: Send> Setter<T> {
    /// Returns a setter for other threads.
    #[must_use]
    pub fn remote(&self) -> RemoteSetter<T> {
        RemoteSetter {
            slot: Arc::clone(&self.slot),
            setters: Arc::clone(&self.setters),
            external: ExternalWork::new(&self.setters.remote, External::Setter),
        }
    }
}

impl<T: Send> RemoteSetter<T> {
    /// Sets the value from any thread, and wakes the kernel.
    ///
    /// *Errors:* [`AlreadySet`], with the value.
    pub fn set(&self, value: T) -> Result<(), AlreadySet<T>> {
        self.slot.set(value)?;
        self.setters.is_closed.store(true, Ordering::Relaxed);
        self.setters.remote.ring(self.setters.decided);
        Ok(())
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.slot.release(self.decided.frame());
    }
}

impl<T> Drop for Setter<T> {
    fn drop(&mut self) {
        let decided = self.setters.decided;
        let left = Arc::strong_count(&self.setters) - 1;
        self.frame.note_drop(Object::Beside(decided), left);
        let last = Arc::get_mut(&mut self.setters);
        if last.is_some_and(|last| !std::mem::replace(last.is_closed.get_mut(), true)) {
            self.frame.defer(SystemCall::CloseQueue(decided));
        }
        self.slot.release(&self.frame);
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self {
            slot: Arc::clone(&self.slot),
            decided: self.decided.clone(),
            callbacks: Rc::clone(&self.callbacks),
        }
    }
}

impl<T> Clone for Setter<T> {
    fn clone(&self) -> Self {
        let object = Object::Beside(self.setters.decided);
        let before = Arc::strong_count(&self.setters);
        self.frame.note_clone(object, before);
        Self {
            slot: Arc::clone(&self.slot),
            setters: Arc::clone(&self.setters),
            frame: Rc::clone(&self.frame),
        }
    }
}

impl<T> Clone for RemoteSetter<T> {
    fn clone(&self) -> Self {
        Self {
            slot: Arc::clone(&self.slot),
            setters: Arc::clone(&self.setters),
            external: self.external.clone(),
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
        write!(f, "Setter({})", self.setters.decided)
    }
}

impl<T> fmt::Debug for RemoteSetter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSetter({})", self.setters.decided)
    }
}
