//! Events that outlive what they are about.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    abi::{DeviceId, Direction, Exit, Inject, On, Place, Reply, SystemCall, Tid},
    log::{Detail, Event, Fact, Wake},
};

/// An [`Event`] that owns its texts. A [`Recording`](super::Recording) returns these.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnedEvent {
    /// When, counted from boot.
    pub at: Duration,
    /// The task of the event; [`Tid::KERNEL`] for the kernel itself.
    pub tid: Tid,
    pub(crate) fact: OwnedFact,
    /// Where in the source, as in [`Event::place`].
    pub(super) place: Option<Box<Place>>,
}

/// A [`Fact`], variant by variant.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum OwnedFact {
    Spawned {
        parent: Tid,
        name: Box<str>,
    },
    Fault {
        text: Box<str>,
    },
    Resumed,
    Trapped {
        call: SystemCall,
        detail: OwnedDetail,
    },
    Deferred {
        call: SystemCall,
    },
    Injected {
        inject: Inject,
    },
    Replied {
        reply: Reply,
        detail: OwnedDetail,
    },
    Blocked {
        on: On,
    },
    Woken {
        by: Wake,
    },
    DeviceIo {
        device: DeviceId,
        direction: Direction,
        result: Result<usize, io::ErrorKind>,
    },
    Console {
        text: Box<str>,
    },
    Exited {
        exit: Box<Exit>,
    },
    Reaped,
    Deadlocked {
        cycle: Box<[Tid]>,
    },
    Computing {
        processor: usize,
    },
    Preempted {
        left: Duration,
    },
    ClockJumped {
        from: Duration,
    },
}

/// A [`Detail`], variant by variant.
#[derive(Clone, Debug)]
pub(crate) enum OwnedDetail {
    None,
    Name(Box<str>),
    Object(Box<str>, Box<str>),
    Addr(Box<SocketAddr>),
    Len(usize),
    Exit(Box<Exit>),
    Count(usize),
    Io(Arc<io::Error>),
}

impl OwnedEvent {
    /// The event, to be looked at or to be handed to a [`Tracer`](crate::Tracer).
    #[must_use]
    pub fn borrow(&self) -> Event<'_> {
        Event {
            at: self.at,
            tid: self.tid,
            fact: self.fact.borrow(),
            place: self.place.as_deref(),
        }
    }
}

impl OwnedFact {
    fn borrow(&self) -> Fact<'_> {
        match self {
            Self::Spawned { parent, name } => Fact::Spawned {
                parent: *parent,
                name,
            },
            Self::Fault { text } => Fact::Fault { text },
            Self::Resumed => Fact::Resumed,
            Self::Trapped { call, detail } => Fact::Trapped {
                call: *call,
                detail: detail.borrow(),
            },
            Self::Deferred { call } => Fact::Deferred { call: *call },
            Self::Injected { inject } => Fact::Injected { inject: *inject },
            Self::Replied { reply, detail } => Fact::Replied {
                reply: *reply,
                detail: detail.borrow(),
            },
            Self::Blocked { on } => Fact::Blocked { on: *on },
            Self::Woken { by } => Fact::Woken { by: *by },
            Self::DeviceIo {
                device,
                direction,
                result,
            } => Fact::DeviceIo {
                device: *device,
                direction: *direction,
                result: *result,
            },
            Self::Console { text } => Fact::Console { text },
            Self::Exited { exit } => Fact::Exited { exit },
            Self::Reaped => Fact::Reaped,
            Self::Deadlocked { cycle } => Fact::Deadlocked { cycle },
            Self::Computing { processor } => Fact::Computing {
                processor: *processor,
            },
            Self::Preempted { left } => Fact::Preempted { left: *left },
            Self::ClockJumped { from } => Fact::ClockJumped { from: *from },
        }
    }
}

impl OwnedDetail {
    pub(crate) fn borrow(&self) -> Detail<'_> {
        match self {
            Self::None => Detail::None,
            Self::Name(name) => Detail::Name(name),
            Self::Object(kind, name) => Detail::Object(kind, name),
            Self::Addr(addr) => Detail::Addr(**addr),
            Self::Len(n) => Detail::Len(*n),
            Self::Exit(exit) => Detail::Exit(exit),
            Self::Count(n) => Detail::Count(*n),
            Self::Io(error) => Detail::Io(error),
        }
    }
}

impl From<&Event<'_>> for OwnedEvent {
    fn from(event: &Event<'_>) -> Self {
        Self {
            at: event.at,
            tid: event.tid,
            fact: (&event.fact).into(),
            place: event.place.cloned().map(Box::new),
        }
    }
}

impl From<&Fact<'_>> for OwnedFact {
    fn from(fact: &Fact<'_>) -> Self {
        match fact {
            Fact::Spawned { parent, name } => Self::Spawned {
                parent: *parent,
                name: (*name).into(),
            },
            Fact::Fault { text } => Self::Fault {
                text: (*text).into(),
            },
            Fact::Resumed => Self::Resumed,
            Fact::Trapped { call, detail } => Self::Trapped {
                call: *call,
                detail: detail.into(),
            },
            Fact::Deferred { call } => Self::Deferred { call: *call },
            Fact::Injected { inject } => Self::Injected { inject: *inject },
            Fact::Replied { reply, detail } => Self::Replied {
                reply: *reply,
                detail: detail.into(),
            },
            Fact::Blocked { on } => Self::Blocked { on: *on },
            Fact::Woken { by } => Self::Woken { by: *by },
            Fact::DeviceIo {
                device,
                direction,
                result,
            } => Self::DeviceIo {
                device: *device,
                direction: *direction,
                result: *result,
            },
            Fact::Console { text } => Self::Console {
                text: (*text).into(),
            },
            Fact::Exited { exit } => Self::Exited {
                exit: Box::new((*exit).clone()),
            },
            Fact::Reaped => Self::Reaped,
            Fact::Deadlocked { cycle } => Self::Deadlocked {
                cycle: (*cycle).into(),
            },
            Fact::Computing { processor } => Self::Computing {
                processor: *processor,
            },
            Fact::Preempted { left } => Self::Preempted { left: *left },
            Fact::ClockJumped { from } => Self::ClockJumped { from: *from },
        }
    }
}

impl From<&Detail<'_>> for OwnedDetail {
    fn from(detail: &Detail<'_>) -> Self {
        match detail {
            Detail::None => Self::None,
            Detail::Name(name) => Self::Name((*name).into()),
            Detail::Object(kind, name) => Self::Object((*kind).into(), (*name).into()),
            Detail::Addr(addr) => Self::Addr(Box::new(*addr)),
            Detail::Len(n) => Self::Len(*n),
            Detail::Exit(exit) => Self::Exit(Box::new((*exit).clone())),
            Detail::Count(n) => Self::Count(*n),
            // An error of the operating system cannot be copied; what can be seen of it can.
            Detail::Io(error) => {
                Self::Io(Arc::new(io::Error::new(error.kind(), error.to_string())))
            }
        }
    }
}

impl PartialEq for OwnedDetail {
    fn eq(&self, other: &Self) -> bool {
        self.borrow() == other.borrow()
    }
}

/// The event's line in the canonical log.
impl fmt::Display for OwnedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}
