//! The terminal while a screen has it, and its previous state. The first of three ends restores it:
//! that of the screen's task, of the kernel or of the process.

use std::{
    io::{self, IsTerminal},
    iter,
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ratatui::{
    Frame, TerminalOptions, Viewport,
    backend::CrosstermBackend,
    crossterm::{
        QueueableCommand, cursor,
        terminal::{
            BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen,
            LeaveAlternateScreen,
        },
    },
    layout::Rect,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    stdio::{stderr, stdout},
    termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
    },
};
use termina::{
    Event, Parser,
    event::{KeyCode, KeyEvent, KeyEventKind, Modifiers},
};

use crate::stdio::{self, Memory, Stream, straight};

/// The terminal's previous state. It belongs to the process, and so does this.
static BEFORE: Mutex<Option<Before>> = Mutex::new(None);

/// What is said of a terminal that has gone.
pub(super) const GONE: &str = "the terminal has gone";

/// The number of bytes that are read at once.
const INPUT: usize = 1024;

struct Before {
    termios: Termios,
    has: Has,
}

/// What has the terminal.
enum Has {
    /// A screen, which is drawn there.
    Screen(Stream),
    /// A line editor. This is written at the end.
    Editor(&'static [u8]),
}

/// Has the settings of the terminal restored at the end, for a line editor that changes them; `last` is
/// written then.
pub(crate) fn remember(last: &'static [u8]) -> io::Result<()> {
    let (termios, has) = (tcgetattr(io::stdin())?, Has::Editor(last));
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    before.get_or_insert(Before { termios, has });
    Ok(())
}

/// A terminal that can be taken.
#[derive(Clone, Copy)]
pub(crate) struct Terminal {
    /// The stream for drawing: the first that is not redirected.
    out: Stream,
}

/// The terminal of the process, if it can be read and written. From now on, output to it is kept.
pub(crate) fn find() -> Result<Terminal, String> {
    if !io::stdin().is_terminal() {
        return Err("a screen needs a terminal, and standard input is none".into());
    }
    let terminals = [io::stdout().is_terminal(), io::stderr().is_terminal()];
    let out = match terminals {
        [true, _] => Stream::Out,
        [_, true] => Stream::Err,
        [false, false] => {
            let why =
                "a screen needs a terminal, and neither standard output nor standard error is one";
            return Err(why.into());
        }
    };
    stdio::begin(terminals);
    Ok(Terminal { out })
}

impl Terminal {
    /// Takes the terminal, until `leave`.
    fn enter(self) -> io::Result<()> {
        let termios = tcgetattr(io::stdin())?;
        let mut raw = termios.clone();
        raw.make_raw();
        // Interrupts stay enabled, since a task that makes no trap keeps the screen from reading
        // keys. Suspending is disabled, since the shell would get the terminal in this state.
        raw.local_modes |= LocalModes::ISIG;
        raw.special_codes[SpecialCodeIndex::VSUSP] = 0;
        raw.special_codes[SpecialCodeIndex::VQUIT] = 0;
        let has = Has::Screen(self.out);
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Before { termios, has });
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        let mut sequence = Vec::new();
        sequence.queue(EnterAlternateScreen)?.queue(cursor::Hide)?;
        straight(self.out, &sequence)
    }

    pub(super) fn descriptor(self) -> BorrowedFd<'static> {
        match self.out {
            Stream::Out => stdout(),
            Stream::Err => stderr(),
        }
    }

    /// Writes at once.
    pub(crate) fn write(self, text: &[u8]) -> io::Result<()> {
        straight(self.out, text)
    }

    /// The width and height.
    fn size(self) -> (u16, u16) {
        match tcgetwinsize(self.descriptor()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 24),
        }
    }
}

/// Restores the terminal, if it was taken, and writes the kept output to it.
pub(crate) fn leave() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Before { termios, has }) = before {
        // A terminal that has gone needs no more cleanup.
        let action = match has {
            Has::Editor(last) => {
                let _ = straight(Stream::Out, last);
                OptionalActions::Now
            }
            Has::Screen(out) => {
                let _ = end_screen().and_then(|sequence| straight(out, &sequence));
                OptionalActions::Flush
            }
        };
        let _ = tcsetattr(io::stdin(), action, &termios);
    }
    stdio::end();
}

fn end_screen() -> io::Result<Vec<u8>> {
    let mut sequence = Vec::new();
    sequence
        .queue(EndSynchronizedUpdate)?
        .queue(LeaveAlternateScreen)?
        .queue(cursor::Show)?;
    Ok(sequence)
}

/// The keys of the terminal. A read of it is a single one, whose bytes `termina` parses: `crossterm`
/// reads the end of a terminal again and again, and does not return.
#[derive(Default)]
pub(crate) struct Keyboard {
    /// It keeps the start of a key whose other bytes have not come.
    parser: Parser,
}

impl Keyboard {
    /// Waits for at most this time, and returns the keys that were pressed.
    ///
    /// *Errors:* the terminal has gone.
    pub(crate) fn wait(&mut self, longest: Duration) -> io::Result<Vec<KeyEvent>> {
        self.react(readiness(longest), io::stdin())
    }

    /// Returns the keys after a poll of the input.
    fn react(
        &mut self,
        ready: rustix::io::Result<PollFlags>,
        input: impl AsFd,
    ) -> io::Result<Vec<KeyEvent>> {
        match ready {
            // A signal has ended the poll early. The rest of a key may still come.
            Err(_) => Ok(Vec::new()),
            Ok(ready) if is_end(ready) => Err(io::Error::other(GONE)),
            Ok(ready) if ready.contains(PollFlags::IN) => self.read(input),
            Ok(_) => Ok(self.pause()),
        }
    }

    /// Reads the input that a poll has found. The terminal may go between the two.
    fn read(&mut self, input: impl AsFd) -> io::Result<Vec<KeyEvent>> {
        let mut bytes = [0; INPUT];
        match rustix::io::read(input, &mut bytes) {
            Ok(0) => Err(io::Error::other(GONE)),
            Ok(count) => Ok(self.parse(&bytes[..count], count == INPUT)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The keys after a time without input. The rest of a key no longer comes then, so a start of one
    /// is dropped: the next key would be taken for the rest of it.
    fn pause(&mut self) -> Vec<KeyEvent> {
        let keys = self.parse(&[], false);
        self.parser = Parser::default();
        keys
    }

    /// The keys that these bytes complete. An escape byte at their end is a key if no more follow.
    fn parse(&mut self, bytes: &[u8], more: bool) -> Vec<KeyEvent> {
        self.parser.parse(bytes, more);
        // The byte of Ctrl-J ends a line, as that of Enter does.
        let line_feed = KeyEvent::new(KeyCode::Char('j'), Modifiers::CONTROL);
        let key = |event| match event {
            Event::Key(key) if key == line_feed => Some(KeyCode::Enter.into()),
            Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
            _ => None,
        };
        let events = iter::from_fn(|| self.parser.pop());
        events.filter_map(key).collect()
    }
}

/// Whether the terminal has gone: its window is closed, or its connection.
pub(crate) fn is_gone() -> bool {
    readiness(Duration::ZERO).is_ok_and(is_end)
}

fn is_end(ready: PollFlags) -> bool {
    ready.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Waits for input for at most this time. A signal ends the wait with an error.
fn readiness(longest: Duration) -> rustix::io::Result<PollFlags> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let longest = Timespec::try_from(longest).expect("it is a short time");
    poll(&mut fds, Some(&longest))?;
    Ok(fds[0].revents())
}

/// Restores the terminal when it is dropped.
pub(crate) struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        leave();
    }
}

/// A terminal that is taken, with what it shows. Dropping it restores the terminal.
pub(crate) struct Paper {
    terminal: Terminal,
    size: (u16, u16),
    ink: Memory,
    pages: ratatui::Terminal<CrosstermBackend<Memory>>,
    _taken: Taken,
}

impl Paper {
    pub(crate) fn take(terminal: Terminal) -> io::Result<Self> {
        // An error restores the terminal, too.
        let taken = Taken;
        terminal.enter()?;
        let ink = Memory::default();
        let viewport = Viewport::Fixed(Rect::default());
        let backend = CrosstermBackend::new(ink.clone());
        Ok(Self {
            terminal,
            size: (0, 0),
            ink,
            pages: ratatui::Terminal::with_options(backend, TerminalOptions { viewport })?,
            _taken: taken,
        })
    }

    pub(super) fn is_resized(&self) -> bool {
        self.terminal.size() != self.size
    }

    /// The next frame is drawn as a whole.
    pub(super) fn forget(&mut self) {
        self.size = (0, 0);
    }

    /// Draws what has changed. Returns the bytes for the terminal, which shows the frame at once.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<Vec<u8>> {
        self.ink.queue(BeginSynchronizedUpdate)?;
        if self.is_resized() {
            self.size = self.terminal.size();
            self.pages
                .resize(Rect::new(0, 0, self.size.0, self.size.1))?;
        }
        self.pages.draw(draw)?;
        // Output of other processes on the terminal must not scroll the screen away.
        self.ink
            .queue(cursor::MoveTo(0, 0))?
            .queue(EndSynchronizedUpdate)?;
        Ok(self.ink.take())
    }
}

#[cfg(test)]
mod tests {
    use rustix::{
        fs::{Mode, OFlags, open},
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    };

    use super::*;

    #[test]
    fn a_terminal_that_goes_after_the_poll_is_an_error() {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = open(ptsname(&master, []).unwrap(), flags, Mode::empty()).unwrap();
        let mut keyboard = Keyboard::default();
        keyboard.parse(b"\x1b[", false);
        drop(master);
        assert!(keyboard.read(&tty).is_err());
        assert!(keyboard.read(&tty).is_err(), "as often as it is read");
    }

    #[test]
    fn keys_may_come_in_parts() {
        let enter = KeyCode::Enter;
        let steps: [(&[u8], bool, &[KeyCode]); 10] = [
            (b"\x1b[", false, &[]),
            (b"Aq", false, &[KeyCode::Up, KeyCode::Char('q')]),
            // A letter of two bytes.
            (b"\xc3", false, &[]),
            (b"\xa9", false, &[KeyCode::Char('\u{e9}')]),
            // A read that got as much as it can.
            (b"\x1b", true, &[]),
            (b"OB", false, &[KeyCode::Down]),
            (b"\n\r", false, &[enter, enter]),
            // An escape byte alone.
            (b"\x1b", false, &[KeyCode::Escape]),
            (b"\x1b", true, &[]),
            (b"", false, &[KeyCode::Escape]),
        ];
        let mut keyboard = Keyboard::default();
        for (bytes, more, expected) in steps {
            let keys = keyboard.parse(bytes, more);
            let codes: Vec<_> = keys.iter().map(|key| key.code).collect();
            assert_eq!(codes, expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_signal_amid_a_key_does_not_drop_it() {
        let mut keyboard = Keyboard::default();
        assert_eq!(keyboard.parse(b"\x1b[", false), []);
        assert_eq!(keyboard.react(Err(Errno::INTR), io::stdin()).unwrap(), []);
        assert_eq!(keyboard.parse(b"A", false), [KeyCode::Up.into()]);
    }

    /// Alt and one of these letters starts a report of a terminal, which has no end here.
    #[test]
    fn a_start_of_a_report_takes_no_later_key() {
        let mut keyboard = Keyboard::default();
        for start in [b"\x1b[", b"\x1b]", b"\x1bP"] {
            assert_eq!(keyboard.parse(start, false), []);
            assert_eq!(keyboard.pause(), []);
            assert_eq!(keyboard.parse(b"q", false), [KeyCode::Char('q').into()]);
        }
        assert_eq!(keyboard.parse(b"\x1b", true), []);
        assert_eq!(keyboard.pause(), [KeyCode::Escape.into()]);
    }
}
