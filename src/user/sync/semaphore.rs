//! A semaphore: a number of permits.

use crate::{
    trap::{Effect, Kind},
    user::{
        os::Os,
        queue::{Closed, Queue},
    },
};

/// A number of permits. A task that finds none waits. First come, first served.
///
/// ```
/// # use trapline::{Closed, Kernel, Os, sync::Semaphore};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let semaphore = Semaphore::new(os, 2).await;
///     let permit = semaphore.acquire(os).await?;
///     drop(permit); // gives it back, and so does the end of the task
///     Ok::<(), Closed>(())
/// })?;
/// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    permits: Queue<()>,
}

/// Permits of a [`Semaphore`]. Dropping it returns them.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit {
    permits: Queue<()>,
    count: usize,
    /// Whether it was taken, so that it is given back.
    is_taken: bool,
}

impl Semaphore {
    /// Makes a semaphore with this number of permits. Never blocks.
    pub async fn new(os: &mut Os, permits: usize) -> Self {
        Self::maybe_named(os, None, permits).await
    }

    /// Makes a semaphore with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, permits: usize) -> Self {
        Self::maybe_named(os, Some(name), permits).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, permits: usize) -> Self {
        let permits = Queue::required_with(os, Kind::Semaphore, name, permits as u64).await;
        Self { permits }
    }

    /// Takes a permit. *Blocks* while there is none.
    ///
    /// *Errors:* [`Closed`] in a kernel other than its own.
    #[track_caller]
    pub fn acquire(&self, os: &mut Os) -> impl Future<Output = Result<Permit, Closed>> {
        self.acquire_many(os, 1)
    }

    /// Takes so many permits, all at once. *Blocks* while there are fewer; for ever if the semaphore never
    /// had as many. A task that asks for few waits behind one that asked for many before, and one that asks
    /// for none does not wait. (tokio's `acquire_many`.)
    ///
    /// ```
    /// # use trapline::{Closed, Kernel, Os, sync::Semaphore};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let memory = Semaphore::new(os, 100).await;
    ///     let most = memory.acquire_many(os, 70).await?;
    ///     assert!(memory.try_acquire_many(os, 31).await.is_none());
    ///     drop(most);
    ///     assert_eq!(memory.available(), 100);
    ///     Ok::<(), Closed>(())
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// *Errors:* [`Closed`] in a kernel other than its own.
    #[track_caller]
    pub fn acquire_many(
        &self,
        os: &mut Os,
        permits: usize,
    ) -> impl Future<Output = Result<Permit, Closed>> {
        os.note_caller();
        let is_left_out = os.leaves_out(Effect::Acquire);
        async move {
            if is_left_out {
                os.nothing().await;
                return Ok(self.permit(permits, false));
            }
            self.permits.take_permits(os, permits as u64).await?;
            Ok(self.taken(permits))
        }
    }

    /// Takes a permit if there is one. Never blocks.
    pub async fn try_acquire(&self, os: &mut Os) -> Option<Permit> {
        self.try_acquire_many(os, 1).await
    }

    /// Takes so many permits, if there are as many and no task waits; none are always there. Never blocks.
    pub async fn try_acquire_many(&self, os: &mut Os, permits: usize) -> Option<Permit> {
        self.permits.require_home(os, "the semaphore");
        let taken = self.permits.try_take_permits(os, permits as u64).await;
        taken.then(|| self.taken(permits))
    }

    /// Returns the queue that counts the permits.
    pub(crate) fn permits(&self) -> &Queue<()> {
        &self.permits
    }

    /// Returns permits that the caller has taken now. It is not the holder of any if these are none.
    fn taken(&self, count: usize) -> Permit {
        if count > 0 {
            self.permits.set_held();
        }
        self.permit(count, true)
    }

    /// Returns permits that the caller has taken, unless a mutation has left that out.
    fn permit(&self, count: usize, is_taken: bool) -> Permit {
        Permit {
            permits: self.permits.clone(),
            count,
            is_taken,
        }
    }

    /// Returns the number of permits that can be taken at once. There are none while a task waits.
    #[must_use]
    pub fn available(&self) -> usize {
        self.permits.len()
    }
}

impl Permit {
    /// Returns the number of permits that it is.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_taken {
            self.permits.defer_give(self.count as u64);
        }
    }
}
