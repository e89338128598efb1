//! [`SimNet`], the handle through which tests and tasks set up a simulated network.

use std::{
    cell::{RefCell, RefMut},
    fmt,
    io::Result,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    rc::Rc,
    time::Duration,
};

use super::{
    connection::CLIENT,
    hosts::Listener,
    state::{Net, Socket},
};
use crate::{
    abi::{DeviceId, Direction, HostId},
    trap::{Object, TrapFrame},
    world::Happening,
};

/// A simulated network: hosts, links between them, and TCP, UDP and Unix sockets as their users see
/// them.
///
/// It is a handle: a clone is the same network. A test keeps one beside its kernel, and a task can
/// own one. Give it to a world with [`SimWorld::net`](crate::SimWorld::net), or take that of a
/// kernel with [`Kernel::net`](crate::Kernel::net).
///
/// A host exists from its first mention in [`SimNet::host`],
/// [`Kernel::spawn_on`](crate::Kernel::spawn_on) or [`Os::spawn_on`](crate::Os::spawn_on). It has a
/// name and an address, from 10.0.0.1 upward. A task stays on its host, and so do its children. A
/// task that was spawned without a host is on the machine called `localhost`.
///
/// A packet takes a millisecond between two hosts ([`SimNet::latency`]), and 10 microseconds within
/// a host ([`SimNet::loopback`]). Each takes at least a nanosecond, so no exchange of messages stops
/// the virtual clock.
///
/// ```
/// use std::{io, time::Duration};
/// use trapline::{Kernel, Os, SimNet, SimWorld};
///
/// let ms = Duration::from_millis;
/// let net = SimNet::new().latency(ms(10)..=ms(10));
/// let mut kernel = Kernel::builder().world(SimWorld::new(1).net(&net)).build()?;
/// kernel.spawn_on("server", "greeter", async |os: &mut Os| {
///     let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
///     let (stream, _) = listener.accept(os).await?;
///     stream.send_all(os, b"hello").await
/// })?;
/// kernel.spawn_on("client", "visitor", async |os: &mut Os| {
///     let stream = os.connect(("server", 80)).await?;
///     let mut buf = [0; 16];
///     let n = stream.recv(os, &mut buf).await?;
///     let now = os.now().await;
///     writeln!(os, "{:?} after {now:?}", str::from_utf8(&buf[..n]));
///     io::Result::Ok(())
/// })?;
/// kernel.run()?.check()?;
/// // Three packets shook hands, and the greeting followed.
/// assert_eq!(kernel.take_console(), "Ok(\"hello\") after 40ms\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SimNet(Rc<RefCell<Net>>);

impl SimNet {
    /// A network with one machine, `localhost`.
    #[must_use]
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(Net::new())))
    }

    /// The state, for the kernel and its world.
    #[inline]
    pub(in crate::world::sim) fn state(&self) -> RefMut<'_, Net> {
        self.0.borrow_mut()
    }

    /// The state, to be changed by a test or a task.
    pub(super) fn change(&self) -> RefMut<'_, Net> {
        let mut net = self.touch(true);
        net.is_used = true;
        net
    }

    /// The state, for a test or a task. A search over schedules is told of the access.
    fn touch(&self, writes: bool) -> RefMut<'_, Net> {
        let net = self.state();
        if let Some(frame) = net.kernel.upgrade() {
            frame.touch(Object::World, writes);
        }
        net
    }

    // ---- hosts

    /// Returns the address of the host of that name, which is made if there is none.
    ///
    /// *Errors:* `InvalidInput` if this cannot be the name of a host: it is empty, or an address, or
    /// has other characters than letters, digits, `-`, `_` and `.`.
    ///
    /// ```
    /// let net = trapline::SimNet::new();
    /// assert_eq!(net.host("server")?.to_string(), "10.0.0.1");
    /// assert_eq!(net.host("client")?.to_string(), "10.0.0.2");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn host(&self, name: impl AsRef<str>) -> Result<IpAddr> {
        let hosts = &mut self.change().hosts;
        let host = hosts.find_or_make(name.as_ref())?;
        Ok(hosts.get(host).address)
    }

    /// Makes a host with an address of the caller's choice.
    ///
    /// *Errors:* `AlreadyExists` if there is a host of that name, `AddrInUse` if another host has
    /// the address; otherwise as for [`SimNet::host`].
    pub fn host_at(&self, name: impl AsRef<str>, address: IpAddr) -> Result<()> {
        self.change().hosts.make(name.as_ref(), address).map(drop)
    }

    /// Returns the names of all hosts, in the order in which they were made. The first is
    /// `localhost`.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let hosts = &self.touch(false).hosts;
        let names = hosts.ids().map(|host| hosts.get(host).name.clone());
        names.collect()
    }

    /// Returns the addresses at which tasks of a host listen, in the order in which they began to.
    /// An unknown host has none.
    ///
    /// ```
    /// use std::io;
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// let net = kernel.net();
    /// kernel.spawn_on("server", "main", async move |os: &mut Os| {
    ///     let listener = os.listen("0.0.0.0:80".parse().unwrap()).await?;
    ///     assert_eq!(net.listeners("server"), [listener.local_addr()?]);
    ///     io::Result::Ok(())
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[must_use]
    pub fn listeners(&self, host: impl AsRef<str>) -> Vec<SocketAddr> {
        let net = self.touch(false);
        let Ok(host) = net.hosts.find(host.as_ref()) else {
            return Vec::new();
        };
        let listeners = net.listeners.iter().map(|(_, listener)| listener);
        let is_here = |other: &&Listener| other.host == host && other.path.is_none();
        let mut here: Vec<_> = listeners.filter(is_here).collect();
        here.sort_by_key(|listener| listener.device);
        here.into_iter().map(|listener| listener.addr).collect()
    }

    pub(crate) fn find_or_make(&self, name: &str) -> Result<HostId> {
        self.change().hosts.find_or_make(name)
    }

    pub(crate) fn name_of(&self, host: HostId) -> String {
        self.state().hosts.get(host).name.clone()
    }

    /// What a device is, in words for reports.
    pub(crate) fn describe(&self, device: DeviceId) -> Option<String> {
        let net = self.state();
        let name = |host| &net.hosts.get(host).name;
        let Some(socket) = net.devices.get(&device) else {
            return net.disks.describe(device);
        };
        Some(match socket {
            Socket::Listener(at) => {
                let listener = &net.listeners[*at];
                match &listener.path {
                    Some(path) => format!("the listener {path} of {}", name(listener.host)),
                    None => format!("the listener {} of {}", listener.addr, name(listener.host)),
                }
            }
            Socket::Udp(at) => {
                let port = &net.ports[*at];
                let with = port.peer.map(|peer| format!(" with {peer}"));
                let with = with.unwrap_or_default();
                format!("the UDP socket {} of {}{with}", port.addr, name(port.host))
            }
            Socket::Stream(end) => {
                let connection = net.connections.get(end.slot as usize)?;
                let ends = &connection.ends;
                let (own, peer) = (&ends[end.side], &ends[1 - end.side]);
                let (here, there) = (name(own.host), name(peer.host));
                match connection.path.as_deref() {
                    Some("") => return Some(format!("a pair of sockets of {here}")),
                    Some(path) => return Some(format!("a connection of {here} by {path}")),
                    None => {}
                }
                let (at, to) = (own.addr, peer.addr);
                format!("the connection of {here} {at} with {there} {to}")
            }
        })
    }

    /// Whether a task that waits for this waits for an answer of a server.
    pub(crate) fn is_client(&self, device: DeviceId, direction: Direction) -> bool {
        let net = self.state();
        let end = match net.devices.get(&device) {
            Some(Socket::Stream(end)) => end,
            // It has a port of its choice only if it serves.
            Some(Socket::Udp(at)) => {
                let port = &net.ports[*at];
                return port.asks && !port.serves;
            }
            _ => return false,
        };
        let connection = net.connections.get(end.slot as usize);
        let asks = connection.is_some_and(|connection| connection.ends[CLIENT].asks);
        end.side == CLIENT && (asks || direction == Direction::Write)
    }

    /// What a call on this device changes besides it, for a search: the connection, or the listeners.
    /// `None` if it may change more.
    pub(crate) fn object_of(&self, device: DeviceId) -> Option<Object> {
        let net = self.state();
        match net.devices.get(&device)? {
            _ if !net.is_calm() => None,
            Socket::Stream(end) => Some(Object::Connection(end.serial)),
            Socket::Listener(_) => Some(Object::Devices),
            Socket::Udp(_) => None,
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.state().is_calm()
    }

    pub(crate) fn is_up(&self, host: HostId) -> bool {
        self.state().hosts.get(host).is_up
    }

    // ---- links and limits

    /// Sets how long a packet takes from one host to another: a random time within the range, drawn
    /// for each packet. The packets of a connection stay in order. Default: 1 ms. A latency of zero
    /// counts as 1 ns. A packet whose latency is too long to represent, as that of `Duration::MAX`, never
    /// arrives.
    ///
    /// A range that ends before it begins counts as its begin. Returns the net, so that the call can
    /// follow [`SimNet::new`].
    pub fn latency(&self, range: RangeInclusive<Duration>) -> Self {
        self.change().links.latency = range.into();
        self.clone()
    }

    /// Sets how long a packet takes within a host, over 127.0.0.1, ::1 or an address of its own.
    /// Default: 10 us. Zero counts as 1 ns. Returns the net.
    pub fn loopback(&self, span: Duration) -> Self {
        self.change().links.set_loopback(span);
        self.clone()
    }

    /// Sets the latency between two hosts, in both directions.
    ///
    /// *Errors:* `NotFound` if there is no such host; `InvalidInput` if both are the same.
    pub fn latency_between(
        &self,
        a: impl AsRef<str>,
        b: impl AsRef<str>,
        range: RangeInclusive<Duration>,
    ) -> Result<()> {
        let net = &mut *self.change();
        let ways = net.ways(a.as_ref(), b.as_ref())?;
        let latencies = ways.map(|way| (way, range.clone().into()));
        net.links.latencies.extend(latencies);
        Ok(())
    }

    /// Sets how many bytes a second go from one host to another, for all connections together. 0 is
    /// no limit, the default. Returns the net.
    pub fn bandwidth(&self, bytes_per_second: u64) -> Self {
        self.change().links.bandwidth = bytes_per_second;
        self.clone()
    }

    /// Sets the bandwidth between two hosts, in both directions.
    ///
    /// *Errors:* as for [`SimNet::latency_between`].
    pub fn bandwidth_between(
        &self,
        a: impl AsRef<str>,
        b: impl AsRef<str>,
        bytes_per_second: u64,
    ) -> Result<()> {
        let net = &mut *self.change();
        let ways = net.ways(a.as_ref(), b.as_ref())?;
        let bandwidths = ways.map(|way| (way, bytes_per_second));
        net.links.bandwidths.extend(bandwidths);
        Ok(())
    }

    /// Sets how many bytes each direction of a connection keeps: those under way, and those that the
    /// receiver has not read. A sender waits while they are so many. The sizes that a socket asks for
    /// ([`Device::set_options`](crate::Device::set_options)) come before it. Default: 64 KiB; 0 counts as
    /// 1. A UDP socket keeps 208 KiB, 768 bytes for each datagram beyond its own. Returns the net.
    pub fn buffer(&self, bytes: usize) -> Self {
        self.change().limits.buffer = bytes.clamp(1, 1 << 30);
        self.clone()
    }

    /// Sets how long a client waits for an answer before its connection fails with `TimedOut`, whether
    /// the answer is lost or late. Default: 127 s, as on Linux. Returns the net.
    pub fn connect_timeout(&self, span: Duration) -> Self {
        self.change().limits.connecting = span.into();
        self.clone()
    }

    /// Sets how long a connection waits for an acknowledgement before it fails with `TimedOut`. What
    /// arrives is acknowledged at that instant, unless the way back is cut. So a connection fails, too, if
    /// nothing that it has sent arrives for so long. Unix sockets have no limit. Default: 924 s, as on
    /// Linux. Returns the net.
    pub fn retransmission_limit(&self, span: Duration) -> Self {
        self.change().limits.acknowledging = span.into();
        self.clone()
    }

    /// Sets how many connections a host keeps for each of its listeners until they are accepted.
    /// Requests for more are dropped, and the clients ask again after 1, 2, 4 and so on seconds.
    /// Default: 4096.
    ///
    /// *Errors:* `NotFound` if there is no such host.
    pub fn limit_backlog(&self, host: impl AsRef<str>, connections: usize) -> Result<()> {
        let hosts = &mut self.change().hosts;
        let host = hosts.find(host.as_ref())?;
        hosts.get_mut(host).backlog = connections;
        Ok(())
    }

    // ---- the kernel's side

    /// Notes that the kernel can start the programs of this host again.
    pub(crate) fn set_boots(&self, host: HostId) {
        self.change().hosts.get_mut(host).boots = true;
    }

    /// Tells this kernel of faults from now on.
    pub(crate) fn bind(&self, frame: &Rc<TrapFrame>) {
        let mut net = self.state();
        net.kernel = Rc::downgrade(frame);
        net.disks.bind(&Rc::downgrade(frame));
    }

    /// Moves the clock, and appends all that happens until then.
    #[inline]
    pub(in crate::world::sim) fn advance(&self, now: Duration, happened: &mut Vec<Happening>) {
        let are_faults_due = self.state().advance(now.into());
        if are_faults_due {
            let faults = self.state().take_faults();
            for fault in faults {
                // A crashed host may be up again, by the hand of a test.
                let _ = self.apply(&fault);
            }
        }
        self.state().take_reports(happened);
    }
}

impl Default for SimNet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = self.0.borrow();
        f.debug_struct("SimNet")
            .field("hosts", &net.hosts.ids().count())
            .field("connections", &net.connections.len())
            .finish_non_exhaustive()
    }
}
