//! The disks of a world: which host has which, which files are open, and what is under way.

use std::{
    collections::BTreeMap,
    io::{Error, ErrorKind, Result},
    rc::{Rc, Weak},
};

use super::{
    chooser::Chooser,
    handle::SimDisk,
    state::{Begun, Durable},
    tree::Node,
};
use crate::{
    abi::{DeviceId, Mode, Nanos},
    trap::{DiskOp, FileOp, TrapFrame},
    world::{Answer, DeviceMap, sequence::Sequence},
};

/// The random numbers of disks are a sequence apart from those of the programs and the network.
const OF_DISKS: u64 = 0x0064_6973_6b73;

/// Decides what a crash leaves: a number below the first, in the place of the second, which is drawn.
pub(crate) type Leaves = Rc<dyn Fn(u64, u64) -> u64>;

pub(in crate::world::sim) struct Disks {
    of_hosts: BTreeMap<String, SimDisk>,
    devices: DeviceMap<Device>,
    random: Sequence,
    /// `None` if the seed decides what a crash leaves.
    pub(in crate::world::sim) leaves: Option<Leaves>,
    kernel: Weak<TrapFrame>,
    /// The number of the last operation.
    last: u64,
}

/// An open file, or an operation on names.
struct Device {
    disk: SimDisk,
    epoch: u64,
    file: Option<(Node, Mode)>,
    /// The name by which it was opened.
    path: String,
    /// The last operation, until its result is taken.
    last: Option<Last>,
}

struct Last {
    number: u64,
    is_over: bool,
    result: Result<Answer>,
    bytes: Vec<u8>,
}

/// What happens when an operation is over.
pub(in crate::world::sim) struct Over {
    disk: SimDisk,
    epoch: u64,
    durable: Durable,
    device: DeviceId,
    number: u64,
}

impl Disks {
    pub(in crate::world::sim) fn new() -> Self {
        Self {
            of_hosts: BTreeMap::new(),
            devices: DeviceMap::default(),
            random: Sequence::new(OF_DISKS),
            kernel: Weak::new(),
            leaves: None,
            last: 0,
        }
    }

    // ---- hosts

    /// Gives a host this disk.
    pub(in crate::world::sim) fn give(&mut self, host: &str, disk: &SimDisk) {
        disk.state().begin(host);
        disk.state().kernel = self.kernel.clone();
        self.of_hosts.insert(host.into(), disk.clone());
    }

    /// The disk of a host, which has one of its own if it was given none.
    pub(in crate::world::sim) fn of(&mut self, host: &str) -> SimDisk {
        if let Some(disk) = self.of_hosts.get(host) {
            return disk.clone();
        }
        let disk = SimDisk::new();
        self.give(host, &disk);
        disk
    }

    /// Takes the disks from their hosts: another network of the world gets them.
    pub(in crate::world::sim) fn take(&mut self) -> BTreeMap<String, SimDisk> {
        std::mem::take(&mut self.of_hosts)
    }

    pub(in crate::world::sim) fn bind(&mut self, kernel: &Weak<TrapFrame>) {
        self.kernel = kernel.clone();
        for disk in self.of_hosts.values() {
            disk.state().kernel = kernel.clone();
        }
    }

    /// Begins in a world: the disks are as they are, and no file is open.
    pub(in crate::world::sim) fn begin(&mut self) {
        self.kernel = Weak::new();
        for (host, disk) in &self.of_hosts {
            disk.state().begin(host);
        }
        self.clear();
    }

    /// Makes the disks as they were at the begin.
    pub(in crate::world::sim) fn renew(&mut self) {
        for disk in self.of_hosts.values() {
            disk.state().renew();
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.devices.clear();
        self.last = 0;
    }

    pub(in crate::world::sim) fn reseed(&mut self, seed: u64) {
        self.random = Sequence::new(seed ^ OF_DISKS);
    }

    /// A host has lost its power: what was not synced may be lost.
    pub(in crate::world::sim) fn crash(&mut self, host: &str) {
        if let Some(disk) = self.of_hosts.get(host) {
            self.devices.retain(|device| !device.disk.is(disk));
            let mut drawn = Chooser::new(self.random.generator()).of_crash();
            disk.state().crash(&mut |of| match &self.leaves {
                Some(leaves) if of > 1 => leaves(of, drawn(of)),
                _ => drawn(of),
            });
        }
    }

    /// What a crash of the host may lose, in words.
    pub(in crate::world::sim) fn unsynced(&self, host: &str) -> Option<String> {
        let (writes, names) = self.of_hosts.get(host)?.state().model.unsynced();
        let unsynced = [(writes, "write"), (names, "change of a name")];
        let unsynced = unsynced.into_iter().filter(|(n, _)| *n > 0);
        let unsynced: Vec<String> = unsynced.map(|(n, what)| count(n, what)).collect();
        (!unsynced.is_empty()).then(|| unsynced.join(" and "))
    }

    // ---- requests

    /// Begins an operation on names. Returns when it is over, and what happens then.
    pub(in crate::world::sim) fn on_names(
        &mut self,
        device: DeviceId,
        host: &str,
        op: DiskOp,
        now: Nanos,
    ) -> (Nanos, Over) {
        let disk = self.of(host);
        let path = match &op {
            DiskOp::Open { path, .. } => path.clone(),
            _ => String::new(),
        };
        let begun = disk.state().on_names(op, now, self.random.generator());
        let epoch = disk.state().epoch;
        let opened = Device {
            disk,
            epoch,
            file: begun.opened,
            path,
            last: None,
        };
        self.devices.insert(device, opened);
        self.begun(device, begun)
    }

    /// Begins an operation on an open file.
    ///
    /// *Errors:* `NotFound` if it is not open; `NotConnected` if another world has taken the disk.
    pub(in crate::world::sim) fn on_file(
        &mut self,
        device: DeviceId,
        op: FileOp,
        now: Nanos,
    ) -> Result<(Nanos, Over)> {
        let open = self.devices.get(&device).ok_or(ErrorKind::NotFound)?;
        let mut disk = open.disk.state();
        if disk.epoch != open.epoch {
            return Err(taken());
        }
        let file = open.file.ok_or(ErrorKind::InvalidInput)?;
        let begun = disk.on_file(file, op, now, self.random.generator());
        drop(disk);
        Ok(self.begun(device, begun))
    }

    /// A result of before that was not taken is dropped.
    fn begun(&mut self, device: DeviceId, begun: Begun) -> (Nanos, Over) {
        self.last += 1;
        let open = self.devices.get_mut(&device).expect("it is open");
        open.last = Some(Last {
            number: self.last,
            is_over: false,
            result: begun.result,
            bytes: begun.bytes,
        });
        let over = Over {
            disk: open.disk.clone(),
            epoch: open.epoch,
            durable: begun.durable,
            device,
            number: self.last,
        };
        (begun.until, over)
    }

    /// An operation is over. Returns the device whose task waits for it.
    pub(in crate::world::sim) fn end(&mut self, over: &Over) -> Option<DeviceId> {
        let mut disk = over.disk.state();
        let is_here = disk.epoch == over.epoch;
        if is_here {
            disk.settle(over.durable);
        }
        drop(disk);
        // After a crash the device is gone, with its task.
        let last = self.devices.get_mut(&over.device)?.last.as_mut();
        let last = last.filter(|last| last.number == over.number)?;
        last.is_over = true;
        if !is_here {
            (last.result, last.bytes) = (Err(taken()), Vec::new());
        }
        Some(over.device)
    }

    pub(in crate::world::sim) fn finish(
        &mut self,
        device: DeviceId,
        into: &mut Vec<u8>,
    ) -> Result<Answer> {
        let open = self.devices.get_mut(&device).ok_or(ErrorKind::NotFound)?;
        match open.last.take_if(|last| last.is_over) {
            Some(last) => {
                *into = last.bytes;
                last.result
            }
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether the last operation of a device has a result.
    pub(in crate::world::sim) fn is_over(&self, device: DeviceId) -> bool {
        let open = self.devices.get(&device);
        let last = open.and_then(|open| open.last.as_ref());
        last.is_some_and(|last| last.is_over)
    }

    /// What a device is, in words for reports.
    pub(in crate::world::sim) fn describe(&self, device: DeviceId) -> Option<String> {
        let open = self.devices.get(&device)?;
        let disk = open.disk.state();
        Some(match &*open.path {
            "" => format!("the disk of {}", disk.host),
            path => format!("the file {path:?} on the disk of {}", disk.host),
        })
    }

    /// Closes a file. What is under way goes on.
    pub(in crate::world::sim) fn close(&mut self, device: DeviceId) {
        let Some(open) = self.devices.remove(&device) else {
            return;
        };
        let mut disk = open.disk.state();
        if let Some((node, mode)) = open.file
            && disk.epoch == open.epoch
        {
            disk.model.close(node, mode);
        }
    }
}

fn taken() -> Error {
    let why = "another world has taken the disk: a disk belongs to one at a time";
    Error::new(ErrorKind::NotConnected, why)
}

fn count(n: usize, what: &str) -> String {
    match (n, what) {
        (1, what) => format!("1 {what}"),
        (n, "write") => format!("{n} writes"),
        (n, _) => format!("{n} changes of names"),
    }
}
