//! The kernel: one loop that resumes tasks, handles their calls, and polls the world.
//!
//! ```text
//! loop {
//!     run_pass      each ready task has a turn: it is resumed, makes a call, gets its answer
//!     poll_world    the world reports: interrupts arrive, timers fire, devices are ready
//! }
//! ```
//!
//! `docs/reading-the-kernel.md` follows a call, a timeout, a kill and an event through these files.
//! Parts own their state and know no kernel. The loop composes them.
//!
//! | file | what its name does not say |
//! |---|---|
//! | `run.rs`, `turn.rs` | a pass, and the poll between two; a turn: resume, perform, settle |
//! | `lifecycle.rs`, `deferred.rs` | birth and end of a task; calls that tasks make without a trap |
//! | `fast.rs` | the fast lane: calls that need only their caller, or one queue |
//! | `syscall.rs` | the one match over all calls; other handlers are in `*_calls.rs`, `timeouts.rs`, `hosts.rs` |
//! | `schedule.rs`, `undo.rs` | what changes several parts: block, wake, compute; cancel, take back |
//! | `happenings.rs` | what the world reports |
//! | `table.rs`, `waiters.rs` | the tasks; what waits for the end of one |
//! | `shares.rs` | what a policy knows of a task |
//! | `ready.rs`, `processors.rs` | the ready queue: a policy and a quantum, or neither; what computes |
//! | `held.rs`, `stdio.rs` | calls that are handled later; the standard streams of some tasks |
//! | `selects.rs`, `scopes.rs` | waits for the first of several sources; scopes and shields |
//! | `signals.rs` | signals: for the tasks that have caught them, or the end of the run |
//! | `footprint.rs` | notes for a search of what each call touches |
//! | `limits.rs`, `screen.rs` | the limits of tasks; what they decide on a trap |
//! | `holders.rs`, `inject.rs` | cycles of waits, found when they close; faults at the trap |
//! | `accesses.rs` | accesses to shared values, as events |
//! | `access.rs`, `reset.rs` | the other calls of the host; a kernel for one more run |
//! | `enlisted.rs` | a kernel among several: its number, and its place on their common clock |
//! | `conduct.rs` | a kernel whose policy decides the turns of others, for a search of several |
//! | `published.rs` | the turn under way, for other threads |
//! | `stall.rs`, `standstill.rs` | a wait that only threads end; a task that stops the clock |
//! | `audit.rs` | the check of the invariant |
//!
//! Invariant: a live task is in exactly one place, which is running, on the ready queue, or
//! blocked. A blocked task is in the one queue that can wake it. A debug build checks this at each
//! poll.

mod access;
mod accesses;
mod answer;
mod audit;
mod builder;
mod conduct;
mod console;
mod daemons;
mod deadlines;
mod deadlock;
mod deferred;
mod device_calls;
mod devices;
mod disk_calls;
mod emit;
mod enlisted;
mod failures;
mod fast;
mod footprint;
mod happenings;
mod held;
mod holders;
mod hosts;
mod info;
mod inject;
mod input;
mod lifecycle;
mod limits;
mod outcome;
mod permits;
mod policy_calls;
mod processors;
mod published;
mod queue_calls;
mod queues;
mod ready;
mod report;
mod reset;
mod run;
mod schedule;
mod scopes;
mod screen;
mod select_calls;
mod selects;
mod shares;
mod signals;
mod socket_calls;
mod stall;
mod standstill;
mod stdio;
mod syscall;
mod table;
mod task;
mod timeouts;
mod timers;
mod transfers;
mod turn;
mod undo;
mod waiters;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
    time::Duration,
};

pub use builder::Builder;
pub(crate) use conduct::{Conductor, Own, Part};
pub use deadlock::Deadlock;
pub(crate) use enlisted::{Ender, Known, Stuck};
pub use failures::Failures;
pub use holders::OnDeadlock;
pub use published::{CurrentTurn, TaskTurn};
pub use report::{Blocked, Error, Limit, Report, Stalled, Step};

use run::Ends;

use crate::{
    abi::{KernelId, Nanos, Place, Tid},
    interrupt::{External, Remote},
    log::Log,
    trap::TrapFrame,
    world::{Happening, World},
};

/// An operating system in a process: it owns the tasks, the queues, the timers and the devices.
///
/// Spawn programs, then [`run`](Kernel::run). Dropping a kernel ends its tasks and runs their
/// destructors.
pub struct Kernel {
    /// No other kernel of its thread has had it, nor this one before it was made as new.
    number: u64,
    /// Its number among those that run side by side.
    id: KernelId,
    tasks: table::Tasks,
    ready: ready::Ready,
    processors: processors::Processors,
    shares: shares::Shares,
    timers: timers::TimerSets,
    devices: devices::Devices,
    console: console::Console,
    stdio: stdio::Stdio,
    held: held::HeldCalls,
    selects: selects::Selects,
    signals: signals::Signals,
    bounds: limits::AllBounds,
    injection: Option<inject::Injection>,
    queues: queues::Queues,
    holders: holders::Holders,
    /// The places of faults, until the ends of their tasks are told.
    faults: BTreeMap<Tid, Place>,
    /// The turn under way, if other threads look at it.
    published: Option<Box<published::Published>>,
    /// Whether tracers or other threads learn of each turn.
    is_watched: bool,
    /// Whether the world is asked before each turn.
    is_asked: bool,
    /// Whether another kernel decides the turns.
    is_conducted: bool,
    world: Box<dyn World>,
    frame: Rc<TrapFrame>,
    log: Log,
    /// How many shared values the log has shown.
    shown: u64,
    remote: Remote,
    limits: builder::Limits,
    /// The world's time at the last poll.
    clock: Nanos,
    /// The tick, counted from boot, at which the next poll is due.
    next_poll: u64,
    /// The tick at which the pass under way ends: at a poll, or at a limit of the run.
    pass_ends: u64,
    /// Where the steps end, if the last call of the host was a step after which the run goes on.
    stepping: Option<Ends>,
    daemons: daemons::Daemons,
    choices: daemons::Mixed,
    /// The choices that tasks have made, if they are kept, and their places.
    chosen: Option<BTreeSet<(String, String)>>,
    /// A wait that the log has not recorded yet: its begin and its end.
    slept: Option<(Duration, Duration)>,
    /// What starts the programs of hosts again.
    restarts: hosts::Restarts,
    /// The last reports of the world; kept to reuse its memory.
    happened: Vec<Happening>,
    /// The number of threads that have ended and that the kernel counted on, by [`External`](crate::interrupt::External).
    over: [usize; External::ALL.len()],
    /// The wait in which only other threads can wake a task.
    stall: stall::Stall,
    /// The turns since the clock has moved.
    standstill: standstill::Standstill,
    /// What gets the printed text instead of the world, if anything does.
    captured: Option<console::Captured>,
    /// An error of the console. No call of a task can return it.
    trouble: Option<io::Error>,
    stats: Report,
}

impl Kernel {
    /// Runs until no task is left. Daemons of programs ([`Os::spawn_daemon`](crate::Os::spawn_daemon))
    /// end with the last other task.
    ///
    /// *Errors:* [`Error::Deadlock`] when no task is ready and nothing can make one ready.
    /// [`Error::Stalled`] and [`Error::Limit`] at a limit of the [`Builder`]. [`Error::Policy`]
    /// when the policy fails, [`Error::Io`] when the world does. After any result, `run` can be
    /// called again; limits then count from zero.
    pub fn run(&mut self) -> Result<Report, Error> {
        self.run_while(|_| true)
    }

    /// Runs until these tasks have ended. Others, such as servers, may be left. A number of no task
    /// counts as that of one that has ended.
    ///
    /// *Errors:* as [`Kernel::run`].
    pub fn run_until(&mut self, tasks: &[Tid]) -> Result<Report, Error> {
        self.run_while(|kernel| {
            tasks
                .iter()
                .any(|tid| kernel.tasks.find_live(*tid).is_some())
        })
    }

    /// Resumes one task. If no task is ready, waits for the world once.
    ///
    /// Steps up to [`Step::Finished`] or an error ask the world for the same answers as a run. So a
    /// run on a [tape](mod@crate::tape) can be replayed step by step.
    ///
    /// *Errors:* as [`Kernel::run`]. The limits on ticks and time count from the first step after
    /// boot, a run, an error or [`Step::Finished`]. The step after the last tick fails.
    pub fn step(&mut self) -> Result<Step, Error> {
        self.step_by(|kernel, ends| {
            loop {
                let ticks = ends.ticks.min(kernel.stats.ticks + 1);
                if let Some(tid) = kernel.run_pass(ticks) {
                    return Ok(Step::Ran(tid));
                }
                kernel.check_policy()?;
                if kernel.is_over() {
                    return Ok(Step::Finished);
                }
                let waits = kernel.is_waiting();
                kernel.poll_world(ends)?;
                if waits {
                    return Ok(Step::Idle);
                }
            }
        })
    }

    /// Begins a step, and ends it as the last of its sequence if it has finished or failed.
    fn step_by(
        &mut self,
        step: impl FnOnce(&mut Self, Ends) -> Result<Step, Error>,
    ) -> Result<Step, Error> {
        let (now, ends) = match self.stepping {
            Some(ends) => (self.world.now_for_log(), ends),
            None => self.begin(),
        };
        self.enter(now)?;
        let mut step = step(self, ends);
        self.leave();
        let goes_on = matches!(step, Ok(Step::Ran(_) | Step::Idle));
        self.stepping = goes_on.then_some(ends);
        if !goes_on {
            self.finish_printing(ends.time);
            step = step.and_then(|step| self.wind_up().map(|()| step));
        }
        self.log.leave_span();
        step
    }

    /// Begins a run or a sequence of steps. Returns the time, and where it ends.
    fn begin(&mut self) -> (Duration, Ends) {
        self.mark_run();
        self.console.begin();
        let now = self.world.now();
        let ticks = self.stats.ticks.saturating_add(self.limits.ticks);
        let time = Nanos::from(now).saturating_add(self.limits.time);
        self.skip_first_poll(time);
        (now, Ends { ticks, time })
    }

    fn run_while(&mut self, goes_on: impl Fn(&Self) -> bool) -> Result<Report, Error> {
        self.stepping = None;
        let (now, ends) = self.begin();
        self.enter(now)?;
        let ended = loop {
            self.run_pass(ends.ticks);
            if let Err(error) = self.check_policy() {
                break Err(error);
            }
            // Most runs end so: without daemons of programs, there is nothing to end.
            if self.tasks.live() == 0 || self.is_over() || !goes_on(self) {
                break Ok(());
            }
            if let Err(error) = self.poll_world(ends) {
                break Err(error);
            }
        };
        self.leave();
        self.finish_printing(ends.time);
        let ended = ended.and_then(|()| self.wind_up());
        self.log.leave_span();
        ended?;
        Ok(self.report())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.end_everything();
        self.console.hurry();
        self.finish_printing(Nanos::FOREVER);
    }
}
