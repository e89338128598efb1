use std::{
    cell::{Cell, RefCell},
    error::Error,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use trapline::{Elapsed, Exit, Os, TcpStream, Tid, sync::Group};
use trapline_cli::{Program, addr, duration};

use crate::serve::{Drain, catch, listen};

/// A TCP proxy, with a task for each direction of each connection
///
/// The end of one direction is passed on and leaves the other open. A failure of either direction
/// ends both.
#[derive(clap::Args)]
pub(crate) struct Proxy {
    /// The address to listen on; port 0 is any free one. --addr is another name of the option
    #[arg(long, alias = "addr", value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:45001")]
    listen: SocketAddr,
    /// The server to connect to
    #[arg(long, value_name = "IP:PORT", value_parser = addr)]
    to: SocketAddr,
    /// How long the server may take to accept a connection
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    connect_timeout: Duration,
    /// End connections on which no byte has moved for this long; never, if not given
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle_timeout: Option<Duration>,
    #[command(flatten)]
    drain: Drain,
}

/// The period for checking a peer from which the proxy does not read.
const CHECK: Duration = Duration::from_secs(1);

impl Program for Proxy {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = listen(os, self.listen, "--listen").await?;
        let (addr, to) = (listener.local_addr()?, self.to);
        if leads_back(os, addr, to).await {
            let what = "is the proxy's own address: give that of another server";
            return Err(format!("--to {to} {what}").into());
        }
        let (drain, signals) = (self.drain, catch(os).await);
        writeln!(os, "Proxy starting at {addr}, to {to}");
        let client = async move |os: &mut Os, client, peer| match self.pass_on(os, client).await {
            Ok(()) => writeln!(os, "Connection of {peer} ended"),
            Err(trouble) => writeln!(os, "Connection of {peer} lost: {trouble}"),
        };
        Ok(drain.serve(os, &signals, &listener, client).await?)
    }
}

/// Whether a connection to `to` reaches the listener at `own`. Such connections would multiply
/// without end.
async fn leads_back(os: &mut Os, own: SocketAddr, to: SocketAddr) -> bool {
    if own.port() != to.port() {
        return false;
    }
    let target = match to.ip().to_canonical() {
        // This host, by its loopback interface.
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    match own.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() && target.is_ipv6() => false,
        // Every address of this host, which are the addresses that can be bound.
        ip if ip.is_unspecified() => os.listen(SocketAddr::new(target, 0)).await.is_ok(),
        ip => ip == target,
    }
}

impl Proxy {
    async fn pass_on(&self, os: &mut Os, client: TcpStream) -> Result<(), Box<dyn Error>> {
        let server = self.connect(os, &client).await?;
        // Any end of this task ends the group, and with it both directions.
        let mut group = Group::new(os).await;
        let moved = Rc::new(Cell::new(os.now().await));
        let upstream = direction(client.clone(), server.clone(), Rc::clone(&moved));
        let upstream = group.spawn(os, "upstream", upstream).await?;
        let downstream = direction(server.clone(), client.clone(), Rc::clone(&moved));
        group.spawn(os, "downstream", downstream).await?;
        if let Some(span) = self.idle_timeout {
            let watch = async move |os: &mut Os| idle(os, span, &moved).await;
            group.spawn(os, "watch", watch).await?;
        }
        let ended = done(group.next(os).await)?;
        let is_upstream = ended == Some(upstream);
        let half = if is_upstream { client } else { server };
        let watch = async move |os: &mut Os| watch(os, &half).await;
        group.spawn(os, "half-closed", watch).await?;
        done(group.next(os).await)?;
        Ok(())
    }

    /// Connects to the server, unless that takes too long or the client resets its connection.
    async fn connect(&self, os: &mut Os, client: &TcpStream) -> Result<TcpStream, Box<dyn Error>> {
        let (to, client) = (self.to, client.clone());
        let connected = Rc::new(RefCell::new(None));
        let mut group = Group::new(os).await;
        let slot = Rc::clone(&connected);
        let connect = async move |os: &mut Os| {
            let server = os.connect(to).await;
            *slot.borrow_mut() = Some(server);
        };
        group.spawn(os, "connect", connect).await?;
        let watch = async move |os: &mut Os| watch(os, &client).await;
        group.spawn(os, "waiting", watch).await?;
        let first = os.timeout(self.connect_timeout, async |os| group.first(os).await);
        match first.await {
            Ok(first) => done(first).map_err(|why| format!("while connecting to {to}: {why}"))?,
            Err(Elapsed) => return Err(format!("cannot connect to {to}: no answer").into()),
        };
        let server = connected.take().ok_or("the connection is not made")?;
        Ok(server?)
    }
}

/// The task that has ended, or its error.
fn done(ended: Option<(Tid, Exit)>) -> Result<Option<Tid>, String> {
    match ended {
        Some((tid, Exit::Done)) => Ok(Some(tid)),
        Some((_, exit)) => Err(exit.to_string()),
        None => Ok(None),
    }
}

/// The task of one direction: it copies the bytes, with their end, and notes when some have moved.
fn direction(
    from: TcpStream,
    to: TcpStream,
    moved: Rc<Cell<Duration>>,
) -> impl AsyncFnOnce(&mut Os) -> io::Result<()> {
    async move |os: &mut Os| {
        let note = async |os: &mut Os| moved.set(os.now().await);
        os.copy_noting(&from, &to, note).await.map(drop)
    }
}

/// Fails when `peer`, from which the proxy does not read, has reset its connection.
///
/// Reading would not detect it. A stream at its end stays there, and before the server is connected
/// there is no place for data. Sending nothing detects it.
async fn watch(os: &mut Os, peer: &TcpStream) -> io::Result<()> {
    loop {
        os.sleep(CHECK).await;
        match peer.send(os, &[]).await {
            // The direction that waits to send detects a reset itself.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            result => _ = result?,
        }
    }
}

/// Fails when no byte has moved for so long.
async fn idle(os: &mut Os, span: Duration, moved: &Cell<Duration>) -> Result<(), String> {
    loop {
        let deadline = moved.get().saturating_add(span);
        if os.now().await >= deadline {
            return Err(format!("no byte has moved for {span:?}"));
        }
        os.sleep_until(deadline).await;
    }
}
