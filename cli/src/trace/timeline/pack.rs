//! A timeline as bytes for the page's script. `data.js` reads them in the same order.
//!
//! Everything is a LEB128 varint. A text is the number of a template. If the template has a place
//! for a number, that number follows. Most texts of a trace differ in one number only.

use rustc_hash::FxHashMap;
use trapline::{Doing, Ending, Moment, Tid};

use super::{
    crowd::{self, longest_number},
    explain::{Part, Reason},
    model::{Lane, Row, Timeline},
};
use crate::output::clean;

/// The place of a number in a template. The next character is its least number of digits, counted
/// from `0`.
const NUMBER: char = '\u{1}';

/// The flags in a bar's first number, beside the state and its ending.
const GAP: u64 = 1 << 5;
const ROW: u64 = 1 << 6;
const TIMED: u64 = 1 << 7;
/// The state of a task in a select, whose number has a bit more than there is room for beside them.
const SELECTS: u64 = 1 << 8;

pub(super) fn pack(
    timeline: &Timeline,
    reasons: &[Reason],
    path: &[Part],
) -> (Vec<u8>, Vec<String>) {
    let begin = timeline.begin;
    let mut pack = Pack::default();
    pack.moment(begin, Moment::default());
    pack.moment(timeline.end, begin);
    let mut last = begin;
    pack.list(&timeline.idle, |pack, &(from, to)| {
        pack.moment(from, last);
        pack.moment(to, from);
        last = to;
    });
    let (mut last, mut lane) = (begin, 0);
    pack.list(&timeline.rows, |pack, row| {
        let place = timeline.lane(row.tid).unwrap_or(0);
        pack.row(row, last, (place, lane));
        (last, lane) = (row.at, place);
    });
    pack.size(timeline.lanes.len());
    pack.size(timeline.lanes.iter().map(|lane| lane.bars.len()).sum());
    for lane in &timeline.lanes {
        pack.lane(lane, begin);
    }
    let mut last = 0;
    pack.list(&timeline.messages, |pack, message| {
        pack.size(message.from - last);
        pack.size(message.to - message.from);
        pack.size(message.bytes);
        last = message.from;
    });
    pack.reasons(reasons);
    // The parts of the critical path follow each other in time, if not without gaps.
    let mut last = begin;
    pack.list(path, |pack, (lane, part)| {
        pack.size(*lane);
        pack.moment(part.from, last);
        pack.moment(part.to, part.from);
        pack.text(&part.what);
        last = part.from;
    });
    pack.states(timeline);
    (pack.bytes, pack.templates)
}

#[derive(Default)]
struct Pack {
    bytes: Vec<u8>,
    templates: Vec<String>,
    numbers: FxHashMap<String, u64>,
}

impl Pack {
    /// A row, after one at a moment. Of two places, the first is its lane, and the second that of the
    /// row before.
    fn row(&mut self, row: &Row, last: Moment, (lane, before): (usize, usize)) {
        let flags = [
            row.result.is_some(),
            lane == before,
            row.places.is_some(),
            row.is_error,
        ];
        let bits = (4..)
            .zip(flags)
            .map(|(bit, is_set)| u64::from(is_set) << bit);
        self.number(row.kind as u64 | bits.sum::<u64>());
        if lane != before {
            self.size(lane);
        }
        self.moment(row.at, last);
        self.text(&row.what);
        if let Some((result, took)) = &row.result {
            self.text(result);
            self.number(took.time.as_nanos() as u64);
            self.number(took.turns);
        }
        if let Some(places) = &row.places {
            self.text(places);
        }
    }

    fn lane(&mut self, lane: &Lane, begin: Moment) {
        self.number(lane.tid.into());
        self.text(&lane.name);
        self.number(lane.parent.into());
        self.number(lane.traps);
        let exit = lane.exit.as_ref().map(|exit| clean(&exit.to_string()));
        self.text(&exit.unwrap_or_default());
        let (mut last, mut row) = (begin, 0);
        self.list(&lane.bars, |pack, bar| {
            let span = bar.span;
            // The page counts what is ready before what is in call.
            let doing = [0, 2, 1, 3, 4, 5, 6, 7, SELECTS][crowd::band(span.doing)];
            let end = match span.end {
                Ending::Next => 0,
                Ending::Woken { .. } => 1,
                Ending::Exited => 2,
                Ending::Open => 3,
            };
            let gap = u64::from(span.from != last) * GAP;
            // Counted from 1; 0 is none.
            let its_row = bar.row.map_or(0, |row| row + 1);
            let has_row = u64::from(its_row > row) * ROW;
            let is_timed = u64::from(bar.is_timed) * TIMED;
            pack.number(doing | end << 3 | gap | has_row | is_timed);
            if gap != 0 {
                pack.moment(span.from, last);
            }
            pack.moment(span.to, span.from);
            if has_row != 0 {
                pack.size(its_row - row);
                row = its_row;
            }
            if let Doing::Blocked(on) = span.doing {
                pack.text(&on.to_string());
            }
            if let Ending::Woken { by, waker } = span.end {
                pack.text(&by.to_string());
                pack.number(waker.unwrap_or(Tid::KERNEL).into());
            }
            last = span.to;
        });
    }

    fn reasons(&mut self, reasons: &[Reason]) {
        self.size(reasons.len());
        self.size(reasons.iter().map(|reason| reason.sentences.len()).sum());
        let mut last = 0;
        for reason in reasons {
            self.size(reason.bar - last);
            self.list(&reason.sentences, |pack, sentence| pack.text(sentence));
            self.list(&reason.steps, |pack, step| pack.size(*step));
            last = reason.bar;
        }
    }

    /// What `trace ps` and `trace waits` know of an instant: words, and the last takers of queues.
    fn states(&mut self, timeline: &Timeline) {
        self.size(timeline.words.len());
        for (on, words) in &timeline.words {
            self.text(on);
            self.text(words);
        }
        let queues = timeline.history.iter().flat_map(|history| &history.queues);
        let takes = queues.map(|(queue, life)| (queue.number(), life.takes()));
        let takes: Vec<_> = takes.filter(|(_, takes)| !takes.is_empty()).collect();
        self.list(&takes, |pack, (queue, takes)| {
            pack.number(*queue);
            let mut last = timeline.begin;
            pack.list(takes, |pack, &(at, tid)| {
                let at = at.max(last);
                pack.moment(at, last);
                pack.number(tid.into());
                last = at;
            });
        });
    }

    /// The number of some items, and each of them.
    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.size(items.len());
        for item in items {
            each(self, item);
        }
    }

    fn moment(&mut self, moment: Moment, since: Moment) {
        self.number(moment.at.saturating_sub(since.at).as_nanos() as u64);
        self.number(moment.turn.saturating_sub(since.turn));
    }

    fn text(&mut self, text: &str) {
        let digits = longest_number(text);
        let number: Option<u64> = text[digits.clone()].parse().ok();
        let template = match number {
            None => text.to_string(),
            Some(_) => {
                let width = char::from(b'0' + digits.len() as u8);
                let (before, after) = (&text[..digits.start], &text[digits.end..]);
                format!("{before}{NUMBER}{width}{after}")
            }
        };
        let next = self.templates.len() as u64;
        let place = *self.numbers.entry(template).or_insert_with_key(|template| {
            self.templates.push(template.clone());
            next
        });
        self.number(place);
        if let Some(number) = number {
            self.number(number);
        }
    }

    fn size(&mut self, size: usize) {
        self.number(size as u64);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}
