//! The totals of a recording: of each task or name, of each call, and of the waits for a turn.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use rustc_hash::FxHashMap;
use trapline::{Call, Doing, Ending, Event, Ledger, Span, Tid, record::OwnedEvent};

use super::{
    source::{Failure, Source},
    spans::{Shares, Spans, What},
};
use crate::{
    amounts::{Amounts, Calls, nanos},
    output::clean,
    table::ALIVE,
    units::number,
};

/// The largest number of tasks in a summary. A crafted file has one task in five bytes.
const MOST: usize = 1 << 20;
/// The largest number of deadlocks that are named.
const DEADLOCKS: usize = 8;

/// The states in which a task spends its time.
pub(super) const STATES: [&str; 4] = ["running", "in call", "ready", "blocked"];

/// The totals of a recording. Data with many entries per row is in maps over all rows. A small map
/// per row would take ten times the memory.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) by_name: bool,
    /// The largest number of rows and of live tasks.
    most: usize,
    pub(super) rows: Vec<Row>,
    /// The indices of the rows, by task or by name.
    by_tid: FxHashMap<Tid, u32>,
    by_comm: FxHashMap<Box<str>, u32>,
    /// What the tasks of a row were blocked on, and for how long.
    pub(super) on: BTreeMap<(u32, What), Duration>,
    /// The words for the objects among these.
    pub(super) words: FxHashMap<What, String>,
    pub(super) exits: BTreeMap<(u32, String), u64>,
    /// The length of each wait for a turn: in nanoseconds, and in turns of other tasks. The turns
    /// matter where a virtual clock does not move.
    pub(super) nanos: Amounts,
    pub(super) turns: Amounts,
    /// The times are from the trap to the answer.
    pub(super) calls: BTreeMap<&'static str, Calls>,
    /// The first cycles of waits that closed, and the number of all.
    pub(super) deadlocks: Vec<Closed>,
    pub(super) deadlocked: u64,
    pub(super) spans: Spans,
    pub(super) events: u64,
    pub(super) missing: u64,
}

/// A cycle of waits that closed. Each task waits for the next, and the last for the first.
pub(super) struct Closed {
    pub(super) at: Duration,
    pub(super) cycle: Vec<u64>,
    /// The same with the names.
    pub(super) way: String,
}

/// A row of a table: a task, or all tasks of a name.
#[derive(Default)]
pub(super) struct Row {
    pub(super) tid: Tid,
    pub(super) comm: Box<str>,
    /// Its index before the rows were sorted: the key in the maps over all rows.
    pub(super) place: u32,
    pub(super) tasks: u64,
    pub(super) turns: u64,
    pub(super) traps: u64,
    /// In each of [`STATES`].
    pub(super) times: [Duration; 4],
    /// Its longest wait: the length, what it waited for, and the instant.
    pub(super) longest: Option<(Duration, What, Duration)>,
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
}

impl Row {
    /// The time in which its tasks ran, or the kernel worked at their calls.
    pub(super) fn busy(&self) -> Duration {
        self.times[0] + self.times[1]
    }
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
