//! The fast lane: calls that need only their caller, or one queue. It calls the functions of the
//! plain lane, and skips the checks that such calls do not need.
//!
//! `docs/price.md` has the figures.

use super::{
    Kernel,
    answer::Answer,
    queues::Queues,
    task::{State, Task},
};
use crate::{
    abi::{Reply, SystemCall},
    log::{Detail, Fact},
    sched::Runnable,
    trap::TrapFrame,
};

impl Kernel {
    /// Handles a call that takes more than an answer. Two jumps and no more: registers are saved
    /// behind them.
    #[cold]
    #[inline(never)]
    pub(super) fn dispatch(&mut self, me: Runnable, call: SystemCall) {
        if self.frame.is_observed() {
            self.answer_and_tell(me, call);
        } else {
            self.dispatch_plain(me, call);
        }
    }

    /// Answers a call in the fast lane, if possible, and emits it and its answer. The reply is read
    /// first, while it is in registers.
    #[inline(never)]
    fn answer_and_tell(&mut self, me: Runnable, call: SystemCall) {
        let task = &mut self.tasks[me];
        if !answer(&mut self.queues, &self.frame, task, call) {
            return self.dispatch_plain(me, call);
        }
        let reply = task.state.plain();
        self.tell_call(me.tid, call);
        if let Some(reply) = reply {
            self.emit_at_once(me.tid, || Fact::Replied {
                reply,
                detail: Detail::None,
            });
        }
    }
}

/// Answers a call that comes with nothing but its word. Returns whether it did. Otherwise nothing
/// has happened, and the plain lane handles the call.
#[inline(always)]
pub(super) fn answer(
    queues: &mut Queues,
    frame: &TrapFrame,
    task: &mut Task,
    call: SystemCall,
) -> bool {
    match call {
        SystemCall::GetTid => task.change(Reply::Tid(task.tid).into()),
        SystemCall::Yield => task.change(State::Ready(Answer::SLEPT)),
        call => return answer_by_queue(queues, frame, task, call).is_some(),
    }
    true
}

/// Puts into a queue with room, or gets what is there, if no other task waits at the queue.
#[inline(never)]
fn answer_by_queue(
    queues: &mut Queues,
    frame: &TrapFrame,
    task: &mut Task,
    call: SystemCall,
) -> Option<()> {
    let answer = match call {
        SystemCall::Put(id) | SystemCall::TryPut(id) => {
            let queue = queues.get_mut(id)?;
            if !queue.has_room() {
                return None;
            }
            queue.store(frame.take_word()?);
            Reply::Done.into()
        }
        SystemCall::Get(id) | SystemCall::TryGet(id) => {
            let message = queues.get_mut(id)?.take_first()?;
            Answer::message(Reply::Message(message), id)
        }
        _ => return None,
    };
    task.change(State::Ready(answer));
    Some(())
}
