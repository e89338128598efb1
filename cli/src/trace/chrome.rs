//! Chrome's trace events, the format that Perfetto and speedscope open.
//!
//! The format is described in "Trace Event Format" by the Chromium project. Times are in
//! microseconds; a task is a thread of the process of its host, or of one process without a network. The
//! kernel is a process of its own, which viewers put last.
//!
//! A slice is one complete event: a begin and an end event would have to agree. Viewers sum up slices of
//! the same name, so the arguments of a call are not part of it. Speedscope takes the arguments of an
//! event for a part of its name. So what is told about a wait is in an instant event at its begin.
//!
//! Most of a file would be instant events, of which viewers show one where there are several. So what a
//! task does at one instant is one of these, and no field is written that has its usual value.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
};

use serde_json::{Value, json};
use trapline::{CallInfo, Doing, Ending, Event, KernelId, Moment, Span, SystemCall, Tid, Topic};

use super::{
    source::{Failure, Source, world},
    spans::Spans,
};
use crate::words::command_line;

/// The process of tasks without a host, that of the kernel, and that of the first host.
const TASKS: u64 = 1;
const KERNEL: u64 = 2;
const HOSTS: u64 = 3;
/// The number before the process of the first of several kernels.
const KERNELS: u64 = 1 << 20;

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
    /// The hosts, in the order of their processes.
    hosts: Vec<String>,
    /// Those that ran side by side, if there are several. Each is a process.
    kernels: BTreeSet<KernelId>,
    has_tasks: bool,
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
    /// The start of the arrow to its next turn, if it was woken: the process and the task that woke it,
    /// which may be gone by then, and the instant.
    arrow: Option<(u64, Tid, f64)>,
    process: Option<u64>,
    /// What it did at an instant, which is not written yet.
    notes: Vec<String>,
    noted: f64,
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
    let name = header
        .command
        .first()
        .map_or_else(|| "trapline".to_string(), String::clone);
    let (name, labels) = (name.clone(), command_line(&header.command));
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
        hosts: Vec::new(),
        kernels: BTreeSet::new(),
        has_tasks: false,
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
            chrome.put("i", Tid::KERNEL, now, &message, is_global)?;
        }
        for span in chrome.spans.event(&event) {
            chrome.span(&span)?;
        }
        chrome.kernels.extend(event.tid.kernel());
        chrome.event(&event)?;
    }
    for span in chrome.spans.finish() {
        chrome.span(&span)?;
    }
    let tids: Vec<Tid> = chrome.tracks.keys().copied().collect();
    tids.into_iter().try_for_each(|tid| chrome.noted(tid))?;
    chrome.name_thread(Tid::KERNEL, "kernel")?;
    for kernel in chrome.kernels.clone() {
        chrome.name_thread(Tid::KERNEL.beside(kernel), "kernel")?;
    }
    let names = chrome.names(&name, &labels);
    writeln!(out, "{names}\n]}}")?;
    Ok(())
}

impl<W: Write> Chrome<'_, W> {
    /// The names of the processes, and their order.
    fn names(&self, name: &str, labels: &str) -> String {
        let hosts = (HOSTS..).zip(&self.hosts);
        let hosts = hosts.map(|(pid, host)| (pid, host.as_str(), pid - 1));
        let last = HOSTS + self.hosts.len() as u64;
        let tasks = self.has_tasks.then_some((TASKS, name, TASKS));
        let all = tasks.into_iter().chain(hosts);
        let kernels: Vec<(u64, String)> = self
            .kernels
            .iter()
            .map(|kernel| (KERNELS + u64::from(*kernel), format!("kernel {kernel}")))
            .collect();
        let kernels = kernels
            .iter()
            .map(|(pid, name)| (*pid, name.as_str(), *pid));
        let all = all.chain([(KERNEL, "trapline", last)]).chain(kernels);
        let lines = all.enumerate().map(|(at, (pid, name, place))| {
            let mut about = vec![("name", json!(name)), ("sort_index", json!(place))];
            about.extend((at == 0).then(|| ("labels", json!(labels))));
            let line = |(what, value): (&str, Value)| {
                let name = format!("process_{what}");
                json!({ "ph": "M", "pid": pid, "name": name, "args": { what: value } }).to_string()
            };
            about.into_iter().map(line).collect::<Vec<_>>().join(",\n")
        });
        lines.collect::<Vec<_>>().join(",\n")
    }

    /// The process of a task.
    fn process(&self, tid: Tid) -> u64 {
        if let Some(kernel) = tid.kernel() {
            return KERNELS + u64::from(kernel);
        }
        let known = self.tracks.get(&tid).and_then(|track| track.process);
        if tid.is_kernel() {
            KERNEL
        } else {
            known.unwrap_or(TASKS)
        }
    }

    /// Puts a new task into the process of its host, which its name ends with. Returns the rest of its name.
    fn place<'n>(&mut self, tid: Tid, name: &'n str) -> &'n str {
        let found = name.rsplit_once('@').filter(|(_, host)| !host.is_empty());
        let Some((name, host)) = found else {
            self.has_tasks |= tid.kernel().is_none();
            return name;
        };
        let known = self.hosts.iter().position(|other| other == host);
        let place = known.unwrap_or_else(|| {
            self.hosts.push(host.to_string());
            self.hosts.len() - 1
        });
        self.track(tid).process = Some(HOSTS + place as u64);
        name
    }

    /// Notes what a task does at an instant.
    fn note(&mut self, tid: Tid, at: f64, text: String) -> Result<(), Failure> {
        let track = self.track(tid);
        if track.noted != at {
            self.noted(tid)?;
        }
        let track = self.track(tid);
        track.noted = at;
        track.notes.push(text);
        Ok(())
    }

    /// Writes what was noted.
    fn noted(&mut self, tid: Tid) -> Result<(), Failure> {
        let track = self.track(tid);
        let (notes, at) = (std::mem::take(&mut track.notes), track.noted);
        match &notes[..] {
            [] => Ok(()),
            [text] => self.put("i", tid, at, text, []),
            all => {
                let name = format!("{} events", all.len());
                self.put("i", tid, at, &name, [("args", json!({ "text": all }))])
            }
        }
    }

    fn span(&mut self, span: &Span) -> Result<(), Failure> {
        let (tid, tasks) = (span.tid, self.spans.tasks());
        let name_of = |call: Option<&CallInfo>| call.map_or("?", |call| call.call.name());
        let call = tasks.pending(tid);
        let name = match span.doing {
            Doing::Running => "running",
            Doing::InCall if tid.is_kernel() => "kernel",
            Doing::InCall => name_of(tasks.last(tid)),
            Doing::Ready => "ready",
            Doing::Blocked(_) => name_of(call),
            Doing::Idle => "idle",
        };
        let [from, to] = [span.from, span.to].map(|end| self.clock.micros(end));
        if let Doing::Blocked(on) = span.doing
            && from < to
        {
            let thing = tasks.thing(on);
            let call = call.map(|call| format!("{call}: "));
            let mut text = call.unwrap_or_default() + &thing;
            if let Ending::Woken { by, .. } = span.end {
                let cause = tasks.cause(by);
                // Mostly it is woken by what it waits for.
                if !thing.starts_with(&cause) {
                    text += &format!("; woken by {cause}");
                }
            }
            self.note(tid, from, text)?;
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
            self.track(tid).arrow = Some((self.process(waker), waker, over));
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
        name: &str,
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
        // In a few digits, and no longer for that.
        let short = (length * 1e6).floor() / 1e6;
        length = if short > 0.0 { short } else { length };
        self.put("X", span.tid, from, name, [("dur", whole(length))])
    }

    fn turn(&mut self, tid: Tid, from: f64, to: f64) -> Result<(), Failure> {
        let track = self.track(tid);
        // A moment before the end of the turn, so that the arrow starts within it.
        track.turn = Some((to - 0.001).max(from));
        if let Some((pid, waker, over)) = track.arrow.take() {
            self.count += 1;
            let id = ("id", Value::from(self.count));
            self.put_in(pid, "s", waker, over, "woke", [id.clone()])?;
            // It ends in the slice that it is within.
            self.put("f", tid, from, "woke", [id, ("bp", "e".into())])?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let (tid, fact) = (event.tid, &event.fact);
        if let Some((_, name)) = fact.spawned() {
            let name = self.place(tid, name);
            return self.name_thread(tid, name);
        }
        if fact.is_reaped() {
            self.noted(tid)?;
            self.tracks.remove(&tid);
            return Ok(());
        }
        // Slices and arrows show the others, and a call's answer says what it has read and written.
        let is_shown = matches!(fact.word(), "replied" | "injected" | "fault")
            || matches!(fact.topic(), Topic::Console | Topic::Life)
            || fact
                .deferred()
                .is_some_and(|call| !matches!(call, SystemCall::Disarm(_)));
        if !is_shown {
            return Ok(());
        }
        let tasks = self.spans.tasks();
        let text = tasks.line(fact, tid).to_string();
        self.note(tid, self.clock.micros(tasks.now()), text)
    }

    fn name_thread(&mut self, tid: Tid, name: &str) -> Result<(), Failure> {
        let own = [("args", json!({ "name": name }))];
        self.put("M", tid, 0.0, "thread_name", own)
    }

    /// Writes an event with a name, and with fields of its own.
    fn put<const N: usize>(
        &mut self,
        phase: &str,
        tid: Tid,
        at: f64,
        name: &str,
        own: [(&str, Value); N],
    ) -> Result<(), Failure> {
        self.put_in(self.process(tid), phase, tid, at, name, own)
    }

    /// Does the same in a process that is known.
    fn put_in<const N: usize>(
        &mut self,
        pid: u64,
        phase: &str,
        tid: Tid,
        at: f64,
        name: &str,
        own: [(&str, Value); N],
    ) -> Result<(), Failure> {
        let tid = u64::from(tid.alone());
        let mut line = json!({ "ph": phase, "pid": pid, "tid": tid, "name": name });
        if phase != "M" {
            line["ts"] = whole(at);
        }
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

/// A number, without a point if it is whole.
fn whole(number: f64) -> Value {
    match number.fract() == 0.0 && number < (1_u64 << 53) as f64 {
        true => (number as u64).into(),
        false => number.into(),
    }
}

/// The length of a slice, shortened by what rounding adds when a viewer computes its end. Otherwise the
/// next slice would begin in this one.
fn within(from: f64, to: f64, mut length: f64) -> f64 {
    let step = to.next_up() - to;
    if from + length > to {
        // The steps are small beside what was rounded where both ends are near zero.
        length = length.min((to - from).max(0.0));
    }
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
        // Near zero a step is far less than what is too long.
        let [from, to] = [f64::MIN_POSITIVE, 0.001];
        let dur = within(from, to, to + 1e-10);
        assert!(from + dur <= to && to - dur < 1e-15, "{dur}");
    }
}
