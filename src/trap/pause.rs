//! Pauses of blocking work, on the clock of the world that runs it. Work runs on any thread and
//! receives no handle, so a thread-local variable says how it pauses.

use std::{cell::Cell, thread, time::Duration};

thread_local! {
    static PAUSES: Cell<Pauses> = const { Cell::new(Pauses::Sleep) };
}

#[derive(Clone, Copy)]
enum Pauses {
    /// It blocks the thread.
    Sleep,
    /// It is added to the pauses of the work that runs in place.
    Sum(Duration),
    /// Nothing: the work runs again, and took its time before.
    Skip,
}

/// Pauses blocking work of [`Os::run_blocking`](crate::Os::run_blocking) for `span`.
///
/// In the real world it blocks the thread, as [`std::thread::sleep`] does. The simulated world runs
/// work in place: there `pause` returns at once, and the task receives the result after `span` on
/// the virtual clock. Only the result is delayed, and no value for a
/// [`RemoteSetter`](crate::RemoteSetter). In a task, which calls [`Os::sleep`](crate::Os::sleep)
/// instead, it blocks every task.
///
/// ```
/// use std::time::Duration;
/// use trapline::{Kernel, Os};
///
/// let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let read = || {
///         trapline::pause(Duration::from_secs(3600)); // a slow disk
///         42
///     };
///     assert_eq!(os.run_blocking(read).await, Ok(42));
///     assert_eq!(os.now().await, Duration::from_secs(3600));
/// })?;
/// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pause(span: Duration) {
    match PAUSES.get() {
        Pauses::Sleep => thread::sleep(span),
        Pauses::Sum(sum) => PAUSES.set(Pauses::Sum(sum.saturating_add(span))),
        Pauses::Skip => {}
    }
}

/// Runs work on the kernel's thread, which its pauses must not block: they are added up.
pub(crate) fn in_place(job: impl FnOnce()) {
    with(Pauses::Sum(Duration::ZERO), job);
}

/// Runs work again that another thread did before. Its pauses take no time.
pub(crate) fn again(job: impl FnOnce()) {
    with(Pauses::Skip, job);
}

fn with(pauses: Pauses, job: impl FnOnce()) {
    /// Work may run a kernel, whose work also runs in place.
    struct Outer(Pauses);

    impl Drop for Outer {
        fn drop(&mut self) {
            PAUSES.set(self.0);
        }
    }

    let _outer = Outer(PAUSES.replace(pauses));
    job();
}

/// Returns the sum of the pauses of the work that runs in place; `None` for other work.
pub(crate) fn paused() -> Option<Duration> {
    match PAUSES.get() {
        Pauses::Sum(sum) => Some(sum),
        Pauses::Sleep | Pauses::Skip => None,
    }
}

#[cfg(feature = "serde")]
pub(crate) fn is_again() -> bool {
    matches!(PAUSES.get(), Pauses::Skip)
}
