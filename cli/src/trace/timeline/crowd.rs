//! The lanes of a picture: of many tasks, those of a name are one lane, which shows how many of them
//! are in each state. The page's `lanes.js` and `crowd.js` do the same.

use std::{collections::BTreeMap, fmt::Write};

use trapline::{Doing, KernelId, On};

use super::{
    model::{Bar, Lane, Timeline},
    scale::Scale,
};

/// The lanes of more tasks than these are folded, as on the page at first.
const MOST_UNFOLDED: usize = 50;

/// The parts of every lane, from its top: a strip for tasks that are blocked, and below it a part for
/// tasks that run, are in a call or are ready. Each is its top and its height.
pub(super) const WAITING: [f64; 2] = [3.0, 7.0];
pub(super) const ACTIVE: [f64; 2] = [12.0, 12.0];

/// The styles of the states: those of the lower part from below, and those of the strip.
const CLASSES: [&str; 9] = [
    "running", "call", "ready", "rest", "timer", "queue", "device", "exit", "select",
];
const ACTIVES: usize = 3;

pub(super) fn class(doing: Doing) -> &'static str {
    CLASSES[band(doing)]
}

pub(super) fn part(class: &str) -> [f64; 2] {
    match CLASSES[..ACTIVES].contains(&class) {
        true => ACTIVE,
        false => WAITING,
    }
}

/// The place of a state among the styles.
pub(super) fn band(doing: Doing) -> usize {
    match doing {
        Doing::Running => 0,
        Doing::InCall => 1,
        Doing::Ready => 2,
        Doing::Idle => 3,
        Doing::Blocked(On::Timer(_)) => 4,
        Doing::Blocked(On::Queue(..)) => 5,
        Doing::Blocked(On::Device(..)) => 6,
        Doing::Blocked(On::First(_)) => 8,
        Doing::Blocked(_) => 7,
    }
}

/// A lane of a picture: a lane of the timeline, or all those of a name.
pub(super) struct Group<'a> {
    pub(super) name: String,
    pub(super) lanes: Vec<&'a Lane>,
}

impl<'a> Group<'a> {
    pub(super) fn alone(&self) -> Option<&'a Lane> {
        let [lane] = self.lanes[..] else { return None };
        Some(lane)
    }
}

/// The lanes of a picture, in the order of their first tasks.
pub(super) fn groups(timeline: &Timeline) -> Vec<Group<'_>> {
    let is_folded = timeline.tasks().count() > MOST_UNFOLDED;
    let mut places: BTreeMap<(Option<KernelId>, String), usize> = BTreeMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for lane in &timeline.lanes {
        let (name, next) = (pattern(&lane.name), groups.len());
        let place = match is_folded && !lane.is_kernel() {
            true => *places
                .entry((lane.tid.kernel(), name.clone()))
                .or_insert(next),
            false => next,
        };
        if place == next {
            let lanes = Vec::new();
            groups.push(Group { name, lanes });
        }
        groups[place].lanes.push(lane);
    }
    groups
}

/// Numbers of so many digits are exact in JavaScript.
const DIGITS: usize = 15;

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

/// The names of workers differ in their numbers.
fn pattern(name: &str) -> String {
    let digits = longest_number(name);
    let number = if digits.is_empty() { "" } else { "#" };
    format!("{}{number}{}", &name[..digits.start], &name[digits.end..])
}

/// How many tasks are in each state, on average in each of some columns of equal width. The states of
/// each part are above one another: for each, from below, how many are in it or in one below it.
pub(super) struct Crowd([Vec<Vec<f64>>; 2]);

impl Crowd {
    /// The bars between two points of the scale.
    pub(super) fn of<'a>(
        bars: impl Iterator<Item = &'a Bar>,
        scale: Scale,
        (begin, end): (f64, f64),
        columns: usize,
    ) -> Self {
        let mut bands = CLASSES.map(|_| (vec![0.0; columns + 1], vec![0.0; columns + 2]));
        let place = |value: f64| {
            let place = (value - begin) / (end - begin) * columns as f64;
            place.clamp(0.0, columns as f64)
        };
        for bar in bars {
            let (parts, steps) = &mut bands[band(bar.span.doing)];
            let [from, to] = [bar.span.from, bar.span.to].map(|at| place(scale.of(at)));
            let (first, last) = (from as usize, to as usize);
            if first == last {
                parts[first] += to - from;
            } else {
                parts[first] += (first + 1) as f64 - from;
                parts[last] += to - last as f64;
                steps[first + 1] += 1.0;
                steps[last] -= 1.0;
            }
        }
        let levels = |bands: &[(Vec<f64>, Vec<f64>)]| {
            let mut below = vec![0.0; columns];
            let add = |(parts, steps): &(Vec<f64>, Vec<f64>)| {
                let mut level = 0.0;
                for (at, below) in below.iter_mut().enumerate() {
                    level += steps[at];
                    *below += parts[at] + level;
                }
                below.clone()
            };
            bands.iter().map(add).collect()
        };
        let (active, waiting) = bands.split_at(ACTIVES);
        Self([levels(active), levels(waiting)])
    }

    /// The most at once of those that run or are ready, and of those that are blocked: on average in a
    /// column.
    fn most(&self) -> [f64; 2] {
        let most = |levels: &Vec<Vec<f64>>| {
            let all = levels.last().into_iter().flatten();
            all.copied().fold(0.0, f64::max)
        };
        self.0.each_ref().map(most)
    }

    /// The same as whole numbers of tasks.
    pub(super) fn most_tasks(&self) -> [f64; 2] {
        // A sum of parts may be off in its last digits.
        self.most().map(|most| (most - 1e-6).max(0.0).ceil())
    }

    /// The areas of a lane with this left and top, each with its class: area is time. Later ones cover
    /// earlier ones.
    pub(super) fn areas(&self, left: f64, y: f64) -> Vec<(&'static str, String)> {
        let (active, waiting) = CLASSES.split_at(ACTIVES);
        let parts = [(active, ACTIVE), (waiting, WAITING)];
        let mut areas = Vec::new();
        for (at, (classes, [top, height])) in parts.into_iter().enumerate() {
            let unit = height / self.most()[at].max(1.0);
            for (class, level) in classes.iter().zip(&self.0[at]).rev() {
                let heights = level.iter().map(|n| n * unit);
                areas.push((*class, area(heights, left, y + top + height)));
            }
        }
        areas
    }
}

/// The outline of columns of a pixel, with these heights.
fn area(heights: impl Iterator<Item = f64>, left: f64, bottom: f64) -> String {
    let mut path = String::new();
    let mut before = 0;
    let mut x = left;
    // In tenths of a pixel. Writing to a string does not fail.
    let mut go = |x: f64, height: i64| {
        if path.is_empty() && height != 0 {
            let _ = write!(path, "M{left:.1} {bottom:.1}");
        }
        if height != before {
            let _ = write!(path, "H{x:.1}V{:.1}", bottom - height as f64 / 10.0);
            before = height;
        }
    };
    for height in heights {
        go(x, (height * 10.0).round() as i64);
        x += 1.0;
    }
    go(x, 0);
    path
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trapline::{Ending, Moment, Nanos, On, Span, Tid};

    use super::*;

    fn bar(doing: Doing, [from, to]: [u64; 2]) -> Bar {
        let moment = |at| Moment {
            at: Duration::from_nanos(at),
            turn: 0,
        };
        let span = Span {
            tid: Tid::from(1),
            doing,
            from: moment(from),
            to: moment(to),
            end: Ending::Next,
        };
        Bar {
            is_timed: false,
            span,
            row: None,
        }
    }

    #[test]
    fn the_area_of_a_band_is_its_time() {
        let asleep = Doing::Blocked(On::Timer(Nanos::FOREVER));
        let bars = [
            bar(Doing::Running, [0, 25]),
            bar(Doing::InCall, [25, 30]),
            bar(Doing::Ready, [10, 60]),
            bar(asleep, [30, 100]),
            bar(asleep, [55, 95]),
        ];
        let crowd = Crowd::of(bars.iter(), Scale::Time, (0.0, 100.0), 10);
        assert_eq!(crowd.most(), [2.0, 2.0]);
        let areas: BTreeMap<_, _> = crowd.areas(0.0, 0.0).into_iter().collect();
        // A column of a pixel has 10 units; 12 pixels are two tasks, and half of a column is half as high.
        assert_eq!(areas["running"], "M0.0 24.0H0.0V18.0H2.0V21.0H3.0V24.0");
        assert_eq!(areas["call"], "M0.0 24.0H0.0V18.0H3.0V24.0");
        assert_eq!(
            areas["ready"],
            "M0.0 24.0H0.0V18.0H1.0V12.0H3.0V18.0H6.0V24.0"
        );
        // Seven pixels are two tasks.
        assert_eq!(
            areas["timer"],
            "M0.0 10.0H3.0V6.5H5.0V4.7H6.0V3.0H9.0V4.7H10.0V10.0"
        );
    }

    #[test]
    fn a_crowd_has_no_more_tasks_than_there_are() {
        let first = [0, 14, 23, 31, 36, 48, 79, 100];
        let second = [0, 3, 15, 23, 68, 81, 98, 100];
        let bars: [Vec<Bar>; 2] = [first, second].map(|at| {
            let spans = at.windows(2).map(|span| [span[0], span[1]]);
            spans.map(|span| bar(Doing::Ready, span)).collect()
        });
        let crowd = Crowd::of(bars.iter().flatten(), Scale::Time, (0.0, 100.0), 3);
        assert!(crowd.most()[0] > 2.0, "the sum is rounded");
        assert_eq!(crowd.most_tasks(), [2.0, 0.0]);
    }

    #[test]
    fn names_differ_in_their_numbers() {
        let names = ["worker-9", "worker-10", "client", "v2 of 10"];
        let patterns = names.map(pattern);
        assert_eq!(patterns, ["worker-#", "worker-#", "client", "v2 of #"]);
    }
}
