//! Calls that a task makes without a trap.

use crate::abi::{QueueId, SystemCall};

/// A call without a trap, mostly of a destructor. The kernel handles it when the task stops, before its
/// next call, and drops the answer.
#[derive(Clone, Copy)]
pub(crate) struct Deferred {
    pub(crate) call: SystemCall,
    /// A word beside it. If the call has a payload, the number of this in
    /// `TrapFrame::take_deferred_payload`.
    pub(crate) word: Option<u64>,
}

/// What a destructor gives back, mostly: a call that needs nothing of the frame.
#[derive(Clone, Copy)]
pub(crate) enum GivenBack {
    /// A message, such as that of a lock.
    Message(QueueId, u64),
    Permits(QueueId, u64),
    Queue(QueueId),
}

impl Deferred {
    /// Returns what it gives back, if it does that.
    #[inline(always)]
    pub(crate) fn given_back(&self) -> Option<GivenBack> {
        match (self.call, self.word) {
            (SystemCall::TryPut(queue), Some(message)) => Some(GivenBack::Message(queue, message)),
            (SystemCall::Give(queue), Some(count)) => Some(GivenBack::Permits(queue, count)),
            (SystemCall::FreeQueue(queue), _) => Some(GivenBack::Queue(queue)),
            _ => None,
        }
    }

    /// Returns `Some` if it is one of the frequent calls. These end no task.
    #[inline(always)]
    pub(crate) fn frequent(&self) -> Option<()> {
        let is_frequent = self.given_back().is_some()
            || matches!(
                self.call,
                SystemCall::GiveBack(_)
                    | SystemCall::Disarm(_)
                    | SystemCall::Disown(_)
                    | SystemCall::Close(_)
            );
        is_frequent.then_some(())
    }
}
