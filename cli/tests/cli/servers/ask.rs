//! The client of the key-value server: what it prints in both worlds, and beside redis-cli.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::TcpListener,
    thread,
};

use super::Server;
use crate::{
    replay::Folder,
    support::{command, free_addr, has, run, texts, trapline},
};

/// Commands, and what the clients print.
const REPLIES: [(&str, &str); 12] = [
    ("set greeting hello", "OK"),
    ("GET greeting", "\"hello\""),
    ("get none", "(nil)"),
    ("strlen greeting", "(integer) 5"),
    ("ttl greeting", "(integer) -1"),
    ("lpush l 1", "(error) ERR unknown command 'lpush'"),
    ("keys none", "(empty array)"),
    ("mget greeting none", "1) \"hello\"\n2) (nil)"),
    ("scan 0 match g*", "1) \"0\"\n2) 1) \"greeting\""),
    ("config get maxmemory", "1) \"maxmemory\"\n2) \"0\""),
    ("mset a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9", "OK"),
    ("ping", "PONG"),
];

#[test]
fn ask_prints_what_redis_cli_prints() {
    let server = Server::start(&["kv", "--addr", "127.0.0.1:0"]);
    let (addr, port) = (server.addr.to_string(), server.addr.port().to_string());
    let both = |words: &[&str]| {
        let (code, out, err) = run(&[&["boot", "-q", "ask", "--addr", &addr], words].concat());
        assert_eq!(code, 0, "{words:?}: {err}");
        match command("redis-cli", &[&["--no-raw", "-p", &port], words].concat()).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            output => {
                let (_, theirs, _) = texts(output.unwrap());
                assert_eq!(out.trim_end(), theirs.trim_end(), "{words:?}");
            }
        }
        out
    };
    for (line, expected) in REPLIES {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(both(&words), format!("{expected}\n"), "{line}");
    }
    both(&["set", "odd", "it's \"a\" \\ \u{7} \u{8} \t \r \n \u{1b} é"]);
    both(&["get", "odd"]);
    // Numbers of two digits, and arrays in an array.
    assert!(both(&["keys", "*"]).starts_with(" 1) \"a\"\n"));
    has(
        &both(&["command"]),
        "\n 2) 1) \"command\"\n    2) (integer) -1\n",
    );
    // A command a line.
    let folder = Folder::new("ask");
    let lines = folder.path("lines");
    let all = |text: &str| {
        std::fs::write(&lines, text).unwrap();
        let mut ask = trapline(&["boot", "-q", "ask", "--addr", &addr]);
        let (code, out, err) = texts(ask.stdin(File::open(&lines).unwrap()).output().unwrap());
        assert_eq!(code, 0, "{err}");
        out
    };
    let expected = "OK\nQUEUED\nQUEUED\n1) OK\n2) (integer) 2\n";
    assert_eq!(all("\nmulti\n  set n 1\nincr n\nexec\n"), expected);
    // Each channel has a reply, but an error is the only one.
    let expected = "1) \"unsubscribe\"\n2) \"a\"\n3) (integer) 0\n\
                    1) \"unsubscribe\"\n2) \"b\"\n3) (integer) 0\nPONG\nOK\n\
                    (error) ERR this command is not allowed in a transaction\nQUEUED\n";
    let lines = "unsubscribe a b\nping\nmulti\nunsubscribe a b\nping again\n";
    assert_eq!(all(lines), expected);
}

#[test]
fn ask_runs_beside_the_server_in_the_virtual_world() {
    let shell = |line: &str| run(&["shell", "-q", "--virtual", "--seed", "1", "-c", line]);
    let line = "kv & ask set a 1; ask incr a; seq 1 | ask; ask get a; ask shutdown; wait";
    let (code, out, err) = shell(line);
    let expected = "[1] task 2\nReady at 127.0.0.1:6379\nOK\n(integer) 2\n\
                    (error) ERR unknown command '1'\n\"2\"\nStopped\nOK\n";
    assert_eq!((code, &*out), (0, expected), "{err}");
    assert_eq!(shell(line).1, out);
    // An error is the only reply.
    let (code, out, err) = shell("kv & ask subscribe; ask shutdown; wait");
    let error = "(error) ERR wrong number of arguments for 'subscribe' command\n";
    let expected = format!("[1] task 2\nReady at 127.0.0.1:6379\n{error}Stopped\nOK\n");
    assert_eq!((code, &*out), (0, &*expected), "{err}");
    // Messages come up to the end of the server.
    let (code, out, _) = shell("kv & ask subscribe c & ask publish c hi; ask shutdown; wait");
    assert_eq!(code, 1);
    has(&out, "1) \"subscribe\"\n2) \"c\"\n3) (integer) 1\n");
    has(&out, "1) \"message\"\n2) \"c\"\n3) \"hi\"\n");
    let args = [
        "--virtual",
        "--on",
        "a:kv --addr 0.0.0.0:80",
        "ask",
        "--addr",
        "a:80",
        "ping",
    ];
    let (_, out, err) = run(&[&["boot", "-q", "--max-time", "1m"][..], &args].concat());
    assert!(out.ends_with("PONG\n"), "{out}{err}");
}

#[test]
fn ask_says_what_is_wrong() {
    let addr = free_addr().to_string();
    let (code, _, err) = run(&["boot", "-q", "ask", "--addr", &addr, "ping"]);
    assert_eq!(code, 1);
    has(&err, &addr);
    has(&err, "(see --addr)");
    for (reply, why) in [
        ("", "the server has closed the connection"),
        ("*2\r\n+OK\r\n", "the server has closed the connection"),
        (
            "hello\r\n",
            "this is no reply of redis' protocol: is another server there?",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.read_exact(&mut [0; 14]).unwrap();
            client.write_all(reply.as_bytes()).unwrap();
        });
        let (code, _, err) = run(&["boot", "-q", "ask", "--addr", &addr, "ping"]);
        assert_eq!(code, 1, "{reply:?}");
        has(&err, why);
        server.join().unwrap();
    }
    let (code, out, _) = run(&["boot", "ask", "--help"]);
    assert_eq!(code, 0);
    has(&out, "ask set greeting hello");
}
