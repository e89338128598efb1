//! A turn: a task is resumed with its answer, makes a call, and is answered, blocks or ends.

use super::{
    Kernel, fast,
    task::{Beside, Outcome, Pending, State, WaitingOn},
};
use crate::{
    abi::{Reply, SystemCall, Tid},
    log::{Fact, Wake},
    panic::Panic,
    sched::{Cause, Runnable},
    trap::{Payload, fault, resume},
};

impl Kernel {
    /// Gives a task its turn. Returns whether it had one: it has none if it was killed on the ready
    /// queue, or finds nothing to read on its device after all.
    #[inline(always)]
    pub(super) fn turn(&mut self, me: Runnable) -> bool {
        let Some(task) = self.tasks.get_mut(me) else {
            return false;
        };
        let reply = match task.state.plain() {
            Some(reply) => reply,
            None => match self.deliver(me) {
                Some(reply) => reply,
                None => return false,
            },
        };
        self.stats.ticks += 1;
        self.remote.runs(me.tid);
        self.emit_at_once(me.tid, || Fact::Resumed);
        let task = &mut self.tasks[me];
        task.traps += 1;
        match resume(&mut task.program, reply) {
            Ok(Some(call)) => match fast::answer(&mut self.queues, &self.frame, me.tid, call) {
                Some(answer) => {
                    task.change(State::Ready(answer));
                    self.ready.requeue(me, call);
                }
                None => self.dispatch(me, call),
            },
            Ok(None) => self.finish(me, None),
            Err(panic) => self.finish(me, Some(panic)),
        }
        true
    }

    /// Makes up the answer of a task whose turn it is, and puts what goes with it into the frame.
    /// `None` if there is no turn: the task is not ready, or would block at its device.
    #[inline(never)]
    fn deliver(&mut self, me: Runnable) -> Option<Reply> {
        let task = self
            .tasks
            .get_mut(me)
            .filter(|task| task.state.is_ready())?;
        let answer = match std::mem::replace(&mut task.state, State::Running) {
            State::Late(answer) => {
                self.frame.set_due();
                *answer
            }
            State::Pending(Pending::StartTimeout(timer)) => self.start_timeout(me, timer).into(),
            State::Pending(Pending::Read(device, op)) => self.read(me, device, op)?,
            State::Pending(Pending::Held(ticket)) => {
                self.go_on(me, ticket);
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

    /// Does what a task's call asks for: the plain lane.
    #[inline(never)]
    fn dispatch(&mut self, me: Runnable, call: SystemCall) {
        self.tasks[me].change(State::Running);
        let is_late = self.frame.take_due();
        if self.frame.has_payload() && !call.has_payload() {
            // Of a trap that was begun and given up, or an answer that was not taken.
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
        if is_held {
            return self.hold(me, Some(call));
        }
        let due = is_late.then(|| self.tasks[me].due()).flatten();
        let outcome = match due {
            None => self.handle(me, call),
            Some(due) => self.handle_late(me, call, due),
        };
        self.settle(me, call, outcome);
    }

    /// Handles a call that the console has held back. It is its task's turn.
    pub(super) fn carry_out(&mut self, me: Runnable, call: SystemCall) {
        let outcome = match self.tasks[me].due() {
            None => self.handle(me, call),
            Some(due) => self.handle_late(me, call, due),
        };
        self.settle(me, call, outcome);
    }

    /// Acts on what a handler has decided.
    #[inline(always)]
    fn settle(&mut self, me: Runnable, call: SystemCall, outcome: Outcome) {
        match outcome {
            Outcome::Ready(state) => {
                self.tell_answer(me.tid, &state);
                self.tasks[me].change(state);
                self.ready.requeue(me, call);
            }
            Outcome::Parent(state, child) => {
                self.tell_answer(me.tid, &state);
                self.tasks[me].change(state);
                self.ready.requeue(me, call);
                self.ready.push(child, Cause::Spawned);
            }
            Outcome::Blocked | Outcome::Gone => {}
            Outcome::Exit(exit) => self.end(me, exit),
        }
    }

    /// Ends a task whose program has returned or panicked.
    #[cold]
    fn finish(&mut self, me: Runnable, panic: Option<Panic>) {
        self.tasks[me].change(State::Running);
        self.tasks[me].traps -= 1;
        self.stats.finished += u64::from(!me.tid.is_daemon());
        self.frame.take_due();
        let exit = match panic {
            Some(panic) => fault(&self.frame, panic),
            None => match self.frame.take() {
                Some(Payload::Exit(exit)) => exit,
                _ => unreachable!("a program that returns leaves its exit in the frame"),
            },
        };
        let prints = self.frame.prints();
        if self.frame.has_deferred() && !self.run_deferred(me) {
            return;
        }
        if prints && self.console.is_full() {
            self.frame.put(Payload::Exit(exit));
            return self.hold(me, None);
        }
        self.end(me, exit);
    }

    /// Drops what travels beside a call that will not be handled.
    #[cold]
    pub(super) fn abandon(&mut self, call: SystemCall) {
        let message = self.frame.take_word();
        self.frame.clear();
        if let (SystemCall::Put(queue) | SystemCall::TryPut(queue), Some(message)) = (call, message)
        {
            self.discard(queue, message);
        }
    }

    /// Marks the caller as blocked, in the queue where a handler has put it.
    pub(super) fn block(&mut self, me: Runnable, on: WaitingOn) -> Outcome {
        self.emit_at_once(me.tid, || Fact::Blocked { on: on.into() });
        let task = &mut self.tasks[me];
        task.since = self.clock;
        task.change(State::Blocked(on));
        self.check_cycle(me, on)
    }

    /// Makes a blocked task ready, once it has left the queue where it waited.
    pub(super) fn wake(&mut self, task: Runnable, by: Wake, state: impl Into<State>) {
        let state = state.into();
        self.emit(task.tid, || Fact::Woken { by });
        self.tell_answer(task.tid, &state);
        let woken = &mut self.tasks[task];
        debug_assert!(
            matches!(woken.state, State::Blocked(_)),
            "only a blocked task is in a queue of waiters"
        );
        woken.change(state);
        self.ready.push(task, Cause::Woken);
    }

    // ---- the log

    #[inline(always)]
    fn tell_call(&mut self, tid: Tid, call: SystemCall) {
        if self.log.is_observed() {
            let beside = self.frame.take_parcel();
            let detail = beside.detail(call);
            self.emit(tid, || Fact::Trapped { call, detail });
            self.frame.put_parcel(beside);
        }
    }

    /// Tells tracers what a task will be resumed with, if that is known by now.
    #[inline(always)]
    pub(super) fn tell_answer(&mut self, tid: Tid, state: &State) {
        if self.log.is_observed() {
            self.tell_answer_in_full(tid, state);
        }
    }

    #[cold]
    fn tell_answer_in_full(&mut self, tid: Tid, state: &State) {
        let answer = match state {
            State::Ready(answer) => answer,
            State::Late(answer) => answer,
            _ => return,
        };
        let (reply, detail) = (answer.reply, answer.detail());
        self.emit_at_once(tid, || Fact::Replied { reply, detail });
    }

    pub(super) fn is_live(&mut self, task: Runnable) -> bool {
        self.tasks.get_mut(task).is_some_and(|task| task.is_live())
    }
}
