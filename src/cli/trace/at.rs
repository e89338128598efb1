//! `trace ps` and `trace tree`: the tasks at an instant of a recording.

use std::{collections::BTreeMap, io::Write, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueHint};
use serde_json::Value;

use super::{
    causes::{History, Standing},
    source::{Failure, Source},
};
use crate::{
    Nanos, Tid,
    cli::{output::Log, table::table, values::instant},
};

/// List the tasks at an instant of a recording, as `ps` lists those of a running kernel
#[derive(Args)]
#[command(after_help = "\
Examples:
  trace ps --at 00:00.010 run.trap
  trace ps run.trap                  those that were alive at the end")]
pub(in crate::cli) struct PsCommand {
    #[command(flatten)]
    at: At,
}

/// Show the tasks at an instant of a recording as a tree of parents; equal siblings are one line
#[derive(Args)]
#[command(after_help = "\
Examples:
  trace tree --at 00:00.010 run.trap
  trace tree run.trap                those that were alive at the end")]
pub(in crate::cli) struct TreeCommand {
    #[command(flatten)]
    at: At,
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
        self.at.show(log, out, |tasks| {
            let row = |task: &Standing| -> [Value; 6] {
                [
                    u64::from(task.tid).into(),
                    task.name.clone().into(),
                    u64::from(task.parent).into(),
                    task.state.clone().into(),
                    format!("{:.6}", Nanos::from(task.since)).into(),
                    task.call.clone().into(),
                ]
            };
            let rows: Vec<_> = tasks.iter().map(row).collect();
            let columns = ["tid", "task", "parent", "is", "since", "call"];
            table(columns, &rows) + "\n"
        })
    }
}

impl TreeCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        self.at.show(log, out, tree)
    }
}

impl At {
    fn show(
        &self,
        log: Log,
        out: &mut impl Write,
        text: impl Fn(&[Standing]) -> String,
    ) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let history = History::read(&mut source, self.at);
        out.write_all(text(&history.standing()).as_bytes())?;
        out.flush()?;
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The tasks below their parents. Siblings of one name and state that have no children are one line.
fn tree(tasks: &[Standing]) -> String {
    let mut children: BTreeMap<Tid, Vec<&Standing>> = BTreeMap::new();
    for task in tasks {
        let is_alive = tasks
            .binary_search_by_key(&task.parent, |task| task.tid)
            .is_ok();
        let parent = if is_alive { task.parent } else { Tid::KERNEL };
        children.entry(parent).or_default().push(task);
    }
    let mut text = String::new();
    // The work list: a deep tree must not need a deep stack.
    let mut ahead: Vec<(&Standing, usize, usize)> = Vec::new();
    let mut below = |parent: Tid, depth: usize, ahead: &mut Vec<_>| {
        let siblings = children.remove(&parent).unwrap_or_default();
        let mut groups: Vec<(&Standing, usize, usize)> = Vec::new();
        for task in siblings {
            let is_leaf = !children.contains_key(&task.tid);
            let equal = groups.iter_mut().find(|(other, ..)| {
                let is_same = other.name == task.name && other.state == task.state;
                is_leaf && is_same && !children.contains_key(&other.tid)
            });
            match equal {
                Some((.., count)) => *count += 1,
                None => groups.push((task, depth, 1)),
            }
        }
        ahead.extend(groups.into_iter().rev());
    };
    below(Tid::KERNEL, 0, &mut ahead);
    while let Some((task, depth, count)) = ahead.pop() {
        let indent = "  ".repeat(depth.min(40));
        let Standing {
            tid, name, state, ..
        } = task;
        text += &match count {
            1 => format!("{indent}{tid} {name}: {state}\n"),
            _ => format!("{indent}{name} x {count}: {state}\n"),
        };
        below(*tid, depth + 1, &mut ahead);
    }
    text
}
