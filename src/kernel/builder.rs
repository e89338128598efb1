//! A kernel's settings.

use std::{fmt, rc::Rc, time::Duration};

use super::{Console, Devices, Error, Kernel, LOOK_AFTER, Limits, Queues, Report};
use crate::{
    abi::Nanos,
    event::{Log, Tracer},
    frame::Frame,
    interrupt::Remote,
    sched::{Policy, Ready},
    world::{RealWorld, World},
};

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
    policy: Option<Box<dyn Policy>>,
    quantum: u32,
    log: Log,
    limits: Limits,
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
                ticks: u64::MAX,
                time: Nanos::FOREVER,
            },
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

    /// Who runs next; otherwise first in, first out.
    pub fn policy(mut self, policy: impl Policy + 'static) -> Self {
        self.policy = Some(Box::new(policy));
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
            world,
            frame: Rc::new(Frame::new(remote.clone())),
            remote,
            log: self.log,
            limits: self.limits,
            clock: Nanos::ZERO,
            next_look: LOOK_AFTER,
            next_glance: Nanos::ZERO,
            task_turns: 0,
            last_tick: u64::MAX,
            reported: Vec::new(),
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
