//! A thread that tells of a task which keeps a replay from going on. It may wait for what the tape
//! does not hold, such as a client of its own socket.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use trapline::{Remote, Tid};

use super::stdio;

/// The time between two looks. A task is told of after one to two of them.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// The steps of a run so far.
#[derive(Default)]
pub(super) struct Steps {
    made: Arc<AtomicU64>,
    /// Dropped, it ends the thread at once.
    thread: Option<Sender<()>>,
}

impl Steps {
    /// Notes that the run goes on.
    pub(super) fn step(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts the thread, which calls `tell` for each task that keeps the run from going on.
    pub(super) fn watch(
        &mut self,
        kernel: Remote,
        every: Duration,
        tell: impl Fn(Tid) + Send + 'static,
    ) -> io::Result<()> {
        let (sender, end) = mpsc::channel();
        self.thread = Some(sender);
        let made = Arc::clone(&self.made);
        let thread = thread::Builder::new().name("stuck".into());
        let look = move || look(&made, &kernel, every, &end, tell);
        thread.spawn(look).map(drop)
    }
}

/// Tells of a task that is met running twice, without a step between. Tells again after a step. A
/// task whose output waits for its reader is none.
fn look(
    made: &AtomicU64,
    kernel: &Remote,
    every: Duration,
    end: &Receiver<()>,
    tell: impl Fn(Tid),
) {
    let (mut before, mut told) = (None, None);
    while end.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let task = kernel.running();
        let is_program = task != Tid::KERNEL && !task.is_daemon() && !stdio::is_writing();
        let now = is_program.then(|| (made.load(Ordering::Relaxed), task));
        if now.is_some() && now == before && now != told {
            tell(task);
            told = now;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use trapline::{Kernel, Os};

    use super::*;

    #[test]
    fn a_task_that_makes_no_trap_is_told_of_each_time_and_one_that_waits_is_not() {
        let (told, wait) = mpsc::channel();
        let mut steps = Steps::default();
        let mut kernel = Kernel::real().unwrap();
        let every = Duration::from_millis(1);
        let tell = move |task| told.send(task).unwrap();
        steps.watch(kernel.remote(), every, tell).unwrap();
        let stuck = async move |os: &mut Os| {
            os.sleep(20 * every).await;
            assert!(wait.try_recv().is_err(), "the kernel has slept");
            stdio::writing(|| thread::sleep(20 * every));
            assert!(wait.try_recv().is_err(), "its output has waited");
            assert_eq!(wait.recv(), Ok(1.into()));
            thread::sleep(20 * every);
            assert!(wait.try_recv().is_err(), "it is known");
            steps.step();
            assert_eq!(wait.recv(), Ok(1.into()), "it stops again");
        };
        kernel.spawn("stuck", stuck).unwrap();
        kernel.run().unwrap().check().unwrap();
    }

    #[test]
    fn the_end_of_the_run_ends_the_thread() {
        let remote = Kernel::real().unwrap().remote();
        let (_, end) = mpsc::channel();
        look(&AtomicU64::new(0), &remote, Duration::MAX, &end, |_| ());
    }
}
