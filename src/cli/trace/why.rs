//! `trace why` and `trace path`: why a task waited, and what decided when a run ended.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueHint};
use serde_json::Value;

use super::{
    causes::{Amount, History, Segment},
    source::{Failure, Source},
};
use crate::{
    Nanos,
    cli::{
        output::{Log, clean},
        table::table,
        values::instant,
    },
};

/// The number of tasks of a name that are explained.
const MOST: usize = 10;
/// The number of parts of a path that are listed; the longest.
const PARTS: usize = 30;

/// Say why a task waited, from wait to wait: the holder of a lock, the silent peer, the tasks that ran
#[derive(Args)]
#[command(after_help = "\
Without --at: the wait that was not over at the end, or else the task's longest; and of a task that
was ready for longer than it was blocked, which tasks had their turns.

Examples:
  trace why 2 run.trap
  trace why worker-1 --at 00:00.010 run.trap")]
pub(in crate::cli) struct WhyCommand {
    /// The task, by its number or its whole name
    #[arg(value_name = "TASK")]
    task: String,
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// What the task waited for at this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Duration>,
}

/// Show the critical path: the chain of work and waits that decided when a run ended
#[derive(Args)]
#[command(after_help = "\
The path is followed backwards, from the task that ended last: from each wait that a task ended to
that task. To make the run shorter, make a part of this path shorter.

Examples:
  trace path run.trap")]
pub(in crate::cli) struct PathCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

impl WhyCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let (history, source) = read(&self.file)?;
        let tasks = history.find(&self.task);
        if tasks.is_empty() {
            source.end(log)?;
            return Err(unknown(&history, &self.task).into());
        }
        if let Some(at) = self.at
            && at > history.end().at
        {
            let (at, end) = (Nanos::from(at), Nanos::from(history.end().at));
            return Err(format!("--at {at} is after the end of the recording, {end}").into());
        }
        for (place, tid) in tasks.iter().take(MOST).enumerate() {
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
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl PathCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let (history, source) = read(&self.file)?;
        writeln!(out, "{}", history.shares())?;
        let path = history.path();
        let total = history.total();
        writeln!(
            out,
            "critical path of {total}\n\n{}",
            shares(&history, &path, total)
        )?;
        writeln!(out, "\n{}", parts(&history, &path))?;
        out.flush()?;
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a whole recording.
fn read(file: &Path) -> Result<(History, Source), Failure> {
    let mut source = Source::open(file)?;
    Ok((History::read(&mut source, None), source))
}

/// The message for a task that is not in the recording, with the names that are.
fn unknown(history: &History, wanted: &str) -> String {
    let names = history.names();
    let few: Vec<&str> = names.iter().take(MOST).map(String::as_str).collect();
    let more = if names.len() > MOST { ", ..." } else { "" };
    format!(
        "there is no task {}: the names are {}{more}",
        clean(wanted),
        few.join(", ")
    )
}

/// The path by name and state.
fn shares(history: &History, path: &[Segment], total: Amount) -> String {
    let rows = path_shares(history, path, total);
    let rows: Vec<_> = rows.into_iter().map(|row| row.map(Value::from)).collect();
    table(PATH_COLUMNS, &rows)
}

pub(super) const PATH_COLUMNS: [&str; 4] = ["share", "time", "task", "was"];

/// The rows of that table, the largest share first.
pub(super) fn path_shares(history: &History, path: &[Segment], total: Amount) -> Vec<[String; 4]> {
    let mut sums: BTreeMap<(&str, &str), Amount> = BTreeMap::new();
    for segment in path {
        *sums
            .entry((history.name(segment.tid), &segment.what))
            .or_default() += segment.amount();
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, amount)| Reverse(*amount));
    let row = |((name, what), amount): ((&str, &str), Amount)| {
        let (share, what) = (amount.share_of(total), what.to_string());
        [share, amount.to_string(), clean(name), what]
    };
    sums.into_iter().map(row).collect()
}

/// The path in order of time: its longest parts.
fn parts(history: &History, path: &[Segment]) -> String {
    let mut longest: Vec<&Segment> = path.iter().collect();
    longest.sort_by_key(|segment| Reverse(segment.amount()));
    longest.truncate(PARTS);
    longest.sort_by_key(|segment| segment.from);
    let row = |segment: &Segment| -> [Value; 4] {
        [
            format!("{:.6}", Nanos::from(segment.from.at)).into(),
            segment.amount().to_string().into(),
            history.task(segment.tid).into(),
            segment.what.clone().into(),
        ]
    };
    let rows: Vec<_> = longest.into_iter().map(row).collect();
    table(["from", "time", "task", "was"], &rows)
}
