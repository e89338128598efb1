//! `trace`: the commands that show a recording.
//!
//! A command has a file of its name; `graph.rs` is `trace waits`, and `at.rs` is `trace ps` and
//! `trace tree`. They read a [`Source`](source::Source), and most of them through these:
//!
//! | file | owns |
//! |---|---|
//! | `spans.rs` | what each task did at every moment |
//! | `history.rs`, `life.rs`, `queues.rs`, `devices.rs` | all that happened, by task, queue and device |
//! | `totals.rs` | the totals of tasks and calls |
//! | `causes.rs`, `deeds.rs` | why a task waited; what another did then |
//! | `twins.rs` | what each task came to in two runs |

mod at;
mod causes;
mod chrome;
mod deeds;
mod devices;
mod diff;
mod dot;
mod export;
mod graph;
mod history;
mod life;
mod open;
mod path;
pub(super) mod post_mortem;
mod queues;
mod senders;
mod show;
mod source;
pub(super) mod spans;
mod summary;
mod timeline;
mod totals;
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
    signals, stdio,
};

/// The commands that show traces.
#[derive(Subcommand)]
pub(super) enum TraceCommand {
    Show(show::ShowCommand),
    Summary(summary::SummaryCommand),
    Timeline(timeline::TimelineCommand),
    Open(open::OpenCommand),
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
    // Those of a running kernel end when it does.
    if !matches!(command, TraceCommand::Live(_) | TraceCommand::Dump(_)) {
        signals::catch(signals::END)?;
    }
    let mut out = BufWriter::new(stdio::out());
    let done = match command {
        TraceCommand::Show(command) => command.run(log, &mut out),
        TraceCommand::Summary(command) => command.run(log, &mut out),
        TraceCommand::Timeline(command) => command.run(log, &mut out),
        TraceCommand::Open(command) => command.run(log, &mut out),
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
        (_, Ok(code)) => Ok(signals::signal().map_or(code, ExitCode::from)),
        (_, done) => done,
    }
}
