//! `--record`: the recording of a run, from the options to its last byte.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, Stat, fstat},
    io::Errno,
};
use trapline::{
    Error, Report,
    record::{Handle, Header, Recorder, Recording},
};

use super::{
    options::{Boot, Watching},
    outfile,
    output::{FAILURE, Log},
    signals,
    trace::post_mortem,
};

/// How many events are kept for `--post-mortem`.
const POST_MORTEM: usize = 10_000;
/// The largest recording that is read again at the end of its run, in bytes.
const LARGEST: u64 = 64 << 20;

/// A recording under way.
#[derive(Clone)]
pub(super) struct Recorded {
    /// The file's path; none if the recording is in memory.
    path: Option<PathBuf>,
    pub(super) handle: Handle,
}

/// Starts recording to this file, if the options ask for it. An error says why it cannot.
pub(super) fn begin(
    watching: &Watching,
    path: Option<PathBuf>,
    header: &Header,
    log: Log,
) -> Result<Option<(Recorder, Recorded)>, String> {
    if path.is_none() && !watching.post_mortem {
        return Ok(None);
    }
    if let Some(path) = &path {
        refuse_output("--record", path)?;
    }
    // Kept open until the recorder has opened the pipe; otherwise its reader would see the end.
    let _pipe = path.as_deref().and_then(|path| find_reader(path, log));
    let recorder = match (&path, watching.record_last) {
        (None, _) => Recorder::in_memory(POST_MORTEM, header),
        (Some(path), None) => Recorder::create(path, header),
        (Some(path), Some(last)) => Recorder::last(last.get(), path, header),
    };
    let recorder = recorder.and_then(|recorder| match watching.post_mortem {
        true => recorder.and_in_memory(POST_MORTEM, header),
        false => Ok(recorder),
    });
    let recorder = recorder.map_err(|error| {
        let path = path.as_deref().unwrap_or(Path::new("memory"));
        refused(path, &error)
    })?;
    let handle = recorder.handle();
    Ok(Some((recorder, Recorded { path, handle })))
}

fn refused(path: &Path, error: &io::Error) -> String {
    let why = outfile::why(path, error);
    format!("cannot record to {}: {why}", path.display())
}

pub(super) fn header(options: &Boot, command: &[String], seed: u64) -> Header {
    let mut header = Header::default();
    header.command = command.to_vec();
    header.seed = seed;
    header.policy = options.policy.to_string();
    header.quantum = options.quantum.get();
    header.is_simulated = options.simulated;
    header
}

fn incomplete(path: &Path, why: &str) -> String {
    format!("the recording {} is not complete: {why}", path.display())
}

/// Refuses a file that the run prints to: the text would be amid the bytes.
pub(super) fn refuse_output(option: &str, path: &Path) -> Result<(), String> {
    let Ok(found) = fs::metadata(path) else {
        return Ok(());
    };
    let is_null = fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev());
    if found.file_type().is_char_device() && is_null {
        return Ok(());
    }
    let is_same = |stat: rustix::io::Result<Stat>| {
        stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (found.dev(), found.ino()))
    };
    let output = match () {
        () if is_same(fstat(io::stdout())) => "standard output",
        () if is_same(fstat(io::stderr())) => "standard error",
        () => return Ok(()),
    };
    Err(format!(
        "{option} {} is {output}, which the run prints to: name another file",
        path.display()
    ))
}

/// Prints a note if a pipe without a reader has to be waited for. A pipe with a reader is opened.
fn find_reader(path: &Path, log: Log) -> Option<OwnedFd> {
    let found = fs::metadata(path).ok()?;
    if !found.file_type().is_fifo() {
        return None;
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    if let Err(Errno::NXIO) = opened {
        let path = path.display();
        log.note(&format!("waiting for a reader of the pipe {path}"));
    }
    opened.ok()
}

impl Recorded {
    /// Starts a recording to a file that `option` names. An error says why it cannot.
    pub(super) fn create(
        option: &str,
        path: &Path,
        header: &Header,
    ) -> Result<(Recorder, Self), String> {
        refuse_output(option, path)?;
        let recorder = Recorder::create(path, header).map_err(|error| refused(path, &error))?;
        let (path, handle) = (Some(path.to_path_buf()), recorder.handle());
        Ok((recorder, Self { path, handle }))
    }

    /// Whether it is to this file.
    pub(super) fn is_to(&self, path: &Path) -> bool {
        let own = self.path.as_ref();
        own.is_some_and(|own| outfile::is_same(own, path))
    }

    /// Writes the remaining events. An error says why the file is not complete.
    pub(super) fn close(&self) -> Result<(), String> {
        let closed = self.handle.close_while(signals::patience());
        match &self.path {
            Some(path) => closed.map_err(|error| incomplete(path, &error.to_string())),
            None => Ok(()),
        }
    }

    /// Writes the remaining events and reports the result. Returns the exit code of a run that
    /// would have ended with `code`.
    pub(super) fn end(&self, log: Log, code: u8) -> u8 {
        if let Err(error) = self.close() {
            log.error(&error);
            return code.max(FAILURE);
        }
        if let Some(path) = &self.path {
            log.note(&format!("recorded to {}", path.display()));
        }
        code
    }

    /// The same for a process that ends at once. A reader of a pipe, and a reader of the message,
    /// gets a limited time.
    pub(super) fn end_soon(&self, log: Log) {
        let is_file = |path| fs::metadata(path).is_ok_and(|found| found.is_file());
        let handle = self.handle.clone();
        // The message about it follows.
        let close = move || drop(handle.close());
        let closed = match self.path.as_ref().is_none_or(is_file) {
            true => {
                close();
                Ok(())
            }
            false => signals::soon(close),
        };
        let recorded = self.clone();
        let _ = signals::soon(move || match (closed, &recorded.path) {
            (Err(error), Some(path)) => {
                let why = match error.kind() {
                    io::ErrorKind::TimedOut => "no process reads it".to_string(),
                    _ => error.to_string(),
                };
                log.error(&incomplete(path, &why));
            }
            _ => drop(recorded.end(log, FAILURE)),
        });
    }

    /// Shows the last traps of the tasks that faulted or wait for ever. The caller calls it at the
    /// end.
    pub(super) fn post_mortem(&self, log: Log, result: &Result<Report, Error>) {
        let blocked = match result {
            Ok(report) if report.failures > 0 => &[][..],
            Err(Error::Deadlock(deadlock)) => &deadlock.blocked,
            Ok(_) | Err(_) => return,
        };
        match self.handle.recording().map_or_else(|| self.reopen(), Ok) {
            Ok(recording) => post_mortem::show(log, recording, blocked),
            Err(why) => log.note(&format!(
                "the last traps of those concerned are not shown, since the recording {why}: \
                 --post-mortem keeps them"
            )),
        }
    }

    /// Opens the file for reading, or explains why it cannot be read.
    fn reopen(&self) -> Result<Recording, String> {
        let path = self.path.as_deref().ok_or("is not kept")?;
        let unread = |error| format!("cannot be read: {error}");
        // Opening a pipe would wait for a writer.
        match fs::metadata(path).map_err(unread)? {
            found if !found.is_file() => Err("is no file".to_string()),
            found if found.len() > LARGEST => Err(format!("is over {} MiB", LARGEST >> 20)),
            _ => Recording::open(path).map_err(|error| format!("cannot be read: {error}")),
        }
    }
}
