//! The web server: files, directories, parts of files, and clients of all kinds.

use std::{
    collections::HashSet,
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use super::*;
use crate::support::{PATIENCE, eventually, has};

// ---- tools

/// A directory to serve, removed with this.
pub(super) struct Www(PathBuf);

pub(super) const BIG: usize = 20_000_000;

impl Www {
    pub(super) fn new(test: &str) -> Self {
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

    pub(super) fn root(&self) -> String {
        self.0.join("root").to_str().unwrap().to_string()
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

pub(super) fn get(path: &str) -> String {
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
pub(super) fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = answer.split("\r\n").take_while(|line| !line.is_empty());
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The next answer on a connection, which goes on.
pub(super) fn answer(client: &mut TcpStream) -> String {
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
pub(super) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

pub(super) fn code(answer: &str) -> &str {
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
    has(&answers, "\r\nConnection: keep-alive\r\n");
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
