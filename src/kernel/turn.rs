//! A turn: a task is resumed with its answer, makes a call, and then is ready, blocks or ends.

use super::{
    Kernel,
    answer::Beside,
    deadlines::Due,
    fast,
    outcome::Outcome,
    task::{Pending, State, WaitingOn},
    tell::tell_resumed,
};
use crate::{
    abi::{Reply, SystemCall},
    log::Wake,
    panic::Panic,
    sched::{Cause, Runnable},
    trap::{Payload, fault},
};

/// What a turn has done to the ready queue.
#[derive(PartialEq, Eq)]
pub(super) enum Turn {
    /// There was no turn: the task was killed on the ready queue, blocks again because its device has
    /// nothing to read, makes a held call, or begins to compute.
    Void,
    /// The queue is unchanged: the task keeps its place.
    Kept,
    /// The next task must be looked up.
    Left,
}

impl Kernel {
    /// Gives a task its turn.
    ///
    /// After the fast lane the task keeps its place on the ready queue, or is put back: `REQUEUES`.
    /// The plain lane removes it first. Its functions are marked as cold, so that no jump leads around
    /// them.
    #[inline(always)]
    pub(super) fn turn<const REQUEUES: bool>(&mut self, me: Runnable) -> Turn {
        let Some(task) = self.tasks.get_mut(me) else {
            return Turn::Void;
        };
        let (task, reply) = match task.state().plain() {
            Some(reply) => (task, reply),
            None => match self.deliver(me) {
                Some(reply) => (&mut self.tasks[me], reply),
                None => return Turn::Void,
            },
        };
        self.stats.ticks += 1;
        self.remote.runs(me.tid);
        let mut reply = Some(reply);
        if REQUEUES && let Some(published) = &mut self.published {
            // The place of another task's call is not its own.
            self.frame.forget_place();
            published.resumed(me);
        }
        if self.log.is_observed() {
            // Not every call notes its caller, and the place of another task's call is not its own.
            self.frame.forget_place();
            tell_resumed(&mut self.log, &mut self.slept, me.tid);
            self.frame.put_located_reply(&mut reply);
        }
        match task.resume(&self.frame, reply) {
            Ok(Some(call)) => {
                if REQUEUES && let Some(published) = &mut self.published {
                    published.called(me, call, self.frame.place());
                }
                let is_answered = self.frame.is_in_lane::<REQUEUES>()
                    && fast::answer(&mut self.queues, &self.frame, task, call);
                if !is_answered {
                    self.dispatch(me, call);
                } else if REQUEUES {
                    self.requeue(me, call);
                } else {
                    return Turn::Kept;
                }
            }
            Ok(None) => self.finish(me, None),
            Err(panic) => self.finish(me, Some(panic)),
        }
        Turn::Left
    }

    /// Determines the answer of the task whose turn it is, and puts the payload into the frame.
    /// Returns `None` if there is no turn: the task is not ready, or blocks again at its device.
    #[cold]
    #[inline(never)]
    fn deliver(&mut self, me: Runnable) -> Option<Reply> {
        self.remote.runs(me.tid);
        let answer = match self.tasks.get_mut(me)?.take_turn()? {
            State::Late(answer) => {
                self.frame.set_due();
                *answer
            }
            State::Pending(Pending::StartTimeout(timer)) => self.start_timeout(me, timer).into(),
            State::Pending(Pending::Read(device, op)) => self.read(me, device, op)?,
            State::Pending(Pending::Held(ticket)) => {
                self.ready.leave();
                self.resume_held(me, ticket);
                return None;
            }
            State::Pending(Pending::Compute(left)) => {
                self.ready.leave();
                self.compute_now(me, left);
                return None;
            }
            State::Ready(answer) => answer,
            _ => unreachable!("only a ready task has a turn"),
        };
        if let Beside::Payload(payload) = answer.beside {
            self.frame.put(*payload);
        }
        Some(answer.reply)
    }

    /// Handles a call in the plain lane.
    #[cold]
    #[inline(never)]
    pub(super) fn dispatch_plain(&mut self, me: Runnable, call: SystemCall) {
        self.ready.leave();
        self.tasks[me].run();
        self.places.called(me, self.frame.place());
        let is_late = self.frame.take_due();
        if self.frame.has_payload() && !call.has_payload() {
            // A cancelled trap has left it, or the task has not taken its answer.
            self.frame.drop_payload();
        }
        let mut is_held = false;
        if self.frame.has_deferred() {
            let prints = self.frame.prints();
            if !self.run_deferred(me) {
                return self.abandon(call);
            }
            is_held = prints && self.console.is_full();
        }
        self.tell_call(me.tid, call);
        let due = is_late.then(|| self.due(me)).flatten();
        let outcome = match due {
            None if is_held => return self.hold(me, Some(call)),
            None => self.perform(me, call),
            Some(due) => {
                // The wait for the console would be cut at once.
                let spent = due.spent || is_held;
                self.handle_late(me, call, Due { spent, ..due })
            }
        };
        self.settle(me, call, outcome);
    }

    /// Acts on the verdict of a handler.
    #[inline(always)]
    pub(super) fn settle(&mut self, me: Runnable, call: SystemCall, outcome: Outcome) {
        match outcome {
            Outcome::Ready(state) => self.reply(me, call, state),
            Outcome::Parent(state, child) => {
                self.reply(me, call, state);
                self.enqueue(child, Cause::Spawned);
            }
            Outcome::Blocked | Outcome::Gone => {}
            Outcome::Exit(exit) => self.end_by_exit(me, exit),
        }
    }

    #[inline(always)]
    fn reply(&mut self, me: Runnable, call: SystemCall, state: State) {
        self.tasks[me].answer(state);
        // A call on a queue moves a message, which takes less time than to read the clock.
        if call.queue().is_none() {
            self.time_passed(me.tid);
        }
        self.tell_answer(me);
        self.requeue(me, call);
    }

    /// Ends a task whose program has returned or panicked.
    #[cold]
    #[inline(never)]
    fn finish(&mut self, me: Runnable, panic: Option<Panic>) {
        self.ready.leave();
        let task = &mut self.tasks[me];
        task.run();
        self.stats.finished += u64::from(!me.tid.is_daemon());
        self.frame.take_due();
        let exit = match panic {
            Some(panic) => {
                let (exit, place) = fault(&self.frame, panic);
                self.places.faulted(me.tid, place);
                exit
            }
            None => {
                // Its destructors have run: only memory is left.
                drop(task.take_program());
                self.frame.take_exit()
            }
        };
        if self.frame.has_deferred() {
            let prints = self.frame.prints();
            if !self.run_deferred(me) {
                return;
            }
            if prints && self.console.is_full() {
                self.frame.put(Payload::Exit(exit));
                return self.hold(me, None);
            }
        }
        self.end(me, exit);
    }

    /// Marks the caller as blocked. A handler has put it into the queue where it waits.
    #[inline(always)]
    pub(super) fn block(&mut self, me: Runnable, on: WaitingOn) -> Outcome {
        self.tell_blocked(me, on);
        self.tasks[me].block(on, self.clock);
        Outcome::Blocked
    }

    /// Makes a blocked task ready. It has left the queue where it waited. The state is written where
    /// it is made: a copy would wait for the stores of its parts.
    #[inline(always)]
    pub(super) fn wake(&mut self, task: Runnable, by: Wake, state: impl Into<State>) {
        self.tasks[task].wake(state);
        self.woken(task, by);
    }
}
