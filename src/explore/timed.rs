//! The end of a search's time, within a schedule: neither an endless one nor a wait for other threads
//! must run past it.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use super::deadline::Deadline;
use crate::{Cause, Happening, Policy, Runnable, SimWorld, World, forward_world};

/// The turns between two looks at the clock.
const TURNS: u32 = 256;

/// The time between two looks at the clock, while a schedule waits for other threads.
const WAIT: Duration = Duration::from_millis(10);

/// Where the end of its time has cut a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// Before a turn.
    Turn,
    /// In a wait that only other threads can end.
    Wait,
}

/// The end of a search's time, and whether it has cut the schedule under way. Clones are handles to
/// the same watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    deadline: Deadline,
    cut: Rc<Cell<Option<Cut>>>,
}

impl Watch {
    pub(super) fn new(deadline: Deadline) -> Self {
        Self {
            deadline,
            ..Self::default()
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
        self.cut.get() == Some(Cut::Wait)
    }

    /// Says where a schedule was cut.
    pub(super) fn within(&self) -> Option<&'static str> {
        Some(match self.cut.get()? {
            Cut::Turn => "within a schedule",
            Cut::Wait => "within a schedule that waits for another thread (Setter::remote)",
        })
    }

    /// Returns whether the time is over, which cuts the schedule here.
    fn is_over(&self, here: Cut) -> bool {
        let is_over = self.deadline.is_over();
        if is_over {
            self.cut.set(Some(here));
        }
        is_over
    }
}

/// A simulated world, in which a wait for other threads fails when the time of the search is over.
pub(super) struct TimedWorld {
    inner: SimWorld,
    watch: Watch,
}

impl TimedWorld {
    pub(super) fn new(inner: SimWorld, watch: &Watch) -> Self {
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
            if self.watch.is_over(Cut::Wait) {
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
    watch: Watch,
    turns: u32,
}

impl<P> Timed<P> {
    pub(super) fn new(policy: P, watch: &Watch) -> Self {
        Self {
            policy,
            watch: watch.clone(),
            turns: 0,
        }
    }

    #[inline(always)]
    fn is_over(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.turns.is_multiple_of(TURNS) && self.look()
    }

    #[cold]
    fn look(&self) -> bool {
        self.watch.is_over(Cut::Turn)
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
