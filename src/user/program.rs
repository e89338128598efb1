//! A program: an async closure over [`Os`], made into a generator; and the types it may return.

use std::rc::Rc;

use genawaiter::rc::{Co, Gen};

use super::os::Os;
use crate::{
    abi::{Exit, SystemCall},
    trap::{Program, TrapFrame},
};

/// A type that a program may return. These are `()`, `Result<(), E>` with an error that implements
/// `Display`, and `!`, as in `async |os| loop { .. }`.
#[diagnostic::on_unimplemented(
    message = "a program cannot return `{Self}`",
    label = "this program returns `{Self}`",
    note = "a program returns (), or Result<(), E> with an error that can be shown; for a result, \
            start it with Os::spawn_child, put it into a Queue or set a Promise"
)]
pub trait IntoExit {
    /// Returns the exit of a task whose program returned this.
    fn into_exit(self) -> Exit;
}

impl IntoExit for () {
    fn into_exit(self) -> Exit {
        Exit::Done
    }
}

impl<E: std::fmt::Display> IntoExit for Result<(), E> {
    fn into_exit(self) -> Exit {
        match self {
            Ok(()) => Exit::Done,
            Err(error) => Exit::Failed(error.to_string()),
        }
    }
}

/// `!`, the type of `loop { .. }`. Stable Rust has no other name for it.
impl IntoExit for <fn() -> ! as Returns>::Type {
    fn into_exit(self) -> Exit {
        self
    }
}

/// Names the type that a function returns.
#[doc(hidden)]
pub trait Returns {
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

/// Makes a program from an async closure.
pub(crate) fn program<T: IntoExit>(
    frame: &Rc<TrapFrame>,
    body: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> Program {
    let frame = Rc::clone(frame);
    Box::pin(Gen::new(move |co: Co<SystemCall, ()>| {
        // Made outside the async block, which then stores the `Os` and not also its parts.
        let mut os = Os::new(co, frame);
        async move {
            let value = body(&mut os).await;
            leave_exit(&os, value);
        }
    }))
}

/// Leaves the exit in the frame. A function apart, so that a turn need not save registers for it.
#[cold]
#[inline(never)]
fn leave_exit<T: IntoExit>(os: &Os, value: T) {
    os.frame().put_exit(value.into_exit());
}
