//! What goes through a monitor's socket: one JSON object a line, in both directions. A request is
//! answered by any number of objects, and an `end` or an `error` as the last one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::model::{Row, Totals};

/// What is asked of a kernel.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// The tasks.
    Ps {},
    /// The tasks, with what they do per second; so many at most, the busiest.
    Top { most: usize },
    /// A task, those that it waits for in turn, and its last traps.
    Where { tid: u64 },
    /// The end of a task.
    Kill { tid: u64 },
    /// What happens from now on, until the next request.
    Trace(Filter),
}

/// Which events are shown: those that every list without an entry, or with a fitting one, lets
/// through.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Filter {
    pub(super) tids: Vec<u64>,
    pub(super) comms: Vec<String>,
    /// Only these calls, and nothing but calls.
    pub(super) calls: Vec<String>,
    /// Also whose turn it is, who woke whom, and when the clock moved.
    pub(super) sched: bool,
    /// Also what is printed.
    pub(super) console: bool,
}

/// What a kernel answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(super) enum Answer {
    Task(Row),
    /// One of the last traps of a task, with the fields of `--log-format json`.
    Trap(Map<String, Value>),
    /// An event of a trace, likewise.
    Event(Map<String, Value>),
    /// The trace has begun.
    Tracing,
    /// So many events are missing here, since the reader was too slow for them.
    Lost {
        count: u64,
    },
    Error {
        message: String,
    },
    End(Totals),
}

/// How many bytes of what answers one request a client keeps: of half a million tasks, or so.
pub(super) const ANSWER: usize = 64 << 20;

impl Answer {
    pub(super) fn error(message: impl Into<String>) -> Self {
        Self::Error {
            message: message.into(),
        }
    }

    /// Appends it as a line.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        serde_json::to_writer(&mut *to, self).expect("plain values are JSON");
        to.push(b'\n');
    }
}
