//! Scopes and shields: timeouts that other tasks may let fire, and parts of a body that hold them back.
//!
//! The scopes and shields are those of trio.

use std::rc::Rc;

use super::{Kernel, outcome::Outcome, task::Pending, timers::Timer};
use crate::{
    abi::{Errno, Exit, Nanos, Reply, Tid},
    sched::Runnable,
    trap::{Payload, ScopeState},
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
    pub(super) fn cancel(&mut self, me: Runnable, tid: Tid) -> Outcome {
        let run = match self.take_scope() {
            Some(scope) => {
                scope.is_cancelled.set(true);
                scope.under_way.get()
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
            self.fire(task, timer.1);
        }
        Outcome::Ready(self.tasks[me].late(Reply::Yes.into(), false))
    }

    /// Moves the deadline of a scope.
    pub(super) fn set_deadline(&mut self, me: Runnable, deadline: Nanos) -> Outcome {
        let Some(scope) = self.take_scope() else {
            return Errno::Invalid.into();
        };
        scope.deadline.set(deadline);
        let run = scope.under_way.get();
        if let Some((task, timer)) = run.and_then(|run| self.armed(run)) {
            let moved = (deadline, timer.1);
            self.timers.of(task).remove(timer);
            self.tasks[task].move_timeout(timer, moved);
            if deadline > self.clock {
                self.timers.of(task).start(moved, task.slot);
            } else {
                self.fire(task, timer.1);
            }
        }
        Outcome::Ready(self.tasks[me].late(Reply::Done.into(), false))
    }

    /// Returns the timer of a run that is armed: not begun yet it is not, nor fired.
    fn armed(&self, (tid, number): (Tid, u64)) -> Option<(Runnable, Timer)> {
        let task = self.tasks.find_live(tid)?;
        let mut armed = self.tasks[task].timeouts();
        let timer = armed.find(|timer| timer.1 == number)?;
        Some((task, *timer))
    }

    /// Marks that the scope of a timeout is cancelled, if it has one.
    pub(super) fn cancelled(&self, me: Runnable, number: u64) {
        let guards = self.tasks[me].guards();
        if let Some(scope) = guards.and_then(|all| all.scope(number)) {
            scope.is_cancelled.set(true);
        }
    }

    pub(super) fn shield(&mut self, me: Runnable) -> Outcome {
        let (_, number) = self.timers.of(me).reserve(Nanos::FOREVER);
        self.tasks[me].guards_mut().enter_shield(number);
        Reply::Timeout(number).into()
    }

    /// Leaves a shield. What it has held back is due now.
    pub(super) fn unshield(&mut self, me: Runnable, number: u64) -> Outcome {
        if let Some(task) = self.tasks.get_mut(me)
            && task.guards_mut().leave_shield(number)
        {
            self.frame.set_due();
        }
        Reply::Done.into()
    }
}
