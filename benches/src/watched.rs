//! Observation from the command line: the extra cost of a turn, for a program that prints a line at
//! each of its turns. Each turn is four events.

use std::{
    fs::{File, remove_file},
    io::{self, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::{
    Plan,
    contest::Contest,
    meter::ns_each,
    start::{measure, trapline},
};

const TURNS: usize = 200_000;
/// An observer of a running kernel needs some seconds of it.
const LIVE_TURNS: usize = 2_000_000;
const ROUNDS: usize = 5;

/// In the simulated world, without an observer.
pub(crate) fn from_the_command_line(plan: &Plan) -> Contest {
    let turns = plan.times(TURNS);
    let file = path("trap");
    let record = ["--record".into(), file.display().to_string()];
    let last = ["--record-last", "100000"].map(String::from);
    let lines = [
        ("trapline boot", vec![]),
        ("--record", record.to_vec()),
        ("--record-last 100000", [record, last].concat()),
        ("--post-mortem", words(&["--post-mortem"])),
        ("--summary", words(&["--summary"])),
        ("--trace", words(&["--trace"])),
        (
            "--trace --log-format json",
            words(&["--trace", "--log-format", "json"]),
        ),
    ];
    let name = "observation from the command line";
    let mut contest = Contest::new(name, plan.rounds.min(ROUNDS), &["ns of CPU per turn"]);
    for (name, options) in lines {
        let file = file.clone();
        contest = contest.enter_many(name, move || {
            let cost = price(boot()?.arg("--virtual").args(&options), turns);
            // Removed if it existed.
            let _ = remove_file(&file);
            cost
        });
    }
    contest
}

/// In the real world, measured in the process that runs the kernel.
pub(crate) fn while_it_runs(plan: &Plan) -> Contest {
    let turns = plan.times(LIVE_TURNS);
    let name = "observation of a kernel that runs";
    Contest::new(name, plan.rounds.min(ROUNDS), &["ns of CPU per turn"])
        .enter_many("trapline boot", move || price(&mut boot()?, turns))
        .enter_many("--monitor", move || {
            price(boot()?.arg("--monitor").arg(path("sock")), turns)
        })
        .enter_many("--monitor, and top --attach", move || {
            watched(turns, |socket| {
                on_a_terminal(trapline_with(&["top"])?.arg("--attach").arg(socket))
            })
        })
        .enter_many("--monitor, and trace live --attach", move || {
            watched(turns, |socket| {
                let mut live = trapline_with(&["trace", "live", "--json"])?;
                live.arg("--attach").arg(socket);
                live.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
            })
        })
        .enter_many("--top", move || {
            let mut command = boot()?;
            let drawn = terminal(command.arg("--top"))?;
            let cost = price(&mut command, turns);
            // The terminal ends when its last user closes it.
            drop(command);
            drawn.join().expect("the reader ends");
            cost
        })
}

/// The cost of a turn for the kernel's process during an observation. The observer starts once the
/// kernel accepts it.
fn watched(
    turns: usize,
    watch: impl Fn(&Path) -> io::Result<Child> + Sync,
) -> io::Result<Vec<f64>> {
    let socket = path("sock");
    let mut command = boot()?;
    command.arg("--monitor").arg(&socket);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while let Err(error) = UnixStream::connect(&socket) {
                if ended.load(Ordering::Relaxed) {
                    return Err(error);
                }
                thread::sleep(Duration::from_millis(1));
            }
            watch(&socket)?.wait()
        });
        let cost = price(&mut command, turns);
        ended.store(true, Ordering::Relaxed);
        let watched = watcher.join().expect("the observer ends");
        watched.and(cost)
    })
}

fn price(command: &mut Command, turns: usize) -> io::Result<Vec<f64>> {
    let count = (turns / 2).to_string();
    command.args(["multitask", "--foo", &count, "--bar", &count]);
    Ok(vec![ns_each(measure(command)?.cpu, turns)])
}

/// The caller adds the options and the program.
fn boot() -> io::Result<Command> {
    let mut command = trapline_with(&["boot", "--seed=0"])?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

fn trapline_with(args: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(trapline()?);
    command.args(args).stdin(Stdio::null());
    Ok(command)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn path(extension: &str) -> PathBuf {
    let name = format!("trapline-bench-{}.{extension}", std::process::id());
    std::env::temp_dir().join(name)
}

/// Starts a command on a terminal of its own.
fn on_a_terminal(command: &mut Command) -> io::Result<Child> {
    terminal(command)?;
    command.spawn()
}

/// Gives a command a terminal of its own, with a thread that reads it.
fn terminal(command: &mut Command) -> io::Result<thread::JoinHandle<()>> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tty = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
    let size = Winsize {
        ws_col: 120,
        ws_row: 40,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size)?;
    command
        .stdin(tty.try_clone()?)
        .stdout(tty.try_clone()?)
        .stderr(tty);
    let mut drawn = File::from(master);
    Ok(thread::spawn(move || {
        let mut buf = [0; 4096];
        while let Ok(1..) = drawn.read(&mut buf) {}
    }))
}
