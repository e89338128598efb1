//! Writes to the standard streams. Output goes straight to the stream. While a screen has the
//! terminal, output is kept for its pane and shown after the terminal is given back.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, ErrorKind, StdoutLock, Write},
    rc::Rc,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
};

use super::interrupts;
use crate::{Event, Fact};

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
    /// The number of bytes that were dropped.
    lost: usize,
    /// The number of writes.
    count: u64,
}

/// Writes to a stream, now or after the screen ends.
pub(super) fn write(stream: Stream, text: &[u8]) -> io::Result<()> {
    if keep(stream, text) {
        return Ok(());
    }
    straight(stream, text)
}

/// Keeps the text for the screen, if one is active. Returns whether nothing else has to be done
/// now.
fn keep(stream: Stream, text: &[u8]) -> bool {
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
    if held.lost > 0 && held.terminals.contains(&true) {
        let note = format!(
            "... {} bytes of earlier output are not kept: redirect it to keep all of it\n",
            held.lost
        );
        let _ = straight(Stream::Err, note.as_bytes());
    }
    for (stream, text) in held.parts {
        if held.terminals[stream as usize] {
            let _ = straight(stream, &text);
        }
    }
}

/// Whether any output is kept.
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
    let ends = |text: &[u8]| text.iter().filter(|&&byte| byte == b'\n').count();
    let (mut first, mut found) = (held.parts.len(), 0);
    while first > 0 && found <= lines {
        first -= 1;
        found += ends(&held.parts[first].1);
    }
    let parts = held.parts.iter().skip(first);
    let text: Vec<u8> = parts.flat_map(|(_, text)| text.iter().copied()).collect();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all[from..].iter().map(ToString::to_string).collect()
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

/// Writes to a stream at once.
pub(super) fn straight(stream: Stream, text: &[u8]) -> io::Result<()> {
    writing(|| match stream {
        Stream::Out => print(text),
        Stream::Err => io::stderr().write_all(text),
    })
}

/// The number of writes under way. The streams belong to the process, and so does this.
static WRITING: AtomicUsize = AtomicUsize::new(0);

/// Counts a write as under way.
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

/// Writes all of that to standard output.
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
        self.wait(|out| out.write(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait(Write::flush)
    }
}

/// Copies what is printed to the screen's pane, where standard output is not its terminal.
pub(super) fn copy(event: &Event<'_>) {
    if let Fact::Console { text } = event.fact
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
/// The least number of bytes that a writable pipe or terminal accepts.
const PROMISED: usize = 512;

/// Standard output as a kernel's console that waits for room. A kernel with a screen uses it to
/// keep the text. A kernel on a virtual clock uses it, since its clock does not move during the
/// wait. An interrupt ends the wait.
#[derive(Default)]
pub(super) struct Console {
    /// Whether an interrupt has ended a wait. Later writes do not wait.
    gave_up: bool,
}

impl Console {
    fn wait(&mut self) -> io::Result<()> {
        let out = io::stdout();
        let mut asked = [PollFd::new(&out, PollFlags::OUT)];
        loop {
            let raised = interrupts::is_raised();
            let patience = if self.gave_up {
                Timespec::default()
            } else {
                PATIENCE
            };
            if retry_on_intr(|| poll(&mut asked, Some(&patience)))? > 0 {
                return Ok(());
            }
            if raised {
                self.gave_up = true;
                return Err(io::Error::other("it accepts no bytes"));
            }
        }
    }
}

impl Write for Console {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if keep(Stream::Out, text) {
            return Ok(text.len());
        }
        writing(|| self.wait())?;
        let some = &text[..text.len().min(PROMISED)];
        match rustix::io::write(io::stdout(), some) {
            // `write_all` retries.
            Err(Errno::AGAIN) => Err(ErrorKind::Interrupted.into()),
            written => Ok(written?),
        }
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
