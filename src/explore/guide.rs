//! The policy that follows a plan, or records the plan of another policy; runs under plans.

use std::{cell::RefCell, collections::VecDeque, iter, mem::take, rc::Rc};

use super::{
    plan::{Decisions, Delay, Plan, Step, When},
    space::{Before, Decide, Drawn, Happens, Which},
    strategy::SearchStrategy,
    timed::Timed,
    trial::{Test, Trial, Trials},
    watchdog::TrialWatch,
};
use crate::{Cause, Error, Policy, Runnable, Tid};

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
    /// These decide instead of a plan, behind so many turns.
    chooser: Option<Box<dyn Policy>>,
    drawn: Option<Drawn>,
    until: u32,
    made: Plan,
    turns: u32,
    /// The waits for the clock since the last turn.
    waits: u32,
    choices: u32,
    /// What could have been decided otherwise, and its turn.
    points: Vec<(u32, Point)>,
    /// How many of them are not after the last decision of the plan.
    decided: usize,
    /// The task that the last departure has sent back, and its turn.
    preempted: Option<(u32, Runnable)>,
    /// The turns of kernels themselves.
    own: VecDeque<Begun>,
}

/// The begin of a turn.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) turn: u32,
    /// The task, or the kernel itself.
    pub(super) task: Tid,
    /// The task that is sent back.
    pub(super) preempted: Option<Tid>,
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
            made: plan.of_chaos(),
            ..Guided::default()
        };
    }

    /// Draws what is decided behind so many turns.
    fn draw_behind(&self, until: u32, seed: u64) {
        let mut this = self.0.borrow_mut();
        this.chooser = Some(SearchStrategy::Random.policy(seed));
        this.drawn = Some(Drawn::with_choices(seed));
        this.until = until;
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

    /// Takes the begin of the next turn of a kernel itself: no task is resumed there.
    pub(super) fn take_own(&self) -> Option<Begun> {
        self.0.borrow_mut().own.pop_front()
    }
}

impl Decide for Guide {
    fn choose(&self, of: u64, drawn: u64) -> u64 {
        let this = &mut *self.0.borrow_mut();
        this.choices += 1;
        let number = this.choices;
        let turn = this.turns;
        this.points.push((turn, Point::Choice(number, of)));
        let answer = match this.draws_at(turn) {
            Some(draws) => draws.choose(of, drawn),
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
        let taken = this.before_turn(may);
        this.waits += u32::from(may.waits && taken.is_none());
        taken
    }

    fn at_call(&self, faults: &[u32]) -> Option<u32> {
        let this = &mut *self.0.borrow_mut();
        let turn = this.turns;
        let when = When { turn, waits: 0 };
        let step = |at: u32| Step::Fault(when, Which { at, ends: false });
        let steps = faults.iter().map(|at| Point::Step(step(*at)));
        this.points.extend(steps.map(|it| (turn, it)));
        let taken = match this.draws_at(turn) {
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
    fn before_turn(&mut self, may: &Before) -> Option<Happens> {
        let (turn, waits) = (self.turns + 1, self.waits);
        let clock = (may.fits && !may.waits).then_some(Happens::Clock);
        let faults = may.faults.iter().copied().map(Happens::Fault);
        let all: Vec<Happens> = clock.into_iter().chain(faults).collect();
        let step = |happens: &Happens| match *happens {
            Happens::Clock => Step::Time(turn),
            Happens::Fault(which) => Step::Fault(When { turn, waits }, which),
        };
        let steps = all.iter().map(step);
        self.points.extend(steps.map(|it| (turn, Point::Step(it))));
        let taken = match self.draws_at(turn) {
            Some(drawn) => drawn.before_turn(may)?,
            None => {
                self.forget(turn);
                let next = match *self.ahead.last()? {
                    Step::Fault(when, which) if when.turn == turn && when.waits <= waits => {
                        Happens::Fault(which)
                    }
                    next if next == Step::Time(turn) => Happens::Clock,
                    _ => return None,
                };
                *all.iter().find(|happens| **happens == next)?
            }
        };
        self.take(step(&taken));
        Some(taken)
    }

    /// Forgets decisions of earlier turns, which the schedule does not offer.
    fn forget(&mut self, turn: u32) {
        while self.ahead.pop_if(|next| next.turn() < Some(turn)).is_some() {}
    }

    /// Returns what decides at this turn in the place of the plan.
    fn draws_at(&self, turn: u32) -> Option<&Drawn> {
        self.drawn.as_ref().filter(|_| turn > self.until)
    }

    /// Takes a decision, which is the next of the plan if that decides.
    fn take(&mut self, step: Step) {
        if self.draws_at(step.turn().unwrap_or(0)).is_none() {
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

    fn stays(&self) -> bool {
        true
    }

    fn pop(&mut self) -> Option<Runnable> {
        let this = &mut *self.0.borrow_mut();
        let width = this.ready.len() as u32;
        if width == 0 {
            return None;
        }
        this.turns += 1;
        this.waits = 0;
        let turn = this.turns;
        this.points.push((turn, Point::Turn(turn, width)));
        let by = match &mut this.chooser {
            Some(chooser) if turn > this.until => {
                // A policy may return a task that has ended meanwhile.
                let mut chosen = iter::from_fn(|| chooser.pop());
                chosen.find_map(|task| this.ready.iter().position(|ready| *ready == task))? as u32
            }
            // A program that has changed may have fewer tasks than the plan sends back.
            _ => {
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
        let next = this.ready.pop_front();
        let own = next.map(|task| task.tid).filter(|tid| tid.is_kernel());
        let preempted = this.preempted.filter(|(of, _)| *of == turn);
        this.own.extend(own.map(|task| Begun {
            turn,
            task,
            preempted: preempted.map(|(_, task)| task.tid),
        }));
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
        let (trials, guide) = (Trials::new(test, watch), Guide::default());
        trials.space.decide_by(guide.clone());
        Self {
            trials,
            seed,
            guide,
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
        self.trials.keep_chaos(plan);
        set(guide);
        self.trials.watch.decide(plan);
        Ok(self.trials.run())
    }

    /// Returns whether a schedule passes, of which all decisions behind so many turns are drawn; and its plan.
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

    /// Returns every preemption that the last run offers.
    pub(super) fn delays(&self) -> impl Iterator<Item = Step> + use<> {
        self.steps(0, 0).filter(Step::is_delay)
    }

    /// Returns the decisions that the last run offers behind so many turns, without those of its first
    /// points.
    fn steps(&self, skipped: usize, turns: u32) -> impl Iterator<Item = Step> + use<> {
        let points = self.guide.0.borrow().points.clone();
        let points = points.into_iter().skip(skipped);
        let points = points.filter(move |(turn, _)| *turn > turns);
        points.flat_map(|(_, point)| point.steps())
    }

    /// Returns the turn of each decision of the plan that ran last.
    pub(super) fn turns_of(&self, plan: &Plan) -> Vec<u32> {
        let points = &self.guide.0.borrow().points;
        let of_choice = |number| {
            let is_it =
                |point: &&(u32, Point)| matches!(point.1, Point::Choice(it, _) if it == number);
            points.iter().find(is_it).map_or(0, |(turn, _)| *turn)
        };
        let turn = |step: &Step| match step {
            Step::Choice(number, _) => of_choice(*number),
            _ => step.turn().unwrap_or(0),
        };
        plan.0.iter().map(turn).collect()
    }

    /// Whether the last run offers other decisions than preemptions.
    pub(super) fn offers_others(&self) -> bool {
        let guided = self.guide.0.borrow();
        let is_other = |(_, point): &(u32, Point)| !matches!(point, Point::Turn(..));
        guided.points.iter().any(is_other)
    }

    /// Whether the last run offers what counts as a preemption after the last decision of its plan.
    pub(super) fn offers_more(&self) -> bool {
        let guided = self.guide.0.borrow();
        let is_wide = |(_, point): &(u32, Point)| {
            matches!(point, Point::Turn(_, 2..) | Point::Step(Step::Time(_)))
        };
        guided.points[guided.decided..].iter().any(is_wide)
    }

    /// Returns the plans that have one decision more than this one, which ran last: a preemption only if
    /// that is asked for.
    pub(super) fn longer(&self, plan: &Plan, preempts: bool) -> impl Iterator<Item = Plan> + use<> {
        let longer = self.longer_behind(plan, 0);
        longer.filter(move |longer| preempts || longer.0.last().is_some_and(|step| !step.counts()))
    }

    /// Returns the plans that have one decision more than this one, which ran last, behind so many turns.
    pub(super) fn longer_behind(
        &self,
        plan: &Plan,
        turns: u32,
    ) -> impl Iterator<Item = Plan> + use<> {
        let plan = plan.clone();
        let decided = self.guide.0.borrow().decided;
        let steps = self.steps(decided, turns);
        steps.map(move |step| {
            let mut longer = plan.clone();
            longer.0.push(step);
            longer
        })
    }
}
