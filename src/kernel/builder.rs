//! A kernel's settings.

use std::{fmt, rc::Rc, time::Duration};

use super::{
    Kernel,
    console::Console,
    devices::Devices,
    holders::{Holders, OnDeadlock},
    queues::Queues,
    ready::{Named, Ready},
    report::{Error, Report},
    run::Daemons,
    stall::Stall,
};
use crate::{
    abi::{Nanos, QueueId},
    interrupt::Remote,
    log::{Log, Tracer},
    sched::Policy,
    trap::TrapFrame,
    world::{RealWorld, World},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) tasks: usize,
    pub(super) queues: usize,
    pub(super) ticks: u64,
    pub(super) time: Nanos,
}

/// Settings of a [`Kernel`], of [`Kernel::builder`]. Whatever is not set is as in
/// [`Kernel::real`].
///
/// ```
/// use std::time::Duration;
/// use trapline::{Error, Kernel, Limit, Os, SimWorld};
///
/// let mut kernel = Kernel::builder()
///     .world(SimWorld::new(7))
///     .max_time(Duration::from_secs(60))
///     .build()?;
/// kernel.spawn("clock", async |os: &mut Os| loop {
///     os.sleep(Duration::from_secs(1)).await;
/// })?;
/// assert!(matches!(kernel.run(), Err(Error::Limit(Limit::Time(_)))));
/// assert_eq!(kernel.now(), Duration::from_secs(60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Builder {
    world: Option<Box<dyn World>>,
    seed: Option<u64>,
    policy: Option<Named>,
    quantum: u32,
    log: Log,
    limits: Limits,
    max_stall: Duration,
    captures: bool,
    on_deadlock: OnDeadlock,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            world: None,
            seed: None,
            policy: None,
            quantum: 1,
            log: Log::default(),
            limits: Limits {
                tasks: 1 << 22,
                queues: QueueId::PLACES,
                ticks: u64::MAX,
                time: Nanos::FOREVER,
            },
            max_stall: Duration::MAX,
            captures: false,
            on_deadlock: OnDeadlock::default(),
        }
    }
}

impl Builder {
    /// The world to live in; otherwise the real one.
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Some(Box::new(world));
        self
    }

    /// The seed of the world's random numbers; otherwise the world's own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Who runs next; otherwise first in, first out. A policy that panics, or that withholds tasks
    /// it says it has, ends the run with [`Error::Policy`].
    pub fn policy<P: Policy + 'static>(mut self, policy: P) -> Self {
        self.policy = Some((std::any::type_name::<P>(), Box::new(policy)));
        self
    }

    /// How many ticks a turn may have: a task goes on at once after a call that does not block,
    /// until it has made so many or yields. 1 unless it is set; 0 counts as 1.
    pub fn quantum(mut self, ticks: u32) -> Self {
        self.quantum = ticks;
        self
    }

    /// How many tasks may live at once; otherwise 4,194,304.
    pub fn max_tasks(mut self, tasks: usize) -> Self {
        self.limits.tasks = tasks;
        self
    }

    /// How many message queues there may be at once; otherwise, and at the most, 16,777,216. A
    /// promise has a queue, and so has whatever is in [`sync`](crate::sync).
    pub fn max_queues(mut self, queues: usize) -> Self {
        self.limits.queues = queues;
        self
    }

    /// How many resumes a run may take; otherwise as many as it likes.
    pub fn max_ticks(mut self, ticks: u64) -> Self {
        self.limits.ticks = ticks;
        self
    }

    /// How long a run may take on the world's clock; otherwise as long as it likes.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.limits.time = time.into();
        self
    }

    /// How long the kernel may wait for other threads alone, in real time; otherwise as long as it
    /// takes. At the limit the run ends with [`Error::Stalled`], which says what is awaited: jobs of
    /// [`Os::run_blocking`](crate::Os::run_blocking) and [`RemoteSetter`](crate::RemoteSetter)s, of
    /// which one may have been leaked. The wait counts from the last turn of a task; no timer and no
    /// device may be waited for. Set or not, the kernel warns after 10 seconds, by `tracing`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Error, Kernel, Os, Promise};
    ///
    /// let mut kernel = Kernel::builder().max_stall(Duration::from_millis(1)).build()?;
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let (setter, promise) = Promise::<u32>::new(os).await;
    ///     std::mem::forget(setter.remote());
    ///     let _ = promise.wait(os).await;
    /// })?;
    /// let Err(Error::Stalled(stalled)) = kernel.run() else { panic!() };
    /// assert_eq!((stalled.remote_setters, stalled.jobs), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_stall(mut self, span: Duration) -> Self {
        self.max_stall = span;
        self
    }

    /// What to do when a cycle closes among tasks that wait for locks and for each other's ends;
    /// otherwise the kernel warns. See [`OnDeadlock`].
    pub fn on_deadlock(mut self, action: OnDeadlock) -> Self {
        self.on_deadlock = action;
        self
    }

    /// Keeps what tasks print for [`Kernel::take_console`], in every world: nothing reaches
    /// standard output.
    ///
    /// ```
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::builder().capture_console().build()?; // in the real world
    /// kernel.spawn("hello", async |os: &mut Os| writeln!(os, "hello"))?;
    /// kernel.run()?;
    /// assert_eq!(kernel.take_console(), "hello\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capture_console(mut self) -> Self {
        self.captures = true;
        self
    }

    /// Somebody to be told of every event. Can be given more than once. Runs are observed through
    /// `tracing` besides, if a subscriber wants the target `trapline::kernel`.
    pub fn tracer(mut self, tracer: impl Tracer + 'static) -> Self {
        self.log.add(Box::new(tracer));
        self
    }

    /// Boots the kernel.
    ///
    /// *Errors:* [`Error::Io`], where the real world has no descriptors left for its poller.
    pub fn build(mut self) -> Result<Kernel, Error> {
        let world = match self.world.take() {
            Some(world) => world,
            None => Box::new(RealWorld::new()?),
        };
        Ok(self.boot(world))
    }

    pub(super) fn boot(self, mut world: Box<dyn World>) -> Kernel {
        if let Some(seed) = self.seed {
            world.reseed(seed);
        }
        let remote = Remote::new(world.waker());
        Kernel {
            tasks: Default::default(),
            ready: Ready::new(self.policy, self.quantum),
            timers: Default::default(),
            devices: Devices::default(),
            console: Console::default(),
            queues: Queues::default(),
            holders: Holders::new(self.on_deadlock),
            world,
            frame: Rc::new(TrapFrame::new(remote.clone())),
            remote,
            log: self.log,
            limits: self.limits,
            clock: Nanos::ZERO,
            next_poll: 0,
            daemons: Daemons::default(),
            slept: None,
            reported: Vec::new(),
            stall: Stall::new(self.max_stall),
            captured: self.captures.then(String::new),
            trouble: None,
            stats: Report::default(),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("seed", &self.seed)
            .field("quantum", &self.quantum)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
