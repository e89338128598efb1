//! The end of a search's time, within a schedule: neither an endless one nor a wait for other threads
//! must run past it.

use std::{io, time::Duration};

use super::{
    space::Space,
    watchdog::{CutAt, TrialWatch},
};
use crate::{BeforeTurn, Cause, Happening, Policy, Runnable, SimWorld, World, forward_world};

/// The turns between two looks at the clock.
const TURNS: u32 = 256;

/// The time between two looks at the clock, while a schedule waits for other threads.
const WAIT: Duration = Duration::from_millis(10);

/// A simulated world, in which a wait for other threads fails when the time of the search is over.
pub(super) struct TimedWorld {
    inner: SimWorld,
    watch: TrialWatch,
    space: Space,
}

impl TimedWorld {
    pub(super) fn new(inner: SimWorld, watch: &TrialWatch, space: &Space) -> Self {
        let (watch, space) = (watch.clone(), space.clone());
        Self {
            inner,
            watch,
            space,
        }
    }
}

impl World for TimedWorld {
    forward_world!(inner: now, now_for_log, random, reseed, seed, reset, print, take_console, wait);
    forward_world!(inner: holds_tasks, is_idle, remote, submit, io, mail, spins, spin, net);

    fn choose(&mut self, of: u64, drawn: u64) -> u64 {
        self.space.choose(of, drawn)
    }

    fn is_asked(&self) -> bool {
        self.space.is_asked()
    }

    fn before_turn(&mut self, at: BeforeTurn) -> Option<Duration> {
        let (now, report) = (self.inner.now(), self.inner.next_report());
        let net = World::net(&self.inner);
        self.space.before_turn(at, now, report, net.as_ref())
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> io::Result<Duration> {
        let mut waited = Duration::ZERO;
        loop {
            let mut span = patience.saturating_sub(waited);
            if self.watch.is_set() {
                span = span.min(WAIT);
            }
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
        let is_due = self.turns.is_multiple_of(TURNS) || self.watch.is_ended();
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
