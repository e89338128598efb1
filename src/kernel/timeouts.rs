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
    deadlines::Due,
    held::Ticket,
    outcome::Outcome,
    queues::MessageQueue,
    task::{Pending, State, Task, WaitingOn},
    timers::Timer,
};
use crate::{
    abi::{Errno, Nanos, Reply, SystemCall},
    log::Wake,
    sched::{Runnable, Slot},
    trap::Object,
};

impl Task {
    /// Takes an armed timeout of the task, and then those within it.
    pub(super) fn take_timeouts(&mut self, number: u64) -> impl Iterator<Item = Timer> {
        let timeouts = self.timeouts.as_deref_mut().into_iter();
        timeouts.flat_map(move |timeouts| {
            let outer = timeouts.armed.iter();
            let outer = outer.take_while(|(_, other)| *other != number).count();
            timeouts.armed.drain(outer..)
        })
    }

    /// Returns the due timeout, if there is one.
    pub(super) fn due(&self) -> Option<Due> {
        self.timeouts.as_ref()?.due
    }

    /// Returns whether a timeout can end a wait of the task.
    pub(super) fn is_timed(&self) -> bool {
        self.timeouts.as_ref().is_some_and(|timeouts| {
            let ends = |(deadline, _): &Timer| *deadline != Nanos::FOREVER;
            timeouts.due.is_some() || timeouts.armed.iter().any(ends)
        })
    }

    pub(super) fn set_due(&mut self, due: Option<Due>) {
        self.timeouts.get_or_insert_default().due = due;
    }
}

impl Kernel {
    pub(super) fn time_now(&mut self) -> Nanos {
        self.world.now().into()
    }

    pub(super) fn sleep(&mut self, me: Runnable, span: Nanos) -> Outcome {
        let now = self.time_now();
        self.sleep_from(me, now, now.saturating_add(span))
    }

    /// Lets a new task wait for its timer, even if that is due.
    pub(super) fn sleep_newborn(&mut self, task: Runnable, span: Nanos) -> Outcome {
        let deadline = self.time_now().saturating_add(span);
        let on = WaitingOn::Timer(self.timers.of(task).arm(deadline, task.slot));
        self.block(task, on)
    }

    pub(super) fn sleep_until(&mut self, me: Runnable, deadline: Nanos) -> Outcome {
        let now = self.time_now();
        self.sleep_from(me, now, deadline)
    }

    fn sleep_from(&mut self, me: Runnable, now: Nanos, deadline: Nanos) -> Outcome {
        if deadline <= now {
            return Answer::SLEPT.into();
        }
        let on = WaitingOn::Timer(self.timers.of(me).arm(deadline, me.slot));
        self.block(me, on)
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
            self.time_now()
        };
        let timer = self.timers.of(me).reserve(from.saturating_add(span));
        Outcome::Ready(Pending::StartTimeout(timer).into())
    }

    /// Starts a timeout, immediately before its body begins.
    pub(super) fn start_timeout(&mut self, me: Runnable, timer: Timer) -> Reply {
        let (deadline, number) = timer;
        if self.tasks[me].due().is_some() {
            // An outer timeout is due, and cuts first.
            self.frame.set_due();
        } else if deadline <= self.clock {
            self.tasks[me].set_due(Some(Due::new(number)));
            self.frame.set_due();
        } else {
            self.timers.of(me).start(timer, me.slot);
            let timeouts = self.tasks[me].timeouts.get_or_insert_default();
            timeouts.armed.push(timer);
        }
        Reply::Timeout(number)
    }

    /// Handles the timers that are due.
    #[inline]
    pub(super) fn fire_timers(&mut self) {
        let holds_tasks = self.world.holds_tasks();
        while let Some((timer, slot)) = self.timers.pop_due(self.clock, holds_tasks) {
            self.alarm(timer, slot);
        }
    }

    /// Handles a timer that has fired: of a sleep, a delay or a timeout.
    pub(super) fn alarm(&mut self, timer: Timer, slot: Slot) {
        let me = self.tasks.runnable(slot);
        match self.tasks[me].state {
            State::Blocked(WaitingOn::Timer(slept)) if slept == timer => {
                self.wake(me, Wake::Timer, Answer::SLEPT);
            }
            State::Blocked(WaitingOn::Delay(delay)) if delay == timer => {
                self.wake(me, Wake::Timer, Pending::Held(Ticket::Delay(delay.1)));
            }
            _ => self.fire(me, timer.1),
        }
    }

    /// Handles a timeout that has fired. Disarms those within it, since it cuts first.
    fn fire(&mut self, me: Runnable, number: u64) {
        for within in self.tasks[me].take_timeouts(number).skip(1) {
            self.timers.of(me).disarm(within);
        }
        let task = &mut self.tasks[me];
        let mut due = Due::new(number);
        match &mut task.state {
            State::Computing | State::Pending(Pending::Compute(_)) => {
                return self.cut_computing(me, number);
            }
            State::Blocked(on) => {
                let on = *on;
                return self.cut_blocked(me, on, number);
            }
            State::Ready(answer) if answer.is_slept() => {
                task.change(Reply::Elapsed(number).into());
                return self.tell_answer(me);
            }
            State::Ready(answer) => {
                let answer = std::mem::replace(answer, Reply::Done.into());
                task.state = State::Late(Box::new(answer));
                due.spent = true;
            }
            State::Late(_) | State::Pending(Pending::StartTimeout(_)) => due.spent = true,
            State::Pending(_) => {}
            State::Running | State::Ending | State::Zombie(_) => {
                unreachable!("a task has timeouts while it lives and waits")
            }
        }
        task.set_due(Some(due));
    }

    fn cut_blocked(&mut self, me: Runnable, on: WaitingOn, number: u64) {
        self.poisoning(|kernel| kernel.cancel_wait(me, on));
        self.wake(me, Wake::Timeout, Reply::Elapsed(number));
    }

    /// Handles a call around which a timeout is due. The first call that completes at once receives
    /// its answer, and so do a few before it that only ask. Every other call is cut.
    #[cold]
    pub(super) fn handle_late(&mut self, me: Runnable, call: SystemCall, due: Due) -> Outcome {
        // Whether the call would block decides whether it is cut.
        self.frame.touch(Object::All, true);
        if due.spent {
            self.poisoning(|kernel| kernel.abandon(call));
            return self.cut(me, due.number);
        }
        let only_asks = call.only_asks() || self.takes_lock(call);
        match self.perform(me, call) {
            Outcome::Ready(State::Ready(answer)) if answer.is_slept() => self.cut(me, due.number),
            Outcome::Ready(State::Pending(Pending::Compute(_))) => self.cut(me, due.number),
            Outcome::Ready(State::Ready(answer)) => {
                Outcome::Ready(self.late(me, answer, only_asks))
            }
            Outcome::Parent(State::Ready(answer), child) => {
                Outcome::Parent(self.late(me, answer, only_asks), child)
            }
            Outcome::Ready(state @ State::Pending(Pending::StartTimeout(_))) => {
                self.let_through(me, only_asks);
                Outcome::Ready(state)
            }
            Outcome::Blocked => {
                if let State::Blocked(on) = self.tasks[me].state {
                    self.tasks[me].set_due(None);
                    self.cut_blocked(me, on, due.number);
                }
                Outcome::Blocked
            }
            outcome => outcome,
        }
    }

    /// Returns whether the call takes a lock.
    fn takes_lock(&self, call: SystemCall) -> bool {
        let SystemCall::Get(queue) = call else {
            return false;
        };
        self.queues.get(queue).is_some_and(MessageQueue::is_lock)
    }

    /// Returns the state of a task whose call is answered. A due timeout lets this answer through.
    pub(super) fn late(
        &mut self,
        me: Runnable,
        answer: impl Into<Answer>,
        only_asks: bool,
    ) -> State {
        let answer = answer.into();
        match self.let_through(me, only_asks) {
            true => State::Late(Box::new(answer)),
            false => answer.into(),
        }
    }

    /// Answers a call that a timeout cuts.
    pub(super) fn cut(&mut self, me: Runnable, number: u64) -> Outcome {
        self.tasks[me].set_due(None);
        Reply::Elapsed(number).into()
    }

    /// Returns the timeout that is due around the call of the running task. It may have cut an
    /// earlier call whose future was dropped.
    pub(super) fn due(&self, me: Runnable) -> Option<Due> {
        let unheard = || {
            let number = self.frame.elapsed.take()?;
            Some(Due::spent(number))
        };
        self.tasks[me].due().or_else(unheard)
    }

    /// Marks that a due timeout lets an answer through. Returns whether there is a due timeout.
    pub(super) fn let_through(&mut self, me: Runnable, only_asks: bool) -> bool {
        let Some(mut due) = self.tasks[me].due() else {
            return false;
        };
        due.let_through(only_asks);
        self.tasks[me].set_due(Some(due));
        true
    }

    /// Disarms a timeout and those within it.
    pub(super) fn disarm(&mut self, me: Runnable, number: u64) -> Outcome {
        if let Some(task) = self.tasks.get_mut(me) {
            if task.due().is_some_and(|due| due.number == number) {
                task.set_due(None);
            }
            for timer in task.take_timeouts(number) {
                self.timers.of(me).disarm(timer);
            }
        }
        Reply::Done.into()
    }

    /// Disarms the timeouts around the calls of a task that makes no more.
    #[inline]
    pub(super) fn disarm_all(&mut self, me: Runnable) {
        let Some(timeouts) = self.tasks[me].timeouts.take() else {
            return;
        };
        for timer in timeouts.armed {
            self.timers.of(me).disarm(timer);
        }
    }
}
