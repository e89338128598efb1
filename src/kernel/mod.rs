//! The kernel: one loop that resumes tasks, handles their calls, and polls the world.
//!
//! ```text
//! loop {
//!     run_pass      each ready task has its turn: it is resumed, makes a call, is answered
//!     poll_world    timers fire, devices report, interrupts come: blocked tasks become ready
//! }
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | [`Kernel`], and the loop: [`Kernel::run`], [`Kernel::step`] |
//! | `run.rs` | a pass, and the poll of the world between two passes |
//! | `turn.rs` | a turn: resume, dispatch, block, wake |
//! | `syscall.rs` | the one match over all calls; the handlers of calls about tasks |
//! | `lifecycle.rs` | how a task comes to be and how it ends |
//! | `task.rs`, `table.rs` | a task and its states; the task map |
//! | `fast.rs` | the fast lane: answers that need only the caller, or its queue |
//! | `deferred.rs` | calls that tasks leave without a trap |
//! | `holders.rs` | who holds the lock that a task waits for; cycles, found when they close |
//! | `timers.rs`, `timeouts.rs` | the timers; sleeps and timeouts |
//! | `ready.rs` | the ready queue: a policy and a quantum, or neither |
//! | `devices.rs`, `console.rs`, `queues.rs` | open devices, the console, message queues, with their calls |
//! | `builder.rs`, `report.rs`, `deadlock.rs`, `stall.rs` | settings; what the host is told |
//! | `audit.rs` | the invariant, checked |
//!
//! Invariant, checked by `audit` at each poll of a debug build: a live task is in exactly one
//! place, running, on the ready queue, or blocked; a blocked task is in the one queue that can
//! wake it.

mod audit;
mod builder;
mod console;
mod deadlock;
mod deferred;
mod devices;
mod fast;
mod holders;
mod lifecycle;
mod queues;
mod ready;
mod report;
mod run;
mod stall;
mod syscall;
mod table;
mod task;
mod timeouts;
mod timers;
mod turn;

use std::{fmt, io, rc::Rc, time::Duration};

pub use builder::Builder;
pub use deadlock::Deadlock;
pub use holders::OnDeadlock;
pub use report::{Error, Failures, Limit, Report, Stalled, Step};

use builder::Limits;
use console::Console;
use devices::Devices;
use holders::Holders;
use queues::Queues;
use ready::Ready;
use run::Daemons;
use stall::Stall;
use table::Tasks;
use task::OnExit;
use timers::TimerSets;

use crate::{
    abi::{DeviceId, Direction, Errno, Nanos, TaskInfo, Tid},
    interrupt::Remote,
    log::Log,
    trap::{Start, TrapFrame},
    user::{
        os::Os,
        program::{self, IntoExit},
    },
    world::World,
};

/// An operating system in a process: it owns the tasks, the queues, the timers and the devices.
///
/// Spawn programs, then [`run`](Kernel::run). Dropping a kernel ends its tasks, destructors
/// included.
pub struct Kernel {
    tasks: Tasks,
    ready: Ready,
    timers: TimerSets,
    devices: Devices,
    console: Console,
    queues: Queues,
    holders: Holders,
    world: Box<dyn World>,
    frame: Rc<TrapFrame>,
    log: Log,
    remote: Remote,
    limits: Limits,
    /// The world's time when it was polled last.
    clock: Nanos,
    /// After how many ticks since boot the world is polled next.
    next_poll: u64,
    daemons: Daemons,
    /// A wait that has yet to be told to the log: from when to when.
    slept: Option<(Duration, Duration)>,
    /// What the world reported last; kept for its memory.
    reported: Vec<(DeviceId, Direction)>,
    /// The wait for other threads alone.
    stall: Stall,
    /// What tasks have printed, where the kernel keeps it rather than the world.
    captured: Option<String>,
    /// An error of the console, which no task waits for.
    trouble: Option<io::Error>,
    stats: Report,
}

impl Kernel {
    /// A kernel in the real world: the operating system's clock and devices; the console is
    /// standard output.
    ///
    /// *Errors:* the operating system's, where it has no descriptors left.
    pub fn real() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// A kernel in the simulated world: a virtual clock that jumps when nobody is ready, random
    /// numbers from `seed`, a console that is kept for [`Kernel::take_console`], no devices. Two
    /// such kernels with the same programs and seed do the same, event for event.
    #[must_use]
    pub fn simulated(seed: u64) -> Self {
        Builder::default().boot(Box::new(crate::SimWorld::new(seed)))
    }

    /// A kernel with settings of one's own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a program as a task of the host's, and answers its number. How it ends is in the
    /// [`Report`].
    ///
    /// *Errors:* [`Errno::TooManyTasks`] at the limit of live tasks.
    pub fn spawn<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        self.log.observe_by_tracing();
        let name = self.frame.intern(name.as_ref());
        let program = program::program(&self.frame, program);
        let task = self.admit(name, program, None, OnExit::Report, false, Start::First);
        task.map(|task| task.tid)
    }

    /// Starts a program that serves the host rather than the run, a monitor say, as a daemon: a
    /// task that the others do not notice. It keeps no run alive and hides no deadlock: what it
    /// could yet do for others does not count. It is in no list of tasks, under no limit on them,
    /// and its events are told to no tracer; its number is out of the way of theirs
    /// ([`Tid::is_daemon`]). So are the tasks that it spawns. While others are ready, it may hear
    /// of its devices a millisecond late.
    ///
    /// It ends by itself, at a shutdown, or with the kernel.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.spawn_daemon("watch", async |os: &mut Os| loop {
    ///     let tasks = os.tasks().await;
    ///     writeln!(os, "{} to go", tasks.len());
    ///     os.sleep(Duration::from_secs(2)).await;
    /// });
    /// for span in [1, 3] {
    ///     let span = Duration::from_secs(span);
    ///     kernel.spawn("sleeper", async move |os: &mut Os| os.sleep(span).await)?;
    /// }
    /// kernel.run()?;
    /// assert_eq!(kernel.take_console(), "2 to go\n1 to go\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_daemon<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Tid {
        let name = self.frame.intern(name.as_ref());
        let program = program::program(&self.frame, program);
        let task = self.admit(name, program, None, OnExit::Nothing, true, Start::First);
        task.expect("there is no limit on daemons").tid
    }

    /// Runs until no task is left, which may be never.
    ///
    /// *Errors:* [`Error::Deadlock`] when no task is ready and nothing could make one ready,
    /// [`Error::Stalled`] and [`Error::Limit`] at a limit of the [`Builder`], [`Error::Policy`] when
    /// the policy fails, [`Error::Io`] when the world does. After any of them, and after an `Ok`, it
    /// can be called again; a limit then counts anew.
    pub fn run(&mut self) -> Result<Report, Error> {
        let ticks = self.stats.ticks.saturating_add(self.limits.ticks);
        let time = Nanos::from(self.now()).saturating_add(self.limits.time);
        self.console.begin();
        self.enter();
        let ended = loop {
            self.run_pass(ticks);
            if let Err(error) = self.check_policy() {
                break Err(error);
            }
            if self.tasks.live() == 0 {
                break Ok(());
            }
            if self.stats.ticks >= ticks {
                break Err(Error::Limit(Limit::Ticks(self.limits.ticks)));
            }
            if let Err(error) = self.poll_world(time) {
                break Err(error);
            }
        };
        self.remote.runs(Tid::KERNEL);
        self.finish_printing(time);
        ended?;
        self.wind_up()?;
        Ok(self.report())
    }

    /// Advances by one resume; or, when no task is ready, by one wait for the world.
    ///
    /// *Errors:* as [`Kernel::run`], without the limits on ticks and time, which are of a run.
    pub fn step(&mut self) -> Result<Step, Error> {
        self.enter();
        let step = loop {
            if self.stats.ticks < self.next_poll
                && let Some(tid) = self.next_turn()
            {
                break Ok(Step::Ran(tid));
            }
            if let Err(error) = self.check_policy() {
                break Err(error);
            }
            if self.tasks.live() == 0 {
                self.finish_printing(Nanos::FOREVER);
                break self.wind_up().map(|()| Step::Finished);
            }
            let waits = self.ready.is_empty();
            match self.poll_world(Nanos::FOREVER) {
                Ok(()) if !waits => {}
                polled => break polled.map(|()| Step::Idle),
            }
        };
        self.remote.runs(Tid::KERNEL);
        step
    }

    /// A line per task, zombies included, by tid.
    pub fn tasks(&self) -> impl Iterator<Item = TaskInfo> {
        self.tasks.infos().map(|info| self.complete(info))
    }

    /// The time since boot.
    pub fn now(&mut self) -> Duration {
        self.world.now()
    }

    /// The seed of the world's random numbers.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.world.seed()
    }

    /// Takes what the tasks have printed, where it is kept: in the simulated world, and after
    /// [`Builder::capture_console`]. Otherwise it went to standard output, and this is empty.
    pub fn take_console(&mut self) -> String {
        match &mut self.captured {
            Some(kept) => std::mem::take(kept),
            None => self.world.take_console(),
        }
    }

    /// A line into this kernel for other threads and signal handlers.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// What happened since boot.
    fn report(&mut self) -> Report {
        let mut report = self.stats.clone();
        report.elapsed = self.now();
        report.traps = report.ticks - report.finished;
        report
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.end_all();
        self.clear_queues();
        self.console.hurry();
        self.finish_printing(Nanos::FOREVER);
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("live_tasks", &self.tasks.live())
            .field("ready", &self.ready)
            .field("timers", &self.timers.tasks.len())
            .finish_non_exhaustive()
    }
}
