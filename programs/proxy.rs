use std::{cell::Cell, error::Error, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{Elapsed, Exit, Os, Program, TcpStream, cli, sync::Group};

/// A TCP proxy, with a task for each direction of each connection
///
/// The end of one direction is passed on and leaves the other open; a failure of either ends both.
#[derive(clap::Args)]
pub(crate) struct Proxy {
    /// The address to listen at; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = cli::addr, default_value = "127.0.0.1:45001")]
    listen: SocketAddr,
    /// The server to which connections are passed on
    #[arg(long, value_name = "IP:PORT", value_parser = cli::addr)]
    to: SocketAddr,
    /// How long the server may take to accept a connection
    #[arg(long, value_name = "TIME", value_parser = cli::duration, default_value = "10s")]
    connect_timeout: Duration,
    /// End connections on which nothing has moved for so long; never, if not given
    #[arg(long, value_name = "TIME", value_parser = cli::duration)]
    idle_timeout: Option<Duration>,
}

/// How much of a direction is under way at once.
const BUFFER: usize = 16 * 1024;

impl Program for Proxy {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let addr = self.listen;
        let listener = os.listen(addr).await;
        let listener =
            listener.map_err(|error| format!("cannot listen at {addr}: {error} (see --listen)"))?;
        let addr = listener.local_addr()?;
        writeln!(os, "Proxy starting at {addr}, to {}", self.to);
        let proxy = Rc::new(self);
        loop {
            let (client, peer) = match listener.accept(os).await {
                Ok(accepted) => accepted,
                // Out of descriptors, most likely: the connections that are there must end first.
                Err(error) => {
                    writeln!(os, "Cannot accept: {error}");
                    os.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let proxy = Rc::clone(&proxy);
            let handler = async move |os: &mut Os| match proxy.pass_on(os, client).await {
                Ok(()) => writeln!(os, "Connection of {peer} ended"),
                Err(trouble) => writeln!(os, "Connection of {peer} lost: {trouble}"),
            };
            if let Err(errno) = os.spawn_detached("connection", handler).await {
                writeln!(os, "Connection of {peer} rejected: {errno}");
            }
        }
    }
}

impl Proxy {
    async fn pass_on(&self, os: &mut Os, client: TcpStream) -> Result<(), Box<dyn Error>> {
        let to = self.to;
        let connected = os.timeout(self.connect_timeout, async |os| os.connect(to).await);
        let server = match connected.await {
            Ok(result) => result.map_err(|error| format!("cannot connect to {to}: {error}"))?,
            Err(Elapsed) => return Err(format!("cannot connect to {to}: no answer").into()),
        };
        // Whatever ends this task ends the group, and with it both directions.
        let mut group = Group::new(os).await;
        let moved = Rc::new(Cell::new(os.now().await));
        for (name, from, to) in [
            ("upstream", client.clone(), server.clone()),
            ("downstream", server, client),
        ] {
            let moved = Rc::clone(&moved);
            let copy = async move |os: &mut Os| copy(os, &from, &to, &moved).await;
            group.spawn(os, name, copy).await?;
        }
        if let Some(span) = self.idle_timeout {
            let watch = async move |os: &mut Os| idle(os, span, &moved).await;
            group.spawn(os, "watch", watch).await?;
        }
        for _direction in ["upstream", "downstream"] {
            if let Some((_, exit)) = group.next(os).await
                && exit != Exit::Done
            {
                return Err(exit.to_string().into());
            }
        }
        Ok(())
    }
}

/// Copies one direction, its end included, and notes when it last moved.
async fn copy(
    os: &mut Os,
    from: &TcpStream,
    to: &TcpStream,
    moved: &Cell<Duration>,
) -> io::Result<()> {
    let mut buf = vec![0; BUFFER];
    loop {
        let n = from.recv(os, &mut buf).await?;
        if n == 0 {
            return to.shutdown_write(os).await;
        }
        let mut rest = &buf[..n];
        while !rest.is_empty() {
            moved.set(os.now().await);
            let sent = to.send(os, rest).await?;
            rest = &rest[sent..];
        }
        moved.set(os.now().await);
    }
}

/// Fails when nothing has moved for so long.
async fn idle(os: &mut Os, span: Duration, moved: &Cell<Duration>) -> Result<(), String> {
    loop {
        let deadline = moved.get().saturating_add(span);
        if os.now().await >= deadline {
            return Err(format!("nothing has moved for {span:?}"));
        }
        os.sleep_until(deadline).await;
    }
}
