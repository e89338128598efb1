//! `tour`: five commands of this binary, one after the other, with what each of them shows.

use std::{
    env,
    io::{self, IsTerminal},
    os::fd::AsFd,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use clap::Args;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read, retry_on_intr},
};

use super::{
    output::{Failure, Log, print},
    program::Entry,
    signals::exit_code,
    values::duration,
    words,
};

/// See what this is, in five stops of 20 seconds
///
/// Each stop runs a command of this binary, and names it. What the command says on standard error goes to
/// standard output, too. On a terminal the tour waits between two stops.
/// Otherwise it prints all of them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tour
  tour --pause 5s
  tour | less")]
pub(super) struct Tour {
    /// How long a terminal shows a stop before the next one; Enter goes on at once
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "20s")]
    pause: Duration,
}

struct Stop {
    title: &'static str,
    about: &'static str,
    /// A line for a shell, without the binary. A line that ends in a backslash goes on in the next.
    line: &'static str,
    programs: &'static [&'static str],
    /// The exit code, which is an error for two of them.
    code: i32,
}

const STOPS: [Stop; 5] = [
    Stop {
        title: "Two tasks",
        about: "A task starts another and waits for its end. A task reaches the world by system calls\n\
                only, so the trace on standard error misses nothing. Lines without a time are what the\n\
                program prints.",
        line: "boot --virtual --seed 1 --trace wait",
        programs: &["wait"],
        code: 0,
    },
    Stop {
        title: "A deadlock, explained",
        about: "Two tasks take two locks, each in its own order. Nothing hangs silently: the run ends,\n\
                and says which task waits for what, since when, at which line, and in which circle.",
        line: "boot --virtual --seed 1 deadlock",
        programs: &["deadlock"],
        code: 3,
    },
    Stop {
        title: "The schedule that breaks it",
        about: "A reader misses its wake-up, but only in some orders of turns. A search finds one, with\n\
                the fewest preemptions, and names the turn after which nothing could save the run.",
        line: "explore lost-wakeup",
        programs: &["lost-wakeup"],
        code: 1,
    },
    Stop {
        title: "A partition in the simulated network",
        about: "A server and two clients on hosts of their own. From second 2 to second 4 the link is\n\
                cut. The connections stall and go on, so the slowest answer takes two seconds. The\n\
                eight seconds pass at once.",
        line: "boot --virtual --seed 1 --on server:\"echo --addr 0.0.0.0:45000\" \\\n    \
               --on clients:\"swarm --addr server:45000 --clients 2 --think 50ms --keep-alive\" \\\n    \
               --net latency=1ms..10ms --fault \"2s:cut server clients\" \\\n    \
               --fault \"4s:heal server clients\"",
        programs: &["echo", "swarm"],
        code: 0,
    },
    Stop {
        title: "A step back in the debugger",
        about: "A run is the same each time, so the debugger also steps back: from the deadlock to the\n\
                moment when task 2 woke.",
        line: "debug -c continue -c \"back wake tid 2\" -c where --seed 1 deadlock",
        programs: &["deadlock"],
        code: 0,
    },
];

/// Whether the binary has the programs of the tour.
pub(super) fn has_programs(programs: &[Entry]) -> bool {
    missing(programs).is_none()
}

fn missing(programs: &[Entry]) -> Option<&'static str> {
    let mut needed = STOPS.iter().flat_map(|stop| stop.programs).copied();
    needed.find(|name| programs.iter().all(|entry| entry.name != *name))
}

pub(super) fn run(tour: &Tour, programs: &[Entry], log: Log) -> Result<ExitCode, Failure> {
    if let Some(name) = missing(programs) {
        let why = format!("the tour needs the program '{name}', which this binary has not");
        return Err(why.into());
    }
    let waits = io::stdin().is_terminal() && io::stdout().is_terminal();
    for (at, stop) in (1..).zip(&STOPS) {
        let (title, about, line) = (stop.title, stop.about, stop.line);
        let (count, binary) = (STOPS.len(), words::binary());
        print(format!("{at}/{count} {title}\n\n{about}\n\n$ {binary} {line}\n").as_bytes())?;
        if let Some(code) = shown(stop)? {
            return Ok(code);
        }
        print(b"\n")?;
        if waits && at < count && leaves(tour.pause, log)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let more = "That was the tour. `list` names the programs, `shell` is a prompt that runs them, and\n\
                `COMMAND --help` has the options of each command above.\n";
    print(more.as_bytes())
}

/// Runs the command of a stop. Returns the exit code of a tour that a signal ends with it.
fn shown(stop: &Stop) -> Result<Option<ExitCode>, Failure> {
    let line = stop.line.replace("\\\n", " ");
    let words = words::split(&line).expect("it is a line of this file");
    let binary = env::current_exe().map_err(|error| format!("cannot find this binary: {error}"))?;
    let mut command = Command::new(binary);
    // Reports repeat the word that has started the binary.
    if let Some(word) = env::args_os().next() {
        command.arg0(word);
    }
    // What a pager or a file gets is in order: each stop is one text.
    let out = io::stdout().as_fd().try_clone_to_owned();
    let out = out.map_err(|error| format!("cannot write to standard output: {error}"))?;
    let command = command.args(words).stdin(Stdio::null()).stderr(out);
    let status = command
        .status()
        .map_err(|error| format!("cannot run this binary: {error}"))?;
    if let Some(signal) = status.signal() {
        return Ok(Some(ExitCode::from(exit_code(signal))));
    }
    match status.code() {
        Some(code) if code == stop.code => Ok(None),
        // An interrupt, which the command has taken.
        Some(130) => Ok(Some(ExitCode::from(130))),
        _ => Err(format!(
            "this stop should end with exit code {}: {status}",
            stop.code
        )
        .into()),
    }
}

/// Waits for the next stop. Returns whether the tour ends here.
fn leaves(pause: Duration, log: Log) -> Result<bool, Failure> {
    let span = humantime::format_duration(pause);
    log.note(&format!(
        "Enter goes on, q and Enter leaves; the next stop comes in {span}"
    ));
    let stdin = io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec::try_from(pause).map_err(|_| "--pause is too long".to_string())?;
    let ready = retry_on_intr(|| poll(&mut terminal, Some(&limit))).map_err(unread)?;
    if ready == 0 {
        return Ok(false);
    }
    // A terminal gives a line at a time, and nothing at its end.
    let mut line = [0; 256];
    let read = retry_on_intr(|| read(&stdin, &mut line)).map_err(unread)?;
    Ok(read == 0 || line.starts_with(b"q"))
}

fn unread(error: Errno) -> Failure {
    format!("cannot read the terminal: {error}").into()
}
