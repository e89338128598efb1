//! Panics of a trial: they print nothing, and their place in the source is kept.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe, Location, catch_unwind},
    sync::Once,
};

use crate::{Kernel, Place};

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body`. A panic becomes an error: its message, and its place in the source.
///
/// A search contains thousands of panics, of which it reports one. So the first call installs a
/// panic hook, which stays. It passes on the panics outside of a trial.
pub(super) fn contain<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_QUIET.get() {
                PLACE.set(info.location().map(text_of));
                Kernel::note_panic(info);
            } else {
                before(info);
            }
        }));
    });
    let outer = IS_QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    IS_QUIET.set(outer);
    let place = PLACE.take();
    result.map_err(|panic| {
        let place = place.map_or(String::new(), |place| format!("\n  at {place}"));
        format!("{}{place}", message(&*panic))
    })
}

/// Names a place as others are named, without detours, and with its column.
fn text_of(location: &Location<'_>) -> String {
    let place = Place {
        file: location.file().to_string().into(),
        line: location.line(),
        ..Place::default()
    };
    format!("{place}:{}", location.column())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else {
        "panicked with a value that is not text"
    }
}
