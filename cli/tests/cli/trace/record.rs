//! `boot --record` and `--record-last`.

use std::{io::Write, os::fd::AsFd, sync::LazyLock};

use proptest::prelude::*;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mknodat},
    time::Timespec,
};
use trapline::{Exit, Fact};

use super::*;

/// A program that prints for ever.
const ENDLESS: [&str; 3] = ["multitask", "--foo", "4294967295"];

fn lines(events: &[OwnedEvent]) -> Vec<String> {
    events.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_that_the_run_prints_to_is_refused() {
    for option in ["--record", "--tape"] {
        for (file, output) in [("stdout", "output"), ("stderr", "error")] {
            let file = format!("/dev/{file}");
            let (code, out, err) = run(&["boot", "-q", option, &file, "parts"]);
            assert_eq!((code, &*out), (1, ""), "{err}");
            let why = format!(
                "error: {option} {file} is standard {output}, which the run prints to: name \
                 another file\n"
            );
            assert_eq!(err, why);
        }
    }
    // A file by its own name, too.
    let scratch = Scratch::new("record-to-output");
    let to = fs::File::create(&scratch.0).expect("it can be made");
    let mut boot = trapline(&[
        "boot",
        "-q",
        "--virtual",
        "--record",
        scratch.path(),
        "parts",
    ]);
    let output = boot.stdout(to).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read(&scratch.0).expect("it is there"), b"");
    let (code, _, err) = run(&["boot", "-q", "--virtual", "--record", "/dev/null", "parts"]);
    assert_eq!((code, &*err), (0, ""));
}

#[test]
fn a_recording_says_what_ran_and_what_happened() {
    let file = Scratch::new("wait");
    let args = ["--virtual", "--seed", "7", "--quantum", "2", "--record"];
    let (code, out, err) = run(&[&["boot"], &args[..], &[file.path(), "wait"]].concat());
    assert_eq!(code, 0);
    assert!(out.contains("Waiting for child\n"));
    assert_eq!(err, format!("recorded to {}\n", file.path()));
    let recording = Recording::open(&file.0).unwrap();
    let header = recording.header();
    assert_eq!(header.command[0], "trapline");
    assert_eq!(header.command.last().unwrap(), "wait");
    assert_eq!((header.seed, header.quantum), (7, 2));
    assert_eq!((&*header.policy, header.is_simulated), ("fifo", true));
    let (events, error) = file.read();
    assert!(error.is_none());
    let lines = lines(&events);
    assert_eq!(lines[0], "00:00.000000000 1 spawned \"wait\" by 0");
    assert_eq!(lines.last().unwrap(), "00:00.000000000 1 reaped");
}

#[test]
fn a_quiet_run_is_on_disk_though_it_never_ends() {
    let file = Scratch::new("quiet");
    let run = Running::with_stdout(&["boot", "--record", file.path(), "alive", "--every", "1day"]);
    // It is written within a tenth of a second.
    let sleeps = |event: &OwnedEvent| matches!(event.fact, Fact::Blocked { .. });
    eventually("the recording", || {
        file.read().0.iter().any(sleeps).then_some(())
    });
    run.signal(Signal::KILL);
    assert_eq!(run.end().0, None);
    let (events, error) = file.read();
    assert_eq!(
        events.len(),
        5,
        "spawned, resumed, console, trapped, blocked"
    );
    let error = error.expect("its end is missing").to_string();
    assert!(error.contains("was killed"), "{error}");
}

#[test]
fn a_limit_or_a_deadlock_ends_a_recording_before_the_tasks_are_ended() {
    let file = Scratch::new("deadlock");
    let record = ["boot", "--record", file.path()];
    for (code, rest) in [
        (3, ["-q", "alive", "--every", "1000years"].as_slice()),
        (4, &["-q", "--max-ticks", "1", "alive"]),
    ] {
        assert_eq!(run(&[&record, rest].concat()).0, code);
        let (events, error) = file.read();
        assert!(error.is_none());
        let last = events.last().unwrap().to_string();
        assert!(last.contains("blocked on"), "{last}");
    }
}

#[test]
fn a_ring_has_the_end_of_a_run() {
    let whole = Scratch::new("whole");
    let file = Scratch::new("ring");
    let program = ["--virtual", "--seed", "1", "-q", "countdown"];
    run(&[&["boot", "--record", whole.path()], &program[..]].concat());
    run(&[
        &["boot", "--record-last", "20", "--record", file.path()],
        &program[..],
    ]
    .concat());
    let (whole, _) = whole.read();
    let (last, error) = file.read();
    assert!(error.is_none());
    assert_eq!(last[last.len() - 20..], whole[whole.len() - 20..]);
}

#[test]
fn a_ring_is_written_on_interrupt_and_deadlock() {
    let file = Scratch::new("interrupt");
    let ring = ["boot", "--record-last", "10", "--record", file.path()];
    let mut busy = Running::with_stdout(&[&ring[..], &ENDLESS].concat());
    busy.out_line();
    busy.signal(Signal::INT);
    assert_eq!(busy.end().0, Some(130));
    let (events, error) = file.read();
    assert!(error.is_none());
    // Being shut down is the last that happens to both of its tasks.
    let is_killed = |event: &&OwnedEvent| matches!(event.fact, Fact::Exited { exit: Exit::Killed });
    assert!(events.iter().rev().take(10).any(|event| is_killed(&event)));

    let (code, ..) = run(&[&ring[..], &["-q", "alive", "--every", "1000years"]].concat());
    assert_eq!(code, 3);
    let (events, error) = file.read();
    assert!(error.is_none());
    assert!(events.last().unwrap().to_string().contains("blocked on"));
}

#[test]
fn a_ring_is_written_at_a_second_interrupt_though_the_kernel_is_stuck() {
    let file = Scratch::new("stuck");
    // Its task makes no trap.
    let mut command = rude(&[
        "boot",
        "--record-last",
        "10",
        "--record",
        file.path(),
        "hogs",
        "--after",
        "1ms",
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let pid = Pid::from_child(&child);
    for _ in 0..2 {
        kill_process(pid, Signal::INT).unwrap();
        err.read_line(&mut line).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        line.ends_with(&format!("recorded to {}\n", file.path())),
        "{line}"
    );
    let (events, error) = file.read();
    assert!(error.is_none());
    assert!(lines(&events)[0].ends_with("1 spawned \"hogs\" by 0"));
}

/// Writes to a pipe until there is no room for any more.
fn fill(pipe: &mut (impl Write + AsFd)) {
    let flags = fcntl_getfl(&*pipe).unwrap();
    fcntl_setfl(&*pipe, flags | OFlags::NONBLOCK).unwrap();
    while pipe.write(b"x").is_ok() {}
    fcntl_setfl(&*pipe, flags).unwrap();
}

fn has_room(pipe: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
}

/// A pipe with a name, that goes with it.
fn fifo(test: &str) -> Scratch {
    let fifo = Scratch::new(test);
    mknodat(CWD, &fifo.0, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    fifo
}

#[test]
fn what_goes_into_a_pipe_is_whole_and_is_not_read_back() {
    for (args, is_shown) in [
        (&[][..], false),
        (&["--post-mortem"], true),
        (&["--record-last", "100"], true),
    ] {
        let fifo = fifo("pipe");
        let path = fifo.0.clone();
        let reader = thread::spawn(move || fs::read(path).unwrap());
        let boot = ["boot", "--virtual", "--seed", "1", "--record", fifo.path()];
        let mut command = trapline(&[&boot, args, &["deadlock"]].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(exit_of(&mut child), Some(3), "{args:?}");
        let err = io::read_to_string(child.stderr.take().unwrap()).unwrap();
        let hint = "the last traps of those concerned are not shown, since the recording is no \
                    file: --post-mortem keeps them\n";
        assert_eq!(err.ends_with(hint), !is_shown, "{err}");
        let traps = "the last traps of task 3 spend:\n";
        assert_eq!(err.contains(traps), is_shown, "{err}");
        let recording = Recording::from_reader(io::Cursor::new(reader.join().unwrap())).unwrap();
        let events: Vec<_> = recording.map(Result::unwrap).collect();
        assert!(events.len() > 10);
    }
}

#[test]
fn s53_a_second_interrupt_ends_a_run_whose_recording_nobody_reads() {
    let kinds = [
        ("stalled", &[][..]),
        ("stalled-ring", &["--record-last", "100000"]),
    ];
    at_once(kinds, |(test, last)| {
        let fifo = fifo(test);
        let open = fs::OpenOptions::new().read(true).write(true).open(&fifo.0);
        let mut pipe = open.unwrap();
        if !last.is_empty() {
            // It is written to at the end only, and there is no room then.
            fill(&mut pipe);
        }
        let boot = ["boot", "--record", fifo.path()];
        let mut command = trapline(&[&boot, last, &ENDLESS].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        eventually("a full pipe", || (!has_room(&pipe)).then_some(()));
        assert_eq!(interrupt_to_the_end(&mut child), Some(130));
        io::Read::read_to_string(&mut err, &mut line).unwrap();
        has(&line, "is not complete: no process reads it");
    });
}

#[test]
fn a_trace_that_nobody_reads_to_its_end_leaves_the_recording() {
    for last in [&[][..], &["--record-last", "50"]] {
        let file = Scratch::new("half-read");
        let boot = ["boot", "-q", "--virtual", "--trace", "--record"];
        let mut command = trapline(&[&boot[..], &[file.path()], last, &["alive"]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        err.read_line(&mut String::new()).unwrap();
        drop(err);
        assert_eq!(exit_of(&mut child), Some(0));
        let (events, error) = file.read();
        assert!(error.is_none(), "{error:?}");
        assert!(!events.is_empty());
    }
}

#[test]
fn a_ring_that_is_killed_leaves_nothing_of_an_older_run() {
    let file = Scratch::new("older");
    run(&["boot", "-q", "--record", file.path(), "parts"]);
    assert!(!file.read().0.is_empty());
    let link = Scratch::new("link");
    std::os::unix::fs::symlink(&file.0, &link.0).unwrap();
    let ring = ["boot", "--record-last", "10", "--record", link.path()];
    let mut running = Running::with_stdout(&[&ring[..], &ENDLESS].concat());
    running.out_line();
    running.signal(Signal::KILL);
    assert_eq!(running.end().0, None);
    let (events, error) = file.read();
    assert!(events.is_empty());
    assert!(matches!(error, Some(Error::Truncated { .. })), "{error:?}");
    assert!(link.0.is_symlink());
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let missing = |folder| format!("there is no folder {folder}: make it first");
    for (option, done, file, why) in [
        ("--record", "record", "no/such/run.trap", missing("no")),
        (
            "--record",
            "record",
            "src/such/run.trap",
            missing("src/such"),
        ),
        ("--tape", "tape", "no/such/run.tape", missing("no")),
        (
            "--record",
            "record",
            "Cargo.toml/such/run.trap",
            "Cargo.toml is no folder".to_string(),
        ),
    ] {
        let (code, out, err) = run(&["boot", option, file, "parts"]);
        assert_eq!((code, &*out), (1, ""));
        assert_eq!(err, format!("error: cannot {done} to {file}: {why}\n"));
    }
    let (code, _, err) = run(&["boot", "--record-last", "9", "parts"]);
    assert_eq!(code, 2);
    assert!(err.contains("--record <FILE>"), "{err}");
    let (code, _, err) = run(&["boot", "--record-last", "0", "--record", "x", "parts"]);
    assert_eq!(code, 2);
    assert!(err.contains("whole number from 1"), "{err}");
    if cfg!(target_os = "linux") {
        let full = ["boot", "-q", "--record-last", "9", "--record", "/dev/full"];
        let (code, out, err) = run(&[&full[..], &["parts"]].concat());
        assert_eq!((code, &*out), (1, "Part 1\nPart 2\n"), "it runs to its end");
        assert_eq!(
            err,
            "error: the recording /dev/full is not complete: No space left on device (os error 28)\n"
        );
    }
}

#[test]
fn a_recording_as_large_as_files_may_be_is_not_complete_and_the_run_goes_on() {
    for last in ["", "--record-last 100000"] {
        let file = Scratch::new("large");
        let boot = format!(
            "ulimit -f 8; exec \"$0\" boot -q --record \"$1\" {last} multitask --foo 50000 --bar 1 | tail -1"
        );
        let mut shell = Command::new("bash");
        shell.args(["-o", "pipefail", "-c", &boot]);
        shell.args([env!("CARGO_BIN_EXE_trapline"), file.path()]);
        let output = shell.output().unwrap();
        let (code, out, err) = texts(output);
        assert_eq!((code, &*out), (1, "Task 1 terminated\n"), "{err}");
        let why = "is not complete: File too large (os error 27)\n";
        assert_eq!(err, format!("error: the recording {} {why}", file.path()));
    }
}

#[test]
fn a_recording_that_another_kernel_writes_is_refused() {
    for last in [&[][..], &["--record-last", "10"]] {
        let file = Scratch::new("twice");
        let record = ["boot", "--record", file.path()];
        let mut first = Running::with_stdout(&[&record, last, &ENDLESS].concat());
        first.out_line();
        let (code, out, err) = run(&[&record[..], &["parts"]].concat());
        assert_eq!((code, &*out), (1, ""));
        let path = file.path();
        assert_eq!(
            err,
            format!(
                "error: cannot record to {path}: another recorder writes to it: give another file\n"
            )
        );
        first.signal(Signal::INT);
        assert_eq!(first.end().0, Some(130));
        assert!(file.read().1.is_none(), "it is whole");
        assert_eq!(run(&[&record[..], &["parts"]].concat()).0, 0);
    }
}

#[test]
fn a_pipe_without_a_reader_is_waited_for_and_that_is_said() {
    for last in [&[][..], &["--record-last", "10"]] {
        let fifo = fifo("unread");
        let args = [&["boot", "--record", fifo.path()], last, &["parts"]].concat();
        let mut command = trapline(&args);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        let path = fifo.path();
        assert_eq!(line, format!("waiting for a reader of the pipe {path}\n"));
        let bytes = fs::read(&fifo.0).unwrap();
        assert_eq!(exit_of(&mut child), Some(0));
        assert!(Recording::from_reader(io::Cursor::new(bytes)).is_ok());
    }
}

/// How the run goes that is killed below.
static BEGINNING: LazyLock<Vec<OwnedEvent>> = LazyLock::new(|| {
    let file = Scratch::new("beginning");
    let limit = ["--max-ticks", "300000", "--record", file.path()];
    let mut command = trapline(&[&["boot", "--virtual"], &limit[..], &ENDLESS].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    assert_eq!(command.status().unwrap().code(), Some(4));
    file.read().0
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whenever the process is killed, what is on disk is the beginning of what would have been.
    #[test]
    fn a_run_that_is_killed_leaves_what_can_be_read(printed in 0..10_000_usize) {
        let file = Scratch::new("killed");
        let record = ["boot", "--virtual", "--seed", "1", "--record", file.path()];
        let mut run = Running::with_stdout(&[&record[..], &ENDLESS].concat());
        for _ in 0..=printed {
            run.out_line();
        }
        run.signal(Signal::KILL);
        prop_assert_eq!(run.end().0, None);
        let (events, error) = file.read();
        let is_cut = matches!(error, Some(Error::Truncated { .. }));
        prop_assert!(is_cut, "{:?}", error);
        // Of what was printed a pipe and a buffer of the recording are outstanding at most.
        prop_assert!(events.len() + 64 * 1024 >= printed, "{} of {printed}", events.len());
        let same = events.iter().zip(&*BEGINNING).all(|(event, expected)| event == expected);
        prop_assert!(same && events.len() <= BEGINNING.len());
    }
}
