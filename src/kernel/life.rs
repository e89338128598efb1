//! Birth and death: how a task comes into the kernel, and everything that its end brings about.

use std::{rc::Rc, sync::Arc};

use super::{Kernel, contain};
use crate::{
    abi::{Direction, Errno, Exit, Nanos, Reply, Tid},
    event::{Fact, Wake},
    frame::Luggage,
    sched::{Cause, Runnable},
    task::{self, Answer, Legacy, Place, State},
    trace,
};

impl Kernel {
    pub(super) fn admit(
        &mut self,
        name: Rc<str>,
        program: task::Program,
        parent: Option<Runnable>,
        legacy: Legacy,
        is_daemon: bool,
        delay: Nanos,
    ) -> Result<Tid, Errno> {
        if !is_daemon && self.tasks.live() >= self.limits.tasks {
            self.drop_apart(program);
            return Err(Errno::TooManyTasks);
        }
        let task = self.tasks.insert(name, program, parent, legacy, is_daemon);
        self.stats.peak_tasks = self.stats.peak_tasks.max(self.tasks.live());
        self.log.emit(&mut *self.world, task.tid, || Fact::Spawned {
            parent: parent.map_or(Tid::KERNEL, |parent| parent.tid),
            name: &self.tasks[task].name,
        });
        if delay == Nanos::ZERO {
            self.ready.push(task, Cause::Spawned);
        } else {
            let _ = self.sleep(task, delay);
        }
        Ok(task.tid)
    }

    /// Ends a live task, whatever it is doing. What remains of it is its legacy.
    pub(super) fn end(&mut self, me: Runnable, exit: Exit) {
        self.strip(me, &exit);
        if self.frame.has_mail() {
            self.take_mail(me);
        }
        // Not before: the mail may have killed a task that waited for this one, or its parent.
        self.bury(me, exit);
    }

    /// The first half of a task's end: it leaves every queue, and its program is dropped.
    pub(super) fn strip(&mut self, me: Runnable, exit: &Exit) {
        let task = &mut self.tasks[me];
        let state = std::mem::replace(&mut task.state, State::Ending);
        let program = std::mem::replace(&mut task.program, task::ended());
        let timeouts = task.timeouts.take();
        self.tasks.ended(me);
        self.leave(me, &state);
        for timer in timeouts.into_iter().flat_map(|timeouts| *timeouts) {
            self.timers.of(me).disarm(timer);
        }
        // Locks that it held learn that nobody will set right what they protect. Who returns, or
        // asks for its end itself, had the time to.
        let dies = matches!(exit, Exit::Killed | Exit::Faulted(_));
        let outer = self.frame.killing.replace(dies);
        self.drop_apart(program);
        self.frame.killing.set(outer);
    }

    /// The second half: its waiters wake, and its children become orphans.
    pub(super) fn bury(&mut self, me: Runnable, exit: Exit) {
        let task = &mut self.tasks[me];
        task.state = State::Zombie(exit.clone().into());
        let waiters = task.waiters.take();
        if let Exit::Failed(_) | Exit::Faulted(_) = exit {
            self.stats.failures += u64::from(!me.tid.is_daemon());
            trace::warn_of(me.tid, &task.name, &exit);
        }
        self.log
            .emit(&mut *self.world, me.tid, || Fact::Exited { exit: &exit });
        let answered = waiters.as_ref().is_some_and(|waiters| !waiters.is_empty());
        for waiter in waiters.into_iter().flat_map(|waiters| *waiters) {
            self.wake(waiter, Wake::Exit(me.tid), exit.clone());
        }
        while let Some(child) = self.tasks.release_child(me) {
            let orphan = &mut self.tasks[child];
            orphan.legacy = Legacy::Nothing;
            if let State::Zombie(_) = orphan.state {
                self.reap(child);
            }
        }
        match self.tasks[me].legacy {
            Legacy::Zombie if !answered => {}
            Legacy::Zombie | Legacy::Nothing => drop(self.reap(me)),
            Legacy::Report => {
                Arc::make_mut(&mut self.stats.exits).insert(me.tid, exit);
                self.reap(me);
            }
        }
    }

    /// Takes a task out of whatever queue it is in. What it was to be answered goes back to where
    /// it came from.
    pub(super) fn leave(&mut self, me: Runnable, state: &State) {
        match *state {
            State::Running | State::Ending | State::Zombie(_) => {}
            State::Ready(_) | State::Owed(_) => {
                self.ready.remove(me);
                self.take_back(state);
            }
            State::Blocked(place) => self.vacate(me, place),
        }
    }

    /// Takes a blocked task out of the queue where it waits.
    pub(super) fn vacate(&mut self, me: Runnable, place: Place) {
        match place {
            Place::Exit(target) => self.tasks[target].forget_waiter(me),
            Place::Timer(timer) => self.timers.of(me).disarm(timer),
            Place::Device(device, direction, _) => self.devices.leave(device, direction, me),
            Place::Console(ticket) => {
                *self.devices.waiting_like(me) -= 1;
                self.drop_held(ticket);
            }
            Place::Queue(queue, end) => self.leave_queue(me, queue, end),
        }
    }

    /// Takes back an answer that will not be delivered.
    pub(super) fn take_back(&mut self, late: &State) {
        match *late {
            State::Owed(Answer::Opened(device, _)) => drop(self.close(device)),
            State::Owed(Answer::Read(device, _)) => self.devices.release(device, Direction::Read),
            State::Owed(Answer::Message(queue, message)) => self.give_back(queue, message),
            State::Owed(Answer::Full(queue, message) | Answer::Refused(queue, message)) => {
                self.discard(queue, message);
            }
            State::Owed(Answer::Held(ticket)) => self.drop_held(ticket),
            State::Ready(Reply::Queue(queue)) => drop(self.queues.remove(queue)),
            _ => {}
        }
    }

    /// Forgets a zombie. Answers what whoever asked about it is to be answered.
    pub(super) fn reap(&mut self, me: Runnable) -> Answer {
        self.log.emit(&mut *self.world, me.tid, || Fact::Reaped);
        match self.tasks.remove(me) {
            State::Zombie(answer) => answer,
            other => unreachable!("reaped a task that is {other:?}"),
        }
    }

    /// Ends every task, the youngest first.
    pub(super) fn end_all(&mut self) {
        for task in self.tasks.youngest_first() {
            // The end of another may have been the end of this one.
            if self.is_live(task) {
                self.end(task, Exit::Killed);
            }
        }
    }

    /// Drops a program whose destructors may begin traps of their own: the frame is kept from them.
    pub(super) fn drop_apart(&mut self, program: task::Program) {
        let luggage = self.frame.change_luggage(Luggage::default());
        contain(|| drop(program));
        task::drop_payload(&self.frame);
        self.frame.change_luggage(luggage);
    }
}
