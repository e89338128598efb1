mod tally;

use std::{
    cell::{Cell, RefCell},
    error::Error,
    io,
    rc::Rc,
    time::Duration,
};

use tally::Tally;
use trapline::{Elapsed, Endpoint, Os, Signal, Source, TcpStream};
use trapline_cli::{Meter, Program, duration};

/// A load generator: clients that ask an echo server and measure its answers
///
/// A request is a number of bytes, and the answer must be the same bytes: `echo` answers so. No two
/// requests of 8 bytes or more are alike, so that a wrong answer is noticed. A client makes its
/// requests one after the other. At the end, and at an interrupt (^C), the rate and the latencies are
/// printed. The program fails if a request has, or if it was interrupted.
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
        let all = u64::from(self.clients) * u64::from(self.requests);
        let work = Rc::new(Work {
            swarm: self,
            tally: RefCell::default(),
            meter: Meter::new("request", Some(all)),
            made: Cell::default(),
        });
        let interrupts = os.catch(&[Signal::Interrupt]).await;
        let begin = os.now().await;
        let mut clients = Vec::new();
        for number in 0..work.swarm.clients {
            let work = Rc::clone(&work);
            let client = async move |os: &mut Os| work.client(os, number).await;
            clients.push(os.spawn_child("client", client).await?);
        }
        let mut is_interrupted = false;
        for client in &mut clients {
            let sources = [Source::child(client), Source::signal(&interrupts)];
            if !is_interrupted && os.select(&sources).await == 1 {
                interrupts.next(os).await;
                is_interrupted = true;
            }
            if is_interrupted {
                client.kill(os).await;
            } else if let Err(exit) = client.wait(os).await {
                return Err(format!("a client has not finished: {exit}").into());
            }
        }
        let took = os.now().await.saturating_sub(begin);
        let tally = work.tally.take();
        writeln!(os, "{}", tally.report(took));
        match (tally.failed(), tally.requests()) {
            (_, made) if is_interrupted => {
                Err(format!("interrupted after {made} of {all} requests").into())
            }
            (0, _) => Ok(()),
            (failed, made) => Err(format!("{failed} of {made} requests failed").into()),
        }
    }
}

/// What the clients share.
struct Work {
    swarm: Swarm,
    tally: RefCell<Tally>,
    meter: Meter,
    /// How many requests were made.
    made: Cell<u64>,
}

impl Work {
    /// Counts what has become of so many requests.
    fn count(&self, made: u32, outcome: impl FnOnce(&mut Tally)) {
        outcome(&mut self.tally.borrow_mut());
        self.made.set(self.made.get() + u64::from(made));
        self.meter.show(self.made.get());
    }

    /// Makes the requests of one client.
    async fn client(&self, os: &mut Os, number: u32) {
        let swarm = &self.swarm;
        let mut connection = None;
        for n in 0..swarm.requests {
            if n > 0 && !swarm.think.is_zero() {
                os.sleep(swarm.think).await;
            }
            let request = swarm.request(number, n);
            let begin = os.now().await;
            let ask = async |os: &mut Os| swarm.ask(os, &mut connection, &request).await;
            match os.timeout(swarm.timeout, ask).await {
                Ok(Ok(())) => {
                    let latency = os.now().await.saturating_sub(begin);
                    self.count(1, |tally| tally.answered(latency));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let left = swarm.requests - n;
                    self.count(left, |tally| tally.fail(left, error.to_string()));
                    break;
                }
                Ok(Err(error)) => {
                    self.count(1, |tally| tally.fail(1, error.to_string()));
                    connection = None;
                }
                Err(Elapsed) => {
                    let why = format!("no answer within {:?}", swarm.timeout);
                    self.count(1, |tally| tally.fail(1, why));
                    connection = None;
                }
            }
            if !swarm.keep_alive {
                connection = None;
            }
        }
    }
}

impl Swarm {
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
