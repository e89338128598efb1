//! A timeline as a picture for documents. It cannot be zoomed, so it has to be small.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use maud::{Markup, PreEscaped, html};
use trapline::{Doing, Ending, Moment, Tid};

use super::{
    crowd::{self, ACTIVE, Crowd, Group},
    model::{Bar, Closed, Kind, Lane, Row, Timeline},
    scale::{Scale, ticks},
    words,
};
use crate::units::{count, span};

/// The largest numbers that are still distinguishable in a picture.
const MOST_LANES: usize = 100;
const MOST_BARS: usize = 5000;
/// A lane with more bars than this shows them as areas, since they are narrower than a pixel.
const MOST_BARS_OF_LANE: usize = 2000;

const LANE: f64 = 28.0;
const TOP: f64 = 62.0;
/// The lower part of a lane.
const ACTIVE_TOP: f64 = ACTIVE[0];
const ACTIVE_HEIGHT: f64 = ACTIVE[1];
/// The height of a row of the legend.
const LEGEND: f64 = 18.0;
/// The scale of small letters.
const SMALL: f64 = 0.84;
const FATES: [&str; 5] = ["done", "failed", "faulted", "killed", "alive"];
/// The picture's colours are the page's named colours.
pub(super) const STYLE: &str = include_str!("picture.css");
pub(super) const LIGHT: &str = include_str!("light.css");
pub(super) const DARK: &str = include_str!("dark.css");

/// Draws the picture, or explains why it would be unreadable.
pub(super) fn draw(timeline: &Timeline, scale: Scale, width: u32) -> Result<String, String> {
    let picture = Picture::new(timeline, scale, f64::from(width));
    let bars: usize = picture.alone().map(|(lane, _)| lane.bars.len()).sum();
    let lanes = picture.groups.len();
    if lanes > MOST_LANES || bars > MOST_BARS {
        return Err(format!(
            "a picture of {} and {} could not be read (the most is {MOST_LANES} and \
             {MOST_BARS}): take a part with --from and --to, or with --task, or make it HTML",
            count(lanes as u64, "lane"),
            count(bars as u64, "span"),
        ));
    }
    let picture = picture.draw().into_string();
    // XML cannot contain them.
    Ok(picture.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}") + "\n")
}

struct Picture<'a> {
    timeline: &'a Timeline,
    groups: Vec<Group<'a>>,
    /// The place of each task's group.
    places: BTreeMap<Tid, usize>,
    /// The waits between groups at the end of a deadlocked run.
    arcs: BTreeSet<(usize, usize)>,
    idle: &'a [(Moment, Moment)],
    scale: Scale,
    width: f64,
    height: f64,
    /// The left and right edge of the lanes.
    left: f64,
    right: f64,
    begin: f64,
    end: f64,
}

impl<'a> Picture<'a> {
    fn new(timeline: &'a Timeline, scale: Scale, width: f64) -> Self {
        let groups = crowd::groups(timeline);
        let tasks = groups.iter().enumerate();
        let tasks =
            tasks.flat_map(|(at, group)| group.lanes.iter().map(move |lane| (lane.tid, at)));
        let places: BTreeMap<Tid, usize> = tasks.collect();
        let blocked = timeline.deadlock.iter().flat_map(|stuck| &stuck.blocked);
        let mut arcs: BTreeSet<(usize, usize)> = blocked
            .filter_map(|waiting| {
                let target = places.get(&waiting.waits_for_when_stuck()?)?;
                Some((*places.get(&waiting.tid)?, *target))
            })
            .collect();
        let margin = if arcs.is_empty() { 14.0 } else { 70.0 };
        arcs.retain(|(from, to)| from != to);
        let name = |group: &Group<'_>| {
            let [label, fate] = labels(group);
            text_width(&label) + text_width(&fate) + 24.0
        };
        let gutter = groups.iter().map(name).fold(60.0, f64::max);
        // On a virtual clock only waiting takes time, so the bands would cover everything.
        let idle = match scale == Scale::Time && timeline.header.is_simulated {
            true => &[][..],
            false => &timeline.idle,
        };
        let deadlock = if timeline.deadlock.is_some() {
            22.0
        } else {
            0.0
        };
        let begin = scale.of(timeline.begin);
        // A run of zero length still has a picture, and so has one of centuries.
        let least = (begin + 1.0).max(begin * 1.000_001);
        let mut picture = Self {
            timeline,
            places,
            arcs,
            idle,
            scale,
            width,
            height: TOP + LANE * groups.len() as f64 + 36.0 + deadlock,
            left: gutter.min(width / 3.0).ceil(),
            right: width - margin,
            begin,
            end: scale.of(timeline.end).max(least),
            groups,
        };
        let rows = picture.legend_entries();
        let rows = rows.first().zip(rows.last());
        picture.height += rows.map_or(0.0, |((.., first), (.., last))| last - first);
        picture
    }

    /// The lanes that are drawn bar by bar, with their places.
    fn alone(&self) -> impl Iterator<Item = (&Lane, usize)> {
        let groups = self.groups.iter().zip(0..);
        groups.filter_map(|(group, place)| Some((bar_by_bar(group)?, place)))
    }

    /// The place of a task's lane, if that is drawn bar by bar.
    fn place_alone(&self, tid: Tid) -> Option<usize> {
        let place = *self.places.get(&tid)?;
        bar_by_bar(&self.groups[place]).map(|_| place)
    }

    fn x(&self, moment: Moment) -> f64 {
        self.x_of(self.scale.of(moment))
    }

    fn x_of(&self, value: f64) -> f64 {
        let share = (value - self.begin) / (self.end - self.begin);
        self.left + share * (self.right - self.left)
    }

    fn y(lane: usize) -> f64 {
        TOP + LANE * lane as f64
    }

    fn draw(&self) -> Markup {
        let Self { width, height, .. } = *self;
        let timeline = self.timeline;
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (px(height)) }
                width=(width) height=(px(height)) role="img" aria-labelledby="title about" {
                title id="title" { (words::title(timeline)) }
                desc id="about" { (words::summary(timeline).join(" ")) }
                style { (PreEscaped(style())) }
                defs { (patterns()) }
                rect class="paper" width="100%" height="100%" {}
                // Bold letters are wider by a tenth. The title has the full text.
                text class="head" x="12" y="20" {
                    (shortened(&words::title(timeline), width * 0.9 - 24.0))
                }
                (self.ruler())
                @for (group, place) in self.groups.iter().zip(0..) { (self.lane(group, place)) }
                (self.kernels())
                (self.arrows())
                (self.messages())
                (self.marks())
                @for closed in &self.timeline.deadlocks { (self.closed(closed)) }
                @for &(from, to) in &self.arcs { (self.arc(from, to)) }
                (self.legend())
            }
        }
    }

    /// The ticks above the lanes, and the bands where no task was ready.
    fn ruler(&self) -> Markup {
        let bottom = Self::y(self.groups.len());
        let ticks = ticks(self.begin, self.end, (self.right - self.left) / 90.0);
        html! {
            @for &(from, to) in self.idle {
                @let (x, right) = (self.x(from), self.x(to));
                rect class="idle" x=(px(x)) y=(px(TOP - 6.0)) width=(px(right - x))
                    height=(px(bottom - TOP + 6.0)) {
                    title { "no task is ready; the clock moves by " (span(to.at - from.at)) }
                }
                @let moved = span(to.at - from.at);
                @if self.scale == Scale::Turns && to.at > from.at && right - x > text_width(&moved) + 2.0 {
                    text class="small" x=(px((x + right) / 2.0)) y=(px(TOP - 10.0))
                        text-anchor="middle" { "+" (moved) }
                }
            }
            @for value in ticks {
                @let x = px(self.x_of(value));
                line class="tick" x1=(x) x2=(x) y1=(px(TOP - 20.0)) y2=(px(bottom)) {}
                text class="small" x=(x) y="38" text-anchor="middle" { (self.scale.tick(value)) }
            }
        }
    }

    fn lane(&self, group: &Group<'_>, place: usize) -> Markup {
        let y = Self::y(place);
        let [label, fate] = labels(group);
        let room = self.left - 24.0 - text_width(&fate);
        let about = group.alone().map(|lane| words::lane(lane, self.scale));
        html! {
            line class="rule" x1="0" x2=(px(self.width)) y1=(px(y + LANE)) y2=(px(y + LANE)) {}
            g {
                @if let Some(about) = about { title { (about) } }
                text x="12" y=(px(y + 19.0)) { (shortened(&label, room)) }
                text class="small" x=(px(self.left - 6.0)) y=(px(y + 19.0)) text-anchor="end" {
                    (fate)
                }
            }
            @match bar_by_bar(group) {
                Some(lane) => @for bar in &lane.bars { (self.bar(bar, y)) },
                None => (self.crowd(group, y)),
            }
        }
    }

    /// The lane of many tasks, or of many bars.
    fn crowd(&self, group: &Group<'_>, y: f64) -> Markup {
        let bars = group.lanes.iter().flat_map(|lane| &lane.bars);
        let columns = (self.right - self.left).max(1.0) as usize;
        let crowd = Crowd::of(bars, self.scale, (self.begin, self.end), columns);
        let [active, waiting] = crowd.most_tasks();
        html! {
            g {
                title { "at most " (active) " run or are ready, and " (waiting) " are blocked" }
                @for (class, area) in crowd.areas(self.left, y) {
                    @if !area.is_empty() { path class={ (class) " area" } d=(area) {} }
                }
            }
        }
    }

    fn bar(&self, bar: &Bar, y: f64) -> Markup {
        let (from, to) = (self.x(bar.span.from), self.x(bar.span.to));
        let class = crowd::class(bar.span.doing);
        let [top, height] = crowd::part(class);
        // A turn of zero length is still drawn.
        let least = if class == "running" { 1.5 } else { 0.0 };
        let width = (to - from).max(least);
        if width <= 0.0 {
            return html! {};
        }
        let word = match (bar.span.doing, bar.row) {
            (Doing::Running | Doing::InCall | Doing::Blocked(_), Some(row)) => {
                fitting(&self.timeline.rows[row].what, (width - 6.0) / SMALL)
            }
            _ => "",
        };
        // Consecutive turns are drawn apart.
        let gap = if width > 4.0 { width - 0.7 } else { width };
        html! {
            rect class=(class) x=(px(from)) y=(px(y + top)) width=(px(gap)) height=(px(height)) {
                title { (words::bar(bar, self.timeline, self.scale)) }
            }
            @if !word.is_empty() {
                // Below the strip of what is blocked there is room.
                @let class = if matches!(class, "running" | "call") { "on" } else { "small" };
                text class=(class) x=(px(from + width / 2.0)) y=(px(y + ACTIVE_TOP + 9.5)) text-anchor="middle" {
                    (word)
                }
            }
        }
    }

    /// Arrows from the waking tasks to the woken tasks.
    fn arrows(&self) -> Markup {
        let mut path = String::new();
        for (lane, place) in self.alone() {
            for bar in &lane.bars {
                if let Ending::Woken { waker, .. } = bar.span.end
                    && let Some(waker) = waker.and_then(|waker| self.place_alone(waker))
                    && waker != place
                {
                    let (x, down) = (self.x(bar.span.to), waker < place);
                    let bottom = ACTIVE_TOP + ACTIVE_HEIGHT;
                    let [from, to, tip] = match down {
                        true => [bottom, ACTIVE_TOP - 1.0, 4.0],
                        false => [ACTIVE_TOP, bottom, -4.0],
                    };
                    let (from, to) = (Self::y(waker) + from, Self::y(place) + to);
                    // The path has numbers only, and writing to a string does not fail.
                    let tip = format!("m-2.5 {}l2.5 {tip}l2.5 {}", -tip, -tip);
                    let _ = write!(path, "M{x:.1} {from:.1}V{to:.1}{tip}");
                }
            }
        }
        html! { @if !path.is_empty() { path class="arrow" d=(path) {} } }
    }

    /// The lines between the lanes of several kernels.
    fn kernels(&self) -> Markup {
        let kernel = |group: &Group<'_>| group.lanes[0].tid.kernel();
        let pairs = self.groups.windows(2).zip(1..);
        let begins = pairs.filter(|(pair, _)| kernel(&pair[0]) != kernel(&pair[1]));
        html! {
            @for (_, place) in begins {
                @let y = px(Self::y(place));
                line class="kernel" stroke="var(--ink)" x1="0" x2=(px(self.width)) y1=(y) y2=(y) {}
            }
        }
    }

    /// Arrows from the tasks that put messages into mailboxes to those that take them.
    fn messages(&self) -> Markup {
        let mut path = String::new();
        let rows = &self.timeline.rows;
        for message in &self.timeline.messages {
            let [from, to] = [&rows[message.from], &rows[message.to]];
            let (Some(above), Some(below)) = (self.place_alone(from.tid), self.place_alone(to.tid))
            else {
                continue;
            };
            if above == below {
                continue;
            }
            let bottom = ACTIVE_TOP + ACTIVE_HEIGHT;
            let [start, stop] = match above < below {
                true => [bottom, ACTIVE_TOP - 1.0],
                false => [ACTIVE_TOP, bottom],
            };
            let (x, y) = (self.x(from.at), Self::y(above) + start);
            let (end, tip) = (self.x(to.at), Self::y(below) + stop);
            // The path has numbers only, and writing to a string does not fail.
            let _ = write!(path, "M{x:.1} {y:.1}L{end:.1} {tip:.1}");
            // The head, turned as the line is.
            let angle = (tip - y).atan2(end - x);
            for side in [-0.5, 0.5] {
                let (dx, dy) = (-5.0 * (angle + side).cos(), -5.0 * (angle + side).sin());
                let _ = write!(path, "M{end:.1} {tip:.1}l{dx:.1} {dy:.1}");
            }
        }
        html! { @if !path.is_empty() { path class="message" fill="none" stroke="var(--message)" stroke-width="1.2" d=(path) {} } }
    }

    /// A cross where a call failed, and a line across the lanes for a fault of the network.
    fn marks(&self) -> Markup {
        let rows = &self.timeline.rows;
        let mut crosses = String::new();
        for row in rows.iter().filter(|row| row.is_cross()) {
            if let Some(place) = self.place_alone(row.tid) {
                let (x, y) = (self.x(row.at) - 3.0, Self::y(place) + ACTIVE_TOP + 3.0);
                let _ = write!(crosses, "M{x:.1} {y:.1}l6 6m0 -6l-6 6");
            }
        }
        let bottom = Self::y(self.groups.len());
        html! {
            @if !crosses.is_empty() { path class="error" d=(crosses) {} }
            @for row in rows.iter().filter(|row| row.kind == Kind::Fault) {
                @let x = px(self.x(row.at));
                line class="fault" x1=(x) x2=(x) y1=(px(TOP - 10.0)) y2=(px(bottom)) {
                    title { (row.what) }
                }
            }
        }
    }

    /// A line between the lanes of tasks that wait for one another, where that began.
    fn closed(&self, closed: &Closed) -> Markup {
        let places = closed.tids.iter().filter_map(|tid| self.places.get(tid));
        let places: BTreeSet<&usize> = places.collect();
        let x = self.x(closed.at);
        let middle = |place: &&usize| Self::y(**place) + ACTIVE_TOP + ACTIVE_HEIGHT / 2.0;
        let (Some(top), Some(bottom)) = (places.first().map(middle), places.last().map(middle))
        else {
            return html! {};
        };
        let mut path = format!("M{x:.1} {top:.1}V{bottom:.1}");
        for y in places.iter().map(middle) {
            let _ = write!(path, "M{:.1} {y:.1}h7", x - 3.5);
        }
        let way = words::way(&closed.tids);
        html! { path class="closed" d=(path) { title { "deadlock: " (way) } } }
    }

    /// The task that a lane waits for at the end, on the right of the lanes.
    fn arc(&self, from: usize, to: usize) -> Markup {
        let (x, ends) = (self.right + 2.0, [Self::y(from) + 9.0, Self::y(to) + 4.0]);
        let bulge = (16.0 + 10.0 * from.abs_diff(to) as f64).min(80.0);
        arc(x, ends, bulge, [5.0, 3.5])
    }

    /// The kinds that occur, with their style's class and their positions. Arrows and crosses are on the
    /// lanes of which each bar is drawn.
    fn legend_entries(&self) -> Vec<(&'static str, &'static str, f64, f64)> {
        let timeline = self.timeline;
        let bars = || timeline.lanes.iter().flat_map(|lane| &lane.bars);
        let has = |class| bars().any(|bar| crowd::class(bar.span.doing) == class);
        let in_call =
            |bar: &Bar| bar.span.doing == Doing::InCall && bar.span.from.at < bar.span.to.at;
        let is_woken = |bar: &Bar| matches!(bar.span.end, Ending::Woken { waker: Some(_), .. });
        let wakes = self.alone().any(|(lane, _)| lane.bars.iter().any(is_woken));
        let fails = |row: &Row| row.is_cross() && self.place_alone(row.tid).is_some();
        let is_fault = |row: &Row| row.kind == Kind::Fault;
        let has_faults = timeline.rows.iter().any(is_fault);
        let closed = "a deadlock: wait for one another from here on";
        let entries = [
            (true, "running", "running"),
            (bars().any(in_call), "call", "in call: the kernel works"),
            (true, "ready", "ready: waits for its turn"),
            (has("timer"), "timer", "sleeps"),
            (has("queue"), "queue", "blocked on a queue"),
            (has("device"), "device", "blocked on a device"),
            (has("exit"), "exit", "waits for a task's end"),
            (has("select"), "select", "waits for the first of several"),
            (!self.idle.is_empty(), "idle", "no task is ready"),
            (wakes, "arrow", "wakes"),
            (timeline.deadlock.is_some(), "wait", "waits for"),
            (timeline.rows.iter().any(fails), "error", "fails"),
            (has_faults, "fault", "a fault of the network"),
            (!timeline.deadlocks.is_empty(), "closed", closed),
        ];
        let (mut x, mut y) = (12.0, Self::y(self.groups.len()) + 14.0);
        let place = |(_, class, word): (bool, &'static str, &'static str)| {
            let width = 19.0 + text_width(word) * SMALL;
            if x > 12.0 && x + width > self.width {
                (x, y) = (12.0, y + LEGEND);
            }
            let here = x;
            x += width + 16.0;
            (class, word, here, y)
        };
        let entries = entries.into_iter().filter(|(occurs, ..)| *occurs);
        entries.map(place).collect()
    }

    fn legend(&self) -> Markup {
        let entries = self.legend_entries();
        let bottom = entries.last().map_or(0.0, |(.., y)| *y);
        html! {
            @for (class, word, x, y) in entries {
                @let at = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
                @let drawn = |path: String| html! { path class=(class) d=(path) {} };
                @match class {
                    "arrow" => (drawn(format!("M{}v12m-2.5 -4l2.5 4l2.5 -4", at(6.0, 0.0)))),
                    "wait" => (drawn(format!("M{}c16 0 16 9 0 9m5 -3.5l-5 3.5l5 3.5", at(0.0, 2.0)))),
                    "error" => (drawn(format!("M{}l8 8m0 -8l-8 8", at(3.0, 3.0)))),
                    "closed" => (drawn(format!("M{}v10M{}h7m-7 10h7", at(7.0, 2.0), at(3.5, 2.0)))),
                    "fault" => line class="fault" x1=(px(x + 7.0)) x2=(px(x + 7.0)) y1=(px(y))
                        y2=(px(y + 14.0)) {},
                    _ => {
                        @let [_, height] = crowd::part(class);
                        rect class=(class) x=(px(x)) y=(px(y + 7.0 - height / 2.0)) width="14"
                            height=(px(height)) {}
                    }
                }
                text class="small" x=(px(x + 19.0)) y=(px(y + 11.0)) { (word) }
            }
            @if let Some(stuck) = &self.timeline.deadlock {
                text class="alarm" x="12" y=(px(bottom + 34.0)) { (words::deadlock(stuck)) }
            }
        }
    }
}

/// The style with literal colours, since some viewers do not support variables.
fn style() -> String {
    let dark = colored(STYLE, DARK);
    let light = colored(STYLE, LIGHT);
    format!("{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n")
}

fn colored(style: &str, colors: &str) -> String {
    colors
        .lines()
        .filter_map(|line| line.strip_suffix(';')?.split_once(": "))
        .fold(style.to_string(), |style, (name, color)| {
            style.replace(&format!("var({name})"), color)
        })
}

/// Patterns that are distinguishable without colours.
pub(super) fn patterns() -> Markup {
    html! {
        pattern id="p-ready" width="6" height="6" patternUnits="userSpaceOnUse"
            patternTransform="rotate(45)" {
            rect class="ready-paper" width="6" height="6" {}
            rect class="ready-ink" width="2" height="6" {}
        }
        pattern id="p-call" width="4" height="4" patternUnits="userSpaceOnUse" {
            rect class="call-paper" width="4" height="4" {}
            rect class="call-ink" width="2" height="2" {}
            rect class="call-ink" x="2" y="2" width="2" height="2" {}
        }
        pattern id="p-queue" width="6" height="6" patternUnits="userSpaceOnUse" {
            rect class="queue-paper" width="6" height="6" {}
            circle class="queue-ink" cx="3" cy="3" r="1.4" {}
        }
        pattern id="p-device" width="5" height="5" patternUnits="userSpaceOnUse" {
            rect class="device-paper" width="5" height="5" {}
            rect class="device-ink" width="1.6" height="5" {}
        }
        pattern id="p-exit" width="5" height="5" patternUnits="userSpaceOnUse" {
            rect class="exit-paper" width="5" height="5" {}
            rect class="exit-ink" width="5" height="1.6" {}
        }
        pattern id="p-select" width="5" height="5" patternUnits="userSpaceOnUse" {
            rect class="select-paper" width="5" height="5" {}
            rect class="select-ink" width="5" height="1.6" {}
            rect class="select-ink" width="1.6" height="5" {}
        }
    }
}

/// The lane of a group of one, unless it has too many bars.
fn bar_by_bar<'a>(group: &Group<'a>) -> Option<&'a Lane> {
    let alone = group.alone();
    alone.filter(|lane| lane.bars.len() <= MOST_BARS_OF_LANE)
}

/// An arc between two heights, right of `x`, with a tip of this size.
pub(super) fn arc(x: f64, [from, to]: [f64; 2], bulge: f64, [dx, dy]: [f64; 2]) -> Markup {
    let far = x + bulge;
    let d = format!(
        "M{x:.1} {from:.1}C{far:.1} {from:.1} {far:.1} {to:.1} {x:.1} {to:.1}m{dx} -{dy}l-{dx} {dy}l{dx} {dy}"
    );
    html! { path class="wait" d=(d) {} }
}

/// The call, its name alone, or nothing, whichever fits.
fn fitting(call: &str, room: f64) -> &str {
    let name = call.split(['(', ':']).next().unwrap_or(call);
    [call, name]
        .into_iter()
        .find(|text| text_width(text) <= room)
        .unwrap_or_default()
}

/// What is written beside a lane, and at its right end.
fn labels(group: &Group<'_>) -> [String; 2] {
    if let Some(lane) = group.alone() {
        return match lane.is_kernel() {
            true => [lane.name.clone(), String::new()],
            false => [
                format!("{} {}", lane.tid, lane.name),
                FATES[lane.fate()].to_string(),
            ],
        };
    }
    let failed = match group.lanes.iter().filter(|lane| lane.has_failed()).count() {
        0 => String::new(),
        failed => format!("{failed} failed"),
    };
    let of = group.lanes[0].tid.kernel();
    let of = of.map_or_else(String::new, |kernel| format!("{kernel}: "));
    [
        format!("{of}{} × {}", group.name, group.lanes.len()),
        failed,
    ]
}

/// The approximate width, whatever the font.
fn text_width(text: &str) -> f64 {
    text.chars()
        .map(|letter| if letter < '\u{1100}' { 6.6 } else { 12.0 })
        .sum()
}

pub(super) fn shortened(text: &str, room: f64) -> String {
    if text_width(text) <= room {
        return text.to_string();
    }
    let mut short = String::new();
    for letter in text.chars() {
        if text_width(&short) + 18.0 > room {
            break;
        }
        short.push(letter);
    }
    short + "…"
}

pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_string()
}
