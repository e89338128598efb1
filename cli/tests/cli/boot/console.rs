//! Standard output and standard error whose readers are slow, stall, or are gone.

use std::{
    fs::File,
    io::{self, BufReader, PipeReader, PipeWriter, Read, Write},
    net::TcpStream,
    process::Stdio,
};

use rustix::process::Signal;

use super::*;
use crate::support::*;

// ---- closed pipes

/// A standard output without a reader.
fn closed_pipe() -> Stdio {
    let (reader, writer) = io::pipe().expect("there are descriptors left");
    drop(reader);
    writer.into()
}

#[test]
fn an_output_that_nobody_reads_is_no_error() {
    let cases: &[&[&str]] = &[
        &["list"],
        &["--help"],
        &["man"],
        &["completions", "zsh"],
        &["boot", "-q", "parts"],
        &["boot", "-q", "--virtual", "alive"],
        &["boot", "-q", "multitask", "--foo", "4294967295"],
    ];
    for args in cases {
        let output = trapline(args).stdout(closed_pipe()).output().unwrap();
        assert_eq!(texts(output), (0, String::new(), String::new()), "{args:?}");
    }
}

#[test]
fn a_trace_that_is_read_to_a_part_ends_the_run() {
    let mut run = Running::with_stderr(&["boot", "--virtual", "--trace", "alive"]);
    run.err_line();
    run.err = None;
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn messages_that_nobody_reads_are_no_error() {
    let cases: &[(&[&str], i32)] = &[
        (&["boot", "parts"], 0),
        (&["boot", "--summary", "parts"], 0),
        (&["boot", "--virtual", "--max-ticks", "3", "alive"], 4),
        (&["boot", "nothing"], 2),
    ];
    for (args, code) in cases {
        let status = trapline(args)
            .stdout(Stdio::null())
            .stderr(closed_pipe())
            .status();
        assert_eq!(status.unwrap().code(), Some(*code), "{args:?}");
    }
}

// ---- slow readers

/// A pipe for standard output, whose writing end does not block if that is wanted.
fn pipe(blocks: bool) -> (PipeReader, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    if !blocks {
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    }
    (reader, writer)
}

#[test]
fn a_slow_reader_of_a_pipe_that_does_not_block_gets_the_whole_help() {
    let expected = run(&["boot", "--help"]).1;
    let (mut reader, writer) = pipe(false);
    let room = rustix::pipe::fcntl_setpipe_size(&writer, 1).unwrap();
    assert!(room < expected.len());
    let mut command = trapline(&["boot", "--help"]);
    command.stdout(writer.try_clone().unwrap());
    let run = Running::start(&mut command);
    drop(command);
    fill(&writer);
    drop(writer);
    assert_eq!(io::read_to_string(&mut reader).unwrap(), expected);
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn a_help_that_cannot_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = trapline(&["--help"]).stdout(full).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    begins(&err, "error: cannot write to standard output: ");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_slow_reader_gets_everything() {
    for blocks in [true, false] {
        for world in [&[][..], &["--virtual"]] {
            let (mut reader, writer) = pipe(blocks);
            let args = [
                &["boot"],
                world,
                &["multitask", "--foo", "30000", "--bar", "1"],
            ]
            .concat();
            let mut command = trapline(&args);
            command
                .stdout(writer.try_clone().unwrap())
                .stderr(Stdio::piped());
            let run = Running::start(&mut command);
            drop(command);
            fill(&writer);
            drop(writer);
            let mut out = String::new();
            reader.read_to_string(&mut out).unwrap();
            assert_eq!(run.end().0, Some(0), "{blocks} {world:?}");
            assert_eq!(
                out.matches("I'm foo\n").count(),
                30_000,
                "{blocks} {world:?}"
            );
            assert!(out.ends_with("Task 1 terminated\n"));
        }
    }
}

#[test]
fn s53_a_reader_that_stalls_freezes_no_other_task_and_the_first_sigint_ends_the_run() {
    at_once([true, false], |blocks| {
        let (reader, writer) = pipe(blocks);
        let echo = "echo --addr 127.0.0.1:0";
        let mut command = trapline(&["boot", "--with", echo, "multitask", "--foo", "4294967295"]);
        command
            .stdout(writer.try_clone().unwrap())
            .stderr(Stdio::piped());
        let mut run = Running::start(&mut command);
        let mut out = BufReader::new(reader);
        let mut printed = |what| loop {
            if let Some(rest) = line(&mut out).strip_prefix(what) {
                break rest.trim_end().to_string();
            }
        };
        let addr = printed("Server starting at ");
        let mut client = TcpStream::connect(addr).unwrap();
        printed("Client connected ");
        fill(&writer);
        for _ in 0..100 {
            let mut got = [0; 5];
            client.write_all(b"hello").unwrap();
            client.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"hello");
        }
        assert!(run.err_line().starts_with("seed "));
        run.signal(Signal::INT);
        let (code, err) = run.end();
        assert_eq!(code, Some(130));
        assert!(err.starts_with("interrupted: shutting down"), "{err}");
        has(&err, "bytes that tasks printed: they are lost");
    });
}

#[test]
fn s53_the_first_sigint_ends_a_virtual_run_that_nobody_reads() {
    let (_reader, writer) = pipe(true);
    let mut command = trapline(&[
        "boot",
        "--virtual",
        "--seed",
        "1",
        "multitask",
        "--foo",
        "4294967295",
    ]);
    command
        .stdout(writer.try_clone().unwrap())
        .stderr(Stdio::piped());
    let run = Running::start(&mut command);
    fill(&writer);
    run.signal(Signal::INT);
    assert_eq!(run.end().0, Some(130));
}

#[test]
fn a_server_outlives_a_console_that_is_full() {
    let addr = free_addr();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = trapline(&["boot", "echo", "--addr", &addr.to_string()]);
    let mut run = Running::start(command.stdout(full).stderr(Stdio::piped()));
    assert!(run.err_line().starts_with("seed "));
    assert!(
        run.err_line()
            .starts_with("warning: cannot write to the console: No space")
    );
    for _ in 0..3 {
        let mut client = TcpStream::connect(addr).unwrap();
        client.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
    }
    run.signal(Signal::INT);
    assert_eq!(run.end().0, Some(130));
}
