//! `trace summary`: how the time of a run was used, the totals of each task and each call, and the
//! times for which ready tasks waited. `trace diff` compares two of these.

use std::{
    cmp::Reverse, collections::BTreeMap, io::Write, path::PathBuf, process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueHint};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use trapline::{
    Call, Doing, Ending, Event, Ledger, Nanos, Span, Tid,
    record::{Header, OwnedEvent},
};

use super::{
    source::{Failure, Source, world},
    spans::{Shares, Spans, What, share},
};
use crate::{
    amounts::{Amounts, Calls, nanos},
    live::text::number_of,
    output::{Log, clean},
    table::{ALIVE, Sheet, seconds, table},
    units::{count, few, number},
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

/// The states in which a task spends its time.
pub(super) const STATES: [&str; 4] = ["running", "in call", "ready", "blocked"];

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
    /// The times are from the trap to the answer.
    calls: BTreeMap<&'static str, Calls>,
    /// The first cycles of waits that closed, and the number of all.
    deadlocks: Vec<Closed>,
    deadlocked: u64,
    spans: Spans,
    events: u64,
    missing: u64,
}

/// A cycle of waits that closed. Each task waits for the next, and the last for the first.
struct Closed {
    at: Duration,
    cycle: Vec<u64>,
    /// The same with the names.
    way: String,
}

/// A row of a table: a task, or all tasks of a name.
#[derive(Default)]
struct Row {
    tid: Tid,
    comm: Box<str>,
    /// Its index before the rows were sorted: the key in the maps over all rows.
    place: u32,
    tasks: u64,
    turns: u64,
    traps: u64,
    /// In each of [`STATES`].
    times: [Duration; 4],
    /// Its longest wait: the length, what it waited for, and the instant.
    longest: Option<(Duration, What, Duration)>,
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
    pub(super) fn new(by_name: bool) -> Self {
        Self {
            by_name,
            most: MOST,
            ..Self::default()
        }
    }

    pub(super) fn tasks(&self) -> &Ledger {
        self.spans.tasks()
    }

    /// By name: the time in each state, and the median and the 99th percentile of the waits for a turn.
    pub(super) fn times(&self) -> BTreeMap<&str, [Duration; 6]> {
        let times = |row: &'_ Row| {
            let [_, median, high, _] = self.nanos.quantiles(Some(row.place));
            let [median, high] = [median, high].map(Duration::from_nanos);
            let [running, in_call, ready, blocked] = row.times;
            [running, in_call, ready, blocked, median, high]
        };
        let rows = self.rows.iter();
        rows.map(|row| (&*row.comm, times(row))).collect()
    }

    pub(super) fn calls(&self) -> BTreeMap<&str, [Duration; 4]> {
        let calls = self.calls.iter();
        calls.map(|(name, call)| (*name, call.times())).collect()
    }

    pub(super) fn shares(&self) -> Shares {
        self.spans.shares()
    }

    /// Takes the next event of a recording. Refuses a summary that would take too much memory.
    pub(super) fn next(&mut self, source: &mut Source) -> Result<Option<OwnedEvent>, Failure> {
        let Some(event) = source.next() else {
            return Ok(None);
        };
        if let Some(gap) = source.gap() {
            self.missing += gap;
            self.spans.gap();
        }
        self.event(&event);
        self.check()?;
        Ok(Some(event))
    }

    fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        for span in self.spans.event(event) {
            self.span(&span);
        }
        if event.tid.is_kernel() {
            return;
        }
        let place = self.place(event.tid);
        let row = &mut self.rows[place as usize];
        let (tasks, fact) = (self.spans.tasks(), &event.fact);
        row.tasks += u64::from(fact.spawned().is_some());
        row.turns += u64::from(fact.is_resumed());
        if let Some(Call(call, _)) = fact.call() {
            row.traps += 1;
            self.calls.entry(call.name()).or_default().count += 1;
        } else if fact.answer().is_some() {
            // A wait after the answer is a timeout.
            if let Some(trap) = tasks.last(event.tid).filter(|trap| !trap.is_late) {
                let call = self.calls.entry(trap.call.name()).or_default();
                call.add(event.at.saturating_sub(trap.at));
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
                let step = |tid: &Tid| format!("{tid} {} -> ", clean(tasks.comm(*tid)));
                let way = cycle.iter().map(step).collect();
                let cycle = cycle.iter().copied().map(u64::from).collect();
                let at = event.at;
                self.deadlocks.push(Closed { at, cycle, way });
            }
        }
    }

    /// Adds the time of a call whose answer does not come: its task ends, or the recording.
    fn unanswered(&mut self, tid: Tid, now: Duration) {
        if let Some(trap) = self.spans.tasks().pending(tid) {
            let call = self.calls.entry(trap.call.name()).or_default();
            call.add(now.saturating_sub(trap.at));
        }
    }

    fn place(&mut self, tid: Tid) -> u32 {
        let comm = self.spans.tasks().comm(tid);
        let known = match self.by_name {
            true => self.by_comm.get(comm),
            false => self.by_tid.get(&tid),
        };
        if let Some(&place) = known {
            return place;
        }
        let place = self.rows.len() as u32;
        match self.by_name {
            true => self.by_comm.insert(comm.into(), place),
            false => self.by_tid.insert(tid, place),
        };
        self.rows.push(Row {
            tid,
            comm: comm.into(),
            place,
            ..Row::default()
        });
        place
    }

    fn check(&self) -> Result<(), Failure> {
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
        Err(format!("a summary of more than {} {what}", number(most)).into())
    }

    fn span(&mut self, span: &Span) {
        if span.tid.is_kernel() {
            return;
        }
        let took = span.time();
        let place = self.place(span.tid);
        let row = &mut self.rows[place as usize];
        let state = match span.doing {
            Doing::Running => 0,
            Doing::InCall => 1,
            Doing::Ready => {
                // A task that has not run yet has no wait for a turn.
                if span.end == Ending::Next {
                    self.nanos.add(place, nanos(took), 1);
                    self.turns.add(place, span.to.turn - span.from.turn, 1);
                }
                2
            }
            Doing::Blocked(on) => {
                let what = What::from(on);
                let what = if self.by_name { what.kind() } else { what };
                if let What::Queue(..) = what {
                    let thing = || self.spans.tasks().thing(on);
                    self.words.entry(what).or_insert_with(thing);
                }
                *self.on.entry((place, what)).or_default() += took;
                if row.longest.is_none_or(|(longest, ..)| took > longest) {
                    row.longest = Some((took, what, span.from.at));
                }
                3
            }
            Doing::Idle => return,
        };
        row.times[state] += took;
    }

    /// Takes the spans that were open at the end.
    pub(super) fn finish(&mut self) {
        for span in self.spans.finish() {
            if !span.tid.is_kernel() {
                self.span(&span);
                self.unanswered(span.tid, span.to.at);
                let alive = (self.place(span.tid), ALIVE.to_string());
                *self.exits.entry(alive).or_default() += 1;
            }
        }
        match self.by_name {
            true => self.rows.sort_by(|a, b| a.comm.cmp(&b.comm)),
            false => self.rows.sort_by_key(|row| row.tid),
        }
        self.rows.sort_by_key(|row| Reverse(row.busy()));
    }

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

impl Row {
    /// The time in which its tasks ran, or the kernel worked at their calls.
    fn busy(&self) -> Duration {
        self.times[0] + self.times[1]
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

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use trapline::{Kernel, Os, SimWorld};

    use super::*;

    /// What a summary of at most two rows returns for three spawned tasks.
    fn refused(by_name: bool, names: [&'static str; 3]) -> Option<String> {
        let counted = Rc::new(RefCell::new(Summary {
            by_name,
            most: 2,
            ..Summary::default()
        }));
        let shared = Rc::clone(&counted);
        let tracer = move |event: &Event<'_>| shared.borrow_mut().event(event);
        let builder = Kernel::builder().world(SimWorld::new(1)).tracer(tracer);
        let mut kernel = builder.build().unwrap();
        names.into_iter().find_map(|name| {
            kernel.spawn(name, async |_: &mut Os| ()).unwrap();
            match counted.borrow().check() {
                Err(Failure::Said(message)) => Some(message),
                Err(_) => panic!("nothing is written"),
                Ok(()) => None,
            }
        })
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
}
