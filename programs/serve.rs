//! Helpers of the servers among the programs: listening and accepting.

use std::{io, net::SocketAddr, time::Duration};

use trapline::{Os, TcpListener, TcpStream};

/// Listens on `addr`. An error names `option`, which set the address, and says what to change.
pub(crate) async fn listen(
    os: &mut Os,
    addr: SocketAddr,
    option: &str,
) -> Result<TcpListener, String> {
    os.listen(addr).await.map_err(|error| {
        if error.kind() == io::ErrorKind::Unsupported {
            format!("cannot listen on {addr}: {NO_NETWORK}")
        } else {
            format!("cannot listen on {addr}: {error} (see {option})")
        }
    })
}

/// The hint for a world without a network.
pub(crate) const NO_NETWORK: &str = "the simulated world has no network: run it without --virtual";

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
