//! The work of the parser, and a limit that takes much memory to reach. The tests of the server are with
//! those of the command line.

use std::{io, mem, rc::Rc};

use trapline::{Durability, Journal, Kernel, Os, Shared, sync::Flag};

use super::{
    SECOND,
    commands::{MAX_PENDING, Session, answer},
    db::{Db, Server, wall_clock},
    expire,
};
use crate::resp::{Unread, reply, request};

/// Reads a request that comes in pieces, and only when as many bytes are there as it has at least. Returns
/// how many words were read in all, again or not.
fn words_read(text: &[u8], piece: usize) -> usize {
    let (mut words, mut all, mut len) = (Vec::new(), 0, 0);
    loop {
        len = (len + piece).min(text.len());
        let outcome = request(&text[..len], &mut words);
        all += words.len();
        match outcome {
            Ok(read) => {
                assert_eq!((read, len), (text.len(), text.len()));
                return all;
            }
            Err(Unread::Part(least)) => {
                assert!(len < least && least <= text.len(), "{len} {least}");
                len = len.max(least.saturating_sub(piece));
            }
            Err(Unread::Wrong(why)) => panic!("{why}"),
        }
    }
}

/// Without the bound, pieces of a byte would have it read the first words 70,000 times.
#[test]
fn a_request_in_pieces_is_read_again_few_times() {
    const WORDS: usize = 10_000;
    // Short words, long ones, and long ones behind short ones.
    for long in [0, WORDS, 100] {
        let mut text = format!("*{WORDS}\r\n").into_bytes();
        for n in 0..WORDS {
            let is_long = n + long >= WORDS;
            let word = "x".repeat(if is_long { 60 } else { 1 });
            text.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        for piece in [1, 100] {
            let work = words_read(&text, piece);
            assert!(work < 5 * text.len(), "{work} {}", text.len());
        }
    }
}

fn ask(db: &mut Db, line: &str) -> String {
    ask_in(&mut Session::default(), db, line)
}

fn ask_in(session: &mut Session, db: &mut Db, line: &str) -> String {
    answer_to(session, db, line);
    String::from_utf8(mem::take(&mut session.out)).expect("it is text")
}

fn answer_to(session: &mut Session, db: &mut Db, line: &str) {
    let mut words = Vec::new();
    let line = format!("{line}\r\n");
    assert!(request(line.as_bytes(), &mut words).is_ok());
    answer(session, db, &words);
}

/// An entry has the whole value of its key, so a short request may make a long one, whatever it is.
#[test]
fn entries_that_wait_for_the_file_have_a_limit() {
    let main = async |os: &mut Os| {
        let log = Journal::open(os, "data", Durability::Never, |_| Ok(())).await?;
        let mut db = Db {
            log: Some(log.clone()),
            ..Db::default()
        };
        assert_eq!(ask(&mut db, "SET k 1"), "+OK\r\n");
        let changes = ["SET k 2", "INCR k", "EXPIRE k 100", "PERSIST k", "DEL k"];
        log.add(|waiting| *waiting = vec![0; MAX_PENDING + 1]);
        for change in changes {
            let full = "-OOM too many changes wait for the append-only file\r\n";
            assert_eq!(ask(&mut db, change), full, "{change}");
        }
        assert_eq!(ask(&mut db, "GET k"), "$1\r\n1\r\n");
        for change in changes {
            log.add(|waiting| *waiting = vec![0; MAX_PENDING]);
            assert!(!ask(&mut db, change).starts_with('-'), "{change}");
        }
        // If they cannot be written, the first one is replied to with an error: that of EXEC as a whole.
        log.add(Vec::clear);
        let mut session = Session::default();
        for line in ["GET k", "MULTI", "SET k 1", "SET k 2", "EXEC", "SET k 3"] {
            answer_to(&mut session, &mut db, line);
        }
        let first = session.change.map(|at| &session.out[at..]);
        assert!(first.is_some_and(|replies| replies.starts_with(b"*2\r\n+OK\r\n")));
        io::Result::Ok(())
    };
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", main).expect("there is room");
    let report = kernel.run().expect("it ends");
    report.check().expect("it ends well");
}

/// Each of these changes the keys that are watched, or none of them.
#[test]
fn a_change_of_a_watched_key_voids_a_transaction() {
    let (void, empty) = ("*-1\r\n", "*0\r\n");
    for (key, change, expected) in [
        ("k", "PING", empty),
        ("k", "SET k 1", void),
        ("k", "EXPIRE k 9", void),
        ("k", "DEL k", void),
        ("k", "FLUSHALL", void),
        ("k", "expired", void),
        ("none", "FLUSHALL", empty),
        ("none", "DEL none", empty),
        ("none", "SET other 1", empty),
        ("old", "PING", empty),
        ("old", "SET old 1", void),
    ] {
        let (mut db, mut session) = (Db::default(), Session::default());
        for line in ["SET k 1 PX 100", "SET old 1 PX 10"] {
            ask(&mut db, line);
        }
        db.now = 50;
        ask_in(&mut session, &mut db, &format!("WATCH {key}"));
        match change {
            "expired" => db.now = 150,
            change => drop(ask(&mut db, change)),
        }
        ask_in(&mut session, &mut db, "MULTI");
        let reply = ask_in(&mut session, &mut db, "EXEC");
        assert_eq!(reply, expected, "{key} {change}");
        assert!(db.watched.is_empty(), "{key} {change}");
    }
}

#[test]
fn keys_expire_while_no_client_asks() {
    let main = async |os: &mut Os| {
        let server = Rc::new(Server {
            db: Shared::new(Db::default()),
            log: None,
            slow: SECOND,
            expires: Flag::new(os).await,
            stop: Flag::new(os).await,
        });
        let theirs = Rc::clone(&server);
        let worker = async move |os: &mut Os| expire(os, &theirs).await;
        let worker = os.spawn("expiry", worker).await?;
        let count = || server.db.with(|db| db.entries.len());
        // The second time the worker has had nothing to do.
        for seconds in [3, 5] {
            let at = wall_clock(os).await + 1000 * u64::from(seconds);
            for key in 0_u32..300 {
                let key = key.to_le_bytes();
                server.db.update(|db| db.set(&key, b"1", Some(at)));
            }
            server.expires.set(os).await;
            os.sleep(seconds * SECOND - SECOND / 10).await;
            assert_eq!(count(), 300);
            os.sleep(2 * SECOND).await;
            assert_eq!(count(), 0);
        }
        server.stop.set(os).await;
        os.wait(worker).await.map(drop)
    };
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", main).expect("there is room");
    let report = kernel.run().expect("it ends");
    report.check().expect("it ends well");
}

#[test]
fn replies_are_shown_as_by_redis_cli() {
    let cases = [
        ("+OK\r\n", "OK"),
        ("-ERR no\r\n", "(error) ERR no"),
        (":-7\r\n", "(integer) -7"),
        ("$-1\r\n", "(nil)"),
        ("*-1\r\n", "(nil)"),
        ("$4\r\na\r\n'\r\n", "\"a\\r\\n'\""),
        ("*0\r\n", "(empty array)"),
        (
            "*2\r\n*2\r\n:1\r\n*0\r\n+b\r\n",
            "1) 1) (integer) 1\n   2) (empty array)\n2) b",
        ),
    ];
    for (text, expected) in cases {
        let shown = reply(text.as_bytes());
        assert!(
            shown.is_ok_and(|shown| shown == (expected.into(), text.len())),
            "{text:?}"
        );
        for len in 0..text.len() {
            let part = reply(&text.as_bytes()[..len]);
            let is_part =
                matches!(part, Err(Unread::Part(least)) if (len + 1..=text.len()).contains(&least));
            assert!(is_part, "{text:?} {len}");
        }
    }
    let (deep, long) = ("*1\r\n".repeat(100_000), "+".repeat(100_000));
    for text in [
        "hello\r\n",
        "\r\n",
        ":x\r\n",
        "$9999999999\r\n",
        "*x\r\n",
        &deep,
        &long,
    ] {
        let why = "this is no reply of redis' protocol: is another server there?";
        assert!(
            matches!(reply(text.as_bytes()), Err(Unread::Wrong(told)) if told == why),
            "{text:.20}"
        );
    }
}

/// Redis' promise, too: each key that is there all the time comes once, and the walk ends.
#[test]
fn a_walk_ends_while_keys_are_made_and_removed() {
    let mut db = Db::default();
    for key in 0..50 {
        ask(&mut db, &format!("SET stable{key} 1"));
    }
    let (mut from, mut stable) = ("0".to_string(), Vec::new());
    for step in 0..100 {
        ask(&mut db, &format!("SET new{step} 1"));
        ask(&mut db, "DEL stir");
        ask(&mut db, "SET stir 1");
        let reply = ask(&mut db, &format!("SCAN {from} COUNT 2"));
        let mut texts = reply
            .split("\r\n")
            .filter(|text| !text.starts_with(['*', '$']));
        from = texts.next().expect("it has a cursor").to_string();
        stable.extend(
            texts
                .filter(|key| key.starts_with("stable"))
                .map(String::from),
        );
        if from == "0" {
            assert_eq!(stable.len(), 50);
            stable.sort();
            stable.dedup();
            assert_eq!(stable.len(), 50);
            return;
        }
    }
    panic!("the walk has no end");
}
