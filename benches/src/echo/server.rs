//! The servers: each on a single thread, or on as many as it is given.

use std::{
    env, fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::retry_on_intr,
};
use slab::Slab;
use trapline::{
    Kernel, Kernels, Os, RealWorld, SharedPorts,
    tape::{Header, Taping},
};

type Serve = fn() -> io::Result<()>;
/// A server on so many threads.
type ServeOn = fn(usize) -> io::Result<()>;

pub(super) const SERVERS: [(&str, Serve); 6] = [
    ("trapline", trapline),
    ("trapline, taped", taped),
    ("raw epoll", raw_epoll),
    ("tokio", tokio),
    ("async-io", async_io),
    ("monoio", monoio),
];

pub(super) const CREWS: [(&str, usize, ServeOn); 7] = [
    ("trapline, 1 kernel", 1, kernels),
    ("trapline, 2 kernels", 2, kernels),
    ("tokio, current thread", 1, |_| tokio()),
    ("tokio, 1 worker", 1, tokio_workers),
    ("tokio, 2 workers", 2, tokio_workers),
    ("monoio, 1 thread", 1, monoio_threads),
    ("monoio, 2 threads", 2, monoio_threads),
];

const ANY: &str = "127.0.0.1:0";
const BUFFER: usize = 1024;

/// Tells the parent that the server listens.
fn tell(addr: SocketAddr) {
    println!("{} {addr}", std::process::id());
}

/// Tells the parent once all threads listen: before that, the first would get all connections.
struct AllListen(AtomicUsize);

impl AllListen {
    fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    fn one(&self, addr: SocketAddr) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            tell(addr);
        }
    }
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
    spawn(&mut kernel, tell)?;
    kernel.run().map_err(io::Error::other)?;
    Ok(())
}

/// A kernel for each thread, on a port that they share. The client's core is one of the machine's two, so
/// the system places the threads, as it does those of the others.
fn kernels(count: usize) -> io::Result<()> {
    let (ports, all) = (SharedPorts::new(), Arc::new(AllListen::new(count)));
    let reports = Kernels::new(count).unpinned().run(move |_| {
        let world = RealWorld::new()?.share_ports(&ports);
        let mut kernel = Kernel::builder().world(world).build()?;
        let all = Arc::clone(&all);
        spawn(&mut kernel, move |addr| all.one(addr))?;
        Ok(kernel)
    });
    for report in reports {
        report.map_err(io::Error::other)?;
    }
    Ok(())
}

fn spawn(kernel: &mut Kernel, tell: impl FnOnce(SocketAddr) + 'static) -> io::Result<()> {
    kernel.spawn("server", async move |os: &mut Os| {
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
    let mut builder = tokio::runtime::Builder::new_current_thread();
    serve_on_tokio(&builder.enable_io().build()?)
}

fn tokio_workers(count: usize) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    serve_on_tokio(&builder.worker_threads(count).enable_io().build()?)
}

fn serve_on_tokio(runtime: &tokio::runtime::Runtime) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
    serve_on_monoio(ANY.parse().expect("it is an address"), tell)
}

/// A runtime for each thread. The system divides the connections, as for kernels side by side.
fn monoio_threads(count: usize) -> io::Result<()> {
    let all = Arc::new(AllListen::new(count));
    serve_on_monoio(ANY.parse().expect("it is an address"), |addr| {
        for _ in 1..count {
            let all = Arc::clone(&all);
            thread::spawn(move || serve_on_monoio(addr, |addr| all.one(addr)));
        }
        all.one(addr);
    })
}

fn serve_on_monoio(addr: SocketAddr, tell: impl FnOnce(SocketAddr)) -> io::Result<()> {
    use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build()?;
    runtime.block_on(async {
        let listener = monoio::net::TcpListener::bind(addr)?;
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
