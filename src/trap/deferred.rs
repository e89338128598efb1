//! Calls that a task makes without a trap.

use crate::abi::SystemCall;

/// A call without a trap, mostly of a destructor. The kernel handles it when the task stops, before its
/// next call, and drops the answer.
#[derive(Clone, Copy)]
pub(crate) struct Deferred {
    pub(crate) call: SystemCall,
    /// A word beside it. If the call has a payload, the number of this in
    /// `TrapFrame::take_deferred_payload`.
    pub(crate) word: Option<u64>,
}

impl Deferred {
    /// Returns whether it is one of the most frequent calls, which need nothing but this.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        match self.call {
            SystemCall::TryPut(_) | SystemCall::Give(_) => self.word.is_some(),
            call => matches!(call, SystemCall::FreeQueue(_)),
        }
    }

    /// Returns whether it is one of the frequent calls. These end no task.
    #[inline(always)]
    pub(crate) fn is_frequent(&self) -> bool {
        matches!(
            self.call,
            SystemCall::TryPut(_)
                | SystemCall::FreeQueue(_)
                | SystemCall::GiveBack(_)
                | SystemCall::Give(_)
                | SystemCall::Disarm(_)
                | SystemCall::Disown(_)
                | SystemCall::Close(_)
        )
    }
}
