//! Cold start: from the call that starts a process to its end, with almost no work between.
//!
//! The file is in the page cache. The lower bound is a Rust program that prints a line.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::{Plan, contest::Contest, meter::cpu_time_of};

/// The number of starts per figure.
const STARTS: usize = 50;

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let starts = plan.times(STARTS);
    let boot = |options: &'static [&'static str]| {
        move || {
            let words = [&["boot", "--quiet"], options, &["parts"]].concat();
            let line = [
                vec![trapline()?.into()],
                words.iter().map(OsString::from).collect(),
            ];
            many(&line.concat(), starts)
        }
    };
    let mut contest = Contest::new("cold start", plan.rounds, &["ms", "ms of CPU"])
        .enter_many("trapline boot", boot(&[]))
        .enter_many("trapline boot --virtual", boot(&["--virtual"]))
        .enter_many("raw Rust program", move || many(&[bare()?.into()], starts));
    for peer in &plan.peers {
        let line = peer.command(&["nothing".into()]);
        contest = contest
            .enter_many(peer.name, move || many(&line, starts))
            .sits_out_after(peer.rounds(plan.rounds, 1));
    }
    vec![contest]
}

fn many(line: &[OsString], starts: usize) -> io::Result<Vec<f64>> {
    let (mut wall, mut cpu) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..starts {
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).stdout(Stdio::null());
        let taken = measure(&mut command)?;
        wall += taken.wall;
        cpu += taken.cpu;
    }
    Ok([wall, cpu]
        .map(|sum| sum.as_secs_f64() * 1e3 / starts as f64)
        .into())
}

/// The resources that a process used.
pub(crate) struct Taken {
    wall: Duration,
    pub(crate) cpu: Duration,
}

/// Runs a command to its end.
pub(crate) fn measure(command: &mut Command) -> io::Result<Taken> {
    let start = Instant::now();
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    // Its times can be read until it is waited for.
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    let wall = start.elapsed();
    let cpu = cpu_time_of(pid.as_raw_nonzero().get())?;
    let status = child.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!("{command:?} failed: {status}")));
    }
    Ok(Taken { wall, cpu })
}

/// The binary `trapline`, built once.
pub(crate) fn trapline() -> io::Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    build(&BUILT, "trapline-cli", "trapline")
}

fn bare() -> io::Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    build(&BUILT, "trapline-bench", "bare")
}

fn build(built: &OnceLock<PathBuf>, package: &str, binary: &str) -> io::Result<PathBuf> {
    if let Some(path) = built.get() {
        return Ok(path.clone());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let status = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--quiet",
            "--package",
            package,
            "--bin",
            binary,
        ])
        .arg("--manifest-path")
        .arg(manifest)
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("{binary} cannot be built")));
    }
    let path = std::env::current_exe()?.with_file_name(binary);
    Ok(built.get_or_init(|| path).clone())
}
