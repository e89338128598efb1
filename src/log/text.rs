//! What the facts of a log hold, and its text: calls and their answers, in the manner of `strace`.

use std::{borrow::Cow, fmt, io, net::SocketAddr};

use crate::abi::{
    Argument, DeviceId, Direction, Exit, Interest, KernelId, QueueId, Reply, SystemCall, Tid,
};

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
    /// So many bytes of a file, and the offset at which they begin.
    At(usize, u64),
    /// A path on a disk, and for what it is opened, or its new name.
    Path(Cow<'a, str>, Box<str>),
    /// How a task ended, or is to end.
    Exit(Exit),
    /// The number of tasks listed.
    Count(usize),
    /// The sources of a select.
    Sources(Cow<'a, [Interest]>),
    /// An operating system's error: its kind and its text.
    Io(io::ErrorKind, Cow<'a, str>),
    /// Which message of a mailbox was taken: the kernel whose task put it, and the number of the `post` among
    /// those of this kernel, from 1 upward.
    Mail(KernelId, u64),
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
            Self::At(n, offset) => Detail::At(n, offset),
            Self::Path(path, beside) => Detail::Path(owned(path), beside),
            Self::Exit(exit) => Detail::Exit(exit),
            Self::Count(n) => Detail::Count(n),
            Self::Sources(sources) => Detail::Sources(owned(sources)),
            Self::Io(kind, text) => Detail::Io(kind, owned(text)),
            Self::Mail(kernel, number) => Detail::Mail(kernel, number),
        }
    }
}

/// Copies a text, or a list, from what lends it.
pub(super) fn owned<T: ToOwned + ?Sized>(lent: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(lent.into_owned())
}

/// The text of a call with its arguments, the way `strace` shows it.
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

/// The text of a reply with what travels beside it.
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
            Reply::Random(number) | Reply::Ready(number) => number.fmt(f),
            Reply::Bytes(number) => match detail {
                Detail::Addr(from) => write!(f, "{number} from {from}"),
                _ => number.fmt(f),
            },
            Reply::Queue(queue) => write!(f, "queue {queue}"),
            Reply::Message(number) => match detail {
                Detail::Mail(..) => write!(f, "message {number}, {detail}"),
                _ => write!(f, "message {number}"),
            },
            Reply::Permits(1) => f.write_str("a permit"),
            Reply::Permits(count) => write!(f, "{count} permits"),
            Reply::Refused(number) => write!(f, "closed, message {number} handed back"),
            Reply::Full(number) => write!(f, "full, message {number} handed back"),
            Reply::Timeout(number) => write!(f, "timeout {number}"),
            Reply::Elapsed(number) => write!(f, "timeout {number} elapsed"),
            Reply::Device(device) => match detail {
                Detail::Addr(addr) => write!(f, "device {device} ({addr})"),
                Detail::Count(other) => write!(f, "devices {device} and {other}"),
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
            Self::At(n, offset) => write!(f, "{n} at {offset}"),
            Self::Path(path, beside) => write!(f, "{path:?}, {beside}"),
            Self::Addr(addr) => addr.fmt(f),
            Self::Len(n) | Self::Count(n) => n.fmt(f),
            Self::Exit(exit) => exit.fmt(f),
            Self::Sources(sources) => {
                for (at, source) in sources.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{source}")?;
                }
                Ok(())
            }
            Self::Io(_, text) => f.write_str(text),
            Self::Mail(kernel, number) => write!(f, "post {number} of kernel {kernel}"),
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
