//! The fast lane: calls that need only their caller, or one queue. It calls the functions of the
//! plain lane, and skips the checks that such calls do not need.
//!
//! `docs/price.md` has the figures.

use super::{answer::Answer, queues::Queues, task::Task};
use crate::{
    abi::{Reply, SystemCall},
    trap::TrapFrame,
};

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
        SystemCall::GetTid => task.answer(Reply::Tid(task.tid())),
        SystemCall::Yield => task.answer(Answer::SLEPT),
        SystemCall::Post => task.answer(Reply::Done),
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
            if !queue.has_room() || queue.is_watched() {
                return None;
            }
            queue.store(frame.take_word()?);
            Reply::Done.into()
        }
        SystemCall::Get(id) | SystemCall::TryGet(id) => {
            let queue = queues.get_mut(id).filter(|queue| !queue.is_watched())?;
            let message = queue.take_first()?;
            Answer::message(Reply::Message(message), id)
        }
        _ => return None,
    };
    task.answer(answer);
    Some(())
}
