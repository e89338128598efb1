//! The callback style of scheduling: each callback is a task.

use std::time::Duration;

use super::{os::Os, program::IntoExit};
use crate::{
    abi::{Nanos, SystemCall, Tid},
    trap::{Options, Start},
};

/// Callbacks, in the manner of asyncio and browsers. Each is a task; [`Os::kill`] cancels it.
impl Os {
    /// Runs `callback` as a new task, and returns its number. Its first turn comes after the next turn
    /// of the caller, under first in, first out. Never blocks. At the kernel's limit of live tasks this
    /// drops the callback with a warning, and returns [`Tid::KERNEL`].
    #[track_caller]
    pub fn call_soon<T: IntoExit>(
        &mut self,
        callback: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Tid> {
        self.note_caller();
        self.call_back("call_soon", Duration::ZERO, callback)
    }

    /// Runs `callback` after `delay`, counted from this call. Otherwise like [`Os::call_soon`], to
    /// which a delay of zero is equal. (`setTimeout`.)
    #[track_caller]
    pub fn call_later<T: IntoExit>(
        &mut self,
        delay: Duration,
        callback: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Tid> {
        self.note_caller();
        self.call_back("call_later", delay, callback)
    }

    /// Runs `callback` each time `period` has passed, until the task is killed. Otherwise like
    /// [`Os::call_soon`]. The period is exact: a late call does not delay the next one.
    ///
    /// A period of zero counts as a millisecond: otherwise a virtual clock would stop.
    /// (`setInterval` does the same.)
    #[track_caller]
    pub fn call_every(
        &mut self,
        period: Duration,
        mut callback: impl AsyncFnMut(&mut Self) + 'static,
    ) -> impl Future<Output = Tid> {
        let place = self.note_caller();
        let period = match period {
            Duration::ZERO => Duration::from_millis(1),
            period => period,
        };
        async move {
            let mut deadline = self.now().await.saturating_add(period);
            self.frame().set_place(place);
            self.call_back("call_every", period, async move |os: &mut Self| {
                loop {
                    callback(os).await;
                    deadline = deadline.saturating_add(period);
                    os.frame().set_place(place);
                    os.sleep_noted(SystemCall::SleepUntil(deadline.into()))
                        .await;
                }
            })
            .await
        }
    }

    async fn call_back<T: IntoExit>(
        &mut self,
        name: &str,
        delay: Duration,
        callback: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> Tid {
        let start = match Nanos::from(delay) {
            Nanos::ZERO => Start::Behind,
            delay => Start::After(delay),
        };
        let options = Options {
            start,
            ..Options::default()
        };
        let spawned = self.new_task(SystemCall::NewDetachedTask, name, callback, Some(options));
        spawned.await.unwrap_or_else(|errno| {
            tracing::warn!(target: "trapline::kernel", "a callback of {name} is dropped: {errno}");
            Tid::KERNEL
        })
    }
}
