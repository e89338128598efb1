//! Tables for people, and the same rows as JSON.

use std::{fmt, time::Duration};

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value};

use super::output::clean;

/// The exit of a task that has none.
pub(super) const ALIVE: &str = "none: it was alive";

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

/// Formats a table for people, with numbers aligned right.
pub(super) fn table<'a, const N: usize>(
    columns: impl IntoIterator<Item = &'a str>,
    rows: &[[Value; N]],
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns);
    for row in rows {
        table.add_row(row.iter().map(cell));
    }
    for at in 0..N {
        let mut cells = rows.iter().map(|row| &row[at]);
        let is_number = cells.find(|value| !value.is_null()).is_some_and(|value| {
            value.as_str().map_or(value.is_number(), |text| {
                text.trim_end_matches('s').parse::<f64>().is_ok()
            })
        });
        if is_number && let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// A time as a cell.
pub(super) fn seconds(span: Duration) -> Value {
    span.as_secs_f64().into()
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        Value::Number(number) if number.is_f64() => {
            format!("{:.6}s", number.as_f64().unwrap_or(0.0))
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
