//! Helpers of the servers among the programs: listening, serving and sending.

use std::{io, net::SocketAddr, time::Duration};

use trapline::{Elapsed, Errno, IntoExit, Os, Signal, Source, TcpListener, TcpStream, sync::Flag};
use trapline_cli::duration;

/// How a server ends.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Drain {
    /// How long the clients may take to finish after a SIGTERM: the server accepts no more, answers
    /// what it has read, and then ends. A second SIGTERM ends it at once
    #[arg(long = "drain", value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) span: Duration,
}

impl Drain {
    /// Catches SIGTERM, and serves clients with [`Drain::serve`].
    pub(crate) async fn until(self, os: &mut Os) -> Result<Until, Errno> {
        let signals = os.catch(&[Signal::Terminate]).await;
        let stop = Flag::new(os).await;
        let flag = stop.clone();
        // Only the first is caught: with its holder dropped, a second SIGTERM has its default action.
        let watch = async move |os: &mut Os| {
            signals.next(os).await;
            drop(signals);
            flag.set(os).await;
        };
        os.spawn_daemon("sigterm", watch).await?;
        let span = self.span;
        Ok(Until { stop, span })
    }
}

/// What ends a server: the first SIGTERM, and the time for its clients to finish.
pub(crate) struct Until {
    pub(crate) stop: Flag,
    pub(crate) span: Duration,
}

impl Until {
    /// Serves clients until a SIGTERM, and lets them finish.
    pub(crate) async fn serve<T: IntoExit>(
        self,
        os: &mut Os,
        listener: &TcpListener,
        client: impl AsyncFn(&mut Os, TcpStream, SocketAddr) -> T + 'static,
    ) -> io::Result<()> {
        let stop = Source::flag(&self.stop);
        let cut = os.serve_until(listener, stop, self.span, client).await?;
        stopped(os, cut);
        Ok(())
    }
}

pub(crate) fn stopped(os: &mut Os, cut: usize) {
    match cut {
        0 => writeln!(os, "Stopped: all clients have finished"),
        1 => writeln!(os, "Stopped: a client was cut off (see --drain)"),
        n => writeln!(os, "Stopped: {n} clients were cut off (see --drain)"),
    }
}

/// Listens on `addr`. An error names `option`, which set the address, and says what to change.
pub(crate) async fn listen(
    os: &mut Os,
    addr: SocketAddr,
    option: &str,
) -> Result<TcpListener, String> {
    let listening = os.listen(addr).await;
    listening.map_err(|error| format!("{error} (see {option})"))
}

/// How long a server says no more of errors of accept after one.
const QUIET: Duration = Duration::from_secs(10);

/// Accepts a client, if one waits: after a select the client may have left. An error is told, unless
/// it is to be quiet; most likely, the process has no free descriptors, and a connected client must
/// leave first.
pub(crate) async fn accept(
    os: &mut Os,
    listener: &TcpListener,
    quiet_until: &mut Duration,
) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    let accept = async |os: &mut Os| listener.accept(os).await;
    match os.timeout(Duration::ZERO, accept).await {
        Ok(Ok(accepted)) => Ok(Some(accepted)),
        Err(Elapsed) => Ok(None),
        Ok(Err(error)) => {
            let now = os.now().await;
            if now >= *quiet_until {
                writeln!(os, "Cannot accept: {error}");
                *quiet_until = now + QUIET;
            }
            os.sleep(Duration::from_millis(100)).await;
            Err(error)
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
