//! `trace ps` and `trace tree`: the tasks at an instant of a recording, as `ps` and `tree` show those
//! of a running kernel.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueHint};
use trapline::{Doing, Nanos};

use super::{
    history::{History, Standing},
    source::{Failure, Source},
};
use crate::{
    live::{
        List, TreeList,
        model::{Row, State, Totals},
        query::{Entry, Line, Query, kind},
        text,
    },
    output::Log,
    values::instant,
};

/// List the tasks at an instant of a recording, as `ps` lists those of a running kernel
#[derive(Args)]
#[command(after_help = "\
Examples:
  trace ps --at 00:00.010 run.trap
  trace ps run.trap                  those that were alive at the end
  trace ps --sort since run.trap     those that had waited longest come first
  trace ps --by-name run.trap        a row per name")]
pub(crate) struct PsCommand {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    list: List,
}

/// Show the tasks at an instant of a recording as a tree of parents
#[derive(Args)]
#[command(after_help = "\
Examples:
  trace tree --at 00:00.010 run.trap
  trace tree run.trap                those that were alive at the end
  trace tree --all run.trap          a line for each task")]
pub(crate) struct TreeCommand {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    tree: TreeList,
}

#[derive(Args)]
struct At {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The instant, instead of the end
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Duration>,
}

impl PsCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let ps = |rows: &[Row], totals: &Totals| text::ps(rows, totals, ": --most lists fewer");
        self.at.show(log, out, &self.list.query(), ps)
    }
}

impl TreeCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        self.at.show(log, out, &self.tree.query(), text::tree)
    }
}

impl At {
    fn show(
        &self,
        log: Log,
        out: &mut impl Write,
        query: &Query,
        text: impl Fn(&[Row], &Totals) -> String,
    ) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let history = History::read(&mut source, self.at);
        source.warn_of_gaps(log);
        let tasks = history.standing();
        let (rows, totals) = rows(&tasks, query);
        let end = Nanos::from(history.end().at);
        if tasks.is_empty() && history.names().is_empty() {
            log.note("no task was alive yet");
        } else if tasks.is_empty() {
            log.note(&format!(
                "no task was alive: the last one ended at {end:.6}"
            ));
        } else {
            if self.at.is_some() && !history.is_cut() {
                log.note(&format!("the recording ends at {end:.6}"));
            }
            out.write_all(text(&rows, &totals).as_bytes())?;
            out.flush()?;
        }
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The tasks that a query lists.
fn rows(tasks: &[Standing<'_>], query: &Query) -> (Vec<Row>, Totals) {
    let entries: Vec<Entry<'_>> = tasks.iter().map(Standing::entry).collect();
    let mut totals = Totals::default();
    totals.tasks = tasks.len();
    let lines = totals.note(query.arrange(&entries, |at| tasks[at].row(String::new())));
    let row = |line| match line {
        Line::Crowd(row) => *row,
        Line::Task(at, branch) => tasks[at].row(branch),
    };
    (lines.into_iter().map(row).collect(), totals)
}

impl Standing<'_> {
    fn state(&self) -> State {
        match self.doing {
            None => State::Unknown,
            Some(Doing::Running) => State::Running,
            Some(Doing::InCall) => State::InCall,
            Some(Doing::Ready | Doing::Idle) => State::Ready,
            Some(Doing::Blocked(_)) => State::Blocked,
        }
    }

    fn entry(&self) -> Entry<'_> {
        Entry {
            tid: self.tid.into(),
            parent: self.parent.into(),
            comm: self.name,
            state: self.state(),
            kind: match self.doing {
                Some(Doing::Blocked(on)) => kind(on, self.object),
                _ => self.state().name(),
            },
            since: self.since.map(|since| since.as_secs_f64()),
            traps: self.traps,
            rate: None,
            share: None,
        }
    }

    fn row(&self, branch: String) -> Row {
        Row {
            tid: self.tid.into(),
            comm: self.name.to_string(),
            parent: self.parent.into(),
            state: self.state(),
            blocked_on: self.what.clone(),
            since: self.since.map(|since| since.as_secs_f64()),
            traps: self.traps,
            branch,
            ..Row::default()
        }
    }
}
