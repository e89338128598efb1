//! Blocking work on threads, whose completion is an interrupt.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    os::{Os, carrying, checked},
    queue::Queue,
};
use crate::{
    abi::SystemCall,
    interrupt::{External, ExternalWork, Job},
    panic::{lock, panic_message},
    trap::{Caller, Kind, Payload, pause::paused},
};

/// Blocking work panicked with this message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("panicked: {0}")]
pub struct Panicked(pub String);

impl Os {
    /// Runs `work` on a separate thread, and returns its result. Other tasks continue meanwhile.
    /// This is for calls that the kernel cannot watch: a file, a name look-up, a long computation.
    ///
    /// *Blocks* until the work is done. The simulated world runs the work in place; only a
    /// [`pause`](crate::pause()) delays the result there. If the task is killed, the work runs to its
    /// end and its result is dropped.
    ///
    /// At most 16 jobs of one task run at once; further jobs wait. A job whose call was cut by a
    /// timeout counts until it ends.
    ///
    /// A replay of a [tape](mod@crate::tape) runs the work again; `Os::run_recorded` takes its value
    /// from the tape.
    ///
    /// *Errors:* [`Panicked`] with the message, if the work panicked.
    #[track_caller]
    pub fn run_blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Panicked>> {
        let place = self.note_caller();
        self.run_blocking_at(place, work)
    }

    pub(super) async fn run_blocking_at<T: Send + 'static>(
        &mut self,
        place: Caller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let done = Queue::<()>::required(self, Kind::Job, None).await;
        let (remote, queue) = (self.frame().remote.clone(), done.id());
        let external = ExternalWork::new(&remote, External::Job);
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        let job: Job = Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work))
                .map_err(|panic| Panicked(panic_message(panic)));
            *lock(&slot) = Some((outcome, paused()));
            remote.ring(queue);
            drop(external);
        });
        // The world runs the job even if it cannot start a thread, so this call does not fail.
        let submit = carrying(SystemCall::Submit, Payload::Job(job));
        let _ = self.call(submit, checked).await;
        // The result of another thread counts once the kernel has its interrupt. So a run does not
        // depend on the speed of the thread.
        let in_place = lock(&result).take_if(|(_, pause)| pause.is_some());
        if let Some((outcome, pause)) = in_place {
            let pause = pause.unwrap_or_default();
            if pause > Duration::ZERO {
                self.frame().set_place(place);
                self.sleep_noted(SystemCall::Sleep(pause.into())).await;
            }
            return outcome;
        }
        // The thread closes the queue when the job is done.
        self.frame().set_place(place);
        let _ = done.take(self).await;
        let result = lock(&result).take().map(|(outcome, _)| outcome);
        result.unwrap_or_else(|| Err(Panicked("the thread did not come back".into())))
    }
}
