//! UDP and Unix sockets with peers of the standard library.

use std::{
    fs,
    net::UdpSocket,
    os::unix::net::{UnixListener, UnixStream},
};

use super::*;

#[test]
fn a_peer_of_the_standard_library_exchanges_datagrams() {
    let peer = UdpSocket::bind(any()).unwrap();
    let addr = peer.local_addr().unwrap();
    let echo = thread::spawn(move || {
        let mut buf = vec![0; 70_000];
        for _ in 0..200 {
            let (n, from) = peer.recv_from(&mut buf).unwrap();
            peer.send_to(&buf[..n], from).unwrap();
        }
    });
    real(async move |os: &mut Os| {
        let socket = os.bind_udp(any()).await?;
        let mut buf = vec![0; 70_000];
        for n in 0..100 {
            let sent = vec![n as u8; n * 600];
            socket.send_to(os, &sent, addr).await?;
            let (n, from) = socket.recv_from(os, &mut buf).await?;
            assert_eq!((&buf[..n], from), (&sent[..], addr));
        }
        socket.connect(os, addr).await?;
        for n in 0..100_usize {
            socket.send(os, &n.to_le_bytes()).await?;
            let got = socket.recv(os, &mut buf).await?;
            assert_eq!(buf[..got], n.to_le_bytes());
        }
        io::Result::Ok(())
    });
    echo.join().unwrap();
}

#[test]
fn a_burst_of_datagrams_is_taken_whole() {
    let peer = UdpSocket::bind(any()).unwrap();
    real(async move |os: &mut Os| {
        let socket = os.bind_udp(any()).await?;
        let addr = socket.local_addr()?;
        for round in 0..20_u8 {
            let peer = peer.try_clone()?;
            let burst = thread::spawn(move || {
                for n in 0..50 {
                    peer.send_to(&[round, n], addr).unwrap();
                }
            });
            let mut buf = [0; 8];
            for n in 0..50 {
                let (len, _) = socket.recv_from(os, &mut buf).await?;
                assert_eq!(buf[..len], [round, n]);
            }
            burst.join().unwrap();
        }
        io::Result::Ok(())
    });
}

#[test]
fn a_peer_of_the_standard_library_connects_by_a_path() {
    let path = Scratch::new("peer.sock");
    let at = path.0.clone();
    real(async move |os: &mut Os| {
        let listener = os.listen_unix(&at).await?;
        let there = at.clone();
        let peer = thread::spawn(move || {
            let mut stream = UnixStream::connect(there).unwrap();
            stream.write_all(&[7; 300_000]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            rest
        });
        let stream = listener.accept(os).await?;
        let (mut all, mut buf) = (0, [0; 5000]);
        while let n @ 1.. = stream.recv(os, &mut buf).await? {
            all += n;
        }
        assert_eq!(all, 300_000);
        stream.send_all(os, b"done").await?;
        drop(stream);
        os.sleep(Duration::from_millis(1)).await;
        assert_eq!(peer.join().unwrap(), b"done");
        assert!(at.exists());
        listener.close(os).await?;
        assert!(!at.exists());
        io::Result::Ok(())
    });
}

#[test]
fn a_kernel_connects_to_a_listener_of_the_standard_library() {
    let path = Scratch::new("theirs.sock");
    let listener = UnixListener::bind(&path.0).unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buf = [0; 5];
        stream.read_exact(&mut buf).unwrap();
        stream.write_all(&buf).unwrap();
    });
    let at = path.0.clone();
    real(async move |os: &mut Os| {
        let stream = os.connect_unix(&at).await?;
        stream.send_all(os, b"hello").await?;
        let mut buf = [0; 8];
        assert_eq!(stream.recv(os, &mut buf).await?, 5);
        io::Result::Ok(())
    });
    echo.join().unwrap();
}

#[test]
fn a_stale_file_is_an_error_that_says_what_to_do() {
    let path = Scratch::new("stale.sock");
    drop(UnixListener::bind(&path.0).unwrap());
    let at = path.0.clone();
    real(async move |os: &mut Os| {
        let error = os.listen_unix(&at).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(text.contains(at.to_str().unwrap()), "{text}");
        assert!(
            text.ends_with("; if no process listens there, remove the file"),
            "{text}"
        );
        let error = os.connect_unix(&at).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        fs::remove_file(&at)?;
        os.listen_unix(&at).await.map(drop)
    });
    assert!(!path.0.exists());
}

#[test]
fn a_file_that_is_not_the_listeners_own_stays() {
    let path = Scratch::new("own.sock");
    let at = path.0.clone();
    real(async move |os: &mut Os| {
        let listener = os.listen_unix(&at).await?;
        fs::remove_file(&at)?;
        fs::write(&at, "another file")?;
        listener.close(os).await?;
        io::Result::Ok(())
    });
    assert_eq!(path.bytes(), b"another file");
}

#[test]
fn the_file_goes_with_a_kernel_that_is_dropped() {
    let path = Scratch::new("dropped.sock");
    let at = path.0.clone();
    let mut kernel = Kernel::real().unwrap();
    kernel
        .spawn("server", async move |os: &mut Os| {
            let listener = os.listen_unix(&at).await?;
            listener.accept(os).await.map(drop)
        })
        .unwrap();
    while !path.0.exists() {
        kernel.step().unwrap();
    }
    drop(kernel);
    assert!(!path.0.exists());
}

#[test]
fn a_full_queue_of_a_listener_is_an_error() {
    let path = Scratch::new("full.sock");
    let at = path.0.clone();
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&at).unwrap()).unwrap();
    socket.listen(0).unwrap();
    real(async move |os: &mut Os| {
        let mut kept = Vec::new();
        let error = loop {
            match os.connect_unix(&at).await {
                Ok(stream) => kept.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let text = error.to_string();
        assert!(
            text.ends_with("; too many connections wait there: try again later"),
            "{text}"
        );
    });
}

#[test]
fn options_reach_the_socket() {
    real(async move |os: &mut Os| {
        use trapline::{ListenOptions, StreamOptions};

        let options = ListenOptions::new().reuse_port(true).backlog(5);
        let one = os.listen_with(any(), options).await?;
        let _other = os.listen_with(one.local_addr()?, options).await?;
        let stream = os.connect(one.local_addr()?).await?;
        let linger = StreamOptions::new().linger(Some(Duration::from_secs(1)));
        let error = stream.set_options(os, linger).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let reset = StreamOptions::new().linger(Some(Duration::ZERO));
        stream.set_options(os, reset).await
    });
}
