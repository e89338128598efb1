//! The program `shell`: lines from a script, a pipe and a terminal.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::Stdio,
};

use rustix::process::Signal;

use crate::{replay::Folder, support::*};

/// Runs a line in the simulated world.
fn shell(line: &str) -> (i32, String, String) {
    run(&["boot", "--virtual", "--seed=1", "shell", "-c", line])
}

#[track_caller]
fn prints(line: &str, expected: (i32, &str)) {
    let (code, out, err) = shell(line);
    assert_eq!((code, &*out), expected, "{line}: {err}");
}

#[test]
fn a_line_runs_its_commands_under_their_conditions() {
    prints("seq 2; seq 1", (0, "1\n2\n1\n"));
    prints("seq 1 && seq 2 || seq 3", (0, "1\n1\n2\n"));
    prints("grep x || seq 1 && seq 2", (0, "1\n1\n2\n"));
    prints("grep x && seq 1", (1, ""));
    prints("seq 1 # seq 2", (0, "1\n"));
    prints("", (0, ""));
    prints("exit; seq 1", (0, ""));
    prints("grep x; exit", (1, ""));
    prints("grep x; seq 1", (0, "1\n"));
    prints("run seq '2'", (0, "1\n2\n"));
    prints("time sleep 1500ms", (0, "1.500s\n"));
    prints("sleep 3; time sleep 2", (0, "2.000s\n"));
}

#[test]
fn a_job_runs_behind_the_prompt() {
    prints(
        "sleep 5 & sleep 1s & jobs; time fg 2; jobs; time wait; jobs",
        (
            0,
            "[1] task 2\n[2] task 3\n[1] task 2: sleep 5\n[2] task 3: sleep 1s\n1.000s\n\
             [1] task 2: sleep 5\n4.000s\n",
        ),
    );
    prints(
        "sleep 1 & sleep 2; jobs",
        (0, "[1] task 2\n[1] done: sleep 1\n"),
    );
    // A job of a script outlives it.
    prints("seq 3 &", (0, "1\n[1] task 2\n2\n3\n"));
    let folder = Folder::new("shell-jobs");
    fs::write(
        folder.path("script"),
        "sleep 1 &\nsleep 2\nsleep 9 &\nkill 4\nps\n",
    )
    .unwrap();
    let script = folder.path("script");
    let boot = [
        "boot",
        "--virtual",
        "--seed=1",
        "shell",
        "--script",
        &script,
    ];
    let (code, out, err) = run(&boot);
    let expected = "[1] task 2\n[1] done: sleep 1\n[1] task 4\n[1] killed: sleep 9\n   1 shell        running\n";
    assert_eq!((code, &*out), (0, expected), "{err}");
}

#[test]
fn tasks_are_shown_with_what_they_wait_for() {
    prints(
        "sleep 5 & tree; ps",
        (
            0,
            "[1] task 2\n   1 shell        running\n   2   sleep        the timer at 00:05.000\n   \
             1 shell        running\n   2 sleep        the timer at 00:05.000\n",
        ),
    );
}

#[test]
fn a_wrong_line_says_what_is_wrong_and_fails() {
    let cases = [
        (
            "nothing",
            "nothing: there is no such program or command: see help",
        ),
        ("seq 'a", "a quote is not closed: seq 'a"),
        ("seq 1 | wc", "| is no part of a line here"),
        ("seq 1 > file", "> is no part of a line here"),
        ("&& seq 1", "there is no command before &&"),
        ("seq 1 &&", "there is no command at the end of the line"),
        ("kill", "kill: it needs the number of a task"),
        ("kill 99", "kill: there is no task 99: see ps"),
        ("fg", "fg: there is no such job: see jobs"),
        ("sleep", "sleep: "),
        ("seq", "the following required arguments were not provided"),
        ("seq x", "invalid value 'x'"),
    ];
    for (line, expected) in cases {
        let (code, out, _) = shell(line);
        assert_eq!(code, 1, "{line}");
        has(&out, expected);
    }
    let (code, out, _) = shell("seq --help; help");
    assert_eq!(code, 0);
    has(&out, "Usage: seq");
    has(&out, "kill TID");
    let (code, _, err) = run(&["boot", "shell", "--script", "/nowhere"]);
    assert_eq!(code, 2);
    has(&err, "cannot read it: No such file");
}

#[test]
fn an_interrupt_ends_the_job_in_front_and_not_the_shell() {
    let mut command = trapline(&["boot", "-q", "shell"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    writeln!(input, "sleep 1000000s & yes so").unwrap();
    assert_eq!(line(&mut out), "[1] task 2\n");
    assert_eq!(line(&mut out), "so\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let told = out
        .by_ref()
        .lines()
        .map(Result::unwrap)
        .find(|line| line != "so");
    assert_eq!(told.as_deref(), Some("yes so: killed"));
    writeln!(input, "jobs").unwrap();
    assert_eq!(line(&mut out), "[1] task 2: sleep 1000000s\n");
    drop(input);
    assert_eq!(
        line(&mut out),
        "Jobs run: end the input again to end them\n"
    );
    assert_eq!(exit_of(&mut child), Some(0));
}

#[test]
fn a_terminal_has_prompts_and_may_go_on_after_its_end() {
    let (mut window, tty) = pty();
    let mut command = trapline(&["boot", "-q", "shell"]);
    let mut child = Running::start(command.stdin(tty).stdout(Stdio::piped()));
    window.write_all(b"sleep 100000s &\n\x04").unwrap();
    assert_eq!(child.out_line(), "trapline> [1] task 2\n");
    assert_eq!(
        child.out_line(),
        "trapline> Jobs run: end the input again to end them\n"
    );
    window.write_all(b"seq 2\n\x04").unwrap();
    assert_eq!(child.out_line(), "trapline> 1\n");
    assert_eq!(child.out_line(), "2\n");
    child.out_line();
    window.write_all(b"\x04").unwrap();
    assert_eq!(exit_of(&mut child.child), Some(0));
}

#[test]
fn a_session_is_taped_replayed_and_searched() {
    let folder = Folder::new("shell-tape");
    let tape = folder.path("tape");
    let args = ["boot", "-q", "--seed=1", "--tape", &tape, "shell"];
    let mut child = trapline(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    write!(input, "sleep 1ms &\nseq 2\nwait\nps\n").unwrap();
    drop(input);
    let (code, out, err) = texts(child.wait_with_output().expect("it runs"));
    assert_eq!(code, 0, "{err}");
    let (code, again, err) = run(&["replay", &tape]);
    assert_eq!((code, again), (0, out), "{err}");
    let (code, out, err) = run(&["explore", "shell", "-c", "seq 2 & seq 3; wait"]);
    assert_eq!(code, 0, "{out}{err}");
    has(&out, "1000 schedules pass");
}
