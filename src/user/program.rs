//! A program: an async closure over [`Os`], made into a generator; and the types it may return.

use std::{
    marker::PhantomPinned,
    mem::ManuallyDrop,
    panic::catch_unwind,
    pin::Pin,
    process,
    rc::Rc,
    task::{Context, Poll},
};

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
    // its own future. If programs exchange theirs, the drop of the first one with the `Os` of another ends
    // the process.
    unsafe { Shelved::pin(move |co| Life::new(Os::new(co, frame), move |os| body(os))) }
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

/// A program: its handle, and its body or what that has become. An async block would need no unsafe code here.
/// It would keep the body beside its future, and a state of its own, which each turn reads.
struct Life<B, F> {
    stage: Stage<B, F>,
    handle: Handle,
    /// No `&mut Self` is unique: the future refers to the handle.
    _pinned: PhantomPinned,
}

union Stage<B, F> {
    /// Before the first turn. `None` if the body has panicked before it returned a future, and once that is
    /// over.
    body: ManuallyDrop<Option<B>>,
    /// From the first turn to the last.
    future: ManuallyDrop<F>,
}

/// An `Os`, and while the stage is a future, the frame of that `Os`.
struct Handle {
    os: Os,
    begun: Option<&'static TrapFrame>,
}

impl<B: FnOnce(&'static mut Os) -> F, F> Life<B, F> {
    fn new(os: Os, body: B) -> Self {
        let body = ManuallyDrop::new(Some(body));
        Self {
            stage: Stage { body },
            handle: Handle { os, begun: None },
            _pinned: PhantomPinned,
        }
    }

    /// Calls the body. One that is no async closure may have code before its future.
    ///
    /// # Safety
    ///
    /// The stage is the body, and this value is pinned.
    #[expect(unsafe_code, reason = "the future refers to the handle beside it")]
    #[inline(always)]
    unsafe fn begin(&mut self) {
        // SAFETY: the stage is the body. The handle is pinned, and dropped after the future. Until then the
        // future alone refers to its `Os`. That keeps the frame, also in the place of another one.
        let (body, frame, os) = unsafe {
            let os = &raw mut self.handle.os;
            (*os).settle();
            let frame = Rc::as_ptr((*os).frame());
            (&mut *self.stage.body, &*frame, &mut *os)
        };
        let body = body.take().expect("a program that is over has no turn");
        let future = ManuallyDrop::new(within(&Some(frame), || body(os)));
        self.stage = Stage { future };
        self.handle.begun = Some(frame);
    }
}

impl<B, F: Future<Output: IntoExit>> Life<B, F> {
    /// Drops the future, which has returned this, and leaves the exit in the frame. A future by hand may have
    /// destructors left: they are part of its last turn. A function apart, so that a turn need not save
    /// registers for it.
    ///
    /// # Safety
    ///
    /// The stage is the future.
    #[expect(unsafe_code, reason = "the union does not know what it is")]
    #[cold]
    #[inline(never)]
    unsafe fn finish(&mut self, value: F::Output) {
        /// Makes the stage an empty body, also when the drop of the future panics.
        struct Over<'a, B, F>(&'a mut Stage<B, F>);

        impl<B, F> Drop for Over<'_, B, F> {
            fn drop(&mut self) {
                self.0.body = ManuallyDrop::new(None);
            }
        }

        let frame = self.handle.begun.take();
        let exit = within(&frame, || {
            let over = Over(&mut self.stage);
            // SAFETY: the stage is the future, and none from now on.
            unsafe { ManuallyDrop::drop(&mut over.0.future) };
            drop(over);
            // The text of an error may panic.
            value.into_exit()
        });
        if let Some(frame) = frame {
            frame.put_exit(exit);
        }
    }
}

impl<B, F> Future for Life<B, F>
where
    B: FnOnce(&'static mut Os) -> F,
    F: Future<Output: IntoExit>,
{
    type Output = ();

    #[expect(unsafe_code, reason = "the future refers to the handle beside it")]
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: only the body is moved, which is never pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if this.handle.begun.is_none() {
            // SAFETY: the stage is the body.
            unsafe { this.begin() };
        }
        // SAFETY: the stage is the future, which stays where it is.
        let future = unsafe { Pin::new_unchecked(&mut *this.stage.future) };
        let polled = within(&this.handle.begun, || future.poll(context));
        // SAFETY: the stage is the future.
        polled.map(|value| unsafe { this.finish(value) })
    }
}

impl<B, F> Drop for Life<B, F> {
    #[expect(unsafe_code, reason = "the union does not know what it is")]
    fn drop(&mut self) {
        // SAFETY: `begun` says what the stage is. It is not used again.
        unsafe {
            match self.handle.begun {
                None => ManuallyDrop::drop(&mut self.stage.body),
                Some(_) => ManuallyDrop::drop(&mut self.stage.future),
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Another one may have the same frame: three programs can exchange theirs in a ring, two of them tasks
        // of one kernel. It has its place from before the body, which may exchange it and panic.
        if self.os.is_away() {
            exchanged();
        }
    }
}

/// Ends the process: two programs have exchanged their handles. The other program would write to the
/// memory of this one, which is freed.
#[cold]
fn exchanged() -> ! {
    // A text that cannot be printed panics. That must not unwind from here.
    let why = "trapline: a program has exchanged its Os for that of another program";
    drop(catch_unwind(|| eprintln!("{why}")));
    process::abort()
}

/// Runs code of a program. The frame says afterwards whether a panic has unwound through it. The frame is
/// by reference, so that a turn keeps no register for it.
#[inline(always)]
fn within<T>(frame: &Option<&TrapFrame>, run: impl FnOnce() -> T) -> T {
    struct Unwound<'a>(&'a Option<&'a TrapFrame>);

    impl Drop for Unwound<'_> {
        fn drop(&mut self) {
            if let Some(frame) = self.0 {
                frame.unwound.set(true);
            }
        }
    }

    let unwound = Unwound(frame);
    let value = run();
    std::mem::forget(unwound);
    value
}
