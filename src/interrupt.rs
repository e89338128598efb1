//! How other threads reach a kernel: they raise an interrupt, and the kernel takes it when it next
//! looks at the world.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

/// A line into a kernel from any thread, of [`Kernel::remote`](crate::Kernel::remote).
#[derive(Clone)]
pub struct Remote {
    line: Arc<Line>,
}

/// What the kernel and its remotes share.
struct Line {
    shutdown: AtomicBool,
    waker: Waker,
}

impl Remote {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            line: Arc::new(Line {
                shutdown: AtomicBool::new(false),
                waker,
            }),
        }
    }

    /// Shuts the kernel down as [`Os::shutdown`](crate::Os::shutdown) does, as soon as the task
    /// that runs has come to its next trap. A kernel that sleeps is woken for it.
    pub fn shutdown(&self) {
        self.line.shutdown.store(true, Ordering::Release);
        self.line.waker.wake_by_ref();
    }

    /// Takes the request to shut down, if there is one.
    pub(crate) fn take_shutdown(&self) -> bool {
        self.line.shutdown.load(Ordering::Relaxed)
            && self.line.shutdown.swap(false, Ordering::Acquire)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}
