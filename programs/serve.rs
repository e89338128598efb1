//! Helpers of the servers among the programs: listening, accepting and sending.

use std::{io, net::SocketAddr, time::Duration};

use trapline::{Elapsed, Os, TcpListener, TcpStream};

/// Listens on `addr`. An error names `option`, which set the address, and says what to change.
pub(crate) async fn listen(
    os: &mut Os,
    addr: SocketAddr,
    option: &str,
) -> Result<TcpListener, String> {
    let listening = os.listen(addr).await;
    listening.map_err(|error| format!("{error} (see {option})"))
}

/// Accepts the next client, with no time limit.
pub(crate) async fn accept(os: &mut Os, listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept(os).await {
            Ok(accepted) => return accepted,
            // Most likely, the process has no free descriptors: a connected client must leave
            // first.
            Err(error) => {
                writeln!(os, "Cannot accept: {error}");
                os.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Sends everything. The client may be slow, but must read something within `timeout`.
pub(crate) async fn send_all(
    os: &mut Os,
    client: &TcpStream,
    mut bytes: &[u8],
    timeout: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let send = async |os: &mut Os| client.send(os, bytes).await;
        let sent = os.timeout(timeout, send).await;
        let sent = sent.map_err(|Elapsed| io::ErrorKind::TimedOut)??;
        bytes = &bytes[sent..];
    }
    Ok(())
}
