//! The limits of the key-value server. Behind each one the server goes on.

use std::{cell::Cell, io, rc::Rc};

use trapline::Os;

use super::{
    super::{SECOND, boot, finish, kernel},
    Wire,
};
use crate::networked::kv::Kv;

/// Runs a client of a server with these options, and then one that finds the server alive.
fn serve(options: &[&str], client: impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static) {
    let mut kernel = kernel();
    let args = [&["--addr", "0.0.0.0:6379"], options].concat();
    boot::<Kv>(&mut kernel, "server", &args);
    let all = async move |os: &mut Os| {
        client(os).await?;
        let mut wire = Wire::connect(os).await?;
        assert_eq!(wire.ask(os, "PING").await?, "+PONG");
        io::Result::Ok(())
    };
    let client = kernel.spawn_on("laptop", "client", all);
    finish(&mut kernel, client.expect("there is room"));
}

impl Wire {
    /// Sends a line, and returns the first line of the reply.
    async fn ask(&mut self, os: &mut Os, line: &str) -> io::Result<String> {
        self.send(os, line).await?;
        self.line(os).await
    }

    async fn send(&mut self, os: &mut Os, line: &str) -> io::Result<()> {
        self.stream
            .send_all(os, format!("{line}\r\n").as_bytes())
            .await
    }

    /// Sends bytes of a request until it is refused. Returns the refusal, behind which the server has closed
    /// the connection, and how many bytes that took.
    async fn refusal(&mut self, os: &mut Os, begin: &str) -> io::Result<(String, usize)> {
        self.stream.send_all(os, begin.as_bytes()).await?;
        let stream = self.stream.clone();
        let sent = Rc::new(Cell::new(begin.len()));
        let ours = Rc::clone(&sent);
        let sender = async move |os: &mut Os| {
            let piece = [b'x'; 1 << 16];
            while stream.send_all(os, &piece).await.is_ok() {
                ours.set(ours.get() + piece.len());
            }
        };
        let sender = os.spawn("sender", sender).await?;
        let line = self.line(os).await?;
        os.kill(sender).await;
        let end = self.line(os).await;
        assert!(end.is_err(), "{end:?}");
        Ok((line, sent.get()))
    }
}

const LENGTH: &str =
    "-ERR Protocol error: invalid length: a request has at most 64 MiB and 1048576 words";

#[test]
fn a_request_has_at_most_64_mib() {
    serve(&[], async |os: &mut Os| {
        for (begin, refusal) in [
            ("*1\r\n$67108865\r\n", LENGTH),
            ("*1048577\r\n", LENGTH),
            ("", "-ERR Protocol error: too big inline request"),
        ] {
            let mut wire = Wire::connect(os).await?;
            assert_eq!(wire.refusal(os, begin).await?.0, refusal, "{begin:?}");
        }
        // Each text is short enough. It is refused before it has come.
        let mut wire = Wire::connect(os).await?;
        let key = "k".repeat(200_000);
        let begin = format!("*3\r\n$3\r\nSET\r\n$200000\r\n{key}\r\n$67108864\r\n");
        let (line, sent) = wire.refusal(os, &begin).await?;
        assert_eq!(line, "-ERR Protocol error: a request has at most 64 MiB");
        assert!(sent < 1 << 20, "{sent}");
        Ok(())
    });
}

#[test]
fn a_request_of_100_000_words_comes_in_pieces() {
    serve(&[], async |os: &mut Os| {
        let mut wire = Wire::connect(os).await?;
        let text = format!("*100001\r\n$3\r\nDEL\r\n{}", "$1\r\nk\r\n".repeat(100_000));
        for piece in format!("SET k 1\r\n{text}{text}").as_bytes().chunks(500) {
            wire.stream.send_all(os, piece).await?;
        }
        for reply in ["+OK", ":1", ":0"] {
            assert_eq!(wire.line(os).await?, reply);
        }
        Ok(())
    });
}

/// Keys that are watched count more than their bytes.
#[test]
fn a_client_has_at_most_64_mib_kept_for_it() {
    serve(&[], async |os: &mut Os| {
        let keys = " a".repeat(30_000);
        for (first, command, ok, most) in [
            ("PING", "WATCH", "+OK", 35),
            ("MULTI", "DEL", "+QUEUED", 320),
        ] {
            let mut wire = Wire::connect(os).await?;
            wire.ask(os, first).await?;
            let mut kept = 0;
            let refusal = loop {
                let line = wire.ask(os, &format!("{command}{keys}")).await?;
                if line != ok {
                    break line;
                }
                kept += 1;
            };
            let text = "-OOM the server keeps no more for this client";
            assert_eq!(refusal, text, "{command}");
            assert!((most - 1..=most).contains(&kept), "{command} {kept}");
            // What was kept is dropped, and there is room again.
            let [end, answer] = match first {
                "MULTI" => [
                    "EXEC",
                    "-EXECABORT Transaction discarded because of previous errors.",
                ],
                _ => ["UNWATCH", "+OK"],
            };
            assert_eq!(wire.ask(os, end).await?, answer);
            assert_eq!(wire.ask(os, "WATCH a").await?, "+OK");
        }
        Ok(())
    });
}

/// A client that asks for more is disconnected. The reply is not made as a whole.
#[test]
fn replies_have_at_most_256_mib() {
    serve(&[], async |os: &mut Os| {
        let mut wire = Wire::connect(os).await?;
        let value = "x".repeat(60_000);
        assert_eq!(wire.ask(os, &format!("SET k {value}")).await?, "+OK");
        wire.send(os, &format!("MGET{}", " k".repeat(5_000)))
            .await?;
        assert!(wire.line(os).await.is_err());
        Ok(())
    });
}

#[test]
fn memory_is_limited_and_deleting_makes_room() {
    serve(&["--maxmemory", "10000"], async |os: &mut Os| {
        let mut wire = Wire::connect(os).await?;
        let value = "x".repeat(6_000);
        for key in ["a", "b"] {
            assert_eq!(wire.ask(os, &format!("SET {key} {value}")).await?, "+OK");
        }
        for line in ["SET c 1", "APPEND a 1", "INCR n", "MSET d 1", "SETNX e 1"] {
            let refusal = wire.ask(os, line).await?;
            assert!(refusal.starts_with("-OOM "), "{line} {refusal}");
        }
        assert_eq!(wire.get(os, "a").await?, Some(value));
        assert_eq!(wire.ask(os, "EXPIRE a 100").await?, ":1");
        assert_eq!(wire.ask(os, "DEL b").await?, ":1");
        assert_eq!(wire.ask(os, "SET c 1").await?, "+OK");
        Ok(())
    });
}

#[test]
fn a_client_beyond_the_limit_is_refused_until_another_leaves() {
    serve(&["--maxclients", "2"], async |os: &mut Os| {
        let mut first = Wire::connect(os).await?;
        let mut second = Wire::connect(os).await?;
        for wire in [&mut first, &mut second] {
            assert_eq!(wire.ask(os, "PING").await?, "+PONG");
        }
        let mut third = Wire::connect(os).await?;
        let refusal = third.line(os).await?;
        assert_eq!(refusal, "-ERR max number of clients reached");
        assert!(third.line(os).await.is_err());
        assert_eq!(second.ask(os, "QUIT").await?, "+OK");
        os.sleep(SECOND).await;
        let mut third = Wire::connect(os).await?;
        assert_eq!(third.ask(os, "PING").await?, "+PONG");
        first.send(os, "QUIT").await
    });
}

/// More than 32 MiB of messages wait for one that reads nothing.
#[test]
fn a_subscriber_has_at_most_32_mib_of_messages() {
    serve(&["--slow", "1h"], async |os: &mut Os| {
        let mut slow = Wire::connect(os).await?;
        assert_eq!(slow.ask(os, "SUBSCRIBE c").await?, "*3");
        let mut wire = Wire::connect(os).await?;
        let message = "m".repeat(60_000);
        let mut told = 0;
        while wire.ask(os, &format!("PUBLISH c {message}")).await? == ":1" {
            told += 1;
            assert!(told < 1000, "it is not disconnected");
        }
        // What is in the buffers of the connection comes beside those.
        assert!(told > (32 << 20) / 60_100, "{told}");
        Ok(())
    });
}
