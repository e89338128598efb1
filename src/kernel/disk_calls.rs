//! The calls on a disk. Each begins an operation as a device, and its task waits until it can read the
//! result.

use std::io;

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    task::{ReadOp, Then},
    transfers::failed,
};
use crate::{
    abi::{DeviceId, Direction, Errno, Reply, SystemCall},
    sched::Runnable,
    trap::{DeviceRef, Payload},
    world::{self, Request},
};

impl Kernel {
    /// Begins an operation on names, as a device of its own.
    pub(super) fn begin_on_disk(&mut self, me: Runnable, call: SystemCall) -> Outcome {
        let Some(Payload::Disk(op)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let (id, host) = (self.devices.next_id(me), self.tasks[me].host);
        let detail = op.detail().into_owned();
        let begun = op
            .checked()
            .and_then(|op| self.world.io(id, Request::Disk { host, op }))
            .and_then(world::Answer::done);
        match begun {
            Ok(()) => {
                self.devices.insert(id);
                self.devices.set_names(id, detail);
                self.await_disk(me, id, call)
            }
            Err(error) => failed(error).into(),
        }
    }

    pub(super) fn begin_on_file(
        &mut self,
        me: Runnable,
        device: DeviceId,
        call: SystemCall,
    ) -> Outcome {
        let Some(Payload::FileOp(op)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        if let Err(errno) = self.devices.check(device, Direction::Read) {
            return errno.into();
        }
        let begun = self.world.io(device, Request::File(*op));
        match begun.and_then(world::Answer::done) {
            Ok(()) => self.await_disk(me, device, call),
            Err(error) => failed(error).into(),
        }
    }

    fn await_disk(&mut self, me: Runnable, device: DeviceId, call: SystemCall) -> Outcome {
        self.time_passed(me.tid);
        let then = Then::Read(ReadOp::Disk(call.number().into()));
        Outcome::Block(self.wait_for(me, device, Direction::Read, then))
    }

    /// Takes the result of an operation for a task whose turn it is; `None` if there is none yet.
    #[inline(never)]
    pub(super) fn finish_on_disk(
        &mut self,
        me: Runnable,
        device: DeviceId,
        call: u32,
    ) -> Option<Answer> {
        let mut bytes = Vec::new();
        let result = self.world.io(device, Request::Finish(&mut bytes));
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.time_passed(me.tid);
            return None;
        }
        let call = SystemCall::from_number(call as u8)?;
        let direction = match call {
            SystemCall::ReadAt(_) => Direction::Read,
            SystemCall::WriteAt(_) | SystemCall::Append(_) => Direction::Write,
            SystemCall::Len(_) => {
                let len = result.and_then(world::Answer::bytes);
                return Some(len.map_or_else(failed, |len| Reply::Bytes(len as u64).into()));
            }
            _ => {
                let done = result.and_then(world::Answer::done);
                if done.is_ok() && call == SystemCall::Open {
                    self.devices.set_file(device);
                    let opened = DeviceRef::new(device, &self.frame);
                    let opened = Payload::Opened(opened, None);
                    return Some(Answer::with(Reply::Device(device), opened));
                }
                self.end_operation(device, call);
                return Some(match (done, call) {
                    (Err(error), _) => failed(error),
                    (Ok(()), SystemCall::List) => Answer::with(Reply::Done, Payload::Bytes(bytes)),
                    (Ok(()), _) => Reply::Done.into(),
                });
            }
        };
        let moved = result.and_then(world::Answer::bytes);
        let answer = self.transferred(me.tid, device, direction, moved)?;
        Some(match (direction, answer.reply) {
            (Direction::Read, reply @ Reply::Bytes(_)) => {
                Answer::with(reply, Payload::Bytes(bytes))
            }
            _ => answer,
        })
    }
}
