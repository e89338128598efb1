//! The calls of a task in words, and facts as lines of a trace.
//!
//! A call on a queue has the word of the object that the queue is part of, with its kind, its number
//! and its name: `lock(mutex 1 "savings")`. [`Call`] is its text in the canonical log.

use std::{fmt, net::SocketAddr, rc::Rc, time::Duration};

use super::{Answered, Call, Detail, Fact, Wake};
use crate::abi::{Errno, Kind, Nanos, On, Place, QueueId, Reply, Signal, SystemCall, Tid};

/// An object that a queue is part of.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) kind: Kind,
    /// Empty if it has none.
    pub(super) name: Box<str>,
}

impl Object {
    pub(super) fn title(&self, queue: QueueId) -> String {
        self.kind.title(queue, &self.name)
    }
}

/// What is around the calls of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Around {
    Timeout,
    /// A timeout that never ends, or a scope without a deadline.
    Endless,
    /// It holds back what is around it.
    Shield,
}

impl Around {
    fn until(deadline: Nanos) -> Self {
        match deadline {
            Nanos::FOREVER => Self::Endless,
            _ => Self::Timeout,
        }
    }
}

/// A call of a task, as far as it has come: of a [`Ledger`](super::Ledger). Its `Display` is the call
/// with its arguments, in words.
#[derive(Debug)]
pub struct CallInfo {
    /// When the task trapped, counted from boot.
    pub at: Duration,
    /// The call.
    pub call: SystemCall,
    pub(super) detail: Detail<'static>,
    pub(super) object: Option<Rc<Object>>,
    /// What it selects among, in words.
    pub(super) sources: Option<Box<str>>,
    /// The wait of this call, and its start. It is kept when the task is woken.
    pub blocked: Option<(On, Duration)>,
    /// The place in the source, if the call blocked.
    pub place: Option<Place>,
    pub(super) reply: Option<(Reply, Detail<'static>)>,
    /// True if the reply is the second one: a timeout may come after the answer.
    pub is_late: bool,
}

impl CallInfo {
    pub(super) fn new(
        at: Duration,
        call: SystemCall,
        detail: &Detail<'_>,
        object: Option<Rc<Object>>,
    ) -> Self {
        Self {
            at,
            call,
            detail: detail.clone().into_owned(),
            object,
            sources: None,
            blocked: None,
            place: None,
            reply: None,
            is_late: false,
        }
    }

    /// The answer, once it is there; of a call that a timeout cut after its answer, the timeout.
    #[must_use]
    pub fn reply(&self) -> Option<Answered<'_>> {
        let (reply, detail) = self.reply.as_ref()?;
        Some(Answered(*reply, detail))
    }

    /// The answer in words: a new queue is the object that it is part of, such as `mutex 1`.
    #[must_use]
    pub fn answer(&self) -> Option<String> {
        Some(answer(Some(self), self.reply()?))
    }

    /// The address in the reply: of a listener, or of the peer of an accepted connection; otherwise
    /// the address in the call, which a connection leads to.
    #[must_use]
    pub fn addr(&self) -> Option<SocketAddr> {
        let reply = self.reply.as_ref().map(|(_, detail)| detail);
        let mut details = reply.into_iter().chain([&self.detail]);
        details.find_map(|detail| match detail {
            Detail::Addr(addr) => Some(*addr),
            _ => None,
        })
    }

    /// Returns the path of the file that it opens, if it is an open.
    pub(super) fn path(&self) -> Option<&str> {
        match (self.call, &self.detail) {
            (SystemCall::Open, Detail::Path(path, _)) => Some(path),
            _ => None,
        }
    }

    /// True if a trace has a line of the call from before its last reply.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.blocked.is_some() || self.is_late
    }

    /// Returns the object that the call makes; `None` for a queue that is no object's and has no name.
    pub(super) fn made(&self) -> Option<Object> {
        let (kind, name) = match &self.detail {
            Detail::Name(name) => (Kind::Queue, &**name),
            Detail::Object(kind, name) => (Kind::of(kind), &**name),
            _ => return None,
        };
        let name = name.into();
        Some(Object { kind, name })
    }

    /// Returns whether it gets a lock, or permits of a semaphore.
    pub(super) fn gets_hold(&self) -> bool {
        let kind = self.object.as_ref().map(|object| object.kind);
        let gets = matches!(
            self.call,
            SystemCall::Get(_)
                | SystemCall::TryGet(_)
                | SystemCall::Take(_)
                | SystemCall::TryTake(_)
        );
        gets && kind.is_some_and(|kind| kind.is_lock() || kind.counts())
    }

    /// Returns how many permits it takes.
    pub(super) fn count(&self) -> u64 {
        count(Call(self.call, &self.detail))
    }

    /// Returns whether a message names a signal.
    fn takes_signal(&self) -> bool {
        let object = self.object.as_ref();
        object.is_some_and(|object| object.kind == Kind::Signals)
    }

    /// Returns what the close of the queue means for it, if that is no error.
    fn found_closed(&self) -> Option<&'static str> {
        let waits = matches!(self.call, SystemCall::Get(_) | SystemCall::TryGet(_));
        let object = self.object.as_ref().filter(|_| waits);
        object.and_then(|object| object.kind.found_closed())
    }

    /// Returns what this puts around the next calls.
    pub(super) fn arms(&self) -> Around {
        let deadline = match self.call {
            SystemCall::Timeout(span) => Nanos::from(self.at).saturating_add(span),
            SystemCall::Scope(deadline) => deadline,
            SystemCall::Shield => return Around::Shield,
            _ => return Around::Timeout,
        };
        Around::until(deadline)
    }

    /// Returns the number of the scope whose deadline this moves, and what the scope is from then on.
    pub(super) fn moved(&self) -> Option<(u64, Around)> {
        match (self.call, &self.detail) {
            (SystemCall::SetDeadline(deadline), Detail::Count(number)) => {
                Some((*number as u64, Around::until(deadline)))
            }
            _ => None,
        }
    }

    pub(super) fn computes(&self) -> bool {
        matches!(self.call, SystemCall::Compute(_))
    }
}

impl fmt::Display for CallInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(sources) = &self.sources {
            return write!(f, "{}({sources})", self.call.name());
        }
        write_call(f, Call(self.call, &self.detail), self.object.as_deref())
    }
}

fn answer(call: Option<&CallInfo>, answered: Answered<'_>) -> String {
    match (answered.0, call.and_then(CallInfo::made)) {
        (Reply::Queue(queue), Some(made)) => made.title(queue),
        (Reply::Message(message), _) if call.is_some_and(CallInfo::takes_signal) => {
            let signal = Signal::of_message(message);
            signal.map_or_else(|| answered.to_string(), |signal| signal.to_string())
        }
        (Reply::Err(Errno::Closed), _) => {
            let found = call.and_then(CallInfo::found_closed);
            found.map_or_else(|| answered.to_string(), Into::into)
        }
        _ => answered.to_string(),
    }
}

fn write_call(f: &mut fmt::Formatter<'_>, call: Call<'_>, object: Option<&Object>) -> fmt::Result {
    let Call(of, _) = call;
    let Some(queue) = of.queue() else {
        return fmt::Display::fmt(&call, f);
    };
    let none = Object::default();
    let object = object.unwrap_or(&none);
    let (count, title) = (count(call), object.title(queue));
    match object.kind.verb_of(of, count) {
        verb if count > 1 && object.kind != Kind::RwLock => write!(f, "{verb}({title}, {count})"),
        verb => write!(f, "{verb}({title})"),
    }
}

fn count(call: Call<'_>) -> u64 {
    match call {
        Call(SystemCall::Take(_) | SystemCall::TryTake(_), Detail::Count(count)) => *count as u64,
        _ => 1,
    }
}

/// A fact as a line of a trace, in the manner of `strace`, without the time and the task.
/// [`Ledger::line`](super::Ledger::line) returns it.
#[derive(Clone, Copy)]
pub struct TraceLine<'a> {
    pub(super) fact: &'a Fact<'a>,
    pub(super) call: Option<&'a CallInfo>,
    /// Whether the log has the spawn of the task, and so all its calls.
    pub(super) is_whole: bool,
    pub(super) object: Option<&'a Object>,
}

impl TraceLine<'_> {
    /// The answer at the end of the line, if the fact is one.
    #[must_use]
    pub fn answer(&self) -> Option<String> {
        match self.fact {
            Fact::Replied { reply, detail } => Some(answer(self.call, Answered(*reply, detail))),
            _ => None,
        }
    }

    fn write_last(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.call {
            Some(call) => fmt::Display::fmt(call, f),
            // It waits before its first turn.
            None if self.is_whole => f.write_str("start"),
            // The call was before the recording.
            None => f.write_str("?"),
        }
    }
}

impl fmt::Display for TraceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.fact, self.object) {
            (Fact::Blocked { .. }, _) => {
                self.write_last(f)?;
                f.write_str(" ...")
            }
            (Fact::Replied { reply, detail }, _) => {
                if self.call.is_none_or(CallInfo::is_shown) {
                    f.write_str("... ")?;
                }
                self.write_last(f)?;
                write!(f, " = {}", answer(self.call, Answered(*reply, detail)))
            }
            (Fact::Deferred { call }, object) => {
                write_call(f, Call(*call, &Detail::None), object)?;
                f.write_str(" deferred")
            }
            (Fact::Woken { by }, Some(object)) => match by {
                Wake::Queue(queue) => write!(f, "woken by {}", object.title(*queue)),
                by => write!(f, "woken by {by}"),
            },
            (Fact::Injected { inject }, _) => {
                f.write_str("injected into ")?;
                self.write_last(f)?;
                write!(f, ": {inject}")
            }
            (Fact::Exited { exit }, _) => write!(f, "exited: {exit}"),
            (Fact::Spawned { parent, .. }, _) => match *parent {
                Tid::KERNEL => f.write_str("spawned by the host"),
                parent => write!(f, "spawned by {parent}"),
            },
            (Fact::ClockJumped { from }, _) => write!(f, "slept from {:.6}", Nanos::from(*from)),
            (fact, _) => fmt::Display::fmt(fact, f),
        }
    }
}

impl fmt::Debug for TraceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceLine({self})")
    }
}
