//! Panics of tasks whose run is repeated.

use std::{
    panic,
    sync::{Mutex, PoisonError},
    thread,
};

use super::{live::leave, output::tell};

/// The text of the last panic. The hook belongs to the process, and so does this.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps panics of tasks silent while it lives, because a run is repeated: its command shows how a
/// task ended. A panic that ends the process is printed.
pub(super) struct Panics;

impl Panics {
    pub(super) fn hide() -> Self {
        panic::set_hook(Box::new(|panic| {
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic.to_string());
        }));
        Self
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if thread::panicking() {
            leave();
            let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
            tell(&(last.unwrap_or_default() + "\n"));
        }
    }
}
