//! Random compositions of join, select and buffer combinators, over connections of the simulated network
//! and over pipes of tokio: the bytes are equal, and they are those of a model.
//!
//! The suite runs 300 of them. `GUESTS_FUZZ=10000` runs so many, `GUESTS_FUZZ_FROM=7` begins with seed 7.

mod on_futures;
mod on_tokio;
mod plan;

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::LocalBoxFuture};
use plan::Plan;
use tokio::io::{DuplexStream, ReadBuf};
use trapline::{Foreign, ForeignStream, Kernel, Os, SimNet, SimWorld};

/// A wait of no certain length. Up to 2 it may take no time.
pub type Pause = dyn Fn(u32) -> LocalBoxFuture<'static, ()>;

/// Is ready at the poll after so many.
pub fn yields(n: u32) -> impl Future<Output = ()> {
    let mut left = n;
    poll_fn(move |cx| match left {
        0 => Poll::Ready(()),
        _ => {
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
}

/// At first a select goes round by yields, which take no time. Nothing arrives in no time, so later its
/// rounds take some.
pub fn spins(round: u32, pauses: u32) -> u32 {
    if round < 150 {
        1 + pauses % 2
    } else {
        3 + pauses
    }
}

/// A pipe of tokio with the traits of futures.
struct Pipe(DuplexStream);

impl futures::AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        let read = tokio::io::AsyncRead::poll_read(Pin::new(&mut self.0), cx, &mut buf);
        read.map_ok(|()| buf.filled().len())
    }
}

impl futures::AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        tokio::io::AsyncWrite::poll_write(Pin::new(&mut self.0), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.0), cx)
    }
}

/// Runs a plan on tokio. Returns what the client has received on each connection.
fn on_tokio(plan: &Plan) -> io::Result<Vec<Vec<u8>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let pipes = plan
        .connections
        .iter()
        .map(|_| tokio::io::duplex(plan.pipe));
    let (near, far): (Vec<_>, Vec<_>) = pipes.unzip();
    let shared = Rc::new(plan.clone());
    let pause = |n| yields(n).boxed_local();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let plan = Rc::clone(&shared);
        let server = tokio::task::spawn_local(async move {
            match plan.on_tokio_traits {
                true => on_tokio::server(&plan, far, &pause).await,
                false => {
                    on_futures::server(&plan, far.into_iter().map(Pipe).collect(), &pause).await
                }
            }
        });
        let plan = Rc::clone(&shared);
        let client = tokio::task::spawn_local(async move {
            match plan.on_tokio_traits {
                true => on_tokio::client(&plan, near, &pause).await,
                false => {
                    on_futures::client(&plan, near.into_iter().map(Pipe).collect(), &pause).await
                }
            }
        });
        server.await.map_err(io::Error::other)??;
        client.await.map_err(io::Error::other)?
    })
}

/// A pause of a guest: it yields, or it sleeps.
fn pauses(foreign: Foreign) -> impl Fn(u32) -> LocalBoxFuture<'static, ()> {
    move |n| match n {
        0..=2 => yields(n).boxed_local(),
        _ => foreign
            .sleep(Duration::from_micros(700 * u64::from(n)))
            .boxed_local(),
    }
}

async fn serve(os: &mut Os, plan: Plan) -> io::Result<()> {
    let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
    let mut streams = Vec::new();
    for _ in &plan.connections {
        let (stream, _) = listener.accept(os).await?;
        let mut index = [0];
        stream.recv(os, &mut index).await?;
        streams.push((index, stream));
    }
    streams.sort_by_key(|(index, _)| *index);
    os.run_future(async |foreign: &Foreign| {
        let streams = streams
            .into_iter()
            .map(|(_, stream)| foreign.stream(stream));
        let (streams, pause): (Vec<ForeignStream>, _) = (streams.collect(), pauses(*foreign));
        match plan.on_tokio_traits {
            true => on_tokio::server(&plan, streams, &pause).await,
            false => on_futures::server(&plan, streams, &pause).await,
        }
    })
    .await
}

async fn ask(os: &mut Os, plan: Plan) -> io::Result<Vec<Vec<u8>>> {
    os.sleep(Duration::from_millis(20)).await;
    let mut streams = Vec::new();
    for connection in &plan.connections {
        let stream = os.connect(("server", 80)).await?;
        stream.send_all(os, &[connection.index as u8]).await?;
        streams.push(stream);
    }
    os.run_future(async |foreign: &Foreign| {
        let streams = streams.into_iter().map(|stream| foreign.stream(stream));
        let (streams, pause): (Vec<ForeignStream>, _) = (streams.collect(), pauses(*foreign));
        match plan.on_tokio_traits {
            true => on_tokio::client(&plan, streams, &pause).await,
            false => on_futures::client(&plan, streams, &pause).await,
        }
    })
    .await
}

/// Runs a plan in the simulated network. Returns what the client has received on each connection.
fn on_trapline(plan: &Plan, seed: u64) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let longest = [0, 1, 9][(seed % 3) as usize];
    let net = SimNet::new().latency(Duration::ZERO..=Duration::from_millis(longest));
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(seed).net(&net))
        .build()?;
    let received = Rc::new(RefCell::new(None));
    let (list, there, here) = (Rc::clone(&received), plan.clone(), plan.clone());
    kernel.spawn_on("server", "server", async move |os: &mut Os| {
        serve(os, there).await
    })?;
    kernel.spawn_on("laptop", "client", async move |os: &mut Os| {
        list.replace(Some(ask(os, here).await?));
        io::Result::Ok(())
    })?;
    kernel.run()?.check()?;
    kernel.audit_all();
    Ok(received.take().ok_or("the client has not ended")?)
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn compositions_move_the_same_bytes_as_on_tokio() {
    let from = from_environment("GUESTS_FUZZ_FROM", 0);
    let number = from_environment("GUESTS_FUZZ", 300);
    let (mut connections, mut bytes) = (0, 0);
    for seed in from..from + number {
        let plan = Plan::draw(seed);
        let expected = plan.expected();
        let there = on_tokio(&plan).unwrap_or_else(|error| panic!("seed {seed} on tokio: {error}"));
        let here = on_trapline(&plan, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(
            there == expected,
            "seed {seed} on tokio parts from the model: {plan:?}"
        );
        assert!(here == expected, "seed {seed} parts from tokio: {plan:?}");
        connections += expected.len();
        bytes += expected.iter().map(Vec::len).sum::<usize>();
    }
    println!("{number} compositions, {connections} connections, {bytes} bytes");
}
