//! Tables for people.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

use super::output::clean;

/// Formats a table for people, with numbers aligned right.
pub(super) fn table<const N: usize>(columns: [&str; N], rows: &[[Value; N]]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns);
    for row in rows {
        table.add_row(row.iter().map(cell));
    }
    for at in 0..N {
        let first = rows
            .iter()
            .map(|row| &row[at])
            .find(|value| !value.is_null());
        let Some(value) = first else {
            continue;
        };
        let is_number = value.as_str().map_or(value.is_number(), |text| {
            text.trim_end_matches('s').parse::<f64>().is_ok()
        });
        if is_number && let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
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
