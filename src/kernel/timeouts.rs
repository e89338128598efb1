//! Sleeps and timeouts: what a timer does to its task.
//!
//! A timeout that fires while its task is blocked cuts the call. If the call is answered already,
//! the task receives the answer, and the timeout cuts the task's next call before its effect. (The
//! rule of trio and tokio: a completed call wins.) The empty answer of a yield or a sleep is
//! replaced at once. A timeout that comes between two calls lets one answer through, and before it
//! a few calls that only ask. So timeouts nest, and a function may ask for the time first.

use super::{
    Kernel,
    answer::Answer,
    deadlines::{Due, Timeouts},
    held::Ticket,
    outcome::Outcome,
    queues::MessageQueue,
    task::{Fired, Pending, State, Task, WaitingOn},
    timers::Timer,
};
use crate::{
    abi::{Errno, Nanos, Reply, SystemCall},
    log::Wake,
    sched::{Runnable, Slot},
    trap::Object,
};

impl Kernel {
    #[inline(always)]
    pub(super) fn sleep(&mut self, me: Runnable, span: Nanos) -> Outcome {
        let now = Nanos::from(self.world.now());
        self.sleep_until(me, now, now.saturating_add(span))
    }

    #[inline(always)]
    pub(super) fn sleep_until(&mut self, me: Runnable, now: Nanos, deadline: Nanos) -> Outcome {
        if deadline <= now {
            return Answer::SLEPT.into();
        }
        let timer = self.timers.of(me).arm(deadline, me.slot);
        Outcome::Block(WaitingOn::Timer(timer))
    }

    /// Lets a new task wait for its timer, even if that is due.
    pub(super) fn sleep_newborn(&mut self, task: Runnable, span: Nanos) {
        self.touch_clock();
        let deadline = Nanos::from(self.world.now()).saturating_add(span);
        let timer = self.timers.of(task).arm(deadline, task.slot);
        self.block(task, WaitingOn::Timer(timer));
    }

    /// Daemons need no processor: they sleep.
    pub(super) fn compute(&mut self, me: Runnable, span: Nanos) -> Outcome {
        match span {
            _ if me.tid.is_daemon() => self.sleep(me, span),
            Nanos::ZERO => Answer::SLEPT.into(),
            span => Outcome::Ready(Pending::Compute(span).into()),
        }
    }

    pub(super) fn timeout(&mut self, me: Runnable, span: Nanos) -> Outcome {
        // Without a body to drop, no code could continue after the cut.
        if self.frame.take_word().is_none() {
            return Errno::Invalid.into();
        }
        // A span of zero is due at the time of the last poll.
        let from = if span == Nanos::ZERO {
            self.clock
        } else {
            self.world.now().into()
        };
        let timer = self.timers.of(me).reserve(from.saturating_add(span));
        Outcome::Ready(Pending::StartTimeout(timer).into())
    }

    /// Starts a timeout, immediately before its body begins.
    pub(super) fn start_timeout(&mut self, me: Runnable, timer: Timer) -> Reply {
        let (mut timer, number) = (timer, timer.1);
        self.touch_clock();
        if self.tasks[me].is_guarded() {
            timer.0 = self.deadline_of(me, timer);
        }
        if self.tasks[me].due().is_some() {
            // An outer timeout is due, and cuts first.
            self.frame.set_due();
        } else if timer.0 <= self.clock {
            self.tasks[me].set_due(Some(Due::new(number, false)));
            self.frame.set_due();
        } else {
            self.timers.of(me).start(timer, me.slot);
            self.tasks[me].arm(timer);
        }
        Reply::Timeout(number)
    }

    #[inline]
    pub(super) fn fire_timers(&mut self) {
        let holds_tasks = self.world.holds_tasks();
        while let Some((timer, slot)) = self.timers.pop_due(self.clock, holds_tasks) {
            self.alarm(timer, slot);
        }
    }

    fn alarm(&mut self, timer: Timer, slot: Slot) {
        if slot == Slot::LAST {
            self.touch(Object::All);
            return self.signals.fire(timer);
        }
        let me = self.tasks.runnable(slot);
        match *self.tasks[me].state() {
            State::Blocked(WaitingOn::Timer(slept)) if slept == timer => {
                self.wake(me, Wake::Timer, Answer::SLEPT);
            }
            State::Blocked(WaitingOn::Delay(delay)) if delay == timer => {
                self.wake(me, Wake::Timer, Pending::Held(Ticket::Delay(delay.1)));
            }
            _ => {
                // What it cuts depends on what its task does now.
                self.touch(Object::All);
                if self.selects.are_none() || !self.alarm_select(me, timer) {
                    self.fire(me, timer.1);
                }
            }
        }
    }

    /// Handles a timeout that has fired. Disarms those within it, since it cuts first.
    pub(super) fn fire(&mut self, me: Runnable, number: u64) {
        if self.tasks[me].is_guarded() && self.is_held_back(me, number) {
            return;
        }
        let task = &mut self.tasks[me];
        for within in task.take_timeouts(number).into_iter().flatten().skip(1) {
            self.timers.of(me).disarm(within);
        }
        match task.fire(number) {
            Fired::Wait(on) => self.cut_blocked(me, on, number),
            Fired::Computation => self.cut_computing(me, number),
            Fired::Answer => self.emit_answer(me),
            Fired::Next => {}
        }
    }

    pub(super) fn cut_blocked(&mut self, me: Runnable, on: WaitingOn, number: u64) {
        self.poisoning(|kernel| kernel.cancel_wait(me, on));
        self.wake(me, Wake::Timeout, Reply::Elapsed(number));
    }

    pub(super) fn takes_lock(&self, call: SystemCall) -> bool {
        let (SystemCall::Get(queue) | SystemCall::Take(queue)) = call else {
            return false;
        };
        self.queues.get(queue).is_some_and(MessageQueue::is_lock)
    }

    pub(super) fn cut(&mut self, me: Runnable, number: u64) -> Outcome {
        self.tasks[me].set_due(None);
        Reply::Elapsed(number).into()
    }

    /// Returns the timeout that is due around the call of the running task. It may have cut an
    /// earlier call whose future was dropped.
    pub(super) fn due(&self, me: Runnable) -> Option<Due> {
        let unheard = || Some(Due::new(self.frame.elapsed.take()?, true));
        self.tasks[me].due().or_else(unheard)
    }

    pub(super) fn disarm(&mut self, me: Runnable, number: u64) {
        let timers = self.timers.of(me);
        if let Some(timeouts) = self.tasks.get_mut(me).and_then(Task::timeouts_mut) {
            timeouts.end(number, |timer| timers.disarm(timer));
        }
    }

    pub(super) fn disarm_all(&mut self, me: Runnable) {
        if let Some(timeouts) = self.tasks[me].take_all_timeouts() {
            self.disarm_taken(me, *timeouts);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn disarm_taken(&mut self, me: Runnable, mut timeouts: Timeouts) {
        timeouts.end_scopes(None);
        self.touch_clock();
        for timer in timeouts.armed {
            self.timers.of(me).disarm(timer);
        }
    }
}
