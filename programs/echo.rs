mod blocking;
mod ready;

use std::{error::Error, fs::File, io, net::SocketAddr};

use trapline::{Os, TcpStream};
use trapline_cli::{Program, addr};

use crate::serve::{Drain, catch, listen};

/// A server that sends back what it receives, with a task per client
#[derive(clap::Args)]
pub(crate) struct Echo {
    /// The address to listen on; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:45000")]
    addr: SocketAddr,
    /// What to send before each answer
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Use blocking sockets, which freeze every task: try it with --with alive. Then only a second
    /// ^C ends it
    #[arg(long, conflicts_with = "span")]
    blocking: bool,
    /// Wait with read_wait and write_wait, and do the I/O on the sockets directly
    #[arg(long, conflicts_with_all = ["blocking", "span"])]
    ready: bool,
    #[command(flatten)]
    drain: Drain,
}

impl Program for Echo {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = listen(os, self.addr, "--addr").await?;
        let addr = listener.local_addr()?;
        if self.blocking || self.ready {
            // These two open sockets of their own, which only the real world has.
            let real = os.attach(File::open("/dev/null")?).await;
            real.map_err(|error| format!("cannot open a socket: {error}"))?;
            listener.close(os).await?;
        }
        if self.blocking {
            return Ok(blocking::serve(os, addr, &self.prefix).await?);
        }
        if self.ready {
            return Ok(ready::serve(os, addr, &self.prefix).await?);
        }
        // Before a client or a script can know that it runs.
        let signals = catch(os).await;
        writeln!(os, "Server starting at {addr}");
        let drain = self.drain;
        let closed = closed(&self.prefix);
        let client = async move |os: &mut Os, client: TcpStream, peer| {
            let echo = async |os: &mut Os| echo(os, &client, &self.prefix).await;
            told(os, peer, closed, echo).await;
        };
        Ok(drain.serve(os, &signals, &listener, client).await?)
    }
}

/// How the end of a client is told. The server with a prefix is that of another tutorial.
fn closed(prefix: &str) -> &'static str {
    match prefix {
        "" => "Client closed",
        _ => "Connection closed",
    }
}

/// Says how a client begins and ends.
async fn told(
    os: &mut Os,
    peer: SocketAddr,
    closed: &str,
    echo: impl AsyncFnOnce(&mut Os) -> io::Result<()>,
) {
    writeln!(os, "Client connected {peer}");
    match echo(os).await {
        Ok(()) => writeln!(os, "{closed} {peer}"),
        Err(error) => writeln!(os, "Client lost {peer}: {error}"),
    }
}

/// Starts the task of a client.
async fn start(
    os: &mut Os,
    peer: SocketAddr,
    closed: &'static str,
    echo: impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static,
) {
    let handler = async move |os: &mut Os| told(os, peer, closed, echo).await;
    if let Err(errno) = os.spawn_detached("client", handler).await {
        writeln!(os, "Client rejected {peer}: {errno}");
    }
}

async fn echo(os: &mut Os, client: &TcpStream, prefix: &str) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        let n = client.recv(os, &mut buf).await?;
        if n == 0 {
            return Ok(());
        }
        // In one send, so that the client receives it in one piece.
        client.send_all(os, &answer(prefix, &buf[..n])).await?;
    }
}

fn answer(prefix: &str, data: &[u8]) -> Vec<u8> {
    [prefix.as_bytes(), data].concat()
}
