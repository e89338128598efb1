//! The settings of a kernel.

use std::{
    fmt,
    io::{self, ErrorKind},
    path::PathBuf,
    rc::Rc,
    time::Duration,
};

use super::{
    Kernel,
    console::Captured,
    holders::{Holders, OnDeadlock},
    inject::Injection,
    processors::Processors,
    ready::{Named, Ready},
    report::Error,
    reset::next_number,
    shares::Shares,
    stall::Stall,
};
use crate::{
    abi::{Inject, KernelId, Nanos, QueueId, Share, SystemCall, Tid},
    log::{Log, Tracer},
    panic::note_origins,
    sched::Policy,
    trap::{Mutation, TrapFrame},
    world::{RealWorld, SimWorld, World},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) tasks: usize,
    pub(super) queues: usize,
    pub(super) ticks: u64,
    pub(super) time: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tasks: Self::MANY_TASKS,
            queues: QueueId::PLACES,
            ticks: u64::MAX,
            time: Nanos::FOREVER,
        }
    }
}

impl Limits {
    /// The limit of tasks, unless the host sets one.
    pub(super) const MANY_TASKS: usize = 1 << 22;
}

/// The settings of a [`Kernel`], returned by [`Kernel::builder`]. The defaults are those of
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
/// assert!(matches!(kernel.run(), Err(Error::Limit(Limit::Time(_), _))));
/// assert_eq!(kernel.now(), Duration::from_secs(60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Default)]
pub struct Builder {
    world: Option<Box<dyn World>>,
    seed: Option<u64>,
    policy: Option<Named>,
    quantum: u32,
    processors: usize,
    shares: Vec<(String, Share)>,
    log: Log,
    limits: Limits,
    max_stall: Option<Duration>,
    captured: Option<Captured>,
    disk: Option<PathBuf>,
    input: Option<Vec<u8>>,
    injection: Option<Injection>,
    mutation: Option<Mutation>,
    on_deadlock: OnDeadlock,
    id: Option<KernelId>,
}

impl Builder {
    /// Sets the world. Default: the real world.
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Some(Box::new(world));
        self
    }

    /// Sets the kernel's number among those that run side by side. [`Kernels`](crate::Kernels) sets it when
    /// the kernel is booted; with this, logs show it for the tasks that the host spawns before.
    ///
    /// ```
    /// use trapline::{Kernel, KernelId, Os, SimWorld};
    ///
    /// let second = KernelId::at(1);
    /// let mut kernel = Kernel::builder().world(SimWorld::new(0)).number(second).build()?;
    /// kernel.spawn("main", async move |os: &mut Os| assert_eq!(os.kernel(), second))?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn number(mut self, kernel: KernelId) -> Self {
        self.id = Some(kernel);
        self
    }

    /// Sets the seed of the world's random numbers. Default: the world's own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the scheduling policy. Default: first in, first out. A policy that panics or withholds
    /// tasks ends the run with [`Error::Policy`].
    pub fn policy<P: Policy + 'static>(mut self, policy: P) -> Self {
        self.policy = Some((std::any::type_name::<P>(), Box::new(policy)));
        self
    }

    /// Sets the ticks of a turn. After a call that does not block, a task continues at once until
    /// it has used this number of ticks or yields. Default: 1; 0 counts as 1.
    pub fn quantum(mut self, ticks: u32) -> Self {
        self.quantum = ticks;
        self
    }

    /// Sets the number of processors: how many tasks compute at once
    /// ([`Os::compute`](crate::Os::compute)). Default: 1; 0 counts as 1, and more than 1,024 count
    /// as 1,024. The real world has one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Kernel, Os, SimWorld};
    ///
    /// let mut kernel = Kernel::builder().world(SimWorld::new(0)).processors(2).build()?;
    /// for name in ["a", "b", "c", "d"] {
    ///     kernel.spawn(name, async |os: &mut Os| os.compute(Duration::from_secs(1)).await)?;
    /// }
    /// assert_eq!(kernel.run()?.elapsed, Duration::from_secs(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn processors(mut self, count: usize) -> Self {
        self.processors = count;
        self
    }

    /// Sets a share of every task of this name, from its begin: its tickets, its nice value or its
    /// priority. Default: that of its parent.
    pub fn share(mut self, name: impl Into<String>, share: Share) -> Self {
        self.shares.push((name.into(), share));
        self
    }

    /// Limits the number of live tasks. Default: 4,194,304.
    pub fn max_tasks(mut self, tasks: usize) -> Self {
        self.limits.tasks = tasks;
        self
    }

    /// Limits the number of message queues. Default and maximum: 16,777,216. A promise and every
    /// type of [`sync`](crate::sync) use a queue.
    pub fn max_queues(mut self, queues: usize) -> Self {
        self.limits.queues = queues;
        self
    }

    /// Limits the resumes of a run, or of a sequence of [steps](Kernel::step). Default: no limit.
    pub fn max_ticks(mut self, ticks: u64) -> Self {
        self.limits.ticks = ticks;
        self
    }

    /// Limits the time of a run, or of a sequence of [steps](Kernel::step), on the world's clock.
    /// Default: no limit.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.limits.time = time.into();
        self
    }

    /// Limits, in real time, a wait that only other threads can end. Default: no limit. During such
    /// a wait no task waits for a timer or a device. It counts from the last turn of a task.
    ///
    /// At the limit the run ends with [`Error::Stalled`]. The error lists what the kernel waits
    /// for: jobs of [`Os::run_blocking`](crate::Os::run_blocking), and
    /// [`RemoteSetter`](crate::RemoteSetter)s, which may have been leaked. With any limit, the
    /// kernel warns through `tracing` after 10 seconds.
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
        self.max_stall = Some(span);
        self
    }

    /// Sets the action of the kernel when a cycle closes among tasks that wait for locks and for
    /// each other's exits. The default is a warning. See [`OnDeadlock`].
    pub fn on_deadlock(mut self, action: OnDeadlock) -> Self {
        self.on_deadlock = action;
        self
    }

    /// Keeps the text that tasks print for [`Kernel::take_console`], in every world. Nothing
    /// reaches standard output.
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
        self.captured = Some(Captured::Kept(String::new()));
        self
    }

    /// Gives the text that tasks print to this closure, in every world, at once and in order. A text is
    /// what a task has printed up to a trap: whole characters, not always whole lines. Nothing reaches
    /// standard output or [`Kernel::take_console`]. It replaces
    /// [`Builder::capture_console`], and is replaced by it. A panic of the closure is a warning.
    ///
    /// A tape has no text. A replay needs the closure, or the kept console, where the run had either.
    ///
    /// ```
    /// use std::{cell::RefCell, rc::Rc};
    /// use trapline::{Kernel, Os};
    ///
    /// let shown = Rc::new(RefCell::new(String::new()));
    /// let show = Rc::clone(&shown);
    /// let console = move |text: &str| show.borrow_mut().push_str(text);
    /// let mut kernel = Kernel::builder().console(console).build()?; // in the real world
    /// kernel.spawn("hello", async |os: &mut Os| writeln!(os, "hello"))?;
    /// kernel.run()?;
    /// assert_eq!(*shown.borrow(), "hello\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn console(mut self, console: impl FnMut(&str) + 'static) -> Self {
        self.captured = Some(Captured::Hook(Box::new(console)));
        self
    }

    /// Has this text be the standard input of the tasks, in every world: after it comes the end. Without
    /// it the real world reads descriptor 0, and the simulated one has the end at once. A search gives
    /// its kernels a text by [`Kernel::input`].
    ///
    /// ```
    /// use trapline::{Kernel, Os, SimWorld};
    ///
    /// let world = SimWorld::new(1);
    /// let mut kernel = Kernel::builder().world(world).input("1\n2\n").build()?;
    /// kernel.spawn("sum", async |os: &mut Os| {
    ///     let mut sum = 0;
    ///     while let Some(line) = os.read_line().await? {
    ///         sum += line.parse::<i32>()?;
    ///     }
    ///     writeln!(os, "{sum}");
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// kernel.run()?.check()?;
    /// assert_eq!(kernel.take_console(), "3\n");
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Injects faults at the traps of tasks, in every world. The kernel asks the closure before it
    /// handles a call, with the caller, the call and `nth`: how many calls of this kind the kernel
    /// has seen, this one included. A second injection replaces the first.
    ///
    /// The calls of daemons, deferred calls and calls that a timeout cuts before their effect do not
    /// count. Neither does a `send` that a task makes again because there was no room.
    ///
    /// A panic of the closure faults the caller, and so does [`Inject::Fail`] for a call that does
    /// not return an [`io::Result`](std::io::Result).
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use trapline::{Exit, Inject, Kernel, Os, SystemCall};
    ///
    /// let mut kernel = Kernel::builder()
    ///     .inject(|_tid, call, nth| match call {
    ///         SystemCall::Listen if nth == 1 => Some(Inject::Fail(ErrorKind::AddrInUse)),
    ///         _ => None,
    ///     })
    ///     .build()?;
    /// let server = kernel.spawn("server", async |os: &mut Os| {
    ///     let addr = ([127, 0, 0, 1], 0).into();
    ///     let error = os.listen(addr).await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::AddrInUse);
    ///     os.listen(addr).await.map(drop)
    /// })?;
    /// assert_eq!(kernel.run()?.exits()[&server], Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inject(
        mut self,
        injector: impl FnMut(Tid, SystemCall, u64) -> Option<Inject> + 'static,
    ) -> Self {
        self.injection
            .get_or_insert_default()
            .set(Box::new(injector), true);
        self
    }

    /// Injects into one trap: that of this number among the traps of this task, counted from 1. It takes
    /// precedence over [`Builder::inject`]. A second one replaces the first.
    ///
    /// ```
    /// use trapline::{Exit, Inject, Kernel, Os, SimWorld, Tid};
    ///
    /// let kernel = Kernel::builder().world(SimWorld::new(0));
    /// let mut kernel = kernel.inject_into(Tid::from(1), 2, Inject::KillIn).build()?;
    /// let task = kernel.spawn("two", async |os: &mut Os| {
    ///     os.yield_now().await;
    ///     os.yield_now().await;
    /// })?;
    /// assert_eq!(kernel.run()?.exits()[&task], Exit::Killed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inject_into(mut self, tid: Tid, trap: u64, inject: Inject) -> Self {
        let injection = self.injection.get_or_insert_default();
        injection.set_into(tid, trap, inject);
        self
    }

    /// Leaves out what one call in the source does, or notes the calls that could be left out.
    pub fn mutation(mut self, mutation: &Mutation) -> Self {
        self.mutation = Some(mutation.clone());
        self
    }

    /// Injects as [`Builder::inject`] does, without the numbers of calls. A search knows then that calls of
    /// one kind do not depend on one another.
    #[doc(hidden)]
    pub fn inject_each(
        mut self,
        mut injector: impl FnMut(Tid, SystemCall) -> Option<Inject> + 'static,
    ) -> Self {
        let injector = move |tid, call, _| injector(tid, call);
        let injection = self.injection.get_or_insert_default();
        injection.set(Box::new(injector), false);
        self
    }

    /// Adds a tracer, which receives every event. Each call adds one more. Independently, events go
    /// to `tracing` if a subscriber enables the target `trapline::kernel`.
    pub fn tracer(mut self, tracer: impl Tracer + 'static) -> Self {
        self.log.add(Box::new(tracer));
        self
    }

    /// Has the disk of the tasks in this directory of the real world: [`Os::disk`](crate::Os::disk).
    /// Default: no disk. A world that is given by [`Builder::world`] has its own:
    /// [`RealWorld::disk`].
    ///
    /// ```
    /// use std::fs;
    /// use trapline::{Kernel, Mode, Os};
    ///
    /// let dir = std::env::temp_dir().join(format!("trapline-disk-{}", std::process::id()));
    /// fs::create_dir(&dir)?;
    /// let mut kernel = Kernel::builder().disk(&dir).build()?;
    /// kernel.spawn("log", async |os: &mut Os| {
    ///     let log = os.disk().open(os, "log", Mode::Append).await?;
    ///     log.append(os, b"begun\n").await?;
    ///     log.sync(os).await?;
    ///     os.disk().sync_dir(os, ".").await
    /// })?;
    /// kernel.run()?.check()?;
    /// assert_eq!(fs::read_to_string(dir.join("log"))?, "begun\n");
    /// # fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disk(mut self, dir: impl Into<PathBuf>) -> Self {
        self.disk = Some(dir.into());
        self
    }

    /// Boots the kernel.
    ///
    /// *Errors:* [`Error::Io`] if no descriptor is left for the poller of the real world, if the
    /// directory of [`Builder::disk`] cannot be opened, or if there is [another
    /// world](Builder::world) beside it; and for a text of [`Builder::input`] in a world of another kind
    /// that has no input.
    pub fn build(mut self) -> Result<Kernel, Error> {
        let world = match self.world.take() {
            Some(_) if self.disk.is_some() => {
                let why =
                    "Builder::disk is for the real world: give the other one a disk of its own";
                return Err(io::Error::new(ErrorKind::InvalidInput, why).into());
            }
            Some(world) => world,
            None => match self.disk.take() {
                Some(dir) => Box::new(RealWorld::new()?.disk(dir)?),
                None => Box::new(RealWorld::new()?),
            },
        };
        let input = self.input.take();
        let mut kernel = self.boot(world);
        if let Some(text) = input {
            kernel.input(text)?;
        }
        Ok(kernel)
    }

    pub(super) fn boot(self, mut world: Box<dyn World>) -> Kernel {
        if let Some(seed) = self.seed {
            world.reseed(seed);
        }
        note_origins();
        let remote = world.remote();
        let processors = if world.spins() { 1 } else { self.processors };
        let mut kernel = Kernel {
            number: next_number(),
            id: self.id.unwrap_or_default(),
            tasks: Default::default(),
            processors: Processors::new(processors),
            shares: Shares::new(self.shares),
            ready: Ready::new(self.policy, self.quantum),
            timers: Default::default(),
            devices: Default::default(),
            stdio: Default::default(),
            console: Default::default(),
            held: Default::default(),
            selects: Default::default(),
            signals: Default::default(),
            bounds: Default::default(),
            injection: self.injection,
            queues: Default::default(),
            holders: Holders::new(self.on_deadlock),
            faults: Default::default(),
            published: None,
            is_watched: false,
            is_asked: world.is_asked(),
            is_conducted: false,
            world,
            frame: Rc::new(TrapFrame::new(remote.clone())),
            restarts: Default::default(),
            remote,
            log: self.log,
            shown: 0,
            limits: self.limits,
            clock: Nanos::ZERO,
            next_poll: 0,
            pass_ends: 0,
            stepping: None,
            daemons: Default::default(),
            choices: Default::default(),
            chosen: None,
            slept: None,
            happened: Vec::new(),
            over: Default::default(),
            stall: Stall::new(self.max_stall.unwrap_or(Duration::MAX)),
            standstill: Default::default(),
            captured: self.captured,
            trouble: None,
            stats: Default::default(),
        };
        kernel.frame.mutated.set(self.mutation);
        kernel.bind_frame();
        kernel.screen_traps();
        if self.id.is_some() {
            kernel.log.show_kernel(kernel.id);
        }
        kernel
    }
}

impl Kernel {
    /// Returns a kernel in the real world, with the clock and devices of the operating system. Its
    /// console is standard output.
    ///
    /// *Errors:* [`Error::Io`] if the process has no descriptor left.
    pub fn real() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns a kernel in the simulated world. Its virtual clock jumps when no task is ready, and
    /// `seed` determines its random numbers. Its network is simulated: [`Kernel::net`].
    /// [`Kernel::take_console`] returns what its tasks print. The same programs and seed produce the same events.
    #[must_use]
    pub fn simulated(seed: u64) -> Self {
        Builder::default().boot(Box::new(SimWorld::new(seed)))
    }

    /// Returns the settings of a kernel, to be changed.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("seed", &self.seed)
            .field("quantum", &self.quantum.max(1))
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
