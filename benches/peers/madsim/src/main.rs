//! A peer in madsim: `madsim-peer net HOSTS CLIENTS REQUESTS LAPS` runs the simulated echo of
//! `benches/src/net.rs`, and prints the nanoseconds of CPU time per request.
//!
//! The suite builds it with `RUSTFLAGS="--cfg madsim"`.

use std::{io, net::IpAddr, time::Duration};

use cpu_time::ThreadTime;
use madsim::{
    Config,
    net::{TcpListener, TcpStream},
    runtime::{NodeHandle, Runtime},
    task,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SIZE: usize = 64;
const SERVER: &str = "10.0.0.1:80";
const MS: Duration = Duration::from_millis(1);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<usize>> = args.iter().skip(1).map(|arg| arg.parse().ok()).collect();
    let (Some("net"), Some([hosts, clients, requests, laps])) =
        (args.first().map(String::as_str), numbers.as_deref())
    else {
        eprintln!("usage: madsim-peer net HOSTS CLIENTS REQUESTS LAPS");
        std::process::exit(2);
    };
    let start = ThreadTime::now();
    for _ in 0..*laps {
        net(*hosts, *clients, *requests);
    }
    let count = hosts * clients * requests * laps;
    println!("{}", start.elapsed().as_nanos() as f64 / count as f64);
}

fn net(hosts: usize, clients: usize, requests: usize) {
    let mut config = Config::default();
    // The range is half open.
    config.net.send_latency = MS..MS + Duration::from_nanos(1);
    let runtime = Runtime::with_seed_and_config(1, config);
    let server = runtime.create_node().name("server");
    let server = server.ip(IpAddr::from([10, 0, 0, 1])).build();
    server.spawn(serve());
    let nodes: Vec<_> = (0..hosts)
        .map(|n| {
            let ip = IpAddr::from([10, 1, (n / 250) as u8, (n % 250) as u8 + 1]);
            runtime
                .create_node()
                .name(format!("host{n}"))
                .ip(ip)
                .build()
        })
        .collect();
    runtime.block_on(async {
        // Until the server listens.
        madsim::time::sleep(MS).await;
        let of_host = |node: &NodeHandle| node.spawn(ask(requests));
        let all = nodes.iter().cycle().take(hosts * clients).map(of_host);
        let all: Vec<_> = all.collect();
        for client in all {
            let asked = client.await.expect("no client panics");
            asked.expect("every client is served");
        }
    });
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        task::spawn(async move {
            let mut buf = [0; SIZE];
            while let Ok(n @ 1..) = stream.read(&mut buf).await {
                stream.write_all(&buf[..n]).await?;
                stream.flush().await?;
            }
            io::Result::Ok(())
        });
    }
}

async fn ask(requests: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(SERVER).await?;
    let mut buf = [0; SIZE];
    for _ in 0..requests {
        stream.write_all(&[7; SIZE]).await?;
        stream.flush().await?;
        stream.read_exact(&mut buf).await?;
    }
    Ok(())
}
