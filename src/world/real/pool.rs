//! The real world's threads: as many as there is work for, up to a bound, kept for a while.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

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
pub(super) struct Pool {
    shared: Arc<Workers>,
}

#[derive(Default)]
struct Workers {
    state: Mutex<Work>,
    work: Condvar,
}

#[derive(Default)]
struct Work {
    /// What waits for a thread.
    queue: VecDeque<(Tid, Job)>,
    /// The tasks with work on the queue or under way.
    tasks: BTreeMap<Tid, TaskWork>,
    threads: usize,
    idle: usize,
}

/// The work of one task.
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
        let mut state = lock(&self.shared.state);
        if !state.admit(task, job) {
            return;
        }
        if state.queue.len() <= state.idle {
            self.shared.work.notify_one();
            return;
        }
        if state.threads == MAX_THREADS {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("trapline-blocking".into());
        match thread.spawn(move || shared.serve()) {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => {}
            Err(_) => {
                let Some((task, job)) = state.queue.pop_back() else {
                    return;
                };
                drop(state);
                in_place(|| run(job));
                lock(&self.shared.state).done(task);
            }
        }
    }
}

impl Workers {
    /// The life of a thread.
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some((task, job)) = state.queue.pop_front() {
                drop(state);
                run(job);
                state = lock(&self.state);
                state.done(task);
                continue;
            }
            state.idle += 1;
            let (woken, timeout) = self
                .work
                .wait_timeout_while(state, LINGER, |state| state.queue.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
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
