//! S30 to S37 and S80 to S82, against the operating system and against the simulated network: the
//! same program notes the same in both worlds.
//!
//! A case is a program with both ends of its connections, on loopback. What it notes is compared.
//! Where the worlds cannot agree the case says why. A case that names a client and a server gets a
//! connection.

use std::{
    fmt::{Debug, Display},
    fs::File,
    io::{self, ErrorKind, Write},
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use trapline::{
    Elapsed, Kernel, ListenOptions, Os, SimWorld, Source, StreamOptions, TcpListener, TcpStream,
};

/// How long the operating system may take to pass something on.
const SETTLED: Duration = Duration::from_millis(5);

type Done<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;

struct Case {
    name: &'static str,
    program: for<'a> fn(&'a mut Os, &'a mut Notes) -> Done<'a>,
    /// What the simulated world notes, if that is something else, and why it does.
    differs: Option<(&'static str, &'static str)>,
}

/// What a program has met.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn note(&mut self, what: impl Display) {
        self.0.push(what.to_string());
    }

    /// Notes a result, with the kind of an error.
    fn result<T: Debug>(&mut self, result: io::Result<T>) {
        self.0.push(match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("{:?}", error.kind()),
        });
    }
}

macro_rules! cases {
    ($($name:literal $(, simulated $notes:literal because $why:literal)? =>
        |$os:ident, $notes_of:ident $(, $client:ident, $server:ident)?| $body:block)*) => {
        &[$(Case {
            name: $name,
            program: |$os, $notes_of| Box::pin(async move {
                $(let ($client, $server) = pair($os).await?;)?
                $body
                Ok(())
            }),
            differs: cases!(@ $($notes, $why)?),
        }),*]
    };
    (@) => { None };
    (@ $notes:literal, $why:literal) => { Some(($notes, $why)) };
}

mod datagrams;
mod unix;

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

async fn listen(os: &mut Os) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = os.listen(local(0)).await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// The client's end of a connection, and the server's.
async fn pair(os: &mut Os) -> io::Result<(TcpStream, TcpStream)> {
    let (listener, addr) = listen(os).await?;
    let client = os.connect(addr).await?;
    let (server, _) = listener.accept(os).await?;
    Ok((client, server))
}

/// An address where no task listens.
async fn nowhere(os: &mut Os) -> io::Result<SocketAddr> {
    let (listener, addr) = listen(os).await?;
    listener.close(os).await?;
    Ok(addr)
}

async fn settle(os: &mut Os) {
    os.sleep(SETTLED).await;
}

/// Receives once, at most so many bytes.
async fn recv(os: &mut Os, stream: &TcpStream, most: usize) -> io::Result<String> {
    let mut buf = vec![0; most];
    let n = stream.recv(os, &mut buf).await?;
    Ok(String::from_utf8_lossy(&buf[..n]).into_owned())
}

/// The same, unless there is nothing for a while.
async fn look(os: &mut Os, stream: &TcpStream) -> io::Result<String> {
    let seen = os.timeout(SETTLED, async |os| recv(os, stream, 64).await);
    seen.await.unwrap_or_else(|Elapsed| Ok("nothing".into()))
}

async fn recv_all(os: &mut Os, stream: &TcpStream) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buf) = (Vec::new(), vec![0; 5000]);
    loop {
        match stream.recv(os, &mut buf).await? {
            0 => return Ok(bytes),
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
}

/// Sends until nothing fits for a while.
async fn fill(os: &mut Os, stream: &TcpStream) -> usize {
    let mut sent = 0;
    let piece = [1; 60_000];
    loop {
        let more = os.timeout(SETTLED, async |os| stream.send(os, &piece).await);
        match more.await {
            Ok(Ok(n)) => sent += n,
            Ok(Err(_)) | Err(Elapsed) => return sent,
        }
    }
}

/// Whether a wait ends soon.
async fn is_soon(os: &mut Os, wait: impl AsyncFnOnce(&mut Os) -> io::Result<()>) -> bool {
    os.timeout(SETTLED, wait).await.is_ok()
}

async fn readable(os: &mut Os, stream: &TcpStream) -> bool {
    is_soon(os, async |os| Ok(os.read_wait(stream).await?)).await
}

async fn writable(os: &mut Os, stream: &TcpStream) -> bool {
    is_soon(os, async |os| Ok(os.write_wait(stream).await?)).await
}

/// A pair whose server has closed its end with unread bytes, so that the client is reset.
async fn reset(os: &mut Os) -> io::Result<TcpStream> {
    let (client, server) = pair(os).await?;
    client.send_all(os, b"unread").await?;
    settle(os).await;
    server.close(os).await?;
    settle(os).await;
    Ok(client)
}

/// A pair whose server has closed its end.
async fn closed(os: &mut Os) -> io::Result<TcpStream> {
    let (client, server) = pair(os).await?;
    server.close(os).await?;
    settle(os).await;
    Ok(client)
}

/// Closes a stream with a reset.
async fn abort(os: &mut Os, stream: TcpStream) -> io::Result<()> {
    let options = StreamOptions::new().linger(Some(Duration::ZERO));
    stream.set_options(os, options).await?;
    Ok(stream.close(os).await?)
}

const ORDERS: &[Case] = cases! {
    "what is sent is received" => |os, notes, client, server| {
        notes.result(client.send(os, b"hello").await);
        notes.result(recv(os, &server, 64).await);
    }
    "what is answered is received" => |os, notes, client, server| {
        server.send_all(os, b"welcome").await?;
        notes.result(recv(os, &client, 64).await);
    }
    "two sends are received at once" => |os, notes, client, server| {
        client.send_all(os, b"one").await?;
        client.send_all(os, b"two").await?;
        settle(os).await;
        notes.result(recv(os, &server, 64).await);
    }
    "a small buffer leaves the rest" => |os, notes, client, server| {
        client.send_all(os, b"abcdef").await?;
        settle(os).await;
        for most in [1, 2, 9] {
            notes.result(recv(os, &server, most).await);
        }
        notes.result(look(os, &server).await);
    }
    "both directions are apart" => |os, notes, client, server| {
        client.send_all(os, b"there").await?;
        server.send_all(os, b"back").await?;
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &server, 64).await);
    }
    "bytes wait for the accept" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let client = os.connect(addr).await?;
        client.send_all(os, b"early").await?;
        settle(os).await;
        let (server, _) = listener.accept(os).await?;
        notes.result(recv(os, &server, 64).await);
    }
    "a thousand messages stay in order" => |os, notes, client, server| {
        let send = async move |os: &mut Os| {
            for n in 0..1000 {
                client.send_all(os, format!("{n},").as_bytes()).await?;
            }
            io::Result::Ok(())
        };
        os.spawn_detached("sender", send).await?;
        let all = recv_all(os, &server).await?;
        let expected: String = (0..1000).map(|n| format!("{n},")).collect();
        notes.note(all == expected.as_bytes());
    }
    "a megabyte arrives whole" => |os, notes, client, server| {
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n / 251) as u8).collect();
        let bytes = sent.clone();
        let send = async move |os: &mut Os| client.send_all(os, &bytes).await;
        os.spawn_detached("sender", send).await?;
        notes.note(recv_all(os, &server).await? == sent);
    }
    "clients are accepted in order" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let mut clients = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let client = os.connect(addr).await?;
            client.send_all(os, name.as_bytes()).await?;
            clients.push(client);
        }
        for _ in 0..4 {
            let (server, _) = listener.accept(os).await?;
            notes.result(recv(os, &server, 64).await);
        }
    }
    "fifty clients are served at once" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let serve = async move |os: &mut Os| {
            for _ in 0..50 {
                let (stream, _) = listener.accept(os).await?;
                let echo = async move |os: &mut Os| {
                    let all = recv_all(os, &stream).await?;
                    stream.send_all(os, &all).await
                };
                os.spawn_detached("echo", echo).await?;
            }
            io::Result::Ok(())
        };
        os.spawn_detached("server", serve).await?;
        let mut clients = Vec::new();
        for n in 0..50u8 {
            let client = os.connect(addr).await?;
            client.send_all(os, &[n; 100]).await?;
            client.shutdown_write(os).await?;
            clients.push(client);
        }
        for (n, client) in clients.iter().enumerate() {
            notes.note(recv_all(os, client).await? == [n as u8; 100]);
        }
    }
    "two tasks share a stream" => |os, notes, client, server| {
        let writer = client.clone();
        let send = async move |os: &mut Os| writer.send_all(os, b"from a clone").await;
        let task = os.spawn("writer", send).await?;
        os.wait(task).await?;
        client.send_all(os, b", and from it").await?;
        settle(os).await;
        notes.result(recv(os, &server, 64).await);
    }
    "a reader and a writer wait at once" => |os, notes, client, server| {
        let reader = client.clone();
        let read = async move |os: &mut Os| {
            assert_eq!(recv(os, &reader, 64).await?, "x");
            io::Result::Ok(())
        };
        let reader = os.spawn("reader", read).await?;
        fill(os, &client).await;
        server.send_all(os, b"x").await?;
        notes.note(os.wait(reader).await?);
    }
    "a second reader is refused" => |os, notes, client, _server| {
        let other = client.clone();
        let read = async move |os: &mut Os| recv(os, &other, 64).await.map(drop);
        os.spawn_detached("reader", read).await?;
        os.yield_now().await;
        notes.result(recv(os, &client, 64).await);
    }
    "what a killed reader would have read is there" => |os, notes, client, server| {
        let other = server.clone();
        let read = async move |os: &mut Os| recv(os, &other, 64).await.map(drop);
        let reader = os.spawn("reader", read).await?;
        os.yield_now().await;
        os.kill(reader).await;
        client.send_all(os, b"still here").await?;
        notes.result(recv(os, &server, 64).await);
    }
    "a receive that timed out has taken nothing" => |os, notes, client, server| {
        notes.result(look(os, &server).await);
        client.send_all(os, b"later").await?;
        notes.result(recv(os, &server, 64).await);
    }
    "a file is sent" => |os, notes, client, server| {
        let path = std::env::temp_dir().join(format!("trapline-both-{}", std::process::id()));
        File::create(&path)?.write_all(b"0123456789")?;
        let file = Arc::new(File::open(&path)?);
        std::fs::remove_file(path)?;
        notes.result(client.send_file(os, &file, 2, 5).await);
        notes.result(client.send_file(os, &file, 10, 5).await);
        notes.result(recv(os, &server, 64).await);
    }
};

const OPENING: &[Case] = cases! {
    "nothing listens" => |os, notes| {
        let addr = nowhere(os).await?;
        notes.result(os.connect(addr).await);
    }
    "port 0 cannot be connected to" => |os, notes| {
        notes.result(os.connect(local(0)).await);
    }
    "port 0 becomes a free port" => |os, notes| {
        let (_one, first) = listen(os).await?;
        let (_other, second) = listen(os).await?;
        notes.note(first.port() > 1024 && second.port() > 1024 && first != second);
    }
    "an address is in use" => |os, notes| {
        let (_listener, addr) = listen(os).await?;
        notes.result(os.listen(addr).await);
    }
    "all addresses are in use when one is" => |os, notes| {
        let (_listener, addr) = listen(os).await?;
        notes.result(os.listen(([0, 0, 0, 0], addr.port()).into()).await);
    }
    "one address is in use when all are" => |os, notes| {
        let all = os.listen(([0, 0, 0, 0], 0).into()).await?;
        notes.result(os.listen(local(all.local_addr()?.port())).await);
    }
    "another loopback address has ports of its own" => |os, notes| {
        let (_listener, addr) = listen(os).await?;
        let other = os.listen(([127, 0, 0, 2], addr.port()).into()).await;
        notes.note(other.is_ok());
    }
    "an address of another machine cannot be listened on" => |os, notes| {
        notes.result(os.listen(([192, 0, 2, 1], 0).into()).await);
    }
    "an address is free after the close" => |os, notes| {
        let addr = nowhere(os).await?;
        notes.note(os.listen(addr).await.is_ok());
    }
    "an address is free after its connections" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let client = os.connect(addr).await?;
        let (server, _) = listener.accept(os).await?;
        server.close(os).await?;
        client.close(os).await?;
        listener.close(os).await?;
        notes.note(os.listen(addr).await.is_ok());
    }
    "the unspecified address is that of the machine" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let client = os.connect((IpAddr::from([0, 0, 0, 0]), addr.port())).await?;
        client.send_all(os, b"here").await?;
        let (server, peer) = listener.accept(os).await?;
        notes.note(peer.ip());
        notes.result(recv(os, &server, 64).await);
    }
    "a listener on all addresses takes each" => |os, notes| {
        let all = os.listen(([0, 0, 0, 0], 0).into()).await?;
        let port = all.local_addr()?.port();
        for last in [1, 2, 3] {
            let to = IpAddr::from([127, 0, 0, last]);
            let client = os.connect((to, port)).await?;
            let (_, peer) = all.accept(os).await?;
            notes.note(client.peer_addr()?.ip());
            notes.note(peer.ip().is_loopback());
        }
    }
    "the listener of the address itself comes first" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let other = os.listen(([127, 0, 0, 2], addr.port()).into()).await?;
        let client = os.connect((IpAddr::from([127, 0, 0, 2]), addr.port())).await?;
        client.send_all(os, b"other").await?;
        let (server, _) = other.accept(os).await?;
        notes.result(recv(os, &server, 64).await);
        drop(listener);
    }
    "a client's address is its peer's" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let client = os.connect(addr).await?;
        let (server, peer) = listener.accept(os).await?;
        notes.note(client.peer_addr()? == addr);
        notes.note(server.peer_addr()? == peer);
        notes.note(peer.ip());
    }
    "localhost is this machine" => |os, notes| {
        notes.note(os.resolve("localhost").await?.iter().all(IpAddr::is_loopback));
        let (listener, addr) = listen(os).await?;
        let client = os.connect(("localhost", addr.port())).await?;
        notes.note(client.peer_addr()?.ip());
        drop(listener);
    }
    "a name that no machine has" => |os, notes| {
        notes.note(os.resolve("no-such-host.invalid").await.is_err());
        notes.note(os.connect(("no-such-host.invalid", 80)).await.is_err());
    }
    "an accept that timed out has taken nothing" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let early = os.timeout(SETTLED, async |os| listener.accept(os).await);
        notes.note(early.await.is_err());
        let client = os.connect(addr).await?;
        client.send_all(os, b"late").await?;
        let (server, _) = listener.accept(os).await?;
        notes.result(recv(os, &server, 64).await);
    }
};

const HALVES: &[Case] = cases! {
    "after the end come no more bytes" => |os, notes, client, server| {
        client.send_all(os, b"last").await?;
        notes.result(client.shutdown_write(os).await);
        for _ in 0..3 {
            notes.result(recv(os, &server, 64).await);
        }
    }
    "the other half goes on" => |os, notes, client, server| {
        client.shutdown_write(os).await?;
        notes.result(recv(os, &server, 64).await);
        notes.result(server.send(os, b"answer").await);
        notes.result(recv(os, &client, 64).await);
    }
    "what is ended takes no bytes" => |os, notes, client, _server| {
        client.shutdown_write(os).await?;
        notes.result(client.send(os, b"more").await);
        notes.result(client.send(os, b"").await);
    }
    "a second end changes nothing" => |os, notes, client, server| {
        client.shutdown_write(os).await?;
        notes.result(client.shutdown_write(os).await);
        notes.result(recv(os, &server, 64).await);
    }
    "both halves end" => |os, notes, client, server| {
        client.shutdown_write(os).await?;
        server.shutdown_write(os).await?;
        settle(os).await;
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &server, 64).await);
        notes.result(client.send(os, b"x").await);
    }
    "a stream whose halves have ended is not connected" => |os, notes, client, server| {
        client.shutdown_write(os).await?;
        settle(os).await;
        notes.result(server.shutdown_write(os).await);
        settle(os).await;
        notes.result(server.shutdown_write(os).await);
    }
    "a half that reads no more has what arrived, and then its end" => |os, notes, client, server| {
        client.send_all(os, b"last").await?;
        settle(os).await;
        notes.result(server.shutdown_read(os).await);
        for _ in 0..2 {
            notes.result(recv(os, &server, 64).await);
        }
        notes.result(server.send(os, b"answer").await);
        notes.result(recv(os, &client, 64).await);
    }
    "a half that was emptied before it reads no more has its end at once" => |os, notes, client, server| {
        client.send_all(os, b"all").await?;
        settle(os).await;
        notes.result(recv(os, &server, 64).await);
        notes.result(server.shutdown_read(os).await);
        notes.result(recv(os, &server, 64).await);
    }
    "the end of the incoming half wakes a reader that waits" => |os, notes, _client, server| {
        let reader = server.clone();
        let read = async move |os: &mut Os| reader.recv(os, &mut [0; 8]).await.map(drop);
        let reader = os.spawn("reader", read).await?;
        settle(os).await;
        notes.result(server.shutdown_read(os).await);
        notes.note(os.wait(reader).await?);
        notes.result(server.shutdown_read(os).await);
    }
    "the peer does not learn that none reads" => |os, notes, client, server| {
        server.shutdown_read(os).await?;
        settle(os).await;
        notes.result(client.send(os, b"late").await);
        settle(os).await;
        for _ in 0..2 {
            notes.result(recv(os, &server, 64).await);
        }
        notes.result(look(os, &client).await);
    }
    "a stream that has ended has no half to end" => |os, notes, client, server| {
        client.shutdown_write(os).await?;
        settle(os).await;
        notes.result(server.shutdown_read(os).await);
        server.shutdown_write(os).await?;
        settle(os).await;
        notes.result(server.shutdown_read(os).await);
        drop(client);
        settle(os).await;
        notes.result(server.shutdown_read(os).await);
    }
    "the end of one half leaves the reader waiting" => |os, notes, client, _server| {
        client.shutdown_write(os).await?;
        notes.result(look(os, &client).await);
    }
    "the end wakes a writer that waits" => |os, notes, client, _server| {
        fill(os, &client).await;
        let writer = client.clone();
        let write = async move |os: &mut Os| {
            let refused = writer.send(os, b"more").await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
        };
        let writer = os.spawn("writer", write).await?;
        settle(os).await;
        client.shutdown_write(os).await?;
        notes.note(os.wait(writer).await?);
    }
    "the end comes after all that is under way" => |os, notes, client, server| {
        let sent = client.send(os, &[5; 50_000]).await?;
        client.shutdown_write(os).await?;
        notes.note(recv_all(os, &server).await?.len() == sent);
    }
    "the end wakes a reader that waits" => |os, notes, client, server| {
        let end = async move |os: &mut Os| {
            settle(os).await;
            client.shutdown_write(os).await
        };
        os.spawn_detached("end", end).await?;
        notes.result(recv(os, &server, 64).await);
    }
};

const CLOSING: &[Case] = cases! {
    "a close is the end for the peer" => |os, notes| {
        let client = closed(os).await?;
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &client, 64).await);
    }
    "a dropped handle closes" => |os, notes, client, server| {
        drop(server);
        notes.result(recv(os, &client, 64).await);
    }
    "bytes come before the close" => |os, notes, client, server| {
        server.send_all(os, b"farewell").await?;
        drop(server);
        settle(os).await;
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &client, 64).await);
    }
    "the first send to a closed peer succeeds" => |os, notes| {
        let client = closed(os).await?;
        notes.result(client.send(os, b"lost").await);
        settle(os).await;
        notes.result(client.send(os, b"lost").await);
        notes.result(client.send(os, b"lost").await);
        notes.result(recv(os, &client, 64).await);
    }
    "a closed peer ends the stream, reset or not" => |os, notes| {
        let client = closed(os).await?;
        client.send_all(os, b"lost").await?;
        settle(os).await;
        notes.result(recv(os, &client, 64).await);
        notes.result(client.shutdown_write(os).await);
    }
    "the own half can end after the peer's close" => |os, notes| {
        let client = closed(os).await?;
        notes.result(client.shutdown_write(os).await);
        notes.result(client.send(os, b"x").await);
        notes.result(recv(os, &client, 64).await);
    }
    "an empty send to a closed peer" => |os, notes| {
        let client = closed(os).await?;
        notes.result(client.send(os, b"").await);
    }
    "a close with unread bytes resets" => |os, notes| {
        let client = reset(os).await?;
        for _ in 0..3 {
            notes.result(recv(os, &client, 64).await);
        }
    }
    "a reset is an error of the first send" => |os, notes| {
        let client = reset(os).await?;
        for _ in 0..3 {
            notes.result(client.send(os, b"x").await);
        }
    }
    "a reset is reported once, to either direction" => |os, notes| {
        let client = reset(os).await?;
        notes.result(client.send(os, b"x").await);
        notes.result(recv(os, &client, 64).await);
    }
    "an empty send reports a reset" => |os, notes| {
        let client = reset(os).await?;
        notes.result(client.send(os, b"").await);
    }
    "a stream that was reset cannot be ended" => |os, notes| {
        let client = reset(os).await?;
        notes.result(client.shutdown_write(os).await);
    }
    "bytes that came before a reset can be read" => |os, notes, client, server| {
        client.send_all(os, b"unread").await?;
        server.send_all(os, b"answer").await?;
        settle(os).await;
        server.close(os).await?;
        settle(os).await;
        notes.result(recv(os, &client, 3).await);
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &client, 64).await);
        notes.result(recv(os, &client, 64).await);
    }
    "a reset wakes a reader that waits" => |os, notes, client, server| {
        client.send_all(os, b"unread").await?;
        let close = async move |os: &mut Os| {
            settle(os).await;
            drop(server);
        };
        os.spawn_detached("close", close).await?;
        notes.result(recv(os, &client, 64).await);
    }
    "a reset wakes a writer that waits" => |os, notes, client, server| {
        fill(os, &client).await;
        let close = async move |os: &mut Os| {
            settle(os).await;
            drop(server);
        };
        os.spawn_detached("close", close).await?;
        notes.result(client.send(os, b"more").await);
    }
    "bytes for an end that was closed reset" => |os, notes, client, server| {
        server.close(os).await?;
        settle(os).await;
        client.send_all(os, b"one").await?;
        client.send_all(os, b"").await?;
        settle(os).await;
        notes.note(readable(os, &client).await);
        notes.note(writable(os, &client).await);
    }
    "a listener that closes resets what waits" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let client = os.connect(addr).await?;
        settle(os).await;
        listener.close(os).await?;
        settle(os).await;
        notes.result(recv(os, &client, 64).await);
    }
    "connections outlive their listener" => |os, notes, client, server| {
        settle(os).await;
        client.send_all(os, b"alive").await?;
        notes.result(recv(os, &server, 64).await);
    }
    "a client that has closed is accepted" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let client = os.connect(addr).await?;
        client.send_all(os, b"was here").await?;
        drop(client);
        settle(os).await;
        let (server, _) = listener.accept(os).await?;
        notes.result(recv(os, &server, 64).await);
        notes.result(recv(os, &server, 64).await);
    }
    "a client that has reset is accepted" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let [one, other] = [os.connect(addr).await?, os.connect(addr).await?];
        abort(os, one).await?;
        other.send_all(os, b"behind").await?;
        settle(os).await;
        let (server, peer) = listener.accept(os).await?;
        notes.note(peer.ip());
        notes.note(readable(os, &server).await);
        for _ in 0..2 {
            notes.result(recv(os, &server, 64).await);
        }
        notes.result(server.send(os, b"late").await);
        let (server, _) = listener.accept(os).await?;
        notes.result(recv(os, &server, 64).await);
    }
    "bytes come before the reset of a client that is accepted later" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let client = os.connect(addr).await?;
        client.send_all(os, b"was here").await?;
        abort(os, client).await?;
        settle(os).await;
        let sources = [Source::readable(&listener), Source::after(SETTLED)];
        notes.note(os.select(&sources).await);
        let (server, _) = listener.accept(os).await?;
        for _ in 0..3 {
            notes.result(recv(os, &server, 64).await);
        }
        notes.note(os.select(&sources).await);
    }
    "a client that has reset fills the backlog" => |os, notes| {
        let options = ListenOptions::new().backlog(0);
        let listener = os.listen_with(local(0), options).await?;
        let addr = listener.local_addr()?;
        let client = os.connect(addr).await?;
        abort(os, client).await?;
        settle(os).await;
        let connect = async |os: &mut Os| os.connect(addr).await.map(drop);
        notes.note(os.timeout(4 * SETTLED, connect).await.is_err());
        listener.accept(os).await?;
        notes.result(os.connect(addr).await.map(drop));
    }
    "a close wakes the task that waits" => |os, notes, client, _server| {
        let reader = client.clone();
        let read = async move |os: &mut Os| {
            let closed = recv(os, &reader, 64).await.unwrap_err();
            assert_eq!(closed.kind(), ErrorKind::NotConnected);
        };
        let reader = os.spawn("reader", read).await?;
        settle(os).await;
        client.close(os).await?;
        notes.note(os.wait(reader).await?);
    }
    "a stream is closed once" => |os, notes, client, _server| {
        notes.note(client.close(os).await.is_ok());
        notes.note(client.close(os).await.is_err());
        notes.result(recv(os, &client, 64).await);
        notes.result(client.send(os, b"x").await);
    }
    "a listener is no stream" => |os, notes| {
        let (listener, _) = listen(os).await?;
        notes.result(listener.recv(os, &mut [0; 8]).await);
        notes.result(listener.send(os, b"x").await);
    }
};

const READINESS: &[Case] = cases! {
    "a new stream is writable, and not readable" => |os, notes, client, server| {
        notes.note(readable(os, &client).await);
        notes.note(writable(os, &client).await);
        notes.note(readable(os, &server).await);
        notes.note(writable(os, &server).await);
    }
    "bytes are readable as long as they are there" => |os, notes, client, server| {
        client.send_all(os, b"ab").await?;
        notes.note(readable(os, &server).await);
        notes.note(readable(os, &server).await);
        notes.result(recv(os, &server, 1).await);
        notes.note(readable(os, &server).await);
        notes.result(recv(os, &server, 1).await);
        notes.note(readable(os, &server).await);
    }
    "the end is readable" => |os, notes, client, server| {
        client.shutdown_write(os).await?;
        notes.note(readable(os, &server).await);
        notes.result(recv(os, &server, 1).await);
        notes.note(readable(os, &server).await);
    }
    "an own end leaves the stream writable" => |os, notes, client, _server| {
        client.shutdown_write(os).await?;
        notes.note(writable(os, &client).await);
        notes.note(readable(os, &client).await);
    }
    "a reset is readable and writable" => |os, notes| {
        let client = reset(os).await?;
        notes.note(readable(os, &client).await);
        notes.note(writable(os, &client).await);
        notes.result(recv(os, &client, 64).await);
        notes.note(readable(os, &client).await);
        notes.note(writable(os, &client).await);
    }
    "a full stream is not writable until it is read" => |os, notes, client, server| {
        let sent = fill(os, &client).await;
        notes.note(writable(os, &client).await);
        let mut read = 0;
        while read < sent {
            read += server.recv(os, &mut [0; 60_000]).await?;
        }
        notes.note(writable(os, &client).await);
    }
    "a reader empties what a writer fills" => |os, notes, client, server| {
        let first = fill(os, &client).await;
        let send = async move |os: &mut Os| client.send_all(os, &[2; 70_000]).await;
        let sender = os.spawn("sender", send).await?;
        settle(os).await;
        notes.note(recv_all(os, &server).await?.len() == first + 70_000);
        notes.note(os.wait(sender).await?);
    }
    "a listener is readable when a client waits" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let is = async |os: &mut Os| is_soon(os, async |os| Ok(os.read_wait(&listener).await?)).await;
        notes.note(is(os).await);
        let _client = os.connect(addr).await?;
        notes.note(is(os).await);
        notes.note(is(os).await);
        listener.accept(os).await?;
        notes.note(is(os).await);
    }
    "a listener is never writable" => |os, notes| {
        let (listener, addr) = listen(os).await?;
        let _client = os.connect(addr).await?;
        let write = async |os: &mut Os| Ok(os.write_wait(&listener).await?);
        notes.note(is_soon(os, write).await);
    }
    "a wait and then a read of nothing more" => |os, notes, client, server| {
        client.send_all(os, b"all").await?;
        os.read_wait(&server).await?;
        notes.result(recv(os, &server, 64).await);
        notes.result(look(os, &server).await);
    }
    "bytes that come while a task waits wake it" => |os, notes, client, server| {
        let send = async move |os: &mut Os| {
            settle(os).await;
            client.send_all(os, b"now").await?;
            settle(os).await;
            io::Result::Ok(())
        };
        os.spawn_detached("sender", send).await?;
        os.read_wait(&server).await?;
        notes.result(recv(os, &server, 64).await);
    }
    "nothing is received into an empty buffer" => |os, notes, client, server| {
        client.send_all(os, b"abc").await?;
        settle(os).await;
        notes.result(server.recv(os, &mut []).await);
        notes.result(recv(os, &server, 64).await);
    }
    "so many bytes fit while none is read",
        simulated "65536" because "the buffers of the operating system grow with the traffic" =>
    |os, notes, client, _server| {
        notes.note(fill(os, &client).await);
    }
    "an empty buffer, where there is nothing" => |os, notes, _client, server| {
        let read = os.timeout(SETTLED, async |os| server.recv(os, &mut []).await);
        match read.await {
            Ok(n) => notes.result(n),
            Err(Elapsed) => notes.note("waits"),
        }
    }
};

/// Runs a case, and returns what it notes.
fn run(case: &Case, mut kernel: Kernel) -> String {
    let program = case.program;
    let main = async move |os: &mut Os| {
        let mut notes = Notes::default();
        let done = program(os, &mut notes).await;
        notes.result(done);
        write!(os, "{}", notes.0.join(", "));
    };
    let main = kernel.spawn("main", main).expect("there is room");
    kernel.run_until(&[main]).expect("the run ends well");
    kernel.take_console()
}

#[test]
fn s30_to_s37_and_s80_to_s82_hold_in_both_worlds() {
    let topics = [
        ORDERS,
        OPENING,
        HALVES,
        CLOSING,
        READINESS,
        datagrams::DATAGRAMS,
        unix::UNIX,
    ];
    let all: Vec<_> = topics.into_iter().flatten().collect();
    assert!(all.len() >= 60, "{} cases", all.len());
    let mut wrong = Vec::new();
    for case in all {
        let real = Kernel::builder().capture_console();
        let real = real.max_time(Duration::from_secs(10)).build();
        let real = run(case, real.expect("a kernel boots"));
        let simulated = Kernel::builder().world(SimWorld::new(1));
        let simulated = simulated.max_ticks(10_000_000).build();
        let simulated = run(case, simulated.expect("a kernel boots"));
        let expected = match case.differs {
            Some((notes, _)) => format!("{notes}, ()"),
            None => real.clone(),
        };
        if simulated != expected || case.differs.is_some() && simulated == real {
            let name = case.name;
            wrong.push(format!(
                "{name}\n  real:      {real}\n  simulated: {simulated}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
