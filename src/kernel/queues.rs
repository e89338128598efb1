//! The message queues: numbers of messages, and the tasks that wait at either end. A verb returns the
//! task to be woken; `queue_calls.rs` has the calls.
//!
//! Queues are the only primitive on which tasks block each other. A promise, a flag and a barrier
//! are queues that get closed; a mutex is a queue of one token. A semaphore and a lock that readers share
//! count permits instead of messages: `permits.rs`.

use std::{collections::VecDeque, ops::Range, rc::Rc};

use super::{permits::Permits, selects::Watchers, waiters::position};
use crate::{
    abi::{End, QueueId, QueueInfo, Tid},
    panic::contain,
    sched::Runnable,
    trap::{Kind, QueueStatus, Store},
};

pub(super) struct MessageQueue {
    id: QueueId,
    capacity: u64,
    /// The messages ready to be taken, in order of their numbers.
    available: VecDeque<u64>,
    /// The tasks that wait for a message. Empty while a message is available.
    getters: VecDeque<Runnable>,
    /// The tasks that wait for room, with their messages.
    putters: VecDeque<(Runnable, u64)>,
    /// The selects at its two ends.
    watchers: [Watchers; 2],
    /// What it counts instead of messages.
    permits: Option<Box<Permits>>,
    /// `None` in a free slot.
    store: Option<Rc<dyn Store>>,
    status: Rc<QueueStatus>,
}

/// The result of a put.
pub(super) enum Put {
    Stored,
    /// The message goes to this task, which waited for one.
    Handed(Runnable),
    Full,
    Closed,
}

/// The result of a get.
#[derive(Clone, Copy)]
pub(super) enum Got {
    /// A message. The put of this task, which waited for room, is done.
    Message(u64, Option<Runnable>),
    Empty,
    Closed,
}

/// The result of a request for permits.
pub(super) enum Took {
    All,
    TooFew,
    Closed,
}

impl MessageQueue {
    /// The number of the token of a lock, its first message.
    pub(super) const TOKEN: u64 = 0;

    fn vacant(gone: Rc<QueueStatus>) -> Self {
        Self {
            id: QueueId::of_none_in(0),
            capacity: 0,
            available: VecDeque::new(),
            getters: VecDeque::new(),
            putters: VecDeque::new(),
            watchers: Default::default(),
            permits: None,
            store: None,
            status: gone,
        }
    }

    pub(super) fn put(&mut self, message: u64) -> Put {
        if self.is_closed() {
            return Put::Closed;
        }
        if let Some(getter) = self.next_getter() {
            return Put::Handed(getter);
        }
        if !self.has_room() {
            return Put::Full;
        }
        self.store(message);
        Put::Stored
    }

    /// Returns whether a message can be stored, and no task waits for one.
    pub(super) fn has_room(&self) -> bool {
        let is_full = self.available.len() as u64 >= self.capacity;
        !is_full && !self.is_closed() && self.getters.is_empty()
    }

    /// Returns whether the call at this end would not block.
    pub(super) fn is_ready(&self, end: End) -> bool {
        self.is_closed()
            || match end {
                End::Get if self.permits.is_some() => self.has_permits(1),
                End::Get => !self.available.is_empty() || !self.putters.is_empty(),
                End::Put => !self.getters.is_empty() || self.has_room(),
            }
    }

    /// Returns whether a task selects one of its ends.
    #[inline(always)]
    pub(super) fn is_watched(&self) -> bool {
        !self.watchers.iter().all(Watchers::is_empty)
    }

    /// Returns whether a task waits for a message, or selects one.
    pub(super) fn is_awaited(&self) -> bool {
        !self.getters.is_empty() || !self.watchers[End::Get as usize].is_empty()
    }

    /// Returns whether a task may wait at one of its ends.
    pub(super) fn is_waited_at(&self) -> bool {
        let is_quiet = self.getters.is_empty() && self.putters.is_empty();
        !is_quiet || self.permits.is_some() || self.is_watched()
    }

    pub(super) fn watchers(&self, end: End) -> Watchers {
        self.watchers[end as usize]
    }

    pub(super) fn watchers_mut(&mut self, end: End) -> &mut Watchers {
        &mut self.watchers[end as usize]
    }

    pub(super) fn store(&mut self, message: u64) {
        self.available.push_back(message);
        self.publish();
    }

    /// Stores messages if each has room, and no task waits for one. Returns whether it was so.
    pub(super) fn store_all(&mut self, messages: Range<u64>) -> bool {
        let may_store = self.is_unbounded() && !self.is_closed() && !self.is_awaited();
        if may_store {
            self.available.extend(messages);
            self.publish();
        }
        may_store
    }

    /// Takes the first message, if there is one and no task waits for room.
    pub(super) fn take_first(&mut self) -> Option<u64> {
        if !self.putters.is_empty() {
            return None;
        }
        let first = self.available.pop_front()?;
        self.publish();
        Some(first)
    }

    pub(super) fn get(&mut self) -> Got {
        let first = self.available.pop_front();
        // Messages that were given back may exceed the capacity.
        let room = first.is_none() || (self.available.len() as u64) < self.capacity;
        let admitted = room.then(|| self.putters.pop_front()).flatten();
        let (putter, next) = admitted.unzip();
        let message = match first {
            None => next,
            first => {
                self.available.extend(next);
                first
            }
        };
        self.publish();
        match message {
            Some(message) => Got::Message(message, putter),
            None if self.is_closed() => Got::Closed,
            None => Got::Empty,
        }
    }

    /// Takes back a message from a task that cannot receive it. Returns the next waiting task,
    /// which gets the message. Without one, the message returns to its old place.
    pub(super) fn give_back(&mut self, message: u64) -> Option<Runnable> {
        let next = self.next_getter();
        if next.is_none() {
            let place = self.available.partition_point(|other| *other < message);
            self.available.insert(place, message);
            self.publish();
        }
        next
    }

    /// Opens the queue of a flag again. Returns whether it is one.
    pub(super) fn open(&mut self) -> bool {
        let is_flag = self.status.kind == Kind::Flag;
        if is_flag {
            self.status.closed.set(false);
        }
        is_flag
    }

    /// Closes the queue, unless it is that of a condition, which stays open. The waiting tasks are still to
    /// be woken. Returns whether it was open.
    pub(super) fn close(&mut self) -> bool {
        let stays_open = self.is_condition();
        let was_open = !self.status.closed.replace(!stays_open);
        if was_open {
            self.status.closes.set(self.status.closes.get() + 1);
        }
        was_open
    }

    pub(super) fn is_condition(&self) -> bool {
        self.status.kind == Kind::Condition
    }

    pub(super) fn pop_putter(&mut self) -> Option<(Runnable, u64)> {
        self.putters.pop_front()
    }

    pub(super) fn add_putter(&mut self, task: Runnable, message: u64) {
        self.putters.push_back((task, message));
    }

    /// Removes a task that waits to put, and returns its message.
    pub(super) fn remove_putter(&mut self, task: Runnable) -> Option<u64> {
        let place = position(&self.putters, |(other, _)| *other == task)?;
        self.putters.remove(place).map(|(_, message)| message)
    }

    pub(super) fn remove_getter(&mut self, task: Runnable) {
        if let Some(permits) = &mut self.permits {
            permits.remove(task);
        }
        if let Some(place) = position(&self.getters, |other| *other == task) {
            self.getters.remove(place);
            self.status.waiting.set(self.getters.len());
        }
    }

    pub(super) fn add_getter(&mut self, task: Runnable) {
        self.getters.push_back(task);
        self.status.waiting.set(self.getters.len());
    }

    /// Takes the task that has waited longest for a message.
    pub(super) fn next_getter(&mut self) -> Option<Runnable> {
        let next = self.getters.pop_front();
        self.status.waiting.set(self.getters.len());
        next
    }

    // ---- permits

    /// Returns whether a request would not wait.
    pub(super) fn has_permits(&self, count: u64) -> bool {
        let permits = self.permits.as_ref();
        self.is_closed() || permits.is_none_or(|permits| permits.has(count))
    }

    /// Takes so many permits.
    pub(super) fn take_permits(&mut self, count: u64) -> Took {
        let Some(permits) = self.permits.as_mut().filter(|_| !self.status.closed.get()) else {
            return Took::Closed;
        };
        if !permits.take(count) {
            return Took::TooFew;
        }
        self.publish_permits();
        Took::All
    }

    /// Adds a task that waits for so many permits.
    pub(super) fn add_taker(&mut self, task: Runnable, count: u64) {
        if let Some(permits) = &mut self.permits {
            permits.add(task, count);
            self.publish_permits();
        }
    }

    /// Gives permits back. The tasks that wait are still to be served.
    pub(super) fn give_permits(&mut self, count: u64) {
        if let Some(permits) = &mut self.permits {
            permits.give(count);
        }
    }

    /// Grants the request that has waited longest, if there is enough for it. Of a closed queue,
    /// returns each task that waits, with `None`. Returns `None` when all are served.
    pub(super) fn next_taker(&mut self) -> Option<(Runnable, Option<u64>)> {
        let permits = self.permits.as_mut()?;
        let next = match self.status.closed.get() {
            true => permits.pop().map(|task| (task, None)),
            false => permits.next().map(|(task, count)| (task, Some(count))),
        };
        if next.is_none() {
            self.publish_permits();
        }
        next
    }

    pub(super) fn permits(&self) -> Option<&Permits> {
        self.permits.as_deref()
    }

    /// Returns how many permits a task waits for.
    pub(super) fn request(&self, task: Runnable) -> Option<u64> {
        self.permits()?.request(task)
    }

    fn publish_permits(&self) {
        if let Some(permits) = &self.permits {
            let (left, short) = permits.status();
            self.status.len.set(left as usize);
            self.status.waiting.set(short as usize);
        }
    }

    fn is_closed(&self) -> bool {
        self.status.closed.get()
    }

    pub(super) fn is_unbounded(&self) -> bool {
        self.capacity == u64::MAX
    }

    pub(super) fn id(&self) -> QueueId {
        self.id
    }

    pub(super) fn is_lock(&self) -> bool {
        self.status.kind.is_lock()
    }

    pub(super) fn discard(&self, message: u64) {
        if let Some(store) = &self.store {
            contain(|| store.discard(message));
        }
    }

    pub(super) fn messages(&self) -> Option<&dyn Store> {
        self.store.as_deref()
    }

    pub(super) fn status(&self) -> &QueueStatus {
        &self.status
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = Runnable> {
        let putters = self.putters.iter().map(|(task, _)| *task);
        let takers = self.permits.iter().flat_map(|permits| permits.waiters());
        self.getters.iter().copied().chain(putters).chain(takers)
    }

    fn publish(&self) {
        self.status.len.set(self.available.len());
    }

    fn info(&self) -> QueueInfo {
        let permits = self.permits();
        let takers = permits.map_or(0, |permits| permits.waiters().len());
        let capacity = permits.map_or(self.capacity, Permits::all);
        QueueInfo {
            id: self.id,
            thing: self.status.kind.title(self.id, self.status.name()),
            len: self.status.len.get(),
            capacity: (capacity != u64::MAX).then_some(capacity),
            getters: self.getters.len() + takers,
            putters: self.putters.len(),
            is_closed: self.is_closed(),
        }
    }
}

/// The queues of a kernel, found by the slot in their names. The queues of daemons are a separate
/// set, so that they change no name of another queue.
#[derive(Default)]
pub(super) struct Queues {
    sets: [QueueSet; 2],
    /// The status of all queues in free slots.
    gone: Rc<QueueStatus>,
}

/// The number of slots that keep the memory of their lists for the next queue.
const KEEPING: usize = 16;

/// The most entries of a list that is kept.
const SMALL: usize = 64;

/// What a queue shares with its handles.
type Shared = (Rc<dyn Store>, Rc<QueueStatus>);

#[derive(Default)]
struct QueueSet {
    slots: Vec<MessageQueue>,
    /// The free slots.
    free: Vec<usize>,
    last: u64,
}

impl QueueSet {
    /// Frees the slot of a queue. Returns the store of its messages, and its status.
    fn vacate(&mut self, slot: usize, gone: &Rc<QueueStatus>) -> Option<Shared> {
        let queue = &mut self.slots[slot];
        let store = queue.store.take()?;
        queue.id = QueueId::of_none_in(slot);
        let status = std::mem::replace(&mut queue.status, Rc::clone(gone));
        queue.available.clear();
        queue.getters.clear();
        queue.putters.clear();
        queue.watchers = Default::default();
        queue.permits = None;
        let is_small = queue.available.capacity().max(queue.getters.capacity()) <= SMALL;
        if slot >= KEEPING || !is_small || queue.putters.capacity() > SMALL {
            (queue.available, queue.getters) = Default::default();
            queue.putters = VecDeque::new();
        }
        self.free.push(slot);
        Some((store, status))
    }
}

impl Queues {
    /// Makes a queue; returns `None` if there is no room for one more.
    pub(super) fn insert(
        &mut self,
        of_daemon: bool,
        capacity: u64,
        store: Rc<dyn Store>,
        status: Rc<QueueStatus>,
    ) -> Option<QueueId> {
        let set = &mut self.sets[usize::from(of_daemon)];
        let slot = set.free.last().copied().unwrap_or(set.slots.len());
        let first = if of_daemon { QueueId::DAEMONS } else { 0 };
        let id = QueueId::new(first + set.last + 1, slot)?;
        set.last += 1;
        if set.free.pop().is_none() {
            set.slots.push(MessageQueue::vacant(Rc::clone(&self.gone)));
        }
        let queue = &mut set.slots[slot];
        (queue.id, queue.capacity) = (id, capacity);
        if status.kind.counts() {
            queue.permits = Some(Box::new(Permits::new(capacity)));
            queue.capacity = u64::MAX;
            status.len.set(capacity as usize);
        }
        (queue.store, queue.status) = (Some(store), status);
        if queue.status.kind.has_token() {
            queue.store(MessageQueue::TOKEN);
        }
        Some(id)
    }

    pub(super) fn infos(&self) -> Vec<QueueInfo> {
        let queues = self.iter().filter(|queue| !queue.id.is_of_daemon());
        let mut infos: Vec<QueueInfo> = queues.map(MessageQueue::info).collect();
        infos.sort_unstable_by_key(|info| info.id);
        infos
    }

    /// Forgets the numbers of queues. All queues are gone.
    pub(super) fn reset(&mut self) {
        for set in &mut self.sets {
            // In the order of a new table.
            set.free.clear();
            set.free.extend((0..set.slots.len()).rev());
            set.last = 0;
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: QueueId) -> Option<&mut MessageQueue> {
        let set = &mut self.sets[usize::from(id.is_of_daemon())];
        set.slots.get_mut(id.slot()).filter(|queue| queue.id == id)
    }

    pub(super) fn get(&self, id: QueueId) -> Option<&MessageQueue> {
        let set = &self.sets[usize::from(id.is_of_daemon())];
        set.slots.get(id.slot()).filter(|queue| queue.id == id)
    }

    /// Returns the number of queues of tasks, or of daemons.
    pub(super) fn len(&self, of_daemon: bool) -> usize {
        let set = &self.sets[usize::from(of_daemon)];
        set.slots.len() - set.free.len()
    }

    /// Removes a queue. Returns what it shares with its handles.
    pub(super) fn remove(&mut self, id: QueueId) -> Option<Shared> {
        self.get_mut(id)?;
        let set = &mut self.sets[usize::from(id.is_of_daemon())];
        set.vacate(id.slot(), &self.gone)
    }

    pub(super) fn holder_of_lock(&self, id: QueueId) -> Option<Tid> {
        let lock = self.get(id).filter(|queue| queue.is_lock())?;
        lock.status.holder()
    }

    /// Notes that what a destructor has put has arrived: a message, or so many permits.
    pub(super) fn arrived(&mut self, id: QueueId, count: u64) {
        if let Some(queue) = self.get_mut(id) {
            let posted = &queue.status.posted;
            posted.set(posted.get() - count as usize);
        }
    }

    /// Drops the messages left in the queues. A message may hold a handle of its own queue, and the
    /// two would keep each other alive.
    pub(super) fn clear(&mut self) {
        for set in &mut self.sets {
            if set.free.len() < set.slots.len() {
                let left = (0..set.slots.len()).filter_map(|slot| set.vacate(slot, &self.gone));
                left.for_each(|(store, _)| store.clear());
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MessageQueue> {
        let all = self.sets.iter().flat_map(|set| &set.slots);
        all.filter(|queue| queue.store.is_some())
    }
}
