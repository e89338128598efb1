//! The outcome of a schedule, and the report of a search for people.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io::{self, IsTerminal},
    process::ExitCode,
};

use trapline::{Check, Error, Explored, Kernel, Progress};
use unicode_width::UnicodeWidthStr;

use crate::{
    output::FAILURE,
    progress::{self, line, time_left},
    signals, stdio, table,
    units::number,
};

/// Longer texts of a run are replaced by a hash.
const LONGEST: usize = 200;

/// Makes what the programs have printed the outcome of a schedule.
pub(crate) fn set_outcome(kernel: &mut Kernel, text: String) {
    if text.len() <= LONGEST {
        kernel.outcome(text);
    } else {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
        kernel.outcome(format!("{} bytes, hash {hash:016x}", text.len()));
    }
}

/// Runs a search, and shows its progress on a terminal. A signal ends it. The command runs a schedule
/// of its report again.
pub(crate) fn searched<F>(search: Check<F>, command: String) -> Explored
where
    F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    let mut search = search.stop_when(signals::is_raised).command(command);
    if io::stderr().is_terminal() {
        search = search.progress(show);
    }
    let explored = search.explore();
    stdio::clear();
    explored
}

/// The exit code of a search. One that replays a schedule of another program is no success.
pub(crate) fn code(explored: &Explored) -> ExitCode {
    match explored.failure.is_some() || explored.changed.is_some() {
        true => ExitCode::from(FAILURE),
        false => signals::signal().map_or(ExitCode::SUCCESS, ExitCode::from),
    }
}

pub(crate) fn report(explored: &Explored) -> String {
    shown(&explored.to_string()) + "\n" + &outcomes(&explored.outcomes)
}

/// The text of a report. On a terminal, lines that are wider are broken.
pub(crate) fn shown(text: &str) -> String {
    match io::stdout().is_terminal() {
        true => {
            let width = table::width();
            let lines = text.lines().map(|line| folded(line, width));
            lines.collect::<Vec<_>>().join("\n")
        }
        false => text.to_string(),
    }
}

/// Breaks a line that is wider than the terminal: before a place in the source at its end, and between
/// words. A command stays whole, to be copied.
fn folded(line: &str, width: usize) -> String {
    if line.width() <= width || line.starts_with("to see it again") {
        return line.to_string();
    }
    let (words, place) = match line.rsplit_once("  ") {
        Some((words, place)) if place.contains(".rs:") => (words.trim_end(), Some(place)),
        _ => (line, None),
    };
    let indent = line.len() - line.trim_start_matches(' ').len() + 4;
    let (mut text, mut column) = (String::new(), 0);
    let mut add = |piece: &str, gap: &str| {
        column += piece.width();
        if column - gap.len() > width && !text.trim().is_empty() {
            text.truncate(text.trim_end().len());
            text += &format!("\n{:indent$}", "");
            column = indent + piece.trim_start().width();
            text += piece.trim_start();
        } else {
            text += piece;
        }
    };
    for word in words.split_inclusive(' ') {
        let gap = &word[word.trim_end().len()..];
        add(word, gap);
    }
    if let Some(place) = place {
        add(&format!("  {place}"), "");
    }
    text
}

/// Shows the progress on a line that the next one overwrites.
pub(crate) fn show(progress: &Progress) {
    let of = Some(progress.of).filter(|of| *of < u64::MAX);
    let classes = match progress.classes {
        0 => String::new(),
        classes => format!(", {} causal orders", number(classes)),
    };
    let far = line(progress.schedules, of, "schedule", progress.elapsed);
    progress::show(&(far + &classes + &time_left("at most ", progress.left)));
}

fn outcomes(all: &BTreeSet<String>) -> String {
    const SHOWN: usize = 10;
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("outcomes: {}\n", all.len());
    for outcome in all.iter().take(SHOWN) {
        text += &format!("  {:?}\n", outcome.trim_end());
    }
    if all.len() > SHOWN {
        text += "  ...\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn a_line_is_broken_before_its_place_or_between_words() {
        let row = "      3  reader 2       now() = 00:00.000    src/a.rs:46";
        assert_eq!(folded(row, 60), row);
        assert_eq!(
            folded(row, 50),
            "      3  reader 2       now() = 00:00.000\n          src/a.rs:46"
        );
        let words = "one two three four five";
        assert_eq!(folded(words, 13), "one two three\n    four five");
        assert_eq!(folded("incomprehensible", 5), "incomprehensible");
        let command = "to see it again:  trapline explore --replay 6..a0bdcb18 lost-wakeup";
        assert_eq!(folded(command, 40), command);
        for width in 1..60 {
            let text = folded(row, width);
            let (broken, whole) = (text.split_whitespace(), row.split_whitespace());
            assert!(broken.eq(whole), "{width}: {text}");
        }
    }
}
