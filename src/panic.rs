//! Containment of panics: the text and the place of a panic, and destructors that may panic.
//!
//! Uses nothing of the crate.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    cell::RefCell,
    panic::{self, AssertUnwindSafe, Location, catch_unwind},
    sync::Once,
    thread,
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

/// The place of a panic, and the functions that were under way there, the innermost first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) chain: String,
}

thread_local! {
    /// The place of the thread's last panic. A hook has no other way to the code that catches the
    /// panic.
    static ORIGIN: RefCell<Option<Origin>> = const { RefCell::new(None) };
}

/// Notes the place of each panic from now on, before the hook that is installed now. A program that
/// replaces the hook has no places of faults.
pub(crate) fn note_origins() {
    static INSTALLED: Once = Once::new();
    // The hook cannot be taken during a panic.
    if thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let origin = panic.location().map(origin);
            ORIGIN.with_borrow_mut(|last| *last = origin);
            hook(panic);
        }));
    });
}

/// Takes the place of the thread's last panic.
pub(crate) fn take_origin() -> Option<Origin> {
    ORIGIN.take()
}

fn origin(location: &Location<'_>) -> Origin {
    // Empty unless `RUST_BACKTRACE` asks for it.
    let backtrace = Backtrace::capture();
    let chain = match backtrace.status() {
        BacktraceStatus::Captured => chain(&backtrace.to_string(), location),
        _ => String::new(),
    };
    Origin {
        file: location.file().to_string(),
        line: location.line(),
        chain,
    }
}

/// Extracts the chain of async functions from a backtrace: the closures between the place of the
/// panic and the kernel. The standard library has no stable access to the frames but their text,
/// a line with a number and a name, and one with `at` and a place.
fn chain(backtrace: &str, location: &Location<'_>) -> String {
    let mut frames: Vec<(&str, &str)> = Vec::new();
    for line in backtrace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                // Without the column.
                let place = place.rsplit_once(':').map_or(place, |(place, _)| place);
                frame.1 = place.strip_prefix("./").unwrap_or(place);
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            frames.push((name, ""));
        }
    }
    let panicked = format!("{}:{}", location.file(), location.line());
    let begin = frames.iter().position(|frame| frame.1.ends_with(&panicked));
    let mut chain: Vec<String> = Vec::new();
    for (name, place) in frames.split_off(begin.unwrap_or(0)) {
        if name.contains("genawaiter::") || name.contains("user::program::program") {
            break;
        }
        let function = name.trim_end_matches("::{{closure}}");
        if function != name && !place.starts_with("/rustc/") {
            let at = if place.is_empty() { "" } else { " at " };
            chain.push(format!("{function}{at}{place}"));
        }
    }
    chain.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_of_a_backtrace_is_its_async_functions_up_to_the_kernel() {
        let here = Location::caller();
        let (file, line) = (here.file(), here.line());
        let backtrace = format!(
            "   0: trapline::panic::origin
             at ./src/panic.rs:90:21
   1: core::panicking::panic_fmt
             at /rustc/59807616e1fa/library/core/src/panicking.rs:80:14
   2: server::parse
             at ./{file}:{line}:9
   3: server::serve::{{{{closure}}}}
             at ./src/server.rs:41:30
   4: core::future::future::poll::{{{{closure}}}}
             at /rustc/59807616e1fa/library/core/src/future/future.rs:133:9
   5: server::main::{{{{closure}}}}::{{{{closure}}}}
   6: trapline::user::program::program::{{{{closure}}}}::{{{{closure}}}}
             at ./src/user/program.rs:70:40"
        );
        assert_eq!(
            chain(&backtrace, here),
            "server::serve at src/server.rs:41, server::main"
        );
    }
}
