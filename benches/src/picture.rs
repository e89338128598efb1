//! The table as a picture of four panels. Each row of a panel is a contest; each peer has a shape, at
//! its ratio to ours, and the ratio as a number.

use maud::{Markup, PreEscaped, html};

use crate::contest::Results;

/// The peers by the start of their names, with their colours and shapes. Of several contenders of a
/// peer, a row has the cheapest. Others are not drawn.
const PEERS: [(&str, &str, Shape); 10] = [
    ("raw", "#6e7781", Shape::Circle),
    ("tokio", "#d1460f", Shape::Square),
    ("async-", "#9a6c00", Shape::Triangle),
    ("monoio", "#1a7f4b", Shape::Diamond),
    ("corosensei", "#a04a9c", Shape::Cross),
    ("Go", "#0b7a8c", Shape::Hexagon),
    ("asyncio", "#2c5fc9", Shape::Plus),
    ("uvloop", "#6a4fd0", Shape::Fall),
    ("curio", "#c22f88", Shape::Ring),
    ("pyos", "#3f8fd0", Shape::Bar),
];

/// The panels, each with the contests that it has, by the start of their names. The last one has the
/// others.
const PANELS: [(&str, &[&str]); 4] = [
    ("A trap and its reply", &["switch"]),
    (
        "Tasks, queues and timers",
        &["spawn", "queue", "sleepers", "timeout"],
    ),
    ("Memory", &["memory"]),
    ("Servers and the start", &[""]),
];

/// Units that say about the same as another of their contest. The table has them.
const BESIDE: [&str; 3] = ["us per request", "system calls", "ms of CPU"];

const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 20.0;
const PANEL: f64 = (WIDTH - 3.0 * MARGIN) / 2.0;
const LEGEND: f64 = 40.0;
/// The height of a panel's title and scale, and that of a row.
const HEAD: f64 = 60.0;
const ROW: f64 = 54.0;
/// With more ticks, only powers of ten and the ends have one.
const MOST_TICKS: usize = 7;
/// The room of a number, which is this wide with two letters more than its digits.
const LETTER: f64 = 6.2;

const STYLE: &str = "
    :root { --paper: #ffffff; --ink: #1f2328; --dim: #57606a; --faint: #d8dee4; }
    @media (prefers-color-scheme: dark) {
        :root { --paper: #0d1117; --ink: #e6edf3; --dim: #9da7b3; --faint: #30363d; }
        .shape { filter: brightness(1.5); }
    }
    text { font: 12px system-ui, sans-serif; fill: var(--ink); }
    .title, .value { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
    .head { font-size: 14px; font-weight: 600; }
    .value { font-size: 10px; text-anchor: middle; }
    .tick { font-size: 10px; text-anchor: middle; fill: var(--dim); }
    .paper { fill: var(--paper); }
    .grid { stroke: var(--faint); }
    .ours { stroke: var(--ink); stroke-width: 1.5; }
    .shape { stroke: var(--paper); stroke-width: .8; }
    .line { fill: none; stroke-width: 2; }
";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Hexagon,
    Plus,
    Fall,
    Ring,
    Bar,
}

/// A peer in a row: its place in [`PEERS`], its full name, and its ratio to ours.
#[derive(Clone, Debug)]
struct Mark {
    peer: usize,
    name: String,
    times: f64,
}

/// A contest, or one unit of it.
#[derive(Clone, Debug)]
struct Row {
    title: String,
    marks: Vec<Mark>,
}

/// Draws the contests that have peers as an SVG.
pub(crate) fn draw(table: &[Results]) -> String {
    let rows: Vec<Row> = table.iter().flat_map(rows).collect();
    picture(&rows)
}

fn picture(rows: &[Row]) -> String {
    let panels = panels(rows);
    let tall = |at: usize| {
        let rows = panels[at].1.len().max(panels[at + 1].1.len());
        HEAD + ROW * rows as f64 + MARGIN
    };
    let tops = [LEGEND, LEGEND + tall(0)];
    let height = tops[1] + tall(2);
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
            width=(WIDTH) height=(height) role="img" {
            title { "How many times trapline's cost each peer needs" }
            style { (PreEscaped(STYLE)) }
            rect class="paper" width=(WIDTH) height=(height) {}
            (legend(rows))
            @for (at, (title, rows)) in panels.iter().enumerate() {
                @let left = MARGIN + (PANEL + MARGIN) * (at % 2) as f64;
                (panel(title, rows, left, tops[at / 2]))
            }
        }
    }
    .into_string()
        + "\n"
}

/// The shapes of the peers that occur.
fn legend(rows: &[Row]) -> Markup {
    let occurs = |at: &usize| {
        let mut marks = rows.iter().flat_map(|row| &row.marks);
        marks.any(|mark| mark.peer == *at)
    };
    let peers = (0..PEERS.len()).filter(occurs);
    html! {
        @for (place, at) in peers.enumerate() {
            @let x = MARGIN + 6.0 + 92.0 * place as f64;
            (shape(at, x, 20.0))
            text x=(x + 12.0) y="24" { (PEERS[at].0.replace('-', "-*")) }
        }
        text x=(WIDTH - MARGIN) y="24" text-anchor="end" {
            "times trapline's cost; left of 1: less"
        }
    }
}

/// The rows of each panel.
fn panels(rows: &[Row]) -> [(&'static str, Vec<&Row>); 4] {
    let mut panels = PANELS.map(|(title, _)| (title, Vec::new()));
    for row in rows {
        let is_of =
            |(_, names): &(&str, &[&str])| names.iter().any(|name| row.title.starts_with(name));
        let at = PANELS.iter().position(is_of).unwrap_or(PANELS.len() - 1);
        panels[at].1.push(row);
    }
    panels
}

fn panel(title: &str, rows: &[&Row], left: f64, top: f64) -> Markup {
    let scale = Scale::over(rows.iter().flat_map(|row| &row.marks), left);
    let bottom = top + HEAD + ROW * rows.len() as f64 - 6.0;
    html! {
        text class="head" x=(left) y=(top + 20.0) { (title) }
        @for times in &scale.ticks {
            @let x = scale.x(*times);
            line class=(if *times == 1.0 { "ours" } else { "grid" })
                x1=(x) x2=(x) y1=(top + HEAD - 16.0) y2=(bottom) {}
            text class="tick" x=(x) y=(top + HEAD - 20.0) { (times) }
        }
        @for (at, row) in rows.iter().enumerate() {
            (drawn(row, &scale, left, top + HEAD + ROW * at as f64))
        }
    }
}

/// A row: its title, and below it the shapes on a line with their numbers above and below it.
fn drawn(row: &Row, scale: &Scale, left: f64, top: f64) -> Markup {
    let y = top + 26.0;
    html! {
        text class="title" x=(left) y=(top + 2.0) { (row.title) }
        line class="grid" x1=(left) x2=(left + PANEL) y1=(y) y2=(y) {}
        @for (mark, at) in row.marks.iter().zip(labels(&row.marks, scale)) {
            g {
                title { (mark.name) ": " (number(mark.times)) " times" }
                (shape(mark.peer, scale.x(mark.times), y))
                text class="value" x=(at.x) y=(if at.is_above { y - 9.0 } else { y + 16.0 }) {
                    (number(mark.times))
                }
            }
        }
    }
}

/// Where a number is: near its shape, and not over another number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Label {
    x: f64,
    is_above: bool,
}

/// Places the numbers of marks, which are in order: each on the side where it is the nearest to its
/// mark.
fn labels(marks: &[Mark], scale: &Scale) -> Vec<Label> {
    let mut free = [f64::MIN; 2];
    let place = |mark: &Mark| {
        let half = LETTER * (number(mark.times).len() as f64 + 1.0) / 2.0;
        let x = scale.x(mark.times);
        let at = free.map(|free| x.max(free + half));
        let side = usize::from(at[1] < at[0]);
        free[side] = at[side] + half;
        Label {
            x: tenths(at[side]),
            is_above: side == 0,
        }
    };
    marks.iter().map(place).collect()
}

/// A ratio to two or three digits.
fn number(times: f64) -> String {
    match times {
        ..10.0 => format!("{times:.2}"),
        ..100.0 => format!("{times:.1}"),
        _ => format!("{times:.0}"),
    }
}

/// The shape of a peer.
fn shape(peer: usize, x: f64, y: f64) -> Markup {
    let (_, color, shape) = PEERS[peer];
    let moves = match shape {
        Shape::Circle | Shape::Ring => {
            let is_ring = shape == Shape::Ring;
            return html! {
                circle class=(if is_ring { "shape line" } else { "shape" }) cx=(x) cy=(y) r="5"
                    fill=[(!is_ring).then_some(color)] style=[is_ring.then(|| format!("stroke:{color}"))] {}
            };
        }
        Shape::Square => "m-5 -5h10v10h-10z",
        Shape::Triangle => "m0 -6l6 11h-12z",
        Shape::Fall => "m0 6l6 -11h-12z",
        Shape::Diamond => "m0 -7l6 7l-6 7l-6 -7z",
        Shape::Hexagon => "m-3 -5h6l3 5l-3 5h-6l-3 -5z",
        Shape::Cross => "m-6 -4l2 -2l4 4l4 -4l2 2l-4 4l4 4l-2 2l-4 -4l-4 4l-2 -2l4 -4z",
        Shape::Plus => "m-2 -6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
        Shape::Bar => "m-2 -7h4v14h-4z",
    };
    html! { path class="shape" fill=(color) d={ "M" (x) " " (y) (moves) } {} }
}

/// A row for each unit that is drawn and has figures of peers.
fn rows(results: &Results) -> Vec<Row> {
    let mut rows: Vec<(&str, Row)> = Vec::new();
    let mut units: Vec<&str> = results.lines.iter().map(|line| line.unit).collect();
    units.dedup();
    let is_single = units.len() == 1;
    units.retain(|unit| !BESIDE.contains(unit));
    for line in results
        .lines
        .iter()
        .filter(|line| units.contains(&line.unit))
    {
        if rows.last().is_none_or(|(unit, _)| *unit != line.unit) {
            let title = match is_single {
                true => results.name.clone(),
                false => format!("{}, {}", results.name, line.unit),
            };
            let marks = Vec::new();
            rows.push((line.unit, Row { title, marks }));
        }
        let times = results.ratio(line).recip();
        let peer = PEERS
            .iter()
            .position(|(name, ..)| line.contender.starts_with(name));
        if let (Some((_, row)), Some(peer), true) = (rows.last_mut(), peer, times > 0.0) {
            row.add(peer, line.contender, times);
        }
    }
    let rows = rows.into_iter().map(|(_, row)| row);
    rows.filter(|row| !row.marks.is_empty()).collect()
}

impl Row {
    /// Adds a contender, unless a cheaper one of the same peer is there. Keeps the marks in order.
    fn add(&mut self, peer: usize, name: &str, times: f64) {
        let is_dearer = |mark: &Mark| mark.peer == peer && mark.times >= times;
        self.marks.retain(|mark| !is_dearer(mark));
        if self.marks.iter().all(|mark| mark.peer != peer) {
            let name = name.to_string();
            self.marks.push(Mark { peer, name, times });
        }
        self.marks.sort_by(|a, b| a.times.total_cmp(&b.times));
    }
}

/// The ratios along a panel's width.
struct Scale {
    /// Where there is a line, in order: the ends, and 1 among them.
    ticks: Vec<f64>,
    left: f64,
}

impl Scale {
    /// A range that contains all of these, and 1. Its ends are 1, 2 or 5 times a power of ten.
    fn over<'a>(marks: impl Iterator<Item = &'a Mark>, left: f64) -> Self {
        let (mut least, mut most) = (0.5, 2.0);
        for mark in marks {
            least = mark.times.min(least);
            most = mark.times.max(most);
        }
        let steps = (-6..=6).flat_map(|power| [1.0, 2.0, 5.0].map(|step| (step, power)));
        let steps: Vec<f64> = steps
            .map(|(step, power)| step * 10f64.powi(power))
            .collect();
        let first = steps.partition_point(|step| *step <= least).max(1) - 1;
        let last = steps
            .partition_point(|step| *step < most)
            .min(steps.len() - 1);
        let mut ticks = steps[first..=last].to_vec();
        if ticks.len() > MOST_TICKS {
            let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
            ticks.retain(|step| *step == first || *step == last || step.log10().fract() == 0.0);
        }
        Self { ticks, left }
    }

    fn x(&self, times: f64) -> f64 {
        let (first, last) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        let part = (times / first).log10() / (last / first).log10();
        // Room for half of a number at both ends.
        tenths(self.left + 14.0 + part * (PANEL - 28.0))
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_near_their_marks_and_not_over_each_other() {
        let times = [0.84, 0.85, 1.03, 1.04, 12.0];
        let marks = times.map(|times| Mark {
            peer: 0,
            name: String::new(),
            times,
        });
        let scale = Scale::over(marks.iter(), 0.0);
        let placed = labels(&marks, &scale);
        for side in [true, false] {
            let of_side = placed.iter().filter(|label| label.is_above == side);
            let xs: Vec<f64> = of_side.map(|label| label.x).collect();
            assert!(
                xs.windows(2).all(|two| two[1] - two[0] >= 4.0 * LETTER),
                "{xs:?}"
            );
        }
        for (label, times) in placed.iter().zip(times) {
            assert!(
                (label.x - scale.x(times)).abs() < 30.0,
                "{label:?} of {times}"
            );
        }
        assert_eq!((scale.ticks[0], scale.ticks.last()), (0.5, Some(&20.0)));
    }
}
