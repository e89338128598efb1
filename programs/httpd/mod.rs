mod beneath;
mod clients;
mod connection;
mod files;
mod listing;
mod request;
mod status;

use std::{
    error::Error,
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use trapline::{Os, Source, TcpStream, sync::Group};
use trapline_cli::{Program, addr, duration};

use crate::serve::{Drain, accept, catch, listen, stopped};

use clients::Clients;
use connection::Connection;
use files::Site;
use status::BUSY;

/// A web server for the files of a directory, with a task per client
///
/// It supports HTTP/1.1 and 1.0: GET and HEAD, persistent connections, pipelining, ranges and
/// If-Modified-Since. A directory is shown as its index.html, or as a list. The list is sorted if
/// it has at most 1000 entries. Relative links are followed unless they lead out of the root.
///
/// Files are looked up and read on threads, so that a slow disk delays no other client. Files of up
/// to 64 KiB stay in memory for a second; longer files stay open for a second. During that time the
/// server may not notice a change. The operating system sends the longer files, where it can.
#[derive(clap::Args)]
pub(crate) struct Httpd {
    /// The address to listen on; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:8000")]
    addr: SocketAddr,
    /// The directory to serve
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    root: PathBuf,
    /// How long a client may take to send a request or to read anything of an answer, and how long
    /// its connection may idle
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    timeout: Duration,
    /// How many connections are served at once. One more closes the connection that has been idle
    /// longest; if none is idle, it waits
    #[arg(long, value_name = "N", default_value = "1000")]
    max_connections: NonZeroUsize,
    /// How many connections an address (for IPv6 a network of 64 bits) has at once. One more closes
    /// its connection that has been idle longest; if none is idle, the answer is 503 [default: half
    /// of --max-connections]
    #[arg(long, value_name = "N")]
    max_per_address: Option<NonZeroUsize>,
    #[command(flatten)]
    drain: Drain,
}

impl Program for Httpd {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (path, root) = directory(&self.root).map_err(|error| {
            let root = self.root.display();
            format!("cannot serve {root}: {error} (see --root)")
        })?;
        let listener = listen(os, self.addr, "--addr").await?;
        let addr = listener.local_addr()?;
        let signals = catch(os).await;
        writeln!(os, "Serving {} at http://{addr}/", path.display());
        let most = self.max_connections.get();
        let per_address = self.max_per_address;
        let per_address = per_address.map_or(most.div_ceil(2), NonZeroUsize::get);
        let clients = Rc::new(Clients::new(os, most, per_address).await);
        let site = Site::new(os, root, self.timeout).await?;
        let mut group = Group::new(os).await;
        let stop = Source::signal(&signals);
        let mut quiet_until = Duration::ZERO;
        loop {
            let sources = [stop, Source::member(&group), Source::readable(&listener)];
            match os.select(&sources).await {
                0 => break,
                1 => drop(group.next(os).await),
                _ => match accept(os, &listener, &mut quiet_until).await {
                    Ok(None) => {}
                    Ok(Some(accepted)) => {
                        serve_next(os, &mut group, accepted, &site, &clients, stop).await;
                    }
                    Err(error) => {
                        if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(&error) {
                            clients.recycle(os, None).await;
                        }
                    }
                },
            }
        }
        listener.close(os).await?;
        clients.stop(os).await;
        let cut = group.drain(os, self.drain.span).await;
        stopped(os, &signals, cut).await;
        Ok(())
    }
}

/// Starts a task for a client.
async fn serve_next(
    os: &mut Os,
    group: &mut Group,
    (client, peer): (TcpStream, SocketAddr),
    site: &Rc<Site>,
    clients: &Rc<Clients>,
    stop: Source,
) {
    // A client of a crowded address waits in its own task, so that it delays no other client.
    let seat = match clients.is_crowded(peer) {
        true => None,
        false => clients.admit(os, peer, stop).await,
    };
    let (site, clients) = (Rc::clone(site), Rc::clone(clients));
    let handler = async move |os: &mut Os| {
        let seat = match seat {
            None => clients.admit(os, peer, stop).await,
            some => some,
        };
        let Some(seat) = seat else {
            tracing::info!("{peer}: too many connections of its address, or the server stops");
            return refuse(os, &client).await;
        };
        let connection = Connection::new(&site, client, peer, seat);
        if let Err(error) = connection.serve(os).await {
            tracing::info!("{peer}: {error}");
        }
    };
    if let Err(errno) = group.spawn(os, "client", handler).await {
        writeln!(os, "Client rejected {peer}: {errno}");
    }
}

/// Tells a client that there is no room. A failure is ignored, since the client may have left.
async fn refuse(os: &mut Os, client: &TcpStream) {
    // Unread bytes would make the system discard the answer.
    let read = async |os: &mut Os| client.recv(os, &mut [0; 4096]).await;
    let _ = os.timeout(Duration::from_millis(1), read).await;
    let answer = format!("HTTP/1.1 {BUSY}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    // The send buffer of a new connection has room for it.
    let _ = client.send(os, answer.as_bytes()).await;
}

/// The directory to serve: its name, and the open directory.
fn directory(root: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    let path = root.canonicalize()?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&path, flags, Mode::empty())?;
    Ok((path, root))
}
