//! The table of tasks: slots, the families in them, and the lists by tid.

use std::{
    ops::{Index, IndexMut},
    ptr,
    rc::Rc,
};

use super::{
    task::{OnExit, State, Task},
    waiters::Waiters,
};
use crate::{
    abi::{HostId, TaskInfo, Tid},
    sched::{Runnable, Slot},
    trap::{Birth, Keeper, Program},
};

/// Tasks live in numbered slots. Queues contain slots, so a turn needs no search. The list by tid
/// serves kill, wait and `ps`.
pub(super) struct Tasks {
    slots: Vec<Task>,
    /// The slots that tasks have left. Their tasks have the number 0, which no task has.
    free: Vec<Slot>,
    /// How many slots have had a task in this run, with the first, which has none. Those behind them are
    /// free, too.
    begun: usize,
    /// The tasks, and the daemons, which count nowhere.
    lists: [ByTid; 2],
    /// The number of live tasks that keep a run alive.
    lasting: usize,
    /// That of those which do not: daemons of programs.
    attendants: usize,
    /// Empty lists of waiters, at most [`SPARE`]: the next tasks that are waited for use their memory.
    #[expect(clippy::vec_box, reason = "a task takes the box as it is")]
    spare: Vec<Box<Waiters>>,
}

const SPARE: usize = 16;

impl Default for Tasks {
    fn default() -> Self {
        Self {
            slots: vec![Task::vacant(Rc::default())],
            free: Vec::new(),
            begun: 1,
            lists: ByTid::LASTS.map(ByTid::after),
            lasting: 0,
            attendants: 0,
            spare: Vec::new(),
        }
    }
}

impl Tasks {
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        birth: Rc<Birth>,
        program: Program,
        parent: Option<Runnable>,
        on_exit: OnExit,
        is_daemon: bool,
    ) -> Runnable {
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.begun == self.slots.len() {
                self.add_slot(&birth);
            }
            self.begun += 1;
            Slot::new(self.begun - 1)
        });
        let task = self.lists[usize::from(is_daemon)].push(slot);
        self.lasting += usize::from(!is_daemon);
        let (next, host) = parent.map_or((None, HostId::LOCAL), |parent| {
            let parent = &mut self[parent];
            let next = parent.family().first_child;
            parent.set_first_child(Some(slot));
            (next, parent.host)
        });
        let newborn = self.at(slot);
        newborn.begin(task.tid, birth, program, on_exit);
        newborn.host = host;
        newborn.join_family(parent.map(|parent| parent.slot), next);
        if let Some(next) = next {
            self.at(next).set_previous(Some(slot));
        }
        task
    }

    /// Adds a slot. Apart, because the task that is moved there takes an aligned stack.
    #[cold]
    #[inline(never)]
    fn add_slot(&mut self, birth: &Rc<Birth>) {
        self.slots.push(Task::vacant(Rc::clone(birth)));
    }

    pub(super) fn reset(&mut self) {
        debug_assert!(self.is_empty());
        // As in a new table, so that a run finds its tasks in the same slots.
        self.free.clear();
        self.begun = 1;
        for (list, last) in self.lists.iter_mut().zip(ByTid::LASTS) {
            list.reset(last);
        }
    }

    /// Returns whether a task had this number, dead or alive.
    pub(super) fn was_made(&self, tid: Tid) -> bool {
        u64::from(tid) <= self.lists[usize::from(tid.is_daemon())].last()
    }

    /// Returns the number of live tasks, daemons of the host apart.
    pub(super) fn live(&self) -> usize {
        self.lasting + self.attendants
    }

    /// Returns the number of live tasks that keep a run alive.
    #[inline(always)]
    pub(super) fn lasting(&self) -> usize {
        self.lasting
    }

    pub(super) fn attendants(&self) -> usize {
        self.attendants
    }

    /// Returns whether no task is left, zombies and daemons included.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() + 1 == self.begun
    }

    /// Returns the ready tasks by tid, daemons apart.
    pub(super) fn ready(&self) -> impl Iterator<Item = Runnable> {
        let tasks = self.lists[0].iter(&self.slots);
        tasks.filter(|task| self[*task].state().is_ready())
    }

    /// Makes a new task a daemon of its program.
    pub(super) fn attend(&mut self, task: Runnable) {
        // That of a host's daemon is one of the host.
        if !task.tid.is_daemon() {
            self[task].is_attendant = true;
            self.lasting -= 1;
            self.attendants += 1;
        }
    }

    /// Returns whether live tasks are left, and none that keeps a run alive.
    #[inline(always)]
    pub(super) fn are_attendants(&self) -> bool {
        self.lasting == 0 && self.attendants > 0
    }

    pub(super) fn ended(&mut self, task: Runnable) {
        if self.attendants > 0 && self[task].is_attendant {
            self.attendants -= 1;
        } else {
            self.lasting -= usize::from(!task.tid.is_daemon());
        }
    }

    pub(super) fn is_live(&mut self, task: Runnable) -> bool {
        self.get_mut(task).is_some_and(|task| task.is_live())
    }

    pub(super) fn find_live(&self, tid: Tid) -> Option<Runnable> {
        self.find(tid).filter(|task| self[*task].is_live())
    }

    /// Returns the task of a queue's entry; `None` if the entry is stale, because the task is
    /// reaped.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, task: Runnable) -> Option<&mut Task> {
        self.slots
            .get_mut(task.slot.index())
            .filter(|found| found.tid() == task.tid)
    }

    pub(super) fn prefetch_task(&self, task: Runnable) {
        if let Some(task) = self.slots.get(task.slot.index()) {
            prefetch(ptr::from_ref(task).cast());
        }
    }

    /// Prefetches the program of a task, from its start.
    pub(super) fn prefetch_program(&self, task: Runnable) {
        const LINE: usize = 64;
        if let Some(task) = self.slots.get(task.slot.index()) {
            for line in 0..3 {
                prefetch(task.program_start().wrapping_add(line * LINE));
            }
        }
    }

    /// Returns the task of that number, zombie or alive.
    pub(super) fn find(&self, tid: Tid) -> Option<Runnable> {
        let list = &self.lists[usize::from(tid.is_daemon())];
        list.find(tid).filter(|task| is_there(&self.slots, *task))
    }

    /// Returns the live tasks, the youngest first, and daemons behind the others.
    pub(super) fn youngest_first(&self) -> Vec<Runnable> {
        let [tasks, daemons] = &self.lists;
        let all = daemons.iter(&self.slots);
        let all = all.chain(tasks.iter(&self.slots)).rev();
        all.filter(|task| self[*task].is_live()).collect()
    }

    /// Iterates over every task by tid, daemons included.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Task> {
        let all = self.lists.iter().flat_map(|list| list.iter(&self.slots));
        all.map(|task| &self[task])
    }

    pub(super) fn infos(&self) -> impl Iterator<Item = (Runnable, TaskInfo)> {
        self.lists[0].iter(&self.slots).map(|at| {
            let task = &self[at];
            let parent = self.parent_of(at).unwrap_or(Tid::KERNEL);
            (at, task.info(parent))
        })
    }

    pub(super) fn parent_of(&self, task: Runnable) -> Option<Tid> {
        let parent = self[task].family().parent?;
        Some(self.slots[parent.index()].tid())
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, task: Runnable) -> State {
        self.unlink(task);
        self.free.push(task.slot);
        let state = self[task].vacate();
        self.lists[usize::from(task.tid.is_daemon())].forget(&self.slots);
        state
    }

    /// Makes the youngest child an orphan, and returns it.
    pub(super) fn release_child(&mut self, parent: Runnable) -> Option<Runnable> {
        let child = self.runnable(self[parent].family().first_child?);
        self.unlink(child);
        self[child].on_exit = OnExit::Nothing;
        Some(child)
    }

    #[inline(always)]
    fn unlink(&mut self, task: Runnable) {
        let Some((parent, next, previous)) = self[task].leave_family() else {
            return;
        };
        if let Some(next) = next {
            self.at(next).set_previous(previous);
        }
        match previous {
            Some(previous) => self.at(previous).set_next(next),
            None => self.at(parent).set_first_child(next),
        }
    }

    pub(super) fn wait_for(&mut self, target: Runnable, waiter: Runnable) {
        self.waiters_of(target).push(waiter.slot);
    }

    pub(super) fn keep(&mut self, task: Runnable, keeper: Rc<dyn Keeper>) {
        self.waiters_of(task).keeper = Some(keeper);
    }

    pub(super) fn waiters_of(&mut self, task: Runnable) -> &mut Waiters {
        let spare = || self.spare.pop().unwrap_or_default();
        self.slots[task.slot.index()].waiters_or(spare)
    }

    /// Keeps an empty list of waiters, if it had no more than one.
    #[inline]
    pub(super) fn spare(&mut self, waiters: Box<Waiters>) {
        if self.spare.len() < SPARE && waiters.is_small() {
            self.spare.push(waiters);
        }
    }

    pub(super) fn runnable(&self, slot: Slot) -> Runnable {
        let tid = self.slots[slot.index()].tid();
        Runnable { tid, slot }
    }

    fn at(&mut self, slot: Slot) -> &mut Task {
        &mut self.slots[slot.index()]
    }
}

/// Tasks by tid, in two parts: all that were made last, where a number is a position, and before those the few
/// that are left of earlier ones. Reaped tasks stay listed. When half of the entries are stale, the list is
/// swept: the tasks that are left are then the earlier ones.
struct ByTid {
    early: Vec<Runnable>,
    /// The number before those of the late ones.
    before: u64,
    late: Vec<Slot>,
    stale: usize,
}

impl ByTid {
    /// The numbers before the first task, and before the first daemon.
    const LASTS: [u64; 2] = [0, Tid::DAEMONS];

    /// So many stale entries are never swept.
    const FEW: usize = 64;

    fn after(last: u64) -> Self {
        Self {
            early: Vec::new(),
            before: last,
            late: Vec::new(),
            stale: 0,
        }
    }

    fn reset(&mut self, last: u64) {
        self.early.clear();
        self.late.clear();
        (self.before, self.stale) = (last, 0);
    }

    /// The number of the last one that was made.
    fn last(&self) -> u64 {
        self.before + self.late.len() as u64
    }

    /// Gives the task in this slot the next number.
    fn push(&mut self, slot: Slot) -> Runnable {
        self.late.push(slot);
        let tid = Tid::from(self.last());
        Runnable { tid, slot }
    }

    /// Returns the entry of that number, which may be stale.
    fn find(&self, tid: Tid) -> Option<Runnable> {
        match u64::from(tid).checked_sub(self.before + 1) {
            Some(at) => {
                let slot = *self.late.get(usize::try_from(at).ok()?)?;
                Some(Runnable { tid, slot })
            }
            None => {
                let at = self.early.binary_search_by_key(&tid, |task| task.tid);
                Some(self.early[at.ok()?])
            }
        }
    }

    fn iter(&self, slots: &[Task]) -> impl DoubleEndedIterator<Item = Runnable> {
        let late = self.late.iter().enumerate().map(|(at, slot)| Runnable {
            tid: Tid::from(self.before + 1 + at as u64),
            slot: *slot,
        });
        let all = self.early.iter().copied().chain(late);
        all.filter(|task| is_there(slots, *task))
    }

    fn forget(&mut self, slots: &[Task]) {
        self.stale += 1;
        if self.stale > Self::FEW + (self.early.len() + self.late.len()) / 2 {
            self.sweep(slots);
        }
    }

    #[cold]
    #[inline(never)]
    fn sweep(&mut self, slots: &[Task]) {
        let left = self.iter(slots).collect();
        (self.early, self.before) = (left, self.last());
        self.late.clear();
        self.late.shrink_to(4 * Self::FEW);
        self.stale = 0;
    }
}

fn is_there(slots: &[Task], task: Runnable) -> bool {
    slots
        .get(task.slot.index())
        .is_some_and(|found| found.tid() == task.tid)
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

/// Prefetches a cache line. A switch among a million tasks in random order takes 40 ns instead of
/// 270.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    #[expect(
        unsafe_code,
        reason = "a switch among a million tasks takes 40 ns instead of 270"
    )]
    // SAFETY: a prefetch is a hint; at no address does it read, write or fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
