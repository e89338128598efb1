//! TCP for programs: [`TcpListener`] and [`TcpStream`], built on the calls of [`Os`].

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    rc::Rc,
    str::FromStr,
};

use super::{
    device::{AsDevice, Device, opened},
    os::{Os, carrying, io_checked, io_error, mismatch},
};
use crate::{
    abi::{ListenOptions, Reply, StreamOptions, SystemCall},
    trap::{Caller, Payload, TrapFrame},
};

/// A listening TCP socket, opened by [`Os::listen`].
pub type TcpListener = Device<Listener>;

/// A TCP connection, opened by [`Os::connect`] or [`TcpListener::accept`].
pub type TcpStream = Device<Stream>;

/// The properties of a [`TcpListener`].
#[derive(Debug)]
pub struct Listener {
    local: SocketAddr,
}

impl Listener {
    /// Returns the address that it listens on, with the actual port.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// The properties of a [`TcpStream`].
#[derive(Debug)]
pub struct Stream {
    peer: SocketAddr,
}

impl Stream {
    /// Returns the address of the peer.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl Os {
    /// Opens a listening TCP socket, at any free port for port 0 ([`Listener::local_addr`] returns it).
    /// The address can be reused, so that a server can restart at once. Never blocks.
    ///
    /// *Errors:* those of the operating system, such as `AddrInUse`; `Unsupported` in a world
    /// without a network. The text names the address; the source is the world's own [`io::Error`],
    /// which has the `raw_os_error`.
    pub async fn listen(&mut self, addr: SocketAddr) -> io::Result<TcpListener> {
        self.listen_as(addr, Payload::Addr(addr)).await
    }

    /// The same with options. In the simulated network the backlog and the sizes of buffers take
    /// effect, and listeners that share an address by `reuse_port` are given connections by the port
    /// of the client.
    ///
    /// *Errors:* as [`Os::listen`].
    ///
    /// ```
    /// # use trapline::{Kernel, ListenOptions, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// # kernel.spawn("server", async |os: &mut Os| {
    /// let options = ListenOptions::new().reuse_port(true);
    /// let one = os.listen_with(([127, 0, 0, 1], 80).into(), options).await?;
    /// let other = os.listen_with(([127, 0, 0, 1], 80).into(), options).await?;
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub async fn listen_with(
        &mut self,
        addr: SocketAddr,
        options: ListenOptions,
    ) -> io::Result<TcpListener> {
        self.listen_as(addr, Payload::Listen(addr, Box::new(options)))
            .await
    }

    async fn listen_as(&mut self, addr: SocketAddr, what: Payload) -> io::Result<TcpListener> {
        let (handle, local) = self
            .call(carrying(SystemCall::Listen, what), opened)
            .await
            .map_err(|error| cannot_listen("listen on", addr, error))?;
        let local = local.unwrap_or(addr);
        Ok(Device::new(handle, Rc::new(Listener { local })))
    }

    /// Connects to a TCP server: at a [`SocketAddr`], an address and a port, or a host's name and port,
    /// as in `os.connect(("server", 80))`. A name is looked up by [`Os::resolve`], and its addresses
    /// are tried in order.
    ///
    /// *Blocks* until the connection is established or has failed.
    ///
    /// *Errors:* that of the last address, such as `ConnectionRefused`, `NetworkUnreachable` or
    /// `TimedOut`; those of [`Os::resolve`]; `Unsupported` in a world without a network. The text names
    /// the address, or the name and the port. The source is the world's own error, as of
    /// [`Os::listen`].
    ///
    /// ```
    /// use std::error::Error;
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let error = os.connect(("127.0.0.1", 80)).await.unwrap_err();
    ///     assert_eq!(error.to_string(), "cannot connect to 127.0.0.1:80: connection refused");
    ///     assert_eq!(error.source().unwrap().to_string(), "connection refused");
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[track_caller]
    pub fn connect(
        &mut self,
        to: impl Into<Endpoint>,
    ) -> impl Future<Output = io::Result<TcpStream>> {
        let place = self.note_caller();
        self.connect_at(place, to.into(), None)
    }

    /// The same with options, which are set before the connection begins.
    ///
    /// *Errors:* as [`Os::connect`], and as [`Device::set_options`].
    #[track_caller]
    pub fn connect_with(
        &mut self,
        to: impl Into<Endpoint>,
        options: StreamOptions,
    ) -> impl Future<Output = io::Result<TcpStream>> {
        let place = self.note_caller();
        self.connect_at(place, to.into(), Some(options))
    }

    async fn connect_at(
        &mut self,
        place: Caller,
        to: Endpoint,
        options: Option<StreamOptions>,
    ) -> io::Result<TcpStream> {
        if let Some(options) = options {
            check(options, true)?;
        }
        let (name, port) = match &to {
            Endpoint::Addr(addr) => return TcpStream::open(self, *addr, options, place).await,
            Endpoint::Name(name, port) => (name, *port),
        };
        let cannot = |error| cannot("connect to", &to, error, "");
        let mut last = None;
        for address in self.resolve_at(place, name).await.map_err(cannot)? {
            self.frame().set_place(place);
            match TcpStream::open(self, (address, port).into(), options, place).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| cannot(io::ErrorKind::NotFound.into())))
    }

    /// Returns the addresses of a host, the preferred one first; at least one. An address is its own.
    /// In the real world the call *blocks* until the operating system has answered a thread.
    ///
    /// *Errors:* `NotFound` if the simulated network has no such host; those of the operating
    /// system.
    ///
    /// ```
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.net().host("server")?;
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     assert_eq!(os.resolve("server").await?, [[10, 0, 0, 1].into()] as [std::net::IpAddr; 1]);
    ///     assert!(os.resolve("nowhere").await.is_err());
    ///     std::io::Result::Ok(())
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn resolve(
        &mut self,
        name: impl AsRef<str>,
    ) -> impl Future<Output = io::Result<Vec<IpAddr>>> {
        let place = self.note_caller();
        async move { self.resolve_at(place, name.as_ref()).await }
    }

    async fn resolve_at(&mut self, place: Caller, name: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let argument = Payload::Name(name.into());
        if let Some(known) = self
            .call(carrying(SystemCall::Resolve, argument), resolved)
            .await
        {
            return known;
        }
        let name = name.to_string();
        let ask = move || {
            let found = (&*name, 0).to_socket_addrs()?;
            io::Result::Ok(found.map(|addr| addr.ip()).collect())
        };
        self.frame().set_place(place);
        let found = self.run_blocking_at(place, ask).await;
        found.map_err(io::Error::other)?
    }

    /// Returns the name of the host that this task runs on. It is `localhost` in the real world,
    /// and for tasks that were spawned without a host. Never blocks.
    #[track_caller]
    pub fn host(&mut self) -> impl Future<Output = String> {
        self.note_caller();
        let named = |reply, frame: &Rc<TrapFrame>| match (reply, frame.take()) {
            (Reply::Host, Some(Payload::Name(name))) => name.to_string(),
            (other, _) => mismatch(other),
        };
        self.call(|_| SystemCall::Host, named)
    }
}

impl TcpListener {
    /// Accepts the next connection, and returns it with its peer's address.
    ///
    /// *Blocks* until a peer connects.
    ///
    /// *Errors:* those of the operating system, after which a server can continue; without free
    /// descriptors (`EMFILE`), sleep before the retry. Or an [`Errno`](crate::Errno) as
    /// [`Os::read_wait`] returns.
    #[track_caller]
    pub fn accept(&self, os: &mut Os) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> {
        os.note_caller();
        let id = self.device_id(os);
        async move {
            let (handle, peer) = os.call(move |_| SystemCall::Accept(id), opened).await?;
            let peer = peer.ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok((Device::new(handle, Rc::new(Stream { peer })), peer))
        }
    }
}

impl TcpStream {
    async fn open(
        os: &mut Os,
        addr: SocketAddr,
        options: Option<StreamOptions>,
        place: Caller,
    ) -> io::Result<Self> {
        let cannot = |error| cannot("connect to", addr, error, "");
        let to = match options {
            None => Payload::Addr(addr),
            Some(options) => Payload::Connect(addr, Box::new(options)),
        };
        let (handle, _) = os
            .call(carrying(SystemCall::Connect, to), opened)
            .await
            .map_err(cannot)?;
        let stream = Self::new(handle, Rc::new(Stream { peer: addr }));
        let id = stream.id();
        os.frame().set_place(place);
        let ready = os.write_wait_noted(id).await;
        ready.map_err(|errno| cannot(errno.into()))?;
        os.call(move |_| SystemCall::Connected(id), io_checked)
            .await
            .map_err(cannot)?;
        Ok(stream)
    }
}

/// What a stream is, as a [`Device`]: [`TcpStream`] or [`UnixStream`](crate::UnixStream).
pub trait StreamKind: SocketKind {}

/// What a listener is, as a [`Device`]: [`TcpListener`] or [`UnixListener`](crate::UnixListener).
pub trait ListenerKind: Sealed + Sized + 'static {
    /// What its connections are.
    type Stream: StreamKind + 'static;
    /// The address of a peer; nothing for Unix sockets.
    type Peer: fmt::Debug + Copy + 'static;

    /// Accepts a connection, as the listener's own method does.
    #[doc(hidden)]
    fn accept(
        listener: &Device<Self>,
        os: &mut Os,
    ) -> impl Future<Output = io::Result<(Device<Self::Stream>, Self::Peer)>>;
}

/// What a socket is, as a [`Device`]: a stream or a [`UdpSocket`](crate::UdpSocket).
pub trait SocketKind: Sealed {}

mod sealed {
    /// Only the sockets of this crate are sockets.
    pub trait Sealed {
        const IS_TCP: bool = false;
    }
}

pub(super) use sealed::Sealed;

impl Sealed for Stream {
    const IS_TCP: bool = true;
}

impl Sealed for Listener {}

impl ListenerKind for Listener {
    type Stream = Stream;
    type Peer = SocketAddr;

    fn accept(
        listener: &TcpListener,
        os: &mut Os,
    ) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> {
        listener.accept(os)
    }
}

impl SocketKind for Stream {}
impl StreamKind for Stream {}

impl<S: SocketKind> Device<S> {
    /// Sets options of a socket. In the simulated network `nodelay` and `keepalive` have no effect.
    /// Never blocks.
    ///
    /// *Errors:* `InvalidInput` for an option that only TCP has, for a linger above zero, and for a
    /// keepalive below 1 second or above 32,767; those of the operating system.
    pub async fn set_options(&self, os: &mut Os, options: StreamOptions) -> io::Result<()> {
        check(options, S::IS_TCP)?;
        let id = self.device_id(os);
        let options = Payload::Options(Box::new(options));
        os.call(carrying(SystemCall::SetOptions(id), options), io_checked)
            .await
    }
}

fn check(options: StreamOptions, is_tcp: bool) -> io::Result<()> {
    match options.refusal(is_tcp) {
        Some(why) => Err(io::Error::new(io::ErrorKind::InvalidInput, why)),
        None => Ok(()),
    }
}

impl<S: StreamKind> Device<S> {
    /// Shuts down the outgoing half. The peer reads the end of the stream, and can still send.
    /// Never blocks.
    ///
    /// *Errors:* `NotConnected` if the connection is closed already, for TCP. A Unix socket has no such
    /// error.
    pub fn shutdown_write(&self, os: &mut Os) -> impl Future<Output = io::Result<()>> {
        let id = self.device_id(os);
        os.call(move |_| SystemCall::ShutdownWrite(id), io_checked)
    }

    /// Shuts down the incoming half: a task that receives gets what has arrived, and then the end of the
    /// stream. So a server ends its clients in order, those that wait to receive included. The peer does
    /// not learn of it. [`TcpStream::shutdown_write`] undoes it: a stream that sends no more can wait for
    /// the end of its peer, and drop what comes before. Never blocks.
    ///
    /// *Errors:* as [`TcpStream::shutdown_write`].
    pub fn shutdown_read(&self, os: &mut Os) -> impl Future<Output = io::Result<()>> {
        let id = self.device_id(os);
        os.call(move |_| SystemCall::ShutdownRead(id), io_checked)
    }
}

/// The error with the address, and with what to do about it.
pub(super) fn cannot_listen(what: &'static str, addr: SocketAddr, error: io::Error) -> io::Error {
    use io::ErrorKind as Kind;
    let advice = match error.kind() {
        Kind::AddrInUse if addr.port() != 0 => "; choose another port, or 0 for a free one",
        // A simulated network says more itself.
        Kind::AddrNotAvailable if error.raw_os_error().is_some() => {
            "; choose an address of this machine"
        }
        // Limits of the task say so themselves.
        Kind::PermissionDenied if error.raw_os_error().is_some() => {
            "; choose a port above 1023, which needs no privilege"
        }
        _ => "",
    };
    cannot(what, addr, error, advice)
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {addr}: {source}{advice}")]
struct AtAddr {
    what: &'static str,
    /// Or a path.
    addr: String,
    source: io::Error,
    advice: &'static str,
}

pub(super) fn cannot(
    what: &'static str,
    addr: impl fmt::Display,
    source: io::Error,
    advice: &'static str,
) -> io::Error {
    let kind = source.kind();
    let error = AtAddr {
        what,
        addr: addr.to_string(),
        source,
        advice,
    };
    io::Error::new(kind, error)
}

/// Decodes the reply of a look-up; `None` if a thread has to do it.
fn resolved(reply: Reply, frame: &Rc<TrapFrame>) -> Option<io::Result<Vec<IpAddr>>> {
    match reply {
        Reply::Again => None,
        Reply::Addresses => match frame.take() {
            Some(Payload::Addresses(addresses)) => Some(Ok(addresses)),
            _ => mismatch(reply),
        },
        other => Some(Err(io_error(other, frame))),
    }
}

/// Where to connect to: an address, or the name of a host and a port. Its text is that of
/// [`SocketAddr`], or a name and a port, as in `server:80`.
///
/// ```
/// use trapline::Endpoint;
///
/// let server: Endpoint = "server:80".parse()?;
/// assert_eq!(server, Endpoint::from(("server", 80)));
/// assert_eq!(server.to_string(), "server:80");
/// assert!(matches!("[::1]:80".parse()?, Endpoint::Addr(_)));
/// assert!("server".parse::<Endpoint>().is_err());
/// # Ok::<(), trapline::BadEndpoint>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    /// An address with its port.
    Addr(SocketAddr),
    /// The name of a host, and a port.
    Name(String, u16),
}

/// A text is no [`Endpoint`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("write an address or the name of a host, and a port: 127.0.0.1:45000 or server:80")]
pub struct BadEndpoint;

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if let Ok(addr) = text.parse() {
            return Ok(Self::Addr(addr));
        }
        let (name, port) = text.rsplit_once(':').ok_or(BadEndpoint)?;
        let port = port.parse().map_err(|_| BadEndpoint)?;
        if name.is_empty() || name.contains([':', '/', '[', ']', ' ']) {
            return Err(BadEndpoint);
        }
        Ok(Self::Name(name.into(), port))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => addr.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Self {
        Self::Addr(addr)
    }
}

impl From<(&str, u16)> for Endpoint {
    fn from((name, port): (&str, u16)) -> Self {
        match name.parse::<IpAddr>() {
            Ok(address) => Self::Addr((address, port).into()),
            Err(_) => Self::Name(name.into(), port),
        }
    }
}

impl From<(String, u16)> for Endpoint {
    fn from((name, port): (String, u16)) -> Self {
        Self::from((&*name, port))
    }
}

macro_rules! from_addr {
    ($($Type:ty),*) => {
        $(impl From<$Type> for Endpoint {
            fn from(addr: $Type) -> Self {
                Self::Addr(addr.into())
            }
        })*
    };
}

from_addr!(
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
    ([u8; 4], u16),
    ([u8; 16], u16),
    ([u16; 8], u16)
);
