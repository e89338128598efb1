//! A kernel among several.

use std::{cell::Cell, io, rc::Rc, sync::Arc, time::Duration};

use super::{
    Conductor, Kernel, Part,
    report::Error,
    task::{State, WaitingOn},
};
use crate::{
    abi::{End, Exit, Interest, KernelId, On, QueueId, TaskInfo, TaskState, Tid},
    interrupt::Remote,
    trap::{BoundMailbox, SharedMailbox},
    world::{InStep, Pace, SimWorld, World},
};

/// A mailbox that a kernel knows.
pub(crate) struct Known {
    /// The queue in its place, if it belongs to the kernel.
    pub(crate) queue: Option<QueueId>,
    bound: Option<Rc<dyn BoundMailbox>>,
    shared: Arc<dyn SharedMailbox>,
}

impl Known {
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// How many handles put into it, and how many take from it.
    pub(crate) fn ends(&self) -> [usize; 2] {
        self.shared.ends()
    }

    /// The kernels of the tasks that wait for room in it, and the queues at which they wait.
    pub(crate) fn rooms(&self) -> Vec<(Remote, QueueId)> {
        self.shared.rooms()
    }

    /// Drops the messages that no task has taken. No task of any kernel has another turn.
    pub(crate) fn discard(&self) {
        match &self.bound {
            Some(bound) => bound.discard(),
            None => self.shared.discard(),
        }
    }
}

/// What can end a wait.
pub(crate) enum Ender {
    /// A task: by its end, or with the lock that it holds.
    Task(Tid),
    /// What puts into this queue, or closes it.
    Queue(QueueId),
    Other,
}

/// A task that cannot go on, with the number of the kernel before its own, and what could end its wait: each by
/// itself.
pub(crate) struct Stuck {
    pub(crate) task: TaskInfo,
    pub(crate) enders: Vec<Ender>,
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

    /// Has the kernel wait on a common clock, with random numbers of this seed, and perhaps under a conductor.
    ///
    /// *Errors:* the world is not a simulated one, or is on a tape.
    pub(crate) fn keep_step(
        &mut self,
        clock: &Rc<Cell<Duration>>,
        seed: u64,
        conductor: Option<&Rc<Conductor>>,
    ) -> io::Result<(Rc<Pace>, Option<Rc<Part>>)> {
        if self.world.spins() {
            let why = "Kernels::simulated is for kernels of the simulated world: boot each with \
                       Kernel::simulated, or with a SimWorld of its own";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if self.remote.is_taped() {
            let why = "a kernel of Kernels::simulated has no tape: its seed repeats the run";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let choose = conductor.map(|conductor| {
            let conductor = Rc::clone(conductor);
            Box::new(move |of, drawn| conductor.choose(of, drawn)) as _
        });
        let pace = Rc::new(Pace::new(clock, choose));
        let inner = std::mem::replace(&mut self.world, Box::new(SimWorld::new(seed)));
        self.world = Box::new(InStep::new(inner, &pace));
        self.world.reseed(seed);
        let part = conductor.map(|conductor| self.obey(conductor));
        Ok((pace, part))
    }

    /// Returns the error of a kernel that waits, and has no others beside it.
    pub(crate) fn stuck_among(&self) -> Error {
        self.stuck()
    }

    /// Returns whether others run beside it.
    pub(crate) fn is_beside(&self) -> bool {
        self.log.shown().is_some()
    }

    /// Returns the blocked tasks.
    pub(crate) fn stuck_beside(&self) -> Vec<Stuck> {
        let stuck = |task: TaskInfo| Stuck {
            enders: self.enders_beside(&task),
            task: task.beside(self.id),
        };
        self.blocked().into_iter().map(stuck).collect()
    }

    /// Returns what could end a wait at a queue, or that of a select: one for each source.
    fn enders_beside(&self, task: &TaskInfo) -> Vec<Ender> {
        if let TaskState::Blocked {
            on: On::Queue(queue, End::Get),
            ..
        } = task.state
        {
            return vec![Ender::Queue(queue)];
        }
        let found = self.tasks.find_live(task.tid);
        match found.map(|found| self.tasks[found].state()) {
            Some(State::Blocked(WaitingOn::Select(key, _))) if !task.wait.is_timed => {
                let sources = self.selects.sources(*key);
                sources.map(|source| self.ender_beside(source)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn ender_beside(&self, source: Interest) -> Ender {
        let taken = source.taken();
        let holder = taken.and_then(|(queue, count)| self.holder(queue, count, None));
        match (source.ender(holder), taken) {
            (Some(task), _) => Ender::Task(task.beside(self.id)),
            (None, Some((queue, _))) => Ender::Queue(queue),
            (None, None) => Ender::Other,
        }
    }

    /// Returns the mailboxes that belong to the kernel, and those that its tasks have put into and that belong
    /// to none.
    pub(crate) fn mailboxes(&self) -> Vec<Known> {
        let bound = self.frame.mailboxes.all().into_iter();
        let bound = bound.filter_map(|(queue, bound)| {
            Some(Known {
                queue: Some(queue),
                shared: bound.shared()?,
                bound: Some(bound),
            })
        });
        let unbound = self.frame.mailboxes.unbound().into_iter();
        let unbound = unbound.map(|shared| Known {
            queue: None,
            bound: None,
            shared,
        });
        bound.chain(unbound).collect()
    }

    /// Ends the tasks one by one, and tells of each, with those that end because of it.
    pub(crate) fn end_each(&mut self, mut ended: impl FnMut(&[Tid])) {
        let mut left = self.tasks.youngest_first();
        while let Some(task) = left.first() {
            self.end(*task, &Exit::Killed);
            let gone = left.extract_if(.., |task| !self.tasks.is_live(*task));
            let gone: Vec<Tid> = gone.map(|task| task.tid).collect();
            ended(&gone);
        }
    }

    /// Drops the messages of all its queues. The kernel must not run again.
    pub(crate) fn discard_messages(&mut self) {
        for queue in self.queues.iter() {
            if let Some(messages) = queue.messages() {
                messages.clear();
            }
        }
    }
}
