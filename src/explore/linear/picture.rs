//! A window as an SVG.

use std::fmt::Write;

use super::operation::{Columns, Operation};
use crate::Tid;

/// The size of a lane, and the room above them and before their bars.
const LANE: usize = 34;
const TOP: usize = 40;
const LEFT: usize = 80;

/// The width of a character, and the widest column.
const LETTER: usize = 7;
const WIDEST: usize = 240;

const STYLE: &str = "text{font:12px sans-serif;fill:#222}.bar{fill:#cfe3f7;stroke:#4a7fb5}\
     .open{fill:#eee;stroke:#999;stroke-dasharray:4 2}.bad{fill:#f7c9c9;stroke:#b22}";

/// Draws operations: `bad` is the place of the one that is not explained.
pub(super) fn draw(operations: &[Operation], bad: Option<usize>, title: &str) -> String {
    let end = bad.and_then(|bad| operations[bad].returned);
    let columns = Columns::of(operations, end);
    let said = operations.iter().map(|it| it.said().chars().count());
    let column = (LETTER * said.max().unwrap_or(0) + 12).min(WIDEST);
    let lanes = lanes(operations);
    let count = lanes.iter().map(|(lane, _)| lane + 1).max().unwrap_or(0);
    let (width, height) = (LEFT + column * columns.len() + 10, TOP + LANE * count + 10);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n<text x=\"10\" y=\"20\">{}</text>\n",
        escaped(title)
    );
    for (place, (operation, (lane, is_first))) in operations.iter().zip(&lanes).enumerate() {
        let y = TOP + LANE * lane;
        if *is_first {
            let task = operation.task;
            let _ = writeln!(svg, "<text x=\"10\" y=\"{}\">task {task}</text>", y + 17);
        }
        let (begin, end) = columns.span(operation);
        let class = match (bad == Some(place), end) {
            (true, _) => "bad",
            (false, Some(_)) => "bar",
            (false, None) => "open",
        };
        let (x, end) = (LEFT + column * begin, end.unwrap_or(columns.len()));
        let (wide, said) = (column * (end - begin), escaped(&operation.said()));
        let _ = writeln!(
            svg,
            "<g><title>{said}</title><rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" \
             height=\"24\" rx=\"3\"/><text x=\"{}\" y=\"{}\">{said}</text></g>",
            x + 5,
            y + 17
        );
    }
    svg + "</svg>\n"
}

/// Returns the lane of each operation, and whether it is the first there. A task has more than one
/// lane if an operation of it has not returned, and it goes on.
fn lanes(operations: &[Operation]) -> Vec<(usize, bool)> {
    // The task of each lane, and the return of its last operation.
    let mut ends: Vec<(Tid, Option<usize>)> = Vec::new();
    let mut lane = |operation: &Operation| {
        let is_free = |(task, end): &(Tid, Option<usize>)| {
            *task == operation.task && end.is_some_and(|end| end < operation.called)
        };
        let own = (operation.task, operation.returned);
        match ends.iter().position(is_free) {
            Some(lane) => {
                ends[lane] = own;
                (lane, false)
            }
            None => {
                ends.push(own);
                (ends.len() - 1, true)
            }
        }
    };
    operations.iter().map(&mut lane).collect()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no other control characters.
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
