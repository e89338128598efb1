//! The commands that query a running kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use serde_json::{Map, Value};
use tracing::Level;

use super::{
    model::{Row, State, Totals},
    protocol::{ANSWER, Answer, Request},
};
use crate::{
    Nanos,
    cli::{
        output::{Log, clean, is_plain, unwritten},
        table::table,
    },
};

/// The longest time for a kernel to answer. A task that makes no trap delays it.
const PATIENCE: Duration = Duration::from_secs(10);
/// An upper bound of a monitor's longest line.
const LINE: u64 = 1 << 20;
/// The largest number of tasks in a table. A row takes kilobytes until it is shown.
const ROWS: usize = 10_000;

/// Why a conversation ended early.
pub(super) enum Failure {
    /// A failure, with its message.
    Said(String),
    /// The reader closed the output early, which is no error.
    Unread,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Said(message)
    }
}

/// A connection to a kernel's monitor.
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    /// Whether the answers are shown as they arrive.
    json: bool,
    /// The number of bytes kept of the current answer.
    kept: usize,
}

/// Connects, or explains why it cannot.
pub(super) fn connect(path: &Path) -> Result<UnixStream, String> {
    UnixStream::connect(path).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound => "there is no such socket: boot with --monitor".to_string(),
            ErrorKind::ConnectionRefused => {
                "no kernel listens there: it has ended, or the file is no socket".to_string()
            }
            ErrorKind::PermissionDenied => "it belongs to another user".to_string(),
            _ => error.to_string(),
        };
        format!("cannot attach to {}: {why}", path.display())
    })
}

impl Connection {
    pub(super) fn open(path: &Path, json: bool) -> Result<Self, Failure> {
        let stream = connect(path)?;
        let ready = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        ready.map_err(|error| error.to_string())?;
        let stream = BufReader::new(stream);
        Ok(Self {
            stream,
            json,
            kept: 0,
        })
    }

    fn ask(&mut self, request: &Request) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(request).expect("plain values are JSON");
        line.push(b'\n');
        match self.stream.get_mut().write_all(&line) {
            // It may have sent the reason before it hung up.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(broken(&error).into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the next object, or `None` at the end.
    fn next(&mut self) -> Result<Option<Answer>, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LINE).read_until(b'\n', &mut line);
        read.map_err(|error| broken(&error))?;
        // A partial line is the last one of a kernel that has ended.
        if line.last() != Some(&b'\n') {
            return match line.len() as u64 {
                LINE => Err("an answer is longer than any that a monitor sends"
                    .to_string()
                    .into()),
                _ => Ok(None),
            };
        }
        let answer = serde_json::from_slice(&line)
            .map_err(|_| "the server there is no monitor of a kernel".to_string())?;
        self.kept += line.len();
        if self.json {
            output(safe_json(&line).as_bytes())?;
        }
        if let Answer::Error { message } = answer {
            return Err(Failure::Said(clean(&message)));
        }
        Ok(Some(answer))
    }

    /// Sends a request, passes on every object except the last, and returns the last.
    fn each(
        &mut self,
        request: &Request,
        mut answer: impl FnMut(Answer),
    ) -> Result<Totals, Failure> {
        self.ask(request)?;
        self.kept = 0;
        loop {
            match self.next()? {
                Some(Answer::End(totals)) => return Ok(totals),
                // It has been shown already.
                Some(_) if self.json => {}
                Some(_) if self.kept > ANSWER => {
                    let most = ANSWER >> 20;
                    let why = format!("the answer is over {most} MiB: --json shows it as it comes");
                    return Err(why.into());
                }
                Some(other) => answer(other),
                None => return Err(Failure::Said("the kernel has ended".into())),
            }
        }
    }

    fn tasks(&mut self) -> Result<(Vec<Row>, Totals), Failure> {
        let mut tasks = Vec::new();
        let totals = self.each(&Request::Ps {}, |answer| {
            if let Answer::Task(row) = answer {
                tasks.push(row);
            }
        })?;
        // A monitor sends them sorted; another server may not.
        tasks.sort_by_key(|row: &Row| row.tid);
        Ok((tasks, totals))
    }

    pub(super) fn ps(&mut self) -> Result<(), Failure> {
        let (tasks, _) = self.tasks()?;
        if self.json {
            return Ok(());
        }
        let columns = [
            "tid",
            "task",
            "parent",
            "state",
            "blocked on",
            "since",
            "traps",
        ];
        let rows: Vec<_> = tasks.iter().take(ROWS).map(ps_row).collect();
        let mut text = format!("{}\n", table(columns, &rows));
        let more = tasks.len() - rows.len();
        if more > 0 {
            text += &format!("and {more} more tasks: --json lists all\n");
        }
        output(text.as_bytes())
    }

    pub(super) fn tree(&mut self) -> Result<(), Failure> {
        let (tasks, _) = self.tasks()?;
        if self.json {
            return Ok(());
        }
        let mut text = String::new();
        for (row, branch) in tree(&tasks.iter().collect::<Vec<_>>()) {
            let (comm, doing) = (clean(&row.comm), doing(row));
            text += &format!("{branch}{} {comm}: {doing}\n", row.tid);
        }
        output(text.as_bytes())
    }

    pub(super) fn waits(&mut self) -> Result<(), Failure> {
        let (mut lines, mut rings, mut more) = (Vec::new(), Vec::new(), 0);
        let arrows = |tids: &[u64]| {
            let tids: Vec<String> = tids.iter().map(ToString::to_string).collect();
            tids.join(" -> ")
        };
        self.each(&Request::Waits {}, |answer| match answer {
            Answer::Task(_) if lines.len() >= ROWS => more += 1,
            Answer::Task(row) => lines.push(waits_line(&row)),
            Answer::Cycle { tids } => {
                let first = tids.first().copied();
                let ring: Vec<u64> = tids.into_iter().chain(first).collect();
                rings.push(format!("cycle: {}\n", arrows(&ring)));
            }
            Answer::Behind { tids } => {
                rings.push(format!("waits on a cycle: {}\n", arrows(&tids)));
            }
            _ => {}
        })?;
        if self.json {
            return Ok(());
        }
        if more > 0 {
            lines.push(format!("and {more} more tasks: --json lists all\n"));
        }
        output((lines.concat() + &rings.concat()).as_bytes())
    }

    pub(super) fn whereabouts(&mut self, tid: u64, log: Log) -> Result<(), Failure> {
        let (mut chain, mut traps) = (Vec::new(), Vec::new());
        let totals = self.each(&Request::Where { tid }, |answer| match answer {
            Answer::Task(row) => chain.push(row),
            Answer::Trap(line) => traps.push(line),
            _ => {}
        })?;
        if self.json {
            return Ok(());
        }
        let mut text = String::new();
        for line in where_lines(&chain, totals.at) {
            text += &(line + "\n");
        }
        for line in traps {
            text += &(event(log, &line) + "\n");
        }
        output(text.as_bytes())
    }

    pub(super) fn why(&mut self, tid: u64) -> Result<(), Failure> {
        let mut chain = Vec::new();
        let totals = self.each(&Request::Where { tid }, |answer| {
            if let Answer::Task(row) = answer {
                chain.push(row);
            }
        })?;
        if self.json {
            return Ok(());
        }
        output(why_lines(&chain, totals.at).as_bytes())
    }

    pub(super) fn kill(&mut self, tid: u64) -> Result<(), Failure> {
        self.each(&Request::Kill { tid }, drop).map(drop)
    }

    /// Shows events until the kernel ends.
    pub(super) fn trace(&mut self, request: &Request, log: Log) -> Result<(), Failure> {
        self.ask(request)?;
        while let Some(answer) = self.next()? {
            match answer {
                // From now on it may be silent for any time.
                Answer::Tracing => {
                    let patient = self.stream.get_ref().set_read_timeout(None);
                    patient.map_err(|error| error.to_string())?;
                }
                _ if self.json => {}
                Answer::Event(line) => output((event(log, &line) + "\n").as_bytes())?,
                Answer::Lost { count } => {
                    output(
                        format!("... {count} events lost: the reader is too slow\n").as_bytes(),
                    )?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
            "no answer within {} s: does a task run without making a trap?",
            PATIENCE.as_secs()
        ),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => "the kernel has ended".to_string(),
        _ => format!("the connection is broken: {error}"),
    }
}

fn output(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text).and_then(|()| out.flush());
    written.map_err(|error| unwritten(&error).map_or(Failure::Unread, Failure::Said))
}

/// Makes a line of JSON safe for a terminal. Control characters occur only within texts or as white
/// space between them.
fn safe_json(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line.trim_ascii_end());
    let mut safe = String::with_capacity(line.len());
    for letter in text.chars() {
        match letter {
            '\0'..' ' => safe.push(' '),
            letter if is_plain(letter) => safe.push(letter),
            // All of them are in the 16-bit plane.
            letter => safe += &format!("\\u{:04x}", u32::from(letter)),
        }
    }
    safe.push('\n');
    safe
}

/// Formats a line as `--trace` does.
pub(super) fn event(log: Log, line: &Map<String, Value>) -> String {
    let target = line.get("target").and_then(Value::as_str);
    log.line(target.unwrap_or("trapline::kernel"), Level::TRACE, line)
}

fn ps_row(row: &Row) -> [Value; 7] {
    let since = row.since.map_or_else(String::new, instant);
    let on = match &row.exit {
        Some(exit) => clean(exit),
        None => clean(row.blocked_on.as_deref().unwrap_or_default()),
    };
    [
        row.tid.into(),
        clean(&row.comm).into(),
        row.parent.into(),
        row.state.name().into(),
        on.into(),
        since.into(),
        row.traps.into(),
    ]
}

/// A blocked task and its places, as reports show them.
fn waits_line(row: &Row) -> String {
    let line = format!("task {} {:?} {}\n", row.tid, row.comm, doing(row));
    let places = row
        .places
        .iter()
        .map(|places| format!("  {}\n", clean(places)));
    line + &places.collect::<String>()
}

/// Formats an instant as reports do.
pub(super) fn instant(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Nanos::from(span).to_string()
}

/// The state of a task, in words.
pub(super) fn doing(row: &Row) -> String {
    match (row.state, &row.blocked_on, &row.exit) {
        (State::Blocked, Some(on), _) => {
            let since = row.since.map_or_else(String::new, instant);
            format!("waits for {}, since {since}", clean(on))
        }
        (State::Zombie, _, Some(exit)) => format!("a zombie: {}", clean(exit)),
        (state, ..) => state.name().to_string(),
    }
}

/// The output of `where`, except the last traps.
pub(super) fn where_lines(chain: &[Row], now: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, row) in chain.iter().enumerate() {
        let name = format!("task {} {:?}", row.tid, row.comm);
        let parent = match row.parent {
            0 => String::new(),
            parent => format!(", parent {parent}"),
        };
        let span = row.since.map_or_else(String::new, |since| {
            format!(" (for {:.3} s)", (now - since).max(0.0))
        });
        let (indent, doing, traps) = ("  ".repeat(at.min(8)), doing(row), row.traps);
        // A cycle ends here.
        let is_last = at + 1 == chain.len();
        if is_last && chain[..at].iter().any(|other| other.tid == row.tid) {
            lines.push(format!("{indent}{name}, again: a cycle"));
        } else {
            lines.push(format!(
                "{indent}{name} {doing}{span}{parent}, {traps} traps"
            ));
            lines.extend(
                row.places
                    .iter()
                    .map(|places| format!("{indent}  {}", clean(places))),
            );
        }
    }
    lines
}

/// The chain of waits in sentences. In a cycle, the last row repeats an earlier one.
fn why_lines(chain: &[Row], now: f64) -> String {
    let again = chain.split_last().and_then(|(last, before)| {
        let first = before.iter().position(|row| row.tid == last.tid)?;
        Some(&before[first..])
    });
    let waits = match again {
        Some(_) => &chain[..chain.len() - 1],
        None => chain,
    };
    let mut text = String::new();
    for row in waits {
        let place = row
            .places
            .as_ref()
            .map_or_else(String::new, |at| format!(" ({})", clean(at)));
        let (tid, comm) = (row.tid, clean(&row.comm));
        text += &match (row.state, &row.blocked_on, row.since) {
            (State::Blocked, Some(on), Some(since)) => {
                let span = (now - since).max(0.0);
                format!(
                    "{tid} {comm:?} has waited {span:.3} s for {}{place}.\n",
                    clean(on)
                )
            }
            (state, ..) => format!("{tid} {comm:?} is {}.\n", state.name()),
        };
    }
    if let Some(ring) = again {
        let tids = ring.iter().chain(ring.first());
        let tids: Vec<String> = tids.map(|row| row.tid.to_string()).collect();
        text += &format!("So they wait for one another: {}.\n", tids.join(" -> "));
    }
    text
}

/// The tasks in the order of a tree of parents, with the branch before each. The input is sorted by
/// tid.
///
/// A cycle of parents does not occur in a kernel. If one is received, one of its tasks is shown as
/// a marked root.
pub(super) fn tree<'a>(tasks: &[&'a Row]) -> Vec<(&'a Row, String)> {
    let find = |tid: u64| tasks.binary_search_by_key(&tid, |row| row.tid).ok();
    let mut children: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    for &row in tasks {
        let parent = find(row.parent).map_or(0, |_| row.parent);
        children.entry(parent).or_default().push(row);
    }
    let mut lines = Vec::with_capacity(tasks.len());
    for root in children.remove(&0).into_iter().flatten() {
        grow(&mut lines, &mut children, root, "");
    }
    // The remaining tasks are on a cycle or below one.
    for &row in tasks {
        if !children.contains_key(&row.parent) {
            continue;
        }
        let (mut root, mut seen) = (row, BTreeSet::new());
        while seen.insert(root.tid)
            && let Some(parent) = find(root.parent)
        {
            root = tasks[parent];
        }
        if let Some(family) = children.get_mut(&root.parent) {
            family.retain(|other| other.tid != root.tid);
        }
        grow(&mut lines, &mut children, root, "↻ ");
    }
    lines
}

/// Appends a task and its descendants.
fn grow<'a>(
    lines: &mut Vec<(&'a Row, String)>,
    children: &mut BTreeMap<u64, Vec<&'a Row>>,
    root: &'a Row,
    mark: &str,
) {
    // The work list: a deep tree must not need a deep stack.
    let mut ahead = vec![(root, mark.to_string(), String::new())];
    while let Some((row, branch, below)) = ahead.pop() {
        lines.push((row, branch));
        let family = children.remove(&row.tid).unwrap_or_default();
        for (at, child) in family.iter().enumerate().rev() {
            let (branch, bar) = if at + 1 == family.len() {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            // At greater depth the lines are unreadable.
            let bar = if below.len() < 256 { bar } else { "" };
            ahead.push((child, format!("{below}{branch}"), format!("{below}{bar}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tasks: &[(u64, u64)]) -> String {
        let row = |&(tid, parent): &(u64, u64)| Row {
            tid,
            parent,
            ..Row::default()
        };
        let rows: Vec<Row> = tasks.iter().map(row).collect();
        let lines = tree(&rows.iter().collect::<Vec<_>>());
        let line = |(row, branch): &(&Row, String)| format!("{branch}{}", row.tid);
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn cycles_of_parents_are_shown() {
        assert_eq!(shown(&[(1, 0), (2, 1), (9, 7)]), "1\n└─ 2\n9");
        assert_eq!(shown(&[(1, 0), (2, 2)]), "1\n↻ 2");
        let below = shown(&[(1, 5), (5, 6), (6, 5), (7, 6), (8, 1)]);
        assert_eq!(below, "↻ 5\n├─ 1\n│  └─ 8\n└─ 6\n   └─ 7");
    }

    #[test]
    fn json_is_shown_without_control_characters() {
        let hostile = "{\"comm\":\t\"a\u{9b}31m\u{202e}\u{7f}ä\"}\r\n";
        let safe = safe_json(hostile.as_bytes());
        assert_eq!(safe, "{\"comm\": \"a\\u009b31m\\u202e\\u007fä\"}\n");
        serde_json::from_str::<Value>(&safe).expect("it is still JSON");
    }
}
