//! A turn: a task is resumed with its answer, makes a call, and then is ready, blocks or ends.
//!
//! ```text
//! turn ── resume ──> fast lane ─────────────────────────────> the task keeps its place
//!                        └──> dispatch ──> perform ──> settle ──> ready, blocked or ended
//! ```

use super::{
    Kernel,
    accesses::begin_accesses,
    answer::{Answer, Beside},
    deadlines::Due,
    emit::emit_resumed,
    fast,
    held::Ticket,
    outcome::Outcome,
    queues::MessageQueue,
    task::{Pending, State, WaitingOn},
};
use crate::{
    abi::{Errno, Exit, Inject, Reply, SystemCall},
    log::Detail,
    panic::Panic,
    sched::{Cause, Runnable},
    trap::{Object, Payload, fault},
};

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

/// From the resume to the call.
impl Kernel {
    /// Gives a task its turn.
    ///
    /// After the fast lane the task keeps its place on the ready queue. Every other lane removes it
    /// first, or it has none. Their functions are marked as cold, so that no jump leads around them.
    #[inline(always)]
    pub(super) fn turn(&mut self, me: Runnable) -> Turn {
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
        if self.is_watched {
            // Not every call notes its caller, and the place of another task's call is not its own.
            self.frame.forget_place();
            if let Some(published) = &mut self.published {
                published.resumed(me);
            }
            if self.log.is_observed() {
                let shown = &mut self.shown;
                begin_accesses(&mut self.log, self.number, me.tid, shown);
                emit_resumed(&mut self.log, &mut self.slept, me.tid);
                self.frame.put_located_reply(&mut reply);
            }
        }
        match task.resume(&self.frame, reply) {
            Ok(Some(call)) => {
                let is_answered = self.frame.is_in_lane()
                    && fast::answer(&mut self.queues, &self.frame, task, call);
                if !is_answered {
                    self.dispatch(me, call);
                } else if self.frame.is_requeued() {
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
        let task = &mut self.tasks[me];
        if let State::Pending(pending) = *task.state() {
            task.run();
            return self.resolve_pending(me, pending);
        }
        let answer = match task.take_turn()? {
            State::Late(answer) => {
                self.frame.set_due();
                *answer
            }
            State::Ready(answer) => answer,
            _ => unreachable!("only a ready task has a turn"),
        };
        Some(self.hand_out(answer))
    }

    /// Puts the payload of an answer into the frame, for the task whose turn it is. Returns the reply.
    pub(super) fn hand_out(&self, answer: Answer) -> Reply {
        if let Beside::Payload(payload) = answer.beside {
            self.frame.put(*payload);
        }
        answer.reply
    }

    /// Does the work at the begin of a turn that determines the answer; `None` as [`Kernel::deliver`].
    #[inline(always)]
    fn resolve_pending(&mut self, me: Runnable, pending: Pending) -> Option<Reply> {
        match pending {
            Pending::Read(device, op) => self.read(me, device, op),
            Pending::StartTimeout(timer) => Some(self.start_timeout(me, timer)),
            Pending::Select(key) => self.select_now(me, key),
            Pending::Held(ticket) => {
                self.ready.leave();
                self.resume_held(me, ticket);
                None
            }
            Pending::Compute(left) => {
                self.ready.leave();
                self.compute_now(me, left);
                None
            }
        }
    }

    /// Handles a call that takes more than an answer. A few jumps and no more: registers are saved
    /// behind them.
    #[cold]
    #[inline(never)]
    fn dispatch(&mut self, me: Runnable, call: SystemCall) {
        match self.is_watched {
            true => self.dispatch_watched(me, call),
            false => self.dispatch_plain(me, call),
        }
    }

    #[inline(never)]
    fn dispatch_watched(&mut self, me: Runnable, call: SystemCall) {
        self.emit_accesses();
        if self.frame.is_in_observed_lane() {
            self.answer_and_emit(me, call);
        } else if self.published.is_some() {
            self.dispatch_published(me, call);
        } else {
            self.dispatch_plain(me, call);
        }
    }

    #[inline(never)]
    fn dispatch_published(&mut self, me: Runnable, call: SystemCall) {
        if let Some(published) = &mut self.published {
            published.called(me, call, self.frame.place());
        }
        if self.frame.is_in_published_lane()
            && fast::answer(&mut self.queues, &self.frame, &mut self.tasks[me], call)
        {
            return self.requeue(me, call);
        }
        self.dispatch_plain(me, call);
    }

    /// Answers a call in the fast lane, if possible, and emits it and its answer. The reply is read
    /// first, while it is in registers.
    #[inline(never)]
    fn answer_and_emit(&mut self, me: Runnable, call: SystemCall) {
        let task = &mut self.tasks[me];
        if !fast::answer(&mut self.queues, &self.frame, task, call) {
            return self.dispatch_plain(me, call);
        }
        let reply = task.state().plain();
        self.emit_bare_call(me.tid, call);
        if let Some(reply) = reply {
            match call {
                SystemCall::Get(queue) | SystemCall::TryGet(queue)
                    if !self.frame.mailboxes.are_none() =>
                {
                    let detail = self.frame.mailboxes.detail(reply, queue);
                    self.emit_reply(me.tid, reply, || detail);
                }
                _ => self.emit_reply(me.tid, reply, || Detail::None),
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn dispatch_plain(&mut self, me: Runnable, call: SystemCall) {
        self.ready.leave();
        let task = &mut self.tasks[me];
        task.run();
        task.called(self.frame.place());
        let is_bare = self.frame.is_bare(call) || self.disarm_alone(me);
        if is_bare && !self.log.is_observed() || self.prepare(me, call) {
            self.carry_out(me, call);
        }
    }

    /// Handles the end of a timeout, if that is all that comes with a call: a server has one with each
    /// message. Returns whether it was so.
    #[inline(always)]
    fn disarm_alone(&mut self, me: Runnable) -> bool {
        let Some(timeout) = self.frame.lone_disarm() else {
            return false;
        };
        let is_plain = self.bounds.are_none() && !self.log.is_observed();
        if !is_plain || self.tasks[me].due().is_some() {
            return false;
        }
        self.frame.forget_lone_disarm();
        self.disarm(me, timeout);
        true
    }

    /// Handles what the task has left beside its call. Returns whether the call is to be carried out:
    /// it was not cut, and is not held back.
    #[inline(always)]
    fn prepare(&mut self, me: Runnable, call: SystemCall) -> bool {
        let mut is_late = self.frame.take_due();
        if self.frame.has_payload() && !call.has_payload() {
            // A cancelled trap has left it, or the task has not taken its answer.
            self.frame.drop_payload();
        }
        let has_deferred = self.frame.has_deferred();
        let Some(is_held) = self.run_own_deferred(me) else {
            self.abandon(call);
            return false;
        };
        // A shield may have been left.
        is_late |= has_deferred && self.tasks[me].due().is_some();
        self.emit_call(me.tid, call);
        match is_late.then(|| self.due(me)).flatten() {
            None if is_held => self.hold_back(me, Some(call)),
            None => return true,
            Some(mut due) => {
                self.store_waiting();
                // The wait for the console would be cut at once.
                due.spent |= is_held;
                self.carry_out_late(me, call, due);
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn resume_held(&mut self, me: Runnable, ticket: Ticket) {
        let held = self.held.take(ticket);
        self.frame.put_parcel(held.beside);
        self.frame
            .buffer(held.bytes.len())
            .copy_from_slice(&held.bytes);
        let Some(call) = held.call else {
            let exit = self.frame.take_exit();
            return self.end(me, &exit);
        };
        if let Ticket::Text(_) = ticket
            && self.is_broken(me)
        {
            return self.end_broken(me, Some(call));
        }
        if let (Ticket::Delay(_), Some(injection)) = (ticket, &mut self.injection) {
            injection.pass_again(me.tid, self.tasks[me].traps());
        }
        self.frame.set_screened(true);
        match self.tasks[me].due() {
            None => {
                let outcome = match ticket {
                    Ticket::Delay(_) => self.perform_delayed(me, call),
                    _ => self.perform_apart(me, call),
                };
                self.settle_apart(me, call, outcome);
            }
            Some(due) => self.carry_out_late(me, call, due),
        }
    }

    #[cold]
    #[inline(never)]
    fn finish(&mut self, me: Runnable, panic: Option<Panic>) {
        self.emit_accesses();
        self.ready.leave();
        let task = &mut self.tasks[me];
        task.run();
        self.stats.finished += u64::from(!me.tid.is_daemon());
        self.frame.take_due();
        let mut exit = match panic {
            Some(panic) => self.faulted(me, panic),
            None => {
                // Its destructors have run: only memory is left.
                drop(task.take_program());
                self.frame.take_exit()
            }
        };
        match self.run_own_deferred(me) {
            None => {}
            Some(false) => {
                if !self.bounds.are_none()
                    && let Some(why) = self.bounds.take_denied(me.tid)
                {
                    exit = Exit::Faulted(why);
                }
                self.end(me, &exit);
            }
            Some(true) => {
                self.frame.put(Payload::Exit(exit));
                self.hold_back(me, None);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn faulted(&mut self, me: Runnable, panic: Panic) -> Exit {
        let (exit, place) = fault(&self.frame, panic);
        self.faults.extend(place.map(|place| (me.tid, place)));
        exit
    }

    fn hold_back(&mut self, me: Runnable, call: Option<SystemCall>) {
        if !self.stdio.prints_apart(me.tid) {
            self.hold(me, call);
        } else if !self.hold_piped(me, call) {
            self.end_broken(me, call);
        }
    }

    /// Ends a task whose text has no reader, as the signal SIGPIPE does.
    #[cold]
    fn end_broken(&mut self, me: Runnable, call: Option<SystemCall>) {
        let exit = match call {
            Some(call) => {
                self.abandon(call);
                Exit::Killed
            }
            None => self.frame.take_exit(),
        };
        self.end(me, &exit);
    }

    /// Handles the deferred calls of the task that has stopped. Returns whether it waits for room for
    /// its text; `None` if it was killed.
    #[inline(always)]
    fn run_own_deferred(&mut self, me: Runnable) -> Option<bool> {
        if !self.frame.has_deferred() {
            return Some(false);
        }
        if self.stdio.are_used() {
            return self.run_deferred_and_pipe(me);
        }
        let prints = self.frame.prints();
        let lives = self.run_deferred(me);
        lives.then(|| prints && self.console.is_full())
    }

    /// The same, where the text of the task may go to a queue.
    #[cold]
    #[inline(never)]
    fn run_deferred_and_pipe(&mut self, me: Runnable) -> Option<bool> {
        let is_held = self.put_printed(me);
        let prints = self.frame.prints();
        if !self.run_deferred(me) {
            self.store_waiting();
            return None;
        }
        Some(is_held || prints && self.console.is_full())
    }
}

/// From the call to its verdict, and what follows.
impl Kernel {
    /// Handles a call: of a trap unless it is `deferred`. Its second word and its payload are in the
    /// frame. An injection and limits decide on the calls of traps. What they touch is noted before, since
    /// the decision depends on it.
    #[inline(always)]
    pub(super) fn perform(&mut self, me: Runnable, call: SystemCall, deferred: bool) -> Outcome {
        if self.frame.is_looked_into()
            && let Some(outcome) = self.look_into(me, call, deferred)
        {
            return outcome;
        }
        self.handle(me, call)
    }

    /// Notes what a call touches, and screens that of a trap. Returns the verdict, if that is one.
    #[cold]
    #[inline(never)]
    fn look_into(&mut self, me: Runnable, call: SystemCall, deferred: bool) -> Option<Outcome> {
        if self.frame.is_noted() {
            if !deferred {
                self.note_trap(call);
            }
            self.note_call(me, call);
        }
        let is_screened = !deferred && self.frame.is_screened();
        is_screened.then(|| self.screen(me, call)).flatten()
    }

    /// The same for a trap, where it is rare.
    #[cold]
    #[inline(never)]
    fn perform_apart(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        self.perform(me, call, false)
    }

    /// Handles a call that was delayed. The wait of a condition is over then: its task has released the lock
    /// before, so a signal that has come meanwhile would be lost.
    fn perform_delayed(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        match call {
            SystemCall::Get(queue)
                if self
                    .queues
                    .get(queue)
                    .is_some_and(MessageQueue::is_condition) =>
            {
                Errno::Closed.into()
            }
            _ => self.perform_apart(me, call),
        }
    }

    #[inline(always)]
    fn carry_out(&mut self, me: Runnable, call: SystemCall) {
        let outcome = self.perform(me, call, false);
        self.settle(me, call, outcome);
    }

    /// Ends the task that the caller kills. Returns whether the caller lives: a destructor of the
    /// victim may have killed it, and it may be the victim.
    #[cold]
    fn kill(&mut self, me: Runnable, victim: Runnable) -> bool {
        self.end(victim, &Exit::Killed);
        self.tasks.is_live(me)
    }

    /// Handles a call around which a timeout is due. The first call that completes at once receives
    /// its answer, and so do a few before it that only ask. Every other call is cut.
    #[cold]
    fn carry_out_late(&mut self, me: Runnable, call: SystemCall, due: Due) {
        // Whether the call would block decides whether it is cut.
        self.touch(Object::All);
        if due.spent {
            self.poisoning(|kernel| kernel.abandon(call));
            let cut = self.cut(me, due.number);
            self.settle_apart(me, call, cut);
            return self.run_deferred_of_cut(me);
        }
        let only_asks = call.only_asks() || self.takes_lock(call);
        let outcome = match self.perform_apart(me, call) {
            Outcome::Answered => match self.tasks[me].take_turn() {
                Some(State::Ready(answer)) => self.tasks[me].late(answer, only_asks).into(),
                _ => unreachable!("its handler has written the answer"),
            },
            Outcome::Ready(State::Ready(answer)) if answer.is_slept() => self.cut(me, due.number),
            Outcome::Ready(State::Pending(Pending::Compute(_))) => self.cut(me, due.number),
            Outcome::Ready(State::Ready(answer)) => {
                Outcome::Ready(self.tasks[me].late(answer, only_asks))
            }
            Outcome::Parent(State::Ready(answer), child) => {
                Outcome::Parent(self.tasks[me].late(answer, only_asks), child)
            }
            Outcome::Ready(state @ State::Pending(Pending::StartTimeout(_))) => {
                self.tasks[me].let_through(only_asks);
                Outcome::Ready(state)
            }
            Outcome::Kill(victim) => match self.kill(me, victim) {
                true => Outcome::Ready(self.tasks[me].late(Reply::Yes.into(), only_asks)),
                false => Outcome::Over,
            },
            outcome @ (Outcome::Block(on) | Outcome::BlockOnTask(on)) => {
                self.settle_apart(me, call, outcome);
                return self.cut_new_wait(me, on, due);
            }
            Outcome::Blocked => match *self.tasks[me].state() {
                State::Blocked(on) => return self.cut_new_wait(me, on, due),
                _ => unreachable!("its handler has blocked it"),
            },
            outcome => outcome,
        };
        self.settle_apart(me, call, outcome);
    }

    /// Cuts a wait that has just begun.
    #[cold]
    fn cut_new_wait(&mut self, me: Runnable, on: WaitingOn, due: Due) {
        self.tasks[me].set_due(None);
        self.cut_blocked(me, on, due.number);
        self.run_deferred_of_cut(me);
    }

    /// Cuts another task, or the caller itself, for a cancel or a deadline that has passed. A destructor
    /// of a message may kill the caller.
    #[cold]
    fn cut_by_call(&mut self, me: Runnable, call: SystemCall, task: Runnable, number: u64) {
        self.fire(task, number);
        self.run_deferred_of_cut(task);
        let reply = match call {
            SystemCall::Cancel(_) => Reply::Yes,
            _ => Reply::Done,
        };
        if let Some(caller) = self.tasks.get_mut(me).filter(|task| task.is_live()) {
            let late = caller.late(reply.into(), false);
            self.reply(me, call, late);
        }
    }

    /// Handles what the message of a call that was cut has deferred. Later it would be part of another
    /// task's turn.
    #[cold]
    fn run_deferred_of_cut(&mut self, me: Runnable) {
        if self.frame.has_deferred() {
            self.run_deferred(me);
        }
    }

    #[inline(always)]
    fn settle(&mut self, me: Runnable, call: SystemCall, outcome: Outcome) {
        match outcome {
            Outcome::Ready(state) => self.reply(me, call, state),
            Outcome::Answered => self.replied(me, call),
            Outcome::Parent(state, child) => {
                self.reply(me, call, state);
                self.enqueue(child, Cause::Spawned);
            }
            Outcome::Block(on) => self.block(me, on),
            Outcome::BlockOnTask(on) => self.block_on_task(me, on),
            Outcome::Cut(task, number) => self.cut_by_call(me, call, task, number),
            // It has chosen the moment, so it poisons no lock.
            Outcome::Exit(exit) => self.end_as(me, &exit, false),
            Outcome::Die(exit) => self.end(me, &exit),
            Outcome::Kill(victim) => {
                if self.kill(me, victim) {
                    self.reply(me, call, Reply::Yes.into());
                }
            }
            Outcome::Injected(inject) => self.settle_injected(me, call, inject),
            Outcome::Blocked | Outcome::Over => {}
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_apart(&mut self, me: Runnable, call: SystemCall, outcome: Outcome) {
        self.settle(me, call, outcome);
    }

    /// Kills or cuts the caller, before its call has an effect or once that is made. The cut is that of the
    /// innermost timeout, as if it had fired.
    #[cold]
    #[inline(never)]
    fn settle_injected(&mut self, me: Runnable, call: SystemCall, inject: Inject) {
        let innermost = self.tasks[me].timeouts().last().copied();
        let is_within = inject != Inject::Cut;
        if is_within {
            let outcome = self.handle(me, call);
            self.settle_apart(me, call, outcome);
        }
        if !self.tasks.is_live(me) {
            return;
        }
        if inject == Inject::KillIn {
            return self.end(me, &Exit::Killed);
        }
        let mut armed = self.tasks[me].timeouts();
        let Some(timer) = innermost.filter(|timer| armed.any(|it| it == timer)) else {
            return;
        };
        drop(armed);
        self.timers.of(me).disarm(timer);
        self.fire(me, timer.1);
        if is_within {
            return self.run_deferred_of_cut(me);
        }
        match self.tasks[me].due() {
            Some(due) => {
                self.poisoning(|kernel| kernel.abandon(call));
                let cut = self.cut(me, due.number);
                self.settle_apart(me, call, cut);
                self.run_deferred_of_cut(me);
            }
            // A shield holds it back.
            None => {
                let outcome = self.handle(me, call);
                self.settle_apart(me, call, outcome);
            }
        }
    }

    /// Kills the task that is to break the cycle of waits that this closes.
    fn block_on_task(&mut self, me: Runnable, on: WaitingOn) {
        self.block(me, on);
        if let Some(victim) = self.follow_wait(me, on) {
            self.end(victim, &Exit::Killed);
        }
    }

    #[inline(always)]
    fn reply(&mut self, me: Runnable, call: SystemCall, state: State) {
        self.tasks[me].answer(state);
        self.replied(me, call);
    }

    #[inline(always)]
    fn replied(&mut self, me: Runnable, call: SystemCall) {
        if self.is_seen(me.tid) {
            self.emit_answer_of(me, call);
        }
        self.requeue(me, call);
    }
}
