//! Readers that stall: of standard error, and of the pipe of a recording. A run goes on without them,
//! and its first interrupt ends it.

use std::{
    fs::{self, File},
    io::{self, Cursor, Read, Write},
    net::TcpStream,
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, mknodat},
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    time::Timespec,
};
use trapline::record::{self, Recording};

use crate::{replay::Folder, support::*};

/// A server beside which a task is always ready.
const BUSY: [&str; 5] = [
    "--with",
    "multitask --foo 4294967295",
    "echo",
    "--addr",
    "127.0.0.1:0",
];

fn has_room(pipe: &impl std::os::fd::AsFd) -> bool {
    let mut asked = [PollFd::new(pipe, PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec::default())).unwrap() > 0
}

/// Starts a server. Answers a client of it, and what it prints goes nowhere from now on.
fn serve(mut command: Command) -> (Running, TcpStream) {
    let mut run = Running::start(command.stdout(Stdio::piped()));
    let addr = loop {
        if let Some((_, addr)) = run.out_line().split_once("starting at ") {
            break addr.trim().to_string();
        }
    };
    let mut out = run.out.take().unwrap();
    thread::spawn(move || io::copy(&mut out, &mut io::sink()));
    let client = TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    (run, client)
}

/// Both ends of a terminal: that of its reader, and that of the programs in it.
fn terminal() -> (OwnedFd, OwnedFd) {
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&reader).unwrap();
    unlockpt(&reader).unwrap();
    let name = ptsname(&reader, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tty = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    (reader, tty)
}

fn ping(client: &mut TcpStream) {
    client.write_all(b"ping").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
}

/// Lines of a trace begin with the time.
fn traced(text: &str) -> u64 {
    let is_event = |line: &&str| line.starts_with(|first: char| first.is_ascii_digit());
    text.lines().filter(is_event).count() as u64
}

/// How many lines were lost, as the messages among them say.
fn lost(text: &str) -> u64 {
    let told = "warning: standard error was not read for a second: ";
    let counts = text.lines().filter_map(|line| line.strip_prefix(told));
    counts
        .map(|rest| rest.split_once(' ').unwrap().0.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn a_stalled_reader_of_the_trace_freezes_no_task_and_hears_what_it_missed() {
    let folder = Folder::new("stalled-trace");
    let file = folder.path("run.trap");
    let boot = ["boot", "-q", "--trace", "--record", &file];
    let (mut reader, writer) = io::pipe().unwrap();
    let mut command = trapline(&[&boot[..], &BUSY].concat());
    command.stderr(writer.try_clone().unwrap());
    let (mut run, mut client) = serve(command);
    eventually("a full pipe", || (!has_room(&writer)).then_some(()));
    drop(writer);
    (0..100).for_each(|_| ping(&mut client));
    // It reads again: the rest of a line comes first, and then the number of those that were lost.
    let mut text = Vec::new();
    let mut part = [0; 1 << 16];
    while lost(&String::from_utf8_lossy(&text)) == 0 {
        let n = reader.read(&mut part).unwrap();
        text.extend_from_slice(&part[..n]);
    }
    run.signal(Signal::INT);
    reader.read_to_end(&mut text).unwrap();
    assert_eq!(exit_of(&mut run.child), Some(130));
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with('\n'), "whole lines");
    let (code, shown, _) = crate::support::run(&["trace", "show", &file]);
    assert_eq!(code, 0);
    assert_eq!(
        traced(&text) + lost(&text),
        traced(&shown),
        "none is lost silently"
    );
}

#[test]
fn a_terminal_that_is_not_read_freezes_no_task_and_the_first_interrupt_ends_the_run() {
    let (_reader, tty) = terminal();
    let mut command = trapline(&[&["boot", "-q", "--trace"], &BUSY[..]].concat());
    command.stderr(tty.try_clone().unwrap());
    let (mut run, mut client) = serve(command);
    eventually("a full terminal", || (!has_room(&tty)).then_some(()));
    (0..100).for_each(|_| ping(&mut client));
    let flags = fcntl_getfl(&tty).unwrap();
    assert!(!flags.contains(OFlags::NONBLOCK), "others have it, too");
    run.signal(Signal::INT);
    assert_eq!(exit_of(&mut run.child), Some(130));
}

#[test]
fn s53_the_first_interrupt_ends_a_run_whose_trace_has_no_reader() {
    let signals = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
    let worlds = ["--color=auto", "--virtual"];
    let cases = worlds
        .iter()
        .flat_map(|world| signals.map(|signal| (*world, signal)));
    at_once(cases, |(world, (signal, code))| {
        let (_reader, writer) = io::pipe().unwrap();
        let mut command = trapline(&["boot", world, "--trace", "alive", "--every", "1us"]);
        command
            .stdout(Stdio::null())
            .stderr(writer.try_clone().unwrap());
        let mut run = Running::start(&mut command);
        eventually("a full pipe", || (!has_room(&writer)).then_some(()));
        run.signal(signal);
        assert_eq!(exit_of(&mut run.child), Some(code), "{world}");
    });
}

#[test]
fn a_panic_without_a_reader_freezes_no_task() {
    let (_reader, writer) = io::pipe().unwrap();
    let args = ["boot", "-q", "--with", "panics --after 1us", "crashes"];
    let mut command = rude(&args);
    command
        .stdout(Stdio::piped())
        .stderr(writer.try_clone().unwrap());
    // The pipe is full from the start, to the end of its last page.
    let mut filler = File::from(OwnedFd::from(writer));
    while has_room(&filler) {
        filler.write_all(&[b'x'; 4096]).unwrap();
    }
    let mut run = Running::start(&mut command);
    let mut said = String::new();
    let addr = loop {
        match run.out_line() {
            line if line.starts_with("listening on ") => said = line,
            line if line.starts_with("the child is faulted") && !said.is_empty() => break said,
            _ => {}
        }
    };
    let addr = addr.trim().rsplit(' ').next().unwrap();
    let mut client = TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    ping(&mut client);
    run.signal(Signal::INT);
    assert_eq!(exit_of(&mut run.child), Some(130));
}

#[test]
fn a_stalled_reader_of_a_recording_freezes_no_task_and_the_first_interrupt_ends_the_run() {
    let folder = Folder::new("stalled-recording");
    let fifo = folder.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let pipe = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut command = trapline(&[&["boot", "-q", "--record", &fifo], &BUSY[..]].concat());
    command.stderr(Stdio::piped());
    let (mut run, mut client) = serve(command);
    eventually("a full pipe", || (!has_room(&pipe)).then_some(()));
    (0..100).for_each(|_| ping(&mut client));
    run.signal(Signal::INT);
    assert_eq!(exit_of(&mut run.child), Some(130));
    let err = io::read_to_string(run.err.take().unwrap()).unwrap();
    has(&err, "is not complete: no process reads it");
}

#[test]
fn a_reader_of_a_recording_that_reads_again_finds_a_gap() {
    let folder = Folder::new("late-recording");
    let fifo = folder.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let mut pipe = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut command = trapline(&[&["boot", "-q", "--record", &fifo], &BUSY[..]].concat());
    command.stderr(Stdio::piped());
    let (mut run, mut client) = serve(command);
    eventually("a full pipe", || (!has_room(&pipe)).then_some(()));
    // The run waits a second for its reader, and then goes on without it.
    let mut waits = || {
        let begun = Instant::now();
        ping(&mut client);
        begun.elapsed() > Duration::from_millis(500)
    };
    while !waits() {}
    (0..100).for_each(|_| ping(&mut client));
    let mut bytes = vec![0; 1 << 16];
    let mut read = 0;
    // A MiB is kept for the reader, and the gap is behind it.
    let mut enough = 3 << 19;
    let missing = loop {
        bytes.resize(read + (1 << 16), 0);
        read += pipe.read(&mut bytes[read..]).unwrap();
        if read < enough {
            continue;
        }
        enough = 2 * read;
        let mut recording = Recording::from_reader(Cursor::new(bytes[..read].to_vec())).unwrap();
        let is_whole = recording.by_ref().all(|event| match event {
            Ok(_) => true,
            Err(error) => panic_unless_truncated(&error),
        });
        assert!(!is_whole, "it has no end yet");
        if recording.missing() > 0 {
            break recording.missing();
        }
    };
    assert!(missing > 1000, "{missing}");
    // The end is written, too.
    run.signal(Signal::INT);
    thread::spawn(move || io::copy(&mut pipe, &mut io::sink()));
    assert_eq!(exit_of(&mut run.child), Some(130));
    let err = io::read_to_string(run.err.take().unwrap()).unwrap();
    assert_eq!(
        err.lines()
            .filter(|line| line.contains("not complete"))
            .count(),
        0,
        "{err}"
    );
}

fn panic_unless_truncated(error: &record::Error) -> bool {
    assert!(matches!(error, record::Error::Truncated { .. }), "{error}");
    false
}

/// Runs a program whose number of events is known to end, and answers how many lines were traced.
fn trace_to(errors: OwnedFd) -> Running {
    let args = ["boot", "-q", "--trace", "multitask", "--foo", "2000"];
    let mut command = trapline(&args);
    Running::start(command.stdout(Stdio::null()).stderr(errors))
}

#[test]
fn a_trace_to_a_file_a_reader_or_a_terminal_that_lives_loses_nothing() {
    let folder = Folder::new("live-trace");
    let file = folder.path("trace");
    let mut run = trace_to(File::create(&file).unwrap().into());
    assert_eq!(exit_of(&mut run.child), Some(0));
    let whole = traced(&fs::read_to_string(&file).unwrap());
    assert!(whole > 2000, "{whole}");

    let (mut reader, writer) = io::pipe().unwrap();
    let mut run = trace_to(writer.into());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(exit_of(&mut run.child), Some(0));
    assert_eq!((traced(&text), lost(&text)), (whole, 0));

    let (terminal, tty) = terminal();
    let mut run = trace_to(tty);
    let mut text = Vec::new();
    // Its end is an error: no process has the terminal any more.
    let _ = File::from(terminal).read_to_end(&mut text);
    assert_eq!(exit_of(&mut run.child), Some(0));
    let text = String::from_utf8(text).unwrap();
    assert_eq!(
        (traced(&text.replace("\u{1b}[2m", "")), lost(&text)),
        (whole, 0)
    );
}

#[test]
fn a_virtual_clock_waits_for_a_stalled_reader_and_loses_nothing() {
    let boot = [
        "boot",
        "-q",
        "--virtual",
        "--trace",
        "multitask",
        "--foo",
        "5000",
    ];
    let (_, _, whole) = run(&boot);
    let (mut reader, writer) = io::pipe().unwrap();
    let mut command = trapline(&boot);
    command
        .stdout(Stdio::null())
        .stderr(writer.try_clone().unwrap());
    let mut run = Running::start(&mut command);
    drop(command);
    eventually("a full pipe", || (!has_room(&writer)).then_some(()));
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(exit_of(&mut run.child), Some(0));
    assert_eq!(text, whole);
}

// ---- hang-ups

#[test]
fn s73_a_hang_up_ends_a_plain_run_in_order() {
    for world in [&[][..], &["--virtual"]] {
        let boot = [&["boot", "--summary"], world, &["alive", "--every", "1us"]].concat();
        let mut command = trapline(&boot);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut run = Running::start(&mut command);
        assert!(run.err_line().starts_with("seed "));
        run.signal(Signal::HUP);
        let (code, err) = run.end();
        assert_eq!(code, Some(129));
        assert!(err.contains("killed"), "the summary is shown: {err}");
    }
}

#[test]
fn s73_a_hang_up_that_was_ignored_stays_ignored() {
    let tape = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ignored-hang-up.tape");
    let tape = tape.to_str().unwrap();
    for options in ["", "--tape"] {
        let script = format!(
            "trap '' HUP; exec \"$0\" boot {options} {} alive --every 1day",
            if options.is_empty() { "" } else { tape }
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_trapline")]);
        let mut run = Running::start(shell.stdout(Stdio::piped()).stderr(Stdio::piped()));
        run.out_line();
        run.signal(Signal::HUP);
        run.signal(Signal::TERM);
        let (code, err) = run.end();
        assert_eq!(code, Some(143), "{err}");
    }
    let _ = fs::remove_file(tape);
}
