//! `trace waits`: the wait-for graph at the end of a recording, as text and for Graphviz.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum, ValueHint};
use trapline::{Cycle, Deadlock, Ledger, Nanos, Tracer};

use super::{
    at::waits_of,
    dot::dot,
    source::{Failure, Source},
};
use crate::{
    output::{Log, clean},
    values::instant,
};

/// Show what the tasks waited for when a recording ended, and their cycles
#[derive(Args)]
#[command(after_help = "\
A task waits for another one's end, or for the holder of a mutex. Where no task can run, it also waits \
for the task that took a semaphore's last permit. A queue has no holder: any task may put a message.
A graph fits a page: more than four tasks of a name that wait for the same are one box.

Examples:
  trace waits run.trap
  trace waits --at 00:00.010 run.trap
  trace waits --format dot run.trap | dot -Tsvg > waits.svg")]
pub(crate) struct WaitsCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The format: text for people, or a graph for Graphviz
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// What they waited for at this time, instead of at the end
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Duration>,
    /// Show a JSON object a line, as a monitor does: a task each, and a cycle each
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Dot,
}

impl WaitsCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let (mut tasks, mut cut) = (Ledger::new(), None);
        for event in &mut source {
            cut = self.at.filter(|at| event.at > *at);
            if cut.is_some() {
                break;
            }
            tasks.event(&event);
        }
        source.warn_of_gaps(log);
        let waits = waits(&tasks, cut.is_none());
        match self.format {
            _ if self.json => out.write_all(waits_of(&waits, &tasks).objects().as_bytes())?,
            Format::Text => write_text(out, &waits, &tasks, cut)?,
            Format::Dot => out.write_all(dot(&waits).as_bytes())?,
        }
        out.flush()?;
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What the tasks wait for, and their cycles. If nothing could happen any more when the run ended, it is
/// the kernel's report of its deadlock.
pub(super) fn waits(tasks: &Ledger, is_whole: bool) -> Deadlock {
    match is_whole && tasks.is_stuck() {
        true => Deadlock::of(tasks.tasks()),
        false => Deadlock::among(tasks.tasks()),
    }
}

fn write_text(
    out: &mut impl Write,
    waits: &Deadlock,
    tasks: &Ledger,
    cut: Option<Duration>,
) -> Result<(), Failure> {
    let why = match (waits.is_partial, waits.blocked.len()) {
        (false, _) => "deadlock: no task was ready, and nothing could make one ready",
        (true, 0) => "no task waited",
        (true, _) => "these tasks waited",
    };
    let now = Nanos::from(cut.unwrap_or(tasks.now().at));
    let end = cut.map_or(", the end of the recording", |_| "");
    writeln!(out, "at {now:.6}{end}: {why}")?;
    for info in &waits.blocked {
        let call = tasks.last(info.tid);
        let call = call.map_or("?".to_string(), |call| clean(&call.to_string()));
        writeln!(out, "  {}, in {call}", clean(&info.to_string()))?;
        if let Some(places) = info.places() {
            writeln!(out, "    {}", clean(&places))?;
        }
    }
    for ring in &waits.cycles {
        writeln!(out, "  cycle: {}", Cycle(ring))?;
    }
    Ok(())
}
