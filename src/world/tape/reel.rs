//! The file of a tape that is read, entry by entry.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    Error, Header, MAGIC, VERSION,
    entry::{Asked, Context, Entry},
    kind,
    received::give,
};
use crate::{
    abi::{DeviceId, Tid},
    log::recording::{Error as Broken, chunks::Chunks, decode::Bytes},
    panic::lock,
    world::{Answer, Happening, Request, sequence::Sequence},
};

pub(super) struct Reel {
    chunks: Chunks,
    pub(super) header: Header,
    context: Context,
    pub(super) now: Duration,
    pub(super) random: Sequence,
    is_idle: bool,
    /// The reports of the last wait.
    pub(super) happened: Vec<Happening>,
    /// Why the next entry cannot be read.
    broken: Option<Broken>,
    /// Why the tape cannot answer any more; taken by the wait that returns it.
    error: Option<Error>,
    is_over: bool,
    pub(super) progress: Progress,
}

/// How far a replay has come. A copy sees the same replay.
#[derive(Clone, Default, Debug)]
pub struct Progress(Arc<Position>);

#[derive(Default, Debug)]
struct Position {
    offset: AtomicU64,
    /// The last reading of the clock, in nanoseconds.
    now: AtomicU64,
    is_finished: AtomicBool,
    /// Why the next entry cannot be read, if so.
    cut: Mutex<Option<Cut>>,
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Missing,
    Unwritten(io::ErrorKind),
    Damaged(u64, &'static str),
}

impl Progress {
    /// The byte of the tape that the next answer comes from.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset.load(Ordering::Relaxed)
    }

    /// The last reading of the clock that the replay has taken from the tape. It never goes back, and any
    /// thread may ask.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.now.load(Ordering::Acquire))
    }

    /// Checks, after a run, that the tape was used to its last byte.
    ///
    /// *Errors:* [`Error::Left`] if the tape has more; [`Error::Truncated`] or [`Error::Unwritten`] if
    /// its end is missing; [`Error::Corrupt`] if it is damaged there.
    pub fn finish(&self) -> Result<(), Error> {
        if self.0.is_finished.load(Ordering::Relaxed) {
            return Ok(());
        }
        let offset = self.offset();
        Err(match *lock(&self.0.cut) {
            None => Error::left(offset, Tid::KERNEL, "the end".into(), "more".into()),
            Some(Cut::Missing) => Error::Truncated { offset },
            Some(Cut::Unwritten(error)) => Error::Unwritten { offset, error },
            Some(Cut::Damaged(offset, what)) => Error::Corrupt { offset, what },
        })
    }
}

/// The tape cannot answer: the replay is over.
pub(super) struct Over;

/// Takes the next entry, if it is one of this kind.
macro_rules! take {
    ($reel:expr, $task:expr, $asked:expr, $entry:pat $(if $fits:expr)? => $taken:expr) => {
        $reel.take($task, || $asked.to_string(), |entry| match entry {
            $entry $(if $fits)? => Ok($taken),
            other => Err(other),
        })
    };
}

impl Reel {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Self::from_reader(BufReader::new(File::open(path)?))
    }

    pub(super) fn from_reader(input: impl Read + 'static) -> Result<Self, Error> {
        let mut chunks = Chunks::open(input, MAGIC, VERSION)?;
        let header = Header::decode(Bytes(chunks.rest()));
        let header = header.map_err(|what| chunks.corrupt(chunks.begin(), what))?;
        chunks.skip();
        let mut reel = Self {
            chunks,
            header,
            context: Context::default(),
            now: Duration::ZERO,
            random: Sequence::new(0),
            is_idle: false,
            happened: Vec::new(),
            broken: None,
            error: None,
            is_over: false,
            progress: Progress::default(),
        };
        reel.look_ahead();
        Ok(reel)
    }

    pub(super) fn stop(&mut self, error: Option<Error>) -> Over {
        self.is_over = true;
        self.error = error;
        Over
    }

    /// Ends the replay, because the program does something that the tape does not have.
    pub(super) fn leave(&mut self, task: Tid, asked: String, found: String) -> Over {
        let left = Error::left(self.progress.offset(), task, asked, found);
        self.stop(Some(left))
    }

    pub(super) fn error(&mut self) -> io::Error {
        let over = || io::Error::other("the replay is over");
        self.error.take().map_or_else(over, Error::into_io)
    }

    pub(super) fn now(&mut self, task: Tid) -> Result<Duration, Over> {
        self.now = take!(self, task, "the time", Entry::Now(now) => now)?;
        let nanos = u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX);
        self.progress.0.now.fetch_max(nanos, Ordering::AcqRel);
        Ok(self.now)
    }

    pub(super) fn random(&mut self, task: Tid) -> Result<u64, Over> {
        let other = take!(self, task, "a random number", Entry::Random(other) => other)?;
        let as_seeded = self.random.next();
        Ok(other.unwrap_or(as_seeded))
    }

    /// The seed also draws choices, from a sequence of their own.
    pub(super) fn choose(&mut self, task: Tid, drawn: u64) -> Result<u64, Over> {
        let other = take!(self, task, "a choice", Entry::Random(other) => other)?;
        Ok(other.unwrap_or(drawn))
    }

    /// Whether nothing outside can report. The tape has the changes only.
    pub(super) fn is_idle(&mut self) -> bool {
        let next = self.chunks.rest().first();
        if next.is_some_and(|first| first & (kind::NOW | kind::KIND) == kind::IDLE) {
            let asked = "whether anything can report";
            let is_idle = take!(self, Tid::KERNEL, asked, Entry::Idle(is_idle) => is_idle);
            self.is_idle = is_idle.unwrap_or(self.is_idle);
        }
        self.is_idle
    }

    pub(super) fn print(&mut self, task: Tid, len: usize) -> Result<io::Result<usize>, Over> {
        let asked = format_args!("{len} bytes of text for the console");
        take!(self, task, asked, Entry::Print(told, result) if told == len => result)
    }

    /// Whether the work was done in place.
    pub(super) fn submit(&mut self, task: Tid) -> Result<bool, Over> {
        take!(self, task, "work for a thread", Entry::Submit(in_place) => in_place)
    }

    /// A wait, with how long one for threads took. Its reports are in [`Reel::happened`].
    pub(super) fn wait(&mut self) -> Result<io::Result<Option<Duration>>, Over> {
        take!(self, Tid::KERNEL, "a wait", Entry::Wait(result) => result)
    }

    /// The answer to a request, which gets what was received.
    pub(super) fn io(
        &mut self,
        task: Tid,
        device: DeviceId,
        request: &mut Request<'_>,
    ) -> Result<io::Result<Answer>, Over> {
        let asked = Asked::of(device, request);
        let mut fits = true;
        let answer = take!(self, task, asked, Entry::Io(then, result) if then == asked => {
            result.map(|(answer, read)| {
                fits = give(request, read).is_some();
                answer
            })
        })?;
        if !fits {
            let found = "more than it has room for".to_string();
            return Err(self.leave(task, asked.to_string(), found));
        }
        Ok(answer)
    }

    /// What came from a mailbox.
    pub(super) fn mail(&mut self, task: Tid) -> Result<Vec<u8>, Over> {
        take!(self, task, "mail", Entry::Io(Asked::MAIL, Ok((_, read))) => read.to_vec())
    }

    /// When the wait ends that comes next, if that is known.
    pub(super) fn end_of_wait(&self) -> Option<Duration> {
        let (mut context, mut bytes) = (self.context, Bytes(self.chunks.rest()));
        let mut happened = Vec::new();
        let mut entry = || context.entry(&mut bytes, &mut happened).ok();
        match (entry()?, entry()?) {
            (Entry::Wait(_), Entry::Now(now)) => Some(now),
            _ => None,
        }
    }

    /// Takes the next entry, if `accept` returns no other: then the program does something else.
    fn take<T>(
        &mut self,
        task: Tid,
        asked: impl FnOnce() -> String,
        accept: impl for<'a> FnOnce(Entry<'a>) -> Result<T, Entry<'a>>,
    ) -> Result<T, Over> {
        if self.is_over {
            return Err(Over);
        }
        if let Some(broken) = self.broken.take() {
            return Err(self.stop(Some(broken.into())));
        }
        let offset = self.chunks.offset();
        let (mut context, mut bytes) = (self.context, Bytes(self.chunks.rest()));
        let entry = context.entry(&mut bytes, &mut self.happened);
        let left = bytes.0.len();
        let found = match entry.map(accept) {
            Ok(Ok(taken)) => {
                self.context = context;
                self.chunks.leave(left);
                self.look_ahead();
                return Ok(taken);
            }
            Ok(Err(Entry::Full)) => return Err(self.stop(Some(Error::Full { offset }))),
            Ok(Err(other)) => other.to_string(),
            Err(what) => {
                let corrupt = self.chunks.corrupt(offset, what);
                return Err(self.stop(Some(corrupt.into())));
            }
        };
        Err(self.leave(task, asked(), found))
    }

    /// Applies the seeds that come next, and finds the end.
    fn look_ahead(&mut self) {
        while self.broken.is_none() {
            if let Err(broken) = self.chunks.fill() {
                self.breaks(broken);
                break;
            }
            let offset = self.chunks.offset();
            self.progress.0.offset.store(offset, Ordering::Relaxed);
            let mut bytes = Bytes(self.chunks.rest());
            match bytes.0[0] {
                kind::SEED => {}
                kind::END => return self.find_end(offset),
                _ => return,
            }
            let wrong = match self.context.entry(&mut bytes, &mut self.happened) {
                Ok(Entry::Seed(seed)) => {
                    self.random = Sequence::new(seed);
                    None
                }
                Ok(_) => None,
                Err(what) => Some(what),
            };
            let left = bytes.0.len();
            self.chunks.leave(left);
            if let Some(what) = wrong {
                self.breaks(self.chunks.corrupt(offset, what));
            }
        }
    }

    fn find_end(&mut self, offset: u64) {
        match self.chunks.is_over() {
            Ok(true) if self.chunks.rest().len() == 1 => {
                self.progress.0.is_finished.store(true, Ordering::Relaxed);
            }
            Ok(_) => self.breaks(self.chunks.corrupt(offset, "there is more after its end")),
            Err(broken) => self.breaks(broken),
        }
    }

    /// Notes that the next entry cannot be read.
    fn breaks(&mut self, broken: Broken) {
        *lock(&self.progress.0.cut) = match broken {
            Broken::Truncated { .. } => Some(Cut::Missing),
            Broken::Unwritten { error, .. } => Some(Cut::Unwritten(error)),
            Broken::Corrupt { offset, what } => Some(Cut::Damaged(offset, what)),
            _ => None,
        };
        self.broken = Some(broken);
    }
}
