//! A condition variable.

use std::time::Duration;

use super::mutex::{Guard, Mutex, Poisoned};
use crate::{
    trap::{Caller, Effect, Kind},
    user::{os::Os, queue::Queue, time::Elapsed},
};

/// The lock after a wait for a limited time, and whether the signal came in that time.
type Waited<T> = Result<(Guard<T>, Result<(), Elapsed>), Poisoned<T>>;

/// A condition variable: tasks wait for a change of what a [`Mutex`](super::Mutex) protects.
///
/// A signal goes to a waiting task. If that task is killed or cut by a timeout before it has the
/// lock again, the signal goes to the next waiting task. Without one it is dropped.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The tasks that wait are its getters. A close wakes all of them, and the queue stays open.
    signals: Queue<()>,
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
        Self {
            signals: Queue::required(os, Kind::Condition, name).await,
        }
    }

    /// Returns the signals. Faults a caller of another kernel.
    fn signals_in(&self, os: &Os) -> &Queue<()> {
        self.signals.require_home(os, "the condition");
        &self.signals
    }

    /// Releases the lock, waits for a signal, and takes the lock again. *Blocks* until it has the
    /// lock. The caller must check its condition again: another task may have run first. A kill or a
    /// timeout that cuts the wait poisons nothing. [`Condition::wait_for`] takes the lock after a
    /// limited time.
    ///
    /// *Errors:* as [`Mutex::lock`](super::Mutex::lock).
    #[track_caller]
    pub fn wait<T: 'static>(
        &self,
        os: &mut Os,
        mut guard: Guard<T>,
    ) -> impl Future<Output = Result<Guard<T>, Poisoned<T>>> {
        let place = os.note_caller();
        let is_left_out = os.leaves_out(Effect::Wait);
        async move {
            let (mutex, signals) = self.release(os, &mut guard);
            if is_left_out {
                drop(guard);
                os.nothing().await;
                return lock_again(os, place, &mutex, None).await;
            }
            if os.frame().may_wait_to_print() {
                // Otherwise a signal could come between the release of the lock and the wait.
                os.yield_now().await;
            }
            drop_stale(os, signals).await;
            // The lock is released at the next trap, which is the one that waits.
            drop(guard);
            os.frame().set_place(place);
            let signal = signals.take(os).await.map(|()| Signal(signals));
            lock_again(os, place, &mutex, signal.ok()).await
        }
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
    /// *Errors:* as [`Mutex::lock`](super::Mutex::lock).
    #[track_caller]
    pub fn wait_for<T: 'static>(
        &self,
        os: &mut Os,
        mut guard: Guard<T>,
        span: Duration,
    ) -> impl Future<Output = Waited<T>> {
        let place = os.note_caller();
        let span = match os.leaves_out(Effect::Timeout) {
            true => Duration::MAX,
            false => span,
        };
        async move {
            let (mutex, signals) = self.release(os, &mut guard);
            let signal = os.timeout(span, async |os: &mut Os| {
                drop_stale(os, signals).await;
                // As above. After the timeout is armed, because arming is a trap too.
                drop(guard);
                os.frame().set_place(place);
                signals.take(os).await
            });
            let (signal, signalled) = match signal.await {
                Ok(signal) => (signal.ok().map(|()| Signal(signals)), Ok(())),
                Err(elapsed) => (None, Err(elapsed)),
            };
            let locked = lock_again(os, place, &mutex, signal).await;
            locked.map(|guard| (guard, signalled))
        }
    }

    fn release<T: 'static>(&self, os: &Os, guard: &mut Guard<T>) -> (Mutex<T>, &Queue<()>) {
        let signals = self.signals_in(os);
        guard.released = true;
        (guard.mutex(), signals)
    }

    /// Wakes the task that has waited longest. Returns whether there was one. Never blocks.
    #[track_caller]
    pub fn notify_one(&self, os: &mut Os) -> impl Future<Output = bool> {
        let is_left_out = os.leaves_out(Effect::Notify);
        async move {
            let signals = self.signals_in(os);
            if is_left_out {
                os.nothing().await;
                return false;
            }
            signals.try_put(os, ()).await.is_ok()
        }
    }

    /// Wakes every task that waits, even if a timeout cuts the call. Never blocks.
    #[track_caller]
    pub fn notify_all(&self, os: &mut Os) -> impl Future<Output = ()> {
        let is_left_out = os.leaves_out(Effect::Notify);
        async move {
            let signals = self.signals_in(os);
            if is_left_out {
                return os.nothing().await;
            }
            let _closing = signals.closing();
            signals.close(os).await;
        }
    }
}

/// Drops signals whose tasks were killed or cut before their turn, while no other task waited. Returns
/// in the turn in which it finds none.
async fn drop_stale(os: &mut Os, signals: &Queue<()>) {
    while !signals.is_empty() {
        let _ = signals.try_get(os).await;
    }
}

/// Takes the lock again after a wait. Until then the signal is on its way.
async fn lock_again<T: 'static>(
    os: &mut Os,
    place: Caller,
    mutex: &Mutex<T>,
    signal: Option<Signal<'_>>,
) -> Result<Guard<T>, Poisoned<T>> {
    os.frame().set_place(place);
    let locked = mutex.lock_noted(os, true).await;
    // The signal has arrived.
    std::mem::forget(signal);
    locked
}

/// A signal on its way. If its task is killed or cut before it has the lock again, the drop passes the
/// signal to the next waiting task.
struct Signal<'a>(&'a Queue<()>);

impl Drop for Signal<'_> {
    fn drop(&mut self) {
        self.0.defer_put(());
    }
}
