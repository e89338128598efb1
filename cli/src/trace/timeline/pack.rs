//! A timeline as bytes for the page's script. `data.js` reads them in the same order.
//!
//! Everything is a LEB128 varint. A text is the number of a template. If the template has a place
//! for a number, that number follows. Most texts of a trace differ in one number only.

use rustc_hash::FxHashMap;
use trapline::{Doing, Ending, Moment, On, Tid};

use super::{
    explain::{Part, Reason},
    model::{Kind, Lane, Message, Timeline},
};
use crate::trace::history::History;

/// The place of a number in a template. The next character is its least number of digits, counted
/// from `0`.
const NUMBER: char = '\u{1}';
/// Numbers of so many digits are exact in JavaScript.
const DIGITS: usize = 15;

/// The flags in a bar's first number, beside the state and its ending.
const GAP: u64 = 1 << 5;
const ROW: u64 = 1 << 6;
const TIMED: u64 = 1 << 7;

/// The bytes, and the templates of the texts.
pub(super) fn pack(
    timeline: &Timeline,
    reasons: &[Reason],
    path: &[Part],
) -> (Vec<u8>, Vec<String>) {
    let mut pack = Pack::default();
    pack.moment(timeline.begin, Moment::default());
    pack.moment(timeline.end, timeline.begin);
    pack.number(timeline.idle.len() as u64);
    let mut last = timeline.begin;
    for &(from, to) in &timeline.idle {
        pack.moment(from, last);
        pack.moment(to, from);
        last = to;
    }
    pack.rows(timeline);
    pack.number(timeline.lanes.len() as u64);
    let bars: usize = timeline.lanes.iter().map(|lane| lane.bars.len()).sum();
    pack.number(bars as u64);
    for lane in &timeline.lanes {
        pack.lane(lane, timeline.begin);
    }
    pack.messages(&timeline.messages);
    pack.reasons(reasons);
    pack.path(path, timeline.begin);
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
    fn rows(&mut self, timeline: &Timeline) {
        self.number(timeline.rows.len() as u64);
        let mut last = timeline.begin;
        let mut lane = 0;
        for row in &timeline.rows {
            let place = timeline.lane(Tid::from(row.tid)).unwrap_or(0);
            let is_same = u64::from(place == lane);
            let kind = match row.kind {
                Kind::Call => 0,
                Kind::Spawned => 1,
                Kind::Console => 2,
                Kind::Device => 3,
                Kind::Exited => 4,
                Kind::Injected => 5,
                Kind::Fault => 6,
                Kind::Deadlocked => 7,
            };
            let is_answered = u64::from(row.result.is_some());
            let is_placed = u64::from(row.places.is_some());
            let is_error = u64::from(row.is_error);
            self.number(kind | is_answered << 3 | is_same << 4 | is_placed << 5 | is_error << 6);
            if place != lane {
                self.number(place as u64);
                lane = place;
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
            last = row.at;
        }
    }

    fn messages(&mut self, messages: &[Message]) {
        self.number(messages.len() as u64);
        let mut last = 0;
        for &Message { from, to, bytes } in messages {
            self.number((from - last) as u64);
            self.number((to - from) as u64);
            self.number(bytes as u64);
            last = from;
        }
    }

    fn reasons(&mut self, reasons: &[Reason]) {
        self.number(reasons.len() as u64);
        let sentences: usize = reasons.iter().map(|reason| reason.sentences.len()).sum();
        self.number(sentences as u64);
        let mut last = 0;
        for reason in reasons {
            self.number((reason.bar - last) as u64);
            self.number(reason.sentences.len() as u64);
            for sentence in &reason.sentences {
                self.text(sentence);
            }
            self.number(reason.steps.len() as u64);
            for step in &reason.steps {
                self.number(*step as u64);
            }
            last = reason.bar;
        }
    }

    /// The parts of the critical path, which follow each other in time, if not without gaps.
    fn path(&mut self, parts: &[Part], begin: Moment) {
        self.number(parts.len() as u64);
        let mut last = begin;
        for part in parts {
            self.number(part.lane as u64);
            self.moment(part.from, last);
            self.moment(part.to, part.from);
            self.text(&part.what);
            last = part.from;
        }
    }

    /// What `trace ps` and `trace waits` know of an instant: words, and the last takers of queues.
    fn states(&mut self, timeline: &Timeline) {
        self.number(timeline.words.len() as u64);
        for (on, words) in &timeline.words {
            self.text(on);
            self.text(words);
        }
        let history = timeline.history.as_ref();
        let takes = history.map(History::takes).unwrap_or_default();
        self.number(takes.len() as u64);
        for (queue, takes) in takes {
            self.number(queue);
            self.number(takes.len() as u64);
            let mut last = timeline.begin;
            for (at, tid) in takes {
                let at = at.max(last);
                self.moment(at, last);
                self.number(tid.into());
                last = at;
            }
        }
    }

    fn lane(&mut self, lane: &Lane, begin: Moment) {
        self.number(lane.tid);
        self.text(&lane.name);
        self.number(lane.parent);
        self.number(lane.traps);
        self.text(
            &lane
                .exit
                .as_ref()
                .map_or_else(String::new, |exit| crate::output::clean(&exit.to_string())),
        );
        self.number(lane.bars.len() as u64);
        let mut last = begin;
        let mut row = 0;
        for bar in &lane.bars {
            let span = bar.span;
            let doing = match span.doing {
                Doing::Running => 0,
                Doing::Ready => 1,
                Doing::InCall => 2,
                Doing::Idle => 3,
                Doing::Blocked(On::Timer(_)) => 4,
                Doing::Blocked(On::Queue(..)) => 5,
                Doing::Blocked(On::Device(..)) => 6,
                Doing::Blocked(_) => 7,
            };
            let end = match span.end {
                Ending::Next => 0,
                Ending::Woken { .. } => 1,
                Ending::Exited => 2,
                Ending::Open => 3,
            };
            let gap = u64::from(span.from != last) * GAP;
            // Counted from 1; 0 is none.
            let its_row = bar.row.map_or(0, |row| row as u64 + 1);
            let has_row = u64::from(its_row > row) * ROW;
            let is_timed = u64::from(bar.is_timed) * TIMED;
            self.number(doing | end << 3 | gap | has_row | is_timed);
            if gap != 0 {
                self.moment(span.from, last);
            }
            self.moment(span.to, span.from);
            if has_row != 0 {
                self.number(its_row - row);
                row = its_row;
            }
            if let Doing::Blocked(on) = span.doing {
                self.text(&on.to_string());
            }
            if let Ending::Woken { by, waker } = span.end {
                self.text(&by.to_string());
                self.number(waker.map_or(0, u64::from));
            }
            last = span.to;
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

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

/// The place of the longest number in a text, of those that are not too long; of equals, the last.
pub(super) fn longest_number(text: &str) -> std::ops::Range<usize> {
    let mut longest = 0..0;
    let mut start = None;
    for (at, byte) in text.bytes().chain([b' ']).enumerate() {
        match (byte.is_ascii_digit(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                if at - from >= longest.len() && at - from <= DIGITS {
                    longest = from..at;
                }
                start = None;
            }
            _ => {}
        }
    }
    longest
}
