//! `trace why`: why a task waited.

use std::{io::Write, mem, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueHint};
use serde_json::json;
use trapline::Nanos;

use super::{history::History, source::Failure};
use crate::{
    live::{protocol::safe_json, text::number_of},
    output::{Log, clean},
    units::few,
    values::instant,
};

/// The number of tasks of a name that are explained.
const MOST: usize = 10;

/// Say why a task waited, from wait to wait: the holder of a lock, the silent peer, the tasks that ran
#[derive(Args)]
#[command(after_help = "\
Without --at: the wait that was not over at the end, or else the task's longest; and of a task that \
was ready for longer than it was blocked, which tasks had their turns.

Examples:
  trace why 2 run.trap
  trace why worker-1 --at 00:00.010 run.trap")]
pub(crate) struct WhyCommand {
    /// The task, by its number or its whole name
    #[arg(value_name = "TASK")]
    task: String,
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// What the task waited for at this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Duration>,
    /// Show a JSON object for each task
    #[arg(long)]
    json: bool,
}

impl WhyCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let (history, source) = History::open(&self.file)?;
        source.warn_of_gaps(log);
        let tasks = history.find(&self.task);
        if tasks.is_empty() {
            source.end(log)?;
            let names = history.names().into_iter();
            let names = few(names, MOST, |_| "...".to_string()).join(", ");
            let task = clean(&self.task);
            return Err(format!("there is no task {task}: the names are {names}").into());
        }
        if let Some(at) = self.at
            && at > history.end().at
        {
            let (at, end) = (Nanos::from(at), Nanos::from(history.end().at));
            return Err(format!("--at {at} is after the end of the recording, {end}").into());
        }
        for (place, tid) in tasks.iter().take(MOST).enumerate() {
            if self.json {
                let sentences = history.why(*tid, self.at).sentences;
                let name = history.name(*tid);
                let why = json!({ "tid": number_of(*tid), "comm": name, "why": sentences });
                out.write_all(safe_json(why.to_string().as_bytes()).as_bytes())?;
                continue;
            }
            if place > 0 {
                writeln!(out)?;
            }
            for sentence in history.why(*tid, self.at).sentences {
                writeln!(out, "{sentence}")?;
            }
        }
        let more = tasks.len().saturating_sub(MOST);
        if more > 0 {
            log.note(&format!(
                "and {more} more tasks of that name: give a number"
            ));
        }
        out.flush()?;
        // The process ends: to free a long history piece by piece takes a second.
        mem::forget(history);
        source.end(log)
    }
}
