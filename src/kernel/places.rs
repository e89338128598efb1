//! Where in the source each task was made, and where it made its last call.
//!
//! A stub notes its caller in the frame. The kernel copies that into this table when the call takes
//! the plain lane, because a task that blocks has always taken it. A table apart from the tasks
//! keeps a task within two cache lines.

use std::{collections::BTreeMap, panic::Location};

use super::task::WaitingOn;
use crate::{
    abi::{Place, Tid},
    sched::Runnable,
};

/// A place, as the compiler stores it; `None` for a program of the command line.
type Caller = Option<&'static Location<'static>>;

/// The places of each task, by its slot.
#[derive(Debug, Default)]
pub(super) struct Places {
    slots: Vec<Spot>,
    /// The places of faults, until the ends of their tasks are told.
    faults: BTreeMap<Tid, Place>,
}

#[derive(Clone, Copy, Debug)]
struct Spot {
    spawned: Caller,
    called: Caller,
}

impl Places {
    /// Forgets an earlier run. The next tasks overwrite the spots.
    pub(super) fn reset(&mut self) {
        if !self.faults.is_empty() {
            self.faults.clear();
        }
    }

    /// Notes the place at which a new task was made.
    pub(super) fn spawned(&mut self, task: Runnable, at: Caller) {
        let (spawned, called) = (at, at);
        let spot = Spot { spawned, called };
        match self.slots.get_mut(task.slot.index()) {
            Some(free) => *free = spot,
            None => self.add(task, spot),
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, task: Runnable, spot: Spot) {
        self.slots.resize(task.slot.index() + 1, spot);
    }

    /// Notes the place of a task's call.
    #[inline(always)]
    pub(super) fn called(&mut self, task: Runnable, at: Caller) {
        if let Some(spot) = self.slots.get_mut(task.slot.index()) {
            spot.called = at;
        }
    }

    pub(super) fn faulted(&mut self, tid: Tid, place: Option<Place>) {
        self.faults.extend(place.map(|place| (tid, place)));
    }

    #[inline(always)]
    pub(super) fn take_fault(&mut self, tid: Tid) -> Option<Place> {
        let is_any = !self.faults.is_empty();
        is_any.then(|| self.faults.remove(&tid)).flatten()
    }

    pub(super) fn of_spawn(&self, task: Runnable) -> Option<Place> {
        let spot = self.slots.get(task.slot.index())?;
        spot.spawned.map(Place::from)
    }

    pub(super) fn of_last_call(&self, task: Runnable) -> Option<Place> {
        let spot = self.slots.get(task.slot.index())?;
        spot.called.map(Place::from)
    }

    /// Returns the place of the call in which the task is blocked.
    pub(super) fn of_call(&self, task: Runnable, on: WaitingOn) -> Option<Place> {
        let spot = self.slots.get(task.slot.index())?;
        match on {
            // The kernel holds back any call, also one that notes no caller.
            WaitingOn::Console(_) | WaitingOn::Room(..) | WaitingOn::Delay(_) => None,
            _ => spot.called.map(Place::from),
        }
    }
}
