//! Standard input in the real world: a terminal, pipes, files and less; and `--stdin`.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
};

use rustix::{
    fs::{OFlags, fcntl_getfl},
    termios::tcgetattr,
};

use crate::{
    replay::Folder,
    support::{Running, exit_of, has, pty, run, texts, trapline},
};

const UPPER: [&str; 3] = ["boot", "--seed=1", "upper"];

/// What `upper` prints with this as its input.
fn upper(input: impl Into<Stdio>) -> (i32, String, String) {
    texts(trapline(&UPPER).stdin(input).output().unwrap())
}

#[test]
fn a_file_a_pipe_a_socket_and_nothing_are_read_to_their_ends() {
    let path = std::env::temp_dir().join(format!("trapline-input-{}", std::process::id()));
    std::fs::write(&path, "one\ntwo").unwrap();
    let cases: [(Stdio, &str); 5] = [
        (File::open(&path).unwrap().into(), "ONE\nTWO\n"),
        (Stdio::null(), ""),
        (
            {
                let (reader, mut writer) = std::io::pipe().unwrap();
                writer.write_all(b"a\nb\n").unwrap();
                reader.into()
            },
            "A\nB\n",
        ),
        (
            {
                let (reader, mut writer) = UnixStream::pair().unwrap();
                writer.write_all(b"s\n").unwrap();
                OwnedFd::from(reader).into()
            },
            "S\n",
        ),
        (
            {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(writer);
                reader.into()
            },
            "",
        ),
    ];
    for (input, expected) in cases {
        let (code, out, _) = upper(input);
        assert_eq!((code, &*out), (0, expected));
    }
    let (code, out, err) = upper(File::open(std::env::temp_dir()).unwrap());
    assert_eq!((code, &*out), (1, ""));
    has(&err, "directory");
    let writes = File::options().append(true).open(&path).unwrap();
    let (code, _, err) = upper(writes);
    assert_eq!(code, 1);
    has(&err, "standard input is open for writing only");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_closed_standard_input_is_at_its_end_and_no_other_file() {
    let binary = env!("CARGO_BIN_EXE_trapline");
    let shell = format!("{binary} boot --seed=1 upper <&-");
    let output = Command::new("sh").args(["-c", &shell]).output().unwrap();
    let (code, out, err) = texts(output);
    assert_eq!((code, &*out), (0, ""), "{err}");
}

#[test]
fn a_pipe_is_waited_for_without_blocking_and_shared_with_other_processes() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let other = reader.try_clone().unwrap();
    let before = fcntl_getfl(&other).unwrap();
    let mut command = trapline(&["boot", "--seed=1", "--with", "countdown", "upper"]);
    let mut child = Running::start(command.stdin(reader).stdout(Stdio::piped()));
    // Other tasks run while it waits.
    assert_eq!(child.out_line(), "Down 5\n");
    for line in ["one", "two"] {
        writeln!(writer, "{line}").unwrap();
        let expected = format!("{}\n", line.to_uppercase());
        while child.out_line() != expected {}
    }
    let during = fcntl_getfl(&other).unwrap();
    assert_eq!(
        (before, during & OFlags::NONBLOCK),
        (during, OFlags::empty())
    );
    child.signal(rustix::process::Signal::INT);
    exit_of(&mut child.child);
    // What is not read stays for the next process.
    writer.write_all(b"left\n").unwrap();
    let mut line = String::new();
    BufReader::new(other).read_line(&mut line).unwrap();
    assert_eq!(line, "left\n");
}

#[test]
fn another_process_may_steal_the_input_and_nothing_blocks() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let input = reader.try_clone().unwrap();
    let mut command = trapline(&["boot", "--seed=1", "--with", "countdown", "upper"]);
    let mut child = Running::start(command.stdin(input).stdout(Stdio::piped()));
    assert_eq!(child.out_line(), "Down 5\n");
    let thief = std::thread::spawn(move || {
        let mut stolen = 0;
        let mut buf = [0; 1];
        while reader.read(&mut buf).unwrap() == 1 {
            stolen += 1;
        }
        stolen
    });
    for _ in 0..2000 {
        writer.write_all(b"x\n").unwrap();
    }
    drop(writer);
    // It counts up each second, whatever is stolen meanwhile.
    while child.out_line() != "Up 2\n" {}
    child.signal(rustix::process::Signal::INT);
    exit_of(&mut child.child);
    thief.join().unwrap();
}

#[test]
fn a_terminal_keeps_its_settings_and_its_flags() {
    let (window, tty) = pty();
    let settings = |tty: &OwnedFd| {
        let of = tcgetattr(tty).unwrap();
        let modes = (
            of.input_modes,
            of.output_modes,
            of.control_modes,
            of.local_modes,
        );
        let codes = format!("{:?}", of.special_codes);
        (format!("{modes:?}"), codes, fcntl_getfl(tty).unwrap())
    };
    let before = settings(&tty);
    let input = tty.try_clone().unwrap();
    let mut child = Running::start(trapline(&UPPER).stdin(input).stdout(Stdio::piped()));
    let mut window = window;
    window.write_all(b"first\nsecond\n").unwrap();
    assert_eq!(child.out_line(), "FIRST\n");
    assert_eq!(child.out_line(), "SECOND\n");
    assert_eq!(settings(&tty), before);
    // A line that is not complete is not there, in a terminal.
    window.write_all(b"thi").unwrap();
    window.write_all(b"rd\n\x04").unwrap();
    assert_eq!(child.out_line(), "THIRD\n");
    assert_eq!(exit_of(&mut child.child), Some(0));
    assert_eq!(settings(&tty), before);
    let _ = tty.as_fd();
}

#[test]
fn a_run_on_a_tape_runs_again_without_its_input() {
    let path = std::env::temp_dir().join(format!("trapline-input-{}.tape", std::process::id()));
    let tape = path.to_str().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"one\ntwo").unwrap();
    drop(writer);
    let args = ["boot", "--seed=1", "--tape", tape, "upper"];
    let (code, out, _) = texts(trapline(&args).stdin(reader).output().unwrap());
    assert_eq!((code, &*out), (0, "ONE\nTWO\n"));
    let (code, out, err) = run(&["replay", tape]);
    assert_eq!((code, &*out), (0, "ONE\nTWO\n"), "{err}");
    let input = path.with_extension("txt");
    std::fs::write(&input, "three\n").unwrap();
    let name = input.to_str().unwrap();
    let (code, out, err) = run(&["boot", "--seed=1", "--tape", tape, "--stdin", name, "upper"]);
    assert_eq!((code, &*out), (0, "THREE\n"), "{err}");
    std::fs::remove_file(&input).unwrap();
    let (code, out, err) = run(&["replay", tape]);
    assert_eq!((code, &*out), (0, "THREE\n"), "{err}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_simulated_world_reads_a_file_or_nothing() {
    let path = std::env::temp_dir().join(format!("trapline-stdin-{}", std::process::id()));
    std::fs::write(&path, "one\ntwo\n").unwrap();
    let name = path.to_str().unwrap();
    let boot = ["boot", "--virtual", "--seed=1"];
    let (code, out, _) = run(&[&boot[..], &["--stdin", name, "upper"]].concat());
    assert_eq!((code, &*out), (0, "ONE\nTWO\n"));
    let (code, out, _) = run(&[&boot[..], &["upper"]].concat());
    assert_eq!((code, &*out), (0, ""));
    let (code, out, _) = run(&[
        "explore",
        "--stdin",
        name,
        "--strategy",
        "exhaustive",
        "upper",
    ]);
    assert_eq!(code, 0);
    has(&out, "ONE");
    std::fs::remove_file(&path).unwrap();
    let (code, _, err) = run(&[&boot[..], &["--stdin", name, "upper"]].concat());
    assert_eq!(code, 1);
    has(&err, &format!("cannot read --stdin {name}: "));
}

#[test]
fn no_run_replaces_a_file_that_it_reads() {
    let folder = Folder::new("input-replaced");
    let (input, new) = (folder.path("input"), folder.path("new"));
    std::fs::write(&input, "seq 2\n").unwrap();
    for (reads, program) in [
        (&["--stdin", &*input][..], &["upper"][..]),
        (&[], &["shell", "--script", &input]),
    ] {
        let option = reads.first().unwrap_or(&"--script");
        for made in ["--tape", "--record"] {
            let both = [&["boot", "-q", made, &input], reads, program].concat();
            let (code, out, err) = run(&both);
            assert_eq!((code, &*out), (2, ""), "{err}");
            let why =
                format!("{made} would replace {input}, which {option} reads: name another file");
            has(&err, &why);
            assert_eq!(std::fs::read_to_string(&input).unwrap(), "seq 2\n");
        }
    }
    for made in ["--tape", "--record"] {
        for kernels in ["1", "2"] {
            let both = [
                "boot",
                "--kernels",
                kernels,
                made,
                &new,
                "--monitor",
                &new,
                "parts",
            ];
            let (code, _, err) = run(&both);
            assert_eq!(code, 2);
            has(
                &err,
                &format!("{made} and --monitor are both {new}: name another file"),
            );
        }
    }
    // A device is not replaced.
    let null = [
        "boot",
        "-q",
        "--record",
        "/dev/null",
        "--stdin",
        "/dev/null",
        "upper",
    ];
    assert_eq!(run(&null), (0, String::new(), String::new()));
}

#[test]
fn the_clock_steps_by_a_fault_of_the_command_line() {
    let boot = ["boot", "--virtual", "--seed=1", "-v"];
    let fault = ["--fault", "3s:clock-step=-1h", "countdown"];
    let (code, _, err) = run(&[&boot[..], &fault].concat());
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = run(&[
        "boot",
        "--virtual",
        "--fault",
        "3s:clock-step=1 hour",
        "tids",
    ]);
    assert_eq!(code, 2);
    has(&err, "clock-step [A] SPAN as in -1h");
    let (code, _, err) = run(&[
        "boot",
        "--virtual",
        "--fault",
        "3s:clock-step x -1h",
        "tids",
    ]);
    assert_eq!(code, 2);
    has(&err, "host");
}
