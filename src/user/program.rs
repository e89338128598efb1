//! A program: an async closure over [`Os`], made into a generator; and the types it may return.

use std::{marker::PhantomPinned, pin::Pin, rc::Rc};

use genawaiter::{
    Coroutine, GeneratorState,
    stack::{Co, Gen, Shelf},
};

use super::os::Os;
use crate::{
    abi::{Exit, SystemCall},
    trap::{Program, TrapFrame},
};

/// A type that a program may return: `()`, `Result<(), E>` with an error that implements `Display`, and
/// `!`, as in `async |os| loop { .. }`.
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
#[expect(
    unsafe_code,
    reason = "a program takes one allocation instead of three"
)]
pub(crate) fn program<T: IntoExit>(
    frame: &Rc<TrapFrame>,
    body: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> Program {
    let frame = Rc::clone(frame);
    // SAFETY: the `Co` is in the `Os`, which the future owns. The body has only a reference, as long as
    // its own future. If it exchanges the `Os` for another one, the drop of the first of the two ends
    // the process.
    unsafe {
        Shelved::pin(move |co| {
            // Made outside the async block, which then stores the `Os` and not also its parts.
            let mut os = Os::new(co, frame);
            async move {
                os.settle();
                let value = body(&mut os).await;
                leave_exit(&os, value);
            }
        })
    }
}

/// A generator, and the shelf with its airlock and its future: one allocation, where
/// `genawaiter::rc` takes three. `docs/price.md` has the figures.
struct Shelved<F: Future<Output = ()> + 'static> {
    /// Refers to the shelf. It comes first, and so is dropped first.
    generator: Gen<'static, SystemCall, (), F>,
    shelf: Shelf<SystemCall, (), F>,
    /// No `&mut Self` is unique: the generator refers into it.
    pinned: PhantomPinned,
}

#[expect(unsafe_code, reason = "the generator refers to the shelf beside it")]
impl<F: Future<Output = ()>> Shelved<F> {
    /// Makes a generator of the future that `producer` returns.
    ///
    /// # Safety
    ///
    /// The `Co` must not outlive this future.
    unsafe fn pin(producer: impl FnOnce(Co<'static, SystemCall, ()>) -> F) -> Pin<Box<Self>> {
        let mut memory = Box::<Self>::new_uninit();
        let this = memory.as_mut_ptr();
        // SAFETY: the shelf lives as long as the generator, and stays where it is: both are in one
        // pinned allocation, and the generator is dropped first. All fields are written before
        // `assume_init`.
        unsafe {
            (&raw mut (*this).shelf).write(Shelf::new());
            let generator = Gen::new(&mut (*this).shelf, producer);
            (&raw mut (*this).generator).write(generator);
            (&raw mut (*this).pinned).write(PhantomPinned);
            Box::into_pin(memory.assume_init())
        }
    }
}

impl<F: Future<Output = ()>> Coroutine for Shelved<F> {
    type Yield = SystemCall;
    type Resume = ();
    type Return = ();

    #[expect(unsafe_code, reason = "the generator refers to the shelf beside it")]
    fn resume_with(self: Pin<&mut Self>, (): ()) -> GeneratorState<SystemCall, ()> {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        this.generator.resume_with(())
    }
}

/// Leaves the exit in the frame. A function apart, so that a turn need not save registers for it.
#[cold]
#[inline(never)]
fn leave_exit<T: IntoExit>(os: &Os, value: T) {
    os.frame().put_exit(value.into_exit());
}
