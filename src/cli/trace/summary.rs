//! `trace summary`: what each task and each call came to, and how long tasks waited for their turn.

use std::{
    cmp::Reverse, collections::BTreeMap, fmt, io::Write, path::PathBuf, process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueHint};
use serde_json::{Value, json};

use super::{
    Failure,
    source::Source,
    spans::{Doing, Ending, Span, Spans},
};
use crate::{
    DeviceId, Direction, End, Event, Fact, Follower, Nanos, On, Reply, Tid, Tracer,
    cli::{
        log::{Log, clean},
        summary::table,
    },
    record::Header,
};

/// How many tasks a table has at most. A row takes kilobytes until it is shown.
const ROWS: usize = 1000;

/// Show what a run came to: a table of its tasks, one of their calls, and one of how long tasks
/// that were ready waited for their turn
#[derive(Args)]
#[command(after_help = "\
A call takes from its trap to its answer. A task waits for its turn from the moment it is ready.
Of more than 1,000 tasks the tables have those with the most traps; --by-name and --json have all.

Examples:
  trace summary run.trap
  trace summary --by-name run.trap   a row for all tasks of a name: for a server
  trace summary --json run.trap | jq 'select(.summary == \"call\" and .errors > 0)'")]
pub(in crate::cli) struct Order {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Take the tasks of a name together
    #[arg(long)]
    by_name: bool,
    /// Show a JSON object a line; times are in seconds
    #[arg(long)]
    json: bool,
}

/// What a recording comes to.
#[derive(Default)]
struct Summary {
    by_name: bool,
    tasks: BTreeMap<Key, Task>,
    calls: BTreeMap<&'static str, Calls>,
    spans: Spans,
    events: u64,
}

/// What stands in a row of its own: a task, or all tasks of a name.
type Key = (Tid, String);

#[derive(Default)]
struct Task {
    /// How many tasks these are.
    count: u64,
    turns: u64,
    traps: u64,
    running: Duration,
    ready: Duration,
    blocked: Duration,
    /// On what it was blocked, for how long.
    on: BTreeMap<What, Duration>,
    /// Its longest wait: how long, on what, since when.
    longest: Option<(Duration, What, Duration)>,
    waits: Waits,
    exits: BTreeMap<String, u64>,
}

/// How long tasks waited for their turn, each time.
#[derive(Clone, Default)]
struct Waits {
    nanos: Vec<u64>,
    /// How many turns others had meanwhile: what a virtual clock does not show.
    turns: Vec<u64>,
}

/// What a task is blocked on, but for the instant of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Exit(Tid),
    Timer,
    Device(DeviceId, Direction),
    Queue(u64, End),
}

#[derive(Default)]
struct Calls {
    count: u64,
    errors: u64,
    total: Duration,
    longest: Duration,
}

impl Order {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let mut summary = Summary {
            by_name: self.by_name,
            ..Summary::default()
        };
        let mut tasks = Follower::new();
        let mut missing = 0;
        while let Some(owned) = source.next() {
            if let Some(gap) = source.gap() {
                missing += gap;
                summary.spans.gap();
            }
            let event = owned.borrow();
            tasks.event(&event);
            summary.event(&event, &tasks);
        }
        let header = source.header().clone();
        let now = summary.spans.now().at;
        summary.finish(&tasks);
        if self.json {
            summary.show_json(out, &header, missing, now)?;
        } else {
            summary.show(out, &header, missing, now)?;
        }
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Summary {
    fn event(&mut self, event: &Event<'_>, tasks: &Follower) {
        self.events += 1;
        if let Some(span) = self.spans.event(event) {
            self.span(&span, tasks);
        }
        if event.tid == Tid::KERNEL {
            return;
        }
        let task = self.task(event.tid, tasks);
        match event.fact {
            Fact::Spawned { .. } => task.count += 1,
            Fact::Resumed => task.turns += 1,
            Fact::Trapped { call, .. } => {
                task.traps += 1;
                self.calls.entry(call.name()).or_default().count += 1;
            }
            Fact::Replied { reply, .. } => {
                // What comes after the answer is a timeout.
                let Some(trap) = tasks.last(event.tid).filter(|trap| !trap.is_late) else {
                    return;
                };
                let call = self.calls.entry(trap.call.name()).or_default();
                let span = event.at.saturating_sub(trap.at);
                call.total += span;
                call.longest = call.longest.max(span);
                call.errors += u64::from(matches!(reply, Reply::Err(_) | Reply::Io));
            }
            Fact::Exited { exit } => {
                *task.exits.entry(exit.to_string()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn task(&mut self, tid: Tid, tasks: &Follower) -> &mut Task {
        let tid_of_row = if self.by_name { Tid::KERNEL } else { tid };
        let key = (tid_of_row, tasks.comm(tid).to_string());
        self.tasks.entry(key).or_default()
    }

    fn span(&mut self, span: &Span, tasks: &Follower) {
        let took = span.to.at.saturating_sub(span.from.at);
        let task = self.task(span.tid, tasks);
        match span.doing {
            Doing::Running => task.running += took,
            Doing::Ready => {
                task.ready += took;
                // A task whose turn has not come yet has no such wait.
                if span.end == Ending::Next {
                    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                    task.waits.nanos.push(nanos);
                    task.waits.turns.push(span.to.turn - span.from.turn);
                }
            }
            Doing::Blocked(on) => {
                let what = What::from(on);
                task.blocked += took;
                *task.on.entry(what).or_default() += took;
                if task.longest.is_none_or(|(longest, ..)| took > longest) {
                    task.longest = Some((took, what, span.from.at));
                }
            }
        }
    }

    /// Takes what was still under way at the end.
    fn finish(&mut self, tasks: &Follower) {
        for span in std::mem::take(&mut self.spans).finish() {
            self.span(&span, tasks);
            let task = self.task(span.tid, tasks);
            *task
                .exits
                .entry("none: it was alive".to_string())
                .or_default() += 1;
        }
        for task in self.tasks.values_mut() {
            task.waits.sort();
        }
    }

    fn show(
        &self,
        out: &mut impl Write,
        header: &Header,
        missing: u64,
        now: Duration,
    ) -> Result<(), Failure> {
        writeln!(out, "{}", Run(header))?;
        if missing > 0 {
            writeln!(
                out,
                "{missing} events are missing: what follows is about the others"
            )?;
        }
        let shown = self.shown();
        let rows: Vec<_> = shown
            .iter()
            .map(|(key, task)| self.task_row(key, task))
            .collect();
        let first = if self.by_name { "tasks" } else { "tid" };
        let columns = [
            first,
            "task",
            "turns",
            "traps",
            "running",
            "ready",
            "blocked",
            "on",
            "longest wait",
            "exit",
        ];
        writeln!(out, "\n{}", table(columns, &rows))?;
        let left_out = self.tasks.len() - shown.len();
        if left_out > 0 {
            writeln!(
                out,
                "and {left_out} tasks with fewer traps: --by-name takes them together, \
                 --json has all"
            )?;
        }
        let rows: Vec<_> = self
            .calls
            .iter()
            .map(|(name, call)| call.row(name))
            .collect();
        let columns = ["call", "count", "errors", "total", "longest"];
        writeln!(out, "\n{}", table(columns, &rows))?;
        writeln!(out, "\n{}", self.waits_table(first, &shown))?;
        let tasks: u64 = self.tasks.values().map(|task| task.count).sum();
        let turns: u64 = self.tasks.values().map(|task| task.turns).sum();
        let traps: u64 = self.tasks.values().map(|task| task.traps).sum();
        let (now, events) = (Nanos::from(now), self.events);
        writeln!(
            out,
            "\ntasks {tasks}, turns {turns}, traps {traps}, events {events}, time {now:.6}"
        )?;
        Ok(())
    }

    /// The tasks that stand in tables: those with the most traps, of equals the elder.
    fn shown(&self) -> Vec<(&Key, &Task)> {
        let mut tasks: Vec<_> = self.tasks.iter().collect();
        if !self.by_name && tasks.len() > ROWS {
            tasks.sort_by_key(|&(key, task)| (Reverse(task.traps), key));
            tasks.truncate(ROWS);
            tasks.sort_by_key(|&(key, _)| key);
        }
        tasks
    }

    /// What the first column of a row has.
    fn row_id(&self, (tid, _): &Key, task: &Task) -> Value {
        if self.by_name {
            task.count.into()
        } else {
            u64::from(*tid).into()
        }
    }

    fn task_row(&self, key: &Key, task: &Task) -> [Value; 10] {
        let longest = task.longest.map(|(span, what, since)| {
            let since = Nanos::from(since);
            format!("{:.6}s for {what}, at {since}", span.as_secs_f64())
        });
        [
            self.row_id(key, task),
            key.1.clone().into(),
            task.turns.into(),
            task.traps.into(),
            seconds(task.running),
            seconds(task.ready),
            seconds(task.blocked),
            task.mostly_on().into(),
            longest.unwrap_or_default().into(),
            task.exit().into(),
        ]
    }

    /// How long tasks waited for their turn: these, and all.
    fn waits_table(&self, first: &str, shown: &[(&Key, &Task)]) -> String {
        let waited = shown
            .iter()
            .filter(|(_, task)| !task.waits.nanos.is_empty());
        let mut rows: Vec<_> = waited
            .map(|(key, task)| task.waits.row(self.row_id(key, task), &key.1))
            .collect();
        let mut all = Waits::default();
        for task in self.tasks.values() {
            all.nanos.extend(&task.waits.nanos);
            all.turns.extend(&task.waits.turns);
        }
        all.sort();
        rows.push(all.row("".into(), "all"));
        let columns = [
            first,
            "waited for a turn",
            "times",
            "median us",
            "99th",
            "most",
            "median turns",
            "99th",
            "most",
        ];
        table(columns, &rows)
    }

    fn show_json(
        &self,
        out: &mut impl Write,
        header: &Header,
        missing: u64,
        now: Duration,
    ) -> Result<(), Failure> {
        let run = json!({
            "summary": "run",
            "command": header.command,
            "seed": header.seed,
            "policy": header.policy,
            "quantum": header.quantum,
            "world": world(header),
            "version": header.version,
            "events": self.events,
            "missing": missing,
            "time": now.as_secs_f64(),
        });
        writeln!(out, "{run}")?;
        for ((tid, name), task) in &self.tasks {
            let mut line = task.json(name);
            if !self.by_name {
                line["tid"] = u64::from(*tid).into();
            }
            writeln!(out, "{line}")?;
        }
        for (name, call) in &self.calls {
            let line = json!({
                "summary": "call",
                "call": name,
                "count": call.count,
                "errors": call.errors,
                "total": call.total.as_secs_f64(),
                "longest": call.longest.as_secs_f64(),
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

impl Task {
    /// What it was blocked on most: all, if that is little.
    fn mostly_on(&self) -> String {
        let mut on: Vec<_> = self.on.iter().collect();
        on.sort_by_key(|&(what, span)| (Reverse(*span), *what));
        let share = |span: &Duration| 100.0 * span.as_secs_f64() / self.blocked.as_secs_f64();
        let text = |(what, span): &(&What, &Duration)| match on.len() {
            1 => what.to_string(),
            _ if self.blocked.is_zero() => what.to_string(),
            _ => format!("{what} {:.0}%", share(span)),
        };
        let mut texts: Vec<_> = on.iter().take(2).map(text).collect();
        if on.len() > 2 {
            texts.push(format!("{} more", on.len() - 2));
        }
        texts.join(", ")
    }

    fn exit(&self) -> String {
        let mut exits: Vec<_> = self.exits.iter().collect();
        exits.sort_by_key(|&(exit, count)| (Reverse(*count), exit));
        let text = |(exit, count): &(&String, &u64)| match self.count {
            0 | 1 => (*exit).clone(),
            _ => format!("{count} {exit}"),
        };
        let mut texts: Vec<_> = exits.iter().take(2).map(text).collect();
        if exits.len() > 2 {
            texts.push("...".to_string());
        }
        texts.join(", ")
    }

    fn json(&self, name: &str) -> Value {
        let on = self
            .on
            .iter()
            .map(|(what, span)| (what.to_string(), seconds(*span)));
        let on: serde_json::Map<String, Value> = on.collect();
        let longest = self.longest.map(|(span, what, since)| {
            json!({
                "seconds": span.as_secs_f64(),
                "on": what.to_string(),
                "at": since.as_secs_f64(),
            })
        });
        let [median, high, most] = quantiles(&self.waits.nanos).map(|n| n as f64 / 1e9);
        let [median_turns, high_turns, most_turns] = quantiles(&self.waits.turns);
        json!({
            "summary": "task",
            "task": name,
            "tasks": self.count,
            "turns": self.turns,
            "traps": self.traps,
            "running": self.running.as_secs_f64(),
            "ready": self.ready.as_secs_f64(),
            "blocked": self.blocked.as_secs_f64(),
            "blocked_on": on,
            "longest": longest,
            "latency": { "median": median, "99th": high, "most": most },
            "latency_turns": { "median": median_turns, "99th": high_turns, "most": most_turns },
            "exits": self.exits,
        })
    }
}

impl Calls {
    fn row(&self, name: &str) -> [Value; 5] {
        [
            name.into(),
            self.count.into(),
            self.errors.into(),
            seconds(self.total),
            seconds(self.longest),
        ]
    }
}

impl Waits {
    fn sort(&mut self) {
        self.nanos.sort_unstable();
        self.turns.sort_unstable();
    }

    fn row(&self, id: Value, name: &str) -> [Value; 9] {
        let [median, high, most] =
            quantiles(&self.nanos).map(|nanos| format!("{:.3}", nanos as f64 / 1e3).into());
        let [median_turns, high_turns, most_turns] = quantiles(&self.turns).map(Value::from);
        let times = self.nanos.len().into();
        [
            id,
            name.into(),
            times,
            median,
            high,
            most,
            median_turns,
            high_turns,
            most_turns,
        ]
    }
}

/// The median, the 99th of a hundred and the last of them; they come in order.
fn quantiles(sorted: &[u64]) -> [u64; 3] {
    [50, 99, 100].map(|percent| {
        let rank = (sorted.len() * percent).div_ceil(100);
        let value = rank.checked_sub(1).and_then(|at| sorted.get(at));
        value.copied().unwrap_or(0)
    })
}

fn seconds(span: Duration) -> Value {
    span.as_secs_f64().into()
}

pub(super) fn world(header: &Header) -> &'static str {
    if header.is_simulated {
        "simulated"
    } else {
        "real"
    }
}

/// What ran, and how.
pub(super) struct Run<'a>(pub(super) &'a Header);

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(header) = self;
        if !header.command.is_empty() {
            writeln!(f, "{}", clean(&header.command.join(" ")))?;
        }
        let (world, policy, version) =
            (world(header), clean(&header.policy), clean(&header.version));
        let Header { seed, quantum, .. } = header;
        write!(
            f,
            "{world} world, seed {seed}, policy {policy}, quantum {quantum}, trapline {version}"
        )
    }
}

impl From<On> for What {
    fn from(on: On) -> Self {
        match on {
            On::Exit(tid) => Self::Exit(tid),
            On::Timer(_) => Self::Timer,
            On::Device(device, direction) => Self::Device(device, direction),
            On::Queue(queue, end) => Self::Queue(queue.number(), end),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(tid) => write!(f, "the end of task {tid}"),
            Self::Timer => f.write_str("a timer"),
            Self::Device(device, direction) => write!(f, "device {device} ({direction})"),
            Self::Queue(queue, end) => write!(f, "queue {queue} ({end})"),
        }
    }
}
