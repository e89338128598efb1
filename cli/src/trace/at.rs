//! `trace ps` and `trace tree`: the tasks at an instant of a recording, as `ps` and `tree` show those
//! of a running kernel.

use std::{io::Write, mem, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueHint};
use trapline::{Deadlock, Doing, Ledger, Nanos, TaskInfo, TaskState, Tracer};

use super::source::{Failure, Source};
use crate::{
    live::{
        TreeList,
        entry::Entry,
        protocol::Answers,
        query::Query,
        row::{State, Totals},
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
    list: Query,
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
    /// Show a JSON object a line, as a monitor does
    #[arg(long)]
    json: bool,
}

impl PsCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let ps = |all: &Answers| text::ps(all, ": --most lists fewer");
        self.at.show(log, out, &self.list, ps)
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
        text: impl Fn(&Answers) -> String,
    ) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let mut ledger = Ledger::new();
        let (mut is_cut, mut is_empty) = (false, true);
        while let Some(event) = source.next() {
            if source.gap().is_some() {
                ledger.gap();
            }
            is_cut = self.at.is_some_and(|at| event.at > at);
            if is_cut {
                break;
            }
            is_empty &= event.tid.is_kernel();
            ledger.event(&event);
        }
        source.warn_of_gaps(log);
        let mut tasks = ledger.tasks();
        tasks.retain(|task| !matches!(task.state, TaskState::Zombie(_)));
        let end = Nanos::from(ledger.now().at);
        if is_empty {
            log.note("no task was alive yet");
        } else if tasks.is_empty() {
            let note = format!("no task was alive: the last one ended at {end:.6}");
            log.note(&note);
        } else {
            if self.at.is_some() && !is_cut {
                log.note(&format!("the recording ends at {end:.6}"));
            }
            let all = rows(&tasks, &ledger, query);
            let shown = match self.json {
                true => all.objects(),
                false => text(&all),
            };
            out.write_all(shown.as_bytes())?;
            out.flush()?;
        }
        // The process ends: to free the tasks of a long run one by one takes a second.
        mem::forget((tasks, ledger));
        source.end(log)
    }
}

/// What tasks wait for, in the words of a monitor.
pub(super) fn waits_of(waits: &Deadlock, ledger: &Ledger) -> Answers {
    Answers {
        cycles: waits.cycles.clone(),
        behind: waits.tails.clone(),
        ..rows(&waits.blocked, ledger, &Query::default())
    }
}

/// The tasks that a query lists. A log knows two states more than a kernel shows.
fn rows(tasks: &[TaskInfo], ledger: &Ledger, query: &Query) -> Answers {
    let mut entries: Vec<Entry<'_>> = tasks.iter().map(|task| Entry::of(None, task)).collect();
    for (entry, task) in entries.iter_mut().zip(tasks) {
        let doing = ledger.doing(task.tid);
        entry.since = doing.map(|(_, since)| since.at.as_secs_f64());
        let state = match doing {
            None => State::Unknown,
            Some((Doing::InCall, _)) => State::InCall,
            Some(_) => continue,
        };
        (entry.state, entry.kind) = (state, state.name());
    }
    let mut totals = Totals::of(tasks, ledger.now().at);
    let lines = query.arrange(entries, ledger, &mut totals);
    Answers {
        tasks: lines.into_iter().map(|line| line.row(ledger)).collect(),
        totals,
        ..Answers::default()
    }
}
