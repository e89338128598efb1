mod connection;
mod files;
mod request;

use std::{
    error::Error,
    fs, io,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use trapline::{Os, Program, cli, sync::Semaphore};

use connection::Connection;
use files::Site;

/// A web server for the files of a directory, with a task per client
///
/// It speaks HTTP/1.1 and 1.0: GET and HEAD, connections that stay, requests sent ahead. A
/// directory is shown as its index.html, or as a list. Links are followed as far as they do not
/// lead out of the root.
///
/// Files are read on threads, so that a slow disk holds up nobody else. Those of up to 64 KiB are
/// kept in memory for a second, and for so long a change of them may go unseen.
#[derive(clap::Args)]
pub(crate) struct Httpd {
    /// The address to listen at; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = cli::addr, default_value = "127.0.0.1:8000")]
    addr: SocketAddr,
    /// The directory to serve
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    root: PathBuf,
    /// How long a client may take to send a request or to read anything of an answer, and how long
    /// its connection may idle
    #[arg(long, value_name = "TIME", value_parser = cli::duration, default_value = "30s")]
    timeout: Duration,
    /// How many connections are served at once; more wait until one of them ends
    #[arg(long, value_name = "N", default_value = "1000")]
    max_connections: NonZeroUsize,
}

/// Files up to this size are sent whole and kept, longer ones read and sent in pieces of it.
const PIECE: usize = 64 * 1024;

type Status = &'static str;

const OK: Status = "200 OK";
const MOVED: Status = "301 Moved Permanently";
const BAD_REQUEST: Status = "400 Bad Request";
const FORBIDDEN: Status = "403 Forbidden";
const NOT_FOUND: Status = "404 Not Found";
const WRONG_METHOD: Status = "405 Method Not Allowed";
const TOO_SLOW: Status = "408 Request Timeout";
const NO_LENGTH: Status = "411 Length Required";
const BODY_TOO_LONG: Status = "413 Content Too Large";
const TARGET_TOO_LONG: Status = "414 URI Too Long";
const HEAD_TOO_LONG: Status = "431 Request Header Fields Too Large";
const FAILED: Status = "500 Internal Server Error";
const BUSY: Status = "503 Service Unavailable";
const WRONG_VERSION: Status = "505 HTTP Version Not Supported";

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

impl Program for Httpd {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let addr = self.addr;
        let root = directory(&self.root).map_err(|error| {
            let root = self.root.display();
            format!("cannot serve {root}: {error} (see --root)")
        })?;
        let listener = os.listen(addr).await;
        let listener =
            listener.map_err(|error| format!("cannot listen at {addr}: {error} (see --addr)"))?;
        let addr = listener.local_addr()?;
        writeln!(os, "Serving {} at http://{addr}/", root.display());
        let site = Rc::new(Site::new(root, self.timeout));
        let free = Semaphore::new(os, self.max_connections.get()).await;
        loop {
            // Those beyond the limit wait with the operating system, until it has no room either.
            let permit = free.acquire(os).await?;
            let (client, peer) = match listener.accept(os).await {
                Ok(accepted) => accepted,
                // Out of descriptors, most likely: the clients that are there must end first.
                Err(error) => {
                    writeln!(os, "Cannot accept: {error}");
                    os.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let connection = Connection::new(&site, client, peer);
            let handler = async move |os: &mut Os| {
                let _permit = permit;
                // Clients may go as they please.
                if let Err(error) = connection.serve(os).await {
                    tracing::info!("{peer}: {error}");
                }
            };
            if let Err(errno) = os.spawn_detached("client", handler).await {
                writeln!(os, "Client rejected {peer}: {errno}");
            }
        }
    }
}

fn directory(root: &Path) -> io::Result<PathBuf> {
    let root = root.canonicalize()?;
    fs::read_dir(&root)?;
    Ok(root)
}
