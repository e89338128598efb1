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
    KernelId,
    record::{Error, Header, OwnedEvent, Recording},
    tape::Playing,
};

use crate::{
    outfile,
    output::{Log, clean},
    progress::Meter,
    signals,
    units::count,
    words::quoted,
};

/// A recording, from a file or from standard input; or those of kernels that ran side by side, as one.
pub(super) struct Source {
    name: String,
    parts: Vec<Part>,
    /// The number of missing events reported so far.
    missing: u64,
    /// Why it ended before its end, if it did, and the name of the file.
    error: Option<(Error, String)>,
    /// How many events were read, and how far that is.
    events: u64,
    far: Rc<Cell<u64>>,
    bytes: Option<u64>,
    meter: Option<Meter>,
}

/// A recording.
struct Part {
    name: String,
    recording: Recording,
    /// Its kernel, if there are others.
    kernel: Option<KernelId>,
    /// The next event, and how many are missing before it. Of one part none is read ahead.
    next: Option<(OwnedEvent, u64)>,
    /// How many events are missing before the last one returned.
    missing: u64,
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

/// How many bytes were read, and how many there are.
type Bytes = (Rc<Cell<u64>>, Option<u64>);

impl Part {
    /// Opens a recording; `-` is standard input.
    fn open(path: &Path, bytes: &mut Bytes) -> Result<Self, (String, Error)> {
        let is_stdin = path == Path::new("-");
        let (name, input) = match is_stdin {
            true => (
                "standard input".into(),
                io::stdin().as_fd().try_clone_to_owned(),
            ),
            false => (path.to_string_lossy(), File::open(path).map(Into::into)),
        };
        let name = name.into_owned();
        let input = input.map(File::from);
        let file = input.as_ref().ok().and_then(|file| file.metadata().ok());
        let len = file.filter(fs::Metadata::is_file).map(|file| file.len());
        bytes.1 = bytes.1.zip(len).map(|(all, len)| all + len);
        let recording = input.map_err(Error::from).and_then(|from| {
            let far = Rc::clone(&bytes.0);
            Recording::from_reader(BufReader::new(Input { from, far }))
        });
        match recording {
            Ok(recording) => Ok(Self {
                name,
                recording,
                kernel: None,
                next: None,
                missing: 0,
            }),
            Err(error) => Err((name, error)),
        }
    }
}

fn cannot_read(path: &Path, name: &str, error: &Error) -> String {
    let hint = match error {
        Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            " (`boot --record FILE PROGRAM` makes one)"
        }
        Error::Foreign if path.is_file() && Playing::open(path).is_ok() => {
            " (it is a tape, for `replay`)"
        }
        _ => "",
    };
    format!("cannot read {name}: {error}{hint}")
}

/// Opens the recordings of kernels that ran side by side: their numbers are behind the name. Returns none if
/// there is no first.
fn beside(path: &Path, bytes: &mut Bytes) -> Result<Vec<Part>, String> {
    let file = |index| outfile::of_kernel(path, KernelId::at(index));
    let mut open = |path: &Path| {
        let opened = Part::open(path, bytes);
        opened.map_err(|(name, error)| cannot_read(path, &name, &error))
    };
    if !file(0).exists() {
        return Ok(Vec::new());
    }
    let first = open(&file(0))?;
    let count = first
        .recording
        .header()
        .kernel
        .map_or(1, |(_, count)| count);
    let others = (1..count).map(|index| open(&file(index)));
    let mut parts: Vec<Part> = [Ok(first)]
        .into_iter()
        .chain(others)
        .collect::<Result<_, _>>()?;
    for (index, part) in parts.iter_mut().enumerate() {
        let kernel = KernelId::at(index);
        if part.recording.header().kernel != Some((kernel, count)) {
            let (name, first) = (&part.name, file(0));
            return Err(format!(
                "{name} is no recording of kernel {kernel} of {count}, which belongs to {}",
                first.display()
            ));
        }
        part.kernel = Some(kernel);
    }
    Ok(parts)
}

impl Source {
    /// Opens the recording; `-` is standard input. If there is no such file, those of several kernels, whose
    /// numbers are behind the name.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") && io::stdin().is_terminal() {
            let why = "a recording is to come on standard input, which is a terminal: name a file";
            return Err(why.to_string().into());
        }
        let mut bytes = (Rc::new(Cell::new(0)), Some(0));
        let parts = match Part::open(path, &mut bytes) {
            Ok(part) => vec![part],
            Err((name, error)) => {
                let is_missing =
                    matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::NotFound);
                bytes.1 = Some(0);
                match is_missing.then(|| beside(path, &mut bytes)).transpose()? {
                    Some(parts) if !parts.is_empty() => parts,
                    _ => return Err(cannot_read(path, &name, &error).into()),
                }
            }
        };
        let name = match &parts[..] {
            [part] => part.name.clone(),
            _ => path.to_string_lossy().into_owned(),
        };
        let (far, bytes) = bytes;
        let mut source = Self {
            name,
            parts,
            missing: 0,
            error: None,
            events: 0,
            far,
            bytes,
            meter: Some(Meter::new("event", None)),
        };
        if source.parts.len() > 1 {
            (0..source.parts.len()).for_each(|at| source.read_ahead(at));
        }
        Ok(source)
    }

    /// As [`Source::open`], for what is about one kernel.
    ///
    /// *Errors:* it is of several.
    pub(super) fn of_one(path: &Path, command: &str) -> Result<Self, Failure> {
        let source = Self::open(path)?;
        source.is_of_one(command)?;
        Ok(source)
    }

    /// *Errors:* it is of several kernels, and this command is about one.
    pub(super) fn is_of_one(&self, command: &str) -> Result<(), Failure> {
        if self.parts.len() == 1 {
            return Ok(());
        }
        let (name, kernels, first) = (&self.name, self.parts.len(), &self.parts[0].name);
        let why = "is about one: name its file, such as";
        Err(format!("{name} is of {kernels} kernels, and {command} {why} {first}").into())
    }

    /// Reads the next event of a part, with the number of its kernel.
    fn read_ahead(&mut self, at: usize) {
        let part = &mut self.parts[at];
        part.next = match part.recording.next() {
            Some(Ok(event)) => {
                let event = match part.kernel {
                    Some(kernel) => event.beside(kernel),
                    None => event,
                };
                Some((event, part.recording.missing()))
            }
            Some(Err(error)) => {
                self.error.get_or_insert((error, part.name.clone()));
                None
            }
            None => None,
        };
    }

    /// The next event of all parts: the earliest. Of one instant, what a kernel sends comes before what
    /// another gets, as their clocks are one.
    fn earliest(&mut self) -> Option<OwnedEvent> {
        let at = match &self.parts[..] {
            [_] => {
                self.read_ahead(0);
                0
            }
            parts => {
                let times = parts.iter().enumerate();
                let times = times.filter_map(|(at, part)| Some((part.next.as_ref()?.0.at, at)));
                times.min()?.1
            }
        };
        let part = &mut self.parts[at];
        let (event, missing) = part.next.take()?;
        part.missing = missing;
        if self.parts.len() > 1 {
            self.read_ahead(at);
        }
        Some(event)
    }

    fn missing(&self) -> u64 {
        self.parts.iter().map(|part| part.missing).sum()
    }

    /// For a command that prints while it reads: a terminal then shows how far it is.
    pub(super) fn prints(&mut self) {
        self.meter.take_if(|_| io::stdout().is_terminal());
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn header(&self) -> &Header {
        self.parts[0].recording.header()
    }

    /// The number of events missing before the last one returned, if any. A second call returns
    /// none.
    pub(super) fn gap(&mut self) -> Option<u64> {
        let missing = self.missing();
        let before = std::mem::replace(&mut self.missing, missing);
        (missing > before).then(|| missing - before)
    }

    pub(super) fn warn_of_gaps(&self, log: Log) {
        let missing: u64 = self.parts.iter().map(|part| part.recording.missing()).sum();
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

    /// Reports the damage to the recording, or that its end is missing, once all readable events have been read.
    ///
    /// *Errors:* there is any.
    pub(super) fn end(self, log: Log) -> Result<ExitCode, Failure> {
        if let Some((error, name)) = self.error
            && !signals::is_raised()
        {
            return Err(format!("{name}: {error}").into());
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
        let Some(event) = self.earliest() else {
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
        Some(event)
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
