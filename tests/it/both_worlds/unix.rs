//! Unix sockets in both worlds. The simulated one has no files, so a case makes none.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use trapline::{UnixListener, UnixStream};

use super::*;

/// A path that no other case has.
fn path() -> PathBuf {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let name = format!("trapline-{}-{number}.sock", std::process::id());
    std::env::temp_dir().join(name)
}

async fn pair(os: &mut Os) -> io::Result<(UnixStream, UnixStream)> {
    let listener = os.listen_unix(path()).await?;
    let client = os.connect_unix(listener.path()).await?;
    let server = listener.accept(os).await?;
    Ok((client, server))
}

async fn recv(os: &mut Os, stream: &UnixStream, most: usize) -> io::Result<String> {
    let mut buf = vec![0; most];
    let n = stream.recv(os, &mut buf).await?;
    Ok(String::from_utf8_lossy(&buf[..n]).into_owned())
}

async fn accept(os: &mut Os, listener: &UnixListener) -> io::Result<String> {
    let accepted = os.timeout(SETTLED, async |os| listener.accept(os).await.map(drop));
    let accepted = accepted
        .await
        .unwrap_or_else(|Elapsed| Err(ErrorKind::TimedOut.into()));
    accepted.map(|()| "accepted".into())
}

pub(super) const UNIX: &[Case] = cases! {
    "bytes cross both ways" => |os, notes| {
        let (client, server) = pair(os).await?;
        notes.result(client.send(os, b"there").await);
        notes.result(recv(os, &server, 64).await);
        server.send_all(os, b"back").await?;
        notes.result(recv(os, &client, 64).await);
    }
    "a pair of sockets" => |os, notes| {
        let (one, other) = os.socketpair().await?;
        one.send_all(os, b"there").await?;
        other.send_all(os, b"back").await?;
        notes.result(recv(os, &one, 64).await);
        notes.result(recv(os, &other, 64).await);
        one.shutdown_write(os).await?;
        notes.result(recv(os, &other, 64).await);
        drop(one);
        settle(os).await;
        notes.result(other.send(os, b"late").await);
    }
    "a small buffer leaves the rest" => |os, notes| {
        let (client, server) = pair(os).await?;
        client.send_all(os, b"abcdef").await?;
        settle(os).await;
        for most in [1, 2, 9] {
            notes.result(recv(os, &server, most).await);
        }
    }
    "bytes wait for the accept" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        let client = os.connect_unix(listener.path()).await?;
        client.send_all(os, b"early").await?;
        drop(client);
        let server = listener.accept(os).await?;
        notes.result(recv(os, &server, 64).await);
        notes.result(recv(os, &server, 64).await);
    }
    "connections are accepted in order" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        let one = os.connect_unix(listener.path()).await?;
        let other = os.connect_unix(listener.path()).await?;
        other.send_all(os, b"second").await?;
        one.send_all(os, b"first").await?;
        for _ in 0..2 {
            let server = listener.accept(os).await?;
            notes.result(recv(os, &server, 64).await);
        }
    }
    "nothing is there" => |os, notes| {
        notes.result(os.connect_unix(path()).await.map(drop));
    }
    "a closed listener" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        let at = listener.path().to_path_buf();
        listener.close(os).await?;
        notes.result(os.connect_unix(&at).await.map(drop));
        notes.result(listener.accept(os).await.map(drop));
        notes.result(os.listen_unix(&at).await.map(drop));
    }
    "a path in use" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        notes.result(os.listen_unix(listener.path()).await.map(drop));
        notes.result(os.connect_unix(listener.path()).await.map(drop));
    }
    "paths that cannot be" => |os, notes| {
        for bad in ["", "zero\0byte", &"x".repeat(108)] {
            notes.result(os.listen_unix(bad).await.map(drop));
            notes.result(os.connect_unix(bad).await.map(drop));
        }
    }
    "a listener is readable when a client waits" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        let sources = [Source::readable(&listener), Source::after(SETTLED)];
        notes.note(os.select(&sources).await);
        let _client = os.connect_unix(listener.path()).await?;
        notes.note(os.select(&sources).await);
        notes.result(accept(os, &listener).await);
        notes.result(accept(os, &listener).await);
    }
    "a connection that is never accepted is reset with its listener" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        let client = os.connect_unix(listener.path()).await?;
        settle(os).await;
        listener.close(os).await?;
        settle(os).await;
        notes.result(recv(os, &client, 64).await);
    }
    "a half ends" => |os, notes| {
        let (client, server) = pair(os).await?;
        client.send_all(os, b"all").await?;
        notes.result(client.shutdown_write(os).await);
        notes.result(client.send(os, b"more").await);
        notes.result(recv(os, &server, 64).await);
        notes.result(recv(os, &server, 64).await);
        notes.result(server.send(os, b"still").await);
        notes.result(recv(os, &client, 64).await);
    }
    "an own half for reading ends" => |os, notes| {
        let (client, server) = pair(os).await?;
        server.send_all(os, b"arrived").await?;
        settle(os).await;
        notes.result(client.shutdown_read(os).await);
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &client, 64).await);
    }
    "a peer that has closed" => |os, notes| {
        let (client, server) = pair(os).await?;
        server.send_all(os, b"last").await?;
        drop(server);
        settle(os).await;
        notes.result(client.send(os, b"late").await);
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &client, 64).await);
    }
    "a peer that has closed with unread bytes" => |os, notes| {
        let (client, server) = pair(os).await?;
        client.send_all(os, b"unread").await?;
        settle(os).await;
        drop(server);
        settle(os).await;
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &client, 64).await);
        notes.result(client.send(os, b"late").await);
    }
    "a peer that has closed before bytes arrive" => |os, notes| {
        let (one, other) = os.socketpair().await?;
        one.send_all(os, b"unread").await?;
        drop(other);
        notes.result(one.send(os, b"late").await);
        settle(os).await;
        for _ in 0..2 {
            notes.result(recv(os, &one, 64).await);
        }
        notes.result(one.send(os, b"late").await);
        notes.result(one.shutdown_write(os).await);
        notes.result(one.shutdown_read(os).await);
    }
    "bytes come before the reset" => |os, notes| {
        let (one, other) = os.socketpair().await?;
        one.send_all(os, b"unread").await?;
        other.send_all(os, b"answer").await?;
        other.shutdown_write(os).await?;
        drop(other);
        settle(os).await;
        notes.result(one.send(os, b"late").await);
        for _ in 0..3 {
            notes.result(recv(os, &one, 64).await);
        }
    }
    "an end that reads no more reports no reset" => |os, notes| {
        let (one, other) = os.socketpair().await?;
        one.send_all(os, b"unread").await?;
        notes.result(one.shutdown_read(os).await);
        drop(other);
        settle(os).await;
        notes.result(recv(os, &one, 64).await);
        notes.result(one.shutdown_write(os).await);
        for _ in 0..2 {
            notes.result(recv(os, &one, 64).await);
        }
    }
    "a reset wakes a reader and a writer that wait" => |os, notes| {
        let (one, other) = os.socketpair().await?;
        let [reader, writer] = [one.clone(), one.clone()];
        let read = async move |os: &mut Os| {
            let reset = recv(os, &reader, 64).await.unwrap_err();
            assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        };
        let write = async move |os: &mut Os| {
            let refused = writer.send_all(os, &[1; 700_000]).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
        };
        let tasks = [os.spawn("reader", read).await?, os.spawn("writer", write).await?];
        settle(os).await;
        drop(other);
        for task in tasks {
            notes.note(os.wait(task).await?);
        }
    }
    "halves end again after both have ended" => |os, notes| {
        let (one, other) = os.socketpair().await?;
        notes.result(one.shutdown_write(os).await);
        notes.result(one.shutdown_write(os).await);
        settle(os).await;
        notes.result(other.send(os, b"answer").await);
        notes.result(other.shutdown_write(os).await);
        settle(os).await;
        for end in [&one, &other] {
            notes.result(end.shutdown_write(os).await);
            notes.result(end.shutdown_read(os).await);
            notes.result(end.send(os, b"late").await);
        }
        for end in [&one, &other] {
            for _ in 0..2 {
                notes.result(recv(os, end, 64).await);
            }
        }
    }
    "an end that reads no more has what was sent before" => |os, notes| {
        let (one, other) = os.socketpair().await?;
        other.send_all(os, b"before").await?;
        notes.result(one.shutdown_read(os).await);
        notes.result(other.send(os, b"after").await);
        for most in [3, 64, 64] {
            notes.result(recv(os, &one, most).await);
        }
        notes.result(one.send(os, b"back").await);
        notes.result(recv(os, &other, 64).await);
    }
    "a client whose listener closes with its bytes" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        let client = os.connect_unix(listener.path()).await?;
        client.send_all(os, b"unread").await?;
        listener.close(os).await?;
        settle(os).await;
        for _ in 0..2 {
            notes.result(recv(os, &client, 64).await);
        }
        notes.result(client.send(os, b"late").await);
        notes.result(client.shutdown_write(os).await);
    }
    "a full connection is emptied" => |os, notes| {
        let (client, server) = pair(os).await?;
        let send = async move |os: &mut Os| client.send_all(os, &[2; 700_000]).await;
        let sender = os.spawn("sender", send).await?;
        settle(os).await;
        let (mut all, mut buf) = (0, vec![0; 5000]);
        while let n @ 1.. = server.recv(os, &mut buf).await? {
            all += n;
        }
        notes.note(all);
        notes.note(os.wait(sender).await?);
    }
    "options of TCP are not for these" => |os, notes| {
        let (client, _server) = pair(os).await?;
        let options = StreamOptions::new();
        notes.result(client.set_options(os, options.recv_buffer(9000)).await);
        notes.result(client.set_options(os, options.nodelay(true)).await);
        notes.result(client.set_options(os, options.linger(None)).await);
    }
    "a server drains" => |os, notes| {
        let listener = os.listen_unix(path()).await?;
        let at = listener.path().to_path_buf();
        let call = async move |os: &mut Os| {
            let stream = os.connect_unix(&at).await?;
            stream.send_all(os, b"hello").await?;
            assert_eq!(recv(os, &stream, 64).await?, "hello");
            assert_eq!(recv(os, &stream, 64).await?, "");
            io::Result::Ok(())
        };
        let client = os.spawn("client", call).await?;
        let echo = async |os: &mut Os, stream: UnixStream, ()| {
            let mut buf = [0; 8];
            while let n @ 1.. = stream.recv(os, &mut buf).await? {
                stream.send_all(os, &buf[..n]).await?;
            }
            io::Result::Ok(())
        };
        let stop = Source::after(4 * SETTLED);
        notes.result(os.serve_until(&listener, stop, SETTLED, echo).await);
        notes.note(os.wait(client).await?);
    }
};
