//! The real world: the operating system's clock, descriptors and standard output.
//!
//! Every descriptor is registered once, edge-triggered for both directions, and its readiness is
//! remembered: an attempt that would block clears it, an event of the poller sets it. So a
//! connection that is served costs the system calls of a hand-written epoll loop and no more. To
//! the kernel and its programs all of this is level-triggered.
//!
//! # What `polling` does
//!
//! `polling` owns the poller on every system: it opens it and closes it, and ends the watch of a
//! descriptor. `poller.rs` and the two files below it are all that names it. On Linux two things are
//! ours, and one is ours everywhere:
//!
//! - A watch begins by `epoll_ctl`: `polling` cannot ask for `EPOLLRDHUP`. Without it each short read
//!   needs a second one, to find the end of the stream.
//! - A wait is `epoll_wait`, and a timerfd for a new deadline: 1 or 2 system calls. `polling` makes 5
//!   (`timerfd_settime`, two `epoll_ctl`, `epoll_wait`, `read`).
//! - Threads wake it by an eventfd, or a pipe, that is watched like any other descriptor: the
//!   notification of `polling` has to be acknowledged in its own wait.
//!
//! The figure: a request of an echo server with 50 connections takes 2.0 system calls
//! (`docs/benchmarks.md`), as that of a bare epoll loop does.

pub(crate) mod affinity;
mod disk;
#[cfg(target_os = "linux")]
mod epoll;
mod files;
mod look;
mod poller;
mod pool;
#[cfg(any(not(target_os = "linux"), test))]
mod portable;
mod ports;
#[cfg(target_os = "linux")]
mod sendfile;
mod signals;
mod sockets;
mod source;
mod stdin;
mod stdout;

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, Result, Write},
    net::SocketAddr,
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::FileType,
    net::{RecvFlags, SendFlags, Shutdown},
};

use disk::Disk;
#[cfg(target_os = "linux")]
use epoll::Epoll as System;
use look::glance;
use poller::Poller;
use pool::Pool;
#[cfg(not(target_os = "linux"))]
use portable::Portable as System;
use ports::Ports;
pub use ports::SharedPorts;
use signals::Caught;
use source::{Fd, Kind, Source, Sources};
use stdin::Way;
use stdout::Stdout;
pub use stdout::open_again;

use super::{
    Answer, Happening, Request, World, console, hand_on, io::send_piece, sequence::Sequence,
    text::Text,
};
use crate::{
    abi::{DeviceId, Direction, ListenOptions, Tid},
    interrupt::{Interrupt, Interrupts, Remote},
    trap::Descriptor,
};

/// How long daemons may have to wait for a poll of their devices while tasks are ready.
const GLANCE_AFTER: Duration = Duration::from_millis(1);

/// The real world. Its seed is the operating system's choice unless one is set.
pub struct RealWorld {
    boot: Instant,
    random: Sequence,
    // Before the sources: they must stay open until the poller is gone.
    poller: Poller<System>,
    /// Whether `sendfile` is safe to call; asked before the first time.
    #[cfg(target_os = "linux")]
    ignores_pipe_signal: Option<bool>,
    sources: Sources,
    /// When daemons' devices are polled next, while nothing else is promised.
    next_glance: Duration,
    interrupts: Interrupts,
    pool: Pool,
    signals: Caught,
    disk: Disk,
    /// Whether a look for mail is worth it: the last mail came soon.
    looks_for_mail: bool,
    console: Console,
    /// Whether descriptor 0 was open at the begin. Later another file may have its number.
    has_stdin: bool,
    /// What is read instead of standard input.
    fed: Option<Box<Text>>,
    /// The ports that it shares with other worlds, if it does.
    ports: Option<Box<Ports>>,
}

/// Where what is printed goes.
enum Console {
    /// To standard output, which nothing has been printed to yet.
    Unopened,
    Stdout(Stdout),
    Other(console::Console),
}

impl RealWorld {
    /// A world whose time begins now.
    ///
    /// *Errors:* the operating system's, where it has no descriptors left for a poller.
    pub fn new() -> Result<Self> {
        let has_stdin = stdin::is_open();
        let poller = Poller::new()?;
        Ok(Self {
            boot: Instant::now(),
            random: Sequence::new(RandomState::new().hash_one(std::process::id())),
            #[cfg(target_os = "linux")]
            ignores_pipe_signal: None,
            interrupts: Interrupts::new(poller.waker()),
            disk: Disk::new(poller.waker()),
            poller,
            sources: Sources::default(),
            next_glance: Duration::ZERO,
            pool: Pool::default(),
            signals: Caught::default(),
            looks_for_mail: false,
            console: Console::Unopened,
            has_stdin,
            fed: None,
            ports: None,
        })
    }

    /// Has the console somewhere else than at standard output.
    #[must_use]
    pub fn print_to(mut self, console: impl Write + 'static) -> Self {
        self.console = Console::Other(console::Console::Sink(Box::new(console)));
        self
    }

    /// Has every listener share its address with those of the other worlds with these ports, as
    /// [`ListenOptions::reuse_port`] does: for the same programs in kernels side by side. The system
    /// gives each connection to one of them. Where a program asks for port 0, all worlds get the same
    /// one. An address on which another process listens fails as it does without this.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use trapline::{Kernel, Kernels, Os, RealWorld, SharedPorts};
    ///
    /// let (ports, seen) = (SharedPorts::new(), Mutex::new(Vec::new()));
    /// let seen = std::sync::Arc::new(seen);
    /// let all = std::sync::Arc::clone(&seen);
    /// let reports = Kernels::new(2).run(move |_| {
    ///     let world = RealWorld::new()?.share_ports(&ports);
    ///     let mut kernel = Kernel::builder().world(world).build()?;
    ///     let seen = std::sync::Arc::clone(&seen);
    ///     kernel.spawn("server", async move |os: &mut Os| {
    ///         let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
    ///         seen.lock().unwrap().push(listener.local_addr()?);
    ///         Ok::<(), std::io::Error>(())
    ///     })?;
    ///     Ok(kernel)
    /// });
    /// for report in reports {
    ///     report?.check()?;
    /// }
    /// let all = all.lock().unwrap();
    /// assert_eq!(all[0], all[1]);
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[must_use]
    pub fn share_ports(mut self, ports: &SharedPorts) -> Self {
        self.ports = Some(Box::new(Ports::of(ports.clone())));
        self
    }

    /// Has the clock begin at this instant instead of now. Kernels side by side whose worlds have the same
    /// instant have one time: their logs and recordings are in step.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use trapline::{Kernel, Os, RealWorld};
    ///
    /// let before = Instant::now() - Duration::from_secs(5);
    /// let world = RealWorld::new()?.since(before);
    /// let mut kernel = Kernel::builder().world(world).build()?;
    /// kernel.spawn("main", async |os: &mut Os| assert!(os.now().await >= Duration::from_secs(5)))?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[must_use]
    pub fn since(mut self, begin: Instant) -> Self {
        self.boot = begin;
        self
    }

    /// Has the disk of its tasks in this directory: [`Os::disk`](crate::Os::disk). Nothing outside of
    /// it can be named.
    ///
    /// *Errors:* those of the operating system, such as `NotFound`.
    pub fn disk(mut self, dir: impl AsRef<Path>) -> Result<Self> {
        self.disk.set_root(dir.as_ref())?;
        Ok(self)
    }

    fn register(&mut self, id: DeviceId, fd: Fd, kind: Kind) -> Result<()> {
        self.close(id);
        let watched = match self.poller.watch(fd.as_fd(), id.into()) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
            Err(error) => return Err(error),
        };
        let source = Source::new(fd, kind, watched);
        self.sources.open.insert(id, source);
        Ok(())
    }

    fn close(&mut self, id: DeviceId) {
        match self.sources.remove(id) {
            Some(source) if source.watched => self.poller.unwatch(source.fd.as_fd()),
            Some(_) => {}
            None => self.disk.close(id),
        }
    }

    /// Has the console reported once it takes more. It is watched no longer than that: whatever is
    /// read from a pipe would wake the kernel.
    fn watch_console(&mut self) -> Result<()> {
        let Console::Stdout(stdout) = &self.console else {
            return Ok(());
        };
        if !self.sources.open.contains_key(&DeviceId::CONSOLE) {
            let fd = Fd::Attached(Descriptor::new(stdout.source()));
            self.register(DeviceId::CONSOLE, fd, Kind::File)?;
        }
        let (source, owed) = self.sources.get(DeviceId::CONSOLE)?;
        if !source.watched {
            return Err(io::Error::other(
                "it is full, and the system cannot report when it is not",
            ));
        }
        source.set_ready(Direction::Write, false, owed);
        Ok(())
    }

    /// Waits for so long, or until something happens.
    fn poll(
        &mut self,
        deadline: Option<Duration>,
        span: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> Result<()> {
        let sources = &mut self.sources;
        self.poller.wait(deadline, span, |key, readiness| {
            sources.note(DeviceId::from_raw(key), readiness, happened);
        })?;
        hand_on(&self.interrupts, happened);
        self.disk.hand_on(happened);
        Ok(())
    }

    /// Polls for a while, until something happens, and looks for the end of an operation of the disk
    /// between the polls. Returns whether the wait is over. Otherwise the next one is woken.
    fn look(&mut self, deadline: Option<Duration>, happened: &mut Vec<Happening>) -> Result<bool> {
        let until = self.now() + self.disk.time_to_look();
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let before = happened.len();
        self.disk.news().begin_look();
        while look::is_of_use() && self.now() < until {
            glance(|| self.disk.news().is_told());
            self.poll(deadline, Some(Duration::ZERO), happened)?;
            if happened.len() > before {
                return Ok(true);
            }
        }
        Ok(!self.disk.news().sleep())
    }

    /// Waits as [`World::wait`] does, where other kernels may send mail. If the last mail came soon, looks
    /// for it before it sleeps. Then it takes no longer than twice the time of the better choice.
    fn wait_for_mail(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> Result<()> {
        let (before, len) = (self.now(), happened.len());
        let soon = before + look::LOOK;
        let until = deadline.map_or(soon, |deadline| deadline.min(soon));
        while self.looks_for_mail && look::is_of_use() && self.now() < until {
            glance(|| self.interrupts.is_raised());
            self.poll(deadline, Some(Duration::ZERO), happened)?;
            if happened.len() > len {
                return Ok(());
            }
        }
        let span = deadline.map(|deadline| deadline.saturating_sub(self.now()));
        self.poll(deadline, span, happened)?;
        let is_mail = |report: &Happening| {
            let Happening::Interrupt(interrupt) = report else {
                return false;
            };
            // A close is the room for a message of this kernel.
            matches!(interrupt, Interrupt::Mail(_) | Interrupt::Close(_))
        };
        let is_soon = self.now() < before + 2 * look::LOOK;
        self.looks_for_mail = is_soon && happened[len..].iter().any(is_mail);
        Ok(())
    }

    /// Whether a poll without a wait could report anything that was promised. A poll for daemons
    /// alone can wait a millisecond: it costs a system call, while tasks are ready.
    fn is_poll_due(&mut self) -> bool {
        let [tasks, daemons] = self.sources.owed;
        if tasks > 0 || daemons == 0 {
            return tasks > 0;
        }
        let now = self.now();
        let is_due = now >= self.next_glance;
        if is_due {
            self.next_glance = now + GLANCE_AFTER;
        }
        is_due
    }

    fn attach(&mut self, id: DeviceId, descriptor: Descriptor) -> Result<()> {
        let mode = rustix::fs::fstat(descriptor.as_fd())?.st_mode;
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Socket => Kind::Socket,
            _ => Kind::File,
        };
        descriptor.set_nonblocking()?;
        self.register(id, Fd::Attached(descriptor), kind)
    }

    fn open_input(&mut self, id: DeviceId) -> Result<()> {
        if let Some(fed) = &mut self.fed {
            fed.device = Some(id);
            return Ok(());
        }
        let (fd, way) = stdin::open(self.has_stdin)?;
        let kind = match way {
            Way::File => Kind::File,
            Way::Socket => Kind::Socket,
            Way::Pump => Kind::Pump(false),
        };
        self.register(id, Fd::Attached(Descriptor::new(fd.into())), kind)
    }

    fn listen(
        &mut self,
        id: DeviceId,
        addr: SocketAddr,
        how: &ListenOptions,
    ) -> Result<SocketAddr> {
        let (socket, local) = match &mut self.ports {
            Some(ports) => {
                let open = &self.sources.open;
                ports.listen(id, addr, how, |id| open.contains_key(&id))?
            }
            None => sockets::listen(addr, how)?,
        };
        self.register(id, Fd::Owned(socket), Kind::Socket)?;
        Ok(local)
    }

    fn listen_unix(&mut self, id: DeviceId, path: &str) -> Result<()> {
        let (socket, file) = sockets::listen_unix(path)?;
        self.register(id, Fd::Owned(socket), Kind::Socket)?;
        self.sources.get(id)?.0.file = Some(file);
        Ok(())
    }

    fn bind(&mut self, id: DeviceId, addr: SocketAddr) -> Result<SocketAddr> {
        let (socket, local) = sockets::bind(addr)?;
        self.register(id, Fd::Owned(socket), Kind::Socket)?;
        Ok(local)
    }

    fn pair(&mut self, ids: [DeviceId; 2]) -> Result<()> {
        let mut registered = Ok(());
        for (id, socket) in ids.into_iter().zip(sockets::pair()?) {
            let register = |()| self.register(id, Fd::Owned(socket), Kind::Socket);
            registered = registered.and_then(register);
        }
        if registered.is_err() {
            self.close(ids[0]);
        }
        registered
    }

    fn connected(&mut self, id: DeviceId) -> Result<()> {
        let (source, _) = self.sources.get(id)?;
        Ok(rustix::net::sockopt::socket_error(source.fd.as_fd())??)
    }

    fn accept(&mut self, listener: DeviceId, id: DeviceId) -> Result<Answer> {
        let (source, owed) = self.sources.get(listener)?;
        let (socket, peer) = source.attempt(Direction::Read, owed, |fd| match fd {
            Fd::Owned(socket) => socket.accept(),
            Fd::Attached(_) => Err(io::ErrorKind::InvalidInput.into()),
        })?;
        socket.set_nonblocking(true)?;
        if peer.is_unix() {
            // A read may end before its buffer is full, where descriptors travel with the bytes.
            self.register(id, Fd::Owned(socket), Kind::Socket)?;
            return Ok(Answer::Done);
        }
        socket.set_tcp_nodelay(true)?;
        let peer = peer.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        self.register(id, Fd::Owned(socket), Kind::Stream)?;
        Ok(Answer::Addr(peer))
    }

    fn recv(&mut self, id: DeviceId, buf: &mut [u8]) -> Result<usize> {
        let (source, owed) = self.sources.get(id)?;
        let socket = source.kind.is_socket();
        let len = source.left.unwrap_or(u64::MAX).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        if source.left == Some(0) {
            return Ok(0);
        }
        let n = source.attempt(Direction::Read, owed, |fd| {
            Ok(if socket {
                rustix::net::recv(fd.as_fd(), &mut *buf, RecvFlags::DONTWAIT)?.0
            } else {
                rustix::io::read(fd.as_fd(), &mut *buf)?
            })
        })?;
        if source.kind == Kind::Stream && 0 < n && n < buf.len() {
            source.read_short();
        }
        if n > 0 {
            source.kind.answered();
        }
        source.left = source.left.map(|left| left.saturating_sub(n as u64));
        Ok(n)
    }

    fn recv_from(&mut self, id: DeviceId, buf: &mut [u8], from: &mut SocketAddr) -> Result<usize> {
        let (source, owed) = self.sources.get(id)?;
        let recv = |fd: &Fd| sockets::recv_from(fd.as_fd(), buf, from);
        source.attempt(Direction::Read, owed, recv)
    }

    fn drained(&mut self, id: DeviceId) -> Result<bool> {
        let (source, owed) = self.sources.get(id)?;
        Ok(source.left.is_none() && !source.is_ready_or_owed(Direction::Read, owed))
    }

    fn send(&mut self, id: DeviceId, buf: &[u8]) -> Result<usize> {
        let (source, owed) = self.sources.get(id)?;
        let socket = source.kind.is_socket();
        // A terminal that is said to be writable has room for this much, at least.
        let room = if source.shared { 512 } else { buf.len() };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        source.attempt(Direction::Write, owed, |fd| {
            Ok(if socket {
                rustix::net::send(fd.as_fd(), buf, flags)?
            } else {
                rustix::io::write(fd.as_fd(), &buf[..buf.len().min(room)])?
            })
        })
    }

    fn send_to(&mut self, id: DeviceId, bytes: &[u8], to: SocketAddr) -> Result<usize> {
        let (source, owed) = self.sources.get(id)?;
        let send = |fd: &Fd| sockets::send_to(fd.as_fd(), bytes, to);
        source.attempt(Direction::Write, owed, send)
    }

    fn send_file(&mut self, id: DeviceId, file: &File, offset: u64, len: usize) -> Result<usize> {
        #[cfg(target_os = "linux")]
        {
            let is_quiet = *self
                .ignores_pipe_signal
                .get_or_insert_with(sendfile::is_pipe_signal_ignored);
            let (source, owed) = self.sources.get(id)?;
            // The call blocks unless the descriptor is non-blocking: that of a stream is, since
            // nothing outside of this world can reach it.
            if is_quiet && source.kind == Kind::Stream {
                let sent = source.attempt(Direction::Write, owed, |fd| {
                    sendfile::send(fd.as_fd(), file, offset, len)
                });
                if !matches!(&sent, Err(error) if error.kind() == io::ErrorKind::Unsupported) {
                    return sent;
                }
            }
        }
        send_piece(file, offset, len, |piece| self.send(id, piece))
    }

    fn shutdown(&mut self, id: DeviceId) -> Result<()> {
        let (source, _) = self.sources.get(id)?;
        rustix::net::shutdown(source.fd.as_fd(), Shutdown::Write)?;
        source.left = None;
        Ok(())
    }

    /// The operating system is not told. Linux would pass on what arrives later, and once the other
    /// half has ended it would answer that with a reset, which discards what the peer has not received.
    fn shutdown_read(&mut self, id: DeviceId) -> Result<()> {
        let (source, owed) = self.sources.get(id)?;
        rustix::net::getpeername(source.fd.as_fd())?;
        let arrived = rustix::io::ioctl_fionread(source.fd.as_fd())?;
        source.left = Some(source.left.unwrap_or(u64::MAX).min(arrived));
        source.set_ready(Direction::Read, true, owed);
        Ok(())
    }

    fn ready(&mut self, id: DeviceId, direction: Direction) -> Result<bool> {
        let (source, owed) = self.sources.get(id)?;
        if direction == Direction::Read && source.left.is_some() {
            return Ok(true);
        }
        source.ask(direction, owed)
    }
}

impl World for RealWorld {
    fn now(&mut self) -> Duration {
        self.boot.elapsed()
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    fn reseed(&mut self, seed: u64) {
        self.random = Sequence::new(seed);
    }

    fn spins(&self) -> bool {
        true
    }

    fn seed(&self) -> u64 {
        self.random.seed
    }

    fn print(&mut self, text: &[u8]) -> Result<usize> {
        let written = loop {
            match &mut self.console {
                Console::Unopened => self.console = Console::Stdout(Stdout::open()?),
                Console::Stdout(stdout) => break stdout.write(text),
                Console::Other(console) => return console.print(text),
            }
        };
        match &written {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.watch_console()?,
            Ok(_) | Err(_) => self.close(DeviceId::CONSOLE),
        }
        written
    }

    fn wait(&mut self, deadline: Option<Duration>, happened: &mut Vec<Happening>) -> Result<()> {
        if self.interrupts.is_raised() {
            // What is taken below ends no later wait.
            self.poller.awake();
        }
        let mut span = match deadline {
            // Both, so that neither waits for the other.
            _ if hand_on(&self.interrupts, happened) | self.disk.hand_on(happened) => {
                Some(Duration::ZERO)
            }
            // Most calls are polls: they need no clock.
            Some(deadline) if deadline > Duration::ZERO => {
                Some(deadline.saturating_sub(self.now()))
            }
            other => other,
        };
        if span == Some(Duration::ZERO) && !self.is_poll_due() {
            return Ok(());
        }
        if span != Some(Duration::ZERO) && self.disk.is_awaited() {
            if self.look(deadline, happened)? {
                return Ok(());
            }
            span = deadline.map(|deadline| deadline.saturating_sub(self.now()));
        } else if span != Some(Duration::ZERO) && self.interrupts.expects_mail() {
            return self.wait_for_mail(deadline, happened);
        }
        self.poll(deadline, span, happened)
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> Result<Duration> {
        let before = self.now();
        let patience = before.checked_add(patience);
        self.wait(deadline.into_iter().chain(patience).min(), happened)?;
        Ok(self.now().saturating_sub(before))
    }

    fn remote(&self) -> Remote {
        self.interrupts.remote()
    }

    fn submit(&mut self, task: Tid, job: Box<dyn FnOnce() + Send>) {
        self.pool.submit(task, job);
    }

    fn io(&mut self, device: DeviceId, request: Request<'_>) -> Result<Answer> {
        let done = |()| Answer::Done;
        if let Some(fed) = &mut self.fed
            && fed.is(device, &request)
        {
            return fed.io(request);
        }
        match request {
            Request::Recv(buf) => self.recv(device, buf).map(Answer::Bytes),
            Request::Drained => self.drained(device).map(Answer::Ready),
            Request::Send(buf) => self.send(device, buf).map(Answer::Bytes),
            Request::SendFile { file, offset, len } => {
                let sent = self.send_file(device, file, offset, len);
                sent.map(Answer::Bytes)
            }
            Request::Ready(direction) => self.ready(device, direction).map(Answer::Ready),
            Request::Accept { connection, .. } => self.accept(device, connection),
            Request::Attach { descriptor, .. } => self.attach(device, descriptor).map(done),
            Request::Listen { addr, options, .. } => {
                self.listen(device, addr, options).map(Answer::Addr)
            }
            Request::Connect { addr, options, .. } => {
                let socket = sockets::connect(addr, options)?;
                let registered = self.register(device, Fd::Owned(socket), Kind::Stream);
                registered.map(done)
            }
            Request::Bind { addr, .. } => self.bind(device, addr).map(Answer::Addr),
            Request::RecvFrom { buf, from } => self.recv_from(device, buf, from).map(Answer::Bytes),
            Request::SendTo { bytes, to } => self.send_to(device, bytes, to).map(Answer::Bytes),
            Request::ConnectTo(peer) => {
                let (source, _) = self.sources.get(device)?;
                sockets::connect_to(source.fd.as_fd(), peer).map(done)
            }
            Request::ListenUnix { path, .. } => self.listen_unix(device, path).map(done),
            Request::ConnectUnix { path, .. } => {
                let socket = sockets::connect_unix(path)?;
                let registered = self.register(device, Fd::Owned(socket), Kind::Socket);
                registered.map(done)
            }
            Request::Pair { other, .. } => self.pair([device, other]).map(done),
            Request::SetOptions(options) => {
                let (source, _) = self.sources.get(device)?;
                sockets::set_options(&(&source.fd).into(), options).map(done)
            }
            Request::Connected => self.connected(device).map(done),
            Request::Shutdown => self.shutdown(device).map(done),
            Request::ShutdownRead => self.shutdown_read(device).map(done),
            // The system's look-up blocks.
            Request::Resolve { .. } => Ok(Answer::Ready(false)),
            Request::Catch(signals) => {
                let remote = self.interrupts.remote();
                self.signals.catch(&remote, signals).map(done)
            }
            Request::Disk { op, .. } => self.disk.begin_on_names(&self.pool, device, op),
            Request::File(op) => self.disk.begin_on_file(&self.pool, device, op),
            Request::Finish(into) => self.disk.finish(device, into),
            Request::Input => self.open_input(device).map(done),
            Request::Feed(text) => {
                self.fed = Some(Box::new(Text::new(text)));
                Ok(Answer::Done)
            }
            Request::WallClock { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                Ok(Answer::Time(since.unwrap_or_default()))
            }
            Request::Close => {
                self.close(device);
                Ok(Answer::Done)
            }
        }
    }
}

impl std::fmt::Debug for RealWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealWorld")
            .field("seed", &self.random.seed)
            .finish_non_exhaustive()
    }
}
