//! The hosts of tasks: the machines of a simulated network. A world without one has a single host.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    rc::Rc,
};

use super::{Kernel, answer::Answer, outcome::Outcome, report::Error};
use crate::{
    abi::{DeviceId, Errno, HostId, Reply},
    log::Fact,
    panic::contain,
    sched::Runnable,
    trap::{Birth, Fate, Payload},
    world::{self, Request, SimNet},
};

/// The one host of a world without a network, and that of tasks that were spawned without one.
const LOCALHOST: &str = "localhost";

/// A closure of [`Kernel::on_restart`].
type Boot = Box<dyn FnMut(&mut Kernel)>;

#[derive(Default)]
pub(super) struct Restarts {
    of: BTreeMap<HostId, Vec<Boot>>,
    /// Whether one of them is being called.
    is_booting: bool,
    /// The hosts that crash or restart, the first of them now.
    fates: VecDeque<(HostId, Fate)>,
}

impl Restarts {
    pub(super) fn reset(&mut self) {
        if !self.of.is_empty() || !self.fates.is_empty() {
            *self = Self::default();
        }
    }
}

impl Kernel {
    /// Returns the simulated network of this kernel's world. A world without one returns a network
    /// of its own, which no task reaches.
    #[must_use]
    pub fn net(&self) -> SimNet {
        self.world.net().unwrap_or_default()
    }

    /// Calls `boot` whenever the host restarts: it starts the host's programs again. Only hosts with
    /// such a closure are crashed by [`SimNet::chaos`].
    ///
    /// *Errors:* [`Errno::NoSuchHost`] if the name cannot be that of a host, or the world has no
    /// simulated network.
    ///
    /// ```
    /// use std::{io, time::Duration};
    /// use trapline::{Kernel, Os};
    ///
    /// async fn server(os: &mut Os) -> io::Result<()> {
    ///     let now = os.now().await;
    ///     writeln!(os, "up at {now:?}");
    ///     let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
    ///     loop {
    ///         listener.accept(os).await?;
    ///     }
    /// }
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn_on("server", "server", server)?;
    /// kernel.on_restart("server", |kernel: &mut Kernel| {
    ///     kernel.spawn_on("server", "server", server).expect("there is room");
    /// })?;
    /// let net = kernel.net();
    /// let test = kernel.spawn("test", async move |os: &mut Os| {
    ///     os.sleep(Duration::from_secs(1)).await;
    ///     net.crash("server")?;
    ///     os.sleep(Duration::from_secs(1)).await;
    ///     net.restart("server")?;
    ///     os.connect(("server", 80)).await.map(drop)
    /// })?;
    /// kernel.run_until(&[test])?.check()?;
    /// assert_eq!(kernel.take_console(), "up at 0ns\nup at 2s\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_restart(
        &mut self,
        host: impl AsRef<str>,
        boot: impl FnMut(&mut Self) + 'static,
    ) -> Result<(), Errno> {
        let net = self.world.net().ok_or(Errno::NoSuchHost)?;
        let host = net.find_or_make(host.as_ref());
        let host = host.map_err(|_| Errno::NoSuchHost)?;
        net.set_boots(host);
        let boots = self.restarts.of.entry(host).or_default();
        boots.push(Box::new(boot));
        Ok(())
    }

    /// Returns the host of a new task, and the task's birth there. The host is that of its parent,
    /// unless the call names another.
    pub(super) fn host_of(
        &self,
        parent: Runnable,
        host: Option<&str>,
        task: Rc<Birth>,
    ) -> Result<(HostId, Rc<Birth>), Errno> {
        let host = match host {
            None => self.tasks[parent].host,
            Some(host) => self.host_named(host)?,
        };
        Ok((host, self.birth_on(host, task)))
    }

    /// Returns the birth of a task on this host, with its name as in logs and lists: `echo@server`.
    #[inline(always)]
    pub(super) fn birth_on(&self, host: HostId, task: Rc<Birth>) -> Rc<Birth> {
        if host == HostId::LOCAL {
            return task;
        }
        match self.world.net() {
            Some(net) => {
                let name = format!("{}@{}", task.name, net.name_of(host));
                self.frame.kept.birth(&name, task.spawned)
            }
            None => task,
        }
    }

    pub(super) fn host_named(&self, name: &str) -> Result<HostId, Errno> {
        let Some(net) = self.world.net() else {
            let is_here = name == LOCALHOST;
            return is_here.then_some(HostId::LOCAL).ok_or(Errno::NoSuchHost);
        };
        let host = net.find_or_make(name).map_err(|_| Errno::NoSuchHost)?;
        net.is_up(host).then_some(host).ok_or(Errno::HostDown)
    }

    // ---- faults

    /// A fault of the network: a crash ends the tasks of its host, a restart starts them again.
    pub(super) fn fault(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Fault { text, fate }) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        self.emit_at_once(me.tid, || Fact::Fault {
            text: (&text).into(),
        });
        if let Some(fate) = fate {
            self.meet(fate);
        }
        Reply::Done.into()
    }

    /// Crashes or restarts a host. A destructor of a crash may crash the next host, in a chain of any
    /// length. The hosts are therefore kept in a list, not on the stack.
    fn meet(&mut self, fate: (HostId, Fate)) {
        self.restarts.fates.push_back(fate);
        if self.restarts.fates.len() > 1 {
            return;
        }
        while let Some((host, fate)) = self.restarts.fates.front().copied() {
            match fate {
                Fate::Crash => self.end_all(|task| task.host == host),
                Fate::Restart => self.restart(host),
            }
            self.restarts.fates.pop_front();
        }
    }

    fn restart(&mut self, host: HostId) {
        let Some(mut boots) = self.restarts.of.remove(&host) else {
            return;
        };
        let outer = std::mem::replace(&mut self.restarts.is_booting, true);
        let place = self.frame.place();
        for boot in &mut boots {
            contain(|| boot(self));
        }
        self.frame.set_place_of_spawn(place);
        self.restarts.is_booting = outer;
        // Those that they have added come after them.
        let added = self.restarts.of.remove(&host);
        boots.extend(added.into_iter().flatten());
        self.restarts.of.insert(host, boots);
    }

    pub(super) fn check_restarts(&self) -> Result<(), Error> {
        if self.restarts.is_booting {
            let why = "a closure of on_restart runs the kernel that called it: let it spawn only";
            return Err(io::Error::new(io::ErrorKind::Deadlock, why).into());
        }
        Ok(())
    }

    // ---- the calls

    pub(super) fn host(&mut self, me: Runnable) -> Outcome {
        let host = self.tasks[me].host;
        let name = match self.world.net() {
            Some(net) => net.name_of(host).into(),
            None => LOCALHOST.into(),
        };
        Answer::with(Reply::Host, Payload::Name(name)).into()
    }

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
