//! UDP in both worlds.

use trapline::{Source, UdpSocket};

use super::*;

async fn bind(os: &mut Os) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = os.bind_udp(local(0)).await?;
    let addr = socket.local_addr()?;
    Ok((socket, addr))
}

/// Takes a datagram, unless there is none for a while.
async fn take(os: &mut Os, socket: &UdpSocket, most: usize) -> io::Result<String> {
    let mut buf = vec![0; most];
    let taken = os.timeout(SETTLED, async |os| socket.recv_from(os, &mut buf).await);
    match taken.await {
        Ok(taken) => {
            let (n, _) = taken?;
            Ok(String::from_utf8_lossy(&buf[..n]).into_owned())
        }
        Err(Elapsed) => Ok("nothing".into()),
    }
}

/// The same on a connected socket.
async fn recv(os: &mut Os, socket: &UdpSocket) -> io::Result<String> {
    let mut buf = [0; 64];
    let read = os.timeout(SETTLED, async |os| socket.recv(os, &mut buf).await);
    match read.await {
        Ok(n) => Ok(String::from_utf8_lossy(&buf[..n?]).into_owned()),
        Err(Elapsed) => Ok("nothing".into()),
    }
}

/// An address at which no socket is.
async fn nowhere(os: &mut Os) -> io::Result<SocketAddr> {
    let (socket, addr) = bind(os).await?;
    socket.close(os).await?;
    Ok(addr)
}

/// The number of the system's error behind one that names an address.
fn code(error: &io::Error) -> Option<i32> {
    use std::error::Error;
    let source = error.source().and_then(|source| source.downcast_ref());
    source.map_or(error.raw_os_error(), io::Error::raw_os_error)
}

pub(super) const DATAGRAMS: &[Case] = cases! {
    "a datagram arrives with its sender" => |os, notes| {
        let ((one, from), (other, to)) = (bind(os).await?, bind(os).await?);
        notes.result(one.send_to(os, b"hello", to).await);
        let mut buf = [0; 64];
        let (n, sender) = other.recv_from(os, &mut buf).await?;
        notes.note(String::from_utf8_lossy(&buf[..n]));
        notes.note(sender == from);
    }
    "datagrams stay apart, and in order on one machine" => |os, notes| {
        let ((one, _), (other, to)) = (bind(os).await?, bind(os).await?);
        for text in ["one", "two", "three"] {
            one.send_to(os, text.as_bytes(), to).await?;
        }
        settle(os).await;
        for _ in 0..4 {
            notes.result(take(os, &other, 64).await);
        }
    }
    "what does not fit the buffer is dropped" => |os, notes| {
        let ((one, _), (other, to)) = (bind(os).await?, bind(os).await?);
        one.send_to(os, b"long enough", to).await?;
        one.send_to(os, b"next", to).await?;
        notes.result(take(os, &other, 4).await);
        notes.result(take(os, &other, 64).await);
    }
    "nothing fits an empty buffer" => |os, notes| {
        let ((one, _), (other, to)) = (bind(os).await?, bind(os).await?);
        one.send_to(os, b"first", to).await?;
        one.send_to(os, b"second", to).await?;
        notes.result(take(os, &other, 0).await);
        notes.result(take(os, &other, 64).await);
    }
    "an empty datagram arrives" => |os, notes| {
        let ((one, _), (other, to)) = (bind(os).await?, bind(os).await?);
        notes.result(one.send_to(os, b"", to).await);
        notes.result(other.recv_from(os, &mut [0; 8]).await.map(|(n, _)| n));
    }
    "the largest datagram arrives, and a larger one is refused" => |os, notes| {
        let ((one, _), (other, to)) = (bind(os).await?, bind(os).await?);
        for len in [65_507, 65_508, 70_000] {
            match one.send_to(os, &vec![7; len], to).await {
                Ok(n) => notes.note(n),
                Err(error) => notes.note(format!("{:?}", code(&error))),
            }
        }
        notes.result(other.recv_from(os, &mut vec![0; 70_000]).await.map(|(n, _)| n));
        notes.result(take(os, &other, 64).await);
    }
    "a datagram to nowhere is lost without a word" => |os, notes| {
        let to = nowhere(os).await?;
        let (one, _) = bind(os).await?;
        notes.result(one.send_to(os, b"lost", to).await);
        settle(os).await;
        notes.result(one.send_to(os, b"lost", to).await);
        notes.result(take(os, &one, 64).await);
    }
    "a connected socket learns that nothing is there, by a receive" => |os, notes| {
        let to = nowhere(os).await?;
        let (one, _) = bind(os).await?;
        notes.result(one.connect(os, to).await);
        notes.result(one.send(os, b"lost").await);
        notes.result(recv(os, &one).await);
        notes.result(recv(os, &one).await);
    }
    "and by a send, which sends nothing" => |os, notes| {
        let to = nowhere(os).await?;
        let (one, _) = bind(os).await?;
        one.connect(os, to).await?;
        one.send(os, b"lost").await?;
        settle(os).await;
        notes.note(is_soon(os, async |os| Ok(os.read_wait(&one).await?)).await);
        notes.result(one.send(os, b"again").await);
        notes.result(recv(os, &one).await);
        notes.result(one.send(os, b"again").await);
        notes.result(recv(os, &one).await);
    }
    "a receiver that comes later does" => |os, notes| {
        let to = nowhere(os).await?;
        let (one, _) = bind(os).await?;
        one.connect(os, to).await?;
        one.send(os, b"lost").await?;
        notes.result(recv(os, &one).await);
        let other = os.bind_udp(to).await?;
        notes.result(one.send(os, b"found").await);
        notes.result(take(os, &other, 64).await);
    }
    "a connected socket receives from its peer only" => |os, notes| {
        let ((one, at), (peer, to), (third, _)) =
            (bind(os).await?, bind(os).await?, bind(os).await?);
        one.connect(os, to).await?;
        third.send_to(os, b"stranger", at).await?;
        peer.send_to(os, b"peer", at).await?;
        notes.result(recv(os, &one).await);
        notes.result(recv(os, &one).await);
        notes.result(one.send(os, b"back").await);
        notes.result(take(os, &peer, 64).await);
    }
    "what came before the connect stays" => |os, notes| {
        let ((one, at), (_peer, to), (third, _)) =
            (bind(os).await?, bind(os).await?, bind(os).await?);
        third.send_to(os, b"early", at).await?;
        settle(os).await;
        one.connect(os, to).await?;
        notes.result(recv(os, &one).await);
    }
    "a connected socket can send elsewhere" => |os, notes| {
        let ((one, _), (_peer, to), (third, elsewhere)) =
            (bind(os).await?, bind(os).await?, bind(os).await?);
        one.connect(os, to).await?;
        notes.result(one.send_to(os, b"aside", elsewhere).await);
        notes.result(take(os, &third, 64).await);
    }
    "a socket without a peer cannot send to it" => |os, notes| {
        let (one, _) = bind(os).await?;
        let error = one.send(os, b"where?").await.unwrap_err();
        notes.note(format!("{:?}", code(&error)));
    }
    "a socket without a peer receives" => |os, notes| {
        let ((one, at), (other, _)) = (bind(os).await?, bind(os).await?);
        other.send_to(os, b"plain", at).await?;
        notes.result(recv(os, &one).await);
    }
    "a socket sends to itself" => |os, notes| {
        let (one, at) = bind(os).await?;
        one.send_to(os, b"echo", at).await?;
        notes.result(take(os, &one, 64).await);
    }
    "an address in use" => |os, notes| {
        let (_one, at) = bind(os).await?;
        notes.result(os.bind_udp(at).await.map(drop));
        let any = SocketAddr::new([0, 0, 0, 0].into(), at.port());
        notes.result(os.bind_udp(any).await.map(drop));
    }
    "an address is free again after a close" => |os, notes| {
        let (one, at) = bind(os).await?;
        drop(one);
        notes.result(os.bind_udp(at).await.map(drop));
    }
    "UDP has ports of its own" => |os, notes| {
        let (listener, at) = listen(os).await?;
        notes.result(os.bind_udp(at).await.map(drop));
        drop(listener);
    }
    "an address of another machine" => |os, notes| {
        notes.result(os.bind_udp(([8, 8, 8, 8], 0).into()).await.map(drop));
    }
    "a socket of all addresses receives, and sends from a true one" => |os, notes| {
        let one = os.bind_udp(([0, 0, 0, 0], 0).into()).await?;
        let port = one.local_addr()?.port();
        let (other, to) = bind(os).await?;
        other.send_to(os, b"in", local(port)).await?;
        notes.result(take(os, &one, 64).await);
        one.send_to(os, b"out", to).await?;
        let (n, from) = other.recv_from(os, &mut [0; 8]).await?;
        notes.note(n);
        notes.note(from == local(port));
    }
    "a port of zero cannot be sent to" => |os, notes| {
        let (one, _) = bind(os).await?;
        notes.result(one.send_to(os, b"x", local(0)).await);
    }
    "an IPv4 socket cannot send over IPv6" => |os, notes| {
        let (one, _) = bind(os).await?;
        let error = one.send_to(os, b"x", "[::1]:9".parse().unwrap()).await.unwrap_err();
        notes.note(format!("{:?}", code(&error)));
    }
    "a socket of all addresses of IPv6 takes IPv4" => |os, notes| {
        let one = os.bind_udp("[::]:0".parse().unwrap()).await?;
        let (other, at) = bind(os).await?;
        other.send_to(os, b"four", local(one.local_addr()?.port())).await?;
        let (n, from) = one.recv_from(os, &mut [0; 8]).await?;
        notes.note(n);
        notes.note((from.ip().to_canonical(), from.ip().is_ipv6()) == (at.ip(), true));
        one.send_to(os, b"back", from).await?;
        notes.result(take(os, &other, 8).await);
    }
    "a datagram is readable until it is taken" => |os, notes| {
        let ((one, _), (other, to)) = (bind(os).await?, bind(os).await?);
        let is = async |os: &mut Os| is_soon(os, async |os| Ok(os.read_wait(&other).await?)).await;
        notes.note(is(os).await);
        one.send_to(os, b"one", to).await?;
        one.send_to(os, b"two", to).await?;
        for _ in 0..3 {
            notes.note(is(os).await);
            notes.result(take(os, &other, 8).await);
        }
        notes.note(is(os).await);
        notes.note(is_soon(os, async |os| Ok(os.write_wait(&other).await?)).await);
    }
    "a select finds the socket that has a datagram" => |os, notes| {
        let ((one, to_one), (other, _)) = (bind(os).await?, bind(os).await?);
        let sources = [Source::readable(&other), Source::readable(&one), Source::after(SETTLED)];
        notes.note(os.select(&sources).await);
        other.send_to(os, b"!", to_one).await?;
        notes.note(os.select(&sources).await);
        notes.result(take(os, &one, 8).await);
    }
    "a full socket drops, and goes on" => |os, notes| {
        let ((one, _), (other, to)) = (bind(os).await?, bind(os).await?);
        for _ in 0..1000 {
            one.send_to(os, &[1; 1000], to).await?;
        }
        settle(os).await;
        let mut arrived = 0;
        while take(os, &other, 2000).await?.len() == 1000 {
            arrived += 1;
        }
        notes.note((50..500).contains(&arrived));
        one.send_to(os, b"after", to).await?;
        notes.result(take(os, &other, 64).await);
    }
    "a closed socket" => |os, notes| {
        let ((one, at), (other, _)) = (bind(os).await?, bind(os).await?);
        one.close(os).await?;
        notes.result(other.send_to(os, b"late", at).await);
        notes.result(one.recv_from(os, &mut [0; 8]).await);
        notes.result(one.send_to(os, b"late", at).await);
        notes.result(one.connect(os, at).await);
    }
    "a task that waits learns of the close" => |os, notes| {
        let (one, _) = bind(os).await?;
        let theirs = one.clone();
        let wait = async move |os: &mut Os| theirs.recv_from(os, &mut [0; 8]).await.map(drop);
        let waiter = os.spawn("waiter", wait).await?;
        settle(os).await;
        notes.result(one.recv_from(os, &mut [0; 8]).await.map(drop));
        one.close(os).await?;
        notes.note(os.wait(waiter).await?);
    }
    "options" => |os, notes| {
        let (one, _) = bind(os).await?;
        let options = StreamOptions::new();
        notes.result(one.set_options(os, options.recv_buffer(50_000).send_buffer(50_000)).await);
        notes.result(one.set_options(os, options.nodelay(true)).await);
        let (client, server) = pair(os).await?;
        let all = options.nodelay(false).keepalive(Some(Duration::from_secs(60)));
        notes.result(client.set_options(os, all.recv_buffer(9000).send_buffer(9000)).await);
        notes.result(client.set_options(os, options.keepalive(None).linger(None)).await);
        for millis in [0, 999, 1500, 32_767_000, 32_768_000, u64::MAX] {
            let after = options.keepalive(Some(Duration::from_millis(millis)));
            notes.result(client.set_options(os, after).await);
        }
        notes.result(client.set_options(os, options.linger(Some(SETTLED))).await);
        notes.result(client.set_options(os, options.linger(Some(Duration::ZERO))).await);
        client.send_all(os, b"bye").await?;
        settle(os).await;
        drop(client);
        settle(os).await;
        notes.result(super::recv(os, &server, 64).await);
        notes.result(super::recv(os, &server, 64).await);
    }
    "listeners that share a port" => |os, notes| {
        let (_one, at) = listen(os).await?;
        let shared = ListenOptions::new().reuse_port(true);
        notes.result(os.listen_with(at, shared).await.map(drop));
        let one = os.listen_with(local(0), shared).await?;
        let at = one.local_addr()?;
        notes.result(os.listen(at).await.map(drop));
        let other = os.listen_with(at, shared).await?;
        for _ in 0..32 {
            os.connect_with(at, StreamOptions::new().nodelay(false)).await?;
        }
        settle(os).await;
        for listener in [&one, &other] {
            notes.result(listener.accept(os).await.map(drop));
        }
        one.close(os).await?;
        notes.result(os.connect(at).await.map(drop));
    }
};
