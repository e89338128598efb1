//! Message queues: typed, first in first out, with blocking at both ends.
//!
//! The kernel's part of a queue contains only numbers. The messages stay in `messages.rs`.

use std::{fmt, rc::Rc};

use super::{
    messages::Side,
    os::{Decode, Os, answer, mismatch},
};
use crate::{
    abi::{QueueId, Reply, SystemCall, Tid},
    trap::{Kind, Object, Payload, QueueStatus, TextQueue, TrapFrame},
};

/// The queue is closed. It holds the message that was not put.
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

/// A handle to a message queue. Clones are handles to the same queue. Dropping the last one frees it.
///
/// Messages and waiters are first in, first out, without barging. A message that is matched with a
/// waiting task belongs to it. If that task is killed or times out before its turn, the next task
/// gets the message, or it returns to its old place. (The queue of curio, with the `close` of Go's
/// channels.)
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

impl Queue<String> {
    /// The store of the texts, for the kernel.
    pub(super) fn texts(&self) -> Rc<dyn TextQueue> {
        Rc::clone(&self.side) as _
    }
}

impl<T: 'static> Queue<T> {
    /// Makes a queue with room for `capacity` messages. With capacity zero, each put waits for a
    /// get. Never blocks. A kernel has at most 16,777,216 queues at once
    /// ([`Builder::max_queues`](crate::Builder::max_queues)). One more is closed from the start.
    pub async fn bounded(os: &mut Os, capacity: usize) -> Self {
        let make = SystemCall::NewQueue(capacity as u64);
        Self::make(os, make, Kind::Queue, None, |_| ()).await
    }

    /// Makes a queue as [`Queue::bounded`] does, with a name. Reports and traces show the name
    /// beside the number. Never blocks.
    pub async fn named(os: &mut Os, name: &str, capacity: usize) -> Self {
        let make = SystemCall::NewQueue(capacity as u64);
        Self::make(os, make, Kind::Queue, Some(name.into()), |_| ()).await
    }

    /// Makes a queue with room for any number of messages. Never blocks.
    pub async fn unbounded(os: &mut Os) -> Self {
        let make = SystemCall::NewQueue(u64::MAX);
        Self::make(os, make, Kind::Queue, None, |_| ()).await
    }

    /// Makes a queue for an owner of this kind. Faults the caller at the limit of queues.
    #[inline(always)]
    pub(crate) fn required<'a>(
        os: &'a mut Os,
        kind: Kind,
        name: Option<&str>,
    ) -> impl Future<Output = Self> + use<'a, T> {
        let capacity = match kind {
            // A signal passes only to a task that waits.
            Kind::Condition => 0,
            _ => u64::MAX,
        };
        Self::required_with(os, kind, name, capacity)
    }

    /// The same, with this capacity. It is the number of permits, if the queue counts these.
    #[inline(always)]
    pub(crate) fn required_with<'a>(
        os: &'a mut Os,
        kind: Kind,
        name: Option<&str>,
        capacity: u64,
    ) -> impl Future<Output = Self> + use<'a, T> {
        let make = SystemCall::NewQueue(capacity);
        Self::make(os, make, kind, name.map(Rc::from), |kind| {
            panic!(
                "there is no room for a {}: the limit of message queues is reached; raise \
                 Builder::max_queues",
                kind.name()
            )
        })
    }

    /// At the limit of queues this calls `refused`. Not an `async fn`: a queue is made in the place
    /// where it stays.
    #[inline(always)]
    fn make<'a>(
        os: &'a mut Os,
        call: SystemCall,
        kind: Kind,
        name: Option<Rc<str>>,
        refused: fn(Kind),
    ) -> impl Future<Output = Self> + 'a {
        let (prepare, making) = Self::making(os, call, kind, name, refused);
        os.call_undoing(prepare, making)
    }

    /// Returns what prepares a call that makes a queue, and what decodes its reply.
    #[inline(always)]
    pub(super) fn making(
        os: &Os,
        call: SystemCall,
        kind: Kind,
        name: Option<Rc<str>>,
        refused: fn(Kind),
    ) -> (impl FnOnce(&TrapFrame) -> SystemCall + use<T>, Making<T>) {
        let status = os.frame().kept.new_status(kind, name);
        let side = Rc::new(Side::new(Rc::clone(os.frame()), status));
        let store = Rc::clone(&side);
        let prepare = move |frame: &TrapFrame| {
            let status = Rc::clone(&store.status);
            frame.put(Payload::Queue(store, status));
            call
        };
        (prepare, Making { side, refused })
    }

    /// Makes a queue that replaces this one in its owner.
    pub(crate) fn successor<'a>(&self, os: &'a mut Os) -> impl Future<Output = Self> + use<'a, T> {
        let QueueStatus { kind, name, .. } = &*self.side.status;
        Self::required(os, *kind, name.as_deref())
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
        os.call(
            self.putting(SystemCall::Put(self.id_in(os)), message),
            answer!(
                Reply::Done => Ok(()),
                Reply::Refused(number) => Err(Closed(self.side.messages.take(number)))
            ),
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
        let messages = &self.side.messages;
        os.call(
            self.putting(SystemCall::TryPut(self.id_in(os)), message),
            answer!(
                Reply::Done => Ok(()),
                Reply::Full(number) => Err(TryPutError::Full(messages.take(number))),
                Reply::Refused(number) => Err(TryPutError::Closed(messages.take(number)))
            ),
        )
    }

    fn putting(&self, call: SystemCall, message: T) -> impl FnOnce(&TrapFrame) -> SystemCall {
        move |frame| {
            frame.put_word(self.side.messages.push(message));
            call
        }
    }

    /// Takes the first message. *Blocks* while the queue is empty.
    ///
    /// *Errors:* [`Closed`] if the queue is empty and closed, before or during the call.
    #[track_caller]
    pub fn get<'a>(&'a self, os: &'a mut Os) -> impl Future<Output = Result<T, Closed>> + 'a {
        os.note_caller();
        self.take(os)
    }

    /// For a caller that has noted its own caller.
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
            answer!(Reply::Done | Reply::Err(_) => ()),
        )
    }

    /// Opens the queue of a flag again.
    pub(crate) fn open(&self, os: &mut Os) -> impl Future<Output = ()> {
        let id = self.id_in(os);
        os.call(
            move |_| SystemCall::OpenQueue(id),
            answer!(Reply::Done | Reply::Err(_) => ()),
        )
    }

    /// Closes the queue if [`Queue::close`] is cut, and no task has closed it since now: an owner may have
    /// replaced it already.
    pub(crate) fn closing(&self) -> Closing<'_, T> {
        Closing {
            side: &self.side,
            closes: self.side.status.closes.get(),
        }
    }

    /// Returns the number of messages that can be taken at once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.side.frame.touch_queue(self.id(), false);
        let status = &*self.side.status;
        // Each waiting task takes one deferred put, and each request as many permits as it is short of.
        let posted = status.posted.get().saturating_sub(status.waiting.get());
        status.len.get() + posted
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.side.frame.touch_queue(self.id(), false);
        self.side.status.closed.get()
    }

    /// Puts a message without a trap, when the task stops. A full or closed queue drops the message.
    pub(crate) fn defer_put(&self, message: T) {
        let number = self.side.messages.push(message);
        let posted = &self.side.status.posted;
        posted.set(posted.get() + 1);
        let put = SystemCall::TryPut(self.id());
        self.side.frame.defer_word(put, number);
    }

    /// Notes for a search that another task than the holder releases or adopts the lock of this queue,
    /// as a kill does. The holder may be on a cycle of waits.
    pub(crate) fn touch_unless_held(&self) {
        let frame = &self.side.frame;
        if frame.is_noted() && self.side.status.holder.get() != frame.remote.running() {
            frame.touch(Object::Cycles, true);
            frame.touch_queue(self.id(), true);
        }
    }

    /// Notes for a search that one of several holders of a lock changes: the latest is on the cycles.
    pub(crate) fn touch_cycles(&self) {
        self.side.frame.touch(Object::Cycles, true);
    }

    pub(crate) fn set_held(&self) {
        let holder = self.side.frame.remote.running();
        self.side.status.holder.set(holder);
    }

    pub(crate) fn set_free(&self) {
        self.set_holder(Tid::KERNEL);
    }

    pub(crate) fn set_holder(&self, holder: Tid) {
        self.side.status.holder.set(holder);
    }

    /// The same, where that one may wait already. The kernel looks for a cycle when the permits are given back.
    pub(crate) fn pass_to(&self, holder: Tid) {
        let status = &self.side.status;
        let is_other = status.holder.replace(holder) != holder;
        status.is_passed.set(status.is_passed.get() || is_other);
    }

    pub(crate) fn is_held_by_caller(&self) -> bool {
        self.side.status.holder.get() == self.side.frame.remote.running()
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

    /// For messages that the kernel puts.
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
        match self.is_home(os) {
            true => self.id(),
            false => QueueId::NONE,
        }
    }
}

/// The queue of a lock, and one that counts permits.
impl Queue<()> {
    /// Stores the message of a new lock. The kernel has its number from the begin.
    pub(crate) fn store_token(&self) {
        self.side.messages.push(());
    }

    /// Takes so many permits. *Blocks* until there are enough.
    pub(crate) fn take_permits<'a>(
        &'a self,
        os: &'a mut Os,
        count: u64,
    ) -> impl Future<Output = Result<(), Closed>> + 'a {
        let id = self.id_in(os);
        let take = move |frame: &TrapFrame| {
            frame.put_word(count);
            SystemCall::Take(id)
        };
        os.call_undoing(take, Taking(self))
    }

    /// Takes so many permits if there are enough. Returns whether there are.
    pub(crate) async fn try_take_permits(&self, os: &mut Os, count: u64) -> bool {
        let id = self.id_in(os);
        let take = move |frame: &TrapFrame| {
            frame.put_word(count);
            SystemCall::TryTake(id)
        };
        os.call_undoing(take, Taking(self)).await.is_ok()
    }

    /// Gives permits back without a trap, when the task stops.
    pub(crate) fn defer_give(&self, count: u64) {
        let posted = &self.side.status.posted;
        posted.set(posted.get() + count as usize);
        self.side
            .frame
            .defer_word(SystemCall::Give(self.id()), count);
    }
}

struct Taking<'a>(&'a Queue<()>);

impl Decode for Taking<'_> {
    type Output = Result<(), Closed>;

    fn decode(&mut self, reply: Reply, _: &Rc<TrapFrame>) -> Result<(), Closed> {
        match reply {
            Reply::Permits(_) => Ok(()),
            Reply::Again | Reply::Err(_) => Err(Closed(())),
            other => mismatch(other),
        }
    }

    fn undo(&mut self, reply: Reply, _: &Rc<TrapFrame>) {
        if let Reply::Permits(count) = reply {
            self.0.defer_give(count);
        }
    }
}

pub(crate) struct Closing<'a, T> {
    side: &'a Side<T>,
    /// How often the queue was closed before.
    closes: u64,
}

impl<T> Drop for Closing<'_, T> {
    fn drop(&mut self) {
        let side = self.side;
        // In a later turn than the call: another task may have closed it meanwhile.
        side.frame.touch_queue(side.id.get(), false);
        if side.status.closes.get() == self.closes {
            side.frame.defer(SystemCall::CloseQueue(side.id.get()));
        }
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        let side = Rc::clone(&self.side);
        side.handles.set(side.handles.get() + 1);
        Self { side }
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

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.side.id.get())
    }
}

pub(super) struct Making<T> {
    side: Rc<Side<T>>,
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
        self.side.handles.set(1);
        let side = Rc::clone(&self.side);
        Queue { side }
    }

    /// A caller that does not wait for the queue does not miss it.
    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        if let Reply::Queue(_) = reply {
            drop(self.decode(reply, frame));
        }
    }
}

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
