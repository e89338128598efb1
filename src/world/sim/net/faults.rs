//! The faults of a simulated network: the methods of [`SimNet`], and what they do to connections.

use std::{
    collections::BTreeSet,
    io::{Error, ErrorKind, Result},
    time::Duration,
};

use super::{
    chaos::{CRASH, CUT, CUT_ONE_WAY, Chaos, SLOW},
    connection::{CLIENT, EndId, SERVER, Stage},
    fault::{Fault, share_of},
    handle::SimNet,
    links::{DUPLICATE, LOSS, Links, REORDER, Way},
    state::{Event, Net, Socket},
};
use crate::{
    abi::{DeviceId, HostId, SystemCall},
    trap::{Fate, Payload},
    world::{sequence::below, sim::disk::Leaves},
};

impl SimNet {
    /// Makes a fault happen, or end.
    ///
    /// *Errors:* `NotFound` if it names a host that does not exist; `InvalidInput` if it is about a
    /// link from a host to itself, the crash of a host that is down, or the restart of one that is
    /// not.
    ///
    /// Where the limits of the task deny it, it has no effect, and faults the task at its next trap.
    pub fn apply(&self, fault: &Fault) -> Result<()> {
        if let Fault::Power(host) = fault {
            self.apply(&Fault::Crash(host.clone()))?;
            return self.apply(&Fault::Restart(host.clone()));
        }
        if self.is_denied() {
            self.tell(fault.to_string(), None);
            return Ok(());
        }
        let mut net = self.change();
        let text = net.words_of(fault);
        let fate = net.apply(fault)?;
        drop(net);
        self.tell(text, fate);
        Ok(())
    }

    /// The same, where the caller decides what a crash leaves of a disk.
    pub(crate) fn apply_deciding(&self, fault: &Fault, leaves: Leaves) -> Result<()> {
        self.state().disks.leaves = Some(leaves);
        let applied = self.apply(fault);
        self.state().disks.leaves = None;
        applied
    }

    /// Cuts the link between two hosts: what is under way is lost, and so is what they send from now
    /// on. Neither host is told. A client that connects times out ([`SimNet::connect_timeout`]). An
    /// established connection stalls. It goes on when the link is healed, or fails at the limit of
    /// [`SimNet::retransmission_limit`].
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn cut(&self, a: impl Into<String>, b: impl Into<String>) -> Result<()> {
        self.apply(&Fault::Cut(a.into(), b.into()))
    }

    /// Cuts one direction of a link. The other one still carries packets, which are not
    /// acknowledged.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn cut_one_way(&self, from: impl Into<String>, to: impl Into<String>) -> Result<()> {
        self.apply(&Fault::CutOneWay(from.into(), to.into()))
    }

    /// Heals a link that was cut, in both directions. What was lost is sent again at once.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn heal(&self, a: impl Into<String>, b: impl Into<String>) -> Result<()> {
        self.apply(&Fault::Heal(a.into(), b.into()))
    }

    /// Holds all packets between two hosts, those under way as well, until
    /// [`SimNet::release`]. None is lost, and no established connection fails.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn hold(&self, a: impl Into<String>, b: impl Into<String>) -> Result<()> {
        self.apply(&Fault::Hold(a.into(), b.into()))
    }

    /// Lets the packets between two hosts go on.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn release(&self, a: impl Into<String>, b: impl Into<String>) -> Result<()> {
        self.apply(&Fault::Release(a.into(), b.into()))
    }

    /// Resets every connection between two hosts, at both ends.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn reset(&self, a: impl Into<String>, b: impl Into<String>) -> Result<()> {
        self.apply(&Fault::Reset(a.into(), b.into()))
    }

    /// Resets one connection from this end, as a close with a linger time of 0 does. What the end has
    /// sent arrives first; then calls of the peer fail with `ConnectionReset`. Calls on the device
    /// itself fail with `ConnectionAborted`.
    ///
    /// ```
    /// use std::io;
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// let net = kernel.net();
    /// kernel.spawn("main", async move |os: &mut Os| {
    ///     let listener = os.listen("127.0.0.1:80".parse().unwrap()).await?;
    ///     let client = os.connect(listener.local_addr()?).await?;
    ///     let (server, _) = listener.accept(os).await?;
    ///     client.send_all(os, b"bye").await?;
    ///     net.abort(client.id())?;
    ///     let mut buf = [0; 8];
    ///     assert_eq!(server.recv(os, &mut buf).await?, 3);
    ///     let error = server.recv(os, &mut buf).await.unwrap_err();
    ///     assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    ///     let error = client.recv(os, &mut buf).await.unwrap_err();
    ///     assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    ///     io::Result::Ok(())
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    ///
    /// *Errors:* `NotFound` if the network has no such device, or it is closed; `NotConnected` if it is
    /// a listener.
    pub fn abort(&self, connection: DeviceId) -> Result<()> {
        if !self.is_denied() {
            self.change().abort(connection)?;
        }
        self.tell(format!("abort device {connection}"), None);
        Ok(())
    }

    /// Sets the wall clocks of all hosts forward by a span ([`Os::wall_clock`](crate::Os::wall_clock)).
    /// Timers and [`Os::now`](crate::Os::now) do not notice. [`Fault::ClockStep`] does it for one host.
    /// Returns the net.
    pub fn clock_forward(&self, span: Duration) -> Self {
        self.step_clocks(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
    }

    /// Sets the wall clocks of all hosts back by a span, as [`SimNet::clock_forward`] sets them forward.
    pub fn clock_back(&self, span: Duration) -> Self {
        self.step_clocks(i64::try_from(span.as_nanos()).map_or(-i64::MAX, |by| -by))
    }

    fn step_clocks(&self, by: i64) -> Self {
        self.apply(&Fault::ClockStep(None, by))
            .expect("it names no host");
        self.clone()
    }

    /// Makes packets from and to a host take so many times as long. 1 ends it.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn slow(&self, host: impl Into<String>, factor: u32) -> Result<()> {
        self.apply(&Fault::Slow(host.into(), factor))
    }

    /// Has reads and writes come in pieces of random length, down to a byte, so that errors in the
    /// framing of messages show. Returns the net.
    pub fn fragment(&self, fragments: bool) -> Self {
        self.befall(&Fault::Fragment(fragments))
    }

    /// Loses this share of all datagrams, from 0 to 1, within a host too. Shares outside of that count
    /// as the nearest. Which ones are lost follows from the world's seed. TCP and Unix sockets lose
    /// nothing. Default: 0. Returns the net.
    ///
    /// ```
    /// use trapline::{Kernel, Os, SimNet, SimWorld};
    ///
    /// let net = SimNet::new().loss(0.5);
    /// let mut kernel = Kernel::builder().world(SimWorld::new(1).net(&net)).build()?;
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let socket = os.bind_udp("127.0.0.1:0".parse().unwrap()).await?;
    ///     for n in 0..100 {
    ///         socket.send_to(os, &[n], socket.local_addr()?).await?;
    ///     }
    ///     let mut arrived = 0;
    ///     let second = std::time::Duration::from_secs(1);
    ///     while os.timeout(second, async |os| socket.recv_from(os, &mut [0]).await).await.is_ok() {
    ///         arrived += 1;
    ///     }
    ///     assert!((30..70).contains(&arrived));
    ///     std::io::Result::Ok(())
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn loss(&self, share: f64) -> Self {
        self.befall(&Fault::Loss(share_of(share)))
    }

    /// Has this share of all datagrams arrive twice. Otherwise as [`SimNet::loss`].
    pub fn duplicate(&self, share: f64) -> Self {
        self.befall(&Fault::Duplicate(share_of(share)))
    }

    /// Makes this share of all datagrams late: they take up to four times their time in addition, so
    /// that later ones overtake them. Otherwise as [`SimNet::loss`].
    pub fn reorder(&self, share: f64) -> Self {
        self.befall(&Fault::Reorder(share_of(share)))
    }

    /// Makes a fault happen that names no host.
    fn befall(&self, fault: &Fault) -> Self {
        self.apply(fault).expect("it names no host");
        self.clone()
    }

    /// Takes the power off a host. Its tasks end: at the caller's next trap, or before any turn
    /// where the caller is no task. Nothing that their destructors do leaves the host. Its peers are
    /// not told: a peer that sends waits for an acknowledgement.
    ///
    /// Packets that have left the host still arrive.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn crash(&self, host: impl Into<String>) -> Result<()> {
        self.apply(&Fault::Crash(host.into()))
    }

    /// Boots a host that has crashed. The closures of
    /// [`Kernel::on_restart`](crate::Kernel::on_restart) start its programs again, when its tasks
    /// would end in [`SimNet::crash`]. A peer that still sends on a connection of before is answered
    /// by a reset.
    ///
    /// *Errors:* as [`SimNet::apply`].
    pub fn restart(&self, host: impl Into<String>) -> Result<()> {
        self.apply(&Fault::Restart(host.into()))
    }

    /// Breaks things at random for 60 seconds of virtual time from now, and then no more. A test can
    /// so demand that its programs recover. A seed has half of the kinds of faults, which it draws: those
    /// that it lacks cannot hide what the others break. There are cuts of links, in both directions or in one;
    /// slow hosts; resets; and crashes, of hosts with a closure of
    /// [`Kernel::on_restart`](crate::Kernel::on_restart) only. Once there is a UDP socket, there are spans
    /// in which 1 to 40 % of the datagrams are lost, doubled or reordered. Each fault ends after 5 seconds at
    /// most, and at the end of the 60 seconds.
    ///
    /// The level says how often: every 5 seconds on average at level 1, every 1.5 seconds at level
    /// 2, and every 0.4 seconds at level 3 or above; never at level 0. The faults follow from the
    /// world's seed. They are a random sequence of their own. No run waits for them. Returns the
    /// net.
    ///
    /// Chaos that is called for before the net has a world begins with the world.
    pub fn chaos(&self, level: u8) -> Self {
        match self.is_denied() {
            true => self.tell(format!("chaos {level}"), None),
            false => self.change().begin_chaos(level),
        }
        self.clone()
    }

    /// Has only these faults of chaos happen, by their numbers: those of [`SimNet::chaos_drawn`]. The others
    /// are drawn, and do not happen. Holds for chaos that begins later, too, up to a reset. Returns the net.
    ///
    /// A search removes the faults that do not matter to a failure so.
    pub fn chaos_only(&self, numbers: &[u32]) -> Self {
        let mut net = self.change();
        net.chaos_only = Some(numbers.to_vec());
        net.keep_only();
        drop(net);
        self.clone()
    }

    /// Returns the numbers of the faults that chaos has drawn since it began, in the order of the numbers.
    #[must_use]
    pub fn chaos_drawn(&self) -> Vec<u32> {
        let net = self.state();
        net.chaos.as_ref().map_or_else(Vec::new, Chaos::numbers)
    }

    /// Returns the kinds of faults that chaos has drawn since it began, in the words of a [`Fault`]: how often,
    /// and how often one happened. A draw has nothing to break if its link is cut already, or if no host
    /// can restart.
    #[must_use]
    pub fn chaos_counts(&self) -> Vec<(&'static str, u64, u64)> {
        let net = self.state();
        net.chaos.as_ref().map_or_else(Vec::new, Chaos::counts)
    }

    /// Whether there is chaos, or will be as soon as there is a world.
    #[must_use]
    pub fn has_chaos(&self) -> bool {
        let net = self.state();
        net.chaos.is_some() || net.limits.chaos > 0
    }

    /// Whether the limits of the running task deny faults. The kernel is told, and faults the task.
    fn is_denied(&self) -> bool {
        let kernel = self.state().kernel.upgrade();
        kernel.is_some_and(|frame| frame.denies_faults.get())
    }

    /// Tells the kernel of a fault. It handles that like a call of the running task.
    fn tell(&self, text: String, fate: Option<(HostId, Fate)>) {
        let kernel = self.state().kernel.upgrade();
        if let Some(frame) = kernel {
            frame.defer_payload(SystemCall::Fault, Payload::Fault { text, fate });
        }
    }
}

impl Net {
    /// Makes a fault happen. Returns what the kernel has to do.
    fn apply(&mut self, fault: &Fault) -> Result<Option<(HostId, Fate)>> {
        match fault {
            Fault::Cut(a, b) => self.cut(&self.ways(a, b)?),
            Fault::CutOneWay(a, b) => self.cut(&self.ways(a, b)?[..1]),
            Fault::Heal(a, b) => self.unblock(&self.ways(a, b)?, |links| &mut links.cut),
            Fault::Hold(a, b) => self.block(&self.ways(a, b)?, |links| &mut links.held),
            Fault::Release(a, b) => self.unblock(&self.ways(a, b)?, |links| &mut links.held),
            Fault::Reset(a, b) => self.reset(self.ways(a, b)?),
            Fault::Slow(host, 0) => {
                let why = format!("{host:?} cannot be 0 times as slow: 1 ends it");
                return Err(Error::new(ErrorKind::InvalidInput, why));
            }
            Fault::Slow(host, factor) => {
                let host = self.hosts.find(host)?;
                self.links.slow.insert(host, *factor);
            }
            Fault::Loss(share) => self.links.shares[LOSS] = *share,
            Fault::Duplicate(share) => self.links.shares[DUPLICATE] = *share,
            Fault::Reorder(share) => self.links.shares[REORDER] = *share,
            Fault::Fragment(fragments) => self.limits.fragments = *fragments,
            Fault::DiskEio(host)
            | Fault::DiskRot(host)
            | Fault::DiskFull(host)
            | Fault::DiskHeal(host) => self.apply_to_disk(fault, host)?,
            Fault::Crash(host) | Fault::Power(host) => return self.crash(host).map(Some),
            Fault::ClockStep(host, by) => {
                let host = self.clock_of(host.as_deref())?;
                self.hosts.clocks.step(self.now, host, *by);
            }
            Fault::ClockLeap(host, leap) => {
                let host = self.clock_of(host.as_deref())?;
                let (clocks, of) = (&mut self.hosts.clocks, host.unwrap_or(HostId::LOCAL));
                let at = clocks.next_second(of, self.dawn, self.now);
                clocks.step(at, host, leap.nanos());
            }
            Fault::Restart(host) => return self.restart(host).map(Some),
        }
        Ok(None)
    }

    /// The host whose clock it is; `None` for that of every host.
    fn clock_of(&self, host: Option<&str>) -> Result<Option<HostId>> {
        host.map(|host| self.hosts.find(host)).transpose()
    }

    /// The two ways between two hosts.
    pub(super) fn ways(&self, a: &str, b: &str) -> Result<[Way; 2]> {
        let (from, to) = (self.hosts.find(a)?, self.hosts.find(b)?);
        if from == to {
            let why = format!("{a:?} is one host: a link has two");
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        Ok([(from, to), (to, from)])
    }

    /// Every end of every connection, with the way of its packets.
    pub(super) fn ends(&self) -> Vec<(EndId, Way)> {
        let slots = self.connections.iter().map(|(slot, _)| slot);
        let ends = slots.flat_map(|slot| [CLIENT, SERVER].map(|side| self.end_of(slot, side)));
        ends.map(|end| (end, self.way(end))).collect()
    }

    /// Cuts these ways.
    fn cut(&mut self, ways: &[Way]) {
        self.links.lose(ways);
        self.block(ways, |links| &mut links.cut);
    }

    /// Blocks these ways: what is under way there does not arrive.
    fn block(&mut self, ways: &[Way], blocked: fn(&mut Links) -> &mut BTreeSet<Way>) {
        for way in ways {
            blocked(&mut self.links).insert(*way);
            for (end, _) in self.ends().into_iter().filter(|(_, of)| of == way) {
                self.lose_all(end);
            }
        }
    }

    /// Packets go on: what was lost is sent again, and what has arrived is acknowledged.
    fn unblock(&mut self, ways: &[Way], blocked: fn(&mut Links) -> &mut BTreeSet<Way>) {
        for way in ways {
            blocked(&mut self.links).remove(way);
        }
        for (end, way) in self.ends() {
            if ways.contains(&way) {
                self.make_good(end, way);
            }
        }
        self.send_held(ways);
    }

    fn make_good(&mut self, end: EndId, way: Way) {
        let connection = self.connection(end);
        if connection.ends[CLIENT].stage == Stage::Connecting {
            if end.side == CLIENT && connection.retry.is_some() {
                self.ask_again(end);
            }
            return;
        }
        let (_, pipe) = self.end(end);
        if pipe.is_reset_lost || pipe.is_stalled {
            if !self.links.is_blocked(way) {
                self.resend(end);
            }
        } else if !self.links.is_cut((way.1, way.0)) {
            self.acknowledge(end);
        }
    }

    /// Resets every connection of these ways.
    fn reset(&mut self, ways: [Way; 2]) {
        for (end, way) in self.ends() {
            // Its other end may have been the last one.
            if self.find(end).is_some() && ways.contains(&way) {
                self.fail(end, ErrorKind::ConnectionReset);
            }
        }
    }

    /// Takes the power off a host: its sockets are gone, and no packet says so.
    fn crash(&mut self, name: &str) -> Result<(HostId, Fate)> {
        let host = self.hosts.find(name)?;
        let machine = self.hosts.get_mut(host);
        if !machine.is_up {
            let why = format!("the host {name:?} has crashed already: restart it first");
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        machine.is_up = false;
        self.disks.crash(name);
        let listeners = std::mem::take(&mut machine.listeners);
        let paths = std::mem::take(&mut machine.paths);
        let at_ports = listeners.into_values().flatten();
        for at in at_ports.chain(paths.into_values()) {
            let listener = self.listeners.remove(at);
            self.devices.remove(&listener.device);
        }
        self.crash_udp(host);
        for (end, way) in self.ends() {
            if self.find(end).is_some() && way.0 == host {
                self.lose_power(end);
            }
        }
        Ok((host, Fate::Crash))
    }

    /// An end is lost with its host. What it has sent is on its way.
    fn lose_power(&mut self, end: EndId) {
        let (this, _) = self.end(end);
        (this.stage, this.is_queued) = (Stage::Gone, false);
        let device = std::mem::take(&mut this.device);
        if let Some(Socket::Stream(_)) = self.devices.get(&device) {
            self.devices.remove(&device);
        }
        self.cancel_retry(end);
        self.cancel_give_up(end);
        self.sweep(end);
    }

    /// Boots a host. Its peers send again what they had no answer to.
    fn restart(&mut self, name: &str) -> Result<(HostId, Fate)> {
        let host = self.hosts.find(name)?;
        let machine = self.hosts.get_mut(host);
        if machine.is_up {
            let why = format!("the host {name:?} is up: crash it first");
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        machine.is_up = true;
        for (end, way) in self.ends() {
            if way.1 == host {
                self.make_good(end, way);
            }
        }
        Ok((host, Fate::Restart))
    }

    // ---- chaos

    /// Returns the faults that are due: those of chaos, and the ends of earlier ones.
    pub(super) fn take_faults(&mut self) -> Vec<Fault> {
        let mut faults = std::mem::take(&mut self.ended_faults);
        let is_due = |chaos: &mut Chaos| chaos.is_due(self.now);
        while let Some(mut chaos) = self.chaos.take_if(is_due) {
            let kind = chaos.kind();
            let drawn = self.draw(&mut chaos, kind);
            let at = chaos.until();
            if chaos.count(kind, drawn.is_some())
                && let Some((fault, end)) = drawn
            {
                faults.push(fault);
                if let Some(end) = end {
                    self.agenda.arm(at, Event::EndFault(Box::new(end)));
                }
            }
            chaos.schedule();
            self.chaos = Some(chaos);
        }
        let draw = |chaos: &mut Chaos| chaos.draw_weather(self.now);
        while let Some((kind, share, until)) = self.chaos.as_mut().and_then(draw) {
            if let Some(share) = share {
                let befall = [Fault::Loss, Fault::Duplicate, Fault::Reorder][kind];
                faults.push(befall(share));
                let end = befall(self.links.shares[kind]);
                self.agenda.arm(until, Event::EndFault(Box::new(end)));
            }
        }
        faults
    }

    /// Draws a fault of a kind, and what ends it; `None` if there is nothing to break. What is drawn does
    /// not depend on what has happened before, where it is the same kind.
    fn draw(&self, chaos: &mut Chaos, kind: usize) -> Option<(Fault, Option<Fault>)> {
        let name = |host| self.hosts.get(host).name.clone();
        if kind == CRASH {
            let machine = |host: &HostId| self.hosts.get(*host);
            let crashable = |host: &HostId| machine(host).is_up && machine(host).boots;
            let host = name(chaos.pick(self.hosts.ids().filter(crashable))?);
            return Some((Fault::Crash(host.clone()), Some(Fault::Restart(host))));
        }
        let a = chaos.pick(self.hosts.ids());
        let b = chaos.pick(self.hosts.ids().filter(|host| Some(*host) != a));
        let factor = 2 + below(&mut chaos.random, 19) as u32;
        let (a, b) = (a?, b?);
        let is_cut = self.links.is_cut((a, b)) || self.links.is_cut((b, a));
        let (a, b) = (name(a), name(b));
        match kind {
            CUT | CUT_ONE_WAY if is_cut => None,
            CUT => Some((Fault::Cut(a.clone(), b.clone()), Some(Fault::Heal(a, b)))),
            CUT_ONE_WAY => {
                let cut = Fault::CutOneWay(a.clone(), b.clone());
                Some((cut, Some(Fault::Heal(a, b))))
            }
            SLOW => Some((Fault::Slow(a.clone(), factor), Some(Fault::Slow(a, 1)))),
            _ => Some((Fault::Reset(a, b), None)),
        }
    }
}
