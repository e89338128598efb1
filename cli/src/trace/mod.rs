//! `trace`: the commands that show a recording.
//!
//! | file | owns |
//! |---|---|
//! | `source.rs` | the recording that is read, and the messages about a damaged one |
//! | `spans.rs` | what each task did at every moment |
//! | `graph.rs`, `dot.rs` | the wait-for graph at the end; `trace waits` |
//! | `show.rs`, `summary.rs`, `timeline/`, `export.rs`, `diff.rs` | `trace show`, ... |
//! | `twins.rs` | what each task came to in two runs |
//! | `history.rs` | all that happened, by task, queue and device |
//! | `life.rs` | the life of a task |
//! | `queues.rs` | what went through each queue, and which task held each lock |
//! | `causes.rs`, `why.rs` | why a task waited; `trace why` |
//! | `path.rs` | the critical path; `trace path` |
//! | `devices.rs` | what went through each device, both ends of each connection, and which end sent |
//! | `at.rs` | the tasks at an instant; `trace ps`, `trace tree` |
//! | `chrome.rs` | Chrome's trace events |
//! | `post_mortem.rs` | the last traps before a deadlock or a fault |

mod at;
mod causes;
mod chrome;
mod devices;
mod diff;
mod dot;
mod export;
mod graph;
mod history;
mod life;
mod path;
pub(super) mod post_mortem;
mod queues;
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
    live::{self, TraceLive, dump::Dump},
    output::{Failure, Log, USAGE, Verbosity},
    stdio,
};

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
pub(super) fn run(command: &TraceCommand, verbosity: &Verbosity) -> Result<ExitCode, Failure> {
    let log = Log::of_output(verbosity);
    let errors = Log::of_errors(verbosity);
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
        TraceCommand::Live(command) => live::trace(command, log),
        TraceCommand::Dump(command) => command.run(errors).map(|()| ExitCode::SUCCESS),
    };
    let done = done.and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match (command, done) {
        // As with diff(1), 1 means that the runs differ.
        (TraceCommand::Diff(_), Err(Failure::Said(message))) => {
            errors.error(&message);
            Ok(ExitCode::from(USAGE))
        }
        (_, done) => done,
    }
}
