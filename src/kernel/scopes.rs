//! Scopes and shields: timeouts that other tasks may let fire, and parts of a body that hold them back.
//!
//! The scopes and shields are those of trio.

use std::rc::Rc;

use super::{Kernel, outcome::Outcome, task::Pending, timers::Timer};
use crate::{
    abi::{Errno, Exit, Nanos, QueueId, Reply, Tid},
    sched::Runnable,
    trap::{Object, Payload, ScopeState},
};

/// Why a task is faulted that runs a scope twice at once.
const TWICE: &str = "a scope is run while a run of it is under way: make one for each run";

impl Kernel {
    fn take_scope(&self) -> Option<Rc<ScopeState>> {
        match self.frame.take() {
            Some(Payload::Scope(scope)) => Some(scope),
            _ => None,
        }
    }

    /// Begins a scope: a timeout with its deadline, which others may move or let fire.
    #[cold]
    #[inline(never)]
    pub(super) fn scope(&mut self, me: Runnable) -> Outcome {
        let Some(scope) = self.take_scope() else {
            return Errno::Invalid.into();
        };
        if scope.under_way.get().is_some() {
            return Outcome::Die(Exit::Faulted(TWICE.into()));
        }
        let timer = self.timers.of(me).reserve(scope.deadline.get());
        scope.under_way.set(Some((me.tid, timer.1)));
        self.tasks[me].guards_mut().begin_scope(timer.1, scope);
        Outcome::Ready(Pending::StartTimeout(timer).into())
    }

    /// Cancels a scope; or the outermost one of a task that is not cancelled.
    #[cold]
    #[inline(never)]
    pub(super) fn cancel(&mut self, me: Runnable, tid: Tid) -> Outcome {
        let run = match self.take_scope() {
            Some(scope) => {
                scope.is_cancelled.set(true);
                self.run_of(&scope)
            }
            None => {
                let task = self.tasks.find_live(tid);
                let guards = task.and_then(|task| self.tasks[task].guards());
                let Some((number, scope)) = guards.and_then(|all| all.outermost_scope()) else {
                    return Reply::No.into();
                };
                scope.is_cancelled.set(true);
                Some((tid, number))
            }
        };
        if let Some((task, timer)) = run.and_then(|run| self.armed(run)) {
            self.timers.of(task).disarm(timer);
            return Outcome::Cut(task, timer.1);
        }
        Outcome::Ready(self.tasks[me].late(Reply::Yes.into(), false))
    }

    /// Moves the deadline of a scope.
    #[cold]
    #[inline(never)]
    pub(super) fn set_deadline(&mut self, me: Runnable, deadline: Nanos) -> Outcome {
        let Some(scope) = self.take_scope() else {
            return Errno::Invalid.into();
        };
        scope.deadline.set(deadline);
        let run = self.run_of(&scope);
        if let Some((task, timer)) = run.and_then(|run| self.armed(run)) {
            let moved = (deadline, timer.1);
            self.timers.of(task).remove(timer);
            self.tasks[task].move_timeout(timer, moved);
            if deadline <= self.clock {
                return Outcome::Cut(task, timer.1);
            }
            self.timers.of(task).start(moved, task.slot);
            if deadline == Nanos::FOREVER {
                self.follow_untimed(task);
            }
        }
        Outcome::Ready(self.tasks[me].late(Reply::Done.into(), false))
    }

    /// Returns the run of a scope that is under way: its task, and the number of its timeout. That of
    /// another kernel is none.
    fn run_of(&self, scope: &ScopeState) -> Option<(Tid, u64)> {
        let (tid, number) = scope.under_way.get()?;
        let guards = self.tasks[self.tasks.find_live(tid)?].guards()?;
        let is_it = |other: &ScopeState| std::ptr::eq(other, scope);
        guards
            .scope(number)
            .filter(|other| is_it(other))
            .map(|_| (tid, number))
    }

    /// Returns the timer of a run that is armed: not begun yet it is not, nor fired.
    fn armed(&self, (tid, number): (Tid, u64)) -> Option<(Runnable, Timer)> {
        let task = self.tasks.find_live(tid)?;
        let mut armed = self.tasks[task].timeouts();
        let timer = armed.find(|timer| timer.1 == number)?;
        Some((task, *timer))
    }

    /// Returns the deadline of a timeout that begins: that of its scope may have moved since the call.
    /// A scope whose deadline has passed is cancelled.
    #[cold]
    #[inline(never)]
    pub(super) fn deadline_of(&self, me: Runnable, timer: Timer) -> Nanos {
        let guards = self.tasks[me].guards();
        let Some(scope) = guards.and_then(|all| all.scope(timer.1)) else {
            return timer.0;
        };
        if scope.deadline.get() <= self.clock && self.tasks[me].due().is_none() {
            self.frame.touch(Object::Scopes, true);
            scope.is_cancelled.set(true);
        }
        match scope.is_cancelled.get() {
            true => Nanos::ZERO,
            false => scope.deadline.get(),
        }
    }

    /// Handles a timeout that fires among scopes and shields: a scope is cancelled, and a shield holds
    /// what is around it back. Returns whether one does.
    #[cold]
    #[inline(never)]
    pub(super) fn is_held_back(&mut self, me: Runnable, number: u64) -> bool {
        let guards = self.tasks[me].guards_mut();
        if let Some(scope) = guards.scope(number) {
            self.frame.touch(Object::Scopes, true);
            scope.is_cancelled.set(true);
        }
        let Some((within, queue)) = guards.hold_back(number) else {
            return false;
        };
        for timer in within {
            self.timers.of(me).disarm(timer);
        }
        self.tell_body(queue);
        true
    }

    #[cold]
    #[inline(never)]
    pub(super) fn shield(&mut self, me: Runnable) -> Outcome {
        let queue = self.frame.take_word().map_or(QueueId::NONE, QueueId);
        let (_, number) = self.timers.of(me).reserve(Nanos::FOREVER);
        if self.tasks[me].guards_mut().enter_shield(number, queue) {
            self.tell_body(queue);
        }
        Reply::Timeout(number).into()
    }

    /// Tells the body of a shield that a timeout waits for its end, if it has asked for that.
    fn tell_body(&mut self, queue: QueueId) {
        if queue != QueueId::NONE {
            self.touch_queue(queue);
            self.close_queue(queue);
        }
    }

    /// Leaves a shield. What it has held back is due now.
    #[cold]
    #[inline(never)]
    pub(super) fn unshield(&mut self, me: Runnable, number: u64) -> Outcome {
        if let Some(task) = self.tasks.get_mut(me)
            && task.is_guarded()
        {
            task.guards_mut().leave_shield(number);
        }
        Reply::Done.into()
    }
}
