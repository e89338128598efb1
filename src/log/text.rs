//! The text of events: calls in the manner of `strace`, and the lines of the canonical log.

use std::fmt;

use super::{Detail, Event, Fact, Wake};
use crate::abi::{Argument, DeviceId, Nanos, Reply, SystemCall, Tid};

/// The text of a call with its arguments, the way `strace` shows it: of [`Fact::Trapped`].
#[derive(Clone, Copy, Debug)]
pub struct Call<'a>(pub SystemCall, pub &'a Detail<'a>);

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(call, detail) = self;
        write!(f, "{}({}", call.name(), call.argument())?;
        match (call.argument(), detail) {
            (Argument::None, _) | (_, Detail::None) => {}
            _ => f.write_str(", ")?,
        }
        write!(f, "{detail})")
    }
}

/// The text of a reply with what travels beside it: of [`Fact::Replied`].
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a>(pub Reply, pub &'a Detail<'a>);

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
            Reply::Refused(number) => write!(f, "closed, message {number} handed back"),
            Reply::Full(number) => write!(f, "full, message {number} handed back"),
            Reply::Timeout(number) => write!(f, "timeout {number}"),
            Reply::Elapsed(number) => write!(f, "timeout {number} elapsed"),
            Reply::Device(device) => match detail {
                Detail::Addr(addr) => write!(f, "device {device} ({addr})"),
                _ => write!(f, "device {device}"),
            },
            Reply::Exit | Reply::Io | Reply::Host => detail.fmt(f),
            Reply::Addresses => write!(f, "{detail} addresses"),
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
            Self::Object(kind, name) if name.is_empty() => f.write_str(kind),
            Self::Object(kind, name) => write!(f, "{kind} {name:?}"),
            Self::Addr(addr) => addr.fmt(f),
            Self::Len(n) | Self::Count(n) => n.fmt(f),
            Self::Exit(exit) => exit.fmt(f),
            Self::Io(_, text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(tid) => write!(f, "the end of task {tid}"),
            Self::Timer => f.write_str("its timer"),
            Self::Device(DeviceId::CONSOLE, _) => f.write_str("the console"),
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
            Self::Deadlocked { cycle } => write!(f, "deadlocked {}", Cycle(cycle)),
            Self::Computing { processor } => write!(f, "computing on processor {processor}"),
            Self::Preempted { left } => write!(f, "preempted, {left:?} left"),
            Self::ClockJumped { from } => write!(f, "clock jumped from {}", Nanos::from(*from)),
        }
    }
}

/// The text of a cycle of tasks that wait for one another, such as `2 -> 3 -> 2`.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a>(pub &'a [Tid]);

impl fmt::Display for Cycle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tid in self.0 {
            write!(f, "{tid} -> ")?;
        }
        self.0.first().map_or(Ok(()), |first| first.fmt(f))
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9} {} {}", Nanos::from(self.at), self.tid, self.fact)
    }
}
