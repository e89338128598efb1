//! The real world: the operating system's clock, descriptors and standard output. The only file
//! that names `polling` and reads a clock.
//!
//! Every descriptor is registered once, edge-triggered for both directions, and its readiness is
//! remembered: an attempt that would block clears it, an event of the poller sets it. So a
//! connection that is served costs the system calls of a hand-written epoll loop and no more. To
//! the kernel and its programs all of this is level-triggered.

use std::{
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    rc::Rc,
    sync::Arc,
    task::{Wake, Waker},
    time::{Duration, Instant},
};

use polling::{Events, PollMode, Poller};
use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags};
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Protocol, Socket, Type};

use super::{World, pool::Pool};
use crate::abi::{DeviceId, Direction};

/// How many connections the operating system keeps for a listener that is busy.
const BACKLOG: i32 = 4096;

/// The key under which the poller tells itself that it was notified.
#[cfg(target_os = "linux")]
const NOTIFIED: u64 = usize::MAX as u64;

/// The real world. Its seed is the operating system's choice unless one is set.
pub struct RealWorld {
    boot: Instant,
    seed: u64,
    random: Pcg64,
    poller: Arc<Poller>,
    events: Events,
    #[cfg(target_os = "linux")]
    raw_events: Vec<rustix::event::epoll::Event>,
    sources: FxHashMap<DeviceId, Source>,
    /// Streams that a short read has emptied, as far as one can tell. Where the end of the stream
    /// was reported together with the last bytes it is not reported again; so these are looked at
    /// once, all in one system call, before the next wait.
    unsure: Vec<DeviceId>,
    pool: Pool,
    /// Where the console is, if it is not standard output.
    console: Option<Box<dyn Write>>,
}

/// A registered descriptor.
#[derive(Debug)]
struct Source {
    fd: Fd,
    kind: Kind,
    /// Whether it may be shared with other processes, so that it was not made non-blocking.
    shared: bool,
    /// Whether the poller watches it; what it cannot watch is always ready. Should that not be
    /// true, it is an error, for nobody would report it later.
    watched: bool,
    /// Whether an attempt may succeed. Indexed by [`Direction`].
    ready: [bool; 2],
    /// Whether it is on the list of streams to be looked at again.
    unsure: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A TCP connection: a read that does not fill its buffer has emptied it.
    Stream,
    /// Another socket.
    Socket,
    /// Something that is not a socket.
    File,
}

enum Fd {
    /// Opened here.
    Owned(Socket),
    /// Attached; the handles of the task's side hold it too.
    Attached(Rc<dyn AsFd>),
}

impl RealWorld {
    /// A world whose time begins now.
    ///
    /// *Errors:* the operating system's, where it has no descriptors left for a poller.
    pub fn new() -> io::Result<Self> {
        let seed = RandomState::new().hash_one(std::process::id());
        Ok(Self {
            boot: Instant::now(),
            seed,
            random: Pcg64::seed_from_u64(seed),
            poller: Arc::new(Poller::new()?),
            events: Events::new(),
            #[cfg(target_os = "linux")]
            raw_events: Vec::with_capacity(1024),
            sources: FxHashMap::default(),
            unsure: Vec::new(),
            pool: Pool::default(),
            console: None,
        })
    }

    /// Has the console somewhere else than at standard output.
    #[must_use]
    pub fn print_to(mut self, console: impl Write + 'static) -> Self {
        self.console = Some(Box::new(console));
        self
    }

    /// Begins to watch a descriptor.
    fn register(&mut self, id: DeviceId, fd: Fd, kind: Kind) -> io::Result<()> {
        let key = usize::try_from(u64::from(id)).map_err(|_| io::ErrorKind::Unsupported)?;
        let interest = polling::Event::all(key);
        let raw = fd.as_fd().as_raw_fd();
        let shared = fd.is_shared();
        #[expect(
            unsafe_code,
            reason = "polling cannot know that its sources outlive their registration"
        )]
        // SAFETY: the descriptor is owned by `sources` (or shared with it) until `close` or `drop`,
        // each of which deletes the registration first.
        let added = unsafe { self.poller.add_with_mode(raw, interest, PollMode::Edge) };
        let watched = match added {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
            Err(error) => return Err(error),
        };
        self.sources.insert(
            id,
            Source {
                fd,
                kind,
                shared,
                watched,
                ready: [true; 2],
                unsure: false,
            },
        );
        Ok(())
    }

    fn source(&mut self, id: DeviceId) -> io::Result<&mut Source> {
        self.sources
            .get_mut(&id)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Waits without a timer, or only looks: one system call, where the poller's own wait makes
    /// five. Answers whether the poller was notified, which only its own wait can acknowledge.
    #[cfg(target_os = "linux")]
    fn wait_barely(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<(DeviceId, Direction)>,
    ) -> io::Result<bool> {
        use rustix::event::epoll::{self, EventFlags as Flags};
        const WRONG: Flags = Flags::HUP.union(Flags::ERR);
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = timeout.map(|_| &at_once);
        self.raw_events.clear();
        rustix::io::retry_on_intr(|| {
            let room = rustix::buffer::spare_capacity(&mut self.raw_events);
            epoll::wait(self.poller.as_fd(), room, timeout)
        })?;
        let mut notified = false;
        for event in &self.raw_events {
            let (key, flags) = (event.data.u64(), event.flags);
            notified |= key == NOTIFIED;
            let readable = flags.intersects(Flags::IN | Flags::PRI | WRONG);
            let writable = flags.intersects(Flags::OUT | WRONG);
            note(&mut self.sources, key.into(), readable, writable, ready);
        }
        Ok(notified)
    }

    /// Asks about the streams that may have more to say, and reports those that do.
    fn look_again(&mut self, ready: &mut Vec<(DeviceId, Direction)>) -> io::Result<()> {
        let sources = &mut self.sources;
        self.unsure.retain(|id| {
            sources.get_mut(id).is_some_and(|source| {
                source.unsure = !source.ready[READ];
                source.unsure
            })
        });
        if self.unsure.is_empty() {
            return Ok(());
        }
        let mut asked: Vec<_> = self
            .unsure
            .iter()
            .map(|id| PollFd::from_borrowed_fd(sources[id].fd.as_fd(), PollFlags::IN))
            .collect();
        poll_now(&mut asked)?;
        let readable: Vec<bool> = asked.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (id, readable) in self.unsure.drain(..).zip(readable) {
            let Some(source) = sources.get_mut(&id) else {
                continue;
            };
            source.unsure = false;
            if readable {
                source.ready[READ] = true;
                ready.push((id, Direction::Read));
            }
        }
        Ok(())
    }
}

impl World for RealWorld {
    fn now(&mut self) -> Duration {
        self.boot.elapsed()
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.random = Pcg64::seed_from_u64(seed);
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        if let Some(console) = &mut self.console {
            console.write_all(text.as_bytes())?;
            return console.flush();
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        ready: &mut Vec<(DeviceId, Direction)>,
    ) -> io::Result<()> {
        self.look_again(ready)?;
        #[cfg_attr(
            not(target_os = "linux"),
            expect(unused_mut, reason = "it is one wait there")
        )]
        let mut timeout = match deadline {
            _ if !ready.is_empty() => Some(Duration::ZERO),
            Some(deadline) => Some(deadline.saturating_sub(self.now())),
            None => None,
        };
        #[cfg(target_os = "linux")]
        if matches!(timeout, None | Some(Duration::ZERO)) {
            if !self.wait_barely(timeout, ready)? {
                return Ok(());
            }
            timeout = Some(Duration::ZERO);
        }
        self.events.clear();
        self.poller.wait(&mut self.events, timeout)?;
        for event in self.events.iter() {
            let device = DeviceId::from(event.key as u64);
            note(
                &mut self.sources,
                device,
                event.readable,
                event.writable,
                ready,
            );
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::new(Notify(Arc::clone(&self.poller))))
    }

    fn submit(&mut self, job: Box<dyn FnOnce() + Send>) {
        self.pool.submit(job);
    }

    fn attach(&mut self, id: DeviceId, source: Rc<dyn AsFd>) -> io::Result<()> {
        let fd = Fd::Attached(source);
        let mode = rustix::fs::fstat(fd.as_fd())?.st_mode;
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Socket => Kind::Socket,
            _ => Kind::File,
        };
        if !fd.is_shared() {
            let flags = rustix::fs::fcntl_getfl(&fd)?;
            rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        }
        self.register(id, fd, kind)
    }

    fn listen(&mut self, id: DeviceId, addr: SocketAddr) -> io::Result<SocketAddr> {
        let socket = tcp_socket(addr)?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(addr);
        self.register(id, Fd::Owned(socket), Kind::Socket)?;
        Ok(local)
    }

    fn connect(&mut self, id: DeviceId, addr: SocketAddr) -> io::Result<()> {
        let socket = tcp_socket(addr)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&addr.into()) {
            Err(error)
                if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                Err(error)
            }
            Ok(()) | Err(_) => self.register(id, Fd::Owned(socket), Kind::Stream),
        }
    }

    fn connected(&mut self, id: DeviceId) -> io::Result<()> {
        match rustix::net::sockopt::socket_error(self.source(id)?.fd.as_fd())? {
            Ok(()) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn accept(&mut self, listener: DeviceId, id: DeviceId) -> io::Result<SocketAddr> {
        let source = self.source(listener)?;
        let (socket, peer) = source.attempt(Direction::Read, |fd| match fd {
            Fd::Owned(socket) => socket.accept(),
            Fd::Attached(_) => Err(io::ErrorKind::InvalidInput.into()),
        })?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        let peer = peer.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        self.register(id, Fd::Owned(socket), Kind::Stream)?;
        Ok(peer)
    }

    fn recv(&mut self, id: DeviceId, buf: &mut [u8]) -> io::Result<usize> {
        let source = self.source(id)?;
        let socket = source.kind != Kind::File;
        let n = source.attempt(Direction::Read, |fd| {
            Ok(if socket {
                rustix::net::recv(fd.as_fd(), &mut *buf, RecvFlags::DONTWAIT)?.0
            } else {
                rustix::io::read(fd.as_fd(), &mut *buf)?
            })
        })?;
        if source.kind == Kind::Stream && 0 < n && n < buf.len() {
            source.ready[READ] = false;
            if !std::mem::replace(&mut source.unsure, true) {
                self.unsure.push(id);
            }
        }
        Ok(n)
    }

    fn send(&mut self, id: DeviceId, buf: &[u8]) -> io::Result<usize> {
        let source = self.source(id)?;
        let socket = source.kind != Kind::File;
        // A terminal that is said to be writable has room for this much, at least.
        let room = if source.shared { 512 } else { buf.len() };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        source.attempt(Direction::Write, |fd| {
            Ok(if socket {
                rustix::net::send(fd.as_fd(), buf, flags)?
            } else {
                rustix::io::write(fd.as_fd(), &buf[..buf.len().min(room)])?
            })
        })
    }

    fn shutdown_write(&mut self, id: DeviceId) -> io::Result<()> {
        Ok(rustix::net::shutdown(
            self.source(id)?.fd.as_fd(),
            rustix::net::Shutdown::Write,
        )?)
    }

    fn ready(&mut self, id: DeviceId, direction: Direction) -> io::Result<bool> {
        let source = self.source(id)?;
        if source.watched {
            source.ready[direction as usize] = is_ready(source.fd.as_fd(), direction)?;
        }
        Ok(source.ready[direction as usize])
    }

    fn close(&mut self, id: DeviceId) {
        if let Some(source) = self.sources.remove(&id) {
            source.deregister(&self.poller);
        }
    }
}

impl std::fmt::Debug for RealWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealWorld")
            .field("seed", &self.seed)
            .field("sources", &self.sources)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl Drop for RealWorld {
    fn drop(&mut self) {
        for source in self.sources.values() {
            source.deregister(&self.poller);
        }
    }
}

/// Remembers what the poller says of a device, and reports it. Readers first: the end of a
/// half-closed stream must be seen before we write to it.
fn note(
    sources: &mut FxHashMap<DeviceId, Source>,
    device: DeviceId,
    readable: bool,
    writable: bool,
    ready: &mut Vec<(DeviceId, Direction)>,
) {
    let Some(source) = sources.get_mut(&device) else {
        return;
    };
    for (direction, now) in [(Direction::Read, readable), (Direction::Write, writable)] {
        if now {
            source.ready[direction as usize] = true;
            ready.push((device, direction));
        }
    }
}

const READ: usize = Direction::Read as usize;

impl Source {
    /// Makes an attempt at the descriptor, unless it is known to be in vain.
    fn attempt<T>(
        &mut self,
        direction: Direction,
        mut io: impl FnMut(&Fd) -> io::Result<T>,
    ) -> io::Result<T> {
        let ready = &mut self.ready[direction as usize];
        if *ready && self.shared && self.watched {
            *ready = is_ready(self.fd.as_fd(), direction)?;
        }
        if !*ready {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        loop {
            match io(&self.fd) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.watched {
                        return Err(io::Error::new(io::ErrorKind::Unsupported, error));
                    }
                    *ready = false;
                    return Err(error);
                }
                result => return result,
            }
        }
    }

    fn deregister(&self, poller: &Poller) {
        if self.watched {
            // It fails only where the descriptor is closed already, and so not watched any more.
            let _ = poller.delete(self.fd.as_fd());
        }
    }
}

impl Fd {
    /// Whether it is one of the three standard streams. What is opened here is not, even if it has
    /// the number of one that was closed.
    fn is_shared(&self) -> bool {
        matches!(self, Self::Attached(_)) && self.as_fd().as_raw_fd() <= 2
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Owned(socket) => socket.as_fd(),
            Self::Attached(source) => (**source).as_fd(),
        }
    }
}

impl std::fmt::Debug for Fd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_fd().fmt(f)
    }
}

/// Wakes a poller that waits, from any thread.
struct Notify(Arc<Poller>);

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        // It fails only where the poller is gone, and then nobody waits.
        let _ = self.0.notify();
    }
}

fn tcp_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Asks the operating system about one descriptor.
fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<bool> {
    let flags = match direction {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    };
    let mut asked = [PollFd::from_borrowed_fd(fd, flags)];
    poll_now(&mut asked)?;
    Ok(!asked[0].revents().is_empty())
}

fn poll_now(asked: &mut [PollFd<'_>]) -> io::Result<()> {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::io::retry_on_intr(|| rustix::event::poll(asked, Some(&at_once)))?;
    Ok(())
}
