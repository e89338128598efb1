//! The table of tasks: slots, the families in them, and the lists by tid.

use std::{
    ops::{Index, IndexMut},
    ptr,
    rc::Rc,
};

use super::task::{Answer, Links, OnExit, State, Task};
use crate::{
    abi::{Nanos, TaskInfo, Tid},
    sched::{Runnable, Slot},
    trap::{Program, ended},
};

/// The task map. Tasks live in numbered slots, to which the queues lead directly; the list by tid
/// serves kill, wait and `ps`.
pub(super) struct Tasks {
    slots: Vec<Task>,
    /// The slots whose tasks are gone. Such a task has the number 0, which is nobody's.
    free: Vec<Slot>,
    by_tid: ByTid,
    last: u64,
    /// How many have not ended.
    live: usize,
    /// The tasks that count nowhere and are in no list.
    daemons: ByTid,
    last_daemon: u64,
}

impl Default for Tasks {
    fn default() -> Self {
        let nobody = Task {
            tid: Tid::KERNEL,
            program: ended(),
            traps: 0,
            state: State::Ending,
            since: Nanos::ZERO,
            name: Rc::default(),
            waiters: None,
            timeouts: None,
            parent: None,
            links: Links::default(),
            on_exit: OnExit::Nothing,
        };
        Self {
            slots: vec![nobody],
            free: Vec::new(),
            by_tid: ByTid::default(),
            last: 0,
            live: 0,
            daemons: ByTid::default(),
            last_daemon: 0,
        }
    }
}

impl Tasks {
    /// Adds a task and answers its name on the queues. A parent's children are a list through
    /// their links, the youngest first.
    pub(super) fn insert(
        &mut self,
        name: Rc<str>,
        program: Program,
        parent: Option<Runnable>,
        on_exit: OnExit,
        is_daemon: bool,
    ) -> Runnable {
        let tid = self.next_tid(is_daemon);
        let next = parent.and_then(|parent| self[parent].links.first_child);
        let newborn = Task {
            tid,
            program,
            traps: 0,
            state: State::Ready(Answer::REST),
            since: Nanos::ZERO,
            on_exit,
            name,
            parent: parent.map(|parent| parent.slot),
            waiters: None,
            timeouts: None,
            links: Links {
                first_child: None,
                next,
                previous: None,
            },
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot.index()] = newborn;
                slot
            }
            None => {
                self.slots.push(newborn);
                Slot::new(self.slots.len() - 1)
            }
        };
        if let Some(next) = next {
            self.at(next).links.previous = Some(slot);
        }
        if let Some(parent) = parent {
            self[parent].links.first_child = Some(slot);
        }
        let task = Runnable { tid, slot };
        if is_daemon {
            self.daemons.all.push(task);
        } else {
            self.by_tid.all.push(task);
            self.live += 1;
        }
        task
    }

    fn next_tid(&mut self, is_daemon: bool) -> Tid {
        if is_daemon {
            self.last_daemon += 1;
            Tid::from(Tid::DAEMONS + self.last_daemon)
        } else {
            self.last += 1;
            Tid::from(self.last)
        }
    }

    /// The number of live tasks, daemons apart.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Whether any task is ready, daemons apart.
    pub(super) fn is_any_ready(&self) -> bool {
        let mut tasks = self.by_tid.iter(&self.slots);
        tasks.any(|task| self[task].state.is_ready())
    }

    /// The tasks that are ready, by tid, daemons apart.
    pub(super) fn all_ready(&self) -> Vec<Runnable> {
        let tasks = self.by_tid.iter(&self.slots);
        tasks.filter(|task| self[*task].state.is_ready()).collect()
    }

    /// Marks that a task has ended.
    pub(super) fn ended(&mut self, task: Runnable) {
        self.live -= usize::from(!task.tid.is_daemon());
    }

    /// Whether a queue's entry still stands for a task, or that has ended meanwhile.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, task: Runnable) -> Option<&mut Task> {
        self.slots
            .get_mut(task.slot.index())
            .filter(|found| found.tid == task.tid)
    }

    /// Prefetches what a turn touches of a task.
    pub(super) fn prefetch_task(&self, task: Runnable) {
        if let Some(task) = self.slots.get(task.slot.index()) {
            prefetch(ptr::from_ref(task).cast());
        }
    }

    /// Prefetches the program of a task. What a generator owns was allocated just before it, and so
    /// mostly lies before it in memory.
    pub(super) fn prefetch_program(&self, task: Runnable) {
        const LINE: usize = 64;
        if let Some(task) = self.slots.get(task.slot.index()) {
            let program = ptr::from_ref(&*task.program).cast::<u8>();
            for line in 0..3 {
                prefetch(program.wrapping_sub(line * LINE));
            }
        }
    }

    /// The task of that number, zombie or alive.
    pub(super) fn find(&self, tid: Tid) -> Option<Runnable> {
        let list = if tid.is_daemon() {
            &self.daemons
        } else {
            &self.by_tid
        };
        list.find(tid).filter(|task| is_there(&self.slots, *task))
    }

    /// The live tasks, the youngest first; daemons last.
    pub(super) fn youngest_first(&self) -> Vec<Runnable> {
        let all = self.daemons.iter(&self.slots);
        let all = all.chain(self.by_tid.iter(&self.slots)).rev();
        all.filter(|task| self[*task].is_live()).collect()
    }

    /// Every task, by tid, daemons included.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Task> {
        let all = self.by_tid.iter(&self.slots);
        let all = all.chain(self.daemons.iter(&self.slots));
        all.map(|task| &self[task])
    }

    /// A line per task, by tid; none for daemons.
    pub(super) fn infos(&self) -> impl Iterator<Item = TaskInfo> {
        self.by_tid.iter(&self.slots).map(|task| {
            let task = &self[task];
            let parent = task.parent.map(|parent| self.slots[parent.index()].tid);
            task.info(parent.unwrap_or(Tid::KERNEL))
        })
    }

    /// Forgets a task that has ended and answers its state.
    pub(super) fn remove(&mut self, task: Runnable) -> State {
        self.unlink(task);
        self.free.push(task.slot);
        let gone = &mut self[task];
        gone.tid = Tid::KERNEL;
        let state = std::mem::replace(&mut gone.state, State::Ending);
        let list = if task.tid.is_daemon() {
            &mut self.daemons
        } else {
            &mut self.by_tid
        };
        list.forget(task, &self.slots);
        state
    }

    /// Takes the youngest child out of its family: an orphan from now on.
    pub(super) fn release_child(&mut self, parent: Runnable) -> Option<Runnable> {
        let slot = self[parent].links.first_child?;
        let child = self.in_slot(slot);
        self.unlink(child);
        Some(child)
    }

    fn unlink(&mut self, task: Runnable) {
        let this = &mut self[task];
        let Some(parent) = this.parent.take() else {
            return;
        };
        let (next, previous) = (this.links.next.take(), this.links.previous.take());
        if let Some(next) = next {
            self.at(next).links.previous = previous;
        }
        match previous {
            Some(previous) => self.at(previous).links.next = next,
            None => self.at(parent).links.first_child = next,
        }
    }

    /// The task in a slot that has one, by its name on the queues.
    pub(super) fn in_slot(&self, slot: Slot) -> Runnable {
        let tid = self.slots[slot.index()].tid;
        Runnable { tid, slot }
    }

    fn at(&mut self, slot: Slot) -> &mut Task {
        &mut self.slots[slot.index()]
    }
}

/// Tasks by tid. Tids only rise, so that a list which is appended to stays in order. Who is gone is
/// still on it, for to look for him would cost more than the rest of his end; when half of them are
/// gone, they are swept out.
#[derive(Default)]
struct ByTid {
    all: Vec<Runnable>,
    /// How many of them are gone.
    gone: usize,
}

impl ByTid {
    /// The task of that number, if it was ever there. Whoever was born last is asked about most.
    fn find(&self, tid: Tid) -> Option<Runnable> {
        let last = self.all.last().filter(|last| last.tid == tid);
        let found = last.or_else(|| {
            let at = self.all.binary_search_by_key(&tid, |task| task.tid);
            self.all.get(at.ok()?)
        });
        found.copied()
    }

    fn iter(&self, slots: &[Task]) -> impl DoubleEndedIterator<Item = Runnable> {
        let all = self.all.iter().copied();
        all.filter(|task| is_there(slots, *task))
    }

    /// Takes note that a task is gone from its slot.
    fn forget(&mut self, task: Runnable, slots: &[Task]) {
        if self.all.pop_if(|last| *last == task).is_none() {
            self.gone += 1;
        }
        if self.gone > 16 + self.all.len() / 2 {
            self.all.retain(|task| is_there(slots, *task));
            self.gone = 0;
        }
    }
}

/// Whether a task is in its slot, zombie or alive.
fn is_there(slots: &[Task], task: Runnable) -> bool {
    slots
        .get(task.slot.index())
        .is_some_and(|found| found.tid == task.tid)
}

impl Index<Runnable> for Tasks {
    type Output = Task;

    fn index(&self, task: Runnable) -> &Task {
        &self.slots[task.slot.index()]
    }
}

impl IndexMut<Runnable> for Tasks {
    fn index_mut(&mut self, task: Runnable) -> &mut Task {
        &mut self.slots[task.slot.index()]
    }
}

/// Asks for a line of memory that will be needed. A million tasks in no order switch six times
/// faster for it.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    #[expect(
        unsafe_code,
        reason = "270 ns a switch among a million tasks become 40"
    )]
    // SAFETY: a prefetch is a hint; at no address does it read, write or fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
