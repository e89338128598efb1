//! Servers that drain: SIGTERM with clients of all kinds.

use super::{httpd::*, *};
use crate::{
    replay::Folder,
    support::{at_once, eventually, exit_of, has, texts},
};

const ALL_DONE: &str = "Stopped: all clients have finished";
const ONE_CUT: &str = "Stopped: a client was cut off (see --drain)";

// ---- tools

impl Server {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Waits until it accepts no more.
    fn refuses(&self) {
        eventually("the end of accepting", || {
            match TcpStream::connect(self.addr) {
                Ok(_) => None,
                // At the instant at which the listener closes, a connection is reset.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                    Some(())
                }
            }
        });
    }

    /// Its exit code, the last line that it prints, and its warnings.
    fn over(mut self) -> (Option<i32>, String, String) {
        let code = exit_of(&mut self.child);
        let last = self.lines.iter().last().unwrap_or_default();
        let warnings = self.warnings.take().expect("they are taken once");
        (code, last, warnings.join().expect("it reads"))
    }

    /// Checks that it has stopped in order.
    #[track_caller]
    fn stopped(self, last: &str) -> String {
        let (code, line, warnings) = self.over();
        assert_eq!((code, &*line), (Some(0), last), "{warnings}");
        warnings
    }
}

/// Starts a server of each kind, with options of boot and of its own. The directory is that of httpd.
fn start(kind: &str, boot: &[&str], own: &[&str]) -> (Server, Option<Www>) {
    let mut args = [&["boot", "-q"], boot, &[kind, "--addr", "127.0.0.1:0"], own].concat();
    let www = (kind == "httpd").then(|| Www::new(&format!("drain-{}", unique())));
    let root = www.as_ref().map(Www::root);
    let to = (kind == "proxy").then(echoing).map(|to| to.to_string());
    if let Some(root) = &root {
        args.extend(["--root", root]);
    }
    if let Some(to) = &to {
        args.extend(["--to", to]);
    }
    (Server::run(trapline(&args)), www)
}

fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

const KINDS: [&str; 4] = ["echo", "httpd", "proxy", "chat"];

/// A server that sends everything back.
fn echoing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || io::copy(&mut &client, &mut &client));
        }
    });
    addr
}

/// A client that the server has served, and that is idle.
fn idle(kind: &str, server: &Server) -> TcpStream {
    let mut client = server.connect();
    match kind {
        "httpd" => {
            client
                .write_all(b"GET /page.html HTTP/1.1\r\nHost: x\r\n\r\n")
                .unwrap();
            assert!(answer(&mut client).ends_with("<p>page"));
        }
        "chat" => {
            let mut question = [0; 13];
            client.read_exact(&mut question).unwrap();
            assert_eq!(&question, b"* your name?\n");
        }
        _ => {
            client.write_all(b"hello").unwrap();
            let mut answer = [0; 5];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"hello");
        }
    }
    client
}

/// A client that the server cannot finish with: it sends, or asks for, more than it reads.
fn deaf(kind: &str, server: &Server) -> TcpStream {
    let mut client = server.connect();
    match kind {
        "httpd" => {
            client.write_all(get("/big").as_bytes()).unwrap();
            let mut start = [0; 15];
            client.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 200 OK");
        }
        "chat" => {
            let name = format!("deaf{}", unique());
            let mut deaf = Talker::narrow(server, &name);
            let mut speaker = Talker::inside(server, &format!("ann{name}"));
            deaf.hears(&format!("* ann{name} joins"));
            let text = "x".repeat(900);
            for _ in 0..Talker::MANY {
                speaker.says(&text);
                speaker.hears(&format!("ann{name}: {text}"));
            }
            speaker.says("/quit");
            assert_eq!(speaker.lines.read_to_end(&mut Vec::new()).unwrap(), 0);
            client = deaf.client;
        }
        _ => {
            client.set_nonblocking(true).unwrap();
            // Until neither direction has any room left.
            let mut still = 0;
            while still < 50 {
                match client.write(&[7; 65536]) {
                    Ok(sent) => still *= usize::from(sent == 0),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        still += 1;
                        let _ = client.set_nonblocking(false);
                        client
                            .set_write_timeout(Some(Duration::from_millis(2)))
                            .unwrap();
                    }
                }
            }
        }
    }
    client
}

// ---- the same of every server

#[test]
fn a_server_without_clients_stops_at_once() {
    at_once(KINDS, |kind| {
        let (server, _www) = start(kind, &[], &["--drain", "1h"]);
        server.signal(Signal::TERM);
        assert_eq!(server.stopped(ALL_DONE), "", "{kind}");
    });
}

#[test]
fn an_idle_client_ends_with_the_server() {
    at_once(KINDS, |kind| {
        let (server, _www) = start(kind, &[], &["--drain", "1h"]);
        let mut clients: Vec<_> = (0..3).map(|_| idle(kind, &server)).collect();
        server.signal(Signal::TERM);
        for client in &mut clients {
            assert_eq!(rest(client), b"", "{kind}");
        }
        assert_eq!(server.stopped(ALL_DONE), "", "{kind}");
    });
}

#[test]
fn a_client_that_never_reads_is_cut_off() {
    at_once(KINDS, |kind| {
        let (server, _www) = start(kind, &[], &["--drain", "100ms"]);
        let client = deaf(kind, &server);
        server.signal(Signal::TERM);
        assert_eq!(server.stopped(ONE_CUT), "", "{kind}");
        drop(client);
    });
}

#[test]
fn a_drain_of_nothing_cuts_off_all_that_are_busy() {
    at_once(KINDS, |kind| {
        let (server, _www) = start(kind, &[], &["--drain", "0s"]);
        let client = deaf(kind, &server);
        server.signal(Signal::TERM);
        assert_eq!(server.stopped(ONE_CUT), "", "{kind}");
        drop(client);
        let (server, _www) = start(kind, &[], &["--drain", "0s"]);
        let mut client = idle(kind, &server);
        server.signal(Signal::TERM);
        assert_eq!(rest(&mut client), b"", "{kind}");
        let (code, last, warnings) = server.over();
        assert!([ALL_DONE, ONE_CUT].contains(&&*last), "{kind}: {last}");
        assert_eq!((code, &*warnings), (Some(0), ""), "{kind}");
    });
}

#[test]
fn clients_are_refused_during_the_drain_and_a_second_sigterm_changes_nothing() {
    at_once(KINDS, |kind| {
        let (server, _www) = start(kind, &[], &["--drain", "300ms"]);
        let client = deaf(kind, &server);
        server.signal(Signal::TERM);
        server.refuses();
        server.signal(Signal::TERM);
        server.stopped(ONE_CUT);
        drop(client);
    });
}

#[test]
fn an_interrupt_ends_a_server_at_once_before_and_during_the_drain() {
    at_once(KINDS, |kind| {
        let (server, _www) = start(kind, &[], &["--drain", "1h"]);
        let client = deaf(kind, &server);
        server.signal(Signal::TERM);
        server.refuses();
        server.signal(Signal::INT);
        assert_eq!(server.over().0, Some(130), "{kind}");
        drop(client);
        let (server, _www) = start(kind, &[], &["--drain", "1h"]);
        let _client = idle(kind, &server);
        server.signal(Signal::INT);
        assert_eq!(server.over().0, Some(130), "{kind}");
    });
}

#[test]
fn what_observes_a_server_that_drains_is_complete() {
    at_once(KINDS, |kind| {
        let folder = Folder::new(&format!("drain-{kind}"));
        let [tape, trap, sock] = ["run.tape", "run.trap", "run.sock"].map(|name| folder.path(name));
        let all: [&[&str]; 4] = [
            &["--record", &trap],
            &["--tape", &tape],
            &["--summary", "--exits"],
            &["--monitor", &sock],
        ];
        for options in all {
            let (server, www) = start(kind, options, &["--drain", "1h"]);
            let mut client = idle(kind, &server);
            server.signal(Signal::TERM);
            assert_eq!(rest(&mut client), b"", "{kind}");
            let warnings = server.stopped(ALL_DONE);
            match options[0] {
                "--summary" => {
                    has(&warnings, "shutdown_read");
                    has(&warnings, "live at the end: 0");
                }
                "--record" => {
                    let shown = texts(trapline(&["trace", "show", &trap]).output().unwrap());
                    assert_eq!(shown.0, 0, "{kind}: {}", shown.2);
                    has(&shown.1, "signal SIGTERM");
                    let end = format!("1 {kind:12} exited: done\n");
                    let (_, after) = shown.1.split_once(&end).expect("it ends well");
                    assert!(!after.contains("= ok"), "{kind} goes on: {}", shown.1);
                }
                "--tape" => {
                    let again = texts(trapline(&["replay", "-q", &tape]).output().unwrap());
                    assert_eq!((again.0, &*again.2), (0, ""), "{kind}");
                    assert!(
                        again.1.ends_with(&format!("{ALL_DONE}\n")),
                        "{kind}: {}",
                        again.1
                    );
                }
                _ => assert_eq!(warnings, "", "{kind}"),
            }
            drop(www);
        }
    });
}

#[test]
fn servers_drain_in_the_simulated_world() {
    at_once(KINDS, |kind| {
        let www = Www::new(&format!("drain-virtual-{kind}"));
        let mut args = vec![
            "boot",
            "--virtual",
            "--seed",
            "3",
            "--signal",
            "1s:TERM",
            kind,
        ];
        match kind {
            "httpd" => args.extend(["--root", www.root().leak()]),
            "proxy" => args.extend(["--to", "127.0.0.1:9"]),
            _ => {}
        }
        let (code, out, err) = texts(trapline(&args).output().unwrap());
        assert_eq!((code, &*err), (0, ""), "{kind}");
        assert!(out.ends_with(&format!("{ALL_DONE}\n")), "{kind}: {out}");
    });
}

// ---- all that was read is answered

/// How many bytes the calls of a name returned, as a recording shows it. What a task receives after it
/// has ended its side is dropped.
fn moved(shown: &str, call: &str) -> usize {
    let mut ended = HashSet::new();
    let mut sum = 0;
    for line in shown.lines() {
        let task = line.split_whitespace().nth(1);
        if line.contains("shutdown_write(") {
            ended.insert(task);
        } else if line.contains(call) && !ended.contains(&task) {
            let count = line
                .rsplit_once("= ")
                .and_then(|(_, count)| count.parse().ok());
            sum += count.unwrap_or(0);
        }
    }
    sum
}

/// Sends without a pause until the server ends the connection, and reads as fast. Says when it has
/// received something. Returns what came back.
fn talk_on(mut client: TcpStream, begun: &mpsc::Sender<()>) -> Vec<u8> {
    let mut out = client.try_clone().unwrap();
    let writer = thread::spawn(move || {
        let data = bytes(1 << 20, 5);
        // The end of the connection is an error here.
        for piece in data.chunks(999).cycle() {
            if out.write_all(piece).is_err() {
                break;
            }
        }
    });
    let mut all = Vec::new();
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = client.read(&mut buf) {
        if all.len() < 100_000 && 100_000 <= all.len() + n {
            begun.send(()).unwrap();
        }
        all.extend(&buf[..n]);
    }
    let _ = client.shutdown(Shutdown::Both);
    writer.join().unwrap();
    all
}

#[test]
fn echo_answers_every_byte_that_it_has_read() {
    for round in 0..5 {
        let folder = Folder::new(&format!("drain-bytes-{round}"));
        let trap = folder.path("run.trap");
        let (server, _) = start("echo", &["--record", &trap], &["--drain", "1h"]);
        let clients: Vec<_> = (0..4).map(|_| idle("echo", &server)).collect();
        let (sender, begun) = mpsc::channel();
        let talk = |client| {
            let sender = sender.clone();
            thread::spawn(move || talk_on(client, &sender))
        };
        let busy: Vec<_> = clients.into_iter().map(talk).collect();
        for _ in 0..4 {
            begun.recv_timeout(PATIENCE).unwrap();
        }
        server.signal(Signal::TERM);
        let got = busy.into_iter().map(|busy| {
            let got = busy.join().unwrap();
            let data = bytes(1 << 20, 5);
            let sent = data.chunks(999).flatten().cycle();
            assert!(got.iter().eq(sent.take(got.len())), "it is what was sent");
            got.len() + 5
        });
        let got: usize = got.sum();
        server.stopped(ALL_DONE);
        let (_, shown, _) = texts(trapline(&["trace", "show", &trap]).output().unwrap());
        let read = moved(&shown, "recv(");
        assert_eq!((got, read), (moved(&shown, "send("), got), "{round}");
    }
}

#[test]
fn httpd_finishes_what_a_slow_reader_has_asked_for() {
    let (server, _www) = start("httpd", &[], &["--drain", "1h"]);
    // Two are asked for at once: both have been read.
    let mut slow = server.connect();
    let big = "GET /big HTTP/1.1\r\nHost: x\r\n\r\n";
    slow.write_all(big.repeat(2).as_bytes()).unwrap();
    let mut half = idle("httpd", &server);
    half.write_all(b"GET /page.html HTTP/1.1\r\nHo").unwrap();
    slow.read_exact(&mut [0; 15]).unwrap();
    server.signal(Signal::TERM);
    server.refuses();
    // A request whose head has begun is finished, and is the last.
    half.write_all(b"st: x\r\n\r\n").unwrap();
    let half = String::from_utf8(rest(&mut half)).unwrap();
    assert_eq!(
        (code(&half), header(&half, "Connection")),
        ("200", Some("close"))
    );
    let all = rest(&mut slow);
    let (first, second) = all.split_at(all.len() - BIG);
    assert!(second == bytes(BIG, 0), "the second is whole");
    let at = first
        .windows(4)
        .rposition(|end| end == b"\r\n\r\n")
        .unwrap();
    let (first, head) =
        first[..at].split_at(first.windows(9).rposition(|it| it == b"HTTP/1.1 ").unwrap());
    assert!(first.ends_with(&bytes(BIG, 0)), "the first is whole");
    has(&String::from_utf8_lossy(head), "Connection: close");
    server.stopped(ALL_DONE);
}

#[test]
fn httpd_under_load_finishes_every_answer_that_it_begins() {
    for round in 0..5 {
        let (server, _www) = start("httpd", &[], &["--drain", "1h"]);
        let (sender, begun) = mpsc::channel();
        let load = |n: usize| {
            let (client, sender) = (idle("httpd", &server), sender.clone());
            thread::spawn(move || load(client, n, &sender))
        };
        let clients: Vec<_> = (0..16).map(load).collect();
        for _ in 0..50 * (1 + round) {
            begun.recv_timeout(PATIENCE).unwrap();
        }
        server.signal(Signal::TERM);
        let whole: usize = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum();
        assert!(whole >= 50 * (1 + round));
        server.stopped(ALL_DONE);
    }
}

/// Asks for pages until the server ends the connection or says that it will. Checks that every answer
/// which begins is whole, and returns how many came.
fn load(mut client: TcpStream, n: usize, begun: &mpsc::Sender<()>) -> usize {
    let path = if n.is_multiple_of(4) {
        "/sub/"
    } else {
        "/page.html"
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(1 + n % 3);
    let mut count = 0;
    loop {
        if client.write_all(request.as_bytes()).is_err() {
            return count;
        }
        for _ in 0..1 + n % 3 {
            // Between two answers the end may come.
            let mut first = [0];
            if is_over(client.peek(&mut first)) {
                return count;
            }
            let answer = answer(&mut client);
            assert_eq!(code(&answer), "200");
            count += 1;
            let _ = begun.send(());
            if header(&answer, "Connection") == Some("close") {
                assert_eq!(rest(&mut client), b"");
                return count;
            }
        }
    }
}

#[test]
fn a_proxy_passes_on_what_it_has_read_in_both_directions() {
    // The answer begins when the question has ended.
    let proxy = behind_proxy(&["--drain", "1h"], |mut server| {
        let question = rest(&mut server);
        server.write_all(&question).unwrap();
        server.write_all(&bytes(3_000_000, 1)).unwrap();
    });
    let mut client = proxy.connect();
    client.write_all(&bytes(100, 2)).unwrap();
    let mut other = proxy.connect();
    other.shutdown(Shutdown::Write).unwrap();
    other.read_exact(&mut [0; 100]).unwrap();
    proxy.signal(Signal::TERM);
    proxy.refuses();
    assert!(rest(&mut other) == bytes(3_000_000, 1)[100..]);
    let got = rest(&mut client);
    let (question, answer) = got.split_at(got.len() - 3_000_000);
    assert!(question == bytes(100, 2) || question.is_empty());
    assert!(answer == bytes(3_000_000, 1));
    proxy.stopped(ALL_DONE);
}

#[test]
fn a_chat_that_stops_sends_the_lines_that_are_queued() {
    const LINES: usize = 200;
    let (server, _) = start("chat", &[], &["--drain", "1h"]);
    let mut slow = Talker::narrow(&server, "slow");
    let mut ann = Talker::inside(&server, "ann");
    slow.hears("* ann joins");
    let text = "x".repeat(900);
    for _ in 0..LINES {
        ann.says(&text);
        ann.hears(&format!("ann: {text}"));
    }
    server.signal(Signal::TERM);
    server.refuses();
    for _ in 0..LINES {
        slow.hears(&format!("ann: {text}"));
    }
    let mut last = String::new();
    slow.lines.read_to_string(&mut last).unwrap();
    assert!(["", "* ann leaves\n"].contains(&&*last), "{last}");
    server.stopped(ALL_DONE);
}
