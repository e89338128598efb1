//! The terminal while a screen has it, and its previous state. The first of three ends restores it:
//! that of the screen's task, of the kernel or of the process.

use std::{
    io::{self, IsTerminal},
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ratatui::crossterm::{
    QueueableCommand, cursor,
    event::{self, Event},
    terminal::{EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
    },
};

use crate::cli::stdio::{self, Stream, straight};

/// The terminal's previous state. It belongs to the process, and so does this.
static BEFORE: Mutex<Option<Before>> = Mutex::new(None);

/// What is said of a terminal that has gone.
pub(super) const GONE: &str = "the terminal has gone";

struct Before {
    termios: Termios,
    out: Stream,
}

/// A terminal that can be taken.
#[derive(Clone, Copy)]
pub(in crate::cli) struct Terminal {
    /// The stream for drawing: the first that is not redirected.
    out: Stream,
}

/// The terminal of the process, if it can be read and written. From now on, output to it is kept.
pub(in crate::cli) fn find() -> Result<Terminal, String> {
    let terminals = [io::stdout().is_terminal(), io::stderr().is_terminal()];
    let out = match terminals {
        _ if !io::stdin().is_terminal() => {
            return Err("a screen needs a terminal, and standard input is none".into());
        }
        [true, _] => Stream::Out,
        [_, true] => Stream::Err,
        [false, false] => {
            return Err(
                "a screen needs a terminal, and neither standard output nor standard error is one"
                    .into(),
            );
        }
    };
    stdio::begin(terminals);
    Ok(Terminal { out })
}

impl Terminal {
    /// Takes the terminal, until `leave`.
    pub(in crate::cli) fn enter(self) -> io::Result<()> {
        let termios = tcgetattr(io::stdin())?;
        let mut raw = termios.clone();
        raw.make_raw();
        // Interrupts stay enabled, since a task that makes no trap keeps the screen from reading
        // keys. Suspending is disabled, since the shell would get the terminal in this state.
        raw.local_modes |= LocalModes::ISIG;
        raw.special_codes[SpecialCodeIndex::VSUSP] = 0;
        raw.special_codes[SpecialCodeIndex::VQUIT] = 0;
        let out = self.out;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Before { termios, out });
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        let mut sequence = Vec::new();
        sequence.queue(EnterAlternateScreen)?.queue(cursor::Hide)?;
        straight(out, &sequence)
    }

    pub(super) fn handle(self) -> Handle {
        match self.out {
            Stream::Out => Handle::Out(io::stdout()),
            Stream::Err => Handle::Err(io::stderr()),
        }
    }

    /// Writes at once.
    pub(in crate::cli) fn write(self, text: &[u8]) -> io::Result<()> {
        straight(self.out, text)
    }

    /// The terminal's width and height.
    pub(in crate::cli) fn size(self) -> (u16, u16) {
        match tcgetwinsize(self.handle()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 24),
        }
    }
}

/// Restores the terminal, if it was taken, and writes the kept output to it.
pub(in crate::cli) fn leave() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let mut sequence = Vec::new();
        let queued = sequence
            .queue(EndSynchronizedUpdate)
            .and_then(|sequence| sequence.queue(LeaveAlternateScreen))
            .and_then(|sequence| sequence.queue(cursor::Show));
        // A terminal that has gone needs no more cleanup.
        let _ = queued
            .map(drop)
            .and_then(|()| straight(before.out, &sequence));
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before.termios);
    }
    stdio::end();
}

/// Whether a key or another event can be read. The only way to poll for one: `crossterm` reads the
/// end of a terminal again and again, and does not return.
///
/// *Errors:* the terminal has gone.
pub(in crate::cli) fn has_event() -> io::Result<bool> {
    if is_gone() {
        return Err(io::Error::other(GONE));
    }
    event::poll(Duration::ZERO)
}

/// Waits for at most this time, and returns the events that have come. All are read at once, and
/// `crossterm` is asked for nothing before the next: the terminal may go at any time.
///
/// *Errors:* the terminal has gone.
pub(in crate::cli) fn wait_for_events(longest: Duration) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    if !readiness(longest).is_empty() {
        while has_event()? {
            events.push(event::read()?);
        }
    }
    Ok(events)
}

/// Whether the terminal has gone: its window is closed, or its connection.
pub(in crate::cli) fn is_gone() -> bool {
    readiness(Duration::ZERO).intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Waits for input for at most this time. A signal ends the wait.
fn readiness(longest: Duration) -> PollFlags {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let longest = Timespec::try_from(longest).expect("it is a short time");
    match poll(&mut fds, Some(&longest)) {
        Ok(_) => fds[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// A standard stream as a descriptor that a task can write to.
pub(super) enum Handle {
    Out(io::Stdout),
    Err(io::Stderr),
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Out(out) => out.as_fd(),
            Self::Err(err) => err.as_fd(),
        }
    }
}

/// Restores the terminal when it is dropped.
pub(in crate::cli) struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        leave();
    }
}
