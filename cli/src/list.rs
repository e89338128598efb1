//! `list`: the programs of the binary, in their groups.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::{app::App, program::Entry, table};

/// Show the programs, a line each
#[derive(Args)]
pub(super) struct List {
    /// Print a JSON object a line: the name of a program, what it is, and its group
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn text(&self, app: &App) -> String {
        match self.json {
            true => objects(app),
            false => lines(app),
        }
    }
}

/// The first line of a program's help.
fn about(entry: &Entry) -> String {
    let about = entry.command().get_about().cloned();
    about.unwrap_or_default().to_string()
}

fn objects(app: &App) -> String {
    let object = |(group, entry): (&str, &Entry)| {
        let group = (!group.is_empty()).then_some(group);
        let object = json!({ "name": entry.name, "about": about(entry), "group": group });
        format!("{object}\n")
    };
    app.grouped().map(object).collect()
}

/// A line per program: its name, and the first line of its help. A group has a line before its first.
fn lines(app: &App) -> String {
    let width = app.programs.iter().map(|entry| entry.name.len()).max();
    let (width, mut text, mut last) = (width.unwrap_or(0), String::new(), "");
    for (group, entry) in app.grouped() {
        if group != last {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{group}:");
            last = group;
        }
        let indent = if group.is_empty() { "" } else { "  " };
        let head = format!("{indent}{:width$}  ", entry.name);
        let about = about(entry);
        let mut lines = wrapped(&about, table::width().saturating_sub(head.len()));
        let _ = writeln!(text, "{}", format!("{head}{}", lines.remove(0)).trim_end());
        let gap = head.len();
        for line in lines {
            let _ = writeln!(text, "{:gap$}{line}", "");
        }
    }
    text
}

/// The lines of a text, none of which is longer than `room` if its words are not. There is at least one.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= room {
            *last += &format!(" {word}");
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}
