//! The servers, each on a single thread.

use std::{
    env, fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::retry_on_intr,
};
use slab::Slab;
use trapline::{
    Kernel, Os, RealWorld,
    tape::{Header, Taping},
};

type Serve = fn() -> io::Result<()>;

pub(super) const SERVERS: [(&str, Serve); 6] = [
    ("trapline", trapline),
    ("trapline, taped", taped),
    ("raw epoll", raw_epoll),
    ("tokio", tokio),
    ("async-io", async_io),
    ("monoio", monoio),
];

const ANY: &str = "127.0.0.1:0";
const BUFFER: usize = 1024;

/// Tells the parent that the server listens.
fn tell(addr: SocketAddr) {
    println!("{} {addr}", std::process::id());
}

fn trapline() -> io::Result<()> {
    serve(Kernel::real())
}

/// The same, with all that it gets from outside on a tape.
fn taped() -> io::Result<()> {
    let name = format!("trapline-bench-{}.tape", std::process::id());
    let path = env::temp_dir().join(name);
    let world = Taping::create(RealWorld::new()?, &path, &Header::default(), None)?;
    // The open file goes with the process.
    fs::remove_file(path)?;
    serve(Kernel::builder().world(world).build())
}

fn serve(kernel: Result<Kernel, trapline::Error>) -> io::Result<()> {
    let mut kernel = kernel.map_err(io::Error::other)?;
    kernel.spawn("server", async |os: &mut Os| {
        let listener = os.listen(ANY.parse().expect("it is an address")).await?;
        tell(listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept(os).await?;
            os.spawn_detached("client", async move |os| {
                let mut buf = [0; BUFFER];
                loop {
                    let n = stream.recv(os, &mut buf).await?;
                    if n == 0 {
                        return io::Result::Ok(());
                    }
                    stream.send_all(os, &buf[..n]).await?;
                }
            })
            .await?;
        }
        #[expect(
            unreachable_code,
            reason = "names the error of the question marks above"
        )]
        io::Result::Ok(())
    })?;
    kernel.run().map_err(io::Error::other)?;
    Ok(())
}

/// The best simple server: level-triggered, so that a read and a write serve a request.
fn raw_epoll() -> io::Result<()> {
    const LISTENER: u64 = u64::MAX;
    let listener = TcpListener::bind(ANY)?;
    listener.set_nonblocking(true)?;
    tell(listener.local_addr()?);
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &poller,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut clients: Slab<TcpStream> = Slab::new();
    let mut events = Vec::with_capacity(1024);
    let mut buf = [0; BUFFER];
    loop {
        events.clear();
        retry_on_intr(|| epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None))?;
        for event in &events {
            let key = event.data.u64();
            if key == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let slot = clients.vacant_entry();
                let data = EventData::new_u64(slot.key() as u64);
                epoll::add(&poller, &stream, data, EventFlags::IN)?;
                slot.insert(stream);
                continue;
            }
            let client = &mut clients[key as usize];
            // An answer always fits: a client sends no more before it has received it.
            let served = match client.read(&mut buf) {
                Ok(0) => false,
                Ok(n) => client.write_all(&buf[..n]).is_ok(),
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            };
            if !served {
                // Closing it removes it from the poller.
                clients.remove(key as usize);
            }
        }
    }
}

fn tokio() -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(ANY).await?;
        tell(listener.local_addr()?);
        loop {
            let (mut stream, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut buf = [0; BUFFER];
                loop {
                    let n = stream.read(&mut buf).await?;
                    if n == 0 {
                        return io::Result::Ok(());
                    }
                    stream.write_all(&buf[..n]).await?;
                }
            });
        }
    })
}

fn async_io() -> io::Result<()> {
    use async_io::Async;
    use futures_lite::{AsyncReadExt, AsyncWriteExt};
    let executor = async_executor::LocalExecutor::new();
    async_io::block_on(executor.run(async {
        let listener =
            Async::<TcpListener>::bind(ANY.parse::<SocketAddr>().expect("it is an address"))?;
        tell(listener.get_ref().local_addr()?);
        loop {
            let (mut stream, _) = listener.accept().await?;
            let client = executor.spawn(async move {
                let mut buf = [0; BUFFER];
                loop {
                    let n = stream.read(&mut buf).await?;
                    if n == 0 {
                        return io::Result::Ok(());
                    }
                    stream.write_all(&buf[..n]).await?;
                }
            });
            client.detach();
        }
    }))
}

fn monoio() -> io::Result<()> {
    use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build()?;
    runtime.block_on(async {
        let listener = monoio::net::TcpListener::bind(ANY)?;
        tell(listener.local_addr()?);
        loop {
            let (mut stream, _) = listener.accept().await?;
            monoio::spawn(async move {
                let mut buf = Vec::with_capacity(BUFFER);
                loop {
                    let (read, full) = stream.read(buf).await;
                    if read? == 0 {
                        return io::Result::Ok(());
                    }
                    let (written, mut empty) = stream.write_all(full).await;
                    written?;
                    empty.clear();
                    buf = empty;
                }
            });
        }
    })
}
