//! The verdict of a handler, and the undoing of calls and answers.

use super::{
    Kernel,
    answer::{Answer, Beside},
    task::{Pending, State},
};
use crate::{
    abi::{Direction, Exit, Reply, SystemCall},
    sched::Runnable,
};

/// The verdict of a handler. The loop acts on it: no handler touches the ready queue for its
/// caller.
#[must_use]
pub(super) enum Outcome {
    /// The caller goes to the back of the ready queue, in this state.
    Ready(State),
    /// The same, and the new child goes behind its parent.
    Parent(State, Runnable),
    /// The caller waits in the queue where the handler has put it.
    Blocked,
    /// The caller ends, with this exit.
    Exit(Exit),
    /// The caller has ended, with all other tasks.
    Gone,
}

impl<S: Into<State>> From<S> for Outcome {
    #[inline(always)]
    fn from(state: S) -> Self {
        Self::Ready(state.into())
    }
}

impl Kernel {
    /// Drops what travels beside a call that is not handled.
    #[cold]
    pub(super) fn abandon(&mut self, call: SystemCall) {
        let message = self.frame.take_word();
        self.frame.clear();
        if let (SystemCall::Put(queue) | SystemCall::TryPut(queue), Some(message)) = (call, message)
        {
            self.discard(queue, message);
        }
    }

    /// Undoes an answer that no task receives. A payload undoes itself when it is dropped.
    pub(super) fn take_back(&mut self, state: State) {
        match state {
            State::Ready(answer) => self.take_back_answer(answer),
            State::Late(answer) => self.take_back_answer(*answer),
            State::Pending(Pending::Read(device, _)) => {
                self.devices.release(device, Direction::Read);
            }
            State::Pending(Pending::Held(ticket)) => self.drop_held(ticket),
            _ => {}
        }
    }

    fn take_back_answer(&mut self, answer: Answer) {
        match (answer.reply, answer.beside) {
            (Reply::Message(message), Beside::Queue(queue)) => self.give_back(queue, message),
            (Reply::Full(message) | Reply::Refused(message), Beside::Queue(queue)) => {
                self.discard(queue, message);
            }
            (Reply::Queue(queue), _) => self.queues.remove(queue),
            _ => {}
        }
    }
}
