//! The table as a picture: a row for each contest, and a dot for each peer at its ratio to ours.

use maud::{PreEscaped, html};

use crate::contest::{Line, Results};

/// The peers by the start of their names, and their colours. Others have no dot.
const PEERS: [(&str, &str); 10] = [
    ("raw", "#8a8a8a"),
    ("tokio", "#e4572e"),
    ("async-", "#c9a227"),
    ("monoio", "#2e9e5b"),
    ("corosensei", "#b5651d"),
    ("Go", "#17a2b8"),
    ("asyncio", "#3b6fd4"),
    ("uvloop", "#7a5cd6"),
    ("curio", "#d64fa0"),
    ("pyos", "#7fb3e6"),
];

const ROW: usize = 22;
const LEFT: usize = 430;
const WIDTH: usize = 1000;
const TOP: usize = 84;
const MARGIN: usize = 20;

const STYLE: &str = "
    :root { --paper: #ffffff; --ink: #1f2328; --faint: #d8dee4; }
    @media (prefers-color-scheme: dark) {
        :root { --paper: #0d1117; --ink: #e6edf3; --faint: #30363d; }
    }
    text { font: 13px system-ui, sans-serif; fill: var(--ink); }
    .paper { fill: var(--paper); }
    .grid { stroke: var(--faint); }
    .ours { stroke: var(--ink); stroke-width: 1.5; }
    circle { stroke: var(--paper); }
";

/// A dot: the peer, its ratio to ours, and the colour.
struct Dot<'a> {
    line: &'a Line,
    times: f64,
    color: &'static str,
}

struct Row<'a> {
    title: String,
    dots: Vec<Dot<'a>>,
}

/// Draws the contests that have peers as an SVG.
pub(crate) fn draw(table: &[Results]) -> String {
    let rows: Vec<Row<'_>> = table.iter().flat_map(rows).collect();
    let dots = || rows.iter().flat_map(|row| &row.dots);
    let scale = Scale::over(dots().map(|dot| dot.times));
    let bottom = TOP + rows.len() * ROW;
    let height = bottom + MARGIN;
    let legend = PEERS.map(|(name, color)| (name.replace('-', "-*"), color));
    let legend = legend
        .into_iter()
        .filter(|(_, color)| dots().any(|dot| dot.color == *color));
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
            width=(WIDTH) height=(height) role="img" {
            title { "How many times trapline's cost each peer needs" }
            style { (PreEscaped(STYLE)) }
            rect class="paper" width=(WIDTH) height=(height) {}
            @for (at, (name, color)) in legend.enumerate() {
                circle cx=(MARGIN + at * 95) cy="20" r="5" fill=(color) {}
                text x=(MARGIN + at * 95 + 10) y="24" { (name) }
            }
            text x=(MARGIN) y=(TOP - 14) { "times trapline's cost (left of 1: less than ours)" }
            @for decade in scale.first..=scale.last {
                @let x = scale.x(10f64.powi(decade));
                line class=(if decade == 0 { "ours" } else { "grid" })
                    x1=(x) x2=(x) y1=(TOP - 8) y2=(bottom) {}
                text x=(x) y=(TOP - 14) text-anchor="middle" { (10f64.powi(decade)) }
            }
            @for (at, row) in rows.iter().enumerate() {
                @let y = TOP + at * ROW + ROW / 2;
                line class="grid" x1=(LEFT) x2=(WIDTH - MARGIN) y1=(y) y2=(y) {}
                text x=(MARGIN) y=(y + 4) { (row.title) }
                @for Dot { line, times, color } in &row.dots {
                    circle cx=(scale.x(*times)) cy=(y) r="5" fill=(color) {
                        title { (line.contender) ": " (format!("{times:.2}")) " times" }
                    }
                }
            }
        }
    }
    .into_string()
        + "\n"
}

/// A row for each unit that has figures of peers.
fn rows(results: &Results) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut unit = "";
    let is_single = results
        .lines
        .iter()
        .all(|line| line.unit == results.lines[0].unit);
    for line in &results.lines {
        if line.unit != unit {
            unit = line.unit;
            let name = &results.name;
            rows.push(Row {
                title: if is_single {
                    name.clone()
                } else {
                    format!("{name}, {unit}")
                },
                dots: Vec::new(),
            });
        }
        let times = results.ratio(line).recip();
        let peer = PEERS
            .iter()
            .find(|(name, _)| line.contender.starts_with(name));
        if let (Some(row), Some((_, color)), true) = (rows.last_mut(), peer, times > 0.0) {
            row.dots.push(Dot { line, times, color });
        }
    }
    rows.retain(|row| !row.dots.is_empty());
    rows
}

/// Powers of ten along the picture's width.
struct Scale {
    first: i32,
    last: i32,
}

impl Scale {
    /// A range that contains all of these, and 1.
    fn over(times: impl Iterator<Item = f64>) -> Self {
        let (mut first, mut last) = (0, 1);
        for times in times {
            first = first.min(times.log10().floor() as i32);
            last = last.max(times.log10().ceil() as i32);
        }
        Self { first, last }
    }

    fn x(&self, times: f64) -> f64 {
        let part = (times.log10() - f64::from(self.first)) / f64::from(self.last - self.first);
        let x = LEFT as f64 + part * (WIDTH - MARGIN - LEFT) as f64;
        (x * 10.0).round() / 10.0
    }
}
