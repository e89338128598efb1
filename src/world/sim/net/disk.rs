//! The disks of the hosts: what is under way there happens in the order of the net's agenda.

use std::io::{Error, ErrorKind, Result};

use super::{
    fault::Fault,
    handle::SimNet,
    state::{Event, Net},
};
use crate::{
    abi::{DeviceId, Direction, HostId, Nanos},
    trap::{DiskOp, FileOp},
    world::sim::disk::{Over, SimDisk},
};

impl SimNet {
    /// Returns the disk of a host, which is made if there is none: that of
    /// [`SimWorld::disk`](crate::SimWorld::disk), or the host's own, which begins empty.
    ///
    /// *Errors:* as for [`SimNet::host`].
    ///
    /// ```
    /// let net = trapline::SimNet::new();
    /// net.disk("server")?.put("settings", "port=80")?;
    /// assert_eq!(net.disk("server")?.files()["settings"], b"port=80");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn disk(&self, host: impl AsRef<str>) -> Result<SimDisk> {
        let net = &mut *self.change();
        net.hosts.find_or_make(host.as_ref())?;
        Ok(net.disks.of(host.as_ref()))
    }
}

impl Net {
    pub(super) fn begin_on_disk(
        &mut self,
        device: DeviceId,
        host: HostId,
        op: DiskOp,
    ) -> Result<()> {
        self.is_used = true;
        let machine = self.hosts.get(host);
        if !machine.is_up {
            let why = format!(
                "the host {:?} has crashed, and its disk with it",
                machine.name
            );
            return Err(Error::new(ErrorKind::NotConnected, why));
        }
        let begun = self.disks.on_names(device, &machine.name, op, self.now);
        self.begun_on_disk(begun);
        Ok(())
    }

    pub(super) fn begin_on_file(&mut self, device: DeviceId, op: FileOp) -> Result<()> {
        let begun = self.disks.on_file(device, op, self.now)?;
        self.begun_on_disk(begun);
        Ok(())
    }

    fn begun_on_disk(&mut self, (until, over): (Nanos, Over)) {
        self.agenda.arm(until, Event::DiskIsOver(Box::new(over)));
    }

    pub(super) fn end_on_disk(&mut self, over: &Over) {
        if let Some(device) = self.disks.end(over) {
            self.ready.push_back((device, Direction::Read));
        }
    }

    /// Makes a fault of a disk happen.
    pub(super) fn apply_to_disk(&mut self, fault: &Fault, host: &str) -> Result<()> {
        self.hosts.find(host)?;
        self.disks.of(host).apply(|settings| match fault {
            Fault::DiskEio(_) => settings.eio = 1.0,
            Fault::DiskRot(_) => settings.rot = 1.0,
            Fault::DiskFull(_) => settings.is_full = true,
            _ => *settings = settings.healthy(),
        });
        Ok(())
    }

    /// A fault in words, with what it may lose.
    pub(super) fn words_of(&self, fault: &Fault) -> String {
        let unsynced = match fault {
            Fault::Crash(host) => self.disks.unsynced(host),
            _ => None,
        };
        match unsynced {
            Some(unsynced) => format!("{fault}: its disk may lose {unsynced}"),
            None => fault.to_string(),
        }
    }
}
