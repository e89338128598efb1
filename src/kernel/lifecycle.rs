//! Birth and end of a task.

use std::rc::Rc;

use super::{
    Kernel,
    answer::Answer,
    failures::Standing,
    task::{OnExit, State, Task},
    waiters::Waiters,
};
use crate::{
    abi::{Errno, Exit, Tid},
    log::{Wake, tracing::warn_of},
    sched::{Cause, Runnable},
    trap::{Birth, Object, Program, Start},
};

impl Kernel {
    /// Adds a task. It starts as `start` says.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] at the limit; the program is dropped.
    #[inline(always)]
    pub(super) fn admit(
        &mut self,
        birth: Rc<Birth>,
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
        let task = self
            .tasks
            .insert(birth, program, parent, on_exit, is_daemon);
        if self.shares.are_used() {
            self.shares.inherit(task, parent, self.tasks[task].name());
        }
        if let Some(parent) = parent
            && self.stdio.are_used()
        {
            self.stdio.inherit(task.tid, parent.tid);
        }
        if let Some(published) = &mut self.published {
            let born = &self.tasks[task];
            published.spawned(task, born.name(), born.spawned());
        }
        if self.frame.is_noted() {
            self.note_birth(task.tid, parent, on_exit);
        }
        self.stats.peak_tasks = self.stats.peak_tasks.max(self.tasks.live());
        if self.log.is_observed() {
            self.emit_spawned(task, parent);
        }
        match start {
            Start::First => self.enqueue(task, Cause::Spawned),
            // `settle` puts it there, behind its parent.
            Start::Behind => {}
            Start::After(delay) => self.sleep_newborn(task, delay),
        }
        Ok(task)
    }

    #[inline(always)]
    pub(super) fn end(&mut self, me: Runnable, exit: &Exit) {
        let dies = matches!(exit, Exit::Killed | Exit::Faulted(_));
        self.end_as(me, exit, dies);
    }

    /// The same. A task that `dies` poisons the locks that it holds: their values may be half changed.
    #[inline(never)]
    pub(super) fn end_as(&mut self, me: Runnable, exit: &Exit, dies: bool) {
        self.teardown(me, dies);
        if self.frame.has_deferred() {
            self.run_deferred(me);
        }
        if self.stdio.are_used() {
            self.end_output(me);
        }
        // Last, since a deferred call may kill a task that waits for this one, or its parent.
        self.publish_exit(me, exit);
    }

    /// The first half of an end: the task leaves every queue, and its program is dropped.
    #[inline(always)]
    pub(super) fn teardown(&mut self, me: Runnable, dies: bool) {
        self.frame.touch(Object::Life(me.tid), true);
        self.tasks.ended(me);
        if !self.bounds.are_none() {
            self.leave_bounds(me);
        }
        if self.tasks.are_attendants() {
            self.stop_before_attendants();
        }
        let outer = self.frame.killing.replace(dies);
        let mut sent = None;
        match self.tasks[me].end() {
            State::Running => {}
            state => {
                sent = state.sent();
                self.unqueue(me, state);
            }
        }
        self.ready.ended(me);
        if let Some(injection) = &mut self.injection {
            injection.ended(me.tid);
        }
        let task = &mut self.tasks[me];
        let (timeouts, program) = (task.take_all_timeouts(), task.take_program());
        if let Some(timeouts) = timeouts {
            self.disarm_taken(me, *timeouts);
        }
        if let Some(program) = program {
            self.drop_replied(program, sent);
        }
        self.frame.killing.set(outer);
        if self.stdio.are_used() {
            self.stdio.leave_input(me.tid);
        }
    }

    /// The second half of an end: the waiters wake, and the children become orphans.
    #[inline(always)]
    pub(super) fn publish_exit(&mut self, me: Runnable, exit: &Exit) {
        if self.frame.is_noted() {
            self.note_end(me, self.tasks[me].on_exit);
        }
        let task = &mut self.tasks[me];
        let (has_children, on_exit) = (task.family().first_child.is_some(), task.on_exit);
        let waiters = task.bury(exit);
        if !matches!(exit, Exit::Done) || self.log.is_observed() {
            self.tell_exit(me, exit, waiters.as_deref());
        }
        let answered = waiters.is_some_and(|waiters| self.wake_waiters(me, exit, waiters));
        if has_children {
            self.release_children(me);
        }
        match on_exit {
            OnExit::Zombie if !answered => return,
            OnExit::Zombie | OnExit::Nothing => {}
            OnExit::Report => self.stats.ended(me.tid, exit),
        }
        self.reap_apart(me);
    }

    /// Wakes what has waited for the end of a task. Returns whether a task has.
    #[inline(never)]
    fn wake_waiters(&mut self, me: Runnable, exit: &Exit, mut waiters: Box<Waiters>) -> bool {
        let answered = !waiters.is_empty();
        while let Some(waiter) = waiters.pop() {
            let waiter = self.tasks.runnable(waiter);
            self.wake(waiter, Wake::Exit(me.tid), Answer::exit(exit.clone()));
        }
        if !waiters.selects.is_empty() {
            self.wake_selects(std::mem::take(&mut waiters.selects), Wake::Exit(me.tid));
        }
        let keeper = waiters.keeper.take();
        self.tasks.spare(waiters);
        if let Some((queue, message)) = keeper.and_then(|keeper| keeper.ended(me.tid, exit)) {
            self.put_for_keeper(queue, message);
        }
        answered
    }

    /// Makes the children orphans, and reaps those that are zombies.
    #[cold]
    #[inline(never)]
    fn release_children(&mut self, me: Runnable) {
        while let Some(child) = self.tasks.release_child(me) {
            if self.tasks[child].is_zombie() {
                self.reap_apart(child);
            }
        }
    }

    /// Counts a failure, and emits the end. Most tasks of most runs do neither.
    #[cold]
    #[inline(never)]
    fn tell_exit(&mut self, me: Runnable, exit: &Exit, waiters: Option<&Waiters>) {
        let place = self.faults.remove(&me.tid);
        if let Exit::Failed(_) | Exit::Faulted(_) = exit {
            let (task, at) = (&self.tasks[me], place.as_ref());
            warn_of(self.log.kernel().get(), me.tid, task.name(), exit, at);
            if !me.tid.is_daemon() {
                let standing = Standing::of(&self.tasks, task, waiters);
                self.stats
                    .count_failure(me.tid, task.name(), exit, at, standing);
            }
        }
        if self.log.is_observed() {
            self.emit_exited(me.tid, exit, place);
        }
    }

    /// Reaps a task whose exit no other task takes.
    #[inline(never)]
    fn reap_apart(&mut self, me: Runnable) {
        self.reap(me);
    }

    #[inline(always)]
    pub(super) fn reap(&mut self, me: Runnable) -> Exit {
        if self.is_seen(me.tid) {
            self.emit_reaped(me.tid);
        }
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

    /// Reaps a task if it is a zombie, for the last owner of its exit. Notes whether a task has
    /// waited for it.
    pub(super) fn give_up_exit(&mut self, tid: Tid, is_waited_for: bool) {
        if is_waited_for {
            self.stats.waited_for(tid);
        }
        if let Some(task) = self.tasks.find(tid)
            && self.tasks[task].is_zombie()
        {
            self.reap_apart(task);
        }
        self.stats.given_up(tid);
    }

    pub(super) fn end_all(&mut self, is_meant: impl Fn(&Task) -> bool) {
        if self.tasks.is_empty() {
            return;
        }
        for task in self.tasks.youngest_first() {
            // The destructors of another task may have ended this one.
            if self.tasks.is_live(task) && is_meant(&self.tasks[task]) {
                self.end(task, &Exit::Killed);
            }
        }
    }

    /// Stops the pass: the last task has ended that keeps the run alive. No daemon has another turn.
    #[cold]
    fn stop_before_attendants(&mut self) {
        self.touch(Object::All);
        self.poll_soon();
    }

    /// Ends the daemons of programs if no other task is left. Returns whether none is left at all: a
    /// destructor may have a host restart.
    #[inline(always)]
    pub(super) fn is_over(&mut self) -> bool {
        self.tasks.lasting() == 0 && self.end_attendants()
    }

    #[cold]
    #[inline(never)]
    fn end_attendants(&mut self) -> bool {
        while self.tasks.are_attendants() {
            self.end_all(|task| task.is_attendant);
        }
        self.tasks.live() == 0
    }

    /// Ends every task, and drops the messages left in queues.
    pub(super) fn end_everything(&mut self) {
        self.end_all(|_| true);
        self.frame.mailboxes.end();
        self.queues.clear();
        // Of destructors of the host and of messages.
        while self.frame.has_deferred() {
            self.run_deferred(Runnable::HOST);
        }
    }
}
