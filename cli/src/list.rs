//! `list`: the programs of the binary, in their groups.

use std::fmt::Write;

use clap::Args;
use serde_json::json;
use unicode_width::UnicodeWidthStr;

use super::{app::App, program::Entry, table};

/// In less room than this, a text is not wrapped.
const LEAST: usize = 24;

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
    let width = app.programs.iter().map(|entry| entry.name.width()).max();
    let (width, mut text, mut last) = (width.unwrap_or(0), String::new(), "");
    for (group, entry) in app.grouped() {
        if group != last {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{group}:");
            last = group;
        }
        let indent = if group.is_empty() { "" } else { "  " };
        let gap = indent.len() + width + 2;
        let fill = gap - indent.len() - entry.name.width();
        let head = format!("{indent}{}{:fill$}", entry.name, "");
        text += &hanging(&head, gap, &about(entry), table::width());
    }
    text
}

/// A head with a text beside it, whose further lines begin at this column. A terminal that has hardly
/// any room there breaks the line itself.
fn hanging(head: &str, gap: usize, text: &str, width: usize) -> String {
    let room = width.saturating_sub(gap);
    let lines = match room < LEAST {
        true => vec![text.to_string()],
        false => wrapped(text, room),
    };
    let lines = lines.join(&format!("\n{:gap$}", ""));
    format!("{}\n", format!("{head}{lines}").trim_end())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_wrapped_where_there_is_room_for_it() {
        let text = "a text of seven words, no more";
        let wide = "name  a text of seven words,\n      no more\n";
        assert_eq!(hanging("name  ", 6, text, 30), wide);
        assert_eq!(hanging("name  ", 6, text, 29), format!("name  {text}\n"));
        assert_eq!(hanging("name  ", 6, "", 80), "name\n");
    }
}
