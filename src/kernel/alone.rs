//! Whether one kernel alone has run on its thread. A search decides the turns of the kernel that it
//! gives to its closure, and of no other.

use std::cell::Cell;

use super::Kernel;

thread_local! {
    /// The last number that a kernel of this thread got.
    static LAST: Cell<u64> = const { Cell::new(0) };
    /// The number of the kernel that is watched, and whether another one has run since.
    static WATCHED: Cell<(u64, bool)> = const { Cell::new((0, false)) };
}

/// Returns a number that no kernel of this thread has had.
pub(super) fn next_number() -> u64 {
    LAST.set(LAST.get() + 1);
    LAST.get()
}

impl Kernel {
    /// Watches from now on whether another kernel runs on this thread.
    #[doc(hidden)]
    pub fn watch_alone(&self) {
        WATCHED.set((self.number, false));
    }

    /// Returns whether this is the kernel that is watched, not made as new since, and no other has
    /// run. Ends the watch.
    #[doc(hidden)]
    #[must_use]
    pub fn was_alone(&self) -> bool {
        WATCHED.take() == (self.number, false)
    }

    /// Notes that this kernel runs.
    pub(super) fn mark_run(&self) {
        let (watched, _) = WATCHED.get();
        if watched != self.number {
            WATCHED.set((watched, true));
        }
    }
}
