//! The status of a queue, and memory that is kept for the next ones.

use std::{
    cell::{Cell, RefCell},
    ptr,
    rc::Rc,
};

use super::new_task::{Birth, Caller};
use crate::abi::{Kind, Tid};

/// The status of a queue, which its handles read without a trap. The kernel writes it.
#[derive(Default)]
pub(crate) struct QueueStatus {
    pub(crate) len: Cell<usize>,
    /// The number of messages in deferred puts.
    pub(crate) posted: Cell<usize>,
    pub(crate) waiting: Cell<usize>,
    pub(crate) closed: Cell<bool>,
    /// How often it was closed: the queue of a condition stays open.
    pub(crate) closes: Cell<u64>,
    /// The task that holds the lock, or [`Tid::KERNEL`]. The handles of the lock write it; the
    /// kernel reads it when a task blocks, and when one of several holders has left.
    pub(crate) holder: Cell<Tid>,
    /// Whether one of several holders has left another one behind, and the kernel has not looked yet.
    pub(crate) is_passed: Cell<bool>,
    pub(crate) kind: Kind,
    pub(crate) name: Option<Rc<str>>,
}

impl QueueStatus {
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the task that holds the lock, or took the last permit.
    pub(crate) fn holder(&self) -> Option<Tid> {
        Some(self.holder.get()).filter(|holder| *holder != Tid::KERNEL)
    }
}

const STATUSES: usize = 16;

const BIRTHS: usize = 4;

#[derive(Default)]
pub(crate) struct Kept {
    /// The memory of queues that are gone.
    statuses: RefCell<Vec<Rc<QueueStatus>>>,
    /// Those of the last new tasks.
    births: RefCell<Vec<Rc<Birth>>>,
}

impl Kept {
    /// Makes the status of a new queue. Field by field: a copy of the whole would wait for the stores
    /// of its parts.
    pub(crate) fn new_status(&self, kind: Kind, name: Option<Rc<str>>) -> Rc<QueueStatus> {
        let mut status = self.statuses.borrow_mut().pop().unwrap_or_default();
        let new = Rc::get_mut(&mut status).expect("it has no handle yet");
        (new.kind, new.name) = (kind, name);
        status
    }

    /// Keeps the memory of the status of a queue that is gone, if no handle looks at it.
    pub(crate) fn keep_status(&self, mut status: Rc<QueueStatus>) {
        let mut kept = self.statuses.borrow_mut();
        if kept.len() < STATUSES
            && let Some(gone) = Rc::get_mut(&mut status)
        {
            gone.name = None;
            gone.len.take();
            gone.posted.take();
            gone.waiting.take();
            gone.closed.take();
            gone.closes.take();
            gone.holder.take();
            gone.is_passed.take();
            kept.push(status);
        }
    }

    /// Returns the birth of a task of this name that is spawned here. Inlined, because the length of most names is
    /// known.
    #[inline(always)]
    pub(crate) fn birth(&self, name: &str, spawned: Option<Caller>) -> Rc<Birth> {
        let address = |place: Option<Caller>| place.map(ptr::from_ref);
        let births = self.births.borrow();
        if let Some(last) = births.first()
            && address(last.spawned) == address(spawned)
            && *last.name == *name
        {
            return Rc::clone(last);
        }
        drop(births);
        self.find_birth(name, spawned)
    }

    #[cold]
    #[inline(never)]
    fn find_birth(&self, name: &str, spawned: Option<Caller>) -> Rc<Birth> {
        let mut births = self.births.borrow_mut();
        // The compiler may have one place at several addresses.
        let is_it = |known: &&Rc<Birth>| known.spawned == spawned && *known.name == *name;
        if let Some(known) = births.iter().find(is_it) {
            return Rc::clone(known);
        }
        let name = name.into();
        let new = Rc::new(Birth { name, spawned });
        births.truncate(BIRTHS - 1);
        births.insert(0, Rc::clone(&new));
        new
    }
}
