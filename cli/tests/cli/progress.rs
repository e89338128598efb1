//! The line on a terminal that says how far long work is, and an interrupt, after which a command prints
//! what it has measured so far.

use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{replay::Folder, support::*};

/// A command whose standard error is a terminal.
struct OnTerminal {
    child: Child,
    window: File,
    seen: String,
    out: JoinHandle<String>,
}

impl OnTerminal {
    fn start(mut command: Command) -> Self {
        let (window, tty) = pty();
        let mut child = command.stdout(Stdio::piped()).stderr(tty).spawn().unwrap();
        drop(command);
        let out = child.stdout.take().unwrap();
        Self {
            child,
            window,
            seen: String::new(),
            out: thread::spawn(move || std::io::read_to_string(out).unwrap()),
        }
    }

    /// Waits until all of these are on a line of progress.
    fn wait(&mut self, parts: &[&str]) {
        let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
        while !self.seen.split(['\r', '\n']).any(has_all) {
            let mut buf = [0; 4096];
            let n = self.window.read(&mut buf).unwrap_or(0);
            assert_ne!(n, 0, "{parts:?} did not come: {}", self.seen);
            self.seen += &String::from_utf8_lossy(&buf[..n]);
        }
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Its exit code, its output, and what was on the terminal.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut window = self.window;
        let rest = thread::spawn(move || {
            let mut rest = Vec::new();
            // Without a process that has it, a terminal cannot be read.
            let _ = window.read_to_end(&mut rest);
            String::from_utf8_lossy(&rest).into_owned()
        });
        let code = exit_of(&mut self.child);
        (
            code,
            self.out.join().unwrap(),
            self.seen + &rest.join().unwrap(),
        )
    }
}

/// What a terminal shows at the end: progress is written over.
fn left(seen: &str) -> String {
    let line = |line: &str| line.rsplit("\r\u{1b}[K").next().unwrap_or("").to_string() + "\n";
    seen.lines().map(line).collect()
}

const ENDLESS: [&str; 5] = ["boot", "--virtual", "--seed", "1", "-q"];

#[test]
fn a_virtual_run_tells_its_rate_and_the_time_left_and_where_an_interrupt_has_ended_it() {
    let limit = ["--max-time", "100000000h", "--summary", "alive"];
    let mut run = OnTerminal::start(trapline(&[&ENDLESS[..4], &limit].concat()));
    run.wait(&[" ticks, ", " a second, ", "s left"]);
    run.interrupt();
    let (code, out, seen) = run.end();
    assert_eq!(code, Some(130), "{seen}");
    has(&out, "I'm alive\n");
    let left = left(&seen);
    has(&left, "it came to ");
    // The summary was measured up to there.
    has(&left, " sleep ");
    assert!(!left.contains(" a second"), "{left}");
}

#[test]
fn without_a_terminal_there_is_no_line() {
    let limit = ["--max-time", "100000h", "alive"];
    let mut run = Running::with_pipes(&[&ENDLESS[..], &limit].concat());
    while run.out_line() != "I'm alive\n" {}
    run.signal(Signal::INT);
    let (code, err) = run.end();
    assert_eq!(code, Some(130));
    assert!(!err.contains('\r') && !err.contains("a second"), "{err}");
}

#[test]
fn commands_that_read_a_recording_show_what_they_have_read_when_they_are_interrupted() {
    let commands = [
        ("summary", " sleep "),
        ("path", "critical path of "),
        ("ps", " alive "),
        ("timeline", "<!DOCTYPE html>"),
    ];
    at_once(commands, |(name, shown)| {
        let folder = Folder::new(&format!("progress-{name}"));
        let fifo = folder.path("run.trap");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let record = ["--record", &fifo, "alive"];
        let mut writer = trapline(&[&ENDLESS[..], &record].concat());
        let mut writer = writer
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut run = OnTerminal::start(trapline(&["trace", name, &fifo]));
        run.wait(&[" events, ", " a second"]);
        run.interrupt();
        let (code, out, seen) = run.end();
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert_eq!(code, Some(130), "{name}: {seen}");
        has(&out, shown);
        let left = left(&seen);
        has(&left, "interrupted: what is shown is about the first ");
        assert!(!left.contains(" a second"), "{left}");
    });
}

#[test]
fn a_search_over_a_tape_tells_its_rate_and_the_time_left() {
    let folder = Folder::new("progress-of-a-tape");
    let tape = folder.path("run.tape");
    let (code, ..) = run(&[
        "boot", "-q", "--seed", "3", "--tape", &tape, "gossip", "--cured",
    ]);
    assert_eq!(code, 0);
    let mut run = OnTerminal::start(trapline(&["replay", "--explore", "1000000", &tape]));
    run.wait(&[" of 1,000,000 schedules, ", " a second, ", "s left"]);
    run.interrupt();
    let (code, out, seen) = run.end();
    assert_eq!(code, Some(130), "{seen}");
    has(&out, "; the search is not complete: it was interrupted");
    assert!(!left(&seen).contains(" a second"), "{seen}");
}

#[test]
fn a_recording_without_more_events_can_be_interrupted() {
    let folder = Folder::new("progress-silent");
    let trap = folder.path("run.trap");
    let (code, ..) = run(&[&ENDLESS[..], &["--record", &trap, "wait"]].concat());
    assert_eq!(code, 0);
    let recording = std::fs::read(&trap).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    // All but the end, and then silence.
    writer.write_all(&recording[..recording.len() - 1]).unwrap();
    let mut command = trapline(&["trace", "ps", "-"]);
    command.stdin(reader);
    let mut run = OnTerminal::start(command);
    run.wait(&[" events, ", " a second"]);
    run.interrupt();
    let (code, _, seen) = run.end();
    assert_eq!(code, Some(130), "{seen}");
    has(&left(&seen), "no task was alive");
}

#[test]
fn a_search_tells_its_rate_and_the_time_left() {
    let search = [
        "explore",
        "--schedules",
        "1000000000",
        "--jobs",
        "1",
        "wait",
    ];
    let mut run = OnTerminal::start(trapline(&search));
    run.wait(&[
        " of 1,000,000,000 schedules, ",
        " a second, at most ",
        "s left",
    ]);
    run.interrupt();
    let (code, out, seen) = run.end();
    assert_eq!(code, Some(130), "{seen}");
    has(&out, " schedules pass");
    assert_eq!(left(&seen).trim(), "");
}

#[test]
fn a_load_tells_its_rate_and_what_was_measured_until_an_interrupt() {
    let addr = free_addr().to_string();
    let echo = format!("echo --addr {addr}");
    let boot = [
        "boot", "--seed", "1", "--with", &echo, "swarm", "--addr", &addr,
    ];
    let load = [
        "--clients",
        "2",
        "--requests",
        "1000000",
        "--think",
        "10ms",
        "--keep-alive",
    ];
    let mut run = OnTerminal::start(trapline(&[&boot[..], &load].concat()));
    run.wait(&[" of 2,000,000 requests, ", " a second, ", "s left"]);
    run.interrupt();
    run.wait(&["failed: interrupted after "]);
    // The load has taken the first. The server is left.
    run.interrupt();
    let (code, out, seen) = run.end();
    assert_eq!(code, Some(130), "{seen}");
    has(&out, " answers in ");
    has(&out, "latency p50 ");
    has(&seen, " of 2000000 requests");
}

#[test]
fn a_replay_tells_how_far_it_is() {
    let folder = Folder::new("progress-tape");
    let tape = folder.path("run.tape");
    let limit = ["--max-time", "2500ms", "alive"];
    let (code, _, err) = run(&[&["boot", "--seed", "1", "--tape", &tape], &limit[..]].concat());
    assert!(matches!(code, 0 | 4), "{err}");
    let mut run = OnTerminal::start(trapline(&["replay", "--at-speed", &tape]));
    run.wait(&[" ticks, ", " a second"]);
    run.interrupt();
    let (code, _, seen) = run.end();
    assert_eq!(code, Some(130), "{seen}");
    has(&left(&seen), "it came to ");
    // A short tape is read as a whole at once, which says nothing of the time that the rest takes.
    assert!(!seen.contains(" 0 left"), "{seen}");
}

#[test]
fn a_laboratory_prints_the_policies_that_were_done() {
    let jobs = ["lab", "--seeds", "10000", "jobs", "--random", "50"];
    let mut run = OnTerminal::start(trapline(&jobs));
    run.wait(&[" of 70,000 runs, ", " a second, ", "s left"]);
    run.interrupt();
    let (code, _, seen) = run.end();
    assert_eq!(code, Some(130), "{seen}");
    has(
        &left(&seen),
        "interrupted: what follows is about the first ",
    );
}
