//! `trace diff`: finds where two runs diverge, and compares the totals of each task and each call.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    io::Write,
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, ValueHint};
use serde_json::Value;

use super::source::{Failure, Source, world};
use crate::{
    Event, Fact, Follower, Nanos, On, Reply, SystemCall, Tid, Tracer,
    cli::{
        output::{Log, clean},
        table::table,
    },
    record::{Header, OwnedEvent},
};

/// The number of events shown before the first difference, and after it in each run.
const CONTEXT: usize = 5;

/// Compare two runs: where they diverge, and which totals differ
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 the runs are the same, 1 they differ, 2 a recording cannot be read.

Times are compared if both runs were simulated. Otherwise deadlines and the kernel's sleeps are
ignored too.

Examples:
  trace diff before.trap after.trap
  trace diff --ignore-times seed-1.trap seed-2.trap")]
pub(in crate::cli) struct DiffCommand {
    /// A recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    a: PathBuf,
    /// Another one
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    b: PathBuf,
    /// Compare the events and ignore their times
    #[arg(long)]
    ignore_times: bool,
}

/// One of the two runs.
struct Side {
    source: Source,
    is_timed: bool,
    tasks: Follower,
    counts: BTreeMap<Tid, Task>,
    calls: BTreeMap<&'static str, [u64; 2]>,
}

/// The totals of a task.
#[derive(Default, PartialEq)]
struct Task {
    comm: String,
    turns: u64,
    traps: u64,
    exit: String,
}

/// The place where the runs diverge.
#[derive(Default)]
struct Parting {
    /// The number of equal events.
    same: u64,
    before: VecDeque<String>,
    /// The events that follow in each run after the first difference.
    after: Option<[Vec<String>; 2]>,
}

impl DiffCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let (a, b) = (Source::open(&self.a)?, Source::open(&self.b)?);
        let is_simulated = a.header().is_simulated && b.header().is_simulated;
        let is_timed = is_simulated && !self.ignore_times;
        let mut sides = [Side::new(a, is_timed), Side::new(b, is_timed)];
        let mut parting = Parting::default();
        loop {
            let [a, b] = &mut sides;
            let mut next = [a.next(), b.next()];
            if let [None, None] = next {
                break;
            }
            parting.look(&mut next, &sides, log);
            for (side, event) in sides.iter_mut().zip(next) {
                if let Some(event) = event {
                    side.count(&event);
                }
            }
        }
        let differ = parting.after.is_some();
        if differ {
            show(out, &sides, &parting)?;
        } else {
            log.note(&format!("the runs are the same: {} events", parting.same));
        }
        out.flush()?;
        for side in sides {
            side.source.end(log)?;
        }
        Ok(ExitCode::from(u8::from(differ)))
    }
}

impl Side {
    fn new(source: Source, is_timed: bool) -> Self {
        Self {
            source,
            is_timed,
            tasks: Follower::new(),
            counts: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    /// The next event to compare.
    fn next(&mut self) -> Option<OwnedEvent> {
        let is_timed = self.is_timed;
        let counts = |event: &OwnedEvent| {
            is_timed || !matches!(event.borrow().fact, Fact::ClockJumped { .. })
        };
        let event = self.source.find(counts)?;
        self.tasks.event(&event.borrow());
        Some(event)
    }

    fn line(&self, event: &OwnedEvent, log: Log) -> String {
        let Event { at, tid, fact, .. } = event.borrow();
        let at = format!("{:.6}", Nanos::from(at));
        let columns = log.columns(&at, tid.into(), &clean(self.tasks.comm(tid)));
        format!("{columns}{}", clean(&fact.to_string()))
    }

    fn count(&mut self, event: &OwnedEvent) {
        let Event { tid, fact, .. } = event.borrow();
        if tid != Tid::KERNEL {
            let task = self.counts.entry(tid).or_default();
            match &fact {
                Fact::Spawned { name, .. } => task.comm = (*name).to_string(),
                Fact::Resumed => task.turns += 1,
                Fact::Trapped { call, .. } => {
                    task.traps += 1;
                    self.calls.entry(call.name()).or_default()[0] += 1;
                }
                Fact::Replied { .. } if fact.is_error() => {
                    let call = self.tasks.last(tid);
                    let call = call.map_or("?", |call| call.call.name());
                    self.calls.entry(call).or_default()[1] += 1;
                }
                Fact::Exited { exit } => task.exit = exit.to_string(),
                _ => {}
            }
        }
    }
}

impl Parting {
    /// Reads the next event of both.
    fn look(&mut self, next: &mut [Option<OwnedEvent>; 2], sides: &[Side; 2], log: Log) {
        if self.after.is_none() && is_same(next, sides[0].is_timed) {
            self.same += 1;
            if self.before.len() == CONTEXT {
                self.before.pop_front();
            }
            let [event, _] = next;
            let line = event.as_ref().map(|event| sides[0].line(event, log));
            self.before.extend(line);
            return;
        }
        let after = self.after.get_or_insert_default();
        for ((lines, event), side) in after.iter_mut().zip(next).zip(sides) {
            if lines.len() < CONTEXT && lines.last().is_none_or(|line| line != END) {
                let line = event.as_ref().map(|event| side.line(event, log));
                lines.push(line.unwrap_or_else(|| END.to_string()));
            }
        }
    }
}

/// The mark for a run that has no more events.
const END: &str = "(the end)";

/// Whether both events are the same.
fn is_same(next: &mut [Option<OwnedEvent>; 2], is_timed: bool) -> bool {
    let [Some(a), Some(b)] = next else {
        return false;
    };
    if is_timed {
        return is_equal(a, b);
    }
    let timeless = a.tid == b.tid
        && match (a.borrow().fact, b.borrow().fact) {
            (Fact::Blocked { on: On::Timer(_) }, Fact::Blocked { on: On::Timer(_) }) => true,
            (Fact::Replied { reply: a, .. }, Fact::Replied { reply: b, .. }) => {
                matches!((a, b), (Reply::Time(_), Reply::Time(_)))
            }
            (Fact::Trapped { call: a, .. }, Fact::Trapped { call: b, .. }) => {
                matches!(
                    (a, b),
                    (SystemCall::SleepUntil(_), SystemCall::SleepUntil(_))
                )
            }
            _ => false,
        };
    if timeless {
        return true;
    }
    let at = std::mem::replace(&mut b.at, a.at);
    let is_same = is_equal(a, b);
    b.at = at;
    is_same
}

/// Whether both events are the same, wherever in the source they come from.
fn is_equal(a: &OwnedEvent, b: &OwnedEvent) -> bool {
    a.at == b.at && a.tid == b.tid && a.fact == b.fact
}

fn show(out: &mut impl Write, sides: &[Side; 2], parting: &Parting) -> Result<(), Failure> {
    let [a, b] = sides;
    for (mark, side) in [("---", a), ("+++", b)] {
        let command = clean(&side.source.header().command.join(" "));
        writeln!(out, "{mark} {}: {command}", side.source.name())?;
    }
    for difference in headers(a.source.header(), b.source.header()) {
        writeln!(out, "{difference}")?;
    }
    writeln!(out, "the first {} events are the same", parting.same)?;
    for line in &parting.before {
        writeln!(out, "  {line}")?;
    }
    for (mark, lines) in ["-", "+"].into_iter().zip(parting.after.iter().flatten()) {
        for line in lines {
            writeln!(out, "{mark} {line}")?;
        }
    }
    let tasks = task_rows(a, b);
    if !tasks.is_empty() {
        let columns = ["tid", "task", "turns A", "B", "traps A", "B", "exit A", "B"];
        writeln!(out, "\n{}", table(columns, &tasks))?;
    }
    let calls = call_rows(a, b);
    if !calls.is_empty() {
        let columns = ["call", "count A", "B", "errors A", "B"];
        writeln!(out, "\n{}", table(columns, &calls))?;
    }
    if tasks.is_empty() && calls.is_empty() {
        writeln!(out, "\neach task and each call comes to the same in both")?;
    }
    Ok(())
}

/// The settings in which the runs differ.
fn headers(a: &Header, b: &Header) -> Vec<String> {
    let mut lines = Vec::new();
    let mut compare = |what: &str, a: &dyn Display, b: &dyn Display| {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            lines.push(format!("{what} {} and {}", clean(&a), clean(&b)));
        }
    };
    let worlds = [a, b].map(world);
    compare("worlds:", &worlds[0], &worlds[1]);
    compare("seeds:", &a.seed, &b.seed);
    compare("policies:", &a.policy, &b.policy);
    compare("quanta:", &a.quantum, &b.quantum);
    compare("versions:", &a.version, &b.version);
    lines
}

/// The tasks that differ.
fn task_rows(a: &Side, b: &Side) -> Vec<[Value; 8]> {
    let mut tids: Vec<Tid> = a.counts.keys().chain(b.counts.keys()).copied().collect();
    tids.sort_unstable();
    tids.dedup();
    let row = |tid: Tid| {
        let (a, b) = (a.counts.get(&tid), b.counts.get(&tid));
        if a == b {
            return None;
        }
        let comm = match (a, b) {
            (Some(a), Some(b)) if a.comm != b.comm => format!("{}, {}", a.comm, b.comm),
            (a, b) => a.or(b).map_or(String::new(), |task| task.comm.clone()),
        };
        let number = |task: Option<&Task>, of: fn(&Task) -> u64| {
            task.map_or(Value::from("-"), |task| of(task).into())
        };
        let exit = |task: Option<&Task>| match task {
            None => "-".into(),
            Some(task) if task.exit.is_empty() => "none: it was alive".into(),
            Some(task) => Value::from(task.exit.clone()),
        };
        Some([
            u64::from(tid).into(),
            comm.into(),
            number(a, |task| task.turns),
            number(b, |task| task.turns),
            number(a, |task| task.traps),
            number(b, |task| task.traps),
            exit(a),
            exit(b),
        ])
    };
    tids.into_iter().filter_map(row).collect()
}

/// The calls that differ.
fn call_rows(a: &Side, b: &Side) -> Vec<[Value; 5]> {
    let mut names: Vec<&str> = a.calls.keys().chain(b.calls.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &str| {
        let [a, b] = [a, b].map(|side| side.calls.get(name).copied().unwrap_or_default());
        let row = [
            name.into(),
            a[0].into(),
            b[0].into(),
            a[1].into(),
            b[1].into(),
        ];
        (a != b).then_some(row)
    };
    names.into_iter().filter_map(row).collect()
}
