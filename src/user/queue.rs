//! Message queues: typed, first in first out, with blocking at both ends.
//!
//! The kernel's part of a queue contains only numbers: the messages in the queue, and the tasks
//! that wait at either end. The messages themselves stay on the task's side. So they can be of any
//! type, and are never copied through the kernel.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    fmt,
    rc::Rc,
};

use super::os::{Decode, Os, mismatch};
use crate::{
    abi::{QueueId, Reply, SystemCall, Tid},
    footprint::Object,
    panic::contain,
    trap::{Kind, Payload, QueueStatus, Store, TrapFrame},
};

/// The queue is closed. Returns the message that was not put.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, thiserror::Error)]
#[error("the queue is closed")]
pub struct Closed<T = ()>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

/// Why a message could not be put at once. Returns the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TryPutError<T> {
    /// The queue is full.
    #[error("the queue is full")]
    Full(T),
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed(T),
}

impl<T> fmt::Debug for TryPutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

/// Why no message could be taken at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum TryGetError {
    /// The queue is empty.
    #[error("the queue is empty")]
    Empty,
    /// The queue is empty and closed.
    #[error("the queue is closed")]
    Closed,
}

/// A handle to a message queue. Clones are handles to the same queue. Dropping the last handle
/// frees the queue.
///
/// Messages and waiters are first in, first out, without barging. A message that is matched with a
/// waiting task belongs to that task. If the task is killed or times out before its turn, the next
/// task gets the message, or it returns to its old place. (The queue of curio and of Beazley's
/// workshop, with the `close` of Go's channels.)
///
/// ```
/// # use trapline::{Closed, Kernel, Os, Queue};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let queue = Queue::bounded(os, 2).await;
///     let source = queue.clone();
///     os.spawn("producer", async move |os| {
///         for n in 0..3 {
///             source.put(os, n).await?;
///         }
///         source.close(os).await;
///         Ok::<(), Closed<i32>>(())
///     }).await?;
///     while let Ok(n) = queue.get(os).await {
///         writeln!(os, "{n}");
///     }
///     Ok::<(), trapline::Errno>(())
/// })?;
/// # kernel.run()?;
/// # assert_eq!(kernel.take_console(), "0\n1\n2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<T> {
    side: Rc<Side<T>>,
}

impl<T: 'static> Queue<T> {
    /// Makes a queue with room for `capacity` messages. With capacity zero, each put waits for a
    /// get. Never blocks. A kernel has at most 16,777,216 queues at once
    /// ([`Builder::max_queues`](crate::Builder::max_queues)). One more is closed from the start.
    pub async fn bounded(os: &mut Os, capacity: usize) -> Self {
        Self::with_capacity(os, capacity as u64, None).await
    }

    /// Makes a queue as [`Queue::bounded`] does, with a name. Reports and traces show the name
    /// beside the number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, capacity: usize) -> Self {
        Self::with_capacity(os, capacity as u64, Some(name.into())).await
    }

    /// Makes a queue with room for any number of messages. Never blocks.
    pub async fn unbounded(os: &mut Os) -> Self {
        Self::with_capacity(os, u64::MAX, None).await
    }

    /// Makes a queue for an owner of this kind. Faults the caller at the limit of queues.
    #[inline(always)]
    pub(crate) fn required<'a>(
        os: &'a mut Os,
        capacity: u64,
        kind: Kind,
        name: Option<&str>,
    ) -> impl Future<Output = Self> + use<'a, T> {
        Self::make(os, capacity, kind, name.map(Rc::from), |kind| {
            panic!(
                "there is no room for a {}: the limit of message queues is reached; raise \
                 Builder::max_queues",
                kind.name()
            )
        })
    }

    fn with_capacity(
        os: &mut Os,
        capacity: u64,
        name: Option<Rc<str>>,
    ) -> impl Future<Output = Self> {
        Self::make(os, capacity, Kind::Queue, name, |_| ())
    }

    /// Makes a queue. At the limit of queues it calls `refused`. Not an `async fn`: a queue is made
    /// in the place where it stays.
    #[inline(always)]
    fn make<'a>(
        os: &'a mut Os,
        capacity: u64,
        kind: Kind,
        name: Option<Rc<str>>,
        refused: fn(Kind),
    ) -> impl Future<Output = Self> + 'a {
        let side = Rc::new(Side {
            id: Cell::new(QueueId::NONE),
            handles: Cell::new(0),
            frame: Rc::clone(os.frame()),
            status: os.frame().new_status(kind, name),
            messages: Messages::default(),
            drop: |frame, messages| frame.drop_all_iteratively(in_order(messages)),
        });
        let store = Rc::clone(&side);
        let prepare = move |frame: &TrapFrame| {
            let status = Rc::clone(&store.status);
            frame.put(Payload::Queue(store, status));
            SystemCall::NewQueue(capacity)
        };
        os.call_undoing(prepare, Making { side, refused })
    }

    /// Makes a queue that replaces this one in its owner.
    pub(crate) fn successor<'a>(
        &self,
        os: &'a mut Os,
        capacity: u64,
    ) -> impl Future<Output = Self> + use<'a, T> {
        let QueueStatus { kind, name, .. } = &*self.side.status;
        Self::required(os, capacity, *kind, name.as_deref())
    }

    /// Puts a message at the end. *Blocks* while the queue is full.
    ///
    /// *Errors:* [`Closed`], with the message, if the queue is closed, before or during the call.
    #[track_caller]
    pub fn put<'a>(
        &'a self,
        os: &'a mut Os,
        message: T,
    ) -> impl Future<Output = Result<(), Closed<T>>> + 'a {
        os.note_caller();
        let id = self.id_in(os);
        os.call(
            move |frame| {
                let number = self.side.messages.push(message);
                frame.put_word(number);
                SystemCall::Put(id)
            },
            move |reply, _| match reply {
                Reply::Done => Ok(()),
                Reply::Refused(number) => Err(Closed(self.side.messages.take(number))),
                other => mismatch(other),
            },
        )
    }

    /// Puts a message at the end if there is room, or a task waits for it. Never blocks.
    ///
    /// *Errors:* [`TryPutError`], with the message.
    pub fn try_put<'a>(
        &'a self,
        os: &'a mut Os,
        message: T,
    ) -> impl Future<Output = Result<(), TryPutError<T>>> + 'a {
        let id = self.id_in(os);
        let take = |number| self.side.messages.take(number);
        os.call(
            move |frame| {
                let number = self.side.messages.push(message);
                frame.put_word(number);
                SystemCall::TryPut(id)
            },
            move |reply, _| match reply {
                Reply::Done => Ok(()),
                Reply::Full(number) => Err(TryPutError::Full(take(number))),
                Reply::Refused(number) => Err(TryPutError::Closed(take(number))),
                other => mismatch(other),
            },
        )
    }

    /// Takes the first message. *Blocks* while the queue is empty.
    ///
    /// *Errors:* [`Closed`] if the queue is empty and closed, before or during the call.
    #[track_caller]
    pub fn get<'a>(&'a self, os: &'a mut Os) -> impl Future<Output = Result<T, Closed>> + 'a {
        os.note_caller();
        self.take(os)
    }

    /// Takes the first message, for a caller that has noted its own caller.
    pub(crate) fn take<'a>(
        &'a self,
        os: &'a mut Os,
    ) -> impl Future<Output = Result<T, Closed>> + 'a {
        let id = self.id_in(os);
        let decode = Getting {
            queue: self,
            refusal: |reply| match reply {
                Reply::Err(_) => Closed(()),
                other => mismatch(other),
            },
        };
        os.call_undoing(move |_| SystemCall::Get(id), decode)
    }

    /// Takes the first message if there is one. Never blocks.
    ///
    /// *Errors:* [`TryGetError`].
    pub fn try_get<'a>(
        &'a self,
        os: &'a mut Os,
    ) -> impl Future<Output = Result<T, TryGetError>> + 'a {
        let id = self.id_in(os);
        let decode = Getting {
            queue: self,
            refusal: |reply| match reply {
                Reply::Again => TryGetError::Empty,
                Reply::Err(_) => TryGetError::Closed,
                other => mismatch(other),
            },
        };
        os.call_undoing(move |_| SystemCall::TryGet(id), decode)
    }

    /// Closes the queue. Its messages can still be taken; no more can be put. Tasks that wait at
    /// either end wake with [`Closed`]. Closing it again has no effect. Never blocks.
    pub fn close(&self, os: &mut Os) -> impl Future<Output = ()> {
        let id = self.id_in(os);
        os.call(
            move |_| SystemCall::CloseQueue(id),
            |reply, _| match reply {
                Reply::Done | Reply::Err(_) => (),
                other => mismatch(other),
            },
        )
    }

    /// Sees to it that the queue is closed: if [`Queue::close`] is cut, without a trap. For an owner
    /// that has already replaced the queue.
    pub(crate) fn closing(&self) -> Closing<'_, T> {
        Closing(self)
    }

    /// Returns the number of messages that can be taken at once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.side.frame.touch_queue(self.id(), false);
        let status = &*self.side.status;
        // Each waiting task takes one deferred put.
        let posted = status.posted.get().saturating_sub(status.waiting.get());
        status.len.get() + posted
    }

    /// Returns whether the kernel has closed the queue.
    pub(crate) fn is_closed(&self) -> bool {
        self.side.frame.touch_queue(self.id(), false);
        self.side.status.closed.get()
    }

    /// Puts a message without a trap, for instance in a destructor. The kernel handles the put when
    /// the task stops. A full or closed queue drops the message.
    pub(crate) fn defer_put(&self, message: T) {
        let number = self.side.messages.push(message);
        let posted = &self.side.status.posted;
        posted.set(posted.get() + 1);
        let put = SystemCall::TryPut(self.id());
        self.side.frame.defer_word(put, number);
    }

    /// Notes that the running task holds the lock of this queue.
    pub(crate) fn set_held(&self) {
        let holder = self.side.frame.remote.running();
        self.side.status.holder.set(holder);
    }

    /// Notes that no task holds the lock of this queue.
    pub(crate) fn set_free(&self) {
        self.side.status.holder.set(Tid::KERNEL);
    }

    /// Returns whether no message can be taken at once.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the name of the queue in traces and reports.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.side.id.get()
    }

    /// Returns the store of the messages, for messages that the kernel puts.
    pub(crate) fn side(&self) -> Rc<Side<T>> {
        Rc::clone(&self.side)
    }

    pub(crate) fn frame(&self) -> &TrapFrame {
        &self.side.frame
    }

    /// Notes for a search that the caller reads or changes what is kept beside the queue.
    pub(crate) fn touch_beside(&self, writes: bool) {
        self.side.frame.touch(Object::Beside(self.id()), writes);
    }

    /// Returns whether the queue belongs to the kernel of `os`.
    pub(crate) fn is_home(&self, os: &Os) -> bool {
        Rc::ptr_eq(&self.side.frame, os.frame())
    }

    /// Faults the caller if the queue, and with it `owner`, belongs to another kernel.
    pub(crate) fn require_home(&self, os: &Os, owner: &str) {
        assert!(
            self.is_home(os),
            "{owner} belongs to another kernel: only tasks of the kernel that made it can use it"
        );
    }

    /// Returns the name of the queue in the kernel of `os`. In another kernel it counts as closed.
    fn id_in(&self, os: &Os) -> QueueId {
        if self.is_home(os) {
            self.id()
        } else {
            QueueId::NONE
        }
    }
}

impl<T> Queue<T> {
    fn handle(side: &Rc<Side<T>>) -> Self {
        side.handles.set(side.handles.get() + 1);
        let side = Rc::clone(side);
        Self { side }
    }
}

/// The close of a replaced queue under way.
pub(crate) struct Closing<'a, T>(&'a Queue<T>);

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        let side = &self.0.side;
        if !side.status.closed.get() {
            side.frame.defer(SystemCall::CloseQueue(side.id.get()));
        }
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self::handle(&self.side)
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.side.id.get())
    }
}

/// Takes the answer of a call that makes a queue.
struct Making<T> {
    side: Rc<Side<T>>,
    /// What to do at the limit of queues.
    refused: fn(Kind),
}

impl<T: 'static> Decode for Making<T> {
    type Output = Queue<T>;

    #[inline(always)]
    fn decode(&mut self, reply: Reply, _: &Rc<TrapFrame>) -> Queue<T> {
        match reply {
            Reply::Queue(id) => self.side.id.set(id),
            Reply::Err(_) => (self.refused)(self.side.status.kind),
            other => mismatch(other),
        }
        Queue::handle(&self.side)
    }

    /// A caller that does not wait for the queue does not miss it.
    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        if let Reply::Queue(_) = reply {
            drop(self.decode(reply, frame));
        }
    }
}

/// Decodes the reply of a get.
struct Getting<'a, T, R> {
    queue: &'a Queue<T>,
    refusal: R,
}

impl<T: 'static, E, R: Fn(Reply) -> E> Decode for Getting<'_, T, R> {
    type Output = Result<T, E>;

    #[inline(always)]
    fn decode(&mut self, reply: Reply, _: &Rc<TrapFrame>) -> Result<T, E> {
        match reply {
            Reply::Message(number) => Ok(self.queue.side.messages.take(number)),
            other => Err((self.refusal)(other)),
        }
    }

    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        if let Reply::Message(number) = reply {
            frame.defer_word(SystemCall::GiveBack(self.queue.id()), number);
        }
    }
}

/// The messages that no task has taken, in the order in which they were put.
type Untaken<T> = (BTreeMap<u64, T>, VecDeque<Option<T>>);

fn in_order<T>((aside, kept): Untaken<T>) -> impl Iterator<Item = T> {
    aside.into_values().chain(kept.into_iter().flatten())
}

/// The tasks' side of a queue.
pub(crate) struct Side<T> {
    /// [`QueueId::NONE`] until the kernel has made the queue.
    id: Cell<QueueId>,
    /// The number of handles. The kernel's reference is none.
    handles: Cell<usize>,
    frame: Rc<TrapFrame>,
    status: Rc<QueueStatus>,
    messages: Messages<T>,
    /// Drops the messages. `Drop` needs it, because there `T` is not known to be `'static`.
    drop: fn(&TrapFrame, Untaken<T>),
}

impl<T> Side<T> {
    /// Stores a message that the kernel puts, and returns its number.
    pub(crate) fn push(&self, message: T) -> u64 {
        self.messages.push(message)
    }

    /// Frees the queue, after its last handle.
    fn free(&self) {
        self.frame.defer(SystemCall::FreeQueue(self.id.get()));
        // Dropped here, because these destructors belong to the task.
        if !self.messages.is_empty() {
            (self.drop)(&self.frame, self.messages.take_all());
        }
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        let side = &self.side;
        side.handles.set(side.handles.get() - 1);
        if side.handles.get() == 0 {
            side.free();
        }
    }
}

/// A queue's messages by number. They include the messages of tasks that wait to put, and those
/// that are matched with a task before its turn.
pub(crate) struct Messages<T> {
    /// The latest messages in order; `None` is a gap, left by a message that was removed early.
    kept: RefCell<VecDeque<Option<T>>>,
    /// The number of the first message in `kept`.
    first: Cell<u64>,
    /// The number of gaps in `kept`; never many more than messages.
    gaps: Cell<usize>,
    /// Older messages. Kept in order, they would leave too many gaps behind them. Few queues have any.
    aside: RefCell<Option<BTreeMap<u64, T>>>,
    /// The messages of a type without content, of which each is like the others. They take no memory.
    units: RefCell<VecDeque<T>>,
}

impl<T> Default for Messages<T> {
    fn default() -> Self {
        Self {
            kept: RefCell::default(),
            first: Cell::default(),
            gaps: Cell::default(),
            aside: RefCell::default(),
            units: RefCell::default(),
        }
    }
}

impl<T> Messages<T> {
    const ARE_UNITS: bool = size_of::<T>() == 0 && !std::mem::needs_drop::<T>();

    /// Stores a message, and returns its number, which is never reused.
    pub(crate) fn push(&self, message: T) -> u64 {
        if Self::ARE_UNITS {
            self.units.borrow_mut().push_back(message);
            return self.first.replace(self.first.get() + 1);
        }
        let mut kept = self.kept.borrow_mut();
        kept.push_back(Some(message));
        self.first.get() + kept.len() as u64 - 1
    }

    fn is_empty(&self) -> bool {
        let aside = self.aside.borrow();
        self.kept.borrow().is_empty() && aside.as_ref().is_none_or(BTreeMap::is_empty)
    }

    fn take_all(&self) -> Untaken<T> {
        (self.aside.take().unwrap_or_default(), self.kept.take())
    }

    fn take(&self, number: u64) -> T {
        self.remove(number)
            .expect("the kernel gives out a message once")
    }

    fn remove(&self, number: u64) -> Option<T> {
        if Self::ARE_UNITS {
            return self.units.borrow_mut().pop_front();
        }
        if number != self.first.get() {
            return self.remove_other(number);
        }
        let mut kept = self.kept.borrow_mut();
        let message = kept.pop_front()?;
        self.first.set(number + 1);
        while let Some(None) = kept.front() {
            kept.pop_front();
            self.first.set(self.first.get() + 1);
            self.gaps.set(self.gaps.get() - 1);
        }
        message
    }

    /// Removes a message that is not the first: its put was refused, its task was killed, or tasks
    /// run in another order than messages were put.
    #[inline(never)]
    fn remove_other(&self, number: u64) -> Option<T> {
        let Some(at) = number.checked_sub(self.first.get()) else {
            return self.aside.borrow_mut().as_mut()?.remove(&number);
        };
        let mut kept = self.kept.borrow_mut();
        let message = kept.get_mut(usize::try_from(at).ok()?)?.take()?;
        self.gaps.set(self.gaps.get() + 1);
        if self.gaps.get() > 16 + kept.len() / 2 {
            let (first, len) = (self.first.get(), kept.len() as u64);
            let numbered = (first..).zip(kept.drain(..));
            let messages = numbered.filter_map(|(number, message)| Some((number, message?)));
            let mut aside = self.aside.borrow_mut();
            aside.get_or_insert_default().extend(messages);
            self.first.set(first + len);
            self.gaps.set(0);
        }
        Some(message)
    }
}

impl<T> Store for Side<T> {
    fn discard(&self, number: u64) {
        // Dropped outside the borrow: its destructor may use the queue.
        drop(self.messages.remove(number));
    }

    fn clear(&self) {
        for message in in_order(self.messages.take_all()) {
            contain(|| drop(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages whose values are their numbers.
    #[derive(Default)]
    struct Counted {
        messages: Messages<u64>,
        pushed: u64,
        /// The number of messages.
        live: usize,
        /// The highest number of gaps.
        spare: usize,
    }

    impl Counted {
        fn push(&mut self) -> u64 {
            let number = self.messages.push(self.pushed);
            assert_eq!(number, self.pushed);
            self.pushed += 1;
            self.live += 1;
            let aside = self.messages.aside.borrow();
            let aside = aside.as_ref().map_or(0, BTreeMap::len);
            let kept = self.messages.kept.borrow().len() + aside;
            self.spare = self.spare.max(kept - self.live);
            number
        }

        fn remove(&mut self, number: u64) {
            assert_eq!(self.messages.remove(number), Some(number));
            assert_eq!(self.messages.remove(number), None);
            self.live -= 1;
            let kept = self.messages.kept.borrow();
            let gaps = kept.iter().filter(|message| message.is_none());
            assert_eq!(gaps.count(), self.messages.gaps.get());
        }
    }

    #[test]
    fn what_is_refused_costs_no_memory() {
        let mut counted = Counted::default();
        counted.push();
        for _ in 0..1000 {
            let refused = counted.push();
            counted.remove(refused);
        }
        assert!(counted.spare < 40, "{}", counted.spare);
        counted.remove(0);
    }

    #[test]
    fn one_that_stays_does_not_keep_the_room_of_those_behind_it() {
        for length in [1, 5, 100] {
            let mut counted = Counted::default();
            counted.push();
            for _ in 0..length {
                counted.push();
            }
            for _ in 0..1000 {
                counted.remove(counted.pushed - length);
                counted.push();
            }
            let most = 40 + length as usize;
            assert!(counted.spare < most, "{}", counted.spare);
            counted.remove(0);
        }
    }

    #[test]
    fn in_whatever_order_they_leave_nothing_stays() {
        for stride in [1, 2, 3, 50, 97, 100] {
            let mut counted = Counted::default();
            for _ in 0..101 {
                counted.push();
            }
            for n in 0..101 {
                counted.remove(n * stride % 101);
            }
            assert_eq!(counted.messages.kept.borrow().len(), 0);
            let aside = counted.messages.aside.borrow();
            assert!(aside.as_ref().is_none_or(BTreeMap::is_empty));
        }
    }
}
