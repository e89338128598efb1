//! The fast lane: calls that need only their caller, or one queue. It calls the functions of the
//! plain lane, and skips the checks that such calls do not need.
//!
//! `docs/price.md` has the figures.

use super::{answer::Answer, queues::Queues, task::Task};
use crate::{
    abi::{QueueId, Reply, SystemCall},
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
        SystemCall::Put(id) | SystemCall::TryPut(id) => {
            return put(queues, frame, task, id).is_some();
        }
        SystemCall::Get(id) | SystemCall::TryGet(id) => return get(queues, task, id).is_some(),
        _ => return false,
    }
    true
}

/// Puts into a queue with room, if no other task waits at it.
#[inline(never)]
fn put(queues: &mut Queues, frame: &TrapFrame, task: &mut Task, id: QueueId) -> Option<()> {
    let queue = queues.get_mut(id)?;
    if !queue.has_room() || queue.is_watched() {
        return None;
    }
    queue.store(frame.take_word()?);
    task.answer(Reply::Done);
    Some(())
}

/// Gets what is in a queue, if no other task waits at it.
#[inline(never)]
fn get(queues: &mut Queues, task: &mut Task, id: QueueId) -> Option<()> {
    let queue = queues.get_mut(id).filter(|queue| !queue.is_watched())?;
    let message = queue.take_first()?;
    task.answer(Answer::message(Reply::Message(message), id));
    Some(())
}
