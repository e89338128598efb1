//! The limits of tasks, and what they have used of them. `screen.rs` has what they decide on a call.

use std::{cell::Cell, collections::BTreeMap, iter, rc::Rc};

use crate::{
    abi::{Calls, Errno, Limits, SystemCall, Tid},
    trap::{Object, TrapFrame},
};

/// The tasks with limits. All others are in no table.
#[derive(Default)]
pub(super) struct AllBounds {
    members: BTreeMap<Tid, Member>,
    /// Those of a task that is being made.
    newborn: Option<Rc<Bounds>>,
    are_used: bool,
}

struct Member {
    bounds: Rc<Bounds>,
    /// The trap that was screened last, by its number among those of the task. One that is held back or
    /// delayed is performed later, and counts once.
    screened: u64,
    /// A call without a trap that was denied. It faults the task at its trap.
    denied: Option<String>,
}

/// Limits, with what is used of them by the task that they were made for, and by all that it spawns.
pub(super) struct Bounds {
    owner: Tid,
    outer: Option<Rc<Self>>,
    limits: Limits,
    /// Those of all around, too.
    calls: Calls,
    traps: Cell<u64>,
    tasks: Cell<u64>,
    bytes: Cell<u64>,
}

/// The bytes of a message in a queue. Dropping this gives them back.
struct Message {
    bounds: Rc<Bounds>,
    bytes: u64,
    frame: Rc<TrapFrame>,
}

/// One of the budgets: what is used, and the most.
type Budget = fn(&Bounds) -> (&Cell<u64>, u64);

pub(super) const TRAPS: Budget = |bounds| (&bounds.traps, bounds.limits.traps);
pub(super) const TASKS: Budget = |bounds| (&bounds.tasks, bounds.limits.tasks);
pub(super) const BYTES: Budget = |bounds| (&bounds.bytes, bounds.limits.bytes);

impl Bounds {
    /// These, and those around them.
    fn all(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |bounds| bounds.outer.as_deref())
    }

    /// Takes this much of each budget around the task. Returns the most of one that has too little:
    /// then nothing is taken.
    pub(super) fn take(&self, budget: Budget, much: u64, frame: &TrapFrame) -> Result<(), u64> {
        self.touch(budget, frame);
        let lacks = |(used, most): &(&Cell<u64>, u64)| most - used.get().min(*most) < much;
        if let Some((_, most)) = self.all().map(budget).find(lacks) {
            return Err(most);
        }
        for (used, _) in self.all().map(budget) {
            used.set(used.get() + much);
        }
        Ok(())
    }

    pub(super) fn give_back(&self, budget: Budget, much: u64, frame: &TrapFrame) {
        self.touch(budget, frame);
        for (used, _) in self.all().map(budget) {
            used.set(used.get() - much);
        }
    }

    /// Notes for a search what the tasks that share a budget compete for.
    fn touch(&self, budget: Budget, frame: &TrapFrame) {
        for bounds in self.all().filter(|bounds| budget(bounds).1 < u64::MAX) {
            frame.touch(Object::Budget(bounds.owner), true);
        }
    }

    pub(super) fn allow(&self, call: SystemCall) -> bool {
        self.calls.contains(call)
    }
}

/// Takes the bytes of a message, and returns what gives them back.
pub(super) fn charge(
    bounds: &Rc<Bounds>,
    bytes: u64,
    frame: &Rc<TrapFrame>,
) -> Result<Box<dyn std::any::Any>, u64> {
    bounds.take(BYTES, bytes, frame)?;
    let (bounds, frame) = (Rc::clone(bounds), Rc::clone(frame));
    Ok(Box::new(Message {
        bounds,
        bytes,
        frame,
    }))
}

impl Drop for Message {
    fn drop(&mut self) {
        self.bounds.give_back(BYTES, self.bytes, &self.frame);
    }
}

impl AllBounds {
    pub(super) fn reset(&mut self) {
        if self.are_used {
            *self = Self::default();
        }
    }

    /// Returns whether no task has limits, nor is to be made with limits.
    #[inline(always)]
    pub(super) fn are_none(&self) -> bool {
        !self.are_used
    }

    /// Prepares the bounds of a task that is to be made. Returns whether it has any.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] if they have no room.
    pub(super) fn prepare(
        &mut self,
        parent: Tid,
        limits: Option<Box<Limits>>,
        frame: &TrapFrame,
    ) -> Result<bool, Errno> {
        let outer = self.members.get(&parent);
        let outer = outer.map(|member| Rc::clone(&member.bounds));
        let around = outer.as_ref().map_or(Calls::ALL, |outer| outer.calls);
        let own = |limits: Box<Limits>| Bounds {
            owner: Tid::KERNEL,
            outer: outer.clone(),
            limits: *limits,
            calls: limits.calls().and(around),
            traps: Cell::new(0),
            tasks: Cell::new(0),
            bytes: Cell::new(0),
        };
        let Some(bounds) = limits.map(own).map(Rc::new).or(outer.clone()) else {
            return Ok(false);
        };
        let room = bounds.take(TASKS, 1, frame);
        room.map_err(|_| Errno::TooManyTasks)?;
        self.newborn = Some(bounds);
        self.are_used = true;
        Ok(true)
    }

    /// Returns whether the bounds that were prepared deny this call.
    pub(super) fn denies_newborn(&self, call: SystemCall) -> bool {
        let bounds = self.newborn.as_ref();
        bounds.is_some_and(|bounds| !bounds.allow(call))
    }

    /// Puts a new task within the bounds that were prepared, and returns the limits if they are its own.
    /// Without a task it gives its room back.
    pub(super) fn enter(&mut self, tid: Option<Tid>, frame: &TrapFrame) -> Option<Limits> {
        let mut bounds = self.newborn.take()?;
        let Some(tid) = tid else {
            bounds.give_back(TASKS, 1, frame);
            self.are_used = !self.members.is_empty();
            return None;
        };
        let own = Rc::get_mut(&mut bounds).map(|new| {
            new.owner = tid;
            new.limits
        });
        let member = Member {
            bounds,
            screened: 0,
            denied: None,
        };
        self.members.insert(tid, member);
        own
    }

    pub(super) fn leave(&mut self, tid: Tid, frame: &TrapFrame) {
        if let Some(member) = self.members.remove(&tid) {
            member.bounds.give_back(TASKS, 1, frame);
            self.are_used = !self.members.is_empty() || self.newborn.is_some();
        }
    }

    /// Begins to screen the trap of this number; and what was denied since the last one. Returns `None`
    /// for a task without limits, and for a trap that was screened before.
    pub(super) fn screen(&mut self, tid: Tid, trap: u64) -> Option<(Rc<Bounds>, Option<String>)> {
        let member = self.members.get_mut(&tid)?;
        let is_new = std::mem::replace(&mut member.screened, trap) != trap;
        is_new.then(|| (Rc::clone(&member.bounds), member.denied.take()))
    }

    pub(super) fn bounds(&self, tid: Tid) -> Option<&Bounds> {
        self.members.get(&tid).map(|member| &*member.bounds)
    }

    /// Notes that a call without a trap was denied.
    pub(super) fn deny(&mut self, tid: Tid, why: String) {
        if let Some(member) = self.members.get_mut(&tid) {
            member.denied.get_or_insert(why);
        }
    }

    /// Takes what was denied since the last trap.
    pub(super) fn take_denied(&mut self, tid: Tid) -> Option<String> {
        self.members.get_mut(&tid)?.denied.take()
    }

    pub(super) fn of(&self, tid: Tid) -> Option<&Limits> {
        self.bounds(tid).map(|bounds| &bounds.limits)
    }

    /// Checks that the tasks are live, and that those are counted which share a budget, and no others.
    pub(super) fn audit(&self, is_live: impl Fn(Tid) -> bool) {
        let mut counts: BTreeMap<*const Bounds, u64> = BTreeMap::new();
        for (tid, member) in &self.members {
            assert!(is_live(*tid), "limits of task {tid}, which has ended");
            for bounds in member.bounds.all() {
                *counts.entry(bounds).or_default() += 1;
            }
        }
        for bounds in self.members.values().flat_map(|member| member.bounds.all()) {
            let count = counts[&std::ptr::from_ref(bounds)];
            assert_eq!(
                bounds.tasks.get(),
                count,
                "tasks within the limits of {}",
                bounds.owner
            );
        }
    }
}
