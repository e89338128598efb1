//! The end of all tasks: by a call, from outside, or because the host drops the kernel.

use super::{Kernel, outcome::Outcome};
use crate::{
    abi::{Exit, Nanos},
    sched::Runnable,
};

impl Kernel {
    /// Ends all tasks, the caller too.
    pub(super) fn shutdown(&mut self) -> Outcome {
        self.end_all();
        Outcome::Gone
    }

    /// Ends every task, the youngest first.
    pub(super) fn end_all(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        for task in self.tasks.youngest_first() {
            // The destructors of another task may have ended this one.
            if self.tasks.is_live(task) {
                self.end(task, Exit::Killed);
            }
        }
    }

    /// Ends every task, and drops the messages left in queues.
    pub(super) fn end_everything(&mut self) {
        self.end_all();
        self.clear_queues();
        // Of destructors of the host and of messages.
        while self.frame.has_deferred() {
            self.run_deferred(Runnable::HOST);
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.end_everything();
        self.console.hurry();
        self.finish_printing(Nanos::FOREVER);
    }
}
