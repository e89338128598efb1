//! S80 to S87: the simulated network.

mod datagrams;
mod faults;
mod loopback;

use std::{
    cell::RefCell,
    io::{self, ErrorKind},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Deadlock, Detail, Endpoint, Errno, Error, Event, Exit, Fact, IntoExit, Kernel, Os, Reply,
    SimNet, SimWorld, TcpStream, Tid,
};

use crate::support::*;

const PORT: u16 = 80;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn any(port: u16) -> SocketAddr {
    ([0, 0, 0, 0], port).into()
}

/// A kernel with a net whose packets take 10 ms, and the hosts "a", "b" and "c".
fn world() -> (Kernel, SimNet) {
    let net = SimNet::new().latency(ms(10)..=ms(10));
    for host in ["a", "b", "c"] {
        net.host(host).expect("it is a name");
    }
    let world = SimWorld::new(1).net(&net);
    let builder = Kernel::builder().world(world).max_ticks(10_000_000);
    (builder.build().expect("a kernel boots"), net)
}

/// The same, with the echo server on host "b".
fn served() -> (Kernel, SimNet) {
    let (mut kernel, net) = world();
    boot_echo(&mut kernel);
    (kernel, net)
}

/// Notes a line with the time.
async fn note(os: &mut Os, line: impl AsRef<str>) {
    let now = os.now().await;
    writeln!(os, "{} {}", now.as_millis(), line.as_ref());
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("it fails").kind()
}

/// Notes the error of a call that fails.
async fn failed<T: std::fmt::Debug>(result: io::Result<T>, os: &mut Os) {
    note(os, format!("{:?}", kind(result))).await;
}

/// Sends a word, and waits for its echo.
async fn pinged(os: &mut Os, stream: &TcpStream) -> io::Result<()> {
    stream.send_all(os, b"ping").await?;
    recv_exact(os, stream, 4).await.map(drop)
}

/// Receives exactly so many bytes.
async fn recv_exact(os: &mut Os, stream: &TcpStream, n: usize) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buf) = (Vec::new(), vec![0; n]);
    while bytes.len() < n {
        match stream.recv(os, &mut buf[..n - bytes.len()]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
    Ok(bytes)
}

async fn recv_all(os: &mut Os, stream: &TcpStream) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buf) = (Vec::new(), vec![0; 4096]);
    loop {
        match stream.recv(os, &mut buf).await? {
            0 => return Ok(bytes),
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
}

/// Echoes to every client, for ever.
async fn echo(os: &mut Os) -> io::Result<()> {
    let listener = os.listen(any(PORT)).await?;
    loop {
        let (stream, _) = listener.accept(os).await?;
        let serve = async move |os: &mut Os| {
            let mut buf = [0; 4096];
            loop {
                match stream.recv(os, &mut buf).await? {
                    0 => return io::Result::Ok(()),
                    n => stream.send_all(os, &buf[..n]).await?,
                }
            }
        };
        os.spawn_detached("client", serve).await?;
    }
}

/// Boots the echo server on host "b".
fn boot_echo(kernel: &mut Kernel) {
    kernel.spawn_on("b", "server", echo).expect("there is room");
}

/// Runs a program on host "a" to its end, beside those that were spawned before, and answers what
/// was printed.
fn run<T: IntoExit>(
    kernel: &mut Kernel,
    program: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> String {
    let main = kernel
        .spawn_on("a", "main", program)
        .expect("there is room");
    let report = kernel.run_until(&[main]).expect("the run ends well");
    kernel.audit();
    assert_eq!(report.exits()[&main], Exit::Done, "how main ended");
    kernel.take_console()
}

/// The same, with a connection to host "b".
fn connected(
    kernel: &mut Kernel,
    client: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
) -> String {
    run(kernel, async |os| {
        os.sleep(ms(1)).await;
        let stream = os.connect(("b", PORT)).await?;
        client(os, stream).await
    })
}

/// A server on host "b" that does that with its first connection.
fn serve(
    kernel: &mut Kernel,
    server: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
) -> Tid {
    let server = async |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        let (stream, _) = listener.accept(os).await?;
        server(os, stream).await
    };
    kernel
        .spawn_on("b", "server", server)
        .expect("there is room")
}

// ---- hosts

#[test]
fn the_log_has_the_own_address_of_a_connection() {
    let (_, net) = world();
    let own = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&own);
    let tracer = move |event: &Event<'_>| {
        if let Fact::Replied {
            reply: Reply::Done,
            detail: Detail::Addr(addr),
        } = event.fact
        {
            seen.borrow_mut().push(addr.to_string());
        }
    };
    let world = SimWorld::new(1).net(&net);
    let mut kernel = Kernel::builder()
        .world(world)
        .tracer(tracer)
        .build()
        .unwrap();
    kernel
        .spawn_on("a", "server", async |os: &mut Os| {
            let listener = os.listen(any(PORT)).await?;
            let (stream, peer) = listener.accept(os).await?;
            assert_eq!(peer.to_string(), "10.0.0.2:49152");
            recv_all(os, &stream).await.map(drop)
        })
        .unwrap();
    kernel
        .spawn_on("b", "client", async |os: &mut Os| {
            let stream = os.connect(("a", PORT)).await?;
            // The address does not travel with the next call.
            os.yield_now().await;
            stream.send(os, b"x").await.map(drop)
        })
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(*own.borrow(), ["10.0.0.2:49152"]);
}

#[test]
fn tasks_are_on_the_host_of_their_parent() {
    let mut kernel = Kernel::simulated(1);
    let tell = async |os: &mut Os| {
        let host = os.host().await;
        writeln!(os, "{host}");
    };
    kernel.spawn("plain", tell).unwrap();
    let parent = async move |os: &mut Os| {
        tell(os).await;
        os.spawn("child", tell).await?;
        os.spawn_on("b", "elsewhere", tell).await?;
        Ok::<(), Errno>(())
    };
    kernel.spawn_on("a", "parent", parent).unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(kernel.take_console(), "localhost\na\na\nb\n");
    assert_eq!(kernel.net().hosts(), ["localhost", "a", "b"]);
}

#[test]
fn the_real_world_has_one_host() {
    let mut kernel = Kernel::real().unwrap();
    let refused = kernel.spawn_on("server", "main", async |_| ());
    assert_eq!(refused, Err(Errno::NoSuchHost));
    let main = async |os: &mut Os| {
        assert_eq!(os.host().await, "localhost");
        assert!(os.resolve("127.0.0.1").await?.len() == 1);
        assert!(
            os.resolve("localhost")
                .await?
                .iter()
                .all(std::net::IpAddr::is_loopback)
        );
        assert!(os.resolve("no host is called this").await.is_err());
        let refused = os.spawn_on("server", "main", async |_| ()).await;
        assert_eq!(refused, Err(Errno::NoSuchHost));
        io::Result::Ok(())
    };
    kernel.spawn_on("localhost", "main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn addresses_go_upward_across_octets() {
    let net = SimNet::new();
    net.host_at("fifth", [10, 0, 0, 5].into()).unwrap();
    let addresses: Vec<_> = (0..600)
        .map(|n| net.host(format!("h{n}")).unwrap())
        .collect();
    let expected = (1..=601).filter(|n| *n != 5);
    let expected: Vec<_> = expected
        .map(|n: u16| std::net::IpAddr::from([10, 0, (n >> 8) as u8, n as u8]))
        .collect();
    assert_eq!(addresses, expected);
    assert_eq!(net.host("h0").unwrap(), addresses[0], "it is there already");
}

#[test]
fn a_bad_host_is_named() {
    let net = SimNet::new();
    for (name, why) in [
        ("", "the name of a host is empty"),
        ("a b", "\"a b\" is no name of a host"),
        ("a:80", "\"a:80\" is no name of a host"),
        ("10.0.0.1", "\"10.0.0.1\" is an address"),
    ] {
        let error = net.host(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with(why), "{error}");
        let refused = Kernel::simulated(1).spawn_on(name, "main", async |_| ());
        assert_eq!(refused, Err(Errno::NoSuchHost));
    }
    net.host("a").unwrap();
    let error = net.host_at("b", [10, 0, 0, 1].into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the host \"a\" has the address 10.0.0.1 already"
    );
    let error = net.host_at("a", [10, 0, 0, 9].into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is a host \"a\" already, with the address 10.0.0.1"
    );
    let error = net.host_at("c", [127, 0, 0, 1].into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "127.0.0.1 cannot be the address of a host"
    );
    let error = net
        .latency_between("a", "nowhere", ms(1)..=ms(1))
        .unwrap_err();
    assert!(error.to_string().contains("no host \"nowhere\""), "{error}");
    let error = net.latency_between("a", "a", ms(1)..=ms(1)).unwrap_err();
    assert_eq!(error.to_string(), "\"a\" is one host: a link has two");
}

#[test]
fn names_resolve_in_the_net() {
    let (mut kernel, _) = world();
    run(&mut kernel, async |os| {
        assert_eq!(
            os.resolve("b").await?,
            [std::net::IpAddr::from([10, 0, 0, 2])]
        );
        assert_eq!(
            os.resolve("10.1.2.3").await?,
            [std::net::IpAddr::from([10, 1, 2, 3])]
        );
        assert_eq!(os.resolve("localhost").await?.len(), 2);
        assert_eq!(kind(os.resolve("nowhere").await), ErrorKind::NotFound);
        assert_eq!(
            kind(os.connect(("nowhere", PORT)).await),
            ErrorKind::NotFound
        );
        io::Result::Ok(())
    });
}

#[test]
fn an_endpoint_is_an_address_or_a_name_with_a_port() {
    for text in ["127.0.0.1:80", "[::1]:80", "server:0", "a.b-c_d:65535"] {
        let endpoint: Endpoint = text.parse().unwrap();
        assert_eq!(endpoint.to_string(), text);
    }
    for text in [
        "",
        "server",
        ":80",
        "server:",
        "server:x",
        "server:65536",
        "a:b:80",
        "::1",
    ] {
        assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
    }
    let address = Endpoint::from(("10.0.0.1", 80));
    assert_eq!(address, Endpoint::Addr(([10, 0, 0, 1], 80).into()));
}

#[test]
fn a_run_until_a_task_has_ended_leaves_the_servers() {
    let (mut kernel, _) = served();
    let long = kernel.spawn_on("a", "long", async |os: &mut Os| os.sleep(ms(500)).await);
    let short = kernel.spawn_on("a", "short", async |os: &mut Os| os.sleep(ms(50)).await);
    let report = kernel.run_until(&[short.unwrap()]).unwrap();
    assert_eq!(report.elapsed, ms(50));
    let report = kernel.run_until(&[short.unwrap(), long.unwrap()]).unwrap();
    assert_eq!((report.elapsed, report.exits().len()), (ms(500), 2));
    assert_eq!(kernel.tasks().count(), 1);
    // A task that has ended, or never was, is not waited for.
    assert_eq!(kernel.run_until(&[99.into()]).unwrap().elapsed, ms(500));
    // Nothing will come any more.
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
}

// ---- S80

#[test]
fn s80_without_hosts_there_is_one_machine_with_loopback_addresses() {
    for ip in ["127.0.0.1", "[::1]", "127.1.2.3"] {
        let (addr, mut kernel): (SocketAddr, _) = (
            format!("{ip}:{PORT}").parse().unwrap(),
            Kernel::simulated(1),
        );
        run_main(&mut kernel, async move |os: &mut Os| {
            let listener = os.listen(addr).await?;
            assert_eq!(listener.local_addr()?, addr);
            let client = os.connect(addr).await?;
            let (server, peer) = listener.accept(os).await?;
            assert_eq!((peer.ip(), peer.port()), (addr.ip(), 49_152));
            client.send_all(os, b"over").await?;
            assert_eq!(recv_exact(os, &server, 4).await?, b"over");
            server.send_all(os, b"back").await?;
            drop(server);
            assert_eq!(recv_all(os, &client).await?, b"back");
            // The handshake, the accept, and a message each way.
            assert_eq!(os.now().await, Duration::from_micros(50));
            io::Result::Ok(())
        });
    }
}

#[test]
fn s80_nothing_listens_there_is_a_refusal_after_a_round_trip() {
    let (mut kernel, _) = world();
    let console = run(&mut kernel, async |os| {
        failed(os.connect(("b", PORT)).await, os).await;
        failed(os.connect(("localhost", PORT)).await, os).await;
        failed(
            os.connect("10.9.9.9:80".parse::<Endpoint>().unwrap()).await,
            os,
        )
        .await;
    });
    // Of "localhost", both addresses are tried.
    let refused = "ConnectionRefused";
    assert_eq!(
        console,
        format!("20 {refused}\n20 {refused}\n40 HostUnreachable\n")
    );
}

#[test]
fn s80_an_address_in_use_and_an_address_of_another_host() {
    let (mut kernel, _) = world();
    run(&mut kernel, async |os| {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let first = os.listen(at("127.0.0.1:80")).await?;
        for taken in ["127.0.0.1:80", "0.0.0.0:80", "[::]:80"] {
            assert_eq!(
                kind(os.listen(at(taken)).await),
                ErrorKind::AddrInUse,
                "{taken}"
            );
        }
        for free in ["127.0.0.2:80", "10.0.0.1:80", "[::1]:80", "127.0.0.1:81"] {
            os.listen(at(free)).await?;
        }
        let error = os.listen(at("10.0.0.2:80")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
        let why = "cannot listen on 10.0.0.2:80: 10.0.0.2 is no address of the host \"a\", which has \
                   10.0.0.1";
        assert_eq!(error.to_string(), why);
        first.close(os).await?;
        os.listen(at("127.0.0.1:80")).await?;
        io::Result::Ok(())
    });
}

#[test]
fn s80_ports_are_given_in_order_for_each_host() {
    let (mut kernel, _) = served();
    run(&mut kernel, async |os| {
        os.sleep(ms(1)).await;
        let one = os.listen(any(0)).await?;
        assert_eq!(one.local_addr()?.port(), 49_152);
        let _stream = os.connect(("b", PORT)).await?;
        let taken = os.listen(any(49_154)).await?;
        let other = os.listen(any(0)).await?;
        assert_eq!(other.local_addr()?.port(), 49_155);
        drop((one, taken));
        // A port that is free again has its turn later.
        assert_eq!(os.listen(any(0)).await?.local_addr()?.port(), 49_156);
        for _ in 49_157..=65_535 {
            os.listen(any(0)).await?;
        }
        assert_eq!(os.listen(any(0)).await?.local_addr()?.port(), 49_152);
        // That of the connection is in use.
        assert_eq!(os.listen(any(0)).await?.local_addr()?.port(), 49_154);
        io::Result::Ok(())
    });
}

#[test]
fn s80_a_host_that_has_no_port_left_says_so() {
    let (mut kernel, _) = served();
    run(&mut kernel, async |os| {
        let mut all = Vec::new();
        for _ in 49_152..=65_535 {
            all.push(os.listen(any(0)).await?);
        }
        assert_eq!(kind(os.listen(any(0)).await), ErrorKind::AddrNotAvailable);
        assert_eq!(
            kind(os.connect(("b", PORT)).await),
            ErrorKind::AddrNotAvailable
        );
        all.pop();
        os.yield_now().await;
        os.connect(("b", PORT)).await?;
        io::Result::Ok(())
    });
}

#[test]
fn s80_connections_are_accepted_in_the_order_of_their_handshakes() {
    let (mut kernel, net) = world();
    net.latency_between("b", "c", ms(1)..=ms(1)).unwrap();
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&order);
    let server = async move |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        os.sleep(ms(100)).await;
        for _ in 0..4 {
            let (_, peer) = listener.accept(os).await?;
            seen.borrow_mut().push(peer.to_string());
        }
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "server", server).unwrap();
    for (host, delay) in [("a", 5), ("c", 6), ("a", 1), ("b", 40)] {
        let client = async move |os: &mut Os| {
            os.sleep(ms(delay)).await;
            os.connect(("b", PORT)).await.map(drop)
        };
        kernel.spawn_on(host, "client", client).unwrap();
    }
    kernel.run().unwrap().check().unwrap();
    let expected = [
        "10.0.0.3:49152", // after 9 ms
        "10.0.0.1:49152", // after 31 ms
        "10.0.0.1:49153", // after 35 ms
        "10.0.0.2:49152", // after 40 ms
    ];
    assert_eq!(*order.borrow(), expected);
}

#[test]
fn s80_a_request_beyond_the_backlog_is_made_again() {
    let (mut kernel, net) = world();
    net.limit_backlog("b", 1).unwrap();
    let server = async |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        os.sleep(ms(1500)).await;
        loop {
            listener.accept(os).await?;
        }
        #[expect(unreachable_code, reason = "the type of the program")]
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "server", server).unwrap();
    let first = async |os: &mut Os| os.connect(("b", PORT)).await.map(drop);
    kernel.spawn_on("c", "first", first).unwrap();
    let console = run(&mut kernel, async |os| {
        os.sleep(ms(1)).await;
        os.connect(("b", PORT)).await?;
        note(os, "connected").await;
        io::Result::Ok(())
    });
    // Asked at 1 ms, at 1,001 ms, and at 3,001 ms.
    assert_eq!(console, "3021 connected\n");
}

/// As on Linux: the last packet of a handshake finds another listener, and is answered by a reset.
#[test]
fn s80_a_handshake_ends_with_its_listener() {
    for closed_at in [15, 25] {
        let (mut kernel, _) = world();
        let server = async move |os: &mut Os| {
            let first = os.listen(any(PORT)).await?;
            os.sleep(ms(closed_at)).await;
            first.close(os).await?;
            let second = os.listen(any(PORT)).await?;
            let accepted = async |os: &mut Os| second.accept(os).await.map(drop);
            let none = os.timeout(ms(1000), accepted).await;
            assert!(none.is_err(), "{none:?}");
            let (_, peer) = second.accept(os).await?;
            assert_eq!(peer.to_string(), "10.0.0.1:49153");
            io::Result::Ok(())
        };
        kernel.spawn_on("b", "server", server).unwrap();
        let console = run(&mut kernel, async |os| {
            // The request arrives after 10 ms, and the end of the handshake after 30.
            let stream = os.connect(("b", PORT)).await?;
            let received = stream.recv(os, &mut [0]).await;
            note(os, format!("{:?}", kind(received))).await;
            os.sleep(ms(2000)).await;
            os.connect(("b", PORT)).await.map(drop)
        });
        assert_eq!(console, "40 ConnectionReset\n");
    }
}

// ---- S81

#[test]
fn s81_bytes_arrive_in_order_and_once_after_latency() {
    let (mut kernel, net) = served();
    let net = net.latency(ms(1)..=ms(50));
    connected(&mut kernel, async move |os, stream| {
        let sent: Vec<u8> = (0..100_000u32)
            .map(|n| (n.wrapping_mul(n) >> 3) as u8)
            .collect();
        let (bytes, out) = (sent.clone(), stream.clone());
        let sender = async move |os: &mut Os| {
            for (at, piece) in bytes.chunks(700).enumerate() {
                out.send_all(os, piece).await?;
                if at % 7 == 0 {
                    os.sleep(ms(3)).await;
                }
            }
            out.shutdown_write(os).await
        };
        os.spawn("sender", sender).await?;
        assert!(recv_all(os, &stream).await? == sent);
        Ok(())
    });
    drop(net);
}

#[test]
fn s81_a_round_trip_takes_twice_the_latency() {
    let (mut kernel, _) = served();
    let console = connected(&mut kernel, async |os, stream| {
        note(os, "connected").await;
        pinged(os, &stream).await?;
        note(os, "answered").await;
        Ok(())
    });
    assert_eq!(console, "21 connected\n41 answered\n");
}

#[test]
fn s81_a_link_takes_so_many_bytes_a_second() {
    for (bandwidth, least) in [(1_000_000, 1000), (100_000, 10_000)] {
        let (mut kernel, net) = world();
        net.bandwidth_between("a", "b", bandwidth).unwrap();
        serve(&mut kernel, async |os, stream| {
            stream.send_all(os, &vec![7; 1_000_000]).await
        });
        connected(&mut kernel, async move |os, stream| {
            let before = os.now().await;
            assert_eq!(recv_all(os, &stream).await?.len(), 1_000_000);
            let took = (os.now().await - before).as_millis();
            assert!((least..least * 13 / 10).contains(&took), "{took} ms");
            Ok(())
        });
    }
}

#[test]
fn s81_a_full_buffer_blocks_the_sender_until_the_peer_has_read() {
    let (mut kernel, _) = world();
    serve(&mut kernel, async |os, stream| {
        os.sleep(ms(969)).await;
        assert_eq!(recv_exact(os, &stream, 100_000).await?.len(), 100_000);
        Ok(())
    });
    let console = connected(&mut kernel, async |os, stream| {
        let mut left = 100_000;
        while left > 0 {
            let n = stream.send(os, &vec![1; left]).await?;
            note(os, n.to_string()).await;
            left -= n;
        }
        Ok(())
    });
    // The reader reads at 1,000 ms, and the sender hears of it 10 ms later.
    assert_eq!(console, "21 65536\n1010 34464\n");
}

#[test]
fn s81_buffers_are_bounded_by_a_setting() {
    for size in [1, 100] {
        let (mut kernel, net) = served();
        net.buffer(size);
        connected(&mut kernel, async move |os, stream| {
            assert_eq!(stream.send(os, &[1; 1000]).await?, size);
            let out = stream.clone();
            let sender = async move |os: &mut Os| {
                out.send_all(os, &vec![1; 1000 - size]).await?;
                out.shutdown_write(os).await
            };
            os.spawn("sender", sender).await?;
            assert_eq!(recv_all(os, &stream).await?, [1; 1000]);
            Ok(())
        });
    }
}

// ---- S82

#[test]
fn s82_a_half_closed_stream_still_carries_the_other_half() {
    let (mut kernel, _) = world();
    serve(&mut kernel, async |os, stream| {
        let asked = recv_all(os, &stream).await?;
        os.sleep(ms(100)).await;
        stream.send_all(os, &asked).await
    });
    connected(&mut kernel, async |os, stream| {
        stream.send_all(os, b"all of it").await?;
        stream.shutdown_write(os).await?;
        stream.shutdown_write(os).await?;
        assert_eq!(kind(stream.send(os, b"more").await), ErrorKind::BrokenPipe);
        assert_eq!(recv_all(os, &stream).await?, b"all of it");
        assert_eq!(
            stream.recv(os, &mut [0; 9]).await?,
            0,
            "it stays at its end"
        );
        Ok(())
    });
}

/// What a client meets after its server has done that with the connection.
fn after(
    server: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
    client: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
) {
    let (mut kernel, _) = world();
    serve(&mut kernel, server);
    connected(&mut kernel, client);
}

#[test]
fn s82_a_send_to_a_peer_that_is_gone_is_answered_by_a_reset() {
    after(
        async |_, stream| {
            drop(stream);
            Ok(())
        },
        async |os, stream| {
            os.sleep(ms(100)).await;
            assert_eq!(stream.recv(os, &mut [0; 9]).await?, 0);
            assert_eq!(stream.send(os, b"lost").await?, 4);
            os.sleep(ms(19)).await;
            assert_eq!(stream.send(os, b"lost").await?, 4, "the reset is under way");
            os.sleep(ms(2)).await;
            assert_eq!(kind(stream.send(os, b"x").await), ErrorKind::BrokenPipe);
            assert_eq!(stream.recv(os, &mut [0; 9]).await?, 0);
            assert_eq!(
                kind(stream.shutdown_write(os).await),
                ErrorKind::NotConnected
            );
            Ok(())
        },
    );
}

#[test]
fn s82_a_close_with_unread_data_resets() {
    after(
        async |os, stream| {
            stream.send_all(os, b"answer").await?;
            os.sleep(ms(100)).await;
            drop(stream);
            Ok(())
        },
        async |os, stream| {
            stream.send_all(os, b"unread").await?;
            os.sleep(ms(200)).await;
            // What came before the reset can be read.
            assert_eq!(stream.recv(os, &mut [0; 9]).await?, 6);
            assert_eq!(
                kind(stream.recv(os, &mut [0; 9]).await),
                ErrorKind::ConnectionReset
            );
            assert_eq!(
                stream.recv(os, &mut [0; 9]).await?,
                0,
                "an error is reported once"
            );
            assert_eq!(kind(stream.send(os, b"x").await), ErrorKind::BrokenPipe);
            Ok(())
        },
    );
}

#[test]
fn s82_a_reset_wakes_the_reader_and_the_writer() {
    after(
        async |os, stream| {
            os.sleep(ms(100)).await;
            drop(stream);
            Ok(())
        },
        async |os, stream| {
            let (writer, tell) = (stream.clone(), Diary::default());
            let told = tell.clone();
            let write = async move |os: &mut Os| {
                let error = writer.send_all(os, &[0; 200_000]).await;
                told.note(format!("writer {:?}", kind(error)));
            };
            let writer = os.spawn("writer", write).await?;
            let read = kind(stream.recv(os, &mut [0; 9]).await);
            tell.note(format!("reader {read:?}"));
            os.wait(writer).await?;
            assert_eq!(tell.text(), "reader ConnectionReset, writer BrokenPipe");
            Ok(())
        },
    );
}

#[test]
fn s82_readiness_is_level_triggered() {
    after(
        async |os, stream| {
            stream.send_all(os, b"hello").await?;
            os.sleep(ms(100)).await;
            stream.send_all(os, b"again").await?;
            drop(stream);
            Ok(())
        },
        async |os, stream| {
            for _ in 0..2 {
                os.read_wait(&stream).await?;
                os.write_wait(&stream).await?;
            }
            assert_eq!(stream.recv(os, &mut [0; 3]).await?, 3);
            os.read_wait(&stream).await?;
            assert_eq!(stream.recv(os, &mut [0; 9]).await?, 2);
            os.read_wait(&stream).await?;
            assert_eq!(recv_all(os, &stream).await?, b"again");
            os.read_wait(&stream).await?;
            Ok(())
        },
    );
}

#[test]
fn s82_a_listener_that_closes_resets_what_it_has_not_accepted() {
    let (mut kernel, _) = world();
    let server = async |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        os.sleep(ms(100)).await;
        listener.close(os).await?;
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "server", server).unwrap();
    let console = connected(&mut kernel, async |os, stream| {
        failed(stream.recv(os, &mut [0; 9]).await, os).await;
        Ok(())
    });
    assert_eq!(console, "110 ConnectionReset\n");
}

#[test]
fn s82_a_client_that_closes_before_it_is_accepted_is_accepted_all_the_same() {
    after(
        async |os, stream| {
            assert_eq!(recv_all(os, &stream).await?, b"hello");
            Ok(())
        },
        async |os, stream| {
            stream.send_all(os, b"hello").await?;
            drop(stream);
            os.sleep(ms(100)).await;
            Ok(())
        },
    );
}

#[test]
fn s82_a_connection_that_is_reset_before_it_is_accepted_is_accepted() {
    let (mut kernel, net) = world();
    let server = async |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        os.sleep(ms(100)).await;
        for _ in 0..2 {
            let (stream, _) = listener.accept(os).await?;
            failed(stream.recv(os, &mut [0; 9]).await, os).await;
        }
        io::Result::Ok(())
    };
    let server = kernel.spawn_on("b", "server", server).unwrap();
    let console = connected(&mut kernel, async move |os, stream| {
        // It is in the handshake at the server.
        net.abort(stream.id())?;
        let other = os.connect(("b", PORT)).await?;
        os.sleep(ms(20)).await;
        net.reset("a", "b")?;
        failed(other.recv(os, &mut [0; 9]).await, os).await;
        os.wait(server).await.map(drop).map_err(io::Error::from)
    });
    let expected = "61 ConnectionReset\n100 ConnectionReset\n100 ConnectionReset\n";
    assert_eq!(console, expected);
}

#[test]
fn s82_a_file_is_sent() {
    after(
        async |os, stream| {
            let path = std::env::temp_dir().join(format!("trapline-net-{}", std::process::id()));
            std::fs::write(&path, [5; 100_000])?;
            let file = std::sync::Arc::new(std::fs::File::open(&path)?);
            std::fs::remove_file(path)?;
            let mut offset = 0;
            while offset < 100_000 {
                let n = stream.send_file(os, &file, offset, 100_000).await?;
                offset += n as u64;
            }
            assert_eq!(stream.send_file(os, &file, offset, 9).await?, 0);
            Ok(())
        },
        async |os, stream| {
            assert_eq!(recv_all(os, &stream).await?, [5; 100_000]);
            Ok(())
        },
    );
}

// ---- S85

#[test]
fn s85_reads_and_writes_come_in_pieces() {
    let (mut kernel, net) = world();
    net.fragment(true);
    let sizes = Rc::new(RefCell::new(std::collections::BTreeSet::new()));
    let seen = Rc::clone(&sizes);
    kernel.spawn_on("b", "server", echo).unwrap();
    connected(&mut kernel, async move |os, stream| {
        let sent: Vec<u8> = (0..50_000u32).map(|n| (n / 7) as u8).collect();
        let (bytes, out) = (sent.clone(), stream.clone());
        let sender = async move |os: &mut Os| {
            out.send_all(os, &bytes).await?;
            out.shutdown_write(os).await
        };
        os.spawn("sender", sender).await?;
        let (mut got, mut buf) = (Vec::new(), [0; 1000]);
        loop {
            match stream.recv(os, &mut buf).await? {
                0 => break,
                n => got.extend_from_slice(&buf[..n]),
            }
            seen.borrow_mut()
                .insert(got.len() - got.len().saturating_sub(1));
            seen.borrow_mut().insert(got.len());
        }
        assert!(got == sent);
        Ok(())
    });
    assert!(sizes.borrow().len() > 100, "{}", sizes.borrow().len());
}

// ---- S86

/// The log of clients and servers, with faults, from a seed.
fn log_of(seed: u64) -> Vec<String> {
    let net = SimNet::new().latency(ms(1)..=ms(30)).fragment(true);
    let world = SimWorld::new(seed).net(&net);
    let (mut kernel, log) = logged(Kernel::builder().world(world));
    kernel.spawn_on("b", "server", echo).unwrap();
    kernel.on_restart("b", boot_echo).unwrap();
    let clients: Vec<_> = (0..5)
        .map(|n| {
            let client = async move |os: &mut Os| {
                os.sleep(ms(n)).await;
                let stream = os.connect(("b", PORT)).await?;
                for _ in 0..5 {
                    stream.send_all(os, &[n as u8; 100]).await?;
                    recv_exact(os, &stream, 100).await?;
                }
                io::Result::Ok(())
            };
            kernel.spawn_on(format!("c{n}"), "client", client).unwrap()
        })
        .collect();
    let cause = async move |os: &mut Os| {
        os.sleep(ms(50)).await;
        net.cut("b", "c1")?;
        net.reset("b", "c2")?;
        os.sleep(ms(50)).await;
        net.heal("b", "c1")?;
        net.crash("b")?;
        os.sleep(ms(5000)).await;
        net.restart("b")
    };
    kernel.spawn("faults", cause).unwrap();
    kernel.run_until(&clients).unwrap();
    log.lines()
}

#[test]
fn s86_the_same_seed_gives_the_same_log() {
    let log = log_of(7);
    assert!(log.len() > 200, "{}", log.len());
    assert_eq!(log, log_of(7));
    assert_ne!(log, log_of(8));
}

#[test]
fn a_net_leaves_the_random_numbers_of_programs_alone() {
    let draw = |net: &SimNet| {
        let world = SimWorld::new(5).net(&net.latency(ms(1)..=ms(9)));
        let mut kernel = Kernel::builder().world(world).build().unwrap();
        kernel.spawn_on("b", "server", echo).unwrap();
        run(&mut kernel, async |os| {
            let stream = os.connect(("b", PORT)).await;
            let number = os.random().await;
            writeln!(os, "{number}");
            drop(stream);
        })
    };
    let quiet = SimNet::new();
    let noisy = SimNet::new().fragment(true);
    assert_eq!(draw(&quiet), draw(&noisy));
}

#[test]
fn a_net_of_another_world_begins_without_connections() {
    let net = SimNet::new();
    for _ in 0..2 {
        let world = SimWorld::new(1).net(&net);
        let mut kernel = Kernel::builder().world(world).build().unwrap();
        kernel.spawn_on("b", "server", echo).unwrap();
        let console = connected(&mut kernel, async |os, stream| {
            pinged(os, &stream).await?;
            note(os, "answered").await;
            Ok(())
        });
        assert_eq!(console, "5 answered\n");
    }
    assert_eq!(net.hosts(), ["localhost", "b", "a"]);
}

#[test]
fn a_kernel_that_is_reset_has_its_net_as_it_was() {
    let net = SimNet::new().latency(ms(1)..=ms(9));
    net.host("b").unwrap();
    let world = SimWorld::new(1).net(&net);
    let (mut kernel, log) = logged(Kernel::builder().world(world));
    let mut logs = Vec::new();
    for seed in [1, 2, 1] {
        kernel.reset(seed).unwrap();
        assert_eq!(net.hosts(), ["localhost", "b"]);
        let before = log.lines().len();
        kernel.spawn_on("b", "server", echo).unwrap();
        kernel
            .on_restart("b", |_| panic!("it is dropped with the reset"))
            .unwrap();
        let faults = net.clone();
        let console = connected(&mut kernel, async move |os, stream| {
            pinged(os, &stream).await?;
            note(os, "answered").await;
            faults.latency(ms(5)..=ms(5)).fragment(true).chaos(3);
            faults.cut("a", "b")?;
            faults.crash("b")
        });
        assert!(console.ends_with("answered\n"), "{console}");
        logs.push(log.lines().split_off(before));
    }
    // The first line of a later log is the end of what was left.
    let spawned = |log: &[String]| {
        log.iter()
            .position(|line| line.contains("spawned"))
            .unwrap()
    };
    let [first, second, third] = [0, 1, 2].map(|n| logs[n][spawned(&logs[n])..].to_vec());
    assert_eq!(first, third);
    assert_ne!(first, second);
}

// ---- reports

#[test]
fn a_deadlock_across_hosts_names_hosts_and_connections() {
    let (mut kernel, _) = world();
    let server = async |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        let (stream, _) = listener.accept(os).await?;
        let first = async move |os: &mut Os| stream.recv(os, &mut [0; 9]).await.map(drop);
        os.spawn_detached("waiter", first).await?;
        listener.accept(os).await.map(drop)
    };
    kernel.spawn_on("b", "server", server).unwrap();
    let client = async |os: &mut Os| {
        let stream = os.connect(("b", PORT)).await?;
        stream.recv(os, &mut [0; 9]).await.map(drop)
    };
    kernel.spawn_on("a", "client", client).unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("each waits for the other");
    };
    assert!(deadlock.is_at_rest(), "a server waits for clients");
    let report = deadlock.to_string();
    for part in [
        "tid 1 \"server@b\"",
        "device 1 (read), the listener 0.0.0.0:80 of b",
        "tid 2 \"client@a\"",
        "device 2 (read), the connection of a 10.0.0.1:49152 with b 10.0.0.2:80",
        "tid 3 \"waiter@b\"",
        "device 3 (read), the connection of b 10.0.0.2:80 with a 10.0.0.1:49152",
    ] {
        assert!(report.contains(part), "{part:?} is not in\n{report}");
    }
}

/// Runs a server that accepts for ever, with such a session for each client, and a client. Returns
/// how the run ends.
fn end_of(
    session: impl AsyncFn(&mut Os, &TcpStream) -> io::Result<()> + Clone + 'static,
    client: impl AsyncFnOnce(&mut Os, &TcpStream) -> io::Result<()> + 'static,
) -> Deadlock {
    let (mut kernel, _) = world();
    let server = async move |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        while let Ok((stream, _)) = listener.accept(os).await {
            let session = session.clone();
            let session = async move |os: &mut Os| session(os, &stream).await;
            os.spawn_detached("session", session).await?;
        }
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "server", server).unwrap();
    let client = async move |os: &mut Os| {
        let stream = os.connect(("b", PORT)).await?;
        client(os, &stream).await
    };
    kernel.spawn_on("a", "client", client).unwrap();
    match kernel.run() {
        Err(Error::Deadlock(deadlock)) => deadlock,
        ran => panic!("the server waits for clients: {ran:?}"),
    }
}

async fn ask(os: &mut Os, stream: &TcpStream) -> io::Result<()> {
    stream.send_all(os, b"?").await?;
    stream.recv(os, &mut [0]).await.map(drop)
}

async fn listen_for_ever(os: &mut Os, stream: &TcpStream) -> io::Result<()> {
    while stream.recv(os, &mut [0; 9]).await? > 0 {}
    Ok(())
}

#[test]
fn a_client_without_an_answer_is_no_good_end() {
    let line = line!() - 10;
    let deadlock = end_of(listen_for_ever, ask);
    assert!(!deadlock.is_at_rest(), "{deadlock}");
    let report = deadlock.to_string();
    for part in [
        "deadlock: a client waits for an answer, and nothing can bring it\n",
        "tid 2 \"client@a\" waits for device 2 (read), the connection of a 10.0.0.1:49152 with b",
        &format!("recv at tests/it/net.rs:{line}"),
        "\n  a client without an answer: 2 \"client@a\"",
    ] {
        assert!(report.contains(part), "{part:?} is not in\n{report}");
    }
}

#[test]
fn a_client_whose_server_reads_nothing_more_is_no_good_end() {
    let session = async |os: &mut Os, _: &TcpStream| {
        os.sleep(Duration::MAX).await;
        Ok(())
    };
    let floods = async |os: &mut Os, stream: &TcpStream| stream.send_all(os, &[0; 1 << 20]).await;
    assert!(!end_of(session, floods).is_at_rest());
    let ends = async |os: &mut Os, stream: &TcpStream| {
        stream.shutdown_write(os).await?;
        recv_all(os, stream).await.map(drop)
    };
    assert!(!end_of(session, ends).is_at_rest());
}

#[test]
fn a_client_that_has_read_the_last_answer_is_a_good_end() {
    let answer = async |os: &mut Os, stream: &TcpStream| {
        stream.recv(os, &mut [0]).await?;
        stream.send_all(os, b"!").await?;
        listen_for_ever(os, stream).await
    };
    let idle = async |os: &mut Os, stream: &TcpStream| {
        ask(os, stream).await?;
        listen_for_ever(os, stream).await
    };
    assert!(end_of(answer, idle).is_at_rest());
    assert!(end_of(answer, listen_for_ever).is_at_rest());
}

#[test]
fn a_client_whose_server_crashes_with_its_question_is_no_good_end() {
    let (mut kernel, net) = served();
    kernel.on_restart("b", boot_echo).unwrap();
    let client = async |os: &mut Os| {
        let stream = os.connect(("b", PORT)).await?;
        ask(os, &stream).await
    };
    kernel.spawn_on("a", "client", client).unwrap();
    let tester = async move |os: &mut Os| {
        // The question has arrived, and the answer is under way.
        os.sleep(ms(35)).await;
        net.cut("a", "b")?;
        net.crash("b")?;
        net.heal("a", "b")?;
        net.restart("b")
    };
    kernel.spawn("tester", tester).unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("the server waits for clients");
    };
    assert!(!deadlock.is_at_rest(), "{deadlock}");
}

#[test]
fn s81_room_that_is_filled_again_before_it_is_told_is_told_again() {
    let net = SimNet::new().buffer(8);
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(1).net(&net))
        .build()
        .unwrap();
    let server = async |os: &mut Os| {
        let (stream, _) = os.listen(any(80)).await?.accept(os).await?;
        let (mut buf, mut all) = ([0; 8], 0);
        os.sleep_until(ms(20)).await;
        all += stream.recv(os, &mut buf).await?;
        os.sleep_until(ms(40)).await;
        while let n @ 1.. = stream.recv(os, &mut buf).await? {
            all += n;
        }
        writeln!(os, "{all} bytes");
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "server", server).unwrap();
    let client = async |os: &mut Os| {
        os.sleep(ms(1)).await;
        let stream = os.connect(("b", 80)).await?;
        stream.send_all(os, &[1; 8]).await?;
        // The server has read, and the packet that tells of the room is on its way.
        let left = Duration::from_micros(20_500) - os.now().await;
        let send = async |os: &mut Os| stream.send(os, &[2]).await.is_ok();
        let cut = os.timeout(left, send).await;
        writeln!(os, "{cut:?}");
        stream.send_all(os, &[3; 8]).await?;
        stream.send_all(os, &[4; 8]).await
    };
    kernel.spawn_on("a", "client", client).unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(kernel.take_console(), "Err(Elapsed)\n24 bytes\n");
}

#[test]
fn a_spawn_after_a_restart_has_its_own_line() {
    let mut kernel = Kernel::simulated(1);
    let net = kernel.net();
    let nap = async |os: &mut Os| os.sleep(ms(1000)).await;
    kernel.spawn_on("s", "server", nap).unwrap();
    let boot = move |kernel: &mut Kernel| {
        kernel.spawn_on("s", "server", nap).unwrap();
    };
    kernel.on_restart("s", boot).unwrap();
    let tester = async move |os: &mut Os| {
        net.crash("s")?;
        os.yield_now().await;
        net.restart("s")?;
        os.spawn("kid", nap).await?;
        let tasks = os.tasks().await;
        let kid = tasks.iter().find(|task| task.name == "kid").unwrap();
        assert_eq!(kid.spawned.as_ref().unwrap().line, line!() - 3);
        io::Result::Ok(())
    };
    kernel.spawn("tester", tester).unwrap();
    kernel.run().unwrap().check().unwrap();
}
