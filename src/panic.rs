//! Containment of panics: the text of a panic, and destructors that may panic.
//!
//! Uses nothing of the crate.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Returns the text of a panic. A payload whose destructor panics is leaked.
pub(crate) fn panic_message(panic: Panic) -> String {
    let message = match panic.downcast_ref::<&str>() {
        Some(text) => (*text).to_string(),
        None => match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => "panicked with a value that is not text".to_string(),
        },
    };
    if let Err(worse) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(worse);
    }
    message
}

/// Runs destructors. A panic in them becomes a warning.
pub(crate) fn contain(destructors: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(destructors)) {
        let message = panic_message(panic);
        tracing::warn!(target: "trapline::kernel", "a destructor panicked: {message}");
    }
}
