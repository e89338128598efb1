//! `boot --record` and `--record-last`.

use std::{io::Write, sync::LazyLock, thread};

use proptest::prelude::*;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use trapline::{Exit, Fact};

use super::*;

/// A program that prints for ever.
const ENDLESS: [&str; 3] = ["multitask", "--foo", "4294967295"];

fn lines(events: &[OwnedEvent]) -> Vec<String> {
    events.iter().map(ToString::to_string).collect()
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
    let run = Running::start(&["boot", "--record", file.path(), "alive", "--every", "1day"]);
    // It is written within a tenth of a second; only a machine that is stuck takes this long.
    let sleeps = |event: &OwnedEvent| matches!(event.borrow().fact, Fact::Blocked { .. });
    while !file.read().0.iter().any(sleeps) {
        thread::yield_now();
    }
    run.signal(Signal::KILL);
    assert_eq!(run.end(), None);
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
    let mut busy = Running::start(&[&ring[..], &ENDLESS].concat());
    busy.line();
    busy.signal(Signal::INT);
    assert_eq!(busy.end(), Some(130));
    let (events, error) = file.read();
    assert!(error.is_none());
    // Being shut down is the last that happens to both of its tasks.
    let is_killed =
        |event: &&OwnedEvent| matches!(event.borrow().fact, Fact::Exited { exit: Exit::Killed });
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
    // Nobody reads what it prints, and there is no room for any more.
    let (_reader, mut writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    let ring = ["boot", "--record-last", "10", "--record", file.path()];
    let mut command = trapline(&[&ring[..], &ENDLESS].concat());
    let mut child = command
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
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
    assert!(lines(&events)[0].ends_with("1 spawned \"multitask\" by 0"));
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let nowhere = Path::new("no/such/directory").join("run.trap");
    let nowhere = nowhere.to_str().unwrap();
    let (code, out, err) = run(&["boot", "--record", nowhere, "parts"]);
    assert_eq!((code, &*out), (1, ""));
    assert_eq!(
        err,
        format!("error: cannot record to {nowhere}: No such file or directory (os error 2)\n")
    );
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
        let mut run = Running::start(&[&record[..], &ENDLESS].concat());
        for _ in 0..=printed {
            run.line();
        }
        run.signal(Signal::KILL);
        prop_assert_eq!(run.end(), None);
        let (events, error) = file.read();
        let is_cut = matches!(error, Some(Error::Truncated { .. }));
        prop_assert!(is_cut, "{:?}", error);
        // Of what was printed a pipe and a buffer of the recording are outstanding at most.
        prop_assert!(events.len() + 64 * 1024 >= printed, "{} of {printed}", events.len());
        let same = events.iter().zip(&*BEGINNING).all(|(event, expected)| event == expected);
        prop_assert!(same && events.len() <= BEGINNING.len());
    }
}
