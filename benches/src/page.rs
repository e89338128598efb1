//! The tables of the page of results. What stands between `<!-- measured: WORKLOAD -->` and `<!-- end -->`
//! is written here; the sentences around it are not.

use std::{fs, io, path::Path};

use crate::contest::{Line, Results};

const BEGIN: &str = "<!-- measured: ";
const END: &str = "<!-- end -->";
/// The block about the machine and the run.
const MACHINE: &str = "machine";

/// What keeps our figure from being less, by the start of a contest's name.
const LIMITS: [(&str, &str); 34] = [
    (
        "switch, 1 task",
        "the generator: half of a trap's instructions",
    ),
    ("switch, 10000", "the caches: a turn touches 300 bytes"),
    ("switch", "the generator: half of a trap's instructions"),
    ("a decision", "the policy, and for drawn tasks the caches"),
    (
        "spawn",
        "one allocation; two traps of the parent, and the end",
    ),
    ("queue of 1", "four traps, two of them block"),
    ("queue of 64", "a trap for each end of a message"),
    ("mailbox", "a trap and a lock for each end of a message"),
    ("a counter", "births, turns and ends of three tasks"),
    ("Cargill", "traps of the monitor"),
    ("two locks", "traps of the locks"),
    ("10 tasks", "the turns, and the draw of each"),
    ("all of", "the audit, which runs each order again"),
    (
        "sleepers, 100000, virtual",
        "the ladder of deadlines; the caches",
    ),
    (
        "sleepers, 100000, real",
        "a wait for each deadline: they are exact, and not rounded to milliseconds",
    ),
    ("sleepers", "the ladder of deadlines; the caches"),
    ("timeout", "the scope, and one reading of the clock"),
    ("memory per task", "the program, and 128 bytes of the task"),
    ("memory per simulated", "the buffers of both ends"),
    (
        "echo, 50 connections, system",
        "a read and a write per request",
    ),
    (
        "echo, 200",
        "the client, which has a third thread on two cores",
    ),
    ("echo", "two system calls per request"),
    ("UDP echo, 1 ", "a wait for each datagram"),
    ("UDP", "two system calls per request"),
    (
        "simulated echo",
        "the events of two hosts: a datagram each way",
    ),
    ("files of 100", "the copies of the system"),
    ("files", "two system calls per request"),
    ("key-value server, 1 at", "two system calls per request"),
    ("key-value", "the words of the request, and the answer"),
    ("a log", "the sync of the disk; a thread does it"),
    ("cold start", "the program's pages, and the options"),
    ("observation of", "the system call of a line"),
    ("observation from", "the text of a line"),
    (
        "observation",
        "three events per trap, and the bytes of each",
    ),
];

/// What was measured of a workload; nothing where the machine lacks a tool.
pub(crate) type Measured<'a> = (&'static str, Vec<&'a Results>);

/// Writes the tables of these workloads, and how they were measured. Others keep theirs.
///
/// *Errors:* a workload without a block in the page, or a block without an end.
pub(crate) fn write(path: &Path, run: &str, all: &[Measured<'_>]) -> io::Result<()> {
    let wrong = |what: String| io::Error::other(format!("{}: {what}", path.display()));
    let mut text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let tables = all.iter().map(|(name, results)| (*name, tables(results)));
    for (name, table) in [(MACHINE, run.to_string())].into_iter().chain(tables) {
        text = replaced(&text, name, &table).ok_or_else(|| {
            wrong(format!(
                "it needs the lines `{BEGIN}{name} -->` and `{END}`"
            ))
        })?;
    }
    fs::write(path, text).map_err(|error| wrong(error.to_string()))
}

/// Returns the text with another content of a block. `None` if it has no such block.
fn replaced(text: &str, name: &str, content: &str) -> Option<String> {
    let mark = format!("{BEGIN}{name} -->\n");
    let (before, rest) = text.split_once(&mark)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{mark}\n{content}\n{END}{after}"))
}

/// A table for the contests that have the same first contender.
fn tables(all: &[&Results]) -> String {
    if all.is_empty() {
        return "Not measured: this machine lacks a program that it needs.\n".into();
    }
    let first = |results: &&Results| results.lines[0].contender;
    let parts = all.chunk_by(|one, next| first(one) == first(next));
    parts.map(table).collect::<Vec<_>>().join("\n")
}

/// A row for each unit of each contest, and a column for each contender. Behind the figure of a peer
/// stands how many times ours it is.
fn table(all: &[&Results]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for line in all.iter().flat_map(|results| &results.lines) {
        if !names.contains(&line.contender) {
            names.push(line.contender);
        }
    }
    let mut text = format!("| | {} | what limits it |\n", names.join(" | "));
    text.push_str(&format!("|---|{}---|\n", "---|".repeat(names.len())));
    for results in all {
        let mut units: Vec<&str> = results.lines.iter().map(|line| line.unit).collect();
        units.dedup();
        for unit in units {
            let of = |name: &&str| {
                let is_it = |line: &&Line| line.contender == *name && line.unit == unit;
                let line = results.lines.iter().find(is_it);
                line.map_or_else(String::new, |line| cell(results, line))
            };
            let cells: Vec<String> = names.iter().map(of).collect();
            let (name, cells) = (&results.name, cells.join(" | "));
            let limit = limit(name);
            text.push_str(&format!("| {name}, {unit} | {cells} | {limit} |\n"));
        }
    }
    text
}

fn limit(name: &str) -> &'static str {
    let of = LIMITS.iter().find(|(start, _)| name.starts_with(start));
    of.map_or("", |(_, limit)| limit)
}

fn cell(results: &Results, line: &Line) -> String {
    let times = results.ratio(line).recip();
    match line.median.is_nan() {
        true => "-".into(),
        false if line.contender == results.lines[0].contender => figure(line.median),
        false => format!("{} ({})", figure(line.median), figure(times)),
    }
}

/// Three digits that count.
fn figure(number: f64) -> String {
    let digits = match number {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let plain = format!("{number:.digits$}");
    let (whole, rest) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match rest {
        "" => grouped,
        rest => format!("{grouped}.{rest}"),
    }
}

/// Says on which machine, with what and how it was measured.
pub(crate) fn machine(rounds: usize, quick: bool) -> String {
    let word = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let value = line.map(|line| line.trim_start_matches([' ', '\t', ':']).trim().to_string());
        value.unwrap_or_else(|| "unknown".into())
    };
    let cpu = word("/proc/cpuinfo", "model name");
    let linux = word("/proc/sys/kernel/osrelease", "");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let told = |program: &str, args: &[&str]| {
        let out = std::process::Command::new(program).args(args).output();
        out.map_or_else(
            |_| "unknown".into(),
            |out| String::from_utf8_lossy(&out.stdout).trim().to_string(),
        )
    };
    let (rustc, date) = (
        told("rustc", &["--version"]),
        told("date", &["-u", "+%Y-%m-%d"]),
    );
    let rustc = rustc.split(" (").next().unwrap_or_default();
    let work = if quick {
        " of a tenth of the work (`--quick`)"
    } else {
        ""
    };
    format!(
        "Medians of {rounds} rounds{work}, all in one run on {date}: {cpu}, {cores} cores, Linux {linux}, \
         {rustc}, fat LTO. The number in parentheses is the ratio to trapline: above 1, it needs more.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_gets_another_content_and_all_else_stays() {
        let text =
            "a\n<!-- measured: x -->\nold\n<!-- end -->\nb\n<!-- measured: y -->\n<!-- end -->\n";
        let new = replaced(text, "x", "new\n").unwrap();
        let expected = "a\n<!-- measured: x -->\n\nnew\n\n<!-- end -->\nb\n<!-- measured: y -->\n<!-- end -->\n";
        assert_eq!(new, expected);
        assert_eq!(replaced(&new, "x", "new\n").unwrap(), expected);
        assert_eq!(replaced(text, "z", ""), None);
        assert_eq!(replaced("<!-- measured: x -->\n", "x", ""), None);
    }

    #[test]
    fn a_figure_has_three_digits_that_count_or_all_of_its_whole_ones() {
        let all = [0.123, 9.876, 12.345, 123.4, 12_345.6, 1_234_567.0];
        let words = ["0.12", "9.88", "12.3", "123", "12,346", "1,234,567"];
        assert_eq!(all.map(figure), words);
    }
}
