//! Helpers of the servers among the programs: listening, serving and sending.

use std::{io, net::SocketAddr, time::Duration};

use trapline::{
    Elapsed, IntoExit, Os, Signal, Signals, Source, Stream, TcpListener, TcpStream, Writer,
};
use trapline_cli::duration;

/// How a server ends.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Drain {
    /// How long the clients may take to finish after a SIGTERM: the server accepts no more, answers
    /// what it has read, and then ends. ^C ends it at once
    #[arg(long = "drain", value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) span: Duration,
}

impl Drain {
    /// Serves clients until a SIGTERM, and lets them finish.
    pub(crate) async fn serve<T: IntoExit>(
        self,
        os: &mut Os,
        signals: &Signals,
        listener: &TcpListener,
        client: impl AsyncFn(&mut Os, TcpStream, SocketAddr) -> T + 'static,
    ) -> io::Result<()> {
        let stop = Source::signal(signals);
        let cut = os.serve_until(listener, stop, self.span, client).await?;
        stopped(os, signals, cut).await;
        Ok(())
    }
}

/// Catches what stops a server.
pub(crate) async fn catch(os: &mut Os) -> Signals {
    os.catch(&[Signal::Terminate]).await
}

/// Takes the signals that have come: one that is not taken would end the run.
pub(crate) async fn take_pending(os: &mut Os, signals: &Signals) {
    let pending = [Source::signal(signals), Source::after(Duration::ZERO)];
    while os.select(&pending).await == 0 {
        signals.next(os).await;
    }
}

/// Says how a server has stopped.
pub(crate) async fn stopped(os: &mut Os, signals: &Signals, cut: usize) {
    // More may have come meanwhile.
    take_pending(os, signals).await;
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

/// Sends what is written. The client may be slow, but must read something within `timeout`.
pub(crate) async fn flush(
    os: &mut Os,
    writer: &mut Writer<Stream>,
    timeout: Duration,
) -> io::Result<()> {
    loop {
        let unsent = writer.unsent();
        match os.timeout(timeout, async |os| writer.flush(os).await).await {
            Ok(result) => return result,
            Err(Elapsed) if writer.unsent() == unsent => return Err(io::ErrorKind::TimedOut.into()),
            Err(Elapsed) => {}
        }
    }
}

/// Sends all these bytes. The client may be slow, but must read something within `timeout`.
pub(crate) async fn send_all(
    os: &mut Os,
    stream: &TcpStream,
    mut bytes: &[u8],
    timeout: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match os
            .timeout(timeout, async |os| stream.send(os, bytes).await)
            .await
        {
            Ok(sent) => bytes = &bytes[sent?..],
            Err(Elapsed) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    Ok(())
}
