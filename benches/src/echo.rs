//! Echo: 64-byte ping-pong over loopback, a closed loop over each connection.
//!
//! A server process on one core, a client process on the other, for a contender at a time; the
//! contenders take turns round by round. What the client can drive bounds the rate, so look at the
//! server's CPU time per request as well: it tells servers apart that the rate does not.

mod client;
mod server;

use std::{
    io::{self, BufRead, BufReader, Read},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{contest::Contest, meter::pin};

/// Requests and answers have this many bytes.
const MESSAGE: usize = 64;
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

/// How long the client runs before it measures, and how long it measures.
const WARM_UP: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_millis(1200);

pub(crate) fn contests(rounds: usize) -> Vec<Contest> {
    let mut contests = Vec::new();
    for connections in [50, 1000] {
        let name = |what| format!("echo, {connections} connections{what}");
        let mut contest = Contest::new(
            name(""),
            rounds,
            &["requests per s", "us of CPU per request"],
        );
        for (server, _) in server::SERVERS {
            contest = contest.enter_many(server, move || round(server, connections));
        }
        contests.push(contest);
        if !has_strace() {
            eprintln!("no strace: system calls are not counted");
            continue;
        }
        let mut contest = Contest::new(name(", under strace"), 1, &["system calls per request"]);
        for (server, _) in server::SERVERS {
            contest = contest.enter_many(server, move || count_calls(server, connections));
        }
        contests.push(contest);
    }
    contests
}

/// A server that listens.
struct Server {
    child: Child,
    pid: Pid,
    addr: SocketAddr,
}

impl Server {
    /// Starts this binary again as a server, by way of the command `before` it.
    fn start(server: &str, before: &[&str]) -> io::Result<Self> {
        let this = std::env::current_exe()?;
        let mut line: Vec<&std::ffi::OsStr> = before.iter().map(AsRef::as_ref).collect();
        line.extend([
            this.as_os_str(),
            "--child=echo-server".as_ref(),
            server.as_ref(),
        ]);
        let mut child = Command::new(line[0])
            .args(&line[1..])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut told = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut told)?;
        let parsed = told.trim().split_once(' ').and_then(|(pid, addr)| {
            let pid = Pid::from_raw(pid.parse().ok()?)?;
            Some((pid, addr.parse().ok()?))
        });
        match parsed {
            Some((pid, addr)) => Ok(Self { child, pid, addr }),
            None => Err(io::Error::other(format!(
                "the server {server} said {told:?} instead of its process and address"
            ))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either may have ended by itself.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// What the client of a round reports.
struct Load {
    /// In the window of time.
    requests_per_second: f64,
    server_cpu_us: f64,
    /// Since it began.
    requests: f64,
}

fn load(server: &Server, connections: usize) -> io::Result<Load> {
    let out = Command::new(std::env::current_exe()?)
        .arg("--child=echo-client")
        .arg(server.addr.to_string())
        .arg(server.pid.to_string())
        .arg(connections.to_string())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let figures: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
    match figures[..] {
        [requests_per_second, server_cpu_us, requests] => Ok(Load {
            requests_per_second,
            server_cpu_us,
            requests,
        }),
        _ => Err(io::Error::other(format!(
            "the client printed {text:?} instead of three figures"
        ))),
    }
}

fn round(server: &str, connections: usize) -> io::Result<Vec<f64>> {
    let load = load(&Server::start(server, &[])?, connections)?;
    Ok(vec![load.requests_per_second, load.server_cpu_us])
}

fn has_strace() -> bool {
    let quiet = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// The same under strace, which makes the server slow and counts its system calls: the few of its
/// start are among them.
fn count_calls(server: &str, connections: usize) -> io::Result<Vec<f64>> {
    let mut path: PathBuf = std::env::temp_dir();
    path.push(format!("trapline-bench-{}.strace", std::process::id()));
    let name = path.display().to_string();
    let running = Server::start(
        server,
        &["strace", "-f", "-c", "-U", "name,calls", "-o", &name],
    )?;
    let requests = load(&running, connections)?.requests;
    drop(running);
    let mut table = String::new();
    std::fs::File::open(&path)?.read_to_string(&mut table)?;
    std::fs::remove_file(&path)?;
    let total = table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("total")).then(|| words.next()?.parse().ok())?
    });
    let total: f64 =
        total.ok_or_else(|| io::Error::other(format!("strace wrote no total, but: {table}")))?;
    Ok(vec![total / requests])
}

/// The role of the server's process: says who and where it is, and serves until it is killed.
pub(crate) fn serve(args: &[String]) -> io::Result<()> {
    let found = server::SERVERS.iter().find(|(name, _)| args == [*name]);
    let (_, serve) =
        found.ok_or_else(|| io::Error::other(format!("there is no echo server {args:?}")))?;
    pin(None, SERVER_CORE)?;
    serve()
}

/// The role of the client's process.
pub(crate) fn call(args: &[String]) -> io::Result<()> {
    let parsed = match args {
        [addr, pid, connections] => addr
            .parse()
            .ok()
            .zip(pid.parse().ok())
            .zip(connections.parse().ok()),
        _ => None,
    };
    let ((addr, server), connections) =
        parsed.ok_or_else(|| io::Error::other("an echo client needs ADDR PID CONNECTIONS"))?;
    pin(None, CLIENT_CORE)?;
    client::run(addr, server, connections)
}
