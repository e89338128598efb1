//! The kernel's part of message queues: numbers of messages, and the tasks that wait at either end.
//!
//! Queues are the only primitive on which tasks block each other. A promise, a flag and a barrier
//! are queues that get closed; a semaphore and a mutex are queues of tokens.

use std::{collections::VecDeque, rc::Rc};

use super::{
    Kernel,
    answer::Answer,
    outcome::Outcome,
    task::{State, WaitingOn},
    waiters::position,
};
use crate::{
    abi::{End, Errno, QueueId, QueueInfo, Reply},
    log::Wake,
    panic::contain,
    sched::Runnable,
    trap::{Kind, Note, Object, Payload, QueueStatus, Store},
};

pub(super) struct MessageQueue {
    id: QueueId,
    capacity: u64,
    closed: bool,
    /// The messages ready to be taken, in order of their numbers.
    available: VecDeque<u64>,
    /// The tasks that wait for a message. Empty while a message is available.
    getters: VecDeque<Runnable>,
    /// The tasks that wait for room, with their messages.
    putters: VecDeque<(Runnable, u64)>,
    /// `None` in a free slot.
    store: Option<Rc<dyn Store>>,
    status: Rc<QueueStatus>,
}

/// The result of a put.
enum Put {
    Stored,
    /// The message goes to this task, which waited for one.
    Handed(Runnable),
    Full,
    Closed,
}

/// The result of a get.
#[derive(Clone, Copy)]
enum Got {
    Message(u64),
    /// The same; and the put of this task, which waited for room, is done.
    Admitted(u64, Runnable),
    Empty,
    Closed,
}

impl MessageQueue {
    fn put(&mut self, message: u64) -> Put {
        if self.closed {
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
        !is_full && !self.closed && self.getters.is_empty()
    }

    pub(super) fn store(&mut self, message: u64) {
        self.available.push_back(message);
        self.publish();
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

    fn get(&mut self) -> Got {
        let first = self.available.pop_front();
        // Messages that were given back may exceed the capacity.
        let room = first.is_none() || (self.available.len() as u64) < self.capacity;
        let admitted = room.then(|| self.putters.pop_front()).flatten();
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

    /// Takes back a message from a task that cannot receive it. Returns the next waiting task,
    /// which gets the message. Without one, the message returns to its old place.
    fn give_back(&mut self, message: u64) -> Option<Runnable> {
        let next = self.next_getter();
        if next.is_none() {
            let place = self.available.partition_point(|other| *other < message);
            self.available.insert(place, message);
            self.publish();
        }
        next
    }

    /// Closes the queue. The waiting tasks are still to be woken.
    fn close(&mut self) {
        self.closed = true;
        self.status.closed.set(true);
    }

    /// Removes a task that waits to put, and returns its message.
    fn remove_putter(&mut self, task: Runnable) -> Option<u64> {
        let place = position(&self.putters, |(other, _)| *other == task)?;
        self.putters.remove(place).map(|(_, message)| message)
    }

    fn remove_getter(&mut self, task: Runnable) {
        if let Some(place) = position(&self.getters, |other| *other == task) {
            self.getters.remove(place);
            self.status.waiting.set(self.getters.len());
        }
    }

    fn add_getter(&mut self, task: Runnable) {
        self.getters.push_back(task);
        self.status.waiting.set(self.getters.len());
    }

    /// Takes the task that has waited longest for a message.
    fn next_getter(&mut self) -> Option<Runnable> {
        let next = self.getters.pop_front();
        self.status.waiting.set(self.getters.len());
        next
    }

    pub(super) fn is_unbounded(&self) -> bool {
        self.capacity == u64::MAX
    }

    pub(super) fn id(&self) -> QueueId {
        self.id
    }

    pub(super) fn is_lock(&self) -> bool {
        self.status.kind == Kind::Mutex
    }

    pub(super) fn status(&self) -> &QueueStatus {
        &self.status
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = Runnable> {
        self.getters
            .iter()
            .copied()
            .chain(self.putters.iter().map(|(task, _)| *task))
    }

    fn publish(&self) {
        self.status.len.set(self.available.len());
    }

    fn info(&self) -> QueueInfo {
        QueueInfo {
            id: self.id,
            thing: self.status.kind.title(self.id, self.status.name()),
            len: self.available.len(),
            capacity: (!self.is_unbounded()).then_some(self.capacity),
            getters: self.getters.len(),
            putters: self.putters.len(),
            is_closed: self.closed,
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
    fn insert(
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
            set.slots.push(MessageQueue {
                id,
                capacity,
                closed: false,
                available: VecDeque::new(),
                getters: VecDeque::new(),
                putters: VecDeque::new(),
                store: Some(store),
                status,
            });
            return Some(id);
        }
        let queue = &mut set.slots[slot];
        queue.id = id;
        queue.capacity = capacity;
        queue.closed = false;
        queue.store = Some(store);
        queue.status = status;
        Some(id)
    }

    /// Describes the queues of tasks, in order of their numbers.
    pub(super) fn infos(&self) -> Vec<QueueInfo> {
        let queues = self.sets[0].slots.iter();
        let queues = queues.filter(|queue| queue.store.is_some());
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
    fn len(&self, of_daemon: bool) -> usize {
        let set = &self.sets[usize::from(of_daemon)];
        set.slots.len() - set.free.len()
    }

    /// Removes a queue. Returns what it shares with its handles.
    pub(super) fn remove(&mut self, id: QueueId) -> Option<Shared> {
        self.get_mut(id)?;
        let set = &mut self.sets[usize::from(id.is_of_daemon())];
        set.vacate(id.slot(), &self.gone)
    }

    /// Takes the first entry of one of a queue's lists.
    fn next_of<T>(
        &mut self,
        id: QueueId,
        list: impl Fn(&mut MessageQueue) -> &mut VecDeque<T>,
    ) -> Option<T> {
        list(self.get_mut(id)?).pop_front()
    }

    /// Marks that a deferred put has arrived.
    pub(super) fn arrived(&mut self, id: QueueId) {
        if let Some(queue) = self.get_mut(id) {
            let posted = &queue.status.posted;
            posted.set(posted.get() - 1);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MessageQueue> {
        let all = self.sets.iter().flat_map(|set| &set.slots);
        all.filter(|queue| queue.store.is_some())
    }
}

/// The calls on queues.
impl Kernel {
    pub(super) fn new_queue(&mut self, me: Runnable, capacity: u64) -> Outcome {
        let Some(Payload::Queue(store, status)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let of_daemon = me.tid.is_daemon();
        let has_room = self.queues.len(of_daemon) < self.limits.queues;
        let queue = has_room.then(|| self.queues.insert(of_daemon, capacity, store, status));
        match queue.flatten() {
            Some(queue) => {
                self.frame.note(Note::NewQueue(queue, capacity));
                Reply::Queue(queue).into()
            }
            None => {
                // The queues of all tasks have used up the limit.
                self.frame.touch(Object::All, true);
                Errno::Closed.into()
            }
        }
    }

    pub(super) fn put(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        match self.try_put(queue) {
            Outcome::Ready(State::Ready(Answer {
                reply: Reply::Full(message),
                ..
            })) => {
                let full = self.queues.get_mut(queue).expect("a full queue exists");
                full.putters.push_back((me, message));
                self.frame.note(Note::Sent(queue, message));
                self.block(me, WaitingOn::Queue(queue, End::Put))
            }
            outcome => outcome,
        }
    }

    pub(super) fn try_put(&mut self, queue: QueueId) -> Outcome {
        match self.frame.take_word() {
            Some(message) => self.put_message(queue, message).into(),
            None => Errno::Invalid.into(),
        }
    }

    pub(super) fn put_message(&mut self, queue: QueueId, message: u64) -> Answer {
        let put = self.queues.get_mut(queue).map(|queue| queue.put(message));
        match put {
            Some(Put::Stored) => {
                self.frame.note(Note::Sent(queue, message));
                self.frame.note(Note::Stored(queue));
                Reply::Done.into()
            }
            Some(Put::Handed(getter)) => {
                self.frame.note(Note::Sent(queue, message));
                self.frame.note(Note::Removed(queue, getter.tid));
                self.frame.note(Note::Stored(queue));
                let message = Answer::message(Reply::Message(message), queue);
                self.wake(getter, Wake::Queue(queue), message);
                Reply::Done.into()
            }
            Some(Put::Full) => Answer::message(Reply::Full(message), queue),
            Some(Put::Closed) | None => Answer::message(Reply::Refused(message), queue),
        }
    }

    /// Puts the message that a keeper sends at the end of a task.
    pub(super) fn put_for_keeper(&mut self, queue: QueueId, message: u64) {
        if self.frame.is_noted() {
            self.note_try_put(queue);
        }
        if self.put_message(queue, message).reply != Reply::Done {
            self.discard(queue, message);
        }
    }

    /// Drops a message that no task receives.
    pub(super) fn discard(&mut self, queue: QueueId, message: u64) {
        let found = self.queues.get(queue);
        if let Some(store) = found.and_then(|queue| queue.store.clone()) {
            contain(|| store.discard(message));
        }
    }

    pub(super) fn get(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        let Some(found) = self.queues.get_mut(queue) else {
            return Errno::Closed.into();
        };
        let got = found.get();
        if let Got::Empty = got {
            found.add_getter(me);
            let on = WaitingOn::Queue(queue, End::Get);
            if found.is_lock() {
                return self.block_on_task(me, on);
            }
            return self.block(me, on);
        }
        self.got(queue, got)
    }

    pub(super) fn try_get(&mut self, queue: QueueId) -> Outcome {
        match self.queues.get_mut(queue).map(MessageQueue::get) {
            Some(got) => self.got(queue, got),
            None => Errno::Closed.into(),
        }
    }

    /// Answers a get that does not block.
    fn got(&mut self, queue: QueueId, got: Got) -> Outcome {
        match got {
            Got::Message(message) => {
                self.note_taken(queue, message);
                Answer::message(Reply::Message(message), queue).into()
            }
            Got::Admitted(message, putter) => {
                self.note_taken(queue, message);
                self.frame.note(Note::Stored(queue));
                self.wake(putter, Wake::Queue(queue), Reply::Done);
                Answer::message(Reply::Message(message), queue).into()
            }
            Got::Empty => Reply::Again.into(),
            Got::Closed => Errno::Closed.into(),
        }
    }

    fn note_taken(&self, queue: QueueId, message: u64) {
        self.frame.note(Note::Taken(queue, message));
        self.frame.note(Note::Removed(queue, self.remote.running()));
    }

    pub(super) fn close_queue_of(&mut self, queue: QueueId) -> Outcome {
        if self.close_queue(queue) {
            Reply::Done.into()
        } else {
            Errno::Closed.into()
        }
    }

    /// Closes a queue, and wakes the tasks that wait at its ends. Returns whether it was open.
    pub(super) fn close_queue(&mut self, queue: QueueId) -> bool {
        let Some(found) = self.queues.get_mut(queue).filter(|queue| !queue.closed) else {
            return false;
        };
        found.close();
        if found.waiters().next().is_none() {
            return true;
        }
        // One by one, which keeps the memory of the lists.
        while let Some(getter) = self.queues.next_of(queue, |found| &mut found.getters) {
            self.wake(getter, Wake::Queue(queue), Errno::Closed);
        }
        while let Some((putter, message)) = self.queues.next_of(queue, |found| &mut found.putters) {
            let refused = Answer::message(Reply::Refused(message), queue);
            self.wake(putter, Wake::Queue(queue), refused);
        }
        true
    }

    /// Frees a queue after its last handle. Only tasks with a raw number can still wait at it.
    pub(super) fn free_queue(&mut self, queue: QueueId) -> Outcome {
        self.close_queue(queue);
        if let Some((store, status)) = self.queues.remove(queue) {
            drop(store);
            self.frame.keep_status(status);
        }
        Reply::Done.into()
    }

    /// Drops the messages left in the queues. A message may hold a handle of its own queue, and the
    /// two would keep each other alive.
    pub(super) fn clear_queues(&mut self) {
        let Queues { sets, gone } = &mut self.queues;
        for set in sets {
            if set.free.len() == set.slots.len() {
                continue;
            }
            for slot in 0..set.slots.len() {
                if let Some((store, _)) = set.vacate(slot, gone) {
                    store.clear();
                }
            }
        }
    }

    pub(super) fn give_back_by_call(&mut self, queue: QueueId) -> Outcome {
        match self.frame.take_word() {
            Some(message) => {
                self.give_back(queue, message);
                Reply::Done.into()
            }
            None => Errno::Invalid.into(),
        }
    }

    /// Gives a message to the next waiting task, or back to its queue: its task cannot receive it.
    pub(super) fn give_back(&mut self, queue: QueueId, message: u64) {
        self.frame.touch_queue(queue, true);
        self.frame.note(Note::Stored(queue));
        let next = self
            .queues
            .get_mut(queue)
            .and_then(|queue| queue.give_back(message));
        if let Some(next) = next {
            self.frame.note(Note::Removed(queue, next.tid));
            let message = Answer::message(Reply::Message(message), queue);
            self.wake(next, Wake::Queue(queue), message);
        }
    }

    /// Removes a task from the queue where it waits. A message that it was to put is dropped.
    pub(super) fn leave_queue(&mut self, me: Runnable, queue: QueueId, end: End) {
        self.frame.touch_queue(queue, true);
        let found = self
            .queues
            .get_mut(queue)
            .expect("a queue with a waiting task exists");
        if found.is_lock() {
            self.frame.touch(Object::Cycles, true);
        }
        match end {
            End::Get => found.remove_getter(me),
            End::Put => {
                if let Some(message) = found.remove_putter(me) {
                    self.discard(queue, message);
                }
            }
        }
    }
}
