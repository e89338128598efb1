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
//! - A wait is `epoll_wait`, and a timerfd for an earlier deadline: 1 or 2 system calls. `polling`
//!   makes 5 (`timerfd_settime`, two `epoll_ctl`, `epoll_wait`, `read`).
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
mod requests;
#[cfg(target_os = "linux")]
mod sendfile;
mod signals;
mod sockets;
mod source;
mod stdin;
mod stdout;

use std::{
    hash::{BuildHasher, RandomState},
    io::{self, Result, Write},
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

use rustix::net::SendFlags;

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
use stdout::Stdout;
pub use stdout::open_again;

use super::{Answer, Happening, Request, World, console, hand_on, sequence::Sequence, text::Text};
use crate::{
    abi::{DeviceId, Direction, Tid},
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
    /// [`ListenOptions::reuse_port`](crate::ListenOptions::reuse_port) does: for the same programs in kernels side by side. The system
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

    /// Has this text say how to get a disk, in the error of a task that asks for one where there is none.
    /// It is for a host whose users do not write it: the command line names its option `--disk`.
    ///
    /// ```
    /// use trapline::{Kernel, Mode, Os, RealWorld};
    ///
    /// let world = RealWorld::new()?.disk_advice("start me with --data DIR");
    /// let mut kernel = Kernel::builder().world(world).build()?;
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let error = os.disk().open(os, "wal", Mode::Read).await.unwrap_err();
    ///     assert!(error.to_string().ends_with("this world has no disk: start me with --data DIR"));
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn disk_advice(mut self, advice: &'static str) -> Self {
        self.disk.advise(advice);
        self
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

    /// Reads. Returns how many bytes there were, and whether a read is known to be in vain until the next report.
    #[inline(always)]
    fn read(&mut self, id: DeviceId, buf: &mut [u8]) -> Result<(usize, bool)> {
        let (source, owed) = self.sources.get(id)?;
        if source.left.is_some() {
            return Ok((source.read_left(owed, buf)?, false));
        }
        let n = source.read(owed, buf)?;
        let is_drained = match source.kind {
            _ if n == 0 => false,
            Kind::Stream => n < buf.len() && source.is_drained(owed),
            Kind::Pump(_) => {
                source.kind.answered();
                false
            }
            Kind::Socket | Kind::File => false,
        };
        Ok((n, is_drained))
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

    /// What each message of a connection needs comes first: the others take a function with a large frame.
    fn io(&mut self, device: DeviceId, request: Request<'_>) -> Result<Answer> {
        if let Some(fed) = &mut self.fed
            && fed.is(device, &request)
        {
            return fed.io(request);
        }
        match request {
            Request::Send(buf) => self.send(device, buf).map(Answer::Bytes),
            other => self.answer(device, other),
        }
    }

    fn recv(&mut self, device: DeviceId, buf: &mut [u8]) -> Result<(usize, bool)> {
        match &mut self.fed {
            Some(fed) if fed.device == Some(device) => Ok((fed.read(buf), false)),
            _ => self.read(device, buf),
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
