//! The verdict of a handler, and the undoing of calls, answers and programs.

use super::{
    Kernel,
    answer::{Answer, Beside},
    task::{Pending, State},
};
use crate::{
    abi::{Direction, Exit, Reply, SystemCall},
    panic::contain,
    sched::Runnable,
    trap::{Object, Program, ended},
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
    /// The caller ends itself by `exit`.
    Exit(Exit),
    /// The caller has ended.
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

    /// Undoes what a kill, a fault or a cut ends. A guard that is dropped meanwhile poisons its lock.
    pub(super) fn poisoning(&mut self, undo: impl FnOnce(&mut Self)) {
        let outer = self.frame.killing.replace(true);
        undo(self);
        self.frame.killing.set(outer);
    }

    /// Drops the program of a task that ends, unless it has returned and is gone.
    #[inline(always)]
    pub(super) fn drop_program(&mut self, me: Runnable) {
        let program = &mut self.tasks[me].program;
        if size_of_val(&**program) == 0 {
            return;
        }
        let program = std::mem::replace(program, ended());
        self.drop_apart(program);
    }

    /// Drops a program. The arguments of the trap under way are saved meanwhile: destructors may
    /// begin traps of their own.
    #[inline(never)]
    pub(super) fn drop_apart(&mut self, program: Program) {
        let trap = self.frame.take_parcel();
        // A reply that the last task has not taken must not reach a trap of this program.
        self.frame.forget_reply();
        contain(|| drop(program));
        self.frame.clear();
        self.frame.put_parcel(trap);
    }

    /// Undoes an answer that no task receives. A payload undoes itself when it is dropped.
    pub(super) fn take_back(&mut self, state: State) {
        match state {
            State::Ready(answer) => self.take_back_answer(answer),
            State::Late(answer) => self.take_back_answer(*answer),
            State::Pending(Pending::Read(device, _)) => {
                self.frame.touch(Object::World, true);
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
            (Reply::Queue(queue), _) => drop(self.queues.remove(queue)),
            _ => {}
        }
    }
}
