//! The system calls: one exhaustive match, and the handlers of calls about tasks.

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    task::{OnExit, ReadOp, State, WaitingOn},
};
use crate::{
    abi::{DeviceId, Direction, Errno, Exit, Reply, SystemCall, Tid},
    sched::Runnable,
    trap::{NewTask, Object, Options, Payload, Start},
    world::{self, Request},
};

impl Kernel {
    #[inline(always)]
    pub(super) fn handle(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        match call {
            SystemCall::GetTid => Reply::Tid(me.tid).into(),
            SystemCall::Yield => Answer::SLEPT.into(),
            SystemCall::Post => self.post(),
            SystemCall::NewTask => self.new_task(me, OnExit::Zombie),
            SystemCall::NewDetachedTask => self.new_task(me, OnExit::Nothing),
            SystemCall::NewDaemon => self.new_daemon(me),
            SystemCall::KillTask(tid) => self.kill_task(tid),
            SystemCall::Release(tid) => self.release(tid),
            SystemCall::Disown(tid) => self.disown(tid),
            SystemCall::WaitTask(tid) => self.wait_task(me, tid),
            SystemCall::Exit => self.exit(),
            SystemCall::Shutdown => self.shutdown(),
            SystemCall::Sleep(span) => self.sleep(me, span),
            SystemCall::SleepUntil(deadline) => {
                let now = self.world.now().into();
                self.sleep_until(me, now, deadline)
            }
            SystemCall::Now => Reply::Time(self.world.now().into()).into(),
            SystemCall::Random => self.random(me),
            SystemCall::Choose(of) => self.choose(me, of),
            SystemCall::Tasks => {
                let tasks = Payload::Tasks(self.tasks().collect());
                Answer::with(Reply::Tasks, tasks).into()
            }
            SystemCall::ReadWait(device) => self.device_wait(me, device, Direction::Read),
            SystemCall::WriteWait(device) => self.device_wait(me, device, Direction::Write),
            SystemCall::Timeout(span) => self.timeout(me, span),
            SystemCall::Disarm(timeout) => {
                self.disarm(me, timeout);
                Reply::Done.into()
            }
            SystemCall::Submit => self.submit(me),
            SystemCall::NewQueue(capacity) => self.new_queue(me, capacity),
            SystemCall::Put(queue) => self.put(me, queue),
            SystemCall::Get(queue) => self.get(me, queue),
            SystemCall::TryPut(queue) => self.try_put(queue),
            SystemCall::TryGet(queue) => self.try_get(me, queue),
            SystemCall::CloseQueue(queue) => done_if(self.close_queue(queue), Errno::Closed),
            SystemCall::Take(queue) => self.take(me, queue, true),
            SystemCall::TryTake(queue) => self.take(me, queue, false),
            SystemCall::Give(queue) => self.give_by_call(queue),
            SystemCall::GiveBack(queue) => self.give_back_by_call(queue),
            SystemCall::FreeQueue(queue) => self.free_queue(queue),
            SystemCall::Open
            | SystemCall::Rename
            | SystemCall::Remove
            | SystemCall::List
            | SystemCall::CreateDir
            | SystemCall::SyncDir => self.begin_on_disk(me, call),
            SystemCall::ReadAt(device)
            | SystemCall::WriteAt(device)
            | SystemCall::Append(device)
            | SystemCall::Len(device)
            | SystemCall::Truncate(device)
            | SystemCall::Sync(device) => self.begin_on_file(me, device, call),
            SystemCall::Attach => self.attach(me),
            SystemCall::Listen => self.listen(me),
            SystemCall::Connect => self.connect(me),
            SystemCall::Connected(device) => self.connected(device),
            SystemCall::Accept(device) => self.read_later_apart(me, device, ReadOp::Connection),
            SystemCall::Recv(device) => {
                let room = self.room();
                self.read_later(me, device, ReadOp::Bytes(room))
            }
            SystemCall::RecvFrom(device) => {
                let room = self.room();
                self.read_later_apart(me, device, ReadOp::Datagram(room))
            }
            SystemCall::SendTo(device) => self.send_to(me, device),
            SystemCall::BindUdp => self.bind_udp(me),
            SystemCall::ConnectUdp(device) => self.connect_udp(device),
            SystemCall::ListenUnix => self.listen_unix(me),
            SystemCall::ConnectUnix => self.connect_unix(me),
            SystemCall::SocketPair => self.socketpair(me),
            SystemCall::SetOptions(device) => self.set_options(device),
            SystemCall::Input => self.open_input(me),
            SystemCall::ReadLine => self.read_line(me),
            SystemCall::WallClock => self.wall_clock(me),
            SystemCall::Send(device) => self.send(me, device),
            SystemCall::SendFile(device) => self.send_file(me, device),
            SystemCall::ShutdownWrite(device) => self.shut_down(device, Direction::Write),
            SystemCall::ShutdownRead(device) => self.shut_down(device, Direction::Read),
            SystemCall::Close(device) => done_if(self.close_device(device), Errno::BadFd),
            SystemCall::Observe(number) => self.observe(number),
            SystemCall::Unobserve(number) => self.unobserve(number),
            SystemCall::SetPolicy => self.set_policy(),
            SystemCall::Host => self.host(me),
            SystemCall::Resolve => self.resolve(),
            SystemCall::Fault => self.fault(me),
            SystemCall::Compute(span) => self.compute(me, span),
            SystemCall::Select => self.select(me),
            SystemCall::Scope(_) => self.scope(me),
            SystemCall::Cancel(tid) => self.cancel(me, tid),
            SystemCall::SetDeadline(deadline) => self.set_deadline(me, deadline),
            SystemCall::Shield => self.shield(me),
            SystemCall::Unshield(shield) => self.unshield(me, shield),
            SystemCall::Catch => self.catch(me),
            SystemCall::Uncatch(queue) => match self.uncatch(me, queue) {
                true => self.shutdown(),
                false => Reply::Done.into(),
            },
            SystemCall::OpenQueue(queue) => done_if(self.open_queue(queue), Errno::Closed),
            SystemCall::SetShare(share) => {
                self.shares.set(me, share);
                Reply::Done.into()
            }
        }
    }

    // ---- tasks

    fn new_task(&mut self, me: Runnable, on_exit: OnExit) -> Outcome {
        let Some(Payload::Program(new)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        if new.options.is_some() || !self.bounds.are_none() {
            return self.new_task_with(me, on_exit, new, false);
        }
        let birth = self.birth_on(self.tasks[me].host, new.birth);
        let (parent, is_daemon) = (Some(me), me.tid.is_daemon());
        match self.admit(birth, new.program, parent, on_exit, is_daemon, Start::First) {
            Ok(child) => self.answer(me, Reply::Tid(child.tid)),
            Err(errno) => errno.into(),
        }
    }

    fn new_daemon(&mut self, me: Runnable) -> Outcome {
        match self.frame.take() {
            Some(Payload::Program(new)) => self.new_task_with(me, OnExit::Zombie, new, true),
            _ => Errno::Invalid.into(),
        }
    }

    /// Makes a task with options, or a daemon of a program, or any task where there are limits.
    #[inline(never)]
    fn new_task_with(
        &mut self,
        me: Runnable,
        on_exit: OnExit,
        new: NewTask,
        attends: bool,
    ) -> Outcome {
        let options = new.options.map_or_else(Options::default, |all| *all);
        let start = options.start;
        let is_daemon = me.tid.is_daemon();
        let (host, birth) = match self.host_of(me, options.host.as_deref(), new.birth) {
            Ok(found) => found,
            Err(errno) => {
                self.drop_apart(new.program);
                return errno.into();
            }
        };
        let program = match self.confine(me, options.limits, new.program) {
            Ok(program) => program,
            Err(errno) => return errno.into(),
        };
        let child = self.admit(birth, program, Some(me), on_exit, is_daemon, start);
        self.confined(child);
        let child = match child {
            Ok(child) => child,
            Err(errno) => return errno.into(),
        };
        self.tasks[child].host = host;
        if let Some(streams) = options.streams {
            self.set_streams(child, streams);
        }
        if attends {
            self.tasks.attend(child);
            self.touch(Object::Lasting);
        }
        if let Some(keeper) = options.keeper {
            keeper.spawned(child.tid);
            self.tasks.keep(child, keeper);
        }
        let state = State::from(Reply::Tid(child.tid));
        match start {
            Start::Behind => Outcome::Parent(state, child),
            Start::First | Start::After(_) => state.into(),
        }
    }

    fn kill_task(&mut self, tid: Tid) -> Outcome {
        match self.tasks.find_live(tid) {
            Some(victim) => Outcome::Kill(victim),
            None => Reply::No.into(),
        }
    }

    fn release(&mut self, tid: Tid) -> Outcome {
        let waited = self.frame.take_word();
        self.give_up_exit(tid, waited.is_some());
        let victim = self.tasks.find_live(tid).map(|task| &mut self.tasks[task]);
        if let Some(victim) = victim.filter(|task| task.on_exit == OnExit::Zombie) {
            victim.on_exit = OnExit::Nothing;
        }
        self.kill_task(tid)
    }

    fn shutdown(&mut self) -> Outcome {
        self.end_all(|_| true);
        Outcome::Over
    }

    /// Makes a task leave no zombie: reaps it now, or when it ends.
    fn disown(&mut self, tid: Tid) -> Outcome {
        let waited = self.frame.take_word();
        self.give_up_exit(tid, waited.is_some());
        if let Some(task) = self.tasks.find_live(tid) {
            self.tasks[task].on_exit = OnExit::Nothing;
            self.tasks[task].drop_keeper();
        }
        Reply::Done.into()
    }

    fn wait_task(&mut self, me: Runnable, tid: Tid) -> Outcome {
        match self.tasks.find(tid) {
            None => Errno::NoSuchTask.into(),
            Some(target) if target == me => Errno::WouldDeadlock.into(),
            Some(target) if !self.tasks[target].is_zombie() => {
                self.tasks.wait_for(target, me);
                Outcome::BlockOnTask(WaitingOn::Exit(target))
            }
            Some(zombie) => {
                if !me.tid.is_daemon() {
                    self.stats.waited_for(tid);
                }
                match self.reap(zombie) {
                    Exit::Done => self.answer(me, Reply::Exit),
                    exit => Answer::exit(exit).into(),
                }
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

    /// How many bytes a call has room for.
    fn room(&self) -> u32 {
        let room = self.frame.take_word().unwrap_or(0);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    fn random(&mut self, me: Runnable) -> Outcome {
        let number = if me.tid.is_daemon() {
            self.daemons.random(self.world.seed())
        } else {
            self.world.random()
        };
        Reply::Random(number).into()
    }

    /// The seed answers from a sequence apart: a search that decides choices changes no random number.
    fn choose(&mut self, me: Runnable, of: u64) -> Outcome {
        self.frame.drop_payload();
        if of == 0 {
            return Errno::Invalid.into();
        }
        let seed = self.world.seed();
        if me.tid.is_daemon() {
            return Reply::Random(self.daemons.random(seed) % of).into();
        }
        let drawn = self.choices.draw(seed) % of;
        Reply::Random(self.world.choose(of, drawn) % of).into()
    }

    /// A world without a clock counts from 1970.
    fn wall_clock(&mut self, me: Runnable) -> Outcome {
        let request = Request::WallClock {
            host: self.tasks[me].host,
        };
        let time = self.world.io(DeviceId::NONE, request);
        let time = time.and_then(world::Answer::time);
        let time = time.unwrap_or_else(|_| self.world.now());
        Reply::Time(time.into()).into()
    }

    fn submit(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Job(job)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        self.world.submit(me.tid, job);
        Reply::Done.into()
    }
}

fn done_if(is_done: bool, errno: Errno) -> Outcome {
    match is_done {
        true => Reply::Done.into(),
        false => errno.into(),
    }
}
