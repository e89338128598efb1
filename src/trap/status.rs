//! The status of a queue.

use std::{cell::Cell, rc::Rc};

use crate::abi::{Kind, Tid};

/// The status of a queue, which its handles read without a trap. The kernel writes it.
#[derive(Default)]
pub(crate) struct QueueStatus {
    /// The number of messages in the queue.
    pub(crate) len: Cell<usize>,
    /// The number of messages in deferred puts.
    pub(crate) posted: Cell<usize>,
    /// The number of tasks that wait for a message.
    pub(crate) waiting: Cell<usize>,
    pub(crate) closed: Cell<bool>,
    /// The task that holds the lock, or [`Tid::KERNEL`]. The handles of the lock write it; the
    /// kernel reads it when a task blocks.
    pub(crate) holder: Cell<Tid>,
    pub(crate) kind: Kind,
    pub(crate) name: Option<Rc<str>>,
}

impl QueueStatus {
    /// Returns the name of the object, or nothing.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the task that holds the lock, or took the last permit.
    pub(crate) fn holder(&self) -> Option<Tid> {
        Some(self.holder.get()).filter(|holder| *holder != Tid::KERNEL)
    }
}
