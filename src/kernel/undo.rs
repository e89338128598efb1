//! The undoing of calls, answers, waits and programs.

use super::{
    Kernel,
    answer::{Answer, Beside},
    held::Ticket,
    task::{Pending, State, Then, WaitingOn},
};
use crate::{
    abi::{End, QueueId, Reply, SystemCall},
    panic::contain,
    sched::Runnable,
    trap::{Object, Program},
};

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

    /// Drops a program. The arguments of the trap under way are saved meanwhile: destructors may
    /// begin traps of their own.
    pub(super) fn drop_apart(&mut self, program: Program) {
        self.drop_replied(program, None);
    }

    /// The same, for a program whose trap has this reply, which it did not take.
    #[inline(never)]
    pub(super) fn drop_replied(&mut self, program: Program, reply: Option<Reply>) {
        let trap = self.frame.take_parcel();
        // A reply that the last task has not taken must not reach a trap of this program.
        self.frame.forget_reply();
        self.frame.put_reply(reply);
        contain(|| drop(program));
        self.frame.clear();
        self.frame.put_parcel(trap);
    }

    /// Takes a task that ends out of its queue. An answer that it has not received goes back to its
    /// source.
    #[inline(never)]
    pub(super) fn unqueue(&mut self, me: Runnable, state: State) {
        match state {
            State::Running | State::Ending | State::Zombie(_) => {}
            State::Ready(_) | State::Late(_) | State::Pending(_) => {
                if !matches!(state, State::Pending(_)) {
                    self.note_answer_lost(me);
                }
                self.leave_ready(me);
                if let State::Pending(Pending::Select(key)) = state {
                    self.leave_select(me, key);
                }
                self.take_back(state);
            }
            State::Computing => drop(self.stop_computing(me)),
            State::Blocked(on) => self.cancel_wait(me, on),
        }
    }

    /// Undoes an answer that no task receives. A payload undoes itself when it is dropped.
    pub(super) fn take_back(&mut self, state: State) {
        match state {
            State::Ready(answer) => self.take_back_answer(answer),
            State::Late(answer) => self.take_back_answer(*answer),
            State::Pending(Pending::Read(device, op)) => {
                self.touch_device(device);
                self.give_up_read(device, op);
            }
            State::Pending(Pending::Held(ticket)) => self.drop_held(ticket),
            _ => {}
        }
    }

    fn take_back_answer(&mut self, answer: Answer) {
        match (answer.reply, answer.beside) {
            (Reply::Message(message), Beside::Queue(queue)) => self.give_back(queue, message),
            (Reply::Permits(count), Beside::Queue(queue)) => self.give(queue, count),
            (Reply::Full(message) | Reply::Refused(message), Beside::Queue(queue)) => {
                self.discard(queue, message);
            }
            (Reply::Queue(queue), _) => {
                drop(self.queues.remove(queue));
                if self.signals.is_holder(queue) {
                    self.frame.defer(SystemCall::Uncatch(queue));
                }
            }
            _ => {}
        }
    }

    /// Takes a blocked task out of the queue in which it waits.
    pub(super) fn cancel_wait(&mut self, me: Runnable, on: WaitingOn) {
        match on {
            WaitingOn::Exit(target) => {
                self.touch(Object::Cycles);
                self.touch(Object::Waits(target.tid));
                self.touch(Object::Exit(target.tid));
                self.tasks[target].leave_waiters(me.slot);
            }
            WaitingOn::Timer(timer) => {
                self.touch_clock();
                self.timers.of(me).disarm(timer);
            }
            WaitingOn::Device(device, direction, then) => {
                self.touch_device(device);
                self.devices.end_wait(me);
                match then {
                    Then::Read(op) => self.give_up_read(device, op),
                    Then::Done | Then::Again => self.devices.release(device, direction),
                }
            }
            WaitingOn::Queue(queue, end) => self.leave_queue(me, queue, end),
            WaitingOn::Select(key, _) => {
                self.note_bound(key);
                self.leave_select(me, key);
            }
            WaitingOn::Console(ticket) => {
                self.devices.end_wait(me);
                self.drop_held(Ticket::Console(ticket));
            }
            WaitingOn::Room(queue, ticket) => {
                self.touch_queue(queue);
                let found = self.queues.get_mut(queue);
                let text = found.and_then(|found| found.remove_putter(me));
                if let Some(text) = text {
                    self.store_text(queue, text);
                }
                self.drop_held(Ticket::Text(ticket));
            }
            WaitingOn::Delay(timer) => {
                self.touch_clock();
                self.timers.of(me).disarm(timer);
                self.drop_held(Ticket::Delay(timer.1));
            }
        }
    }

    /// Removes a task from the queue where it waits. A message that it was to put is dropped.
    fn leave_queue(&mut self, me: Runnable, queue: QueueId, end: End) {
        self.touch_queue(queue);
        let found = self.queues.get_mut(queue);
        let found = found.expect("a queue with a waiting task exists");
        if found.is_lock() {
            self.frame.touch(Object::Cycles, true);
        }
        match end {
            End::Get => {
                found.remove_getter(me);
                // The request may have been the one for which the others waited.
                self.serve(queue);
            }
            End::Put => {
                if let Some(message) = found.remove_putter(me) {
                    found.discard(message);
                }
            }
        }
    }

    fn drop_held(&mut self, ticket: Ticket) {
        let held = self.held.take(ticket);
        let outer = self.frame.take_parcel();
        self.frame.put_parcel(held.beside);
        match held.call {
            Some(call) => self.abandon(call),
            None => self.frame.clear(),
        }
        self.frame.put_parcel(outer);
    }
}
