//! The programs with sockets: a server of a thousand clients, and a client of web servers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::Value;
use socket2::SockRef;

use crate::support::*;

/// A running echo server: its address, and the lines that it prints.
fn echo(command: &mut Command) -> (Running, SocketAddr, Receiver<String>) {
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let addr = loop {
        // Programs that were booted beside it may be faster.
        if let Some(addr) = run.out_line().strip_prefix("Server starting at ") {
            break addr.trim_end().parse().expect("it is an address");
        }
    };
    let out = run.out.take().expect("it is piped");
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    (run, addr, lines)
}

fn allow_descriptors(n: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < n) {
        let maximum = limit.maximum;
        let current = Some(maximum.map_or(n, |maximum| maximum.min(n)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("it may be raised");
    }
}

/// Bytes that differ from client to client.
fn payload(client: usize) -> Vec<u8> {
    let len = 1 + client * 37 % 9000;
    (0..len).map(|at| (client * 31 + at * 7) as u8).collect()
}

#[test]
fn echo_serves_a_thousand_clients_whatever_they_do() {
    allow_descriptors(4096);
    let (server, addr, lines) = echo(&mut trapline(&[
        "boot",
        "--summary",
        "--with",
        "alive --every 5ms",
        "echo",
        "--addr",
        "127.0.0.1:0",
    ]));
    let mut clients: Vec<_> = (0..1000)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let sent = payload(n);
        match n % 10 {
            0 => {}
            1 => {
                client.write_all(&sent[..sent.len() / 2]).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            }
            2 => {
                client.write_all(&sent).unwrap();
                SockRef::from(&*client)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
            }
            _ => client.write_all(&sent).unwrap(),
        }
    }
    // They are all there, and the other task goes on.
    while lines.try_recv().is_ok() {}
    while lines.recv().expect("it goes on") != "I'm alive" {}
    for (n, mut client) in clients.into_iter().enumerate() {
        let mut sent = payload(n);
        match n % 10 {
            0 | 2 => drop(client),
            1 => {
                sent.truncate(sent.len() / 2);
                let mut got = Vec::new();
                client.read_to_end(&mut got).unwrap();
                assert!(got == sent, "client {n}");
            }
            _ => {
                let mut got = vec![0; sent.len()];
                client.read_exact(&mut got).unwrap();
                assert!(got == sent, "client {n}");
                // Again, now that the server has waited for it.
                client.write_all(b"again").unwrap();
                client.read_exact(&mut got[..1]).unwrap();
                assert_eq!(got[0], b'a', "client {n}");
            }
        }
    }
    let mut last = TcpStream::connect(addr).unwrap();
    last.write_all(b"still there?").unwrap();
    let mut got = [0; 12];
    last.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"still there?");
    server.signal(Signal::INT);
    let (code, err) = server.end();
    assert_eq!(code, Some(130));
    // All but three have room in the summary.
    assert_eq!(err.matches("  client ").count(), 998, "{err}");
    for part in ["and 3 more tasks", "accept", "tasks 1,003,"] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

#[test]
fn echo_answers_with_a_prefix() {
    let (server, addr, lines) = echo(&mut trapline(&[
        "boot",
        "echo",
        "--addr",
        "127.0.0.1:0",
        "--prefix",
        "Got: ",
    ]));
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    assert_eq!(got, "Got: hello");
    let peer = client.local_addr().unwrap();
    assert_eq!(lines.recv().unwrap(), format!("Client connected {peer}"));
    assert_eq!(lines.recv().unwrap(), format!("Connection closed {peer}"));
    server.signal(Signal::INT);
    assert_eq!(server.end().0, Some(130));
}

#[test]
fn s36_echo_serves_again_after_it_ran_out_of_descriptors() {
    let program = env!("CARGO_BIN_EXE_trapline");
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -n 16; exec \"$0\" boot --seed 1 echo --addr 127.0.0.1:0 2>&1",
        program,
    ]);
    let (server, addr, lines) = echo(shell.stdin(Stdio::null()));
    // As many clients are too many, since the server has other descriptors.
    let clients: Vec<_> = (0..16).map(|_| TcpStream::connect(addr).unwrap()).collect();
    while !lines
        .recv()
        .expect("it goes on")
        .contains("cannot accept: ")
    {}
    for mut client in clients {
        client.write_all(b"x").unwrap();
        let mut got = [0];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"x");
    }
    server.signal(Signal::INT);
    assert_eq!(server.end().0, Some(130));
}

/// An HTTP server for one request, which it answers with `response`, and that request.
fn serve(response: Vec<u8>) -> (SocketAddr, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = String::new();
        let mut lines = BufReader::new(client.try_clone().unwrap());
        while !request.ends_with("\r\n\r\n") {
            lines.read_line(&mut request).unwrap();
        }
        client.write_all(&response).unwrap();
        request
    });
    (addr, server)
}

fn http_get(url: &str) -> Output {
    trapline(&["boot", "--seed", "1", "http-get", url])
        .output()
        .unwrap()
}

#[test]
fn http_get_writes_the_body_byte_by_byte() {
    let body: Vec<u8> = (0..500_000_u32)
        .map(|at| (at.wrapping_mul(at) >> 7) as u8)
        .collect();
    let (addr, server) = serve([b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", &*body].concat());
    let output = http_get(&format!("http://localhost:{}/page?x=1#part", addr.port()));
    assert_eq!(
        (output.status.code(), &*output.stderr),
        (Some(0), b"".as_slice())
    );
    assert!(output.stdout == body);
    let expected = format!(
        "GET /page?x=1 HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n",
        addr.port()
    );
    assert_eq!(server.join().unwrap(), expected);
}

#[test]
fn http_get_says_what_went_wrong() {
    let (addr, server) = serve(b"HTTP/1.1 404 Not Found\r\n\r\nno such page".to_vec());
    let (code, out, err) = texts(http_get(&format!("http://{addr}")));
    assert_eq!((code, &*out), (1, "no such page"));
    has(&err, &format!("{addr} answers HTTP/1.1 404 Not Found"));
    assert!(server.join().unwrap().starts_with("GET / HTTP/1.1\r\n"));

    let (addr, server) = serve(b"220 not the web\r\n".to_vec());
    let (code, _, err) = texts(http_get(&format!("http://{addr}/")));
    assert_eq!(code, 1);
    assert!(err.contains("does not answer in HTTP"), "{err}");
    server.join().unwrap();

    let closed = free_addr();
    let (code, _, err) = texts(http_get(&format!("http://{closed}/")));
    assert_eq!(code, 1);
    has(
        &err,
        &format!("cannot connect to {closed}: Connection refused"),
    );
}

#[test]
fn http_get_understands_each_way_to_end_a_body() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n\
                  5\r\nhello\r\n1;x=y\r\n \r\n00A\r\nthe world\n\r\n0\r\n";
    // Chunks are fewer than writes: 100,000 bytes, a chunk each.
    let (n, small) = (100_000, "1\r\nx\r\n");
    let small = chunks.split("5\r\n").next().unwrap().to_string() + &small.repeat(n);
    let (addr, server) = serve((small + "0\r\n\r\n").into());
    let (ended, out, err) = texts(http_get(&format!("http://{addr}/")));
    assert_eq!((ended, out.len(), &*err), (0, n, ""));
    server.join().unwrap();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let broken = "answers in chunks that are not HTTP";
    for (response, code, body, message) in [
        (format!("{length}hello"), 0, "hello", ""),
        (format!("{length}hello, and more"), 0, "hello", ""),
        (format!("{interim}{length}hello"), 0, "hello", ""),
        (format!("{chunks}\r\n"), 0, "hello the world\n", ""),
        (
            format!("{chunks}A: b\r\n\r\nmore"),
            0,
            "hello the world\n",
            "",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\nx".into(), 0, "", ""),
        (
            format!("{length}hel"),
            1,
            "hel",
            "closes the connection after 3 of 5 bytes",
        ),
        (
            chunks.into(),
            1,
            "hello the world\n",
            "closes the connection before the last chunk",
        ),
        (chunks.replace("hello", "hel"), 1, "hel\r\n", broken),
        (chunks.replace("1;x", "x;x"), 1, "hello", broken),
        (
            chunks.replace("00A", &"0".repeat(100_000)),
            1,
            "hello ",
            broken,
        ),
        (
            chunks.replace("Chunked", "gzip"),
            1,
            "",
            "in the coding \"gzip\"",
        ),
        (length.replace('5', "+5"), 1, "", "see its Content-Length"),
        (
            length.replace("\r\n\r\n", "\r\nContent-Length: 6\r\n\r\n"),
            1,
            "",
            "Content-Length",
        ),
        (
            "HTTP/1.1 200 OK\r\nA: ".to_string() + &"x".repeat(70_000),
            1,
            "",
            "a head of more than",
        ),
        (
            String::new(),
            1,
            "",
            "ends the connection without an answer",
        ),
    ] {
        let (addr, server) = serve(response.clone().into());
        let (ended, out, err) = texts(http_get(&format!("HTTP://{addr}/")));
        let what: String = response.chars().take(300).collect();
        assert_eq!((ended, &*out), (code, body), "{what}: {err}");
        assert!(
            err.contains(message) && (code == 1 || err.is_empty()),
            "{what}: {err}"
        );
        server.join().unwrap();
    }
}

#[test]
fn programs_log_through_tracing_too() {
    let (addr, server) = serve(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let url = format!("http://{addr}/");
    let (code, _, err) = run(&["boot", "--seed", "1", "-v", "http-get", &url]);
    assert_eq!(
        (code, &*err),
        (0, "info: trapline::http_get: HTTP/1.1 200 OK\n")
    );
    server.join().unwrap();

    let (addr, server) = serve(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let url = format!("http://{addr}/");
    let (_, _, err) = run(&["boot", "--trace", "--log-format", "json", "http-get", &url]);
    let own = err.lines().find(|line| line.contains("trapline::http_get"));
    let own: Value = serde_json::from_str(own.expect("it is in the trace")).unwrap();
    assert_eq!((&own["tid"], &own["comm"]), (&1.into(), &"http-get".into()));
    assert!(own["at"].is_f64(), "{own}");
    server.join().unwrap();
}
