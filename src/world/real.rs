//! The real world: the operating system's clock, descriptors and standard output. The only file
//! that names `polling` and reads a clock.
//!
//! Every descriptor is registered once, edge-triggered for both directions, and its readiness is
//! remembered: an attempt that would block clears it, an event of the poller sets it. So a
//! connection that is served costs the system calls of a hand-written epoll loop and no more. To
//! the kernel and its programs all of this is level-triggered.

#[cfg(target_os = "linux")]
use std::fs::File;
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

use polling::{Events, Poller};
use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags};
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Protocol, Socket, Type};

use super::{DeviceMap, World, pool::Pool};
#[cfg(target_os = "linux")]
use super::{
    epoll::{self, Epoll},
    sendfile,
};
use crate::abi::{DeviceId, Direction};

/// How many connections the operating system keeps for a listener that is busy.
const BACKLOG: i32 = 4096;

/// The real world. Its seed is the operating system's choice unless one is set.
pub struct RealWorld {
    boot: Instant,
    seed: u64,
    random: Pcg64,
    poller: Arc<Poller>,
    events: Events,
    #[cfg(target_os = "linux")]
    epoll: Epoll,
    /// Whether `sendfile` is safe to call; asked before the first time.
    #[cfg(target_os = "linux")]
    ignores_pipe_signal: Option<bool>,
    sources: DeviceMap<Source>,
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
    /// Whether there may be more behind a read that does not fill its buffer, for all that the
    /// poller will say: the end of the stream or urgent data, of which it told with the rest.
    unclear: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A TCP connection: a read that does not fill its buffer has emptied it, unless that is
    /// unclear.
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
        let poller = Poller::new()?;
        Ok(Self {
            boot: Instant::now(),
            seed,
            random: Pcg64::seed_from_u64(seed),
            #[cfg(target_os = "linux")]
            epoll: Epoll::new(poller.as_fd())?,
            #[cfg(target_os = "linux")]
            ignores_pipe_signal: None,
            poller: Arc::new(poller),
            events: Events::new(),
            sources: DeviceMap::default(),
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
        let shared = fd.is_shared();
        let added = watch(&self.poller, fd.as_fd(), key);
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
                unclear: cfg!(not(target_os = "linux")),
            },
        );
        Ok(())
    }

    fn source(&mut self, id: DeviceId) -> io::Result<&mut Source> {
        self.sources
            .get_mut(&id)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
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
        #[cfg(target_os = "linux")]
        let timeout = {
            let (poller, boot, sources) = (self.poller.as_fd(), self.boot, &mut self.sources);
            let tell = |key: u64, news| note(sources, key.into(), &news, ready);
            if !self.epoll.wait(poller, deadline, || boot.elapsed(), tell)? {
                return Ok(());
            }
            Some(Duration::ZERO)
        };
        #[cfg(not(target_os = "linux"))]
        let timeout = deadline.map(|deadline| deadline.saturating_sub(self.now()));
        self.events.clear();
        self.poller.wait(&mut self.events, timeout)?;
        for event in self.events.iter() {
            let news = News {
                readable: event.readable,
                writable: event.writable,
                unclear: true,
            };
            note(&mut self.sources, (event.key as u64).into(), &news, ready);
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
            source.ready[READ] &= source.unclear;
        }
        Ok(n)
    }

    fn is_drained(&mut self, id: DeviceId) -> bool {
        self.sources
            .get(&id)
            .is_some_and(|source| !source.ready[READ])
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

    #[cfg(target_os = "linux")]
    fn send_file(
        &mut self,
        id: DeviceId,
        file: &File,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let is_quiet = *self
            .ignores_pipe_signal
            .get_or_insert_with(sendfile::is_pipe_signal_ignored);
        let source = self.source(id)?;
        // The call blocks unless the descriptor is non-blocking: that of a stream is, since nothing
        // but this world can reach it.
        if is_quiet && source.kind == Kind::Stream {
            let sent = source.attempt(Direction::Write, |fd| {
                sendfile::send(fd.as_fd(), file, offset, len)
            });
            if !matches!(&sent, Err(error) if error.kind() == io::ErrorKind::Unsupported) {
                return sent;
            }
        }
        super::send_piece(self, id, file, offset, len)
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

/// What the poller says of a device.
pub(super) struct News {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether it has told of the end of the stream or of urgent data, or cannot.
    pub(super) unclear: bool,
}

/// Remembers what the poller says of a device, and reports it if it was not known. Readers first:
/// the end of a half-closed stream must be seen before we write to it.
fn note(
    sources: &mut DeviceMap<Source>,
    device: DeviceId,
    news: &News,
    ready: &mut Vec<(DeviceId, Direction)>,
) {
    let Some(source) = sources.get_mut(&device) else {
        return;
    };
    source.unclear = news.unclear;
    for (direction, now) in [
        (Direction::Read, news.readable),
        (Direction::Write, news.writable),
    ] {
        if now && !std::mem::replace(&mut source.ready[direction as usize], true) {
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

/// Has the poller watch a descriptor.
fn watch(poller: &Poller, fd: BorrowedFd<'_>, key: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return epoll::watch(poller.as_fd(), fd, key as u64);
    #[cfg(not(target_os = "linux"))]
    watch_by_polling(poller, fd, key)
}

#[cfg(not(target_os = "linux"))]
fn watch_by_polling(poller: &Poller, fd: BorrowedFd<'_>, key: usize) -> io::Result<()> {
    let interest = polling::Event::all(key);
    #[expect(
        unsafe_code,
        reason = "polling cannot know that its sources outlive their registration"
    )]
    // SAFETY: the descriptor is owned by `sources` (or shared with it) until `close` or `drop`,
    // each of which deletes the registration first.
    unsafe {
        poller.add_with_mode(fd.as_raw_fd(), interest, polling::PollMode::Edge)
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
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut asked, Some(&Timespec::default())))?;
    Ok(!asked[0].revents().is_empty())
}
