//! `trace waits`: the wait-for graph at the end of a recording, as text and for Graphviz.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum, ValueHint};

use super::{
    source::{Failure, Source},
    waits::{Waiting, Waits, Watch},
};
use crate::{
    Deadlock, Nanos, On, TaskInfo, TaskState, Wait,
    cli::{
        output::{Log, clean},
        values::instant,
    },
};

/// Show what the tasks waited for when a recording ended, and their cycles
#[derive(Args)]
#[command(after_help = "\
The others may wait for the task that got a queue's last message: a lock's holder is that task.
A graph fits a page: more than four tasks of a name that wait for the same are one box.

Examples:
  trace waits run.trap
  trace waits --at 00:00.010 run.trap
  trace waits --format dot run.trap | dot -Tsvg > waits.svg")]
pub(in crate::cli) struct WaitsCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The format: text for people, or a graph for Graphviz
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// What they waited for at this time, instead of at the end
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Dot,
}

impl WaitsCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let mut watch = Watch::default();
        let (mut now, mut is_cut) = (Nanos::ZERO, false);
        for owned in &mut source {
            let event = owned.borrow();
            if self.at.is_some_and(|at| event.at > at) {
                is_cut = true;
                break;
            }
            now = event.at.into();
            watch.event(&event);
        }
        source.warn_of_gaps(log);
        let mut waits = watch.finish();
        if let Some(at) = self.at.filter(|_| is_cut) {
            now = at.into();
            waits.is_deadlock = false;
        }
        match self.format {
            Format::Text => write_text(out, &waits, now, is_cut)?,
            Format::Dot => out.write_all(dot(&waits).as_bytes())?,
        }
        out.flush()?;
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn write_text(
    out: &mut impl Write,
    waits: &Waits,
    now: Nanos,
    is_cut: bool,
) -> Result<(), Failure> {
    let why = if waits.is_deadlock {
        "deadlock: no task was ready, and nothing could make one ready"
    } else {
        match waits.blocked.len() {
            0 => "no task waited",
            _ => "these tasks waited",
        }
    };
    let end = if is_cut {
        ""
    } else {
        ", the end of the recording"
    };
    writeln!(out, "at {now:.6}{end}: {why}")?;
    for waiting in &waits.blocked {
        let holder = match (waiting.on, waiting.target) {
            (On::Queue(..), Some(holder)) => format!("; task {holder} got its last message"),
            _ => String::new(),
        };
        let (info, call) = (info(waiting), clean(&waiting.call));
        writeln!(out, "  {}, in {call}{holder}", clean(&info.to_string()))?;
        if let Some(places) = info.places() {
            writeln!(out, "    {}", clean(&places))?;
        }
    }
    for ring in &waits.cycles {
        let way = ring.iter().chain(ring.first());
        let way: Vec<String> = way.map(ToString::to_string).collect();
        writeln!(out, "  cycle: {}", way.join(" -> "))?;
    }
    Ok(())
}

fn info(waiting: &Waiting) -> TaskInfo {
    let on = waiting.on;
    let device = waiting.addr.map(|addr| format!("{on}, {addr}"));
    TaskInfo {
        tid: waiting.tid,
        name: waiting.name.clone(),
        parent: 0.into(),
        state: TaskState::Blocked {
            on,
            since: waiting.since,
        },
        traps: 0,
        wait: Wait {
            call: waiting.method,
            place: waiting.place.clone(),
            thing: waiting.object.clone().or(device),
            ..Wait::default()
        },
        spawned: waiting.spawned.clone(),
    }
}

/// The kernel's picture of a deadlock. The holder of a queue is the task that got its last message.
fn dot(waits: &Waits) -> String {
    let held = |waiting: &Waiting| {
        let mut info = info(waiting);
        info.wait.holder = match waiting.on {
            On::Queue(..) => waiting.target,
            On::Exit(_) | On::Timer(_) | On::Device(..) => None,
        };
        info
    };
    let deadlock = Deadlock {
        is_partial: false,
        blocked: waits.blocked.iter().map(held).collect(),
        cycles: waits.cycles.clone(),
        tails: Vec::new(),
    };
    deadlock.dot()
}
