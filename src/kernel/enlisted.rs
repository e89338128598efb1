//! A kernel among several.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use super::{Kernel, report::Error};
use crate::{
    abi::{Exit, KernelId, QueueId, TaskInfo, Tid},
    interrupt::Remote,
    sched::Random,
    trap::BoundMailbox,
    world::{InStep, Pace, SimWorld, World},
};

/// A mailbox that belongs to a kernel.
pub(crate) struct OwnMailbox {
    /// The queue in its place.
    pub(crate) queue: QueueId,
    bound: Rc<dyn BoundMailbox>,
}

impl OwnMailbox {
    /// How many handles put into it, and how many take from it.
    pub(crate) fn ends(&self) -> [usize; 2] {
        self.bound.ends()
    }

    /// The kernels of the tasks that wait for room in it, and the queues at which they wait.
    pub(crate) fn rooms(&self) -> Vec<(Remote, QueueId)> {
        self.bound.rooms()
    }
}

impl Kernel {
    /// Gives the kernel its number among those that run side by side. No task has had a turn. If it
    /// `is_shown`, logs show it before the numbers of tasks.
    pub(crate) fn enlist(&mut self, id: KernelId, is_shown: bool) {
        self.id = id;
        self.frame.kernel.set(id);
        if is_shown {
            self.log.show_kernel(id);
        }
    }

    /// Has the kernel wait on a common clock, with random numbers of this seed. If it `mixes`, a policy
    /// that was not set is random.
    ///
    /// *Errors:* the world is not a simulated one, or is on a tape.
    pub(crate) fn keep_step(
        &mut self,
        clock: &Rc<Cell<Duration>>,
        seed: u64,
        mixes: bool,
    ) -> io::Result<Rc<Pace>> {
        if self.world.spins() {
            let why = "Kernels::simulated is for kernels of the simulated world: boot each with \
                       Kernel::simulated, or with a SimWorld of its own";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if self.remote.is_taped() {
            let why = "a kernel of Kernels::simulated has no tape: its seed repeats the run";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let pace = Rc::new(Pace::new(clock));
        let inner = std::mem::replace(&mut self.world, Box::new(SimWorld::new(seed)));
        self.world = Box::new(InStep::new(inner, &pace));
        self.world.reseed(seed);
        if mixes && self.ready.is_plain() {
            self.ready
                .set_next(("of a search", Box::new(Random::new(seed))));
            self.replace_policy();
        }
        Ok(pace)
    }

    /// Returns the error of a kernel that waits, and has no others beside it.
    pub(crate) fn stuck_among(&self) -> Error {
        self.stuck()
    }

    /// Returns whether others run beside it.
    pub(crate) fn is_beside(&self) -> bool {
        self.log.kernel().get().is_some()
    }

    /// Returns the blocked tasks, with the number of the kernel before theirs.
    pub(crate) fn stuck_beside(&self) -> Vec<TaskInfo> {
        let blocked = self.blocked().into_iter();
        blocked.map(|task| task.beside(self.id)).collect()
    }

    /// Returns the mailboxes that belong to the kernel.
    pub(crate) fn mailboxes(&self) -> Vec<OwnMailbox> {
        let all = self.frame.mailboxes.all().into_iter();
        all.map(|(queue, bound)| OwnMailbox { queue, bound })
            .collect()
    }

    /// Ends the tasks one by one, and tells of each.
    pub(crate) fn end_each(&mut self, mut ended: impl FnMut(Tid)) {
        for task in self.tasks.youngest_first() {
            if self.tasks.is_live(task) {
                self.end(task, Exit::Killed);
                ended(task.tid);
            }
        }
    }
}
