//! The last traps of each task: what `where` and the screen show of it, and the calls to which the
//! replies in a live trace belong.

use std::{collections::VecDeque, fmt, io, net::SocketAddr, time::Duration};

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::protocol::brief;
use crate::{Answered, Call, Detail, Event, Exit, Fact, On, Reply, SystemCall, Tid, Tracer};

/// How many traps are kept of a task.
const TRAPS: usize = 16;
/// Of how many tasks they are kept.
const TASKS: usize = 1 << 14;

/// A tracer that keeps the last traps. It is there as long as the kernel, so it has to be cheap: it
/// keeps what happened, and makes words of it only for those who ask.
#[derive(Default)]
pub(super) struct Recent {
    tasks: FxHashMap<Tid, Known>,
    /// The task that was reaped last: others may yet be told of that.
    reaped: Option<(Tid, Known)>,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) comm: String,
    pub(super) traps: VecDeque<Trap>,
}

/// A trap, as far as it has come.
pub(super) struct Trap {
    at: Duration,
    call: SystemCall,
    argument: Kept,
    pub(super) blocked: Option<On>,
    reply: Option<(Reply, Kept)>,
    /// Whether it had been answered before: a timeout may come after the answer.
    is_late: bool,
}

/// What travels beside a call or its reply, kept.
enum Kept {
    None,
    Len(usize),
    Count(usize),
    Name(Box<str>),
    Addr(Box<SocketAddr>),
    Exit(Box<Exit>),
    Io(Box<io::Error>),
}

impl Recent {
    /// What is known of a task: nothing, if there were too many when it came.
    pub(super) fn of(&self, tid: Tid) -> Option<&Known> {
        let reaped = self.reaped.as_ref().filter(|(last, _)| *last == tid);
        self.tasks
            .get(&tid)
            .or_else(|| reaped.map(|(_, known)| known))
    }

    fn last(&mut self, tid: Tid) -> Option<&mut Trap> {
        self.tasks.get_mut(&tid)?.traps.back_mut()
    }

    /// The last traps of a task as lines, the oldest first.
    pub(super) fn lines(&self, tid: Tid) -> Vec<Map<String, Value>> {
        let known = self.of(tid).into_iter();
        known
            .flat_map(|known| known.traps.iter().map(|trap| trap.line(tid, &known.comm)))
            .collect()
    }
}

impl Tracer for Recent {
    fn event(&mut self, event: &Event<'_>) {
        let tid = event.tid;
        match event.fact {
            Fact::Spawned { name, .. } if self.tasks.len() < TASKS => {
                let comm = name.to_string();
                let traps = VecDeque::new();
                self.tasks.insert(tid, Known { comm, traps });
            }
            Fact::Trapped { call, detail } => {
                if let Some(known) = self.tasks.get_mut(&tid) {
                    known.push(Trap {
                        at: event.at,
                        call,
                        argument: Kept::of(detail),
                        blocked: None,
                        reply: None,
                        is_late: false,
                    });
                }
            }
            Fact::Blocked { on } => {
                if let Some(trap) = self.last(tid) {
                    trap.blocked = Some(on);
                }
            }
            Fact::Replied { reply, detail } => {
                if let Some(trap) = self.last(tid) {
                    trap.is_late = trap.is_answered();
                    trap.reply = Some((reply, Kept::of(detail)));
                }
            }
            Fact::Reaped => {
                let known = self.tasks.remove(&tid);
                self.reaped = known.map(|known| (tid, known));
            }
            _ => {}
        }
    }

    fn is_exact(&self) -> bool {
        false
    }
}

impl Known {
    fn push(&mut self, trap: Trap) {
        if self.traps.len() == TRAPS {
            self.traps.pop_front();
        }
        self.traps.push_back(trap);
    }
}

impl Trap {
    pub(super) fn call(&self) -> SystemCall {
        self.call
    }

    pub(super) fn is_answered(&self) -> bool {
        self.reply.is_some()
    }

    /// Whether there was something to show of it before its last reply.
    pub(super) fn is_shown(&self) -> bool {
        self.blocked.is_some() || self.is_late
    }

    /// The call with its arguments.
    pub(super) fn request(&self) -> impl fmt::Display {
        Call(self.call, self.argument.detail())
    }

    fn line(&self, tid: Tid, comm: &str) -> Map<String, Value> {
        let mut line = line(self.at, tid, comm);
        let call = self.request().to_string();
        let message = match (&self.reply, self.blocked) {
            (Some((reply, detail)), _) => {
                let reply = Answered(*reply, detail.detail()).to_string();
                let message = format!("{call} = {reply}");
                line.insert("reply".into(), brief(reply).into());
                message
            }
            (None, Some(on)) => {
                line.insert("blocked_on".into(), on.to_string().into());
                format!("{call} ...")
            }
            (None, None) => format!("{call} = ?"),
        };
        line.insert("call".into(), brief(call).into());
        line.insert("message".into(), brief(message).into());
        line
    }
}

/// The beginning of a line, with the fields of `--log-format json`.
pub(super) fn line(at: Duration, tid: Tid, comm: &str) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("at".into(), at.as_secs_f64().into());
    line.insert("tid".into(), u64::from(tid).into());
    line.insert("comm".into(), brief(comm.to_string()).into());
    line
}

impl Kept {
    #[inline]
    fn of(detail: Detail<'_>) -> Self {
        match detail {
            Detail::None => Self::None,
            Detail::Len(len) => Self::Len(len),
            Detail::Count(count) => Self::Count(count),
            Detail::Name(name) => Self::Name(name.into()),
            Detail::Addr(addr) => Self::Addr(Box::new(addr)),
            Detail::Exit(exit) => Self::Exit(Box::new(exit.clone())),
            Detail::Io(error) => {
                let same = match error.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(error.kind(), error.to_string()),
                };
                Self::Io(Box::new(same))
            }
        }
    }

    fn detail(&self) -> Detail<'_> {
        match self {
            Self::None => Detail::None,
            Self::Len(len) => Detail::Len(*len),
            Self::Count(count) => Detail::Count(*count),
            Self::Name(name) => Detail::Name(name),
            Self::Addr(addr) => Detail::Addr(**addr),
            Self::Exit(exit) => Detail::Exit(exit),
            Self::Io(error) => Detail::Io(error),
        }
    }
}
