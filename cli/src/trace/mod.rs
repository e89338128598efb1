//! `trace`: the commands that show a recording.
//!
//! | file | owns |
//! |---|---|
//! | `source.rs` | the recording that is read, and the messages about a damaged one |
//! | `spans.rs` | what each task did at every moment |
//! | `waits.rs`, `graph.rs` | the wait-for graph at the end; `trace waits` |
//! | `show.rs`, `summary.rs`, `timeline/`, `export.rs`, `diff.rs` | `trace show`, ... |
//! | `twins.rs` | what each task came to in two runs |
//! | `history.rs` | all that happened, by task, queue and device |
//! | `queues.rs` | what went through each queue, and which task held each lock |
//! | `causes.rs`, `why.rs` | why a task waited; `trace why` |
//! | `path.rs` | the critical path; `trace path` |
//! | `peers.rs` | the two ends of each connection |
//! | `senders.rs` | the task that ended a wait for a device |
//! | `at.rs` | the tasks at an instant; `trace ps`, `trace tree` |
//! | `chrome.rs` | Chrome's trace events |
//! | `post_mortem.rs` | the last traps before a deadlock or a fault |

mod at;
mod causes;
mod chrome;
mod diff;
mod dot;
mod export;
mod graph;
mod history;
mod path;
mod peers;
pub(super) mod post_mortem;
mod queues;
mod senders;
mod show;
mod source;
pub(super) mod spans;
mod summary;
mod timeline;
mod twins;
mod why;

use std::{
    io::{BufWriter, Write},
    process::ExitCode,
};

use clap::Subcommand;

use super::{
    live::{self, Dump, TraceLive},
    output::{self, FAILURE, Log, USAGE, Verbosity, unwritten},
    stdio,
};
use source::Failure;

/// The commands that show traces.
#[derive(Subcommand)]
pub(super) enum TraceCommand {
    Show(show::ShowCommand),
    Summary(summary::SummaryCommand),
    Timeline(timeline::TimelineCommand),
    Export(export::ExportCommand),
    Diff(diff::DiffCommand),
    Waits(graph::WaitsCommand),
    Ps(at::PsCommand),
    Tree(at::TreeCommand),
    Why(why::WhyCommand),
    Path(path::PathCommand),
    Live(TraceLive),
    Dump(Dump),
}

/// Runs one of the commands.
pub(super) fn run(command: &TraceCommand, verbosity: &Verbosity) -> ExitCode {
    let log = Log::of_output(verbosity);
    let mut out = BufWriter::new(stdio::out());
    let done = match command {
        TraceCommand::Show(command) => command.run(log, &mut out),
        TraceCommand::Summary(command) => command.run(log, &mut out),
        TraceCommand::Timeline(command) => command.run(log, &mut out),
        TraceCommand::Export(command) => command.run(log, &mut out),
        TraceCommand::Diff(command) => command.run(log, &mut out),
        TraceCommand::Waits(command) => command.run(log, &mut out),
        TraceCommand::Ps(command) => command.run(log, &mut out),
        TraceCommand::Tree(command) => command.run(log, &mut out),
        TraceCommand::Why(command) => command.run(log, &mut out),
        TraceCommand::Path(command) => command.run(log, &mut out),
        TraceCommand::Live(command) => return live::trace(command, verbosity),
        TraceCommand::Dump(command) => return live::dump(command, verbosity),
    };
    let message = match done.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => return code,
        Err(Failure::Output(error)) => match unwritten(&error) {
            None => return ExitCode::SUCCESS,
            Some(message) => message,
        },
        Err(Failure::Said(message)) => message,
    };
    output::tell(&format!("error: {message}\n"));
    ExitCode::from(match command {
        // As with diff(1), 1 means that the runs differ.
        TraceCommand::Diff(_) => USAGE,
        _ => FAILURE,
    })
}
