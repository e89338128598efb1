//! S80 to S87 for UDP, Unix sockets and options: latency, loss, faults, crashes, limits, and what
//! kills, timeouts and cancels leave.

use std::{collections::BTreeMap, net::IpAddr};

use trapline::{
    Calls, Elapsed, Fault, Inject, Limits, ListenOptions, SearchStrategy, StreamOptions,
    SystemCall, UdpSocket, check,
};

use super::*;

async fn bind(os: &mut Os, port: u16) -> io::Result<UdpSocket> {
    os.bind_udp(any(port)).await
}

fn b(port: u16) -> SocketAddr {
    ([10, 0, 0, 2], port).into()
}

/// Takes datagrams of a byte until there is none for a second.
async fn take_all(os: &mut Os, socket: &UdpSocket) -> io::Result<Vec<u8>> {
    let (mut taken, mut buf) = (Vec::new(), [0]);
    loop {
        let next = os.timeout(ms(1000), async |os| socket.recv_from(os, &mut buf).await);
        match next.await {
            Ok(next) => taken.extend_from_slice(&buf[..next?.0]),
            Err(Elapsed) => return Ok(taken),
        }
    }
}

/// Sends a hundred datagrams from host "a" to host "b", one each millisecond. Answers those that have
/// arrived, in that order.
fn arrived(seed: u64, set: impl FnOnce(&SimNet)) -> Vec<u8> {
    let net = SimNet::new().latency(ms(10)..=ms(10));
    for host in ["a", "b"] {
        net.host(host).unwrap();
    }
    set(&net);
    let world = SimWorld::new(seed).net(&net);
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let taken = Rc::new(RefCell::new(Vec::new()));
    let mine = Rc::clone(&taken);
    let receive = async move |os: &mut Os| {
        let socket = bind(os, 53).await?;
        *mine.borrow_mut() = take_all(os, &socket).await?;
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "receiver", receive).unwrap();
    let send = async |os: &mut Os| {
        let socket = bind(os, 0).await?;
        for n in 0..100 {
            socket.send_to(os, &[n], b(53)).await?;
            os.sleep(ms(1)).await;
        }
        io::Result::Ok(())
    };
    kernel.spawn_on("a", "sender", send).unwrap();
    kernel.run().unwrap().check().unwrap();
    taken.take()
}

#[test]
fn s81_datagrams_arrive_once_and_in_order_unless_a_share_is_set() {
    let all: Vec<u8> = (0..100).collect();
    assert_eq!(arrived(1, |_| ()), all);
    assert_eq!(arrived(1, |net| drop(net.loss(1.0))), [0; 0]);
    let lost = arrived(1, |net| drop(net.loss(0.3)));
    assert!((50..90).contains(&lost.len()), "{}", lost.len());
    assert!(lost.is_sorted());
    let doubled = arrived(1, |net| drop(net.duplicate(1.0)));
    let twice: Vec<u8> = (0..100).flat_map(|n| [n, n]).collect();
    assert_eq!(doubled, twice);
    let mut late = arrived(1, |net| drop(net.reorder(0.5)));
    assert!(!late.is_sorted());
    late.sort_unstable();
    assert_eq!(late, all);
}

#[test]
fn s86_the_seed_decides_which_datagrams_are_lost() {
    let lose = |net: &SimNet| drop(net.loss(0.5).duplicate(0.2).reorder(0.2));
    assert_eq!(arrived(3, lose), arrived(3, lose));
    assert_ne!(arrived(3, lose), arrived(4, lose));
}

#[test]
fn a_share_outside_of_0_to_1_counts_as_the_nearest() {
    assert_eq!(arrived(1, |net| drop(net.loss(7.0))), [0; 0]);
    assert_eq!(
        arrived(1, |net| drop(net.loss(-1.0).reorder(f64::NAN))).len(),
        100
    );
}

#[test]
fn tcp_and_unix_sockets_lose_nothing() {
    let (mut kernel, net) = served();
    net.loss(1.0).duplicate(1.0).reorder(1.0);
    connected(&mut kernel, async |os, stream| pinged(os, &stream).await);
    run(&mut kernel, async |os| {
        let (one, other) = os.socketpair().await?;
        one.send_all(os, b"x").await?;
        assert_eq!(other.recv(os, &mut [0; 8]).await?, 1);
        io::Result::Ok(())
    });
}

#[test]
fn s80_a_datagram_takes_the_latency_and_a_refusal_the_way_back() {
    let (mut kernel, _net) = world();
    let printed = run(&mut kernel, async |os| {
        let echo = async |os: &mut Os| {
            let socket = bind(os, 7).await?;
            let (n, from) = socket.recv_from(os, &mut [0; 8]).await?;
            note(os, format!("{n} from {from}")).await;
            socket.send_to(os, b"back", from).await.map(drop)
        };
        os.spawn_on("b", "echo", echo).await.unwrap();
        let socket = bind(os, 0).await?;
        os.sleep(ms(1)).await;
        socket.send_to(os, b"there", b(7)).await?;
        let (n, from) = socket.recv_from(os, &mut [0; 8]).await?;
        note(os, format!("{n} from {from}")).await;
        socket.connect(os, b(8)).await?;
        socket.send(os, b"nothing is there").await?;
        failed(socket.recv(os, &mut [0; 8]).await, os).await;
        let unknown = SocketAddr::from(([10, 9, 9, 9], 9));
        socket.connect(os, unknown).await?;
        socket.send(os, b"no host").await?;
        failed(socket.recv(os, &mut [0; 8]).await, os).await;
        io::Result::Ok(())
    });
    assert_eq!(
        printed,
        "11 5 from 10.0.0.1:49152\n21 4 from 10.0.0.2:7\n41 ConnectionRefused\n\
         61 HostUnreachable\n"
    );
}

#[test]
fn s23_a_latency_too_long_to_represent_never_ends() {
    let (mut kernel, net) = world();
    net.loopback(Duration::MAX);
    let main = async |os: &mut Os| {
        os.sleep(ms(1)).await;
        let socket = bind(os, 80).await?;
        socket.send_to(os, b"lost", here(80)).await?;
        let recv = async |os: &mut Os| socket.recv_from(os, &mut [0; 9]).await;
        assert!(
            os.timeout(Duration::from_secs(1 << 30), recv)
                .await
                .is_err()
        );
        socket.recv_from(os, &mut [0; 9]).await.map(drop)
    };
    kernel.spawn_on("a", "main", main).unwrap();
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
}

#[test]
fn s83_a_cut_loses_datagrams_and_a_hold_keeps_them() {
    let (mut kernel, net) = world();
    let receive = async |os: &mut Os| {
        let socket = bind(os, 53).await?;
        let taken = take_all(os, &socket).await?;
        note(os, format!("{taken:?}")).await;
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "receiver", receive).unwrap();
    let send = async move |os: &mut Os| {
        let socket = bind(os, 0).await?;
        let mut next = 0;
        let mut send = async |os: &mut Os| {
            next += 1;
            socket.send_to(os, &[next], b(53)).await?;
            os.sleep(ms(1)).await;
            io::Result::Ok(())
        };
        send(os).await?;
        net.cut("a", "b")?;
        send(os).await?;
        net.heal("a", "b")?;
        send(os).await?;
        net.hold("a", "b")?;
        send(os).await?;
        os.sleep(ms(500)).await;
        net.release("a", "b")?;
        send(os).await?;
        os.sleep(ms(50)).await;
        send(os).await?;
        net.hold("a", "b")?;
        net.cut_one_way("a", "b")?;
        net.heal("a", "b")?;
        net.release("a", "b")?;
        net.cut_one_way("b", "a")?;
        net.slow("b", 10)?;
        send(os).await
    };
    kernel.spawn_on("a", "sender", send).unwrap();
    kernel.run().unwrap().check().unwrap();
    // The first was under way at the cut, the second was sent in it; the sixth was held and then cut.
    let printed = kernel.take_console();
    assert!(printed.ends_with(" [3, 4, 5, 7]\n"), "{printed}");
}

#[test]
fn s84_a_crash_takes_the_sockets_and_the_paths_of_its_host() {
    let (mut kernel, net) = world();
    let serve = async |os: &mut Os| {
        let _udp = bind(os, 53).await?;
        let _unix = os.listen_unix("/run/b").await?;
        os.sleep(ms(1_000_000)).await;
        io::Result::Ok(())
    };
    kernel.spawn_on("b", "server", serve).unwrap();
    let printed = run(&mut kernel, async move |os| {
        let socket = bind(os, 0).await?;
        os.sleep(ms(1)).await;
        socket.connect(os, b(53)).await?;
        net.crash("b")?;
        socket.send(os, b"lost").await?;
        let mut buf = [0; 8];
        let silent = os.timeout(ms(500), async |os| socket.recv(os, &mut buf).await);
        assert!(silent.await.is_err());
        net.restart("b")?;
        socket.send(os, b"refused").await?;
        failed(socket.recv(os, &mut [0; 8]).await, os).await;
        let look = async |os: &mut Os| os.connect_unix("/run/b").await.map(drop);
        let child = os.spawn_on("b", "looker", look).await.unwrap();
        let exit = os.wait(child).await.unwrap();
        note(os, exit.to_string()).await;
        io::Result::Ok(())
    });
    let expected =
        "521 ConnectionRefused\n521 failed: cannot connect to /run/b: entity not found\n";
    assert_eq!(printed, expected);
}

#[test]
fn paths_belong_to_their_host() {
    let (mut kernel, _net) = world();
    let listen = async |os: &mut Os| {
        let listener = os.listen_unix("/run/same").await?;
        listener.accept(os).await.map(drop)
    };
    kernel.spawn_on("b", "server", listen).unwrap();
    let printed = run(&mut kernel, async move |os| {
        os.sleep(ms(1)).await;
        failed(os.connect_unix("/run/same").await, os).await;
        let listener = os.listen_unix("/run/same").await?;
        os.connect_unix("/run/same").await?;
        listener.accept(os).await?;
        let again = os.listen_unix("/run/same").await.unwrap_err();
        note(os, again.to_string()).await;
        io::Result::Ok(())
    });
    let expected = "1 NotFound\n1 cannot listen on /run/same: address in use\n";
    assert_eq!(printed, expected);
}

#[test]
fn s87_datagrams_to_oneself_do_not_stop_the_clock() {
    let (mut kernel, net) = world();
    net.loopback(Duration::ZERO);
    run(&mut kernel, async |os| {
        let socket = bind(os, 9).await?;
        let here = (IpAddr::from([127, 0, 0, 1]), 9).into();
        let begun = os.now().await;
        for _ in 0..100 {
            socket.send_to(os, b"x", here).await?;
            socket.recv_from(os, &mut [0; 8]).await?;
        }
        assert!(os.now().await - begun >= Duration::from_nanos(100));
        io::Result::Ok(())
    });
}

// ---- limits

#[test]
fn a_full_socket_drops_datagrams() {
    let (mut kernel, _net) = world();
    run(&mut kernel, async |os| {
        let (one, other) = (bind(os, 1).await?, bind(os, 2).await?);
        let room = StreamOptions::new().recv_buffer(4000);
        other.set_options(os, room).await?;
        for n in 0..10 {
            one.send_to(os, &[n; 200], here(2)).await?;
        }
        os.sleep(ms(1)).await;
        let taken = take_all(os, &other).await?;
        // Each takes 968 bytes.
        assert_eq!(taken, [0, 1, 2, 3]);
        // One fits, however large it is.
        one.send_to(os, &[9; 60_000], here(2)).await?;
        assert_eq!(take_all(os, &other).await?, [9]);
        io::Result::Ok(())
    });
}

fn here(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

#[test]
fn s80_a_backlog_of_a_listener_makes_later_clients_wait() {
    let (mut kernel, _net) = world();
    let printed = run(&mut kernel, async |os| {
        let options = ListenOptions::new().backlog(1);
        let listener = os.listen_with(any(80), options).await?;
        let _kept = (os.connect(here(80)).await?, os.connect(here(80)).await?);
        let accept = async move |os: &mut Os| {
            os.sleep(ms(300)).await;
            listener.accept(os).await?;
            os.sleep(ms(5000)).await;
            io::Result::Ok(())
        };
        os.spawn("server", accept).await.unwrap();
        os.connect(here(80)).await?;
        note(os, "connected").await;
        io::Result::Ok(())
    });
    assert_eq!(printed, "1000 connected\n");
}

#[test]
fn s81_the_sizes_of_buffers_bound_what_is_sent() {
    let (mut kernel, _net) = world();
    run(&mut kernel, async |os| {
        let small = ListenOptions::new().recv_buffer(1000);
        let listener = os.listen_with(any(80), small).await?;
        let one = os.connect(here(80)).await?;
        assert_eq!(one.send(os, &[1; 5000]).await?, 1000);
        let smaller = StreamOptions::new().send_buffer(300);
        let other = os.connect_with(here(80), smaller).await?;
        assert_eq!(other.send(os, &[1; 5000]).await?, 300);
        let (server, _) = listener.accept(os).await?;
        assert_eq!(server.send(os, &[1; 100_000]).await?, 64 * 1024);
        server
            .set_options(os, StreamOptions::new().send_buffer(100_000))
            .await?;
        assert_eq!(server.send(os, &[1; 100_000]).await?, 100_000 - 64 * 1024);
        io::Result::Ok(())
    });
}

#[test]
fn limits_and_injections_meet_the_calls_of_sockets() {
    let mut seen = 0;
    let inject = move |_, call, nth| match (call, nth) {
        (SystemCall::SendTo(_), 1) => Some(Inject::Fail(ErrorKind::NetworkDown)),
        (SystemCall::SendTo(_), 2) => Some(Inject::Delay(ms(5))),
        (SystemCall::RecvFrom(_), _) => {
            seen += 1;
            (seen == 1).then_some(Inject::Fail(ErrorKind::ConnectionRefused))
        }
        _ => None,
    };
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(1))
        .inject(inject)
        .build()
        .unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let socket = bind(os, 9).await?;
        let failed = socket.send_to(os, b"one", here(9)).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::NetworkDown);
        assert_eq!(socket.send_to(os, b"two", here(9)).await?, 3);
        let mut buf = [0; 8];
        let failed = socket.recv_from(os, &mut buf).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(socket.recv_from(os, &mut buf).await?, (3, here(9)));
        assert_eq!(&buf[..3], b"two");
        let limits = Limits::new().allow([Calls::ALL - Calls::NETWORK]);
        let confined = async move |os: &mut Os| {
            let denied = [
                os.bind_udp(here(0)).await.map(drop),
                os.listen_unix("/x").await.map(drop),
                os.connect_unix("/x").await.map(drop),
                socket.send_to(os, b"x", here(9)).await.map(drop),
                socket.connect(os, here(9)).await,
                socket.set_options(os, StreamOptions::new()).await,
            ];
            for denied in denied {
                assert_eq!(denied.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
            os.socketpair().await.map(drop)
        };
        let child = os.spawn_with(limits, "confined", confined).await.unwrap();
        assert_eq!(os.wait(child).await, Ok(Exit::Done));
        io::Result::Ok(())
    });
}

// ---- chaos, and words

/// The faults of a chaotic run, with and without datagrams.
fn faults(with_udp: bool) -> Vec<String> {
    let net = SimNet::new().chaos(3);
    for host in ["a", "b"] {
        net.host(host).unwrap();
    }
    let builder = Kernel::builder().world(SimWorld::new(5).net(&net));
    let (mut kernel, log) = logged(builder);
    let wait = async move |os: &mut Os| {
        let socket = if with_udp {
            Some(bind(os, 1).await?)
        } else {
            None
        };
        os.sleep(ms(60_000)).await;
        drop(socket);
        io::Result::Ok(())
    };
    kernel.spawn_on("a", "main", wait).unwrap();
    kernel.run().unwrap().check().unwrap();
    let lines = log.lines();
    let of_faults = lines.into_iter().filter(|line| line.contains("fault: "));
    of_faults.collect()
}

#[test]
fn chaos_draws_datagrams_where_there_are_any_and_leaves_the_rest_as_it_was() {
    let is_weather = |line: &&String| {
        ["loss", "duplicate", "reorder"]
            .iter()
            .any(|word| line.contains(word))
    };
    let (without, with) = (faults(false), faults(true));
    assert!(without.len() > 50 && !without.iter().any(|line| is_weather(&line)));
    let weather: Vec<_> = with.iter().filter(is_weather).collect();
    assert!(weather.len() > 20, "{weather:?}");
    assert!(
        weather.iter().any(|line| line.contains("loss 0%")),
        "{weather:?}"
    );
    let faults_of = |line: &String| line.split("fault: ").nth(1).unwrap_or_default().to_string();
    let rest: Vec<_> = with
        .iter()
        .filter(|line| !is_weather(line))
        .map(faults_of)
        .collect();
    let alone: Vec<_> = without.iter().map(faults_of).collect();
    assert_eq!(rest, alone);
}

#[test]
fn shares_have_words() {
    for (text, fault, again) in [
        ("loss 1%", Fault::Loss(10_000), "loss 1%"),
        ("duplicate 0.25", Fault::Duplicate(250_000), "duplicate 25%"),
        ("reorder 0.05%", Fault::Reorder(500), "reorder 0.05%"),
        ("loss 0", Fault::Loss(0), "loss 0%"),
    ] {
        assert_eq!(text.parse(), Ok(fault.clone()));
        assert_eq!(fault.to_string(), again);
        assert_eq!(again.parse(), Ok(fault));
    }
    for bad in [
        "loss",
        "loss 2",
        "loss 101%",
        "loss x",
        "reorder -1",
        "duplicate NaN",
    ] {
        assert!(bad.parse::<Fault>().is_err(), "{bad}");
    }
}

#[test]
fn s46_a_deadlock_says_which_socket_it_is() {
    let (mut kernel, _net) = world();
    kernel
        .spawn_on("a", "udp", async |os: &mut Os| {
            bind(os, 53)
                .await?
                .recv_from(os, &mut [0; 8])
                .await
                .map(drop)
        })
        .unwrap();
    kernel
        .spawn_on("b", "unix", async |os: &mut Os| {
            os.listen_unix("/run/x").await?.accept(os).await.map(drop)
        })
        .unwrap();
    kernel
        .spawn_on("c", "pair", async |os: &mut Os| {
            let (one, _other) = os.socketpair().await?;
            one.recv(os, &mut [0; 8]).await.map(drop)
        })
        .unwrap();
    let error = kernel.run().unwrap_err().to_string();
    for words in [
        "the UDP socket 0.0.0.0:53 of a",
        "the listener /run/x of b",
        "a pair of sockets of c",
        "recv_from",
    ] {
        assert!(error.contains(words), "{words} in {error}");
    }
}

#[test]
fn traces_show_datagrams() {
    let (mut kernel, log) = logged(Kernel::builder().world(SimWorld::new(1)));
    run_main(&mut kernel, async |os: &mut Os| {
        let socket = bind(os, 9).await?;
        socket.send_to(os, b"abc", here(9)).await?;
        socket.recv_from(os, &mut [0; 8]).await?;
        socket
            .set_options(os, StreamOptions::new().recv_buffer(9))
            .await?;
        let _listener = os.listen_unix("/x").await?;
        os.socketpair().await.map(drop)
    });
    let text = log.text();
    for words in [
        "bind_udp(0.0.0.0:9)",
        "send_to(1, 127.0.0.1:9)",
        "recv_from(1, 8)",
        "3 from 127.0.0.1:9",
        "set_options(1, \"recv_buffer=9\")",
        "listen_unix(\"/x\")",
        "devices 3 and 4",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
}

// ---- enemies

/// What ends a task at any of its steps.
#[derive(Clone, Copy)]
enum Enemy {
    Kill,
    Cancel,
    Timeout,
}

/// A receiver that is ended at any step, and another one that takes its place: together they have taken
/// each datagram once.
fn beset(kernel: &mut Kernel, enemy: Enemy) -> Result<(), Error> {
    let taken = Rc::new(RefCell::new(BTreeMap::new()));
    kernel.spawn("main", async move |os: &mut Os| {
        let socket = bind(os, 9).await?;
        let (theirs, notes) = (socket.clone(), Rc::clone(&taken));
        let take = async move |os: &mut Os| {
            let mut buf = [0];
            let mut receive = async |os: &mut Os| theirs.recv_from(os, &mut buf).await.map(drop);
            let ended = match enemy {
                Enemy::Timeout => os.timeout(Duration::from_micros(10), receive).await.is_ok(),
                Enemy::Kill => receive(&mut *os).await.is_ok(),
                Enemy::Cancel => trapline::Scope::new().run(os, receive).await.is_ok(),
            };
            if ended {
                *notes.borrow_mut().entry(buf[0]).or_insert(0) += 1;
            }
        };
        let receiver = os.spawn("receiver", take).await.unwrap();
        let end = async move |os: &mut Os| {
            os.sleep(Duration::from_micros(10)).await;
            match enemy {
                Enemy::Kill => drop(os.kill(receiver).await),
                Enemy::Cancel => drop(os.cancel(receiver).await),
                Enemy::Timeout => {}
            }
        };
        os.spawn("enemy", end).await.unwrap();
        socket.send_to(os, &[1], here(9)).await?;
        socket.send_to(os, &[2], here(9)).await?;
        os.wait(receiver).await.unwrap();
        for n in take_all(os, &socket).await? {
            *taken.borrow_mut().entry(n).or_insert(0) += 1;
        }
        assert_eq!(*taken.borrow(), BTreeMap::from([(1, 1), (2, 1)]));
        io::Result::Ok(())
    })?;
    kernel.run()?.check()
}

#[test]
fn s31_a_receiver_that_is_ended_takes_no_datagram() {
    for enemy in [Enemy::Kill, Enemy::Cancel, Enemy::Timeout] {
        let explored = check(move |kernel: &mut Kernel| beset(kernel, enemy))
            .strategy(SearchStrategy::Exhaustive)
            .explore();
        assert!(
            explored.failure.is_none() && explored.proved,
            "{explored:?}"
        );
    }
}
