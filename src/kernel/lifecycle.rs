//! Birth and end of a task.

use std::rc::Rc;

use super::{
    Kernel,
    answer::Answer,
    held::Ticket,
    report::Verdict,
    task::{OnExit, State, WaitingOn},
    waiters::Waiters,
};
use crate::{
    abi::{Errno, Exit, Place, Tid},
    log::{Fact, Wake, tracing::warn_of},
    sched::{Cause, Runnable},
    trap::{Object, Program, Start},
};

impl Kernel {
    /// Adds a task. It starts as `start` says.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] at the limit; the program is dropped.
    pub(super) fn admit(
        &mut self,
        name: Rc<str>,
        program: Program,
        parent: Option<Runnable>,
        on_exit: OnExit,
        is_daemon: bool,
        start: Start,
    ) -> Result<Runnable, Errno> {
        if !is_daemon && self.tasks.live() >= self.limits.tasks {
            self.drop_apart(program);
            return Err(Errno::TooManyTasks);
        }
        let task = self.tasks.insert(name, program, parent, on_exit, is_daemon);
        if self.shares.are_used() {
            self.shares.inherit(task, parent, &self.tasks[task].name);
        }
        let place = self.frame.place();
        self.places.spawned(task, place);
        if let Some(published) = &mut self.published {
            published.spawned(task, &self.tasks[task].name, place);
        }
        if self.frame.is_noted() {
            self.note_birth(task.tid, parent, on_exit);
        }
        self.stats.peak_tasks = self.stats.peak_tasks.max(self.tasks.live());
        if self.log.is_observed() {
            let name = Rc::clone(&self.tasks[task].name);
            let place = self.places.of_spawn(task);
            let spawned = Fact::Spawned {
                parent: parent.map_or(Tid::KERNEL, |parent| parent.tid),
                name: (&*name).into(),
            };
            self.emit_at(task.tid, || spawned, place);
        }
        match start {
            Start::First => self.enqueue(task, Cause::Spawned),
            // `settle` puts it there, behind its parent.
            Start::Behind => {}
            Start::After(delay) => drop(self.sleep_newborn(task, delay)),
        }
        Ok(task)
    }

    /// Ends a live task, whatever its state.
    #[inline(always)]
    pub(super) fn end(&mut self, me: Runnable, exit: Exit) {
        let dies = matches!(exit, Exit::Killed | Exit::Faulted(_));
        self.end_as(me, exit, dies);
    }

    /// Ends a task that has called `exit`. It has chosen the moment, so it poisons no lock.
    pub(super) fn end_by_exit(&mut self, me: Runnable, exit: Exit) {
        self.end_as(me, exit, false);
    }

    #[inline(never)]
    fn end_as(&mut self, me: Runnable, exit: Exit, dies: bool) {
        self.teardown(me, dies);
        if self.frame.has_deferred() {
            self.run_deferred(me);
        }
        // Last, since a deferred call may kill a task that waits for this one, or its parent.
        self.publish_exit(me, exit);
    }

    /// The first half of an end: the task leaves every queue, and its program is dropped. If it
    /// `dies`, by a kill or a fault, this poisons the locks that it holds: their values may be half
    /// changed.
    #[inline(always)]
    pub(super) fn teardown(&mut self, me: Runnable, dies: bool) {
        self.frame.touch(Object::Life(me.tid), true);
        self.tasks.ended(me);
        let outer = self.frame.killing.replace(dies);
        match std::mem::replace(&mut self.tasks[me].state, State::Ending) {
            State::Running => {}
            state => self.unqueue(me, state),
        }
        self.ready.ended(me);
        if let Some(injection) = &mut self.injection {
            injection.ended(me.tid);
        }
        self.disarm_all(me);
        self.drop_program(me);
        self.frame.killing.set(outer);
    }

    /// The second half of an end: the waiters wake, and the children become orphans.
    #[inline(always)]
    pub(super) fn publish_exit(&mut self, me: Runnable, exit: Exit) {
        if self.frame.is_noted() {
            self.note_end(me, self.tasks[me].on_exit);
        }
        let task = &mut self.tasks[me];
        task.change(State::zombie(&exit));
        let waiters = task.waiters.take();
        let place = self.places.take_fault(me.tid);
        if let Exit::Failed(_) | Exit::Faulted(_) = exit {
            self.note_failure(me, &exit, waiters.as_deref(), place.as_ref());
        }
        let exited = || Fact::Exited { exit: exit.clone() };
        self.emit_at(me.tid, exited, place);
        let answered = waiters.as_ref().is_some_and(|all| !all.is_empty());
        if let Some(mut waiters) = waiters {
            while let Some(waiter) = waiters.pop() {
                self.wake(waiter, Wake::Exit(me.tid), Answer::exit(exit.clone()));
            }
            let keeper = waiters.keeper.take();
            self.tasks.spare(waiters);
            if let Some((queue, message)) = keeper.and_then(|keeper| keeper.ended(me.tid, &exit)) {
                self.put_for_keeper(queue, message);
            }
        }
        while let Some(child) = self.tasks.release_child(me) {
            let orphan = &mut self.tasks[child];
            orphan.on_exit = OnExit::Nothing;
            if let State::Zombie(_) = orphan.state {
                self.reap(child);
            }
        }
        match self.tasks[me].on_exit {
            OnExit::Zombie if !answered => return,
            OnExit::Zombie | OnExit::Nothing => {}
            OnExit::Report => self.stats.exits.insert(me.tid, exit),
        }
        self.reap(me);
    }

    /// Counts a task that failed or faulted, and warns of it.
    #[cold]
    #[inline(never)]
    fn note_failure(
        &mut self,
        me: Runnable,
        exit: &Exit,
        waiters: Option<&Waiters>,
        place: Option<&Place>,
    ) {
        let task = &self.tasks[me];
        warn_of(me.tid, &task.name, exit, place);
        if !me.tid.is_daemon() {
            let verdict = Verdict::of(task, waiters);
            self.stats
                .note_failure(me.tid, &task.name, exit, place, verdict);
        }
    }

    /// Takes a task out of its queue. An answer that it has not received goes back to its source.
    fn unqueue(&mut self, me: Runnable, state: State) {
        match state {
            State::Running | State::Ending | State::Zombie(_) => {}
            State::Ready(_) | State::Late(_) | State::Pending(_) => {
                if !matches!(state, State::Pending(_)) {
                    self.note_answer_lost(me);
                }
                self.leave_ready(me);
                self.take_back(state);
            }
            State::Computing => drop(self.stop_computing(me)),
            State::Blocked(on) => self.cancel_wait(me, on),
        }
    }

    /// Takes a blocked task out of the queue in which it waits.
    pub(super) fn cancel_wait(&mut self, me: Runnable, on: WaitingOn) {
        match on {
            WaitingOn::Exit(target) => {
                self.frame.touch(Object::Cycles, true);
                self.frame.touch(Object::Waits(target.tid), true);
                self.frame.touch(Object::Exit(target.tid), true);
                if let Some(waiters) = &mut self.tasks[target].waiters {
                    waiters.remove(me);
                }
            }
            WaitingOn::Timer(timer) => self.timers.of(me).disarm(timer),
            WaitingOn::Device(device, direction, _) => {
                self.frame.touch(Object::World, true);
                self.devices.leave(device, direction, me);
            }
            WaitingOn::Queue(queue, end) => self.leave_queue(me, queue, end),
            WaitingOn::Console(ticket) => {
                *self.devices.waiting_like(me) -= 1;
                self.drop_held(Ticket::Console(ticket));
            }
            WaitingOn::Delay(timer) => {
                self.timers.of(me).disarm(timer);
                self.drop_held(Ticket::Delay(timer.1));
            }
        }
    }

    /// Removes a zombie from the table, and returns its exit.
    pub(super) fn reap(&mut self, me: Runnable) -> Exit {
        self.emit(me.tid, || Fact::Reaped);
        if let Some(published) = &self.published {
            published.reaped(me.tid);
        }
        match self.tasks.remove(me) {
            State::Zombie(None) => Exit::Done,
            State::Zombie(Some(exit)) => {
                self.stats.reaped(me.tid);
                *exit
            }
            other => unreachable!("reaped a task that is {other:?}"),
        }
    }
}
