//! Echo: 64-byte ping-pong over loopback, a closed loop over each connection, or over some while
//! the others are idle.
//!
//! A server process runs on one core and a client process on the other, for one contender at a
//! time. The contenders take turns round by round. The client bounds the rate, so look at the
//! server's CPU time per request as well: it separates servers that have the same rate. The client
//! never sleeps, so that no server has to wake it.

mod client;
pub(crate) mod datagrams;
mod server;

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::{
    Plan,
    contest::Contest,
    meter::pin,
    peers::{figures, this},
};

/// Requests and answers have this many bytes.
const MESSAGE: usize = 64;
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const CLIENT_CORE: usize = 1;

/// The number of busy connections, and of idle ones.
const LOADS: [(usize, usize); 3] = [(50, 0), (1000, 0), (100, 9_900)];
/// The number of connections of servers on several threads.
const CREWS_BUSY: usize = 200;
/// Marks the start or end of the window for a tracer of the server; the server ignores it. In a
/// trace it is a SIGCONT.
const MARK: Signal = Signal::CONT;
/// The descriptors that a process needs besides connections.
const DESCRIPTORS: usize = 100;

/// The client's warm-up and its measured window, in milliseconds.
#[derive(Clone, Copy)]
struct Times {
    warm_up: u64,
    window: u64,
}

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let times = if plan.quick {
        Times {
            warm_up: 50,
            window: 250,
        }
    } else {
        Times {
            warm_up: 300,
            window: 1200,
        }
    };
    let mut contests = vec![crews(plan, times)];
    let has_strace = has_strace();
    if !has_strace {
        eprintln!("there is no strace: system calls are not counted");
    }
    for (busy, idle) in LOADS {
        if most_descriptors() < busy + idle + DESCRIPTORS {
            eprintln!(
                "echo, {busy} of {} connections: needs that many descriptors",
                busy + idle
            );
            continue;
        }
        let name = match idle {
            0 => format!("echo, {busy} connections"),
            idle => format!("echo, {busy} connections busy and {idle} idle"),
        };
        let timed = Contest::new(
            &name,
            plan.rounds,
            &["us of CPU per request", "us per request"],
        );
        contests.push(enter(plan, timed, move |line| {
            round(line, busy, idle, times)
        }));
        if has_strace {
            let name = format!("{name}, system calls");
            let counted = Contest::new(name, 1, &["system calls per request"]);
            contests.push(enter(plan, counted, move |line| {
                count_calls(line, busy, idle, times)
            }));
        }
    }
    contests
}

/// Servers on one thread and on two, wherever the system places them.
fn crews(plan: &Plan, times: Times) -> Contest {
    let name = format!("echo, {CREWS_BUSY} connections, threads");
    let units = &["us of CPU per request", "us per request"];
    let mut contest = Contest::new(name, plan.rounds, units);
    for (name, _, _) in server::CREWS {
        contest = contest.enter_many(name, move || {
            round(&this(&["--child=echo-server", name])?, CREWS_BUSY, 0, times)
        });
    }
    contest
}

/// Adds all servers, with the command lines that start them.
fn enter(
    plan: &Plan,
    mut contest: Contest,
    run: impl Fn(&[OsString]) -> io::Result<Vec<f64>> + Copy + 'static,
) -> Contest {
    for (name, _) in server::SERVERS {
        contest = contest.enter_many(name, move || run(&this(&["--child=echo-server", name])?));
    }
    for peer in &plan.peers {
        let theirs = peer.command(&["echo".into()]);
        contest = contest
            .enter_many(peer.name, move || {
                run(&[this(&["--child=server-core"])?, theirs.clone()].concat())
            })
            .sits_out_after(peer.rounds(plan.rounds, 1));
    }
    contest
}

/// A running server.
struct Server {
    child: Child,
    pid: Pid,
    addr: SocketAddr,
}

impl Server {
    fn start(line: &[OsString]) -> io::Result<Self> {
        let mut child = Command::new(&line[0])
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
                "the server {line:?} said {told:?} instead of its process and address"
            ))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either may have ended already.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The client's report about the window of a round.
struct Load {
    us_per_request: f64,
    server_cpu_us: f64,
    requests: f64,
}

fn load(server: &Server, busy: usize, idle: usize, times: Times) -> io::Result<Load> {
    let figures = figures(
        &this(&[
            "--child=echo-client",
            &server.addr.to_string(),
            &server.pid.to_string(),
            &busy.to_string(),
            &idle.to_string(),
            &times.warm_up.to_string(),
            &times.window.to_string(),
        ])?,
        3,
    )?;
    Ok(Load {
        us_per_request: figures[0],
        server_cpu_us: figures[1],
        requests: figures[2],
    })
}

fn round(line: &[OsString], busy: usize, idle: usize, times: Times) -> io::Result<Vec<f64>> {
    let load = load(&Server::start(line)?, busy, idle, times)?;
    Ok(vec![load.server_cpu_us, load.us_per_request])
}

fn has_strace() -> bool {
    let quiet = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// The same under strace, which slows the server and prints its system calls. The calls between the
/// client's two marks count. After the second mark it sends nothing.
fn count_calls(line: &[OsString], busy: usize, idle: usize, times: Times) -> io::Result<Vec<f64>> {
    let path = std::env::temp_dir().join(format!("trapline-bench-{}.strace", std::process::id()));
    let strace = ["strace", "-f", "-s", "0", "-o"].map(OsString::from);
    let server = Server::start(&[&strace[..], &[path.clone().into()], line].concat())?;
    let requests = load(&server, busy, idle, times)?.requests;
    drop(server);
    let trace = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    let mut parts = trace.split("--- SIGCONT {");
    // The server's end may come before the second mark, if it follows soon after it.
    let (Some(_), Some(window)) = (parts.next(), parts.next()) else {
        let last = trace.lines().last();
        return Err(io::Error::other(format!(
            "strace saw no marks, and last: {last:?}"
        )));
    };
    // A call that another thread interrupts has two lines.
    let calls = window
        .lines()
        .filter(|line| line.contains('(') && !line.contains(" resumed>"));
    Ok(vec![calls.count() as f64 / requests])
}

fn most_descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).maximum;
    most.map_or(usize::MAX, |most| most as usize)
}

/// Sets up a process of the benchmark: on a core of its own, and with room for descriptors.
fn settle(core: usize) -> io::Result<()> {
    pin(None, core)?;
    room()
}

fn room() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

/// The role of the server's process: prints its id and address, and serves until it is killed.
pub(crate) fn serve(args: &[String]) -> io::Result<()> {
    if let Some((_, threads, serve)) = server::CREWS.iter().find(|(name, ..)| args == [*name]) {
        room()?;
        return serve(*threads);
    }
    let found = server::SERVERS.iter().find(|(name, _)| args == [*name]);
    let (_, serve) =
        found.ok_or_else(|| io::Error::other(format!("there is no echo server {args:?}")))?;
    settle(SERVER_CORE)?;
    serve()
}

/// The role of a process that is another program: a server or a client.
pub(crate) fn exec(core: usize, args: &[String]) -> io::Result<()> {
    let [program, args @ ..] = args else {
        return Err(io::Error::other("there is no program to become"));
    };
    settle(core)?;
    Err(Command::new(OsStr::new(program)).args(args).exec())
}

/// The role of the client's process.
pub(crate) fn call(args: &[String]) -> io::Result<()> {
    let usage = "an echo client needs ADDR PID BUSY IDLE WARM-UP WINDOW";
    let numbers: Vec<u64> = args.iter().skip(1).flat_map(|arg| arg.parse()).collect();
    let addr: Option<SocketAddr> = args.first().and_then(|addr| addr.parse().ok());
    let (Some(addr), [server, busy, idle, warm_up, window]) = (addr, &numbers[..]) else {
        return Err(io::Error::other(usage));
    };
    let server = Pid::from_raw(*server as i32).ok_or_else(|| io::Error::other(usage))?;
    settle(CLIENT_CORE)?;
    let times = Times {
        warm_up: *warm_up,
        window: *window,
    };
    client::run(addr, server, *busy as usize, *idle as usize, times)
}
