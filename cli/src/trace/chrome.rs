//! Chrome's trace events, the format that Perfetto and speedscope open.
//!
//! The format is described in "Trace Event Format" by the Chromium project. Times are in
//! microseconds; a task is a thread of one process. The kernel is a process of its own, which viewers
//! put last.
//!
//! A slice is one complete event: a begin and an end event would have to agree. Viewers sum up slices of
//! the same name, so the arguments of a call are not part of it. Speedscope takes the arguments of an
//! event for a part of its name. So what is told about a wait is in an instant event at its begin.

use std::{collections::BTreeMap, io::Write};

use serde_json::{Map, Value, json};
use trapline::{CallInfo, Direction, Doing, Ending, Event, Moment, Span, Tid, Topic};

use super::{
    source::{Failure, Source, world},
    spans::Spans,
};
use crate::words::command_line;

/// The process of the tasks, and that of the kernel.
const TASKS: u64 = 1;
const KERNEL: u64 = 2;

/// The length in microseconds of the slice of a turn that takes no time.
const INSTANT: f64 = 0.0005;

/// The meaning of a microsecond of a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// A microsecond of the world's clock.
    World,
    /// A turn.
    Turns,
}

/// Writes trace events.
struct Chrome<'a, W> {
    out: &'a mut W,
    clock: Clock,
    spans: Spans,
    /// For each task, the end of its last turn. An arrow begins there.
    turns: BTreeMap<Tid, f64>,
    /// For each task whose last slice was a turn of zero length, the instant of that turn.
    instants: BTreeMap<Tid, f64>,
    /// For each task, the begin of its first slice.
    firsts: BTreeMap<Tid, f64>,
    /// For each task that was woken and has not run since, the start of its arrow.
    arrows: BTreeMap<Tid, (Tid, f64)>,
    /// The number of arrows.
    count: u64,
}

/// Writes a whole recording.
pub(super) fn write(
    out: &mut impl Write,
    source: &mut Source,
    clock: Clock,
) -> Result<(), Failure> {
    let header = source.header();
    let about = json!({
        "command": command_line(&header.command),
        "seed": header.seed.to_string(),
        "policy": header.policy,
        "quantum": header.quantum,
        "world": world(header),
        "version": header.version,
    });
    // Speedscope puts the name before that of each task, and has little room for it.
    let name = header.command.first().cloned();
    let name = name.unwrap_or_else(|| "trapline".to_string());
    let labels = command_line(&header.command);
    // Each event ends with a comma, except the metadata event that ends the list.
    writeln!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
    )?;
    let mut chrome = Chrome {
        out,
        clock,
        spans: Spans::default(),
        turns: BTreeMap::new(),
        instants: BTreeMap::new(),
        firsts: BTreeMap::new(),
        arrows: BTreeMap::new(),
        count: 0,
    };
    while let Some(event) = source.next() {
        if let Some(missing) = source.gap() {
            chrome.spans.gap();
            let message = format!("{missing} events are missing here");
            let now = chrome.clock.micros(Moment {
                at: event.at,
                ..chrome.spans.now()
            });
            let mut gap = line("i", Tid::KERNEL, now, &message, "gap");
            gap.insert("s".into(), "g".into());
            chrome.put(&gap)?;
        }
        for span in chrome.spans.event(&event) {
            chrome.span(&span)?;
        }
        chrome.event(&event)?;
    }
    for span in chrome.spans.finish() {
        chrome.span(&span)?;
    }
    chrome.name_thread(Tid::KERNEL, "kernel")?;
    writeln!(out, "{}\n]}}", names(&name, &labels))?;
    Ok(())
}

/// The events that name the processes.
fn names(name: &str, labels: &str) -> String {
    let about = [
        (TASKS, "process_labels", json!({ "labels": labels })),
        (TASKS, "process_name", json!({ "name": name })),
        (TASKS, "process_sort_index", json!({ "sort_index": TASKS })),
        (KERNEL, "process_name", json!({ "name": "trapline" })),
        (
            KERNEL,
            "process_sort_index",
            json!({ "sort_index": KERNEL }),
        ),
    ];
    let about = about.map(|(pid, name, args)| {
        json!({ "ph": "M", "pid": pid, "name": name, "args": args }).to_string()
    });
    about.join(",\n")
}

impl<W: Write> Chrome<'_, W> {
    fn span(&mut self, span: &Span) -> Result<(), Failure> {
        let call = self.spans.tasks().pending(span.tid);
        let of_call =
            |call: Option<&CallInfo>| call.map_or("?", |call| call.call.name()).to_string();
        let (name, category) = match span.doing {
            Doing::Running => ("running".to_string(), "running"),
            Doing::InCall if span.tid == Tid::KERNEL => ("kernel".to_string(), "kernel"),
            Doing::InCall => (of_call(self.spans.tasks().last(span.tid)), "in call"),
            Doing::Ready => ("ready".to_string(), "ready"),
            Doing::Blocked(_) => (of_call(call), "blocked"),
            Doing::Idle => ("idle".to_string(), "idle"),
        };
        let (from, to) = (self.clock.micros(span.from), self.clock.micros(span.to));
        if let Doing::Blocked(on) = span.doing
            && from < to
        {
            let mut args = Map::new();
            if let Some(call) = call {
                args.insert("call".into(), call.to_string().into());
            }
            args.insert("blocked_on".into(), self.spans.tasks().thing(on).into());
            if let Ending::Woken { by, .. } = span.end {
                args.insert("woken_by".into(), self.spans.tasks().cause(by).into());
            }
            let mut about = line("i", span.tid, from, "blocked", category);
            about.insert("args".into(), args.into());
            about.insert("s".into(), "t".into());
            self.put(&about)?;
        }
        // Turns of zero length at one instant become one slice. Otherwise speedscope nests them
        // until its stack overflows.
        let is_shown = match span.doing {
            Doing::Running if from == to => self.instants.insert(span.tid, from) != Some(from),
            // A slice of no length shows nothing, except that the task had a turn.
            _ => from < to,
        };
        if is_shown {
            self.slice(span, &name, category)?;
        }
        match (span.doing, span.end) {
            (Doing::Running, _) => self.turn(span.tid, from, to),
            (_, Ending::Woken { waker, .. }) => {
                // The arrow leads to the task's next turn.
                if let Some(waker) = waker
                    && let Some(&over) = self.turns.get(&waker)
                {
                    self.arrows.insert(span.tid, (waker, over));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A slice. A turn of no length takes half a nanosecond from what follows: speedscope places the
    /// longer of two slices first that begin at one instant.
    ///
    /// Speedscope counts from the first slice of a task.
    fn slice(&mut self, span: &Span, name: &str, category: &str) -> Result<(), Failure> {
        let [mut from, mut to] = [span.from, span.to].map(|end| self.clock.micros(end));
        let mut length = self.clock.length(span);
        if from == to {
            (to, length) = (from + INSTANT, INSTANT);
        } else if self.instants.remove(&span.tid) == Some(from) {
            (from, length) = (from + INSTANT, length - INSTANT);
        }
        let first = *self.firsts.entry(span.tid).or_insert(from);
        for [from, to] in [[from, to], [from - first, to - first]] {
            length = within(from, to, length);
        }
        let mut slice = line("X", span.tid, from, name, category);
        slice.insert("dur".into(), length.into());
        self.put(&slice)
    }

    /// Draws the arrow that leads to a turn.
    fn turn(&mut self, tid: Tid, from: f64, to: f64) -> Result<(), Failure> {
        // A moment before the end of the turn, so that the arrow starts within it.
        self.turns.insert(tid, (to - 0.001).max(from));
        let Some((waker, over)) = self.arrows.remove(&tid) else {
            return Ok(());
        };
        self.count += 1;
        for (phase, tid, at) in [("s", waker, over), ("f", tid, from)] {
            let mut arrow = line(phase, tid, at, "woke", "wake");
            arrow.insert("id".into(), self.count.into());
            arrow.insert("bp".into(), "e".into());
            self.put(&arrow)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let tid = event.tid;
        let fact = &event.fact;
        if let Some((_, name)) = fact.spawned() {
            self.name_thread(tid, name)?;
        }
        if fact.is_reaped() {
            self.turns.remove(&tid);
            self.instants.remove(&tid);
            self.firsts.remove(&tid);
        }
        let last = self.spans.tasks().last(tid).map(|call| call.call.name());
        let (name, category) = match (fact.word(), fact.topic()) {
            ("replied", _) => (last.unwrap_or("?"), "call"),
            ("injected", _) => ("injected", "call"),
            ("fault", _) => ("fault", "net"),
            (word, Topic::Console) => (word, "console"),
            (word, Topic::Life) => (word, "life"),
            _ => match (fact.deferred(), fact.device_io()) {
                (Some(call), _) => (call.name(), "call"),
                (_, Some((_, Direction::Read, _))) => ("read", "device"),
                (_, Some(_)) => ("write", "device"),
                // Shown by slices and arrows.
                _ => return Ok(()),
            },
        };
        let mut instant = line(
            "i",
            tid,
            self.clock.micros(self.spans.now()),
            name,
            category,
        );
        let text = self.spans.tasks().line(fact, tid).to_string();
        instant.insert("args".into(), json!({ "text": text }));
        instant.insert("s".into(), "t".into());
        self.put(&instant)
    }

    /// Names a track, and sets its place to its number.
    fn name_thread(&mut self, tid: Tid, name: &str) -> Result<(), Failure> {
        let place = u64::from(tid);
        for (what, args) in [
            ("thread_name", json!({ "name": name })),
            ("thread_sort_index", json!({ "sort_index": place })),
        ] {
            let mut names = line("M", tid, 0.0, what, "");
            names.insert("args".into(), args);
            self.put(&names)?;
        }
        Ok(())
    }

    fn put(&mut self, line: &Map<String, Value>) -> Result<(), Failure> {
        serde_json::to_writer(&mut *self.out, line).map_err(std::io::Error::from)?;
        self.out.write_all(b",\n")?;
        Ok(())
    }
}

/// The length of a slice, shortened by what rounding adds when a viewer computes its end. Otherwise the
/// next slice would begin in this one.
fn within(from: f64, to: f64, mut length: f64) -> f64 {
    let step = to.next_up() - to;
    while length > 0.0 && from + length > to {
        length = (length - step).max(0.0);
    }
    length
}

/// The fields of every trace event.
fn line(phase: &str, tid: Tid, at: f64, name: &str, category: &str) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("ph".into(), phase.into());
    let pid = if tid == Tid::KERNEL { KERNEL } else { TASKS };
    line.insert("pid".into(), pid.into());
    line.insert("tid".into(), u64::from(tid).into());
    line.insert("ts".into(), at.into());
    line.insert("name".into(), name.into());
    line.insert("cat".into(), category.into());
    line
}

impl Clock {
    fn micros(self, moment: Moment) -> f64 {
        match self {
            Self::World => moment.at.as_nanos() as f64 / 1e3,
            Self::Turns => moment.turn as f64,
        }
    }

    fn length(self, span: &Span) -> f64 {
        match self {
            Self::World => span.time().as_nanos() as f64 / 1e3,
            Self::Turns => (span.to.turn - span.from.turn) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn a_slice_ends_where_the_next_one_begins_at_the_latest() {
        let mut nanos = 1u64;
        let mut shortened = 0;
        while nanos < 1 << 62 {
            for span in [1, 7, 1_001, 123_456_789] {
                let [from, to, length] = [nanos, nanos + span, span].map(|n| n as f64 / 1e3);
                let dur = within(from, to, length);
                assert!(from + dur <= to, "{from} for {dur}");
                // Below an hour it is exact to a nanosecond.
                let is_exact = nanos > 3_600_000_000_000 || (length - dur).abs() < 0.001;
                assert!(is_exact, "{dur} instead of {length}");
                shortened += u32::from(dur < length);
            }
            nanos += nanos / 3 + 1;
        }
        assert!(shortened > 0, "rounding adds to some");
    }
}
