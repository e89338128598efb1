mod tally;

use std::{error::Error, io, rc::Rc, time::Duration};

use tally::Tally;
use trapline::{Elapsed, Endpoint, Os, TcpStream};
use trapline_cli::{Program, duration};

/// A load generator: clients that ask an echo server and measure its answers
///
/// A request is a number of bytes, and the answer must be the same bytes: `echo` answers so. No two
/// requests of 8 bytes or more are alike, so that a wrong answer is noticed. A client makes its
/// requests one after the other. At the end the rate and the latencies are printed. The program fails
/// if a request has.
#[derive(clap::Args)]
pub(crate) struct Swarm {
    /// The server: an address or a host's name, and a port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:45000")]
    addr: Endpoint,
    /// The number of clients, each a task
    #[arg(long, value_name = "N", default_value_t = 10)]
    clients: u32,
    /// The number of requests of each client
    #[arg(long, value_name = "N", default_value_t = 100)]
    requests: u32,
    /// The bytes of a request, from 1 to 65536
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    size: u32,
    /// How long a client waits between an answer and its next request
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    think: Duration,
    /// Make all requests of a client on one connection. Without it each has its own, and connecting
    /// counts towards the latency
    #[arg(long)]
    keep_alive: bool,
    /// How long a request may take, connecting included
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// How long a client tries again while the server refuses connections: it may be starting. Then
    /// the client gives up, and its other requests fail too
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    patience: Duration,
}

/// The pause before a client tries again.
const PAUSE: Duration = Duration::from_millis(10);

impl Program for Swarm {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let swarm = Rc::new(self);
        let begin = os.now().await;
        let mut clients = Vec::new();
        for number in 0..swarm.clients {
            let swarm = Rc::clone(&swarm);
            let client = async move |os: &mut Os| swarm.client(os, number).await;
            clients.push(os.spawn_child("client", client).await?);
        }
        let mut all = Tally::default();
        for mut client in clients {
            match client.wait(os).await {
                Ok(tally) => all.add(tally),
                Err(exit) => return Err(format!("a client has not finished: {exit}").into()),
            }
        }
        let took = os.now().await.saturating_sub(begin);
        writeln!(os, "{}", all.report(took));
        match all.failed() {
            0 => Ok(()),
            n => Err(format!("{n} of {} requests failed", all.requests()).into()),
        }
    }
}

impl Swarm {
    /// Makes the requests of one client.
    async fn client(&self, os: &mut Os, number: u32) -> Tally {
        let mut tally = Tally::default();
        let mut connection = None;
        for n in 0..self.requests {
            if n > 0 && !self.think.is_zero() {
                os.sleep(self.think).await;
            }
            let request = self.request(number, n);
            let begin = os.now().await;
            let ask = async |os: &mut Os| self.ask(os, &mut connection, &request).await;
            match os.timeout(self.timeout, ask).await {
                Ok(Ok(())) => tally.answered(os.now().await.saturating_sub(begin)),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    tally.fail(self.requests - n, error.to_string());
                    break;
                }
                Ok(Err(error)) => {
                    tally.fail(1, error.to_string());
                    connection = None;
                }
                Err(Elapsed) => {
                    tally.fail(1, format!("no answer within {:?}", self.timeout));
                    connection = None;
                }
            }
            if !self.keep_alive {
                connection = None;
            }
        }
        tally
    }

    /// The bytes of a request: its own number, again and again.
    fn request(&self, client: u32, n: u32) -> Vec<u8> {
        let number = u64::from(client) << 32 | u64::from(n);
        let bytes = number.to_be_bytes();
        // The first byte of a short request is the one that changes.
        let bytes = bytes.iter().rev().cycle().take(self.size as usize);
        bytes.copied().collect()
    }

    /// Sends a request and receives its answer, on the open connection or a new one.
    async fn ask(
        &self,
        os: &mut Os,
        connection: &mut Option<TcpStream>,
        request: &[u8],
    ) -> io::Result<()> {
        let stream = match connection {
            Some(stream) => stream,
            None => connection.insert(self.connect(os).await?),
        };
        stream.send_all(os, request).await?;
        let mut answer = vec![0; request.len()];
        let mut end = 0;
        while end < answer.len() {
            match stream.recv(os, &mut answer[end..]).await? {
                0 => return Err(io::Error::other("the server ended the connection")),
                n => end += n,
            }
        }
        if answer != request {
            return Err(io::Error::other("the answer is not the request"));
        }
        Ok(())
    }

    /// Connects, and tries again while the server refuses.
    async fn connect(&self, os: &mut Os) -> io::Result<TcpStream> {
        let last = os.now().await.saturating_add(self.patience);
        loop {
            match os.connect(self.addr.clone()).await {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && os.now().await < last =>
                {
                    os.sleep(PAUSE).await;
                }
                result => return result,
            }
        }
    }
}
