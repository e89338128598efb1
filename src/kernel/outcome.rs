//! The verdict of a handler.

use super::task::{State, WaitingOn};
use crate::{
    abi::{Exit, Inject},
    sched::Runnable,
};

/// The verdict of a handler. The loop acts on it: no handler touches the ready queue for its
/// caller.
#[must_use]
pub(super) enum Outcome {
    /// The caller goes to the back of the ready queue, in this state.
    Ready(State),
    /// The same. The handler has written the answer in its place: a copy of this waits for the stores of its
    /// parts, which was three hundredths of a schedule. Not for a call that may be deferred.
    Answered,
    /// The caller goes to the back, in this state, and its new child behind it.
    Parent(State, Runnable),
    /// The caller waits. The handler has put it into the queue where it waits.
    Block(WaitingOn),
    /// The same. The handler has written the wait in its place, as with [`Outcome::Answered`].
    Blocked,
    /// The caller waits as with [`Outcome::Block`]. Only a task can end the wait: the one that it waits
    /// for, or the holder of a lock.
    BlockOnTask(WaitingOn),
    /// The caller kills this task, which may be itself.
    Kill(Runnable),
    /// The caller cuts this task, by its timeout of this number, and is answered after that.
    Cut(Runnable, u64),
    /// The caller ends itself by `exit`.
    Exit(Exit),
    /// The caller dies at its call.
    Die(Exit),
    /// An injection kills or cuts the caller at its call, or within it.
    Injected(Inject),
    /// The caller is blocked or has ended: there is nothing left to do.
    Over,
}

impl<S: Into<State>> From<S> for Outcome {
    #[inline(always)]
    fn from(state: S) -> Self {
        Self::Ready(state.into())
    }
}
