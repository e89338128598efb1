//! S29 to S38, for TCP over loopback.

mod local;

use std::{
    error::Error,
    io::{self, ErrorKind, Read, Write},
    net::{self, Ipv4Addr, Shutdown, SocketAddr},
    rc::Rc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{
    net::SendFlags,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use socket2::SockRef;
use trapline::{
    Endpoint, Errno, Exit, Kernel, Os, RealWorld, Reply, SystemCall, TcpListener, TcpStream,
};

use crate::{support::*, worlds::Counted};

const MFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const FULL: &str = "Too many open files (os error 24)";

/// The code of the operating system's error behind that of a call which names an address.
fn code_behind(error: &io::Error) -> Option<i32> {
    let source = error.source()?.downcast_ref::<io::Error>();
    source.and_then(io::Error::raw_os_error)
}

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A connection: the kernel's end, and one for the test's own use.
async fn pair(os: &mut Os) -> io::Result<(TcpStream, net::TcpStream)> {
    let listener = os.listen(any()).await?;
    let theirs = net::TcpStream::connect(listener.local_addr()?)?;
    let (ours, _) = listener.accept(os).await?;
    Ok((ours, theirs))
}

/// Closes a connection in such a way that its peer is told of a reset.
fn reset(stream: net::TcpStream) {
    let socket = SockRef::from(&stream);
    socket
        .set_linger(Some(Duration::ZERO))
        .expect("a socket lingers");
    drop(stream);
}

async fn read_all(os: &mut Os, stream: &TcpStream, size: usize) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buf) = (Vec::new(), vec![0; size]);
    loop {
        match stream.recv(os, &mut buf).await? {
            0 => return Ok(bytes),
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
}

/// Echoes until the peer is done.
async fn echo(os: &mut Os, stream: TcpStream) -> io::Result<()> {
    let mut buf = [0; 1000];
    loop {
        match stream.recv(os, &mut buf).await? {
            0 => return Ok(()),
            n => stream.send_all(os, &buf[..n]).await?,
        }
    }
}

/// Accepts so many clients, with a task for each.
async fn serve(os: &mut Os, listener: &TcpListener, clients: usize) -> io::Result<()> {
    for _ in 0..clients {
        let (stream, peer) = listener.accept(os).await?;
        assert_eq!(stream.peer_addr()?, peer);
        os.spawn_detached("client", async move |os| echo(os, stream).await)
            .await?;
    }
    Ok(())
}

/// A client on a thread: sends all that, half closes, and answers what comes back.
fn client(addr: SocketAddr, bytes: Vec<u8>) -> JoinHandle<io::Result<Vec<u8>>> {
    thread::spawn(move || {
        let mut stream = net::TcpStream::connect(addr)?;
        let mut writer = stream.try_clone()?;
        let sender = thread::spawn(move || {
            writer.write_all(&bytes)?;
            writer.shutdown(Shutdown::Write)
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        sender.join().expect("the sender ends")?;
        Ok(got)
    })
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("it fails").kind()
}

// ---- S30

#[test]
fn s30_the_end_of_a_stream_that_comes_with_the_last_bytes_is_not_lost() {
    for (size, looks) in [1, 4, 5, 6, 1000]
        .into_iter()
        .flat_map(|size| [(size, 0), (size, 300)])
    {
        real(async move |os| {
            let (ours, mut theirs) = pair(os).await?;
            // Somebody waits for a device: so the world is asked about all of them.
            let idle = os.listen(any()).await?;
            let idle = async move |os: &mut Os| idle.accept(os).await.map(drop);
            let idle = os.spawn("idle", idle).await?;
            theirs.write_all(b"hello")?;
            theirs.shutdown(Shutdown::Write)?;
            // Whatever there is to report is reported now, or later. The peer stays open: no more
            // than this will ever be.
            passes(os, looks).await;
            assert_eq!(read_all(os, &ours, size).await?, b"hello");
            assert_eq!(ours.recv(os, &mut [0; 8]).await?, 0, "it stays at its end");
            ours.send_all(os, b"bye").await?;
            drop(ours);
            os.kill(idle).await;
            let mut got = Vec::new();
            theirs.read_to_end(&mut got)?;
            assert_eq!(got, b"bye");
            Ok::<(), io::Error>(())
        });
    }
}

#[test]
fn s30_the_end_is_seen_by_a_reader_that_waits_after_a_short_read() {
    real(async |os| {
        let (ours, mut theirs) = pair(os).await?;
        theirs.write_all(b"hello")?;
        theirs.shutdown(Shutdown::Write)?;
        for _ in 0..2 {
            os.read_wait(&ours).await?;
        }
        assert_eq!(ours.recv(os, &mut [0; 64]).await?, 5);
        os.read_wait(&ours).await?;
        assert_eq!(ours.recv(os, &mut [0; 64]).await?, 0);
        os.read_wait(&ours).await?;
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s30_bytes_that_come_between_short_reads_are_not_lost() {
    real(async |os| {
        let (ours, mut theirs) = pair(os).await?;
        let mut buf = [0; 64];
        for round in 0..300usize {
            theirs.write_all(b"a")?;
            // Sometimes the next byte is there before, sometimes after the kernel looks again.
            assert_eq!(ours.recv(os, &mut buf).await?, 1);
            theirs.write_all(b"bc")?;
            passes(os, round).await;
            if round % 2 == 0 {
                os.read_wait(&ours).await?;
            }
            assert_eq!(ours.recv(os, &mut buf[..1]).await?, 1);
            assert_eq!(ours.recv(os, &mut buf).await?, 1);
        }
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s30_bytes_behind_urgent_data_are_not_lost() {
    // A read ends before the urgent byte, which is not among the others, however large its buffer.
    for looks in [0, 300] {
        real(async move |os| {
            let (ours, mut theirs) = pair(os).await?;
            let idle = os.listen(any()).await?;
            let idle = async move |os: &mut Os| idle.accept(os).await.map(drop);
            let idle = os.spawn("idle", idle).await?;
            let mut buf = [0; 64];
            for _ in 0..3 {
                theirs.write_all(b"ab")?;
                rustix::net::send(&theirs, b"!", SendFlags::OOB)?;
                theirs.write_all(b"cd")?;
                passes(os, looks).await;
                let mut got = Vec::new();
                while got.len() < 4 {
                    let n = ours.recv(os, &mut buf).await?;
                    got.extend_from_slice(&buf[..n]);
                }
                assert_eq!(got, b"abcd");
            }
            os.kill(idle).await;
            Ok::<(), io::Error>(())
        });
    }
}

#[test]
fn s30_a_reader_of_a_stream_that_is_known_to_be_empty_waits_at_once() {
    let (mut kernel, log) = logged(Kernel::builder());
    run_main(&mut kernel, async |os: &mut Os| {
        let (ours, mut theirs) = pair(os).await?;
        theirs.write_all(b"hello")?;
        ours.recv(os, &mut [0; 64]).await?;
        let reader = async move |os: &mut Os| ours.recv(os, &mut [0; 64]).await.map(drop);
        let reader = os.spawn("reader", reader).await?;
        os.yield_now().await;
        theirs.write_all(b"world")?;
        os.wait(reader).await.map_err(io::Error::other)?;
        Ok::<(), io::Error>(())
    });
    let lines = log.lines();
    let is_its_trap = |line: &String| line.contains(" 2 trapped recv");
    let trap = lines.iter().position(is_its_trap).expect("it reads");
    // Elsewhere it is looked at first.
    if cfg!(target_os = "linux") {
        assert!(lines[trap + 1].contains(" 2 blocked on"), "{lines:#?}");
    }
}

#[test]
fn s30_many_clients_get_back_exactly_what_they_sent() {
    const CLIENTS: usize = 50;
    let mut threads = Vec::new();
    let (tell, told) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        real(async move |os| {
            let listener = os.listen(any()).await?;
            tell.send(listener.local_addr()?).expect("the test listens");
            serve(os, &listener, CLIENTS).await
        })
        .failures
    });
    let addr = told.recv().unwrap();
    for n in 0..CLIENTS {
        let bytes: Vec<u8> = (0..n * 2311).map(|at| (at * n) as u8).collect();
        threads.push((bytes.clone(), client(addr, bytes)));
    }
    for (bytes, thread) in threads {
        assert!(
            thread.join().unwrap().unwrap() == bytes,
            "{} bytes",
            bytes.len()
        );
    }
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn s30_tasks_of_one_kernel_can_talk_to_each_other() {
    real(async |os| {
        let listener = os.listen(any()).await?;
        let addr = listener.local_addr()?;
        os.spawn("server", async move |os| serve(os, &listener, 3).await)
            .await?;
        for n in 0..3 {
            let stream = Rc::new(os.connect(addr).await?);
            let sent: Vec<u8> = (0..=255).cycle().take(300_000 + n).collect();
            let (text, writer) = (sent.clone(), Rc::clone(&stream));
            os.spawn("writer", async move |os| {
                writer.send_all(os, &text).await?;
                writer.shutdown_write(os).await
            })
            .await?;
            assert!(read_all(os, &stream, 7777).await? == sent);
        }
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s30_connections_that_come_while_nobody_accepts_are_not_lost() {
    real(async |os| {
        let listener = os.listen(any()).await?;
        let addr = listener.local_addr()?;
        for batch in [1, 3, 2] {
            let clients: Result<Vec<_>, _> =
                (0..batch).map(|_| net::TcpStream::connect(addr)).collect();
            let clients = clients?;
            for client in &clients {
                let (_, peer) = listener.accept(os).await?;
                assert_eq!(peer, client.local_addr()?);
            }
        }
        Ok::<(), io::Error>(())
    });
}

// ---- S31 and S33

#[test]
fn s31_a_second_task_that_accepts_is_busy() {
    real(async |os| {
        let listener = os.listen(any()).await?;
        let other = TcpListener::clone(&listener);
        let first = async move |os: &mut Os| other.accept(os).await.map(drop);
        let first = os.spawn("first", first).await?;
        passes(os, 3).await;
        assert_eq!(kind(listener.accept(os).await), ErrorKind::ResourceBusy);
        let _client = net::TcpStream::connect(listener.local_addr()?)?;
        assert_eq!(os.wait(first).await, Ok(Exit::Done));
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s33_a_listener_closed_while_a_task_accepts_wakes_it() {
    real(async |os| {
        let listener = os.listen(any()).await?;
        let other = TcpListener::clone(&listener);
        let acceptor = async move |os: &mut Os| {
            assert_eq!(kind(other.accept(os).await), ErrorKind::NotConnected);
        };
        let acceptor = os.spawn("acceptor", acceptor).await?;
        passes(os, 3).await;
        listener.close(os).await?;
        assert_eq!(os.wait(acceptor).await, Ok(Exit::Done));
        assert_eq!(kind(listener.accept(os).await), ErrorKind::InvalidInput);
        let addr = listener.local_addr()?;
        assert_eq!(
            kind(net::TcpStream::connect(addr)),
            ErrorKind::ConnectionRefused
        );
        Ok::<(), io::Error>(())
    });
}

// ---- S36

/// The address of a port at which nobody listens.
fn nobody() -> SocketAddr {
    let listener = net::TcpListener::bind(any()).expect("a port is free");
    listener.local_addr().expect("it has an address")
}

#[test]
fn s36_refused_unreachable_and_in_use_are_errors_to_the_caller() {
    real(async |os| {
        assert_eq!(
            kind(os.connect(nobody()).await),
            ErrorKind::ConnectionRefused
        );
        let broadcast = SocketAddr::from(([255, 255, 255, 255], 9));
        assert_eq!(
            kind(os.connect(broadcast).await),
            ErrorKind::NetworkUnreachable
        );
        let listener = os.listen(any()).await?;
        let addr = listener.local_addr()?;
        assert_eq!(kind(os.listen(addr).await), ErrorKind::AddrInUse);
        let elsewhere = ([203, 0, 113, 1], 0).into();
        let error = os.listen(elsewhere).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
        let text = error.to_string();
        assert!(
            text.starts_with("cannot listen on 203.0.113.1:0: ")
                && text.ends_with("; choose an address of this machine"),
            "{text}"
        );
        // And when it is closed, the same address is free again at once.
        let _client = net::TcpStream::connect(addr)?;
        listener.accept(os).await?;
        listener.close(os).await?;
        os.listen(addr).await?;
        Ok::<(), io::Error>(())
    });
}

/// Fails to connect in both worlds, and checks the error.
fn cannot_connect(to: impl Into<Endpoint>, kind: ErrorKind) {
    let to = to.into();
    for is_real in [true, false] {
        let to = to.clone();
        let program = async move |os: &mut Os| {
            let begin = format!("cannot connect to {to}: ");
            let error = os.connect(to).await.map(drop).expect_err("it fails");
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            let source = error.source().expect("the error of the world");
            assert_eq!(text, format!("{begin}{source}"));
            assert!(source.is::<io::Error>());
        };
        match is_real {
            true => drop(real(program)),
            false => drop(console(program)),
        }
    }
}

#[test]
fn s36_an_error_of_connect_names_the_address_and_has_that_of_the_world() {
    cannot_connect(nobody(), ErrorKind::ConnectionRefused);
    cannot_connect(("127.0.0.1", nobody().port()), ErrorKind::ConnectionRefused);
    let mut kernel = Kernel::simulated(1);
    run_main(&mut kernel, async |os: &mut Os| {
        let error = os.connect(("nowhere", 80)).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let source = error
            .source()
            .expect("the error of the look-up")
            .to_string();
        assert_eq!(source, os.resolve("nowhere").await.unwrap_err().to_string());
        assert_eq!(
            error.to_string(),
            format!("cannot connect to nowhere:80: {source}")
        );
        let other = os.connect(([10, 9, 9, 9], 80)).await.map(drop).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::HostUnreachable);
    });
}

#[test]
fn an_address_is_an_array_and_a_port() {
    assert_eq!(
        Endpoint::from(([127, 0, 0, 1], 80)).to_string(),
        "127.0.0.1:80"
    );
    let long: Endpoint = ([0, 0, 0, 0, 0, 0, 0, 1u16], 80).into();
    assert_eq!(long.to_string(), "[::1]:80");
    console(async |os| {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        os.connect(([127, 0, 0, 1], 80)).await?;
        os.connect(("127.0.0.1", 80)).await?;
        os.connect((Ipv4Addr::LOCALHOST, 80)).await?;
        let _ = os.connect(([0, 0, 0, 0, 0, 0, 0, 1], 80)).await;
        listener.accept(os).await?;
        io::Result::Ok(())
    });
}

#[test]
fn s36_a_reset_is_an_error_to_whoever_reads_and_the_others_go_on() {
    real(async |os| {
        let (ours, theirs) = pair(os).await?;
        let (other, mut alive) = pair(os).await?;
        let server = os
            .spawn("echo", async move |os| echo(os, other).await)
            .await?;
        let reader = os
            .spawn("reader", async move |os| {
                assert_eq!(
                    kind(ours.recv(os, &mut [0; 8]).await),
                    ErrorKind::ConnectionReset
                );
                // Told once; from then on it is at its end.
                assert_eq!(ours.recv(os, &mut [0; 8]).await?, 0);
                assert_eq!(kind(ours.send(os, b"x").await), ErrorKind::BrokenPipe);
                Ok::<(), io::Error>(())
            })
            .await?;
        passes(os, 3).await;
        reset(theirs);
        assert_eq!(os.wait(reader).await, Ok(Exit::Done));
        alive.write_all(b"still here")?;
        alive.shutdown(Shutdown::Write)?;
        assert_eq!(os.wait(server).await, Ok(Exit::Done));
        let mut got = Vec::new();
        alive.read_to_end(&mut got)?;
        assert_eq!(got, b"still here");
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s36_a_client_that_is_gone_before_it_is_accepted_harms_nobody() {
    real(async |os| {
        let listener = os.listen(any()).await?;
        for _ in 0..3 {
            reset(net::TcpStream::connect(listener.local_addr()?)?);
        }
        let mut alive = net::TcpStream::connect(listener.local_addr()?)?;
        alive.write_all(b"hello")?;
        alive.shutdown(Shutdown::Write)?;
        let mut texts = Vec::new();
        while texts.is_empty() {
            let (stream, _) = listener.accept(os).await?;
            texts.extend(read_all(os, &stream, 100).await.unwrap_or_default());
        }
        assert_eq!(texts, b"hello");
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s36_a_server_out_of_descriptors_serves_again_when_some_are_free() {
    let test = "sockets::s36_a_server_out_of_descriptors_serves_again_when_some_are_free";
    alone(test, || {
        real(async |os| {
            let listener = os.listen(any()).await?;
            let addr = listener.local_addr()?;
            let beside = os.spawn("beside", spin).await?;
            let clients = [
                net::TcpStream::connect(addr)?,
                net::TcpStream::connect(addr)?,
            ];
            // From here on there is not one descriptor more.
            let old = getrlimit(Resource::Nofile);
            let spare = std::fs::File::open("/dev/null")?;
            let free = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&spare)).expect("it is open");
            setrlimit(
                Resource::Nofile,
                Rlimit {
                    current: Some(free),
                    ..old
                },
            )?;
            drop(spare);
            for _ in 0..3 {
                let error = listener
                    .accept(os)
                    .await
                    .expect_err("there is no descriptor");
                assert_eq!(error.raw_os_error(), Some(MFILE));
                let error = os.connect(addr).await.expect_err("there is no descriptor");
                assert_eq!(code_behind(&error), Some(MFILE));
                let text = format!("cannot connect to {addr}: {FULL}");
                assert_eq!(error.to_string(), text);
                let error = os.listen(any()).await.expect_err("there is no descriptor");
                assert_eq!(code_behind(&error), Some(MFILE));
                let text = format!("cannot listen on 127.0.0.1:0: {FULL}");
                assert_eq!(error.to_string(), text);
                os.sleep(Duration::from_millis(1)).await;
            }
            // An acceptor that tries again serves everybody once there is room.
            let server = os
                .spawn("server", async move |os| {
                    let mut served = 0;
                    while served < 2 {
                        match listener.accept(os).await {
                            Ok((stream, _)) => {
                                echo(os, stream).await?;
                                served += 1;
                            }
                            Err(_) => os.sleep(Duration::from_millis(1)).await,
                        }
                    }
                    Ok::<(), io::Error>(())
                })
                .await?;
            os.sleep(Duration::from_millis(3)).await;
            setrlimit(Resource::Nofile, old)?;
            for mut client in clients {
                client.write_all(b"served")?;
                client.shutdown(Shutdown::Write)?;
                let echoed = thread::spawn(move || {
                    let mut got = Vec::new();
                    client.read_to_end(&mut got).map(|_| got)
                });
                while !echoed.is_finished() {
                    os.yield_now().await;
                }
                assert_eq!(echoed.join().expect("the client ends")?, b"served");
            }
            assert_eq!(os.wait(server).await, Ok(Exit::Done));
            assert!(os.kill(beside).await, "the others went on");
            Ok::<(), io::Error>(())
        });
    });
}

#[test]
fn s36_a_kernel_that_cannot_boot_for_want_of_descriptors_says_so() {
    let test = "sockets::s36_a_kernel_that_cannot_boot_for_want_of_descriptors_says_so";
    alone(test, || {
        let old = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(3),
                ..old
            },
        )
        .unwrap();
        let error = Kernel::real().expect_err("there is no descriptor");
        setrlimit(Resource::Nofile, old).unwrap();
        assert!(
            error
                .to_string()
                .starts_with("the world failed: Too many open files"),
            "{error}"
        );
    });
}

#[test]
fn s36_a_socket_that_its_opener_did_not_take_is_closed() {
    real(async |os| {
        // A listener.
        let free = net::TcpListener::bind(any())?.local_addr()?;
        ignore_answer(os.listen(free)).await;
        os.yield_now().await;
        assert_eq!(
            kind(net::TcpStream::connect(free)),
            ErrorKind::ConnectionRefused
        );
        // A connection.
        let host = net::TcpListener::bind(any())?;
        ignore_answer(os.connect(host.local_addr()?)).await;
        os.yield_now().await;
        assert_eq!(host.accept()?.0.read(&mut [0; 8])?, 0);
        // One that was accepted.
        let listener = os.listen(any()).await?;
        let mut client = net::TcpStream::connect(listener.local_addr()?)?;
        ignore_answer(listener.accept(os)).await;
        os.yield_now().await;
        assert_eq!(client.read(&mut [0; 8])?, 0);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_a_connection_that_is_closed_is_closed_for_every_handle() {
    real(async |os| {
        let (stream, mut theirs) = pair(os).await?;
        let other = stream.clone();
        stream.close(os).await?;
        assert_eq!(theirs.read(&mut [0; 8])?, 0);
        assert_eq!(other.close(os).await, Err(Errno::BadFd));
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s36_a_connection_accepted_by_the_raw_call_is_its_callers() {
    real(async |os| {
        let listener = os.listen(any()).await?;
        let mut client = net::TcpStream::connect(listener.local_addr()?)?;
        client.set_nonblocking(true)?;
        let Reply::Device(id) = os.trap(SystemCall::Accept(listener.id())).await else {
            panic!("nobody has connected");
        };
        passes(os, 3).await;
        assert_eq!(kind(client.read(&mut [0; 8])), ErrorKind::WouldBlock);
        assert_eq!(raw(os, SystemCall::Close(id)).await, "Done");
        // The machine may take a moment to tell the client.
        client.set_nonblocking(false)?;
        assert_eq!(client.read(&mut [0; 8])?, 0);
        Ok::<(), io::Error>(())
    });
}

// ---- S37

#[test]
fn s37_writing_to_a_tcp_peer_that_has_gone_is_an_error_in_the_end() {
    real(async |os| {
        let (ours, theirs) = pair(os).await?;
        drop(theirs);
        let mut error = None;
        while error.is_none() {
            // The first goes out, and is answered with a reset.
            error = ours.send_all(os, &[0; 100]).await.err();
        }
        let kind = error.map(|error| error.kind());
        assert!(matches!(
            kind,
            Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        ));
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s37_shutting_down_a_connection_twice_or_when_it_is_gone_is_no_panic() {
    real(async |os| {
        let (ours, theirs) = pair(os).await?;
        ours.shutdown_write(os).await?;
        assert_eq!(kind(ours.send(os, b"x").await), ErrorKind::BrokenPipe);
        reset(theirs);
        assert_eq!(
            kind(ours.recv(os, &mut [0; 8]).await),
            ErrorKind::ConnectionReset
        );
        assert_eq!(kind(ours.shutdown_write(os).await), ErrorKind::NotConnected);
        ours.close(os).await?;
        assert_eq!(ours.close(os).await, Err(Errno::BadFd));
        Ok::<(), io::Error>(())
    });
}

// ---- S38

#[test]
fn s38_idle_half_closed_and_reset_connections_cost_no_waits() {
    let (world, waits) = Counted::new(RealWorld::new().unwrap());
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let counter = Rc::clone(&waits);
    run_main(&mut kernel, async move |os: &mut Os| {
        let mut kept = Vec::new();
        for n in 0..40 {
            let (ours, mut theirs) = pair(os).await?;
            match n % 4 {
                0 => {}
                1 => {
                    theirs.write_all(b"hello")?;
                    ours.recv(os, &mut [0; 64]).await?;
                }
                2 => theirs.shutdown(Shutdown::Write)?,
                _ => {
                    reset(theirs);
                    kept.push((ours, None));
                    continue;
                }
            }
            kept.push((ours, Some(theirs)));
        }
        os.sleep(Duration::from_millis(5)).await;
        let before = counter.get();
        os.sleep(Duration::from_millis(50)).await;
        let waits = counter.get() - before;
        assert!(waits <= 4, "{waits} waits");
        Ok::<(), io::Error>(())
    });
}
