//! What each system call does: one exhaustive match, and a handler for each that needs one.

use super::{Kernel, Outcome};
use crate::{
    abi::{Direction, Errno, Exit, Nanos, Reply, SystemCall, Tid},
    event::{Detail, Fact, Wake},
    frame::Payload,
    sched::Runnable,
    task::{Answer, Legacy, Place, Read, Slot, State},
    time::Timer,
};

impl Kernel {
    /// Handles a trap.
    #[inline(always)]
    pub(super) fn handle(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        self.tell_call(me.tid, call);
        match call {
            SystemCall::GetTid => Outcome::Reply(Reply::Tid(me.tid)),
            SystemCall::Yield => Outcome::Reply(Reply::Done),
            SystemCall::NewTask => self.new_task(me, Legacy::Zombie),
            SystemCall::NewDetachedTask => self.new_task(me, Legacy::Nothing),
            SystemCall::KillTask(tid) => self.kill_task(me, tid),
            SystemCall::WaitTask(tid) => self.wait_task(me, tid),
            SystemCall::Exit => self.exit(),
            SystemCall::Shutdown => self.shutdown(),
            SystemCall::Sleep(span) => self.sleep(me, span),
            SystemCall::SleepUntil(deadline) => self.sleep_until(me, deadline),
            SystemCall::Now => Outcome::Reply(Reply::Time(self.time_now())),
            SystemCall::Random => Outcome::Reply(Reply::Random(self.world.random())),
            SystemCall::Tasks => {
                let tasks = Answer::Tasks(self.tasks().collect());
                self.answer(me, tasks)
            }
            SystemCall::ReadWait(device) => self.device_wait(me, device, Direction::Read),
            SystemCall::WriteWait(device) => self.device_wait(me, device, Direction::Write),
            SystemCall::Timeout(span) => self.timeout(me, span),
            SystemCall::Submit => self.submit(),
            SystemCall::NewQueue(capacity) => self.new_queue(capacity),
            SystemCall::Put(queue) => self.put(me, queue),
            SystemCall::Get(queue) => self.get(me, queue),
            SystemCall::TryPut(queue) => self.try_put(me, queue),
            SystemCall::TryGet(queue) => self.try_get(me, queue),
            SystemCall::CloseQueue(queue) => self.close_queue_of(queue),
            SystemCall::Attach => self.attach(me),
            SystemCall::Listen => self.listen(me),
            SystemCall::Connect => self.connect(me),
            SystemCall::Connected(device) => self.connected(me, device),
            SystemCall::Accept(device) => self.read_later(me, device, Read::Connection),
            SystemCall::Recv(device) => {
                let room = u32::try_from(self.frame.len.take()).unwrap_or(u32::MAX);
                self.read_later(me, device, Read::Bytes(room))
            }
            SystemCall::Send(device) => self.send(me, device),
            SystemCall::SendFile(device) => self.send_file(me, device),
            SystemCall::ShutdownWrite(device) => self.shutdown_write(me, device),
            SystemCall::Close(device) => self.close_device(device),
        }
    }

    // ---- tasks

    fn new_task(&mut self, me: Runnable, legacy: Legacy) -> Outcome {
        let Some(Payload::Program {
            name,
            program,
            newborn,
            delay,
        }) = self.frame.take()
        else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        let is_daemon = me.tid.is_daemon();
        Outcome::Reply(
            match self.admit(name, program, Some(me), legacy, is_daemon, delay) {
                Ok(tid) => {
                    if let Some(newborn) = newborn {
                        newborn.set(tid);
                    }
                    Reply::Tid(tid)
                }
                Err(errno) => Reply::Err(errno),
            },
        )
    }

    fn kill_task(&mut self, me: Runnable, tid: Tid) -> Outcome {
        if tid == me.tid {
            self.frame.put(Payload::Exit(Exit::Killed));
            return Outcome::Exit;
        }
        let reply = if self.kill(tid) {
            Reply::Yes
        } else {
            Reply::No
        };
        // The victim may have taken the killer with it.
        if self.is_live(me) {
            Outcome::Reply(reply)
        } else {
            Outcome::Gone
        }
    }

    /// Ends a task from outside. Answers whether it was alive.
    fn kill(&mut self, tid: Tid) -> bool {
        let victim = self.find_live(tid);
        if let Some(victim) = victim {
            self.end(victim, Exit::Killed);
        }
        victim.is_some()
    }

    pub(super) fn find_live(&self, tid: Tid) -> Option<Runnable> {
        let task = self.tasks.find(tid)?;
        self.tasks[task].is_live().then_some(task)
    }

    /// Forgets a task that has ended, if it has and there is anything left of it.
    pub(super) fn reap_zombie(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.find(tid)
            && let State::Zombie(_) = self.tasks[task].state
        {
            self.reap(task);
        }
    }

    fn wait_task(&mut self, me: Runnable, tid: Tid) -> Outcome {
        match self.tasks.find(tid) {
            None => Outcome::Reply(Reply::Err(Errno::NoSuchTask)),
            Some(target) if target == me => Outcome::Reply(Reply::Err(Errno::WouldDeadlock)),
            Some(target) if self.tasks[target].is_live() => {
                self.tasks[target].add_waiter(me);
                self.block(me, Place::Exit(target))
            }
            Some(zombie) => {
                let answer = self.reap(zombie);
                self.answer(me, answer)
            }
        }
    }

    fn exit(&mut self) -> Outcome {
        match self.frame.take() {
            exit @ Some(Payload::Exit(_)) => {
                self.frame.put_back(exit);
                Outcome::Exit
            }
            _ => Outcome::Reply(Reply::Err(Errno::Invalid)),
        }
    }

    fn shutdown(&mut self) -> Outcome {
        self.end_all();
        Outcome::Gone
    }

    // ---- time

    fn time_now(&mut self) -> Nanos {
        self.world.now().into()
    }

    pub(super) fn sleep(&mut self, me: Runnable, span: Nanos) -> Outcome {
        let now = self.time_now();
        self.sleep_from(me, now, now.saturating_add(span))
    }

    fn sleep_until(&mut self, me: Runnable, deadline: Nanos) -> Outcome {
        let now = self.time_now();
        self.sleep_from(me, now, deadline)
    }

    fn sleep_from(&mut self, me: Runnable, now: Nanos, deadline: Nanos) -> Outcome {
        if deadline <= now {
            return Outcome::Reply(Reply::Done);
        }
        let place = Place::Timer(self.timers.of(me).arm(deadline, me.slot));
        self.block(me, place)
    }

    fn timeout(&mut self, me: Runnable, span: Nanos) -> Outcome {
        // Without a body to drop, nobody could go on from the call that it cuts.
        if !self.frame.body.take() {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        }
        let deadline = self.time_now().saturating_add(span);
        let timer = self.timers.of(me).reserve(deadline);
        self.answer(me, Answer::Timeout(timer))
    }

    /// Starts a timeout, whose body is about to begin.
    pub(super) fn start_timeout(&mut self, me: Runnable, timer: Timer) -> Reply {
        self.timers.of(me).start(timer, me.slot);
        self.tasks[me].timeouts.get_or_insert_default().push(timer);
        Reply::Timeout(timer.1)
    }

    /// A timer came: of a sleep, or of a timeout around whatever its task is at.
    pub(super) fn alarm(&mut self, timer: Timer, slot: Slot) {
        let me = self.tasks.in_slot(slot);
        match self.tasks[me].state {
            State::Blocked(Place::Timer(slept)) if slept == timer => {
                self.wake(me, Wake::Timer, Reply::Done);
            }
            _ => self.elapse(me, timer.1),
        }
    }

    /// Answers a task's call, whatever it is, with the timeout around it. The timeouts within are
    /// gone with what they guarded.
    fn elapse(&mut self, me: Runnable, number: u64) {
        for within in self.tasks[me].take_timeouts(number).skip(1) {
            self.timers.of(me).disarm(within);
        }
        let answer = Reply::Elapsed(number);
        let task = &mut self.tasks[me];
        match &task.state {
            State::Blocked(place) => {
                let place = *place;
                self.vacate(me, place);
                self.wake(me, Wake::Timeout, answer);
            }
            State::Ready(_) | State::Owed(_) => {
                let late = std::mem::replace(&mut task.state, answer.into());
                self.tell_answer(me);
                self.take_back(&late);
            }
            State::Running | State::Ending | State::Zombie(_) => {
                unreachable!("only a task that waits times out")
            }
        }
    }

    /// Disarms a timeout, and those within it.
    pub(super) fn disarm(&mut self, me: Runnable, number: u64) {
        if let Some(task) = self.tasks.get_mut(me) {
            for timer in task.take_timeouts(number) {
                self.timers.of(me).disarm(timer);
            }
        }
    }

    fn submit(&mut self) -> Outcome {
        let Some(Payload::Job(job)) = self.frame.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        self.world.submit(job);
        Outcome::Reply(Reply::Done)
    }

    // ---- the log

    #[inline(always)]
    fn tell_call(&mut self, tid: Tid, call: SystemCall) {
        if self.log.is_observed() {
            self.tell_call_in_full(tid, call);
        }
    }

    #[cold]
    fn tell_call_in_full(&mut self, tid: Tid, call: SystemCall) {
        let payload = call.has_payload().then(|| self.frame.take()).flatten();
        let detail = match (&payload, call) {
            (_, SystemCall::Recv(_) | SystemCall::Send(_) | SystemCall::SendFile(_)) => {
                Detail::Len(self.frame.len.get())
            }
            (Some(Payload::Program { name, .. }), _) => Detail::Name(name),
            (Some(Payload::Exit(exit)), _) => Detail::Exit(exit),
            (Some(Payload::Addr(addr)), _) => Detail::Addr(*addr),
            _ => Detail::None,
        };
        self.log
            .emit(&mut *self.world, tid, || Fact::Trapped { call, detail });
        if payload.is_some() {
            self.frame.put_back(payload);
        }
    }
}
