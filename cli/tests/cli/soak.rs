//! Kernels under clients that come, go and reset for as long as one wants.
//!
//! Each client ends after a few connections, unless `TRAPLINE_SOAK_SECONDS` says for how long they go on.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use rustix::{net::sockopt, process::Signal};

use crate::{cores::serve, replay::Folder, support::*};

const CLIENTS: u64 = 8;
/// The connections of a client in a run of the tests.
const FEW: u64 = 40;

/// What all clients have seen.
#[derive(Default)]
struct Seen {
    answers: AtomicU64,
    connections: AtomicU64,
    /// The server has got its signal.
    ends: AtomicBool,
}

/// Sends and reads some lines over a connection, which it then closes or resets. An answer that comes must
/// be the request. Fails where the server goes.
fn connection(addr: SocketAddr, number: u64, seen: &Seen) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    seen.connections.fetch_add(1, Relaxed);
    for request in 0..number % 7 {
        let line = format!(
            "{number} {request} {}\n",
            "x".repeat((number * 131 % 300) as usize)
        );
        stream.write_all(line.as_bytes())?;
        if number.is_multiple_of(3) && request == 4 {
            // Closing this socket resets the connection, with an answer under way.
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
            return Ok(());
        }
        let mut answer = vec![0; line.len()];
        stream.read_exact(&mut answer)?;
        assert_eq!(answer, line.as_bytes());
        seen.answers.fetch_add(1, Relaxed);
    }
    Ok(())
}

fn client(addr: SocketAddr, number: u64, until: Option<Instant>, seen: &Seen) {
    for count in 0.. {
        let is_over = match until {
            Some(until) => Instant::now() > until,
            // The signal finds them at work.
            None => seen.connections.load(Relaxed) >= CLIENTS * FEW && seen.ends.load(Relaxed),
        };
        let result = connection(addr, count * CLIENTS + number, seen);
        if seen.ends.load(Relaxed) && (is_over || result.is_err()) {
            return;
        }
        result.expect("the server serves until its signal");
        if until.is_some() {
            // The tape of a long run would fill the disk.
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn two_kernels_answer_every_client_until_their_signal_and_replay_to_the_last_byte() {
    let seconds = std::env::var("TRAPLINE_SOAK_SECONDS");
    let seconds = seconds.map(|text| text.parse().expect("a number of seconds"));
    let until = seconds
        .ok()
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let folder = Folder::new("soak");
    let tape = folder.path("run.tape");
    let (mut run, addr) = serve(&["-q", "--tape", &tape], &["echo", "--addr", "127.0.0.1:0"]);
    let mut out = run.out.take().expect("it is piped");
    let printed = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let seen = Seen::default();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let seen = &seen;
            scope.spawn(move || client(addr, number, until, seen));
        }
        match until {
            Some(until) => thread::sleep(until - Instant::now()),
            None => eventually("the clients have had their connections", || {
                (seen.connections.load(Relaxed) >= CLIENTS * FEW).then_some(())
            }),
        }
        seen.ends.store(true, Relaxed);
        run.signal(Signal::TERM);
    });
    let (code, err) = run.end();
    assert_eq!((code, &*err), (Some(0), ""));
    let printed = printed.join().unwrap().expect("it prints text");
    let begun = Instant::now();
    let (code, again, err) = texts(trapline(&["replay", "-q", &tape]).output().unwrap());
    assert_eq!((code, &*err), (0, ""));
    // The lines of the kernels have no order. Their addresses were read before.
    let listens = addr.to_string();
    let clients = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains(&listens));
        let mut lines: Vec<String> = lines.map(str::to_string).collect();
        lines.sort_unstable();
        lines
    };
    let [printed, again] = [printed, again].map(|text| clients(&text));
    assert_eq!(again, printed);
    println!(
        "{} answers over {} connections, {} lines, replayed in {:?}",
        seen.answers.load(Relaxed),
        seen.connections.load(Relaxed),
        printed.len(),
        begun.elapsed()
    );
}
