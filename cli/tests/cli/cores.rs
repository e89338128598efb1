//! `boot --kernels`: real processes with real clients.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Stdio,
    thread,
};

use rustix::process::Signal;

use crate::{replay::Folder, support::*};

/// Starts a server in two kernels, and returns the address on which both listen.
fn serve(options: &[&str], program: &[&str]) -> (Running, SocketAddr) {
    let args = [&["boot", "--kernels", "2"], options, program].concat();
    let mut run = Running::with_pipes(&args);
    let [one, other] = [0; 2].map(|_| {
        let line = run.out_line();
        let words = line
            .split_whitespace()
            .map(|word| word.trim_start_matches("http://"));
        let word = words
            .filter_map(|word| word.trim_end_matches('/').parse().ok())
            .next();
        word.unwrap_or_else(|| panic!("it names an address: {line}"))
    });
    assert_eq!(one, other);
    (run, one)
}

/// Has so many clients send a line at the same time, and get it back.
fn talk(addr: SocketAddr, clients: usize) {
    let mut all: Vec<TcpStream> = (0..clients)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    for round in 0..3 {
        for (n, client) in all.iter_mut().enumerate() {
            client
                .write_all(format!("{round} {n}\n").as_bytes())
                .unwrap();
        }
        for (n, client) in all.iter_mut().enumerate() {
            let expected = format!("{round} {n}\n");
            let mut answer = vec![0; expected.len()];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, expected.as_bytes());
        }
    }
}

#[test]
fn all_kernels_serve_and_a_trace_shows_which() {
    let (mut run, addr) = serve(&["--trace"], &["echo", "--addr", "127.0.0.1:0"]);
    let err = run.err.take().unwrap();
    let shown = thread::spawn(move || std::io::read_to_string(err).unwrap());
    talk(addr, 64);
    run.signal(Signal::INT);
    assert_eq!(exit_of(&mut run.child), Some(130));
    let shown = shown.join().unwrap();
    for kernel in 1..=2 {
        // The server is the first task of each.
        let accepts = |line: &&str| {
            line.contains(&format!(" {kernel}:1 "))
                && line.contains("accept(")
                && line.contains(" = ")
        };
        let count = shown.lines().filter(accepts).count();
        assert!(count > 0, "kernel {kernel} of {shown}");
    }
}

#[test]
fn a_signal_ends_all_kernels_with_the_code_of_one() {
    for (signal, code) in [(Signal::INT, 130), (Signal::HUP, 129)] {
        let (run, addr) = serve(&[], &["echo", "--addr", "127.0.0.1:0"]);
        talk(addr, 4);
        run.signal(signal);
        let (ended, err) = run.end();
        assert_eq!(ended, Some(code), "{err}");
        has(&err, "interrupted: shutting down");
    }
    // This program catches none.
    let mut run = Running::with_pipes(&["boot", "--kernels", "2", "alive"]);
    let [one, other] = [0; 2].map(|_| run.out_line());
    assert_eq!(one, other);
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(143));
}

#[test]
fn s73_a_signal_that_the_programs_catch_reaches_each_kernel() {
    let mut command = rude(&["boot", "--kernels", "2", "catches"]);
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let lines = |text: &str, run: &mut Running| {
        for _ in 0..2 {
            assert_eq!(run.out_line(), text);
        }
    };
    lines("ready\n", &mut run);
    for (signal, name) in [
        (Signal::HUP, "SIGHUP\n"),
        (Signal::USR1, "SIGUSR1\n"),
        (Signal::INT, "SIGINT\n"),
        (Signal::TERM, "SIGTERM\n"),
    ] {
        run.signal(signal);
        lines(name, &mut run);
    }
    let (code, err) = run.end();
    assert_eq!(code, Some(0), "{err}");
    // The second interrupt comes while no task has taken the first.
    let mut command = rude(&["boot", "--kernels", "2", "catches", "--deaf"]);
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    lines("ready\n", &mut run);
    assert_eq!(interrupt_to_the_end(&mut run.child), Some(130));
}

#[test]
fn a_server_with_a_drain_ends_well_in_every_kernel() {
    let (run, addr) = serve(&["-q"], &["httpd", "--addr", "127.0.0.1:0", "--root", "."]);
    for _ in 0..16 {
        let mut client = TcpStream::connect(addr).unwrap();
        let request = "GET /Cargo.toml HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        begins(&answer, "HTTP/1.1 200 OK\r\n");
    }
    run.signal(Signal::TERM);
    let (code, err) = run.end();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_failure_of_a_program_is_told_with_its_kernel() {
    let addr = "203.0.113.1:1";
    let args = ["boot", "-q", "--kernels", "2", "echo", "--addr", addr];
    let (code, _, err) = run(&args);
    assert_eq!(code, 1, "{err}");
    for kernel in 1..=2 {
        has(&err, &format!("task {kernel}:1 \"echo\" failed: "));
    }
    // Another process listens there already.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = other.local_addr().unwrap().to_string();
    let args = ["boot", "-q", "--kernels", "2", "echo", "--addr", &addr];
    let (code, _, err) = run(&args);
    assert_eq!(code, 1, "{err}");
    has(&err, "in use");
}

#[test]
fn a_limit_in_one_kernel_ends_all_with_its_code() {
    let args = [
        "boot",
        "-q",
        "--kernels",
        "3",
        "--max-time",
        "50ms",
        "echo",
        "--addr",
        "127.0.0.1:0",
    ];
    let (code, _, err) = run(&args);
    assert_eq!(code, 4, "{err}");
    has(&err, "kernel ");
    has(&err, "has failed:");
    has(&err, "raise --max-time");
}

#[test]
fn each_kernel_has_random_numbers_of_its_own_and_a_seed_repeats_them() {
    let drawn = || {
        let args = [
            "boot",
            "-q",
            "--kernels",
            "3",
            "--seed",
            "7",
            "sleepers",
            "--count",
            "1",
        ];
        let (code, out, err) = run(&args);
        assert_eq!(code, 0, "{err}");
        out.lines().count()
    };
    // Each kernel runs its own instance.
    let alone = run(&["boot", "-q", "--seed", "7", "sleepers", "--count", "1"])
        .1
        .lines()
        .count();
    assert_eq!(drawn(), 3 * alone);
}

#[test]
fn what_several_kernels_cannot_honour_is_a_usage_error() {
    let refused: [&[&str]; 11] = [
        &["--chaos", "1"],
        &["--net", "latency=1ms"],
        &["--fault", "1s:cut main server"],
        &["--virtual"],
        &["--virtual", "--processors", "2"],
        &["--tape", "run.tape"],
        &["--summary"],
        &["--exits"],
        &["--post-mortem"],
        &["--top"],
        &["--inject", "send:kill"],
    ];
    for options in refused {
        let args = [&["boot", "--kernels", "2"], options, &["parts"]].concat();
        let (code, out, err) = run(&args);
        assert_eq!((code, &*out), (2, ""), "{options:?}: {err}");
        has(&err, "--kernels runs kernels side by side");
        has(&err, &format!("which {} is not for", options[0]));
    }
    for count in ["0", "1025", "many", "-1"] {
        let (code, _, err) = run(&["boot", "--kernels", count, "parts"]);
        assert_eq!(code, 2, "{err}");
        has(&err, "it takes a number of kernels from 1 to 1024, or all");
    }
    // One kernel is as without the option.
    for count in ["1", "all"] {
        assert_eq!(run(&["boot", "-q", "--kernels", count, "parts"]).0, 0);
    }
    assert_eq!(
        run(&["boot", "-q", "--kernels", "1", "--virtual", "parts"]).0,
        0
    );
}

#[test]
fn each_kernel_has_a_recording_and_a_socket_of_its_own() {
    let folder = Folder::new("cores");
    let [trap, sock] = ["run.trap", "run.sock"].map(|name| folder.path(name));
    let options = ["--record", &trap, "--monitor", &sock];
    let (run, addr) = serve(&options, &["echo", "--addr", "127.0.0.1:0"]);
    talk(addr, 64);
    for kernel in 1..=2 {
        let socket = format!("{sock}.{kernel}");
        let (code, shown, err) = texts(trapline(&["ps", "--attach", &socket]).output().unwrap());
        assert_eq!(code, 0, "{err}");
        has(&shown, "echo");
    }
    run.signal(Signal::INT);
    let (code, err) = run.end();
    assert_eq!(code, Some(130), "{err}");
    for kernel in 1..=2 {
        let file = format!("{trap}.{kernel}");
        has(&err, &format!("recorded to {file}"));
        let (code, shown, err) = texts(trapline(&["trace", "show", &file]).output().unwrap());
        assert_eq!(code, 0, "{err}");
        has(&shown, "accept(");
        assert!(!std::path::Path::new(&format!("{sock}.{kernel}")).exists());
    }
    // A file that cannot be written is told before any program runs.
    let nowhere = folder.path("missing/run.trap");
    let args = [
        "boot",
        "-q",
        "--kernels",
        "2",
        "--record",
        &nowhere,
        "parts",
    ];
    let (code, out, err) = texts(trapline(&args).output().unwrap());
    assert_eq!((code, &*out), (1, ""), "{err}");
    has(&err, "cannot record to");
}

/// A line is for one kernel. The others find the end of the input.
#[test]
fn the_first_kernel_reads_standard_input() {
    let boot = ["boot", "-q", "--kernels", "3"];
    let mut command = trapline(&[&boot[..], &["upper"]].concat());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let lines: String = (0..200).map(|n| format!("line {n}\n")).collect();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = child.wait_with_output().expect("it ends");
    let out = String::from_utf8(output.stdout).expect("it is text");
    assert_eq!(out, lines.to_uppercase());
}
