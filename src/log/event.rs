//! The event log: one typed [`Event`] for each fact of a run. Everything else derives from it.

use std::{borrow::Cow, fmt, io, time::Duration};

use super::{Answered, Call, Cycle, Detail, Wake, text::owned};
use crate::abi::{
    DeviceId, Direction, Exit, Inject, Nanos, On, Place, Reply, Signal, SystemCall, Tid,
};

/// A fact, with its time and its task.
///
/// A tracer gets events that borrow their texts from the kernel. [`Event::into_owned`] makes one
/// that can be kept; a [`Recording`](crate::record::Recording) returns such events.
///
/// Its `Display` is the line of the canonical log. The same programs, seed and policy in the
/// simulated world print the same lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// The time since boot. The kernel reads its clock after a task has stopped, after a call for which
    /// it has worked, and after a wait for the world. Facts that follow at once have the same time.
    pub at: Duration,
    /// The task; [`Tid::KERNEL`] for the kernel itself.
    pub tid: Tid,
    /// The fact.
    pub fact: Fact<'a>,
    /// The place in the source: of the spawn, of a call that blocks, of an access to a shared
    /// value, or of the fault. Other facts have none. The canonical log does not show it, because it changes with every edit.
    pub place: Option<Place>,
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9} {} {}", Nanos::from(self.at), self.tid, self.fact)
    }
}

/// An event that owns its texts. A [`Recording`](crate::record::Recording) returns these.
pub type OwnedEvent = Event<'static>;

impl Event<'_> {
    /// Returns the event with its own texts.
    #[must_use]
    pub fn into_owned(self) -> OwnedEvent {
        Event {
            at: self.at,
            tid: self.tid,
            fact: self.fact.into_owned(),
            place: self.place,
        }
    }
}

impl OwnedEvent {
    /// Returns the event itself: an event of a recording once had a type of its own.
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
        // Part by part: an event is large.
        Event {
            at: event.at,
            tid: event.tid,
            fact: event.fact.clone().into_owned(),
            place: event.place.clone(),
        }
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
    /// It was created with limits of its own, which all share that it spawns.
    Limited {
        /// What it may do, as in [`Limits`](crate::Limits).
        limits: Cow<'a, str>,
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
    /// It read or changed a [`Shared`](crate::Shared) value. Of the accesses of a turn to one value,
    /// the log has the first read and the first write. They come when the turn is over: before its call,
    /// and before what it printed.
    Accessed {
        /// The number of the value, in the order of the first accesses in this log.
        value: u64,
        /// Its name, or nothing.
        name: Cow<'a, str>,
        /// Whether it changed the value.
        writes: bool,
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
    /// A signal has come, for the tasks that have caught it. If there is none, the run ends. Its task
    /// is [`Tid::KERNEL`].
    Signalled {
        /// The signal.
        signal: Signal,
    },
    /// Nothing was ready, and the clock moved on: the simulated world jumped, the real one waited.
    ClockJumped {
        /// From this instant to the event's.
        from: Duration,
    },
}

impl Fact<'_> {
    /// True for a failure of a call, a device or a task, for an injected fault, and for a cycle of
    /// waits that closes.
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
        match self.topic() {
            Topic::Sched => "trapline::sched",
            Topic::Device => "trapline::device",
            Topic::Console => "trapline::console",
            Topic::Call | Topic::Life => "trapline::kernel",
        }
    }

    /// Returns what it is about.
    #[must_use]
    pub fn topic(&self) -> Topic {
        self.row().1
    }

    /// Returns its name in tables, such as `spawned` or `device_io`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.row().0
    }

    fn row(&self) -> (&'static str, Topic) {
        match self {
            Self::Spawned { .. } => ("spawned", Topic::Life),
            Self::Limited { .. } => ("limited", Topic::Life),
            Self::Fault { .. } => ("fault", Topic::Life),
            Self::Resumed => ("resumed", Topic::Sched),
            Self::Trapped { .. } => ("trapped", Topic::Call),
            Self::Deferred { .. } => ("deferred", Topic::Call),
            Self::Injected { .. } => ("injected", Topic::Life),
            Self::Replied { .. } => ("replied", Topic::Call),
            Self::Blocked { .. } => ("blocked", Topic::Call),
            Self::Woken { .. } => ("woken", Topic::Sched),
            Self::DeviceIo { .. } => ("device_io", Topic::Device),
            Self::Console { .. } => ("console", Topic::Console),
            Self::Accessed { .. } => ("accessed", Topic::Life),
            Self::Exited { .. } => ("exited", Topic::Life),
            Self::Reaped => ("reaped", Topic::Life),
            Self::Deadlocked { .. } => ("deadlocked", Topic::Life),
            Self::Computing { .. } => ("computing", Topic::Sched),
            Self::Preempted { .. } => ("preempted", Topic::Sched),
            Self::Signalled { .. } => ("signalled", Topic::Life),
            Self::ClockJumped { .. } => ("clock_jumped", Topic::Sched),
        }
    }

    pub(super) fn step(&self) -> Option<Step<'_>> {
        Some(match self {
            Self::Spawned { .. } => Step::Born,
            Self::Trapped { call, detail } => Step::Calls(*call, detail),
            Self::Blocked { .. } => Step::Waits,
            Self::Woken { .. } => Step::Wakes,
            Self::Exited { .. } => Step::Ends,
            Self::Reaped => Step::Gone,
            _ => return None,
        })
    }

    /// Returns true if the turn of its task begins.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        matches!(self, Self::Resumed)
    }

    /// Returns true if its task was removed from the task map.
    #[must_use]
    pub fn is_reaped(&self) -> bool {
        matches!(self, Self::Reaped)
    }

    /// Returns whether it may own a text. The most frequent facts do not.
    #[inline(always)]
    pub(super) fn may_own(&self) -> bool {
        match self {
            Self::Resumed | Self::Blocked { .. } | Self::Woken { .. } => false,
            Self::Trapped { detail, .. } | Self::Replied { detail, .. } => {
                !matches!(detail, Detail::None | Detail::Len(_) | Detail::At(..))
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
            Self::Limited { limits } => Fact::Limited {
                limits: owned(limits),
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
            Self::Accessed {
                value,
                name,
                writes,
            } => Fact::Accessed {
                value,
                name: owned(name),
                writes,
            },
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
            Self::Signalled { signal } => Fact::Signalled { signal },
            Self::ClockJumped { from } => Fact::ClockJumped { from },
        }
    }
}

/// Makes a method for each row, which returns a part of one kind of facts and `None` for others.
macro_rules! parts {
    ($($(#[$docs:meta])* $name:ident: $Part:ty = $fact:pat => $part:expr;)+) => {
        impl Fact<'_> {
            $(
                $(#[$docs])*
                #[must_use]
                pub fn $name(&self) -> Option<$Part> {
                    match self {
                        $fact => Some($part),
                        _ => None,
                    }
                }
            )+
        }
    };
}

parts! {
    /// Returns the parent and the name of a task that was created.
    spawned: (Tid, &str) = Self::Spawned { parent, name } => (*parent, name);
    /// Returns the call that was made.
    call: Call<'_> = Self::Trapped { call, detail } => Call(*call, detail);
    /// Returns the answer to a call.
    answer: Answered<'_> = Self::Replied { reply, detail } => Answered(*reply, detail);
    /// Returns what a task waits for from now on.
    blocked_on: On = Self::Blocked { on } => *on;
    /// Returns the cause of a wake-up.
    woken_by: Wake = Self::Woken { by } => *by;
    /// Returns a call without a trap.
    deferred: SystemCall = Self::Deferred { call } => *call;
    /// Returns what an injection does to the last call of its task.
    injected: Inject = Self::Injected { inject } => *inject;
    /// Returns what went through a device: the bytes, or the error.
    device_io: (DeviceId, Direction, Result<usize, io::ErrorKind>) =
        Self::DeviceIo { device, direction, result } => (*device, *direction, *result);
    /// Returns the processor on which a computation begins or goes on.
    processor: usize = Self::Computing { processor } => *processor;
    /// Returns what is left of a computation that lost its processor.
    left: Duration = Self::Preempted { left } => *left;
    /// Returns the instant from which the clock moved on.
    jumped_from: Duration = Self::ClockJumped { from } => *from;
    /// Returns the tasks of a cycle of waits that closed.
    cycle: &[Tid] = Self::Deadlocked { cycle } => cycle;
    /// Returns what was printed.
    printed: &str = Self::Console { text } => text;
    /// Returns the number and the name of a shared value, and whether the task changed it.
    accessed: (u64, &str, bool) = Self::Accessed { value, name, writes } => (*value, name, *writes);
    /// Returns how a task has ended.
    exit: &Exit = Self::Exited { exit } => exit;
}

impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawned { parent, name } => write!(f, "spawned {name:?} by {parent}"),
            Self::Limited { limits } => write!(f, "limited: {limits}"),
            Self::Fault { text } => write!(f, "fault: {text}"),
            Self::Resumed => f.write_str("resumed"),
            Self::Trapped { call, detail } => write!(f, "trapped {}", Call(*call, detail)),
            Self::Deferred { call } => write!(f, "deferred {}", Call(*call, &Detail::None)),
            Self::Injected { inject } => write!(f, "injected {inject}"),
            Self::Replied { reply, detail } => write!(f, "replied {}", Answered(*reply, detail)),
            Self::Blocked { on } => write!(f, "blocked on {on}"),
            Self::Woken { by } => write!(f, "woken by {by}"),
            Self::DeviceIo {
                device,
                direction,
                result,
            } => match result {
                Ok(n) => write!(f, "device {device} {direction} {n}"),
                Err(kind) => write!(f, "device {device} {direction} failed: {kind}"),
            },
            Self::Console { text } => write!(f, "console {text:?}"),
            Self::Accessed {
                value,
                name,
                writes,
            } => {
                let verb = if *writes { "writes" } else { "reads" };
                write!(f, "{verb} shared {}", Tid::from(*value))?;
                match &**name {
                    "" => Ok(()),
                    name => write!(f, " {name:?}"),
                }
            }
            Self::Exited { exit } => write!(f, "exited {exit}"),
            Self::Reaped => f.write_str("reaped"),
            Self::Deadlocked { cycle } => write!(f, "deadlocked {}", Cycle(cycle)),
            Self::Computing { processor } => write!(f, "computing on processor {processor}"),
            Self::Preempted { left } => write!(f, "preempted, {left:?} left"),
            Self::Signalled { signal } => write!(f, "signal {signal}"),
            Self::ClockJumped { from } => write!(f, "clock jumped from {}", Nanos::from(*from)),
        }
    }
}

/// What a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Topic {
    /// A call: it is made, it blocks, or it is answered.
    Call,
    /// The life of a task, what befalls it from outside, and what it does to shared values.
    Life,
    /// Turns, wake-ups, processors and the clock.
    Sched,
    /// Input and output.
    Device,
    /// Printed text.
    Console,
}

/// A step in the life of a task: the facts that say what it is doing.
pub(super) enum Step<'a> {
    Born,
    Calls(SystemCall, &'a Detail<'a>),
    Waits,
    Wakes,
    Ends,
    Gone,
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

    /// Called before the kernel may sleep until something happens outside. A tracer writes down here what
    /// it keeps in memory: the process may be killed. A virtual clock sleeps only for threads.
    fn before_sleep(&mut self) {}

    /// Returns whether the kernel reads the clock for each event, which is most of an event's price.
    /// Called once. If no tracer asks for it, [`Event::at`] is the time of the last poll of the world,
    /// at most 256 resumes or a pass earlier.
    fn is_exact(&self) -> bool {
        true
    }
}

impl<F: FnMut(&Event<'_>)> Tracer for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}
