//! Messages of which each receiver gets every one.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    rc::Rc,
};

use crate::{
    abi::{QueueId, SystemCall},
    trap::{Caller, Kind, Object, TrapFrame},
    user::{os::Os, queue::Queue},
};

/// The end at which messages are put, each for every [`Receiver`]. Clones are ends of the same broadcast.
/// When the last one is dropped, the receivers get what is left, and then [`Missed::Closed`].
///
/// A put never waits for a slow receiver: only the last messages are kept, and the receiver learns how many
/// it has missed. (tokio's `broadcast`.)
///
/// ```
/// # use trapline::{Kernel, Os, sync::{Broadcast, Missed}};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let news = Broadcast::new(os, 2).await;
///     let (fast, slow) = (news.subscribe(os).await, news.subscribe(os).await);
///     for n in 1..=3 {
///         assert_eq!(news.put(os, n).await, 2);
///         assert_eq!(fast.get(os).await, Ok(n));
///     }
///     assert_eq!(slow.get(os).await, Err(Missed::Lagged(1)));
///     assert_eq!(slow.get(os).await, Ok(2));
///     drop(news);
///     assert_eq!(slow.get(os).await, Ok(3));
///     assert_eq!(slow.get(os).await, Err(Missed::Closed));
/// })?;
/// # kernel.run()?.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Broadcast<T> {
    shared: Rc<Shared<T>>,
}

/// The end of a [`Broadcast`] at which one receiver gets the messages that were put since it subscribed.
pub struct Receiver<T> {
    shared: Rc<Shared<T>>,
    /// The number of the message that it gets next, and a gate that is closed once it was put.
    next: Cell<u64>,
    gate: RefCell<Queue<()>>,
}

/// Why a receiver gets no message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Missed {
    /// So many messages were dropped before this receiver came for them. Its next call gets the oldest that
    /// is kept.
    #[error("{0} messages were missed")]
    Lagged(u64),
    /// No message is left, and every end that could put one was dropped.
    #[error("the broadcast is closed")]
    Closed,
}

struct Shared<T> {
    /// The messages that some receiver has not got, up to `most`.
    kept: RefCell<VecDeque<Kept<T>>>,
    most: usize,
    /// The number of the message that is put next, and its gate.
    next: Cell<u64>,
    gate: RefCell<Queue<()>>,
    senders: Cell<usize>,
    receivers: Cell<usize>,
    /// The first gate. A search finds the messages beside that.
    first: QueueId,
    frame: Rc<TrapFrame>,
    drop: fn(&TrapFrame, VecDeque<Kept<T>>),
}

struct Kept<T> {
    /// Shared only while a receiver clones it.
    message: Rc<T>,
    /// The number of receivers that have not got it.
    left: usize,
}

impl<T: Clone + 'static> Broadcast<T> {
    /// Makes a broadcast that keeps up to `most` messages for its slowest receiver. Never blocks. Faults the
    /// caller if that is zero.
    pub async fn new(os: &mut Os, most: usize) -> Self {
        Self::maybe_named(os, None, most).await
    }

    /// Makes one with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, most: usize) -> Self {
        Self::maybe_named(os, Some(name), most).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>, most: usize) -> Self {
        assert!(most > 0, "a broadcast keeps at least one message");
        let gate = Queue::required(os, Kind::Broadcast, name).await;
        let shared = Shared {
            kept: RefCell::default(),
            most,
            next: Cell::new(0),
            first: gate.id(),
            gate: RefCell::new(gate),
            senders: Cell::new(1),
            receivers: Cell::new(0),
            frame: Rc::clone(os.frame()),
            drop: |frame, kept| frame.drop_all_iteratively(kept),
        };
        Self {
            shared: Rc::new(shared),
        }
    }

    /// Puts a message for each receiver that there is, and returns how many there are. Never blocks. A call
    /// that is cut has put the message for all of them, or for none.
    pub async fn put(&self, os: &mut Os, message: T) -> usize {
        let shared = &*self.shared;
        let gate = shared.gate.borrow().clone();
        gate.require_home(os, "the broadcast");
        let next = gate.successor(os).await;
        shared.touch(true);
        let receivers = shared.receivers.get();
        let _dropped = shared.push(message, receivers);
        // Another task may have put one meanwhile.
        let gate = shared.gate.replace(next);
        let _closing = gate.closing();
        gate.close(os).await;
        receivers
    }

    /// Returns a receiver of the messages that are put from now on. Never blocks.
    #[allow(
        clippy::unused_async,
        reason = "a call of the kernel, as its others are"
    )]
    pub async fn subscribe(&self, os: &mut Os) -> Receiver<T> {
        let gate = self.shared.gate.borrow().clone();
        gate.require_home(os, "the broadcast");
        self.shared.touch(true);
        self.shared.receivers.set(self.shared.receivers.get() + 1);
        Receiver {
            shared: Rc::clone(&self.shared),
            next: self.shared.next.clone(),
            gate: RefCell::new(gate),
        }
    }
}

impl<T: Clone + 'static> Receiver<T> {
    /// Takes the next message. *Blocks* until one is put. A message that a cut call has not returned is the
    /// next one still.
    ///
    /// *Errors:* [`Missed`].
    #[track_caller]
    pub fn get(&self, os: &mut Os) -> impl Future<Output = Result<T, Missed>> {
        let place = os.note_caller();
        self.get_noted(os, place)
    }

    async fn get_noted(&self, os: &mut Os, place: Caller) -> Result<T, Missed> {
        loop {
            let gate = self.gate();
            gate.require_home(os, "the broadcast");
            os.frame().set_place(place);
            // Nothing is ever put there: this returns when the gate is closed.
            let _ = gate.take(os).await;
            // If tasks share this receiver, another one may have been faster.
            if let Some(got) = self.take() {
                return got;
            }
        }
    }

    /// Takes the next message if it was put.
    fn take(&self) -> Option<Result<T, Missed>> {
        let shared = &*self.shared;
        shared.touch(true);
        let (at, next) = (self.next.get(), shared.next.get());
        if at == next {
            return (shared.senders.get() == 0).then_some(Err(Missed::Closed));
        }
        let oldest = next - shared.kept.borrow().len() as u64;
        if at < oldest {
            self.next.set(oldest);
            return Some(Err(Missed::Lagged(oldest - at)));
        }
        let message = shared.get(at);
        self.next.set(at + 1);
        if at + 1 == next {
            self.gate.replace(shared.gate.borrow().clone());
        }
        // A clone by its own code: nothing is borrowed meanwhile.
        let message = Rc::try_unwrap(message).unwrap_or_else(|shared| (*shared).clone());
        Some(Ok(message))
    }

    /// Returns the queue that is closed once there is something to get.
    pub(crate) fn gate(&self) -> Queue<()> {
        self.shared.touch(false);
        self.gate.borrow().clone()
    }
}

impl<T> Shared<T> {
    /// Notes for a search that the caller reads or changes what is put.
    fn touch(&self, writes: bool) {
        self.frame.touch(Object::Beside(self.first), writes);
    }

    /// Keeps a message for so many receivers. Returns the one that is dropped for it.
    fn push(&self, message: T, receivers: usize) -> Option<Kept<T>> {
        if receivers == 0 {
            return None;
        }
        let mut kept = self.kept.borrow_mut();
        self.next.set(self.next.get() + 1);
        kept.push_back(Kept {
            message: Rc::new(message),
            left: receivers,
        });
        (kept.len() > self.most).then(|| kept.pop_front()).flatten()
    }

    /// Returns a kept message for one of its receivers. The last one has it alone.
    fn get(&self, number: u64) -> Rc<T> {
        let mut kept = self.kept.borrow_mut();
        let oldest = self.next.get() - kept.len() as u64;
        let found = &mut kept[(number - oldest) as usize];
        found.left -= 1;
        let message = Rc::clone(&found.message);
        while kept.front().is_some_and(|first| first.left == 0) {
            kept.pop_front();
        }
        message
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let shared = &*self.shared;
        shared.touch(true);
        shared.receivers.set(shared.receivers.get() - 1);
        let mut kept = shared.kept.borrow_mut();
        let oldest = shared.next.get() - kept.len() as u64;
        let read = self.next.get().saturating_sub(oldest) as usize;
        kept.iter_mut().skip(read).for_each(|one| one.left -= 1);
        let gone = kept.iter().take_while(|one| one.left == 0).count();
        let gone: VecDeque<Kept<T>> = kept.drain(..gone).collect();
        drop(kept);
        (shared.drop)(&shared.frame, gone);
    }
}

impl<T> Drop for Broadcast<T> {
    fn drop(&mut self) {
        let shared = &*self.shared;
        let left = shared.senders.get() - 1;
        shared.senders.set(left);
        shared.frame.note_drop(Object::Beside(shared.first), left);
        if left == 0 {
            let gate = shared.gate.borrow().id();
            shared.frame.defer(SystemCall::CloseQueue(gate));
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        (self.drop)(&self.frame, self.kept.take());
    }
}

impl<T> Clone for Broadcast<T> {
    fn clone(&self) -> Self {
        let senders = self.shared.senders.get();
        let object = Object::Beside(self.shared.first);
        self.shared.frame.note_clone(object, senders);
        self.shared.senders.set(senders + 1);
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

impl<T> fmt::Debug for Broadcast<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broadcast({:?})", self.shared.gate.borrow())
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({:?})", self.gate.borrow())
    }
}
