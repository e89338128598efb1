//! S87: what is sent within a host takes time, too.

use std::{io, net::SocketAddr, time::Duration};

use trapline::{Exit, Kernel, Os, SimNet, SimWorld, TcpStream};

const US: Duration = Duration::from_micros(1);
const S: Duration = Duration::from_secs(1);

fn kernel(net: &SimNet) -> Kernel {
    let world = SimWorld::new(1).net(net);
    let builder = Kernel::builder().world(world).max_ticks(10_000_000);
    builder.build().expect("a kernel boots")
}

/// Sends a byte to and fro, for ever.
async fn play(os: &mut Os, stream: TcpStream) -> io::Result<()> {
    let mut ball = [0];
    while stream.recv(os, &mut ball).await? > 0 {
        stream.send_all(os, &ball).await?;
    }
    Ok(())
}

/// Has two tasks play for ever, the server on this host, and another task sleep for a second.
/// Returns the time at which the sleep is over.
fn sleep_beside_a_game(net: &SimNet, server: &str, client: &str, addr: SocketAddr) -> Duration {
    let mut kernel = kernel(net);
    let serve = async move |os: &mut Os| {
        let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
        let (stream, _) = listener.accept(os).await?;
        play(os, stream).await
    };
    kernel.spawn_on(server, "server", serve).unwrap();
    let serve = async move |os: &mut Os| {
        let stream = os.connect(addr).await?;
        stream.send_all(os, b".").await?;
        play(os, stream).await
    };
    kernel.spawn_on(client, "client", serve).unwrap();
    let sleeper = async |os: &mut Os| os.sleep(S).await;
    let sleeper = kernel.spawn("sleeper", sleeper).unwrap();
    let report = kernel.run_until(&[sleeper]).expect("the sleep ends");
    assert_eq!(report.exits()[&sleeper], Exit::Done);
    report.elapsed
}

#[test]
fn s87_a_game_over_loopback_does_not_stop_the_clock() {
    for host in ["localhost", "a"] {
        let addr = ([127, 0, 0, 1], 80).into();
        assert_eq!(sleep_beside_a_game(&SimNet::new(), host, host, addr), S);
    }
    // Its own address is as near.
    let net = SimNet::new();
    let addr = (net.host("a").unwrap(), 80).into();
    assert_eq!(sleep_beside_a_game(&net, "a", "a", addr), S);
}

#[test]
fn s87_nor_does_a_game_over_a_link_without_latency() {
    let net = SimNet::new().latency(Duration::ZERO..=Duration::ZERO);
    let addr: SocketAddr = (net.host("a").unwrap(), 80).into();
    let mut kernel = kernel(&net);
    let serve = async move |os: &mut Os| {
        let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
        listener.accept(os).await.map(drop)
    };
    kernel.spawn_on("a", "server", serve).unwrap();
    let connect = async move |os: &mut Os| os.connect(addr).await.map(drop);
    kernel.spawn_on("b", "client", connect).unwrap();
    // A request, a consent, an acknowledgement.
    assert_eq!(kernel.run().unwrap().elapsed, Duration::from_nanos(3));
}

/// Returns the times at which a client is connected, the server has accepted it, the client has its
/// greeting, and another client is refused.
fn times(net: &SimNet) -> String {
    let mut kernel = kernel(net);
    let serve = async |os: &mut Os| {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        let (stream, _) = listener.accept(os).await?;
        let now = os.now().await;
        writeln!(os, "accepted {now:?}");
        stream.send_all(os, b"hello").await
    };
    kernel.spawn("server", serve).unwrap();
    let visit = async |os: &mut Os| {
        let stream = os.connect(("localhost", 80)).await?;
        let now = os.now().await;
        writeln!(os, "connected {now:?}");
        stream.recv(os, &mut [0; 8]).await?;
        let now = os.now().await;
        writeln!(os, "greeted {now:?}");
        let refused = os.connect(("127.0.0.1", 81)).await;
        let after = os.now().await - now;
        writeln!(os, "{:?} after {after:?}", refused.unwrap_err().kind());
        io::Result::Ok(())
    };
    kernel.spawn("client", visit).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.take_console()
}

#[test]
fn s87_a_packet_over_loopback_takes_ten_microseconds_unless_set() {
    let default = "connected 20µs\naccepted 30µs\ngreeted 40µs\nConnectionRefused after 20µs\n";
    assert_eq!(times(&SimNet::new()), default);
    // The latency is that between hosts, and so is the bandwidth.
    let net = SimNet::new().latency(S..=S).bandwidth(1);
    assert_eq!(times(&net), default);
    let set = "connected 2µs\naccepted 3µs\ngreeted 4µs\nConnectionRefused after 2µs\n";
    assert_eq!(times(&SimNet::new().loopback(US)), set);
    let least = "connected 2ns\naccepted 3ns\ngreeted 4ns\nConnectionRefused after 2ns\n";
    assert_eq!(times(&SimNet::new().loopback(Duration::ZERO)), least);
}
