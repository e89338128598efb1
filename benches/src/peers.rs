//! Peers in other languages, where the machine has them: programs in `benches/peers` that run a
//! workload and print its figures.
//!
//! The Go program is built here. A virtual environment is made for the Python packages. Both are
//! beside this binary. So is madsim's program, which needs a build with a flag of its own.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{Plan, contest::Contest};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// The number of rounds for Python, which is slow.
const PYTHON_ROUNDS: usize = 3;
/// The number of tasks above which one round of Python's takes a minute.
const CROWD: usize = 1_000_000;
/// The factor by which Python repeats its work less often.
const PYTHON_SHARE: usize = 20;

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    command: Vec<OsString>,
    is_python: bool,
}

impl Peer {
    /// The command line that runs a workload.
    pub(crate) fn command(&self, work: &[String]) -> Vec<OsString> {
        let work = work.iter().map(OsString::from);
        self.command.iter().cloned().chain(work).collect()
    }

    /// The number of repetitions, where the others repeat the work `count` times.
    pub(crate) fn share(&self, count: usize) -> usize {
        if self.is_python {
            count.div_ceil(PYTHON_SHARE)
        } else {
            count
        }
    }

    /// The number of rounds in which it runs.
    pub(crate) fn rounds(&self, rounds: usize, tasks: usize) -> usize {
        match (self.is_python, tasks) {
            (false, _) => rounds,
            (true, CROWD..) => 1,
            (true, _) => rounds.div_ceil(2).min(PYTHON_ROUNDS),
        }
    }

    /// Whether it can finish with so many tasks: curio searches all of them for the next deadline.
    fn copes_with(&self, tasks: usize) -> bool {
        self.name != "curio" || tasks < CROWD
    }
}

impl Contest {
    /// Adds the peers that can handle so many tasks. `work` returns a workload's arguments, or none
    /// for a peer that does not take part.
    pub(crate) fn enter_peers(
        mut self,
        plan: &Plan,
        tasks: usize,
        work: impl Fn(&Peer) -> Option<Vec<String>>,
    ) -> Self {
        let count = self.figures();
        for peer in plan.peers.iter().filter(|peer| peer.copes_with(tasks)) {
            if let Some(work) = work(peer) {
                let line = peer.command(&work);
                self = self.enter_many(peer.name, move || figures(&line, count));
                self = self.sits_out_after(peer.rounds(plan.rounds, tasks));
            }
        }
        self
    }
}

/// The command line of this binary.
pub(crate) fn this(args: &[&str]) -> io::Result<Vec<OsString>> {
    let this = std::env::current_exe()?;
    let args = args.iter().map(OsString::from);
    Ok(std::iter::once(this.into()).chain(args).collect())
}

/// Runs a command to its end and parses so many figures from its output.
pub(crate) fn figures(line: &[OsString], count: usize) -> io::Result<Vec<f64>> {
    let out = Command::new(&line[0]).args(&line[1..]).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let figures: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    match figures {
        Ok(figures) if figures.len() == count => Ok(figures),
        _ => Err(io::Error::other(format!(
            "{line:?} printed {text:?} instead of {count} figures; it said: {}",
            String::from_utf8_lossy(&out.stderr)
        ))),
    }
}

/// Finds the selected peers, and says why it leaves one out.
pub(crate) fn find(is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<Peer>> {
    let this = std::env::current_exe()?;
    let beside = this.with_file_name("bench-peers");
    std::fs::create_dir_all(&beside)?;
    let mut peers = Vec::new();
    let mut found = |name, command: Result<Vec<OsString>, String>| match command {
        Ok(command) => peers.push(Peer {
            name,
            command,
            is_python: name != "Go",
        }),
        Err(why) => eprintln!("{name} takes no part: {why}"),
    };
    if is_wanted("Go") {
        found("Go", go(&beside));
    }
    for name in ["asyncio", "uvloop", "curio", "pyos"] {
        if is_wanted(name) {
            found(name, python(name, &beside));
        }
    }
    Ok(peers)
}

/// Builds madsim's program, and returns its command line, unless another contender is selected. Says
/// why it cannot be built.
pub(crate) fn madsim(plan: &Plan) -> Option<Vec<OsString>> {
    if !"madsim".contains(&plan.contender) {
        return None;
    }
    let build = || {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let beside = this.with_file_name("bench-peers").join("madsim");
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--release", "--locked", "--manifest-path"])
            .arg(Path::new(SOURCES).join("madsim/Cargo.toml"))
            .arg("--target-dir")
            .arg(&beside)
            .env("RUSTFLAGS", "--cfg madsim");
        run("cargo", &mut cargo)?;
        Ok(vec![beside.join("release/madsim-peer").into()])
    };
    let built: Result<_, String> = build();
    built
        .map_err(|why| eprintln!("madsim takes no part: {why}"))
        .ok()
}

fn go(beside: &Path) -> Result<Vec<OsString>, String> {
    let program = beside.join("go");
    let source = Path::new(SOURCES).join("peer.go");
    let line: [&std::ffi::OsStr; 4] = [
        "build".as_ref(),
        "-o".as_ref(),
        program.as_ref(),
        source.as_ref(),
    ];
    run("go", Command::new("go").args(line))?;
    Ok(vec![program.into()])
}

fn python(name: &str, beside: &Path) -> Result<Vec<OsString>, String> {
    let is_new = "import sys; assert sys.version_info >= (3, 11), 'Python is older than 3.11'";
    run("python3", Command::new("python3").args(["-c", is_new]))?;
    let (interpreter, script) = match name {
        "uvloop" => (with_package(name, beside)?, "asyncio_peer.py"),
        "curio" => (with_package(name, beside)?, "curio_peer.py"),
        "pyos" => ("python3".into(), "pyos_peer.py"),
        _ => ("python3".into(), "asyncio_peer.py"),
    };
    let script = Path::new(SOURCES).join(script);
    // No files are written beside the sources, and asserts are off: curio's search all ready tasks.
    let mut line = vec![interpreter.into(), "-BO".into(), script.into()];
    if name == "uvloop" {
        line.push("--uvloop".into());
    }
    Ok(line)
}

/// An interpreter that has a package: the machine's, or one that fetches it once.
fn with_package(name: &str, beside: &Path) -> Result<PathBuf, String> {
    let has = |python: &Path| {
        let import = format!("import {name}");
        run(name, Command::new(python).args(["-c", &import])).is_ok()
    };
    let system = PathBuf::from("python3");
    if has(&system) {
        return Ok(system);
    }
    let environment = beside.join("venv");
    let python = environment.join("bin/python");
    if !python.exists() {
        run(
            "python3",
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
        )?;
    }
    if !has(&python) {
        run(
            "pip",
            Command::new(&python).args(["-m", "pip", "install", "--quiet", name]),
        )?;
    }
    Ok(python)
}

/// Runs a command to its end, and returns its failure.
fn run(name: &str, command: &mut Command) -> Result<(), String> {
    let told = |Output { stderr, .. }| {
        let text = String::from_utf8_lossy(&stderr);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        format!("{name}: {}", last.unwrap_or("failed without a word"))
    };
    match command.output() {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(told(out)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("there is no {name}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
