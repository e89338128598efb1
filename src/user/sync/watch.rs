//! A value of which tasks want the latest.

use std::{cell::RefCell, fmt, rc::Rc};

use crate::{
    abi::QueueId,
    trap::{Effect, Kind, Object, TrapFrame},
    user::{os::Os, queue::Queue},
};

/// A value of which tasks want the latest, and no earlier one. Each handle sets it and looks at it; a clone
/// is a handle that has seen what the other has. (tokio's `watch`, whose two ends are one here: so it is
/// never closed.)
///
/// ```
/// # use trapline::{Errno, Kernel, Os, sync::Watch};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let level = Watch::new(os, 1).await;
///     let theirs = level.clone();
///     level.set(os, 2).await;
///     level.set(os, 3).await;
///     let worker = os.spawn("worker", async move |os: &mut Os| {
///         theirs.changed(os).await;
///         assert_eq!(theirs.get(), 3); // it has missed the 2
///         theirs.changed(os).await;
///         assert_eq!(theirs.get(), 4);
///     }).await?;
///     level.set(os, 4).await;
///     os.wait(worker).await.map(drop)
/// })?;
/// # kernel.run()?.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watch<T> {
    shared: Rc<Shared<T>>,
    /// The gate of the version that this handle has seen.
    seen: RefCell<Queue<()>>,
}

struct Shared<T> {
    /// `None` only while the value is dropped.
    value: RefCell<Option<T>>,
    /// The gate of the present version: closed when there is a later one.
    gate: RefCell<Queue<()>>,
    /// The first gate. A search finds the value beside that.
    first: QueueId,
    drop: fn(&TrapFrame, T),
}

impl<T: 'static> Watch<T> {
    /// Makes a handle to a value, which it has seen. Never blocks.
    pub async fn new(os: &mut Os, value: T) -> Self {
        Self::maybe_named(os, None, value).await
    }

    /// Makes one with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, value: T) -> Self {
        Self::maybe_named(os, Some(name), value).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, value: T) -> Self {
        let gate = Queue::required(os, Kind::Watch, name).await;
        let shared = Rc::new(Shared {
            value: RefCell::new(Some(value)),
            first: gate.id(),
            gate: RefCell::new(gate.clone()),
            drop: TrapFrame::drop_iteratively,
        });
        let seen = RefCell::new(gate);
        Self { shared, seen }
    }

    /// Sets the value, and wakes every task that waits for a change. Never blocks. A call that is cut has
    /// set the value and wakes all, or has no effect.
    #[track_caller]
    pub fn set(&self, os: &mut Os, value: T) -> impl Future<Output = ()> {
        let is_left_out = os.leaves_out(Effect::Set);
        async move {
            let gate = self.shared.gate.borrow().clone();
            gate.require_home(os, "the watch");
            if is_left_out {
                return os.nothing().await;
            }
            let next = gate.successor(os).await;
            // Another task may have set it meanwhile.
            self.shared.touch(true);
            let gate = self.shared.gate.replace(next);
            let _old = self.shared.value.replace(Some(value));
            let _closing = gate.closing();
            gate.close(os).await;
        }
    }

    /// Waits for a value that this handle has not seen, and has seen it then. *Blocks* until the value is
    /// set after the last [`Watch::get`] or `changed` of this handle.
    #[track_caller]
    pub fn changed(&self, os: &mut Os) -> impl Future<Output = ()> {
        os.note_caller();
        async {
            self.shared.touch(false);
            let seen = self.seen.borrow().clone();
            seen.require_home(os, "the watch");
            // Nothing is ever put: this returns when the gate is closed.
            let _ = seen.take(os).await;
            self.look();
        }
    }

    /// Marks the present version as seen.
    fn look(&self) {
        let gate = self.shared.gate.borrow();
        let is_new = gate.id() != self.seen.borrow().id();
        self.shared.touch(is_new);
        if is_new {
            self.seen.replace(gate.clone());
        }
    }

    /// Returns the queue that is closed when there is a value that this handle has not seen.
    pub(crate) fn seen(&self) -> Queue<()> {
        self.shared.touch(false);
        self.seen.borrow().clone()
    }
}

impl<T: Clone + 'static> Watch<T> {
    /// Returns the value. This handle has seen it then.
    #[must_use]
    pub fn get(&self) -> T {
        self.look();
        let value = self.shared.value.borrow();
        value.clone().expect("there is always a value")
    }
}

impl<T> Shared<T> {
    /// Notes for a search that the caller looks at the value, or changes what a task sees.
    fn touch(&self, writes: bool) {
        let object = Object::Beside(self.first);
        self.gate.borrow().frame().touch(object, writes);
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.drop)(self.gate.borrow().frame(), value);
        }
    }
}

impl<T> Clone for Watch<T> {
    fn clone(&self) -> Self {
        self.shared.touch(false);
        Self {
            shared: Rc::clone(&self.shared),
            seen: self.seen.clone(),
        }
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({:?})", self.seen.borrow())
    }
}
