//! The tables of `--summary`: how the time was used, the totals of each call, and what each task did.

use std::{cell::RefCell, cmp::Reverse, collections::BTreeMap, rc::Rc, time::Duration};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use trapline::{Doing, Event, Ledger, Nanos, Span, Tid};

use super::{
    amounts::Calls,
    measures::Measured,
    output::{Log, tell},
    table::{ALIVE, Sheet, seconds},
    trace::spans::Spans,
    units::{count, number},
};

/// The largest number of tasks in the table, which shows those with the most time.
const ROWS: usize = 1000;

/// Counts events. A tracer and the command line share it.
#[derive(Default)]
pub(super) struct Summary {
    /// By task: the live tasks, and the ended tasks that may still appear in the table. With a row per
    /// name: by the first task of the name.
    rows: BTreeMap<Tid, Row>,
    /// With a row per name: the first task of each.
    names: Option<FxHashMap<Box<str>, Tid>>,
    spawned: usize,
    /// The number of ended tasks in `rows`.
    ended: usize,
    calls: BTreeMap<&'static str, Calls>,
    spans: Spans,
    ticks: u64,
}

/// A task, or the tasks of a name.
#[derive(Default)]
struct Row {
    name: Box<str>,
    tasks: u64,
    ticks: u64,
    traps: u64,
    /// The time in which it ran, or the kernel worked at its calls.
    busy: Duration,
    blocked: Duration,
    /// The number of tasks that ended so.
    exits: BTreeMap<String, u64>,
    /// Of a task alone.
    measured: Measured,
}

impl Summary {
    /// One with a row per task, or per name.
    pub(super) fn new(by_name: bool) -> Self {
        Self {
            names: by_name.then(FxHashMap::default),
            ..Self::default()
        }
    }

    /// A tracer that counts into `summary`.
    pub(super) fn tracer(summary: &Rc<RefCell<Self>>) -> impl FnMut(&Event<'_>) + use<> {
        let summary = Rc::clone(summary);
        move |event| summary.borrow_mut().count(event)
    }

    fn count(&mut self, event: &Event<'_>) {
        let spans = self.spans.event(event);
        let (tid, fact) = (event.tid, &event.fact);
        if tid == Tid::KERNEL {
            return;
        }
        if let Some((_, name)) = fact.spawned() {
            let names = self.names.as_mut();
            let key = names.map_or(tid, |names| *names.entry(name.into()).or_insert(tid));
            let row = self.rows.entry(key).or_default();
            row.name = name.into();
            row.tasks += 1;
            self.spawned += 1;
        }
        let (key, tasks) = (self.key(tid), self.spans.tasks());
        let Some(row) = self.rows.get_mut(&key) else {
            return;
        };
        for span in spans {
            row.add(&span, tasks, &mut self.calls);
        }
        if self.names.is_none() {
            row.measured.event(event);
        }
        if fact.is_resumed() {
            row.ticks += 1;
            self.ticks += 1;
        } else if let Some(call) = fact.call() {
            row.traps += 1;
            self.calls.entry(call.0.name()).or_default().count += 1;
        } else if fact.answer().is_some() {
            if tasks.is_error(event)
                && let Some(last) = tasks.last(tid)
            {
                self.calls.entry(last.call.name()).or_default().errors += 1;
            }
        } else if let Some(exit) = fact.exit() {
            *row.exits.entry(exit.to_string()).or_default() += 1;
            self.ended += 1;
            if self.names.is_none() && self.ended == 2 * ROWS {
                self.forget(|task| !task.exits.is_empty());
                self.ended = ROWS;
            }
        }
    }

    /// The key of a task's row.
    fn key(&self, tid: Tid) -> Tid {
        let names = self.names.as_ref();
        let first = names.and_then(|names| names.get(self.spans.tasks().comm(tid)));
        first.copied().unwrap_or(tid)
    }

    /// Of the tasks of that kind, keeps those with the most time; of equals, those with the most traps,
    /// and then the oldest.
    fn forget(&mut self, kind: impl Fn(&Row) -> bool) {
        let mut tasks: Vec<_> = self.rows.iter().filter(|(_, task)| kind(task)).collect();
        tasks.sort_by_key(|(_, task)| Reverse((task.busy, task.traps)));
        let others: Vec<_> = tasks.into_iter().skip(ROWS).map(|(tid, _)| *tid).collect();
        for tid in others {
            self.rows.remove(&tid);
        }
    }

    /// Prints the tables, as of `now`.
    pub(super) fn show(mut self, log: Log, now: Duration) {
        self.finish(now);
        if !log.is_json() {
            tell(&format!("{}\n", self.spans.shares()));
        }
        show(log, self.calls());
        show(log, self.tasks());
        let left_out = self.spawned - self.rows.len();
        if self.names.is_none() {
            if left_out > 0 && log.is_json() {
                log.json(&json!({ "summary": "left_out", "tasks": left_out }));
            } else if left_out > 0 {
                tell(&format!(
                    "and {}: --by-name takes them together\n",
                    count(left_out as u64, "more task")
                ));
            }
            if self
                .rows
                .values()
                .any(|task| !task.measured.computed.is_zero())
            {
                show(log, self.schedule());
            }
        }
        if !log.is_json() {
            let (n, now) = (self.spawned, Nanos::from(now));
            let traps: u64 = self.calls.values().map(|call| call.count).sum();
            let [n, ticks, traps] = [n as u64, self.ticks, traps].map(number);
            tell(&format!(
                "\ntasks {n}, ticks {ticks}, traps {traps}, time {now:.6}\n"
            ));
        }
    }

    /// Takes what is under way.
    fn finish(&mut self, now: Duration) {
        for mut span in self.spans.finish() {
            if let Doing::Blocked(_) = span.doing {
                span.to.at = now;
            }
            let key = self.key(span.tid);
            if let Some(row) = self.rows.get_mut(&key) {
                row.add(&span, self.spans.tasks(), &mut self.calls);
            }
        }
        for row in self.rows.values_mut() {
            let alive = row.tasks - row.exits.values().sum::<u64>();
            if alive > 0 {
                row.exits.insert(ALIVE.to_string(), alive);
            }
            row.measured.close(now);
        }
        if self.names.is_none() {
            self.forget(|_| true);
        }
        self.calls.values_mut().for_each(Calls::fill);
    }

    fn calls(&self) -> Sheet<6> {
        let row = |(name, call): (&&'static str, &Calls)| {
            let [blocked, median, high, _] = call.times().map(seconds);
            let (count, errors) = (call.count.into(), call.errors.into());
            [(*name).into(), count, errors, blocked, median, high]
        };
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|(_, call)| Reverse(call.total));
        Sheet {
            of: "call",
            columns: "call  count  errors  blocked  median  99th",
            rows: calls.into_iter().map(row).collect(),
        }
    }

    /// Those with the most time come first; of equal names, those with the most ticks.
    fn tasks(&self) -> Sheet<7> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        let by_name = self.names.is_some();
        if by_name {
            rows.sort_by_key(|(_, row)| (Reverse(row.ticks), &row.name));
        }
        rows.sort_by_key(|(_, row)| Reverse(row.busy));
        let cells = |(tid, row): (&Tid, &Row)| {
            let exits = row.exits.iter().map(|(exit, n)| match by_name {
                true => format!("{n} {exit}"),
                false => exit.clone(),
            });
            [
                if by_name { row.tasks } else { (*tid).into() }.into(),
                (*row.name).into(),
                row.ticks.into(),
                row.traps.into(),
                seconds(row.busy),
                seconds(row.blocked),
                exits.collect::<Vec<_>>().join(", ").into(),
            ]
        };
        let (of, columns) = match by_name {
            true => ("name", "tasks  task  ticks  traps  busy  blocked  exit"),
            false => ("task", "tid  task  ticks  traps  busy  blocked  exit"),
        };
        Sheet {
            of,
            columns,
            rows: rows.into_iter().map(cells).collect(),
        }
    }

    /// The textbook's measures of each task.
    fn schedule(&self) -> Sheet<7> {
        let row = |(tid, task): (&Tid, &Row)| {
            let measured = &task.measured;
            let [arrival, response, turnaround] =
                [measured.arrival, measured.response(), measured.turnaround()]
                    .map(|span| span.map_or(Value::Null, seconds));
            let [waiting, computed] = [measured.waiting, measured.computed].map(seconds);
            let (tid, name) = (u64::from(*tid).into(), (*task.name).into());
            [tid, name, arrival, response, turnaround, waiting, computed]
        };
        Sheet {
            of: "schedule",
            columns: "tid  task  arrival  response  turnaround  waiting  computed",
            rows: self.rows.iter().map(row).collect(),
        }
    }
}

impl Row {
    /// Adds a span of its task.
    fn add(&mut self, span: &Span, tasks: &Ledger, calls: &mut BTreeMap<&str, Calls>) {
        if span.is_busy() {
            self.busy += span.time();
        } else if let Doing::Blocked(_) = span.doing {
            self.blocked += span.time();
            // A task that prints and ends may wait for the console before its first call.
            if let Some(last) = tasks.last(span.tid) {
                calls.entry(last.call.name()).or_default().add(span.time());
            }
        }
    }
}

fn show<const N: usize>(log: Log, sheet: Sheet<N>) {
    match log.is_json() {
        true => sheet.objects().for_each(|line| log.json(&line)),
        false => tell(&format!("\n{sheet}\n")),
    }
}
