//! A key-value server: `trapline boot kv` beside redis-server, both under redis-benchmark with 50
//! clients.
//!
//! The server is on one core and the client on the other. The contenders take turns round by round.

use std::{
    ffi::OsString,
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Command,
};

use crate::{
    Plan,
    contest::Contest,
    files::{Root, Server, is_there},
    meter::cpu_time_of,
    peers::this,
    start::trapline,
};

const CLIENTS: &str = "50";
/// The tests of redis-benchmark, and how many requests of a test it sends for each that it is asked for.
const TESTS: [(&str, usize); 4] = [("ping", 2), ("get", 1), ("set", 1), ("incr", 1)];
const UNITS: [&str; 4] = [
    "us of CPU per PING",
    "us of CPU per GET",
    "us of CPU per SET",
    "us of CPU per INCR",
];
/// How many requests a client sends at once.
const PIPELINES: [usize; 2] = [1, 16];

#[derive(Clone, Copy)]
enum Log {
    None,
    /// An append-only file that is synced each second.
    File,
}

type Start = fn(&Path, SocketAddr, Log) -> io::Result<Vec<OsString>>;

const SERVERS: [(&str, Start); 2] = [("trapline boot kv", kv), ("redis-server", redis)];

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let tools = ["redis-server", "redis-benchmark"];
    if let Some(missing) = tools.into_iter().find(|tool| !is_there(tool)) {
        eprintln!("there is no {missing}: the key-value server is not measured");
        return Vec::new();
    }
    let count = plan.times(200_000);
    let mut contests = Vec::new();
    for log in [Log::None, Log::File] {
        for pipeline in PIPELINES {
            let file = match log {
                Log::None => "",
                Log::File => ", append-only file",
            };
            let name = format!("key-value server, {pipeline} at once{file}");
            let mut contest = Contest::new(name, plan.rounds, &UNITS);
            for (name, start) in SERVERS {
                contest = contest.enter_many(name, move || round(start, log, pipeline, count));
            }
            contests.push(contest);
        }
    }
    contests
}

fn kv(root: &Path, addr: SocketAddr, log: Log) -> io::Result<Vec<OsString>> {
    let mut line = vec![trapline()?.into()];
    line.extend(["boot", "-q", "--disk"].map(OsString::from));
    line.extend([
        root.into(),
        "kv".into(),
        "--addr".into(),
        addr.to_string().into(),
    ]);
    if let Log::File = log {
        line.extend(["--aof", "data"].map(OsString::from));
    }
    Ok(line)
}

fn redis(root: &Path, addr: SocketAddr, log: Log) -> io::Result<Vec<OsString>> {
    let mut line = vec!["redis-server".into(), "--port".into()];
    line.extend([addr.port().to_string().into(), "--dir".into(), root.into()]);
    // No snapshots.
    line.extend(["--save", "", "--appendfsync", "everysec", "--appendonly"].map(OsString::from));
    line.push(match log {
        Log::None => "no".into(),
        Log::File => "yes".into(),
    });
    Ok(line)
}

/// The CPU time per request of each test.
fn round(start: Start, log: Log, pipeline: usize, count: usize) -> io::Result<Vec<f64>> {
    let root = Root::new(0)?;
    let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let line = [this(&["--child=server-core"])?, start(&root.0, addr, log)?].concat();
    let server = Server::start(&line, addr)?;
    let pid = server.0.id() as i32;
    // A request of many at once takes less time.
    let count = count * pipeline.min(4);
    // A key to get, and the warm-up.
    load(addr, "set", pipeline, count / 10)?;
    let mut figures = Vec::new();
    for (test, share) in TESTS {
        let before = cpu_time_of(pid)?;
        load(addr, test, pipeline, count)?;
        let cpu = cpu_time_of(pid)? - before;
        figures.push(cpu.as_secs_f64() * 1e6 / (count * share) as f64);
    }
    Ok(figures)
}

/// Asks for so many requests, and checks that they were answered.
fn load(addr: SocketAddr, test: &str, pipeline: usize, count: usize) -> io::Result<()> {
    let line = this(&[
        "--child=client-core",
        "redis-benchmark",
        "-q",
        "-c",
        CLIENTS,
    ])?;
    let out = Command::new(&line[0])
        .args(&line[1..])
        .args(["-p", &addr.port().to_string(), "-t", test])
        .args(["-P", &pipeline.to_string(), "-n", &count.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    match out.status.success() && text.contains("requests per second") {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "redis-benchmark reported this: {text}"
        ))),
    }
}
