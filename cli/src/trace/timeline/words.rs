//! The texts about a timeline: a summary for readers that cannot see it, and labels beside the
//! picture.

use std::collections::BTreeSet;

use trapline::{Doing, Ending, Exit, Nanos, On, TaskInfo, TaskState, Tid};

use super::{
    model::{Bar, Closed, Kind, Lane, Row, Timeline},
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

/// The totals of a task, on a scale.
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
    let tasks = timeline.lanes.iter().filter(|lane| !lane.is_kernel());
    let mut sentences = vec![format!("{}.", timeline.shares)];
    sentences.push(format!(
        "{} made {} in {} and {}{}.",
        count(tasks.count() as u64, "task"),
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
    if timeline.is_deadlock() {
        sentences.push(deadlock(timeline));
        sentences.extend(timeline.waits.blocked.iter().take(20).map(waiting));
        let more = timeline.waits.blocked.len().saturating_sub(20);
        if more > 0 {
            sentences.push(format!("{} more wait.", count(more as u64, "task")));
        }
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

fn fates(timeline: &Timeline) -> String {
    let of = |is: fn(&Option<Exit>) -> bool| {
        let lanes = timeline.lanes.iter();
        lanes
            .filter(|lane| !lane.is_kernel() && is(&lane.exit))
            .count()
    };
    let fates = [
        (of(|exit| matches!(exit, Some(Exit::Done))), "ended well"),
        (of(|exit| matches!(exit, Some(Exit::Failed(_)))), "failed"),
        (of(|exit| matches!(exit, Some(Exit::Faulted(_)))), "faulted"),
        (of(|exit| matches!(exit, Some(Exit::Killed))), "killed"),
        (of(Option::is_none), "alive at the end"),
    ];
    let fates: Vec<String> = fates
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, fate)| format!("{number} {fate}"))
        .collect();
    format!("Of the tasks: {}.", fates.join(", "))
}

/// The cycles that closed, without those that a deadlock at the end names.
fn closed(timeline: &Timeline) -> Vec<String> {
    let sorted = |tids: &[Tid]| {
        let mut tids = tids.to_vec();
        tids.sort_unstable();
        tids
    };
    let is_deadlock = timeline.is_deadlock();
    let named: BTreeSet<Vec<Tid>> = match is_deadlock {
        true => timeline
            .waits
            .cycles
            .iter()
            .map(|ring| sorted(ring))
            .collect(),
        false => BTreeSet::new(),
    };
    let closed = timeline.deadlocks.iter();
    let closed: Vec<&Closed> = closed
        .filter(|closed| !named.contains(&sorted(&closed.tids)))
        .collect();
    let sentence = |closed: &&Closed| {
        let (at, way) = (Nanos::from(closed.at.at), way(&closed.tids));
        format!("Deadlock at {at:.6}: {way} wait for one another.")
    };
    let mut sentences: Vec<String> = closed.iter().take(CYCLES).map(sentence).collect();
    let more = closed.len().saturating_sub(CYCLES);
    if more > 0 {
        sentences.push(format!("And {}.", count(more as u64, "more deadlock")));
    }
    sentences
}

/// A cycle, as far as it can be read: `2 → 3 → 2`.
pub(super) fn way(ring: &[Tid]) -> String {
    let mut way: Vec<String> = ring.iter().take(RING).map(ToString::to_string).collect();
    let more = ring.len() - way.len();
    if more > 0 {
        way.push(format!("{more} more"));
    }
    way.extend(ring.first().map(ToString::to_string));
    way.join(" → ")
}

/// The deadlock and its cycles. A thread could have ended it: the recording does not show threads.
pub(super) fn deadlock(timeline: &Timeline) -> String {
    let mut text =
        "Deadlock: no task was ready, and no timer and no device could make one ready.".to_string();
    let cycles = &timeline.waits.cycles;
    for ring in cycles.iter().take(CYCLES) {
        text += &format!(" Cycle: {}.", way(ring));
    }
    let more = cycles.len().saturating_sub(CYCLES);
    if more > 0 {
        text += &format!(" And {}.", count(more as u64, "more cycle"));
    }
    text
}

/// What a task that was blocked at the end waited for.
pub(super) fn waiting(waiting: &TaskInfo) -> String {
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

/// A lane, in a sentence.
pub(super) fn lane(lane: &Lane, scale: Scale) -> String {
    let sums = Sums::of(lane, scale);
    if lane.is_kernel() {
        let [work, idle] = [sums.in_call, sums.idle].map(|sum| scale.amount(sum));
        return format!("the kernel: works for {work}, idle for {idle}");
    }
    let exit = match &lane.exit {
        None => "alive at the end".to_string(),
        Some(exit) => clean(&exit.to_string()),
    };
    format!(
        "task {} {:?}{}: {}, {}; running {}, in call {}, ready {}, blocked {}; {exit}",
        lane.tid,
        lane.name,
        lane.spawned
            .as_ref()
            .map_or_else(String::new, |at| format!(", spawned at {at}")),
        count(sums.turns, "turn"),
        count(lane.traps, "trap"),
        scale.amount(sums.running),
        scale.amount(sums.in_call),
        scale.amount(sums.ready),
        scale.amount(sums.blocked),
    )
}

/// A bar, in a few words.
pub(super) fn bar(bar: &Bar, timeline: &Timeline, scale: Scale) -> String {
    let (from, to) = (bar.span.from, bar.span.to);
    let doing = match bar.span.doing {
        Doing::Running => "running".to_string(),
        Doing::InCall if bar.span.tid == Tid::KERNEL => "the kernel works".to_string(),
        Doing::InCall => "in call".to_string(),
        Doing::Idle => "idle: no task is ready".to_string(),
        Doing::Ready => "ready".to_string(),
        Doing::Blocked(on) => format!("blocked on {}", timeline.said(&on)),
    };
    let mut text = format!(
        "{doing} for {}",
        scale.amount(scale.of(to) - scale.of(from))
    );
    if scale == Scale::Turns && to.at > from.at {
        text += &format!(" ({})", span(to.at - from.at));
    }
    text += &format!(", from {:.6}", Nanos::from(from.at));
    match bar.span.end {
        Ending::Next | Ending::Exited => {}
        Ending::Woken { by, waker: None } => text += &format!("; woken by {}", timeline.said(&by)),
        Ending::Woken {
            by,
            waker: Some(waker),
        } => text += &format!("; woken by task {waker}, through {}", timeline.said(&by)),
        Ending::Open => text += "; not over when the recording ended",
    }
    if let Some(row) = bar.row.and_then(|row| timeline.rows.get(row)) {
        text += &format!("; {}", row.what);
        if let Some((result, _)) = &row.result {
            text += &format!(" = {result}");
        }
        text.extend(row.places.iter().map(|places| format!("; {places}")));
    }
    text
}

/// The legend: the kinds that occur in a timeline, with their style's class. Arrows and crosses are on
/// the lanes of which each bar is drawn.
pub(super) fn legend(timeline: &Timeline, alone: &[&Lane]) -> Vec<(&'static str, &'static str)> {
    let bars = || timeline.lanes.iter().flat_map(|lane| &lane.bars);
    let has = |is: fn(On) -> bool| {
        bars().any(|bar| matches!(bar.span.doing, Doing::Blocked(on) if is(on)))
    };
    let in_call = |bar: &Bar| bar.span.doing == Doing::InCall && bar.span.from.at < bar.span.to.at;
    let is_woken = |bar: &Bar| matches!(bar.span.end, Ending::Woken { waker: Some(_), .. });
    let is_drawn = |lane: u64| alone.iter().any(|alone| alone.tid == lane);
    let fails = |row: &Row| {
        let is_cross = !matches!(row.kind, Kind::Fault | Kind::Deadlocked);
        row.is_error && is_cross && is_drawn(row.tid)
    };
    let is_fault = |row: &Row| row.kind == Kind::Fault;
    let entries = [
        (true, "running", "running"),
        (bars().any(in_call), "call", "in call: the kernel works"),
        (true, "ready", "ready: waits for its turn"),
        (has(|on| matches!(on, On::Timer(_))), "timer", "sleeps"),
        (
            has(|on| matches!(on, On::Queue(..))),
            "queue",
            "blocked on a queue",
        ),
        (
            has(|on| matches!(on, On::Device(..))),
            "device",
            "blocked on a device",
        ),
        (
            has(|on| matches!(on, On::Exit(_))),
            "exit",
            "waits for a task's end",
        ),
        (!timeline.idle.is_empty(), "idle", "no task is ready"),
        (
            alone.iter().flat_map(|lane| &lane.bars).any(is_woken),
            "arrow",
            "wakes",
        ),
        (timeline.is_deadlock(), "wait", "waits for"),
        (timeline.rows.iter().any(fails), "error", "fails"),
        (
            timeline.rows.iter().any(is_fault),
            "fault",
            "a fault of the network",
        ),
        (
            !timeline.deadlocks.is_empty(),
            "closed",
            "a deadlock: wait for one another from here on",
        ),
    ];
    let entries = entries.into_iter().filter(|(occurs, ..)| *occurs);
    entries.map(|(_, class, word)| (class, word)).collect()
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
