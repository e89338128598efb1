//! The policy that follows a plan, or records the plan of another policy; runs under plans.

use std::{cell::RefCell, collections::VecDeque, iter, mem::take, rc::Rc};

use super::{
    plan::{Decisions, Delay, Plan, Step},
    space::{Before, Decide, Drawn, Happens, Which},
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
    /// These decide instead of a plan.
    chooser: Option<Box<dyn Policy>>,
    drawn: Option<Drawn>,
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
    /// The step is possible.
    Step(Step),
}

impl Point {
    /// Returns the decisions that are not the usual one.
    fn steps(self) -> impl Iterator<Item = Step> {
        let (mut turns, mut answers, mut step) = (None, None, None);
        match self {
            Self::Turn(turn, width) => turns = Some((turn, width)),
            Self::Choice(number, of) => answers = Some((number, of)),
            Self::Step(possible) => step = Some(possible),
        }
        let delays = |(turn, width)| (1..width).map(move |by| Step::Delay(Delay { turn, by }));
        let others = |(number, of)| (1..of).map(move |answer| Step::Choice(number, answer));
        let delays = turns.into_iter().flat_map(delays);
        let others = answers.into_iter().flat_map(others);
        delays.chain(others).chain(step)
    }
}

impl Guide {
    pub(super) fn of(seed: u64, decisions: &Decisions) -> Self {
        let guide = Self::default();
        match decisions {
            Decisions::Plan(plan) => guide.follow(plan),
            Decisions::Strategy(strategy) => {
                let mut this = guide.0.borrow_mut();
                this.chooser = Some(strategy.policy(seed));
                this.drawn = Some(Drawn::new(seed));
                drop(this);
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
            _ => None,
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

    fn before_turn(&self, may: &Before) -> Option<Happens> {
        let this = &mut *self.0.borrow_mut();
        let turn = this.turns + 1;
        let clock = (may.fits && !may.waits).then_some(Happens::Clock);
        let faults = may.faults.iter().copied().map(Happens::Fault);
        let all: Vec<Happens> = clock.into_iter().chain(faults).collect();
        let step = |happens: &Happens| match *happens {
            Happens::Clock => Step::Time(turn),
            Happens::Fault(which) => Step::Fault(turn, which),
        };
        this.points.extend(all.iter().map(step).map(Point::Step));
        let taken = match &this.drawn {
            Some(drawn) => drawn.before_turn(may)?,
            None => {
                this.forget(turn);
                let next = *this.ahead.last()?;
                *all.iter().find(|happens| step(happens) == next)?
            }
        };
        this.take(step(&taken));
        Some(taken)
    }

    fn at_call(&self, faults: &[u32]) -> Option<u32> {
        let this = &mut *self.0.borrow_mut();
        let turn = this.turns;
        let step = |at: u32| Step::Fault(turn, Which { at, ends: false });
        let steps = faults.iter().map(|at| Point::Step(step(*at)));
        this.points.extend(steps);
        let taken = match &this.drawn {
            Some(drawn) => drawn.at_call(faults)?,
            None => {
                this.forget(turn);
                let next = *this.ahead.last()?;
                *faults.iter().find(|at| step(**at) == next)?
            }
        };
        this.take(step(taken));
        Some(taken)
    }
}

impl Guided {
    /// Forgets decisions of earlier turns, which the schedule does not offer.
    fn forget(&mut self, turn: u32) {
        while self.ahead.pop_if(|next| next.turn() < Some(turn)).is_some() {}
    }

    /// Takes a decision, which is the next of the plan if there is one.
    fn take(&mut self, step: Step) {
        if self.drawn.is_none() {
            self.ahead.pop();
            self.decided = self.points.len();
        }
        self.made.0.push(step);
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
            None => {
                this.forget(turn);
                let steps = this.ahead.iter().rev();
                let here = steps.take_while(|step| step.turn() == Some(turn));
                // What comes before it in its turn was not possible.
                match here.copied().enumerate().find(|(_, step)| step.is_delay()) {
                    Some((before, Step::Delay(delay))) => {
                        this.ahead.truncate(this.ahead.len() - before - 1);
                        this.decided = this.points.len();
                        delay.by % width
                    }
                    _ => 0,
                }
            }
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

    /// Whether the last run offers what counts as a preemption after the last decision of its plan.
    pub(super) fn offers_more(&self) -> bool {
        let guided = self.guide.0.borrow();
        let is_wide =
            |point: &Point| matches!(point, Point::Turn(_, 2..) | Point::Step(Step::Time(_)));
        guided.points[guided.decided..].iter().any(is_wide)
    }

    /// Returns the plans that have one decision more than this one, which ran last: a preemption only if
    /// that is asked for.
    pub(super) fn longer(&self, plan: &Plan, preempts: bool) -> impl Iterator<Item = Plan> + use<> {
        let plan = plan.clone();
        let decided = self.guide.0.borrow().decided;
        let steps = self.steps(decided);
        let steps = steps.filter(move |step| preempts || !step.counts());
        steps.map(move |step| {
            let mut longer = plan.clone();
            longer.0.push(step);
            longer
        })
    }
}
