//! What the servers among the programs share: how they listen and accept.

use std::{io, net::SocketAddr, time::Duration};

use trapline::{Os, TcpListener, TcpStream};

/// Listens at `addr`, or says what to do about it. `option` is where the address comes from.
pub(crate) async fn listen(
    os: &mut Os,
    addr: SocketAddr,
    option: &str,
) -> Result<TcpListener, String> {
    os.listen(addr).await.map_err(|error| {
        if error.kind() == io::ErrorKind::Unsupported {
            format!("cannot listen at {addr}: {NO_NETWORK}")
        } else {
            format!("cannot listen at {addr}: {error} (see {option})")
        }
    })
}

/// What to do about a world without a network.
pub(crate) const NO_NETWORK: &str = "the simulated world has no network: run it without --virtual";

/// Takes the next client, however long that takes.
pub(crate) async fn accept(os: &mut Os, listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept(os).await {
            Ok(accepted) => return accepted,
            // Out of descriptors, most likely: connected clients must end first.
            Err(error) => {
                writeln!(os, "Cannot accept: {error}");
                os.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
