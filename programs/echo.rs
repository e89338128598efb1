use std::{error::Error, io, net::SocketAddr, time::Duration};

use trapline::{Os, Program, TcpStream, cli};

/// A server that sends back what it receives, with a task per client
#[derive(clap::Args)]
pub(crate) struct Echo {
    /// The address to listen at; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = cli::addr, default_value = "127.0.0.1:45000")]
    addr: SocketAddr,
    /// What to send before each answer
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
}

impl Program for Echo {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self { addr, prefix } = self;
        let listener = os.listen(addr).await;
        let listener =
            listener.map_err(|error| format!("cannot listen at {addr}: {error} (see --addr)"))?;
        writeln!(os, "Server starting at {}", listener.local_addr()?);
        loop {
            let (client, peer) = match listener.accept(os).await {
                Ok(accepted) => accepted,
                // Out of descriptors, most likely: the clients that are there must end first.
                Err(error) => {
                    writeln!(os, "Cannot accept: {error}");
                    os.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let prefix = prefix.clone();
            let handler = async move |os: &mut Os| handle_client(os, client, peer, &prefix).await;
            if let Err(errno) = os.spawn_detached("client", handler).await {
                writeln!(os, "Client rejected {peer}: {errno}");
            }
        }
    }
}

async fn handle_client(os: &mut Os, client: TcpStream, peer: SocketAddr, prefix: &str) {
    writeln!(os, "Client connected {peer}");
    match echo(os, &client, prefix).await {
        Ok(()) => writeln!(os, "Client closed {peer}"),
        Err(error) => writeln!(os, "Client lost {peer}: {error}"),
    }
}

async fn echo(os: &mut Os, client: &TcpStream, prefix: &str) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        let n = client.recv(os, &mut buf).await?;
        if n == 0 {
            return Ok(());
        }
        client.send_all(os, prefix.as_bytes()).await?;
        client.send_all(os, &buf[..n]).await?;
    }
}
