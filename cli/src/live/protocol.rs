//! The protocol of a monitor's socket: one JSON object a line, in both directions. The answer to a
//! request is any number of objects; the last one is an `end` or an `error`.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trapline::Tid;

use super::{
    query::Query,
    row::{Row, Totals, number},
};
use crate::{output::is_plain, values::calls};

/// A request to a kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// List the tasks.
    Ps(Query),
    /// List the tasks with their rates.
    Top(Query),
    /// List the blocked tasks, and the cycles of those that wait for one another.
    Waits {},
    /// Show a task, the chain of tasks that it waits for, and its last traps.
    Where {
        #[serde(with = "number")]
        tid: Tid,
    },
    /// Kill a task.
    Kill {
        #[serde(with = "number")]
        tid: Tid,
    },
    /// Send events from now on, until the next request.
    Trace(Filter),
    /// Send a recording of the last events, as far as they are kept.
    Dump {},
}

/// Which events are shown. An event passes if each list is empty or has a matching entry.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Filter {
    /// Only this task, by its number or name; can be repeated
    #[arg(long = "task", alias = "name", value_name = "TASK")]
    pub(super) tasks: Vec<String>,
    /// Only this call, such as recv or new_task; can be repeated
    #[arg(long = "call", value_name = "CALL", value_parser = calls(), hide_possible_values = true)]
    pub(super) calls: Vec<String>,
    /// Also turns, wake-ups and jumps of the clock
    #[arg(long)]
    pub(super) sched: bool,
    /// Also the programs' output
    #[arg(long)]
    pub(super) console: bool,
}

/// An answer of a kernel.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(super) enum Answer {
    Task(Row),
    /// Tasks of which each waits for the next, and the last for the first.
    Cycle {
        #[serde(with = "number::all")]
        tids: Vec<Tid>,
    },
    /// Tasks of which each waits for the next. The last is on a cycle, or in an earlier list.
    Behind {
        #[serde(with = "number::all")]
        tids: Vec<Tid>,
    },
    /// One of the last traps of a task, with the fields of `--log-format json`.
    Trap(Map<String, Value>),
    /// An event of a trace, likewise.
    Event(Map<String, Value>),
    /// A piece of a recording.
    Piece {
        base64: String,
    },
    /// One of several kernels does not answer. What is listed is of the others.
    Silent {
        kernel: u64,
    },
    /// The trace has begun.
    Tracing,
    /// This many events are missing here, since the reader was too slow for them.
    Lost {
        count: u64,
    },
    Error {
        message: String,
    },
    End(Totals),
}

/// All answers for a request about tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) tasks: Vec<Row>,
    pub(crate) cycles: Vec<Vec<Tid>>,
    pub(crate) behind: Vec<Vec<Tid>>,
    /// The kernels that do not answer.
    pub(crate) silent: Vec<u64>,
    pub(crate) traps: Vec<Map<String, Value>>,
    pub(crate) totals: Totals,
}

/// The largest number of bytes that a client keeps of one answer: about half a million tasks.
pub(super) const ANSWER: usize = 64 << 20;

impl Answers {
    /// Adds an answer, unless it is the last.
    pub(super) fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Task(row) => self.tasks.push(row),
            Answer::Cycle { tids } => self.cycles.push(tids),
            Answer::Behind { tids } => self.behind.push(tids),
            Answer::Trap(line) => self.traps.push(line),
            Answer::Silent { kernel } => self.silent.push(kernel),
            _ => {}
        }
    }

    /// All of them but the last, in the order of a monitor.
    pub(super) fn into_each(self) -> impl Iterator<Item = Answer> {
        let tasks = self.tasks.into_iter().map(Answer::Task);
        let cycles = self.cycles.into_iter();
        let cycles = cycles.map(|tids| Answer::Cycle { tids });
        let behind = self.behind.into_iter();
        let behind = behind.map(|tids| Answer::Behind { tids });
        let traps = self.traps.into_iter().map(Answer::Trap);
        let silent = self.silent.into_iter();
        let silent = silent.map(|kernel| Answer::Silent { kernel });
        tasks.chain(cycles).chain(behind).chain(traps).chain(silent)
    }

    /// The tasks and their cycles in the lines of a monitor, made safe for a terminal.
    pub(crate) fn objects(self) -> String {
        let mut lines = Vec::new();
        self.into_each()
            .for_each(|answer| write(&answer, &mut lines));
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        lines.map(safe_json).collect()
    }
}

/// Appends a request or an answer as a line.
pub(super) fn write(object: &impl Serialize, to: &mut Vec<u8>) {
    serde_json::to_writer(&mut *to, object).expect("plain values are JSON");
    to.push(b'\n');
}

/// Reads an answer.
pub(super) fn read(line: &[u8]) -> Result<Answer, String> {
    serde_json::from_slice(line)
        .map_err(|_| "the server there is no monitor of a kernel".to_string())
}

/// Makes a line of JSON safe for a terminal. Control characters occur only within texts or as white
/// space between them.
pub(crate) fn safe_json(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line.trim_ascii_end());
    let mut safe = String::with_capacity(line.len());
    for letter in text.chars() {
        match letter {
            '\0'..' ' => safe.push(' '),
            letter if is_plain(letter) => safe.push(letter),
            // All of them are in the 16-bit plane.
            letter => safe += &format!("\\u{:04x}", u32::from(letter)),
        }
    }
    safe.push('\n');
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_shown_without_control_characters() {
        let hostile = "{\"comm\":\t\"a\u{9b}31m\u{202e}\u{7f}ä\"}\r\n";
        let safe = safe_json(hostile.as_bytes());
        assert_eq!(safe, "{\"comm\": \"a\\u009b31m\\u202e\\u007fä\"}\n");
        serde_json::from_str::<Value>(&safe).expect("it is still JSON");
    }
}
