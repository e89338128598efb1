//! The recording that is read.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, BufReader, IsTerminal, Read},
    os::fd::AsFd,
    path::Path,
    process::ExitCode,
    rc::Rc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
};

pub(super) use crate::output::Failure;

use trapline::{
    record::{Error, Header, OwnedEvent, Recording},
    tape::Playing,
};

use crate::{
    output::{Log, clean},
    progress::Meter,
    signals,
    units::count,
    words::quoted,
};

/// A recording, from a file or from standard input.
pub(super) struct Source {
    name: String,
    recording: Recording,
    /// The number of missing events reported so far.
    missing: u64,
    /// Why it ended before its end, if it did.
    error: Option<Error>,
    /// How many events were read, and how far that is.
    events: u64,
    far: Rc<Cell<u64>>,
    bytes: Option<u64>,
    meter: Option<Meter>,
}

/// A file or a pipe that is read up to an interrupt, and the bytes that were.
struct Input<R> {
    from: R,
    far: Rc<Cell<u64>>,
}

impl<R: Read + AsFd> Read for Input<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        // A writer may keep a pipe open for ever.
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let mut asked = [PollFd::new(&self.from, PollFlags::IN)];
        while retry_on_intr(|| poll(&mut asked, Some(&patience)))? == 0 {
            if signals::is_raised() {
                return Ok(0);
            }
        }
        let read = self.from.read(room)?;
        self.far.set(self.far.get() + read as u64);
        Ok(read)
    }
}

impl Source {
    /// Opens the recording; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let is_stdin = path == Path::new("-");
        if is_stdin && io::stdin().is_terminal() {
            let why = "a recording is to come on standard input, which is a terminal: name a file";
            return Err(why.to_string().into());
        }
        let far = Rc::new(Cell::new(0));
        let (name, input) = match is_stdin {
            true => (
                "standard input".into(),
                io::stdin().as_fd().try_clone_to_owned(),
            ),
            false => (path.to_string_lossy(), File::open(path).map(Into::into)),
        };
        let input = input.map(File::from);
        let file = input.as_ref().ok().and_then(|file| file.metadata().ok());
        let bytes = file.filter(fs::Metadata::is_file).map(|file| file.len());
        let recording = input.map_err(Error::from).and_then(|from| {
            let far = Rc::clone(&far);
            Recording::from_reader(BufReader::new(Input { from, far }))
        });
        let recording = recording.map_err(|error| {
            let hint = match &error {
                Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                    " (`boot --record FILE PROGRAM` makes one)"
                }
                Error::Foreign if path.is_file() && Playing::open(path).is_ok() => {
                    " (it is a tape, for `replay`)"
                }
                _ => "",
            };
            format!("cannot read {name}: {error}{hint}")
        })?;
        Ok(Self {
            name: name.into_owned(),
            recording,
            missing: 0,
            error: None,
            events: 0,
            far,
            bytes,
            meter: Some(Meter::new("event", None)),
        })
    }

    /// For a command that prints while it reads: a terminal then shows how far it is.
    pub(super) fn prints(&mut self) {
        self.meter.take_if(|_| io::stdout().is_terminal());
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn header(&self) -> &Header {
        self.recording.header()
    }

    /// The number of events missing before the last one returned, if any. A second call returns
    /// none.
    pub(super) fn gap(&mut self) -> Option<u64> {
        let missing = self.recording.missing();
        let before = std::mem::replace(&mut self.missing, missing);
        (missing > before).then(|| missing - before)
    }

    pub(super) fn warn_of_gaps(&self, log: Log) {
        let missing = self.recording.missing();
        if missing > 0 {
            let (name, missing) = (&self.name, count(missing, "event"));
            log.warn(&format!(
                "{name}: {missing} missing: what is shown is about the others"
            ));
        }
    }

    pub(super) fn is_torn(&self) -> bool {
        self.error.is_some()
    }

    /// Reports the damage to the recording, once all readable events have been read. A missing end
    /// is no failure: a killed process and a full disk leave such a recording.
    pub(super) fn end(self, log: Log) -> Result<ExitCode, Failure> {
        if let Some(error) = self.error {
            let message = format!("{}: {error}", self.name);
            match error {
                _ if signals::is_raised() => {}
                Error::Truncated { .. } | Error::Unwritten { .. } => log.warn(&message),
                _ => return Err(message.into()),
            }
        }
        if signals::is_raised() {
            let events = count(self.events, "event");
            log.warn(&format!(
                "interrupted: what is shown is about the first {events}"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Iterator for Source {
    type Item = OwnedEvent;

    fn next(&mut self) -> Option<OwnedEvent> {
        if signals::is_raised() {
            return None;
        }
        let Some(event) = self.recording.next() else {
            // What follows is not reading.
            self.meter = None;
            return None;
        };
        self.events += 1;
        if let Some(meter) = &self.meter {
            meter.show(self.events);
            let far = self.far.get() as f64;
            meter.share(|| self.bytes.map(|all| far / all.max(1) as f64));
        }
        event.map_err(|error| self.error = Some(error)).ok()
    }
}

/// The file of a recording as a word of a command line that is shown.
pub(super) fn argument(file: &Path) -> String {
    clean(&quoted(&file.to_string_lossy()))
}

/// The message for a task that is not in what was read: the recording, or its part up to `--to` if it
/// `is_cut`.
pub(super) fn unknown(task: &str, file: &Path, is_cut: bool) -> String {
    let (task, file) = (clean(task), argument(file));
    match is_cut {
        true => format!("no task {task} was spawned up to --to"),
        false => format!("there is no task {task} (`trace summary {file}` lists them)"),
    }
}

pub(super) fn world(header: &Header) -> &'static str {
    match header.is_simulated {
        true => "simulated",
        false => "real",
    }
}
