//! Standard input: one device, which all tasks of the kernel share, and what was read of it ahead.

use std::io;

use super::{Kernel, answer::Answer, outcome::Outcome, transfers::failed};
use crate::{
    abi::{DeviceId, Direction, Reply},
    sched::Runnable,
    trap::{DeviceRef, MAX_IO, MAX_LINE, Payload},
    world::{self, Request},
};

impl Kernel {
    pub(super) fn open_input(&mut self, me: Runnable) -> Outcome {
        match self.input_device(me) {
            Ok(device) => {
                let handle = DeviceRef::shared(device, &self.frame);
                Answer::with(Reply::Device(device), Payload::Opened(handle, None)).into()
            }
            Err(error) => failed(error).into(),
        }
    }

    /// The device of standard input, which is opened if there is none.
    pub(super) fn input_device(&mut self, me: Runnable) -> io::Result<DeviceId> {
        if me.tid.is_daemon() {
            // What it takes would be missing in a replay.
            let why = "a daemon of the host cannot read the input of the tasks";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        if let Some(device) = self.stdio.input(me.tid).or(self.devices.input()) {
            return Ok(device);
        }
        let id = self.devices.next_id(me);
        let opened = self.world.io(id, Request::Input);
        opened.and_then(world::Answer::done)?;
        self.devices.insert(id);
        self.devices.set_input(id);
        Ok(id)
    }

    /// Reads until there is a line, whose task takes it; its bytes stay with the others up to then, so
    /// that none is lost with a task that is cut. `None` if it would block.
    #[inline(never)]
    pub(super) fn line(&mut self, me: Runnable, device: DeviceId) -> Option<Answer> {
        let unread = self.devices.unread_of(device);
        self.devices.read_ahead();
        loop {
            let found = self.frame.unread.borrow_mut().of(unread).find_line();
            if let Some(len) = found {
                return Some(Reply::Bytes(len as u64).into());
            }
            if self.frame.unread.borrow_mut().of(unread).len() > MAX_LINE {
                let why = "a line of standard input is longer than 1 MiB: read it by Os::input";
                return Some(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            let mut buffer = self.frame.buffer(MAX_IO);
            let result = self.world.io(device, Request::Recv(&mut buffer));
            let result = result.and_then(world::Answer::bytes);
            let read = result.as_ref().copied().unwrap_or(0);
            self.frame
                .unread
                .borrow_mut()
                .of(unread)
                .push(&buffer[..read]);
            drop(buffer);
            let answer = self.transferred(me.tid, device, Direction::Read, result)?;
            if read == 0 {
                let rest = self.frame.unread.borrow_mut().of(unread).len();
                let is_end = answer.reply == Reply::Bytes(0);
                return Some(if is_end {
                    Reply::Bytes(rest as u64).into()
                } else {
                    answer
                });
            }
        }
    }
}
