//! Deferred calls: tasks make them without a trap, mostly from destructors.

use std::collections::VecDeque;

use super::{Kernel, outcome::Outcome};
use crate::{
    abi::{Exit, Reply, SystemCall},
    log::Fact,
    sched::Runnable,
    trap::{Deferred, GivenBack},
};

impl Kernel {
    /// Handles the deferred calls of the host, and of destructors of messages and of the world.
    #[inline]
    pub(super) fn run_deferred_of_host(&mut self) {
        if self.frame.has_deferred() {
            self.run_deferred(Runnable::HOST);
        }
    }

    /// Handles the deferred calls of a task. Returns whether the task is still alive: a deferred call may
    /// kill it.
    #[cold]
    #[inline(never)]
    pub(super) fn run_deferred(&mut self, me: Runnable) -> bool {
        // No destructor of a message, and no tracer, writes the arguments of the trap under way: that takes
        // an `Os`, which none of them has.
        while let Some((deferred, given)) = self.frame.next_deferred(Deferred::given_back) {
            self.take_given_back(me, deferred.call, given);
        }
        !self.frame.has_deferred() || self.run_deferred_apart(me)
    }

    /// The same, where calls need the frame. The arguments of the trap under way are saved meanwhile.
    #[inline(never)]
    fn run_deferred_apart(&mut self, me: Runnable) -> bool {
        // Word and payload apart: a parcel would be moved as a whole.
        let (word, payload) = (self.frame.take_word(), self.frame.take());
        // The others stay in the frame, which needs no list of them: no task ends meanwhile.
        while let Some((deferred, ())) = self.frame.next_deferred(Deferred::frequent) {
            self.handle_deferred(me, deferred);
        }
        let lives = !self.frame.has_deferred() || self.run_any_deferred(me);
        if let Some(payload) = payload {
            self.frame.put(payload);
        }
        if let Some(word) = word {
            self.frame.put_word(word);
        }
        lives
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
                if let Some(victim) = self.handle_deferred(owner, deferred) {
                    self.teardown(victim, true);
                    under_way.push((owner, calls));
                    (owner, calls) = (victim, self.open_deferred(victim));
                }
            } else if self.frame.has_deferred() {
                // A deferred call has run a destructor: of a source, a tracer or a message.
                calls = self.open_deferred(owner);
            } else if let Some(outer) = under_way.pop() {
                self.end_output(owner);
                self.publish_exit(owner, &Exit::Killed);
                (owner, calls) = outer;
            } else {
                self.frame.reuse_deferred(calls);
                return self.tasks.is_live(me);
            }
        }
    }

    fn open_deferred(&mut self, me: Runnable) -> VecDeque<Deferred> {
        let text = self.frame.take_text();
        let calls = self.frame.take_deferred();
        if !text.is_empty() {
            self.print_for(me, text);
        }
        calls
    }

    #[inline(always)]
    fn take_given_back(&mut self, me: Runnable, call: SystemCall, given: GivenBack) {
        self.emit(me.tid, || Fact::Deferred { call });
        if self.frame.is_noted() {
            self.note_call(me, call);
        }
        match given {
            GivenBack::Message(queue, message) => {
                self.queues.arrived(queue, 1);
                let answer = self.put_message(queue, message);
                if answer.reply != Reply::Done {
                    self.take_back(answer.into());
                }
            }
            GivenBack::Permits(queue, count) => {
                self.queues.arrived(queue, count);
                self.give(queue, count);
            }
            GivenBack::Queue(queue) => drop(self.free_queue(queue)),
        }
    }

    /// Handles a deferred call like any other, and undoes its answer. Returns the task that it kills:
    /// the caller ends it without recursion.
    #[inline(always)]
    fn handle_deferred(&mut self, me: Runnable, deferred: Deferred) -> Option<Runnable> {
        if let Some(given) = deferred.given_back() {
            self.take_given_back(me, deferred.call, given);
            return None;
        }
        let Deferred { call, word } = deferred;
        self.emit(me.tid, || Fact::Deferred { call });
        match word {
            Some(number) if call.has_payload() => {
                let payload = self.frame.take_deferred_payload(number);
                self.frame
                    .put(payload.expect("a payload stays until its call is handled"));
            }
            Some(word) => self.frame.put_word(word),
            None => {}
        }
        if !self.bounds.are_none() && self.is_denied_deferred(me, call) {
            self.frame.clear();
            return None;
        }
        let outcome = self.perform(me, call, true);
        self.frame.clear();
        match outcome {
            Outcome::Kill(victim) => return Some(victim),
            Outcome::Ready(state) if state.plain() != Some(Reply::Done) => self.take_back(state),
            Outcome::Answered | Outcome::Blocked => unreachable!("no such call is deferred"),
            _ => {}
        }
        None
    }
}
