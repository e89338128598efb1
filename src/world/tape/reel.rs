//! The file of a tape that is read, entry by entry.

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    rc::Rc,
    time::Duration,
};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};

use super::{
    Error, Header, Left, MAGIC, VERSION,
    entry::{Asked, Context, Entry, Given, give, in_words},
    kind,
};
use crate::{
    abi::{DeviceId, Tid},
    log::recording::{Error as Broken, chunks::Chunks, decode::Bytes},
    world::{Answer, Happening, Request},
};

/// A tape that is played.
pub(super) struct Reel {
    chunks: Chunks,
    pub(super) header: Header,
    context: Context,
    /// The last reading of the clock.
    pub(super) now: Duration,
    pub(super) seed: u64,
    random: Pcg64,
    is_idle: bool,
    /// The reports of the last wait.
    pub(super) happened: Vec<Happening>,
    /// Why the next entry cannot be read.
    broken: Option<Broken>,
    /// Why the tape cannot answer any more; taken by the wait that returns it.
    error: Option<Error>,
    is_over: bool,
    progress: Progress,
}

/// How far a replay has come. A copy sees the same replay.
#[derive(Clone, Default, Debug)]
pub struct Progress(Rc<Position>);

#[derive(Default, Debug)]
struct Position {
    offset: Cell<u64>,
    is_finished: Cell<bool>,
    /// Why the next entry is missing, if so.
    cut: Cell<Option<MissingEnd>>,
}

/// Why the end of a tape is missing.
#[derive(Clone, Copy, Debug)]
enum MissingEnd {
    Truncated,
    Unwritten(io::ErrorKind),
}

impl Progress {
    /// The byte of the tape that the next answer comes from.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset.get()
    }

    /// Checks, after a run, that the tape was used to its last byte.
    ///
    /// *Errors:* [`Error::Left`] if the tape has more; [`Error::Truncated`] or [`Error::Unwritten`] if
    /// its end is missing.
    pub fn finish(&self) -> Result<(), Error> {
        if self.0.is_finished.get() {
            return Ok(());
        }
        let offset = self.offset();
        match self.0.cut.get() {
            None => {}
            Some(MissingEnd::Truncated) => return Err(Error::Truncated { offset }),
            Some(MissingEnd::Unwritten(error)) => return Err(Error::Unwritten { offset, error }),
        }
        Err(Error::Left(Box::new(Left {
            offset,
            task: Tid::KERNEL,
            asked: "the end".to_string(),
            found: "more".to_string(),
        })))
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
            seed: 0,
            random: Pcg64::seed_from_u64(0),
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

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Ends the replay.
    pub(super) fn stop(&mut self, error: Option<Error>) -> Over {
        self.is_over = true;
        self.error = error;
        Over
    }

    /// Ends the replay, because the program does something that the tape does not have.
    pub(super) fn leave(&mut self, task: Tid, asked: String, found: String) -> Over {
        let offset = self.progress.offset();
        self.stop(Some(Error::Left(Box::new(Left {
            offset,
            task,
            asked,
            found,
        }))))
    }

    /// Why the replay is over.
    pub(super) fn error(&mut self) -> io::Error {
        match self.error.take() {
            Some(error) => error.into_io(),
            None => io::Error::other("the replay is over"),
        }
    }

    pub(super) fn now(&mut self, task: Tid) -> Result<Duration, Over> {
        self.now = take!(self, task, "the time", Entry::Now(now) => now)?;
        Ok(self.now)
    }

    pub(super) fn random(&mut self, task: Tid) -> Result<u64, Over> {
        let other = take!(self, task, "a random number", Entry::Random(other) => other)?;
        let as_seeded = self.random.next_u64();
        Ok(other.unwrap_or(as_seeded))
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
        take!(self, task, asked, Entry::Print { len: told, result } if told == len => result)
    }

    /// Whether the work was done in place.
    pub(super) fn submit(&mut self, task: Tid) -> Result<bool, Over> {
        take!(self, task, "work for a thread", Entry::Submit { in_place } => in_place)
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
        let (asked, offered) = Asked::of(request);
        let question = || in_words(asked, device, offered);
        let mut fits = true;
        let answer = self.take(task, question, |entry| match entry {
            Entry::Io {
                asked: as_then,
                device: of_then,
                offered: offered_then,
                result,
            } if (as_then, of_then, offered_then) == (asked, device, offered) => Ok(result
                .and_then(|given| match given {
                    Given::Answer(answer) => Ok(answer),
                    Given::Read(read) => give(request, read).ok_or_else(|| {
                        fits = false;
                        io::ErrorKind::InvalidData.into()
                    }),
                })),
            other => Err(other),
        })?;
        if !fits {
            let found = "more than it has room for".to_string();
            return Err(self.leave(task, question(), found));
        }
        Ok(answer)
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
                self.progress.0.cut.set(match &broken {
                    Broken::Truncated { .. } => Some(MissingEnd::Truncated),
                    Broken::Unwritten { error, .. } => Some(MissingEnd::Unwritten(*error)),
                    _ => None,
                });
                self.broken = Some(broken);
                break;
            }
            let offset = self.chunks.offset();
            self.progress.0.offset.set(offset);
            let mut bytes = Bytes(self.chunks.rest());
            match bytes.0[0] {
                kind::SEED => {}
                kind::END => return self.find_end(offset),
                _ => return,
            }
            let seed = self.context.entry(&mut bytes, &mut self.happened);
            let left = bytes.0.len();
            match seed {
                Ok(Entry::Seed(seed)) => {
                    self.seed = seed;
                    self.random = Pcg64::seed_from_u64(seed);
                }
                Ok(_) => {}
                Err(what) => self.broken = Some(self.chunks.corrupt(offset, what)),
            }
            self.chunks.leave(left);
        }
    }

    fn find_end(&mut self, offset: u64) {
        match self.chunks.is_over() {
            Ok(true) if self.chunks.rest().len() == 1 => self.progress.0.is_finished.set(true),
            Ok(_) => self.broken = Some(self.chunks.corrupt(offset, "there is more after its end")),
            Err(broken) => self.broken = Some(broken),
        }
    }
}
