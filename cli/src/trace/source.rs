//! The recording that is read.

use std::{
    io::{self, IsTerminal},
    path::Path,
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
        let name = match path.to_string_lossy() {
            dash if dash == "-" => "standard input".to_string(),
            path => path.into_owned(),
        };
        let recording = if path != Path::new("-") {
            Recording::open(path)
        } else if io::stdin().is_terminal() {
            return Err(
                "a recording is to come on standard input, which is a terminal: name a file"
                    .to_string()
                    .into(),
            );
        } else {
            Recording::from_reader(io::stdin())
        };
        match recording {
            Ok(recording) => Ok(Self {
                name,
                recording,
                missing: 0,
                error: None,
            }),
            Err(error) => {
                let hint = match &error {
                    Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                        " (`boot --record FILE PROGRAM` makes one)"
                    }
                    Error::Foreign if path.is_file() && Playing::open(path).is_ok() => {
                        " (it is a tape, for `replay`)"
                    }
                    _ => "",
                };
                Err(format!("cannot read {name}: {error}{hint}").into())
            }
        }
    }

    /// The file's name.
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

    /// Says how many events are missing from what was read, if any are.
    pub(super) fn warn_of_gaps(&self, log: Log) {
        let missing = self.recording.missing();
        if missing > 0 {
            let (name, missing) = (&self.name, count(missing, "event"));
            log.warn(&format!(
                "{name}: {missing} missing: what is shown is about the others"
            ));
        }
    }

    /// Whether it ended before its end.
    pub(super) fn is_torn(&self) -> bool {
        self.error.is_some()
    }

    /// Reports the damage to the recording, once all readable events have been read. A missing end
    /// is no failure: a killed process and a full disk leave such a recording.
    pub(super) fn end(self, log: Log) -> Result<(), Failure> {
        let Self { name, error, .. } = self;
        match error {
            None => Ok(()),
            Some(error @ (Error::Truncated { .. } | Error::Unwritten { .. })) => {
                log.warn(&format!("{name}: {error}"));
                Ok(())
            }
            Some(error) => Err(format!("{name}: {error}").into()),
        }
    }
}

/// The readable events.
impl Iterator for Source {
    type Item = OwnedEvent;

    fn next(&mut self) -> Option<OwnedEvent> {
        match self.recording.next()? {
            Ok(event) => Some(event),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
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

/// The world of the run.
pub(super) fn world(header: &Header) -> &'static str {
    if header.is_simulated {
        "simulated"
    } else {
        "real"
    }
}
