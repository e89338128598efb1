//! The last events of a run, kept in memory until they are written to a file.
//!
//! Events are counted from 0 in the order in which they happened.

use std::{
    collections::VecDeque,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, Cursor, Write},
    path::{Path, PathBuf},
};

use rustc_hash::FxHashMap;

use super::{
    OwnedEvent, Recording,
    chunks::chunk,
    decode::Bytes,
    place,
    stream::Stream,
    wire::{self, Context, Record},
};
use crate::{
    abi::Tid,
    log::{Event, event::Step},
};

/// The longest payload that is written, unless a single event is longer.
const CHUNK: usize = 64 * 1024;

/// Records in parts. The oldest parts are dropped.
#[derive(Debug)]
pub(super) struct Ring {
    size: u64,
    parts: VecDeque<Part>,
    known: FxHashMap<Tid, Known>,
    /// Tasks that are kept only for past events, by the number of the event. They are dropped with
    /// it.
    gone: VecDeque<(u64, Tid)>,
    /// Where it is to be written, if anywhere.
    target: Option<Target>,
    /// The part of the file that stays: the header, and after a fault the events up to it.
    head: Vec<u8>,
    /// The first event that is not in the head, and the context of its record.
    since: u64,
    context: Context,
    has_fault: bool,
}

#[derive(Debug)]
pub(super) enum Target {
    /// A file, which is replaced.
    File { path: PathBuf, lock: place::Locked },
    /// Something that takes bytes once, such as a pipe.
    Stream(Stream),
}

/// Records, and what they leave out.
#[derive(Debug)]
struct Part {
    first: u64,
    context: Context,
    records: Vec<u8>,
}

/// The events of a task that must be repeated after their records are dropped.
#[derive(Debug)]
struct Known {
    spawned: Noted,
    /// The trap in which it is blocked, or may yet be.
    trapped: Option<Noted>,
    blocked: Option<Noted>,
    exited: Option<Noted>,
    reaped: Option<Noted>,
}

/// An event, and its number.
type Noted = (u64, OwnedEvent);

impl Ring {
    pub(super) fn new(size: usize, target: Option<Target>, head: Vec<u8>) -> Self {
        let mut ring = Self {
            size: size as u64,
            parts: VecDeque::new(),
            known: FxHashMap::default(),
            gone: VecDeque::new(),
            target,
            head,
            since: 0,
            context: Context::default(),
            has_fault: false,
        };
        ring.begin_part(0, Context::default());
        ring
    }

    pub(super) fn put(&mut self, records: &[u8]) {
        if let Some(part) = self.parts.back_mut() {
            part.records.extend_from_slice(records);
        }
    }

    /// The event of this number is next: from it on the records can be read without those before.
    /// The parts that are not needed any more are forgotten.
    pub(super) fn begin_part(&mut self, next: u64, context: Context) {
        self.parts.push_back(Part {
            first: next,
            context,
            records: Vec::new(),
        });
        while let Some(second) = self.parts.get(1)
            && next - second.first >= self.size
        {
            self.parts.pop_front();
        }
        let first = self.parts.front().map_or(next, |part| part.first);
        while let Some(&(reaped, tid)) = self.gone.front()
            && reaped < first
        {
            self.gone.pop_front();
            self.known.remove(&tid);
        }
    }

    /// Remembers what an event says about its task.
    pub(super) fn note(&mut self, number: u64, event: &Event<'_>) {
        let Some(step) = event.fact.step() else {
            return;
        };
        let noted = (number, event.into());
        if let Step::Born = step {
            let known = Known {
                spawned: noted,
                trapped: None,
                blocked: None,
                exited: None,
                reaped: None,
            };
            self.known.insert(event.tid, known);
            return;
        }
        // The task of an event that is no task's is not known.
        let Some(known) = self.known.get_mut(&event.tid) else {
            return;
        };
        match step {
            Step::Born => {}
            Step::Calls(..) => known.trapped = Some(noted),
            Step::Waits => known.blocked = Some(noted),
            Step::Wakes => known.blocked = None,
            Step::Ends => known.exited = Some(noted),
            Step::Gone => {
                known.reaped = Some(noted);
                // The head contains this task, so its end must be kept too.
                if known.spawned.0 >= self.since {
                    self.gone.push_back((number, event.tid));
                }
            }
        }
    }

    /// Keeps what there is for good, if this is the first fault, and writes it down.
    pub(super) fn fault(&mut self) -> io::Result<()> {
        if self.has_fault {
            return Ok(());
        }
        self.has_fault = true;
        let (window, context, next) = self.window();
        self.head.extend(window);
        self.context = context;
        self.since = next;
        self.gone.clear();
        self.known.retain(|_, known| known.reaped.is_none());
        // The recorder goes on where it was: the window ended with its last event.
        self.parts.clear();
        self.begin_part(next, context);
        self.write()
    }

    pub(super) fn write(&mut self) -> io::Result<()> {
        if !matches!(self.target, Some(Target::File { .. })) {
            return Ok(());
        }
        let window = self.window_and_end();
        let target = self.target.as_mut();
        target.map_or(Ok(()), |target| target.replace(&[&self.head, &window]))
    }

    /// Writes it for the last time. `goes_on` is asked while the reader of a pipe is waited for.
    pub(super) fn write_last(&mut self, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        if let Some(Target::Stream(_)) = self.target {
            let bytes = self.bytes();
            if let Some(Target::Stream(stream)) = &mut self.target {
                stream.put_bytes(&bytes)?;
                return stream.drain(goes_on);
            }
        }
        self.write()
    }

    pub(super) fn give_up(&mut self) {
        self.target = None;
    }

    /// All that would be written.
    pub(super) fn bytes(&self) -> Vec<u8> {
        [self.head.clone(), self.window_and_end()].concat()
    }

    pub(super) fn recording(&self) -> Recording {
        let bytes = Cursor::new(self.bytes());
        Recording::from_reader(bytes).expect("what begins with a header can be read")
    }

    fn window_and_end(&self) -> Vec<u8> {
        let (mut window, ..) = self.window();
        chunk(&mut window, &[wire::END]);
        window
    }

    /// Returns the last events in chunks, after the events that describe their tasks; and the
    /// context and the number of the next record.
    fn window(&self) -> (Vec<u8>, Context, u64) {
        let first = self.parts.front().map_or(self.since, |part| part.first);
        let next = first + self.events().count() as u64;
        let start = next.saturating_sub(self.size).max(first);
        let mut past = self.past(start);
        past.sort_by_key(|&(number, _)| number);
        let mut chunks = Chunks {
            context: self.context,
            ..Chunks::default()
        };
        let mut after = self.since;
        for &(number, ref event) in past {
            chunks.skip(number - after);
            chunks.put(event);
            after = number + 1;
        }
        chunks.skip(start - after);
        for event in self.events().skip((start - first) as usize) {
            chunks.put(&event);
        }
        chunks.end();
        (chunks.out, chunks.context, next)
    }

    /// The events from before `start` that a reader needs, in any order.
    fn past(&self, start: u64) -> Vec<&Noted> {
        let known = self.known.values().filter(|known| {
            let gone = known.reaped.as_ref();
            known.spawned.0 < self.since || gone.is_none_or(|&(number, _)| number >= start)
        });
        let events = known.flat_map(|known| {
            let trapped = known.blocked.as_ref().and(known.trapped.as_ref());
            let rest = [&known.blocked, &known.exited, &known.reaped];
            let rest = rest.into_iter().flatten().chain(trapped);
            rest.chain([&known.spawned])
        });
        let past = self.since..start;
        events.filter(|(number, _)| past.contains(number)).collect()
    }

    fn events(&self) -> impl Iterator<Item = OwnedEvent> {
        self.parts.iter().flat_map(|part| {
            let mut context = part.context;
            let mut bytes = Bytes(&part.records);
            std::iter::from_fn(move || {
                if bytes.0.is_empty() {
                    return None;
                }
                let Ok(Record::Event(event)) = context.record(&mut bytes) else {
                    unreachable!("the recorder wrote these records, all of them events")
                };
                Some(event)
            })
        })
    }
}

impl Target {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let file = place::open(path)?;
        if !file.metadata()?.is_file() {
            return Ok(Self::Stream(Stream::new(file)?));
        }
        // What a link leads to is replaced, not the link.
        let (path, lock) = (fs::canonicalize(path)?, file);
        Ok(Self::File { path, lock })
    }

    /// Replaces a file by one with these parts, at once: there is never half of it. Where that
    /// cannot be, though the file can be written, it is.
    pub(super) fn replace(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let Self::File { path, lock } = self else {
            return Ok(());
        };
        let put = |mut file: &File| parts.iter().try_for_each(|part| file.write_all(part));
        let put_anew = || {
            let file = place::create(path)?;
            file.set_len(0)?;
            put(&file)
        };
        let Ok((beside, file)) = create_beside(path) else {
            return put_anew();
        };
        let written = put(&file);
        if written.is_ok() && fs::rename(&beside, &*path).is_ok() {
            *lock = file;
            return Ok(());
        }
        // What is not complete, or not in its place, is of no use.
        let _ = fs::remove_file(&beside);
        written?;
        put_anew()
    }
}

/// Makes a new file, locked and with the permissions of the old one. Its name is random: a link
/// that another process made under a known name would redirect the writes.
fn create_beside(path: &Path) -> io::Result<(PathBuf, place::Locked)> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{:016x}", RandomState::new().hash_one(path)));
    let beside = PathBuf::from(beside);
    let file = place::options().create_new(true).open(&beside)?;
    let as_old = match fs::metadata(path) {
        Ok(old) => file.set_permissions(old.permissions()),
        Err(_) => Ok(()),
    };
    let locked = as_old.and_then(|()| place::lock(file));
    let locked = locked.inspect_err(|_| drop(fs::remove_file(&beside)))?;
    Ok((beside, locked))
}

/// Events on their way into chunks.
#[derive(Default)]
struct Chunks {
    context: Context,
    records: Vec<u8>,
    out: Vec<u8>,
}

impl Chunks {
    fn skip(&mut self, missing: u64) {
        if missing > 0 {
            wire::gap(&mut self.records, missing);
        }
    }

    fn put(&mut self, event: &OwnedEvent) {
        self.context.event(&mut self.records, event);
        if self.records.len() >= CHUNK {
            self.end();
        }
    }

    fn end(&mut self) {
        if !self.records.is_empty() {
            chunk(&mut self.out, &self.records);
            self.records.clear();
        }
    }
}
