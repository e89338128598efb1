//! A thread that tells of a task which keeps a replay from going on. It may wait for what the tape
//! does not hold, such as a client of its own socket.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{Remote, Tid};

/// The time between two looks. A task is told of after one to two of them.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// The steps of a run so far; dropped, it ends the thread.
#[derive(Default)]
pub(super) struct Steps(Arc<AtomicU64>);

impl Steps {
    /// Notes that the run goes on.
    pub(super) fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts the thread, which calls `tell` for the first task that keeps the run from going on.
    pub(super) fn watch(
        &self,
        kernel: Remote,
        every: Duration,
        tell: impl FnOnce(Tid) + Send + 'static,
    ) -> io::Result<()> {
        let steps = Arc::downgrade(&self.0);
        thread::Builder::new()
            .name("stuck".into())
            .spawn(move || {
                if let Some(task) = first(&steps, &kernel, every) {
                    tell(task);
                }
            })
            .map(drop)
    }
}

/// The first task that is met running twice, without a step between. `None` at the end of the run.
fn first(steps: &Weak<AtomicU64>, kernel: &Remote, every: Duration) -> Option<Tid> {
    let mut before = None;
    loop {
        let now = (steps.upgrade()?.load(Ordering::Relaxed), kernel.running());
        let task = now.1;
        if before == Some(now) && task != Tid::KERNEL && !task.is_daemon() {
            return Some(task);
        }
        before = Some(now);
        thread::sleep(every);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Kernel, Os};

    #[test]
    fn a_task_that_makes_no_trap_is_told_of_and_a_kernel_that_waits_is_not() {
        let (told, wait) = mpsc::channel();
        let steps = Steps::default();
        let mut kernel = Kernel::real().unwrap();
        let remote = kernel.remote();
        let every = Duration::from_millis(1);
        steps
            .watch(remote, every, move |task| told.send(task).unwrap())
            .unwrap();
        kernel
            .spawn("stuck", async move |os: &mut Os| {
                os.sleep(20 * every).await;
                assert!(wait.try_recv().is_err(), "the kernel has slept");
                assert_eq!(wait.recv(), Ok(1.into()));
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
    }

    #[test]
    fn the_end_of_the_run_ends_the_thread() {
        let steps = Steps::default();
        let kernel = Kernel::real().unwrap();
        let weak = Arc::downgrade(&steps.0);
        drop(steps);
        assert_eq!(first(&weak, &kernel.remote(), Duration::ZERO), None);
    }
}
