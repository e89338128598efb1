//! The open devices, and the tasks that wait for each of them.

use std::{io, net::SocketAddr};

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    task::{Pending, ReadOp, State, Then, WaitingOn},
};
use crate::{
    abi::{DeviceId, Direction, Errno, Reply, Tid},
    log::{Fact, Wake},
    panic::contain,
    sched::Runnable,
    trap::{DeviceRef, Object, Payload},
    world::{self, DeviceMap, Request},
};

/// One reader and one writer may have a device at once.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// The task that has each direction: it waits, or it reads when its turn comes.
    open: DeviceMap<[Option<Runnable>; 2]>,
    /// The last token of a task's device, and of a daemon's.
    last: [u64; 2],
    /// How many tasks wait, daemons apart.
    waiting: usize,
    /// How many daemons wait.
    daemons: usize,
}

impl Devices {
    /// Forgets the devices of an earlier run.
    pub(super) fn reset(&mut self) {
        if !self.open.is_empty() {
            self.open.clear();
        }
        self.last = [0; 2];
        (self.waiting, self.daemons) = (0, 0);
    }

    /// A token that no device has had before.
    fn next_id(&self, task: Runnable) -> DeviceId {
        let of_daemon = task.tid.is_daemon();
        let first = if of_daemon { DeviceId::DAEMONS } else { 0 };
        DeviceId::from_raw(first + self.last[usize::from(of_daemon)] + 1)
    }

    /// Adds the device that was opened under the next token.
    fn insert(&mut self, device: DeviceId) {
        self.last[usize::from(device.is_of_daemon())] += 1;
        self.open.insert(device, [None; 2]);
    }

    /// Takes a device off the table. Returns the tasks that had it, the reader first.
    fn remove(&mut self, device: DeviceId) -> Option<[Option<Runnable>; 2]> {
        self.open.remove(&device)
    }

    /// How many wait that count as this one does.
    pub(super) fn waiting_like(&mut self, task: Runnable) -> &mut usize {
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

    /// Releases this direction of the device.
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
            return Errno::Invalid.into();
        };
        let id = self.devices.next_id(me);
        let request = Request::Attach {
            host: self.tasks[me].host,
            descriptor: source.clone(),
        };
        let result = self.world.io(id, request).and_then(world::Answer::done);
        // One that is refused, and whose call was given up, is dropped here.
        contain(|| drop(source));
        self.opened(id, result.map(|()| None)).into()
    }

    pub(super) fn listen(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let id = self.devices.next_id(me);
        let host = self.tasks[me].host;
        let request = Request::Listen { host, addr };
        let result = self.world.io(id, request).and_then(world::Answer::addr);
        self.opened(id, result.map(Some)).into()
    }

    pub(super) fn connect(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let id = self.devices.next_id(me);
        let host = self.tasks[me].host;
        let request = Request::Connect { host, addr };
        let result = self.world.io(id, request).and_then(world::Answer::done);
        self.opened(id, result.map(|()| None)).into()
    }

    fn opened(&mut self, id: DeviceId, result: io::Result<Option<SocketAddr>>) -> Answer {
        match result {
            Ok(addr) => {
                self.devices.insert(id);
                let device = DeviceRef::new(id, &self.frame);
                Answer::with(Reply::Device(id), Payload::Opened(device, addr))
            }
            Err(error) => failed(error),
        }
    }

    pub(super) fn connected(&mut self, device: DeviceId) -> Outcome {
        match self.devices.check(device, Direction::Write) {
            Err(errno) => errno.into(),
            Ok(()) => match self.world.io(device, Request::Connected) {
                Ok(world::Answer::Addr(own)) => Answer::with(Reply::Done, Payload::Addr(own)),
                other => done(other),
            }
            .into(),
        }
    }

    pub(super) fn shutdown_write(&mut self, device: DeviceId) -> Outcome {
        match self.devices.check(device, Direction::Write) {
            Err(Errno::BadFd) => Errno::BadFd.into(),
            // A writer that waits does not keep the stream from being ended: it is woken.
            Ok(()) | Err(_) => self.done(device, Request::Shutdown).into(),
        }
    }

    pub(super) fn device_wait(
        &mut self,
        me: Runnable,
        device: DeviceId,
        direction: Direction,
    ) -> Outcome {
        if let Err(errno) = self.devices.check(device, direction) {
            return errno.into();
        }
        let ready = self.world.io(device, Request::Ready(direction));
        match ready.and_then(world::Answer::ready) {
            Ok(false) => {
                self.time_passed(me.tid);
                self.wait_for(me, device, direction, Then::Done)
            }
            // What is wrong with it shows when it is used.
            Ok(true) | Err(_) => Reply::Done.into(),
        }
    }

    /// Asks the world for something that has no result.
    fn done(&mut self, device: DeviceId, request: Request<'_>) -> Answer {
        done(self.world.io(device, request))
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
        self.block(me, WaitingOn::Device(device, direction, then))
    }

    /// Gives the caller the device from now on: no later task gets between its call and its turn.
    pub(super) fn read_later(&mut self, me: Runnable, device: DeviceId, op: ReadOp) -> Outcome {
        match (self.devices.check(device, Direction::Read), op) {
            // As tokio does: no bytes are there at once, whatever else waits for the device.
            (Ok(()) | Err(Errno::Busy), ReadOp::Bytes(0)) => return Reply::Bytes(0).into(),
            (Err(errno), _) => return errno.into(),
            (Ok(()), _) => {}
        }
        // A world that cannot tell is asked to read.
        if let Ok(world::Answer::Ready(true)) = self.world.io(device, Request::Drained) {
            return self.wait_for(me, device, Direction::Read, Then::Read(op));
        }
        self.devices.claim(device, Direction::Read, me);
        Outcome::Ready(Pending::Read(device, op).into())
    }

    pub(super) fn send(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        if let Err(errno) = self.devices.check(device, Direction::Write) {
            return errno.into();
        }
        let len = self.frame.take_word().unwrap_or(0) as usize;
        let result = self
            .world
            .io(device, Request::Send(&self.frame.buffer(len)));
        self.sent(me, device, result)
    }

    pub(super) fn send_file(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        let Some(Payload::File(file, offset)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        if let Err(errno) = self.devices.check(device, Direction::Write) {
            return errno.into();
        }
        let len = self.frame.take_word().unwrap_or(0) as usize;
        let request = Request::SendFile {
            file: &file,
            offset,
            len,
        };
        let result = self.world.io(device, request);
        self.sent(me, device, result)
    }

    fn sent(
        &mut self,
        me: Runnable,
        device: DeviceId,
        result: io::Result<world::Answer>,
    ) -> Outcome {
        let result = result.and_then(world::Answer::bytes);
        match self.transferred(me.tid, device, Direction::Write, result) {
            Some(answer) => answer.into(),
            None => self.wait_for(me, device, Direction::Write, Then::Again),
        }
    }

    pub(super) fn close_device(&mut self, device: DeviceId) -> Outcome {
        if self.close(device) {
            Reply::Done.into()
        } else {
            Errno::BadFd.into()
        }
    }

    /// Wakes the task that waits for a device which the world has reported ready.
    pub(super) fn report_ready(&mut self, device: DeviceId, direction: Direction) {
        let Some(task) = self.devices.owner(device, direction) else {
            return;
        };
        let State::Blocked(WaitingOn::Device(_, _, then)) = self.tasks[task].state else {
            // It is to read anyway.
            return;
        };
        *self.devices.waiting_like(task) -= 1;
        if let Then::Done | Then::Again = then {
            self.devices.release(device, direction);
        }
        if let Then::Again = then {
            self.pass_again(task, self.tasks[task].traps + 1);
        }
        let state: State = match then {
            Then::Done => Reply::Done.into(),
            Then::Again => Reply::Again.into(),
            Then::Read(op) => Pending::Read(device, op).into(),
        };
        self.wake(task, Wake::Device(device, direction), state);
    }

    /// Closes a device and wakes the tasks that have it. Returns whether it was open.
    pub(super) fn close(&mut self, device: DeviceId) -> bool {
        let Some(claims) = self.devices.remove(device) else {
            return false;
        };
        contain(|| drop(self.world.io(device, Request::Close)));
        for task in claims.into_iter().flatten() {
            if self.tasks[task].state.is_ready() {
                // Its next turn would have read, and does not commute with this one.
                self.touch(Object::Life(task.tid));
                let closed = self.late(task, Errno::Closed, false);
                self.tasks[task].change(closed);
                self.tell_answer(task);
            } else {
                *self.devices.waiting_like(task) -= 1;
                self.wake(task, Wake::Closed(device), Errno::Closed);
            }
        }
        true
    }

    /// Reads off a device for a task whose turn it is. Where there is nothing, the task blocks, and
    /// `None` says that its turn is over; a due timeout cuts it instead.
    pub(super) fn read(&mut self, me: Runnable, device: DeviceId, op: ReadOp) -> Option<Answer> {
        self.touch(Object::World);
        let read = match op {
            ReadOp::Bytes(room) => self.recv(me, device, room),
            ReadOp::Connection => self.accept(me, device),
        };
        let answer = match (read, self.tasks[me].due()) {
            (Some(answer), _) => answer,
            (None, Some(due)) => {
                self.tasks[me].set_due(None);
                Reply::Elapsed(due.number).into()
            }
            (None, None) => {
                let _ = self.wait_for(me, device, Direction::Read, Then::Read(op));
                return None;
            }
        };
        if self.let_through(me, false) {
            self.frame.set_due();
        }
        self.devices.release(device, Direction::Read);
        self.emit_at_once(me.tid, || Fact::Replied {
            reply: answer.reply,
            detail: answer.detail(),
        });
        Some(answer)
    }

    fn recv(&mut self, me: Runnable, device: DeviceId, room: u32) -> Option<Answer> {
        let result = self
            .world
            .io(device, Request::Recv(&mut self.frame.buffer(room as usize)));
        let result = result.and_then(world::Answer::bytes);
        self.transferred(me.tid, device, Direction::Read, result)
    }

    fn accept(&mut self, me: Runnable, listener: DeviceId) -> Option<Answer> {
        let id = self.devices.next_id(me);
        let mut peer = None;
        let request = Request::Accept {
            host: self.tasks[me].host,
            connection: id,
        };
        let result = self.world.io(listener, request);
        let result = result.and_then(world::Answer::addr).map(|addr| {
            peer = Some(addr);
            0
        });
        let answer = self.transferred(me.tid, listener, Direction::Read, result)?;
        Some(match peer {
            Some(_) => self.opened(id, Ok(peer)),
            None => answer,
        })
    }

    /// Returns the result of an attempt at a device; `None` if it would block.
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
            self.time_passed(tid);
            return None;
        }
        self.emit(tid, || Fact::DeviceIo {
            device,
            direction,
            result: result.as_ref().map_err(io::Error::kind).copied(),
        });
        Some(result.map_or_else(failed, |n| Reply::Bytes(n as u64).into()))
    }
}

fn done(result: io::Result<world::Answer>) -> Answer {
    let result = result.and_then(world::Answer::done);
    result.map_or_else(failed, |()| Reply::Done.into())
}

fn failed(error: io::Error) -> Answer {
    Answer::with(Reply::Io, Payload::Io(error))
}
