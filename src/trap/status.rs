//! The status of a queue, and what the queue is part of.

use std::{cell::Cell, rc::Rc};

use crate::abi::{End, QueueId, Tid};

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
    /// Returns the kind, number and name of the queue.
    pub(crate) fn title(&self, queue: QueueId) -> String {
        let kind = self.kind.name();
        match &self.name {
            None => format!("{kind} {queue}"),
            Some(name) => format!("{kind} {queue} {name:?}"),
        }
    }

    /// Returns in words what a task waits for at this end; `None` for a queue without a name.
    pub(crate) fn thing(&self, queue: QueueId, end: End) -> Option<String> {
        let kind = self.kind.name();
        match (&self.name, self.kind) {
            (None, Kind::Queue) => None,
            (None, _) => Some(format!("{kind} {queue}")),
            (Some(name), Kind::Queue) => Some(format!("{kind} {queue} {name:?} ({end})")),
            (Some(name), _) => Some(format!("{kind} {queue} {name:?}")),
        }
    }

    /// Returns the task that holds the lock, or took the last permit.
    pub(crate) fn holder(&self) -> Option<Tid> {
        Some(self.holder.get()).filter(|holder| *holder != Tid::KERNEL)
    }
}

/// The kind of object that a queue is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    Queue,
    Semaphore,
    Mutex,
    Flag,
    Barrier,
    Condition,
    Promise,
    Callback,
    Group,
    Job,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Semaphore => "semaphore",
            Self::Mutex => "mutex",
            Self::Flag => "flag",
            Self::Barrier => "barrier",
            Self::Condition => "condition",
            Self::Promise => "promise",
            Self::Callback => "callback",
            Self::Group => "group",
            Self::Job => "job",
        }
    }

    /// Returns the name of the method in which a task gets from the queue.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Queue => "get",
            Self::Semaphore => "acquire",
            Self::Mutex => "lock",
            Self::Flag | Self::Barrier | Self::Condition | Self::Promise => "wait",
            Self::Callback => "on_done",
            Self::Group => "next",
            Self::Job => "run_blocking",
        }
    }
}
