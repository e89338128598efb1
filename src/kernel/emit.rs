//! Events for the log, and the calls that attach and detach tracers.

use std::{borrow::Cow, io, time::Duration};

use super::{
    Kernel,
    answer::Beside,
    outcome::Outcome,
    task::{Pending, State},
};
use crate::{
    abi::{DeviceId, Direction, Errno, Exit, Place, Reply, SystemCall, Tid},
    log::{Detail, Fact, Log, Wake},
    panic::contain,
    sched::Runnable,
    trap::Payload,
};

impl Kernel {
    #[inline(always)]
    pub(super) fn is_seen(&self, tid: Tid) -> bool {
        self.log.is_observed() && !tid.is_daemon()
    }

    /// Emits a fact with the current time.
    #[inline(always)]
    pub(super) fn emit<'a>(&mut self, tid: Tid, fact: impl FnOnce() -> Fact<'a>) {
        if self.is_seen(tid) {
            self.read_clock();
            self.log.emit(tid, fact());
        }
    }

    /// Emits a fact with the time of the previous one, from which it follows at once.
    #[inline(always)]
    pub(super) fn emit_at_once<'a>(&mut self, tid: Tid, fact: impl FnOnce() -> Fact<'a>) {
        if self.is_seen(tid) {
            self.emit_slept();
            self.log.emit(tid, fact());
        }
    }

    #[cold]
    pub(super) fn emit_spawned(&mut self, task: Runnable, parent: Option<Runnable>) {
        if !task.tid.is_daemon() {
            self.read_clock();
            let parent = parent.map_or(Tid::KERNEL, |parent| parent.tid);
            let name = Cow::Borrowed(&**self.tasks[task].name());
            let place = self.tasks[task].spawned().map(Place::from);
            self.log
                .emit_at(task.tid, Fact::Spawned { parent, name }, place);
        }
    }

    #[cold]
    pub(super) fn emit_exited(&mut self, tid: Tid, exit: &Exit, place: Option<Place>) {
        if !tid.is_daemon() {
            self.read_clock();
            let exit = exit.clone();
            self.log.emit_at(tid, Fact::Exited { exit }, place);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn emit_reaped(&mut self, tid: Tid) {
        self.emit(tid, || Fact::Reaped);
    }

    /// Emits what an attempt at a device came to.
    #[cold]
    #[inline(never)]
    pub(super) fn emit_io(
        &mut self,
        tid: Tid,
        device: DeviceId,
        direction: Direction,
        result: Result<usize, io::ErrorKind>,
    ) {
        self.emit(tid, || Fact::DeviceIo {
            device,
            direction,
            result,
        });
    }

    /// Emits that a task has blocked, and where in the source its call was made.
    #[cold]
    #[inline(never)]
    pub(super) fn emit_blocked(&mut self, me: Runnable) {
        if let State::Blocked(on) = *self.tasks[me].state() {
            self.emit_slept();
            let place = self.tasks[me].place_of_wait(on);
            self.log
                .emit_at(me.tid, Fact::Blocked { on: on.into() }, place);
        }
    }

    /// Emits that a task is woken, and its answer.
    #[cold]
    #[inline(never)]
    pub(super) fn emit_woken(&mut self, task: Runnable, by: Wake) {
        self.emit(task.tid, || Fact::Woken { by });
        self.emit_answer(task);
    }

    /// Reads the clock for the next fact, if a tracer asks for exact times.
    pub(super) fn read_clock(&mut self) {
        self.emit_slept();
        if self.log.is_exact() {
            let now = self.world.now_for_log();
            self.log.set_clock(now);
        }
    }

    /// Reads the clock after work within a call: its time belongs to the call, not to the next turn.
    #[inline(always)]
    pub(super) fn time_passed(&mut self, tid: Tid) {
        if self.is_seen(tid) {
            self.read_clock();
        }
    }

    pub(super) fn keep_slept(&mut self, before: Duration, now: Duration) {
        if now > before && self.log.is_observed() {
            let from = self.slept.map_or(before, |(from, _)| from);
            self.slept = Some((from, now));
        }
    }

    /// Emits the last wait. It is emitted late, before the next fact of a task, because turns of
    /// daemons do not divide it in two.
    #[inline(always)]
    pub(super) fn emit_slept(&mut self) {
        emit_slept(&mut self.log, &mut self.slept);
    }

    /// Emits a call with which nothing travels.
    #[inline(always)]
    pub(super) fn emit_bare_call(&mut self, tid: Tid, call: SystemCall) {
        self.emit(tid, || Fact::Trapped {
            call,
            detail: Detail::None,
        });
    }

    #[inline(always)]
    pub(super) fn emit_call(&mut self, tid: Tid, call: SystemCall) {
        if self.log.is_observed() {
            if self.frame.has_payload() {
                return self.emit_call_with_payload(tid, call);
            }
            let detail = self.frame.detail(call);
            self.emit(tid, || Fact::Trapped { call, detail });
        }
    }

    /// The payload leaves its cell while tracers read it. Moving it takes 100 instructions.
    #[cold]
    fn emit_call_with_payload(&mut self, tid: Tid, call: SystemCall) {
        let beside = self.frame.take_parcel();
        self.emit(tid, || Fact::Trapped {
            call,
            detail: beside.detail(call),
        });
        self.frame.put_parcel(beside);
    }

    #[inline(always)]
    pub(super) fn emit_reply<'a>(
        &mut self,
        tid: Tid,
        reply: Reply,
        detail: impl FnOnce() -> Detail<'a>,
    ) {
        self.emit_at_once(tid, || Fact::Replied {
            reply,
            detail: detail(),
        });
    }

    /// Emits the answer of a task that is ready, if it is known by now.
    #[inline(always)]
    pub(super) fn emit_answer(&mut self, task: Runnable) {
        if self.is_seen(task.tid) {
            self.emit_answer_in_full(task);
        }
    }

    /// The same for the answer that ends a call.
    #[cold]
    #[inline(never)]
    pub(super) fn emit_answer_of(&mut self, task: Runnable, call: SystemCall) {
        // A call on a queue moves a message, which takes less time than to read the clock.
        if call.queue().is_none() {
            self.read_clock();
        }
        self.emit_answer_in_full(task);
    }

    #[cold]
    fn emit_answer_in_full(&mut self, task: Runnable) {
        let answer = match self.tasks[task].state() {
            State::Ready(answer) => answer,
            State::Late(answer) => answer,
            // It starts at the task's next turn, but its number is known.
            State::Pending(Pending::StartTimeout((_, number))) => &Reply::Timeout(*number).into(),
            _ => return,
        };
        emit_slept(&mut self.log, &mut self.slept);
        let (reply, detail) = match answer.beside {
            Beside::Queue(queue) if !self.frame.mailboxes.are_none() => (
                answer.reply,
                self.frame.mailboxes.detail(answer.reply, queue),
            ),
            _ => (answer.reply, answer.detail()),
        };
        self.log.emit(task.tid, Fact::Replied { reply, detail });
    }

    pub(super) fn observe(&mut self, number: u64) -> Outcome {
        let Some(Payload::Tracer(tracer)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        self.log.attach(number, tracer);
        self.note_tracers();
        Reply::Done.into()
    }

    pub(super) fn unobserve(&mut self, number: u64) -> Outcome {
        contain(|| self.log.detach(number));
        self.note_tracers();
        Reply::Done.into()
    }

    /// Notes whether there are tracers.
    pub(super) fn note_tracers(&mut self) {
        let is_observed = self.log.is_observed();
        self.frame.set_observed(is_observed);
        self.is_watched = is_observed || self.published.is_some();
    }
}

/// Tells tracers that a turn has begun. Apart from the kernel, whose task is at hand.
#[cold]
#[inline(never)]
pub(super) fn emit_resumed(log: &mut Log, slept: &mut Option<(Duration, Duration)>, tid: Tid) {
    if !tid.is_daemon() {
        emit_slept(log, slept);
        log.emit(tid, Fact::Resumed);
    }
}

#[inline(always)]
fn emit_slept(log: &mut Log, slept: &mut Option<(Duration, Duration)>) {
    if let Some((from, to)) = *slept {
        *slept = None;
        emit_jump(log, from, to);
    }
}

#[cold]
#[inline(never)]
fn emit_jump(log: &mut Log, from: Duration, to: Duration) {
    log.set_clock(to);
    log.emit(Tid::KERNEL, Fact::ClockJumped { from });
}
