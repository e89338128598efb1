//! The policy that follows a plan, or records the plan of another policy.

use std::{cell::RefCell, collections::VecDeque, iter, rc::Rc};

use super::plan::{Delay, Plan};
use crate::{Cause, Policy, Runnable};

/// First in, first out, with the departures of a plan. Clones are handles to the same policy.
#[derive(Clone, Default)]
pub(super) struct Guide(Rc<RefCell<Guided>>);

#[derive(Default)]
struct Guided {
    ready: VecDeque<Runnable>,
    /// The turns so far.
    turn: u32,
    /// The departures that lie ahead, the next of them at the end.
    ahead: Vec<Delay>,
    /// Decides instead of a plan.
    chooser: Option<Box<dyn Policy>>,
    /// The departures so far.
    made: Plan,
    /// The number of ready tasks at each turn.
    widths: Vec<u32>,
    /// The task that the last departure has sent back, and its turn.
    preempted: Option<(u32, Runnable)>,
}

impl Guide {
    /// Follows a plan from now on.
    pub(super) fn follow(&self, plan: &Plan) {
        let ahead = plan.0.iter().rev().copied().collect();
        self.begin(Guided {
            ahead,
            ..Guided::default()
        });
    }

    /// Records what a policy decides from now on.
    pub(super) fn record(&self, chooser: Box<dyn Policy>) {
        let chooser = Some(chooser);
        self.begin(Guided {
            chooser,
            ..Guided::default()
        });
    }

    fn begin(&self, state: Guided) {
        let mut old = self.0.replace(state);
        old.ready.clear();
        old.widths.clear();
        let mut this = self.0.borrow_mut();
        (this.ready, this.widths) = (old.ready, old.widths);
    }

    /// Returns the departures so far.
    pub(super) fn made(&self) -> Plan {
        self.0.borrow().made.clone()
    }

    /// Returns the number of turns so far.
    pub(super) fn turns(&self) -> u32 {
        self.0.borrow().turn
    }

    /// Returns the number of ready tasks at each turn so far.
    pub(super) fn widths(&self) -> Vec<u32> {
        self.0.borrow().widths.clone()
    }

    /// Returns the task that the turn under way has sent back.
    pub(super) fn preempted(&self) -> Option<Runnable> {
        let this = self.0.borrow();
        let (turn, task) = this.preempted?;
        (turn == this.turn).then_some(task)
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
        this.turn += 1;
        this.widths.push(width);
        let turn = this.turn;
        let by = match &mut this.chooser {
            Some(chooser) => {
                // A policy may return a task that has ended meanwhile.
                let mut chosen = iter::from_fn(|| chooser.pop());
                chosen.find_map(|task| this.ready.iter().position(|ready| *ready == task))? as u32
            }
            // A program that has changed may have fewer tasks than the plan sends back.
            None => this
                .ahead
                .pop_if(|next| next.turn == turn)
                .map_or(0, |delay| delay.by % width),
        };
        if by > 0 {
            this.made.0.push(Delay { turn, by });
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
