//! The real world's threads: as many as there is work for, up to a bound, kept for a while.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::affinity;
use crate::{
    abi::Tid,
    interrupt::Job,
    panic::{lock, panic_message},
    trap::pause::in_place,
};

/// How many pieces of work can be under way at once; more wait their turn.
const MAX_THREADS: usize = 1024;

/// How many of one task can be: others have threads left, however long those take.
const MAX_PER_TASK: usize = 16;

/// How long a thread waits for more work.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
pub(super) struct Pool(Arc<(Mutex<Work>, Condvar)>);

#[derive(Default)]
struct Work {
    /// What waits for a thread.
    queue: VecDeque<(Tid, Job)>,
    /// The tasks with work on the queue or under way.
    tasks: BTreeMap<Tid, TaskWork>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct TaskWork {
    /// How many pieces are on the queue or under way.
    admitted: usize,
    /// What waits until one of those is done.
    held: VecDeque<Job>,
}

impl Work {
    /// Puts work on the queue, unless its task has its share there. Answers whether it did.
    fn admit(&mut self, task: Tid, job: Job) -> bool {
        let share = self.tasks.entry(task).or_default();
        let fits = share.admitted < MAX_PER_TASK;
        if fits {
            share.admitted += 1;
            self.queue.push_back((task, job));
        } else {
            share.held.push_back(job);
        }
        fits
    }

    /// A piece of work is done: the next of its task takes its place.
    fn done(&mut self, task: Tid) {
        let Some(share) = self.tasks.get_mut(&task) else {
            return;
        };
        if let Some(job) = share.held.pop_front() {
            self.queue.push_back((task, job));
            return;
        }
        share.admitted -= 1;
        if share.admitted == 0 {
            self.tasks.remove(&task);
        }
    }
}

impl Pool {
    /// Has a task's work done on a thread; here and now, where not even one can be had.
    pub(super) fn submit(&self, task: Tid, job: Job) {
        let (work, changed) = &*self.0;
        let mut state = lock(work);
        if !state.admit(task, job) {
            return;
        }
        if state.queue.len() <= state.idle {
            return changed.notify_one();
        }
        if state.threads == MAX_THREADS {
            return;
        }
        let pool = self.clone();
        let thread = thread::Builder::new().name("trapline-blocking".into());
        if thread.spawn(move || pool.begin()).is_ok() {
            state.threads += 1;
        } else if state.threads == 0
            && let Some((task, job)) = state.queue.pop_back()
        {
            drop(state);
            in_place(|| run(job));
            lock(work).done(task);
        }
    }

    /// The life of a thread. A kernel's core is for the kernel.
    fn begin(&self) {
        affinity::unpin();
        self.serve();
    }

    fn serve(&self) {
        let (work, changed) = &*self.0;
        let mut state = lock(work);
        loop {
            if let Some((task, job)) = state.queue.pop_front() {
                drop(state);
                run(job);
                state = lock(work);
                state.done(task);
                continue;
            }
            state.idle += 1;
            let woken = changed.wait_timeout_while(state, LINGER, |state| state.queue.is_empty());
            let (woken, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// A job contains its own panics, but not those of destructors of a result that no task takes.
fn run(job: Job) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
        let message = panic_message(panic);
        tracing::warn!(target: "trapline::kernel", "work on a thread panicked: {message}");
    }
}
