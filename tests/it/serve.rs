//! Serving until a source is ready, and draining.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use trapline::{
    Kernel, Os, Shared, SimNet, SimWorld, Source, TcpStream, check,
    sync::{Flag, Group},
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const AT: ([u8; 4], u16) = ([127, 0, 0, 1], 80);

/// Sends back what it receives, a second after each piece.
async fn slow_echo(os: &mut Os, stream: TcpStream) -> io::Result<()> {
    let mut buf = [0; 8];
    loop {
        let n = stream.recv(os, &mut buf).await?;
        if n == 0 {
            return Ok(());
        }
        os.sleep(ms(1000)).await;
        stream.send_all(os, &buf[..n]).await?;
    }
}

/// What a client gets that sends at `at`, of a server that is told to stop at one second and drains for
/// `drain`; and how many clients the server killed, and when it was done.
fn served(at: u64, drain: u64) -> (Result<usize, io::ErrorKind>, usize, Duration) {
    let mut kernel = Kernel::simulated(3);
    let got = Rc::new(Cell::new(Ok(0)));
    let ended = Rc::new(Cell::new((0, Duration::ZERO)));
    let (theirs, told) = (Rc::clone(&got), Rc::clone(&ended));
    let server = async move |os: &mut Os| {
        let listener = os.listen(AT.into()).await?;
        let client = async move |os: &mut Os| {
            let stream = os.connect(AT).await?;
            os.sleep(ms(at)).await;
            stream.send_all(os, b"hello").await?;
            let answer = stream.recv(os, &mut [0; 8]).await;
            theirs.set(answer.map_err(|error| error.kind()));
            io::Result::Ok(())
        };
        os.spawn("client", client).await?;
        let client = async |os: &mut Os, stream, _| slow_echo(os, stream).await;
        let stop = Source::at(ms(1000));
        let killed = os.serve_until(&listener, stop, ms(drain), client).await?;
        told.set((killed, os.now().await));
        assert!(os.connect(AT).await.is_err(), "it listens no more");
        io::Result::Ok(())
    };
    kernel.spawn("server", server).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
    let (killed, at) = ended.get();
    (got.get(), killed, at)
}

#[test]
fn a_server_that_drains_finishes_what_was_read() {
    let (got, killed, at) = served(500, 5000);
    assert_eq!((got, killed), (Ok(5), 0));
    assert!(at > ms(1500) && at < ms(1501), "{at:?}");
    // One that does not mind the end of the stream is given half a second.
    let (_, killed, at) = served(2500, 5000);
    assert_eq!(killed, 0);
    assert!(at >= ms(1500) && at < ms(1501), "{at:?}");
}

#[test]
fn a_drain_ends_with_its_span() {
    let (got, killed, at) = served(500, 100);
    assert_eq!((got, killed), (Ok(0), 1));
    assert!(at >= ms(1100) && at < ms(1101), "{at:?}");
}

#[test]
fn a_server_hears_its_stop_although_a_client_has_left() {
    let net = SimNet::new();
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(5).net(&net))
        .build()
        .unwrap();
    let server = async |os: &mut Os| {
        let listener = os.listen(AT.into()).await?;
        let stop = Flag::new(os).await;
        let theirs = stop.clone();
        let clients = async move |os: &mut Os| {
            for n in 0..20 {
                let stream = os.connect(AT).await?;
                if n % 3 == 0 {
                    stream.send_all(os, b"x").await?;
                }
                stream.close(os).await?;
            }
            theirs.set(os).await;
            io::Result::Ok(())
        };
        os.spawn("clients", clients).await?;
        let client = async |os: &mut Os, stream, _| slow_echo(os, stream).await;
        os.serve_until(&listener, Source::flag(&stop), ms(5000), client)
            .await
            .map(drop)
    };
    kernel.spawn("server", server).unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn a_server_that_is_cut_leaves_no_client() {
    // From before the client's connection to after the end of the drain.
    for tens in 0..6 {
        let after = Duration::from_micros(10 * tens);
        let program = move |kernel: &mut Kernel| {
            let open = Shared::new(0);
            let counted = open.clone();
            kernel.spawn("main", async move |os: &mut Os| {
                let listener = os.listen(AT.into()).await?;
                let peer = async |os: &mut Os| {
                    if let Ok(stream) = os.connect(AT).await {
                        let _ = stream.recv(os, &mut [0; 8]).await;
                    }
                };
                os.spawn_detached("peer", peer).await?;
                let stop = Flag::new(os).await;
                let theirs = stop.clone();
                os.spawn_detached("stopper", async move |os: &mut Os| theirs.set(os).await)
                    .await?;
                let inside = counted.clone();
                let serve = async move |os: &mut Os| {
                    let client = async move |os: &mut Os, stream: TcpStream, _| {
                        let _here = Counted::new(inside.clone());
                        stream.recv(os, &mut [0; 8]).await.map(drop)
                    };
                    os.serve_until(&listener, Source::flag(&stop), ms(1), client)
                        .await
                        .map(drop)
                };
                let mut group = Group::new(os).await;
                let server = group.spawn(os, "server", serve).await?;
                os.sleep(after).await;
                os.kill(server).await;
                drop(group);
                os.yield_now().await;
                assert_eq!(counted.get(), 0);
                Ok::<(), Box<dyn std::error::Error>>(())
            })?;
            let _ = kernel.run();
            assert_eq!(open.get(), 0);
            Ok(())
        };
        let all = check(program).exhaustive().schedules(5_000).explore();
        assert!(all.failure.is_none(), "{all:?}");
    }
}

#[test]
fn a_server_drains_whatever_happens_to_its_clients() {
    let (span, end) = (ms(300), ms(2000));
    let program = move |kernel: &mut Kernel| {
        let net = kernel.net();
        for host in ["server", "near", "far"] {
            net.host(host)?;
        }
        let (open, returned) = (Shared::new(0), Shared::new(false));
        let (inside, told) = (open.clone(), returned.clone());
        kernel.spawn_on("server", "server", async move |os: &mut Os| {
            let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
            let stop = Source::at(ms(os.random().await % 200));
            let served = Shared::new(0);
            let (each, count) = (served.clone(), inside.clone());
            let client = async move |os: &mut Os, stream, _| {
                let _here = Counted::new(count.clone());
                each.update(|served| *served += 1);
                piecewise(os, stream).await
            };
            let begun = inside.clone();
            let killed = os.serve_until(&listener, stop, span, client).await?;
            let now = os.now().await;
            assert_eq!(begun.get(), 0, "no client is left");
            assert!(killed <= served.get(), "{killed} of {}", served.get());
            assert!(now <= ms(200) + span + ms(1), "{now:?}");
            told.set(true);
            io::Result::Ok(())
        })?;
        for n in 0..6 {
            let host = if n % 2 == 0 { "near" } else { "far" };
            kernel.spawn_on(host, "client", visit)?;
        }
        let broken = net.clone();
        kernel.spawn("faults", async move |os: &mut Os| {
            pause(os, 300).await;
            broken.cut("server", "near")?;
            pause(os, 100).await;
            broken.crash("far")?;
            os.sleep_until(end).await;
            io::Result::Ok(())
        })?;
        let _ = kernel.run()?;
        assert!(returned.get() && open.get() == 0);
        kernel.audit_all();
        assert_eq!(kernel.tasks().count(), 0);
        Ok(())
    };
    let all = check(program).schedules(300).audit().explore();
    assert!(all.failure.is_none(), "{all:?}");
}

/// Sleeps at random.
async fn pause(os: &mut Os, most: u64) {
    let span = os.random().await % most;
    os.sleep(ms(span)).await;
}

/// Sends back what it receives, after a pause.
async fn piecewise(os: &mut Os, stream: TcpStream) -> io::Result<()> {
    let mut buf = [0; 8];
    while let n @ 1.. = stream.recv(os, &mut buf).await? {
        pause(os, 40).await;
        stream.send_all(os, &buf[..n]).await?;
    }
    Ok(())
}

/// Comes at any time, and asks until the server ends the connection or it has enough.
async fn visit(os: &mut Os) {
    pause(os, 250).await;
    let Ok(stream) = os.connect(("server", 80)).await else {
        return;
    };
    for _ in 0..os.random().await % 10 {
        let asks = async |os: &mut Os| {
            stream.send_all(os, b"ask").await?;
            stream.recv(os, &mut [0; 8]).await
        };
        if !matches!(os.timeout(ms(1000), asks).await, Ok(Ok(1..))) {
            return;
        }
    }
}

/// Counts while it lives.
struct Counted(Shared<i32>);

impl Counted {
    fn new(count: Shared<i32>) -> Self {
        count.update(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.update(|count| *count -= 1);
    }
}

#[test]
fn a_drain_does_not_count_those_that_end_at_its_last_instant() {
    let mut kernel = Kernel::simulated(1);
    let main = async |os: &mut Os| {
        let mut group = Group::new(os).await;
        for span in [1, 1, 2] {
            let member = async move |os: &mut Os| os.sleep(ms(span)).await;
            group.spawn(os, "member", member).await.unwrap();
        }
        os.yield_now().await;
        // Two are ready when the span is over, and end before this task goes on.
        assert_eq!(group.drain(os, ms(1)).await, 1);
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}
