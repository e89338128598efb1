//! The open devices, and who waits for each of them.

use std::collections::BTreeMap;

use crate::{
    abi::{DeviceId, Direction, Errno},
    sched::Runnable,
};

/// One reader and one writer may wait for a device at once.
#[derive(Debug, Default)]
pub(super) struct Devices {
    open: BTreeMap<DeviceId, [Option<Runnable>; 2]>,
    last: u64,
    waiting: usize,
}

impl Devices {
    /// A token that no device has had before.
    pub(super) fn next_id(&self) -> DeviceId {
        DeviceId::from(self.last + 1)
    }

    /// Adds the device that was opened under the next token.
    pub(super) fn insert(&mut self, device: DeviceId) {
        self.last = device.into();
        self.open.insert(device, [None; 2]);
    }

    /// Takes a device off the table and answers who waited for it, the reader first.
    pub(super) fn remove(&mut self, device: DeviceId) -> Option<[Option<Runnable>; 2]> {
        let waiters = self.open.remove(&device)?;
        self.waiting -= waiters.iter().flatten().count();
        Some(waiters)
    }

    /// Whether a task may wait for this direction of the device.
    pub(super) fn check(&self, device: DeviceId, direction: Direction) -> Result<(), Errno> {
        match self.open.get(&device) {
            None => Err(Errno::BadFd),
            Some(waiters) if waiters[direction as usize].is_some() => Err(Errno::Busy),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn set(&mut self, device: DeviceId, direction: Direction, task: Runnable) {
        let waiters = self
            .open
            .get_mut(&device)
            .expect("a device that is waited for is open");
        waiters[direction as usize] = Some(task);
        self.waiting += 1;
    }

    /// Takes the task that waits for this direction of the device, if there is one.
    pub(super) fn take(&mut self, device: DeviceId, direction: Direction) -> Option<Runnable> {
        let task = self.open.get_mut(&device)?[direction as usize].take()?;
        self.waiting -= 1;
        Some(task)
    }

    /// How many tasks wait for a device.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn waiter(&self, device: DeviceId, direction: Direction) -> Option<Runnable> {
        self.open.get(&device)?[direction as usize]
    }
}
