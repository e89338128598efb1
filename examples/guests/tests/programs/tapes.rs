//! Runs on real sockets with curl, taped, and again from the tape.

use std::{
    fs,
    io::Cursor,
    path::Path,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
    thread,
    time::Duration,
};

use hyper::Method;
use trapline::{
    Builder, Kernel, Os, RealWorld, Remote, Signal,
    tape::{self, Header, Playing, Taping},
};
use trapline_cli::Program;
use trapline_guests::{fetch::Fetch, ledger::Ledger, notes::Notes};

use crate::support::*;

/// What can be told of a run.
struct Told {
    log: String,
    console: String,
    sent: Sent,
}

fn told<P: Program>(
    make: impl FnOnce(Sent) -> Builder,
    program: P,
    beside: impl FnOnce(Remote),
) -> (Told, Result<(), trapline::Error>) {
    let (log, sent) = (Log::default(), Sent::default());
    let mut kernel = make(sent.clone())
        .tracer(log.clone())
        .capture_console()
        .build()
        .unwrap();
    let main = async move |os: &mut Os| program.main(os).await;
    kernel.spawn("main", main).unwrap();
    beside(kernel.remote());
    let ended = kernel.run().and_then(|report| report.check());
    let told = Told {
        console: kernel.take_console(),
        log: log.0.take(),
        sent,
    };
    (told, ended)
}

/// Runs a program in the real world with a tape.
fn taped<P: Program>(directory: &Path, program: P, beside: impl FnOnce(Remote)) -> (Told, Vec<u8>) {
    let path = directory.join("run.tape");
    let world = RealWorld::new()
        .unwrap()
        .disk(directory.join("disk"))
        .unwrap();
    let world = Taping::create(world, &path, &Header::default(), None).unwrap();
    let writer = world.writer();
    let make = |sent| Kernel::builder().world(Wire { inner: world, sent });
    let (told, ended) = told(make, program, beside);
    ended.unwrap();
    writer.close().unwrap();
    (told, fs::read(path).unwrap())
}

/// Runs a program from a tape. Returns what ended the replay early.
fn replayed<P: Program>(tape: Vec<u8>, program: P) -> (Told, Result<(), trapline::Error>) {
    let world = Playing::from_reader(Cursor::new(tape)).unwrap();
    let progress = world.progress();
    let make = |sent| Kernel::builder().world(Wire { inner: world, sent });
    let (told, ended) = told(make, program, |_| ());
    if ended.is_ok() {
        progress.finish().unwrap();
    }
    (told, ended)
}

fn replays_to_the_last_byte<P: Program>(taped: &Told, tape: Vec<u8>, program: P) {
    let (again, ended) = replayed(tape, program);
    ended.unwrap();
    assert_eq!(again.console, taped.console);
    assert!(again.log == taped.log, "the logs differ");
    let sent = taped.sent.borrow();
    assert!(sent.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 200);
    assert!(*again.sent.borrow() == *sent, "other bytes were sent");
}

/// Waits for a port of this process, then runs curl with each of these lines, then sends SIGTERM.
fn clients(port: u16, lines: Vec<Vec<String>>) -> impl FnOnce(Remote) {
    move |remote: Remote| {
        thread::spawn(move || {
            while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
                thread::yield_now();
            }
            for line in lines {
                curl(line);
            }
            remote.signal(Signal::Terminate);
        });
    }
}

/// A port below those that the system gives out, which no other socket can take by chance.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + (std::process::id() % 1000) as u16 * 20;
    loop {
        let port = first + NEXT.fetch_add(1, Relaxed);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(String::from).collect()
}

/// A service of notes behind TLS, and the clients of a run.
fn notes(directory: &Path) -> (Notes, Vec<Vec<String>>) {
    let (cert, key) = certificate(directory);
    let port = free_port();
    let origin = format!("https://localhost:{port}/notes");
    let lines = vec![
        words(&format!(
            "--cacert {cert} --http2 -X PUT -d milk {origin}/1"
        )),
        words(&format!(
            "--cacert {cert} --http1.1 -X POST -d ,eggs {origin}/1"
        )),
        words(&format!(
            "--cacert {cert} --http2 {origin} {origin}/1 {origin}/2"
        )),
    ];
    let notes = Notes {
        addr: ([127, 0, 0, 1], port).into(),
        cert: Some(cert),
        key: Some(key),
        ..Notes::default()
    };
    (notes, lines)
}

#[test]
fn a_taped_service_behind_tls_replays_to_its_last_byte() {
    for seed in [None, Some(5)] {
        let directory = directory(&format!("tape-notes-{seed:?}"));
        let (mut service, lines) = notes(&directory);
        service.tls_seed = seed;
        let (told, tape) = taped(
            &directory,
            service.clone(),
            clients(service.addr.port(), lines),
        );
        assert!(
            told.console
                .ends_with("Drained; 0 connections were killed\n")
        );
        // The replay needs neither the files nor the disk.
        fs::remove_dir_all(&directory).unwrap();
        replays_to_the_last_byte(&told, tape, service);
    }
}

#[test]
fn without_a_seed_the_replay_says_where_it_parts() {
    let directory = directory("tape-unseeded");
    let (mut service, lines) = notes(&directory);
    service.unseeded = true;
    let (told, tape) = taped(
        &directory,
        service.clone(),
        clients(service.addr.port(), lines),
    );
    let (again, ended) = replayed(tape, service);
    let error = ended.unwrap_err();
    let Some(tape::Error::Left(left)) = tape::Error::of(&error) else {
        panic!("{error}");
    };
    eprintln!("{left}");
    // The first bytes that differ are those of the first handshake.
    let (sent, again) = (told.sent.borrow(), again.sent.borrow());
    let parts = sent
        .iter()
        .zip(again.iter())
        .position(|(one, other)| one != other);
    eprintln!("{parts:?} of {} and {}", sent.len(), again.len());
}

#[test]
fn a_taped_client_replays_to_its_last_byte() {
    let directory = directory("tape-fetch");
    let (cert, key) = certificate(&directory);
    let disk = directory.join("disk");
    let server = [
        "--disk",
        disk.to_str().unwrap(),
        "notes",
        "--addr",
        "127.0.0.1:0",
    ];
    let server = Served::boot(server.into_iter().chain(["--cert", &cert, "--key", &key]));
    let url = format!("https://localhost:{}/notes/1", server.addr.port());
    let fetch = Fetch {
        method: Method::PUT,
        data: "x".repeat(20_000),
        include: true,
        cacert: Some(cert),
        tls_seed: None,
        timeout: Duration::from_secs(30),
        urls: vec![url.clone(), url],
    };
    let (told, tape) = taped(&directory, fetch.clone(), |_| ());
    assert_eq!(told.console.matches("HTTP/2.0 204").count(), 2);
    drop(server);
    replays_to_the_last_byte(&told, tape, fetch);
}

#[test]
fn a_taped_ledger_replays_to_its_last_byte() {
    let directory = directory("tape-ledger");
    let port = free_port();
    let ledger = Ledger {
        addr: ([127, 0, 0, 1], port).into(),
        drain: Duration::from_secs(5),
        racy: false,
    };
    let body = crate::ledger::body_file(&directory, "ann", 7);
    let line = crate::ledger::call(([127, 0, 0, 1], port).into(), "Deposit", &body);
    let (told, tape) = taped(
        &directory,
        ledger.clone(),
        clients(port, vec![line.clone(), line.clone(), line]),
    );
    replays_to_the_last_byte(&told, tape, ledger);
}
