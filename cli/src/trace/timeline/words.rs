//! The texts about a timeline: a summary for readers that cannot see it, and labels beside the
//! picture.

use std::collections::BTreeSet;

use trapline::{Deadlock, Doing, Ending, Nanos, On, TaskInfo, TaskState, Tid};

use super::{
    model::{Bar, Closed, Lane, Timeline},
    scale::Scale,
};
use crate::{
    output::clean,
    units::{count, span},
    words::command_line,
};

/// The largest number of cycles named, and of tasks in each. `trace waits` names all.
const CYCLES: usize = 8;
const RING: usize = 24;
/// The largest number of waits that are named.
const WAITS: usize = 20;

#[derive(Default)]
pub(super) struct Sums {
    pub(super) turns: u64,
    pub(super) running: f64,
    pub(super) in_call: f64,
    pub(super) ready: f64,
    /// Of the kernel: no task was ready.
    pub(super) idle: f64,
    pub(super) blocked: f64,
    /// Its longest wait, with its reason.
    pub(super) longest: Option<(f64, On)>,
}

pub(super) fn title(timeline: &Timeline) -> String {
    match &*timeline.header.command {
        [] => "a recording".to_string(),
        words => clean(&command_line(words)),
    }
}

/// The run, in a few sentences.
pub(super) fn summary(timeline: &Timeline) -> Vec<String> {
    let traps = timeline.lanes.iter().map(|lane| lane.traps).sum();
    let moments = timeline.end.turn.saturating_sub(timeline.begin.turn);
    let turns = moments.saturating_sub(timeline.idle.len() as u64);
    let mut sentences = vec![format!("{}.", timeline.shares)];
    sentences.push(format!(
        "{} made {} in {} and {}{}.",
        count(timeline.tasks().count() as u64, "task"),
        count(traps, "trap"),
        count(turns, "turn"),
        span(timeline.end.at.saturating_sub(timeline.begin.at)),
        if timeline.header.is_simulated {
            " of virtual time"
        } else {
            ""
        },
    ));
    sentences.push(fates(timeline));
    sentences.extend(closed(timeline));
    if let Some(stuck) = &timeline.deadlock {
        let blocked = &stuck.blocked;
        sentences.push(deadlock(stuck));
        sentences.extend(blocked.iter().take(WAITS).map(waiting));
        sentences
            .extend(more(blocked.len(), WAITS, "task").map(|more| format!("{more} more wait.")));
    }
    if timeline.missing > 0 {
        let missing = count(timeline.missing, "event");
        sentences.push(format!(
            "{missing} are missing, since only the last were kept."
        ));
    }
    if timeline.is_torn {
        sentences
            .push("The recording has no end: its writer was killed, or was still running.".into());
    }
    if timeline.is_cut {
        sentences.push("This is a part of the recording, which goes on.".into());
    }
    sentences
}

/// How many there are besides those that are named, if any.
pub(super) fn more(all: usize, named: usize, what: &str) -> Option<String> {
    let more = all.saturating_sub(named);
    (more > 0).then(|| count(more as u64, what))
}

fn fates(timeline: &Timeline) -> String {
    let words = [
        "ended well",
        "failed",
        "faulted",
        "killed",
        "alive at the end",
    ];
    let mut fates = words.map(|word| (0, word));
    timeline.tasks().for_each(|lane| fates[lane.fate()].0 += 1);
    let fates = fates.iter().filter(|(number, _)| *number > 0);
    let fates: Vec<String> = fates.map(|(n, fate)| format!("{n} {fate}")).collect();
    format!("Of the tasks: {}.", fates.join(", "))
}

/// The cycles that closed, without those that a deadlock at the end names.
fn closed(timeline: &Timeline) -> Vec<String> {
    let set = |tids: &[Tid]| -> BTreeSet<Tid> { tids.iter().copied().collect() };
    let named = timeline.deadlock.iter().flat_map(|stuck| &stuck.cycles);
    let named: BTreeSet<_> = named.map(|ring| set(ring)).collect();
    let mut closed: Vec<&Closed> = timeline.deadlocks.iter().collect();
    closed.retain(|closed| !named.contains(&set(&closed.tids)));
    let sentence = |closed: &&Closed| {
        let (at, way) = (Nanos::from(closed.at.at), way(&closed.tids));
        format!("Deadlock at {at:.6}: {way} wait for one another.")
    };
    let sentences = closed.iter().take(CYCLES).map(sentence);
    let more = more(closed.len(), CYCLES, "more deadlock");
    sentences
        .chain(more.map(|more| format!("And {more}.")))
        .collect()
}

/// A cycle, as far as it can be read: `2 → 3 → 2`.
pub(super) fn way(ring: &[Tid]) -> String {
    let tids = ring.iter().take(RING).map(ToString::to_string);
    let more = ring.len().saturating_sub(RING);
    let more = (more > 0).then(|| format!("{more} more"));
    let first = ring.first().map(ToString::to_string);
    let way: Vec<String> = tids.chain(more).chain(first).collect();
    way.join(" → ")
}

/// The deadlock and its cycles. A thread could have ended it: the recording does not show threads.
pub(super) fn deadlock(stuck: &Deadlock) -> String {
    let mut text =
        "Deadlock: no task was ready, and no timer and no device could make one ready.".to_string();
    let cycles = &stuck.cycles;
    let ways = cycles.iter().take(CYCLES);
    text.extend(ways.map(|ring| format!(" Cycle: {}.", way(ring))));
    text.extend(more(cycles.len(), CYCLES, "more cycle").map(|more| format!(" And {more}.")));
    text
}

/// What a task that was blocked at the end waited for.
fn waiting(waiting: &TaskInfo) -> String {
    let (tid, name) = (waiting.tid, clean(&waiting.name));
    let on = clean(&waiting.blocked_on().unwrap_or_default());
    let since = match waiting.state {
        TaskState::Blocked { since, .. } => Nanos::from(since),
        _ => Nanos::ZERO,
    };
    let at = waiting.wait.place.as_ref();
    let at = at.map_or_else(String::new, |place| clean(&format!(", at {place}")));
    format!("Task {tid} {name:?} waits for {on}, since {since}{at}.")
}

pub(super) fn lane(lane: &Lane, scale: Scale) -> String {
    let sums = Sums::of(lane, scale);
    if lane.is_kernel() {
        let [work, idle] = [sums.in_call, sums.idle].map(|sum| scale.amount(sum));
        return format!("the kernel: works for {work}, idle for {idle}");
    }
    let spawned = lane.spawned.as_ref();
    let spawned = spawned.map_or_else(String::new, |at| format!(", spawned at {at}"));
    let times = [
        ("running", sums.running),
        ("in call", sums.in_call),
        ("ready", sums.ready),
        ("blocked", sums.blocked),
    ];
    let times = times.map(|(doing, sum)| format!("{doing} {}", scale.amount(sum)));
    format!(
        "task {} {:?}{spawned}: {}, {}; {}; {}",
        lane.tid,
        lane.name,
        count(sums.turns, "turn"),
        count(lane.traps, "trap"),
        times.join(", "),
        end(lane, "alive at the end"),
    )
}

/// How a task ended; `alive` if it did not.
pub(super) fn end(lane: &Lane, alive: &str) -> String {
    let exit = lane.exit.as_ref();
    exit.map_or_else(|| alive.to_string(), |exit| clean(&exit.to_string()))
}

pub(super) fn bar(bar: &Bar, timeline: &Timeline, scale: Scale) -> String {
    let (from, to) = (bar.span.from, bar.span.to);
    let doing = match bar.span.doing {
        Doing::Running => "running".to_string(),
        Doing::InCall if bar.span.tid.is_kernel() => "the kernel works".to_string(),
        Doing::InCall => "in call".to_string(),
        Doing::Idle => "idle: no task is ready".to_string(),
        Doing::Ready => "ready".to_string(),
        Doing::Blocked(on) => format!("blocked on {}", timeline.said(&on)),
    };
    let amount = scale.amount(scale.of(to) - scale.of(from));
    let mut text = format!("{doing} for {amount}");
    if scale == Scale::Turns && to.at > from.at {
        text += &format!(" ({})", span(to.at - from.at));
    }
    text += &format!(", from {:.6}", Nanos::from(from.at));
    match bar.span.end {
        Ending::Next | Ending::Exited => {}
        Ending::Woken { by, waker } => {
            let through = waker.map(|waker| format!("task {waker}, through "));
            let (through, by) = (through.unwrap_or_default(), timeline.said(&by));
            text += &format!("; woken by {through}{by}");
        }
        Ending::Open => text += "; not over when the recording ended",
    }
    if let Some(row) = bar.row.and_then(|row| timeline.rows.get(row)) {
        let result = row.result.as_ref();
        text += &format!("; {}", row.what);
        text.extend(result.map(|(result, _)| format!(" = {result}")));
        text.extend(row.places.iter().map(|places| format!("; {places}")));
    }
    text
}

impl Sums {
    pub(super) fn of(lane: &Lane, scale: Scale) -> Self {
        let mut sums = Self::default();
        for bar in &lane.bars {
            let length = scale.of(bar.span.to) - scale.of(bar.span.from);
            match bar.span.doing {
                Doing::Running => {
                    sums.turns += 1;
                    sums.running += length;
                }
                Doing::InCall => sums.in_call += length,
                Doing::Idle => sums.idle += length,
                Doing::Ready => sums.ready += length,
                Doing::Blocked(on) => {
                    sums.blocked += length;
                    if sums.longest.is_none_or(|(longest, _)| length > longest) {
                        sums.longest = Some((length, on));
                    }
                }
            }
        }
        sums
    }
}
