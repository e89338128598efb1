//! The turn under way, for other threads: a thread that watches over a search names the task that
//! does not come to a trap.
//!
//! A turn publishes two words. The names of tasks and the places of calls are published when they are
//! new.

use std::{
    panic::Location,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustc_hash::FxHashMap;

use super::Kernel;
use crate::{
    abi::{Place, SystemCall, Tid},
    interrupt::Remote,
    sched::Runnable,
    trap::Caller,
};

/// A view of the turn under way, for any thread, of
/// [`Kernel::current_turn`](crate::Kernel::current_turn).
#[derive(Clone, Debug)]
pub struct CurrentTurn(Arc<Shared>);

/// A turn, as [`CurrentTurn::task`] finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskTurn {
    /// The task.
    pub tid: Tid,
    /// Its name; empty for a daemon.
    pub name: String,
    /// The name of its last call, which may be under way; `None` before its first.
    pub call: Option<&'static str>,
    /// The place of its last call that notes its place, or of its spawn. Calls that never block,
    /// such as `yield_now`, note none.
    pub place: Option<Place>,
}

#[derive(Debug)]
struct Shared {
    /// Knows which task runs. A kernel that is made anew may have another.
    remote: Mutex<Remote>,
    /// The turns so far.
    number: AtomicU64,
    /// The last call of the task of this turn.
    last: AtomicU64,
    /// The names of the tasks that the kernel keeps, without daemons.
    names: Mutex<FxHashMap<Tid, String>>,
    /// All places so far.
    places: Mutex<Vec<&'static Location<'static>>>,
}

/// What the kernel keeps to publish its turns.
#[derive(Debug)]
pub(super) struct Published {
    turn: CurrentTurn,
    turns: u64,
    /// The last call of each task and its place, by its slot. A word: the number of the place above, that
    /// of the call below. Both count from 1; 0 is none.
    calls: Vec<u64>,
    /// The number of each place, by its address.
    known: FxHashMap<usize, u64>,
}

const CALL: u64 = 0xff;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CurrentTurn {
    /// Returns the number of turns since the kernel was built. While it stays the same, the same turn
    /// is under way, or none.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number.load(Ordering::Relaxed)
    }

    /// Returns the task whose turn is under way; `None` between turns. Only a turn that lasts has a
    /// call and a place that are certain to be its own.
    #[must_use]
    pub fn task(&self) -> Option<TaskTurn> {
        let tid = lock(&self.0.remote).running();
        if tid == Tid::KERNEL {
            return None;
        }
        let last = self.0.last.load(Ordering::Relaxed);
        let call = (last as u8)
            .checked_sub(1)
            .and_then(SystemCall::from_number);
        let place = (last as usize >> 8).checked_sub(1);
        let place = place.and_then(|at| lock(&self.0.places).get(at).copied());
        Some(TaskTurn {
            tid,
            name: lock(&self.0.names).get(&tid).cloned().unwrap_or_default(),
            call: call.map(SystemCall::name),
            place: place.map(Place::from),
        })
    }

    /// Returns whether both are views of the same kernel.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Published {
    fn new(remote: Remote) -> Self {
        let shared = Shared {
            remote: Mutex::new(remote),
            number: AtomicU64::new(0),
            last: AtomicU64::new(0),
            names: Mutex::default(),
            places: Mutex::default(),
        };
        Self {
            turn: CurrentTurn(Arc::new(shared)),
            turns: 0,
            calls: Vec::new(),
            known: FxHashMap::default(),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn spawned(&mut self, task: Runnable, name: &str, at: Option<Caller>) {
        *self.last(task) = at.map_or(0, |at| self.place(at));
        if !task.tid.is_daemon() {
            lock(&self.turn.0.names).insert(task.tid, name.to_string());
        }
    }

    /// Forgets the name of a task that the kernel no longer keeps.
    pub(super) fn reaped(&self, tid: Tid) {
        lock(&self.turn.0.names).remove(&tid);
    }

    pub(super) fn reset(&self) {
        lock(&self.turn.0.names).clear();
    }

    /// Notes and publishes the last call of a task, which has the turn. A call without a place leaves
    /// that of the call before.
    #[inline]
    pub(super) fn called(&mut self, task: Runnable, call: SystemCall, at: Option<Caller>) {
        let place = at.map(|at| self.place(at));
        let last = self.last(task);
        *last = place.unwrap_or(*last & !CALL) | u64::from(call.number() + 1);
        let last = *last;
        self.turn.0.last.store(last, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn resumed(&mut self, task: Runnable) {
        self.turns += 1;
        let last = *self.last(task);
        let shared = &self.turn.0;
        shared.last.store(last, Ordering::Relaxed);
        shared.number.store(self.turns, Ordering::Relaxed);
    }

    pub(super) fn follow(&self, remote: &Remote) {
        lock(&self.turn.0.remote).clone_from(remote);
    }

    fn last(&mut self, task: Runnable) -> &mut u64 {
        let at = task.slot.index();
        if self.calls.len() <= at {
            self.calls.resize(at + 1, 0);
        }
        &mut self.calls[at]
    }

    /// Returns the number of a place, where it is in a word.
    fn place(&mut self, at: Caller) -> u64 {
        let number = self.known.entry(ptr::from_ref(at).addr());
        let number = number.or_insert_with(|| {
            let mut places = lock(&self.turn.0.places);
            places.push(at);
            places.len() as u64
        });
        *number << CALL.count_ones()
    }
}

impl Kernel {
    /// Publishes each turn from the next run or step on, and returns the view of other threads. A turn
    /// is a little slower from then on, and slowest in a kernel without a policy
    /// ([`Builder::policy`](crate::Builder::policy)). A second call returns the same view.
    ///
    /// ```
    /// use trapline::{Fifo, Kernel, Os, SimWorld};
    ///
    /// let builder = Kernel::builder().world(SimWorld::new(0)).policy(Fifo::default());
    /// let mut kernel = builder.build()?;
    /// let turn = kernel.current_turn().clone();
    /// let view = turn.clone();
    /// kernel.spawn("looks", async move |os: &mut Os| {
    ///     os.yield_now().await;
    ///     let task = view.task().expect("it has the turn");
    ///     assert_eq!((&*task.name, task.call), ("looks", Some("yield")));
    /// })?;
    /// kernel.run()?.check()?;
    /// assert_eq!((turn.number(), turn.task()), (2, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current_turn(&mut self) -> &CurrentTurn {
        let published = || Box::new(Published::new(self.remote.clone()));
        &self.published.get_or_insert_with(published).turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fifo, Os, SimWorld};

    fn published() -> (Kernel, CurrentTurn) {
        let builder = Kernel::builder().world(SimWorld::new(0));
        let mut kernel = builder.policy(Fifo::default()).build().unwrap();
        let view = kernel.current_turn().clone();
        (kernel, view)
    }

    #[test]
    fn a_task_that_is_no_more_has_no_name() {
        let (mut kernel, view) = published();
        let names = move || {
            let mut names: Vec<String> = lock(&view.0.names).values().cloned().collect();
            names.sort();
            names
        };
        let seen = names.clone();
        let parent = async move |os: &mut Os| {
            for _ in 0..10 {
                let child = async |os: &mut Os| os.yield_now().await;
                let child = os.spawn("child", child).await.unwrap();
                assert_eq!(seen(), ["child", "parent"]);
                os.wait(child).await.unwrap();
            }
            assert_eq!(seen(), ["parent"]);
        };
        kernel.spawn("parent", parent).unwrap();
        kernel.run().unwrap().check().unwrap();
        assert_eq!(names(), [""; 0]);
        let begins = async |os: &mut Os| os.yield_now().await;
        kernel.spawn("begins", begins).unwrap();
        assert_eq!(names(), ["begins"]);
        kernel.reset(1).unwrap();
        assert_eq!(names(), [""; 0]);
    }

    #[test]
    fn a_call_under_way_is_the_last_call() {
        let (mut kernel, view) = published();
        let asks = async move |os: &mut Os| {
            // The simulated world does the work within the call.
            let task = os.run_blocking(move || view.task()).await.unwrap();
            let task = task.expect("it has the turn");
            assert_eq!((&*task.name, task.call), ("asks", Some("submit")));
        };
        kernel.spawn("asks", asks).unwrap();
        kernel.run().unwrap().check().unwrap();
    }
}
