//! The key-value server on real sockets and a real disk: its replies, its limits, and its ends.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};

use super::{Server, allow_descriptors, rest};
use crate::{
    replay::Folder,
    support::{PATIENCE, has, run, texts, trapline},
};

struct Kv {
    server: Server,
    disk: String,
}

impl Kv {
    fn start(folder: &Folder, options: &[&str]) -> Self {
        let disk = folder.path("disk");
        let _ = std::fs::create_dir(&disk);
        let args = ["--disk", &disk, "kv", "--addr", "127.0.0.1:0"];
        let server = Server::start(&[&args, options].concat());
        Self { server, disk }
    }

    /// Sends lines on a connection of its own, and returns all replies.
    fn ask(&self, lines: &str) -> String {
        let lines = format!("{}\r\nQUIT\r\n", lines.replace(" / ", "\r\n"));
        let replies = self.server.ask(&lines).replace("\r\n", " ");
        replies
            .strip_suffix("+OK ")
            .unwrap_or(&replies)
            .trim_end()
            .to_string()
    }

    #[track_caller]
    fn answers(&self, lines: &str, expected: &str) {
        assert_eq!(self.ask(lines), expected, "{lines}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server.child), signal).unwrap();
    }

    fn code(mut self) -> Option<i32> {
        self.server.child.wait().unwrap().code()
    }
}

#[test]
fn each_command_has_the_reply_of_redis() {
    let folder = Folder::new("kv-commands");
    let kv = Kv::start(&folder, &["--aof", "data", "--maxmemory", "1000000"]);
    let cases = [
        ("PING / PING hi / ECHO a", "+PONG $2 hi $1 a"),
        ("SET k 1 / GET k / GET none", "+OK $1 1 $-1"),
        (
            "SET k 2 NX / SET k 2 XX / SET n 1 XX / SET k 3 GET",
            "$-1 +OK $-1 $1 2",
        ),
        (
            "SET k v NX XX / SET k v EX / SET k v EX 0 / SET k v EX x",
            "-ERR syntax error -ERR syntax error -ERR invalid expire time in 'set' command \
          -ERR value is not an integer or out of range",
        ),
        (
            "SETNX k 1 / SETNX l 1 / DEL l none / UNLINK l",
            ":0 :1 :1 :0",
        ),
        (
            "INCR i / INCRBY i 5 / DECR i / DECRBY i 10 / GET i",
            ":1 :6 :5 :-5 $2 -5",
        ),
        (
            "SET i 9223372036854775807 / INCR i / SET i x / INCR i",
            "+OK -ERR increment or decrement would overflow +OK \
          -ERR value is not an integer or out of range",
        ),
        (
            "DECRBY i -9223372036854775808",
            "-ERR value is not an integer or out of range",
        ),
        (
            "INCRBY n +1 / INCRBY n - / INCRBY n 1- / INCRBY n 9223372036854775808 / DECRBY n -7",
            "-ERR value is not an integer or out of range -ERR value is not an integer or out of range \
          -ERR value is not an integer or out of range -ERR value is not an integer or out of range :7",
        ),
        (
            "SET n -9223372036854775808 / INCRBY n -1 / INCRBY n 1 / DEL n",
            "+OK -ERR increment or decrement would overflow :-9223372036854775807 :1",
        ),
        (
            "APPEND s ab / APPEND s cd / STRLEN s / GET s / STRLEN none",
            ":2 :4 :4 $4 abcd :0",
        ),
        (
            "MSET a 1 b 2 / MGET a none b / MSET a",
            "+OK *3 $1 1 $-1 $1 2 \
          -ERR wrong number of arguments for 'mset' command",
        ),
        ("EXISTS a b a none / TYPE a / TYPE none", ":3 +string +none"),
        (
            "SET e 1 EX 100 / TTL e / PERSIST e / TTL e / TTL none / PERSIST e",
            "+OK :100 :1 :-1 :-2 :0",
        ),
        (
            "EXPIRE e 50 / TTL e / SET e 2 KEEPTTL / TTL e / SET e 3 / TTL e",
            ":1 :50 +OK :50 +OK :-1",
        ),
        (
            "EXPIRE e -1 / EXISTS e / EXPIRE e 5 / PEXPIRE a 100000 / TTL a",
            ":1 :0 :0 :1 :100",
        ),
        // It is removed at once, and so counts no more before the next look at the clock.
        (
            "MULTI / SET z 1 / DBSIZE / EXPIRE z 0 / DBSIZE / EXEC",
            "+OK +QUEUED +QUEUED +QUEUED +QUEUED *4 +OK :6 :1 :5",
        ),
        (
            "FLUSHALL foo / FLUSHALL ASYNC SYNC / SHUTDOWN ABORT / SHUTDOWN SAVE NOSAVE / EXISTS a",
            "-ERR syntax error -ERR syntax error -ERR syntax error -ERR syntax error :1",
        ),
        (
            "FLUSHALL async / DBSIZE / KEYS * / FLUSHALL",
            "+OK :0 *0 +OK",
        ),
        (
            "SET o 007 / INCR o / SET o -0 / INCR o / INCRBY p 05 / INCRBY p 0 / DEL o p",
            "+OK -ERR value is not an integer or out of range +OK \
          -ERR value is not an integer or out of range \
          -ERR value is not an integer or out of range :0 :2",
        ),
        (
            "SET \"a b\" 'c \"d' / GET \"a b\" / SET \"\" x / GET '' / DEL 'a b' ''",
            "+OK $4 c \"d +OK $1 x :2",
        ),
        (
            "MSET ab 1 ac 2 b 3 / KEYS a* / KEYS a[^b] / KEYS [a-b] / KEYS [b-a] / KEYS ? / KEYS \\b / \
             KEYS [ab",
            "+OK *2 $2 ab $2 ac *1 $2 ac *1 $1 b *1 $1 b *1 $1 b *1 $1 b *1 $1 b",
        ),
        (
            "SCAN 0 COUNT 2 / SCAN x / SCAN 0 COUNT 02 / SCAN 0 COUNT 0 / SCAN 0 MATCH a*",
            "*2 $2 30 *2 $1 b $2 ac -ERR invalid cursor -ERR value is not an integer or out of range \
          -ERR syntax error *2 $1 0 *2 $2 ac $2 ab",
        ),
        (
            "MULTI / SET k 1 / INCR k / GET k / EXEC",
            "+OK +QUEUED +QUEUED +QUEUED *3 +OK :2 $1 2",
        ),
        (
            "MULTI / NOSUCH / EXEC / EXEC / DISCARD",
            "+OK -ERR unknown command 'NOSUCH' -EXECABORT Transaction discarded because of previous \
          errors. -ERR EXEC without MULTI -ERR DISCARD without MULTI",
        ),
        (
            "MULTI / MULTI / SET k 5 / DISCARD / GET k",
            "+OK -ERR MULTI calls can not be nested +QUEUED +OK $1 2",
        ),
        (
            "WATCH k / SET k 7 / MULTI / SET k 8 / EXEC / GET k",
            "+OK +OK +OK +QUEUED *-1 $1 7",
        ),
        (
            "WATCH k / SET k 9 / UNWATCH / MULTI / SET k 8 / EXEC",
            "+OK +OK +OK +OK +QUEUED *1 +OK",
        ),
        // A key is watched from the first time on, and what was made and deleted again has changed.
        (
            "WATCH w / SET w 1 / WATCH w / DEL w / MULTI / PING / EXEC",
            "+OK +OK +OK :1 +OK +QUEUED *-1",
        ),
        (
            "SETEX w 100 1 / TTL w / PSETEX w 50000 2 / TTL w / GET w / SETEX w 0 3 / PSETEX w -1 3 / \
             EXPIRE w 9223372036854775807 / DEL w",
            "+OK :100 +OK :50 $1 2 -ERR invalid expire time in 'setex' command \
             -ERR invalid expire time in 'psetex' command \
             -ERR invalid expire time in 'expire' command :1",
        ),
        ("*-1 / *0 / PING", "+PONG"),
        (
            "CONFIG GET maxclients / CONFIG SET a b",
            "*2 $10 maxclients $5 10000 -ERR only CONFIG GET is \
          here: the options of the command line set the rest",
        ),
        (
            "CONFIG GET / CONFIG RESETSTAT",
            "-ERR wrong number of arguments for 'config|get' command \
          -ERR only CONFIG GET is here: the options of the command line set the rest",
        ),
        (
            "CLIENT GETNAME / CLIENT SETNAME x / CLIENT GETNAME / CLIENT SETNAME '' / CLIENT GETNAME",
            "$-1 +OK $1 x +OK $-1",
        ),
        (
            "CLIENT SETNAME / CLIENT LIST",
            "-ERR wrong number of arguments for 'client|setname' command \
          -ERR only CLIENT ID, GETNAME, SETNAME and SETINFO are here",
        ),
        (
            "GET / NOSUCH a",
            "-ERR wrong number of arguments for 'get' command -ERR unknown command 'NOSUCH'",
        ),
        ("UNSUBSCRIBE / PUBLISH c m", "*3 $11 unsubscribe $-1 :0 :0"),
        (
            "SUBSCRIBE c / PUBLISH c m / PING / UNSUBSCRIBE c / PUBLISH c m",
            "*3 $9 subscribe $1 c :1 -ERR only (UN)SUBSCRIBE, PING and QUIT are allowed while subscribed \
          *2 $4 pong $0  *3 $11 unsubscribe $1 c :0 :0",
        ),
    ];
    for (lines, expected) in cases {
        kv.answers(lines, expected);
    }
    assert!(kv.ask("COMMAND COUNT").starts_with(":4"));
    assert!(kv.ask("INFO").contains("db0:keys=4"), "{}", kv.ask("INFO"));
    // Values of all bytes, and a request in pieces of a byte.
    let mut client = kv.server.connect();
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\0\xff\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
    {
        client.write_all(&[*byte]).unwrap();
    }
    let mut reply = [0; 15];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n$4\r\n\r\n\0\xff\r\n");
    for wrong in [
        "*1\r\n:1\r\n",
        "*9999999\r\n",
        "*1\r\n$-2\r\n",
        "*1\r\n$1\r\nabc",
        "ECHO \"abc\r\n",
        "ECHO a\"b\r\n",
        "ECHO \"a\"b\r\n",
        "ECHO \"a\\n\"\r\n",
    ] {
        let refusal = kv.server.ask(wrong);
        assert!(refusal.starts_with("-ERR Protocol error: "), "{refusal}");
    }
    for begin in ["POST / HTTP/1.1", "host: localhost"] {
        let replies = kv.ask(&format!("{begin} / DEL k"));
        assert!(
            replies.starts_with("-ERR unknown command") && !replies.contains(" :"),
            "{replies}"
        );
    }
    let big = "x".repeat(60_000);
    for n in 0..17 {
        kv.ask(&format!("SET big{n} {big}"));
    }
    assert!(kv.ask("SET more 1").starts_with("-OOM "));
    kv.answers("DEL big0 big1 / SET more 1", ":2 +OK");
    kv.ask("SHUTDOWN NOSAVE NOW");
    assert_eq!(kv.code(), Some(0));
}

/// It reads nothing for a while, or more messages wait for it than there is room for.
#[test]
fn a_slow_subscriber_is_disconnected_and_another_gets_all() {
    for slow in ["100ms", "1h"] {
        let folder = Folder::new("kv-subscribers");
        let kv = Kv::start(&folder, &["--maxclients", "3", "--slow", slow]);
        let [mut good, mut slow] = [(), ()].map(|()| {
            let mut client = kv.server.connect();
            client.write_all(b"SUBSCRIBE c\r\n").unwrap();
            client.read_exact(&mut [0; 30]).unwrap();
            client
        });
        let message = "m".repeat(40_000);
        let len = format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$40000\r\n{message}\r\n").len();
        let reader = thread::spawn(move || {
            // One that takes long to count the bytes would be slow, too.
            let (mut all, mut buf) = (0, vec![0; 1 << 16]);
            while let Ok(n @ 1..) = good.read(&mut buf) {
                all += n;
            }
            all
        });
        let mut client = kv.server.connect();
        // No more than three at once.
        let mut refusal = String::new();
        BufReader::new(kv.server.connect())
            .read_line(&mut refusal)
            .unwrap();
        assert_eq!(refusal, "-ERR max number of clients reached\r\n");
        let mut replies = BufReader::new(client.try_clone().unwrap());
        let mut sent = 0;
        let mut reply = String::new();
        while reply != ":1\r\n" {
            assert!(sent < 20_000, "{reply}");
            client
                .write_all(format!("PUBLISH c {message}\r\n").as_bytes())
                .unwrap();
            reply.clear();
            replies.read_line(&mut reply).unwrap();
            sent += 1;
        }
        // What was on its way comes, and then the end.
        let _ = io::copy(&mut slow, &mut io::sink());
        kv.signal(Signal::TERM);
        assert_eq!(kv.code(), Some(0));
        assert_eq!(reader.join().unwrap(), sent * len);
    }
}

/// A writer that counts its acknowledged changes.
fn write(mut client: TcpStream, told: &AtomicU64) {
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for n in 1.. {
        let request = format!("SET n {n}\r\n");
        let mut reply = [0; 5];
        let asked = client
            .write_all(request.as_bytes())
            .and_then(|()| client.read_exact(&mut reply));
        if asked.is_err() || &reply != b"+OK\r\n" {
            break;
        }
        told.store(n, SeqCst);
    }
}

fn ends_under_load(name: &str, signal: Signal, code: Option<i32>) {
    let folder = Folder::new(name);
    let options = ["--aof", "data", "--fsync", "always"];
    for _ in 0..3 {
        let kv = Kv::start(&folder, &options);
        let told = AtomicU64::new(0);
        thread::scope(|scope| {
            let client = kv.server.connect();
            let writer = scope.spawn(|| write(client, &told));
            while told.load(SeqCst) < 50 {
                thread::yield_now();
            }
            kv.signal(signal);
            writer.join().unwrap();
        });
        assert_eq!(kv.code(), code);
        let kv = Kv::start(&folder, &options);
        let found = kv.ask("GET n");
        let found: u64 = found.rsplit(' ').next().unwrap().parse().unwrap();
        let told = told.into_inner();
        assert!((told..=told + 1).contains(&found), "{found} after {told}");
        assert!(!kv.disk.is_empty());
    }
}

#[test]
fn a_kill_loses_no_change_that_was_acknowledged() {
    ends_under_load("kv-kill", Signal::KILL, None);
}

#[test]
fn sigterm_ends_it_when_all_is_written() {
    ends_under_load("kv-term", Signal::TERM, Some(0));
}

/// A client reads nothing, so the server cannot finish.
#[test]
fn a_second_signal_under_load_ends_it_at_once() {
    let folder = Folder::new("kv-second");
    let options = ["--aof", "data", "--fsync", "always"];
    let waits = ["--slow", "1h", "--drain", "1h"];
    let kv = Kv::start(&folder, &[options, waits].concat());
    let told = AtomicU64::new(0);
    kv.ask(&format!("SET big {}", "x".repeat(60_000)));
    let mut slow = kv.server.connect();
    slow.write_all("GET big\r\n".repeat(1000).as_bytes())
        .unwrap();
    thread::scope(|scope| {
        let client = kv.server.connect();
        let writer = scope.spawn(|| write(client, &told));
        while told.load(SeqCst) < 50 {
            thread::yield_now();
        }
        kv.signal(Signal::TERM);
        // It has stopped to read when this ends.
        writer.join().unwrap();
        kv.signal(Signal::TERM);
    });
    assert_eq!(kv.code(), Some(143));
    drop(slow);
    let kv = Kv::start(&folder, &options);
    let found = kv.ask("GET n");
    let found: u64 = found.rsplit(' ').next().unwrap().parse().unwrap();
    let told = told.into_inner();
    assert!((told..=told + 1).contains(&found), "{found} after {told}");
}

#[test]
fn it_serves_10_000_clients_at_once_and_refuses_one_more() {
    const CLIENTS: usize = 10_000;
    let descriptors = CLIENTS as u64 + 200;
    let most = getrlimit(Resource::Nofile).maximum;
    if most.is_some_and(|most| most < descriptors) {
        println!("SKIPPED: the process may have {most:?} descriptors");
        return;
    }
    allow_descriptors(descriptors);
    let kv = Kv::start(&Folder::new("kv-many"), &[]);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| kv.server.connect()).collect();
    for client in &mut clients {
        client.write_all(b"INCR n\r\n").unwrap();
    }
    let mut numbers: Vec<usize> = Vec::new();
    for client in &mut clients {
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        numbers.push(line.trim_end()[1..].parse().unwrap());
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=CLIENTS));
    let refusal = String::from_utf8(rest(&mut kv.server.connect())).unwrap();
    assert_eq!(refusal, "-ERR max number of clients reached\r\n");
    kv.signal(Signal::TERM);
    assert_eq!(kv.code(), Some(0));
}

#[test]
fn a_torn_end_of_the_file_is_cut() {
    let folder = Folder::new("kv-torn");
    let kv = Kv::start(&folder, &["--aof", "data", "--fsync", "always"]);
    kv.answers("SET a 1 / SET b 2", "+OK +OK");
    kv.answers("SET b 3", "+OK");
    kv.signal(Signal::KILL);
    let file = format!("{}/data", kv.disk);
    kv.code();
    let whole = std::fs::read(&file).unwrap();
    for (text, expected) in [
        (&whole[..whole.len() - 1], "$1 1 $1 2"),
        (
            &[&whole, &b"*3\r\n$3\r\nSET\r\n"[..]].concat()[..],
            "$1 1 $1 3",
        ),
        (&[&whole, &[0; 5000][..]].concat()[..], "$1 1 $1 3"),
    ] {
        std::fs::write(&file, text).unwrap();
        let kv = Kv::start(&folder, &["--aof", "data"]);
        kv.answers("GET a / GET b", expected);
        kv.ask("SHUTDOWN");
        assert_eq!(kv.code(), Some(0));
    }
}

/// Two would each cut off, and write over, what the other one has acknowledged.
#[test]
fn a_second_server_on_the_same_file_is_refused() {
    let folder = Folder::new("kv-twice");
    let kv = Kv::start(&folder, &["--aof", "data", "--fsync", "always"]);
    let second = ["kv", "--addr", "127.0.0.1:0", "--aof", "data"];
    let why =
        "another process or task has the journal data open: end that one, or name another file";
    let args = [&["boot", "-q", "--disk", &kv.disk][..], &second].concat();
    kv.answers("SET a 1", "+OK");
    for n in 0..2 {
        let (code, _, err) = run(&args);
        assert_eq!(code, 1, "{n}");
        has(&err, why);
        // The first one has another file then, by the same name.
        kv.answers(
            "BGREWRITEAOF",
            "+Background append only file rewriting started",
        );
        kv.answers("SET a 2", "+OK");
    }
    kv.signal(Signal::KILL);
    kv.code();
    let kv = Kv::start(&folder, &["--aof", "data"]);
    kv.answers("GET a", "$1 2");
    let line = "kv --aof data & kv --addr 127.0.0.1:7000 --aof data";
    let (code, _, err) = run(&["shell", "-q", "--virtual", "-c", line]);
    assert_eq!(code, 1);
    has(&err, why);
}

#[test]
fn a_wrong_byte_amid_the_file_loses_nothing_for_good() {
    let folder = Folder::new("kv-wrong-byte");
    let kv = Kv::start(&folder, &["--aof", "data", "--fsync", "always"]);
    for n in 0..3 {
        kv.answers(&format!("SET k{n} 1"), "+OK");
    }
    kv.signal(Signal::KILL);
    let disk = kv.disk.clone();
    kv.code();
    let file = format!("{disk}/data");
    let mut bytes = std::fs::read(&file).unwrap();
    let (begin, middle) = (8 + (bytes.len() - 8) / 3, bytes.len() / 2);
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let args = [
        "boot",
        "--disk",
        &disk,
        "--max-time",
        "500ms",
        "kv",
        "--aof",
        "data",
    ];
    let (code, _, err) = run(&[&args[..], &["--addr", "127.0.0.1:0"]].concat());
    assert_eq!(code, 4, "{err}");
    let cut = bytes.len() - begin;
    has(
        &err,
        &format!(
            "data is damaged at byte {begin}, by a wrong byte, or without Durability::Always by a loss of \
             power: the {cut} bytes from there on are cut, and appended to data.cut, which is yours to remove"
        ),
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes[..begin]);
    assert_eq!(
        std::fs::read(format!("{file}.cut")).unwrap(),
        bytes[begin..]
    );
}

#[test]
fn a_file_that_is_no_log_is_refused_and_left() {
    let folder = Folder::new("kv-no-log");
    let file = folder.path("notes");
    std::fs::write(&file, "not a log").unwrap();
    let args = ["--disk", &folder.path("."), "kv", "--aof", "notes"];
    let (code, _, err) = run(&[&["boot", "-q"][..], &args].concat());
    assert_eq!(code, 1);
    has(
        &err,
        "notes is no journal: name another file, or move this one away",
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"not a log");
}

#[test]
fn other_schedules_of_a_taped_run_give_its_clients_the_same_bytes() {
    let folder = Folder::new("kv-explored");
    let tape = folder.path("run.tape");
    // A tape with a disk has no script.
    let args = ["--tape", &tape, "kv", "--addr", "127.0.0.1:0"];
    let mut server = Server::start(&args);
    for n in 1..=3 {
        let replies = server.ask(&format!("SET k{n} 1\r\nINCR k{n}\r\nQUIT\r\n"));
        assert_eq!(replies, "+OK\r\n:2\r\n+OK\r\n");
    }
    // A signal may come before a request in another schedule. This comes after their replies.
    assert_eq!(server.ask("SHUTDOWN\r\n"), "+OK\r\n");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let explore = [
        "replay",
        "-q",
        "--explore",
        "100",
        "--expect",
        "bytes",
        &tape,
    ];
    let (code, out, err) = texts(trapline(&explore).output().unwrap());
    assert_eq!(code, 0, "{out}{err}");
}

/// A run that was watched is on its tape and its recording.
#[test]
fn a_monitor_a_recording_and_a_tape_work_on_it() {
    let folder = Folder::new("kv-taped");
    let [tape, record, socket, disk] =
        ["run.tape", "run.trap", "socket", "disk"].map(|name| folder.path(name));
    std::fs::create_dir(&disk).unwrap();
    let watched = ["--tape", &tape, "--record", &record, "--monitor", &socket];
    let program = [
        "--disk",
        &disk,
        "kv",
        "--addr",
        "127.0.0.1:0",
        "--aof",
        "data",
    ];
    let mut server = Server::start(&[&watched[..], &program].concat());
    let run = |args: &[&str]| texts(trapline(args).output().unwrap());
    let replies = server.ask("SET k 1\r\nINCR k\r\nMULTI\r\nGET k\r\nEXEC\r\nQUIT\r\n");
    assert_eq!(
        replies,
        "+OK\r\n:2\r\n+OK\r\n+QUEUED\r\n*1\r\n$1\r\n2\r\n+OK\r\n"
    );
    let (code, out, err) = run(&["ps", "--attach", &socket]);
    assert_eq!(code, 0, "{err}");
    for task in ["expiry", "listener", "log", "signals"] {
        assert!(out.contains(task), "{out}");
    }
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let (code, out, err) = run(&["replay", "-q", &tape]);
    assert_eq!((code, out.ends_with("Stopped\n")), (0, true), "{out}{err}");
    let (code, out, err) = run(&["trace", "summary", &record]);
    assert_eq!((code, out.contains("listener")), (0, true), "{out}{err}");
}

/// Where they are installed. `.ci/run` installs them if it can.
#[test]
fn the_clients_of_redis_speak_to_it() {
    let folder = Folder::new("kv-redis");
    let kv = Kv::start(&folder, &["--aof", "data"]);
    let port = kv.server.addr.port().to_string();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(["-p", &port])
            .args(args)
            .output();
        match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                println!("SKIPPED: {program} is not installed");
                None
            }
            output => {
                let (code, out, err) = texts(output.unwrap());
                assert_eq!(code, 0, "{err}");
                Some(out)
            }
        }
    };
    for (line, expected) in [
        ("SET greeting hello", "OK\n"),
        ("GET greeting", "\"hello\"\n"),
        ("INCR n", "(integer) 1\n"),
        ("GET none", "(nil)\n"),
        ("LPUSH l 1", "(error) ERR unknown command 'LPUSH'\n"),
    ] {
        let words: Vec<&str> = ["--no-raw"].into_iter().chain(line.split(' ')).collect();
        let found = run("redis-cli", &words);
        assert!(
            found.is_none_or(|found| found.trim_end() == expected.trim_end()),
            "{line}"
        );
    }
    let benchmark = [
        "-q",
        "-n",
        "2000",
        "-P",
        "16",
        "-t",
        "ping,set,get,incr,mset",
    ];
    let told = run("redis-benchmark", &benchmark);
    assert!(told.is_none_or(|told| told.matches("requests per second").count() >= 6));
    kv.signal(Signal::TERM);
    assert_eq!(kv.code(), Some(0));
}
