//! Connections to a running kernel: of the commands, which wait for its answers, and of a screen,
//! which is a task.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use trapline::{Device, Os};

use super::{
    protocol::{self, ANSWER, Answer, Answers, Request, safe_json},
    text,
};
use crate::{
    output::{Failure, Log, clean},
    stdio,
};

/// The longest time for a kernel to answer. A task that makes no trap delays it.
const PATIENCE: Duration = Duration::from_secs(10);
/// An upper bound of a monitor's longest line.
const LINE: u64 = 1 << 20;
/// The longest line that a task keeps.
const LONGEST: usize = 1 << 22;

/// A connection to a kernel's monitor.
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    /// Whether the answers are shown as they arrive.
    json: bool,
    /// The number of bytes received.
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
        Ok(Self {
            stream: BufReader::new(stream),
            json,
            kept: 0,
        })
    }

    pub(super) fn ask(&mut self, request: &Request) -> Result<(), Failure> {
        let mut line = Vec::new();
        protocol::write(request, &mut line);
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
                LINE => {
                    let why = "an answer is longer than any that a monitor sends";
                    Err(Failure::Said(why.into()))
                }
                _ => Ok(None),
            };
        }
        let answer = protocol::read(&line)?;
        self.kept += line.len();
        if self.json {
            stdio::print(safe_json(&line).as_bytes())?;
        }
        if let Answer::Error { message } = answer {
            return Err(Failure::Said(clean(&message)));
        }
        Ok(Some(answer))
    }

    /// Sends a request. Returns all answers, unless they have been shown as they came.
    pub(super) fn all(mut self, request: &Request) -> Result<Option<Answers>, Failure> {
        self.ask(request)?;
        let mut all = Answers::default();
        loop {
            match self.next()? {
                Some(Answer::End(totals)) => {
                    all.totals = totals;
                    return Ok(Some(all).filter(|_| !self.json));
                }
                // It has been shown already.
                Some(_) if self.json => {}
                Some(_) if self.kept > ANSWER => {
                    let most = ANSWER >> 20;
                    let why = format!("the answer is over {most} MiB: --json shows it as it comes");
                    return Err(why.into());
                }
                Some(answer) => all.take(answer),
                None => return Err(Failure::Said("the kernel has ended".into())),
            }
        }
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
                Answer::Event(line) => stdio::print((text::event(log, &line) + "\n").as_bytes())?,
                Answer::Lost { count } => {
                    let lost = format!("... {count} events lost: the reader is too slow\n");
                    stdio::print(lost.as_bytes())?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A connection of a task.
pub(super) struct Link {
    device: Device<UnixStream>,
    input: Vec<u8>,
    /// The number of bytes that have been read.
    read: usize,
    /// The longest time until the monitor reads the next request.
    pub(super) pause: Duration,
}

impl Link {
    pub(super) async fn new(os: &mut Os, stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            device: os.attach(stream).await?,
            input: Vec::new(),
            read: 0,
            pause: Duration::ZERO,
        })
    }

    /// Sends a request. Returns all answers, or the monitor's error.
    pub(super) async fn ask(
        &mut self,
        os: &mut Os,
        request: &Request,
    ) -> io::Result<Result<Answers, String>> {
        self.send(os, request).await?;
        let (mut all, mut kept) = (Answers::default(), 0);
        while kept <= ANSWER {
            match self.next(os, &mut kept).await? {
                Answer::End(totals) => {
                    let pause = totals.pause.unwrap_or_default();
                    self.pause = Duration::try_from_secs_f64(pause).unwrap_or_default();
                    all.totals = totals;
                    return Ok(Ok(all));
                }
                Answer::Error { message } => return Ok(Err(message)),
                answer => all.take(answer),
            }
        }
        Err(io::Error::other("an answer is too long"))
    }

    pub(super) async fn send(&self, os: &mut Os, request: &Request) -> io::Result<()> {
        let mut line = Vec::new();
        protocol::write(request, &mut line);
        self.device.send_all(os, &line).await
    }

    /// Returns the next answer; adds the length of its line to `kept`.
    pub(super) async fn next(&mut self, os: &mut Os, kept: &mut usize) -> io::Result<Answer> {
        let mut buf = [0; 8192];
        loop {
            let rest = &self.input[self.read..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                self.read += end + 1;
                *kept += end + 1;
                return protocol::read(&rest[..end]).map_err(io::Error::other);
            }
            self.input.drain(..self.read);
            self.read = 0;
            if self.input.len() > LONGEST {
                return Err(io::Error::other("an answer is too long"));
            }
            match self.device.recv(os, &mut buf).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => self.input.extend_from_slice(&buf[..n]),
            }
        }
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
