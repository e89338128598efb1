//! Containment of panics: the text and the place of a panic, and destructors that may panic.
//!
//! Uses nothing of the crate.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    cell::RefCell,
    panic::{self, AssertUnwindSafe, Location, PanicHookInfo, catch_unwind},
    sync::{Mutex, MutexGuard, Once, PoisonError},
    thread,
};

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Returns the text of a panic. A payload whose destructor panics is leaked.
pub(crate) fn panic_message(panic: Panic) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text
        .unwrap_or("panicked with a value that is not text")
        .to_string();
    if let Err(worse) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(worse);
    }
    message
}

/// Locks a mutex, also after a panic of a thread that held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            note(panic, origin_chain);
            hook(panic);
        }));
    });
}

/// Notes the place of a panic, for a hook that does not call the hook of [`note_origins`].
pub(crate) fn note_origin(panic: &PanicHookInfo<'_>) {
    note(panic, |_| String::new());
}

fn note(panic: &PanicHookInfo<'_>, chain: fn(&Location<'_>) -> String) {
    let origin = panic.location().map(|location| Origin {
        file: location.file().to_string(),
        line: location.line(),
        chain: chain(location),
    });
    ORIGIN.set(origin);
}

pub(crate) fn take_origin() -> Option<Origin> {
    ORIGIN.take()
}

fn origin_chain(location: &Location<'_>) -> String {
    // Empty unless `RUST_BACKTRACE` asks for it.
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => chain(&backtrace.to_string(), location),
        _ => String::new(),
    }
}

/// Extracts the chain of async functions from a backtrace: the closures between the panic and the
/// kernel. The standard library has no stable access to the frames but their text. That is a line
/// with a number and a name, and mostly one with `at` and a place.
fn chain(backtrace: &str, location: &Location<'_>) -> String {
    let mut frames = frames(backtrace);
    let panicked = format!("{}:{}", location.file(), location.line());
    let hook = |(name, _): &(&str, &str)| name.contains("rust_begin_unwind");
    let begin = frames.iter().position(hook).unwrap_or(0);
    // The stubs of this crate are left out, and the chain ends at the first function of a task.
    let stubs = stubs();
    let mut chain: Vec<String> = Vec::new();
    for (name, place) in frames.split_off(begin) {
        if name.contains("genawaiter") || place.contains(&format!("{stubs}program.rs")) {
            break;
        }
        if !is_async(name) || place.contains(&stubs) {
            continue;
        }
        // The macro that panics may be inlined, and has a place of its own.
        let is_known = !place.is_empty() && !place.starts_with("/rustc/");
        let place = match (is_known, chain.is_empty()) {
            (true, _) => place,
            (false, true) => &panicked,
            (false, false) => "",
        };
        let place = Some(place.to_string()).filter(|place| !place.is_empty());
        let parts: Vec<String> = function(name).into_iter().chain(place).collect();
        if !parts.is_empty() {
            chain.push(parts.join(" at "));
        }
    }
    chain.join(", ")
}

/// Returns the place of the innermost async function of a backtrace, apart from the stubs of this
/// crate.
pub(crate) fn awaiting(backtrace: &str) -> Option<String> {
    let stubs = stubs();
    let frames = frames(backtrace).into_iter();
    let mut frames = frames.take_while(|(name, _)| !name.starts_with("genawaiter"));
    let is_ours =
        |place: &str| place.is_empty() || place.contains(&stubs) || place.starts_with("/rustc/");
    let innermost = frames.find(|(name, place)| is_async(name) && !is_ours(place));
    innermost.map(|(_, place)| place.to_string())
}

fn stubs() -> String {
    format!("{}user/", file!().trim_end_matches("panic.rs"))
}

/// Returns the frames of a backtrace, the innermost first: name, and place without column.
fn frames(backtrace: &str) -> Vec<(&str, &str)> {
    let mut frames: Vec<(&str, &str)> = Vec::new();
    for line in backtrace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                // Without the column.
                let place = place.rsplit_once(':').map_or(place, |(place, _)| place);
                frame.1 = place.strip_prefix("./").unwrap_or(place);
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            // A part of an async closure that is kept in a variable. With line tables alone it has no name.
            let name = name.strip_suffix("::{{synthetic}}").unwrap_or(name);
            frames.push((name, ""));
        }
    }
    frames
}

/// Returns whether a frame is of an async function or closure, and not of the standard library.
/// Its name ends with a closure. With line tables alone, it is a word in braces.
fn is_async(name: &str) -> bool {
    let path = name.trim_start_matches('<');
    let mut foreign = ["core::", "std::", "alloc::"].iter();
    !foreign.any(|room| path.starts_with(room))
        && (name.ends_with("::{{closure}}") || name.starts_with('{'))
}

/// Returns the name of the function of a frame, if it has one. A method of a trait has the name
/// `<Type as Trait>::method`; the trait is left out.
fn function(name: &str) -> Option<String> {
    let function = name.strip_suffix("::{{closure}}")?;
    let function = function.trim_end_matches("::{{closure}}");
    let Some(method) = function.strip_prefix('<') else {
        return Some(function.to_string());
    };
    let (kind, of_trait) = method.split_once(" as ")?;
    let (_, method) = of_trait.rsplit_once(">::")?;
    Some(format!("{kind}::{method}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_of_a_backtrace_is_its_async_functions_up_to_the_kernel() {
        let here = Location::caller();
        let (file, line) = (here.file(), here.line());
        let backtrace = "   0: trapline::panic::note_origins::{{closure}}
             at ./src/panic.rs:65:43
   1: __rustc::rust_begin_unwind
             at /rustc/59807616e1fa/library/std/src/panicking.rs:689:5
   2: core::panicking::panic_fmt
             at /rustc/59807616e1fa/library/core/src/panicking.rs:80:14
   3: server::parse::{{closure}}
             at /rustc/59807616e1fa/library/core/src/panic.rs:62:9
   4: trapline::user::time::<impl trapline::user::os::Os>::timeout::{{closure}}
             at ./src/user/time.rs:110:30
   5: <server::Echo as trapline_cli::program::Program>::main::{{closure}}::{{closure}}::{{synthetic}}
             at ./src/server.rs:41:30
   6: core::future::future::poll::{{closure}}
             at /rustc/59807616e1fa/library/core/src/future/future.rs:133:9
   7: server::sum
             at ./src/server.rs:9:1
   8: server::main::{{closure}}::{{closure}}
   9: {async_fn#0}
             at ./src/main.rs:5:1
  10: {async_block#0}<!, server::{closure_env#0}>
             at ./src/user/program.rs:68:38
  11: genawaiter::core::advance
             at /root/.cargo/genawaiter-0.99.1/src/core.rs:34:18
  12: server::run::{{closure}}
             at ./src/server.rs:3:1";
        assert_eq!(
            chain(backtrace, here),
            format!(
                "server::parse at {file}:{line}, server::Echo::main at src/server.rs:41, \
                 server::main, src/main.rs:5"
            )
        );
    }
}
