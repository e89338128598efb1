//! Several kernels side by side, each on a thread.
//!
//! A [`Kernel`] uses one core. A program that needs more runs a kernel per core. Each has its own
//! tasks, queues, devices and clock. Another thread reaches a kernel by its [`Remote`](crate::Remote), and by
//! the mailboxes that belong to it ([`Mailbox`](crate::Mailbox)). The type system holds that: a [`Kernel`], a [`Queue`](crate::Queue) and
//! every other handle of a kernel is not [`Send`].
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | [`Kernels`]: threads, and what the end of one means for the others |
//! | `simulated.rs` | the same on one thread and one clock |
//! | `stuck.rs` | the report of simulated kernels of which none can go on |

mod simulated;
mod stuck;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    abi::KernelId,
    interrupt::{Remote, Remotes},
    kernel::{Conductor, Error, Kernel, Report},
    panic::lock,
    sched::Runnable,
    world::affinity,
};

/// Kernels that run side by side, each on a thread of its own.
///
/// What the kernels share is sent ([`Mailbox`](crate::Mailbox)), or is read only: data in an
/// [`Arc`] that no thread changes any more.
///
/// ```
/// use std::sync::Arc;
/// use trapline::{Kernel, Kernels, Os};
///
/// let words: Arc<[&str]> = Arc::new(["zero", "one", "two"]); // all kernels read it
/// let reports = Kernels::new(2).run(move |id| {
///     let words = Arc::clone(&words);
///     let mut kernel = Kernel::real()?;
///     kernel.spawn("main", async move |os: &mut Os| {
///         assert_eq!(os.kernel(), id);
///         assert!(["one", "two"].contains(&words[id.index() + 1]));
///     })?;
///     Ok(kernel)
/// });
/// for report in reports {
///     report?.check()?;
/// }
/// # Ok::<(), trapline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Kernels {
    count: usize,
    /// The seed of kernels that share a thread and a clock.
    seed: Option<u64>,
    /// Whether another kernel conducts them.
    is_conducted: bool,
    /// Whether the threads may be pinned.
    pins: bool,
}

impl Kernels {
    /// So many kernels; 0 counts as 1.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            count: count.max(1),
            seed: None,
            is_conducted: false,
            pins: true,
        }
    }

    /// So many kernels of the simulated world, on one thread and one virtual clock; 0 counts as 1. The
    /// seed decides which kernel has the next turn, and so in which order mail arrives. The random
    /// numbers of each kernel follow from it, too, whatever seed its world has. The clock advances when
    /// all kernels wait. The same programs and seed make the same run.
    ///
    /// Each kernel has a network of its own: mail is all that goes from one to another. No other threads
    /// take part. If every kernel waits, and none for an instant, each has [`Error::Deadlock`] as its
    /// result. It lists the tasks of that kernel, and the cycles over all kernels, in which a task that waits
    /// at a mailbox waits for the tasks that hold its senders, or its other end if it is full. A cycle leads
    /// through a select if every source is such a wait, a lock or the end of a task.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Kernel, Kernels, Mailbox, Os};
    ///
    /// let (sender, mailbox) = Mailbox::unbounded();
    /// let reports = Kernels::simulated(2, 7).run(move |id| {
    ///     let mut kernel = Kernel::simulated(0);
    ///     let (sender, mailbox) = (sender.clone(), mailbox.clone());
    ///     if id.index() == 0 {
    ///         kernel.spawn("sends", async move |os: &mut Os| {
    ///             os.sleep(Duration::from_secs(60)).await;
    ///             sender.put(os, "late").await
    ///         })?;
    ///     } else {
    ///         kernel.spawn("takes", async move |os: &mut Os| {
    ///             assert_eq!(mailbox.get(os).await, Ok("late"));
    ///             assert_eq!(os.now().await, Duration::from_secs(60));
    ///         })?;
    ///     }
    ///     Ok(kernel)
    /// });
    /// for report in reports {
    ///     report?.check()?;
    /// }
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[must_use]
    pub fn simulated(count: usize, seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..Self::new(count)
        }
    }

    /// The most kernels that another one conducts.
    #[doc(hidden)]
    pub const MOST_CONDUCTED: usize = Runnable::KERNELS;

    /// Runs this with kernels as [`Kernels::simulated`] makes them, of which another kernel decides all turns:
    /// the one whose policy it is has no tasks of its own.
    #[doc(hidden)]
    pub fn under<T>(kernel: &mut Kernel, count: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        let mut kernels = Self {
            is_conducted: true,
            ..Self::simulated(count, kernel.seed())
        };
        kernel.conduct(|| run(&mut kernels))
    }

    /// Leaves the threads to the system instead of pinning each to a core. This is for a machine whose
    /// cores other programs use as well: a pinned kernel cannot move away from them. With clients on the
    /// same two cores, an echo server of two kernels took 1.20 times the CPU per request of one kernel,
    /// and 1.06 times unpinned (medians of four runs).
    #[must_use]
    pub fn unpinned(self) -> Self {
        Self {
            pins: false,
            ..self
        }
    }

    /// Returns how many kernels the machine can run at once: the cores that the process may use.
    #[must_use]
    pub fn available() -> usize {
        affinity::count()
    }

    /// Returns how many kernels these are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Boots each kernel on a thread of its own, and runs all of them. Returns when the last has ended,
    /// with the result of each, by its number.
    ///
    /// `boot` makes the kernel and spawns its first tasks. Each thread calls it once, with the number of its
    /// kernel; the calls run at the same time. `boot` is dropped when the last kernel has booted. So a sender
    /// that it holds, and clones for the kernels, keeps no mailbox open.
    ///
    /// On Linux each thread is pinned to a core, unless there are more kernels than cores. The threads
    /// that a kernel starts for blocking work run on any core. A thread that a program starts itself begins on
    /// the core of its kernel. On other systems no thread is pinned.
    ///
    /// A kernel that ends without an error leaves the others running. One that fails, by an error or a
    /// panic of `boot`, shuts the others down in the order of their numbers, each as
    /// [`Remote::shutdown`](crate::Remote::shutdown) does. The panic goes on when all have ended. A kernel that
    /// [plays a tape](crate::tape::Playing) is not shut down: its tape has what ended it.
    ///
    /// If a task of one kernel has caught a signal of the process ([`Os::catch`](crate::Os::catch)), all kernels
    /// get it. A kernel without such a task ends, as by the default action of the signal.
    ///
    /// [Simulated](Kernels::simulated) kernels boot one after the other, and run, on the thread of the caller.
    /// They get no signals of the process.
    ///
    /// *Errors:* of each kernel, those of `boot` and of [`Kernel::run`]; [`Error::Peer`] where another
    /// kernel's failure ended it; [`Error::Io`] if the system has no thread left, and for a kernel of the
    /// real world among simulated ones.
    ///
    /// ```
    /// use trapline::{Error, Kernel, Kernels, Os};
    ///
    /// let results = Kernels::new(2).run(|id| {
    ///     let mut kernel = Kernel::builder().max_ticks(10).build()?;
    ///     if id.index() == 0 {
    ///         kernel.spawn("endless", async |os: &mut Os| loop { os.yield_now().await })?;
    ///     } else {
    ///         kernel.spawn("waits", async |os: &mut Os| os.sleep(std::time::Duration::from_secs(3600)).await)?;
    ///     }
    ///     Ok(kernel)
    /// });
    /// assert!(matches!(results[0], Err(Error::Limit(..))));
    /// assert!(matches!(&results[1], Err(Error::Peer { kernel, .. }) if kernel.index() == 0));
    /// ```
    pub fn run<F>(&self, boot: F) -> Vec<Result<Report, Error>>
    where
        F: Fn(KernelId) -> Result<Kernel, Error> + Send + Sync,
    {
        match self.seed {
            Some(seed) => {
                let conductor = Conductor::current().filter(|_| self.is_conducted);
                simulated::run(self.count, seed, conductor, boot)
            }
            None => self.run_on_threads(boot),
        }
    }

    fn run_on_threads<F>(&self, boot: F) -> Vec<Result<Report, Error>>
    where
        F: Fn(KernelId) -> Result<Kernel, Error> + Send + Sync,
    {
        let crew = Crew {
            is_alone: self.count == 1,
            ..Crew::default()
        };
        let pins = self.pins && (2..=Self::available()).contains(&self.count);
        let boot = Arc::new(boot);
        thread::scope(|scope| {
            let start = |index| {
                let (crew, boot) = (&crew, Arc::clone(&boot));
                let work = move || {
                    if pins {
                        affinity::pin(index);
                    }
                    crew.run(KernelId::at(index), boot)
                };
                let thread = thread::Builder::new().name(format!("kernel {}", index + 1));
                thread.spawn_scoped(scope, work).map_err(|error| {
                    let error = Error::from(error);
                    crew.fail(KernelId::at(index), &error.to_string());
                    error
                })
            };
            let threads: Vec<_> = (0..self.count).map(start).collect();
            drop(boot);
            // A thread contains its panic until all have ended.
            let ended = threads.into_iter().map(|thread| Ok(thread?.join()));
            let ended: Vec<Result<thread::Result<_>, Error>> = ended.collect();
            let results = ended.into_iter().map(|ended| match ended {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => resume_unwind(panic),
                Err(error) => Err(error),
            });
            results.collect()
        })
    }
}

/// The kernels of one run.
#[derive(Default)]
struct Crew {
    is_alone: bool,
    /// The first that failed, and its error. Held while a kernel comes or goes: one that leaves after the
    /// failure was shut down by it.
    failed: Mutex<Option<(KernelId, String)>>,
    running: Arc<Remotes>,
}

/// The failure of another kernel, if it ends this one. What ended a kernel on a tape is on its tape: the threads
/// of a replay come to their ends in another order than those of the run.
fn peer_error(failed: &Option<(KernelId, String)>, remote: &Remote) -> Option<Error> {
    let (kernel, why) = failed.clone().filter(|_| !remote.plays())?;
    Some(Error::Peer { kernel, why })
}

impl Crew {
    /// The life of a thread.
    fn run<F>(&self, id: KernelId, boot: Arc<F>) -> Result<Report, Error>
    where
        F: Fn(KernelId) -> Result<Kernel, Error>,
    {
        let ran = catch_unwind(AssertUnwindSafe(|| self.boot_and_run(id, boot)));
        match ran {
            Ok(Err(error)) => {
                if !matches!(error, Error::Peer { .. }) {
                    self.fail(id, &error.to_string());
                }
                Err(error)
            }
            Ok(ran) => ran,
            Err(panic) => {
                // The panic hook has the message, and so has the caller.
                self.fail(id, "it panicked");
                resume_unwind(panic)
            }
        }
    }

    fn boot_and_run<F>(&self, id: KernelId, boot: Arc<F>) -> Result<Report, Error>
    where
        F: Fn(KernelId) -> Result<Kernel, Error>,
    {
        let booted = boot(id);
        drop(boot);
        let mut kernel = booted?;
        kernel.enlist(id, !self.is_alone);
        let remote = kernel.remote();
        self.join(id, &remote)?;
        let ran = kernel.run();
        let ended_by = self.leave(id, &remote);
        // Its tasks end here: they may hold what other kernels wait for.
        drop(kernel);
        match (ran, ended_by) {
            (Ok(_), Some(peer)) => Err(peer),
            (Err(error), _) if !self.is_alone => Err(error.beside(id)),
            (ran, _) => ran,
        }
    }

    /// Adds a kernel that is about to run.
    ///
    /// *Errors:* [`Error::Peer`], if one has failed that ends this one.
    fn join(&self, id: KernelId, remote: &Remote) -> Result<(), Error> {
        let failed = lock(&self.failed);
        if let Some(peer) = peer_error(&failed, remote) {
            return Err(peer);
        }
        remote.join(&self.running);
        self.running.add(id, remote);
        Ok(())
    }

    /// Removes a kernel that has ended. Returns the failure of another one that has shut it down.
    fn leave(&self, id: KernelId, remote: &Remote) -> Option<Error> {
        let failed = lock(&self.failed);
        self.running.remove(id);
        peer_error(&failed, remote)
    }

    /// Shuts the kernels down that run, because this one has failed.
    fn fail(&self, id: KernelId, why: &str) {
        let mut failed = lock(&self.failed);
        if failed.is_none() {
            *failed = Some((id, why.to_string()));
            let running = self.running.all().into_iter();
            running
                .filter(|remote| !remote.plays())
                .for_each(|remote| remote.shutdown());
        }
    }
}
