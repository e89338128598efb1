//! UDP and Unix sockets on tapes.

use std::{net::UdpSocket, os::unix::net::UnixStream, path::PathBuf};

use trapline::{Source, StreamOptions};

use super::*;

/// A task that serves both kinds of sockets, and meets errors.
async fn serve(os: &mut Os, path: PathBuf, begun: Sender<SocketAddr>) -> io::Result<()> {
    let udp = os.bind_udp(LOCALHOST).await?;
    let unix = os.listen_unix(&path).await?;
    let again = os.listen_unix(&path).await.unwrap_err();
    writeln!(os, "{:?}", again.kind());
    let _ = begun.send(udp.local_addr()?);
    let (mut datagrams, mut clients, mut buf) = (0, 0, [0; 4096]);
    while datagrams < 20 || clients < 3 {
        let sources = [Source::readable(&udp), Source::readable(&unix)];
        match os.select(&sources).await {
            0 => {
                let (n, from) = udp.recv_from(os, &mut buf).await?;
                let sum: u32 = buf[..n].iter().map(|byte| u32::from(*byte)).sum();
                writeln!(os, "{n} {sum} from {from}");
                udp.send_to(os, &buf[..n], from).await?;
                datagrams += 1;
            }
            _ => {
                let stream = unix.accept(os).await?;
                let n = stream.recv(os, &mut buf).await?;
                stream.send_all(os, &buf[..n]).await?;
                writeln!(os, "{:?}", String::from_utf8_lossy(&buf[..n]));
                clients += 1;
            }
        }
    }
    let (one, other) = os.socketpair().await?;
    one.send_all(os, b"pair").await?;
    let n = other.recv(os, &mut buf).await?;
    writeln!(os, "{n}");
    udp.set_options(os, StreamOptions::new().recv_buffer(9000))
        .await?;
    let own = os.connect_unix(&path).await?;
    own.send_all(os, b"own").await?;
    let nowhere = os.bind_udp(LOCALHOST).await?;
    let to = nowhere.local_addr()?;
    nowhere.close(os).await?;
    udp.connect(os, to).await?;
    udp.send(os, b"lost").await?;
    let refused = udp.recv(os, &mut buf).await.unwrap_err();
    let refused_again = udp.send_to(os, &vec![0; 70_000], to).await.unwrap_err();
    writeln!(os, "{refused} {refused_again}");
    Ok(())
}

#[test]
fn datagrams_and_unix_sockets_run_again_to_the_byte() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = path.join(format!("tape-{}.sock", std::process::id()));
    let (begun, wait) = channel::<SocketAddr>();
    let theirs = path.clone();
    let outside = thread::spawn(move || {
        let Ok(addr) = wait.recv() else { return };
        let clients = (0..3).map(|n| {
            let path = theirs.clone();
            thread::spawn(move || {
                let mut stream = UnixStream::connect(path).unwrap();
                // In one piece: the server answers the first that comes, and closes.
                let sent = format!("client {n}");
                stream.write_all(sent.as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert_eq!(answer, sent);
            })
        });
        let clients: Vec<_> = clients.collect();
        let peer = UdpSocket::bind(LOCALHOST).unwrap();
        for n in 0..20 {
            let sent = vec![n as u8; n * 37];
            peer.send_to(&sent, addr).unwrap();
            let mut buf = [0; 1000];
            let got = peer.recv(&mut buf).unwrap();
            assert_eq!(buf[..got], sent);
        }
        for client in clients {
            client.join().unwrap();
        }
    });
    let populate = |begun: Sender<SocketAddr>| {
        let path = path.clone();
        move |kernel: &mut Kernel| {
            let main = async move |os: &mut Os| serve(os, path, begun).await;
            kernel.spawn("main", main).unwrap();
        }
    };
    let (told, error, bytes) = tape(RealWorld::new().unwrap(), None, populate(begun));
    assert!(error.is_none(), "{error:?}");
    outside.join().unwrap();
    assert!(told.exits.contains("Done") && !path.exists(), "{told:?}");
    for drive in [Kernel::run, in_steps] {
        let (begun, _) = channel();
        let (again, error, finished) = play_by(drive, &bytes, populate(begun)).unwrap();
        assert_eq!(again, told);
        assert!(error.is_none(), "{error:?}");
        finished.unwrap();
    }
    // A tape that is cut anywhere ends its replay in order.
    for end in (0..bytes.len()).step_by(97) {
        let (begun, _) = channel();
        if let Ok((_, _, finished)) = play(&bytes[..end], populate(begun)) {
            // Without the last entries, the run itself may come to its end.
            assert!(finished.is_err(), "cut at {end}");
        }
    }
}
