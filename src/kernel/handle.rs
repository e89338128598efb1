//! What each system call does: one exhaustive match, and a handler for each that needs one.

use std::{io, net::SocketAddr, rc::Rc};

use super::{
    Kernel, Outcome, contain,
    queues::{Got, Put},
};
use crate::{
    abi::{DeviceId, Direction, End, Errno, Exit, Nanos, QueueId, Reply, SystemCall, Tid},
    event::{Detail, Fact, Wake},
    frame::Payload,
    sched::Runnable,
    task::{Answer, Legacy, Place, State},
    time::Timer,
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
            SystemCall::Timeout(span) => self.timeout(me, span),
            SystemCall::Submit => self.submit(),
            SystemCall::NewQueue(capacity) => self.new_queue(capacity),
            SystemCall::Put(queue) => self.put(me, queue),
            SystemCall::Get(queue) => self.get(me, queue),
            SystemCall::TryPut(queue) => self.try_put(queue),
            SystemCall::TryGet(queue) => self.try_get(queue),
            SystemCall::CloseQueue(queue) => self.close_queue_of(queue),
            SystemCall::Attach => self.attach(),
            SystemCall::Listen => self.listen(),
            SystemCall::Connect => self.connect(),
            SystemCall::Connected(device) => self.connected(device),
            SystemCall::Accept(device) => Outcome::Answer(Answer::Accept { device }),
            SystemCall::Recv(device) => self.recv_later(device),
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
        Outcome::reply(if self.kill(tid) {
            Reply::Yes
        } else {
            Reply::No
        })
    }

    /// Ends a task from outside. Answers whether it was alive.
    pub(super) fn kill(&mut self, tid: Tid) -> bool {
        let victim = self
            .tasks
            .find(tid)
            .filter(|&victim| self.tasks[victim].is_live());
        if let Some(victim) = victim {
            self.end(victim, Exit::Killed);
        }
        victim.is_some()
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

    fn timeout(&mut self, me: Runnable, span: Nanos) -> Outcome {
        let deadline = self.time_now().saturating_add(span);
        let timer = self.timers.arm(deadline, me);
        self.tasks[me].timeouts.get_or_insert_default().push(timer);
        Outcome::reply(Reply::Timeout(timer.1))
    }

    /// A timer came: of a sleep, or of a timeout around whatever its task is at.
    pub(super) fn alarm(&mut self, timer: Timer, me: Runnable) {
        match self.tasks[me].state {
            State::Blocked {
                place: Place::Timer(slept),
                ..
            } if slept == timer => {
                self.wake(me, Wake::Timer, None);
            }
            _ => self.elapse(me, timer.1),
        }
    }

    /// Answers a task's call, whatever it is, with the timeout around it. The timeouts within are
    /// gone with what they guarded.
    fn elapse(&mut self, me: Runnable, number: u64) {
        self.disarm(me, number);
        let answer = Reply::Elapsed(number);
        match &mut self.tasks[me].state {
            State::Ready(late) => {
                let late = std::mem::replace(late, answer.into());
                self.take_back(&late);
            }
            State::Blocked { place, .. } => {
                let place = *place;
                self.vacate(me, place);
                self.wake(me, Wake::Timeout, Some(answer.into()));
            }
            State::Running | State::Zombie(_) => unreachable!("only a task that waits times out"),
        }
    }

    /// Disarms a timeout, and those within it.
    pub(super) fn disarm(&mut self, me: Runnable, number: u64) {
        let Some(task) = self.tasks.get_mut(me) else {
            return;
        };
        for timer in task.take_timeouts(number) {
            self.timers.disarm(timer);
        }
    }

    fn submit(&mut self) -> Outcome {
        let Some(Payload::Job(job)) = self.frame.take() else {
            return Outcome::reply(Reply::Err(Errno::Invalid));
        };
        self.world.submit(job);
        Outcome::reply(Reply::Done)
    }

    // ---- message queues

    fn new_queue(&mut self, capacity: u64) -> Outcome {
        let Some(Payload::Store(store)) = self.frame.take() else {
            return Outcome::reply(Reply::Err(Errno::Invalid));
        };
        Outcome::reply(match self.queues.insert(capacity, store) {
            Some(queue) => Reply::Queue(queue),
            None => Reply::Err(Errno::Closed),
        })
    }

    fn put(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        match self.try_put(queue) {
            Outcome::Answer(Answer::Reply(Reply::Full(message))) => {
                let full = self.queues.get_mut(queue).expect("a full queue exists");
                full.wait_to_put(me, message);
                Outcome::Block {
                    place: Place::Queue(queue, End::Put),
                    then: Reply::Done.into(),
                }
            }
            outcome => outcome,
        }
    }

    fn try_put(&mut self, queue: QueueId) -> Outcome {
        let message = self.frame.message.take();
        Outcome::reply(self.put_message(queue, message))
    }

    pub(super) fn put_message(&mut self, queue: QueueId, message: u64) -> Reply {
        let Some(found) = self.queues.get_mut(queue) else {
            return Reply::Message(message);
        };
        match found.put(message) {
            Put::Stored => Reply::Done,
            Put::Handed(getter) => {
                self.wake(
                    getter,
                    Wake::Queue(queue),
                    Some(Answer::Message(queue, message)),
                );
                Reply::Done
            }
            Put::Full => Reply::Full(message),
            Put::Closed => Reply::Message(message),
        }
    }

    /// Puts a message that was posted from a destructor; one that cannot be put is dropped.
    pub(super) fn put_posted(&mut self, queue: QueueId, message: u64) {
        if self.put_message(queue, message) != Reply::Done
            && let Some(closed) = self.queues.get_mut(queue)
        {
            let store = Rc::clone(&closed.store);
            contain(|| store.discard(message));
        }
    }

    fn get(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        match self.try_get(queue) {
            Outcome::Answer(Answer::Reply(Reply::Again)) => {
                self.queues
                    .get_mut(queue)
                    .expect("an empty queue exists")
                    .wait_to_get(me);
                Outcome::Block {
                    place: Place::Queue(queue, End::Get),
                    then: Reply::Done.into(),
                }
            }
            outcome => outcome,
        }
    }

    fn try_get(&mut self, queue: QueueId) -> Outcome {
        let Some(found) = self.queues.get_mut(queue) else {
            return Outcome::reply(Reply::Err(Errno::Closed));
        };
        match found.get() {
            Got::Message(message) => Outcome::Answer(Answer::Message(queue, message)),
            Got::Admitted(message, putter) => {
                self.wake(putter, Wake::Queue(queue), None);
                Outcome::Answer(Answer::Message(queue, message))
            }
            Got::Empty => Outcome::reply(Reply::Again),
            Got::Closed => Outcome::reply(Reply::Err(Errno::Closed)),
        }
    }

    fn close_queue_of(&mut self, queue: QueueId) -> Outcome {
        let open = self.close_queue(queue);
        Outcome::reply(if open {
            Reply::Done
        } else {
            Reply::Err(Errno::Closed)
        })
    }

    /// Closes a queue and wakes who waits at its ends. Answers whether it was open.
    pub(super) fn close_queue(&mut self, queue: QueueId) -> bool {
        let Some(found) = self
            .queues
            .get_mut(queue)
            .filter(|queue| !queue.is_closed())
        else {
            return false;
        };
        let (getters, putters) = found.close();
        for getter in getters {
            self.wake(getter, Wake::Queue(queue), Some(Errno::Closed.into()));
        }
        for (putter, message) in putters {
            self.wake(
                putter,
                Wake::Queue(queue),
                Some(Reply::Message(message).into()),
            );
        }
        true
    }

    /// Finds a new owner for a message that was matched with a task which will not take it.
    pub(super) fn give_back(&mut self, queue: QueueId, message: u64) {
        let next = self
            .queues
            .get_mut(queue)
            .and_then(|queue| queue.give_back(message));
        if let Some(next) = next {
            self.wake(
                next,
                Wake::Queue(queue),
                Some(Answer::Message(queue, message)),
            );
        }
    }

    /// Takes a task out of the queue where it waits. The message that it wanted to put goes with
    /// it.
    pub(super) fn leave_queue(&mut self, me: Runnable, queue: QueueId, end: End) {
        let found = self
            .queues
            .get_mut(queue)
            .expect("a queue that is waited for exists");
        match end {
            End::Get => found.forget_getter(me),
            End::Put => {
                if let Some(message) = found.forget_putter(me) {
                    let store = Rc::clone(&found.store);
                    contain(|| store.discard(message));
                }
            }
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

    fn recv_later(&mut self, device: DeviceId) -> Outcome {
        Outcome::Answer(Answer::Recv {
            device,
            room: self.frame.len.take(),
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
            Answer::Message(_, number) => return Reply::Message(number),
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
