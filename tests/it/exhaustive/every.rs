//! All schedules of a program, by a policy of the test's own.

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    fmt,
    rc::Rc,
};

use trapline::{Cause, Error, Kernel, OnDeadlock, Policy, Runnable, SimWorld};

/// What the schedules came to.
#[derive(Default)]
pub(super) struct All {
    pub(super) schedules: u64,
    pub(super) outcomes: BTreeSet<String>,
    /// Whether there are no more schedules.
    pub(super) is_complete: bool,
}

/// Runs every schedule, depth first, up to a number. A kernel of its own runs each.
pub(super) fn every(most: u64, program: impl Fn(&mut Kernel) -> Result<String, Error>) -> All {
    let way = Rc::new(RefCell::new(Way::default()));
    let mut all = All::default();
    while all.schedules < most && !all.is_complete {
        let builder = Kernel::builder().world(SimWorld::new(0));
        let builder = builder.on_deadlock(OnDeadlock::Stop);
        let built = builder.policy(Every(Rc::clone(&way))).build();
        let mut kernel = built.expect("the simulated world needs nothing");
        let outcome = program(&mut kernel).expect("it ends, or in a deadlock");
        all.outcomes.insert(outcome);
        all.schedules += 1;
        drop(kernel);
        all.is_complete = !way.borrow_mut().advance();
    }
    all
}

/// The choices of a schedule.
#[derive(Default)]
struct Way {
    ready: VecDeque<Runnable>,
    turn: usize,
    /// Of each turn: the place of the task in the ready queue, and the length of that.
    chosen: Vec<(usize, usize)>,
}

impl Way {
    /// Moves to the next schedule. Returns whether there is one.
    fn advance(&mut self) -> bool {
        self.ready.clear();
        self.chosen.truncate(self.turn);
        self.turn = 0;
        while let Some((at, of)) = self.chosen.pop() {
            if at + 1 < of {
                self.chosen.push((at + 1, of));
                return true;
            }
        }
        false
    }
}

struct Every(Rc<RefCell<Way>>);

impl Policy for Every {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0.borrow_mut().ready.push_back(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        let way = &mut *self.0.borrow_mut();
        let of = way.ready.len();
        if of == 0 {
            return None;
        }
        if way.turn == way.chosen.len() {
            way.chosen.push((0, of));
        }
        let (at, known) = way.chosen[way.turn];
        assert_eq!(known, of, "the program repeats what it did");
        way.turn += 1;
        way.ready.remove(at)
    }

    fn remove(&mut self, task: Runnable) {
        self.0.borrow_mut().ready.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.0.borrow().ready.len()
    }
}

impl fmt::Debug for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Every")
    }
}
