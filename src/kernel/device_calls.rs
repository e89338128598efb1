//! The calls on devices.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    task::{Pending, ReadOp, Then, WaitingOn},
    transfers::failed,
};
use crate::{
    abi::{DeviceId, Direction, Errno, ListenOptions, Reply, StreamOptions},
    log::{Detail, Wake},
    panic::contain,
    sched::Runnable,
    trap::{DeviceRef, Object, Payload},
    world::{self, Request},
};

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
        let (addr, options) = match self.frame.take() {
            Some(Payload::Addr(addr)) => (addr, ListenOptions::default()),
            Some(Payload::Listen(addr, options)) => (addr, *options),
            _ => return Errno::Invalid.into(),
        };
        let (id, host) = (self.devices.next_id(me), self.tasks[me].host);
        let options = &options;
        let request = Request::Listen {
            host,
            addr,
            options,
        };
        let result = self.world.io(id, request);
        let result = result.and_then(world::Answer::addr);
        let answer = self.opened(id, result.map(Some));
        self.devices.set_listener(id);
        answer.into()
    }

    pub(super) fn connect(&mut self, me: Runnable) -> Outcome {
        let (addr, options) = match self.frame.take() {
            Some(Payload::Addr(addr)) => (addr, StreamOptions::default()),
            Some(Payload::Connect(addr, options)) => (addr, *options),
            _ => return Errno::Invalid.into(),
        };
        let (id, host) = (self.devices.next_id(me), self.tasks[me].host);
        let options = &options;
        let request = Request::Connect {
            host,
            addr,
            options,
        };
        let result = self.world.io(id, request);
        let result = result.and_then(world::Answer::done);
        self.opened(id, result.map(|()| None)).into()
    }

    pub(super) fn opened(
        &mut self,
        id: DeviceId,
        result: io::Result<Option<SocketAddr>>,
    ) -> Answer {
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
                Ok(world::Answer::Addr(own)) => {
                    Answer::with(Reply::Done, Payload::Addr(own)).into()
                }
                other => done(other).into(),
            },
        }
    }

    pub(super) fn shut_down(&mut self, device: DeviceId, half: Direction) -> Outcome {
        let request = match half {
            Direction::Read => Request::ShutdownRead,
            Direction::Write => Request::Shutdown,
        };
        match self.devices.check(device, half) {
            Err(Errno::BadFd) => Errno::BadFd.into(),
            // A task that waits does not keep the half from being ended: it is woken.
            Ok(()) | Err(_) => match self.world.io(device, request) {
                Ok(answer) => {
                    if half == Direction::Read {
                        self.report_ready(device, half);
                    }
                    done(Ok(answer)).into()
                }
                Err(error) => failed(error).into(),
            },
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
        let is_ahead = direction == Direction::Read && self.devices.has_unread(device, &self.frame);
        let ready = match is_ahead {
            true => Ok(world::Answer::Ready(true)),
            false => self.world.io(device, Request::Ready(direction)),
        };
        match ready.and_then(world::Answer::ready) {
            Ok(false) => {
                self.time_passed(me.tid);
                Outcome::Block(self.wait_for(me, device, direction, Then::Done))
            }
            // What is wrong with it shows when it is used.
            Ok(true) | Err(_) => Reply::Done.into(),
        }
    }

    pub(super) fn read_line(&mut self, me: Runnable) -> Outcome {
        match self.input_device(me) {
            Ok(device) => self.read_later_apart(me, device, ReadOp::Line),
            Err(error) => failed(error).into(),
        }
    }

    /// The same as [`Kernel::read_later`], where that is rare.
    #[inline(never)]
    pub(super) fn read_later_apart(
        &mut self,
        me: Runnable,
        device: DeviceId,
        op: ReadOp,
    ) -> Outcome {
        self.read_later(me, device, op)
    }

    /// Gives the caller the device from now on: no later task gets between its call and its turn.
    #[inline(always)]
    pub(super) fn read_later(&mut self, me: Runnable, device: DeviceId, op: ReadOp) -> Outcome {
        if let ReadOp::Bytes(0) = op {
            // As tokio does: no bytes are there at once, whatever else waits for the device.
            return match self.devices.check(device, Direction::Read) {
                Err(Errno::BadFd) => Errno::BadFd.into(),
                Ok(()) | Err(_) => Reply::Bytes(0).into(),
            };
        }
        let is_drained = match self.devices.take_to_read(me, device) {
            Ok(is_drained) => is_drained,
            Err(errno) => return errno.into(),
        };
        if !self.devices.has_unread(device, &self.frame) && (is_drained || self.is_drained(device))
        {
            self.devices.begin_wait(me);
            let on = WaitingOn::Device(device, Direction::Read, Then::Read(op));
            self.block(me, on);
            return Outcome::Blocked;
        }
        Outcome::Ready(Pending::Read(device, op).into())
    }

    /// Asks the world whether a device is known to have nothing. A world that cannot tell is asked to read.
    #[cold]
    #[inline(never)]
    fn is_drained(&mut self, device: DeviceId) -> bool {
        let answer = self.world.io(device, Request::Drained);
        matches!(answer, Ok(world::Answer::Ready(true)))
    }

    pub(super) fn send(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        if let Err(errno) = self.devices.check(device, Direction::Write) {
            return errno.into();
        }
        let len = self.frame.take_word().unwrap_or(0) as usize;
        let buffer = self.frame.buffer(len);
        let result = self.world.io(device, Request::Send(&buffer));
        drop(buffer);
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

    pub(super) fn sent(
        &mut self,
        me: Runnable,
        device: DeviceId,
        result: io::Result<world::Answer>,
    ) -> Outcome {
        let result = result.and_then(world::Answer::bytes);
        match self.transferred(me.tid, device, Direction::Write, result) {
            Some(answer) => answer.into(),
            None => Outcome::Block(self.wait_for(me, device, Direction::Write, Then::Again)),
        }
    }

    /// Closes a device and wakes the tasks that have it. Returns whether it was open.
    pub(super) fn close_device(&mut self, device: DeviceId) -> bool {
        // A close may free the file for another open, and its space.
        if self.devices.is_file(device) {
            self.touch(Object::World);
        }
        let Some(claims) = self.devices.remove(device) else {
            return false;
        };
        contain(|| drop(self.world.io(device, Request::Close)));
        self.frame.unread.borrow_mut().remove(device);
        for task in claims.into_iter().flatten() {
            // A select looks at the device in its turn, or leaves it.
            if self.wake_select(task, Wake::Closed(device)) {
                continue;
            }
            if self.tasks[task].state().is_ready() {
                // Its next turn would have read, and does not commute with this one.
                self.touch(Object::Life(task.tid));
                let closed = self.tasks[task].late(Errno::Closed.into(), false);
                self.tasks[task].answer(closed);
                self.emit_answer(task);
            } else {
                self.devices.end_wait(task);
                self.wake(task, Wake::Closed(device), Errno::Closed);
            }
        }
        true
    }

    /// Reads off a device for a task whose turn it is. Where there is nothing, the task blocks, and
    /// `None` says that its turn is over; a due timeout cuts it instead.
    #[inline(always)]
    pub(super) fn read(&mut self, me: Runnable, device: DeviceId, op: ReadOp) -> Option<Reply> {
        self.touch_device(device);
        let mut is_drained = false;
        let read = match op {
            ReadOp::Bytes(room) => {
                let read = self.recv(me, device, room, &mut is_drained);
                read.map(|read| self.received(read))
            }
            ReadOp::Datagram(_) | ReadOp::Connection | ReadOp::Disk(_) | ReadOp::Line => {
                self.read_apart(me, device, op)
            }
        };
        let reply = match read {
            Some(reply) => reply,
            None => self.read_in_vain(me, device, op)?,
        };
        if self.tasks[me].let_through(false) {
            self.frame.set_due();
        }
        self.devices.end_read(device, is_drained);
        if self.is_seen(me.tid) {
            self.emit_read(me, op, reply);
        }
        Some(reply)
    }

    /// The same for all but bytes. What each message of a connection needs takes a smaller function.
    #[inline(never)]
    fn read_apart(&mut self, me: Runnable, device: DeviceId, op: ReadOp) -> Option<Reply> {
        let answer = match op {
            ReadOp::Bytes(_) => unreachable!("bytes are read by `recv`"),
            ReadOp::Datagram(room) => self.recv_from(me, device, room),
            ReadOp::Connection => self.accept(me, device),
            ReadOp::Disk(call) => self.finish_on_disk(me, device, call),
            ReadOp::Line => self.line(me, device),
        };
        Some(self.hand_out(answer?))
    }

    /// Returns the reply of a read of bytes. Its error goes into the frame.
    #[inline(always)]
    fn received(&self, read: io::Result<usize>) -> Reply {
        match read {
            Ok(n) => Reply::Bytes(n as u64),
            Err(error) => self.hand_out(failed(error)),
        }
    }

    /// Emits the answer of a read. What goes with it is in the frame.
    #[cold]
    #[inline(never)]
    fn emit_read(&mut self, me: Runnable, op: ReadOp, reply: Reply) {
        let sender = match op {
            ReadOp::Datagram(_) => self.frame.addr(),
            _ => None,
        };
        let beside = self.frame.take();
        self.emit_reply(me.tid, reply, || match (sender, &beside) {
            (Some(sender), _) => Detail::Addr(sender),
            (None, Some(payload)) => payload.detail(),
            (None, None) => Detail::None,
        });
        if let Some(payload) = beside {
            self.frame.put(payload);
        }
    }

    /// Has a task wait for a device where there was nothing to read. A due timeout cuts it.
    #[cold]
    #[inline(never)]
    fn read_in_vain(&mut self, me: Runnable, device: DeviceId, op: ReadOp) -> Option<Reply> {
        if let Some(due) = self.tasks[me].due() {
            self.tasks[me].set_due(None);
            self.give_up_read(device, op);
            return Some(Reply::Elapsed(due.number));
        }
        let on = self.wait_for(me, device, Direction::Read, Then::Read(op));
        self.block(me, on);
        None
    }

    #[inline(always)]
    fn recv(
        &mut self,
        me: Runnable,
        device: DeviceId,
        room: u32,
        is_drained: &mut bool,
    ) -> Option<io::Result<usize>> {
        if self.devices.has_unread(device, &self.frame) {
            return self.recv_unread(me, device, room);
        }
        let mut buffer = self.frame.buffer(room as usize);
        let result = self.world.recv(device, &mut buffer);
        drop(buffer);
        let result = result.map(|(n, is_empty)| {
            *is_drained = is_empty;
            n
        });
        self.attempted(me.tid, device, Direction::Read, result)
    }

    /// Takes bytes that were read ahead.
    #[cold]
    #[inline(never)]
    fn recv_unread(
        &mut self,
        me: Runnable,
        device: DeviceId,
        room: u32,
    ) -> Option<io::Result<usize>> {
        let n = {
            let mut unread = self.frame.unread.borrow_mut();
            let unread = unread.of(self.devices.unread_of(device));
            unread.read(&mut self.frame.buffer(room as usize))
        };
        self.attempted(me.tid, device, Direction::Read, Ok(n))
    }

    #[inline(never)]
    fn recv_from(&mut self, me: Runnable, device: DeviceId, room: u32) -> Option<Answer> {
        let mut from = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut buffer = self.frame.buffer(room as usize);
        let (buf, sender) = (&mut *buffer, &mut from);
        let request = Request::RecvFrom { buf, from: sender };
        let result = self.world.io(device, request);
        drop(buffer);
        let result = result.and_then(world::Answer::bytes);
        match &result {
            Ok(_) => self.frame.put_addr(from),
            Err(_) => drop(self.frame.take_addr()),
        }
        self.transferred(me.tid, device, Direction::Read, result)
    }

    #[inline(never)]
    fn accept(&mut self, me: Runnable, listener: DeviceId) -> Option<Answer> {
        let id = self.devices.next_id(me);
        let request = Request::Accept {
            host: self.tasks[me].host,
            connection: id,
        };
        let result = self.world.io(listener, request);
        let result = result.and_then(|answer| match answer {
            // A Unix socket that connects has no address.
            world::Answer::Done => Ok(None),
            other => other.addr().map(Some),
        });
        if result.is_ok() {
            self.touch_device(id);
        }
        let peer = result.as_ref().ok().copied();
        let answer = self.transferred(me.tid, listener, Direction::Read, result.map(|_| 0))?;
        Some(match peer {
            Some(peer) => self.opened(id, Ok(peer)),
            None => answer,
        })
    }
}

fn done(result: io::Result<world::Answer>) -> Answer {
    let result = result.and_then(world::Answer::done);
    result.map_or_else(failed, |()| Reply::Done.into())
}
