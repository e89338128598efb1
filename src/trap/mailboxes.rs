//! The mailboxes that belong to a kernel: the part that only its thread touches.

use std::{any::Any, cell::RefCell, collections::BTreeMap, ops::Range, rc::Rc};

use crate::abi::QueueId;

/// A mailbox in the kernel that takes from it.
pub(crate) trait BoundMailbox {
    /// Moves all messages into the store of the queue. Returns their numbers.
    fn receive(&self) -> Range<u64>;

    /// Whether no task can take from it any more.
    fn is_gone(&self) -> bool;

    fn as_any(self: Rc<Self>) -> Rc<dyn Any>;
}

/// The mailboxes that belong to a kernel, by their queues.
#[derive(Default)]
pub(crate) struct Mailboxes(RefCell<BTreeMap<QueueId, Rc<dyn BoundMailbox>>>);

impl Mailboxes {
    pub(crate) fn get(&self, queue: QueueId) -> Option<Rc<dyn BoundMailbox>> {
        self.0.borrow().get(&queue).cloned()
    }

    /// Adds a mailbox, and forgets those that are gone.
    pub(crate) fn bind(&self, queue: QueueId, mailbox: Rc<dyn BoundMailbox>) {
        let mut all = self.0.borrow_mut();
        let gone = all.iter().filter(|(_, other)| other.is_gone());
        let gone: Vec<_> = gone.map(|(queue, _)| *queue).collect();
        let gone: Vec<_> = gone.iter().map(|queue| all.remove(queue)).collect();
        all.insert(queue, mailbox);
        // Destructors of messages may use mailboxes.
        drop(all);
        drop(gone);
    }

    /// Ends the mailboxes of a kernel that ends. Tasks of others that wait for room are told.
    pub(crate) fn end(&self) {
        drop(self.0.take());
    }
}
