//! The kernel's part of message queues: numbers of messages, and who waits at either end.
//!
//! This is the one primitive that blocks tasks on each other. A promise, an event and a barrier
//! are queues that are closed; a semaphore and a mutex are queues of tokens.

use std::{collections::VecDeque, rc::Rc};

use slab::Slab;

use crate::{abi::QueueId, frame::Store, sched::Runnable};

pub(super) struct MessageQueue {
    id: QueueId,
    capacity: u64,
    closed: bool,
    /// The messages to be had, in order of their numbers.
    available: VecDeque<u64>,
    /// Who waits for a message. Nobody does while one is to be had.
    getters: VecDeque<Runnable>,
    /// Who waits for room, with the message.
    putters: VecDeque<(Runnable, u64)>,
    pub(super) store: Rc<dyn Store>,
}

/// What came of a put.
pub(super) enum Put {
    Stored,
    /// It is for this task, which waited for one.
    Handed(Runnable),
    Full,
    Closed,
}

/// What came of a get.
pub(super) enum Got {
    Message(u64),
    /// The same, and this task's put, which waited for room, is done.
    Admitted(u64, Runnable),
    Empty,
    Closed,
}

impl MessageQueue {
    pub(super) fn put(&mut self, message: u64) -> Put {
        if self.closed {
            return Put::Closed;
        }
        if let Some(getter) = self.getters.pop_front() {
            return Put::Handed(getter);
        }
        if self.available.len() as u64 >= self.capacity {
            return Put::Full;
        }
        self.available.push_back(message);
        self.publish();
        Put::Stored
    }

    pub(super) fn get(&mut self) -> Got {
        let first = self.available.pop_front();
        let admitted = self.putters.pop_front();
        let got = match (first, admitted) {
            (Some(message), None) => Got::Message(message),
            (Some(message), Some((putter, next))) => {
                self.available.push_back(next);
                Got::Admitted(message, putter)
            }
            (None, Some((putter, message))) => Got::Admitted(message, putter),
            (None, None) if self.closed => Got::Closed,
            (None, None) => Got::Empty,
        };
        self.publish();
        got
    }

    /// Takes a message back that was matched with a task which will not take it. Answers who gets
    /// it instead; otherwise it is in its old place.
    pub(super) fn give_back(&mut self, message: u64) -> Option<Runnable> {
        let next = self.getters.pop_front();
        if next.is_none() {
            let place = self.available.partition_point(|other| *other < message);
            self.available.insert(place, message);
            self.publish();
        }
        next
    }

    /// Closes it and answers who waited, with the messages of those that wanted to put one.
    pub(super) fn close(&mut self) -> (VecDeque<Runnable>, VecDeque<(Runnable, u64)>) {
        self.closed = true;
        self.store.close();
        (
            std::mem::take(&mut self.getters),
            std::mem::take(&mut self.putters),
        )
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn wait_to_put(&mut self, task: Runnable, message: u64) {
        self.putters.push_back((task, message));
    }

    pub(super) fn wait_to_get(&mut self, task: Runnable) {
        self.getters.push_back(task);
    }

    /// Forgets a task that waits to put, and answers its message.
    pub(super) fn forget_putter(&mut self, task: Runnable) -> Option<u64> {
        let place = self.putters.iter().rposition(|(other, _)| *other == task)?;
        self.putters.remove(place).map(|(_, message)| message)
    }

    pub(super) fn forget_getter(&mut self, task: Runnable) {
        if let Some(place) = self.getters.iter().rposition(|other| *other == task) {
            self.getters.remove(place);
        }
    }

    pub(super) fn id(&self) -> QueueId {
        self.id
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = Runnable> {
        self.getters
            .iter()
            .copied()
            .chain(self.putters.iter().map(|(task, _)| *task))
    }

    fn publish(&self) {
        self.store.set_len(self.available.len());
    }
}

/// The queues of a kernel, each found by the place in its name.
#[derive(Default)]
pub(super) struct Queues {
    slots: Slab<MessageQueue>,
    last: u64,
}

impl Queues {
    /// Makes a queue; `None` where there is no room for one more.
    pub(super) fn insert(&mut self, capacity: u64, store: Rc<dyn Store>) -> Option<QueueId> {
        let entry = self.slots.vacant_entry();
        let id = QueueId::new(self.last + 1, entry.key())?;
        self.last += 1;
        entry.insert(MessageQueue {
            id,
            capacity,
            closed: false,
            available: VecDeque::new(),
            getters: VecDeque::new(),
            putters: VecDeque::new(),
            store,
        });
        Some(id)
    }

    pub(super) fn get_mut(&mut self, id: QueueId) -> Option<&mut MessageQueue> {
        self.slots.get_mut(id.slot()).filter(|queue| queue.id == id)
    }

    pub(super) fn remove(&mut self, id: QueueId) -> Option<MessageQueue> {
        self.get_mut(id)?;
        self.slots.try_remove(id.slot())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MessageQueue> {
        self.slots.iter().map(|(_, queue)| queue)
    }
}
