//! What a run has to do with a tape: it writes one, or it comes from one.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf};

use trapline::{
    Error, Kernel, Report,
    tape::{self, Left, Progress, Writer},
};

use super::{
    options::Boot,
    output::{FAILURE, Log},
    signals,
    values::usage,
};

pub(super) enum Tape {
    No,
    To {
        writer: Writer,
        path: PathBuf,
    },
    /// With the size of the file.
    From {
        progress: Progress,
        bytes: u64,
    },
}

/// How a tape has ended its replay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With an error.
    Failed,
    /// The end of the tape is missing: it was not written, or is lost.
    Cut,
    /// It holds no more of the run, as it had reached the limit of its size.
    Short,
}

impl Tape {
    /// The part of a replay that is done, if this is one.
    pub(super) fn share(&self) -> Option<impl Fn() -> f64 + use<>> {
        let Self::From { progress, bytes } = self else {
            return None;
        };
        let (progress, bytes) = (progress.clone(), *bytes);
        Some(move || progress.offset() as f64 / bytes.max(1) as f64)
    }

    /// Why a monitor and a screen may kill no task, if so.
    pub(super) fn no_kill(&self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::To { .. } => {
                Some("the tape would not hold the kill: boot without --tape to kill tasks")
            }
            Self::From { .. } => Some("a replay repeats its tape, so it takes no other kill"),
        }
    }

    /// What is to be done where the process ends with the kernel still running.
    pub(super) fn last_words(&self) -> Option<impl Fn() + Send + use<>> {
        let Self::To { writer, .. } = self else {
            return None;
        };
        let writer = writer.clone();
        Some(move || drop(writer.flush()))
    }

    /// Says how a replay ended, if its tape has ended it. The kernel tells of its tasks, if it is still there.
    /// `name` comes first, if there are several.
    pub(super) fn explain(
        &self,
        log: Log,
        name: &str,
        kernel: Option<&Kernel>,
        result: &Result<Report, Error>,
    ) -> Option<Ending> {
        let Self::From { progress, .. } = self else {
            return None;
        };
        let unfinished;
        let error = match result {
            Err(error) => tape::Error::of(error)?,
            Ok(_) if signals::is_raised() => return None,
            Ok(_) => {
                unfinished = progress.finish().err()?;
                &unfinished
            }
        };
        let message = format!("{name}{error}");
        if matches!(error, tape::Error::Full { .. }) {
            log.warn(&message);
            return Some(Ending::Short);
        }
        log.error(&message);
        if error.is_short() {
            return Some(Ending::Cut);
        }
        if let tape::Error::Left(left) = error {
            if let Some(culprit) = kernel.and_then(|kernel| culprit(kernel, left)) {
                log.note(&culprit);
            }
            log.note(
                "the programs are others than those on the tape, or use what a tape does not hold, \
                 such as files and clocks",
            );
        }
        Some(Ending::Failed)
    }

    /// Ends the tape of a run that would have ended with `code`. Returns the exit code.
    pub(super) fn end(&self, log: Log, code: u8) -> u8 {
        let Self::To { writer, path } = self else {
            return code;
        };
        let path = path.display();
        match writer.close() {
            Ok(()) if writer.is_full() => log.warn(&format!(
                "the tape {path} has reached its limit: the end of the run is not on it"
            )),
            Ok(()) => log.note(&format!("taped to {path}")),
            Err(error) => {
                log.error(&format!("the tape {path} is not complete: {error}"));
                return code.max(FAILURE);
            }
        }
        code
    }
}

/// Names the task that left the tape, and its place in the source.
pub(super) fn culprit(kernel: &Kernel, left: &Left) -> Option<String> {
    let task = kernel.tasks().find(|task| task.tid == left.task)?;
    let mut text = format!("task {} is {:?}", task.tid, task.name);
    if let Some(place) = &task.wait.place {
        text += &format!(", in {} at {place}", task.wait.call);
    }
    if let Some(place) = &task.spawned {
        text += &format!(", spawned at {place}");
    }
    Some(text)
}

/// Checks that a tape can hold the command line of its run, which is text there. The files that a
/// replay has no use for need not be text.
pub(super) fn check_words(options: &Boot, args: &[OsString]) -> Result<(), clap::Error> {
    let files = [&options.tape, &options.watching.record];
    let is_file = |word: &OsString| {
        let value = |option: &[u8]| word.as_bytes().strip_prefix(option);
        let values = [b"".as_slice(), b"--tape=", b"--record="].map(value);
        let is_value = |file: &PathBuf| values.contains(&Some(file.as_os_str().as_bytes()));
        files.into_iter().flatten().any(is_value)
    };
    let is_lost = |word: &&OsString| word.to_str().is_none() && !is_file(word);
    match args.iter().skip(1).find(is_lost) {
        Some(word) if options.tape.is_some() => {
            let why = format!("--tape keeps the command line as UTF-8, which {word:?} is not");
            Err(usage(why))
        }
        _ => Ok(()),
    }
}
