//! The kernel: one loop that resumes tasks, handles their calls, and waits for the world when
//! nobody is ready.
//!
//! Invariant, checked by `audit` after each pass of a debug build: a live task is in exactly one
//! place, running, on the ready queue, or blocked on one thing; and whoever is blocked is in the
//! one queue that can wake it.

mod audit;
mod builder;
mod deadlock;
mod deferred;
mod devices;
mod lifecycle;
mod queues;
mod report;
mod syscall;
mod table;
mod task;
mod timers;

use std::{fmt, io, rc::Rc, time::Duration};

pub use builder::Builder;
pub use deadlock::Deadlock;
pub use report::{Error, Limit, Report, Step};

use builder::{LOOK_AFTER, Limits};
use devices::Devices;
use queues::Queues;
use table::Tasks;
use task::{Legacy, Outcome, Place, State};
use timers::Clocks;

use crate::{
    abi::{DeviceId, Direction, Errno, Nanos, Reply, SystemCall, TaskInfo, Tid},
    interrupt::Remote,
    log::{Detail, Fact, Log, Wake},
    panic::Panic,
    sched::{Cause, Ready, Runnable},
    trap::{Frame, Payload, drop_payload, fault, resume},
    user::{
        os::Os,
        program::{self, IntoExit},
    },
    world::World,
};

/// How many tasks are too many for the nearer caches, with their programs.
const CROWD: usize = 4096;

/// How much of a pass is worth fetching when a task goes the long way.
const LONG: usize = 8;

/// How long daemons may have to wait for a look at their devices, which costs a system call, while
/// others are ready.
const GLANCE_AFTER: Nanos = Nanos::from_millis(1);

/// An operating system in a process: it owns the tasks, the queues, the timers and the devices.
///
/// Spawn programs, then [`run`](Kernel::run). Dropping a kernel ends its tasks, destructors
/// included.
pub struct Kernel {
    tasks: Tasks,
    ready: Ready,
    timers: Clocks,
    devices: Devices,
    queues: Queues,
    world: Box<dyn World>,
    frame: Rc<Frame>,
    log: Log,
    remote: Remote,
    limits: Limits,
    /// The time of the last look at the world.
    clock: Nanos,
    /// After how many resumes since boot the world is looked at next.
    next_look: u64,
    /// When daemons' devices are looked at next, if nobody else has reason to look at any.
    next_glance: Nanos,
    /// After how many resumes since boot the run is at its limit.
    last_tick: u64,
    /// How many turns tasks have had, daemons apart, when it was last asked whether only those run.
    task_turns: u64,
    /// What the world reported last; kept for its memory.
    reported: Vec<(DeviceId, Direction)>,
    /// What could not be told to a task: the console is gone.
    trouble: Option<io::Error>,
    stats: Report,
}

/// What a task did that was resumed, or not.
enum Turn {
    /// It made a call that is not answered at once.
    Call(SystemCall),
    /// It has returned, or panicked.
    Ended(Option<Panic>),
    /// It is no longer there, or something has to be done before it is resumed.
    None,
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
        self.admit(name, program, None, Legacy::Report, false, Nanos::ZERO)
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
        let task = self.admit(name, program, None, Legacy::Nothing, true, Nanos::ZERO);
        task.expect("there is no limit on daemons")
    }

    /// Runs until no task is left, which may be never.
    ///
    /// *Errors:* [`Error::Deadlock`] when no task is ready and nothing could make one ready,
    /// [`Error::Limit`] at a limit of the [`Builder`], [`Error::Io`] when the world fails. After
    /// any of them, and after an `Ok`, it can be called again; a limit then counts anew.
    pub fn run(&mut self) -> Result<Report, Error> {
        let report = self.run_on();
        self.remote.runs(Tid::KERNEL);
        report
    }

    fn run_on(&mut self) -> Result<Report, Error> {
        self.observe();
        self.last_tick = self.stats.ticks.saturating_add(self.limits.ticks);
        self.next_look = self.next_look.min(self.last_tick);
        let time = Nanos::from(self.now()).saturating_add(self.limits.time);
        loop {
            if self.ready.is_plain() {
                self.plain_turns();
            } else {
                while self.stats.ticks < self.next_look && self.tick().is_some() {}
            }
            if self.tasks.live() == 0 {
                self.wind_up()?;
                return Ok(self.report());
            }
            if self.stats.ticks >= self.last_tick {
                return Err(Error::Limit(Limit::Ticks(self.limits.ticks)));
            }
            self.look(time)?;
        }
    }

    /// Advances by one resume; or, when nobody is ready, by one wait for the world.
    ///
    /// *Errors:* as [`Kernel::run`], but for the limits on ticks and time, which are of a run.
    pub fn step(&mut self) -> Result<Step, Error> {
        let step = self.step_on();
        self.remote.runs(Tid::KERNEL);
        step
    }

    fn step_on(&mut self) -> Result<Step, Error> {
        self.observe();
        self.last_tick = u64::MAX;
        loop {
            if self.stats.ticks < self.next_look
                && let Some(tid) = self.tick()
            {
                return Ok(Step::Ran(tid));
            }
            if self.tasks.live() == 0 {
                self.wind_up()?;
                return Ok(Step::Finished);
            }
            let idle = self.is_idle();
            self.look(Nanos::FOREVER)?;
            if idle {
                return Ok(Step::Idle);
            }
        }
    }

    /// A line per task, zombies included, by tid.
    pub fn tasks(&self) -> impl Iterator<Item = TaskInfo> {
        self.tasks.infos()
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

    /// Takes what the tasks have printed, where the world keeps it; in the real world it went to
    /// standard output, and this is empty.
    pub fn take_console(&mut self) -> String {
        self.world.take_console()
    }

    /// A line into this kernel for other threads and signal handlers.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Readies the log: the host has had the time since the last event.
    fn observe(&mut self) {
        self.log.observe_by_tracing();
        let now = self.world.now();
        self.log.set_clock(now);
    }

    /// Sees to what came too late for a look at the world: no task is left. A shutdown is for
    /// daemons too, and not for the next run.
    fn wind_up(&mut self) -> Result<(), Error> {
        if self.remote.take_shutdown() {
            self.end_all();
        }
        self.trouble
            .take()
            .map_or(Ok(()), |error| Err(Error::Io(error)))
    }

    /// What happened since boot.
    fn report(&mut self) -> Report {
        let mut report = self.stats.clone();
        report.elapsed = self.now();
        report.traps = report.ticks - report.finished;
        report
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    // ---- turns

    /// Gives turns until it is time to look at the world, or nobody is ready; first in, first out,
    /// a tick at a time.
    fn plain_turns(&mut self) {
        let (mut pass, mut taken) = self.ready.take_pass();
        while self.stats.ticks < self.next_look {
            if taken == pass.len() {
                self.ready.next_pass(&mut pass);
                taken = 0;
            }
            let turns = usize::try_from(self.next_look - self.stats.ticks).unwrap_or(usize::MAX);
            let rest = &pass[taken..];
            let (walked, stay) = match &rest[..rest.len().min(turns)] {
                [] => break,
                some if self.log.is_observed() => self.walk::<false, false, true>(some),
                [_] if rest.len() == 1 && self.ready.is_empty() => {
                    self.walk::<true, false, false>(rest)
                }
                few if few.len() < CROWD => self.walk::<false, false, false>(few),
                many => self.walk::<false, true, false>(many),
            };
            if stay == 0 && walked == pass.len() && self.ready.is_empty() {
                // Nobody has left and nobody has come: the next pass is this one.
                continue;
            }
            self.ready.push_all(&rest[stay..walked]);
            taken += walked;
        }
        self.ready.resume_pass(pass, taken);
    }

    /// Gives these tasks a turn each, until the world is to be looked at. A task that is alone goes
    /// on until then.
    ///
    /// Answers how many had their turn, and from which one of those on all stay on the ready queue
    /// and are not back on it yet: to put them back at once costs less than one by one, and nothing
    /// if all stay.
    ///
    /// In a crowd, which fits into no cache, those who come soon are fetched. Outside of one they are
    /// only when a task goes the long way, which may lead to the operating system: that leaves
    /// nothing in the nearer caches.
    ///
    /// This is the price of a trap. A call that needs little but its caller is answered here and
    /// now; everything else goes the long way, by `turn` and `settle`.
    #[inline(never)]
    fn walk<const ALONE: bool, const CROWDED: bool, const OBSERVED: bool>(
        &mut self,
        pass: &[Runnable],
    ) -> (usize, usize) {
        let mut stay = 0;
        let mut rest = pass.iter();
        'pass: while let Some(me) = rest.next() {
            if CROWDED {
                self.tasks.fetch(rest.as_slice());
            }
            let turn = 'turn: {
                let Some(task) = self.tasks.get_mut(*me) else {
                    break 'turn Turn::None;
                };
                let Some(mut reply) = task.state.plain() else {
                    break 'turn Turn::None;
                };
                self.remote.runs(me.tid);
                if OBSERVED {
                    self.log.emit_at_once(me.tid, || Fact::Resumed);
                }
                let call = loop {
                    self.stats.ticks += 1;
                    task.traps += 1;
                    let call = match resume(&mut task.program, reply) {
                        Ok(Some(call)) => call,
                        Ok(None) => break 'turn Turn::Ended(None),
                        Err(panic) => break 'turn Turn::Ended(Some(panic)),
                    };
                    reply = match call {
                        SystemCall::GetTid if self.frame.is_empty() => Reply::Tid(me.tid),
                        SystemCall::Yield if self.frame.is_empty() => Reply::Done,
                        SystemCall::Put(_)
                        | SystemCall::Get(_)
                        | SystemCall::TryPut(_)
                        | SystemCall::TryGet(_) => {
                            if self.queues.at_once(call, &self.frame, task) {
                                break call;
                            }
                            break 'turn Turn::Call(call);
                        }
                        call => break 'turn Turn::Call(call),
                    };
                    if !ALONE || self.stats.ticks >= self.next_look {
                        task.change(State::Ready(reply));
                        break call;
                    }
                };
                if OBSERVED {
                    self.emit_trap(*me, call);
                }
                continue 'pass;
            };
            let taken = pass.len() - rest.len();
            self.ready.push_all(&pass[stay..taken - 1]);
            stay = taken;
            if !CROWDED && pass.len() - taken > LONG {
                self.tasks.fetch(&pass[taken..]);
            }
            match turn {
                Turn::Call(call) => self.settle(*me, call),
                Turn::Ended(panic) => self.finish(*me, panic),
                Turn::None => drop(self.turn(*me)),
            }
            if self.stats.ticks >= self.next_look {
                return (stay, stay);
            }
        }
        (pass.len(), stay)
    }

    /// Gives the next task its turn. Answers which it was, or `None` if nobody is ready.
    fn tick(&mut self) -> Option<Tid> {
        loop {
            let me = self.ready.pop()?;
            let turn = self.turn(me);
            if turn.is_some() {
                return turn;
            }
        }
    }

    /// Gives a task its turn, whatever it is to be resumed with. It has none if it was killed on
    /// the ready queue, or finds nothing to read on its device after all.
    #[inline(never)]
    fn turn(&mut self, me: Runnable) -> Option<Tid> {
        self.tasks
            .get_mut(me)
            .filter(|task| task.state.is_ready())?;
        let reply = self.deliver(me)?;
        self.stats.ticks += 1;
        self.remote.runs(me.tid);
        self.log.emit_at_once(me.tid, || Fact::Resumed);
        let task = &mut self.tasks[me];
        task.traps += 1;
        match resume(&mut task.program, reply) {
            Ok(Some(call)) => self.settle(me, call),
            Ok(None) => self.finish(me, None),
            Err(panic) => self.finish(me, Some(panic)),
        }
        Some(me.tid)
    }

    /// Does what a task's call asks for.
    #[inline(never)]
    fn settle(&mut self, me: Runnable, call: SystemCall) {
        self.tasks[me].change(State::Running);
        if self.frame.has_payload() && !call.has_payload() {
            // Of a trap that was begun and given up, or answered and not heard.
            drop_payload(&self.frame);
        }
        if self.frame.has_mail() && !self.take_mail(me) {
            return self.abandon(call);
        }
        match self.handle(me, call) {
            Outcome::Reply(reply) => {
                let detail = Detail::None;
                self.log
                    .emit_at_once(me.tid, || Fact::Replied { reply, detail });
                self.tasks[me].change(State::Ready(reply));
                self.ready.requeue(me, call);
            }
            Outcome::Answered => self.ready.requeue(me, call),
            Outcome::Blocked | Outcome::Gone => {}
            Outcome::Exit => self.exit_by_frame(me),
        }
    }

    /// Ends a task whose program has returned or panicked.
    #[cold]
    fn finish(&mut self, me: Runnable, panic: Option<Panic>) {
        self.tasks[me].change(State::Running);
        if let Some(panic) = panic {
            fault(&self.frame, panic);
        }
        self.stats.finished += 1;
        self.tasks[me].traps -= 1;
        if !self.frame.has_mail() || self.take_mail(me) {
            self.exit_by_frame(me);
        } else {
            self.frame.take();
        }
    }

    /// Drops what travelled beside a call whose task killed itself in making it.
    #[cold]
    fn abandon(&mut self, call: SystemCall) {
        drop_payload(&self.frame);
        let message = self.frame.message.take();
        if let (SystemCall::Put(queue) | SystemCall::TryPut(queue), Some(message)) = (call, message)
        {
            self.discard(queue, message);
        }
    }

    fn exit_by_frame(&mut self, me: Runnable) {
        match self.frame.take() {
            Some(Payload::Exit(exit)) => self.end(me, exit),
            _ => unreachable!("who ends leaves the exit in the frame"),
        }
    }

    /// Tells of a fact that has just come about.
    #[inline(always)]
    fn emit<'a>(&mut self, tid: Tid, fact: impl FnOnce() -> Fact<'a>) {
        if self.log.is_observed() {
            self.read_clock();
            self.log.emit_at_once(tid, fact);
        }
    }

    /// Tells of a call with nothing beside it, and of its answer, if it has one.
    fn emit_trap(&mut self, me: Runnable, call: SystemCall) {
        let answer = self.tasks[me].state.answer();
        if let Some((reply, Detail::None)) = answer
            && !me.tid.is_daemon()
        {
            self.read_clock();
            return self.log.tell_trap(me.tid, call, reply);
        }
        self.read_clock();
        let detail = Detail::None;
        self.log
            .emit_at_once(me.tid, || Fact::Trapped { call, detail });
        self.tell_answer(me);
    }

    fn read_clock(&mut self) {
        if self.log.is_exact() {
            let now = self.world.now();
            self.log.set_clock(now);
        }
    }

    /// Leaves an answer with the caller.
    #[inline(always)]
    fn answer(&mut self, me: Runnable, answer: impl Into<State>) -> Outcome {
        self.tasks[me].change(answer.into());
        self.tell_answer(me);
        Outcome::Answered
    }

    /// Marks the caller as blocked, in the queue where a handler has put it.
    fn block(&mut self, me: Runnable, place: Place) -> Outcome {
        self.log
            .emit_at_once(me.tid, || Fact::Blocked { on: place.into() });
        let task = &mut self.tasks[me];
        task.since = self.clock;
        task.change(State::Blocked(place));
        Outcome::Blocked
    }

    /// Makes a blocked task ready, once it has left the queue where it waited.
    fn wake(&mut self, task: Runnable, by: Wake, answer: impl Into<State>) {
        self.emit(task.tid, || Fact::Woken { by });
        let woken = &mut self.tasks[task];
        debug_assert!(
            matches!(woken.state, State::Blocked(_)),
            "only a blocked task is in a queue of waiters"
        );
        woken.change(answer.into());
        self.tell_answer(task);
        self.ready.push(task, Cause::Woken);
    }

    /// Tells of the answer that a task has got, if it is known by now.
    #[inline(always)]
    fn tell_answer(&mut self, me: Runnable) {
        if self.log.is_observed() {
            self.tell_answer_in_full(me);
        }
    }

    #[cold]
    fn tell_answer_in_full(&mut self, me: Runnable) {
        if let Some((reply, detail)) = self.tasks[me].state.answer() {
            self.log
                .emit_at_once(me.tid, || Fact::Replied { reply, detail });
        }
    }

    fn is_live(&mut self, task: Runnable) -> bool {
        self.tasks.get_mut(task).is_some_and(|task| task.is_live())
    }

    // ---- the world

    /// Looks at the world: after every pass, and when nobody is ready. Wakes whoever has reason
    /// to wake. Waits for such a reason when nobody is ready, until `limit` at the latest.
    fn look(&mut self, limit: Nanos) -> Result<(), Error> {
        if cfg!(debug_assertions) {
            self.audit();
        }
        if let Some(error) = self.trouble.take() {
            return Err(Error::Io(error));
        }
        // From the host, or from a destructor of a message.
        if self.frame.has_mail() {
            self.take_mail(Runnable::HOST);
        }
        let expected = self.remote.expected();
        if let Some(interrupts) = self.remote.take() {
            for queue in interrupts.rung {
                self.close_queue(queue);
            }
            if interrupts.shutdown {
                self.end_all();
                return Ok(());
            }
        }
        let waits = self.is_idle();
        let is_due = self.next_look > 0;
        let deadline = if waits { self.timers.next() } else { None };
        if self.timers.tasks.len() == 0
            && self.devices.waiting() == 0
            && expected == 0
            && (waits || is_due && self.only_daemons_run())
        {
            return Err(Error::Deadlock(Deadlock::of(self.tasks())));
        }
        let until = deadline.unwrap_or(Nanos::FOREVER).min(limit);
        self.attend(if waits { until } else { Nanos::ZERO })?;
        let pass = LOOK_AFTER.max(self.ready.len() as u64);
        self.next_look = (self.stats.ticks + pass).min(self.last_tick);
        let over = if self.is_idle() {
            self.clock >= limit
        } else {
            self.clock > limit
        };
        if over {
            Err(Error::Limit(Limit::Time(self.limits.time.into())))
        } else {
            Ok(())
        }
    }

    /// Waits for the world, no longer than until that instant, and wakes whoever has reason to wake.
    fn attend(&mut self, until: Nanos) -> Result<(), Error> {
        let before = self.world.now();
        let glance = self.devices.daemons() > 0 && Nanos::from(before) >= self.next_glance;
        let waits = until > Nanos::ZERO;
        if waits {
            self.remote.runs(Tid::KERNEL);
        }
        if waits || self.devices.waiting() > 0 || glance {
            self.next_glance = Nanos::from(before).saturating_add(GLANCE_AFTER);
            let until = (until != Nanos::FOREVER).then(|| until.into());
            self.world
                .wait(until, &mut self.reported)
                .map_err(Error::Io)?;
        }
        let now = self.world.now();
        self.clock = now.into();
        self.log.set_clock(now);
        if waits && now > before {
            self.log
                .emit_at_once(Tid::KERNEL, || Fact::ClockJumped { from: before });
        }
        while let Some((timer, slot)) = self.timers.pop_due(now.into()) {
            self.alarm(timer, slot);
        }
        let mut reported = std::mem::take(&mut self.reported);
        for (device, direction) in reported.drain(..) {
            self.report_ready(device, direction);
        }
        self.reported = reported;
        Ok(())
    }

    /// Whether daemons had every turn since this was asked last, and no other task is ready. At one
    /// look that says little: a daemon that is ready may be about to answer a task.
    fn only_daemons_run(&mut self) -> bool {
        let turns = self.stats.ticks - self.tasks.daemon_turns();
        std::mem::replace(&mut self.task_turns, turns) == turns && !self.tasks.is_any_ready()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.end_all();
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
