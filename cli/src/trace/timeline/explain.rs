//! Why the bars of a timeline are there, and the critical path of the run: for the page. The words are
//! those of `trace why` and `trace path`.

use std::cmp::Reverse;

use serde_json::{Value, json};
use trapline::{Doing, Ending, Moment, On};

use super::model::{Bar, Timeline};
use crate::{
    progress::Meter,
    signals,
    trace::{
        history::{History, Step},
        life::Amount,
        path::{PATH_COLUMNS, Segment, path_shares},
    },
};

/// The largest number of bars that are explained: the longest waits. `trace why` explains all.
const MOST: usize = 5000;

/// The largest number of turns in all waits that are explained, since each explanation looks at what
/// other tasks did meanwhile. Otherwise thousands of waits for one busy task would take minutes.
const MOST_TURNS: u64 = 10_000_000;

pub(super) struct Reason {
    /// Counted over all lanes.
    pub(super) bar: usize,
    pub(super) sentences: Vec<String>,
    /// The bars that the sentences are about, from wait to wait; the first is the bar itself.
    pub(super) steps: Vec<usize>,
}

/// A part of the critical path, and the place of its task's lane.
pub(super) type Part = (usize, Segment);

/// Explains the longest waits of a timeline, in the order of their bars.
pub(super) fn reasons(timeline: &Timeline) -> Vec<Reason> {
    let Some(history) = &timeline.history else {
        return Vec::new();
    };
    // Of each lane, the number of its first bar.
    let (mut firsts, mut next) = (Vec::new(), 0);
    let mut chosen: Vec<(usize, &Bar)> = Vec::new();
    for lane in &timeline.lanes {
        if !lane.is_kernel() {
            chosen.extend((next..).zip(&lane.bars));
        }
        firsts.push(next);
        next += lane.bars.len();
    }
    chosen.sort_by_key(|(index, bar)| Reverse((weight(bar), Reverse(*index))));
    let mut room = MOST_TURNS;
    chosen.retain(|(_, bar)| {
        let left = room.checked_sub(amount(bar).turns);
        room = left.unwrap_or(room);
        left.is_some()
    });
    chosen.truncate(MOST);
    chosen.sort_by_key(|(index, _)| *index);
    let place = |step: Step| {
        let lane = timeline.lane(step.0)?;
        Some(firsts[lane] + bar_of(timeline, lane, history, step)?)
    };
    let meter = Meter::new("wait", Some(chosen.len() as u64));
    let reason = |(done, (index, bar)): (u64, (usize, &Bar))| {
        meter.show(done);
        let why = history.why_span(bar.span.tid, bar.span.doing, end_of(timeline, bar))?;
        Some(Reason {
            bar: index,
            sentences: why.sentences,
            steps: why.steps.into_iter().filter_map(place).collect(),
        })
    };
    let chosen = (0..).zip(chosen).take_while(|_| !signals::is_raised());
    chosen.filter_map(reason).collect()
}

/// What is explained rather: waits, then the time in the ready queue; the longest first.
fn weight(bar: &Bar) -> (u8, Amount) {
    let kind = match bar.span.doing {
        Doing::Blocked(On::Timer(_)) => 1,
        Doing::Blocked(_) => 3,
        Doing::Ready => 2,
        Doing::Running | Doing::InCall | Doing::Idle => 0,
    };
    (kind, amount(bar))
}

fn amount(bar: &Bar) -> Amount {
    Amount::of(bar.span.from, bar.span.to)
}

/// When a bar ended. One that a deadlock leaves open is drawn a turn longer.
fn end_of(timeline: &Timeline, bar: &Bar) -> Moment {
    let is_longer = bar.span.end == Ending::Open && timeline.deadlock.is_some();
    let mut to = bar.span.to;
    to.turn -= u64::from(is_longer);
    to
}

/// The place of a piece among the bars of its lane.
fn bar_of(timeline: &Timeline, lane: usize, history: &History, step: Step) -> Option<usize> {
    let piece = history.piece_at_step(step)?;
    let bars = &timeline.lanes[lane].bars;
    let first = bars.partition_point(|bar| bar.span.from < piece.from);
    let rest = bars[first..].iter();
    let mut its = rest.take_while(|bar| bar.span.from == piece.from);
    Some(first + its.position(|bar| bar.span.doing == piece.doing)?)
}

pub(super) fn path(timeline: &Timeline) -> (Vec<Part>, Value) {
    // It does not lead from one kernel to another.
    let is_of_one = timeline
        .lanes
        .iter()
        .all(|lane| lane.tid.kernel().is_none());
    let Some(history) = timeline.history.as_ref().filter(|_| is_of_one) else {
        return (Vec::new(), Value::Null);
    };
    let (path, total) = (history.path(), history.total());
    let rows = path_shares(history, &path, total);
    let title = format!("critical path of {total}");
    let table = json!({ "title": title, "columns": PATH_COLUMNS, "rows": rows });
    let part = |mut segment: Segment| {
        let lane = timeline.lane(segment.tid)?;
        let is_in_view = segment.to >= timeline.begin && segment.from <= timeline.end;
        segment.from = segment.from.max(timeline.begin);
        segment.to = segment.to.min(timeline.end);
        is_in_view.then_some((lane, segment))
    };
    (path.into_iter().filter_map(part).collect(), table)
}
