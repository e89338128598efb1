//! The mailboxes that belong to a kernel: the part that only its thread touches.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::Range,
    rc::Rc,
    sync::{Arc, Weak},
};

use crate::{
    abi::{KernelId, QueueId, Reply},
    interrupt::Remote,
    log::Detail,
};

/// What reaches a kernel through a mailbox: messages, the answer to a put, or room for one. A world hands
/// it on by [`World::mail`](crate::World::mail).
#[doc(hidden)]
pub trait Mail {
    /// Takes what is there, and writes it to a tape.
    fn take(&mut self, tape: Option<&mut Vec<u8>>);

    /// Takes what the tape says.
    fn again(&mut self, tape: &[u8]) -> Result<(), Lack>;
}

/// Why a replay cannot take what the tape says.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// A thread or another kernel has not put it yet.
    Yet,
    /// It never comes. The text says what is wrong.
    Wrong(&'static str),
}

impl Lack {
    pub(crate) const NOT_PUT: &str = "a message that is not put again";
    pub(crate) const NOT_PUT_OR_HELD: &str =
        "a message that is not put again, and whose value is not on it";
}

/// What a kernel has received from a mailbox.
#[derive(Default)]
pub(crate) struct Received {
    /// The numbers of the messages in the store of the queue.
    pub(crate) numbers: Range<u64>,
    /// Whether nothing comes after them.
    pub(crate) closes: bool,
    /// Whether no task can take from the mailbox any more.
    pub(crate) is_gone: bool,
}

/// What the two ends of a mailbox share.
pub(crate) trait SharedMailbox {
    /// How many handles put into it, and how many take from it.
    fn ends(&self) -> [usize; 2];

    /// The kernels of the tasks that wait for room in it, and the queues at which they wait.
    fn rooms(&self) -> Vec<(Remote, QueueId)>;

    /// Whether it belongs to a kernel.
    fn is_bound(&self) -> bool;

    /// Drops the messages that no kernel has received. No task of any kernel has another turn.
    fn discard(&self);
}

/// A mailbox in the kernel that takes from it, or the room in one that a task waits for.
pub(crate) trait BoundMailbox {
    /// Moves all messages into the store of the queue, and writes them to a tape.
    fn receive(&self, tape: Option<&mut Vec<u8>>) -> Received;

    /// Moves the messages that the tape has.
    fn receive_again(&self, tape: &[u8]) -> Result<Received, Lack>;

    /// Returns which put of which kernel a message was that no task has taken: the numbers of both. Those of a
    /// thread are 0.
    fn post_of(&self, message: u64) -> Option<(u64, u64)>;

    /// What its two ends share; `None` for the room in a mailbox.
    fn shared(&self) -> Option<Arc<dyn SharedMailbox>>;

    /// Drops the messages that no task has taken. No task of any kernel has another turn.
    fn discard(&self);

    /// Admits messages that wait for the room of those that were taken.
    fn admit(&self);

    fn as_any(&self) -> &dyn Any;
}

/// A mailbox that a kernel receives from.
pub(crate) struct Receiving {
    pub(crate) from: Rc<dyn BoundMailbox>,
    pub(crate) received: Received,
}

impl Mail for Receiving {
    fn take(&mut self, tape: Option<&mut Vec<u8>>) {
        self.received = self.from.receive(tape);
    }

    fn again(&mut self, tape: &[u8]) -> Result<(), Lack> {
        self.received = self.from.receive_again(tape)?;
        Ok(())
    }
}

/// The mailboxes that belong to a kernel, by their queues.
#[derive(Default)]
pub(crate) struct Mailboxes {
    bound: RefCell<BTreeMap<QueueId, Rc<dyn BoundMailbox>>>,
    /// Those that have room which no task was told of.
    roomy: RefCell<Vec<QueueId>>,
    is_any_roomy: Cell<bool>,
    /// Those that tasks of this kernel have put into, and that belonged to no kernel then.
    unbound: RefCell<Vec<Weak<dyn SharedMailbox>>>,
    /// How many runs have ended: the next has queues of the same numbers.
    run: Cell<u64>,
    /// Whether a task is told of room at once: in a world that does not spin, in which a run in steps is the
    /// same run.
    is_prompt: Cell<bool>,
}

impl Mailboxes {
    pub(crate) fn get(&self, queue: QueueId) -> Option<Rc<dyn BoundMailbox>> {
        self.bound.borrow().get(&queue).cloned()
    }

    /// Lends one.
    #[inline(always)]
    pub(crate) fn with<R>(
        &self,
        queue: QueueId,
        with: impl FnOnce(&dyn BoundMailbox) -> R,
    ) -> Option<R> {
        let bound = self.bound.borrow();
        bound.get(&queue).map(|mailbox| with(&**mailbox))
    }

    #[inline(always)]
    pub(crate) fn run(&self) -> u64 {
        self.run.get()
    }

    pub(crate) fn all(&self) -> Vec<(QueueId, Rc<dyn BoundMailbox>)> {
        let all = self.bound.borrow();
        all.iter()
            .map(|(queue, mailbox)| (*queue, Rc::clone(mailbox)))
            .collect()
    }

    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        self.bound.borrow().is_empty()
    }

    /// Whether one of them has a handle that takes from it: a task of another kernel may hold it.
    pub(crate) fn are_held(&self) -> bool {
        let bound = self.bound.borrow();
        let mut shared = bound.values().filter_map(|mailbox| mailbox.shared());
        shared.any(|mailbox| mailbox.ends()[1] > 0)
    }

    /// Returns for logs which message of a mailbox an answer delivers.
    #[cold]
    pub(crate) fn detail(&self, reply: Reply, queue: QueueId) -> Detail<'static> {
        let Reply::Message(number) = reply else {
            return Detail::None;
        };
        let post = self.get(queue).and_then(|found| found.post_of(number));
        let of_kernel = post.and_then(|(kernel, put)| Some((KernelId::from_number(kernel)?, put)));
        of_kernel.map_or(Detail::None, |(kernel, put)| Detail::Mail(kernel, put))
    }

    pub(crate) fn bind(&self, queue: QueueId, mailbox: Rc<dyn BoundMailbox>) {
        self.bound.borrow_mut().insert(queue, mailbox);
    }

    /// Takes a mailbox that is gone. Its messages go with it, and their destructors may use mailboxes.
    pub(crate) fn forget(&self, queue: QueueId) -> Option<Rc<dyn BoundMailbox>> {
        self.bound.borrow_mut().remove(&queue)
    }

    /// Notes that a task puts into a mailbox which belongs to no kernel. Nothing looks at this in the real
    /// world.
    #[cold]
    pub(crate) fn note_unbound(&self, mailbox: &Arc<impl SharedMailbox + 'static>) {
        if !self.is_prompt.get() {
            return;
        }
        let mailbox: Weak<dyn SharedMailbox> = Arc::downgrade(mailbox) as _;
        let mut unbound = self.unbound.borrow_mut();
        if !unbound.iter().any(|other| other.ptr_eq(&mailbox)) {
            unbound.retain(|other| other.upgrade().is_some_and(|other| !other.is_bound()));
            unbound.push(mailbox);
        }
    }

    /// Returns those that belong to no kernel yet.
    pub(crate) fn unbound(&self) -> Vec<Arc<dyn SharedMailbox>> {
        let unbound = self.unbound.borrow();
        let live = unbound.iter().filter_map(Weak::upgrade);
        live.filter(|mailbox| !mailbox.is_bound()).collect()
    }

    /// Ends the mailboxes of a kernel that ends. Tasks of others that wait for room are told.
    pub(crate) fn end(&self) {
        if !self.are_none() {
            drop(self.bound.take());
            self.roomy.take();
            self.run.set(self.run.get() + 1);
        }
        self.unbound.borrow_mut().clear();
    }

    pub(crate) fn set_prompt(&self, is_prompt: bool) {
        self.is_prompt.set(is_prompt);
    }

    pub(crate) fn is_prompt(&self) -> bool {
        self.is_prompt.get()
    }

    /// Has a mailbox admit messages at the next poll.
    pub(crate) fn admit_soon(&self, mailbox: QueueId) {
        self.roomy.borrow_mut().push(mailbox);
        self.is_any_roomy.set(true);
    }

    #[inline(always)]
    pub(crate) fn admit(&self) {
        if self.is_any_roomy.take() {
            self.admit_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn admit_all(&self) {
        let mut roomy = self.roomy.take();
        for mailbox in roomy.drain(..) {
            self.with(mailbox, |mailbox| mailbox.admit());
        }
        self.roomy.replace(roomy);
    }
}
