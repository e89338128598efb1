//! The server with non-blocking sockets of its own: it waits with `read_wait` and `write_wait`, and
//! does the I/O itself.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use trapline::{Device, Os};

use super::{answer, closed, start};

pub(super) async fn serve(os: &mut Os, addr: SocketAddr, prefix: &str) -> io::Result<()> {
    // Attached descriptors are non-blocking.
    let listener = os.attach(TcpListener::bind(addr)?).await?;
    writeln!(os, "Server starting at {addr}");
    let closed = closed(prefix);
    loop {
        os.read_wait(&listener).await?;
        let (client, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            // The client has already disconnected.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => {
                writeln!(os, "Cannot accept: {error}");
                os.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let prefix = prefix.to_string();
        let echo = async move |os: &mut Os| echo(os, client, &prefix).await;
        start(os, peer, closed, echo).await;
    }
}

async fn echo(os: &mut Os, client: TcpStream, prefix: &str) -> io::Result<()> {
    let client = os.attach(client).await?;
    let mut buf = [0; 4096];
    loop {
        os.read_wait(&client).await?;
        match (&*client).read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(n) => send_all(os, &client, &answer(prefix, &buf[..n])).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn send_all(os: &mut Os, client: &Device<TcpStream>, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        os.write_wait(client).await?;
        match (&**client).write(data) {
            Ok(n) => data = &data[n..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
