//! The policy that follows a plan, or records the plan of another policy; runs under plans.

use std::{cell::RefCell, collections::VecDeque, iter, mem::take, rc::Rc};

use super::{
    plan::{Decisions, Delay, Plan, Step},
    space::Decide,
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
    /// The decisions that lie ahead and have a turn, the next of them at the end; and the answers of
    /// choices.
    ahead: Vec<Step>,
    answers: Vec<(u32, u64)>,
    /// Decides instead of a plan.
    chooser: Option<Box<dyn Policy>>,
    made: Plan,
    turns: u32,
    choices: u32,
    /// What could have been decided otherwise.
    points: Vec<Point>,
    /// How many of them are not after the last decision of the plan.
    decided: usize,
    /// The task that the last departure has sent back, and its turn.
    preempted: Option<(u32, Runnable)>,
}

/// A place in a schedule where there are several decisions.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// So many tasks are ready at this turn.
    Turn(u32, u32),
    /// The choice of this number has so many answers.
    Choice(u32, u64),
}

impl Point {
    /// Returns the decisions that are not the usual one.
    fn steps(self) -> impl Iterator<Item = Step> {
        let (turns, answers) = match self {
            Self::Turn(turn, width) => (Some((turn, width)), None),
            Self::Choice(number, of) => (None, Some((number, of))),
        };
        let delays = |(turn, width)| (1..width).map(move |by| Step::Delay(Delay { turn, by }));
        let others = |(number, of)| (1..of).map(move |answer| Step::Choice(number, answer));
        let delays = turns.into_iter().flat_map(delays);
        delays.chain(answers.into_iter().flat_map(others))
    }
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
        let (mut ready, mut points) = (take(&mut this.ready), take(&mut this.points));
        ready.clear();
        points.clear();
        let steps = plan.0.iter().rev().copied();
        let answer = |step| match step {
            Step::Choice(number, answer) => Some((number, answer)),
            Step::Delay(_) => None,
        };
        *this = Guided {
            ready,
            points,
            answers: steps.clone().filter_map(answer).collect(),
            ahead: steps.filter(|step| step.turn().is_some()).collect(),
            ..Guided::default()
        };
    }

    pub(super) fn made(&self) -> Plan {
        self.0.borrow().made.clone()
    }

    pub(super) fn turns(&self) -> u32 {
        self.0.borrow().turns
    }

    /// Returns the task that the turn under way has sent back.
    pub(super) fn preempted(&self) -> Option<Runnable> {
        let (turn, task) = self.0.borrow().preempted?;
        (turn == self.turns()).then_some(task)
    }
}

impl Decide for Guide {
    fn choose(&self, of: u64, drawn: u64) -> u64 {
        let this = &mut *self.0.borrow_mut();
        this.choices += 1;
        let number = this.choices;
        this.points.push(Point::Choice(number, of));
        let answer = match &this.chooser {
            Some(_) => drawn,
            None => match this.answers.pop_if(|(next, _)| *next == number) {
                Some((_, answer)) => {
                    this.decided = this.points.len();
                    answer % of
                }
                None => 0,
            },
        };
        if answer > 0 {
            this.made.0.push(Step::Choice(number, answer));
        }
        answer
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
        this.turns += 1;
        let turn = this.turns;
        this.points.push(Point::Turn(turn, width));
        let by = match &mut this.chooser {
            Some(chooser) => {
                // A policy may return a task that has ended meanwhile.
                let mut chosen = iter::from_fn(|| chooser.pop());
                chosen.find_map(|task| this.ready.iter().position(|ready| *ready == task))? as u32
            }
            // A program that has changed may have fewer tasks than the plan sends back.
            None => match this.ahead.pop_if(|next| next.turn() == Some(turn)) {
                Some(Step::Delay(delay)) => {
                    this.decided = this.points.len();
                    delay.by % width
                }
                _ => 0,
            },
        };
        if by > 0 {
            this.made.0.push(Step::Delay(Delay { turn, by }));
            this.preempted = this.ready.front().map(|task| (turn, *task));
            this.ready.rotate_left(by as usize);
        }
        this.ready.pop_front()
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
        let (trials, guide) = (Trials::new(test, watch), Guide::default());
        trials.space.decide_by(guide.clone());
        Self {
            trials,
            seed,
            guide,
        }
    }

    pub(super) fn run(&mut self, plan: &Plan) -> Result<Trial, Error> {
        let guide = &self.guide;
        self.trials.prepare(self.seed, |builder, watch| {
            builder.policy(Timed::new(guide.clone(), watch))
        })?;
        guide.follow(plan);
        self.trials.watch.decide(plan);
        Ok(self.trials.run())
    }

    pub(super) fn fails(&mut self, plan: &Plan) -> Result<bool, Error> {
        Ok(self.run(plan)?.failure.is_some() && !self.is_cut())
    }

    /// Whether the last run was longer than an exhaustive search allows, and so has no result.
    pub(super) fn is_cut(&self) -> bool {
        let settings = self.trials.test.settings;
        settings.is_exhaustive() && u64::from(self.guide.turns()) > settings.steps()
    }

    /// Returns every preemption that the last run offers.
    pub(super) fn delays(&self) -> impl Iterator<Item = Step> + use<> {
        self.steps(0).filter(Step::is_delay)
    }

    /// Returns the decisions that the last run offers, without those of its first points.
    fn steps(&self, skipped: usize) -> impl Iterator<Item = Step> + use<> {
        let points = self.guide.0.borrow().points.clone();
        points.into_iter().skip(skipped).flat_map(Point::steps)
    }

    /// Whether the last run offers other decisions than preemptions.
    pub(super) fn offers_others(&self) -> bool {
        let guided = self.guide.0.borrow();
        let is_other = |point: &Point| !matches!(point, Point::Turn(..));
        guided.points.iter().any(is_other)
    }

    /// Whether the last run offers preemptions after the last decision of its plan.
    pub(super) fn offers_more(&self) -> bool {
        let guided = self.guide.0.borrow();
        let is_wide = |point: &Point| matches!(point, Point::Turn(_, 2..));
        guided.points[guided.decided..].iter().any(is_wide)
    }

    /// Returns the plans that have one decision more than this one, which ran last: a preemption only if
    /// that is asked for.
    pub(super) fn longer(&self, plan: &Plan, preempts: bool) -> impl Iterator<Item = Plan> + use<> {
        let plan = plan.clone();
        let decided = self.guide.0.borrow().decided;
        let steps = self.steps(decided);
        let steps = steps.filter(move |step| preempts || !step.is_delay());
        steps.map(move |step| {
            let mut longer = plan.clone();
            longer.0.push(step);
            longer
        })
    }
}
