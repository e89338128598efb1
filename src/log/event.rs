//! The event log: one typed [`Event`] for each fact of a run. Trace lines, summaries and
//! transcripts derive from it.
//!
//! Uses the ABI and the world's clock.

use std::{borrow::Cow, io, net::SocketAddr, time::Duration};

use crate::abi::{DeviceId, Direction, Exit, Inject, On, Place, QueueId, Reply, SystemCall, Tid};

/// A fact, with its time and its task.
///
/// A tracer gets events that borrow their texts from the kernel. [`Event::into_owned`] makes one
/// that can be kept; a [`Recording`](crate::record::Recording) returns such events.
///
/// Its `Display` is the line of the canonical log: the same programs, seed and policy in the
/// simulated world print the same lines, byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// The time, counted from boot. The kernel reads its clock after a task has stopped, after a call
    /// for which it has worked, and after a wait for the world. Facts that follow at once have the
    /// same time.
    pub at: Duration,
    /// The task; [`Tid::KERNEL`] for the kernel itself.
    pub tid: Tid,
    /// The fact.
    pub fact: Fact<'a>,
    /// The place in the source: of the spawn, of a call that blocks, or of the fault. Other facts
    /// have none. The canonical log does not show it, because it changes with every edit.
    pub place: Option<Place>,
}

/// An event that owns its texts. A [`Recording`](crate::record::Recording) returns these.
pub type OwnedEvent = Event<'static>;

impl Event<'_> {
    /// Returns the event with its own texts.
    #[must_use]
    pub fn into_owned(self) -> OwnedEvent {
        let Self {
            at,
            tid,
            fact,
            place,
        } = self;
        Event {
            at,
            tid,
            fact: fact.into_owned(),
            place,
        }
    }
}

impl OwnedEvent {
    /// Returns the event itself, for programs of a time when an event of a recording had a type of
    /// its own.
    #[must_use]
    #[expect(
        clippy::should_implement_trait,
        reason = "std implements it for all types"
    )]
    pub fn borrow(&self) -> &Self {
        self
    }
}

impl From<&Event<'_>> for OwnedEvent {
    fn from(event: &Event<'_>) -> Self {
        event.clone().into_owned()
    }
}

/// A fact about a task.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fact<'a> {
    /// It was created and is ready.
    Spawned {
        /// Its parent; [`Tid::KERNEL`] for the host.
        parent: Tid,
        /// Its name.
        name: Cow<'a, str>,
    },
    /// It made something go wrong in the simulated network, or mended it. [`Tid::KERNEL`] for the
    /// host and for chaos.
    Fault {
        /// What, as in [`Fault`](crate::Fault).
        text: Cow<'a, str>,
    },
    /// Its turn began.
    Resumed,
    /// It made a system call.
    Trapped {
        /// The call.
        call: SystemCall,
        /// The payload of the call.
        detail: Detail<'a>,
    },
    /// It made a call without a trap, mostly in a destructor. The answer is dropped.
    Deferred {
        /// The call.
        call: SystemCall,
    },
    /// An injection changed what its last call does.
    Injected {
        /// What is done to the call.
        inject: Inject,
    },
    /// The answer to its last call is known. It is ready from now on, or continues at once.
    Replied {
        /// The answer.
        reply: Reply,
        /// The payload of the reply.
        detail: Detail<'a>,
    },
    /// Its call blocks.
    Blocked {
        /// The thing that it waits for.
        on: On,
    },
    /// The wait is over.
    Woken {
        /// The cause.
        by: Wake,
    },
    /// Bytes or a connection went through one of its devices, or failed to.
    DeviceIo {
        /// The device.
        device: DeviceId,
        /// The direction.
        direction: Direction,
        /// The bytes that moved (0 for a connection), or the error.
        result: Result<usize, io::ErrorKind>,
    },
    /// It printed.
    Console {
        /// The text, as it was printed.
        text: Cow<'a, str>,
    },
    /// It ended.
    Exited {
        /// How.
        exit: Exit,
    },
    /// It was removed from the task map: its exit was taken, or no task can take it.
    Reaped,
    /// The call of this task closed a cycle. Each task of the cycle waits for the next, and the last
    /// for the first, which is this task. Only a kill can end such a wait.
    Deadlocked {
        /// The tasks of the cycle.
        cycle: Cow<'a, [Tid]>,
    },
    /// Its computation begins or goes on.
    Computing {
        /// The processor that it has from now on, counted from 0.
        processor: usize,
    },
    /// It lost its processor before its computation was over: its slice ended, or another task was
    /// more urgent. It is ready.
    Preempted {
        /// What is left of the computation.
        left: Duration,
    },
    /// Nothing was ready, and the clock moved on: the simulated world jumped, the real one waited.
    ClockJumped {
        /// From this instant to the event's.
        from: Duration,
    },
}

impl Fact<'_> {
    /// True for a failure of a call, of an input or output, or of a task, for an injected fault, and
    /// for a cycle of waits that closes.
    #[must_use]
    pub fn is_error(&self) -> bool {
        match self {
            Self::Replied { reply, .. } => matches!(reply, Reply::Err(_) | Reply::Io),
            Self::DeviceIo { result, .. } => result.is_err(),
            Self::Injected { .. } | Self::Deadlocked { .. } => true,
            Self::Exited { exit } => matches!(exit, Exit::Failed(_) | Exit::Faulted(_)),
            _ => false,
        }
    }

    /// Returns the target of its `tracing` event: `trapline::sched` for turns, wake-ups and jumps of
    /// the clock, `trapline::device`, `trapline::console`, or else `trapline::kernel`.
    #[must_use]
    pub fn target(&self) -> &'static str {
        match self {
            Self::Resumed
            | Self::Woken { .. }
            | Self::Computing { .. }
            | Self::Preempted { .. }
            | Self::ClockJumped { .. } => "trapline::sched",
            Self::DeviceIo { .. } => "trapline::device",
            Self::Console { .. } => "trapline::console",
            _ => "trapline::kernel",
        }
    }

    /// Returns whether it may own a text. The most frequent facts do not.
    #[inline(always)]
    pub(super) fn may_own(&self) -> bool {
        match self {
            Self::Resumed | Self::Blocked { .. } | Self::Woken { .. } => false,
            Self::Trapped { detail, .. } | Self::Replied { detail, .. } => {
                !matches!(detail, Detail::None | Detail::Len(_))
            }
            _ => true,
        }
    }

    /// Returns the fact with its own texts.
    #[must_use]
    pub fn into_owned(self) -> Fact<'static> {
        match self {
            Self::Spawned { parent, name } => Fact::Spawned {
                parent,
                name: owned(name),
            },
            Self::Fault { text } => Fact::Fault { text: owned(text) },
            Self::Trapped { call, detail } => Fact::Trapped {
                call,
                detail: detail.into_owned(),
            },
            Self::Replied { reply, detail } => Fact::Replied {
                reply,
                detail: detail.into_owned(),
            },
            Self::Console { text } => Fact::Console { text: owned(text) },
            Self::Deadlocked { cycle } => Fact::Deadlocked {
                cycle: owned(cycle),
            },
            Self::Resumed => Fact::Resumed,
            Self::Deferred { call } => Fact::Deferred { call },
            Self::Injected { inject } => Fact::Injected { inject },
            Self::Blocked { on } => Fact::Blocked { on },
            Self::Woken { by } => Fact::Woken { by },
            Self::DeviceIo {
                device,
                direction,
                result,
            } => Fact::DeviceIo {
                device,
                direction,
                result,
            },
            Self::Exited { exit } => Fact::Exited { exit },
            Self::Reaped => Fact::Reaped,
            Self::Computing { processor } => Fact::Computing { processor },
            Self::Preempted { left } => Fact::Preempted { left },
            Self::ClockJumped { from } => Fact::ClockJumped { from },
        }
    }
}

/// The cause that woke a blocked task.
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

/// The payload of a call or its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Detail<'a> {
    /// Nothing.
    None,
    /// A new task's name.
    Name(Cow<'a, str>),
    /// The kind of object that a new queue is part of, and the name of the object or nothing.
    Object(Cow<'a, str>, Box<str>),
    /// An address.
    Addr(SocketAddr),
    /// The bytes that the call offers or asks for.
    Len(usize),
    /// How a task ended, or is to end.
    Exit(Exit),
    /// The number of tasks listed.
    Count(usize),
    /// An operating system's error: its kind and its text.
    Io(io::ErrorKind, Cow<'a, str>),
}

impl Detail<'_> {
    /// Returns the payload with its own texts.
    #[must_use]
    pub fn into_owned(self) -> Detail<'static> {
        match self {
            Self::None => Detail::None,
            Self::Name(name) => Detail::Name(owned(name)),
            Self::Object(kind, name) => Detail::Object(owned(kind), name),
            Self::Addr(addr) => Detail::Addr(addr),
            Self::Len(n) => Detail::Len(n),
            Self::Exit(exit) => Detail::Exit(exit),
            Self::Count(n) => Detail::Count(n),
            Self::Io(kind, text) => Detail::Io(kind, owned(text)),
        }
    }
}

/// Takes a text, or a list, out of what lends it.
fn owned<T: ToOwned + ?Sized>(lent: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(lent.into_owned())
}

/// A receiver of events. Any closure over events is a tracer, and so is:
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
    /// Receives each event, in order. A tracer that panics is detached, with a warning. A panic in
    /// its destructor is also a warning.
    fn event(&mut self, event: &Event<'_>);

    /// Called before the kernel may sleep until something happens outside. A tracer that keeps events
    /// in memory writes them down here: the process may be killed while it sleeps. A virtual clock
    /// does not sleep, except for threads.
    fn before_sleep(&mut self) {}

    /// Returns whether the kernel reads the clock for each event. Called once. Reading the clock is
    /// most of the price of an event. If no tracer asks for it, [`Event::at`] is the time of the
    /// last poll of the world, at most 256 resumes or a pass earlier.
    fn is_exact(&self) -> bool {
        true
    }
}

impl<F: FnMut(&Event<'_>)> Tracer for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}
