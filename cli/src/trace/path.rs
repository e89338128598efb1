//! `trace path`: the critical path, which decided when a run ended.

use std::{cmp::Reverse, collections::BTreeMap, io::Write, mem, path::PathBuf, process::ExitCode};

use clap::{Args, ValueHint};
use serde_json::{Value, json};
use trapline::{Doing, End, Ending, Moment, Nanos, QueueId, Tid};

use super::{
    devices::Sent,
    history::History,
    life::{Amount, Life, Piece},
    queues::Content,
    source::Failure,
};
use crate::{
    live::{protocol::safe_json, text::number_of},
    output::{Log, clean},
    table::table,
};

/// The number of parts of a path that are listed; the longest.
const PARTS: usize = 30;
/// How many of the locks are looked at that a task has taken: the last.
const LOCKS: usize = 16;
/// What a task did while the recording has no events.
const MISSING: &str = "unknown: events are missing";
/// What a task did while the packet that ended its wait was under way.
const NETWORK: &str = "waiting for the network";
/// What the kernel did while no task of the path was alive or did anything.
const WORLD: &str = "waiting for the world";
/// What the kernel did between the end of a task and the end of the wait for it.
const WORK: &str = "in calls";

/// Show the critical path: the chain of work and waits that decided when a run ended
#[derive(Args)]
#[command(after_help = "\
The path is followed backwards, from the task that ended last: from each wait that a task ended to \
that task. To make the run shorter, make a part of this path shorter.

Examples:
  trace path run.trap")]
pub(crate) struct PathCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Show a JSON object for each part of the path, in order of time; times are in seconds
    #[arg(long)]
    json: bool,
}

impl PathCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let (history, source) = History::open(&self.file)?;
        source.is_of_one("trace path")?;
        source.warn_of_gaps(log);
        let (path, total) = (history.path(), history.total());
        if self.json {
            for segment in &path {
                let object = segment.object(&history).to_string();
                out.write_all(safe_json(object.as_bytes()).as_bytes())?;
            }
        } else {
            Self::show(&history, &path, total, out)?;
        }
        out.flush()?;
        // The process ends: to free a long history piece by piece takes a second.
        mem::forget((history, path));
        source.end(log)
    }

    /// Shows the shares and the longest parts, for people.
    fn show(
        history: &History,
        path: &[Segment],
        total: Amount,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        writeln!(out, "{}", history.shares())?;
        let shares = path_shares(history, path, total).into_iter();
        let shares: Vec<_> = shares.map(|row| row.map(Value::from)).collect();
        let shares = table(PATH_COLUMNS, &shares);
        writeln!(out, "critical path of {total}\n\n{shares}")?;
        writeln!(out, "\n{}", parts(history, path))?;
        Ok(())
    }
}

pub(super) const PATH_COLUMNS: [&str; 4] = ["share", "time", "task", "was"];

/// The path by name and state, the largest share first.
pub(super) fn path_shares(history: &History, path: &[Segment], total: Amount) -> Vec<[String; 4]> {
    let mut sums: BTreeMap<(&str, &str), Amount> = BTreeMap::new();
    for segment in path {
        let key = (history.name(segment.tid), &*segment.what);
        *sums.entry(key).or_default() += segment.amount();
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, amount)| Reverse(*amount));
    let row = |((name, what), amount): ((&str, &str), Amount)| {
        let (share, what) = (amount.share_of(total), what.to_string());
        [share, amount.to_string(), clean(name), what]
    };
    sums.into_iter().map(row).collect()
}

/// The path in order of time: its longest parts.
fn parts(history: &History, path: &[Segment]) -> String {
    let mut longest: Vec<&Segment> = path.iter().collect();
    longest.sort_by_key(|segment| Reverse(segment.amount()));
    longest.truncate(PARTS);
    longest.sort_by_key(|segment| segment.from);
    let row = |segment: &Segment| {
        let from = format!("{:.6}", Nanos::from(segment.from.at));
        let (time, task) = (segment.amount().to_string(), history.task(segment.tid));
        [from, time, task, segment.what.clone()].map(Value::from)
    };
    let rows: Vec<_> = longest.into_iter().map(row).collect();
    table(["from", "time", "task", "was"], &rows)
}

/// A time for which a task held a lock.
struct Hold {
    lock: QueueId,
    from: Moment,
    to: Moment,
}

/// A part of the critical path: a task, what it did, and for how long.
pub(super) struct Segment {
    pub(super) tid: Tid,
    pub(super) what: String,
    pub(super) from: Moment,
    pub(super) to: Moment,
}

impl Segment {
    fn object(&self, history: &History) -> Value {
        let [from, to] = [self.from, self.to].map(|moment| moment.at.as_secs_f64());
        let (tid, name) = (number_of(self.tid), history.name(self.tid));
        json!({ "from": from, "to": to, "tid": tid, "comm": name, "was": self.what })
    }
}

impl History {
    /// The chain of work and waits that decided when the run ended, in order of time. It is followed
    /// backwards from the task that ended last: from each wait that a task ended to that task. Its
    /// segments follow each other without a gap from the begin of the run to its end.
    pub(super) fn path(&self) -> Vec<Segment> {
        let Some(mut at) = self.last_active() else {
            return Vec::new();
        };
        let has_time = !self.total().time.is_zero();
        let mut segments: Vec<Segment> = Vec::new();
        let holds = self.holds();
        let said = |tid: Tid, piece: &Piece| self.said(piece, holds.get(&tid));
        let mut add = |tid, what: &str, from, to| {
            let segment = Segment {
                tid,
                what: what.to_string(),
                from,
                to,
            };
            match segments.last_mut() {
                // On a virtual clock, turns take no time.
                _ if segment.from >= segment.to => {}
                _ if has_time && segment.amount().time.is_zero() => {}
                Some(next) if next.tid == segment.tid && next.what == segment.what => {
                    next.from = segment.from;
                }
                _ => segments.push(segment),
            }
        };
        add(Tid::KERNEL, WORLD, at.1, self.end());
        // Each step goes back in time, or jumps to another task at the same moment.
        let mut jumps = 0;
        while jumps <= self.tasks.len()
            && let Some(life) = self.tasks.get(&at.0)
        {
            let (tid, to) = at;
            let before = life.pieces.partition_point(|piece| piece.from < to);
            let piece = life.pieces[..before].last();
            let known = piece.map_or(life.spawned, |piece| piece.to);
            if known < to {
                let (by, what) = match self.has_gap(known, to) {
                    true => (tid, MISSING),
                    false => (Tid::KERNEL, WORK),
                };
                add(by, what, known, to);
                (at, jumps) = ((tid, known), 0);
                continue;
            }
            let Some(piece) = piece else {
                // From its spawn on: its parent's doing.
                at = (life.parent, to);
                jumps += 1;
                continue;
            };
            let cause = self.ender(tid, piece);
            let cause = cause.filter(|_| piece.to == to && jumps < self.tasks.len());
            let (what, before) = match cause {
                Some(cause) if cause.at.at < to.at => (NETWORK.to_string(), cause),
                Some(cause) => (said(tid, piece), cause),
                None => {
                    let at = piece.from;
                    (said(tid, piece), Sent { tid, at })
                }
            };
            add(tid, &what, before.at, to);
            jumps = match cause {
                Some(cause) if cause.at >= to => jumps + 1,
                _ => 0,
            };
            at = (before.tid, before.at);
        }
        add(Tid::KERNEL, WORLD, self.begin.unwrap_or_default(), at.1);
        segments.reverse();
        segments
    }

    /// What a task did, which locks it held meanwhile, and where a wait is in the source:
    /// `asleep, holding mutex 1, convoy.rs:67`.
    fn said(&self, piece: &Piece, holds: Option<&Vec<Hold>>) -> String {
        let mut said = self.state(piece);
        let holds = holds.map_or(&[][..], Vec::as_slice);
        let begun = holds.partition_point(|hold| hold.from <= piece.from);
        let recent = holds[begun.saturating_sub(LOCKS)..begun].iter();
        let held = recent.filter(|hold| hold.to >= piece.to);
        let held: Vec<String> = held.map(|hold| self.queue(hold.lock)).collect();
        if !held.is_empty() {
            said += &format!(", holding {}", held.join(" and "));
        }
        if let Some(place) = &piece.place {
            let place = clean(&place.to_string());
            let file = place.rsplit('/').next().unwrap_or(&place);
            said += &format!(", {}", file.rsplit(' ').next().unwrap_or(file));
        }
        said
    }

    /// By task: which lock it held, from when to when, in order.
    fn holds(&self) -> BTreeMap<Tid, Vec<Hold>> {
        let mut all: BTreeMap<Tid, Vec<Hold>> = BTreeMap::new();
        let locks = self.queues.iter();
        for (&lock, life) in locks.filter(|(_, life)| life.content == Content::Lock) {
            for (at, taken) in life.moves.iter().enumerate() {
                let next = life.moves.get(at + 1);
                let to = next.map_or(self.end(), |next| next.at);
                let from = taken.at;
                if taken.end == End::Get {
                    all.entry(taken.tid)
                        .or_default()
                        .push(Hold { lock, from, to });
                }
            }
        }
        all.values_mut()
            .for_each(|holds| holds.sort_by_key(|hold| hold.from));
        all
    }

    /// The task that was the last to do anything, and its end.
    fn last_active(&self) -> Option<(Tid, Moment)> {
        let active = |life: &Life| {
            let active = |piece: &&Piece| !matches!(piece.doing, Doing::Blocked(_));
            life.pieces.iter().rev().find(active).map(|piece| piece.to)
        };
        let tasks = self.tasks.iter();
        let (&tid, life) = tasks.max_by_key(|(tid, life)| (active(life), Reverse(**tid)))?;
        let end = life.pieces.last().map_or(self.end(), |piece| piece.to);
        Some((tid, end))
    }

    /// The task that ended a wait, and when it did what ended it.
    fn ender(&self, tid: Tid, piece: &Piece) -> Option<Sent> {
        match piece.end {
            Ending::Woken {
                waker: Some(tid), ..
            } => Some(Sent { tid, at: piece.to }),
            _ => self.sent(tid, piece),
        }
    }

    /// The length of the whole run.
    pub(super) fn total(&self) -> Amount {
        Amount::of(self.begin.unwrap_or_default(), self.end())
    }
}

impl Segment {
    pub(super) fn amount(&self) -> Amount {
        Amount::of(self.from, self.to)
    }
}
