//! Panics of tasks: how a run prints them, and silence while one is repeated.

use std::{
    panic::{self, PanicHookInfo},
    sync::{Mutex, PoisonError},
    thread,
};

use super::{
    live::terminal::leave,
    output::{Log, tell},
    stdio,
};

/// The text of the last panic. The hook belongs to the process, and so does this.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps panics of tasks silent while it lives, because a run is repeated: its command shows how a
/// task ended. A panic that ends the process is printed.
pub(super) struct Panics;

impl Panics {
    pub(super) fn hide() -> Self {
        panic::set_hook(Box::new(|panic| {
            let text = panic.to_string();
            if ends_the_process(panic) {
                tell_last();
                tell(&(text + "\n"));
            } else {
                *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
        }));
        Self
    }
}

/// Installs a hook that prints panics in the style of the other messages. It gives the terminal back
/// before a panic that ends the process.
pub(super) fn hook(log: Log) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", panic::Location::file);
        // The generator panics with a message of its own when a task awaits anything but a trap.
        // The kernel reports that case in plain words.
        if file.contains("genawaiter") {
            return;
        }
        if ends_the_process(panic) {
            leave();
        }
        if log.is_json() {
            log.error(&panic.to_string());
        } else if stdio::is_on() || stdio::is_full() {
            tell(&format!("{panic}\n"));
        } else {
            hook(panic);
        }
    }));
}

/// Whether nothing runs after this panic, not even destructors: it left one that ran because of a
/// panic.
fn ends_the_process(panic: &PanicHookInfo<'_>) -> bool {
    let text = panic.payload().downcast_ref::<&str>();
    text.is_some_and(|text| text.starts_with("panic in a destructor"))
}

/// Gives the terminal back, and prints the panic before.
fn tell_last() {
    leave();
    if let Some(last) = LAST.lock().unwrap_or_else(PoisonError::into_inner).take() {
        tell(&(last + "\n"));
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if thread::panicking() {
            tell_last();
        }
    }
}
