//! The hosts of tasks: the machines of a simulated network. A world without one has a single host.

use super::{Kernel, answer::Answer, outcome::Outcome, task::OnExit};
use crate::{
    abi::{DeviceId, Errno, HostId, Reply, Tid},
    sched::Runnable,
    trap::{Payload, Start},
    user::{
        os::Os,
        program::{self, IntoExit},
    },
    world::{self, Request, SimNet},
};

/// The one host of a world without a network, and that of tasks that were spawned without one.
const LOCALHOST: &str = "localhost";

impl Kernel {
    /// Starts a program as a task of the host that boots this kernel, as [`Kernel::spawn`] does, on
    /// a machine of the simulated network. The machine is made if there is none of that name.
    ///
    /// *Errors:* [`Errno::NoSuchHost`] if the name cannot be that of a host; in the real world, of
    /// any other than `localhost`. [`Errno::HostDown`] if the host has crashed. Otherwise as
    /// [`Kernel::spawn`].
    ///
    /// ```
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn_on("server", "main", async |os: &mut Os| {
    ///     let host = os.host().await;
    ///     writeln!(os, "I run on {host}");
    /// })?;
    /// kernel.run()?;
    /// assert_eq!(kernel.take_console(), "I run on server\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_on<T: IntoExit>(
        &mut self,
        host: impl AsRef<str>,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        self.log.observe_by_tracing();
        let host = self.host_named(host.as_ref())?;
        let name = self.frame.intern(name.as_ref());
        let program = program::program(&self.frame, program);
        let task = self.admit(name, program, None, OnExit::Report, false, Start::First)?;
        self.place(task, host);
        Ok(task.tid)
    }

    /// Returns the simulated network of this kernel's world. A world without one returns a network
    /// of its own, which no task reaches.
    #[must_use]
    pub fn net(&self) -> SimNet {
        self.world.net().unwrap_or_default()
    }

    /// Returns the host of a new task: the one of that name, or that of its parent.
    pub(super) fn host_of(&self, me: Runnable, name: Option<&str>) -> Result<HostId, Errno> {
        match name {
            None => Ok(self.tasks[me].host),
            Some(name) => self.host_named(name),
        }
    }

    /// Puts a new task on a host.
    pub(super) fn place(&mut self, task: Runnable, host: HostId) {
        self.tasks[task].host = host;
    }

    fn host_named(&self, name: &str) -> Result<HostId, Errno> {
        let host = match self.world.net() {
            None if name == LOCALHOST => HostId::LOCAL,
            None => return Err(Errno::NoSuchHost),
            Some(net) => {
                let host = net.find_or_make(name).map_err(|_| Errno::NoSuchHost)?;
                if !net.is_up(host) {
                    return Err(Errno::HostDown);
                }
                host
            }
        };
        Ok(host)
    }

    // ---- the calls

    /// Answers the name of the caller's host.
    pub(super) fn host(&mut self, me: Runnable) -> Outcome {
        let host = self.tasks[me].host;
        let name = match self.world.net() {
            Some(net) => net.name_of(host).into(),
            None => LOCALHOST.into(),
        };
        Answer::with(Reply::Host, Payload::Name(name)).into()
    }

    /// Looks up the name of a host.
    pub(super) fn resolve(&mut self) -> Outcome {
        let Some(Payload::Name(name)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let mut addresses = Vec::new();
        let request = Request::Resolve {
            name: &name,
            addresses: &mut addresses,
        };
        let known = self.world.io(DeviceId::NONE, request);
        match known.and_then(world::Answer::ready) {
            Ok(true) => Answer::with(Reply::Addresses, Payload::Addresses(addresses)).into(),
            Ok(false) => Reply::Again.into(),
            Err(error) => Answer::with(Reply::Io, Payload::Io(error)).into(),
        }
    }
}
