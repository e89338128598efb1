//! What a schedule decides besides the order of its turns: the answers of choices.

use std::{cell::RefCell, rc::Rc};

use crate::Tid;

/// Answers what a schedule decides. The strategies, the tree and the plans each have one.
pub(super) trait Decide {
    /// Answers a choice among so many. `drawn` is the answer of the seed.
    fn choose(&self, of: u64, drawn: u64) -> u64;
}

/// What the world of a trial asks. Clones are handles to the same.
#[derive(Clone, Default)]
pub(super) struct Space(Rc<RefCell<Asked>>);

#[derive(Default)]
struct Asked {
    decider: Option<Rc<dyn Decide>>,
}

impl Space {
    /// Has this decide from now on. Before, the seed decides.
    pub(super) fn decide_by(&self, decider: impl Decide + 'static) {
        self.0.borrow_mut().decider = Some(Rc::new(decider));
    }

    fn decider(&self) -> Option<Rc<dyn Decide>> {
        self.0.borrow().decider.clone()
    }

    pub(super) fn choose(&self, of: u64, drawn: u64) -> u64 {
        let decider = self.decider();
        decider.map_or(drawn, |decider| decider.choose(of, drawn))
    }
}

/// The first answer of each choice, as the first schedule of an exhaustive search has it.
pub(super) struct First;

impl Decide for First {
    fn choose(&self, _of: u64, _drawn: u64) -> u64 {
        0
    }
}

/// What is decided within a turn, and among how many answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pick {
    pub(super) answer: u64,
    pub(super) of: u64,
}

/// A turn that is to run: its task, and what is decided within it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) task: Tid,
    pub(super) answers: Vec<u64>,
}

impl Move {
    pub(super) fn of(task: Tid) -> Self {
        let answers = Vec::new();
        Self { task, answers }
    }
}
