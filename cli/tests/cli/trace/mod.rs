//! Recordings and the commands that read them, as their users meet them: the built binary, run as
//! a process.

mod commands;
mod diff;
mod objects;
mod open;
mod post_mortem;
mod record;
mod summary;
mod timeline;
mod why;

use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use trapline::record::{Error, OwnedEvent, Recording};

use crate::support::*;

/// A program with queues, that ends well.
const QUEUES: [&str; 7] = [
    "producer-consumer",
    "--count",
    "3",
    "--capacity",
    "1",
    "--consumers",
    "2",
];

/// A file of a test's own, that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.trap"));
        let _ = fs::remove_file(&path);
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("it is text")
    }

    /// Its events, and what ended them too early.
    fn read(&self) -> (Vec<OwnedEvent>, Option<Error>) {
        let mut events = Vec::new();
        let recording = match Recording::open(&self.0) {
            Ok(recording) => recording,
            Err(error) => return (events, Some(error)),
        };
        for event in recording {
            match event {
                Ok(event) => events.push(event),
                Err(error) => return (events, Some(error)),
            }
        }
        (events, None)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A directory of a test's own, that goes with it: what recordings are called there is always the
/// same.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("there is room");
        Self(path)
    }

    /// A directory with a recording of a simulated run, which is called `run.trap`.
    fn with(test: &str, boot: &[&str]) -> Self {
        let place = Self::new(test);
        place.record("run.trap", boot);
        place
    }

    /// The same of an echo server, and of clients whose swarm has these options.
    fn of_network(test: &str, swarm: &str, options: &[&str]) -> Self {
        let swarm = format!("clients:swarm --addr server:45000 {swarm}");
        let echo = "server:echo --addr 0.0.0.0:45000";
        Self::with(test, &[&["--on", echo, "--on", &swarm], options].concat())
    }

    fn record(&self, file: &str, boot: &[&str]) {
        let args = ["boot", "-q", "--virtual", "--seed", "1", "--record", file];
        let mut command = trapline(&[&args, boot].concat());
        let output = command.current_dir(&self.0).output().expect("it runs");
        assert!(
            output.status.code().is_some_and(|code| code != 2),
            "{output:?}"
        );
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        texts(
            trapline(args)
                .current_dir(&self.0)
                .output()
                .expect("it runs"),
        )
    }

    /// What a command prints that has nothing to complain about.
    fn print(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!((code, &*err), (0, ""), "{args:?}");
        out
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compares with a file of what is expected. A test that is told to by its environment writes it.
fn assert_golden(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli/trace/golden")
        .join(file);
    if std::env::var_os("TRAPLINE_UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{file}");
}
