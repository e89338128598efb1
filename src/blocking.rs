//! Work on threads that completes as an interrupt.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    abi::SystemCall,
    frame::{Job, Payload},
    interrupt::Expected,
    os::{Os, checked},
    pause::paused,
    queue::Queue,
    task::panic_message,
};

/// Work on a thread panicked, with this message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("panicked: {0}")]
pub struct Panicked(pub String);

pub(crate) async fn run_blocking<T: Send + 'static>(
    os: &mut Os,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Panicked> {
    let done = Queue::<()>::unbounded(os).await;
    let (remote, queue) = (os.frame().remote.clone(), done.id());
    let expected = Expected::new(&remote);
    let result = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&result);
    let job: Job = Box::new(move || {
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let outcome = outcome.map_err(|panic: Box<dyn Any + Send>| Panicked(panic_message(panic)));
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((outcome, paused()));
        remote.ring(queue);
        drop(expected);
    });
    let submit = |frame: &crate::frame::Frame| {
        frame.put(Payload::Job(job));
        SystemCall::Submit
    };
    // The job is run even where no thread can be had for it, so this has nothing to refuse.
    let _ = os.call(submit, checked).await;
    let take = || result.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((outcome, pause)) = take() {
        // It has run in place.
        if pause > Duration::ZERO {
            os.sleep(pause).await;
        }
        return outcome;
    }
    // The thread has it closed.
    let _ = done.get(os).await;
    take().map_or_else(
        || Err(Panicked("the thread did not come back".into())),
        |(outcome, _)| outcome,
    )
}
