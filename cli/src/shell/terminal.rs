//! The terminal of the prompt: a line editor, and what is printed while it has a line.

use std::{
    borrow::Cow,
    mem,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
};

use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Editor, Event, EventContext,
    EventHandler, ExternalPrinter, KeyEvent, RepeatCount, error::ReadlineError,
    highlight::Highlighter, history::MemHistory,
};

use super::{
    super::{live::terminal, signals, stdio},
    words::Words,
};

/// How many bytes may wait to be shown. A task that prints more waits for the terminal.
const ROOM: usize = 64 << 10;

/// A text that leaves the cursor where it is, at the begin of a row. The editor draws its line again behind it.
const NOTHING: &str = "\x1b[A\n";

/// Has a terminal give a text that is pasted as if it were typed. The editor has it mark one instead, so that
/// no line of it is run before Enter.
const PASTED_AS_TYPED: &[u8] = b"\x1b[?2004l";

#[derive(Default)]
pub(super) struct Terminal {
    /// One for all lines: it keeps the keys that it has read behind the end of a line.
    editor: Mutex<Option<LineEditor>>,
    text: Mutex<Text>,
    changed: Condvar,
}

struct LineEditor {
    editor: Editor<Words, MemHistory>,
    /// Whether it can show text above its line: a terminal that cannot move its cursor does not.
    shows: bool,
}

/// What was printed while a line is typed.
#[derive(Default)]
struct Text {
    is_typing: bool,
    bytes: Vec<u8>,
    /// Whether the editor was told that lines wait.
    is_told: bool,
    /// Whether the last line on the screen is not complete.
    is_amid: bool,
    /// The key that has ended the line, if it is not Enter.
    ended_by: Option<Key>,
}

/// A key that ends the line. The editor has an error for each, and forgets the keys behind them with it.
#[derive(Clone, Copy)]
enum Key {
    Interrupt,
    EndOfInput,
}

impl Terminal {
    /// That of the process. From now on text for it is shown above the line that is typed, and its
    /// settings are restored at the end.
    pub(super) fn of_process() -> &'static Self {
        static TERMINAL: OnceLock<Terminal> = OnceLock::new();
        TERMINAL.get_or_init(|| {
            stdio::edit(|text| Self::of_process().take(text));
            signals::at_end(|| drop(signals::soon(terminal::leave)));
            Self::default()
        })
    }

    fn text(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, condition: impl Fn(&mut Text) -> bool) -> MutexGuard<'_, Text> {
        let waited = self.changed.wait_while(self.text(), condition);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a text while a line is typed.
    fn take(&self, bytes: &[u8]) -> bool {
        let mut text = self.wait_while(|text| text.is_typing && text.bytes.len() > ROOM);
        if text.is_typing {
            text.bytes.extend_from_slice(bytes);
            self.changed.notify_all();
        } else if let Some(last) = bytes.last() {
            text.is_amid = *last != b'\n';
        }
        text.is_typing
    }

    /// Edits a line, or the lines of a text that is pasted. Returns an empty one after an interrupt, and
    /// `None` at the end of the input.
    pub(super) fn edit(&self, words: Words) -> Option<String> {
        let prompt = words.prompt.clone();
        let mut editor = self.editor.lock().unwrap_or_else(PoisonError::into_inner);
        if editor.is_none() {
            *editor = self::editor().ok();
        }
        let LineEditor { editor, shows } = editor.as_mut()?;
        editor.set_helper(Some(words));
        self.begin(*shows);
        let line = editor.readline(&prompt);
        match (line, self.end()) {
            (Ok(line), None) => {
                let _ = editor.add_history_entry(line.trim_end());
                Some(line)
            }
            (Ok(_), Some(Key::Interrupt)) | (Err(ReadlineError::Interrupted), _) => {
                Some(String::new())
            }
            (Ok(_), Some(Key::EndOfInput)) | (Err(_), _) => None,
        }
    }

    fn begin(&self, shows: bool) {
        let mut text = self.text();
        if mem::take(&mut text.is_amid) {
            let _ = stdio::straight(stdio::Stream::Out, b"\n");
        }
        text.is_typing = shows;
    }

    /// Writes what was not shown. Returns the key that has ended the line, if it is not Enter.
    fn end(&self) -> Option<Key> {
        let mut text = self.text();
        text.is_typing = false;
        text.is_told = false;
        self.changed.notify_all();
        let left = mem::take(&mut text.bytes);
        text.is_amid = left.last().is_some_and(|last| *last != b'\n');
        let _ = stdio::straight(stdio::Stream::Out, &left);
        text.ended_by.take()
    }

    /// Has the editor draw its line again when whole lines wait.
    fn tell(&self, mut printer: impl ExternalPrinter) {
        loop {
            let is_quiet =
                |text: &mut Text| !text.is_typing || text.is_told || !text.bytes.contains(&b'\n');
            self.wait_while(is_quiet).is_told = true;
            if printer.print(NOTHING.into()).is_err() {
                return;
            }
        }
    }

    /// Takes the whole lines that wait.
    fn lines(&self) -> Vec<u8> {
        let mut text = self.text();
        text.is_told = false;
        self.changed.notify_all();
        let end = text.bytes.iter().rposition(|byte| *byte == b'\n');
        text.bytes.drain(..end.map_or(0, |end| end + 1)).collect()
    }
}

fn editor() -> Result<LineEditor, ReadlineError> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        // After a first Tab that lists nothing no text would be shown.
        .completion_show_all_if_ambiguous(true)
        .build();
    let mut editor = Editor::with_history(config, MemHistory::new())?;
    for (letter, key) in [('C', Key::Interrupt), ('D', Key::EndOfInput)] {
        let handler = EventHandler::Conditional(Box::new(key));
        editor.bind_sequence(KeyEvent::ctrl(letter), handler);
    }
    let shows = editor.create_external_printer().is_ok_and(|printer| {
        let tell = move || Terminal::of_process().tell(printer);
        thread::Builder::new().spawn(tell).is_ok()
    });
    // What cannot be read has no settings.
    let _ = terminal::remember(if shows { PASTED_AS_TYPED } else { b"" });
    Ok(LineEditor { editor, shows })
}

impl ConditionalEventHandler for Key {
    fn handle(
        &self,
        _: &Event,
        _: RepeatCount,
        _: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        // It deletes a letter of a line that has any.
        if matches!(self, Self::EndOfInput) && !context.line().is_empty() {
            return None;
        }
        Terminal::of_process().text().ended_by = Some(*self);
        Some(Cmd::AcceptLine)
    }
}

/// The editor asks for its prompt whenever it has cleared its rows and draws them again. So lines that come
/// with the prompt are above it, and on the screen in the order in which they were printed.
impl Highlighter for Words {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        let lines = Terminal::of_process().lines();
        Cow::Owned(String::from_utf8_lossy(&lines).into_owned() + prompt)
    }
}
