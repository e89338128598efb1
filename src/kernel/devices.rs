//! The open devices, and who waits for each of them.

use std::{io, net::SocketAddr, rc::Rc};

use super::{Kernel, Outcome, contain};
use crate::{
    abi::{DeviceId, Direction, Errno, Reply, Tid},
    device::Handle,
    event::{Fact, Wake},
    frame::Payload,
    sched::Runnable,
    task::{Answer, Place, Read, State, Then},
    world::DeviceMap,
};

/// One reader and one writer may have a device at once.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Who has it: a task that waits, or one that is to read when its turn comes.
    open: DeviceMap<[Option<Runnable>; 2]>,
    last: u64,
    /// How many tasks wait, daemons apart.
    waiting: usize,
    /// How many daemons wait.
    daemons: usize,
}

impl Devices {
    /// A token that no device has had before.
    fn next_id(&self) -> DeviceId {
        DeviceId::from(self.last + 1)
    }

    /// Adds the device that was opened under the next token.
    fn insert(&mut self, device: DeviceId) {
        self.last = device.into();
        self.open.insert(device, [None; 2]);
    }

    /// Takes a device off the table and answers who had it, the reader first.
    fn remove(&mut self, device: DeviceId) -> Option<[Option<Runnable>; 2]> {
        self.open.remove(&device)
    }

    /// How many wait that count as this one does.
    fn waiting_like(&mut self, task: Runnable) -> &mut usize {
        if task.tid.is_daemon() {
            &mut self.daemons
        } else {
            &mut self.waiting
        }
    }

    /// Whether a task may have this direction of the device.
    fn check(&self, device: DeviceId, direction: Direction) -> Result<(), Errno> {
        match self.open.get(&device) {
            None => Err(Errno::BadFd),
            Some(waiters) if waiters[direction as usize].is_some() => Err(Errno::Busy),
            Some(_) => Ok(()),
        }
    }

    fn claim(&mut self, device: DeviceId, direction: Direction, task: Runnable) {
        let claims = self
            .open
            .get_mut(&device)
            .expect("a device that a task has is open");
        claims[direction as usize] = Some(task);
    }

    /// Gives this direction of the device up for whoever has it.
    pub(super) fn release(&mut self, device: DeviceId, direction: Direction) {
        if let Some(claims) = self.open.get_mut(&device) {
            claims[direction as usize] = None;
        }
    }

    /// The same, for a task that waits.
    pub(super) fn leave(&mut self, device: DeviceId, direction: Direction, task: Runnable) {
        self.release(device, direction);
        *self.waiting_like(task) -= 1;
    }

    /// How many tasks wait for a device, daemons apart.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many daemons wait for a device.
    pub(super) fn daemons(&self) -> usize {
        self.daemons
    }

    pub(super) fn owner(&self, device: DeviceId, direction: Direction) -> Option<Runnable> {
        self.open.get(&device)?[direction as usize]
    }
}

/// The calls on devices.
impl Kernel {
    pub(super) fn attach(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Source(source)) = self.frame.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        let id = self.devices.next_id();
        let result = self.world.attach(id, Rc::clone(&source));
        // One that is refused, and whose call was given up, is dropped here.
        contain(|| drop(source));
        self.opened(me, id, result.map(|()| None))
    }

    pub(super) fn listen(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        let id = self.devices.next_id();
        let result = self.world.listen(id, addr);
        self.opened(me, id, result.map(Some))
    }

    pub(super) fn connect(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        let id = self.devices.next_id();
        let result = self.world.connect(id, addr);
        self.opened(me, id, result.map(|()| None))
    }

    fn opened(
        &mut self,
        me: Runnable,
        id: DeviceId,
        result: io::Result<Option<SocketAddr>>,
    ) -> Outcome {
        let answer = match result {
            Ok(addr) => {
                self.devices.insert(id);
                Answer::Opened(id, addr.map(Box::new))
            }
            Err(error) => Answer::Io(error),
        };
        self.answer(me, answer)
    }

    pub(super) fn connected(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        let answer = match self.devices.check(device, Direction::Write) {
            Err(errno) => errno.into(),
            Ok(()) => done(self.world.connected(device)),
        };
        self.answer(me, answer)
    }

    pub(super) fn shutdown_write(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        let answer = match self.devices.check(device, Direction::Write) {
            Err(Errno::BadFd) => Errno::BadFd.into(),
            // A writer that waits does not keep the stream from being ended: it will be told.
            Ok(()) | Err(_) => done(self.world.shutdown_write(device)),
        };
        self.answer(me, answer)
    }

    pub(super) fn device_wait(
        &mut self,
        me: Runnable,
        device: DeviceId,
        direction: Direction,
    ) -> Outcome {
        if let Err(errno) = self.devices.check(device, direction) {
            return Outcome::Reply(Reply::Err(errno));
        }
        match self.world.ready(device, direction) {
            Ok(false) => self.wait_for(me, device, direction, Then::Done),
            // What is wrong with it shows when it is used.
            Ok(true) | Err(_) => Outcome::Reply(Reply::Done),
        }
    }

    fn wait_for(
        &mut self,
        me: Runnable,
        device: DeviceId,
        direction: Direction,
        then: Then,
    ) -> Outcome {
        self.devices.claim(device, direction, me);
        *self.devices.waiting_like(me) += 1;
        self.block(me, Place::Device(device, direction, then))
    }

    /// The device is the caller's from now on: nobody who comes later gets between its call and its
    /// turn.
    pub(super) fn read_later(&mut self, me: Runnable, device: DeviceId, what: Read) -> Outcome {
        if let Err(errno) = self.devices.check(device, Direction::Read) {
            return Outcome::Reply(Reply::Err(errno));
        }
        if self.world.is_drained(device) {
            return self.wait_for(me, device, Direction::Read, Then::Read(what));
        }
        self.devices.claim(device, Direction::Read, me);
        self.answer(me, Answer::Read(device, what))
    }

    pub(super) fn send(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        if let Err(errno) = self.devices.check(device, Direction::Write) {
            return Outcome::Reply(Reply::Err(errno));
        }
        let result = self
            .world
            .send(device, &self.frame.buffer(self.frame.len.take()));
        self.sent(me, device, result)
    }

    pub(super) fn send_file(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        let Some(Payload::File(file, offset)) = self.frame.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        if let Err(errno) = self.devices.check(device, Direction::Write) {
            return Outcome::Reply(Reply::Err(errno));
        }
        let len = self.frame.len.take();
        let result = self.world.send_file(device, &file, offset, len);
        self.sent(me, device, result)
    }

    fn sent(&mut self, me: Runnable, device: DeviceId, result: io::Result<usize>) -> Outcome {
        match self.transferred(me.tid, device, Direction::Write, result) {
            Some(answer) => self.answer(me, answer),
            None => self.wait_for(me, device, Direction::Write, Then::Again),
        }
    }

    pub(super) fn close_device(&mut self, device: DeviceId) -> Outcome {
        Outcome::Reply(if self.close(device) {
            Reply::Done
        } else {
            Reply::Err(Errno::BadFd)
        })
    }

    /// Wakes who waits for a device that the world has reported ready.
    pub(super) fn report_ready(&mut self, device: DeviceId, direction: Direction) {
        let Some(task) = self.devices.owner(device, direction) else {
            return;
        };
        let State::Blocked(Place::Device(_, _, then)) = self.tasks[task].state else {
            // It is to read anyway.
            return;
        };
        *self.devices.waiting_like(task) -= 1;
        if let Then::Done | Then::Again = then {
            self.devices.release(device, direction);
        }
        let answer = match then {
            Then::Done => Reply::Done.into(),
            Then::Again => Reply::Again.into(),
            Then::Read(what) => Answer::Read(device, what),
        };
        self.wake(task, Wake::Device(device, direction), answer);
    }

    /// Closes a device and tells who has it. Answers whether it was open.
    pub(super) fn close(&mut self, device: DeviceId) -> bool {
        let Some(claims) = self.devices.remove(device) else {
            return false;
        };
        contain(|| self.world.close(device));
        for task in claims.into_iter().flatten() {
            if self.tasks[task].state.is_ready() {
                self.tasks[task].change(Errno::Closed.into());
                self.tell_answer(task);
            } else {
                *self.devices.waiting_like(task) -= 1;
                self.wake(task, Wake::Closed(device), Errno::Closed);
            }
        }
        true
    }

    /// Gives a task whose turn it is an answer that is not a bare reply. Reads it off the device
    /// first, if that is where it is; where there is nothing, the task blocks, and `None` says that
    /// its turn is over.
    #[inline(never)]
    pub(super) fn deliver(&mut self, me: Runnable) -> Option<Reply> {
        let state = std::mem::replace(&mut self.tasks[me].state, State::Running);
        let answer = match state {
            State::Ready(reply) => return Some(reply),
            State::Owed(answer) => answer,
            _ => unreachable!("only a ready task has a turn"),
        };
        let (device, what) = match answer {
            Answer::Read(device, what) => (device, what),
            Answer::Timeout(timer) => return Some(self.start_timeout(me, timer)),
            known => return Some(self.hand_over(known)),
        };
        let read = match what {
            Read::Bytes(room) => self.recv(me, device, room),
            Read::Connection => self.accept(me, device),
        };
        let Some(read) = read else {
            let _ = self.wait_for(me, device, Direction::Read, Then::Read(what));
            return None;
        };
        self.devices.release(device, Direction::Read);
        let _ = self.answer(me, read);
        self.deliver(me)
    }

    /// Puts the answer into the frame, as far as it does not fit into the reply.
    fn hand_over(&self, answer: Answer) -> Reply {
        let (reply, payload) = match answer {
            Answer::Reply(reply) => return reply,
            Answer::Message(_, number) | Answer::Refused(_, number) => {
                return Reply::Message(number);
            }
            Answer::Full(_, number) => return Reply::Full(number),
            Answer::Exit(exit) => (Reply::Exit, Payload::Exit(*exit)),
            Answer::Tasks(tasks) => (Reply::Tasks, Payload::Tasks(tasks.into_vec())),
            Answer::Io(error) => (Reply::Io, Payload::Io(error)),
            Answer::Opened(device, addr) => {
                let handle = Handle::new(device, &self.frame);
                let addr = addr.map(|addr| *addr);
                (Reply::Device(device), Payload::Opened(handle, addr))
            }
            Answer::Read(..) | Answer::Timeout(_) => {
                unreachable!("what has to be done first is done by now")
            }
        };
        self.frame.put(payload);
        reply
    }

    fn recv(&mut self, me: Runnable, device: DeviceId, room: u32) -> Option<Answer> {
        let result = self
            .world
            .recv(device, self.frame.buffer(room as usize).as_mut());
        self.transferred(me.tid, device, Direction::Read, result)
    }

    fn accept(&mut self, me: Runnable, listener: DeviceId) -> Option<Answer> {
        let id = self.devices.next_id();
        let mut peer = None;
        let result = self.world.accept(listener, id).map(|addr| {
            self.devices.insert(id);
            peer = Some(addr);
            0
        });
        let answer = self.transferred(me.tid, listener, Direction::Read, result)?;
        Some(if peer.is_some() {
            Answer::Opened(id, peer.map(Box::new))
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
}

fn done(result: io::Result<()>) -> Answer {
    result.map_or_else(Answer::Io, |()| Reply::Done.into())
}
