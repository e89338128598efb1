//! Writing a recording.
//!
//! The kernel's thread encodes each event into a buffer of atomic words, which any thread can read
//! at any time. It writes the buffer to disk before it sleeps. A thread of the recorder does so every
//! 50 ms, even while a task makes no trap.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

use super::{
    Header, Recording,
    buffer::{Buffer, End, Word},
    decode::{Bytes, Wrong},
    encode,
    growing::Growing,
    place,
    ring::{Ring, Target},
    stream::Stream,
    wire::{self, Context},
};
use crate::{
    abi::{Exit, SystemCall, Tid},
    log::{Detail, Event, Fact, Tracer, event::Step},
};

const EVERY: Duration = Duration::from_millis(50);

/// A tracer that writes a recording.
///
/// The kernel's [`Builder`](crate::Builder) takes it; its [`Handle`] says whether all went well. If the
/// process is killed, the file has what happened before the kernel last slept, or, while the kernel
/// is busy, up to a tenth of a second before. An error in writing ends the recording, not the run. A
/// full disk keeps what fitted.
#[derive(Debug)]
pub struct Recorder {
    handle: Handle,
    context: Context,
    end: End,
    /// The number of events before it.
    events: u64,
    /// The last record that was long; kept for its memory.
    long: Vec<u8>,
    is_ring: bool,
    is_file: bool,
    /// For a ring: the last trap, which its task may be blocked in at the next event.
    trap: Option<Trap>,
}

/// A trap in a call that may block at once. None of them has more of a detail than a length.
#[derive(Clone, Copy, Debug)]
struct Trap {
    number: u64,
    at: Duration,
    tid: Tid,
    call: SystemCall,
    len: Option<usize>,
}

/// Where a [`Recorder`] writes to: for any thread, at any time.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Records that are to be put to their place. Written by the kernel's thread alone.
    buffer: Buffer,
    state: Mutex<State>,
}

/// Where the records go.
#[derive(Debug)]
struct State {
    /// All of them, until there is an error.
    output: Option<Output>,
    ring: Option<Ring>,
    /// How much of the buffer has been put to its place.
    done: usize,
    is_closed: bool,
    error: Option<(io::ErrorKind, String)>,
}

#[derive(Debug)]
enum Output {
    File(Growing),
    Stream(Stream),
}

impl Recorder {
    /// Records everything into a file, which is created for its owner alone, or replaced, and locked
    /// until the recording ends. *Blocks* until a pipe has a reader. A reader that takes nothing for a
    /// second does not stop the run: until it reads again, events are missing from the recording, and
    /// their number is in it ([`Recording::missing`]).
    ///
    /// *Errors:* `ResourceBusy` while another recorder writes to the file; the operating system's;
    /// `InvalidInput` for a header of more than 32 MiB.
    pub fn create(path: impl AsRef<Path>, header: &Header) -> io::Result<Self> {
        let head = encode::preamble(header)?;
        let file = place::open(path.as_ref())?;
        let output = if file.metadata()?.is_file() {
            Output::File(Growing::new(file, &head, skip)?)
        } else {
            let mut stream = Stream::new(file)?;
            stream.put_bytes(&head)?;
            Output::Stream(stream)
        };
        let recorder = Self::new(Some(output), None);
        let shared = Arc::downgrade(&recorder.handle.0);
        thread::Builder::new()
            .name("recorder".into())
            .spawn(move || save_again_and_again(&shared))?;
        Ok(recorder)
    }

    /// Keeps the last so many events, with the names of the tasks that live and what they were doing.
    /// Writes them to a file at the end, or whenever its handle is flushed. When a task faults for the
    /// first time, the events up to there go to the file at once and stay in it: it may hold twice as
    /// many, with a gap between.
    ///
    /// The file is locked, and always replaced as a whole, at first by a recording without events. So
    /// a process that is killed leaves what was last written, and never half of it; beside it, at
    /// worst, what was to replace it, whose name is longer by 16 hexadecimal digits. In a directory
    /// that is not writable the file is written anew. A target that is no file, such as a pipe, is
    /// written once, at the end.
    ///
    /// *Errors:* as [`Recorder::create`].
    pub fn last(events: usize, path: impl AsRef<Path>, header: &Header) -> io::Result<Self> {
        let head = encode::preamble(header)?;
        let mut target = Target::new(path.as_ref())?;
        target.replace(&[&head])?;
        Ok(Self::new(None, Some(Ring::new(events, Some(target), head))))
    }

    /// Keeps the last so many events in memory, for [`Handle::recording`].
    ///
    /// *Errors:* `InvalidInput` for a header of more than 32 MiB.
    pub fn in_memory(events: usize, header: &Header) -> io::Result<Self> {
        let ring = Ring::new(events, None, encode::preamble(header)?);
        Ok(Self::new(None, Some(ring)))
    }

    /// Also keeps the last so many events in memory, as [`Recorder::in_memory`] does: for a recording
    /// that is too large to be read at the end, or goes into a pipe.
    ///
    /// *Errors:* as [`Recorder::in_memory`].
    pub fn and_in_memory(mut self, events: usize, header: &Header) -> io::Result<Self> {
        let ring = Ring::new(events, None, encode::preamble(header)?);
        self.handle.0.lock().ring.get_or_insert(ring);
        self.is_ring = true;
        Ok(self)
    }

    fn new(output: Option<Output>, ring: Option<Ring>) -> Self {
        let (is_ring, is_file) = (ring.is_some(), output.is_some());
        let state = State {
            output,
            ring,
            done: 0,
            is_closed: false,
            error: None,
        };
        let (buffer, state) = (Buffer::new(), Mutex::new(state));
        Self {
            handle: Handle(Arc::new(Shared { buffer, state })),
            context: Context::default(),
            end: End::default(),
            events: 0,
            long: Vec::new(),
            is_ring,
            is_file,
            trap: None,
        }
    }

    /// Where it writes to.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Puts down an event that is too long for a word, or for what room there is in the buffer.
    #[inline(never)]
    fn put_long(&mut self, event: &Event<'_>) {
        let before = self.context;
        self.long.clear();
        self.context.event(&mut self.long, event);
        if !self.handle.0.buffer.append_all(&mut self.end, &self.long) {
            self.empty_buffer(before);
        }
        self.mark(event);
        self.events += 1;
    }

    /// Puts down what is in the buffer, and the long record, for which there was no room.
    fn empty_buffer(&mut self, context: Context) {
        let shared = &*self.handle.0;
        let mut state = shared.lock();
        state.save(shared);
        state.done = 0;
        shared.buffer.clear();
        self.end = End::default();
        if let Some(ring) = &mut state.ring {
            ring.begin_part(self.events, context);
        }
        state.put(&self.long);
        drop(state);
        self.long.clear();
        self.long.shrink_to(Buffer::BYTES);
    }

    /// Sees to what an event is besides a record.
    fn mark(&mut self, event: &Event<'_>) {
        match event.fact.step() {
            // A task may be blocked in these much later, when its turn has come.
            Some(Step::Calls(
                SystemCall::Recv(_) | SystemCall::RecvFrom(_) | SystemCall::Accept(_),
                _,
            )) => self.note(event),
            Some(Step::Calls(call, detail)) if self.is_ring => {
                let len = match detail {
                    Detail::Len(len) => Some(*len),
                    _ => None,
                };
                self.trap = Some(Trap {
                    number: self.events,
                    at: event.at,
                    tid: event.tid,
                    call,
                    len,
                });
            }
            Some(Step::Calls(..)) | None => {}
            Some(_) => self.note(event),
        }
    }

    fn note(&mut self, event: &Event<'_>) {
        let is_fault = matches!(event.fact.exit(), Some(Exit::Faulted(_)));
        if !self.is_ring && !is_fault {
            return;
        }
        let shared = &*self.handle.0;
        let mut state = shared.lock();
        if let Some(ring) = &mut state.ring {
            if let Some(trap) = self.trap.take().filter(|trap| trap.tid == event.tid) {
                ring.note(trap.number, &trap.event());
            }
            ring.note(self.events, event);
        }
        if is_fault {
            state.save(shared);
            state.write(Ring::fault);
        }
    }
}

impl Tracer for Recorder {
    fn event(&mut self, event: &Event<'_>) {
        let (mut record, mut context) = (Word::default(), self.context);
        if context.common_event(&mut record, event)
            && self.handle.0.buffer.append_word(&mut self.end, &record)
        {
            self.context = context;
            if self.is_ring {
                self.mark(event);
            }
            self.events += 1;
        } else {
            self.put_long(event);
        }
    }

    fn before_sleep(&mut self) {
        if self.is_file {
            let shared = &*self.handle.0;
            shared.lock().save(shared);
        }
    }
}

fn skip(bytes: &mut Bytes<'_>) -> Result<(), Wrong> {
    Context::default().record(bytes).map(drop)
}

impl Trap {
    fn event(&self) -> Event<'static> {
        let call = self.call;
        let detail = self.len.map_or(Detail::None, Detail::Len);
        Event {
            at: self.at,
            tid: self.tid,
            fact: Fact::Trapped { call, detail },
            place: None,
        }
    }
}

/// Closes its handle, so that the recording is complete.
impl Drop for Recorder {
    fn drop(&mut self) {
        // The handle returns the error to a caller that asks for it.
        let _ = self.handle.close();
    }
}

impl Handle {
    /// Puts down what has been recorded so far. Rarely needed: it happens by itself.
    ///
    /// *Errors:* the first that has befallen the recording.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.save(&self.0);
        state.write(Ring::write);
        state.result()
    }

    /// The last events that the recorder keeps in memory. `None` if it keeps none.
    ///
    /// ```
    /// use trapline::{Kernel, Os, record::{Header, Recorder}};
    ///
    /// let recorder = Recorder::in_memory(100, &Header::default())?;
    /// let handle = recorder.handle();
    /// let mut kernel = Kernel::builder().tracer(recorder).build()?;
    /// kernel.spawn("faulty", async |os: &mut Os| {
    ///     os.yield_now().await;
    ///     panic!("ouch");
    /// })?;
    /// kernel.run()?;
    /// for event in handle.recording().expect("it is kept") {
    ///     println!("{}", event?); // what led to it
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn recording(&self) -> Option<Recording> {
        let mut state = self.0.lock();
        state.save(&self.0);
        state.ring.as_ref().map(Ring::recording)
    }

    /// The same as bytes, which [`Recording::from_reader`] reads. Each event is decoded and encoded
    /// again, so the time grows with their number.
    ///
    /// ```
    /// use std::io::Cursor;
    ///
    /// use trapline::{Kernel, Os, record::{Header, Recorder, Recording}};
    ///
    /// let recorder = Recorder::in_memory(100, &Header::default())?;
    /// let handle = recorder.handle();
    /// let mut kernel = Kernel::builder().tracer(recorder).build()?;
    /// kernel.spawn("busy", async |os: &mut Os| loop { os.yield_now().await })?;
    /// for _ in 0..1000 {
    ///     kernel.step()?;
    /// }
    /// let dump = handle.dump().expect("it keeps events");
    /// assert_eq!(Recording::from_reader(Cursor::new(dump))?.count(), 101); // with the task's spawn
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn dump(&self) -> Option<Vec<u8>> {
        let mut state = self.0.lock();
        state.save(&self.0);
        state.ring.as_ref().map(Ring::bytes)
    }

    /// Ends the recording: nothing that happens later is in it. Waits for the reader of a pipe.
    ///
    /// *Errors:* the first that has befallen it.
    pub fn close(&self) -> io::Result<()> {
        self.close_while(|| true)
    }

    /// Ends the recording as [`Handle::close`] does. The wait for the reader of a pipe asks `goes_on`
    /// every 100 ms, and whenever the reader has taken bytes. If it returns `false`, the rest is lost,
    /// and the error is `TimedOut`.
    pub fn close_while(&self, mut goes_on: impl FnMut() -> bool) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.is_closed {
            state.close(&self.0, &mut goes_on);
        }
        state.result()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn result(&self) -> io::Result<()> {
        let error = self.error.clone();
        error.map_or(Ok(()), |(kind, text)| Err(io::Error::new(kind, text)))
    }

    /// Takes the new records out of the buffer.
    fn save(&mut self, shared: &Shared) {
        let len = shared.buffer.len();
        let new = shared.buffer.bytes(self.done, len);
        self.done = len;
        self.put(&new);
    }

    fn put(&mut self, records: &[u8]) {
        if records.is_empty() || self.is_closed {
            return;
        }
        if let Some(ring) = &mut self.ring {
            ring.put(records);
        }
        if let Some(output) = &mut self.output {
            let result = match output {
                Output::File(file) => file.append(records),
                Output::Stream(stream) => stream.put(records),
            };
            self.note(result);
        }
    }

    fn close(&mut self, shared: &Shared, goes_on: &mut dyn FnMut() -> bool) {
        self.save(shared);
        self.write(|ring| ring.write_last(goes_on));
        // Another recorder may have the file from now on.
        let result = match self.output.take() {
            None => Ok(()),
            Some(Output::File(file)) => file.end(wire::END),
            Some(Output::Stream(mut stream)) => stream.end(goes_on),
        };
        self.note(result);
        if let Some(ring) = &mut self.ring {
            ring.give_up();
        }
        self.is_closed = true;
    }

    fn write(&mut self, how: impl FnOnce(&mut Ring) -> io::Result<()>) {
        if let (Some(ring), false) = (&mut self.ring, self.is_closed) {
            let result = how(ring);
            self.note(result);
        }
    }

    /// A recording that went wrong ends there. What is kept in memory goes on.
    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error = Some((error.kind(), error.to_string()));
            self.output = None;
            if let Some(ring) = &mut self.ring {
                ring.give_up();
            }
        }
    }
}

/// Puts what is new on disk, now and then, until the recorder is gone or has failed.
fn save_again_and_again(shared: &Weak<Shared>) {
    loop {
        thread::sleep(EVERY);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut state = shared.lock();
        state.save(&shared);
        if state.output.is_none() {
            return;
        }
    }
}
