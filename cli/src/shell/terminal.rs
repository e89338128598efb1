//! The terminal of the prompt: a line editor on a thread, and what is printed while it has a line.

use std::{
    mem,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
};

use rustyline::{
    CompletionType, Config, Editor, ExternalPrinter, error::ReadlineError, history::MemHistory,
};

use super::{
    super::{live::terminal, signals, stdio},
    words::Words,
};

/// How many bytes may wait to be shown. A task that prints more waits for the terminal.
const ROOM: usize = 64 << 10;

/// Moves the cursor nowhere. The editor takes one text at a time, so once it has this one, it has the one
/// before.
const NOTHING: &str = "\x1b[A\n";

#[derive(Default)]
pub(super) struct Terminal {
    history: Mutex<MemHistory>,
    text: Mutex<Text>,
    changed: Condvar,
}

/// What was printed while a line is typed.
#[derive(Default)]
struct Text {
    is_typing: bool,
    bytes: Vec<u8>,
    /// Whether the last line on the screen is not complete.
    is_amid: bool,
}

impl Terminal {
    /// That of the process. From now on text for it is shown above the line that is typed, and its
    /// settings are restored at the end.
    pub(super) fn of_process() -> &'static Self {
        static TERMINAL: OnceLock<Terminal> = OnceLock::new();
        TERMINAL.get_or_init(|| {
            stdio::edit(|text| Self::of_process().take(text));
            // What cannot be read has no settings.
            let _ = terminal::remember();
            signals::at_end(|| drop(signals::soon(terminal::leave)));
            Self::default()
        })
    }

    fn text(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a text while a line is typed.
    fn take(&self, bytes: &[u8]) -> bool {
        let mut text = self.text();
        while text.is_typing && text.bytes.len() > ROOM {
            let waited = self.changed.wait(text);
            text = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if text.is_typing {
            text.bytes.extend_from_slice(bytes);
            self.changed.notify_all();
        } else if let Some(last) = bytes.last() {
            text.is_amid = *last != b'\n';
        }
        text.is_typing
    }

    /// Edits a line. Returns an empty one after an interrupt, and `None` at the end of the input.
    pub(super) fn edit(&self, words: Words) -> Option<String> {
        let prompt = words.prompt.clone();
        let config = Config::builder().completion_type(CompletionType::List);
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let editor = Editor::with_history(
            config.bracketed_paste(false).build(),
            mem::take(&mut *history),
        );
        let mut editor = editor.ok()?;
        editor.set_helper(Some(words));
        // There is none on a terminal that cannot move its cursor.
        let printer = editor.create_external_printer().ok();
        let mut text = self.text();
        if mem::take(&mut text.is_amid) {
            let _ = stdio::straight(stdio::Stream::Out, b"\n");
        }
        text.is_typing = printer.is_some();
        drop(text);
        let line = thread::scope(|scope| {
            let shows = printer.map(|printer| scope.spawn(|| self.show(printer)));
            let line = editor.readline(&prompt);
            if let Ok(line) = &line {
                let _ = editor.add_history_entry(line.as_str());
            }
            *history = mem::take(editor.history_mut());
            // What it has not taken comes back.
            drop(editor);
            self.text().is_typing = false;
            self.changed.notify_all();
            // A panic there is no reason to lose the line.
            shows.map(thread::ScopedJoinHandle::join);
            line
        });
        let mut text = self.text();
        let left = mem::take(&mut text.bytes);
        text.is_amid = left.last().is_some_and(|last| *last != b'\n');
        let _ = stdio::straight(stdio::Stream::Out, &left);
        match line {
            Ok(line) => Some(line),
            Err(ReadlineError::Interrupted) => Some(String::new()),
            Err(_) => None,
        }
    }

    /// Shows whole lines above the line that is typed.
    fn show(&self, mut printer: impl ExternalPrinter) {
        loop {
            let mut text = self.text();
            let end = loop {
                if !text.is_typing {
                    return;
                }
                match text.bytes.iter().rposition(|byte| *byte == b'\n') {
                    Some(end) => break end + 1,
                    None => {
                        let waited = self.changed.wait(text);
                        text = waited.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            let lines: Vec<u8> = text.bytes.drain(..end).collect();
            drop(text);
            self.changed.notify_all();
            let shown = printer.print(String::from_utf8_lossy(&lines).into_owned());
            if shown.and_then(|()| printer.print(NOTHING.into())).is_err() {
                self.text().bytes.splice(..0, lines);
                return;
            }
        }
    }
}
