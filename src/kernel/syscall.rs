//! The system calls: one exhaustive match, and the handlers of calls about tasks.

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    task::{OnExit, ReadOp, State, WaitingOn},
};
use crate::{
    abi::{Direction, Errno, Exit, Reply, SystemCall, Tid},
    sched::Runnable,
    trap::{Options, Payload, Start},
};

impl Kernel {
    /// Handles a call. Its second word and its payload are in the frame.
    #[inline(always)]
    pub(super) fn handle(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        match call {
            SystemCall::GetTid => Reply::Tid(me.tid).into(),
            SystemCall::Yield => Answer::SLEPT.into(),
            SystemCall::NewTask => self.new_task(me, OnExit::Zombie),
            SystemCall::NewDetachedTask => self.new_task(me, OnExit::Nothing),
            SystemCall::KillTask(tid) => self.kill_task(me, tid),
            SystemCall::Release(tid) => self.release(me, tid),
            SystemCall::Disown(tid) => self.disown(tid),
            SystemCall::WaitTask(tid) => self.wait_task(me, tid),
            SystemCall::Exit => self.exit(),
            SystemCall::Shutdown => self.shutdown(),
            SystemCall::Sleep(span) => self.sleep(me, span),
            SystemCall::SleepUntil(deadline) => self.sleep_until(me, deadline),
            SystemCall::Now => Reply::Time(self.time_now()).into(),
            SystemCall::Random => Reply::Random(self.random(me)).into(),
            SystemCall::Tasks => {
                let tasks = Payload::Tasks(self.tasks().collect());
                Answer::with(Reply::Tasks, tasks).into()
            }
            SystemCall::ReadWait(device) => self.device_wait(me, device, Direction::Read),
            SystemCall::WriteWait(device) => self.device_wait(me, device, Direction::Write),
            SystemCall::Timeout(span) => self.timeout(me, span),
            SystemCall::Disarm(timeout) => self.disarm(me, timeout),
            SystemCall::Submit => self.submit(me),
            SystemCall::NewQueue(capacity) => self.new_queue(me, capacity),
            SystemCall::Put(queue) => self.put(me, queue),
            SystemCall::Get(queue) => self.get(me, queue),
            SystemCall::TryPut(queue) => self.try_put(queue),
            SystemCall::TryGet(queue) => self.try_get(queue),
            SystemCall::CloseQueue(queue) => self.close_queue_of(queue),
            SystemCall::GiveBack(queue) => self.give_back_by_call(queue),
            SystemCall::FreeQueue(queue) => self.free_queue(queue),
            SystemCall::Attach => self.attach(me),
            SystemCall::Listen => self.listen(me),
            SystemCall::Connect => self.connect(me),
            SystemCall::Connected(device) => self.connected(device),
            SystemCall::Accept(device) => self.read_later(me, device, ReadOp::Connection),
            SystemCall::Recv(device) => {
                let room = self.frame.take_word().unwrap_or(0);
                let room = u32::try_from(room).unwrap_or(u32::MAX);
                self.read_later(me, device, ReadOp::Bytes(room))
            }
            SystemCall::Send(device) => self.send(me, device),
            SystemCall::SendFile(device) => self.send_file(me, device),
            SystemCall::ShutdownWrite(device) => self.shutdown_write(device),
            SystemCall::Close(device) => self.close_device(device),
            SystemCall::Observe(number) => self.observe(number),
            SystemCall::Unobserve(number) => self.unobserve(number),
            SystemCall::Host => self.host(me),
            SystemCall::Resolve => self.resolve(),
            SystemCall::Fault => self.fault(me),
            SystemCall::Compute(span) => self.compute(me, span),
            SystemCall::SetShare(share) => self.set_own_share(me, share),
        }
    }

    // ---- tasks

    fn new_task(&mut self, me: Runnable, on_exit: OnExit) -> Outcome {
        let Some(Payload::Program(new)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let options = new.options.map_or_else(Options::default, |all| *all);
        let start = options.start;
        let is_daemon = me.tid.is_daemon();
        let (host, name) = match self.host_of(me, options.host.as_deref(), new.name) {
            Ok(found) => found,
            Err(errno) => {
                self.drop_apart(new.program);
                return errno.into();
            }
        };
        let child = match self.admit(name, new.program, Some(me), on_exit, is_daemon, start) {
            Ok(child) => child,
            Err(errno) => return errno.into(),
        };
        self.place(child, host);
        if let Some(keeper) = options.keeper {
            keeper.spawned(child.tid);
            self.tasks.waiters_of(child).keeper = Some(keeper);
        }
        let state = State::from(Reply::Tid(child.tid));
        match start {
            Start::Behind => Outcome::Parent(state, child),
            Start::First | Start::After(_) => state.into(),
        }
    }

    fn kill_task(&mut self, me: Runnable, tid: Tid) -> Outcome {
        if tid == me.tid {
            self.end(me, Exit::Killed);
            return Outcome::Gone;
        }
        let victim = self.tasks.find_live(tid);
        if let Some(victim) = victim {
            self.end(victim, Exit::Killed);
        }
        if !self.tasks.is_live(me) {
            // A destructor of the victim has killed the caller.
            return Outcome::Gone;
        }
        match victim {
            Some(_) => Reply::Yes.into(),
            None => Reply::No.into(),
        }
    }

    /// Ends a task and reaps it.
    fn release(&mut self, me: Runnable, tid: Tid) -> Outcome {
        let waited = self.frame.take_word();
        let outcome = self.kill_task(me, tid);
        self.give_up_exit(tid, waited.is_some());
        outcome
    }

    /// Reaps a task if it is a zombie.
    pub(super) fn reap_zombie(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.find(tid)
            && self.tasks[task].is_zombie()
        {
            self.reap(task);
        }
    }

    /// Reaps a task if it is a zombie, for the last owner of its exit. Notes whether a task has
    /// waited for it.
    pub(super) fn give_up_exit(&mut self, tid: Tid, is_waited_for: bool) {
        if is_waited_for {
            self.stats.waited_for(tid);
        }
        self.reap_zombie(tid);
        self.stats.given_up(tid);
    }

    /// Makes a task leave no zombie: reaps it now, or when it ends.
    fn disown(&mut self, tid: Tid) -> Outcome {
        let waited = self.frame.take_word();
        self.give_up_exit(tid, waited.is_some());
        if let Some(task) = self.tasks.find_live(tid) {
            self.tasks[task].set_on_exit(OnExit::Nothing);
            if let Some(waiters) = self.tasks[task].waiters_mut() {
                waiters.keeper = None;
            }
        }
        Reply::Done.into()
    }

    fn wait_task(&mut self, me: Runnable, tid: Tid) -> Outcome {
        match self.tasks.find(tid) {
            None => Errno::NoSuchTask.into(),
            Some(target) if target == me => Errno::WouldDeadlock.into(),
            Some(target) if self.tasks[target].is_live() => {
                self.tasks.waiters_of(target).push(me);
                self.block_on_task(me, WaitingOn::Exit(target))
            }
            Some(zombie) => {
                if !me.tid.is_daemon() {
                    self.stats.waited_for(tid);
                }
                Answer::exit(self.reap(zombie)).into()
            }
        }
    }

    fn exit(&mut self) -> Outcome {
        match self.frame.take() {
            Some(Payload::Exit(exit)) => Outcome::Exit(exit),
            _ => Errno::Invalid.into(),
        }
    }

    // ---- other

    fn submit(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Job(job)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        self.world.submit(me.tid, job);
        Reply::Done.into()
    }
}
