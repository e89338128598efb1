//! The servers among the programs, as their clients meet them: the built binary, and real sockets.

use std::{
    collections::HashSet,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    iter,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use socket2::{Domain, SockRef, Socket, Type};

use crate::support::{PATIENCE, eventually, trapline};

// ---- tools

/// A server that runs until it is dropped.
struct Server {
    child: Child,
    addr: SocketAddr,
    /// What it prints after its first line.
    lines: Receiver<String>,
    /// What it warns of, for the case that the test fails.
    warnings: Option<JoinHandle<String>>,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        Self::run(trapline(&[&["boot", "-q"], args].concat()))
    }

    /// Starts it with so many descriptors.
    fn with_descriptors(limit: u32, args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" boot -q \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_trapline")]);
        command.args(args);
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let err = child.stderr.take().expect("it is piped");
        let warnings = thread::spawn(|| io::read_to_string(err).unwrap_or_default());
        let mut out = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let addr = out.by_ref().map_while(Result::ok).find_map(|line| {
            let mut words = line.split([' ', '/', ',']);
            words.find_map(|word| word.parse().ok())
        });
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            out.map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            child,
            addr: addr.expect("it says where it listens"),
            lines,
            warnings: Some(warnings),
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).expect("it accepts");
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// The answer to what is sent on a connection of its own, which the server must end.
    fn ask(&self, request: &str) -> String {
        let mut client = self.connect();
        client.write_all(request.as_bytes()).unwrap();
        String::from_utf8_lossy(&rest(&mut client)).into_owned()
    }

    /// Waits for a line that contains this.
    fn says(&self, text: &str) {
        let line = || self.lines.recv_timeout(PATIENCE);
        while !line().expect("it goes on").contains(text) {}
    }

    /// Ends it as a user does, and checks that it was alive and well.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(130));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails if the server has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let warnings = self
            .warnings
            .take()
            .and_then(|warnings| warnings.join().ok());
        if thread::panicking() {
            eprintln!("{}", warnings.unwrap_or_default());
        }
    }
}

fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("it ends in order");
    all
}

/// Ends a connection as a crash would.
fn reset(client: TcpStream) {
    SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
}

/// Whether the other end has ended the connection, one way or the other.
fn is_over(result: io::Result<usize>) -> bool {
    match result {
        Ok(n) => n == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    // No buffer is that long, so bytes that are lost or come twice are noticed.
    const PERIOD: usize = 65_537;
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    let period: Vec<u8> = (seed..seed + PERIOD.min(len)).map(byte).collect();
    let mut all = period.repeat(len.div_ceil(PERIOD));
    all.truncate(len);
    all
}

fn allow_descriptors(n: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < n) {
        let maximum = limit.maximum;
        let current = Some(maximum.map_or(n, |maximum| maximum.min(n)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("it may be raised");
    }
}

// ---- httpd

/// A directory to serve, removed with this.
struct Www(PathBuf);

const BIG: usize = 20_000_000;

impl Www {
    fn new(test: &str) -> Self {
        let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = fs::remove_dir_all(&top);
        let root = top.join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::create_dir(root.join("list")).unwrap();
        fs::write(top.join("secret"), "secret").unwrap();
        for (path, text) in [
            ("page.html", "<p>page"),
            ("sub/index.html", "<p>index"),
            ("list/a b&<c>", "odd"),
        ] {
            fs::write(root.join(path), text).unwrap();
        }
        fs::write(root.join("big"), bytes(BIG, 0)).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("../secret", root.join("leak.txt")).unwrap();
        symlink("page.html", root.join("link")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let made = Command::new("mkfifo").arg(root.join("pipe")).status();
        assert!(made.unwrap().success());
        Self(top)
    }

    fn serve(&self, args: &[&str]) -> Server {
        let root = self.0.join("root");
        let own = [
            "httpd",
            "--addr",
            "127.0.0.1:0",
            "--root",
            root.to_str().unwrap(),
        ];
        Server::start(&[&own, args].concat())
    }
}

impl Drop for Www {
    fn drop(&mut self) {
        // What is left is removed by the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

/// An answer without the lines that depend on the time.
fn timeless(answer: &[u8]) -> Vec<u8> {
    let mut rest = answer;
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, left) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
        rest = left;
        if !line.starts_with(b"Date: ") && !line.starts_with(b"Last-Modified: ") {
            kept.extend(line);
        }
    }
    kept
}

/// The value of a header of an answer.
fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = answer.split("\r\n").take_while(|line| !line.is_empty());
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The next answer on a connection, which goes on.
fn answer(client: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head has an end");
        answer.extend(byte);
    }
    let head = String::from_utf8(answer).expect("a head is text");
    let len = header(&head, "Content-Length").expect("it has a length");
    let mut body = vec![0; len.parse().expect("it is a number")];
    client.read_exact(&mut body).expect("a body has an end");
    head + &String::from_utf8_lossy(&body)
}

/// What an answer has behind its head.
fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn httpd_serves_files_and_directories() {
    let www = Www::new("serves");
    let server = www.serve(&[]);
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Type: text/html; charset=utf-8\r\n\
                Accept-Ranges: bytes\r\nConnection: close\r\n\r\n";
    let ask = |request: &str| {
        let answer = timeless(server.ask(request).as_bytes());
        String::from_utf8_lossy(&answer).into_owned()
    };
    for path in [
        "/page.html",
        "/page.html?x=..",
        "//./page.html",
        "/p%61ge.html",
        "http://y/page.html",
        "HTTP://y/page.html",
        "hTTpS://y/page.html",
    ] {
        assert_eq!(ask(&get(path)), format!("{page}<p>page"), "{path}");
    }
    assert_eq!(ask(&get("/page.html").replace("GET", "HEAD")), page);
    let link = server.ask(&get("/link"));
    assert!(link.ends_with("\r\n\r\n<p>page"), "{link}");
    assert!(link.contains("application/octet-stream"), "{link}");
    assert!(server.ask(&get("/sub/")).ends_with("\r\n\r\n<p>index"));
    for path in ["/sub", "//sub", "/./sub"] {
        let moved = server.ask(&get(path));
        assert_eq!(code(&moved), "301");
        assert!(moved.contains("\r\nLocation: /sub/\r\n"), "{moved}");
    }
    let list = server.ask(&get("/list/"));
    assert!(
        list.ends_with(
            "<ul>\n<li><a href=\"../\">../</a>\n\
             <li><a href=\"a%20b%26%3Cc%3E\">a b&amp;&lt;c&gt;</a>\n</ul>\n"
        ),
        "{list}"
    );
    assert!(
        server
            .ask(&get("/list/a%20b%26%3Cc%3E"))
            .ends_with("\r\n\r\nodd")
    );
    let big = server.ask(&get("/big").replace("GET", "HEAD"));
    assert!(big.contains(&format!("\r\nContent-Length: {BIG}\r\n")) && big.ends_with("\r\n\r\n"));
    server.end();
}

#[test]
fn httpd_lets_nobody_out_of_its_root() {
    let www = Www::new("root");
    let server = www.serve(&[]);
    for (path, expected) in [
        ("/../secret", "403"),
        ("/sub/../../secret", "403"),
        ("/%2e%2e/secret", "403"),
        ("/.%2E/secret", "403"),
        ("/..%2fsecret", "403"),
        ("/sub/%2e%2e%2f%2e%2e%2fsecret", "403"),
        ("http://x/../secret", "403"),
        ("/leak.txt", "403"),
        ("/up/secret", "403"),
        ("/up/", "403"),
        ("/pipe", "403"),
        ("/loop", "404"),
        ("/..\\secret", "404"),
        ("/%252e%252e/secret", "404"),
        ("/page.html/", "404"),
        ("/page.html/x", "404"),
        ("/none", "404"),
        ("/page.html%00", "400"),
        ("/%", "400"),
        ("/%2", "400"),
        ("/%gg", "400"),
        ("secret", "400"),
        ("../secret", "400"),
    ] {
        let answer = server.ask(&get(path));
        assert_eq!(code(&answer), expected, "{path}: {answer}");
    }
    assert_eq!(
        code(&server.ask(&get(&format!("/{}", "x".repeat(300))))),
        "404"
    );
    server.end();
}

#[test]
fn httpd_refuses_what_it_cannot_understand() {
    let www = Www::new("refuses");
    let server = www.serve(&[]);
    let long = "x".repeat(9000);
    let many = "A: b\r\n".repeat(100);
    for (request, expected) in [
        ("\r\n\r\nGET /page.html HTTP/1.0\r\n\r\n", "200"),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        ("OPTIONS * HTTP/1.0\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "400",
        ),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n",
            "400",
        ),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "411",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n",
            "413",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
            "405",
        ),
        // What cannot become a request is refused before it has an end.
        ("\x16\x03\x01\x02\0\x01\0\x01", "400"),
        ("SSH-2.0-OpenSSH_9.2\r", "400"),
        ("GET / FTP", "505"),
        ("GET / HTTP/1.1\r\nHost: x\r\n\0", "400"),
        ("PRI * HTTP/2.0\r\n\r\n", "505"),
        ("\x16\x03\x01\n", "400"),
        (&format!("GET /{long} HTTP/1.1\r\n"), "414"),
        (&format!("GET / HTTP/1.1\r\nA: {long}\r\n"), "431"),
        (&format!("GET / HTTP/1.1\r\n{many}\r\n"), "431"),
    ] {
        let answer = server.ask(request);
        assert_eq!(code(&answer), expected, "{request:?}: {answer}");
    }
    server.end();
}

#[test]
fn httpd_answers_requests_that_were_sent_ahead() {
    let www = Www::new("ahead");
    let server = www.serve(&[]);
    let mut requests = String::new();
    let mut expected = Vec::new();
    for n in 0..500 {
        // What is in a body is no request.
        let smuggled = "GET /sub/ HTTP/1.1\r\nHost: x\r\n\r\n";
        let len = smuggled.len();
        let (path, body) = if n % 2 == 0 {
            ("page", "page")
        } else {
            ("sub/index", "index")
        };
        requests += &format!(
            "GET /{path}.html HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{smuggled}"
        );
        expected.extend(
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\
                 Content-Type: text/html; charset=utf-8\r\nAccept-Ranges: bytes\r\n\r\n<p>{body}",
                body.len() + 3
            )
            .bytes(),
        );
    }
    requests += &get("/big");
    let mut client = server.connect();
    let mut sender = client.try_clone().unwrap();
    let sender = thread::spawn(move || {
        // Pieces of every length end anywhere.
        let mut rest = requests.as_bytes();
        for n in (1..).map(|n| n * 7 % 997) {
            let (piece, left) = rest.split_at(n.min(rest.len()));
            sender.write_all(piece).unwrap();
            rest = left;
            if rest.is_empty() {
                break;
            }
        }
    });
    expected.extend(
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\
             Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n\
             Connection: close\r\n\r\n"
        )
        .bytes(),
    );
    let answers = rest(&mut client);
    let (answers, big) = answers.split_at(answers.len() - BIG);
    assert!(timeless(answers) == expected && big == bytes(BIG, 0));
    sender.join().unwrap();
    // HTTP/1.0 ends a connection unless it is told not to.
    let old =
        "GET /page.html HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /page.html HTTP/1.0\r\n\r\n";
    let answers = server.ask(old);
    assert_eq!(answers.matches("<p>page").count(), 2, "{answers}");
    assert!(
        answers.contains("\r\nConnection: keep-alive\r\n"),
        "{answers}"
    );
    server.end();
}

#[test]
fn httpd_sends_parts_of_files_and_nothing_that_the_client_has() {
    let www = Www::new("parts");
    let server = www.serve(&[]);
    let ask = |path: &str, headers: &str| {
        let end = "Connection: close\r\n";
        server.ask(&get(path).replace(end, &format!("{headers}{end}")))
    };
    let long = bytes(BIG, 0);
    let last = &long[BIG - 3..];
    for (path, range, expected, part, text) in [
        ("/page.html", "bytes=0-2", "206", "bytes 0-2/7", &b"<p>"[..]),
        ("/page.html", "Bytes=3-", "206", "bytes 3-6/7", b"page"),
        ("/page.html", "bytes=-2", "206", "bytes 5-6/7", b"ge"),
        ("/page.html", "bytes=-99", "206", "bytes 0-6/7", b"<p>page"),
        (
            "/page.html",
            "bytes=5-99999999999999999999",
            "206",
            "bytes 5-6/7",
            b"ge",
        ),
        (
            "/page.html",
            "bytes=7-",
            "416",
            "bytes */7",
            b"416 Range Not Satisfiable\n",
        ),
        (
            "/page.html",
            "bytes=-0",
            "416",
            "bytes */7",
            b"416 Range Not Satisfiable\n",
        ),
        ("/page.html", "bytes=2-1", "200", "", b"<p>page"),
        ("/page.html", "bytes=0-1,3-4", "200", "", b"<p>page"),
        ("/page.html", "bytes=+1-2", "200", "", b"<p>page"),
        ("/page.html", "lines=1-2", "200", "", b"<p>page"),
        ("/list/", "bytes=0-1", "200", "", b""),
        (
            "/big",
            "bytes=19999997-",
            "206",
            "bytes 19999997-19999999/20000000",
            last,
        ),
        (
            "/big",
            "bytes=1048570-1048580",
            "206",
            "bytes 1048570-1048580/20000000",
            &long[1_048_570..=1_048_580],
        ),
    ] {
        let mut client = server.connect();
        let request = get(path).replace("Host", &format!("Range: {range}\r\nHost"));
        client.write_all(request.as_bytes()).unwrap();
        let answer = rest(&mut client);
        let head = String::from_utf8_lossy(&answer);
        assert_eq!(code(&head), expected, "{path} {range}");
        assert_eq!(header(&head, "Content-Range").unwrap_or_default(), part);
        assert!(answer.ends_with(text), "{path} {range}: {head}");
        if expected != "200" {
            let len = text.len().to_string();
            assert_eq!(header(&head, "Content-Length"), Some(&*len));
        }
    }
    for path in ["/page.html", "/big"] {
        let about = server.ask(&get(path).replace("GET", "HEAD"));
        let modified = header(&about, "Last-Modified").expect("it has a time");
        let date = header(&about, "Date").expect("each answer has it");
        assert!(
            modified.ends_with(" GMT") && date.ends_with(" GMT"),
            "{about}"
        );
        assert_eq!(header(&about, "Accept-Ranges"), Some("bytes"));
        let old = "Sunday, 06-Nov-94 08:49:37 GMT";
        for (headers, expected) in [
            (format!("If-Modified-Since: {modified}\r\n"), "304"),
            (
                format!("If-Modified-Since: {date}\r\nRange: bytes=0-1\r\n"),
                "304",
            ),
            (format!("If-Modified-Since: {old}\r\n"), "200"),
            ("If-Modified-Since: yesterday\r\n".into(), "200"),
            (
                format!("If-Modified-Since: {date}\r\nIf-None-Match: \"x\"\r\n"),
                "200",
            ),
            (
                format!("If-Range: {modified}\r\nRange: bytes=0-1\r\n"),
                "206",
            ),
            (format!("If-Range: {old}\r\nRange: bytes=0-1\r\n"), "200"),
            ("If-Range: \"x\"\r\nRange: bytes=0-1\r\n".into(), "200"),
        ] {
            let answer = ask(path, &headers);
            assert_eq!(code(&answer), expected, "{path} {headers}");
            assert_eq!(
                body(&answer).is_empty(),
                expected == "304",
                "{path} {headers}"
            );
        }
    }
    assert_eq!(header(&server.ask(&get("/list/")), "Last-Modified"), None);
    for path in ["/none", "/sub"] {
        assert!(header(&server.ask(&get(path)), "Date").is_some(), "{path}");
    }
    server.end();
}

#[test]
fn httpd_serves_files_of_any_age() {
    let www = Www::new("age");
    let path = www.0.join("root/page.html");
    let server = www.serve(&[]);
    // Each by another path, since answers are kept for a second.
    for (seconds, path_of_it, expected) in [
        (
            -5_000_000_000,
            "/page.html",
            Some("Thu, 01 Jan 1970 00:00:00 GMT"),
        ),
        (
            1_000_000_000,
            "//page.html",
            Some("Sun, 09 Sep 2001 01:46:40 GMT"),
        ),
        // HTTP has no words for the future.
        (100_000_000_000, "/./page.html", None),
    ] {
        let time = rustix::fs::Timespec {
            tv_sec: seconds,
            tv_nsec: 5,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
        let answer = server.ask(&get(path_of_it));
        assert_eq!(code(&answer), "200");
        let modified = header(&answer, "Last-Modified").expect("it has a time");
        let date = header(&answer, "Date").expect("it has a date");
        assert_eq!(modified, expected.unwrap_or(date));
    }
    server.end();
}

#[test]
fn httpd_streams_long_lists() {
    const ENTRIES: usize = 3000;
    let www = Www::new("long-list");
    let root = www.0.join("root/list");
    for n in 0..ENTRIES {
        fs::write(root.join(format!("{n:04}-{}", "x".repeat(100))), "").unwrap();
    }
    fs::create_dir(root.join("directory")).unwrap();
    let server = www.serve(&[]);
    let check = |list: &str| {
        assert_eq!(
            list.matches("<li><a href=").count(),
            ENTRIES + 3,
            "and .., odd, directory"
        );
        let names: HashSet<_> = list.split("<li><a href=\"").skip(1).collect();
        assert_eq!(names.len(), ENTRIES + 3);
        assert!(list.contains("<a href=\"directory/\">directory/</a>"));
        assert!(list.starts_with("<!DOCTYPE html>") && list.ends_with("</ul>\n"));
    };
    let answer = server.ask(&get("/list/"));
    assert_eq!(header(&answer, "Transfer-Encoding"), Some("chunked"));
    assert_eq!(header(&answer, "Content-Length"), None);
    let (mut left, mut list, mut chunks) = (body(&answer), String::new(), 0);
    loop {
        let (len, rest) = left.split_once("\r\n").expect("a chunk has a length");
        let len = usize::from_str_radix(len, 16).expect("it is a number");
        list += &rest[..len];
        left = rest[len..]
            .strip_prefix("\r\n")
            .expect("a chunk has an end");
        if len == 0 {
            break;
        }
        chunks += 1;
    }
    assert_eq!(left, "");
    assert!(chunks > 10, "{chunks}");
    check(&list);
    let old = server.ask("GET /list/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(header(&old, "Transfer-Encoding"), None);
    assert_eq!(header(&old, "Connection"), Some("close"));
    check(body(&old));
    let head = server.ask(&get("/list/").replace("GET", "HEAD"));
    assert_eq!(body(&head), "");
    // The connection goes on behind it.
    let both = get("/list/").replace("Connection: close\r\n", "") + &get("/page.html");
    let answers = server.ask(&both);
    let (list, page) = answers.split_once("\r\n0\r\n\r\n").expect("the list ends");
    assert!(
        list.ends_with("</ul>\n") && page.ends_with("<p>page"),
        "{page}"
    );
    server.end();
}

#[cfg(target_os = "linux")]
#[test]
fn httpd_lets_nothing_out_while_a_directory_is_exchanged_for_a_link() {
    use rustix::fs::{RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};

    let www = Www::new("exchange");
    let (path, aside) = (www.0.join("root/swap"), www.0.join("aside"));
    // Each pattern of letters that are written as %xx is a path of its own, so none is kept.
    let name = "abcdefghijkl";
    for (directory, text) in [("root/swap", "inside"), ("outside", "OUTSIDE")] {
        let directory = www.0.join(directory);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(name), text).unwrap();
    }
    symlink("../outside", &aside).unwrap();
    let server = www.serve(&[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let here = rustix::fs::CWD;
                renameat_with(here, &path, here, &aside, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let leaks = (0..1024).filter(|n| {
            let letters = name.bytes().enumerate();
            let letters = letters.map(|(at, letter)| match n >> at & 1 {
                0 => char::from(letter).to_string(),
                _ => format!("%{letter:02x}"),
            });
            let path: String = letters.collect();
            server
                .ask(&get(&format!("/swap/{path}")))
                .contains("OUTSIDE")
        });
        let leaks = leaks.count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(leaks, 0);
    });
    server.end();
}

#[test]
fn httpd_closes_the_longest_idle_connection_for_another() {
    let www = Www::new("idle");
    let server = www.serve(&["--max-connections", "3", "--max-per-address", "9"]);
    let request = get("/page.html").replace("Connection: close\r\n", "");
    let mut idle: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut idle {
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(code(&answer(client)), "200");
    }
    // The first has been idle for a shorter time than the second, from now on.
    idle[0].write_all(request.as_bytes()).unwrap();
    assert_eq!(code(&answer(&mut idle[0])), "200");
    assert!(server.ask(&get("/page.html")).ends_with("<p>page"));
    assert!(is_over(idle[1].read(&mut [0])));
    for at in [0, 2] {
        idle[at].write_all(request.as_bytes()).unwrap();
        assert_eq!(code(&answer(&mut idle[at])), "200", "{at}");
    }
    server.end();
}

#[test]
fn httpd_limits_the_connections_of_an_address() {
    let www = Www::new("address");
    let server = www.serve(&["--max-connections", "10", "--max-per-address", "2"]);
    let mut busy: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut busy {
        client.write_all(b"GET /page.html HTTP/1.1\r\n").unwrap();
    }
    let mut refused = server.connect();
    refused.write_all(get("/page.html").as_bytes()).unwrap();
    assert_eq!(code(&answer(&mut refused)), "503");
    // Another address is another matter.
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from: SocketAddr = ([127, 0, 0, 2], 0).into();
    other.bind(&from.into()).unwrap();
    other.connect(&server.addr.into()).unwrap();
    let mut other = TcpStream::from(other);
    other.write_all(get("/page.html").as_bytes()).unwrap();
    assert!(rest(&mut other).ends_with(b"<p>page"));
    // Once one of its own idles, it is closed for the next.
    busy[0].write_all(b"Host: x\r\n\r\n").unwrap();
    assert_eq!(code(&answer(&mut busy[0])), "200");
    assert!(server.ask(&get("/page.html")).ends_with("<p>page"));
    assert!(is_over(busy[0].read(&mut [0])));
    server.end();
}

#[test]
fn httpd_notices_changes() {
    let www = Www::new("changes");
    let server = www.serve(&[]);
    assert!(server.ask(&get("/page.html")).ends_with("<p>page"));
    fs::write(www.0.join("root/page.html"), "<p>new").unwrap();
    // It may take a second.
    eventually("the new page", || {
        let answer = server.ask(&get("/page.html"));
        answer.ends_with("<p>new").then_some(())
    });
    server.end();
}

#[test]
fn httpd_does_not_wait_for_slow_clients() {
    let www = Www::new("slow");
    let server = www.serve(&[
        "--timeout",
        "200ms",
        "--max-connections",
        "1",
        "--max-per-address",
        "9",
    ]);
    // There is room for one at a time: each of them must be sent away for the next to be served.
    let mut silent = server.connect();
    assert_eq!(rest(&mut silent), b"");
    let mut half = server.connect();
    half.write_all(b"GET / HT").unwrap();
    assert_eq!(code(&String::from_utf8(rest(&mut half)).unwrap()), "408");
    let answer = server.ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(code(&answer), "408");
    // A byte now and then does not help.
    let mut slow = server.connect();
    slow.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nA: ").unwrap();
    let mut answer = [0; 12];
    let began = Instant::now();
    while let Err(error) = slow.read_exact(&mut answer) {
        assert!(began.elapsed() < PATIENCE, "it waits");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        slow.write_all(b"x").unwrap();
    }
    assert_eq!(&answer, b"HTTP/1.1 408");
    drop(slow);
    // Nor does it to take nothing of what was asked for.
    let mut deaf = server.connect();
    deaf.write_all(get("/big").as_bytes()).unwrap();
    assert!(server.ask(&get("/page.html")).ends_with("<p>page"));
    let mut got = Vec::new();
    let _ = deaf.read_to_end(&mut got);
    assert!(got.len() < BIG, "it was cut short");
    server.end();
}

#[test]
fn httpd_serves_others_beside_a_slow_reader() {
    let www = Www::new("beside");
    let server = www.serve(&["--max-connections", "3", "--max-per-address", "9"]);
    let mut slow = server.connect();
    slow.write_all(get("/big").as_bytes()).unwrap();
    let mut half = server.connect();
    half.write_all(b"GET /page.html HTTP/1.1\r\n").unwrap();
    let mut last = server.connect();
    for _ in 0..100 {
        last.write_all(b"GET /page.html HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        assert!(answer(&mut last).ends_with("<p>page"));
    }
    // One more waits while all are busy, and is served when another has gone.
    last.write_all(b"GET /page.html HTTP/1.1\r\n").unwrap();
    let mut fourth = server.connect();
    fourth.write_all(get("/page.html").as_bytes()).unwrap();
    fourth
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let early = fourth.read(&mut [0]).expect_err("it has to wait");
    assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
    drop(half);
    fourth.set_read_timeout(None).unwrap();
    assert!(rest(&mut fourth).ends_with(b"<p>page"));
    assert!(rest(&mut slow).ends_with(&bytes(BIG, 0)));
    server.end();
}

#[test]
fn httpd_serves_again_after_it_ran_out_of_descriptors() {
    // As many clients are too many, since the server has other descriptors.
    const LIMIT: u32 = 16;
    let www = Www::new("descriptors");
    let root = www.0.join("root");
    let args = [
        "httpd",
        "--addr",
        "127.0.0.1:0",
        "--root",
        root.to_str().unwrap(),
    ];
    let server = Server::with_descriptors(LIMIT, &args);
    let head = get("/page.html");
    let (first, second) = head.split_at(10);
    let begin = |_| {
        let mut client = server.connect();
        // One that idles would be closed for another.
        client.write_all(first.as_bytes()).unwrap();
        client
    };
    let clients: Vec<_> = (0..LIMIT).map(begin).collect();
    server.says("Cannot accept: ");
    for mut client in clients {
        client.write_all(second.as_bytes()).unwrap();
        let answer = String::from_utf8(rest(&mut client)).unwrap();
        assert!(["200", "503"].contains(&code(&answer)), "{answer}");
    }
    assert!(server.ask(&get("/page.html")).ends_with("<p>page"));
    server.end();
}

#[test]
fn httpd_survives_a_thousand_clients_that_vanish() {
    allow_descriptors(4096);
    let www = Www::new("vanish");
    let server = www.serve(&["--max-connections", "4000"]);
    let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let request = match n % 5 {
            0 => "GET /pa".to_string(),
            1 => get("/big"),
            2 => String::new(),
            _ => get("/page.html"),
        };
        client.write_all(request.as_bytes()).unwrap();
    }
    for (n, mut client) in clients.into_iter().enumerate() {
        match n % 5 {
            0..=2 if n % 2 == 0 => reset(client),
            0..=2 => drop(client),
            _ => assert!(rest(&mut client).ends_with(b"<p>page"), "client {n}"),
        }
    }
    assert!(server.ask(&get("/sub/")).ends_with("<p>index"));
    server.end();
}

// ---- proxy

/// A server that does the same with each of its clients, and a proxy to it.
fn behind_proxy(args: &[&str], serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(client));
        }
    });
    let own = ["proxy", "--listen", "127.0.0.1:0", "--to", &to];
    Server::start(&[&own, args].concat())
}

#[test]
fn proxy_passes_everything_on_and_the_end_of_each_direction() {
    // The answer begins when the question has ended, and the question when the answer's first part
    // has come: neither is possible if an end is passed on wrongly, or to both sides.
    let proxy = behind_proxy(&[], |mut client| {
        client.write_all(&bytes(3_000_000, 1)).unwrap();
        let question = rest(&mut client);
        assert!(question == bytes(5_000_000, 2));
        client.write_all(&question).unwrap();
    });
    let mut client = proxy.connect();
    let mut first = vec![0; 3_000_000];
    client.read_exact(&mut first).unwrap();
    assert!(first == bytes(3_000_000, 1));
    client.write_all(&bytes(5_000_000, 2)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client) == bytes(5_000_000, 2));
    proxy.says(&format!(
        "Connection of {} ended",
        client.local_addr().unwrap()
    ));

    // The other way round.
    let proxy = behind_proxy(&[], |mut client| {
        client.shutdown(Shutdown::Write).unwrap();
        assert!(rest(&mut client) == bytes(1_000_000, 3));
        reset(client);
    });
    let mut client = proxy.connect();
    assert_eq!(rest(&mut client), b"");
    client.write_all(&bytes(1_000_000, 3)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    proxy.says("Connection of");
    proxy.end();
}

#[test]
fn proxy_ends_both_directions_when_one_fails() {
    let (sender, ended) = mpsc::channel();
    let proxy = behind_proxy(&[], move |mut server| {
        let mut order = [0];
        server.read_exact(&mut order).unwrap();
        if order == *b"r" {
            reset(server);
        } else {
            server.write_all(b"!").unwrap();
            sender.send(is_over(server.read(&mut order))).unwrap();
        }
    });
    let mut client = proxy.connect();
    client.write_all(b"r").unwrap();
    assert!(is_over(client.read(&mut [0])));
    proxy.says("lost: failed: Connection reset");

    let mut client = proxy.connect();
    client.write_all(b"w").unwrap();
    client.read_exact(&mut [0]).unwrap();
    reset(client);
    assert!(ended.recv().unwrap());
    proxy.says("lost: failed: Connection reset");
    proxy.end();
}

#[test]
fn proxy_says_that_it_cannot_connect_and_goes_on() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = closed.local_addr().unwrap();
    drop(closed);
    let proxy = Server::start(&["proxy", "--addr", "127.0.0.1:0", "--to", &to.to_string()]);
    for _ in 0..3 {
        let mut client = proxy.connect();
        assert!(is_over(client.read(&mut [0])));
        proxy.says(&format!("cannot connect to {to}: Connection refused"));
    }
    proxy.end();
}

#[test]
fn proxy_survives_clients_that_vanish() {
    allow_descriptors(8192);
    let proxy = behind_proxy(&[], |mut server| {
        // Clients that vanish are an error here.
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = server.read(&mut buf) {
            if server.write_all(&buf[..n]).is_err() {
                break;
            }
        }
    });
    let mut clients: Vec<_> = (0..500).map(|_| proxy.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.write_all(&bytes(n * 10, n)).unwrap();
    }
    for (n, mut client) in clients.into_iter().enumerate() {
        match n % 4 {
            0 => reset(client),
            1 => drop(client),
            _ => {
                client.shutdown(Shutdown::Write).unwrap();
                assert!(rest(&mut client) == bytes(n * 10, n), "client {n}");
            }
        }
    }
    proxy.end();
}

#[test]
fn proxy_notices_a_reset_after_the_end_of_the_stream() {
    // Neither end has anything more to say, so that only the reset can end the connection.
    let (sender, ended) = mpsc::channel();
    let to_client = behind_proxy(&[], move |mut server| {
        assert_eq!(rest(&mut server), b"");
        sender.send(server).unwrap();
    });
    let client = to_client.connect();
    client.shutdown(Shutdown::Write).unwrap();
    let _server = ended.recv_timeout(PATIENCE).unwrap();
    reset(client);

    // The other way round.
    let (sender, orders) = mpsc::channel();
    let orders = Arc::new(Mutex::new(orders));
    let to_server = behind_proxy(&[], move |server| {
        server.shutdown(Shutdown::Write).unwrap();
        orders.lock().unwrap().recv().unwrap();
        reset(server);
    });
    let mut client = to_server.connect();
    assert_eq!(rest(&mut client), b"");
    sender.send(()).unwrap();

    // Each checks its half every second.
    for proxy in [to_client, to_server] {
        proxy.says("lost: failed: ");
        proxy.end();
    }
}

#[test]
fn proxy_lets_clients_go_that_reset_while_it_connects() {
    // A listener whose queue is full answers no more.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    full.listen(0).unwrap();
    let to = full.local_addr().unwrap().as_socket().unwrap();
    let _first = TcpStream::connect(to).unwrap();
    let to = to.to_string();
    let args = [
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--connect-timeout",
        "1h",
        "--to",
        &to,
    ];
    let proxy = Server::start(&args);
    let client = proxy.connect();
    reset(client);
    proxy.says(&format!(
        "lost: while connecting to {to}: failed: Connection reset"
    ));
    proxy.end();
}

#[test]
fn proxy_refuses_to_be_its_own_server() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    for (listen, to) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "[::ffff:127.0.0.1]"),
    ] {
        let (listen, to) = (format!("{listen}:{port}"), format!("{to}:{port}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        let output = command.args(["boot", "-q", "proxy", "--listen", &listen, "--to", &to]);
        let output = output.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{listen} {to}: {err}");
        assert!(
            err.contains("is the proxy's own address"),
            "{listen} {to}: {err}"
        );
    }
    // Another address of the same port is another server.
    let args = ["proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"];
    Server::start(&args).end();
}

// ---- echo

#[test]
fn echo_sends_its_prefix_and_the_data_in_one_piece() {
    for way in [[].as_slice(), &["--ready"]] {
        let args = ["echo", "--addr", "127.0.0.1:0", "--prefix", "Got:"];
        let server = Server::start(&[&args, way].concat());
        let mut client = server.connect();
        for _ in 0..200 {
            client.write_all(b"hello").unwrap();
            let mut buf = [0; 100];
            let n = client.read(&mut buf).unwrap();
            assert_eq!(&buf[..n], b"Got:hello", "{way:?}");
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut client), b"");
        server.says("Client closed");
        server.end();
    }
}

#[test]
fn echo_with_readiness_serves_clients_at_the_same_time() {
    let server = Server::start(&["echo", "--ready", "--addr", "127.0.0.1:0"]);
    let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
    let mut senders = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        let mut client = client.try_clone().unwrap();
        senders.push(thread::spawn(move || {
            // More than the buffers of a connection have room for.
            client.write_all(&bytes(300_000, n)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }));
    }
    for (n, client) in clients.iter_mut().enumerate() {
        assert!(rest(client) == bytes(300_000, n), "client {n}");
    }
    for sender in senders {
        sender.join().unwrap();
    }
    server.end();
}

#[test]
fn echo_with_blocking_sockets_freezes_every_task_and_says_so() {
    let alive = ["--with", "alive --every 0s"];
    let args = [
        "echo",
        "--blocking",
        "--prefix",
        "Got:",
        "--addr",
        "127.0.0.1:0",
    ];
    let server = Server::start(&[&alive[..], &args].concat());
    server.says("Every task freezes until a client connects");
    // `alive` has a last turn. It would have thousands if it were not frozen.
    let alive = |_| server.lines.recv_timeout(Duration::from_millis(200)).ok();
    assert!((0..100).map_while(alive).count() <= 1);
    // A client that comes and sends is answered, and the others go on for a moment.
    let mut client = server.connect();
    server.says("I'm alive");
    client.write_all(b"hello").unwrap();
    let mut buf = [0; 9];
    client.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"Got:hello");
    // Now the server waits for another client, and this one is not served until then.
    server.says("Every task freezes until");
    client.write_all(b"again").unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let silence = client.read(&mut buf).expect_err("it is frozen");
    assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
    let _other = server.connect();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"Got:again");
}

#[test]
fn sockets_of_a_programs_own_need_the_real_world() {
    for option in ["--ready", "--blocking"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        let output = command.args(["boot", "-q", "--virtual", "echo", option]);
        let output = output.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{option}: {err}");
        let advice = "the simulated world has no descriptors: run it in the real one\n";
        assert!(err.ends_with(advice), "{option}: {err}");
    }
}

// ---- chat

struct Talker {
    client: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Talker {
    /// More lines than the connection and the queue of a narrow talker have room for.
    const MANY: usize = 1000;

    fn new(server: &Server, name: &str) -> Self {
        Self::at(server.connect(), name)
    }

    /// One who is in the room, and whose connection has room for few lines.
    fn narrow(server: &Server, name: &str) -> Self {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // The server's buffer is as small as the segments are.
        client.set_tcp_mss(1000).unwrap();
        client.set_recv_buffer_size(10_000).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.connect(&server.addr.into()).unwrap();
        let mut talker = Self::at(client.into(), name);
        talker.hears(&format!("* {name} joins"));
        talker
    }

    fn at(client: TcpStream, name: &str) -> Self {
        let lines = BufReader::new(client.try_clone().unwrap());
        let mut talker = Self { client, lines };
        talker.hears("* your name?");
        talker.says(name);
        talker
    }

    /// One who is in the room.
    fn inside(server: &Server, name: &str) -> Self {
        let mut talker = Self::new(server, name);
        talker.hears(&format!("* {name} joins"));
        talker
    }

    fn says(&mut self, line: &str) {
        self.client
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    fn hears(&mut self, line: &str) {
        assert_eq!(self.line().trim_end_matches('\n'), line);
    }
}

#[test]
fn chat_passes_lines_to_everybody() {
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0"]);
    let mut ann = Talker::inside(&server, "ann");
    let mut bob = Talker::new(&server, "ann");
    bob.hears("* ann is here already: your name?");
    for bad in ["", "a b", "<script>", "\u{1b}[2J", &"x".repeat(21)] {
        bob.says(bad);
        bob.hears("* a name has 1 to 20 letters, digits, - or _: your name?");
    }
    bob.says("bob\r");
    for talker in [&mut ann, &mut bob] {
        talker.hears("* bob joins");
    }
    bob.says("hello\r\n\n  \nthere \u{7}\u{1b}[1m\u{202e}\u{2068}ä\u{2028}\u{200f}");
    // What is not shown keeps nothing from being a command.
    ann.says("\u{2067}\u{1b} /who");
    for line in ["bob: hello", "bob: there [1mä"] {
        bob.hears(line);
    }
    let mut heard = [ann.line(), ann.line(), ann.line()];
    heard.sort();
    assert_eq!(
        heard,
        ["* here: ann, bob\n", "bob: hello\n", "bob: there [1mä\n"]
    );
    ann.says("/nonsense");
    ann.hears("* commands: /who lists the names, /quit leaves");
    ann.says(&"x".repeat(1001));
    ann.hears("* not sent: a line has at most 1000 bytes");
    ann.says(&"x".repeat(1_000_000));
    ann.hears("* not sent: a line has at most 1000 bytes");
    ann.says(&"y".repeat(1000));
    bob.hears(&format!("ann: {}", "y".repeat(1000)));
    ann.hears(&format!("ann: {}", "y".repeat(1000)));
    // A line may lack its end if nothing follows.
    ann.client.write_all(b"bye").unwrap();
    ann.client.shutdown(Shutdown::Write).unwrap();
    ann.hears("ann: bye");
    ann.hears("");
    bob.hears("ann: bye");
    bob.hears("* ann leaves");
    // All that was said before one left is heard, even if it was said in one breath.
    bob.says(&((0..200).map(|n| format!("{n}\n")).collect::<String>() + "/quit"));
    for n in 0..200 {
        bob.hears(&format!("bob: {n}"));
    }
    bob.hears("");
    // The name is free again.
    Talker::inside(&server, "ann");
    server.end();
}

#[test]
fn chat_waits_for_nobody() {
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0", "--timeout", "500ms"]);
    let mut nameless = server.connect();
    let mut ann = Talker::inside(&server, "ann");
    let mut deaf = Talker::narrow(&server, "deaf");
    ann.hears("* deaf joins");
    let text = "x".repeat(900);
    for _ in 0..Talker::MANY {
        ann.says(&text);
        ann.hears(&format!("ann: {text}"));
    }
    ann.hears("* deaf leaves");
    ann.says("/who");
    ann.hears("* here: ann");
    // What was sent can still be read, and then it is over.
    while !matches!(deaf.lines.read_line(&mut String::new()), Ok(0) | Err(_)) {}
    assert_eq!(rest(&mut nameless), b"* your name?\n* too late\n");
    server.end();
}

#[test]
fn chat_tells_a_slow_reader_what_it_has_lost() {
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0", "--timeout", "60s"]);
    let mut ann = Talker::inside(&server, "ann");
    let mut slow = Talker::narrow(&server, "slow");
    ann.hears("* slow joins");
    let numbers = (0..).map(|n| format!("{n} {}", "x".repeat(900)));
    let mut numbers = numbers.into_iter();
    let mut speak = |times| {
        for line in numbers.by_ref().take(times) {
            ann.says(&line);
            ann.hears(&format!("ann: {line}"));
        }
    };
    speak(Talker::MANY);
    let mut lost = 0;
    for n in 0..2 * Talker::MANY {
        // Once there is room, it hears more.
        speak(1);
        let line = slow.line();
        if let Some(count) = line.strip_prefix("* lines lost: ") {
            lost = count.trim_end().parse().unwrap();
            let next = slow.line();
            let next = next.split(' ').nth(1).unwrap();
            assert_eq!(next, (n + lost).to_string());
            break;
        }
        assert_eq!(line.split(' ').nth(1), Some(&*n.to_string()));
    }
    assert!(lost > 0);
    server.end();
}

#[test]
fn chat_survives_clients_that_vanish() {
    // Each is told of each other.
    const GUESTS: usize = 400;
    allow_descriptors(4096);
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0"]);
    let mut ann = Talker::inside(&server, "ann");
    let mut names = HashSet::new();
    let mut guests = Vec::new();
    for n in 0..GUESTS {
        let mut guest = server.connect();
        guest
            .write_all(format!("guest{n}\nhello\n").as_bytes())
            .unwrap();
        guests.push(guest);
        names.insert(format!("guest{n}"));
    }
    let (mut joined, mut left) = (HashSet::new(), HashSet::new());
    while joined.len() < GUESTS {
        let line = ann.line();
        if let Some(name) = line.strip_suffix(" joins\n") {
            joined.insert(name[2..].to_string());
        }
    }
    for (n, guest) in guests.into_iter().enumerate() {
        if n % 2 == 0 {
            reset(guest);
        } else {
            drop(guest);
        }
    }
    while left.len() < GUESTS {
        let line = ann.line();
        if let Some(name) = line.strip_suffix(" leaves\n") {
            left.insert(name[2..].to_string());
        }
    }
    assert_eq!((&joined, &left), (&names, &names));
    ann.says("/who");
    ann.hears("* here: ann");
    server.end();
}

// ---- wrong arguments

#[test]
fn servers_say_what_is_wrong_with_their_arguments() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let file = file!();
    for (args, code, expected) in [
        (vec!["httpd", "--addr", &taken], 1, "(see --addr)"),
        (
            vec!["httpd", "--root", "/no/such"],
            1,
            "cannot serve /no/such: No such file",
        ),
        (vec!["httpd", "--root", file], 1, "Not a directory"),
        (
            vec!["httpd", "--max-connections", "0"],
            2,
            "--max-connections",
        ),
        (vec!["proxy"], 2, "--to <IP:PORT>"),
        (
            vec!["proxy", "--to", "x", "--listen", &taken],
            2,
            "'--to <IP:PORT>': it takes an IP address and a port, such as 127.0.0.1:8080",
        ),
        (
            vec!["proxy", "--to", &taken, "--listen", &taken],
            1,
            "(see --listen)",
        ),
        (
            vec!["httpd", "--max-per-address", "0"],
            2,
            "--max-per-address",
        ),
        (vec!["chat", "--addr", &taken], 1, "(see --addr)"),
        (vec!["swarm", "--size", "65537"], 2, "1..=65536"),
        (vec!["swarm", "--addr", "x"], 2, "'--addr <HOST:PORT>'"),
        (vec!["chat", "--timeout", "soon"], 2, "such as 500ms"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        let output = command.arg("boot").args(&args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}

// ---- swarm

/// Runs a swarm to its end: the exit code, what it prints and what it warns of.
fn swarm(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    let output = command.args(["boot", "-q", "swarm"]).args(args).output();
    let output = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    let code = output.status.code().expect("no signal ended it");
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn a_swarm_measures_a_server() {
    let server = Server::start(&["echo", "--addr", "127.0.0.1:0"]);
    let addr = server.addr.to_string();
    let args = ["--addr", &addr, "--clients", "5", "--requests", "20"];
    for size in ["1", "65536"] {
        let (code, out, err) = swarm(&[&args[..], &["--size", size, "--keep-alive"]].concat());
        assert_eq!((code, &*err), (0, ""), "{out}");
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("100 answers in "), "{out}");
        assert!(lines[0].ends_with(" a second"), "{out}");
        assert!(lines[1].starts_with("latency p50 "), "{out}");
        let counts = lines[2..].iter().map(|line| {
            let count = line.split_whitespace().nth(3).expect("a row has a count");
            count.parse::<u64>().expect("it is a number")
        });
        assert_eq!(counts.sum::<u64>(), 100, "{out}");
    }
    let connected = |line: &String| line.starts_with("Client connected");
    let kept = server.lines.try_iter().filter(connected).count();
    assert_eq!(kept, 10);
    let (code, out, _) = swarm(&[&args[..], &["--think", "1ms"]].concat());
    assert_eq!(code, 0, "{out}");
    let anew = iter::repeat_with(|| server.lines.recv_timeout(PATIENCE).unwrap());
    assert_eq!(anew.filter(connected).take(100).count(), 100);
    server.end();
}

#[test]
fn a_swarm_tells_why_requests_fail() {
    let prefixed = Server::start(&["echo", "--addr", "127.0.0.1:0", "--prefix", "x"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hasty = TcpListener::bind("127.0.0.1:0").unwrap();
    let hasty_addr = hasty.local_addr().unwrap();
    // Each is ended after its request has come, so that the end is no reset.
    let ends = thread::spawn(move || {
        for client in hasty.incoming().take(2) {
            let mut request = [0; 64];
            client.unwrap().read_exact(&mut request).unwrap();
        }
    });
    for (addr, why) in [
        (prefixed.addr, "the answer is not the request"),
        (silent.local_addr().unwrap(), "no answer within 50ms"),
        (hasty_addr, "the server ended the connection"),
    ] {
        let addr = addr.to_string();
        let args = ["--clients", "1", "--requests", "2", "--timeout"];
        let patience = if why.contains("50ms") { "50ms" } else { "30s" };
        let (code, out, err) = swarm(&[&["--addr", &addr], &args[..], &[patience]].concat());
        assert_eq!(code, 1, "{out}");
        assert!(out.starts_with("0 answers in "), "{out}");
        assert!(out.ends_with(&format!("\n2 failed: {why}\n")), "{out}");
        assert!(err.contains("failed: 2 of 2 requests failed"), "{err}");
    }
    ends.join().unwrap();
    // Nothing listens there any more.
    let addr = hasty_addr.to_string();
    let (code, out, _) = swarm(&["--addr", &addr, "--clients", "2", "--patience", "30ms"]);
    assert_eq!(code, 1);
    assert!(out.contains("\n200 failed: Connection refused"), "{out}");
}
