//! The event log: one typed [`Event`] for each fact of a run. Whatever people look at (trace lines,
//! summaries, transcripts) derives from it.
//!
//! Uses the ABI and the world's clock.

use std::{
    any::Any,
    fmt, io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use crate::{
    abi::{DeviceId, Direction, Exit, Nanos, On, QueueId, Reply, SystemCall, Tid},
    task::{contain, panic_message},
    world::World,
};

/// A fact, with when and about whom.
///
/// Its `Display` is the line of the canonical log: the same programs, seed and policy in the
/// simulated world print the same lines, byte for byte.
#[derive(Debug)]
pub struct Event<'a> {
    /// When, counted from boot. The kernel reads its clock when a task has stopped and when the
    /// world has been waited for; what follows at once from that has the same time.
    pub at: Duration,
    /// Which task it is about; [`Tid::KERNEL`] for the kernel itself.
    pub tid: Tid,
    /// What happened.
    pub fact: Fact<'a>,
}

/// What happened to a task.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fact<'a> {
    /// It was created and is ready.
    Spawned {
        /// By whom; [`Tid::KERNEL`] for the host.
        parent: Tid,
        /// Its name.
        name: &'a str,
    },
    /// Its turn began.
    Resumed,
    /// It made a system call.
    Trapped {
        /// The call.
        call: SystemCall,
        /// What travelled beside it.
        detail: Detail<'a>,
    },
    /// The kernel has the answer to its last call; it is ready from now on, or goes on at once.
    Replied {
        /// The answer.
        reply: Reply,
        /// What travels beside it.
        detail: Detail<'a>,
    },
    /// Its call blocks.
    Blocked {
        /// What it waits for.
        on: On,
    },
    /// What it waited for has come.
    Woken {
        /// From where.
        by: Wake,
    },
    /// Bytes or a connection went through one of its devices, or failed to.
    DeviceIo {
        /// The device.
        device: DeviceId,
        /// Which way.
        direction: Direction,
        /// How many bytes (0 for a connection), or what went wrong.
        result: Result<usize, io::ErrorKind>,
    },
    /// It printed.
    Console {
        /// The text, as it was printed.
        text: &'a str,
    },
    /// It ended.
    Exited {
        /// How.
        exit: &'a Exit,
    },
    /// It is forgotten: somebody knows how it ended, or nobody ever will.
    Reaped,
    /// Nothing was ready, and the clock moved on: the simulated world jumped, the real one waited.
    ClockJumped {
        /// From this instant to the event's.
        from: Duration,
    },
}

/// What brought a blocked task back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wake {
    /// The task it waited for ended.
    Exit(Tid),
    /// Its deadline came.
    Timer,
    /// The device is ready.
    Device(DeviceId, Direction),
    /// The device was closed.
    Closed(DeviceId),
    /// The queue has room, or a message, or is closed.
    Queue(QueueId),
    /// A timeout around its call came.
    Timeout,
}

/// What travels beside a call or its reply.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Detail<'a> {
    /// Nothing.
    None,
    /// A new task's name.
    Name(&'a str),
    /// An address.
    Addr(SocketAddr),
    /// How many bytes are offered or wanted.
    Len(usize),
    /// How a task ended, or is to end.
    Exit(&'a Exit),
    /// How many tasks are listed.
    Count(usize),
    /// An operating system's error.
    Io(&'a io::Error),
}

impl Event<'static> {
    /// A call that is answered at once, with nothing beside either, event by event.
    pub(crate) fn of_trap(at: Duration, tid: Tid, call: SystemCall, reply: Reply) -> [Self; 2] {
        let detail = Detail::None;
        let trapped = Fact::Trapped { call, detail };
        let replied = Fact::Replied { reply, detail };
        [trapped, replied].map(|fact| Self { at, tid, fact })
    }
}

/// Who wants to know what happens. Any closure over events is one, and so is:
///
/// ```
/// use trapline::{Event, Fact, Kernel, Os, Tracer};
///
/// /// Prints every trap.
/// struct Strace;
///
/// impl Tracer for Strace {
///     fn event(&mut self, event: &Event<'_>) {
///         if let Fact::Trapped { call, .. } = event.fact {
///             println!("{} {call:?}", event.tid);
///         }
///     }
/// }
///
/// let mut kernel = Kernel::builder().tracer(Strace).build()?;
/// kernel.spawn("quiet", async |os: &mut Os| os.yield_now().await)?;
/// kernel.run()?; // prints "1 Yield"
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Tracer {
    /// Called for each fact, in order. A tracer that panics is switched off, with a warning.
    fn event(&mut self, event: &Event<'_>);

    /// May be called instead for a call that was answered at once, if there is nothing beside either:
    /// two events, of one time, which are most of what happens. They may come one by one as well,
    /// and so they do to a tracer that does not see to this, which is there for tracers that are to
    /// cost little. Each tracer hears both before the next hears of the first.
    fn trap(&mut self, at: Duration, tid: Tid, call: SystemCall, reply: Reply) {
        for event in Event::of_trap(at, tid, call, reply) {
            self.event(&event);
        }
    }

    /// Whether the clock is to be read for each event; asked once. While no tracer of a kernel
    /// wants that, which is most of the price of an event, [`Event::at`] is the time of the
    /// kernel's last look at the world, no more than 256 resumes or a pass before.
    fn is_exact(&self) -> bool {
        true
    }
}

impl<F: FnMut(&Event<'_>)> Tracer for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}

/// The tracers of a kernel. With none, an event costs a branch.
#[derive(Default)]
pub(crate) struct Log {
    tracers: Vec<Attached>,
    /// Whether one of them leads, or led, to `tracing`.
    is_bridged: bool,
    /// Whether one of them wants each event's own time.
    is_exact: bool,
    /// What the clock said when it was last read for the log.
    now: Duration,
}

struct Attached {
    /// Of those that tasks have attached; 0 of the host's.
    number: u64,
    is_exact: bool,
    tracer: Box<dyn Tracer>,
}

impl Log {
    pub(crate) fn add(&mut self, tracer: Box<dyn Tracer>) {
        self.attach(0, tracer);
    }

    pub(crate) fn attach(&mut self, number: u64, tracer: Box<dyn Tracer>) {
        let asked = catch_unwind(AssertUnwindSafe(|| tracer.is_exact()));
        self.tracers.push(Attached {
            number,
            is_exact: matches!(asked, Ok(true)),
            tracer,
        });
        self.count_exact();
        if let Err(panic) = asked {
            self.switch_off(self.tracers.len() - 1, panic);
        }
    }

    /// Drops a tracer that a task has attached.
    pub(crate) fn detach(&mut self, number: u64) {
        let place = self.tracers.iter().position(|at| at.number == number);
        let tracer = place.map(|place| self.tracers.remove(place));
        self.count_exact();
        drop(tracer);
    }

    fn count_exact(&mut self) {
        self.is_exact = self.tracers.iter().any(|tracer| tracer.is_exact);
    }

    pub(crate) fn add_bridge(&mut self, bridge: Box<dyn Tracer>) {
        self.is_bridged = true;
        self.add(bridge);
    }

    pub(crate) fn is_bridged(&self) -> bool {
        self.is_bridged
    }

    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        !self.tracers.is_empty()
    }

    #[inline(always)]
    pub(crate) fn emit<'a>(
        &mut self,
        world: &mut dyn World,
        tid: Tid,
        fact: impl FnOnce() -> Fact<'a>,
    ) {
        if self.is_observed() {
            if self.is_exact {
                self.now = world.now();
            }
            self.emit_at_once(tid, fact);
        }
    }

    /// Tells of a fact that follows at once from the one before, and has its time: a clock is read
    /// once in a turn, not three times.
    #[inline(always)]
    pub(crate) fn emit_at_once<'a>(&mut self, tid: Tid, fact: impl FnOnce() -> Fact<'a>) {
        if self.is_observed() && !tid.is_daemon() {
            let (at, fact) = (self.now, fact());
            self.tell_event(&Event { at, tid, fact });
        }
    }

    /// Tells of a call with nothing beside it, and of its answer, if it has one.
    pub(crate) fn emit_trap(
        &mut self,
        world: &mut dyn World,
        tid: Tid,
        call: SystemCall,
        answer: Option<(Reply, Detail<'_>)>,
    ) {
        if let Some((reply, Detail::None)) = answer
            && !tid.is_daemon()
        {
            if self.is_exact {
                self.now = world.now();
            }
            let at = self.now;
            return self.tell(|tracer| tracer.trap(at, tid, call, reply));
        }
        let detail = Detail::None;
        self.emit(world, tid, || Fact::Trapped { call, detail });
        if let Some((reply, detail)) = answer {
            self.emit_at_once(tid, || Fact::Replied { reply, detail });
        }
    }

    /// Takes the time for what follows at once from something else than a fact.
    pub(crate) fn set_clock(&mut self, now: Duration) {
        self.now = now;
    }

    #[cold]
    fn tell_event(&mut self, event: &Event<'_>) {
        self.tell(|tracer| tracer.event(event));
    }

    fn tell(&mut self, what: impl Fn(&mut dyn Tracer)) {
        let mut at = 0;
        while at < self.tracers.len() {
            let tracer = &mut self.tracers[at].tracer;
            match catch_unwind(AssertUnwindSafe(|| what(&mut **tracer))) {
                Ok(()) => at += 1,
                Err(panic) => self.switch_off(at, panic),
            }
        }
    }

    /// Drops a tracer that panicked; its destructor may panic as well.
    fn switch_off(&mut self, at: usize, panic: Box<dyn Any + Send>) {
        let message = panic_message(panic);
        tracing::warn!(target: "trapline::kernel", "a tracer panicked and is switched off: {message}");
        let tracer = self.tracers.remove(at);
        self.count_exact();
        contain(|| drop(tracer));
    }
}

/// The text of a call with its arguments, the way `strace` shows it: of [`Fact::Trapped`].
#[derive(Clone, Copy, Debug)]
pub struct Call<'a>(pub SystemCall, pub Detail<'a>);

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SystemCall as C;
        let Self(call, detail) = self;
        write!(f, "{}(", call.name())?;
        let first: &dyn fmt::Display = match call {
            C::KillTask(tid) | C::WaitTask(tid) => tid,
            C::Put(id) | C::Get(id) | C::TryPut(id) | C::TryGet(id) | C::CloseQueue(id) => id,
            C::NewQueue(u64::MAX) => &"unbounded",
            C::NewQueue(capacity) => capacity,
            C::ReadWait(id)
            | C::WriteWait(id)
            | C::Connected(id)
            | C::Accept(id)
            | C::Recv(id)
            | C::Send(id)
            | C::SendFile(id)
            | C::ShutdownWrite(id)
            | C::Close(id) => id,
            C::Sleep(Nanos::FOREVER) | C::Timeout(Nanos::FOREVER) => &"for ever",
            C::Sleep(span) | C::Timeout(span) => return write!(f, "{:?})", Duration::from(*span)),
            C::SleepUntil(instant) => instant,
            C::GetTid
            | C::Yield
            | C::NewTask
            | C::NewDetachedTask
            | C::Exit
            | C::Shutdown
            | C::Now
            | C::Random
            | C::Tasks
            | C::Submit
            | C::Attach
            | C::Listen
            | C::Connect => &"",
        };
        write!(f, "{first}")?;
        if let Detail::Len(_) = detail {
            f.write_str(", ")?;
        }
        write!(f, "{detail})")
    }
}

/// The text of a reply with what travels beside it: of [`Fact::Replied`].
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a>(pub Reply, pub Detail<'a>);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(reply, detail) = self;
        match reply {
            Reply::Done => f.write_str("ok"),
            Reply::Yes => f.write_str("true"),
            Reply::No => f.write_str("false"),
            Reply::Again => f.write_str("try again"),
            Reply::Tid(tid) => tid.fmt(f),
            Reply::Time(now) => now.fmt(f),
            Reply::Random(number) | Reply::Bytes(number) => number.fmt(f),
            Reply::Queue(queue) => write!(f, "queue {queue}"),
            Reply::Message(number) => write!(f, "message {number}"),
            Reply::Full(number) => write!(f, "full, message {number} handed back"),
            Reply::Timeout(number) => write!(f, "timeout {number}"),
            Reply::Elapsed(number) => write!(f, "timeout {number} elapsed"),
            Reply::Device(device) => match detail {
                Detail::Addr(addr) => write!(f, "device {device} ({addr})"),
                _ => write!(f, "device {device}"),
            },
            Reply::Exit | Reply::Io => detail.fmt(f),
            Reply::Tasks => write!(f, "{detail} tasks"),
            Reply::Err(errno) => write!(f, "{errno:?} ({errno})"),
        }
    }
}

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Addr(addr) => addr.fmt(f),
            Self::Len(n) | Self::Count(n) => n.fmt(f),
            Self::Exit(exit) => exit.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(tid) => write!(f, "the end of task {tid}"),
            Self::Timer => f.write_str("its timer"),
            Self::Device(device, direction) => write!(f, "device {device} ({direction})"),
            Self::Queue(queue) => write!(f, "queue {queue}"),
            Self::Timeout => f.write_str("a timeout"),
            Self::Closed(device) => write!(f, "the closing of device {device}"),
        }
    }
}

impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawned { parent, name } => write!(f, "spawned {name:?} by {parent}"),
            Self::Resumed => f.write_str("resumed"),
            Self::Trapped { call, detail } => write!(f, "trapped {}", Call(*call, *detail)),
            Self::Replied { reply, detail } => write!(f, "replied {}", Answered(*reply, *detail)),
            Self::Blocked { on } => write!(f, "blocked on {on}"),
            Self::Woken { by } => write!(f, "woken by {by}"),
            Self::DeviceIo {
                device,
                direction,
                result: Ok(n),
            } => {
                write!(f, "device {device} {direction} {n}")
            }
            Self::DeviceIo {
                device,
                direction,
                result: Err(kind),
            } => {
                write!(f, "device {device} {direction} failed: {kind}")
            }
            Self::Console { text } => write!(f, "console {text:?}"),
            Self::Exited { exit } => write!(f, "exited {exit}"),
            Self::Reaped => f.write_str("reaped"),
            Self::ClockJumped { from } => write!(f, "clock jumped from {}", Nanos::from(*from)),
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9} {} {}", Nanos::from(self.at), self.tid, self.fact)
    }
}
