//! The recording that is read.

use std::{
    io::{self, IsTerminal},
    path::Path,
    process::ExitCode,
};

pub(super) use crate::output::Failure;

use trapline::{
    record::{Error, Header, OwnedEvent, Recording},
    tape::Playing,
};

use crate::{
    output::{Log, clean},
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
}

impl Source {
    /// Opens the recording; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let is_stdin = path == Path::new("-");
        if is_stdin && io::stdin().is_terminal() {
            let why = "a recording is to come on standard input, which is a terminal: name a file";
            return Err(why.to_string().into());
        }
        let (name, recording) = match is_stdin {
            true => ("standard input".into(), Recording::from_reader(io::stdin())),
            false => (path.to_string_lossy(), Recording::open(path)),
        };
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
        })
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
                Error::Truncated { .. } | Error::Unwritten { .. } => log.warn(&message),
                _ => return Err(message.into()),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Iterator for Source {
    type Item = OwnedEvent;

    fn next(&mut self) -> Option<OwnedEvent> {
        let event = self.recording.next()?;
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
