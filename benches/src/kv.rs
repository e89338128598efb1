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
            for (test, share) in TESTS {
                let file = match log {
                    Log::None => "",
                    Log::File => ", append-only file",
                };
                let name = format!("key-value server, {test}, {pipeline} at once{file}");
                // A request of many at once takes less time.
                let work = Work {
                    test,
                    pipeline,
                    asked: count * pipeline.min(4),
                    sent: count * pipeline.min(4) * share,
                };
                let mut contest = Contest::new(name, plan.rounds, &["us of CPU per request"]);
                for (name, start) in SERVERS {
                    contest = contest.enter_many(name, move || round(start, log, work));
                }
                contests.push(contest);
            }
        }
    }
    contests
}

#[derive(Clone, Copy)]
struct Work {
    test: &'static str,
    pipeline: usize,
    /// The number of requests that redis-benchmark is asked for, and that it sends.
    asked: usize,
    sent: usize,
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

fn round(start: Start, log: Log, work: Work) -> io::Result<Vec<f64>> {
    let root = Root::new(0)?;
    let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let line = [this(&["--child=server-core"])?, start(&root.0, addr, log)?].concat();
    let server = Server::start(&line, addr)?;
    let pid = server.0.id() as i32;
    // A key to get, and the warm-up.
    for test in ["set", work.test] {
        load(
            addr,
            Work {
                test,
                asked: work.asked / 20,
                ..work
            },
        )?;
    }
    let before = cpu_time_of(pid)?;
    load(addr, work)?;
    let cpu = cpu_time_of(pid)? - before;
    Ok(vec![cpu.as_secs_f64() * 1e6 / work.sent as f64])
}

/// Sends the requests, and checks that they were answered.
fn load(addr: SocketAddr, work: Work) -> io::Result<()> {
    let line = this(&[
        "--child=client-core",
        "redis-benchmark",
        "-q",
        "-c",
        CLIENTS,
    ])?;
    let out = Command::new(&line[0])
        .args(&line[1..])
        .args(["-p", &addr.port().to_string(), "-t", work.test])
        .args([
            "-P",
            &work.pipeline.to_string(),
            "-n",
            &work.asked.to_string(),
        ])
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    match out.status.success() && text.contains("requests per second") {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "redis-benchmark reported this: {text}"
        ))),
    }
}
