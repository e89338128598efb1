//! The demo programs, as the systems of which they are show them: the built binary, run as a
//! process. Most in the simulated world, where their output is exact.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    sync::mpsc::{self, Sender},
    thread,
    time::Duration,
};

use crate::support::*;

// ---- tools

/// A program in the real world, while it runs.
fn start(args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = trapline(&[&["boot", "-q"], args].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let out = child.stdout.take().expect("it is piped");
    (child, BufReader::new(out))
}

fn line(out: &mut impl BufRead) -> String {
    let mut line = String::new();
    out.read_line(&mut line).expect("it is text");
    line
}

/// An HTTP server for one request, which it answers when it is told to; never, if it is not.
fn serve(response: &'static str) -> (SocketAddr, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (answer, told) = mpsc::channel();
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let mut request = BufReader::new(client);
        while line(&mut request) != "\r\n" {}
        if told.recv().is_ok() {
            let _ = request.get_mut().write_all(response.as_bytes());
        }
    });
    (addr, answer)
}

/// The lines of the workshop's countdown(5) and countup(20).
fn counts() -> String {
    let mut lines = String::new();
    for n in 0..20 {
        if n % 4 == 0 {
            lines += &format!("Down {}\n", 5 - n / 4);
        }
        lines += &format!("Up {n}\n");
    }
    lines
}

/// The lines of the workshop's producer(10) and consumer().
fn items() -> String {
    let item = |n| format!("Producing {n}\nConsuming {n}\n");
    let items: String = (0..10).map(item).collect();
    items + "Producer done\nConsumer done\n"
}

#[test]
fn countdown_alternates_by_a_bare_switch() {
    let line = |n| format!("Down {}\nUp {n}\n", 5 - n);
    let lines: String = (0..5).map(line).collect();
    assert_eq!(transcript(&["countdown", "--alternate"]), lines);
    // Nothing sleeps.
    let boot = ["boot", "-q", "--virtual", "--max-time", "0s"];
    let (code, ..) = run(&[&boot[..], &["countdown", "--alternate"]].concat());
    assert_eq!(code, 0);
}

fn lines_with(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    let lines = text.lines().filter(|line| wanted(line));
    lines.map(|line| format!("{line}\n")).collect()
}

// ---- callbacks

#[test]
fn callbacks_count_down_and_up() {
    assert_eq!(transcript(&["callbacks"]), counts());
}

#[test]
fn callbacks_meet_in_a_queue() {
    assert_eq!(transcript(&["callbacks", "--queue"]), items());
}

#[test]
fn callbacks_and_coroutines_run_together() {
    let out = transcript(&["callbacks", "--mixed"]);
    let is_count = |line: &str| line.starts_with("Up ") || line.starts_with("Down ");
    assert_eq!(lines_with(&out, is_count), counts());
    assert_eq!(lines_with(&out, |line| !is_count(line)), items());
    let start = "Down 5\nUp 0\nProducing 0\nConsuming 0\nUp 1\nProducing 1\n";
    assert!(out.starts_with(start), "{out}");
}

#[test]
fn callbacks_are_stopped_from_inside() {
    let out = transcript(&["callbacks", "--stop-after", "4500ms"]);
    assert_eq!(out, "Down 5\nUp 0\nUp 1\nUp 2\nUp 3\nDown 4\nUp 4\n");
}

// ---- message queues

#[test]
fn producer_consumer() {
    assert_eq!(transcript(&["producer-consumer"]), items());
    for capacity in ["0", "1", "10"] {
        let out = transcript(&["producer-consumer", "--capacity", capacity]);
        assert_eq!(out, items(), "capacity {capacity}");
    }
}

#[test]
fn several_producers_and_consumers_pass_each_item_once() {
    let args = "producer-consumer --count 20 --capacity 1 --producers 3 --consumers 2";
    let out = transcript(&args.split(' ').collect::<Vec<_>>());
    for verb in ["Producing", "Consuming"] {
        let mut items: Vec<u32> = out
            .lines()
            .filter_map(|line| line.strip_prefix(verb)?.trim().parse().ok())
            .collect();
        items.sort_unstable();
        assert!(items.into_iter().eq(0..20), "{verb}: {out}");
    }
    assert_eq!(out.matches("Producer done\n").count(), 3);
    assert!(out.ends_with("Consumer done\nConsumer done\n"), "{out}");
}

#[test]
fn a_producer_without_consumers_waits_for_room() {
    let (code, out, err) = run(&[
        "boot",
        "-q",
        "--virtual",
        "producer-consumer",
        "--consumers",
        "0",
        "--capacity",
        "2",
    ]);
    assert_eq!(
        (code, &*out),
        (3, "Producing 0\nProducing 1\nProducing 2\n")
    );
    has(
        &err,
        "tid 2 \"producer\" waits for queue 1 (put), since 00:02.000",
    );
}

#[test]
fn average() {
    let expected = "0\n1.0\n5.0\nclean-up\nclosed: 5.0\n";
    assert_eq!(transcript(&["average"]), expected);
}

// ---- promises and futures

#[test]
fn promise() {
    let expected = "\
before it is set: None
callback 1: Ok(42)
callback 2: Ok(42)
awaited: 42
after it is set: Some(42)
set to 42
not set to 43: the promise is set already
abandoned: every setter was dropped before the promise was set
from a thread: hello
a task promises its exit: done
";
    assert_eq!(transcript(&["promise"]), expected);
}

#[test]
fn lists() {
    let line = |n| format!("abc   {n}\n123   {n}\n");
    assert_eq!(transcript(&["lists"]), (0..5).map(line).collect::<String>());
}

#[test]
fn lists_stop_five_seconds_after_the_start() {
    assert_eq!(
        transcript(&["lists", "--delay"]),
        "start 0.000\nstop 5.000\n"
    );
    let within = |time| {
        let boot = ["boot", "-q", "--virtual", "--max-time", time];
        let (code, out, _) = run(&[&boot, ["lists", "--delay"].as_slice()].concat());
        (code, out)
    };
    assert_eq!(within("4999ms"), (4, "start 0.000\n".into()));
    assert_eq!(within("5001ms"), (0, "start 0.000\nstop 5.000\n".into()));
}

// ---- threads

#[test]
fn fake_io_overlaps() {
    let args = "fake-io --count 200 --delay 200ms".split(' ');
    let (code, out, err) = run(&["boot", "--seed", "1"]
        .into_iter()
        .chain(args)
        .collect::<Vec<_>>());
    assert_eq!((code, &*err), (0, ""));
    let took = out
        .strip_prefix("200 reads blocked for 40.000s in ")
        .unwrap_or_else(|| panic!("{out}"));
    let took = took.trim_end().strip_suffix("ms").map_or_else(
        || took.trim_end().trim_end_matches('s').parse::<f64>(),
        |took| took.parse().map(|took: f64| took / 1000.0),
    );
    assert!((0.2..20.0).contains(&took.unwrap()), "{out}");
}

#[test]
fn fake_io_blocks_on_the_virtual_clock_and_takes_no_real_time() {
    let out = transcript(&["fake-io", "--delay", "1h"]);
    assert_eq!(out, "1000 reads blocked for 3600000.000s in 3600.000s\n");
}

#[test]
fn the_random_delays_of_fake_io_are_about_500_s_and_overlap() {
    let out = transcript(&["fake-io"]);
    let sum = out.strip_prefix("1000 reads blocked for ").unwrap();
    let (sum, took) = sum.trim_end().split_once(" in ").unwrap();
    let sum: f64 = sum.trim_end_matches('s').parse().unwrap();
    let took: f64 = took.strip_suffix("ms").unwrap().parse().unwrap();
    assert!((470.0..530.0).contains(&sum), "{out}");
    assert!((990.0..1000.0).contains(&took), "{out}");
}

// ---- timers and HTTP

#[test]
fn timers() {
    let expected = "timer tick\ntimer tick\ntimer timeout\n";
    assert_eq!(transcript(&["timers"]), expected);
}

#[test]
fn timers_go_on_while_a_response_is_out() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/trace/golden");
    let page = fs::read_to_string(Path::new(root).join("waits.dot")).expect("it is there");
    let server = format!("server:httpd --addr 0.0.0.0:8000 --root '{root}'");
    let client = "client:timers --url http://server:8000/waits.dot";
    // It takes 1.2 seconds to connect, and as many to get the response. A tick comes every two.
    let slow = ["boot", "-q", "--virtual", "--net", "latency=600ms"];
    let (code, out, err) = run(&[&slow[..], &["--on", &server, "--on", client]].concat());
    assert_eq!((code, &*err), (0, ""));
    let (_, out) = out.split_once("/\n").expect("it says where it listens");
    begins(out, "timer tick\nHTTP/1.1 200 OK\nDate: ");
    let end = format!("\nConnection: close\n\n{page}timer tick\ntimer timeout\n");
    assert!(out.ends_with(&end), "{out}");
}

#[test]
fn http_get_calls_back_after_what_follows_the_call() {
    let (addr, answer) = serve("HTTP/1.1 200 OK\r\n\r\n");
    let url = format!("http://{addr}/");
    let (mut child, mut out) = start(&["http-get", "--demo-order", &url]);
    assert_eq!(line(&mut out), "2\n");
    answer.send(()).unwrap();
    assert_eq!(line(&mut out), "1\n");
    assert_eq!(line(&mut out), "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn http_get_calls_back_from_a_file_too() {
    for boot in [["boot", "-q"].as_slice(), &["boot", "-q", "--virtual"]] {
        let get = |args: &[&str]| run(&[boot, &["http-get"], args].concat());
        let file = env!("CARGO_MANIFEST_PATH");
        let (code, out, err) = get(&["--demo-order", file]);
        assert_eq!((code, &*out, &*err), (0, "2\n1\n", ""));
        let (code, out, err) = get(&["--demo-order", "/no/such/file"]);
        assert_eq!((code, &*out), (1, "2\n"));
        has(&err, "cannot read /no/such/file: No such file");
        let (code, out, err) = get(&[file]);
        assert_eq!((code, &*out), (1, ""));
        has(&err, "is a file, which only --demo-order reads");
    }
}

/// What a client holds back: it is sent more than any buffer has room for.
#[test]
fn http_get_keeps_no_more_than_it_can_write() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client
            .set_write_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        // As long as it takes more, which ends with the buffers of sockets and of the pipe.
        let sent = (0..200)
            .take_while(|_| client.write_all(&[b'x'; 1 << 20]).is_ok())
            .count();
        tell.send(sent).unwrap();
    });
    let (mut child, out) = start(&["http-get", &url]);
    let mib = told.recv().unwrap();
    assert!(mib < 100, "it keeps {mib} MiB");
    // The reader has seen enough, which is no error.
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn http_get_does_not_wait_for_the_end_of_the_stream_when_it_knows_the_length() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (mut child, mut out) = start(&["http-get", "--timeout", "1h", &url]);
    let (mut client, _) = listener.accept().unwrap();
    client
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
        .unwrap();
    assert_eq!(line(&mut out), "abc");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(client);
}

/// Each piece takes calls, and a server may send a byte in each chunk.
#[test]
fn http_get_takes_the_small_chunks_that_have_arrived_as_one_piece() {
    let chunks = "1\r\nx\r\n2\r\nyz\r\n".repeat(1000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = format!("{head}{chunks}0\r\n\r\n");
        client.write_all(answer.as_bytes()).unwrap();
    });
    let (code, out, err) = run(&["boot", "-q", "--max-ticks", "1000", "http-get", &url]);
    server.join().unwrap();
    assert_eq!((code, &*out, &*err), (0, &*"xyz".repeat(1000), ""));
}

#[test]
fn http_get_looks_names_up_on_a_thread_and_gives_up_in_time() {
    let (addr, _answer) = serve("");
    let url = format!("http://localhost:{}/", addr.port());
    let args = ["boot", "--trace", "http-get", "--timeout", "100ms", &url];
    let (code, out, err) = run(&args);
    assert_eq!((code, &*out), (1, ""));
    let host = format!("localhost:{}", addr.port());
    let expected = format!("{host} has not answered within 100ms: raise --timeout");
    assert!(err.contains(&expected), "{err}");
    assert!(err.contains("submit()"), "{err}");
}

#[test]
fn durations_say_what_they_look_like() {
    for args in [
        ["http-get", "--timeout", "5"],
        ["callbacks", "--stop-after", "soon"],
        ["fake-io", "--delay", "100"],
        ["timers", "--timeout", "1 x"],
    ] {
        let (code, out, err) = run(&[["boot"].as_slice(), &args].concat());
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        assert!(err.contains("such as 500ms, 10s or 2m"), "{args:?}: {err}");
    }
}

// ---- programs that go wrong

#[test]
fn what_goes_wrong_can_be_cured() {
    let boot = ["boot", "-q", "--virtual"];
    for (case, code) in [("deadlock", 3), ("lost-wakeup", 3), ("starved", 0)] {
        let (ended, _, err) = run(&[&boot, &[case][..]].concat());
        assert_eq!(ended, code, "{err}");
        let (ended, _, err) = run(&[&boot, &[case, "--cured"][..]].concat());
        assert_eq!((ended, &*err), (0, ""), "{case}");
    }
    // The last line says what went wrong, and how to see it.
    for (args, last) in [
        (
            ["starved"].as_slice(),
            "clients asked 80 times in vain, each time instead of the worker.",
        ),
        (
            &["slow-reader"],
            "122ms instead of 34ms: the queue is full, and the source waits for its readers.",
        ),
        (&["slow-reader", "--readers", "5"], ""),
        (
            &["convoy"],
            "62ms instead of 21ms: each worker holds the lock while it fetches, and the others wait for it.",
        ),
        (&["convoy", "--cured"], ""),
        (&["starved", "--cured"], ""),
    ] {
        let out = transcript(args);
        let (what, how) = out.split_once(" To see it: ").unwrap_or_default();
        assert_eq!(what, last, "{args:?}");
        let boot = format!("trapline boot --virtual --record run.trap {} &&", args[0]);
        assert!(last.is_empty() || how.starts_with(&boot), "{out}");
    }
    // As long as it takes one after the other, and as long as it takes side by side.
    let limits = [
        (["convoy"].as_slice(), "62ms", "61ms"),
        (&["convoy", "--cured"], "21ms", "20ms"),
        (&["slow-reader"], "122ms", "121ms"),
        (&["slow-reader", "--readers", "5"], "34ms", "33ms"),
    ];
    for (case, enough, less) in limits {
        let (ended, _, err) = run(&[&boot[..], &["--max-time", enough], case].concat());
        assert_eq!((ended, &*err), (0, ""), "{case:?}");
        let (ended, ..) = run(&[&boot[..], &["--max-time", less], case].concat());
        assert_eq!(ended, 4, "{case:?} takes longer than {less}");
    }
    let turns = |args: &[&str], ticks| {
        let limit = ["--max-ticks", ticks];
        run(&[&boot[..], &limit, args].concat()).0
    };
    assert_eq!(turns(&["starved"], "137"), 4);
    assert_eq!(turns(&["starved"], "138"), 0);
    assert_eq!(turns(&["starved", "--cured"], "62"), 4);
    assert_eq!(turns(&["starved", "--cured"], "63"), 0);
}
