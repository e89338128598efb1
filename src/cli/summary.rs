//! The tables of `--summary`: what each task did, and the totals of each call.

use std::{cell::RefCell, cmp::Reverse, collections::BTreeMap, rc::Rc, time::Duration};

use serde_json::{Map, Value};

use super::{
    measures::Measured,
    output::{self, Log},
    table::table,
};
use crate::{Event, Fact, Follower, Nanos, Reply, Tid, Tracer};

/// The largest number of tasks in the table, which shows those with the most traps.
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
    /// The call that each task is at.
    follower: Follower,
    ticks: u64,
}

#[derive(Default)]
struct Task {
    name: String,
    exit: Option<String>,
    traps: u64,
    ticks: u64,
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
}

/// A table, formatted later for people or as JSON.
struct Report<const N: usize> {
    of: &'static str,
    columns: [&'static str; N],
    rows: Vec<[Value; N]>,
}

impl Summary {
    /// A tracer that counts into `summary`.
    pub(super) fn tracer(summary: &Rc<RefCell<Self>>) -> impl FnMut(&Event<'_>) + use<> {
        let summary = Rc::clone(summary);
        move |event| summary.borrow_mut().count(event)
    }

    fn count(&mut self, event: &Event<'_>) {
        if event.tid == Tid::KERNEL {
            return;
        }
        self.follower.event(event);
        if let Fact::Spawned { name, .. } = event.fact {
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
        match event.fact {
            Fact::Resumed => {
                task.ticks += 1;
                self.ticks += 1;
            }
            Fact::Trapped { call, .. } => {
                task.traps += 1;
                self.calls.entry(call.name()).or_default().count += 1;
            }
            Fact::Replied { reply, .. } => {
                if let Reply::Err(_) | Reply::Io = reply
                    && let Some(last) = self.follower.last(event.tid)
                {
                    self.calls.entry(last.call.name()).or_default().errors += 1;
                }
            }
            Fact::Blocked { .. } => task.since = Some(event.at),
            Fact::Woken { .. } => self.unblock(event.tid, event.at),
            Fact::Exited { exit } => {
                task.exit = Some(exit.to_string());
                self.unblock(event.tid, event.at);
                self.ended += 1;
                if self.ended == 2 * ROWS {
                    self.forget(|task| task.exit.is_some());
                    self.ended = ROWS;
                }
            }
            Fact::Spawned { .. }
            | Fact::Fault { .. }
            | Fact::Deferred { .. }
            | Fact::Injected { .. }
            | Fact::DeviceIo { .. }
            | Fact::Console { .. }
            | Fact::Reaped
            | Fact::Deadlocked { .. }
            | Fact::Computing { .. }
            | Fact::Preempted { .. }
            | Fact::ClockJumped { .. } => {}
        }
    }

    fn unblock(&mut self, tid: Tid, now: Duration) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && let Some(since) = task.since.take()
        {
            let span = now.saturating_sub(since);
            task.blocked += span;
            // A task that prints and ends may wait for the console before its first call.
            if let Some(last) = self.follower.last(tid) {
                self.calls.entry(last.call.name()).or_default().blocked += span;
            }
        }
    }

    /// Of the tasks of that kind, keeps those with the most traps; of equals, the oldest.
    fn forget(&mut self, kind: impl Fn(&Task) -> bool) {
        let tasks = self.tasks.iter().filter(|(_, task)| kind(task));
        let mut order: Vec<_> = tasks
            .map(|(tid, task)| (Reverse(task.traps), *tid))
            .collect();
        order.sort_unstable();
        for (_, tid) in order.into_iter().skip(ROWS) {
            self.tasks.remove(&tid);
        }
    }

    /// Prints the tables, as of `now`.
    pub(super) fn show(&mut self, log: Log, now: Duration) {
        let blocked: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in blocked {
            self.unblock(tid, now);
        }
        self.forget(|_| true);
        let left_out = self.spawned - self.tasks.len();
        let traps: u64 = self.calls.values().map(|call| call.count).sum();
        let mut tasks = Report {
            of: "task",
            columns: ["tid", "task", "ticks", "traps", "blocked", "exit"],
            rows: Vec::new(),
        };
        for (tid, task) in &self.tasks {
            let alive = || "none: it was alive".to_string();
            tasks.rows.push([
                u64::from(*tid).into(),
                task.name.clone().into(),
                task.ticks.into(),
                task.traps.into(),
                seconds(task.blocked),
                task.exit.clone().unwrap_or_else(alive).into(),
            ]);
        }
        let schedule = self.schedule(now);
        let mut calls = Report {
            of: "call",
            columns: ["call", "count", "errors", "blocked"],
            rows: Vec::new(),
        };
        for (name, call) in &self.calls {
            calls.rows.push([
                (*name).into(),
                call.count.into(),
                call.errors.into(),
                seconds(call.blocked),
            ]);
        }
        tasks.show(log);
        if left_out > 0 && log.is_json() {
            let line = [("summary", "left_out".into()), ("tasks", left_out.into())];
            log.json(&Map::from_iter(
                line.map(|(key, value)| (key.into(), value)),
            ));
        } else if left_out > 0 {
            output::tell(&format!(
                "and {left_out} more tasks, none with more traps\n"
            ));
        }
        if !schedule.rows.is_empty() {
            schedule.show(log);
        }
        calls.show(log);
        if !log.is_json() {
            let (n, now) = (self.spawned, Nanos::from(now));
            let ticks = self.ticks;
            output::tell(&format!(
                "\ntasks {n}, ticks {ticks}, traps {traps}, time {now:.6}\n"
            ));
        }
    }
}

impl Summary {
    /// Returns the textbook's measures, if any task has computed.
    fn schedule(&mut self, now: Duration) -> Report<7> {
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
        Report {
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

impl<const N: usize> Report<N> {
    fn show(self, log: Log) {
        if log.is_json() {
            for row in self.rows {
                let cells = self.columns.iter().map(ToString::to_string).zip(row);
                let mut line: Map<String, Value> = cells.collect();
                line.insert("summary".into(), self.of.into());
                log.json(&line);
            }
            return;
        }
        output::tell(&format!("\n{}\n", table(self.columns, &self.rows)));
    }
}
