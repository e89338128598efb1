//! `trace summary`: how the time of a run was used, the totals of each task and each call, and the
//! times for which ready tasks waited. `trace diff` compares two of these.

use std::{
    cmp::Reverse, collections::BTreeMap, fmt, io::Write, path::PathBuf, process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueHint};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use trapline::{Call, CallInfo, Doing, Ending, Event, Ledger, Nanos, Span, Tid, record::Header};

use super::{
    source::{Failure, Source, world},
    spans::{Shares, Spans, What, share},
};
use crate::{
    amounts::{Amounts, Bucket, quantiles},
    output::{Log, clean},
    table::table,
    units::count,
    words::command_line,
};

/// The largest number of tasks in a summary. A crafted file has one task in five bytes.
const MOST: usize = 1 << 20;
/// The largest number of deadlocks that are named.
const DEADLOCKS: usize = 8;
/// The largest number of tasks in a table. A row takes kilobytes until it is shown.
const ROWS: usize = 1000;

/// Show the totals of a run: how its time was used, a table of its calls, one of its tasks, and one
/// of how long ready tasks waited for their turn
#[derive(Args)]
#[command(after_help = "\
The first line divides the time: tasks ran their programs, the kernel worked, or no task was ready. \
A task is running in its program, in a call while the kernel works for it, ready while it waits for \
its turn, or blocked. What took the most time comes first. \
A line names each deadlock: tasks that wait for one another, and since when. \
The time of a call is from its trap to its answer, or to the end of its task or of the recording. \
The wait for a turn starts when a task is ready. \
The tables show the 1,000 tasks with the most time; --by-name and --json show all. \
A summary has at most 1,048,576 tasks. The median and the 99th percentile are exact to 0.1 %.

Examples:
  trace summary run.trap
  trace summary --by-name run.trap   a row for all tasks of a name: for a server
  trace summary --json run.trap | jq 'select(.summary == \"call\" and .errors > 0)'")]
pub(crate) struct SummaryCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Merge the tasks of a name
    #[arg(long)]
    by_name: bool,
    /// Show a JSON object a line; times are in seconds
    #[arg(long)]
    json: bool,
}

/// The totals of a recording. Data with many entries per row is in maps over all rows. A small map
/// per row would take ten times the memory.
#[derive(Default)]
pub(super) struct Summary {
    by_name: bool,
    /// The largest number of rows and of live tasks.
    most: usize,
    rows: Vec<Row>,
    /// The indices of the rows, by task or by name.
    by_tid: FxHashMap<Tid, u32>,
    by_comm: FxHashMap<Box<str>, u32>,
    /// What the tasks of a row were blocked on, and for how long.
    on: BTreeMap<(u32, What), Duration>,
    /// The words for the objects among these.
    words: FxHashMap<What, String>,
    exits: BTreeMap<(u32, String), u64>,
    /// The length of each wait for a turn: in nanoseconds, and in turns of other tasks. The turns
    /// matter where a virtual clock does not move.
    nanos: Amounts,
    turns: Amounts,
    calls: BTreeMap<&'static str, Calls>,
    /// The first cycles of waits that closed, and the number of all.
    deadlocks: Vec<Closed>,
    deadlocked: u64,
    spans: Spans,
    events: u64,
}

/// A cycle of waits that closed. Each task waits for the next, and the last for the first.
struct Closed {
    at: Duration,
    /// With their names.
    tasks: Vec<(Tid, String)>,
}

/// A row of a table: a task, or all tasks of a name.
#[derive(Default)]
struct Row {
    tid: Tid,
    comm: Box<str>,
    /// Its index before the rows were sorted: the key in the maps over all rows.
    place: u32,
    /// The number of tasks in the row.
    count: u64,
    turns: u64,
    traps: u64,
    times: Times,
    /// Its longest wait: the length, what it waited for, and the instant.
    longest: Option<(Duration, What, Duration)>,
}

/// The time in each state.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Times {
    pub(super) running: Duration,
    pub(super) in_call: Duration,
    pub(super) ready: Duration,
    pub(super) blocked: Duration,
}

impl Times {
    fn busy(&self) -> Duration {
        self.running + self.in_call
    }
}

#[derive(Default)]
struct Calls {
    count: u64,
    errors: u64,
    total: Duration,
    /// In nanoseconds; all at place 0.
    spans: Amounts,
}

/// The times of a call, for a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallTimes {
    pub(super) count: u64,
    pub(super) total: Duration,
    /// The median, the 99th percentile and the longest.
    pub(super) spans: [Duration; 3],
}

impl SummaryCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let mut summary = Summary::new(self.by_name);
        let mut missing = 0;
        while let Some(event) = source.next() {
            if let Some(gap) = source.gap() {
                missing += gap;
                summary.spans.gap();
            }
            summary.event(&event);
            summary.check()?;
        }
        let header = source.header().clone();
        let now = summary.spans.now().at;
        summary.finish();
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
    /// One with a row per task, or per name.
    pub(super) fn new(by_name: bool) -> Self {
        Self {
            by_name,
            most: MOST,
            ..Self::default()
        }
    }

    /// The books of the run.
    pub(super) fn tasks(&self) -> &Ledger {
        self.spans.tasks()
    }

    /// The time in each state, by name, and the waits for a turn: the median and the 99th percentile.
    pub(super) fn times(&self) -> impl Iterator<Item = (&str, (Times, [Duration; 2]))> {
        self.rows.iter().map(|row| {
            let [median, high, _] = quantiles(&self.nanos.of(row.place));
            let waits = [median, high].map(Duration::from_nanos);
            (&*row.comm, (row.times, waits))
        })
    }

    /// The times of each call.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&'static str, CallTimes)> {
        self.calls.iter().map(|(name, call)| {
            let spans = call.quantiles();
            let (count, total) = (call.count, call.total);
            (
                *name,
                CallTimes {
                    count,
                    total,
                    spans,
                },
            )
        })
    }

    pub(super) fn shares(&self) -> Shares {
        self.spans.shares()
    }

    /// Notes that events are missing.
    pub(super) fn gap(&mut self) {
        self.spans.gap();
    }

    pub(super) fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        for span in self.spans.event(event) {
            self.span(&span);
        }
        if event.tid == Tid::KERNEL {
            return;
        }
        let place = self.place(event.tid);
        let row = &mut self.rows[place as usize];
        let (tasks, fact) = (self.spans.tasks(), &event.fact);
        row.count += u64::from(fact.spawned().is_some());
        row.turns += u64::from(fact.is_resumed());
        if let Some(Call(call, _)) = fact.call() {
            row.traps += 1;
            self.calls.entry(call.name()).or_default().count += 1;
        } else if fact.answer().is_some() {
            // A wait after the answer is a timeout.
            if let Some(trap) = tasks.last(event.tid).filter(|trap| !trap.is_late) {
                let call = end_call(&mut self.calls, trap, event.at);
                call.errors += u64::from(tasks.is_error(event));
            }
        } else if let Some(exit) = fact.exit() {
            self.unanswered(event.tid, event.at);
            let mut text = exit.to_string();
            if self.exits.len() >= self.most {
                // Without its message, which each task of a name may have its own.
                text.truncate(text.find(':').unwrap_or(text.len()));
            }
            *self.exits.entry((place, text)).or_default() += 1;
        } else if let Some(cycle) = fact.cycle() {
            self.deadlocked += 1;
            if self.deadlocks.len() < DEADLOCKS {
                let named = |tid: &Tid| (*tid, tasks.comm(*tid).to_string());
                let tasks = cycle.iter().map(named).collect();
                self.deadlocks.push(Closed {
                    at: event.at,
                    tasks,
                });
            }
        }
    }

    /// Adds the time of a call whose answer does not come: its task ends, or the recording.
    fn unanswered(&mut self, tid: Tid, now: Duration) {
        if let Some(trap) = self.spans.tasks().pending(tid) {
            end_call(&mut self.calls, trap, now);
        }
    }

    /// The index of a task's row.
    fn place(&mut self, tid: Tid) -> u32 {
        let comm = self.spans.tasks().comm(tid);
        let known = if self.by_name {
            self.by_comm.get(comm)
        } else {
            self.by_tid.get(&tid)
        };
        if let Some(&place) = known {
            return place;
        }
        let place = self.rows.len() as u32;
        if self.by_name {
            self.by_comm.insert(comm.into(), place);
        } else {
            self.by_tid.insert(tid, place);
        }
        self.rows.push(Row {
            tid,
            comm: comm.into(),
            place,
            ..Row::default()
        });
        place
    }

    /// Refuses a summary that would take too much memory.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let most = self.most;
        let what = match self.by_name {
            false if self.rows.len() > most => {
                "tasks would take too much memory: --by-name takes those of a name together"
            }
            true if self.rows.len() > most => "names would take too much memory",
            _ if self.spans.tasks().len() > most => {
                "tasks that live at once would take too much memory"
            }
            _ => return Ok(()),
        };
        Err(format!("a summary of more than {most} {what}").into())
    }

    fn span(&mut self, span: &Span) {
        if span.tid == Tid::KERNEL {
            return;
        }
        let took = span.time();
        let place = self.place(span.tid);
        let by_name = self.by_name;
        let row = &mut self.rows[place as usize];
        match span.doing {
            Doing::Running => row.times.running += took,
            Doing::InCall => row.times.in_call += took,
            Doing::Idle => {}
            Doing::Ready => {
                row.times.ready += took;
                // A task that has not run yet has no such wait.
                if span.end == Ending::Next {
                    self.nanos.add(place, nanos(took));
                    self.turns.add(place, span.to.turn - span.from.turn);
                }
            }
            Doing::Blocked(on) => {
                let what = What::from(on);
                let what = if by_name { what.kind() } else { what };
                if let What::Queue(..) = what {
                    let thing = || self.spans.tasks().thing(on);
                    self.words.entry(what).or_insert_with(thing);
                }
                row.times.blocked += took;
                *self.on.entry((place, what)).or_default() += took;
                if row.longest.is_none_or(|(longest, ..)| took > longest) {
                    row.longest = Some((took, what, span.from.at));
                }
            }
        }
    }

    /// Takes the spans that were open at the end.
    pub(super) fn finish(&mut self) {
        for span in self.spans.finish() {
            if span.tid == Tid::KERNEL {
                continue;
            }
            self.span(&span);
            self.unanswered(span.tid, span.to.at);
            let alive = (self.place(span.tid), "none: it was alive".to_string());
            *self.exits.entry(alive).or_default() += 1;
        }
        let by_name = self.by_name;
        self.rows.sort_by(|a, b| {
            let order = b.times.busy().cmp(&a.times.busy());
            order.then_with(|| match by_name {
                true => a.comm.cmp(&b.comm),
                false => a.tid.cmp(&b.tid),
            })
        });
    }

    fn show(
        &self,
        out: &mut impl Write,
        header: &Header,
        missing: u64,
        now: Duration,
    ) -> Result<(), Failure> {
        let shares = self.shares();
        match header.is_simulated {
            true if shares.is_partial && shares.total().is_zero() => writeln!(out, "{shares}")?,
            true if shares.total().is_zero() => writeln!(out, "the run took no virtual time")?,
            true => writeln!(out, "{shares} of virtual time")?,
            false => writeln!(out, "{shares}")?,
        }
        writeln!(out, "{}", Run(header))?;
        if missing > 0 {
            writeln!(
                out,
                "{missing} events are missing: what follows is about the others"
            )?;
        }
        for closed in &self.deadlocks {
            writeln!(out, "{closed}")?;
        }
        let more = self.deadlocked - self.deadlocks.len() as u64;
        if more > 0 {
            writeln!(out, "and {}", count(more, "more deadlock"))?;
        }
        writeln!(out, "\n{}", self.calls_table())?;
        let shown = self.shown();
        let rows: Vec<_> = shown.iter().map(|row| self.task_row(row)).collect();
        let first = if self.by_name { "tasks" } else { "tid" };
        let columns = [
            first,
            "task",
            "turns",
            "traps",
            "running",
            "in call",
            "ready",
            "blocked",
            "on",
            "longest wait",
            "exit",
        ];
        writeln!(out, "\n{}", table(columns, &rows))?;
        let left_out = self.rows.len() - shown.len();
        if left_out > 0 {
            writeln!(
                out,
                "and {left_out} more tasks: --by-name takes them together, \
                 --json has all"
            )?;
        }
        writeln!(out, "\n{}", self.waits_table(first, &shown))?;
        let tasks: u64 = self.rows.iter().map(|row| row.count).sum();
        let turns: u64 = self.rows.iter().map(|row| row.turns).sum();
        let traps: u64 = self.rows.iter().map(|row| row.traps).sum();
        let (now, events) = (Nanos::from(now), self.events);
        writeln!(
            out,
            "\ntasks {tasks}, turns {turns}, traps {traps}, events {events}, time {now:.6}"
        )?;
        Ok(())
    }

    /// The calls, those with the longest total first.
    fn calls_table(&self) -> String {
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|(_, call)| Reverse(call.total));
        let rows: Vec<_> = calls.iter().map(|(name, call)| call.row(name)).collect();
        let columns = [
            "call", "count", "errors", "total", "median", "99th", "longest",
        ];
        table(columns, &rows)
    }

    /// The rows of the tables: those with the most time; of equals, those with the most traps, and
    /// then the oldest. They keep their order.
    fn shown(&self) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().enumerate().collect();
        if !self.by_name && rows.len() > ROWS {
            rows.sort_by_key(|(_, row)| Reverse((row.times.busy(), row.traps)));
            rows.truncate(ROWS);
            rows.sort_by_key(|(place, _)| *place);
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// The first column of a row.
    fn row_id(&self, row: &Row) -> Value {
        if self.by_name {
            row.count.into()
        } else {
            u64::from(row.tid).into()
        }
    }

    fn task_row(&self, row: &Row) -> [Value; 11] {
        let longest = row.longest.map(|(span, what, since)| {
            let since = Nanos::from(since);
            let what = self.say(what);
            format!("{:.6}s for {what}, at {since}", span.as_secs_f64())
        });
        [
            self.row_id(row),
            (*row.comm).into(),
            row.turns.into(),
            row.traps.into(),
            seconds(row.times.running),
            seconds(row.times.in_call),
            seconds(row.times.ready),
            seconds(row.times.blocked),
            self.mostly_on(row).into(),
            longest.unwrap_or_default().into(),
            self.exit(row).into(),
        ]
    }

    /// The waits for a turn, of the shown rows and of all.
    fn waits_table(&self, first: &str, shown: &[&Row]) -> String {
        let cells = |id: Value, name: &str, nanos: &[Bucket], turns: &[Bucket]| {
            let [median, high, most] =
                quantiles(nanos).map(|nanos| format!("{:.3}", nanos as f64 / 1e3).into());
            let [median_turns, high_turns, most_turns] = quantiles(turns).map(Value::from);
            let times = nanos.iter().map(|bucket| bucket.count).sum::<u64>();
            [
                id,
                name.into(),
                times.into(),
                median,
                high,
                most,
                median_turns,
                high_turns,
                most_turns,
            ]
        };
        let mut rows = Vec::new();
        for row in shown {
            let (nanos, turns) = (self.nanos.of(row.place), self.turns.of(row.place));
            if !nanos.is_empty() {
                rows.push(cells(self.row_id(row), &row.comm, &nanos, &turns));
            }
        }
        let (nanos, turns) = (self.nanos.all(), self.turns.all());
        rows.push(cells("".into(), "all", &nanos, &turns));
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
            "deadlocks": self.deadlocked,
            "time": now.as_secs_f64(),
            "tasks": self.shares().tasks.as_secs_f64(),
            "kernel": self.shares().kernel.as_secs_f64(),
            "idle": self.shares().idle.as_secs_f64(),
        });
        writeln!(out, "{run}")?;
        for closed in &self.deadlocks {
            let cycle: Vec<u64> = closed.tasks.iter().map(|(tid, _)| (*tid).into()).collect();
            let at = closed.at.as_secs_f64();
            let line = json!({ "summary": "deadlock", "at": at, "cycle": cycle });
            writeln!(out, "{line}")?;
        }
        for row in &self.rows {
            let mut line = self.json(row);
            if !self.by_name {
                line["tid"] = u64::from(row.tid).into();
            }
            writeln!(out, "{line}")?;
        }
        for (name, call) in &self.calls {
            let [median, high, longest] = call.quantiles().map(|span| span.as_secs_f64());
            let line = json!({
                "summary": "call",
                "call": name,
                "count": call.count,
                "errors": call.errors,
                "total": call.total.as_secs_f64(),
                "median": median,
                "99th": high,
                "longest": longest,
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn blocked_on(&self, row: &Row) -> impl Iterator<Item = (What, Duration)> {
        let on = self.on.range((row.place, What::FIRST)..);
        let on = on.take_while(|((place, _), _)| *place == row.place);
        on.map(|((_, what), span)| (*what, *span))
    }

    fn exits(&self, row: &Row) -> impl Iterator<Item = (&str, u64)> {
        let exits = self.exits.range((row.place, String::new())..);
        let exits = exits.take_while(|((place, _), _)| *place == row.place);
        exits.map(|((_, exit), count)| (&**exit, *count))
    }

    /// What tasks were blocked on, in words.
    fn say(&self, what: What) -> String {
        let words = self.words.get(&what).map(|words| clean(words));
        words.unwrap_or_else(|| what.to_string())
    }

    /// What it was blocked on most; all reasons, if they are few.
    fn mostly_on(&self, row: &Row) -> String {
        let mut on: Vec<_> = self.blocked_on(row).collect();
        on.sort_by_key(|&(what, span)| (Reverse(span), what));
        let all = row.times.blocked;
        let text = |(what, span): &(What, Duration)| match on.len() {
            1 => self.say(*what),
            _ if all.is_zero() => self.say(*what),
            _ => format!("{} {}", self.say(*what), share(*span, all)),
        };
        let mut texts: Vec<_> = on.iter().take(2).map(text).collect();
        if on.len() > 2 {
            texts.push(format!("{} more", on.len() - 2));
        }
        texts.join(", ")
    }

    fn exit(&self, row: &Row) -> String {
        let mut exits: Vec<_> = self.exits(row).collect();
        exits.sort_by_key(|&(exit, count)| (Reverse(count), exit));
        let text = |(exit, count): &(&str, u64)| match row.count {
            0 | 1 => (*exit).to_string(),
            _ => format!("{count} {exit}"),
        };
        let mut texts: Vec<_> = exits.iter().take(2).map(text).collect();
        if exits.len() > 2 {
            texts.push("...".to_string());
        }
        texts.join(", ")
    }

    fn json(&self, row: &Row) -> Value {
        let on = self.blocked_on(row);
        let on = on.map(|(what, span)| (self.say(what), seconds(span)));
        let on: serde_json::Map<String, Value> = on.collect();
        let longest = row.longest.map(|(span, what, since)| {
            json!({
                "seconds": span.as_secs_f64(),
                "on": self.say(what),
                "at": since.as_secs_f64(),
            })
        });
        let exits: BTreeMap<&str, u64> = self.exits(row).collect();
        let [median, high, most] = quantiles(&self.nanos.of(row.place)).map(|n| n as f64 / 1e9);
        let [median_turns, high_turns, most_turns] = quantiles(&self.turns.of(row.place));
        json!({
            "summary": "task",
            "task": row.comm,
            "tasks": row.count,
            "turns": row.turns,
            "traps": row.traps,
            "running": row.times.running.as_secs_f64(),
            "in_call": row.times.in_call.as_secs_f64(),
            "ready": row.times.ready.as_secs_f64(),
            "blocked": row.times.blocked.as_secs_f64(),
            "blocked_on": on,
            "longest": longest,
            "latency": { "median": median, "99th": high, "most": most },
            "latency_turns": { "median": median_turns, "99th": high_turns, "most": most_turns },
            "exits": exits,
        })
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock at {:.6}: ", Nanos::from(self.at))?;
        for (tid, name) in &self.tasks {
            write!(f, "{tid} {} -> ", clean(name))?;
        }
        let first = self.tasks.first().map(|(tid, _)| *tid);
        write!(f, "{}", first.unwrap_or_default())
    }
}

impl Calls {
    fn row(&self, name: &str) -> [Value; 7] {
        let [median, high, longest] = self.quantiles().map(seconds);
        [
            name.into(),
            self.count.into(),
            self.errors.into(),
            seconds(self.total),
            median,
            high,
            longest,
        ]
    }

    /// The median, the 99th percentile and the longest.
    fn quantiles(&self) -> [Duration; 3] {
        quantiles(&self.spans.of(0)).map(Duration::from_nanos)
    }
}

/// Adds the time of a call that ends now.
fn end_call<'a>(
    calls: &'a mut BTreeMap<&'static str, Calls>,
    trap: &CallInfo,
    now: Duration,
) -> &'a mut Calls {
    let call = calls.entry(trap.call.name()).or_default();
    let span = now.saturating_sub(trap.at);
    call.total += span;
    call.spans.add(0, nanos(span));
    call
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(span: Duration) -> Value {
    span.as_secs_f64().into()
}

/// The run's settings.
pub(super) struct Run<'a>(pub(super) &'a Header);

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(header) = self;
        if !header.command.is_empty() {
            writeln!(f, "{}", clean(&command_line(&header.command)))?;
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

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use trapline::{Kernel, Os, SimWorld};

    use super::*;

    /// What a summary of at most two rows returns for three spawned tasks.
    fn refused(by_name: bool, names: [&'static str; 3]) -> Option<String> {
        let (counted, mut kernel) = counted(Summary {
            by_name,
            most: 2,
            ..Summary::default()
        });
        for name in names {
            kernel.spawn(name, async |_: &mut Os| ()).unwrap();
            match counted.borrow().check() {
                Err(Failure::Said(message)) => return Some(message),
                Err(_) => panic!("nothing is written"),
                Ok(()) => {}
            }
        }
        None
    }

    /// A kernel whose events a summary counts.
    fn counted(summary: Summary) -> (Rc<RefCell<Summary>>, Kernel) {
        let counted = Rc::new(RefCell::new(summary));
        let shared = Rc::clone(&counted);
        let tracer = move |event: &Event<'_>| shared.borrow_mut().event(event);
        let builder = Kernel::builder().world(SimWorld::new(1)).tracer(tracer);
        (counted, builder.build().unwrap())
    }

    #[test]
    fn a_summary_that_would_take_too_much_memory_is_refused() {
        let of = |what| Some(format!("a summary of more than 2 {what} too much memory"));
        let way = ": --by-name takes those of a name together";
        let tasks = of("tasks would take").map(|text| text + way);
        assert_eq!(refused(false, ["a", "b", "c"]), tasks);
        assert_eq!(refused(true, ["a", "b", "c"]), of("names would take"));
        let alive = of("tasks that live at once would take");
        assert_eq!(refused(true, ["a", "a", "a"]), alive);
    }

    #[test]
    fn the_table_has_a_task_of_few_traps_that_took_the_most_time() {
        let (counted, mut kernel) = counted(Summary::new(false));
        for _ in 0..ROWS {
            let lively = async |os: &mut Os| {
                os.yield_now().await;
                os.yield_now().await;
            };
            kernel.spawn("lively", lively).unwrap();
        }
        let hard = async |os: &mut Os| os.compute(Duration::from_secs(1)).await;
        let busy = kernel.spawn("hard", hard).unwrap();
        kernel.run().unwrap();
        let mut summary = counted.borrow_mut();
        summary.finish();
        let shown = summary.shown();
        assert_eq!((shown.len(), shown[0].tid), (ROWS, busy));
    }
}
