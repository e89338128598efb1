//! `trace`: what a recording shows.
//!
//! | file | owns |
//! |---|---|
//! | `source.rs` | the recording that is read, and what is said of a damaged one |
//! | `spans.rs` | what each task did at every moment |
//! | `waits.rs`, `graph.rs` | who waits for whom at the end; `trace waits` |
//! | `show.rs`, `summary.rs`, `timeline/`, `export.rs`, `diff.rs` | `trace show`, ... |
//! | `chrome.rs` | Chrome's trace events |
//! | `post_mortem.rs` | the last traps before a deadlock or a fault |

mod chrome;
mod diff;
mod export;
mod graph;
pub(super) mod post_mortem;
mod show;
mod source;
mod spans;
mod summary;
mod timeline;
mod waits;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Subcommand;

use super::{
    FAILURE, USAGE,
    args::Tone,
    duration,
    live::{self, TraceLive},
    log::{self, Log},
    unwritten,
};
use crate::{Exit, Fact, Reply};

/// The commands that look at traces.
#[derive(Subcommand)]
pub(super) enum Order {
    Show(show::Order),
    Summary(summary::Order),
    Timeline(timeline::Order),
    Export(export::Order),
    Diff(diff::Order),
    Waits(graph::Order),
    Live(TraceLive),
}

/// Why a command could not be done.
enum Failure {
    /// Something is wrong, and this says what.
    Said(String),
    /// Standard output cannot be written to.
    Output(io::Error),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Said(message)
    }
}

/// Only the output is written to.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Does what one of the commands asks for.
pub(super) fn run(order: &Order, tone: &Tone) -> ExitCode {
    let log = Log::of_output(tone);
    let mut out = BufWriter::new(io::stdout().lock());
    let done = match order {
        Order::Show(order) => order.run(log, &mut out),
        Order::Summary(order) => order.run(log, &mut out),
        Order::Timeline(order) => order.run(log, &mut out),
        Order::Export(order) => order.run(log, &mut out),
        Order::Diff(order) => order.run(log, &mut out),
        Order::Waits(order) => order.run(log, &mut out),
        Order::Live(order) => return live::trace(order, tone),
    };
    let message = match done.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => return code,
        Err(Failure::Output(error)) => match unwritten(&error) {
            None => return ExitCode::SUCCESS,
            Some(message) => message,
        },
        Err(Failure::Said(message)) => message,
    };
    log::tell(&format!("error: {message}\n"));
    ExitCode::from(match order {
        // As with diff(1): 1 is an answer.
        Order::Diff(_) => USAGE,
        _ => FAILURE,
    })
}

/// Whether the fact is that something went wrong.
fn is_error(fact: &Fact<'_>) -> bool {
    match fact {
        Fact::Replied { reply, .. } => matches!(reply, Reply::Err(_) | Reply::Io),
        Fact::DeviceIo { result, .. } => result.is_err(),
        Fact::Exited { exit } => matches!(exit, Exit::Failed(_) | Exit::Faulted(_)),
        _ => false,
    }
}

/// Reads an instant since boot: as a trace shows it, `00:04.000`, or as a duration, `4s`.
fn instant(text: &str) -> Result<Duration, String> {
    let shown = || {
        let (minutes, seconds) = text.split_once(':')?;
        let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let digits = [minutes, seconds, fraction];
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits.into_iter().all(plain) || fraction.len() > 9 {
            return None;
        }
        let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
        let minutes = minutes.parse::<u64>().ok()?.checked_mul(60)?;
        let seconds = minutes.checked_add(seconds.parse().ok()?)?;
        Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos))
    };
    let instant = shown().map_or_else(|| duration(text), Ok);
    instant.map_err(|_| "it takes a time since boot, such as 00:04.000, 4s or 250ms".to_string())
}
