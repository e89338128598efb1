//! Guests: futures of other libraries in a task.
//!
//! A future of another library makes no trap. It is pending, and counts on its waker. [`Os::run_future`]
//! polls such a guest. While it is pending, its task makes one [`Os::select`] of what it waits for:
//! bytes, room, timers, its waker. So each byte crosses at a trap. The guest's side is a [`Foreign`],
//! which only leaves requests.
//!
//! | file | owns |
//! |---|---|
//! | `wakes.rs` | the waker |
//! | `hub.rs` | what the guest that is polled asks for: the ends of devices, timers, calls |
//! | `stream.rs`, `listener.rs`, `udp.rs`, `file.rs` | its devices |
//! | `timers.rs`, `sleep.rs` | its timers |
//! | `call.rs` | the tasks that it starts |
//! | `traits.rs` | the traits of hyper, futures and tokio |

mod call;
mod file;
mod hub;
mod listener;
mod sleep;
mod stream;
mod timers;
mod traits;
mod udp;
mod wakes;

use std::{
    mem,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use call::Awaited;
pub use call::ForeignTask;
pub use file::ForeignFile;
use hub::{Hub, Leaving};
pub use listener::ForeignListener;
pub use sleep::Sleep;
pub use stream::{ForeignStream, IntoForeign};
#[cfg(feature = "hyper")]
pub use traits::ForeignTimer;
pub use udp::ForeignUdp;
use wakes::{Bell, Wakes};

use super::{
    device::Device, disk::File, net::ListenerKind, os::Os, select::Source, udp::UdpSocket,
};
use crate::{
    interrupt::{External, ExternalWork},
    trap::Caller,
};

/// A guest that wakes itself is polled so often before its devices and timers have a look.
const MAX_POLLS: u32 = 64;

/// What a guest sees of the kernel, in [`Os::run_future`]: connections, timers, and calls.
///
/// It is a plain value, of which any guest may use any copy; futures that have one are `Send`, as axum
/// wants. It always means the guest that is polled. Where none is, its methods say so:
/// those for bytes by an error, the others by a panic.
#[derive(Clone, Copy, Debug)]
pub struct Foreign(());

impl Os {
    /// Runs a guest to its end: a future of another library, which counts on its waker. It reaches the
    /// world through the [`Foreign`] that it is given. *Blocks* as the guest does.
    ///
    /// Returns once what the guest has written is sent, too. A wake by another task takes effect at
    /// this task's next turn; several count as one. A guest that wakes itself yields between its polls.
    /// A guest that is pending and that no other task wakes is in a deadlock, and reports say so.
    ///
    /// A kill or a timeout drops the guest, with its timers and calls, and what it has written and not
    /// flushed. A panic of the guest is one of this task.
    ///
    /// A guest is as deterministic as a program, if it reads no clock, starts no thread, and hashes
    /// with fixed seeds. In a search, one that another thread wakes faults.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Foreign, Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let value = os.run_future(async |foreign: &Foreign| {
    ///         foreign.sleep(Duration::from_secs(5)).await;
    ///         foreign.call(async |os: &mut Os| os.get_tid().await).await
    ///     }).await;
    ///     assert_eq!((value, os.now().await), (2.into(), Duration::from_secs(5)));
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn run_future<T>(
        &mut self,
        body: impl AsyncFnOnce(&Foreign) -> T,
    ) -> impl Future<Output = T> {
        let place = self.note_caller();
        self.run_guest(place, None, body)
    }

    /// The same for a guest that other threads wake, such as those of a runtime beside the kernel. While
    /// it runs, the kernel waits for them and reports no deadlock, unless a daemon runs it. No seed
    /// repeats such a run.
    #[track_caller]
    pub fn run_future_with_threads<T>(
        &mut self,
        body: impl AsyncFnOnce(&Foreign) -> T,
    ) -> impl Future<Output = T> {
        let place = self.note_caller();
        let external = ExternalWork::new(&self.frame().remote, External::Setter);
        self.run_guest(place, Some(external), body)
    }

    async fn run_guest<T>(
        &mut self,
        place: Caller,
        _external: Option<ExternalWork>,
        body: impl AsyncFnOnce(&Foreign) -> T,
    ) -> T {
        let wakes = Wakes::new(self.frame());
        let _listed = wakes.list(self.frame());
        let mut bell = None;
        let hub = Hub::new(wakes.clone(), self.now().await, place);
        let _leaving = Leaving(&hub);
        let waker = Waker::from(wakes.clone());
        let foreign = Foreign(());
        let mut guest = pin!(body(&foreign));
        let (mut value, mut in_a_row, mut sources) = (None, 0u32, Vec::new());
        let mut is_due = true;
        loop {
            hub.note_look(self.frame());
            if mem::replace(&mut is_due, true) && value.is_none() {
                hub.check_wakes(self.frame());
                let poll = || guest.as_mut().poll(&mut Context::from_waker(&waker));
                if let Poll::Ready(done) = hub.enter(self.frame(), poll) {
                    value = Some(done);
                }
            }
            let has_written = hub.has_asked() && hub.work(self).await;
            let is_over = value.is_some();
            hub.note_look(self.frame());
            let is_again = wakes.take() && !is_over;
            in_a_row = if is_again { in_a_row + 1 } else { 0 };
            let has_a_look = in_a_row % MAX_POLLS == 0;
            if is_again && !(has_a_look && hub.has_sources()) {
                if !has_written {
                    self.frame().set_place(place);
                    self.yield_now().await;
                }
                if has_a_look {
                    hub.timers.advance(self.now().await);
                }
                continue;
            }
            let parks = !is_over && !is_again;
            if parks && bell.is_none() {
                bell = Some(Bell::new(self, &wakes).await);
            }
            // No trap comes between this and the select, so no other guest takes a device over meanwhile.
            sources.clear();
            hub.sources(self.frame(), is_over, &mut sources);
            let devices = sources.len();
            if devices == 0
                && let Some(value) = value.take()
            {
                return value;
            }
            if !is_over {
                sources.extend(hub.timers.deadline().map(Source::at));
            }
            if is_again {
                sources.push(Source::at(Duration::ZERO));
            } else if parks {
                sources.extend(bell.as_ref().map(Bell::source));
                if !wakes.park() {
                    continue;
                }
            }
            self.frame().set_place(place);
            let index = self.select_noted(0, &sources).await;
            hub.note_look(self.frame());
            let is_rung = parks && wakes.unpark();
            if index < devices {
                hub.serve(self, index).await;
            }
            if is_rung && let Some(bell) = &mut bell {
                bell.hear(self, &wakes).await;
            }
            hub.timers.advance(self.now().await);
            is_due = !hub.takes_loss();
        }
    }
}

impl Foreign {
    /// Makes a connection one for guests. See [`ForeignStream`].
    #[must_use]
    pub fn stream(&self, stream: impl IntoForeign) -> ForeignStream {
        ForeignStream::new(stream)
    }

    /// Makes a listener one for guests.
    #[must_use]
    pub fn listener<L: ListenerKind>(&self, listener: Device<L>) -> ForeignListener<L>
    where
        Device<L::Stream>: IntoForeign,
    {
        ForeignListener::new(listener)
    }

    /// Makes a UDP socket one for guests.
    #[must_use]
    pub fn udp(&self, socket: UdpSocket) -> ForeignUdp {
        ForeignUdp::new(socket)
    }

    /// Makes a file one for guests, at its beginning. See [`ForeignFile`].
    #[must_use]
    pub fn file(&self, file: File) -> ForeignFile {
        ForeignFile::new(file)
    }

    /// Returns the time since boot, as of the beginning of this poll.
    ///
    /// *Panics* where no guest is polled.
    #[must_use]
    pub fn now(&self) -> Duration {
        hub::required("Foreign::now").timers.now().into()
    }

    /// Sleeps for a span from this call on.
    pub fn sleep(&self, span: Duration) -> Sleep {
        Sleep::after(span)
    }

    /// Sleeps until an instant since boot.
    pub fn sleep_until(&self, instant: Duration) -> Sleep {
        Sleep::until(instant)
    }

    /// Makes calls of the kernel, in a task of their own, and returns their value. Dropping the future
    /// kills that task. It has the host and the limits of this one.
    ///
    /// *Panics* if that task is killed or panics, or there is no room for it; and where no guest is
    /// polled.
    pub async fn call<T: 'static>(&self, body: impl AsyncFnOnce(&mut Os) -> T + 'static) -> T {
        let mut task = Awaited(ForeignTask::begin("call".into(), body));
        let value = (&mut task.0).await;
        value.expect("the task of a Foreign::call ends by itself, and there is room for it")
    }

    /// Runs a guest in a task of its own, which lists and traces show by its name. It starts when this
    /// guest is pending or ends, and nothing but a kill ends it early. (The `spawn` of tokio.)
    ///
    /// *Panics* where no guest is polled.
    pub fn spawn<F: Future + 'static>(
        &self,
        name: impl Into<Box<str>>,
        future: F,
    ) -> ForeignTask<F::Output> {
        ForeignTask::begin(name.into(), async move |os: &mut Os| {
            os.run_future(async move |_: &Foreign| future.await).await
        })
    }

    /// Declares that this guest shares nothing with other tasks but what it calls. A search then knows
    /// that its turns commute with theirs. It counts as shared again while a call or a task that it has
    /// started is under way, and once another guest uses one of its devices.
    ///
    /// A guest that another task wakes all the same faults.
    ///
    /// *Panics* where no guest is polled.
    pub fn unshared(&self) {
        hub::required("Foreign::unshared").is_unshared.set(true);
    }
}
