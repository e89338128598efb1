//! Gantt charts: a line for each task, as text and as SVG.
//!
//! A chart has columns of equal time. The shade of a column is the part of it in which the task
//! computed, so a slice that is shorter than a column is not drawn longer than it was. All charts of a
//! laboratory have one axis, which ends with the longest run.

use std::time::Duration;

use maud::{Markup, html};

use super::trial::{TaskRun, Trial};
use crate::{output::clean, units::span_of};

const LINES: usize = 40;

/// The longest name that is shown in full.
const NAME: usize = 16;

/// What a task did in a column: the parts of it in which it computed and was ready.
#[derive(Clone, Copy, Default, PartialEq)]
struct Column {
    computing: f64,
    ready: f64,
}

fn columns(task: &TaskRun, count: usize, end: Duration) -> Vec<Column> {
    let mut columns = vec![Column::default(); count];
    let scale = count as f64 / end.as_secs_f64().max(1e-9);
    for stretch in &task.stretches {
        let [from, to] = [stretch.from, stretch.to].map(|at| at.as_secs_f64() * scale);
        let (first, last) = (from as usize, (to.ceil() as usize).min(count));
        for (at, column) in columns.iter_mut().enumerate().take(last).skip(first) {
            let part = to.min(at as f64 + 1.0) - from.max(at as f64);
            match stretch.is_computing {
                true => column.computing += part.max(0.0),
                false => column.ready += part.max(0.0),
            }
        }
    }
    columns
}

pub(super) fn end(trials: &[Trial]) -> Duration {
    let ends = trials.iter().map(|trial| trial.runs[0].end);
    ends.max().unwrap_or_default()
}

fn name(task: &TaskRun) -> String {
    clean(&task.measured.name).chars().take(NAME).collect()
}

/// The chart of a policy's first run as text of this width. `█` is computing and `·` is waiting for
/// a processor.
pub(super) fn lines(trial: &Trial, width: usize, end: Duration) -> String {
    let run = &trial.runs[0];
    let names: Vec<String> = run.tasks.iter().take(LINES).map(name).collect();
    let label = names.iter().map(|name| name.chars().count()).max();
    let label = label.unwrap_or(0);
    let count = width.saturating_sub(label + 2).max(1);
    let last = span_of(end.as_secs_f64());
    let head = format!("{}: 0", trial.policy);
    let gap = width.saturating_sub(head.chars().count() + last.len());
    let mut text = format!("{head}{:gap$}{last}\n", "");
    for (task, name) in run.tasks.iter().zip(&names) {
        let shades: String = columns(task, count, end).iter().map(shade).collect();
        text += format!("{name:label$}  {shades}").trim_end();
        text += "\n";
    }
    if run.tasks.len() > LINES {
        text += &format!("and {} more tasks\n", run.tasks.len() - LINES);
    }
    text
}

fn shade(column: &Column) -> char {
    match column.computing {
        part if part > 0.75 => '█',
        part if part > 0.5 => '▓',
        part if part > 0.25 => '▒',
        part if part > 0.001 => '░',
        _ if column.ready > 0.5 => '·',
        _ => ' ',
    }
}

/// The measures of the picture, in its own units.
const LABEL: usize = 120;
const COLUMNS: usize = 720;
const LINE: usize = 20;
const HEAD: usize = 44;

pub(super) fn picture(trials: &[Trial]) -> String {
    let (end, mut top) = (end(trials), 0);
    let mut charts = Vec::new();
    for trial in trials {
        charts.push((top, chart(trial, end)));
        top += height(trial);
    }
    let width = LABEL + COLUMNS + 20;
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {top}"))
            width=(width) height=(top) font-family="system-ui, sans-serif" font-size="12"
            color="#1f2937" {
            rect width="100%" height="100%" fill="#ffffff" {}
            @for (place, chart) in charts {
                g transform=(format!("translate(0 {place})")) { (chart) }
            }
        }
    };
    picture.into_string() + "\n"
}

pub(super) fn height(trial: &Trial) -> usize {
    HEAD + LINE * trial.runs[0].tasks.len().min(LINES) + 12
}

/// The chart of a policy as the contents of an SVG picture. The last tick has no room to its right.
pub(super) fn chart(trial: &Trial, end: Duration) -> Markup {
    let run = &trial.runs[0];
    let tasks = run.tasks.iter().take(LINES);
    let bottom = HEAD + LINE * tasks.len();
    let seconds = end.as_secs_f64();
    html! {
        text x="8" y="18" font-weight="bold" fill="currentColor" { (clean(&trial.policy)) }
        @for quarter in 0..=4 {
            @let x = LABEL + COLUMNS * quarter / 4;
            line x1=(x) y1=(HEAD - 6) x2=(x) y2=(bottom) stroke="currentColor" stroke-opacity="0.2" {}
            @let anchor = if quarter == 4 { "end" } else { "middle" };
            text x=(x) y=(HEAD - 10) text-anchor=(anchor) fill="currentColor" fill-opacity="0.75" {
                (span_of(seconds * quarter as f64 / 4.0))
            }
        }
        @for (at, task) in tasks.enumerate() {
            @let y = HEAD + LINE * at;
            text x="8" y=(y + 14) fill="currentColor" { (name(task)) }
            @for (from, len, column) in equal(&columns(task, COLUMNS, end)) {
                @if column.ready > 0.001 {
                    rect x=(LABEL + from) y=(y + 9) width=(len) height="2" fill="#9ca3af"
                        fill-opacity=(format!("{:.2}", column.ready)) {}
                }
                @if column.computing > 0.001 {
                    rect x=(LABEL + from) y=(y + 3) width=(len) height="14" fill=(colour(at))
                        fill-opacity=(format!("{:.2}", column.computing)) {}
                }
            }
        }
    }
}

/// Neighbours that are equal, as one: the first, how many, and what they are.
fn equal(columns: &[Column]) -> Vec<(usize, usize, Column)> {
    let mut runs: Vec<(usize, usize, Column)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        match runs.last_mut() {
            Some((_, len, last)) if is_like(last, column) => *len += 1,
            _ => runs.push((at, 1, *column)),
        }
    }
    runs.retain(|(_, _, column)| column.computing > 0.001 || column.ready > 0.001);
    runs
}

fn is_like(one: &Column, other: &Column) -> bool {
    (one.computing - other.computing).abs() < 0.005 && (one.ready - other.ready).abs() < 0.005
}

/// The colours of Okabe and Ito, which all people can tell apart.
fn colour(task: usize) -> &'static str {
    const COLOURS: [&str; 7] = [
        "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a8494",
    ];
    COLOURS[task % COLOURS.len()]
}
