//! A semaphore: a number of permits.

use std::{cell::Cell, rc::Rc};

use crate::{
    trap::Kind,
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
    /// Those that have been returned.
    permits: Queue<()>,
    /// The number of those that were never taken. No task waits while there is one.
    unissued: Rc<Cell<usize>>,
}

/// A permit of a [`Semaphore`]. Dropping it returns it.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit {
    permits: Queue<()>,
}

impl Semaphore {
    /// Makes a semaphore with this number of permits. Never blocks. Its memory grows with the
    /// permits that are taken at once.
    pub async fn new(os: &mut Os, permits: usize) -> Self {
        Self::maybe_named(os, None, permits).await
    }

    /// Makes a semaphore with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, permits: usize) -> Self {
        Self::maybe_named(os, Some(name), permits).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, permits: usize) -> Self {
        Self {
            permits: Queue::required(os, Kind::Semaphore, name).await,
            unissued: Rc::new(Cell::new(permits)),
        }
    }

    /// Takes a permit. *Blocks* while there is none.
    ///
    /// *Errors:* [`Closed`] in a kernel other than its own.
    #[track_caller]
    pub fn acquire(&self, os: &mut Os) -> impl Future<Output = Result<Permit, Closed>> {
        os.note_caller();
        async {
            if !self.permits.is_home(os) {
                return Err(Closed(()));
            }
            self.issue_permit();
            self.permits.take(os).await?;
            Ok(self.permit())
        }
    }

    /// Takes a permit if there is one. Never blocks.
    pub async fn try_acquire(&self, os: &mut Os) -> Option<Permit> {
        self.permits.require_home(os, "the semaphore");
        self.issue_permit();
        self.permits.try_get(os).await.ok()?;
        Some(self.permit())
    }

    /// Returns the queue of the permits, which has one if any is left.
    pub(crate) fn permits(&self) -> &Queue<()> {
        self.issue_permit();
        &self.permits
    }

    /// Returns a permit that the caller has taken from the queue.
    fn permit(&self) -> Permit {
        self.issue_permit();
        self.permits.set_held();
        Permit {
            permits: self.permits.clone(),
        }
    }

    /// Puts a permit into an empty queue, if one is left. A task does so before it takes a permit and
    /// after: it may have taken the permit of a task whose call is held back. A permit that is not
    /// taken then, because the call is cut, stays in the queue.
    fn issue_permit(&self) {
        let is_empty = self.permits.is_empty();
        self.permits.touch_beside(is_empty);
        if is_empty && self.unissued.get() > 0 {
            self.unissued.set(self.unissued.get() - 1);
            self.permits.defer_put(());
        }
    }

    /// Returns the number of permits that are left. A permit that was returned to a waiting task
    /// does not count.
    #[must_use]
    pub fn available(&self) -> usize {
        self.permits.touch_beside(false);
        self.unissued.get() + self.permits.len()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.defer_put(());
    }
}
