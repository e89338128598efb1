use std::{error::Error, io, net::SocketAddr, time::Duration};

use trapline::{Os, TcpListener, TcpStream};
use trapline_cli::Program;

use super::conclude_slow;

/// The number of requests, and how long the upstream server takes for each.
const REQUESTS: u32 = 3;
const SLOW: Duration = Duration::from_millis(40);
const QUICK: Duration = Duration::from_millis(1);

/// Goes wrong: a proxy that is as slow as the server behind it
#[derive(clap::Args)]
pub(crate) struct SlowUpstream {
    /// Let the server behind the proxy be quick
    #[arg(long)]
    cured: bool,
}

impl Program for SlowUpstream {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let start = os.now().await;
        let think = if self.cured { QUICK } else { SLOW };
        let upstream = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let behind = upstream.local_addr()?;
        let answer = async move |os: &mut Os| serve(os, &upstream, think).await;
        os.spawn("upstream", answer).await?;
        let front = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let addr = front.local_addr()?;
        let pass_on = async move |os: &mut Os| proxy(os, &front, behind).await;
        os.spawn("proxy", pass_on).await?;
        let client = async move |os: &mut Os| client(os, addr).await;
        let client = os.spawn("client", client).await?;
        os.wait(client).await?;
        let took = os.now().await - start;
        let why = "the proxy waits for the server behind it";
        conclude_slow(os, "slow-upstream", took, QUICK * REQUESTS, why);
        os.shutdown().await
    }
}

/// Accepts one connection, and answers each byte after a while.
async fn serve(os: &mut Os, listener: &TcpListener, think: Duration) -> io::Result<()> {
    let (client, _) = listener.accept(os).await?;
    let mut byte = [0];
    while client.recv(os, &mut byte).await? > 0 {
        os.sleep(think).await;
        client.send_all(os, &byte).await?;
    }
    Ok(())
}

/// Accepts one connection, and passes each byte on and its answer back.
async fn proxy(os: &mut Os, listener: &TcpListener, behind: SocketAddr) -> io::Result<()> {
    let (client, _) = listener.accept(os).await?;
    let server = os.connect(behind).await?;
    let mut byte = [0];
    while client.recv(os, &mut byte).await? > 0 {
        ask(os, &server, &mut byte).await?;
        client.send_all(os, &byte).await?;
    }
    Ok(())
}

async fn client(os: &mut Os, addr: SocketAddr) -> io::Result<()> {
    let server = os.connect(addr).await?;
    for _ in 0..REQUESTS {
        ask(os, &server, &mut [b'?']).await?;
    }
    Ok(())
}

/// Sends a request and waits for its answer.
async fn ask(os: &mut Os, server: &TcpStream, byte: &mut [u8; 1]) -> io::Result<()> {
    server.send_all(os, byte).await?;
    server.recv(os, byte).await?;
    Ok(())
}
