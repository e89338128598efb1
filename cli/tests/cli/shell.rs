//! The program `shell`: lines from a script, a pipe and a terminal.

mod commands;
mod terminal;

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, Stdio},
};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use rustix::process::Signal;

use crate::{replay::Folder, support::*};

/// Runs a line in the simulated world.
fn shell(line: &str) -> (i32, String, String) {
    run(&["shell", "--virtual", "--seed=1", "-c", line])
}

#[track_caller]
fn prints(line: &str, expected: (i32, &str)) {
    let (code, out, err) = shell(line);
    assert_eq!((code, &*out), expected, "{line}: {err}");
}

#[track_caller]
fn fails(line: &str, why: &str) {
    let (code, out, err) = shell(line);
    assert_eq!(
        (code, &*out, err),
        (1, "", format!("error: {why}\n")),
        "{line}"
    );
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
    // A command of the shell comes before a program of that name.
    prints("sleep 9 & jobs", (0, "[1] task 2\n[1] task 2: sleep 9\n"));
    let (_, _, err) = shell("run head nothing");
    has(&err, "\"head\" failed: cannot open nothing on the disk");
    prints("time sleep 1500ms", (0, "1.500s\n"));
    let (code, out, _) = shell("time --help");
    assert_eq!(code, 0);
    has(&out, "Usage: time <COMMAND>...");
    prints("sleep 3; time sleep 2", (0, "2.000s\n"));
    prints("time -- sleep 2", (0, "2.000s\n"));
    let (code, _, err) = shell("time -x");
    assert_eq!(code, 1);
    has(
        &err,
        "error: -x: there is no such program or command: see help",
    );
}

#[test]
fn exit_leaves_with_its_code() {
    prints("exit 7; seq 1", (7, ""));
    prints("grep x; exit 0", (0, ""));
    prints("grep x || exit 255", (255, ""));
    prints("grep x; time exit", (1, "0.000ns\n"));
    // Jobs of a script go on, and no question comes.
    prints("sleep 1 & exit 4; seq 1", (4, "[1] task 2\n"));
    // A shell within another one fails as a program.
    prints("shell -c 'exit 7' || seq 1", (0, "1\n"));
    let (code, _, err) = shell("shell -c 'exit 7'");
    assert_eq!(code, 1);
    has(&err, "task 2 \"shell\" failed: exit code 7\n");
    let on = ["shell", "--virtual", "--on", "b:cat", "-c"];
    let (code, out, err) = run(&[&on[..], &["host b; exit 3; seq 1; exit 5"]].concat());
    assert_eq!((code, &*out), (5, "1\n"), "{err}");
    // What stops a run is not what a shell says.
    for (option, expected) in [("--max-ticks=5", 4), ("--signal=0s:TERM", 143)] {
        let boot = ["boot", "--virtual", "--seed=1", option];
        let with = ["--with", "shell -c 'exit 9'", "timers"];
        let (code, _, err) = run(&[&boot[..], &with].concat());
        assert_eq!(code, expected, "{option}: {err}");
    }
    let boot = [
        "boot",
        "--virtual",
        "--with",
        "shell -c 'exit 9'",
        "sleepers",
    ];
    assert_eq!(run(&boot).0, 9);
    // A replay ends as its run, and a search takes it for a failure.
    let folder = Folder::new("shell-exit");
    let tape = folder.path("tape");
    let (code, _, err) = run(&["shell", "-q", "--tape", &tape, "-c", "exit 6"]);
    assert_eq!(code, 6, "{err}");
    assert_eq!(run(&["replay", &tape]).0, 6);
    let (code, out, err) = run(&["explore", "shell", "-c", "exit 6"]);
    assert_eq!(code, 1);
    has(&(out + &err), "\"shell\" failed: exit code 6");
}

/// Nothing reads a question there, and the lines behind `exit` do not run.
#[test]
fn without_a_terminal_exit_leaves_at_once_also_if_jobs_run() {
    let folder = Folder::new("shell-leaves");
    let cases = [
        ("cat nothing\nexit\n", "", 1),
        ("sleep 1h &\nexit 3\nseq 1\n", "[1] task 2\n", 3),
        ("sleep 1h &\nexit; exit 4\n", "[1] task 2\n", 0),
        // The end of the input leaves as well.
        ("sleep 1h &\nseq 1\n", "[1] task 2\n1\n", 0),
        (
            "sleep 1 &\nsleep 2; exit 5\n",
            "[1] task 2\n[1] done: sleep 1\n",
            5,
        ),
    ];
    for (lines, expected, code) in cases {
        fs::write(folder.path("lines"), lines).unwrap();
        let stdin = folder.path("lines");
        let ended = run(&["shell", "--virtual", "--seed=1", "--stdin", &stdin]);
        assert_eq!(
            (ended.0, &*ended.1),
            (code, expected),
            "{lines}: {}",
            ended.2
        );
    }
}

/// The lines behind it do not run, and the exit code says so, as that of bash does.
#[test]
fn an_interrupt_ends_a_script() {
    for (line, why) in [
        ("sleep 100; seq 1", "sleep 100: killed"),
        ("sleep 100\nseq 1", "sleep 100: killed"),
        ("sleep 100 || seq 1", "sleep 100: killed"),
        ("sleep 100 | cat\nseq 1\n", "sleep 100 | cat: killed"),
        ("sleep 100 & wait || seq 1", "wait: interrupted: see jobs"),
    ] {
        let args = [
            "shell",
            "--virtual",
            "--seed=1",
            "--signal=1s:INT",
            "-c",
            line,
        ];
        let (code, out, err) = run(&args);
        assert_eq!(
            (code, out.replace("[1] task 2\n", "")),
            (130, String::new()),
            "{line}: {err}"
        );
        assert!(err.ends_with(&format!("error: {why}\n")), "{line}: {err}");
    }
    // The next line of an input may be meant for what has become of this one.
    let folder = Folder::new("shell-interrupted");
    let lines = folder.path("lines");
    fs::write(&lines, "sleep 100; seq 3\nseq 1\n").unwrap();
    let args = ["shell", "--virtual", "--seed=1", "--signal=1s:INT"];
    let (code, out, _) = run(&[&args[..], &["--stdin", &lines]].concat());
    assert_eq!((code, &*out), (0, "1\n"));
}

#[test]
fn a_line_that_cannot_be_read_ends_the_shell() {
    let folder = Folder::new("shell-bytes");
    let lines = folder.path("lines");
    fs::write(&lines, b"seq 1\n\xff\nseq 2\n").unwrap();
    let shell = ["shell", "--virtual", "--seed=1", "--stdin", &lines];
    let why = "error: cannot read the next line: a line of standard input is not UTF-8";
    let (code, out, err) = run(&shell);
    assert_eq!((code, &*out), (1, "1\n"), "{err}");
    has(&err, why);
    // Nor does the shell go on that waits for one on another host.
    fs::write(&lines, b"host b\nseq 1\n\xff\nseq 2\n").unwrap();
    let (code, out, err) = run(&[&shell[..], &["--on", "b:kv --addr 0.0.0.0:6000"]].concat());
    assert_eq!((code, &*out), (1, "Ready at 0.0.0.0:6000\n1\n"), "{err}");
    has(&err, why);
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
    // The shell itself is not behind its prompt: `exit` does not leave it, and `wait` waits for no job.
    for command in ["exit 3", "kill 2", "wait", "fg", "policy rr", "trace on"] {
        let name = command.split(' ').next().unwrap();
        let (code, out, err) = shell(&format!("sleep 1 & {command} & seq 1"));
        assert_eq!((code, &*out), (0, "[1] task 2\n1\n"), "{err}");
        let why =
            format!("error: {name} is a command of the shell, and cannot be behind the prompt\n");
        assert_eq!(err, why);
    }
    prints(
        "sleep 1 & jobs & wait",
        (0, "[1] task 2\n[1] task 2: sleep 1\n[2] task 3\n"),
    );
    // A job of a script outlives it.
    prints("seq 3 &", (0, "1\n[1] task 2\n2\n3\n"));
    let folder = Folder::new("shell-jobs");
    fs::write(
        folder.path("script"),
        "sleep 1 &\nsleep 2\nsleep 9 &\nkill 4\ntree\n",
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
    let expected =
        "[1] task 2\n[1] done: sleep 1\n[1] task 4\n[1] killed: sleep 9\n1 shell: running\n";
    assert_eq!((code, &*out), (0, expected), "{err}");
}

#[test]
fn tasks_are_shown_with_what_they_wait_for() {
    prints(
        "sleep 5 & tree; ps",
        (
            0,
            "[1] task 2\n1 shell: running\n\
             └─ 2 sleep: waits for the timer at 00:05.000, since 00:00.000\n \
             tid  task   parent  state    blocked on              since      traps\n   \
             1  shell       0  running                                         9\n   \
             2  sleep       1  blocked  the timer at 00:05.000  00:00.000      1\n",
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
        ("kill 1", "kill: task 1 is a shell: exit leaves it"),
        ("time sleep 1 &", "time: it waits for its command"),
        (
            "sleep 1.5",
            "it takes whole seconds, or a number and a unit, such as 1.5s",
        ),
        (
            "sleep .",
            "it takes whole seconds, or a number and a unit, such as 1.5s",
        ),
        ("seq 1 <<< word", "<< is no part of a line here"),
        ("seq 1 |", "there is no command at the end of the line"),
        ("| wc", "there is no command before |"),
        ("seq 1 >", "there is no file behind >"),
        ("seq 1 > | wc", "there is no file behind >"),
        (
            "seq 1 > a | wc",
            "only the last program of a pipe writes a file",
        ),
        (
            "seq 1 | wc < a",
            "only the first program of a pipe reads a file",
        ),
        ("seq 1 > a > b", "> can be there once"),
        ("> a", "there is no command at the end of the line"),
        (
            "kill 3 | wc",
            "kill is a command of the shell: write it alone",
        ),
        (
            "wc < nowhere",
            "cannot open nowhere on the disk: No such file",
        ),
        ("seq 1 > /a", "it begins with \"/\""),
        ("where 9", "where: there is no live task 9: see ps"),
        ("&& seq 1", "there is no command before &&"),
        ("seq 1 &&", "there is no command at the end of the line"),
        ("exit x", "'[CODE]': it takes a whole number from 0 to 255"),
        ("exit 256", "it takes a whole number from 0 to 255"),
        (
            "exit 1 | wc",
            "exit is a command of the shell: write it alone",
        ),
        ("kill", "the following required arguments were not provided"),
        ("kill 99", "kill: there is no task 99: see ps"),
        ("fg", "fg: there is no such job: see jobs"),
        ("sleep x", "it takes a number and a unit"),
        ("seq", "the following required arguments were not provided"),
        (
            "seq x",
            "error: invalid value 'x' for '<N>...': it takes a whole number, such as 10\n\nFor",
        ),
        ("seq 99999999999999999999", "the number is too large"),
    ];
    for (line, expected) in cases {
        let (code, out, err) = shell(line);
        assert_eq!((code, &*out), (1, ""), "{line}");
        has(&err, expected);
        // Once, and not as the failure of the shell as well.
        let errors = err.matches("error: ").count() + err.matches("warning: ").count();
        assert_eq!(errors, 1, "{line}: {err}");
    }
}

#[test]
fn an_error_is_at_its_place_among_what_is_printed() {
    let folder = Folder::new("shell-errors");
    let line = "ps; nothing; seq 1; grep x; kill 99";
    let file = fs::File::create(folder.path("both")).unwrap();
    let mut command = trapline(&["shell", "--virtual", "--seed=1", "-c", line]);
    let command = command.stdout(file.try_clone().unwrap()).stderr(file);
    assert_eq!(command.status().unwrap().code(), Some(1));
    let both = fs::read_to_string(folder.path("both")).unwrap();
    let (_, rest) = both.split_once("running").expect("it is listed");
    let (_, rest) = rest.split_once('\n').expect("it is a line");
    let expected = "error: nothing: there is no such program or command: see help\n1\n\
                    warning: task 3 \"grep\" failed: no line is found\n\
                    error: kill: there is no task 99: see ps\n";
    assert_eq!(rest, expected);
}

#[test]
fn help_fits_a_screen_and_an_error_of_a_json_log_is_an_object() {
    let boot = [
        "boot",
        "--virtual",
        "--seed=1",
        "--log-format=json",
        "shell",
    ];
    let (code, out, err) = run(&[&boot[..], &["-c", "kill"]].concat());
    assert_eq!((code, &*out), (1, ""));
    has(
        &err,
        "{\"level\":\"ERROR\",\"message\":\"the following required arguments",
    );
    let (code, out, _) = shell("seq --help; help");
    assert_eq!(code, 0);
    has(&out, "Usage: seq");
    has(&out, "kill    End a task");
    let (_, help, _) = shell("help");
    assert!(
        help.lines().all(|line| line.chars().count() <= 80),
        "{help}"
    );
    let (code, _, err) = run(&["boot", "shell", "--script", "/nowhere"]);
    assert_eq!(code, 2);
    has(&err, "cannot read it: No such file");
}

#[test]
fn a_pipe_carries_the_text_of_one_program_to_the_next() {
    prints("seq 5 | grep 3", (0, "3\n"));
    prints("seq 20000 | cat | wc", (0, "20000 20000 108894\n"));
    prints("time sleep 2 | sleep 1", (0, "2.000s\n"));
    prints("help | grep jobs | wc -l", (0, "3\n"));
    prints("seq 2 | run cat; cat --help | head -n 1", (0, HELP_OF_CAT));
    // The end of a pipe is that of its last program.
    prints("seq 1 | grep x || seq 2", (0, "1\n2\n"));
    prints("grep x | wc && seq 1", (0, "0 0 0\n1\n"));
    prints("seq 1 | grep x", (1, ""));
}

const HELP_OF_CAT: &str = "1\n2\nPrints files of the disk, or standard input\n";

/// A program without a reader ends, and so does all that carries its text.
#[test]
fn nothing_is_left_of_a_pipe_whose_reader_ends() {
    let only_shell = "1 shell: running\n";
    prints("yes | head -n 2; tree", (0, &format!("y\ny\n{only_shell}")));
    // Long lines fill the sockets between them soon.
    let long = "y".repeat(200);
    let line = format!("yes {long} | cat | cat | head -n 1; tree");
    prints(&line, (0, &format!("{long}\n{only_shell}")));
    prints(&format!("yes {long} | sleep 3; tree"), (0, only_shell));
    // A kill of the first ends all.
    let (code, out, _) =
        shell("sleep 9 | cat | cat & sleep 1; tree; kill 2; wait; time sleep 1; tree");
    assert_eq!(code, 0, "{out}");
    has(&out, "[1] tasks 2, 4, 6\n");
    has(&out, "├─ 3 |: waits for queue 2 (get), since");
    assert!(out.ends_with(&format!("1.000s\n{only_shell}")), "{out}");
}

#[test]
fn a_file_of_the_disk_is_read_and_written() {
    prints(
        "seq 3 > f; seq 2 >> f; wc < f; cat f | head -n 1",
        (0, "5 5 10\n1\n"),
    );
    prints("seq 9 > f; seq 1 > f; cat f", (0, "1\n"));
    prints("seq 3 | grep 2 > 'a b' && cat < 'a b' | cat", (0, "2\n"));
    prints(
        "seq 20000 > f; wc f; cat < f | wc",
        (0, "20000 20000 108894\n20000 20000 108894\n"),
    );
    // A job has no other input.
    prints("cat & wait", (0, "[1] task 2\n"));
    // A full disk fails the line, and ends the program that prints.
    let full = [
        "boot",
        "--virtual",
        "--seed=1",
        "--net",
        "disk-capacity=20000",
    ];
    let line = ["shell", "-c", "yes > f; tree"];
    let (code, out, err) = run(&[&full[..], &line].concat());
    assert_eq!(code, 0, "{out} {err}");
    has(&out, "1 shell: running\n");
    has(&err, "cannot append to f on the disk");
}

#[test]
fn an_interrupt_ends_the_job_in_front_and_not_the_shell() {
    let mut command = trapline(&["boot", "-q", "shell"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut errors = BufReader::new(child.stderr.take().expect("it is a pipe"));
    writeln!(input, "sleep 1000000s & yes so").unwrap();
    assert_eq!(line(&mut out), "[1] task 2\n");
    assert_eq!(line(&mut out), "so\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    writeln!(input, "jobs").unwrap();
    let mut lines = out.by_ref().lines().map(Result::unwrap);
    let told = lines.find(|line| line != "so");
    assert_eq!(told.as_deref(), Some("[1] task 2: sleep 1000000s"));
    assert_eq!(line(&mut errors), "error: yes so: killed\n");
    drop(input);
    let rest = io::read_to_string(out).unwrap();
    assert_eq!((&*rest, exit_of(&mut child)), ("", Some(0)));
}

#[test]
fn a_session_is_taped_replayed_and_searched() {
    let folder = Folder::new("shell-tape");
    let tape = folder.path("tape");
    let args = ["boot", "-q", "--seed=1", "--tape", &tape, "shell"];
    let mut child = trapline(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    let file = folder.path("recording");
    write!(
        input,
        "sleep 1ms &\nseq 2\nwait\nrecord {file}\nkill 99\ntime seq 1\nps\n"
    )
    .unwrap();
    drop(input);
    let (code, out, err) = texts(child.wait_with_output().expect("it runs"));
    assert_eq!(code, 0, "{err}");
    let failed = "error: kill: there is no task 99: see ps\n";
    has(&err, failed);
    has(
        &run(&["trace", "show", &file]).1,
        "seq          exited: done",
    );
    fs::remove_file(&file).unwrap();
    let (code, again, err) = run(&["replay", &tape]);
    assert_eq!((code, again), (0, out), "{err}");
    has(&err, failed);
    assert!(!fs::exists(&file).unwrap(), "a replay records nothing");
    // Its calls are those of the run, also at the command that failed.
    let (code, out, err) = run(&["debug", "-c", "continue", &tape]);
    assert_eq!((code, &*err), (0, ""));
    has(&out, "the run is over: all tasks have ended\n");
    assert!(!fs::exists(&file).unwrap(), "a debugger records nothing");
    let (code, out, err) = run(&["explore", "shell", "-c", "seq 2 & seq 3; wait"]);
    assert_eq!(code, 0, "{out}{err}");
    has(&out, "1000 schedules pass");
}

/// 200 lines at random, with jobs, kills and interrupts: no task and no descriptor is left.
#[test]
fn a_long_session_leaks_nothing() {
    let folder = Folder::new("shell-session");
    for seed in 1..=3 {
        let mut command = trapline(&["shell", "-q", "--disk", &folder.path("")]);
        let (out, both) = io::pipe().unwrap();
        let command = command.stdout(both.try_clone().unwrap()).stderr(both);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        let mut input = child.stdin.take().expect("it is a pipe");
        let mut out = BufReader::new(out);
        let pid = rustix::process::Pid::from_child(&child);
        let mut told = String::new();
        let mut type_in = |text: &str, n: usize, interrupts: bool| {
            // The shell itself says this, so no task of a mark is there when the interrupt comes.
            let mark = format!("mark-{n}");
            let told_of = format!("error: {mark}: there is no such program or command: see help\n");
            match interrupts {
                true => writeln!(input, "{mark}; {text}").unwrap(),
                false => writeln!(input, "{text}\n{mark}").unwrap(),
            }
            loop {
                let line = line(&mut out);
                assert!(
                    !line.is_empty(),
                    "seed {seed}, line {n}: it has ended: {told}"
                );
                if line == told_of {
                    break;
                }
                told += &line;
            }
            if interrupts {
                rustix::process::kill_process(pid, Signal::INT).unwrap();
            }
        };
        type_in("seq 3 > f; cat < f | cat & wait", 0, false);
        let before = descriptors(&child);
        let mut source = Pcg64::seed_from_u64(seed);
        for n in 1..=200 {
            let (line, blocks) = anything(&mut source);
            type_in(&line, n, blocks);
        }
        type_in("wait; jobs; tree > p", 201, false);
        type_in("wc -l p | cat; cat p", 202, false);
        let lines = told.lines().rev().take(1).collect::<Vec<_>>();
        assert!(
            lines[0].ends_with("shell: running") || lines[0].starts_with("└─ "),
            "seed {seed}: {lines:?}"
        );
        let left = fs::read_to_string(folder.path("p")).unwrap();
        // The carrier of this text is there as well.
        assert!(left.lines().count() <= 2, "seed {seed}: {left}");
        assert_eq!(descriptors(&child), before, "seed {seed}");
        drop(input);
        assert!(exit_of(&mut child).is_some());
    }
}

/// Returns a line, and whether it waits for an interrupt.
fn anything(source: &mut Pcg64) -> (String, bool) {
    let mut random = |below: u64| source.next_u64() % below;
    let some = random(40);
    let line = match random(14) {
        0 => format!("seq {some} | grep 1 | wc"),
        1 => format!("yes {some} | cat | head -n {some} &"),
        2 => format!("sleep {some}ms | cat | wc & sleep {some}ms &"),
        3 => format!("seq {some} >> f; wc < f; head -n 2 f | tee g | cat"),
        4 => format!("kill {}", 2 + random(600)),
        5 => "sleep 1h & kill 99999 || fg".into(),
        6 => "yes | cat > /dev/null".into(),
        7 => "tree | wc; jobs; ps | grep shell".into(),
        8 => "cat & seq 3 | cat < f | wc; nothing | wc".into(),
        9 => "cat nowhere | wc; wc < nowhere; seq x".into(),
        10 => format!("time seq {some} | sleep 1ms && where 1 || wait"),
        11 => "sleep 1h | cat | cat".into(),
        12 => "yes | wc".into(),
        _ => "fg".into(),
    };
    let blocks = ["sleep 1h & ", "sleep 1h | ", "yes | wc"];
    let blocks = blocks.iter().any(|begin| line.starts_with(begin));
    (line, blocks)
}

fn descriptors(child: &Child) -> usize {
    let folder = format!("/proc/{}/fd", child.id());
    fs::read_dir(folder).expect("it runs").count()
}

/// A server has tasks of its own, which would go on listening.
#[test]
fn an_interrupt_ends_the_children_of_a_program_as_well() {
    let mut command = trapline(&["shell", "-q"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut errors = BufReader::new(child.stderr.take().expect("it is a pipe"));
    writeln!(input, "kv --addr 127.0.0.1:0").unwrap();
    assert!(line(&mut out).starts_with("Ready at "));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let told = line(&mut errors);
    assert_eq!(told, "error: kv --addr 127.0.0.1:0: killed\n");
    writeln!(input, "tree\nkv --addr 127.0.0.1:0 &").unwrap();
    assert_eq!(line(&mut out), "1 shell: running\n");
    // The end of the input ends the job, too.
    drop(input);
    assert_eq!(exit_of(&mut child), Some(0));
}

/// Its lines would come from the process, which a virtual run does not read.
#[test]
fn a_virtual_shell_without_lines_says_where_they_come_from() {
    let why = "warning: the shell has no line to run: ";
    let (code, out, err) = run(&["shell", "--virtual", "--seed", "1"]);
    assert_eq!((code, &*out), (0, ""));
    has(&err, why);
    has(&err, "--stdin FILE, or -c LINE\n");
    let (_, _, err) = shell("seq 3 | shell");
    assert!(!err.contains(why), "it reads the pipe: {err}");
    let (_, _, err) = run(&["shell", "--virtual", "--seed", "1", "--stdin", "/dev/null"]);
    assert!(!err.contains(why), "{err}");
}
