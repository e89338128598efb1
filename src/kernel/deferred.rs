//! Deferred calls: tasks make them without a trap, mostly from destructors.

use std::collections::VecDeque;

use super::{Kernel, outcome::Outcome};
use crate::{
    abi::{Exit, Reply, SystemCall, Tid},
    log::Fact,
    sched::Runnable,
    trap::{Deferred, Object},
};

impl Kernel {
    /// Handles the deferred calls of the host, and of destructors of messages and of the world.
    #[inline]
    pub(super) fn run_deferred_of_host(&mut self) {
        if self.frame.has_deferred() {
            self.run_deferred(Runnable::HOST);
        }
    }

    /// Handles the deferred calls of a task. Returns whether the task is still alive: a deferred
    /// call may kill it.
    #[cold]
    #[inline(never)]
    pub(super) fn run_deferred(&mut self, me: Runnable) -> bool {
        // The others stay in the frame, which needs no list of them: no task ends meanwhile.
        while let Some(deferred) = self.frame.next_frequent_deferred() {
            self.handle_deferred(me, deferred);
        }
        !self.frame.has_deferred() || self.run_any_deferred(me)
    }

    /// Handles deferred text, and deferred calls of any kind.
    ///
    /// A task that ends here may defer calls of its own. These are handled first and may end more
    /// tasks, in a chain of any length. The interrupted calls are therefore kept in a list, not on
    /// the stack.
    #[cold]
    #[inline(never)]
    fn run_any_deferred(&mut self, me: Runnable) -> bool {
        let mut under_way = Vec::new();
        let (mut owner, mut calls) = (me, self.open_deferred(me));
        loop {
            if let Some(deferred) = calls.pop_front() {
                let SystemCall::Release(tid) = deferred.call else {
                    self.handle_deferred(owner, deferred);
                    continue;
                };
                if let Some(victim) = self.release_deferred(owner, tid, deferred.word) {
                    self.teardown(victim, true);
                    under_way.push((owner, calls));
                    (owner, calls) = (victim, self.open_deferred(victim));
                }
            } else if self.frame.has_deferred() {
                // A deferred call has run a destructor: of a source, a tracer or a message.
                calls = self.open_deferred(owner);
            } else if let Some(outer) = under_way.pop() {
                self.publish_exit(owner, Exit::Killed);
                self.reap_zombie(owner.tid);
                (owner, calls) = outer;
            } else {
                self.frame.reuse_deferred(calls);
                return self.is_live(me);
            }
        }
    }

    /// Prints the deferred text, and takes the calls.
    fn open_deferred(&mut self, me: Runnable) -> VecDeque<Deferred> {
        let text = self.frame.take_text();
        let calls = self.frame.take_deferred();
        if !text.is_empty() {
            self.emit(me.tid, || Fact::Console {
                text: (&text).into(),
            });
            self.print(&text);
        }
        calls
    }

    /// Handles a deferred release. Returns the task that it ends, if any: the caller ends it without
    /// recursion.
    fn release_deferred(
        &mut self,
        me: Runnable,
        tid: Tid,
        waited: Option<u64>,
    ) -> Option<Runnable> {
        let call = SystemCall::Release(tid);
        self.emit(me.tid, || Fact::Deferred { call });
        self.frame.touch(Object::Life(tid), true);
        self.frame.touch(Object::Waits(tid), true);
        self.frame.touch(Object::Exit(tid), true);
        self.give_up_exit(tid, waited.is_some());
        self.find_live(tid)
    }

    /// Handles a deferred call like any other, and undoes its answer.
    #[inline(always)]
    fn handle_deferred(&mut self, me: Runnable, deferred: Deferred) {
        let Deferred { call, word } = deferred;
        self.emit(me.tid, || Fact::Deferred { call });
        if self.frame.is_noted() {
            self.note_call(me, call);
        }
        // These two, the most frequent, need nothing of the frame. A message that is dropped holds no
        // `Os`, and begins no trap.
        match (call, word) {
            (SystemCall::TryPut(queue), Some(message)) => {
                self.queues.arrived(queue);
                let answer = self.put_message(queue, message);
                if answer.reply != Reply::Done {
                    self.take_back(answer.into());
                }
            }
            (SystemCall::FreeQueue(queue), _) => drop(self.free_queue(queue)),
            _ => self.handle_deferred_apart(me, deferred),
        }
    }

    #[inline(never)]
    fn handle_deferred_apart(&mut self, me: Runnable, deferred: Deferred) {
        let Deferred { call, word } = deferred;
        // The arguments of the trap under way are saved meanwhile. Word and payload apart: a parcel
        // would be moved as a whole.
        let (outer_word, outer_payload) = (self.frame.take_word(), self.frame.take());
        match word {
            Some(number) if call.has_payload() => {
                let payload = self.frame.take_deferred_payload(number);
                self.frame
                    .put(payload.expect("a payload stays until its call is handled"));
            }
            Some(word) => self.frame.put_word(word),
            None => {}
        }
        let outcome = self.handle(me, call);
        self.frame.clear();
        if let Some(payload) = outer_payload {
            self.frame.put(payload);
        }
        if let Some(word) = outer_word {
            self.frame.put_word(word);
        }
        if let Outcome::Ready(state) = outcome {
            self.take_back(state);
        }
    }
}
