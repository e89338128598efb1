//! A service of axum, as a guest of trapline and on tokio's runtime of one thread, in turn.
//!
//! `cargo run --release -- [--rounds N] [--quick]`
//!
//! The routes, hyper's settings and the compiler's flags are the same. 50 connections send a request
//! each as soon as the last answer is in. The server has a core of its own, and so has the load. The
//! load never sleeps, so no server has to wake it.

#[path = "../../src/contest.rs"]
#[allow(dead_code, reason = "the other benchmarks use more of it")]
mod contest;
mod load;
#[path = "../../src/meter.rs"]
#[allow(dead_code, reason = "the other benchmarks use more of it")]
mod meter;
mod servers;

use std::{
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use contest::Contest;
use rustix::process::Pid;

const SERVER_CORE: usize = 0;
const LOAD_CORE: usize = 1;
const CONNECTIONS: usize = 50;
const UNITS: &[&str] = &["us of CPU per request", "us per request"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["--child=server", name] => servers::serve(name),
        [] => compare(9, false),
        ["--quick"] => compare(3, true),
        ["--rounds", rounds] => match rounds.parse() {
            Ok(rounds @ 1..) => compare(rounds, false),
            _ => Err(io::Error::other("--rounds takes a number above 0")),
        },
        _ => Err(io::Error::other("usage: [--quick | --rounds N]")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trapline-bench-guests: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(rounds: usize, is_quick: bool) -> io::Result<()> {
    let window = Duration::from_millis(if is_quick { 250 } else { 1200 });
    meter::pin(None, LOAD_CORE)?;
    let name = format!("axum, {CONNECTIONS} connections");
    let mut contest = Contest::new(name, rounds, UNITS);
    for (name, _) in servers::SERVERS {
        contest = contest.enter_many(name, move || {
            let server = Server::start(name)?;
            load::run(server.addr, server.pid, CONNECTIONS, window)
        });
    }
    let results = contest.run()?;
    print!("{results}");
    let cpu: Vec<f64> = results.lines.iter().map(|line| line.median).collect();
    println!(
        "requests per CPU second, ours / tokio's: {:.3}",
        cpu[1] / cpu[0]
    );
    Ok(())
}

/// A server in a process of its own.
struct Server {
    child: Child,
    pid: Pid,
    addr: SocketAddr,
}

impl Server {
    fn start(name: &str) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--child=server", name])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut told = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut told)?;
        let addr = told.trim().parse();
        let addr = addr.map_err(|_| io::Error::other(format!("{name} said {told:?}")))?;
        let pid = Pid::from_child(&child);
        Ok(Self { child, pid, addr })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
