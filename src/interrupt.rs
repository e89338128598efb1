//! How other threads reach a kernel: they raise an interrupt, and the kernel takes it when it next
//! looks at the world.
//!
//! Uses the ABI.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
};

use crate::abi::{QueueId, Tid};

/// Work for a thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A line into a kernel from any thread, of [`Kernel::remote`](crate::Kernel::remote).
#[derive(Clone)]
pub struct Remote {
    line: Arc<Line>,
}

/// What the kernel and its remotes share.
struct Line {
    waker: Waker,
    /// Whether anything below has changed since the kernel last looked.
    raised: AtomicBool,
    shutdown: AtomicBool,
    /// The queues that a thread has closed.
    rung: Mutex<Vec<QueueId>>,
    /// How many threads may yet have something to say, by [`Outside`].
    expected: [AtomicUsize; 2],
    /// The task that was resumed last, or the kernel while it waits.
    running: AtomicU64,
}

/// What the kernel finds on the line.
pub(crate) struct Interrupts {
    pub(crate) shutdown: bool,
    pub(crate) rung: Vec<QueueId>,
}

impl Remote {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            line: Arc::new(Line {
                waker,
                raised: AtomicBool::new(false),
                shutdown: AtomicBool::new(false),
                rung: Mutex::default(),
                expected: Default::default(),
                running: AtomicU64::new(0),
            }),
        }
    }

    /// Shuts the kernel down as [`Os::shutdown`](crate::Os::shutdown) does, when it next looks at the
    /// world. That is at once if it sleeps: it is woken. Otherwise it is after the pass under way,
    /// or after 256 turns if the pass is shorter. A task that does not come to a trap holds it up.
    ///
    /// This is for the run under way, whose last task may just have ended by itself; the tasks of a
    /// later one are spared. Between two runs it is for the next.
    pub fn shutdown(&self) {
        self.line.shutdown.store(true, Ordering::Release);
        self.raise();
    }

    /// Which task runs at this moment, or has its call handled; [`Tid::KERNEL`] while the kernel
    /// waits for the world, and outside of its runs. A thread that asks every now and then learns
    /// who uses the time, and who has not come to a trap for long.
    #[must_use]
    pub fn running(&self) -> Tid {
        self.line.running.load(Ordering::Relaxed).into()
    }

    /// Leaves word who runs.
    #[inline(always)]
    pub(crate) fn runs(&self, tid: Tid) {
        self.line.running.store(tid.into(), Ordering::Relaxed);
    }

    /// Has the kernel close a queue.
    pub(crate) fn ring(&self, queue: QueueId) {
        self.line
            .rung
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(queue);
        self.raise();
    }

    fn raise(&self) {
        self.line.raised.store(true, Ordering::Release);
        self.line.waker.wake_by_ref();
    }

    /// How many threads may yet have something to say. Read this before [`Remote::take`]: whoever
    /// has spoken before it was read is heard.
    pub(crate) fn expected(&self) -> usize {
        self.awaited(Outside::Setter) + self.awaited(Outside::Job)
    }

    /// How many of this kind may.
    pub(crate) fn awaited(&self, what: Outside) -> usize {
        self.line.expected[what as usize].load(Ordering::Acquire)
    }

    /// Whether a shutdown has been raised and not taken yet.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.line.shutdown.load(Ordering::Acquire)
    }

    /// Takes the shutdown that has been raised, if one has, and leaves the rest.
    pub(crate) fn take_shutdown(&self) -> bool {
        self.line.shutdown.swap(false, Ordering::Acquire)
    }

    /// Takes what has been raised since it was last taken.
    pub(crate) fn take(&self) -> Option<Interrupts> {
        if !self.line.raised.load(Ordering::Relaxed) {
            return None;
        }
        self.line
            .raised
            .swap(false, Ordering::AcqRel)
            .then(|| Interrupts {
                shutdown: self.take_shutdown(),
                rung: std::mem::take(
                    &mut self
                        .line
                        .rung
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner),
                ),
            })
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

/// That a thread may yet have something to say. While one lives, the kernel does not call it a
/// deadlock when nobody is ready; unless a daemon has sent the thread, or whoever has a copy.
pub(crate) struct ExternalWork {
    remote: Remote,
    what: Outside,
    /// How much the kernel counts on it: 1, or 0.
    weight: usize,
}

/// What a kernel can wait for outside of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outside {
    /// A [`RemoteSetter`](crate::RemoteSetter).
    Setter,
    /// A job of [`Os::run_blocking`](crate::Os::run_blocking).
    Job,
}

impl ExternalWork {
    /// To be made in the turn of the task that sends the thread, or by the host.
    pub(crate) fn new(remote: &Remote, what: Outside) -> Self {
        Self::weighing(remote, what, usize::from(!remote.running().is_daemon()))
    }

    fn weighing(remote: &Remote, what: Outside, weight: usize) -> Self {
        remote.line.expected[what as usize].fetch_add(weight, Ordering::Relaxed);
        Self {
            remote: remote.clone(),
            what,
            weight,
        }
    }
}

impl Clone for ExternalWork {
    fn clone(&self) -> Self {
        Self::weighing(&self.remote, self.what, self.weight)
    }
}

impl Drop for ExternalWork {
    fn drop(&mut self) {
        let expected = &self.remote.line.expected[self.what as usize];
        expected.fetch_sub(self.weight, Ordering::Release);
        // A kernel that waits for this alone must find out.
        self.remote.raise();
    }
}
