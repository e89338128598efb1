//! Work on threads that completes as an interrupt.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    os::{Os, checked},
    queue::Queue,
};
use crate::{
    abi::SystemCall,
    interrupt::{Expected, External, Job},
    panic::panic_message,
    pause::paused,
    trap::{Payload, TrapFrame},
};

/// Work on a thread panicked, with this message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("panicked: {0}")]
pub struct Panicked(pub String);

impl Os {
    /// Runs `work` on a thread of its own and answers what it returns, so that a call which the
    /// kernel cannot watch (a file, a name look-up, a long computation) holds up nobody else.
    /// *Blocks* until it is done; that is an interrupt, which wakes a sleeping kernel. The
    /// simulated world runs it in place; there only a [`pause`](crate::pause()) delays the result.
    /// Work whose task is killed runs to its end unheard.
    ///
    /// At most 16 pieces of work of one task are under way; work that a timeout cut short counts until
    /// it ends. Further work waits for one of them.
    ///
    /// *Errors:* [`Panicked`] with the message, if it panicked.
    pub async fn run_blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let done = Queue::<()>::required(self, u64::MAX, "a job").await;
        let (remote, queue) = (self.frame().remote.clone(), done.id());
        let expected = Expected::new(&remote, External::Job);
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        let job: Job = Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            let outcome =
                outcome.map_err(|panic: Box<dyn Any + Send>| Panicked(panic_message(panic)));
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((outcome, paused()));
            remote.ring(queue);
            drop(expected);
        });
        let submit = |frame: &TrapFrame| {
            frame.put(Payload::Job(job));
            SystemCall::Submit
        };
        // The job is run even where no thread can be had for it, so this has nothing to refuse.
        let _ = self.call(submit, checked).await;
        let lock = || result.lock().unwrap_or_else(PoisonError::into_inner);
        // A result of another thread counts once the kernel has its interrupt, and not before: a run
        // must not depend on how fast the thread was.
        let in_place = lock().take_if(|(_, pause)| pause.is_some());
        if let Some((outcome, pause)) = in_place {
            let pause = pause.unwrap_or_default();
            if pause > Duration::ZERO {
                self.sleep(pause).await;
            }
            return outcome;
        }
        // The thread has it closed.
        let _ = done.get(self).await;
        let result = lock().take();
        result.map_or_else(
            || Err(Panicked("the thread did not come back".into())),
            |(outcome, _)| outcome,
        )
    }
}
