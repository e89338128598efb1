//! What all calls on devices have in common: the wait, the result of an attempt, and the end of a read.

use std::io;

use super::{
    Kernel,
    answer::Answer,
    task::{ReadOp, Then, WaitingOn},
};
use crate::{
    abi::{DeviceId, Direction, Reply, SystemCall, Tid},
    panic::contain,
    sched::Runnable,
    trap::Payload,
    world::Request,
};

impl Kernel {
    /// Gives the caller this direction of the device, for which it is to wait.
    pub(super) fn wait_for(
        &mut self,
        me: Runnable,
        device: DeviceId,
        direction: Direction,
        then: Then,
    ) -> WaitingOn {
        self.devices.claim(device, direction, me);
        self.devices.begin_wait(me);
        WaitingOn::Device(device, direction, then)
    }

    /// Returns the answer of an attempt at a device; `None` if it would block.
    #[inline(always)]
    pub(super) fn transferred(
        &mut self,
        tid: Tid,
        device: DeviceId,
        direction: Direction,
        result: io::Result<usize>,
    ) -> Option<Answer> {
        let result = self.attempted(tid, device, direction, result)?;
        Some(result.map_or_else(failed, |n| Reply::Bytes(n as u64).into()))
    }

    /// Emits the result of an attempt at a device, and returns it; `None` if it would block.
    #[inline(always)]
    pub(super) fn attempted(
        &mut self,
        tid: Tid,
        device: DeviceId,
        direction: Direction,
        result: io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let n = match result {
            Ok(n) => n,
            Err(error) => return self.attempt_failed(tid, device, direction, error),
        };
        if self.is_seen(tid) {
            self.emit_io(tid, device, direction, Ok(n));
        }
        Some(Ok(n))
    }

    #[cold]
    #[inline(never)]
    fn attempt_failed(
        &mut self,
        tid: Tid,
        device: DeviceId,
        direction: Direction,
        error: io::Error,
    ) -> Option<io::Result<usize>> {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.time_passed(tid);
            return None;
        }
        self.emit_io(tid, device, direction, Err(error.kind()));
        Some(Err(error))
    }

    /// Ends the claim of a task that was to read a device, and does not.
    pub(super) fn give_up_read(&mut self, device: DeviceId, op: ReadOp) {
        self.devices.end_read(device, false);
        if let ReadOp::Disk(call) = op
            && let Some(call) = SystemCall::from_number(call as u8)
        {
            self.end_operation(device, call);
        }
    }

    /// Ends the device of an operation on names: no other task has it.
    pub(super) fn end_operation(&mut self, device: DeviceId, call: SystemCall) {
        if call.device().is_none() {
            self.devices.remove(device);
            contain(|| drop(self.world.io(device, Request::Close)));
        }
    }
}

pub(super) fn failed(error: io::Error) -> Answer {
    Answer::with(Reply::Io, Payload::Io(error))
}
