//! A flag for which tasks wait.

use crate::{
    trap::{Effect, Kind},
    user::{os::Os, queue::Queue},
};

/// A flag for which tasks wait. While it is set, no task waits; while it is clear, every task
/// waits.
///
/// ```
/// # use trapline::{Errno, Kernel, Os, sync::Flag};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let open = Flag::new(os).await;
///     let theirs = open.clone();
///     let guest = os.spawn("guest", async move |os| theirs.wait(os).await).await?;
///     open.set(os).await;
///     os.wait(guest).await?;
///     Ok::<(), Errno>(())
/// })?;
/// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Flag {
    /// Closed while the flag is set.
    gate: Queue<()>,
}

impl Flag {
    /// Makes a flag that is not set. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self::maybe_named(os, None).await
    }

    /// Makes a flag with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str) -> Self {
        Self::maybe_named(os, Some(name)).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>) -> Self {
        let gate = Queue::required(os, Kind::Flag, name).await;
        Self { gate }
    }

    /// Returns the gate. Faults a caller of another kernel.
    fn gate_in(&self, os: &Os) -> &Queue<()> {
        self.gate.require_home(os, "the flag");
        &self.gate
    }

    /// Returns the queue that is closed while the flag is set.
    pub(crate) fn gate(&self) -> &Queue<()> {
        &self.gate
    }

    /// Sets the flag, and wakes every waiting task. Never blocks.
    #[track_caller]
    pub fn set(&self, os: &mut Os) -> impl Future<Output = ()> {
        let is_left_out = os.leaves_out(Effect::Set);
        async move {
            let gate = self.gate_in(os);
            match is_left_out {
                true => os.nothing().await,
                false => gate.close(os).await,
            }
        }
    }

    /// Clears the flag. Never blocks.
    pub async fn clear(&self, os: &mut Os) {
        self.gate_in(os).open(os).await;
    }

    /// Waits for the flag. *Blocks* while it is not set.
    #[track_caller]
    pub fn wait(&self, os: &mut Os) -> impl Future<Output = ()> {
        os.note_caller();
        async {
            let _ = self.gate_in(os).take(os).await;
        }
    }

    /// Returns whether the flag is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.gate.is_closed()
    }
}
