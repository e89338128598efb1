//! The server with blocking sockets: a task that waits in one stops the kernel's only thread.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use trapline::Os;

use super::{answer, closed, start};

pub(super) async fn serve(os: &mut Os, addr: SocketAddr, prefix: &str) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    writeln!(os, "Server starting at {addr}");
    let closed = closed(prefix);
    loop {
        freeze(os, "a client connects").await;
        let (client, peer) = listener.accept()?;
        let prefix = prefix.to_string();
        let echo = async move |os: &mut Os| echo(os, client, peer, &prefix).await;
        start(os, peer, closed, echo).await;
    }
}

async fn echo(
    os: &mut Os,
    mut client: TcpStream,
    peer: SocketAddr,
    prefix: &str,
) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        freeze(os, &format!("{peer} sends")).await;
        let n = client.read(&mut buf)?;
        if n == 0 {
            return Ok(());
        }
        client.write_all(&answer(prefix, &buf[..n]))?;
    }
}

/// Announces a call that blocks, and gives the other tasks a last turn.
async fn freeze(os: &mut Os, until: &str) {
    writeln!(os, "Every task freezes until {until}");
    os.yield_now().await;
}
