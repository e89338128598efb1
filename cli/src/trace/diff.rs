//! `trace diff`: finds where two runs diverge, and compares the totals and the times of each task and
//! each call.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    io::Write,
    mem,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueHint};
use serde_json::Value;
use trapline::{
    Answered, Call, Event, Fact, Nanos, On, Reply, SystemCall, Tid,
    record::{Header, OwnedEvent},
};

use super::{
    source::{Failure, Source, world},
    timeline::pair::pair,
    totals::{STATES, Summary},
    twins::{ROWS, Totals, Twin, Twins},
};
use crate::{
    outfile::{OutFile, is_stdout},
    output::{Log, clean},
    table::{seconds, table},
    units::{count, span},
    words::command_line,
};

/// The largest number of ended tasks of a run that are kept for their twins.
const UNPAIRED: usize = 1 << 16;
/// The mark for a run that has no more events.
const END: &str = "(the end)";
/// The number of events shown before the first difference, and after it in each run.
const CONTEXT: usize = 5;

/// Compare two runs: where they diverge, which totals differ, and what took longer
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 the runs are the same, 1 they differ, 2 a recording cannot be read, or not to its end.

Two events are the same only if their times are, provided that both runs were simulated. Otherwise \
deadlines and the kernel's sleeps are ignored too. The tables of times are of all tasks of a name and \
of all calls of a kind. In a row of tasks, the first task of a name in A is compared with the first \
of that name in B, and so on. A table has at most 1,000 rows. Of more than 65,536 tasks without a twin \
so far, the later ones of a name are compared by their sums. A run has at most 1,048,576 names of tasks, \
and as many tasks at once: more would take too much memory. --ignore-times leaves the tables of times out.

Examples:
  trace diff before.trap after.trap
  trace diff --html both.html before.trap after.trap
  trace diff --ignore-times seed-1.trap seed-2.trap")]
pub(crate) struct DiffCommand {
    /// A recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    a: PathBuf,
    /// Another one
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    b: PathBuf,
    /// Compare the events and ignore their times
    #[arg(long)]
    ignore_times: bool,
    /// Write a page to FILE, too: both runs above each other, on one axis; - for standard output,
    /// instead of the text
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
}

/// One of the two runs.
struct Side {
    source: Source,
    is_timed: bool,
    /// The tasks that have not ended, and the number of tasks of each name. The summary, which has a
    /// row per name, limits both.
    live: BTreeMap<Tid, (Twin, Totals)>,
    names: BTreeMap<String, u64>,
    calls: BTreeMap<&'static str, [u64; 2]>,
    /// The times, by name.
    summary: Summary,
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
        let files = [&*self.a, &*self.b];
        let stdins = files.iter().filter(|file| **file == Path::new("-"));
        match stdins.count() {
            2 => {
                let why = "standard input holds one recording: name a file for the other";
                return Err(why.to_string().into());
            }
            1 if self.html.is_some() => {
                let why = "--html reads both recordings twice: name files";
                return Err(why.to_string().into());
            }
            _ => {}
        }
        let open = |path: &PathBuf| OutFile::open("--html", path, &files);
        let page = self.html.as_ref().map(open).transpose()?;
        let (a, b) = (
            Source::of_one(&self.a, "trace diff")?,
            Source::of_one(&self.b, "trace diff")?,
        );
        let is_simulated = a.header().is_simulated && b.header().is_simulated;
        let is_timed = is_simulated && !self.ignore_times;
        let mut sides = [Side::new(a, is_timed), Side::new(b, is_timed)];
        let (mut parting, mut twins) = (Parting::default(), Twins::keeping(UNPAIRED));
        loop {
            let [a, b] = &mut sides;
            let next = [a.next()?, b.next()?];
            if let [None, None] = next {
                break;
            }
            parting.look(&next, &sides, log);
            for (run, (side, event)) in sides.iter_mut().zip(next).enumerate() {
                if let Some(event) = event
                    && let Some((twin, totals)) = side.count(&event)
                {
                    twins.ended(run, twin, totals);
                }
            }
        }
        for (run, side) in sides.iter_mut().enumerate() {
            side.source.warn_of_gaps(log);
            side.summary.finish();
            for (twin, totals) in mem::take(&mut side.live).into_values() {
                twins.ended(run, twin, totals);
            }
        }
        twins.finish();
        let differ = parting.after.is_some();
        let mut text = Vec::new();
        if differ {
            show(&mut text, &sides, &parting, &twins)?;
        } else {
            log.note(&format!("the runs are the same: {} events", parting.same));
        }
        if !self.ignore_times {
            show_times(&mut text, &sides)?;
        }
        if !self.html.as_deref().is_some_and(is_stdout) {
            out.write_all(&text)?;
            out.flush()?;
        }
        if let Some(page) = page {
            page.write(pair(files, &String::from_utf8_lossy(&text))?.as_bytes())?;
        }
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
            live: BTreeMap::new(),
            names: BTreeMap::new(),
            calls: BTreeMap::new(),
            summary: Summary::new(true),
        }
    }

    /// The next event to compare.
    fn next(&mut self) -> Result<Option<OwnedEvent>, Failure> {
        while let Some(event) = self.summary.next(&mut self.source)? {
            if self.is_timed || event.fact.jumped_from().is_none() {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn line(&self, event: &OwnedEvent, log: Log) -> String {
        let at = format!("{:.6}", Nanos::from(event.at));
        let comm = clean(self.summary.tasks().comm(event.tid));
        let columns = log.columns(&at, event.tid, &comm);
        format!("{columns}{}", clean(&event.fact.to_string()))
    }

    /// Counts an event. Returns the task that it ends.
    fn count(&mut self, event: &OwnedEvent) -> Option<(Twin, Totals)> {
        let Event { tid, ref fact, .. } = *event;
        if tid.is_kernel() {
            return None;
        }
        if fact.is_reaped() {
            // It ended before, unless its end is missing.
            return self.live.remove(&tid);
        }
        let (tasks, names) = (self.summary.tasks(), &mut self.names);
        let (_, task) = self.live.entry(tid).or_insert_with(|| {
            let comm = tasks.comm(tid).to_string();
            let number = names.entry(comm.clone()).or_default();
            *number += 1;
            ((comm, *number), Totals::default())
        });
        task.turns += u64::from(fact.is_resumed());
        if let Some(exit) = fact.exit() {
            task.exit = Some(exit.to_string());
            return self.live.remove(&tid);
        }
        if let Some(Call(call, _)) = fact.call() {
            task.traps += 1;
            self.calls.entry(call.name()).or_default()[0] += 1;
        } else if fact.answer().is_some() && tasks.is_error(event) {
            let call = tasks.last(tid).map_or("?", |last| last.call.name());
            self.calls.entry(call).or_default()[1] += 1;
        }
        None
    }
}

impl Parting {
    /// Reads the next event of both.
    fn look(&mut self, next: &[Option<OwnedEvent>; 2], sides: &[Side; 2], log: Log) {
        if self.after.is_none() && is_same(next, sides[0].is_timed) {
            self.same += 1;
            if self.before.len() == CONTEXT {
                self.before.pop_front();
            }
            let event = next[0].as_ref();
            return self
                .before
                .extend(event.map(|event| sides[0].line(event, log)));
        }
        let after = self.after.get_or_insert_default();
        for ((lines, event), side) in after.iter_mut().zip(next).zip(sides) {
            if lines.len() < CONTEXT && lines.last().is_none_or(|line| line != END) {
                let event = event.as_ref();
                lines.push(event.map_or_else(|| END.to_string(), |event| side.line(event, log)));
            }
        }
    }
}

/// Whether both events are the same, wherever in the source they come from.
fn is_same(next: &[Option<OwnedEvent>; 2], is_timed: bool) -> bool {
    let [Some(a), Some(b)] = next else {
        return false;
    };
    let facts = [&a.fact, &b.fact];
    let are_times =
        || !is_timed && a.fact.word() == b.fact.word() && facts.into_iter().all(is_of_time);
    a.tid == b.tid && (a.at == b.at || !is_timed) && (a.fact == b.fact || are_times())
}

/// Whether a fact holds an instant, and nothing else that could differ.
fn is_of_time(fact: &Fact<'_>) -> bool {
    matches!(fact.blocked_on(), Some(On::Timer(_)))
        || matches!(fact.answer(), Some(Answered(Reply::Time(_), _)))
        || matches!(fact.call(), Some(Call(SystemCall::SleepUntil(_), _)))
}

fn show(
    out: &mut impl Write,
    sides: &[Side; 2],
    parting: &Parting,
    twins: &Twins,
) -> Result<(), Failure> {
    let [a, b] = sides;
    for (mark, side) in [("---", a), ("+++", b)] {
        let command = clean(&command_line(&side.source.header().command));
        writeln!(out, "{mark} {}: {command}", side.source.name())?;
    }
    for difference in headers(a.source.header(), b.source.header()) {
        writeln!(out, "{difference}")?;
    }
    match parting.same {
        1 => writeln!(out, "the first event is the same")?,
        same => writeln!(out, "the first {} are the same", count(same, "event"))?,
    }
    for line in &parting.before {
        writeln!(out, "  {line}")?;
    }
    for (mark, lines) in ["-", "+"].into_iter().zip(parting.after.iter().flatten()) {
        for line in lines {
            writeln!(out, "{mark} {line}")?;
        }
    }
    let (tasks, more) = twins.rows();
    if !tasks.is_empty() {
        let columns = "task  of its name  turns A  B  traps A  B  exit A  B";
        writeln!(out, "\n{}", table(columns.split("  "), &tasks))?;
        left_out(out, more, "row")?;
    }
    let calls = call_rows(sides);
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
    let settings = |of: &Header| {
        [
            ("worlds", world(of).to_string()),
            ("seeds", of.seed.to_string()),
            ("policies", of.policy.clone()),
            ("quanta", of.quantum.to_string()),
            ("versions", of.version.clone()),
        ]
    };
    let both = settings(a).into_iter().zip(settings(b));
    let differ = both.filter(|(a, b)| a != b);
    differ
        .map(|((what, a), (_, b))| format!("{what}: {} and {}", clean(&a), clean(&b)))
        .collect()
}

/// Says how many rows are left out of a table.
fn left_out(out: &mut impl Write, more: u64, what: &str) -> Result<(), Failure> {
    if more > 0 {
        let more = count(more, &format!("more {what}"));
        writeln!(out, "and {more} that differ")?;
    }
    Ok(())
}

/// The values of both runs by name, in order.
fn both<T: Copy + Default, const N: usize>(
    runs: [BTreeMap<&str, [T; N]>; 2],
) -> BTreeMap<&str, [[T; N]; 2]> {
    let mut both = BTreeMap::new();
    for (run, values) in runs.into_iter().enumerate() {
        for (name, value) in values {
            both.entry(name).or_insert([[T::default(); N]; 2])[run] = value;
        }
    }
    both
}

/// The calls that differ.
fn call_rows(sides: &[Side; 2]) -> Vec<[Value; 5]> {
    let mut calls = both(sides.each_ref().map(|side| side.calls.clone()));
    calls.retain(|_, [a, b]| a != b);
    let row = |(name, [a, b]): (&str, [[u64; 2]; 2])| {
        let [count, other, errors, other_errors] = [a[0], b[0], a[1], b[1]].map(Value::from);
        [name.into(), count, other, errors, other_errors]
    };
    calls.into_iter().map(row).collect()
}

/// The times of both runs: of the whole, by name, and by call.
fn show_times(out: &mut impl Write, sides: &[Side; 2]) -> Result<(), Failure> {
    let summaries = sides.each_ref().map(|side| &side.summary);
    let [running, in_call, ready, blocked] = STATES;
    let (median, high) = ("wait for a turn, median", "wait for a turn, 99th");
    let labels = [running, in_call, ready, blocked, median, high];
    let tasks = time_rows(labels, summaries.map(Summary::times));
    let labels = ["total", "median", "99th", "longest"];
    let calls = time_rows(labels, summaries.map(Summary::calls));
    if tasks.0.is_empty() && calls.0.is_empty() {
        return Ok(());
    }
    let [a, b] = summaries.map(Summary::shares);
    writeln!(out, "\nA: {a}\nB: {b}")?;
    for (first, (rows, more)) in [("task", tasks), ("call", calls)] {
        if !rows.is_empty() {
            let columns = [first, "time", "A", "B", "B - A"];
            writeln!(out, "\n{}", table(columns, &rows))?;
            left_out(out, more, "time")?;
        }
    }
    Ok(())
}

/// The rows of a table of the times that differ, and the number of those that are left out. The name
/// that differs most comes first.
fn time_rows<const N: usize>(
    labels: [&str; N],
    runs: [BTreeMap<&str, [Duration; N]>; 2],
) -> (Vec<[Value; 5]>, u64) {
    let mut names: Vec<_> = both(runs).into_iter().collect();
    names.sort_by_key(|(_, [a, b])| Reverse(a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max()));
    let rows = names.into_iter().flat_map(|(name, [a, b])| {
        let times = labels.into_iter().zip(a).zip(b);
        let differ = times.filter(|((_, a), b)| a != b);
        differ.map(move |((label, a), b)| {
            let sign = if b < a { "-" } else { "+" };
            let difference = format!("{sign}{}", span(a.abs_diff(b)));
            [
                name.into(),
                label.into(),
                seconds(a),
                seconds(b),
                difference.into(),
            ]
        })
    });
    let mut rows: Vec<_> = rows.collect();
    let more = rows.len().saturating_sub(ROWS) as u64;
    rows.truncate(ROWS);
    (rows, more)
}
