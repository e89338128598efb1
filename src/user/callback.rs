//! The callback style of scheduling: a callback is a task that somebody else starts.

use std::time::Duration;

use super::{os::Os, program::IntoExit};
use crate::abi::Tid;

/// Callbacks, in the manner of asyncio and of timers in browsers. Each is a task: to cancel it is
/// to [kill](Os::kill) it.
impl Os {
    /// Runs `callback` as soon as it is its turn; answers its task. The callback goes behind its
    /// caller: under first in, first out, what follows this call runs first, up to the next trap.
    /// Never blocks. At the kernel's limit of live tasks the callback is dropped, with a warning, and
    /// the answer is [`Tid::KERNEL`], which is no task.
    pub async fn call_soon<T: IntoExit>(
        &mut self,
        callback: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> Tid {
        self.call_back("call_soon", Duration::ZERO, callback).await
    }

    /// Runs `callback` when `delay` has passed, counted from this call; otherwise like
    /// [`Os::call_soon`], which a delay of zero is. (`setTimeout`.)
    pub async fn call_later<T: IntoExit>(
        &mut self,
        delay: Duration,
        callback: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> Tid {
        self.call_back("call_later", delay, callback).await
    }

    /// Runs `callback` each time `period` has passed, until it is killed; otherwise like
    /// [`Os::call_soon`]. It keeps to the beat: a late call does not delay the next. A period of
    /// zero counts as a millisecond: without one, no clock that waits for the tasks would ever
    /// move on. (`setInterval`, which does the same.)
    pub async fn call_every(
        &mut self,
        period: Duration,
        mut callback: impl AsyncFnMut(&mut Self) + 'static,
    ) -> Tid {
        let period = if period.is_zero() {
            Duration::from_millis(1)
        } else {
            period
        };
        let mut deadline = self.now().await.saturating_add(period);
        self.call_back("call_every", period, async move |os: &mut Self| {
            loop {
                callback(os).await;
                deadline = deadline.saturating_add(period);
                os.sleep_until(deadline).await;
            }
        })
        .await
    }

    async fn call_back<T: IntoExit>(
        &mut self,
        name: &str,
        delay: Duration,
        callback: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> Tid {
        let spawned = self.spawn_later(name, delay, callback).await;
        spawned.unwrap_or_else(|errno| {
            tracing::warn!(target: "trapline::kernel", "a callback of {name} is dropped: {errno}");
            Tid::KERNEL
        })
    }
}
