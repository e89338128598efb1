//! Writes to the standard streams. Output goes straight to the stream. While a screen has the
//! terminal, output is kept for its pane and shown after the terminal is given back. A run does not
//! wait for a reader of standard error that has stalled.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, ErrorKind, StdoutLock, Write},
    mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    io::{Errno, retry_on_intr},
    termios::isatty,
};
use trapline::{Event, open_again};

use super::signals;

/// The largest number of bytes that are kept.
const ROOM: usize = 1 << 20;
/// The size in bytes of the blocks that are kept or dropped.
const PART: usize = 1 << 12;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// What an active screen keeps. The streams belong to the process, and so does this.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

struct Held {
    /// Which streams are the terminal. The others are written to directly.
    terminals: [bool; 2],
    parts: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
    lost: usize,
    /// The number of writes.
    count: u64,
}

/// Writes to a stream, now or after the screen ends.
pub(super) fn write(stream: Stream, text: &[u8]) -> io::Result<()> {
    match keep(stream, text) {
        true => Ok(()),
        false => straight(stream, text),
    }
}

/// Takes a text for the terminal while a line is edited there. Returns whether it did.
type Take = dyn Fn(&[u8]) -> bool + Send + Sync;

/// The line editor. The terminal belongs to the process, and so does this.
static EDITOR: OnceLock<Box<Take>> = OnceLock::new();

/// From now on the editor is asked to take what goes to the terminal.
pub(super) fn edit(take: impl Fn(&[u8]) -> bool + Send + Sync + 'static) {
    let _ = EDITOR.set(Box::new(take));
}

/// Keeps the text for the screen or the line editor, if one is active. Returns whether nothing else has
/// to be done now.
fn keep(stream: Stream, text: &[u8]) -> bool {
    if let Some(take) = EDITOR.get()
        && with_descriptor(stream, |fd| isatty(fd))
        && take(text)
    {
        return true;
    }
    // The lock is not held during the write, which may take long.
    lock().as_mut().is_some_and(|held| {
        held.keep(stream, text);
        held.terminals[stream as usize]
    })
}

/// From now on, output to a stream that is a terminal is kept.
pub(super) fn begin(terminals: [bool; 2]) {
    *lock() = Some(Held {
        terminals,
        parts: VecDeque::new(),
        bytes: 0,
        lost: 0,
        count: 0,
    });
}

/// Writes the kept output and keeps no more. A failed write is ignored, since no other stream is
/// left.
pub(super) fn end() {
    let Some(held) = lock().take() else {
        return;
    };
    let lost = held.lost;
    if lost > 0 && held.terminals.contains(&true) {
        let note = format!(
            "... {lost} bytes of earlier output are not kept: redirect it to keep all of it\n"
        );
        let _ = straight(Stream::Err, note.as_bytes());
    }
    for (stream, text) in held.parts {
        if held.terminals[stream as usize] {
            let _ = straight(stream, &text);
        }
    }
}

pub(super) fn is_on() -> bool {
    lock().is_some()
}

/// The number of writes since `begin`.
pub(super) fn count() -> u64 {
    lock().as_ref().map_or(0, |held| held.count)
}

/// The last lines written, at most so many.
pub(super) fn tail(lines: usize) -> Vec<String> {
    let held = lock();
    let Some(held) = &*held else {
        return Vec::new();
    };
    let (mut first, mut found) = (held.parts.len(), 0);
    while first > 0 && found <= lines {
        first -= 1;
        found += ends(&held.parts[first].1);
    }
    let parts = held.parts.range(first..);
    let text: Vec<u8> = parts.flat_map(|(_, text)| text.iter().copied()).collect();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all[from..].iter().map(ToString::to_string).collect()
}

/// How many lines end in a text.
fn ends(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count()
}

impl Held {
    fn keep(&mut self, stream: Stream, text: &[u8]) {
        self.count += 1;
        self.bytes += text.len();
        match self.parts.back_mut() {
            Some((last, part)) if *last == stream && part.len() + text.len() <= PART => {
                part.extend_from_slice(text);
            }
            _ => self.parts.push_back((stream, text.to_vec())),
        }
        while self.bytes > ROOM
            && let Some((_, text)) = self.parts.pop_front()
        {
            self.bytes -= text.len();
            self.lost += text.len();
        }
    }
}

fn lock() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a line of progress is on the terminal. It is taken away before anything else is printed.
static HAS_LINE: AtomicBool = AtomicBool::new(false);
/// Whether the cursor of the terminal is within a line that a program has begun.
static IS_WITHIN: AtomicBool = AtomicBool::new(false);
/// Held while the line is shown or taken away, and while a text is printed that the line could split.
static LINE: Mutex<()> = Mutex::new(());

/// Shows a line of progress on standard error, which is a terminal. A screen and a line editor have the
/// terminal to themselves, and a line that a program has begun is not written over.
pub(super) fn show_line(text: &str) {
    let _held = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if is_on() || EDITOR.get().is_some() || IS_WITHIN.load(Ordering::Relaxed) {
        return;
    }
    HAS_LINE.store(true, Ordering::Relaxed);
    // Progress that cannot be written is no loss.
    let _ = errors().write(format!("\r\x1b[K{text}").as_bytes());
}

/// Takes the line of progress away.
pub(super) fn clear() {
    drop(prepare(Stream::Err, &[]));
}

/// Makes room for a text, and notes whether it ends its line. While the result lives, no line of progress
/// appears.
fn prepare(stream: Stream, text: &[u8]) -> Option<MutexGuard<'static, ()>> {
    static TERMINALS: [OnceLock<bool>; 2] = [const { OnceLock::new() }; 2];
    let is_terminal = |stream: Stream| {
        let found = &TERMINALS[stream as usize];
        *found.get_or_init(|| with_descriptor(stream, |fd| isatty(fd)))
    };
    // Without a terminal there is no line.
    if !is_terminal(Stream::Err) {
        return None;
    }
    let held = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if HAS_LINE.swap(false, Ordering::Relaxed) {
        let _ = errors().write(b"\r\x1b[K");
    }
    if let Some(last) = text.last()
        && is_terminal(stream)
    {
        IS_WITHIN.store(*last != b'\n', Ordering::Relaxed);
    }
    // Standard output may stall, and nothing of it could be split.
    is_terminal(stream).then_some(held)
}

pub(super) fn straight(stream: Stream, text: &[u8]) -> io::Result<()> {
    writing(|| match stream {
        Stream::Out => print(text),
        Stream::Err => {
            let _held = prepare(stream, text);
            errors().write(text)
        }
    })
}

/// Makes a line of a message.
type Warning = dyn Fn(&str) -> String + Send;

/// Standard error, which belongs to the process.
static ERRORS: Mutex<Errors> = Mutex::new(Errors {
    warning: None,
    waits: true,
    rest: Vec::new(),
    is_stalled: false,
    lost: 0,
});

/// After how many polls without a sign the reader of standard error counts as stalled: a second.
const SILENCES: u32 = 10;

/// Standard error, whose reader may stall: a pager that waits for a key, a terminal that was stopped
/// with ^S. Nothing is lost on a file, and with a reader that reads.
struct Errors {
    warning: Option<Box<Warning>>,
    /// Whether a stalled reader is waited for. An interrupt ends the patience.
    waits: bool,
    /// What has to be written before anything else: the rest of a line, and how many were lost.
    rest: Vec<u8>,
    is_stalled: bool,
    /// The number of lines that were lost since this was last said.
    lost: u64,
}

fn errors() -> MutexGuard<'static, Errors> {
    ERRORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a reader of standard error that stalls is not waited for, unless it `waits`. The lines
/// that are lost are counted, and `warning` makes a line of the message about it.
pub(super) fn watch_errors(waits: bool, warning: impl Fn(&str) -> String + Send + 'static) {
    let mut errors = errors();
    errors.warning = Some(Box::new(warning));
    errors.waits = waits;
}

/// Whether a write to standard error would have to wait.
pub(super) fn is_full() -> bool {
    can_stall() && !matches!(has_room(Stream::Err, NONE), Ok(true))
}

/// Writes what standard error still has to get, at the end of the process.
pub(super) fn finish() {
    // No other stream is left for the failure.
    let _ = errors().finish();
}

/// Whether standard error is anything whose reader may stall.
fn can_stall() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let errors = io::stderr();
        let kind = fstat(&errors).map(|found| FileType::from_raw_mode(found.st_mode));
        matches!(kind, Ok(FileType::Fifo | FileType::Socket)) || isatty(&errors)
    })
}

impl Errors {
    /// Writes lines, unless the reader is stalled.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if !can_stall() {
            return io::stderr().write_all(lines);
        }
        let is_stalled = self.is_stalled && !has_room(Stream::Err, NONE)?;
        if is_stalled || !self.write_rest()? {
            self.lose(lines);
            return Ok(());
        }
        let left = self.push(lines)?;
        let is_begun = left.len() < lines.len();
        let end = left.iter().position(|&byte| byte == b'\n');
        let end = end.filter(|_| is_begun).map_or(0, |end| end + 1);
        let (begun, whole) = left.split_at(end);
        self.rest.extend_from_slice(begun);
        self.lose(whole);
        Ok(())
    }

    fn lose(&mut self, lines: &[u8]) {
        self.lost += ends(lines) as u64;
    }

    /// Writes the rest of a line, and how many were lost after it. Returns whether that is done.
    fn write_rest(&mut self) -> io::Result<bool> {
        let rest = mem::take(&mut self.rest);
        self.rest = self.push(&rest)?.to_vec();
        if self.rest.is_empty() && self.lost > 0 {
            let lines = match mem::take(&mut self.lost) {
                1 => "1 line was".to_string(),
                lost => format!("{lost} lines were"),
            };
            let lost = format!("standard error was not read for a second: {lines} not written");
            let lost = match &self.warning {
                Some(warning) => warning(&lost),
                None => format!("warning: {lost}\n"),
            };
            self.rest = self.push(lost.as_bytes())?.to_vec();
        }
        Ok(self.rest.is_empty())
    }

    fn finish(&mut self) -> io::Result<()> {
        // The reader gets another chance.
        self.is_stalled = false;
        if can_stall() && (self.lost > 0 || !self.rest.is_empty()) {
            self.write_rest()?;
        }
        Ok(())
    }

    /// Writes bytes, as long as the reader takes them. Returns those that are left. A reader that was
    /// stalled has to take some at once.
    fn push<'a>(&mut self, mut bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let mut silences = 0;
        while !bytes.is_empty() {
            let patience = if self.is_stalled { NONE } else { PATIENCE };
            match write_some(Stream::Err, bytes, patience)? {
                0 => {
                    silences += u32::from(!self.waits || signals::is_raised());
                    self.is_stalled |= silences >= SILENCES;
                    if self.is_stalled {
                        break;
                    }
                }
                written => {
                    bytes = &bytes[written..];
                    (self.is_stalled, silences) = (false, 0);
                }
            }
        }
        Ok(bytes)
    }
}

/// The number of writes under way. The streams belong to the process, and so does this.
static WRITING: AtomicUsize = AtomicUsize::new(0);

pub(super) fn writing<T>(write: impl FnOnce() -> T) -> T {
    WRITING.fetch_add(1, Ordering::Relaxed);
    let written = write();
    WRITING.fetch_sub(1, Ordering::Relaxed);
    written
}

/// Whether a write is under way, which may wait for the reader.
pub(super) fn is_writing() -> bool {
    WRITING.load(Ordering::Relaxed) > 0
}

/// Standard output, for a command that has nothing else to do.
pub(super) fn out() -> Blocking {
    Blocking(io::stdout().lock())
}

pub(super) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = out();
    out.write_all(text)?;
    out.flush()
}

/// Standard output whose writes block until there is room, even if another process has made it
/// non-blocking.
pub(super) struct Blocking(StdoutLock<'static>);

impl Blocking {
    fn wait<T>(
        &mut self,
        write: impl Fn(&mut StdoutLock<'static>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match write(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut asked = [PollFd::new(&self.0, PollFlags::OUT)];
                    retry_on_intr(|| poll(&mut asked, None))?;
                }
                written => return written,
            }
        }
    }
}

impl Write for Blocking {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _held = prepare(Stream::Out, text);
        self.wait(|out| out.write(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait(Write::flush)
    }
}

/// Copies what is printed to the screen's pane, where standard output is not its terminal.
pub(super) fn copy(event: &Event<'_>) {
    if let Some(text) = event.fact.printed()
        && let Some(held) = lock().as_mut()
    {
        held.keep(Stream::Out, text.as_bytes());
    }
}

/// The time between two checks for interrupts while a full pipe is waited for.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
const NONE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// The least number of bytes that a writable pipe accepts.
const PROMISED: usize = 512;

fn with_descriptor<T>(stream: Stream, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    match stream {
        Stream::Out => call(io::stdout().as_fd()),
        Stream::Err => call(io::stderr().as_fd()),
    }
}

/// Whether a stream takes bytes, within this time.
fn has_room(stream: Stream, patience: Timespec) -> io::Result<bool> {
    with_descriptor(stream, |fd| {
        let mut asked = [PollFd::new(&fd, PollFlags::OUT)];
        Ok(retry_on_intr(|| poll(&mut asked, Some(&patience)))? > 0)
    })
}

/// Writes what a stream has room for, and waits for room this long. Returns 0 if there is none.
///
/// A writable terminal promises no number of bytes. Other processes may have the same open file, so
/// it is not made non-blocking: it is opened once more, as a file of this process alone.
fn write_some(stream: Stream, text: &[u8], patience: Timespec) -> io::Result<usize> {
    static OWN: [OnceLock<Option<OwnedFd>>; 2] = [const { OnceLock::new() }; 2];
    if !has_room(stream, patience)? {
        return Ok(0);
    }
    let own = OWN[stream as usize]
        .get_or_init(|| with_descriptor(stream, |fd| isatty(fd).then(|| open_again(fd)).flatten()));
    let written = retry_on_intr(|| match own {
        Some(own) => rustix::io::write(own, text),
        None => with_descriptor(stream, |fd| {
            rustix::io::write(fd, &text[..text.len().min(PROMISED)])
        }),
    });
    match written {
        // The room of a terminal is too little, or another process has made a pipe non-blocking.
        Err(Errno::AGAIN) => {
            retry_on_intr(|| poll(&mut [], Some(&patience)))?;
            Ok(0)
        }
        written => Ok(written?),
    }
}

/// Standard output as a kernel's console that waits for room. A kernel with a screen uses it to
/// keep the text. A kernel on a virtual clock uses it, since its clock does not move during the
/// wait. An interrupt ends the wait.
#[derive(Default)]
pub(super) struct Console {
    /// Whether an interrupt has ended a wait. Later writes do not wait.
    gave_up: bool,
}

impl Console {
    fn write_some(&mut self, text: &[u8]) -> io::Result<usize> {
        loop {
            let raised = signals::is_raised();
            let patience = if self.gave_up { NONE } else { PATIENCE };
            match write_some(Stream::Out, text, patience)? {
                0 if raised => {
                    self.gave_up = true;
                    return Err(io::Error::other("it accepts no bytes"));
                }
                0 => {}
                written => return Ok(written),
            }
        }
    }
}

impl Write for Console {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if keep(Stream::Out, text) || text.is_empty() {
            return Ok(text.len());
        }
        let _held = prepare(Stream::Out, text);
        writing(|| self.write_some(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that keeps in memory what is written to it. Its clones share it.
#[derive(Clone, Default)]
pub(super) struct Memory(Rc<RefCell<Vec<u8>>>);

impl Memory {
    /// Takes what has been written since the last time.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for Memory {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
