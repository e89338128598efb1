//! The tables of `--summary`: how the time was used, the totals of each call, and what each task did.

use std::{cell::RefCell, cmp::Reverse, collections::BTreeMap, rc::Rc, time::Duration};

use serde_json::{Map, Value, json};
use trapline::{Event, Nanos, Span, Tid};

use super::{
    amounts::{Amounts, Bucket, quantiles},
    measures::Measured,
    output::{Log, tell},
    table::table,
    trace::spans::Spans,
};

/// The largest number of tasks in the table, which shows those with the most time.
const ROWS: usize = 1000;

/// Counts events. A tracer and the command line share it.
#[derive(Default)]
pub(super) struct Summary {
    /// The live tasks, and the ended tasks that may still appear in the table.
    tasks: BTreeMap<Tid, Task>,
    spawned: usize,
    /// The number of ended tasks in `tasks`.
    ended: usize,
    calls: BTreeMap<&'static str, Call>,
    /// With a row per name: the ended tasks of each name.
    names: Option<BTreeMap<String, Names>>,
    spans: Spans,
    ticks: u64,
}

/// The tasks of a name.
#[derive(Default)]
struct Names {
    tasks: u64,
    ticks: u64,
    traps: u64,
    busy: Duration,
    blocked: Duration,
    /// The number of tasks that ended so.
    exits: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Task {
    name: String,
    exit: Option<String>,
    traps: u64,
    ticks: u64,
    /// The time in which it ran, or the kernel worked at its calls.
    busy: Duration,
    blocked: Duration,
    /// The instant since which the task is blocked.
    since: Option<Duration>,
    measured: Measured,
}

#[derive(Default)]
struct Call {
    count: u64,
    errors: u64,
    blocked: Duration,
    /// The nanoseconds of each wait, all at place 0.
    spans: Amounts,
}

/// A table, formatted later for people or as JSON.
struct Sheet<const N: usize> {
    of: &'static str,
    columns: [&'static str; N],
    rows: Vec<[Value; N]>,
}

impl Summary {
    /// One with a row per task, or per name.
    pub(super) fn new(by_name: bool) -> Self {
        Self {
            names: by_name.then(BTreeMap::new),
            ..Self::default()
        }
    }

    /// A tracer that counts into `summary`.
    pub(super) fn tracer(summary: &Rc<RefCell<Self>>) -> impl FnMut(&Event<'_>) + use<> {
        let summary = Rc::clone(summary);
        move |event| summary.borrow_mut().count(event)
    }

    fn count(&mut self, event: &Event<'_>) {
        let ended = self.spans.event(event);
        let busy: Duration = ended.filter(Span::is_busy).map(|span| span.time()).sum();
        if event.tid == Tid::KERNEL {
            return;
        }
        let fact = &event.fact;
        if let Some((_, name)) = fact.spawned() {
            let name = name.to_string();
            let task = Task {
                name,
                ..Task::default()
            };
            self.tasks.insert(event.tid, task);
            self.spawned += 1;
        }
        let Some(task) = self.tasks.get_mut(&event.tid) else {
            return;
        };
        task.measured.event(event);
        task.busy += busy;
        if fact.is_resumed() {
            task.ticks += 1;
            self.ticks += 1;
        } else if let Some(call) = fact.call() {
            task.traps += 1;
            self.calls.entry(call.0.name()).or_default().count += 1;
        } else if fact.answer().is_some() {
            if self.spans.tasks().is_error(event)
                && let Some(last) = self.spans.tasks().last(event.tid)
            {
                self.calls.entry(last.call.name()).or_default().errors += 1;
            }
        } else if fact.blocked_on().is_some() {
            task.since = Some(event.at);
        } else if fact.woken_by().is_some() {
            self.unblock(event.tid, event.at);
        } else if let Some(exit) = fact.exit() {
            task.exit = Some(exit.to_string());
            self.unblock(event.tid, event.at);
            if self.names.is_some() {
                return self.merge(event.tid);
            }
            self.ended += 1;
            if self.ended == 2 * ROWS {
                self.forget(|task| task.exit.is_some());
                self.ended = ROWS;
            }
        }
    }

    fn unblock(&mut self, tid: Tid, now: Duration) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && let Some(since) = task.since.take()
        {
            let span = now.saturating_sub(since);
            task.blocked += span;
            // A task that prints and ends may wait for the console before its first call.
            if let Some(last) = self.spans.tasks().last(tid) {
                let call = self.calls.entry(last.call.name()).or_default();
                call.blocked += span;
                call.spans
                    .add(0, span.as_nanos().try_into().unwrap_or(u64::MAX));
            }
        }
    }

    /// Adds a task to those of its name.
    fn merge(&mut self, tid: Tid) {
        let Some(names) = &mut self.names else {
            return;
        };
        let Some(task) = self.tasks.remove(&tid) else {
            return;
        };
        let row = names.entry(task.name).or_default();
        row.tasks += 1;
        row.ticks += task.ticks;
        row.traps += task.traps;
        row.busy += task.busy;
        row.blocked += task.blocked;
        *row.exits.entry(exit_of(task.exit)).or_default() += 1;
    }

    /// Of the tasks of that kind, keeps those with the most time; of equals, those with the most traps,
    /// and then the oldest.
    fn forget(&mut self, kind: impl Fn(&Task) -> bool) {
        let mut tasks: Vec<_> = self.tasks.iter().filter(|(_, task)| kind(task)).collect();
        tasks.sort_by_key(|(_, task)| Reverse((task.busy, task.traps)));
        let others: Vec<_> = tasks.into_iter().skip(ROWS).map(|(tid, _)| *tid).collect();
        for tid in others {
            self.tasks.remove(&tid);
        }
    }

    /// Prints the tables, as of `now`.
    pub(super) fn show(&mut self, log: Log, now: Duration) {
        for span in self.spans.finish().iter().filter(|span| span.is_busy()) {
            if let Some(task) = self.tasks.get_mut(&span.tid) {
                task.busy += span.time();
            }
        }
        let alive: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in alive {
            self.unblock(tid, now);
            self.merge(tid);
        }
        if !log.is_json() {
            tell(&format!("{}\n", self.spans.shares()));
        }
        self.calls().show(log);
        match &self.names {
            Some(names) => by_name(names).show(log),
            None => self.show_tasks(log, now),
        }
        if !log.is_json() {
            let (n, now) = (self.spawned, Nanos::from(now));
            let traps: u64 = self.calls.values().map(|call| call.count).sum();
            let ticks = self.ticks;
            tell(&format!(
                "\ntasks {n}, ticks {ticks}, traps {traps}, time {now:.6}\n"
            ));
        }
    }

    fn calls(&self) -> Sheet<6> {
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|(_, call)| Reverse(call.blocked));
        let row = |(name, call): (&&'static str, &Call)| {
            let [median, high] = call.quantiles();
            [
                (*name).into(),
                call.count.into(),
                call.errors.into(),
                seconds(call.blocked),
                seconds(median),
                seconds(high),
            ]
        };
        Sheet {
            of: "call",
            columns: ["call", "count", "errors", "blocked", "median", "99th"],
            rows: calls.into_iter().map(row).collect(),
        }
    }

    fn show_tasks(&mut self, log: Log, now: Duration) {
        self.forget(|_| true);
        let left_out = self.spawned - self.tasks.len();
        let mut shown: Vec<_> = self.tasks.iter().collect();
        shown.sort_by_key(|(_, task)| Reverse(task.busy));
        let row = |(tid, task): (&Tid, &Task)| {
            [
                u64::from(*tid).into(),
                task.name.clone().into(),
                task.ticks.into(),
                task.traps.into(),
                seconds(task.busy),
                seconds(task.blocked),
                exit_of(task.exit.clone()).into(),
            ]
        };
        let tasks = Sheet {
            of: "task",
            columns: ["tid", "task", "ticks", "traps", "busy", "blocked", "exit"],
            rows: shown.into_iter().map(row).collect(),
        };
        tasks.show(log);
        if left_out > 0 && log.is_json() {
            log.json(&json!({ "summary": "left_out", "tasks": left_out }));
        } else if left_out > 0 {
            tell(&format!(
                "and {left_out} more tasks: --by-name takes them together\n"
            ));
        }
        let schedule = self.schedule(now);
        if !schedule.rows.is_empty() {
            schedule.show(log);
        }
    }
}

/// A row per name; those with the most time come first, and of equals those with the most ticks.
fn by_name(names: &BTreeMap<String, Names>) -> Sheet<7> {
    let mut names: Vec<_> = names.iter().collect();
    names.sort_by_key(|(_, row)| Reverse((row.busy, row.ticks)));
    let row = |(name, row): (&String, &Names)| {
        let exits = row.exits.iter();
        let exits: Vec<String> = exits.map(|(exit, n)| format!("{n} {exit}")).collect();
        [
            row.tasks.into(),
            name.clone().into(),
            row.ticks.into(),
            row.traps.into(),
            seconds(row.busy),
            seconds(row.blocked),
            exits.join(", ").into(),
        ]
    };
    Sheet {
        of: "name",
        columns: ["tasks", "task", "ticks", "traps", "busy", "blocked", "exit"],
        rows: names.into_iter().map(row).collect(),
    }
}

fn exit_of(exit: Option<String>) -> String {
    exit.unwrap_or_else(|| "none: it was alive".to_string())
}

impl Call {
    /// How long a call was blocked: the median and the 99th percentile of all calls.
    fn quantiles(&self) -> [Duration; 2] {
        let mut spans = self.spans.of(0);
        let blocked: u64 = spans.iter().map(|bucket| bucket.count).sum();
        let count = self.count.saturating_sub(blocked);
        spans.insert(0, Bucket { count, most: 0 });
        let [median, high, _] = quantiles(&spans);
        [median, high].map(Duration::from_nanos)
    }
}

impl Summary {
    /// Returns the textbook's measures, if any task has computed.
    fn schedule(&mut self, now: Duration) -> Sheet<7> {
        let mut rows = Vec::new();
        for (tid, task) in &mut self.tasks {
            task.measured.close(now);
            let measured = &task.measured;
            let span = |span: Option<Duration>| span.map_or(Value::Null, seconds);
            rows.push([
                u64::from(*tid).into(),
                task.name.clone().into(),
                span(measured.arrival),
                span(measured.response()),
                span(measured.turnaround()),
                seconds(measured.waiting),
                seconds(measured.computed),
            ]);
        }
        let has_computed = |task: &Task| !task.measured.computed.is_zero();
        if !self.tasks.values().any(has_computed) {
            rows.clear();
        }
        Sheet {
            of: "schedule",
            columns: [
                "tid",
                "task",
                "arrival",
                "response",
                "turnaround",
                "waiting",
                "computed",
            ],
            rows,
        }
    }
}

fn seconds(span: Duration) -> Value {
    span.as_secs_f64().into()
}

impl<const N: usize> Sheet<N> {
    fn show(self, log: Log) {
        if log.is_json() {
            for row in self.rows {
                let cells = self.columns.iter().map(ToString::to_string).zip(row);
                let mut line: Map<String, Value> = cells.collect();
                line.insert("summary".into(), self.of.into());
                log.json(&line.into());
            }
            return;
        }
        tell(&format!("\n{}\n", table(self.columns, &self.rows)));
    }
}

#[cfg(test)]
mod tests {
    use trapline::{Kernel, Os, SimWorld};

    use super::*;

    #[test]
    fn the_table_keeps_a_task_of_few_traps_that_took_the_most_time() {
        let summary = Rc::new(RefCell::new(Summary::default()));
        let tracer = Summary::tracer(&summary);
        let builder = Kernel::builder().world(SimWorld::new(1)).tracer(tracer);
        let mut kernel = builder.build().unwrap();
        for _ in 0..3 * ROWS {
            let lively = async |os: &mut Os| {
                for _ in 0..3 {
                    os.yield_now().await;
                }
            };
            kernel.spawn("lively", lively).unwrap();
        }
        let hard = async |os: &mut Os| os.compute(Duration::from_secs(1)).await;
        let busy = kernel.spawn("hard", hard).unwrap();
        kernel.run().unwrap();
        let mut summary = summary.borrow_mut();
        summary.forget(|_| true);
        assert_eq!(summary.tasks.len(), ROWS);
        assert!(summary.tasks.contains_key(&busy));
    }
}
