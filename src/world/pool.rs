//! The real world's threads: as many as there is work for, up to a bound, kept for a while.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{frame::Job, pause::in_place, task::panic_message};

/// How many pieces of work can be under way at once; more wait their turn.
const MAX_THREADS: usize = 1024;

/// How long a thread waits for more work.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    /// Has the work done on a thread; here and now, where not even one can be had.
    pub(super) fn submit(&self, job: Job) {
        let mut state = self.shared.lock();
        state.queue.push_back(job);
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
                let job = state.queue.pop_back();
                drop(state);
                job.into_iter().for_each(|job| in_place(|| run(job)));
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a thread.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                run(job);
                state = self.lock();
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

/// A job contains its own panics, but not those of the destructors of what nobody waits for.
fn run(job: Job) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
        let message = panic_message(panic);
        tracing::warn!(target: "trapline::kernel", "work on a thread panicked: {message}");
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.lock();
        write!(f, "Pool({} threads, {} idle)", state.threads, state.idle)
    }
}
