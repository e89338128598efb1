//! The policy that follows a plan, or records the plan of another policy; runs under plans.

use std::{cell::RefCell, collections::VecDeque, iter, mem::take, rc::Rc};

use super::{
    plan::{Decisions, Delay, Plan},
    strategy::SearchStrategy,
    timed::Timed,
    trial::{Test, Trial, Trials},
    watchdog::TrialWatch,
};
use crate::{Cause, Error, Policy, Runnable};

/// First in, first out, with the departures of a plan. Clones are handles to the same policy.
#[derive(Clone, Default)]
pub(super) struct Guide(Rc<RefCell<Guided>>);

#[derive(Default)]
struct Guided {
    ready: VecDeque<Runnable>,
    /// The departures that lie ahead, the next of them at the end.
    ahead: Vec<Delay>,
    /// Decides instead of a plan, behind so many turns.
    chooser: Option<Box<dyn Policy>>,
    until: u32,
    made: Plan,
    widths: Vec<u32>,
    /// The task that the last departure has sent back, and its turn.
    preempted: Option<(u32, Runnable)>,
}

impl Guide {
    pub(super) fn of(seed: u64, decisions: &Decisions) -> Self {
        let guide = Self::default();
        match decisions {
            Decisions::Plan(plan) => guide.follow(plan),
            Decisions::Strategy(strategy) => {
                guide.0.borrow_mut().chooser = Some(strategy.policy(seed));
            }
        }
        guide
    }

    fn follow(&self, plan: &Plan) {
        let mut this = self.0.borrow_mut();
        // The memory is kept.
        let (mut ready, mut widths) = (take(&mut this.ready), take(&mut this.widths));
        ready.clear();
        widths.clear();
        *this = Guided {
            ready,
            widths,
            ahead: plan.0.iter().rev().copied().collect(),
            ..Guided::default()
        };
    }

    /// Draws the turns behind so many.
    fn draw_behind(&self, until: u32, seed: u64) {
        let mut this = self.0.borrow_mut();
        this.chooser = Some(SearchStrategy::Random.policy(seed));
        this.until = until;
    }

    pub(super) fn made(&self) -> Plan {
        self.0.borrow().made.clone()
    }

    pub(super) fn turns(&self) -> u32 {
        self.0.borrow().widths.len() as u32
    }

    /// Returns the task that the turn under way has sent back.
    pub(super) fn preempted(&self) -> Option<Runnable> {
        let (turn, task) = self.0.borrow().preempted?;
        (turn == self.turns()).then_some(task)
    }
}

impl Policy for Guide {
    fn push(&mut self, task: Runnable, cause: Cause) {
        let this = &mut *self.0.borrow_mut();
        this.ready.push_back(task);
        if let Some(chooser) = &mut this.chooser {
            chooser.push(task, cause);
        }
    }

    fn pop(&mut self) -> Option<Runnable> {
        let this = &mut *self.0.borrow_mut();
        let width = this.ready.len() as u32;
        if width == 0 {
            return None;
        }
        this.widths.push(width);
        let turn = this.widths.len() as u32;
        let by = match &mut this.chooser {
            Some(chooser) if turn > this.until => {
                // A policy may return a task that has ended meanwhile.
                let mut chosen = iter::from_fn(|| chooser.pop());
                chosen.find_map(|task| this.ready.iter().position(|ready| *ready == task))? as u32
            }
            // A program that has changed may have fewer tasks than the plan sends back.
            _ => {
                let delay = this.ahead.pop_if(|next| next.turn == turn);
                delay.map_or(0, |delay| delay.by % width)
            }
        };
        if by > 0 {
            this.made.0.push(Delay { turn, by });
            this.preempted = this.ready.front().map(|task| (turn, *task));
            this.ready.rotate_left(by as usize);
        }
        let next = this.ready.pop_front();
        if let (Some(chooser), Some(next)) = (&mut this.chooser, next)
            && turn <= this.until
        {
            chooser.remove(next);
        }
        next
    }

    fn remove(&mut self, task: Runnable) {
        let this = &mut *self.0.borrow_mut();
        this.ready.retain(|other| *other != task);
        if let Some(chooser) = &mut this.chooser {
            chooser.remove(task);
        }
    }

    fn ended(&mut self, task: Runnable) {
        if let Some(chooser) = &mut self.0.borrow_mut().chooser {
            chooser.ended(task);
        }
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.0.borrow().ready.len()
    }
}

/// A body, and the kernel on which it runs under one plan after the other.
pub(super) struct Planned<'a> {
    trials: Trials<'a>,
    seed: u64,
    guide: Guide,
}

impl<'a> Planned<'a> {
    pub(super) fn new(test: Test<'a>, seed: u64, watch: TrialWatch) -> Self {
        Self {
            trials: Trials::new(test, watch),
            seed,
            guide: Guide::default(),
        }
    }

    pub(super) fn run(&mut self, plan: &Plan) -> Result<Trial, Error> {
        self.run_as(plan, |_| ())
    }

    fn run_as(&mut self, plan: &Plan, set: impl FnOnce(&Guide)) -> Result<Trial, Error> {
        let guide = &self.guide;
        self.trials.prepare(self.seed, |builder, watch| {
            builder.policy(Timed::new(guide.clone(), watch))
        })?;
        guide.follow(plan);
        set(guide);
        self.trials.watch.decide(plan);
        Ok(self.trials.run())
    }

    /// Returns whether a schedule passes, of which the turns behind so many are drawn; and its plan.
    pub(super) fn passes_beyond(
        &mut self,
        plan: &Plan,
        until: u32,
        seed: u64,
    ) -> Result<(bool, Plan), Error> {
        let trial = self.run_as(plan, |guide| guide.draw_behind(until, seed))?;
        Ok((trial.failure.is_none() && !self.is_cut(), self.guide.made()))
    }

    pub(super) fn passes(&mut self, plan: &Plan) -> Result<bool, Error> {
        Ok(self.run(plan)?.failure.is_none() && !self.is_cut())
    }

    pub(super) fn fails(&mut self, plan: &Plan) -> Result<bool, Error> {
        Ok(self.run(plan)?.failure.is_some() && !self.is_cut())
    }

    /// Whether the last run was longer than an exhaustive search allows, and so has no result.
    pub(super) fn is_cut(&self) -> bool {
        let settings = self.trials.test.settings;
        settings.is_exhaustive() && u64::from(self.guide.turns()) > settings.steps()
    }

    /// Returns every departure after a turn that the last run offers.
    pub(super) fn delays(&self, after: u32) -> impl Iterator<Item = Delay> + use<> {
        let widths = self.guide.0.borrow().widths.clone();
        let turns = widths.into_iter().zip(1..).skip(after as usize);
        turns.flat_map(|(width, turn)| (1..width).map(move |by| Delay { turn, by }))
    }

    /// Returns the plans that have one departure more than this one, which ran last.
    pub(super) fn longer(&self, plan: &Plan) -> impl Iterator<Item = Plan> + use<> {
        let plan = plan.clone();
        self.delays(plan.last_turn()).map(move |delay| {
            let mut longer = plan.clone();
            longer.0.push(delay);
            longer
        })
    }
}
