//! The commands that query a running kernel.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use super::{
    protocol::{ANSWER, Answer, Request},
    query::Query,
    row::{Row, Totals},
    text,
};
use crate::{
    output::{Failure, Log, clean, is_plain},
    stdio,
};

/// The longest time for a kernel to answer. A task that makes no trap delays it.
const PATIENCE: Duration = Duration::from_secs(10);
/// An upper bound of a monitor's longest line.
const LINE: u64 = 1 << 20;

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

    pub(super) fn ask(&mut self, request: &Request) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(request).expect("plain values are JSON");
        line.push(b'\n');
        match self.stream.get_mut().write_all(&line) {
            // It may have sent the reason before it hung up.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(broken(&error).into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the next object, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Answer>, Failure> {
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

    fn tasks(&mut self, query: Query) -> Result<(Vec<Row>, Totals), Failure> {
        let mut tasks = Vec::new();
        let totals = self.each(&Request::Ps(query), |answer| {
            if let Answer::Task(row) = answer {
                tasks.push(row);
            }
        })?;
        Ok((tasks, totals))
    }

    pub(super) fn ps(&mut self, query: Query) -> Result<(), Failure> {
        let (tasks, totals) = self.tasks(query)?;
        if self.json {
            return Ok(());
        }
        output(text::ps(&tasks, &totals, ": --json lists all").as_bytes())
    }

    pub(super) fn tree(&mut self, query: Query) -> Result<(), Failure> {
        let (tasks, totals) = self.tasks(query)?;
        if self.json {
            return Ok(());
        }
        output(text::tree(&tasks, &totals).as_bytes())
    }

    pub(super) fn waits(&mut self) -> Result<(), Failure> {
        let (mut lines, mut rings, mut more) = (Vec::new(), Vec::new(), 0);
        self.each(&Request::Waits {}, |answer| match answer {
            Answer::Task(_) if lines.len() >= text::ROWS => more += 1,
            Answer::Task(row) => lines.push(text::waits_line(&row)),
            Answer::Cycle { tids } => rings.push(text::cycle(&tids)),
            Answer::Behind { tids } => rings.push(text::behind(&tids)),
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
        for line in text::where_lines(&chain, totals.at) {
            text += &(line + "\n");
        }
        for line in traps {
            text += &(text::event(log, &line) + "\n");
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
        output(text::why_lines(&chain, totals.at).as_bytes())
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
                Answer::Event(line) => output((text::event(log, &line) + "\n").as_bytes())?,
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
    Ok(stdio::print(text)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_shown_without_control_characters() {
        let hostile = "{\"comm\":\t\"a\u{9b}31m\u{202e}\u{7f}ä\"}\r\n";
        let safe = safe_json(hostile.as_bytes());
        assert_eq!(safe, "{\"comm\": \"a\\u009b31m\\u202e\\u007fä\"}\n");
        serde_json::from_str::<serde_json::Value>(&safe).expect("it is still JSON");
    }
}
