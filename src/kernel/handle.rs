//! What each system call does: one exhaustive match, and a handler for each that needs one.

use std::{io, net::SocketAddr};

use super::{Kernel, Outcome};
use crate::{
    abi::{DeviceId, Direction, Errno, Exit, Nanos, Reply, SystemCall, Tid},
    event::{Detail, Fact, Wake},
    frame::Payload,
    sched::Runnable,
    task::{Answer, Legacy, Place},
};

impl Kernel {
    /// Handles a trap.
    #[inline]
    pub(super) fn handle(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        self.tell_call(me.tid, call);
        match call {
            SystemCall::GetTid => Outcome::reply(Reply::Tid(me.tid)),
            SystemCall::Yield => Outcome::reply(Reply::Done),
            SystemCall::NewTask => self.new_task(me, Legacy::Zombie),
            SystemCall::NewDetachedTask => self.new_task(me, Legacy::Nothing),
            SystemCall::KillTask(tid) => self.kill_task(me, tid),
            SystemCall::WaitTask(tid) => self.wait_task(me, tid),
            SystemCall::Exit => self.exit(),
            SystemCall::Shutdown => self.shutdown(),
            SystemCall::Sleep(span) => self.sleep(me, span),
            SystemCall::SleepUntil(deadline) => self.sleep_until(me, deadline),
            SystemCall::Now => Outcome::reply(Reply::Time(self.time_now())),
            SystemCall::Random => Outcome::reply(Reply::Random(self.world.random())),
            SystemCall::Tasks => Outcome::Answer(Answer::Tasks(self.tasks().collect())),
            SystemCall::ReadWait(device) => self.device_wait(me, device, Direction::Read),
            SystemCall::WriteWait(device) => self.device_wait(me, device, Direction::Write),
            SystemCall::Attach => self.attach(),
            SystemCall::Listen => self.listen(),
            SystemCall::Connect => self.connect(),
            SystemCall::Connected(device) => self.connected(device),
            SystemCall::Accept(device) => self.read_later(device, Answer::Accept { device }),
            SystemCall::Recv(device) => {
                let room = self.frame.len.take();
                self.read_later(device, Answer::Recv { device, room })
            }
            SystemCall::Send(device) => self.send(me, device),
            SystemCall::ShutdownWrite(device) => self.shutdown_write(device),
            SystemCall::Close(device) => self.close_device(device),
        }
    }

    // ---- tasks

    fn new_task(&mut self, me: Runnable, legacy: Legacy) -> Outcome {
        let Some(Payload::Program { name, program }) = self.frame.take() else {
            return Outcome::reply(Reply::Err(Errno::Invalid));
        };
        Outcome::reply(match self.admit(name, program, Some(me), legacy) {
            Ok(tid) => Reply::Tid(tid),
            Err(errno) => Reply::Err(errno),
        })
    }

    fn kill_task(&mut self, me: Runnable, tid: Tid) -> Outcome {
        if tid == me.tid {
            return Outcome::Exit(Exit::Killed);
        }
        match self.tasks.find(tid) {
            Some(victim) if self.tasks[victim].is_live() => {
                self.end(victim, Exit::Killed);
                Outcome::reply(Reply::Yes)
            }
            _ => Outcome::reply(Reply::No),
        }
    }

    fn wait_task(&mut self, me: Runnable, tid: Tid) -> Outcome {
        match self.tasks.find(tid) {
            None => Outcome::reply(Reply::Err(Errno::NoSuchTask)),
            Some(target) if target == me => Outcome::reply(Reply::Err(Errno::WouldDeadlock)),
            Some(target) if self.tasks[target].is_live() => {
                self.tasks[target].add_waiter(me);
                Outcome::Block {
                    place: Place::Exit(target),
                    then: Reply::Done.into(),
                }
            }
            Some(zombie) => Outcome::Answer(Answer::Exit(self.reap(zombie))),
        }
    }

    fn exit(&mut self) -> Outcome {
        match self.frame.take() {
            Some(Payload::Exit(exit)) => Outcome::Exit(exit),
            _ => Outcome::reply(Reply::Err(Errno::Invalid)),
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

    fn sleep(&mut self, me: Runnable, span: Nanos) -> Outcome {
        let deadline = self.time_now().saturating_add(span);
        self.sleep_until(me, deadline)
    }

    fn sleep_until(&mut self, me: Runnable, deadline: Nanos) -> Outcome {
        if deadline <= self.time_now() {
            return Outcome::reply(Reply::Done);
        }
        let place = Place::Timer(self.timers.arm(deadline, me));
        Outcome::Block {
            place,
            then: Reply::Done.into(),
        }
    }

    // ---- devices

    fn attach(&mut self) -> Outcome {
        let Some(Payload::Source(source)) = self.frame.take() else {
            return Outcome::reply(Reply::Err(Errno::Invalid));
        };
        let id = self.devices.next_id();
        let result = self.world.attach(id, source);
        self.opened(id, result.map(|()| None))
    }

    fn listen(&mut self) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Outcome::reply(Reply::Err(Errno::Invalid));
        };
        let id = self.devices.next_id();
        let result = self.world.listen(id, addr);
        self.opened(id, result.map(Some))
    }

    fn connect(&mut self) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Outcome::reply(Reply::Err(Errno::Invalid));
        };
        let id = self.devices.next_id();
        let result = self.world.connect(id, addr);
        self.opened(id, result.map(|()| None))
    }

    fn opened(&mut self, id: DeviceId, result: io::Result<Option<SocketAddr>>) -> Outcome {
        Outcome::Answer(match result {
            Ok(addr) => {
                self.devices.insert(id);
                Answer::Opened(id, addr)
            }
            Err(error) => Answer::Io(error),
        })
    }

    fn connected(&mut self, device: DeviceId) -> Outcome {
        Outcome::Answer(match self.devices.check(device, Direction::Write) {
            Err(errno) => errno.into(),
            Ok(()) => done(self.world.connected(device)),
        })
    }

    fn shutdown_write(&mut self, device: DeviceId) -> Outcome {
        Outcome::Answer(match self.devices.check(device, Direction::Write) {
            Err(Errno::BadFd) => Errno::BadFd.into(),
            // A writer that waits does not keep the stream from being ended: it will be told.
            Ok(()) | Err(_) => done(self.world.shutdown_write(device)),
        })
    }

    fn device_wait(&mut self, me: Runnable, device: DeviceId, direction: Direction) -> Outcome {
        if let Err(errno) = self.devices.check(device, direction) {
            return Outcome::reply(Reply::Err(errno));
        }
        match self.world.ready(device, direction) {
            Ok(false) => self.wait_for(me, device, direction, Reply::Done.into()),
            // What is wrong with it shows when it is used.
            Ok(true) | Err(_) => Outcome::reply(Reply::Done),
        }
    }

    fn wait_for(
        &mut self,
        me: Runnable,
        device: DeviceId,
        direction: Direction,
        then: Answer,
    ) -> Outcome {
        self.devices.set(device, direction, me);
        Outcome::Block {
            place: Place::Device(device, direction),
            then,
        }
    }

    /// Whoever waits already must not find the device taken when it is woken before the caller's
    /// turn.
    fn read_later(&mut self, device: DeviceId, then: Answer) -> Outcome {
        Outcome::Answer(match self.devices.check(device, Direction::Read) {
            Err(errno) => errno.into(),
            Ok(()) => then,
        })
    }

    fn send(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        if let Err(errno) = self.devices.check(device, Direction::Write) {
            return Outcome::reply(Reply::Err(errno));
        }
        let result = self
            .world
            .send(device, &self.frame.buffer(self.frame.len.take()));
        match self.transferred(me.tid, device, Direction::Write, result) {
            Some(answer) => Outcome::Answer(answer),
            None => self.wait_for(me, device, Direction::Write, Reply::Again.into()),
        }
    }

    fn close_device(&mut self, device: DeviceId) -> Outcome {
        Outcome::reply(if self.close(device) {
            Reply::Done
        } else {
            Reply::Err(Errno::BadFd)
        })
    }

    /// Closes a device and wakes who waits for it. Answers whether it was open.
    pub(super) fn close(&mut self, device: DeviceId) -> bool {
        let Some(waiters) = self.devices.remove(device) else {
            return false;
        };
        self.world.close(device);
        for task in waiters.into_iter().flatten() {
            self.wake(task, Wake::Closed(device), Some(Errno::Closed.into()));
        }
        true
    }

    /// Gives a task whose turn it is an answer that does not fit into a word. Reads it off the
    /// device first, if that is where it is; where there is nothing, the task blocks, and `None`
    /// says that its turn is over.
    #[cold]
    pub(super) fn deliver(&mut self, me: Runnable, answer: Answer) -> Option<Reply> {
        let (answer, device, then) = match answer {
            Answer::Recv { device, room } => (
                self.recv(me, device, room),
                device,
                Answer::Recv { device, room },
            ),
            Answer::Accept { device } => {
                (self.accept(me, device), device, Answer::Accept { device })
            }
            known => return Some(self.hand_over(known)),
        };
        let Some(answer) = answer else {
            self.devices.set(device, Direction::Read, me);
            self.block(me, Place::Device(device, Direction::Read), then);
            return None;
        };
        self.tell_answer(me.tid, &answer);
        Some(self.hand_over(answer))
    }

    /// Puts the answer into the frame, as far as it does not fit into the reply.
    fn hand_over(&self, answer: Answer) -> Reply {
        let (reply, payload) = match answer {
            Answer::Reply(reply) => return reply,
            Answer::Exit(exit) => (Reply::Exit, Payload::Exit(exit)),
            Answer::Tasks(tasks) => (Reply::Tasks, Payload::Tasks(tasks)),
            Answer::Io(error) => (Reply::Io, Payload::Io(error)),
            Answer::Opened(device, None) => return Reply::Device(device),
            Answer::Opened(device, Some(addr)) => (Reply::Device(device), Payload::Addr(addr)),
            Answer::Recv { .. } | Answer::Accept { .. } => {
                unreachable!("what has to be read first is read by now")
            }
        };
        self.frame.put(payload);
        reply
    }

    fn recv(&mut self, me: Runnable, device: DeviceId, room: usize) -> Option<Answer> {
        if let Err(errno) = self.devices.check(device, Direction::Read) {
            return Some(errno.into());
        }
        let result = self.world.recv(device, self.frame.buffer(room).as_mut());
        self.transferred(me.tid, device, Direction::Read, result)
    }

    fn accept(&mut self, me: Runnable, listener: DeviceId) -> Option<Answer> {
        if let Err(errno) = self.devices.check(listener, Direction::Read) {
            return Some(errno.into());
        }
        let id = self.devices.next_id();
        let mut peer = None;
        let result = self.world.accept(listener, id).map(|addr| {
            self.devices.insert(id);
            peer = Some(addr);
            0
        });
        let answer = self.transferred(me.tid, listener, Direction::Read, result)?;
        Some(if peer.is_some() {
            Answer::Opened(id, peer)
        } else {
            answer
        })
    }

    /// What came of an attempt at a device; `None` where it would block.
    fn transferred(
        &mut self,
        tid: Tid,
        device: DeviceId,
        direction: Direction,
        result: io::Result<usize>,
    ) -> Option<Answer> {
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::WouldBlock
        {
            return None;
        }
        self.log.emit(&mut *self.world, tid, || Fact::DeviceIo {
            device,
            direction,
            result: result.as_ref().map_err(io::Error::kind).copied(),
        });
        Some(result.map_or_else(Answer::Io, |n| Reply::Bytes(n as u64).into()))
    }

    // ---- the log

    #[inline]
    fn tell_call(&mut self, tid: Tid, call: SystemCall) {
        if !self.log.is_observed() {
            return;
        }
        let payload = self.frame.take();
        let detail = match (&payload, call) {
            (_, SystemCall::Recv(_) | SystemCall::Send(_)) => Detail::Len(self.frame.len.get()),
            (Some(Payload::Program { name, .. }), _) => Detail::Name(name),
            (Some(Payload::Exit(exit)), _) => Detail::Exit(exit),
            (Some(Payload::Addr(addr)), _) => Detail::Addr(*addr),
            _ => Detail::None,
        };
        self.log
            .emit(&mut *self.world, tid, || Fact::Trapped { call, detail });
        self.frame.put_back(payload);
    }
}

fn done(result: io::Result<()>) -> Answer {
    result.map_or_else(Answer::Io, |()| Reply::Done.into())
}
