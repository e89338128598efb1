//! `boot --tape` and `replay`: servers under real clients run again without them.

mod as_test;

use std::{
    ffi::OsStr,
    fs,
    io::{self, BufRead, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use socket2::SockRef;
use trapline::record::Recording;

use crate::support::*;

/// A folder of a test's own, that goes with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-{test}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The log of a run, without times: the recorder of the run reads a clock that is not on the tape.
fn log(path: &str) -> Vec<String> {
    let facts = Recording::open(path).unwrap().map(|event| {
        let line = event.unwrap().to_string();
        line.split_once(' ').unwrap().1.to_string()
    });
    facts.filter(|line| !line.starts_with("0 clock")).collect()
}

/// A server whose run is taped and recorded.
struct Taped {
    server: Running,
    addr: SocketAddr,
    folder: Folder,
    /// What it has printed.
    printed: String,
}

impl Taped {
    fn start(test: &str, options: &[&str], program: &[&str]) -> Self {
        let folder = Folder::new(test);
        let files = [folder.path("run.tape"), folder.path("run.trap")];
        let boot = ["boot", "-q", "--tape", &files[0], "--record", &files[1]];
        let server = Running::with_pipes(&[&boot, options, program].concat());
        let mut taped = Self {
            server,
            addr: ([0, 0, 0, 0], 0).into(),
            folder,
            printed: String::new(),
        };
        taped.addr = taped.says(&["127.0.0.1:"]);
        taped
    }

    /// Waits for a line with these words. Answers the first address in it.
    fn says(&mut self, words: &[&str]) -> SocketAddr {
        loop {
            let line = self.server.out_line();
            self.printed += &line;
            if words.iter().all(|word| line.contains(word)) {
                let mut words = line.trim().split([' ', '/', ',']);
                return words
                    .find_map(|word| word.parse().ok())
                    .unwrap_or(self.addr);
            }
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).unwrap();
        let patience = Some(PATIENCE);
        client.set_read_timeout(patience).unwrap();
        client
    }

    /// Interrupts the server, and runs it again from its tape. Both must tell the same.
    fn end(self) {
        self.ends(true);
    }

    /// The same. The failures of its tasks count, or the program has waited for them.
    fn ends(mut self, failures_count: bool) {
        self.server.signal(Signal::INT);
        let mut out = self.server.out.take().unwrap();
        out.read_to_string(&mut self.printed).unwrap();
        let (code, warnings) = self.server.end();
        assert_eq!(code, Some(130), "{warnings}");
        let [tape, first, again] =
            ["run.tape", "run.trap", "again.trap"].map(|name| self.folder.path(name));
        let (code, out, err) = run(&["-q", "replay", "-q", "--record", &again, &tape]);
        // The signal is not on the tape: the failures decide.
        let failed = i32::from(failures_count && !warnings.is_empty());
        assert_eq!((code, out, err), (failed, self.printed, warnings));
        let (first, again) = (log(&first), log(&again));
        let differs = first
            .iter()
            .zip(&again)
            .find(|(first, again)| first != again);
        assert_eq!(differs, None);
        assert_eq!(first.len(), again.len());
    }
}

fn send_and_read(client: &mut TcpStream, text: &[u8]) {
    client.write_all(text).unwrap();
    client.read_exact(&mut vec![0; text.len()]).unwrap();
}

fn reset(client: TcpStream) {
    let socket = SockRef::from(&client);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
}

fn rest(mut client: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

// ---- the servers

/// How many runs of a server are taped: no two are alike.
const RUNS: usize = 10;

#[test]
fn echo_runs_again_with_resets_half_closes_and_an_interrupt() {
    for _ in 0..RUNS {
        ask_echo(12, 6);
    }
}

/// Tapes an echo server with so many clients, each of which makes so many requests.
fn ask_echo(clients: usize, rounds: usize) {
    let mut server = Taped::start("echo", &[], &["echo", "--addr", "127.0.0.1:0"]);
    let clients: Vec<_> = (0..clients)
        .map(|n| {
            let mut client = server.connect();
            thread::spawn(move || {
                for round in 0..rounds {
                    send_and_read(&mut client, &vec![b'a' + n as u8 % 26; 1 + 61 * n * round]);
                }
                match n % 3 {
                    0 => reset(client),
                    1 => {
                        client.shutdown(Shutdown::Write).unwrap();
                        assert_eq!(rest(client), "");
                    }
                    _ => drop(client),
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    // One is there at the end.
    let mut last = server.connect();
    send_and_read(&mut last, b"hello");
    server.says(&["Client connected", &last.local_addr().unwrap().to_string()]);
    server.end();
}

#[test]
fn httpd_runs_again_with_its_files() {
    let files = Folder::new("httpd-files");
    fs::write(files.path("page.html"), "<p>page").unwrap();
    fs::write(files.path("large"), vec![7; 3_000_000]).unwrap();
    let root = files.path("");
    for _ in 0..RUNS {
        ask_httpd(&root);
    }
}

/// Tapes a web server for this folder.
fn ask_httpd(root: &str) {
    let server = Taped::start(
        "httpd",
        &[],
        &["httpd", "--addr", "127.0.0.1:0", "--root", root],
    );
    let ask = |path: &str, more: &str| {
        let mut client = server.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n{more}\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    };
    assert!(rest(ask("/page.html", "")).ends_with("<p>page"));
    assert!(rest(ask("/none", "")).starts_with("HTTP/1.1 404"));
    assert!(rest(ask("/large", "Range: bytes=5-9\r\n")).starts_with("HTTP/1.1 206"));
    assert!(rest(ask("/large", "")).len() > 3_000_000);
    assert!(rest(ask("/", "")).contains("page.html"));
    reset(ask("/large", ""));
    let half = server.connect();
    half.shutdown(Shutdown::Write).unwrap();
    rest(half);
    server.end();
}

#[test]
fn proxy_runs_again_without_the_server_behind_it() {
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = behind.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in behind.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut reader = stream.try_clone().unwrap();
                let _ = io::copy(&mut reader, &mut stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    for _ in 0..RUNS {
        ask_proxy(&to);
    }
}

/// Tapes a proxy to this address.
fn ask_proxy(to: &str) {
    let args = ["proxy", "--listen", "127.0.0.1:0", "--to", to];
    let mut server = Taped::start("proxy", &[], &args);
    for n in 0..6 {
        let mut client = server.connect();
        send_and_read(&mut client, &vec![b'x'; 1 + 5000 * n]);
        if n % 2 == 0 {
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rest(client), "");
            server.says(&["ended"]);
        } else {
            reset(client);
            server.says(&["Connection of"]);
        }
    }
    server.ends(false);
}

#[test]
fn chat_runs_again_with_all_that_was_said() {
    for _ in 0..RUNS {
        talk();
    }
}

/// Tapes a chat of two.
fn talk() {
    let server = Taped::start("chat", &[], &["chat", "--addr", "127.0.0.1:0"]);
    let join = |name: &str| {
        let mut client = server.connect();
        client.write_all(format!("{name}\n").as_bytes()).unwrap();
        let mut lines = io::BufReader::new(client.try_clone().unwrap()).lines();
        while !lines.next().unwrap().unwrap().contains("joins") {}
        (client, lines)
    };
    let (mut anna, mut heard) = join("anna");
    let (mut bert, _) = join("bert");
    for n in 0..50 {
        bert.write_all(format!("line {n}\n").as_bytes()).unwrap();
        anna.write_all(b"/who\n").unwrap();
    }
    while !heard.next().unwrap().unwrap().contains("line 49") {}
    reset(bert);
    while !heard.next().unwrap().unwrap().contains("bert leaves") {}
    anna.write_all(b"/quit\n").unwrap();
    assert!(rest(anna).is_empty() || heard.count() < 200);
    server.end();
}

#[test]
fn a_run_with_a_policy_injections_and_blocking_work_runs_again() {
    let options = [
        "--policy",
        "random",
        "--inject",
        "send:error=BrokenPipe:when=3+7",
    ];
    let mut server = Taped::start("options", &options, &["echo", "--addr", "127.0.0.1:0"]);
    for _ in 0..10 {
        let mut client = server.connect();
        let _ = client.write_all(b"hello");
        let _ = client.read(&mut [0; 5]);
        server.says(&["Client connected"]);
    }
    server.end();
}

#[test]
fn threads_run_again_at_full_speed() {
    let folder = Folder::new("threads");
    let tape = folder.path("run.tape");
    let (code, out, _) = run(&[
        "boot",
        "--tape",
        &tape,
        "--with",
        "fake-io --delay 100ms",
        "promise",
    ]);
    assert_eq!(code, 0);
    let begin = Instant::now();
    let (code, again, err) = run(&["replay", &tape]);
    assert_eq!((code, &*again, &*err), (0, &*out, ""));
    // The work of fake-io takes a second, on the tape.
    assert!(begin.elapsed() < Duration::from_secs(60));
}

// ---- tapes

#[test]
fn a_request_takes_at_most_twelve_bytes_beside_its_payload() {
    const PAYLOAD: usize = 64;
    const CLIENTS: usize = 10;
    let size = |requests: usize| {
        let taped = Taped::start("size", &[], &["echo", "--addr", "127.0.0.1:0"]);
        let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| taped.connect()).collect();
        thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    for _ in 0..requests / CLIENTS {
                        send_and_read(&mut client, &[b'x'; PAYLOAD]);
                    }
                });
            }
        });
        taped.server.signal(Signal::INT);
        assert_eq!(taped.server.end().0, Some(130));
        let tape = taped.folder.path("run.tape");
        fs::metadata(tape).unwrap().len() as usize
    };
    let (few, many) = (size(200), size(1200));
    let overhead = (many - few) as f64 / 1000.0 - PAYLOAD as f64;
    assert!(overhead <= 12.0, "{overhead} bytes a request");
}

#[test]
fn what_a_killed_process_leaves_runs_again() {
    let mut server = Taped::start("killed", &[], &["echo", "--addr", "127.0.0.1:0"]);
    let mut client = server.connect();
    send_and_read(&mut client, b"hello");
    drop(client);
    server.says(&["Client closed"]);
    let tape = server.folder.path("run.tape");
    // The run goes on meanwhile.
    let replayed = loop {
        let (code, out, err) = run(&["replay", &tape]);
        assert_eq!(code, 1, "{err}");
        has(&err, "its process was killed, or still runs");
        assert!(server.printed.starts_with(&out));
        if out == server.printed {
            break out;
        }
    };
    server.server.signal(Signal::KILL);
    assert_eq!(server.server.end().0, None);
    let (code, out, err) = run(&["replay", &tape]);
    assert_eq!((code, out), (1, replayed));
    assert!(err.contains("the tape ends at byte"), "{err}");
}

#[test]
fn a_tape_that_reaches_its_limit_says_so() {
    let folder = Folder::new("limit");
    let tape = folder.path("run.tape");
    let boot = ["boot", "--tape", &tape, "--tape-max", "1k", "--seed", "1"];
    let program = ["alive", "--count", "1000", "--every", "1us"];
    let (code, out, err) = run(&[&boot[..], &program].concat());
    assert_eq!(code, 0);
    has(
        &err,
        "has reached its limit: the end of the run is not on it",
    );
    assert!(fs::metadata(&tape).unwrap().len() <= 1024);
    let (code, again, err) = run(&["replay", &tape]);
    assert_eq!(code, 0);
    assert!(out.starts_with(&again));
    assert!(err.contains("it had reached its limit"), "{err}");
}

#[test]
fn a_replay_of_a_part_of_a_run_fails_as_the_run_did() {
    let folder = Folder::new("part");
    let tape = folder.path("run.tape");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = format!("http-get http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let boot = ["boot", "--tape", &tape, "--with", &refused, "alive"];
    let server = Running::with_pipes(&boot);
    let (code, err) = eventually("a failed task on the tape", || {
        let (code, _, err) = run(&["replay", &tape]);
        err.contains(" failed: ").then_some((code, err))
    });
    server.signal(Signal::KILL);
    assert_eq!(server.end().0, None);
    assert!(err.contains("or still runs"), "{err}");
    assert_eq!(code, 1, "{err}");
}

#[test]
fn a_changed_program_is_told_at_the_first_difference() {
    let folder = Folder::new("changed");
    let tape = folder.path("run.tape");
    let (code, ..) = run(&[
        "boot", "--tape", &tape, "alive", "--count", "3", "--every", "1ms",
    ]);
    assert_eq!(code, 0);
    // The same as a changed binary would do: it goes on for longer.
    let mut bytes = fs::read(&tape).unwrap();
    let count = bytes.windows(9).position(|word| word == b"--count\x013");
    bytes[count.unwrap() + 8] = b'9';
    let len = u32::from_le_bytes(bytes[10..14].try_into().unwrap()) as usize;
    let sum = crc32fast::hash(&bytes[18..18 + len]);
    bytes[14..18].copy_from_slice(&sum.to_le_bytes());
    fs::write(&tape, bytes).unwrap();
    let (code, _, err) = run(&["replay", &tape]);
    assert_eq!(code, 1);
    assert!(err.contains("the replay leaves its tape at byte"), "{err}");
    assert!(err.contains("task 1 is \"alive\""), "{err}");
    assert!(err.contains("use what a tape does not hold"), "{err}");
}

#[test]
fn what_is_no_tape_is_refused_with_the_reason() {
    let folder = Folder::new("refused");
    let file = folder.path("file");
    let refused = |expected: &str| {
        let (code, out, err) = run(&["replay", &file]);
        assert_eq!((code, &*out), (1, ""));
        assert!(err.contains(&file) && err.contains(expected), "{err}");
    };
    refused("No such file or directory (os error 2) (`boot --tape FILE PROGRAM` makes one)");
    fs::write(&file, "GIF89a").unwrap();
    refused("this is no tape of trapline");
    run(&["boot", "-q", "--virtual", "--record", &file, "parts"]);
    refused("it does not begin like one (it is a recording, for `trace show`)");
    fs::write(&file, b"\x89TTAPEN\n\x09\0").unwrap();
    refused("the tape has version 9 of the format");
    let (code, _, err) = run(&["replay", "--record", &file, &file]);
    assert_eq!(code, 2);
    assert!(err.contains("--record would replace the tape"), "{err}");
    let link = folder.path("link");
    fs::hard_link(&file, &link).unwrap();
    let (code, _, err) = run(&["replay", "--record", &link, &file]);
    assert_eq!(code, 2);
    assert!(err.contains("--record would replace the tape"), "{err}");
    let before = fs::read(&file).unwrap();
    let both = ["boot", "--tape", &file, "--record", &link, "wait"];
    let (code, _, err) = run(&both);
    assert_eq!(code, 2);
    assert!(err.contains("--record would replace the tape"), "{err}");
    assert_eq!(fs::read(&file).unwrap(), before);
    let (code, _, err) = run(&["boot", "--tape", "/dev/null", "alive"]);
    assert_eq!(code, 1);
    has(&err, "cannot tape to /dev/null: a tape is a file");
    let root = OsStr::from_bytes(b"no\xfftext");
    let mut command = trapline(&["boot", "--tape", &file, "httpd", "--root"]);
    let (code, _, err) = texts(command.arg(root).output().unwrap());
    assert_eq!(code, 2);
    let expected = r#"--tape keeps the command line as UTF-8, which "no\xFFtext" is not"#;
    assert!(err.contains(expected), "{err}");
    // The name of the tape itself is not kept for a replay.
    let mut command = trapline(&["boot", "-q", "--tape"]);
    let named = folder.0.join(root);
    let (code, _, err) = texts(command.arg(&named).arg("parts").output().unwrap());
    assert_eq!((code, fs::exists(&named).unwrap()), (0, true), "{err}");
    let (code, _, err) = run(&["boot", "--virtual", "--tape", &file, "alive"]);
    assert_eq!(code, 2);
    assert!(err.contains("a virtual run needs no tape"), "{err}");
    let (code, _, err) = run(&["boot", "--tape", &file, "--tape-max", "9x", "alive"]);
    assert_eq!(code, 2);
    assert!(err.contains("such as 64M"), "{err}");
}

/// Answers one request of HTTP at the address that it returns.
fn serve_once() -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        assert!(client.read(&mut [0; 4096]).unwrap() > 0);
        client
            .write_all(b"HTTP/1.1 200 OK\r\n\r\nthe body\n")
            .unwrap();
    });
    (addr, server)
}

#[test]
fn a_replay_writes_what_was_sent_to_standard_output() {
    let folder = Folder::new("stdout");
    let tape = folder.path("run.tape");
    let (addr, server) = serve_once();
    let url = format!("http://{addr}/");
    let boot = ["boot", "-q", "--seed", "1", "--tape", &tape];
    let done = (0, "the body\n".to_string(), String::new());
    assert_eq!(run(&[&boot[..], &["http-get", &url]].concat()), done);
    server.join().unwrap();
    assert_eq!(run(&["replay", &tape]), done);
}

#[test]
fn a_program_that_does_io_of_its_own_is_warned_of_and_does_not_hang() {
    let server = Taped::start("own", &[], &["echo", "--ready", "--addr", "127.0.0.1:0"]);
    let mut client = server.connect();
    send_and_read(&mut client, b"hello");
    drop(client);
    let Taped { server, folder, .. } = server;
    server.signal(Signal::INT);
    assert_eq!(server.end().0, Some(130));
    let tape = folder.path("run.tape");
    let (code, _, err) = run(&["replay", &tape]);
    assert_eq!(code, 1);
    assert!(err.contains("happens again now"), "{err}");
    assert!(err.contains("the replay leaves its tape"), "{err}");

    // It attaches two values.
    let kills = ["--seed", "1", "--inject", "read_wait:kill"];
    let ready = ["echo", "--ready", "--addr", "127.0.0.1:0"];
    let boot = ["boot", "--tape", &tape];
    let (_, _, err) = run(&[&boot[..], &kills, &ready].concat());
    let warned = err.matches("a task attaches a descriptor").count();
    assert_eq!(warned, 1, "{err}");
    assert!(err.contains("which a replay does again"), "{err}");
}

// ---- watching a replay

#[test]
fn a_replay_can_be_watched_in_every_way() {
    let folder = Folder::new("watched");
    let tape = folder.path("run.tape");
    let seed = ["--seed", "5"];
    let boot = [&["boot", "--tape", &tape], &seed[..], &["tids"]].concat();
    let (code, out, _) = run(&boot);
    assert_eq!(code, 0);
    let replay = |options: &[&str]| {
        let (code, again, err) = run(&[&["replay"], options, &[&*tape]].concat());
        assert_eq!((code, &*again), (0, &*out));
        err
    };
    assert!(replay(&["--trace"]).contains("spawned"));
    let only = replay(&["--task", "2"]);
    assert!(only.contains("get_tid()"), "{only}");
    let tid = |line: &str| line.split_whitespace().nth(1).map(str::to_string);
    assert!(
        only.lines().all(|line| tid(line).as_deref() == Some("2")),
        "{only}"
    );
    assert!(!only.contains("there was no task"), "{only}");
    let none = replay(&["--task", "77"]);
    begins(&none, "warning: there was no task 77: ");
    assert!(replay(&["--summary"]).contains("traps"));
    let recording = folder.path("again.trap");
    assert!(replay(&["--record", &recording]).contains("recorded to"));
    let (code, shown, _) = run(&["trace", "show", &recording]);
    assert!(code == 0 && shown.contains("spawned"));
    let recorded = Recording::open(&recording).unwrap();
    assert_eq!(recorded.header().command[1..3], ["boot", "--tape"]);
}

#[test]
fn a_replay_can_take_as_long_as_its_run() {
    let folder = Folder::new("at-speed");
    let tape = folder.path("run.tape");
    let program = ["alive", "--count", "3", "--every", "50ms"];
    let (code, out, _) = run(&[&["boot", "--tape", &tape], &program[..]].concat());
    assert_eq!(code, 0);
    let begin = Instant::now();
    assert_eq!(
        run(&["replay", "--at-speed", &tape]),
        (0, out, String::new())
    );
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[test]
fn an_interrupt_ends_a_replay() {
    let folder = Folder::new("interrupted");
    let tape = folder.path("run.tape");
    let boot = ["boot", "-q", "--tape", &tape, "alive", "--every", "600ms"];
    let mut server = Running::with_stdout(&boot);
    server.out_line();
    server.out_line();
    server.signal(Signal::INT);
    server.end();
    let mut replay = Running::with_stdout(&["replay", "--at-speed", &tape]);
    replay.out_line();
    replay.signal(Signal::INT);
    assert_eq!(replay.end().0, Some(130));
}
