//! A barrier: a number of tasks wait for each other.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use crate::{
    trap::Kind,
    user::{os::Os, queue::Queue},
};

/// A barrier: a number of tasks wait until all of them have arrived. It can be used again then.
#[derive(Clone, Debug)]
pub struct Barrier {
    tasks: usize,
    round: Rc<RefCell<Rc<Round>>>,
}

#[derive(Debug)]
struct Round {
    arrived: Cell<usize>,
    /// Closed when all have arrived.
    gate: Queue<()>,
}

/// The arrival of a waiting task. Dropping it, for instance by a kill, takes it back.
struct Arrival(Rc<Round>);

impl Drop for Arrival {
    fn drop(&mut self) {
        // When the round is over, its count is of no use.
        if !self.0.gate.is_closed() {
            self.0.gate.touch_beside(true);
        }
        self.0.arrived.set(self.0.arrived.get() - 1);
    }
}

impl Barrier {
    /// Makes a barrier for this number of tasks. Never blocks.
    pub async fn new(os: &mut Os, tasks: usize) -> Self {
        Self::maybe_named(os, None, tasks).await
    }

    /// Makes a barrier with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, tasks: usize) -> Self {
        Self::maybe_named(os, Some(name), tasks).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, tasks: usize) -> Self {
        let gate = Queue::required(os, Kind::Barrier, name).await;
        Self {
            tasks,
            round: Rc::new(RefCell::new(Round::new(gate))),
        }
    }

    /// Waits for the others. *Blocks* until all have arrived. Returns whether this task was the
    /// last. The others pass even if a timeout cuts the last one's call.
    #[track_caller]
    pub fn wait(&self, os: &mut Os) -> impl Future<Output = bool> {
        let place = os.note_caller();
        async move {
            let gate = self.round.borrow().gate.clone();
            gate.require_home(os, "the barrier");
            // Made before this task is counted: a trap between the two would let another task arrive.
            let next = Round::new(gate.successor(os).await);
            let round = Rc::clone(&self.round.borrow());
            round.gate.touch_beside(true);
            let last = round.arrived.get() + 1 >= self.tasks;
            if last {
                next.gate.touch_beside(true);
                self.round.replace(next);
                let _closing = round.gate.closing();
                round.gate.close(os).await;
            } else {
                round.arrived.set(round.arrived.get() + 1);
                let _arrival = Arrival(Rc::clone(&round));
                os.frame().set_place(place);
                let _ = round.gate.take(os).await;
            }
            last
        }
    }
}

impl Round {
    fn new(gate: Queue<()>) -> Rc<Self> {
        Rc::new(Self {
            arrived: Cell::new(0),
            gate,
        })
    }
}
