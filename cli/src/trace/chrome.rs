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

use serde_json::{Value, json};
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
    Turns,
}

struct Chrome<'a, W> {
    out: &'a mut W,
    clock: Clock,
    spans: Spans,
    tracks: BTreeMap<Tid, Track>,
    count: u64,
}

/// What was drawn of a task last.
#[derive(Default)]
struct Track {
    /// The end of its last turn. An arrow begins there.
    turn: Option<f64>,
    /// If its last slice was a turn of zero length, the instant of that turn.
    instant: Option<f64>,
    first: Option<f64>,
    /// The start of the arrow to its next turn, if it was woken.
    arrow: Option<(Tid, f64)>,
}

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
    let name = header.command.first().map_or("trapline", |name| name);
    let names = names(name, &command_line(&header.command));
    // Each event ends with a comma, except the metadata event that ends the list.
    writeln!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
    )?;
    let mut chrome = Chrome {
        out,
        clock,
        spans: Spans::default(),
        tracks: BTreeMap::new(),
        count: 0,
    };
    while let Some(event) = source.next() {
        if let Some(missing) = source.gap() {
            chrome.spans.gap();
            let message = format!("{missing} events are missing here");
            let mut now = chrome.spans.now();
            now.at = event.at;
            let now = chrome.clock.micros(now);
            let is_global = [("s", "g".into())];
            chrome.put("i", Tid::KERNEL, now, (&message, "gap"), is_global)?;
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
    writeln!(out, "{names}\n]}}")?;
    Ok(())
}

fn names(name: &str, labels: &str) -> String {
    let about = [
        (TASKS, "labels", json!(labels)),
        (TASKS, "name", json!(name)),
        (TASKS, "sort_index", json!(TASKS)),
        (KERNEL, "name", json!("trapline")),
        (KERNEL, "sort_index", json!(KERNEL)),
    ];
    let about = about.map(|(pid, what, value)| {
        let name = format!("process_{what}");
        json!({ "ph": "M", "pid": pid, "name": name, "args": { what: value } }).to_string()
    });
    about.join(",\n")
}

impl<W: Write> Chrome<'_, W> {
    fn span(&mut self, span: &Span) -> Result<(), Failure> {
        let (tid, tasks) = (span.tid, self.spans.tasks());
        let name_of = |call: Option<&CallInfo>| call.map_or("?", |call| call.call.name());
        let call = tasks.pending(tid);
        let name = match span.doing {
            Doing::Running => ("running", "running"),
            Doing::InCall if tid == Tid::KERNEL => ("kernel", "kernel"),
            Doing::InCall => (name_of(tasks.last(tid)), "in call"),
            Doing::Ready => ("ready", "ready"),
            Doing::Blocked(_) => (name_of(call), "blocked"),
            Doing::Idle => ("idle", "idle"),
        };
        let [from, to] = [span.from, span.to].map(|end| self.clock.micros(end));
        if let Doing::Blocked(on) = span.doing
            && from < to
        {
            let mut args = json!({ "blocked_on": tasks.thing(on) });
            if let Some(call) = call {
                args["call"] = call.to_string().into();
            }
            if let Ending::Woken { by, .. } = span.end {
                args["woken_by"] = tasks.cause(by).into();
            }
            let own = [("args", args), ("s", "t".into())];
            self.put("i", tid, from, ("blocked", name.1), own)?;
        }
        // Turns of zero length at one instant become one slice. Otherwise speedscope nests them
        // until its stack overflows.
        let is_shown = match span.doing {
            Doing::Running if from == to => self.track(tid).instant.replace(from) != Some(from),
            // A slice of no length shows nothing, except that the task had a turn.
            _ => from < to,
        };
        if is_shown {
            self.slice(span, [from, to], name)?;
        }
        if span.doing == Doing::Running {
            return self.turn(tid, from, to);
        }
        // The arrow leads to the task's next turn.
        if let Ending::Woken { waker, .. } = span.end
            && let Some(waker) = waker
            && let Some(over) = self.track(waker).turn
        {
            self.track(tid).arrow = Some((waker, over));
        }
        Ok(())
    }

    /// A slice. A turn of no length takes half a nanosecond from what follows: speedscope places the
    /// longer of two slices first that begin at one instant.
    ///
    /// Speedscope counts from the first slice of a task.
    fn slice(
        &mut self,
        span: &Span,
        [mut from, mut to]: [f64; 2],
        name: (&str, &str),
    ) -> Result<(), Failure> {
        let mut length = self.clock.length(span);
        let track = self.track(span.tid);
        if from == to {
            (to, length) = (from + INSTANT, INSTANT);
        } else if track.instant.take() == Some(from) {
            (from, length) = (from + INSTANT, length - INSTANT);
        }
        let first = *track.first.get_or_insert(from);
        length = within(from, to, length);
        length = within(from - first, to - first, length);
        self.put("X", span.tid, from, name, [("dur", length.into())])
    }

    fn turn(&mut self, tid: Tid, from: f64, to: f64) -> Result<(), Failure> {
        let track = self.track(tid);
        // A moment before the end of the turn, so that the arrow starts within it.
        track.turn = Some((to - 0.001).max(from));
        if let Some((waker, over)) = track.arrow.take() {
            self.count += 1;
            for (phase, tid, at) in [("s", waker, over), ("f", tid, from)] {
                let own = [("id", self.count.into()), ("bp", "e".into())];
                self.put(phase, tid, at, ("woke", "wake"), own)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let (tid, fact) = (event.tid, &event.fact);
        if let Some((_, name)) = fact.spawned() {
            self.name_thread(tid, name)?;
        }
        if fact.is_reaped() {
            self.tracks.remove(&tid);
        }
        let tasks = self.spans.tasks();
        let last = tasks.last(tid).map(|call| call.call.name());
        let name = match (fact.word(), fact.topic()) {
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
        let text = tasks.line(fact, tid).to_string();
        let own = [("args", json!({ "text": text })), ("s", "t".into())];
        self.put("i", tid, self.clock.micros(tasks.now()), name, own)
    }

    /// Names a track, and sets its place to its number.
    fn name_thread(&mut self, tid: Tid, name: &str) -> Result<(), Failure> {
        let place = u64::from(tid);
        for (what, value) in [("name", json!(name)), ("sort_index", json!(place))] {
            let own = [("args", json!({ what: value }))];
            self.put("M", tid, 0.0, (&format!("thread_{what}"), ""), own)?;
        }
        Ok(())
    }

    /// Writes an event with a name and a category, and with fields of its own.
    fn put<const N: usize>(
        &mut self,
        phase: &str,
        tid: Tid,
        at: f64,
        (name, category): (&str, &str),
        own: [(&str, Value); N],
    ) -> Result<(), Failure> {
        let pid = if tid == Tid::KERNEL { KERNEL } else { TASKS };
        let tid = u64::from(tid);
        let mut line =
            json!({ "ph": phase, "pid": pid, "tid": tid, "ts": at, "name": name, "cat": category });
        for (field, value) in own {
            line[field] = value;
        }
        serde_json::to_writer(&mut *self.out, &line).map_err(std::io::Error::from)?;
        self.out.write_all(b",\n")?;
        Ok(())
    }

    fn track(&mut self, tid: Tid) -> &mut Track {
        self.tracks.entry(tid).or_default()
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
        let mut shortened = 0;
        let starts = std::iter::successors(Some(1_u64), |nanos| Some(nanos + nanos / 3 + 1));
        for nanos in starts.take_while(|nanos| *nanos < 1 << 62) {
            for span in [1, 7, 1_001, 123_456_789] {
                let [from, to, length] = [nanos, nanos + span, span].map(|n| n as f64 / 1e3);
                let dur = within(from, to, length);
                assert!(from + dur <= to, "{from} for {dur}");
                // Below an hour it is exact to a nanosecond.
                let is_exact = nanos > 3_600_000_000_000 || (length - dur).abs() < 0.001;
                assert!(is_exact, "{dur} instead of {length}");
                shortened += u32::from(dur < length);
            }
        }
        assert!(shortened > 0, "rounding adds to some");
    }
}
