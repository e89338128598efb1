//! Calls that tasks leave for the kernel without a trap, mostly from destructors.

use std::vec;

use super::{Kernel, task::Outcome};
use crate::{
    abi::{Exit, SystemCall},
    log::Fact,
    sched::Runnable,
    trap::Deferred,
};

impl Kernel {
    /// Handles the deferred calls of a task. Returns whether the task is still alive: it may have
    /// killed itself that way.
    ///
    /// A task that is ended here may leave calls of its own. They come first and may end others, in
    /// a chain of any length: so the calls under way wait in a list, and not on the stack.
    #[cold]
    #[inline(never)]
    pub(super) fn run_deferred(&mut self, me: Runnable) -> bool {
        let mut under_way = Vec::new();
        let (mut owner, mut calls) = (me, self.open_deferred(me));
        loop {
            if let Some(deferred) = calls.next() {
                if let Some(victim) = self.handle_deferred(owner, deferred) {
                    self.teardown(victim, &Exit::Killed);
                    under_way.push((owner, calls));
                    (owner, calls) = (victim, self.open_deferred(victim));
                }
            } else if self.frame.has_deferred() {
                // From a destructor that a deferred call has run: of a source, a tracer, a message.
                calls = self.open_deferred(owner);
            } else if let Some(outer) = under_way.pop() {
                self.publish_exit(owner, Exit::Killed);
                self.reap_zombie(owner.tid);
                (owner, calls) = outer;
            } else {
                return self.is_live(me);
            }
        }
    }

    /// Prints what was printed, and takes the calls.
    fn open_deferred(&mut self, me: Runnable) -> vec::IntoIter<Deferred> {
        let (text, calls) = self.frame.take_deferred();
        if !text.is_empty() {
            self.emit(me.tid, || Fact::Console { text: &text });
            self.print(&text);
        }
        calls.into_iter()
    }

    /// Handles a deferred call like any other, and takes its answer back. Returns the task that it
    /// ends, if it ends one: that is done without recursion.
    fn handle_deferred(&mut self, me: Runnable, deferred: Deferred) -> Option<Runnable> {
        let Deferred { call, beside } = deferred;
        self.emit(me.tid, || Fact::Deferred { call });
        match call {
            SystemCall::Release(tid) => {
                self.reap_zombie(tid);
                return self.find_live(tid);
            }
            SystemCall::TryPut(queue) => self.queues.arrived(queue),
            _ => {}
        }
        // The trap under way waits.
        let trap = self.frame.take_parcel();
        self.frame.put_parcel(beside);
        let outcome = self.handle(me, call);
        self.frame.clear();
        self.frame.put_parcel(trap);
        if let Outcome::Ready(state) = outcome {
            self.take_back(state);
        }
        None
    }
}
