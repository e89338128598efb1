//! The simulated network: an echo server and its clients, each with a task of its own, on hosts a
//! millisecond apart. The figure is the CPU time of the thread.
//!
//! Turmoil simulates hosts around tokio; its clients and its server are tokio's. Madsim needs a
//! build with a flag of its own, and so is a program apart, in `peers/madsim`.

use std::{io, net::IpAddr, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trapline::{Kernel, Os, SimNet, SimWorld, TcpStream};

use crate::{
    Plan,
    contest::Contest,
    meter::{cpu_time, memory, ns_each},
    peers::{self, figures, this},
};

const SIZE: usize = 64;
const PORT: u16 = 80;
const MS: Duration = Duration::from_millis(1);

/// How many hosts with clients, clients on each, and requests of each; and how often all of it is
/// simulated, each time from the start.
#[derive(Clone, Copy)]
struct Load {
    hosts: usize,
    clients: usize,
    requests: usize,
    laps: usize,
}

impl Load {
    fn count(self) -> usize {
        self.hosts * self.clients * self.requests * self.laps
    }

    /// Simulates all laps. Returns the nanoseconds of each request.
    fn run(self, lap: impl Fn(Self)) -> f64 {
        let before = cpu_time();
        for _ in 0..self.laps {
            lap(self);
        }
        ns_each(cpu_time() - before, self.count())
    }

    /// A part of the laps, for a contender that takes that many times as long.
    fn share(self, part: usize) -> Self {
        let laps = self.laps.div_ceil(part);
        Self { laps, ..self }
    }

    fn words(self) -> [String; 5] {
        let numbers = [self.hosts, self.clients, self.requests, self.laps];
        let [hosts, clients, requests, laps] = numbers.map(|number| number.to_string());
        ["net".into(), hosts, clients, requests, laps]
    }
}

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let one = Load {
        hosts: 1,
        clients: 100,
        requests: 100,
        laps: plan.times(400),
    };
    let each = Load {
        hosts: 100,
        clients: 1,
        ..one
    };
    let many = Load {
        hosts: 1000,
        clients: 1,
        requests: 10,
        laps: plan.times(100),
    };
    let madsim = peers::madsim(plan);
    let contest = |name: &str, load: Load| {
        let name = format!("simulated echo, {name}");
        let mut contest = Contest::new(name, plan.rounds.min(5), &["ns per request"])
            .enter("trapline", move || load.run(trapline));
        if let Some(mut line) = madsim.clone() {
            line.extend(load.share(4).words().map(Into::into));
            contest = contest.enter_many("madsim", move || figures(&line, 1));
        }
        if load.hosts > 100 {
            // Each millisecond it goes through all links for each host: a thousand hosts take
            // minutes.
            return contest;
        }
        contest.enter("turmoil", move || load.share(100).run(turmoil))
    };
    let crowd = plan.times(100_000);
    let memory = Contest::new(
        format!(
            "memory per simulated connection, {crowd} of {} hosts",
            crowd / 10
        ),
        plan.rounds.min(3),
        &["bytes of heap", "bytes resident"],
    )
    .enter_many("trapline", move || {
        figures(&this(&["--child=net", &crowd.to_string()])?, 2)
    });
    vec![
        contest("100 requests of 100 hosts", each),
        contest("100 requests of 100 clients on a host", one),
        contest("10 requests of 1000 hosts", many),
        memory,
    ]
}

// ---- trapline

/// A kernel with an echo server.
fn kernel() -> Kernel {
    let net = SimNet::new().latency(MS..=MS);
    let kernel = Kernel::builder().world(SimWorld::new(1).net(&net)).build();
    let mut kernel = kernel.expect("a simulated kernel boots");
    let server = kernel.spawn_on("server", "server", serve);
    server.expect("there is room");
    kernel
}

async fn serve(os: &mut Os) -> io::Result<()> {
    let listener = os.listen(([0, 0, 0, 0], PORT).into()).await?;
    loop {
        let (stream, _) = listener.accept(os).await?;
        let echo = async move |os: &mut Os| {
            let mut buf = [0; SIZE];
            loop {
                match stream.recv(os, &mut buf).await? {
                    0 => return io::Result::Ok(()),
                    n => stream.send_all(os, &buf[..n]).await?,
                }
            }
        };
        os.spawn_detached("client", echo).await?;
    }
}

async fn ask(os: &mut Os, stream: &TcpStream, requests: usize) -> io::Result<()> {
    let mut buf = [0; SIZE];
    for _ in 0..requests {
        stream.send_all(os, &[7; SIZE]).await?;
        let mut got = 0;
        while got < SIZE {
            got += stream.recv(os, &mut buf[got..]).await?;
        }
    }
    Ok(())
}

fn trapline(load: Load) {
    let mut kernel = kernel();
    let mut clients = Vec::new();
    for n in 0..load.hosts * load.clients {
        let client = async move |os: &mut Os| {
            let stream = os.connect(("server", PORT)).await?;
            ask(os, &stream, load.requests).await
        };
        let host = format!("host{}", n % load.hosts);
        clients.push(
            kernel
                .spawn_on(host, "client", client)
                .expect("there is room"),
        );
    }
    let report = kernel.run_until(&clients).expect("the run ends well");
    report.check().expect("every client is served");
}

/// Prints the memory of each of so many connections, with both of their tasks.
pub(crate) fn child(args: &[String]) -> io::Result<()> {
    let count = args.first().and_then(|count| count.parse().ok());
    let count: usize = count.ok_or_else(|| io::Error::other("how many connections?"))?;
    let mut kernel = kernel();
    let before = memory()?;
    for n in 0..count {
        let client = async move |os: &mut Os| {
            // So many at once would not fit into the backlog.
            os.sleep(Duration::from_micros(n as u64)).await;
            let stream = os.connect(("server", PORT)).await?;
            ask(os, &stream, 1).await?;
            os.sleep(Duration::from_secs(1000)).await;
            drop(stream);
            io::Result::Ok(())
        };
        kernel.spawn_on(format!("host{}", n / 10), "client", client)?;
    }
    let all_asked = async |os: &mut Os| os.sleep(Duration::from_secs(1)).await;
    let watch = kernel.spawn("watch", all_asked)?;
    kernel.run_until(&[watch]).map_err(io::Error::other)?;
    let now = memory()?;
    let each = |bytes: f64| bytes / count as f64;
    println!(
        "{} {}",
        each(now.heap - before.heap),
        each(now.resident - before.resident)
    );
    std::process::exit(0)
}

// ---- turmoil

fn turmoil(load: Load) {
    let mut sim = turmoil::Builder::new()
        .simulation_duration(Duration::from_secs(1_000_000))
        .tick_duration(MS)
        .min_message_latency(MS)
        .max_message_latency(MS)
        .tcp_capacity(1 << 16)
        .build();
    sim.host("server", || async {
        let any = IpAddr::from([0, 0, 0, 0]);
        let listener = turmoil::net::TcpListener::bind((any, PORT)).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut buf = [0; SIZE];
                while let Ok(n @ 1..) = stream.read(&mut buf).await {
                    stream.write_all(&buf[..n]).await?;
                }
                io::Result::Ok(())
            });
        }
    });
    for n in 0..load.hosts {
        sim.client(format!("host{n}"), async move {
            let mut clients = Vec::new();
            for _ in 0..load.clients {
                clients.push(tokio::spawn(async move {
                    let server = ("server", PORT);
                    let mut stream = turmoil::net::TcpStream::connect(server).await?;
                    let mut buf = [0; SIZE];
                    for _ in 0..load.requests {
                        stream.write_all(&[7; SIZE]).await?;
                        stream.read_exact(&mut buf).await?;
                    }
                    io::Result::Ok(())
                }));
            }
            for client in clients {
                client.await??;
            }
            Ok(())
        });
    }
    sim.run().expect("every client is served");
}
