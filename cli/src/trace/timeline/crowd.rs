//! The lanes of a picture: of many tasks, those of a name are one lane, which shows how many of them
//! are in each state. The page's `lanes.js` and `crowd.js` do the same.

use std::{collections::BTreeMap, fmt::Write};

use trapline::{Doing, On};

use super::{
    model::{Bar, Timeline},
    pack::longest_number,
    scale::Scale,
};

/// The lanes of more tasks than these are folded, as on the page at first.
const MOST_UNFOLDED: usize = 50;

/// The parts of every lane, from its top: a strip for tasks that are blocked, and below it a part for
/// tasks that run, are in a call or are ready. Each is its top and its height.
pub(super) const WAITING: [f64; 2] = [3.0, 7.0];
pub(super) const ACTIVE: [f64; 2] = [12.0, 12.0];

/// The styles of the states: those of the lower part from below, and those of the strip.
const CLASSES: [&str; 8] = [
    "running", "call", "ready", "rest", "timer", "queue", "device", "exit",
];
/// The number of those of the lower part.
const ACTIVES: usize = 3;

/// The style of a state.
pub(super) fn class(doing: Doing) -> &'static str {
    CLASSES[band(doing)]
}

/// The part of a lane in which a state is drawn.
pub(super) fn part(doing: Doing) -> [f64; 2] {
    match band(doing) {
        ..ACTIVES => ACTIVE,
        _ => WAITING,
    }
}

/// The place of a state among the styles.
fn band(doing: Doing) -> usize {
    match doing {
        Doing::Running => 0,
        Doing::InCall => 1,
        Doing::Ready => 2,
        Doing::Idle => 3,
        Doing::Blocked(On::Timer(_)) => 4,
        Doing::Blocked(On::Queue(..)) => 5,
        Doing::Blocked(On::Device(..)) => 6,
        Doing::Blocked(_) => 7,
    }
}

/// A lane of a picture: a lane of the timeline, or all those of a name.
pub(super) struct Group {
    pub(super) name: String,
    /// Their places among the lanes of the timeline.
    pub(super) lanes: Vec<usize>,
}

impl Group {
    /// The place of its only lane.
    pub(super) fn alone(&self) -> Option<usize> {
        let [lane] = self.lanes[..] else { return None };
        Some(lane)
    }
}

/// The lanes of a picture, in the order of their first tasks.
pub(super) fn groups(timeline: &Timeline) -> Vec<Group> {
    let tasks = timeline.lanes.iter().filter(|lane| !lane.is_kernel());
    let is_folded = tasks.count() > MOST_UNFOLDED;
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (place, lane) in timeline.lanes.iter().enumerate() {
        let name = pattern(&lane.name);
        let known = places.get(&name).filter(|_| is_folded && !lane.is_kernel());
        if let Some(known) = known {
            groups[*known].lanes.push(place);
            continue;
        }
        if !lane.is_kernel() {
            places.insert(name.clone(), groups.len());
        }
        groups.push(Group {
            name,
            lanes: vec![place],
        });
    }
    groups
}

/// The names of workers differ in their numbers.
fn pattern(name: &str) -> String {
    let digits = longest_number(name);
    let number = if digits.is_empty() { "" } else { "#" };
    format!("{}{number}{}", &name[..digits.start], &name[digits.end..])
}

/// How many tasks are in each state: on average in each of some columns of equal width.
pub(super) struct Crowd([Vec<f64>; CLASSES.len()]);

impl Crowd {
    /// The bars between two points of the scale.
    pub(super) fn of<'a>(
        bars: impl Iterator<Item = &'a Bar>,
        scale: Scale,
        (begin, end): (f64, f64),
        columns: usize,
    ) -> Self {
        let mut bands =
            [(); CLASSES.len()].map(|()| (vec![0.0; columns + 1], vec![0.0; columns + 2]));
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
        Self(bands.map(|(parts, steps)| {
            let mut level = 0.0;
            let column = |(part, step): (&f64, &f64)| {
                level += step;
                part + level
            };
            parts[..columns].iter().zip(&steps).map(column).collect()
        }))
    }

    /// The states of a part above one another: for each, from below, how many are in it or in one
    /// below it.
    fn levels(&self, part: std::ops::Range<usize>) -> Vec<Vec<f64>> {
        let mut levels: Vec<Vec<f64>> = Vec::new();
        for band in &self.0[part] {
            let level = match levels.last() {
                Some(below) => below.iter().zip(band).map(|(below, n)| below + n).collect(),
                None => band.clone(),
            };
            levels.push(level);
        }
        levels
    }

    /// The most at once of those that run or are ready, and of those that are blocked: on average in a
    /// column.
    pub(super) fn most(&self) -> [f64; 2] {
        [0..ACTIVES, ACTIVES..CLASSES.len()].map(|part| {
            let all = self.levels(part).pop().unwrap_or_default();
            all.into_iter().fold(0.0, f64::max)
        })
    }

    /// The same as whole numbers of tasks.
    pub(super) fn most_tasks(&self) -> [f64; 2] {
        // A sum of parts may be off in its last digits.
        self.most().map(|most| (most - 1e-6).max(0.0).ceil())
    }

    /// The areas of a lane with this left and top, each with its class: area is time. Later ones cover
    /// earlier ones.
    pub(super) fn areas(&self, left: f64, y: f64) -> Vec<(&'static str, String)> {
        let parts = [(0..ACTIVES, ACTIVE), (ACTIVES..CLASSES.len(), WAITING)];
        let mut areas = Vec::new();
        for ((part, [top, height]), most) in parts.into_iter().zip(self.most()) {
            let unit = height / most.max(1.0);
            let levels = self.levels(part.clone());
            for (class, level) in CLASSES[part].iter().zip(levels).rev() {
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
        let sums = crowd
            .0
            .each_ref()
            .map(|band| band.iter().sum::<f64>() * 10.0);
        for (sum, time) in sums.into_iter().zip([25.0, 5.0, 50.0, 0.0, 110.0]) {
            assert!((sum - time).abs() < 1e-6, "{sum} is not {time}");
        }
        assert_eq!(crowd.most(), [2.0, 2.0]);
        let areas = crowd.areas(0.0, 0.0);
        let [(_, ready), (_, call), (_, running), ..] = &areas[..] else {
            panic!("{areas:?}")
        };
        // A column of a pixel has 10 units; 12 pixels are two tasks, and half of a column is half as high.
        assert_eq!(running, "M0.0 24.0H0.0V18.0H2.0V21.0H3.0V24.0");
        assert_eq!(call, "M0.0 24.0H0.0V18.0H3.0V24.0");
        assert_eq!(ready, "M0.0 24.0H0.0V18.0H1.0V12.0H3.0V18.0H6.0V24.0");
    }

    #[test]
    fn a_crowd_has_no_more_tasks_than_there_are() {
        let first = [0, 14, 23, 31, 36, 48, 79, 100];
        let second = [0, 3, 15, 23, 68, 81, 98, 100];
        let bars = [first, second].map(|at| {
            let spans = at.windows(2).map(|span| [span[0], span[1]]);
            spans
                .map(|span| bar(Doing::Ready, span))
                .collect::<Vec<_>>()
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
