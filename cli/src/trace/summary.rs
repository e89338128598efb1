//! `trace summary`: how the time of a run was used, the totals of each task and each call, and the
//! times for which ready tasks waited. `trace diff` compares two of these.

use std::{
    cmp::Reverse, collections::BTreeMap, io::Write, path::PathBuf, process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueHint};
use serde_json::{Value, json};
use trapline::{Nanos, record::Header};

use super::{
    source::{Failure, Source, world},
    spans::{What, share},
    totals::{Closed, Row, Summary},
};
use crate::{
    amounts::Calls,
    live::text::number_of,
    output::{Log, clean},
    table::{Sheet, seconds, table},
    units::{count, few, number},
    words::command_line,
};

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
  trace summary --json run.trap \\
    | jq 'select(.summary == \"call\" and .errors > 0)'")]
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

impl SummaryCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let mut source = Source::open(&self.file)?;
        let mut summary = Summary::new(self.by_name);
        while summary.next(&mut source)?.is_some() {}
        summary.finish();
        match self.json {
            true => summary.show_json(out, source.header())?,
            false => summary.show(out, source.header())?,
        }
        source.end(log)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Summary {
    fn show(&self, out: &mut impl Write, header: &Header) -> Result<(), Failure> {
        let shares = self.shares();
        match (header.is_simulated, shares.total().is_zero()) {
            (true, false) => writeln!(out, "{shares} of virtual time")?,
            (true, true) if !shares.is_partial => writeln!(out, "the run took no virtual time")?,
            _ => writeln!(out, "{shares}")?,
        }
        if !header.command.is_empty() {
            writeln!(out, "{}", clean(&command_line(&header.command)))?;
        }
        let (policy, version) = (clean(&header.policy), clean(&header.version));
        let (world, seed, quantum) = (world(header), header.seed, header.quantum);
        write!(out, "{world} world, seed {seed}, policy {policy}, ")?;
        writeln!(out, "quantum {quantum}, trapline {version}")?;
        if self.missing > 0 {
            let what = "missing: what follows is about the others";
            writeln!(out, "{} {what}", count(self.missing, "event"))?;
        }
        for Closed { at, cycle, way } in &self.deadlocks {
            let (at, first) = (Nanos::from(*at), cycle.first().unwrap_or(&0));
            writeln!(out, "deadlock at {at:.6}: {way}{first}")?;
        }
        let more = self.deadlocked - self.deadlocks.len() as u64;
        if more > 0 {
            writeln!(out, "and {}", count(more, "more deadlock"))?;
        }
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|(_, call)| Reverse(call.total));
        writeln!(out, "\n{}", calls_sheet(calls))?;
        let shown = self.shown();
        writeln!(out, "\n{}", self.tasks_table(&shown))?;
        let left_out = self.rows.len() - shown.len();
        if left_out > 0 {
            let how = "--by-name takes them together, --json has all";
            writeln!(out, "and {}: {how}", count(left_out as u64, "more task"))?;
        }
        if let Some(blocked) = self.blocked_table(&shown) {
            writeln!(out, "\n{blocked}")?;
        }
        writeln!(out, "\n{}", self.waits_table(&shown))?;
        let tasks: u64 = self.rows.iter().map(|row| row.tasks).sum();
        let turns: u64 = self.rows.iter().map(|row| row.turns).sum();
        let traps: u64 = self.rows.iter().map(|row| row.traps).sum();
        let (now, events) = (Nanos::from(self.spans.now().at), number(self.events));
        let [tasks, turns, traps] = [tasks, turns, traps].map(number);
        write!(out, "\ntasks {tasks}, turns {turns}, traps {traps}, ")?;
        writeln!(out, "events {events}, time {now:.6}")?;
        Ok(())
    }

    /// The rows of the tables: those with the most time; of equals, those with the most traps, and
    /// then the oldest. They keep their order.
    fn shown(&self) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().enumerate().collect();
        if !self.by_name && rows.len() > ROWS {
            rows.sort_by_key(|(_, row)| Reverse((row.busy(), row.traps)));
            rows.truncate(ROWS);
            rows.sort_by_key(|(place, _)| *place);
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// A header whose first column is [`Summary::id`].
    fn columns(&self, others: &'static str) -> impl Iterator<Item = &'static str> {
        let first = if self.by_name { "tasks" } else { "tid" };
        [first].into_iter().chain(others.split("  "))
    }

    fn id(&self, row: &Row) -> Value {
        match self.by_name {
            true => row.tasks.into(),
            false => number_of(row.tid),
        }
    }

    fn tasks_table(&self, shown: &[&Row]) -> String {
        let cells = |row: &&Row| {
            let [running, in_call, ready, blocked] = row.times.map(seconds);
            let (id, name) = (self.id(row), (*row.comm).into());
            let (turns, traps) = (row.turns.into(), row.traps.into());
            let exit = self.exit(row).into();
            [
                id, name, turns, traps, running, in_call, ready, blocked, exit,
            ]
        };
        let rows: Vec<_> = shown.iter().map(cells).collect();
        let columns = "task  turns  traps  running  in call  ready  blocked  exit";
        table(self.columns(columns), &rows)
    }

    /// What the shown rows were blocked on, and the longest wait of each.
    fn blocked_table(&self, shown: &[&Row]) -> Option<String> {
        let cells = |row: &&Row| -> Option<[Value; 6]> {
            let (span, what, since) = row.longest?;
            let (name, on) = ((*row.comm).into(), self.mostly_on(row).into());
            let since = Nanos::from(since).to_string().into();
            let what = self.say(what).into();
            Some([self.id(row), name, on, seconds(span), what, since])
        };
        let rows: Vec<_> = shown.iter().filter_map(cells).collect();
        let columns = "was blocked  on  longest  for  at";
        (!rows.is_empty()).then(|| table(self.columns(columns), &rows))
    }

    /// The waits for a turn, of the shown rows and of all.
    fn waits_table(&self, shown: &[&Row]) -> String {
        let cells = |id: Value, name: &str, place: Option<u32>| {
            let [times, nanos @ ..] = self.nanos.quantiles(place);
            let [median, high, most] = nanos.map(|nanos| seconds(Duration::from_nanos(nanos)));
            let [_, in_turns, high_turns, most_turns] =
                self.turns.quantiles(place).map(Value::from);
            let (name, times) = (name.into(), times.into());
            [
                id, name, times, median, high, most, in_turns, high_turns, most_turns,
            ]
        };
        let rows = shown.iter();
        let rows = rows.map(|row| cells(self.id(row), &row.comm, Some(row.place)));
        let mut rows: Vec<_> = rows.filter(|[_, _, times, ..]| *times != 0).collect();
        rows.push(cells("".into(), "all", None));
        let columns = "waited for a turn  times  median  99th  most  in turns  99th  most";
        table(self.columns(columns), &rows)
    }

    fn show_json(&self, out: &mut impl Write, header: &Header) -> Result<(), Failure> {
        let shares = self.shares();
        let run = json!({
            "summary": "run",
            "command": header.command,
            "seed": header.seed,
            "policy": header.policy,
            "quantum": header.quantum,
            "world": world(header),
            "version": header.version,
            "events": self.events,
            "missing": self.missing,
            "deadlocks": self.deadlocked,
            "time": seconds(self.spans.now().at),
            "tasks": seconds(shares.tasks),
            "kernel": seconds(shares.kernel),
            "idle": seconds(shares.idle),
        });
        let deadlocks = self.deadlocks.iter().map(|closed| {
            json!({ "summary": "deadlock", "at": seconds(closed.at), "cycle": closed.cycle })
        });
        let tasks = self.rows.iter().map(|row| self.json(row));
        let lines = [run].into_iter().chain(deadlocks).chain(tasks);
        for line in lines.chain(calls_sheet(&self.calls).objects()) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn say(&self, what: What) -> String {
        let words = self.words.get(&what).map(|words| clean(words));
        words.unwrap_or_else(|| what.to_string())
    }

    /// What it was blocked on most; all reasons, if they are few.
    fn mostly_on(&self, row: &Row) -> String {
        let mut on: Vec<_> = of_row(&self.on, row.place, What::FIRST).collect();
        on.sort_by_key(|&(what, span)| (Reverse(span), what));
        let [.., all] = row.times;
        let text = |&(what, span): &(&What, &Duration)| match on.len() == 1 || all.is_zero() {
            true => self.say(*what),
            false => format!("{} {}", self.say(*what), share(*span, all)),
        };
        few(on.iter().map(text), 2, |more| format!("{more} more")).join(", ")
    }

    fn exit(&self, row: &Row) -> String {
        let mut exits: Vec<_> = of_row(&self.exits, row.place, String::new()).collect();
        exits.sort_by_key(|&(exit, count)| (Reverse(count), exit));
        let text = |(exit, count): (&String, &u64)| match row.tasks {
            0 | 1 => exit.clone(),
            _ => format!("{count} {exit}"),
        };
        few(exits.into_iter().map(text), 2, |_| "...".to_string()).join(", ")
    }

    fn json(&self, row: &Row) -> Value {
        let on = of_row(&self.on, row.place, What::FIRST);
        let on = on.map(|(what, span)| (self.say(*what), seconds(*span)));
        let exits = of_row(&self.exits, row.place, String::new());
        let longest = row.longest.map(|(span, what, since)| {
            json!({ "seconds": seconds(span), "on": self.say(what), "at": seconds(since) })
        });
        let [running, in_call, ready, blocked] = row.times.map(seconds);
        let place = Some(row.place);
        let [_, median, high, most] = self.nanos.quantiles(place).map(|n| n as f64 / 1e9);
        let [_, in_turns, high_turns, most_turns] = self.turns.quantiles(place);
        let mut line = json!({
            "summary": "task",
            "task": row.comm,
            "tasks": row.tasks,
            "turns": row.turns,
            "traps": row.traps,
            "running": running,
            "in_call": in_call,
            "ready": ready,
            "blocked": blocked,
            "blocked_on": on.collect::<BTreeMap<_, _>>(),
            "longest": longest,
            "latency": { "median": median, "99th": high, "most": most },
            "latency_turns": { "median": in_turns, "99th": high_turns, "most": most_turns },
            "exits": exits.collect::<BTreeMap<_, _>>(),
        });
        if !self.by_name {
            line["tid"] = number_of(row.tid);
        }
        line
    }
}

fn calls_sheet<'a>(calls: impl IntoIterator<Item = (&'a &'static str, &'a Calls)>) -> Sheet<7> {
    let row = |(name, call): (&&'static str, &Calls)| {
        let [total, median, high, longest] = call.times().map(seconds);
        let (name, count, errors) = ((*name).into(), call.count.into(), call.errors.into());
        [name, count, errors, total, median, high, longest]
    };
    Sheet {
        of: "call",
        columns: "call  count  errors  total  median  99th  longest",
        rows: calls.into_iter().map(row).collect(),
    }
}

/// The entries of a row, from the smallest key on.
fn of_row<K: Ord, V>(
    map: &BTreeMap<(u32, K), V>,
    place: u32,
    smallest: K,
) -> impl Iterator<Item = (&K, &V)> {
    let entries = map.range((place, smallest)..);
    let entries = entries.take_while(move |((of, _), _)| *of == place);
    entries.map(|((_, key), value)| (key, value))
}
