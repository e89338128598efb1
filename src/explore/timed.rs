//! The end of a search's time, within a schedule: neither an endless one nor a wait for other threads
//! must run past it. What the watchdog has to know of the schedule.

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
    io,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use super::{
    deadline::Deadline,
    watchdog::{TrialRun, UnderWay},
};
use crate::{
    Cause, CurrentTurn, Happening, Kernel, Policy, Runnable, SimWorld, World, forward_world,
};

/// The turns between two looks at the clock.
const TURNS: u32 = 256;

/// The time between two looks at the clock, while a schedule waits for other threads.
const WAIT: Duration = Duration::from_millis(10);

/// Where the end of its time has cut a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CutAt {
    /// Before a turn.
    Turn,
    /// In a wait that only other threads can end.
    Wait,
}

/// The end of a search's time, and whether it has cut the schedule under way. Clones are handles to
/// the same watch.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialWatch {
    deadline: Deadline,
    cut: Rc<Cell<Option<CutAt>>>,
    run: Arc<TrialRun>,
    /// The view of the kernel of the schedule.
    turn: Rc<RefCell<Option<CurrentTurn>>>,
    /// Whether kernels publish their turns.
    publishes: bool,
}

/// A schedule that is under way, until it is dropped.
pub(super) struct Begun<'a>(&'a TrialRun);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.begin_or_end();
    }
}

impl TrialWatch {
    /// Returns the watch over the schedules of a thread. Without a deadline none is cut.
    pub(super) fn new(deadline: Deadline, all: &UnderWay, publishes: bool) -> Self {
        Self {
            deadline,
            run: all.add(),
            publishes,
            ..Self::default()
        }
    }

    /// Returns the same for schedules on another kernel.
    pub(super) fn beside(&self) -> Self {
        Self {
            run: self.run.beside(),
            turn: Rc::default(),
            ..self.clone()
        }
    }

    /// Returns whether there is such an end.
    pub(super) fn is_set(&self) -> bool {
        self.deadline.is_set()
    }

    /// Returns whether a schedule was cut. Its result is none.
    pub(super) fn has_cut(&self) -> bool {
        self.cut.get().is_some()
    }

    /// Returns whether a schedule was cut in a wait for other threads.
    pub(super) fn waits(&self) -> bool {
        self.cut.get() == Some(CutAt::Wait)
    }

    /// Says where a schedule was cut.
    pub(super) fn within(&self) -> Option<&'static str> {
        Some(match self.cut.get()? {
            CutAt::Turn => "within a schedule",
            CutAt::Wait => "within a schedule that waits for another thread (Setter::remote)",
        })
    }

    /// Returns whether the time is over, which cuts the schedule here.
    fn is_over(&self, here: CutAt) -> bool {
        let is_over = self.deadline.is_over();
        if is_over {
            self.cut.set(Some(here));
        }
        is_over
    }

    /// Notes the decisions of the schedules from now on, as a replay has them.
    pub(super) fn decide(&self, decisions: &impl Display) {
        if self.publishes {
            self.run.set_decisions(decisions.to_string());
        }
    }

    /// Notes one more decision of the schedule that is under way.
    pub(super) fn decide_also(&self, decision: &impl Display) {
        if self.publishes {
            self.run.add_decision(decision);
        }
    }

    /// Notes the seed of the next schedule.
    pub(super) fn seed(&self, seed: u64) {
        self.run.set_seed(seed);
    }

    /// Notes that a schedule begins on this kernel.
    pub(super) fn begin(&self, kernel: &mut Kernel) -> Begun<'_> {
        if self.publishes {
            let turn = kernel.current_turn();
            let mut known = self.turn.borrow_mut();
            if known.as_ref().is_none_or(|known| !known.is_same(turn)) {
                *known = Some(turn.clone());
                self.run.set_turn(turn.clone());
            }
        }
        self.run.begin_or_end();
        Begun(&self.run)
    }
}

/// A simulated world, in which a wait for other threads fails when the time of the search is over.
pub(super) struct TimedWorld {
    inner: SimWorld,
    watch: TrialWatch,
}

impl TimedWorld {
    pub(super) fn new(inner: SimWorld, watch: &TrialWatch) -> Self {
        let watch = watch.clone();
        Self { inner, watch }
    }
}

impl World for TimedWorld {
    forward_world!(inner: now, now_for_log, random, reseed, seed, reset, print, take_console, wait);
    forward_world!(inner: holds_tasks, is_idle, remote, submit, io, spins, spin, net);

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> io::Result<Duration> {
        let mut waited = Duration::ZERO;
        loop {
            let left = patience.saturating_sub(waited);
            let span = match self.watch.is_set() {
                true => left.min(WAIT),
                false => left,
            };
            let span = self.inner.wait_for_threads(deadline, span, happened)?;
            waited += span;
            if span.is_zero() {
                return Ok(Duration::ZERO);
            }
            if waited >= patience {
                return Ok(waited);
            }
            if self.watch.is_over(CutAt::Wait) {
                return Err(io::Error::other("the time of the search is over"));
            }
        }
    }
}

/// A policy that returns no task any more when the time of the search is over. The run ends with an
/// error of the policy then.
#[derive(Debug)]
pub(super) struct Timed<P> {
    policy: P,
    watch: TrialWatch,
    turns: u32,
}

impl<P> Timed<P> {
    pub(super) fn new(policy: P, watch: &TrialWatch) -> Self {
        Self {
            policy,
            watch: watch.clone(),
            turns: 0,
        }
    }

    #[inline(always)]
    fn is_over(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let is_due = self.turns.is_multiple_of(TURNS) || self.watch.run.is_over();
        is_due && self.look()
    }

    #[cold]
    fn look(&self) -> bool {
        self.watch.is_over(CutAt::Turn)
    }
}

impl<P: Policy> Policy for Timed<P> {
    fn push(&mut self, task: Runnable, cause: Cause) {
        self.policy.push(task, cause);
    }

    fn pop(&mut self) -> Option<Runnable> {
        if self.is_over() {
            return None;
        }
        self.policy.pop()
    }

    fn remove(&mut self, task: Runnable) {
        self.policy.remove(task);
    }

    fn ended(&mut self, task: Runnable) {
        self.policy.ended(task);
    }

    fn len(&self) -> usize {
        self.policy.len()
    }

    /// The policies of a search look at no facts.
    fn wants_facts(&self) -> bool {
        false
    }

    fn reseed(&mut self, seed: u64) {
        self.policy.reseed(seed);
    }
}
