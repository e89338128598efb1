//! Files over HTTP: `trapline boot httpd` beside nginx with as many workers. `wrk` requests the same
//! file over 50 connections.
//!
//! A server of one worker is on one core and the client on the other. The contenders take turns round by round.

use std::{
    ffi::OsString,
    fs, io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Plan, contest::Contest, meter::cpu_time_of_family, peers::this, start::trapline};

const CONNECTIONS: &str = "-c50";
/// Names and lengths. `httpd` keeps the small files in memory, and lets the system send the others.
const FILES: [(&str, usize); 2] = [("1 kB", 1_000), ("100 kB", 100_000)];
/// The longest time for a server to start listening.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command line of a server with so many workers.
type Start = fn(&Path, SocketAddr, usize) -> io::Result<Vec<OsString>>;

const SERVERS: [(&str, Start); 3] = [
    ("trapline boot httpd", httpd),
    ("nginx", |root, addr, workers| {
        nginx(root, addr, workers, "off")
    }),
    ("nginx, tcp_nopush", |root, addr, workers| {
        nginx(root, addr, workers, "on")
    }),
];
/// Two workers share their cores with the client.
const WORKERS: [usize; 2] = [1, 2];

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    if let Some(missing) = ["nginx", "wrk"].into_iter().find(|tool| !is_there(tool)) {
        eprintln!("there is no {missing}: files are not measured");
        return Vec::new();
    }
    let seconds = if plan.quick { 1 } else { 3 };
    let contest = |workers: usize, (name, len): (&str, usize)| {
        let name = format!("files of {name}, 50 connections, {workers} workers");
        let units = &["us of CPU per request", "us per request"];
        let mut contest = Contest::new(name, plan.rounds, units);
        for (name, start) in SERVERS {
            contest = contest.enter_many(name, move || round(start, len, workers, seconds));
        }
        contest
    };
    let all = |workers| FILES.map(|file| contest(workers, file));
    WORKERS.map(all).into_iter().flatten().collect()
}

pub(crate) fn is_there(tool: &str) -> bool {
    let mut command = Command::new(tool);
    let quiet = command
        .arg("-v")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok()
}

fn httpd(root: &Path, addr: SocketAddr, workers: usize) -> io::Result<Vec<OsString>> {
    let mut line = vec![trapline()?.into()];
    line.extend(["boot", "-q", "--kernels"].map(OsString::from));
    line.extend([workers.to_string(), "httpd".into(), "--addr".into()].map(OsString::from));
    line.extend([addr.to_string().into(), "--root".into(), root.into()]);
    Ok(line)
}

fn nginx(root: &Path, addr: SocketAddr, workers: usize, nopush: &str) -> io::Result<Vec<OsString>> {
    let (here, conf) = (root.display(), root.join("nginx.conf"));
    // One worker is alone in its process. The master of several does no work.
    let master = if workers > 1 { "on" } else { "off" };
    let text = format!(
        "daemon off; master_process {master}; worker_processes {workers};
         pid {here}/pid; error_log {here}/errors;
         events {{ worker_connections 1024; }}
         http {{
             access_log off; sendfile on; tcp_nopush {nopush}; keepalive_requests 100000000;
             server {{ listen {addr}; root {here}; }}
         }}"
    );
    fs::write(&conf, text)?;
    Ok(vec!["nginx".into(), "-c".into(), conf.into()])
}

/// The directory that is served. Dropping this removes it.
pub(crate) struct Root(pub(crate) PathBuf);

impl Root {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("trapline-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        let root = Self(path);
        fs::write(root.0.join("file"), vec![b'x'; len])?;
        Ok(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // Any rest stays in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server. Dropping this ends it.
pub(crate) struct Server(pub(crate) Child);

impl Server {
    pub(crate) fn start(line: &[OsString], addr: SocketAddr) -> io::Result<Self> {
        let mut command = Command::new(&line[0]);
        let mut server = Self(command.args(&line[1..]).stdout(Stdio::null()).spawn()?);
        let began = Instant::now();
        while TcpStream::connect(addr).is_err() {
            if server.0.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("{line:?} does not listen")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already. One that has processes ends them, too.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn round(start: Start, len: usize, workers: usize, seconds: u64) -> io::Result<Vec<f64>> {
    let root = Root::new(len)?;
    let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut line = start(&root.0, addr, workers)?;
    if workers == 1 {
        line = [this(&["--child=server-core"])?, line].concat();
    }
    let server = Server::start(&line, addr)?;
    let pid = server.0.id() as i32;
    load(addr, 1)?;
    let before = cpu_time_of_family(pid)?;
    let (requests, rate) = load(addr, seconds)?;
    let cpu = cpu_time_of_family(pid)? - before;
    Ok(vec![cpu.as_secs_f64() * 1e6 / requests, 1e6 / rate])
}

/// The number of requests, and the number per second. All must have been answered with 200.
fn load(addr: SocketAddr, seconds: u64) -> io::Result<(f64, f64)> {
    let line = this(&["--child=client-core", "wrk", "-t1", CONNECTIONS])?;
    let out = Command::new(&line[0])
        .args(&line[1..])
        .arg(format!("-d{seconds}s"))
        .arg(format!("http://{addr}/file"))
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let number = |line: &str| line.split_whitespace().find_map(|word| word.parse().ok());
    let find = |what: &str| text.lines().find(|line| line.contains(what));
    let is_clean = find("Socket errors").is_none() && find("Non-2xx").is_none();
    let figures = (
        find(" requests in ").and_then(number),
        find("Requests/sec").and_then(number),
    );
    match figures {
        (Some(requests), Some(rate)) if is_clean => Ok((requests, rate)),
        _ => Err(io::Error::other(format!("wrk reported this: {text}"))),
    }
}
