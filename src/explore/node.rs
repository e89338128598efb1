//! The nodes of the tree of schedules, the way of a schedule through them, and parts of the tree.

use std::{collections::VecDeque, rc::Rc};

use super::{
    causal::{Causality, Turn},
    foot::Foot,
    plan::Plan,
    space::{Before, Drawn, Move, Pick},
};
use crate::{Object, Policy, Runnable, Tid};

/// The task whose turns are the steps of the clock.
pub(super) const CLOCK: Tid = Tid::KERNEL;

/// The task whose turns are faults.
pub(super) const FAULTS: Tid = Tid::FAULTS;

pub(super) fn is_between(task: Tid) -> bool {
    task == CLOCK || task == FAULTS
}

/// A part of the tree: the schedules that begin with these turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) turns: Vec<Move>,
    /// The tasks whose next turn leads only to causal orders of other parts.
    pub(super) sleep: Vec<(Tid, Foot)>,
    /// The first part of the search has the longest audit.
    pub(super) is_first: bool,
}

#[derive(Default)]
pub(super) enum Decider {
    /// The tree: the next schedule of the search.
    #[default]
    Tree,
    /// These turns. The schedule is cut after them.
    Probe(Vec<Move>),
    /// These turns, in order.
    Order(VecDeque<Move>),
    /// A policy, and what decides everything else.
    Policy(Box<dyn Policy>, Drawn),
}

pub(super) struct Node {
    /// The ready tasks, by tid. Nodes share what is the same.
    pub(super) ready: Rc<[Tid]>,
    pub(super) chosen: Tid,
    /// What is decided in the turn of that task, and what it touched with earlier decisions.
    pub(super) picks: Vec<Pick>,
    pub(super) foot: Foot,
    /// Whether the clock can go on after turns that come later.
    pub(super) is_early: bool,
    /// The tasks whose turn here leads only to causal orders that were run before.
    pub(super) sleep: Vec<(Tid, Foot)>,
    /// Which of these the turn of the chosen task has woken.
    pub(super) woken: Vec<usize>,
    /// The tasks to choose here, in turn.
    pub(super) backtrack: Vec<Tid>,
    /// The tasks that were chosen here, with what their turn touched.
    pub(super) done: Vec<(Tid, Foot)>,
}

#[derive(Default)]
pub(super) struct TreeRun {
    /// In order of arrival.
    pub(super) ready: VecDeque<Runnable>,
    pub(super) causality: Causality,
    pub(super) current: Option<Tid>,
    pub(super) sleep: Vec<(Tid, Foot)>,
    pub(super) made: Plan,
    pub(super) cut: Option<Cut>,
    /// What the turn under way is to decide, if no node says so, and how many decisions it has made.
    pub(super) given: Vec<Pick>,
    pub(super) picked: usize,
    pub(super) choices: u32,
    /// The turns of tasks, and the waits for the clock since the last of them.
    pub(super) turns: u32,
    pub(super) waits: u32,
    /// What was decided before the turn: its task.
    pub(super) next: Option<Tid>,
    /// What may happen before the turn, if that was asked.
    pub(super) may: Option<Before>,
    /// Whether the wait under way ends all that happens before it.
    pub(super) is_wait: bool,
}

/// Why a schedule was not run to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// Every continuation has a causal order that was run before.
    Redundant,
    TooLong,
    /// Only its begin was to be run. These tasks are ready then.
    Probed(Vec<Tid>),
    /// The body did not repeat what it did in an earlier run of the same turns.
    Unrepeatable(String),
}

pub(super) struct Ran {
    pub(super) plan: Plan,
    pub(super) cut: Option<Cut>,
    pub(super) class: u64,
    /// Another order of the same turns that only independent turns tell apart.
    pub(super) other: Option<Vec<Move>>,
    /// More of them, if it is the first schedule that has any.
    pub(super) more: Vec<Vec<Move>>,
    pub(super) turns: usize,
}

/// The orders that are drawn in each part of a search.
pub(super) const DRAWN: usize = 6;

/// Returns the number of orders in which a task rests, for a schedule of so many turns: as many, until
/// the audit would run more than 20,000 turns; for longer ones at least 10.
pub(super) fn rests(turns: usize) -> usize {
    turns.min((20_000 / turns.max(1)).max(10))
}

impl TreeRun {
    pub(super) fn reset(&mut self, known: Vec<Turn>) {
        self.ready.clear();
        self.causality.reset(known);
        self.current = None;
        self.sleep.clear();
        self.made.0.clear();
        self.cut = None;
        self.given.clear();
        (self.picked, self.choices) = (0, 0);
        (self.turns, self.waits) = (0, 0);
        (self.next, self.may, self.is_wait) = (None, None, false);
    }
}

impl TreeRun {
    /// Adds what a step of the clock or a fault touches, which no call of a task notes.
    pub(super) fn touch_between(&self, task: Tid, foot: &mut Foot) {
        if task == CLOCK && !self.is_wait {
            foot.touch(Object::Clock);
            foot.touch(Object::World);
        }
        if task == FAULTS {
            let crashes = self.may.as_ref().is_some_and(|may| may.crashes);
            // A crash ends tasks whatever these touch.
            foot.touch(if crashes { Object::All } else { Object::World });
        }
    }

    /// Whether the clock has gone on since a turn.
    pub(super) fn clock_after(&self, turn: usize) -> bool {
        let mut later = turn + 1..self.causality.len();
        later.any(|at| self.causality.turn(at).task == CLOCK)
    }

    /// Whether an order of the turns that have run can be run: no step between turns comes after the end of the
    /// last task.
    pub(super) fn is_possible(&self, order: &[Move]) -> bool {
        let last = self.causality.len().checked_sub(1);
        let ended_between = last.is_some_and(|last| is_between(self.causality.turn(last).task));
        ended_between || !order.last().is_some_and(|last| is_between(last.task))
    }

    pub(super) fn is_ready(&self, task: Tid) -> bool {
        self.ready.iter().any(|ready| ready.tid == task)
    }

    /// The tasks that can have the next turn, in order of arrival, and what can happen before it.
    pub(super) fn candidates(&self, into: &mut Vec<Tid>) {
        into.clear();
        let Some(may) = &self.may else {
            return into.extend(self.ready.iter().map(|task| task.tid));
        };
        if !may.waits {
            into.extend(self.ready.iter().map(|task| task.tid));
        }
        let clock = may.fits || may.waits && may.has_deadline;
        into.extend(clock.then_some(CLOCK));
        into.extend((!may.faults.is_empty()).then_some(FAULTS));
    }
}

/// Moves to the next decisions of a turn: the last one that has another answer has it. Those after it
/// are made anew. Returns whether there are such decisions.
pub(super) fn next_picks(picks: &mut Vec<Pick>) -> bool {
    while let Some(pick) = picks.pop() {
        if pick.answer + 1 < pick.of {
            let answer = pick.answer + 1;
            picks.push(Pick { answer, ..pick });
            return true;
        }
    }
    false
}

impl Node {
    pub(super) fn try_all(&mut self) {
        let ready = self.ready.iter().copied();
        let more = ready.filter(|task| !self.backtrack.contains(task));
        self.backtrack.extend(more.collect::<Vec<_>>());
    }

    /// Tries one of these tasks here, unless one of them is tried already; best that one.
    pub(super) fn try_one_of(&mut self, initials: &[Tid], best: Tid) {
        if initials.iter().any(|task| self.backtrack.contains(task)) {
            return;
        }
        let pick = initials.iter().find(|initial| **initial == best);
        let pick = pick.or(initials.first()).copied();
        let pick = pick.filter(|pick| self.ready.contains(pick));
        self.backtrack.extend(pick);
    }

    /// Divides the tasks that sleep here: those that the turn of the chosen task leaves asleep, and those that
    /// it wakes.
    pub(super) fn divide_sleep(&mut self, turn: &Turn, asleep: &mut Vec<(Tid, Foot)>) {
        let stays = |(other, foot): &&(Tid, Foot)| !turn.foot.wakes(*other, foot);
        let others = |(other, _): &&(Tid, Foot)| *other != turn.task;
        asleep.clear();
        let all = self.sleep.iter().chain(&self.done).filter(others);
        asleep.extend(all.filter(stays).cloned());
        self.woken.clear();
        let woken = self.sleep.iter().enumerate();
        let woken = woken.filter(|(_, it)| others(it) && !stays(it));
        self.woken.extend(woken.map(|(at, _)| at));
    }

    /// Whether a task was woken here whose turn does not commute with this later one of another task.
    pub(super) fn has_woken_before(&self, task: Tid, later: &Foot) -> bool {
        let mut woken = self.woken.iter().map(|at| &self.sleep[*at]);
        woken.any(|(other, foot)| *other != task && later.wakes(*other, foot))
    }

    pub(super) fn next(&self) -> Option<Tid> {
        let is_among = |all: &[(Tid, Foot)], task: Tid| all.iter().any(|(other, _)| *other == task);
        let mut tasks = self.backtrack.iter().copied();
        tasks.find(|task| !is_among(&self.done, *task) && !is_among(&self.sleep, *task))
    }
}
