use std::{error::Error, io, net::SocketAddr, time::Duration};

use trapline::{Elapsed, Endpoint, Os, UdpSocket};
use trapline_cli::{Program, addr, duration};

/// A server that sends each datagram back, or a client that counts how many come back
#[derive(clap::Args)]
pub(crate) struct UdpEcho {
    /// The address to receive at; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:45000")]
    addr: SocketAddr,
    /// Be a client of this server instead
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "addr")]
    ask: Option<Endpoint>,
    /// How many datagrams the client sends, one after the other
    #[arg(long, value_name = "N", default_value = "10", requires = "ask")]
    count: u32,
    /// How long the client waits for an answer
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s", requires = "ask")]
    wait: Duration,
}

impl Program for UdpEcho {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        match &self.ask {
            None => Ok(serve(os, self.addr).await?),
            Some(server) => Ok(self.ask(os, server).await?),
        }
    }
}

async fn serve(os: &mut Os, addr: SocketAddr) -> io::Result<()> {
    let socket = os.bind_udp(addr).await?;
    writeln!(os, "Receiving at {}", socket.local_addr()?);
    let mut buf = vec![0; 65_507];
    loop {
        let (n, from) = socket.recv_from(os, &mut buf).await?;
        socket.send_to(os, &buf[..n], from).await?;
    }
}

impl UdpEcho {
    async fn ask(&self, os: &mut Os, server: &Endpoint) -> io::Result<()> {
        let to = match server {
            Endpoint::Addr(addr) => *addr,
            Endpoint::Name(name, port) => (os.resolve(name).await?[0], *port).into(),
        };
        let socket = os.bind_udp((unspecified(to), 0).into()).await?;
        socket.connect(os, to).await?;
        let mut answers = 0;
        for number in 0..self.count {
            socket.send(os, &number.to_le_bytes()).await?;
            let answer = async |os: &mut Os| answer(os, &socket, number).await;
            match os.timeout(self.wait, answer).await {
                Ok(answered) => answered?,
                Err(Elapsed) => continue,
            }
            answers += 1;
        }
        writeln!(os, "{answers} of {} came back", self.count);
        Ok(())
    }
}

/// Waits for an answer. An earlier one may be late, or come twice.
async fn answer(os: &mut Os, socket: &UdpSocket, number: u32) -> io::Result<()> {
    let mut buf = [0; 8];
    loop {
        let n = socket.recv(os, &mut buf).await?;
        if buf[..n] == number.to_le_bytes() {
            return Ok(());
        }
    }
}

fn unspecified(like: SocketAddr) -> std::net::IpAddr {
    match like {
        SocketAddr::V4(_) => [0, 0, 0, 0].into(),
        SocketAddr::V6(_) => [0_u16; 8].into(),
    }
}
