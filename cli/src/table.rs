//! Tables for people, and the same rows as JSON.
//!
//! A table fits the terminal, or `COLUMNS`, or else 80 columns. Its widest texts are cut for that, and numbers are not.
//! `--json` has everything.

use std::{env, fmt, io, iter, time::Duration};

use rustix::termios::tcgetwinsize;
use serde_json::{Map, Value};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{
    output::clean,
    units::{number, span_of},
};

/// The exit of a task that has none.
pub(super) const ALIVE: &str = "none: it was alive";

/// The columns whose numbers a user types again, and so have no separators.
const IDS: [&str; 2] = ["tid", "parent"];

/// No text is cut to less than this.
const LEAST: usize = 8;

/// A table, formatted later for people or as JSON.
pub(super) struct Sheet<const N: usize> {
    pub(super) of: &'static str,
    /// With two spaces between them.
    pub(super) columns: &'static str,
    pub(super) rows: Vec<[Value; N]>,
}

/// The text for people.
impl<const N: usize> fmt::Display for Sheet<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table(self.columns.split("  "), &self.rows))
    }
}

impl<const N: usize> Sheet<N> {
    /// An object for each row.
    pub(super) fn objects(self) -> impl Iterator<Item = Value> {
        self.rows.into_iter().map(move |row| {
            let cells = self.columns.split("  ").map(String::from).zip(row);
            let mut line: Map<String, Value> = cells.collect();
            line.insert("summary".into(), self.of.into());
            line.into()
        })
    }
}

/// The columns of the terminal that standard output is; without one, those of the environment variable
/// `COLUMNS`, or else 80.
pub(super) fn width() -> usize {
    let size = tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_col));
    let set = || env::var("COLUMNS").ok()?.parse().ok();
    // A terminal may not know its size.
    let size = size.ok().filter(|columns| *columns > 0).or_else(set);
    size.unwrap_or(80).clamp(20, 10_000)
}

/// Formats a table for people, with numbers aligned right.
pub(super) fn table<'a, const N: usize>(
    columns: impl IntoIterator<Item = &'a str>,
    rows: &[[Value; N]],
) -> String {
    let heads: Vec<&str> = columns.into_iter().collect();
    let texts = rows.iter().map(|row| -> Vec<String> {
        let cells = row.iter().zip(&heads);
        cells.map(|(value, head)| cell(value, head)).collect()
    });
    let texts: Vec<Vec<String>> = texts.collect();
    let numeric: Vec<bool> = (0..N)
        .map(|at| {
            // A cell of what is not there says nothing.
            let mut cells = texts.iter().map(|cells| cells[at].as_str());
            let are_numbers = cells
                .clone()
                .all(|cell| ["", "-"].contains(&cell) || is_number(cell));
            are_numbers && cells.any(is_number)
        })
        .collect();
    let widths = widths(&heads, &texts, &numeric);
    let heads = heads.iter().map(ToString::to_string).collect();
    let lines = iter::once(&heads).chain(&texts).map(|cells| {
        let cells = cells.iter().zip(widths.iter().zip(&numeric));
        let cells = cells.map(|(text, (width, is_number))| padded(text, *width, *is_number));
        cells.collect::<String>().trim_end().to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The widths of the columns. The widest texts are cut until the table fits.
fn widths(heads: &[&str], texts: &[Vec<String>], numeric: &[bool]) -> Vec<usize> {
    let widest = |at: usize| {
        let cells = texts.iter().map(|cells| cells[at].width());
        cells.fold(heads[at].width(), usize::max)
    };
    let mut widths: Vec<usize> = (0..heads.len()).map(widest).collect();
    // Each column has a space on both sides, and spaces at the end are left out.
    let room = (width() + 1).saturating_sub(2 * widths.len());
    while widths.iter().sum::<usize>() > room {
        let texts = widths.iter_mut().zip(numeric);
        let texts = texts.filter_map(|(width, is_number)| (!is_number).then_some(width));
        match texts.filter(|width| **width > LEAST).max() {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    widths
}

fn padded(text: &str, width: usize, is_number: bool) -> String {
    let text = cut(text, width);
    let gap = " ".repeat(width.saturating_sub(text.width()));
    match is_number {
        true => format!(" {gap}{text} "),
        false => format!(" {text}{gap} "),
    }
}

/// Cuts a text to a width. A name keeps its end, which tells it from others: `worker-of…-12`.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let room = width.saturating_sub(1);
    let end = if text.contains(' ') { 0 } else { room / 3 };
    let end: String = fitting(text.chars().rev(), end).chars().rev().collect();
    let begin = fitting(text.chars(), room - end.width());
    format!("{begin}…{end}")
}

/// The first letters that fit.
fn fitting(letters: impl Iterator<Item = char>, mut room: usize) -> String {
    let fits = |letter: &char| {
        let left = room.checked_sub(letter.width().unwrap_or(0));
        room = left.unwrap_or(room);
        left.is_some()
    };
    letters.take_while(fits).collect()
}

/// A time as a cell.
pub(super) fn seconds(span: Duration) -> Value {
    span.as_secs_f64().into()
}

fn cell(value: &Value, head: &str) -> String {
    match value {
        Value::String(text) => clean(text),
        Value::Number(seconds) if seconds.is_f64() => span_of(seconds.as_f64().unwrap_or(0.0)),
        Value::Number(id) if IDS.contains(&head) => id.to_string(),
        Value::Number(whole) => number(whole),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Whether a text is a number, a time or a share.
fn is_number(text: &str) -> bool {
    let text = text.trim_start_matches(['+', '-', '<']);
    let end = text.find(|letter: char| !letter.is_ascii_digit() && !".,".contains(letter));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    digits.starts_with(|digit: char| digit.is_ascii_digit())
        && ["", "s", "ms", "µs", "ns", " %"].contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_no_wider_than_80_columns_and_cuts_no_number() {
        let name = |n: u64| format!("a-worker-with-{}name-{n}", "long-".repeat(30));
        let row = |n: u64| -> [Value; 5] {
            let why = "waits for what it has waited for. ".repeat(3);
            let traps = n * 1_000_000;
            [
                n.into(),
                name(n).into(),
                traps.into(),
                0.0625.into(),
                why.into(),
            ]
        };
        let columns = ["tid", "task", "traps", "blocked", "on"];
        let text = table(columns, &[row(1_000), row(1_001)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.width() <= 80), "{text}");
        assert!(
            lines[1].starts_with(" 1000  a-worker-with-"),
            "{}",
            lines[1]
        );
        assert!(lines[1].contains("…"), "{}", lines[1]);
        assert!(
            lines[2].contains("-1001  1,001,000,000   62.5ms  waits for"),
            "{}",
            lines[2]
        );
        assert!(lines[1].width() > 76, "it is filled");
        // What fits is not cut.
        let text = table(
            columns,
            &[[1.into(), "a".into(), 2.into(), 0.5.into(), "b".into()]],
        );
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn a_column_is_of_numbers_if_all_its_cells_are() {
        let row = |name: &str, share: &str| [name.into(), share.into(), Value::Null];
        let rows = [row("123", "<0.01 %"), row("worker", "-"), row("x", "9.5 %")];
        let expected = [
            " task      share  nothing",
            " 123     <0.01 %",
            " worker        -",
            " x         9.5 %",
        ];
        let text = table(["task", "share", "nothing"], &rows);
        assert_eq!(text, expected.join("\n"));
    }

    #[test]
    fn numbers_are_told_from_names() {
        for number in [
            "0", "1,234", "62.5ms", "+1s", "-3µs", "99.9 %", "7ns", "<0.01 %",
        ] {
            assert!(is_number(number), "{number}");
        }
        for text in ["", "s", "-", "1 done", "00:01.000", "2m", "worker-1", "%"] {
            assert!(!is_number(text), "{text}");
        }
    }

    #[test]
    fn wide_letters_count_twice() {
        assert_eq!(cut("好好好好好", 7), "好好…好");
        assert_eq!(cut("一 好好好好", 6), "一 好…");
        assert_eq!(cut("short", 5), "short");
    }
}
