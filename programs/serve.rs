//! Helpers of the servers among the programs: listening and accepting.

use std::{net::SocketAddr, time::Duration};

use trapline::{Os, TcpListener, TcpStream};

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
