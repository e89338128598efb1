//! The open devices, and the tasks that wait for each of them. `device_calls.rs` has the calls.

use std::collections::BTreeMap;

use crate::{
    abi::{DeviceId, Direction, Errno},
    log::{Detail, disk_words, file_words},
    sched::Runnable,
    trap::TrapFrame,
    world::DeviceMap,
};

/// One reader and one writer may have a device at once.
#[derive(Debug, Default)]
pub(super) struct Devices {
    open: DeviceMap<Open>,
    /// The operations on names that were begun, and the open files: the path, and what is beside it.
    files: BTreeMap<DeviceId, (Detail<'static>, bool)>,
    /// The last token of a task's device, and of a daemon's.
    last: [u64; 2],
    /// How many tasks wait, and how many daemons.
    waiting: [usize; 2],
    /// That of standard input, if it was opened.
    input: Option<DeviceId>,
    /// Whether a task has read a line: no other read leaves bytes unread.
    reads_ahead: bool,
}

#[derive(Debug, Default)]
struct Open {
    /// The task that has each direction: it waits, or it reads when its turn comes.
    claims: [Option<Runnable>; 2],
    is_listener: bool,
    /// Whether the last read has left nothing, and the world has reported nothing since. It will.
    is_drained: bool,
}

impl Devices {
    /// Forgets the devices of an earlier run.
    pub(super) fn reset(&mut self) {
        self.open.clear();
        if !self.files.is_empty() {
            self.files.clear();
        }
        self.last = [0; 2];
        self.waiting = [0; 2];
        self.input = None;
        self.reads_ahead = false;
    }

    pub(super) fn next_id(&self, task: Runnable) -> DeviceId {
        let of_daemon = task.tid.is_daemon();
        let first = if of_daemon { DeviceId::DAEMONS } else { 0 };
        DeviceId::from_raw(first + self.last[usize::from(of_daemon)] + 1)
    }

    pub(super) fn insert(&mut self, device: DeviceId) {
        self.last[usize::from(device.is_of_daemon())] += 1;
        self.open.insert(device, Open::default());
    }

    pub(super) fn remove(&mut self, device: DeviceId) -> Option<[Option<Runnable>; 2]> {
        if !self.files.is_empty() {
            self.files.remove(&device);
        }
        self.input.take_if(|input| *input == device);
        self.open.remove(&device).map(|open| open.claims)
    }

    /// Notes what an operation on names is about.
    pub(super) fn set_names(&mut self, device: DeviceId, detail: Detail<'static>) {
        self.files.insert(device, (detail, false));
    }

    /// Notes that the device is an open file from now on.
    pub(super) fn set_file(&mut self, device: DeviceId) {
        if let Some((_, is_file)) = self.files.get_mut(&device) {
            *is_file = true;
        }
    }

    /// Returns whether the device is an open file of a disk.
    pub(super) fn is_file(&self, device: DeviceId) -> bool {
        self.files.get(&device).is_some_and(|(_, is_file)| *is_file)
    }

    /// Says what a file is, or an operation on names.
    pub(super) fn describe(&self, device: DeviceId) -> Option<String> {
        Some(match self.files.get(&device)? {
            (Detail::Path(path, _), true) => file_words(device, path),
            (detail, _) => disk_words(detail),
        })
    }

    pub(super) fn set_input(&mut self, device: DeviceId) {
        self.input = Some(device);
    }

    /// Returns whether bytes of this device were read ahead.
    #[inline(always)]
    pub(super) fn has_unread(&self, device: DeviceId, frame: &TrapFrame) -> bool {
        self.reads_ahead && frame.unread.borrow().has_any(self.unread_of(device))
    }

    /// Returns the name under which is kept what was read ahead of an input. That of the process outlives
    /// its device.
    #[inline(always)]
    pub(super) fn unread_of(&self, device: DeviceId) -> DeviceId {
        match self.input == Some(device) {
            true => DeviceId::NONE,
            false => device,
        }
    }

    pub(super) fn read_ahead(&mut self) {
        self.reads_ahead = true;
    }

    /// Returns the open device of standard input.
    #[inline]
    pub(super) fn input(&self) -> Option<DeviceId> {
        self.input
    }

    pub(super) fn set_listener(&mut self, device: DeviceId) {
        if let Some(open) = self.open.get_mut(&device) {
            open.is_listener = true;
        }
    }

    pub(super) fn is_listener(&self, device: DeviceId) -> bool {
        self.open.get(&device).is_some_and(|open| open.is_listener)
    }

    /// Counts a task that waits: for a device, or for the console.
    pub(super) fn begin_wait(&mut self, task: Runnable) {
        self.waiting[usize::from(task.tid.is_daemon())] += 1;
    }

    pub(super) fn end_wait(&mut self, task: Runnable) {
        self.waiting[usize::from(task.tid.is_daemon())] -= 1;
    }

    pub(super) fn check(&self, device: DeviceId, direction: Direction) -> Result<(), Errno> {
        match self.open.get(&device) {
            None => Err(Errno::BadFd),
            Some(open) if open.claims[direction as usize].is_some() => Err(Errno::Busy),
            Some(_) => Ok(()),
        }
    }

    /// The same, where the task itself may have it already.
    pub(super) fn check_for(
        &self,
        task: Runnable,
        device: DeviceId,
        direction: Direction,
    ) -> Result<(), Errno> {
        match self.owner(device, direction) {
            Some(owner) if owner == task => Ok(()),
            _ => self.check(device, direction),
        }
    }

    /// Gives a task the device to read, if no task has it for that. Returns whether the device is known to have
    /// nothing.
    #[inline(always)]
    pub(super) fn take_to_read(&mut self, task: Runnable, device: DeviceId) -> Result<bool, Errno> {
        let open = self.open.get_mut(&device).ok_or(Errno::BadFd)?;
        let claim = &mut open.claims[Direction::Read as usize];
        if claim.is_some() {
            return Err(Errno::Busy);
        }
        *claim = Some(task);
        Ok(open.is_drained)
    }

    /// Ends the claim of a task that has read the device, which may have nothing left.
    pub(super) fn end_read(&mut self, device: DeviceId, is_drained: bool) {
        if let Some(open) = self.open.get_mut(&device) {
            open.claims[Direction::Read as usize] = None;
            open.is_drained = is_drained;
        }
    }

    /// The world has reported the device. Returns the task that has this direction of it.
    pub(super) fn reported(&mut self, device: DeviceId, direction: Direction) -> Option<Runnable> {
        let open = self.open.get_mut(&device)?;
        open.is_drained = false;
        open.claims[direction as usize]
    }

    // Apart: a loop over sources keeps its registers.
    #[inline(never)]
    pub(super) fn claim(&mut self, device: DeviceId, direction: Direction, task: Runnable) {
        let open = self.open.get_mut(&device);
        let open = open.expect("a device that a task has is open");
        open.claims[direction as usize] = Some(task);
    }

    pub(super) fn release(&mut self, device: DeviceId, direction: Direction) {
        if let Some(open) = self.open.get_mut(&device) {
            open.claims[direction as usize] = None;
        }
    }

    pub(super) fn leave(&mut self, device: DeviceId, direction: Direction, task: Runnable) {
        self.release(device, direction);
        self.end_wait(task);
    }

    /// Returns how many tasks wait, and how many daemons.
    pub(super) fn waiting(&self) -> [usize; 2] {
        self.waiting
    }

    pub(super) fn owner(&self, device: DeviceId, direction: Direction) -> Option<Runnable> {
        self.open.get(&device)?.claims[direction as usize]
    }
}
