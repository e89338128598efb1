//! What guests do with bytes, in both worlds.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, SeekFrom},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use trapline::{
    Elapsed, Foreign, ForeignFile, ForeignStream, Kernel, Mode, Os, SimNet, SimWorld, TcpStream,
};

use super::{both, either, second};

async fn read(stream: &ForeignStream, buf: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, buf)).await
}

async fn read_all(stream: &ForeignStream) -> io::Result<Vec<u8>> {
    let (mut all, mut buf) = (Vec::new(), [0; 3000]);
    loop {
        match read(stream, &mut buf).await? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

async fn write_all(stream: &ForeignStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = poll_fn(|cx| stream.poll_write(cx, bytes)).await?;
        bytes = &bytes[n..];
    }
    Ok(())
}

async fn flush(stream: &ForeignStream) -> io::Result<()> {
    poll_fn(|cx| stream.poll_flush(cx)).await
}

async fn close(stream: &ForeignStream) -> io::Result<()> {
    poll_fn(|cx| stream.poll_close(cx)).await
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// Runs a program in the real and in the simulated world.
fn in_both(program: impl AsyncFn(&mut Os) -> io::Result<()> + Clone + 'static) {
    for mut kernel in [Kernel::simulated(3), Kernel::real().unwrap()] {
        let program = program.clone();
        kernel
            .spawn("main", async move |os: &mut Os| program(os).await)
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        kernel.audit_all();
    }
}

async fn pair(os: &mut Os) -> io::Result<(TcpStream, TcpStream)> {
    let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
    let client = os.connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept(os).await?;
    Ok((client, server))
}

#[test]
fn an_echo_of_much_returns_each_byte() {
    in_both(async |os: &mut Os| {
        let (client, server) = pair(os).await?;
        let server = os.spawn_child("server", async |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let stream = foreign.stream(server);
                let mut buf = [0; 5000];
                loop {
                    match read(&stream, &mut buf).await? {
                        0 => return close(&stream).await,
                        n => write_all(&stream, &buf[..n]).await?,
                    }
                }
            })
            .await
        });
        let mut server = server.await.unwrap();
        let bytes = pattern(400_000);
        let echoed = os.run_future(async |foreign: &Foreign| {
            let stream = foreign.stream(client);
            let writes = async {
                write_all(&stream, &bytes).await?;
                close(&stream).await
            };
            let (written, echoed) = both(writes, read_all(&stream)).await;
            written?;
            echoed
        });
        assert!(echoed.await? == bytes);
        server.wait(os).await.unwrap()
    });
}

#[test]
fn a_read_that_takes_just_what_was_there_holds_up_no_timer() {
    in_both(async |os: &mut Os| {
        let (client, server) = pair(os).await?;
        // As much as one call takes: the device is then ready as far as is known.
        server.send_all(os, &pattern(16 * 1024)).await?;
        let rang = os.run_future(async |foreign: &Foreign| {
            let stream = foreign.stream(client);
            let mut left = 16 * 1024;
            let mut buf = [0; 1000];
            while left > 0 {
                left -= read(&stream, &mut buf).await.unwrap();
            }
            let more = async { drop(read(&stream, &mut buf).await) };
            !either(more, foreign.sleep(Duration::from_millis(5))).await
        });
        assert!(rang.await);
        drop(server);
        Ok(())
    });
}

#[test]
fn a_writer_waits_at_its_room_and_a_peer_that_reads_nothing_holds_up_no_timer() {
    in_both(async |os: &mut Os| {
        let (client, server) = pair(os).await?;
        let sent = os.timeout(second(100), async |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let stream = foreign.stream(client);
                let sent = RefCell::new(Vec::new());
                let bytes = pattern(50_000);
                let writes = async {
                    loop {
                        let n = poll_fn(|cx| stream.poll_write(cx, &bytes)).await.unwrap();
                        sent.borrow_mut().extend_from_slice(&bytes[..n]);
                    }
                };
                let rings = foreign.sleep(Duration::from_millis(20));
                assert!(!either(writes, rings).await);
                let server = foreign.stream(server);
                // It is still in order, and the peer gets all.
                let closes = async {
                    close(&stream).await.unwrap();
                };
                let ((), got) = both(closes, read_all(&server)).await;
                let sent = sent.into_inner();
                assert!(got.unwrap() == sent);
                sent.len()
            })
            .await
        });
        assert!(sent.await.unwrap() > 64 * 1024);
        Ok(())
    });
}

#[test]
fn what_a_guest_has_written_is_sent_at_its_end() {
    in_both(async |os: &mut Os| {
        let (client, server) = pair(os).await?;
        // A body that returns its stream ends, and the stream works in the next guest.
        let stream = os.run_future(async |foreign: &Foreign| {
            let stream = foreign.stream(client);
            write_all(&stream, b"one, ").await.map(|()| stream)
        });
        let stream = stream.await?;
        let mut buf = [0; 64];
        assert_eq!(server.recv(os, &mut buf).await?, 5);
        // One that is dropped unflushed, too.
        let write = os.run_future(async move |_: &Foreign| write_all(&stream, b"two").await);
        write.await?;
        assert_eq!(server.recv(os, &mut buf).await?, 3);
        assert_eq!(
            (server.recv(os, &mut buf).await?, &buf[..3]),
            (0, &b"two"[..])
        );
        Ok(())
    });
}

#[test]
fn a_stream_outlives_the_guest_that_a_timeout_cuts() {
    in_both(async |os: &mut Os| {
        let (client, server) = pair(os).await?;
        let stream = os
            .run_future(async |foreign: &Foreign| foreign.stream(client))
            .await;
        let cut = os.timeout(Duration::from_millis(5), async |os: &mut Os| {
            os.run_future(async |_: &Foreign| {
                write_all(&stream, b"hello").await.unwrap();
                read(&stream, &mut [0; 8]).await
            })
            .await
        });
        assert!(matches!(cut.await, Err(Elapsed)));
        server.send_all(os, b"world").await?;
        let got = os.run_future(async |_: &Foreign| {
            let mut buf = [0; 8];
            let n = read(&stream, &mut buf).await?;
            io::Result::Ok(buf[..n].to_vec())
        });
        assert_eq!(got.await?, b"world");
        let mut buf = [0; 8];
        assert_eq!(server.recv(os, &mut buf).await?, 5);
        Ok(())
    });
}

#[test]
fn errors_reach_the_guest() {
    in_both(async |os: &mut Os| {
        let (client, server) = pair(os).await?;
        drop(server);
        os.run_future(async |foreign: &Foreign| {
            let stream = foreign.stream(client);
            assert_eq!(read(&stream, &mut [0; 8]).await.unwrap(), 0);
            assert_eq!(read(&stream, &mut []).await.unwrap(), 0);
            let failed = loop {
                let written = write_all(&stream, b"x").await;
                match written.and(flush(&stream).await) {
                    Ok(()) => {}
                    Err(error) => break error,
                }
                foreign.sleep(Duration::from_millis(1)).await;
            };
            let kinds = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            assert!(kinds.contains(&failed.kind()), "{failed}");
            assert!(flush(&stream).await.is_err());
        })
        .await;
        let (client, _server) = pair(os).await?;
        let stream = os
            .run_future(async |foreign: &Foreign| foreign.stream(client))
            .await;
        let cx = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Err(error)) = stream.poll_read(&cx, &mut [0; 8]) else {
            panic!("it works outside of a guest");
        };
        assert!(
            error.to_string().contains("outside of Os::run_future"),
            "{error}"
        );
        Ok(())
    });
}

#[test]
fn the_halves_of_a_stream_may_be_in_two_guests_and_move() {
    in_both(async |os: &mut Os| {
        let (client, server) = pair(os).await?;
        let bytes = pattern(100_000);
        let sent = bytes.clone();
        os.run_future(async move |foreign: &Foreign| {
            let stream = Rc::new(foreign.stream(client));
            let peer = foreign.stream(server);
            // This guest reads first, so its task has the device; then another one does.
            let mut first = [0; 10];
            let tries = async { drop(read(&stream, &mut first).await) };
            either(tries, super::yields(3)).await;
            let reader = Rc::clone(&stream);
            let reads = foreign.spawn("reader", async move { read_all(&reader).await.unwrap() });
            write_all(&stream, b"from here").await.unwrap();
            write_all(&peer, &sent).await.unwrap();
            close(&peer).await.unwrap();
            assert!(reads.await.unwrap() == sent);
            let mut buf = [0; 16];
            let n = read(&peer, &mut buf).await.unwrap();
            assert_eq!(&buf[..n], b"from here");
        })
        .await;
        Ok(())
    });
}

/// A stream goes from guest to guest while its bytes are being sent and received, in pieces.
fn handed_on(seed: u64) -> Result<(), trapline::Error> {
    let net = SimNet::new().fragment(true);
    let world = SimWorld::new(seed).net(&net);
    let random = trapline::sched::Random::new(seed);
    let mut kernel = Kernel::builder().world(world).policy(random).build()?;
    let (bytes, read_by) = (pattern(3_000), 10);
    let sent = bytes.clone();
    let main = kernel.spawn("main", async move |os: &mut Os| {
        let (client, server) = pair(os).await?;
        os.run_future(async move |foreign: &Foreign| {
            let (writer, reader) = (foreign.stream(client), Rc::new(foreign.stream(server)));
            let foreign = *foreign;
            let writes = async move {
                let mut writer = writer;
                for piece in sent.chunks(sent.len().div_ceil(read_by)) {
                    let piece = piece.to_vec();
                    let wrote = foreign.spawn("writer", async move {
                        write_all(&writer, &piece).await?;
                        // Some of it is on its way.
                        super::yields(piece.len() as u32 % 3).await;
                        io::Result::Ok(writer)
                    });
                    writer = wrote.await.unwrap()?;
                }
                flush(&writer).await?;
                close(&writer).await
            };
            let reads = async move {
                let (mut all, mut buf) = (Vec::new(), [0; 100]);
                loop {
                    let theirs = Rc::clone(&reader);
                    let n = foreign.spawn("reader", async move {
                        let n = read(&theirs, &mut buf).await;
                        n.map(|n| buf[..n].to_vec())
                    });
                    match n.await.unwrap()? {
                        some if some.is_empty() => return io::Result::Ok(all),
                        some => all.extend(some),
                    }
                }
            };
            let reads = foreign.spawn("reads", reads);
            writes.await?;
            let all = reads.await.unwrap()?;
            let parts = all.iter().zip(&bytes).position(|(one, other)| one != other);
            assert_eq!((parts, all.len()), (None, bytes.len()));
            io::Result::Ok(())
        })
        .await
    })?;
    let report = kernel.run_until(&[main])?;
    kernel.audit_all();
    report.check()
}

#[test]
fn a_stream_that_guests_hand_on_keeps_its_bytes_in_order() {
    for seed in 0..60 {
        handed_on(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn listeners_datagrams_and_unix_sockets_are_for_guests_too() {
    in_both(async |os: &mut Os| {
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let addr = listener.local_addr()?;
        let (one, other) = os.socketpair().await?;
        let here = ([127, 0, 0, 1], 0).into();
        let (ours, theirs) = (os.bind_udp(here).await?, os.bind_udp(here).await?);
        os.run_future(async move |foreign: &Foreign| {
            let listener = foreign.listener(listener);
            // An accept that is given up loses nothing.
            let gives_up = async { drop(listener.accept().await) };
            assert!(!either(gives_up, super::yields(2)).await);
            let client = foreign.call(async move |os: &mut Os| os.connect(addr).await);
            let (client, accepted) = both(client, listener.accept()).await;
            let (client, (server, peer)) = (foreign.stream(client?), accepted?);
            assert_eq!(peer.ip(), addr.ip());
            write_all(&client, b"tcp").await?;
            let (one, other) = (foreign.stream(one), foreign.stream(other));
            write_all(&one, b"unix").await?;
            let (ours, theirs) = (foreign.udp(ours), foreign.udp(theirs));
            for n in 0..100u8 {
                ours.send_to(&[n; 3], theirs.local_addr()?).await?;
            }
            let mut buf = [0; 16];
            for n in 0..10 {
                let (len, from) = theirs.recv_from(&mut buf).await?;
                assert_eq!((&buf[..len], from), (&[n; 3][..], ours.local_addr()?));
            }
            assert_eq!(read(&server, &mut buf).await?, 3);
            assert_eq!(read(&other, &mut buf).await?, 4);
            assert_eq!(&buf[..4], b"unix");
            io::Result::Ok(())
        })
        .await
    });
}

async fn put(file: &mut ForeignFile, bytes: &[u8]) {
    let mut left = bytes;
    while !left.is_empty() {
        let n = poll_fn(|cx| file.poll_write(cx, left)).await.unwrap();
        left = &left[n..];
    }
    poll_fn(|cx| file.poll_flush(cx)).await.unwrap();
}

async fn get(file: &mut ForeignFile, len: usize) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), vec![0; len]);
    loop {
        match poll_fn(|cx| file.poll_read(cx, &mut buf)).await.unwrap() {
            0 => return all,
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

#[test]
fn a_file_has_a_position() {
    let dir = std::env::temp_dir().join(format!("trapline-guests-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let real = Kernel::builder().disk(&dir).build().unwrap();
    for mut kernel in [real, Kernel::simulated(1)] {
        kernel
            .spawn("main", async |os: &mut Os| {
                let disk = os.disk();
                let write = disk.open(os, "a", Mode::Write).await?;
                let append = disk.open(os, "a", Mode::Append).await?;
                let read = disk.open(os, "a", Mode::Read).await?;
                os.run_future(async move |foreign: &Foreign| {
                    let mut file = foreign.file(write);
                    let bytes = pattern(200_000);
                    put(&mut file, &bytes).await;
                    let mut seek = async |to| poll_fn(|cx| file.poll_seek(cx, to)).await;
                    assert_eq!(seek(SeekFrom::Start(5)).await.unwrap(), 5);
                    assert_eq!(seek(SeekFrom::Current(-2)).await.unwrap(), 3);
                    assert!(seek(SeekFrom::Current(-4)).await.is_err());
                    assert!(get(&mut file, 70_000).await == bytes[3..]);
                    let to = SeekFrom::End(-4);
                    assert_eq!(poll_fn(|cx| file.poll_seek(cx, to)).await.unwrap(), 199_996);
                    // A read that is given up leaves the position.
                    let mut some = [0; 2];
                    let first = poll_fn(|cx| Poll::Ready(file.poll_read(cx, &mut some)));
                    assert!(first.await.is_pending());
                    assert!(get(&mut file, 100).await == bytes[199_996..]);
                    let mut appends = foreign.file(append);
                    put(&mut appends, b"end").await;
                    assert_eq!(get(&mut file, 10).await, b"end");
                    // The error of a write is told by the next operation.
                    let mut fails = foreign.file(read);
                    let n = poll_fn(|cx| fails.poll_write(cx, b"x")).await.unwrap();
                    let failed = poll_fn(|cx| fails.poll_flush(cx)).await.unwrap_err();
                    assert_eq!((n, failed.kind()), (1, io::ErrorKind::PermissionDenied));
                })
                .await;
                io::Result::Ok(())
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn guests_in_a_slow_net_give_equal_logs() {
    let log = |seed| {
        let net = SimNet::new().latency(Duration::from_millis(1)..=Duration::from_millis(9));
        let world = SimWorld::new(seed).net(&net);
        let (mut kernel, log) = crate::support::logged(Kernel::builder().world(world));
        let server = kernel.spawn_on("server", "server", async |os: &mut Os| {
            let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
            let (stream, _) = listener.accept(os).await?;
            os.run_future(async |foreign: &Foreign| {
                let got = read_all(&foreign.stream(stream)).await?;
                assert!(got == pattern(70_000));
                io::Result::Ok(())
            })
            .await
        });
        server.unwrap();
        let client = kernel.spawn_on("laptop", "client", async |os: &mut Os| {
            os.sleep(second(1)).await;
            let stream = os.connect(("server", 80)).await?;
            os.run_future(async |foreign: &Foreign| {
                let stream = foreign.stream(stream);
                write_all(&stream, &pattern(70_000)).await?;
                close(&stream).await
            })
            .await
        });
        client.unwrap();
        kernel.run().unwrap().check().unwrap();
        log.text()
    };
    assert!(log(1) == log(1));
    assert!(log(1) != log(2));
}
